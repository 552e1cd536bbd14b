/* plan.h: graph in, image out. Pure: no threads, no clock, no machine; same input, same bytes.
 *
 *   graph ─ place.c ─ tile.c ─ order.c ─ counters.c ─ emit.c ─ image ─ validate.c ─ policies claimed
 *
 * What a task may rely on, and so every plan keeps: a task reads only memory of its own device; outputs are written
 * straight into the memory of each device that reads them; counters live with the device that waits. */
#ifndef WEFT_HOST_PLAN_H
#define WEFT_HOST_PLAN_H

#include "graph.h"
#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weft__strategy {
    WEFT__SINGLE,     /* everything on device 0 */
    WEFT__CTA,        /* layers in contiguous blocks over the devices, tile-level readiness */
    WEFT__MICROBATCH, /* the same placement; M in chunks, a whole-layer barrier per chunk */
    WEFT__TP,         /* every layer over all devices: column then row split, reduce */
    WEFT__CTA_TP,     /* groups of `tp` devices, layers in blocks over the groups */
    WEFT__STRATEGY_COUNT
};
enum weft__order {
    WEFT__BREADTH,
    WEFT__CRITICAL,
    WEFT__GROUPED,
    WEFT__ORDER_AUTO, /* grouped where devices form a pipeline (cta, cta-tp), else breadth */
    WEFT__ORDER_COUNT
};
enum weft__auto {
    WEFT__AUTO = -1,
    WEFT__OFF = 0,
    WEFT__ON = 1
};

/* Names as the CLI spells them ("single", "cta", "microbatch", "tp", "cta-tp"; "breadth", "critical", "grouped", "auto");
 * parse returns the value or WEFT_EUSAGE. */
const char *weft__strategy_name(uint32_t strategy);
int weft__strategy_parse(const char *name);
const char *weft__order_name(uint32_t order);
int weft__order_parse(const char *name);

typedef struct weft__plan_options {
    uint32_t n_device;                  /* 1 .. WEFT_MAX_DEVICES */
    uint32_t workers[WEFT_MAX_DEVICES]; /* planned for; at least 1 */
    uint32_t strategy, order;
    uint32_t chunks;      /* MICROBATCH: chunks of M; 0: chosen by the cost model */
    uint32_t tp;          /* CTA_TP: devices a group; divides n_device */
    uint32_t tile_groups; /* groups of 16 output rows a task takes; 0: chosen */
    uint32_t m_tile;      /* rows a task takes; 0: chosen */
    uint32_t split_k;     /* K splits of every GEMM; 0 or 1: none */
    uint32_t k_panels; /* counters a row panel is cut into, so that a task may begin on part of its input; 0, 1: one */
    uint32_t packet_max_rows; /* edges with at most so many rows carry packets too; at most 8 */
    int32_t wide;             /* enum weft__auto: GEMM_WIDE */
    uint32_t alternates;   /* steal: the next device may take a device's GEMMs and norms, and has their weights too */
    uint32_t copies;       /* a device writes to itself, and COPY tasks take what others read to them */
    uint64_t seed;         /* recorded in the header */
    const uint32_t *place; /* CTA: [op] the device of each op; NULL: layers in blocks */
} weft__plan_options;
/* Defaults: one device with one worker, single, everything chosen, packets for one row. */
weft__plan_options weft__plan_defaults(void);

typedef struct weft__plan_stats {
    uint64_t tasks, remote_signals, signals, waits, counters; /* a step */
    uint64_t remote_bytes;                                    /* written to peers a step, packets included */
    uint32_t chunks, policies;
    uint64_t weight_bytes[WEFT_MAX_DEVICES], work_bytes[WEFT_MAX_DEVICES];
    uint64_t critical_ns, total_ns; /* by the cost model: longest path, sum */
    uint64_t peak_bytes;            /* memory that planning took, image included */
} weft__plan_stats;

/* Plans and validates. *bytes is freed with free(); stats may be NULL. WEFT_EUSAGE: an option that doesn't go with the
 * graph; WEFT_EREFUSED: the validator turned the plan down (a defect of the planner). */
int weft__plan(const weft__graph *g, const weft__plan_options *opt, void **bytes, uint64_t *size,
               weft__plan_stats *stats);

/* What an op writes into the memory of other devices a step, packets included: bytes, and the device (WEFT_NONE: none). */
uint64_t weft__op_remote_bytes(const weft__image *img, const weft_op *op, uint32_t *to);

/* Stats of any image (peak_bytes 0). */
void weft__plan_stats_of(const weft__image *img, weft__plan_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
