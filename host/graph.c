/* graph.c: ops and tensors as they are added: every id, shape and order is checked here, so that the planner need not.
 *
 * Enters: descriptions. Leaves: a graph in which every tensor has at most one writer and every op reads only what was
 * written before it. Arrays grow by doubling; strings are copies owned by the graph. */
#include "graph.h"

#include "../tasks/layout.h"
#include "../tasks/seed.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int weft__graph_new(weft__graph **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : weft__fail(WEFT_ENOMEM, "graph");
}

void weft__graph_free(weft__graph *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->n_tensor; i++) {
        free(g->tensors[i].name);
        free((char *)g->tensors[i].source.a);
        free((char *)g->tensors[i].source.b);
        free((char *)g->tensors[i].source.c);
        free((char *)g->tensors[i].source.gain);
    }
    for (uint32_t i = 0; i < g->n_op; i++)
        free(g->ops[i].name);
    free(g->tensors);
    free(g->ops);
    free(g->inputs);
    free(g->costs);
    free(g);
}

/* Makes room for `more` elements after `n`. */
static int reserve(void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t elem)
{
    if (more <= *cap - n) return 0;
    if (more > WEFT_NONE / 2 - n) return weft__fail(WEFT_ENOMEM, "graph: more than 2^31 elements");
    uint32_t want = *cap ? *cap : 16;
    while (want < n + more)
        want *= 2;
    void *p = realloc(*array, want * elem);
    if (!p) return weft__fail(WEFT_ENOMEM, "graph: %u elements", want);
    *array = p;
    *cap = want;
    return 0;
}

static char *copy(const char *s, int *failed)
{
    char *p = s ? strdup(s) : NULL;
    if (s && !p) *failed = 1;
    return p;
}

static int add_tensor(weft__graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t rows, uint32_t cols,
                      const weft__source *src, uint32_t *id)
{
    if (!name) return weft__fail(WEFT_EUSAGE, "graph: a tensor without a name");
    if (!rows || !cols) return weft__fail(WEFT_EUSAGE, "graph: tensor %s is %u x %u", name, rows, cols);
    if (dtype > WEFT_INT8) return weft__fail(WEFT_EUSAGE, "graph: tensor %s: unknown dtype %u", name, dtype);
    int rc = reserve((void **)&g->tensors, g->n_tensor, 1, &g->cap_tensor, sizeof *g->tensors);
    if (rc) return rc;
    weft__gtensor t = {
        .role = (uint8_t)role, .dtype = (uint8_t)dtype, .rows = rows, .cols = cols, .producer = WEFT_NONE};
    int failed = 0;
    t.name = copy(name, &failed);
    if (src) {
        t.source = *src;
        t.source.a = copy(src->a, &failed);
        t.source.b = copy(src->b, &failed);
        t.source.c = copy(src->c, &failed);
        t.source.gain = copy(src->gain, &failed);
    }
    *id = g->n_tensor;
    g->tensors[g->n_tensor++] = t; /* also on failure: free() finds the copies */
    return failed ? weft__fail(WEFT_ENOMEM, "graph: names of tensor %s", name) : 0;
}

int weft__graph_tensor(weft__graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t rows, uint32_t cols,
                       uint32_t *id)
{
    if (role != WEFT_ROLE_ACT && role != WEFT_ROLE_INPUT && role != WEFT_ROLE_OUTPUT) {
        return weft__fail(WEFT_EUSAGE, "graph: tensor %s: role %u is not ACT, INPUT or OUTPUT", name, role);
    }
    return add_tensor(g, name, role, dtype, rows, cols, NULL, id);
}

int weft__graph_state(weft__graph *g, const char *name, uint32_t role, uint32_t dtype, uint32_t rows, uint32_t cols,
                      uint32_t *id)
{
    if (role != WEFT_ROLE_KV && role != WEFT_ROLE_TABLE) {
        return weft__fail(WEFT_EUSAGE, "graph: tensor %s: role %u is neither KV nor TABLE", name, role);
    }
    return add_tensor(g, name, role, dtype, rows, cols, NULL, id);
}

