/* place.c: which devices run an op, and which devices read all of a tensor.
 *
 * Enters: a GEMM graph and a strategy. Leaves: group_of (the first of p->group devices that run an op) and gt_need (the
 * devices in whose memory a whole tensor must lie). Layers keep together: layer i of L runs on group i * G / L of G
 * groups. Where the graph gives costs, blocks of layers still follow each other over the groups, but so that the group with
 * the most to do has as little as can be; one group alone runs where everything can run and costs least. */
#include "plan_internal.h"

#include <stdlib.h>
#include <string.h>

int weft__plan_grow(weft__plan_state *p, void **array, uint32_t n, uint32_t more, uint32_t *cap, size_t elem)
{
    if (more <= *cap - n) return 0;
    if (more > WEFT_NONE / 2 - n) return weft__fail(WEFT_ENOMEM, "plan: more than 2^31 elements");
    uint32_t want = *cap ? *cap : 64;
    while (want < n + more)
        want *= 2;
    void *q = realloc(*array, want * elem);
    if (!q) return weft__fail(WEFT_ENOMEM, "plan: %u elements", want);
    p->live_bytes += (want - *cap) * elem;
    *array = q;
    *cap = want;
    return 0;
}

int weft__plan_string(weft__plan_state *p, const char *s, uint32_t *offset)
{
    const uint32_t n = (uint32_t)strlen(s) + 1;
    int rc = weft__plan_grow(p, (void **)&p->strings, p->n_string, n, &p->cap_string, 1);
    if (rc) return rc;
    memcpy(p->strings + p->n_string, s, n);
    *offset = p->n_string;
    p->n_string += n;
    return 0;
}

int weft__base_new(weft__plan_state *p, const weft_tensor *t, uint32_t gt, uint32_t *id)
{
    int rc = weft__plan_grow(p, (void **)&p->tensors, p->n_tensor, 1, &p->cap_tensor, sizeof *p->tensors);
    if (rc) return rc;
    *id = p->n_tensor++;
    weft__ptensor *b = &p->tensors[*id];
    *b = (weft__ptensor){
        .t = *t, .gt = gt, .next = WEFT_NONE, .base = *id, .packets = WEFT_NONE, .first_writer = WEFT_NONE};
    b->t.bytes = weft_layout_bytes(t->layout, t->dtype, t->rows, t->cols, t->splits);
    if (gt != WEFT_NONE) {
        b->next = p->gt_first[gt];
        p->gt_first[gt] = *id;
    }
    return b->t.bytes
               ? 0
               : weft__fail(WEFT_EUSAGE, "plan: a tensor of %u x %u has no layout %u", t->rows, t->cols, t->layout);
}

/* Columns col0 .. +cols of a base (PARTIAL: of one split), col0 a multiple of 64. The whole of it is the base
 * itself. */
int weft__view_new(weft__plan_state *p, uint32_t base, uint32_t col0, uint32_t cols, uint32_t split, uint32_t *id)
{
    weft_tensor t = p->tensors[base].t;
    if (!col0 && cols == t.cols && t.splits == 1) {
        *id = base;
        return 0;
    }
    int rc = weft__plan_grow(p, (void **)&p->tensors, p->n_tensor, 1, &p->cap_tensor, sizeof *p->tensors);
    if (rc) return rc;
    if (t.role == WEFT_ROLE_OUTPUT || t.role == WEFT_ROLE_INPUT) t.role = WEFT_ROLE_ACT;
    if (t.layout == WEFT_LAYOUT_PARTIAL) {
        t.offset = (uint64_t)split * (t.bytes / t.splits) +
                   (uint64_t)col0 / 16 * t.rows * 64; /* from the base so far */
    } else if (t.layout == WEFT_LAYOUT_ROW) {
        t.offset = (uint64_t)col0 * 4; /* a bias: one row of fp32 */
    } else {
        t.offset = weft_layout_bytes(t.layout, t.dtype, t.rows, col0, 1);
    }
    t.name = WEFT_NONE;
    t.splits = 1;
    t.cols = cols;
    t.bytes = weft_layout_bytes(t.layout, t.dtype, t.rows, cols, 1);
    *id = p->n_tensor++;
    p->tensors[*id] = (weft__ptensor){.t = t,
                                      .gt = WEFT_NONE,
                                      .next = WEFT_NONE,
                                      .base = base,
                                      .col0 = col0,
                                      .split0 = split,
                                      .packets = WEFT_NONE,
                                      .first_writer = WEFT_NONE};
    return 0;
}

