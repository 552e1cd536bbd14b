/* cli_bench_queue.h: what the files of `weft bench queue` share: cli_bench_queue.c (options, turns), _dag.c (graphs of tasks and
 * their images), _time.c (engines, times, traces), _out.c (tables, JSON, CSV).
 *
 * A graph has nodes; each becomes a task that spins, a task that streams, or both, one after the other. With bytes on edges a
 * node is followed by a task for each device with readers of it, which stores the bytes there; readers wait for that.   */
#ifndef WEFT_RUNTIME_CLI_BENCH_QUEUE_H
#define WEFT_RUNTIME_CLI_BENCH_QUEUE_H

#include "../host/plan.h"
#include "stats.h"
#include "weft.h"

#include <stdbool.h>

#define WEFT__QUEUE_SIDES 16 /* policies compared at most */

typedef struct weft__queue_case { /* one graph on one set of devices */
    const char *devices, *graph, *dist, *work, *place, *order, *counters;
    uint32_t width, depth, degree;
    double mean_us, spread, sigma, long_share, long_factor;
    uint64_t bytes, edge_bytes; /* a node streams on average; an edge carries */
    uint64_t seed;
    bool alternates;
} weft__queue_case;

enum weft__qtask_kind {
    WEFT__QTASK_SPIN,
    WEFT__QTASK_STREAM,
    WEFT__QTASK_EDGE
};

typedef struct weft__qtask {
    uint32_t kind, device;
    uint32_t to;            /* EDGE: device that it stores to */
    uint32_t cost_ns;       /* SPIN: how long */
    uint32_t block, blocks; /* STREAM, EDGE: of 1 KB, in its device's buffers (EDGE: in those for `to`) */
    uint32_t in, n_in;      /* inputs[], tasks before this one */
} weft__qtask;

typedef struct weft__qdag {
    uint32_t n_device, workers[WEFT_MAX_DEVICES], all_workers;
    weft__qtask *tasks;
    uint32_t *inputs;
    uint32_t n, cap, n_input, cap_input, n_node;
    uint32_t n_of[WEFT_MAX_DEVICES];
    uint32_t *task_of[WEFT_MAX_DEVICES]; /* [device][id in its queue of an image]: task */
    uint64_t bytes, remote_bytes;        /* moved a step: read and written; stored to other devices */
    uint32_t edges, remote_edges;        /* of nodes */
} weft__qdag;

/* WEFT_EUSAGE: a name that is none, or numbers that make too large a graph. Free also after a failure. */
int weft__qdag_make(const weft__queue_case *c, weft__qdag *out);
void weft__qdag_free(weft__qdag *g);

enum weft__qdag_mode {
    WEFT__QDAG_FULL,
    WEFT__QDAG_EMPTY, /* the same graph of tasks that do nothing */
    WEFT__QDAG_FREE,  /* the same tasks without dependencies */
    WEFT__QDAG_MODES
};
/* Freed with free(). task_of is of the image that was made last. */
int weft__qdag_image(const weft__queue_case *c, weft__qdag *g, uint32_t mode, void **bytes, uint64_t *size);

typedef struct weft__qbound { /* us; from how long each task takes */
    double critical, work, share, fullest,
        bound; /* longest way; sum; sum over all workers; the same of the fullest device */
} weft__qbound;
/* ns[task]. Where tasks may be stolen abroad, the fullest device is no bound. */
int weft__qdag_bound(const weft__queue_case *c, const weft__qdag *g, const double *ns, weft__qbound *out);

typedef struct weft__qside { /* one policy */
    const char *queue;
    char spec[512];               /* with all parameters */
    double *us[WEFT__QDAG_MODES]; /* samples, in the order of time */
    uint32_t n[WEFT__QDAG_MODES];
    double *median[WEFT__QDAG_MODES]; /* [round] */
    weft_queue_counts counts;         /* of the full graph, all workers, timed steps */
    uint32_t counted;                 /* steps */
    /* from traces, sums over steps and workers, ns */
    double span, compute, wait, signal, requested, achieved;
    double *over; /* achieved over requested of each spinning task, n_over of them */
    uint32_t n_over, traced;
} weft__qside;

typedef struct weft__qbench {
    weft__queue_case c;
    uint32_t steps, rounds, deadline_us, n_side;
    weft__qside side[WEFT__QUEUE_SIDES];
    weft__qdag g;
    void *image[WEFT__QDAG_MODES];
    uint64_t image_bytes[WEFT__QDAG_MODES];
    uint32_t remote_signals;
    double *ns, *seen; /* [task]: how long it took in the traces, all policies; how often */
    char names[256];   /* of the devices */
} weft__qbench;

/* Plans, runs all policies in turns. A policy that these devices can't run is left out, with a word on stderr, unless it is the
 * only one. Free also after a failure. */
int weft__qbench_run(weft__qbench *b);
void weft__qbench_free(weft__qbench *b);

/* What was measured. format: 0 a table, 1 JSON lines, 2 CSV; first: CSV begins with the names. */
int weft__qbench_print(weft__qbench *b, int format, bool first);

#endif
