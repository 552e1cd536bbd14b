/* weft_plan.h: making images: what is to be computed (a graph), and how it is cut, placed and ordered (a plan).
 *
 * Needs no GPU and no devices. Conventions as in weft.h.
 *
 *     weft_graph *g;
 *     uint32_t x, w, out;
 *     weft_graph_create(&g);
 *     weft_graph_tensor(g, "input", "x", "bf16", 8, 4096, &x);          // every call returns a status
 *     weft_graph_seeded(g, "w", "bf16", 4096, 4096, 1, 0.02f, &w);
 *     weft_graph_tensor(g, "output", "out", "bf16", 8, 4096, &out);
 *     weft_gemm d = WEFT_GEMM_INIT;
 *     d.x = x, d.w = w, d.out = out;
 *     weft_graph_gemm(g, &d);
 *     weft_plan_config c = WEFT_PLAN_CONFIG_INIT;
 *     uint32_t workers[2] = {132, 132};
 *     c.n_device = 2, c.workers = workers, c.strategy = "tp";
 *     void *image;
 *     size_t bytes;
 *     if (weft_plan(g, &c, &image, &bytes)) die(weft_last_error());
 *     weft_engine_create(image, bytes, ...);
 *     weft_image_free(image);
 *     weft_graph_destroy(g);
 *
 * Same graph and same configuration give the same bytes.
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------- graphs */

/* Ops and tensors, in execution order: an op may read inputs, weights, and what ops before it write. */
typedef struct weft__graph weft_graph;

WEFT_API int weft_graph_create(weft_graph **out);
WEFT_API void weft_graph_destroy(weft_graph *g);

/* A tensor of rows x cols. role: "input" (written by weft_tensor_write_f32), "output" (read back), "activation"
 * (between ops). dtype: "bf16" or "fp16". *tensor is its id, for weft_gemm. The name is copied.
 */
WEFT_API int weft_graph_tensor(weft_graph *g, const char *role, const char *name, const char *dtype, uint32_t rows,
                               uint32_t cols, uint32_t *tensor);

/* A weight of n x k whose values come from the engine's weight source, under the name `a`. With `b` too, rows of a
 * and b (n / 2 each, padded to a multiple of 8) alternate in eights, for "gated_silu": a is the gate. With `gain`, a
 * vector of k, columns are multiplied by it (the gain of an RMSNorm before the GEMM). dtype "fp32" with n = 1: a bias.
 */
WEFT_API int weft_graph_weight(weft_graph *g, const char *a, const char *b, const char *gain, const char *dtype,
                               uint32_t n, uint32_t k, uint32_t *tensor);

/* A weight of seeded values, uniform in [-scale, scale), the same on every machine. */
WEFT_API int weft_graph_seeded(weft_graph *g, const char *name, const char *dtype, uint32_t n, uint32_t k,
                               uint64_t seed, float scale, uint32_t *tensor);

#define WEFT_NO_TENSOR 0xffffffffu

typedef struct weft_gemm {
    size_t size;          /* sizeof(weft_gemm) */
    const char *name;     /* for traces and reports; NULL: "gemm" */
    const char *epilogue; /* "none", "silu", "gelu", "bias" (+ aux), "residual" (+ aux), "gated_silu" */
    uint32_t layer;       /* ops of one layer stay together; rising */
    uint32_t x, w, out;   /* x: m x k, w: n x k, out: m x n (gated: m x n/2) */
    uint32_t aux;         /* residual: as out; bias: 1 x n, fp32 */
    uint32_t norm;        /* 1: rows of x are divided by sqrt(mean(x^2) + eps) first */
    float eps;
} weft_gemm;
#define WEFT_GEMM_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(weft_gemm), NULL, "none", 0, WEFT_NO_TENSOR, WEFT_NO_TENSOR, WEFT_NO_TENSOR, WEFT_NO_TENSOR, 0, 0.0f    \
    }

/* out = epilogue(norm(x) w^T, aux). */
WEFT_API int weft_graph_gemm(weft_graph *g, const weft_gemm *desc);

