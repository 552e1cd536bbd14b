/* cli_work.h: what a verb is asked to compute: a graph with its weights, its input and what should come out.
 *
 * The options below are the same for plan, run and trace. A work is made once and may be planned, run and checked many times. */
#ifndef WEFT_RUNTIME_CLI_WORK_H
#define WEFT_RUNTIME_CLI_WORK_H

#include "../host/graph.h"
#include "../host/hfmodel.h"
#include "../host/plan.h"
#include "cli.h"

typedef struct weft__work_options {
    const char *chain;    /* "576,1536,576" */
    const char *mlp;      /* "576,1536": seeded MLP blocks of these widths */
    const char *model;    /* a Hugging Face directory */
    const char *block;    /* of the model: "mlp" */
    const char *dtype;    /* "bf16", "fp16" */
    const char *epilogue; /* of a chain */
    const char *norm;     /* of MLP blocks: "fused", "separate" */
    uint32_t layers;      /* 0: all of a model, 1 of a chain or of seeded blocks */
    uint32_t batch;
    uint64_t seed;
} weft__work_options;
weft__work_options weft__work_defaults(void);

/* Appends the rows that set *o to a verb's table, which has room for them (WEFT_OPTIONS_MAX); returns the next free row. */
#define WEFT_OPTIONS_MAX 48
weft__option *weft__work_rows(weft__work_options *o, weft__option *row);

typedef struct weft__work {
    weft__work_options options;
    weft__graph *graph;
    weft__hfmodel hf;
    weft__weight_reader reader;
    int has_reader;
    char text[160]; /* "30 MLP blocks of DIR, 576 -> 1536 -> 576" */
    uint32_t rows, in_cols, out_cols;
    float *x; /* the input: rows x in_cols */
} weft__work;

int weft__work_open(const weft__work_options *options, weft__work *out);
void weft__work_close(weft__work *w); /* legal on a zeroed struct */

/* Gets what the run stored in a tensor: rows x cols values. Not 0: that tensor isn't known whole, which is no failure. */
typedef int weft__work_stored(void *user, const char *tensor, float *dst, uint32_t rows, uint32_t cols);

typedef struct weft__work_error {
    double rel_error; /* the largest of any tensor that an op stores; NaN if a value is none */
    char worst[64];   /* that tensor */
    uint32_t tensors; /* compared */
} weft__work_error;

/* Compares everything that a run stored with the float64 reference, on all cores; see weft__observed. The output must be
 * known.                                                                                                               */
int weft__work_check(const weft__work *w, weft__work_stored *stored, void *user, weft__work_error *out);

/* "a,b,c" into numbers of 1 .. max. *n: room, then how many. `option` stands in messages. */
int weft__parse_list(const char *option, const char *text, uint32_t max, uint32_t *out, uint32_t *n);

/* How a verb plans it. */
typedef struct weft__plan_flags {
    const char *devices, *strategy, *order, *wide;
    uint32_t chunks, tp, tile_groups, m_tile, split_k, k_panels, packet_rows;
    bool copies, alternates;
    const char *costs; /* "0-3:1:none,4:0:25000" */
    const char *place; /* a file: which device runs each op (placer.h); with strategy cta */
    const char *dump;  /* a file: ops, costs, edges as a task graph */
} weft__plan_flags;
weft__plan_flags weft__plan_flag_defaults(void);
weft__option *weft__plan_rows(weft__plan_flags *f, weft__option *row);

/* Opens the spec's devices for their worker numbers (or takes them from "NxW", which opens nothing) and plans w's graph. */
int weft__work_plan(const weft__work *w, const weft__plan_flags *flags, void **image, uint64_t *bytes,
                    weft__plan_stats *stats);

#endif
