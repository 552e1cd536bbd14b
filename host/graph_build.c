/* graph_build.c: the two builders: a chain of GEMMs, and the MLP blocks of a Llama-family model.
 *
 * Enters: widths or a model's shape. Leaves: a graph with INPUT "x" and OUTPUT "out". */
#include "graph.h"

#include "../tasks/layout.h"
#include "../tasks/seed.h"
#include "error.h"

#include <math.h>
#include <stdio.h>

/* A seed of its own for the i-th weight. */
static uint64_t weight_seed(uint64_t seed, uint32_t i)
{
    return (uint64_t)weft_hash(seed, i, 1) << 32 | weft_hash(seed, i, 2);
}

static int seeded_weight(weft__graph *g, const char *name, uint32_t dtype, uint32_t n, uint32_t k, uint64_t seed,
                         uint32_t *id)
{
    weft__source s = {.fill = WEFT_FILL_SEED, .seed = seed, .scale = sqrtf(3.0f / (float)k)};
    return weft__graph_weight(g, name, dtype, n, k, &s, id);
}

static int check_dtype(uint32_t dtype)
{
    if (dtype == WEFT_BF16 || dtype == WEFT_FP16) return 0;
    return weft__fail(WEFT_EUSAGE, "graph: element type %u is neither bf16 nor fp16", dtype);
}

static int chain_layer(weft__graph *g, const weft__chain *c, uint32_t layer, uint32_t n_layer, uint32_t *x)
{
    const uint32_t at = layer % (c->n_width - 1), k = c->widths[at], n = c->widths[at + 1];
    const int last = layer + 1 == n_layer;
    char name[64];
    weft__gemm d = {.layer = layer, .x = *x, .aux = WEFT_NONE, .epilogue = c->epilogue, .name = name};
    snprintf(name, sizeof name, "w%u", layer);
    int rc = seeded_weight(g, name, c->dtype, n, k, weight_seed(c->seed, layer), &d.w);
    if (!rc && c->epilogue == WEFT_EPI_BIAS) {
        weft__source s = {.fill = WEFT_FILL_SEED, .seed = weight_seed(c->seed, layer + 0x40000000u), .scale = 0.5f};
        snprintf(name, sizeof name, "b%u", layer);
        rc = weft__graph_weight(g, name, WEFT_FP32, 1, n, &s, &d.aux);
    }
    snprintf(name, sizeof name, last ? "out" : "h%u", layer);
    if (!rc) rc = weft__graph_tensor(g, name, last ? WEFT_ROLE_OUTPUT : WEFT_ROLE_ACT, c->dtype, c->m, n, &d.out);
    snprintf(name, sizeof name, "gemm%u", layer);
    if (!rc) rc = weft__graph_gemm(g, &d, NULL);
    *x = d.out;
    return rc;
}

int weft__graph_chain(const weft__chain *c, weft__graph **out)
{
    *out = NULL;
    if (c->n_width < 2) return weft__fail(WEFT_EUSAGE, "chain: %u widths, at least 2 are needed", c->n_width);
    if (!c->repeat || c->repeat > 1u << 20) return weft__fail(WEFT_EUSAGE, "chain: repeated %u times", c->repeat);
    if (!c->m) return weft__fail(WEFT_EUSAGE, "chain: no rows");
    for (uint32_t i = 0; i < c->n_width; i++) {
        if (!c->widths[i] || c->widths[i] > 1u << 21) {
            return weft__fail(WEFT_EUSAGE, "chain: width %u is %u, not 1..2097152", i, c->widths[i]);
        }
    }
    if (c->repeat > 1 && c->widths[0] != c->widths[c->n_width - 1]) {
        return weft__fail(WEFT_EUSAGE, "chain: widths begin with %u and end with %u, so they can't be repeated",
                          c->widths[0], c->widths[c->n_width - 1]);
    }
    if (c->epilogue == WEFT_EPI_GATED_SILU || c->epilogue == WEFT_EPI_RESIDUAL || c->epilogue > WEFT_EPI_GELU) {
        return weft__fail(WEFT_EUSAGE, "chain: epilogue %u does not go with a chain", c->epilogue);
    }
    weft__graph *g;
    int rc = check_dtype(c->dtype);
    if (rc || (rc = weft__graph_new(&g))) return rc;
    uint32_t x, n_layer = c->repeat * (c->n_width - 1);
    rc = weft__graph_tensor(g, "x", WEFT_ROLE_INPUT, c->dtype, c->m, c->widths[0], &x);
    for (uint32_t l = 0; l < n_layer && !rc; l++)
        rc = chain_layer(g, c, l, n_layer, &x);
    if (rc)
        weft__graph_free(g);
    else
        *out = g;
    return rc;
}

/* ----------------------------------------------------------------------------------------------------- MLP blocks */

typedef struct names { /* of one layer, in the model's files and in the graph */
    char gate[192], up[192], down[192], gain[192], w_gateup[64], w_down[64], g[64], norm[64], h[64], out[64];
} names;

