/* plan_internal.h: a plan in the making, between the graph and the image.
 *
 * place.c turns ops of the graph into *pops*, each on one device, with *ptensors*, each in one device's memory.
 * Every task of a pop writes one rectangle of one ptensor. A ptensor is a *base*, with memory of its own, or a
 * *view* of a slice of a base. Readiness belongs to bases: a base is cut into cells (row panels x column panels),
 * one counter a cell, in the memory of the device on which the base lies; whoever writes into a cell signals it,
 * whoever reads waits for it. */
#ifndef WEFT_HOST_PLAN_INTERNAL_H
#define WEFT_HOST_PLAN_INTERNAL_H

#include "../tasks/layout.h"
#include "error.h"
#include "plan.h"

typedef struct weft__ptensor {
    weft_tensor t;                 /* as in the image */
    uint32_t gt;                   /* tensor of the graph, or WEFT_NONE */
    uint32_t next;                 /* next ptensor of the same gt */
    uint32_t base;                 /* itself, if it is a base */
    uint32_t col0, split0;         /* of a view: where it begins in its base */
    uint32_t row_panel, col_panel; /* a cell's rows and columns */
    uint32_t n_col;                /* cells across; down: weft_div_up(rows, row_panel) */
    uint32_t counter0;             /* first cell's counter on the tensor's device */
    uint32_t packets;              /* base of its packets, or WEFT_NONE */
    uint32_t first_writer;         /* pops that write into it: linked by next_writer */
    uint32_t level;                /* one more than the highest level of its writers */
    uint8_t read;                  /* some task waits for it: it has counters */
} weft__ptensor;

typedef struct weft__pop {
    weft_op op; /* as in the image; tensor fields are ptensor indices */
    uint32_t gop;
    uint32_t local; /* index in its device's op table */
    uint32_t level; /* longest chain of pops before it */
    uint32_t next_writer;
    uint32_t groups;     /* 16-row groups a task takes, at most */
    uint32_t n_mt, n_nt; /* tiles down and across; times op.n_split */
    uint32_t cost_ns;    /* of a whole task */
    uint8_t even;        /* the groups are shared out evenly over n_nt tasks; else all but the last take `groups` */
    uint8_t alt;         /* device that may steal its tasks, 0xff: none */
    uint32_t alt_w, alt_aux, alt_local; /* its weights there, and its entry in the op table there */
    uint8_t wait_second;                /* what it reads beside is not ordered by what it waits for anyway */
} weft__pop;

/* Order works on units: the tasks of one pop for one row tile (GEMM graphs), or the tasks of one op (MIX, NOP). */
typedef struct weft__unit {
    uint64_t key[2];
    uint32_t pop, mt;
} weft__unit;

typedef struct weft__plan_state {
    const weft__graph *g;
    const weft__plan_options *opt;
    weft__ptensor *tensors;
    weft__pop *pops;
    weft_weight *weights;
    char *strings;
    uint32_t n_tensor, n_pop, n_weight, n_string;
    uint32_t cap_tensor, cap_pop, cap_weight, cap_string;
    uint32_t *gt_first; /* [g->n_tensor]: list of ptensors of a tensor of the graph */
    uint32_t *gt_name;  /* [g->n_tensor]: its name in strings */
    uint64_t *gt_need;  /* [g->n_tensor]: devices that read all of it */
    uint32_t *group_of; /* [g->n_op]: first device of the group that runs an op */
    uint32_t group;     /* devices a group */
    uint32_t m;         /* rows of the batch */
    uint32_t wide, m_tile, chunk_rows, chunks, act_layout;
    uint32_t strategy_name;
    weft__unit *units; /* in global order */
    uint32_t n_unit;
    uint64_t counters[WEFT_MAX_DEVICES]; /* so far */
    uint64_t n_signal, n_wait, n_remote, remote_bytes;
    uint64_t peak_bytes, live_bytes;
} weft__plan_state;

/* Room for one more element of an array that grows by doubling. */
int weft__plan_grow(weft__plan_state *p, void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t elem);
int weft__plan_string(weft__plan_state *p, const char *s, uint32_t *offset);

/* The tensor that a pop's tasks read first of all, and the one that they write. */
static inline uint32_t weft__op_main(const weft_op *op)
{
    switch (op->kind) {
    case WEFT_KIND_REDUCE:
    case WEFT_KIND_ATTN_COMBINE:
    case WEFT_KIND_SURVEY: return op->partial;
    case WEFT_KIND_SAMPLE: return op->scale;
    case WEFT_KIND_PAGES:
    case WEFT_KIND_EMBED: return WEFT_NONE; /* of this step */
    default: return op->x;
    }
}
static inline uint32_t weft__op_written(const weft_op *op)
{
    return op->flags & WEFT_OP_PARTIAL || (op->kind == WEFT_KIND_ATTN && op->out == WEFT_NONE) ? op->partial : op->out;
}
/* What they read beside: the residual, or the page table. */
static inline uint32_t weft__op_second(const weft_op *op)
{
    if (op->kind == WEFT_KIND_SAMPLE) return op->x;
    if (op->kind == WEFT_KIND_ATTN || op->kind == WEFT_KIND_ROPE) return op->aux;
    return op->epilogue == WEFT_EPI_RESIDUAL ? op->aux : WEFT_NONE;
}