/* Groups of devices: as many as the strategy has, but not more than there are layers. */
static int choose_groups(weft__plan_state *p, uint32_t *n_group)
{
    const weft__plan_options *o = p->opt;
    p->group = 1;
    *n_group = o->n_device;
    switch (o->strategy) {
    case WEFT__SINGLE: *n_group = 1; return 0;
    case WEFT__CTA:
    case WEFT__MICROBATCH: return 0;
    case WEFT__TP:
        p->group = o->n_device;
        *n_group = 1;
        return 0;
    default:
        if (!o->tp || o->n_device % o->tp) {
            return weft__fail(WEFT_EUSAGE, "plan: groups of %u devices don't divide %u devices", o->tp, o->n_device);
        }
        p->group = o->tp;
        *n_group = o->n_device / o->tp;
        return 0;
    }
}

static uint64_t group_mask(const weft__plan_state *p, uint32_t first)
{
    return (p->group == 64 ? ~0ull : (1ull << p->group) - 1) << first;
}

/* ---------------------------------------------------------------------------------------------------- given costs */

#define IMPOSSIBLE UINT64_MAX

uint64_t weft__op_ns(const weft__graph *g, const weft__plan_options *opt, const weft__gop *o, uint32_t device)
{
    const weft__gtensor *x = &g->tensors[o->x], *out = &g->tensors[o->out];
    const uint32_t rows = o->kind == WEFT__GOP_GEMM ? g->tensors[o->w].rows : out->cols;
    const weft_op op = {.kind = o->kind == WEFT__GOP_GEMM ? WEFT_KIND_GEMM_STREAM : WEFT_KIND_RMSNORM};
    const uint64_t ns = weft__given_cost(g, o, device);
    if (ns) return ns == WEFT_NONE ? IMPOSSIBLE : ns;
    return weft__cost_task(&op, weft_div_up(rows, 16), x->rows, weft_div_up(x->cols, 64)) / opt->workers[device];
}

/* ns of an op on the group that begins at a device: that of its slowest device, which has its share; IMPOSSIBLE. */
static uint64_t op_on_group(const weft__plan_state *p, const weft__gop *o, uint32_t first)
{
    uint64_t most = 0;
    for (uint32_t d = first; d < first + p->group; d++) {
        const uint64_t ns = weft__op_ns(p->g, p->opt, o, d);
        if (ns == IMPOSSIBLE) return IMPOSSIBLE;
        if (ns > most) most = ns;
    }
    return most / p->group + 1;
}

/* The first op after layer boundary `op` that does not belong to its layer; *ns: the layer on the group. */
static uint32_t layer_on_group(const weft__plan_state *p, uint32_t op, uint32_t first, uint64_t *ns)
{
    const uint32_t layer = p->g->ops[op].layer;
    *ns = 0;
    for (; op < p->g->n_op && p->g->ops[op].layer == layer; op++) {
        const uint64_t one = op_on_group(p, &p->g->ops[op], first);
        *ns = one == IMPOSSIBLE || *ns == IMPOSSIBLE ? IMPOSSIBLE : *ns + one;
    }
    return op;
}

/* Each group in turn takes as many layers as it can run within `limit` ns. The first op that finds no group. */
static uint32_t fill_groups(const weft__plan_state *p, uint32_t n_group, uint64_t limit, uint32_t *group_of)
{
    uint32_t op = 0;
    for (uint32_t g = 0; g < n_group; g++) {
        for (uint64_t left = limit; op < p->g->n_op;) {
            uint64_t ns;
            const uint32_t end = layer_on_group(p, op, g * p->group, &ns);
            if (ns > left) break; /* IMPOSSIBLE is more than any limit */
            left -= ns;
            for (; op < end; op++)
                group_of[op] = g * p->group;
        }
    }
    return op;
}

