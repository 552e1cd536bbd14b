/* graph.h: what is to be computed: ops and tensors, before anything is cut or placed.
 *
 * A graph is built in execution order: an op may only read tensors that are written by ops before it (or inputs and
 * weights). Names and shapes are copied. The structs may be read (by the planner, by the reference); they are written
 * only through the calls below. Not thread-safe; no global state. */
#ifndef WEFT_HOST_GRAPH_H
#define WEFT_HOST_GRAPH_H

#include "../tasks/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a weight's values come from (becomes weft_weight). Strings may be NULL. */
typedef struct weft__source {
    uint32_t fill; /* enum weft_fill */
    const char *a, *b, *c, *gain;
    uint32_t rows_a, rows_b, rows_c; /* that take turns, where there is a b */
    uint64_t seed;
    float scale;
} weft__source;

typedef struct weft__gtensor {
    char *name;          /* never NULL */
    uint8_t role, dtype; /* WEIGHT, ACT, INPUT or OUTPUT */
    uint32_t rows,
        cols; /* INPUT, ACT, OUTPUT: m x k. WEIGHT: n x k, n as packed (gated: gate and up rows, padded to 16) */
    uint32_t producer;   /* op that writes it, or WEFT_NONE */
    uint32_t quantum;    /* tensor parallel slices have a multiple of so many columns; 0: of 64 */
    weft__source source; /* of a weight; strings owned by the graph */
} weft__gtensor;

enum weft__gop_kind {
    WEFT__GOP_GEMM,
    WEFT__GOP_MIX,
    WEFT__GOP_NOP,
    WEFT__GOP_RMSNORM,
    WEFT__GOP_EMBED, /* what follows is of decoders: graph_decode.c */
    WEFT__GOP_ROPE,
    WEFT__GOP_ATTN,
    WEFT__GOP_SAMPLE
};

typedef struct weft__gop {
    char *name;
    uint8_t kind;            /* enum weft__gop_kind */
    uint8_t epilogue;        /* enum weft_epilogue */
    uint8_t norm;            /* rows of x are divided by their RMS first */
    uint8_t sums;            /* GEMM: out is fp32 sums as they are, in PARTIAL layout, for SAMPLE */
    uint8_t join;            /* MIX, NOP: the task's inputs meet at one counter instead of one counter an input */
    uint32_t layer;          /* what placements count: ops of one layer stay together */
    uint32_t device;         /* MIX, NOP: where it runs */
    uint32_t x, w, aux, out; /* tensors, or WEFT_NONE. RMSNORM: w is the gain; decoders: see weft__decode */
    uint32_t extra;          /* ROPE: weight of fp32: frequencies, gains; SAMPLE: page table, or WEFT_NONE */
    uint32_t param[6];       /* decoders: as in weft_op */
    float eps;
    uint32_t constant; /* MIX */
    uint32_t n_tile;   /* NOP: tasks; 1 for MIX */
    uint32_t cost_ns;  /* NOP, MIX: of one task */
    uint32_t cost;     /* row of graph->costs, or WEFT_NONE */
    uint32_t in, n_in; /* MIX, NOP: range of graph->inputs[], ops that this one depends on, in argument order */
} weft__gop;

typedef struct weft__graph {
    weft__gtensor *tensors;
    weft__gop *ops;
    uint32_t *inputs;
    uint32_t *costs; /* [n_cost][n_cost_device] */
    uint32_t n_tensor, n_op, n_input, n_cost, n_cost_device;
    uint32_t cap_tensor, cap_op, cap_input, cap_cost;
} weft__graph;

int weft__graph_new(weft__graph **out);
void weft__graph_free(weft__graph *g); /* NULL is legal */

int weft__graph_tensor(weft__graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t rows, uint32_t cols,
                       uint32_t *id);
int weft__graph_weight(weft__graph *g, const char *name, uint32_t dtype, uint32_t rows, uint32_t cols,
                       const weft__source *source, uint32_t *id);

/* out = epilogue(norm(x) w^T, aux). Give `out` as a tensor made before; op id in *op unless op is NULL. */
typedef struct weft__gemm {
    const char *name;
    uint32_t layer, x, w, aux, out;
    uint32_t epilogue, norm;
    float eps;
    uint32_t sums; /* out is fp32, and has what the GEMM adds up: for an op that reads that (SAMPLE) */
} weft__gemm;
int weft__graph_gemm(weft__graph *g, const weft__gemm *desc, uint32_t *op);

/* out = x / sqrt(mean(x^2) + eps) * gain, row by row. gain: a weight of 1 x k, fp32, or WEFT_NONE. */
typedef struct weft__rmsnorm {
    const char *name;
    uint32_t layer, x, gain, out;
    float eps;
} weft__rmsnorm;
int weft__graph_rmsnorm(weft__graph *g, const weft__rmsnorm *desc, uint32_t *op);

/* One task that hashes `constant` and the values of the ops in in[] (MIX ops), in order, on `device`. Op i's value
 * is word i of the OUTPUT tensor "out" (1 x n_op, u32) on device 0, and of every device that needs it. */
int weft__graph_mix(weft__graph *g, uint32_t device, uint32_t constant, const uint32_t *in, uint32_t n_in,
                    uint32_t join, uint32_t *op);

/* n_tile tasks of cost_ns each on `device`; every one of them waits for all tasks of the ops in in[] (NOP ops). */
int weft__graph_nop(weft__graph *g, uint32_t device, uint32_t n_tile, uint32_t cost_ns, const uint32_t *in,
                    uint32_t n_in, uint32_t join, uint32_t *op);