/* tile.c: the shape of tiles for the whole plan, then of one pop's (needs op filled). */
int weft__tile_plan(weft__plan_state *p);
void weft__tile_pop(const weft__plan_state *p, weft__pop *pop);

/* cost.c: estimates, for balance and order. Not a promise. */
uint32_t weft__cost_task(const weft_op *op, uint32_t groups, uint32_t rows, uint32_t kb);

/* What the graph says an op costs on a device: ns, 0 if it says nothing, WEFT_NONE if the op can't run there. */
static inline uint32_t weft__given_cost(const weft__graph *g, const weft__gop *op, uint32_t device)
{
    return op->cost == WEFT_NONE ? 0 : g->costs[(uint64_t)op->cost * g->n_cost_device + device];
}

/* path.c: estimated length of the longest chain of tasks of a variant; 0 if there is no memory to find it. */
uint64_t weft__critical_ns(const weft__image *img, uint32_t variant);

/* place.c: ns of a whole op on a device, with all its workers; UINT64_MAX: it can't run there. */
uint64_t weft__op_ns(const weft__graph *g, const weft__plan_options *opt, const weft__gop *o, uint32_t device);

/* place.c, lower.c: pops and ptensors of a GEMM graph. */
int weft__place(weft__plan_state *p);
int weft__lower(weft__plan_state *p);
int weft__base_new(weft__plan_state *p, const weft_tensor *t, uint32_t gt, uint32_t *id);
int weft__view_new(weft__plan_state *p, uint32_t base, uint32_t col0, uint32_t cols, uint32_t split, uint32_t *id);

/* What lower.c and lower_decode.c share. */
typedef struct weft__slice {
    uint32_t first, n; /* columns */
} weft__slice;
typedef struct weft__lowering {
    weft__plan_state *p;
    uint32_t gop;
    const weft__gop *o;
    uint32_t name; /* of the op, in strings */
    uint32_t dtype, k, cols;
    uint64_t dests;    /* devices that read out */
    uint8_t *sliced;   /* [n_tensor]: out of a column split that stays where it is */
    uint32_t *reader;  /* [n_tensor]: the op that reads it, WEFT_NONE if none does, SEVERAL if more than one */
    uint32_t *quantum; /* [n_tensor]: columns that a slice has a multiple of */
} weft__lowering;
weft__slice weft__slice_of(uint32_t cols, uint32_t t, uint32_t of, uint32_t quantum);
weft_op weft__op_blank(const weft__lowering *c, uint32_t device, uint32_t kind, uint32_t n, uint32_t k);
int weft__lower_activation(weft__plan_state *p, uint32_t gt, uint32_t device, uint32_t cols, uint32_t *id);
int weft__lower_weight(weft__plan_state *p, uint32_t gt, uint32_t device, weft__slice rows, weft__slice cols,
                       uint32_t *id);
int weft__lower_out(const weft__lowering *c, weft_op *op, uint32_t reader, weft__slice s);
int weft__lower_add(const weft__lowering *c, const weft_op *op);

/* lower_decode.c: what of a decoder is no GEMM and no norm. */
int weft__lower_decode(weft__lowering *c, uint32_t first, uint32_t of);

/* counters.c: packets, counters and levels of a GEMM graph; then what one task waits for and signals. */
enum {
    WEFT__MAX_K_PANELS = 32,
    WEFT__MAX_EDGES = 3 * WEFT__MAX_K_PANELS
};
typedef struct weft__tile {
    uint32_t mt, nt, split;              /* which */
    uint32_t m0, rows, g0, ng, kb0, nkb; /* where */
} weft__tile;
typedef struct weft__edges {
    uint32_t n_wait, n_signal;
    weft_wait wait[WEFT__MAX_EDGES];     /* arrivals are filled in by weft__finish */
    weft_signal signal[WEFT__MAX_EDGES]; /* so is scope */
} weft__edges;
int weft__packets(weft__plan_state *p);
int weft__counters(weft__plan_state *p);
void weft__tile_edges(const weft__plan_state *p, const weft__pop *pop, const weft__tile *tile, weft__edges *e);

/* order.c: units in a global topological order. */
int weft__order_units(weft__plan_state *p);

/* emit.c, dag.c: the image, but for what finish.c derives: arrivals, scopes, dependency lists, order. */
int weft__emit(weft__plan_state *p, weft__image_writer *w);
int weft__dag_emit(weft__plan_state *p, weft__image_writer *w);
int weft__finish(weft__image_writer *w);

#endif