int weft__graph_weight(weft__graph *g, const char *name, uint32_t dtype, uint32_t rows, uint32_t cols,
                       const weft__source *source, uint32_t *id)
{
    if (source->fill > WEFT_FILL_SEED) return weft__fail(WEFT_EUSAGE, "graph: weight %s: unknown fill", name);
    if (source->fill == WEFT_FILL_MODEL && !source->a) {
        return weft__fail(WEFT_EUSAGE, "graph: weight %s comes from a model, but has no name there", name);
    }
    return add_tensor(g, name, WEFT_ROLE_WEIGHT, dtype, rows, cols, source, id);
}

int weft__graph_add(weft__graph *g, const weft__gop *op, const char *name, uint32_t *id)
{
    int rc = reserve((void **)&g->ops, g->n_op, 1, &g->cap_op, sizeof *g->ops);
    if (rc) return rc;
    int failed = 0;
    weft__gop o = *op;
    o.name = copy(name, &failed);
    o.cost = WEFT_NONE;
    if (failed) return weft__fail(WEFT_ENOMEM, "graph: name of op %s", name);
    if (id) *id = g->n_op;
    g->ops[g->n_op++] = o;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- GEMM */

int weft__graph_shape(const weft__graph *g, const char *op, const char *field, uint32_t id, uint32_t rows,
                      uint32_t cols, uint32_t dtype)
{
    if (id >= g->n_tensor) return weft__fail(WEFT_EUSAGE, "graph: op %s: %s is no tensor", op, field);
    const weft__gtensor *t = &g->tensors[id];
    if (t->rows == rows && t->cols == cols && t->dtype == dtype) return 0;
    return weft__fail(WEFT_EUSAGE, "graph: op %s: %s is %u x %u of type %u, must be %u x %u of type %u", op, field,
                      t->rows, t->cols, t->dtype, rows, cols, dtype);
}

int weft__graph_readable(const weft__graph *g, const char *op, const char *field, uint32_t id)
{
    if (id >= g->n_tensor) return weft__fail(WEFT_EUSAGE, "graph: op %s: %s is no tensor", op, field);
    const weft__gtensor *t = &g->tensors[id];
    if (t->role == WEFT_ROLE_WEIGHT || t->role == WEFT_ROLE_INPUT || t->producer != WEFT_NONE) return 0;
    return weft__fail(WEFT_EUSAGE, "graph: op %s reads %s (%s), which no op before it writes", op, t->name, field);
}

/* `id` as what an op is about to write. */
int weft__graph_writable(const weft__graph *g, const char *op, uint32_t id)
{
    if (id >= g->n_tensor) return weft__fail(WEFT_EUSAGE, "graph: op %s: out is no tensor", op);
    const weft__gtensor *out = &g->tensors[id];
    if (out->producer == WEFT_NONE && (out->role == WEFT_ROLE_ACT || out->role == WEFT_ROLE_OUTPUT)) return 0;
    return weft__fail(WEFT_EUSAGE, "graph: op %s can't write %s: it has a writer already or is an input", op,
                      out->name);
}

static int check_gemm_shapes(const weft__graph *g, const weft__gemm *d, const char *name)
{
    const weft__gtensor *x = &g->tensors[d->x], *w = &g->tensors[d->w], *out = &g->tensors[d->out];
    const int gated = d->epilogue == WEFT_EPI_GATED_SILU;
    const uint32_t n = gated ? (uint32_t)weft_round_up64(out->cols, 8) * 2 : out->cols;
    if (x->dtype != WEFT_BF16 && x->dtype != WEFT_FP16) {
        return weft__fail(WEFT_EUSAGE, "graph: op %s: x is neither bf16 nor fp16", name);
    }
    int rc = weft__graph_shape(g, name, "w", d->w, n, x->cols, x->dtype);
    if (!rc) rc = weft__graph_shape(g, name, "out", d->out, x->rows, out->cols, d->sums ? WEFT_FP32 : x->dtype);
    if (!rc && d->sums && (d->norm || d->epilogue != WEFT_EPI_NONE || out->role != WEFT_ROLE_ACT)) {
        rc = weft__fail(WEFT_EUSAGE, "graph: op %s: sums have no norm, no epilogue, and are no output", name);
    }
    if (!rc && d->epilogue == WEFT_EPI_RESIDUAL)
        rc = weft__graph_shape(g, name, "aux", d->aux, x->rows, out->cols, x->dtype);
    if (!rc && d->epilogue == WEFT_EPI_BIAS) rc = weft__graph_shape(g, name, "aux", d->aux, 1, out->cols, WEFT_FP32);
    if (!rc && w->role != WEFT_ROLE_WEIGHT) rc = weft__fail(WEFT_EUSAGE, "graph: op %s: w is not a weight", name);
    return rc;
}

int weft__graph_gemm(weft__graph *g, const weft__gemm *d, uint32_t *op)
{
    const char *name = d->name ? d->name : "gemm";
    const int has_aux = d->epilogue == WEFT_EPI_RESIDUAL || d->epilogue == WEFT_EPI_BIAS;
    if (d->epilogue > WEFT_EPI_GELU)
        return weft__fail(WEFT_EUSAGE, "graph: op %s: unknown epilogue %u", name, d->epilogue);
    if (has_aux != (d->aux != WEFT_NONE)) {
        return weft__fail(WEFT_EUSAGE, "graph: op %s: its epilogue %s", name, has_aux ? "needs aux" : "has no aux");
    }
    if (d->norm && !(d->eps >= 0 && isfinite(d->eps))) return weft__fail(WEFT_EUSAGE, "graph: op %s: bad eps", name);
    int rc = weft__graph_readable(g, name, "x", d->x);
    if (!rc) rc = weft__graph_readable(g, name, "w", d->w);
    if (!rc && has_aux) rc = weft__graph_readable(g, name, "aux", d->aux);
    if (!rc) rc = weft__graph_writable(g, name, d->out);
    if (!rc) rc = check_gemm_shapes(g, d, name);
    if (rc) return rc;
    weft__gop o = {.kind = WEFT__GOP_GEMM,
                   .epilogue = (uint8_t)d->epilogue,
                   .norm = d->norm != 0,
                   .sums = d->sums != 0,
                   .layer = d->layer,
                   .device = WEFT_NONE,
                   .x = d->x,
                   .w = d->w,
                   .aux = d->aux,
                   .out = d->out,
                   .eps = d->eps,
                   .n_tile = 1};
    if ((rc = weft__graph_add(g, &o, name, op))) return rc;
    g->tensors[d->out].producer = g->n_op - 1;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- RMSNORM */

int weft__graph_rmsnorm(weft__graph *g, const weft__rmsnorm *d, uint32_t *op)
{
    const char *name = d->name ? d->name : "rmsnorm";
    if (!(d->eps >= 0 && isfinite(d->eps))) return weft__fail(WEFT_EUSAGE, "graph: op %s: bad eps", name);
    int rc = weft__graph_readable(g, name, "x", d->x);
    if (!rc) rc = weft__graph_writable(g, name, d->out);
    if (rc) return rc;
    const weft__gtensor *x = &g->tensors[d->x];
    if (x->dtype != WEFT_BF16 && x->dtype != WEFT_FP16) {
        return weft__fail(WEFT_EUSAGE, "graph: op %s: x is neither bf16 nor fp16", name);
    }
    rc = weft__graph_shape(g, name, "out", d->out, x->rows, x->cols, x->dtype);
    if (!rc && d->gain != WEFT_NONE) rc = weft__graph_shape(g, name, "gain", d->gain, 1, x->cols, WEFT_FP32);
    if (!rc && d->gain != WEFT_NONE && g->tensors[d->gain].role != WEFT_ROLE_WEIGHT) {
        rc = weft__fail(WEFT_EUSAGE, "graph: op %s: the gain is not a weight", name);
    }
    const weft__gop o = {.kind = WEFT__GOP_RMSNORM,
                         .layer = d->layer,
                         .device = WEFT_NONE,
                         .x = d->x,
                         .w = d->gain,
                         .aux = WEFT_NONE,
                         .out = d->out,
                         .eps = d->eps,
                         .n_tile = 1};
    if (!rc) rc = weft__graph_add(g, &o, name, op);
    if (!rc) g->tensors[d->out].producer = g->n_op - 1;
    return rc;
}

/* --------------------------------------------------------------------------------------------------------- costs */

int weft__graph_costs(weft__graph *g, uint32_t op, const uint32_t *ns, uint32_t n_device)
{
    if (op >= g->n_op) return weft__fail(WEFT_EUSAGE, "graph: costs of op %u, there are %u", op, g->n_op);
    if (!n_device || n_device > WEFT_MAX_DEVICES || (g->n_cost && n_device != g->n_cost_device)) {
        return weft__fail(WEFT_EUSAGE, "graph: costs of op %s for %u devices, others for %u", g->ops[op].name, n_device,
                          g->n_cost_device);
    }
    if (g->ops[op].cost != WEFT_NONE) {
        return weft__fail(WEFT_EUSAGE, "graph: op %s has its costs already", g->ops[op].name);
    }
    uint32_t able = 0;
    for (uint32_t d = 0; d < n_device; d++)
        able += ns[d] != WEFT_NONE;
    if (!able) return weft__fail(WEFT_EUSAGE, "graph: op %s can't run on any device", g->ops[op].name);
    const uint32_t at = g->n_cost * n_device;
    int rc = reserve((void **)&g->costs, at, n_device, &g->cap_cost, sizeof *g->costs);
    if (rc) return rc;
    memcpy(g->costs + at, ns, n_device * sizeof *ns);
    g->n_cost_device = n_device;
    g->ops[op].cost = g->n_cost++;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- MIX and NOP */

static int add_node(weft__graph *g, weft__gop *o, const char *name, const uint32_t *in, uint32_t n_in, uint32_t *op)
{
    if (o->device >= WEFT_MAX_DEVICES) return weft__fail(WEFT_EUSAGE, "graph: %s op on device %u", name, o->device);
    for (uint32_t i = 0; i < n_in; i++) {
        if (in[i] >= g->n_op || g->ops[in[i]].kind != o->kind) {
            return weft__fail(WEFT_EUSAGE, "graph: %s op %u: input %u is no %s op before it", name, g->n_op, in[i],
                              name);
        }
    }
    int rc = reserve((void **)&g->inputs, g->n_input, n_in, &g->cap_input, sizeof *g->inputs);
    if (rc) return rc;
    o->in = g->n_input;
    o->n_in = n_in;
    o->x = o->w = o->aux = o->out = WEFT_NONE;
    if ((rc = weft__graph_add(g, o, name, op))) return rc;
    if (n_in) memcpy(g->inputs + g->n_input, in, n_in * sizeof *in);
    g->n_input += n_in;
    return 0;
}

int weft__graph_mix(weft__graph *g, uint32_t device, uint32_t constant, const uint32_t *in, uint32_t n_in,
                    uint32_t join, uint32_t *op)
{
    weft__gop o = {.kind = WEFT__GOP_MIX, .join = join != 0, .device = device, .constant = constant, .n_tile = 1};
    o.cost_ns = 100;
    return add_node(g, &o, "mix", in, n_in, op);
}

int weft__graph_nop(weft__graph *g, uint32_t device, uint32_t n_tile, uint32_t cost_ns, const uint32_t *in,
                    uint32_t n_in, uint32_t join, uint32_t *op)
{
    weft__gop o = {.kind = WEFT__GOP_NOP, .join = join != 0, .device = device, .n_tile = n_tile, .cost_ns = cost_ns};
    if (!n_tile) return weft__fail(WEFT_EUSAGE, "graph: a nop op of no tasks");
    return add_node(g, &o, "nop", in, n_in, op);
}

int weft__graph_mix_values(const weft__graph *g, uint32_t *values)
{
    for (uint32_t i = 0; i < g->n_op; i++) {
        const weft__gop *o = &g->ops[i];
        if (o->kind != WEFT__GOP_MIX) return weft__fail(WEFT_EUSAGE, "graph: op %u is no mix op", i);
        values[i] = o->constant;
        for (uint32_t j = 0; j < o->n_in; j++)
            values[i] = weft_mix_step(values[i], values[g->inputs[o->in + j]]);
    }
    return 0;
}