static void name_layer(names *n, const weft__model *m, uint32_t layer)
{
    const char *p = m->prefix ? m->prefix : "model.";
    snprintf(n->gate, sizeof n->gate, "%slayers.%u.mlp.gate_proj.weight", p, layer);
    snprintf(n->up, sizeof n->up, "%slayers.%u.mlp.up_proj.weight", p, layer);
    snprintf(n->down, sizeof n->down, "%slayers.%u.mlp.down_proj.weight", p, layer);
    snprintf(n->gain, sizeof n->gain, "%slayers.%u.post_attention_layernorm.weight", p, layer);
    snprintf(n->w_gateup, sizeof n->w_gateup, "gateup%u.w", layer);
    snprintf(n->w_down, sizeof n->w_down, "down%u.w", layer);
    snprintf(n->g, sizeof n->g, "norm%u.gain", layer);
    snprintf(n->norm, sizeof n->norm, "norm%u", layer);
    snprintf(n->h, sizeof n->h, "gateup%u", layer);
    snprintf(n->out, sizeof n->out, layer + 1 == m->layers ? "out" : "down%u", layer);
}

static int mlp_weights(weft__graph *g, const weft__model *m, uint32_t layer, const names *n, uint32_t *w1, uint32_t *w2)
{
    const uint32_t h = m->hidden, f = m->intermediate, n1 = (uint32_t)weft_round_up64(f, 8) * 2;
    if (!m->named) {
        int rc = seeded_weight(g, n->w_gateup, m->dtype, n1, h, weight_seed(m->seed, 2 * layer), w1);
        return rc ? rc : seeded_weight(g, n->w_down, m->dtype, h, f, weight_seed(m->seed, 2 * layer + 1), w2);
    }
    const weft__source s1 = {.fill = WEFT_FILL_MODEL,
                             .a = n->gate,
                             .b = n->up,
                             .rows_a = 8,
                             .rows_b = 8,
                             .gain = m->separate_norm ? NULL : n->gain};
    const weft__source s2 = {.fill = WEFT_FILL_MODEL, .a = n->down};
    int rc = weft__graph_weight(g, n->w_gateup, m->dtype, n1, h, &s1, w1);
    return rc ? rc : weft__graph_weight(g, n->w_down, m->dtype, h, f, &s2, w2);
}

/* The norm as an op of its own: *x becomes its output. A seeded model's gain is 1. */
static int mlp_norm(weft__graph *g, const weft__model *m, uint32_t layer, uint32_t rows, const names *n, uint32_t *x)
{
    const weft__source gain = {.fill = WEFT_FILL_MODEL, .a = n->gain};
    char name[64];
    weft__rmsnorm d = {.name = name, .layer = layer, .x = *x, .gain = WEFT_NONE, .eps = m->eps};
    snprintf(name, sizeof name, "layer%u.norm", layer);
    int rc = m->named ? weft__graph_weight(g, n->g, WEFT_FP32, 1, m->hidden, &gain, &d.gain) : 0;
    if (!rc) rc = weft__graph_tensor(g, n->norm, WEFT_ROLE_ACT, m->dtype, rows, m->hidden, &d.out);
    if (!rc) rc = weft__graph_rmsnorm(g, &d, NULL);
    *x = d.out;
    return rc;
}

static int mlp_layer(weft__graph *g, const weft__model *m, uint32_t layer, uint32_t rows, uint32_t *x)
{
    names n;
    uint32_t w1, w2, h, out, normed = *x;
    char name[64];
    const uint32_t role = layer + 1 == m->layers ? WEFT_ROLE_OUTPUT : WEFT_ROLE_ACT;
    name_layer(&n, m, layer);
    int rc = mlp_weights(g, m, layer, &n, &w1, &w2);
    if (!rc) rc = weft__graph_tensor(g, n.h, WEFT_ROLE_ACT, m->dtype, rows, m->intermediate, &h);
    if (!rc) rc = weft__graph_tensor(g, n.out, role, m->dtype, rows, m->hidden, &out);
    if (!rc && m->separate_norm) rc = mlp_norm(g, m, layer, rows, &n, &normed);
    if (rc) return rc;
    snprintf(name, sizeof name, "layer%u.gateup", layer);
    const weft__gemm up = {.name = name,
                           .layer = layer,
                           .x = normed,
                           .w = w1,
                           .aux = WEFT_NONE,
                           .out = h,
                           .epilogue = WEFT_EPI_GATED_SILU,
                           .norm = !m->separate_norm,
                           .eps = m->eps};
    if ((rc = weft__graph_gemm(g, &up, NULL))) return rc;
    snprintf(name, sizeof name, "layer%u.down", layer);
    const weft__gemm down = {
        .name = name, .layer = layer, .x = h, .w = w2, .aux = *x, .out = out, .epilogue = WEFT_EPI_RESIDUAL};
    *x = out;
    return weft__graph_gemm(g, &down, NULL);
}

int weft__graph_mlp(const weft__model *m, uint32_t rows, weft__graph **out)
{
    *out = NULL;
    if (!rows) return weft__fail(WEFT_EUSAGE, "mlp: no rows");
    if (!m->hidden || m->hidden > 1u << 21) return weft__fail(WEFT_EUSAGE, "mlp: hidden size %u", m->hidden);
    if (!m->intermediate || m->intermediate > 1u << 21) {
        return weft__fail(WEFT_EUSAGE, "mlp: intermediate size %u", m->intermediate);
    }
    if (!m->layers || m->layers > 1u << 16) return weft__fail(WEFT_EUSAGE, "mlp: %u layers", m->layers);
    weft__graph *g;
    int rc = check_dtype(m->dtype);
    if (rc || (rc = weft__graph_new(&g))) return rc;
    uint32_t x;
    rc = weft__graph_tensor(g, "x", WEFT_ROLE_INPUT, m->dtype, rows, m->hidden, &x);
    for (uint32_t l = 0; l < m->layers && !rc; l++)
        rc = mlp_layer(g, m, l, rows, &x);
    if (rc)
        weft__graph_free(g);
    else
        *out = g;
    return rc;
}