/* What the op costs on each device: ns[d] for the whole op on device d; 0: as the cost model has it; WEFT_NONE: it can't
 * run there. Plans of this graph are for n_device devices then. An op gets costs once. */
int weft__graph_costs(weft__graph *g, uint32_t op, const uint32_t *ns, uint32_t n_device);

/* The value of every op of a MIX graph, computed one after another: values[n_op]. */
int weft__graph_mix_values(const weft__graph *g, uint32_t *values);

/* ------------------------------------------------------------------------------------------------------- builders */

/* GEMMs of widths w[0] -> w[1] -> ..., the whole row of widths `repeat` times (then w[0] must equal w[n-1] if repeat
 * > 1). Weights are seeded, uniform with scale sqrt(3/k), so that variance is kept. INPUT "x" (m x w[0]), OUTPUT
 * "out". Each GEMM is a layer. Element type: dtype (BF16 or FP16). */
typedef struct weft__chain {
    const uint32_t *widths;
    uint32_t n_width, repeat, m, dtype;
    uint64_t seed;
    uint32_t epilogue; /* of every GEMM: NONE, SILU, GELU or BIAS (bias seeded) */
} weft__chain;
int weft__graph_chain(const weft__chain *c, weft__graph **out);

/* The MLP blocks of a Llama-family model, one a layer: x + down(silu(gate(norm x)) * up(norm x)). With `named`, weights
 * come from the model's files under "<prefix>layers.<i>.mlp.gate_proj.weight" and so on, and the gain under
 * "<prefix>layers.<i>.post_attention_layernorm.weight"; else seeded values of the same shapes (gain 1). */
typedef struct weft__model {
    uint32_t hidden, intermediate, layers;
    float eps;
    uint32_t named;
    const char *prefix; /* NULL: "model." */
    uint32_t dtype;     /* as computed: BF16 or FP16 */
    uint64_t seed;
    uint32_t separate_norm; /* the norm is an op of its own, its result stored; else the gate and up GEMM applies it */
} weft__model;
int weft__graph_mlp(const weft__model *model, uint32_t m, weft__graph **out);

/* ---------------------------------------------------------------------------------- for the files of the graph alone */

int weft__graph_add(weft__graph *g, const weft__gop *op, const char *name, uint32_t *id);
int weft__graph_shape(const weft__graph *g, const char *op, const char *field, uint32_t id, uint32_t rows,
                      uint32_t cols, uint32_t dtype);
/* An input, a weight, or written by an op before; what an op may write. */
int weft__graph_readable(const weft__graph *g, const char *op, const char *field, uint32_t id);
int weft__graph_writable(const weft__graph *g, const char *op, uint32_t id);

/* ------------------------------------------------------------------------------------------------------ decoders */

/* Memory that outlives a step: role KV or TABLE. `rows` are all of them; a group of devices shares a cache's heads out. */
int weft__graph_state(weft__graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t rows, uint32_t cols,
                      uint32_t *id);

/* out (rows x k) = rows of w (vocab x k) by token; `fed` (u32, 2 x WEFT_MAX_ROWS): tokens fed back (tasks/sample.h). */
typedef struct weft__embed {
    const char *name;
    uint32_t layer, fed, w, out;
} weft__embed;
int weft__graph_embed(weft__graph *g, const weft__embed *d, uint32_t *op);

/* ROPE and ATTN (tasks/attn.h): qkv (rows x (heads + 2 kv_heads) * head_dim) -> attention over the cache (rows x heads *
 * head_dim), which gets the rows' keys and values. q is made between them. */
typedef struct weft__attention {
    const char *name;
    uint32_t layer, qkv, turn, kv, table, out;
    uint32_t heads, kv_heads, head_dim;
    uint32_t norm; /* `turn` has gains too */
    float eps;
    uint32_t block; /* tokens a unit of work; 0: chosen */
} weft__attention;
int weft__graph_attention(weft__graph *g, const weft__attention *d);

/* fed = tokens chosen from sums (fp32, rows x vocab, of a GEMM with `sums`). logits: OUTPUT, fp32, rows x vocab, or
 * WEFT_NONE. tokens (KV, u32, pages x 64) and table: for the penalty, or WEFT_NONE. */
typedef struct weft__sample {
    const char *name;
    uint32_t layer, sums, fed, logits, tokens, table;
} weft__sample;
int weft__graph_sample(weft__graph *g, const weft__sample *d, uint32_t *op);

/* A whole step of a decoder. INPUT: nothing, all is in the step's payload (weft_step_batch). OUTPUT "logits" (rows x vocab,
 * fp32). Weights by their names in the model's files under `prefix`, and "@rope" (1 x head_dim / 2, fp32) for the
 * frequencies; or seeded values of the same shapes. */
typedef struct weft__decode {
    const struct weft__config *config;
    uint32_t named;
    const char *prefix; /* NULL: "model." */
    uint32_t dtype;     /* BF16 or FP16 */
    uint64_t seed;
    uint32_t rows;    /* 1 .. WEFT_MAX_ROWS */
    uint32_t slots;   /* rows of the page table: sequences at a time */
    uint32_t pages;   /* of 64 tokens, for all sequences */
    uint32_t context; /* tokens of a sequence, at most */
} weft__decode;
int weft__graph_decode(const weft__decode *d, weft__graph **out);

#ifdef __cplusplus
}
#endif

#endif
