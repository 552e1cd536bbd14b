/* place.c: which devices run an op, and which devices read all of a tensor.
 *
 * Enters: a GEMM graph and a strategy. Leaves: group_of (the first of p->group devices that run an op) and gt_need (the
 * devices in whose memory a whole tensor must lie). Layers keep together: layer i of L runs on group i * G / L of G
 * groups. */
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
        t.offset = (uint64_t)split * (t.bytes / t.splits); /* relative to the base until memory is laid out */
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

int weft__place(weft__plan_state *p)
{
    const weft__graph *g = p->g;
    uint32_t n_group, n_layer = 0, at = 0;
    int rc = choose_groups(p, &n_group);
    if (rc) return rc;
    for (uint32_t i = 0; i < g->n_op; i++)
        n_layer += !i || g->ops[i].layer != g->ops[i - 1].layer;
    if (n_group > n_layer) n_group = n_layer;
    for (uint32_t i = 0; i < g->n_op; i++) {
        const weft__gop *op = &g->ops[i];
        at += i && op->layer != g->ops[i - 1].layer;
        p->group_of[i] = (uint32_t)((uint64_t)at * n_group / n_layer) * p->group;
        const uint64_t mask = group_mask(p, p->group_of[i]);
        p->gt_need[op->x] |= mask;
        if (op->aux != WEFT_NONE) p->gt_need[op->aux] |= mask;
        if (g->tensors[op->out].role == WEFT_ROLE_OUTPUT) p->gt_need[op->out] |= 1ull << p->group_of[i];
    }
    return 0;
}