static int refuse_op(const weft__plan_state *p, uint32_t op)
{
    return weft__fail(WEFT_EUSAGE, "plan: op %s can't run on any of the devices that strategy %s has for it",
                      p->g->ops[op].name, weft__strategy_name(p->opt->strategy));
}

static int place_pipeline(weft__plan_state *p, uint32_t n_group)
{
    uint64_t low = 0, high = IMPOSSIBLE - 1; /* low is too little */
    const uint32_t stuck = fill_groups(p, n_group, high, p->group_of);
    if (stuck < p->g->n_op) return refuse_op(p, stuck);
    while (high - low > 1) {
        const uint64_t mid = low + (high - low) / 2;
        if (fill_groups(p, n_group, mid, p->group_of) == p->g->n_op)
            high = mid;
        else
            low = mid;
    }
    fill_groups(p, n_group, high, p->group_of);
    return 0;
}

/* All on one group of devices: the one that can run everything and takes least. */
static int place_together(weft__plan_state *p)
{
    uint64_t best = IMPOSSIBLE;
    uint32_t first = 0, stuck = 0;
    for (uint32_t d = 0; d + p->group <= p->opt->n_device; d += p->group) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < p->g->n_op && sum != IMPOSSIBLE; i++) {
            const uint64_t ns = op_on_group(p, &p->g->ops[i], d);
            sum = ns == IMPOSSIBLE ? IMPOSSIBLE : sum + ns;
            if (sum == IMPOSSIBLE) stuck = i;
        }
        if (sum >= best) continue;
        best = sum;
        first = d;
    }
    for (uint32_t i = 0; i < p->g->n_op; i++)
        p->group_of[i] = first;
    return best == IMPOSSIBLE ? refuse_op(p, stuck) : 0;
}

/* -------------------------------------------------------------------------------------------------------- placing */

/* Layers in blocks of equal numbers. */
static void place_evenly(weft__plan_state *p, uint32_t n_group)
{
    const weft__graph *g = p->g;
    uint32_t n_layer = 0, at = 0;
    for (uint32_t i = 0; i < g->n_op; i++)
        n_layer += !i || g->ops[i].layer != g->ops[i - 1].layer;
    if (n_group > n_layer) n_group = n_layer;
    for (uint32_t i = 0; i < g->n_op; i++) {
        at += i && g->ops[i].layer != g->ops[i - 1].layer;
        p->group_of[i] = (uint32_t)((uint64_t)at * n_group / n_layer) * p->group;
    }
}

/* As the caller says. */
static int place_given(weft__plan_state *p)
{
    for (uint32_t i = 0; i < p->g->n_op; i++) {
        const uint32_t d = p->opt->place[i];
        if (d >= p->opt->n_device || weft__given_cost(p->g, &p->g->ops[i], d) == WEFT_NONE)
            return weft__fail(WEFT_EUSAGE, "plan: op %s was placed on device %u, which %s", p->g->ops[i].name, d,
                              d >= p->opt->n_device ? "is none" : "can't run it");
        p->group_of[i] = d;
    }
    return 0;
}

int weft__place(weft__plan_state *p)
{
    const weft__graph *g = p->g;
    uint32_t n_group;
    int rc = choose_groups(p, &n_group);
    if (rc) return rc;
    if (p->opt->place && p->opt->strategy != WEFT__CTA)
        return weft__fail(WEFT_EUSAGE, "plan: a placement of ops goes with strategy cta, not %s",
                          weft__strategy_name(p->opt->strategy));
    if (p->opt->place)
        rc = place_given(p);
    else if (!g->n_cost)
        place_evenly(p, n_group);
    else
        rc = n_group == 1 ? place_together(p) : place_pipeline(p, n_group);
    if (rc) return rc;
    for (uint32_t i = 0; i < g->n_op; i++) {
        const weft__gop *op = &g->ops[i];
        const uint64_t first = 1ull << p->group_of[i],
                       mask = op->kind == WEFT__GOP_SAMPLE ? first : group_mask(p, p->group_of[i]);
        p->gt_need[op->x] |= mask;
        if (op->aux != WEFT_NONE) p->gt_need[op->aux] |= mask;
        if (g->tensors[op->out].role == WEFT_ROLE_OUTPUT) p->gt_need[op->out] |= first;
    }
    return 0;
}