typedef struct weft_rmsnorm {
    size_t size;      /* sizeof(weft_rmsnorm) */
    const char *name; /* for traces and reports; NULL: "rmsnorm" */
    uint32_t layer;   /* as in weft_gemm */
    uint32_t x, out;  /* m x k */
    uint32_t gain;    /* 1 x k, fp32; WEFT_NO_TENSOR: 1 */
    float eps;
} weft_rmsnorm;
#define WEFT_RMSNORM_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(weft_rmsnorm), NULL, 0, WEFT_NO_TENSOR, WEFT_NO_TENSOR, WEFT_NO_TENSOR, 0.0f                            \
    }

/* out = x / sqrt(mean(x^2) + eps) * gain, row by row, stored; weft_gemm's `norm` does it on the way instead. */
WEFT_API int weft_graph_rmsnorm(weft_graph *g, const weft_rmsnorm *desc);

/* What the op added last costs on each of n_device devices: ns for the whole op; 0: as the cost model has it;
 * WEFT_COST_NONE: it can't run there. Plans of this graph are then for n_device devices: "cta", "microbatch" and
 * "cta-tp" place their blocks of layers by these costs, "single" takes the best device, and what can't be placed is
 * refused.
 */
#define WEFT_COST_NONE 0xffffffffu
WEFT_API int weft_graph_costs(weft_graph *g, const uint32_t *ns, uint32_t n_device);

/* GEMMs of widths[0] -> widths[1] -> ..., all of them `repeat` times, for m rows; seeded weights that keep the
 * variance. Input "x", output "out".
 */
WEFT_API int weft_graph_chain(const uint32_t *widths, uint32_t n_width, uint32_t repeat, uint32_t m, const char *dtype,
                              uint64_t seed, weft_graph **out);

/* The MLP blocks of a Llama-family model: x + down(silu(gate(norm x)) * up(norm x)), `layers` times, for m rows.
 * Weights have the names of the model's files ("model.layers.0.mlp.gate_proj.weight" ...) if `named`, else seeded
 * values.
 */
WEFT_API int weft_graph_mlp(uint32_t hidden, uint32_t intermediate, uint32_t layers, float eps, uint32_t m,
                            const char *dtype, int named, uint64_t seed, weft_graph **out);

/* ----------------------------------------------------------------------------------------------------------- plans */

typedef struct weft_plan_config {
    size_t size;             /* sizeof(weft_plan_config) */
    uint32_t n_device;       /* 1..64 */
    const uint32_t *workers; /* [n_device]; NULL: 132 each. A plan runs with any other number too */
    const char *strategy;    /* "single", "cta", "microbatch", "tp", "cta-tp" */
    const char *order;       /* "auto", "breadth", "critical", "grouped" */
    uint32_t chunks;         /* microbatch; 0: chosen */
    uint32_t tp;             /* cta-tp: devices a group */
    uint32_t tile_groups;    /* groups of 16 output columns a task makes; 0: chosen */
    uint32_t m_tile;         /* rows a task takes; 0: chosen */
    uint32_t split_k;        /* K splits of GEMMs; 0, 1: none */
    uint32_t k_panels;       /* parts of its input on which a task may wait one by one; 0, 1: the whole */
    uint32_t packet_rows;    /* edges of at most so many rows (0..8) carry packets */
    uint64_t seed;           /* recorded */
    uint32_t copies;         /* 1: results stay on the device that makes them, copies take them to readers elsewhere */
    uint32_t
        alternates; /* 1: queue "steal" may run a device's GEMMs and norms on the next one, which gets their weights
                                too */
} weft_plan_config;
#define WEFT_PLAN_CONFIG_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(weft_plan_config), 1, NULL, "single", "auto", 0, 1, 0, 0, 0, 0, 1, 0, 0, 0                              \
    }

/* Plans and proves. *image goes to weft_image_free. WEFT_EUSAGE: the configuration doesn't go with the graph. */
WEFT_API int weft_plan(const weft_graph *g, const weft_plan_config *config, void **image, size_t *bytes);
WEFT_API void weft_image_free(void *image);

/* Is this an image, and is it proven for the queues that it claims? WEFT_EFILE, WEFT_EREFUSED. `bytes` at a multiple
 * of 16. */
WEFT_API int weft_image_check(const void *image, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
