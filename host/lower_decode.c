/* lower_decode.c: the ops of a decoder that are neither GEMMs nor norms.
 *
 *   embed    the group's first device, reader e      -> rows of x in e's memory
 *   rope     device t: its KV heads' columns of qkv  -> its queries, its cache
 *   attn     device t: its KV heads                  -> partials, then its columns of out
 *   sample   the group's first device                -> tokens fed back, where embed reads them
 *   pages    each device that has a page table       -> that table
 *
 * A group shares the KV heads out: device t has the cache of its heads, and no other. */
#include "plan_internal.h"

#include "../tasks/attn.h"

#include <string.h>

typedef weft__lowering ctx;

enum {
    COMBINE_ROWS =
        4 /* with few rows units end once, and who is last combines them: one hand-over less. With many, a meeting a
                        unit costs more than tasks of their own do (docs/notebook.md) */
};

static uint32_t find(const weft__plan_state *p, uint32_t gt, uint32_t device)
{
    uint32_t i = p->gt_first[gt];
    while (i != WEFT_NONE && p->tensors[i].t.device != device)
        i = p->tensors[i].next;
    return i;
}

/* A tensor in rows, in a device's memory, made when first asked for. */
static int rows_base(const ctx *c, uint32_t gt, uint32_t device, uint32_t role, uint32_t rows, uint32_t cols,
                     uint32_t *id)
{
    weft__plan_state *p = c->p;
    if ((*id = find(p, gt, device)) != WEFT_NONE) return 0;
    weft_tensor t = {.device = (uint16_t)device,
                     .dtype = p->g->tensors[gt].dtype,
                     .layout = WEFT_LAYOUT_ROW,
                     .role = (uint8_t)role,
                     .rows = rows,
                     .cols = cols,
                     .weight = WEFT_NONE,
                     .splits = 1};
    int rc = p->gt_name[gt] == WEFT_NONE ? weft__plan_string(p, p->g->tensors[gt].name, &p->gt_name[gt]) : 0;
    t.name = p->gt_name[gt];
    return rc ? rc : weft__base_new(p, &t, gt, id);
}

static int whole_base(const ctx *c, uint32_t gt, uint32_t device, uint32_t *id)
{
    const weft__gtensor *g = &c->p->g->tensors[gt];
    return rows_base(c, gt, device, g->role, g->rows, g->cols, id);
}

/* The page table on a device, and the task that keeps it. */
static int table_on(const ctx *c, uint32_t gt, uint32_t device, uint32_t *id)
{
    if ((*id = find(c->p, gt, device)) != WEFT_NONE) return 0;
    int rc = whole_base(c, gt, device, id);
    weft_op op = weft__op_blank(c, device, WEFT_KIND_PAGES, 1, 1);
    op.out = *id;
    return rc ? rc : weft__lower_add(c, &op);
}

static int lower_embed(const ctx *c, uint32_t device)
{
    weft__plan_state *p = c->p;
    const weft__gtensor *w = &p->g->tensors[c->o->w];
    int rc = 0;
    for (uint32_t e = 0; e < p->opt->n_device && !rc; e++) {
        if (!(c->dests >> e & 1)) continue;
        weft_op op = weft__op_blank(c, device, WEFT_KIND_EMBED, w->rows, w->cols);
        rc = whole_base(c, c->o->x, device, &op.x);
        if (!rc) {
            rc = weft__lower_weight(p, c->o->w, device, (weft__slice){0, w->rows}, (weft__slice){0, w->cols}, &op.w);
        }
        if (!rc) rc = weft__lower_out(c, &op, e, (weft__slice){0, c->cols});
        if (!rc) rc = weft__lower_add(c, &op);
    }
    return rc;
}

typedef struct share { /* of the KV heads */
    uint32_t device, kv_heads, hpk, dim;
    weft__slice q; /* columns of its queries */
} share;

static share share_of(const ctx *c, uint32_t first, uint32_t t, uint32_t of)
{
    const uint32_t *param = c->o->param, hpk = param[WEFT_ATTN_HEADS] / param[WEFT_ATTN_KV_HEADS],
                   dim = param[WEFT_ATTN_HEAD_DIM];
    const weft__slice q = weft__slice_of(param[WEFT_ATTN_HEADS] * dim, t, of, hpk * dim);
    return (share){first + t, q.n / (hpk * dim), hpk, dim, q};
}

static weft_op cache_op(const ctx *c, const share *s, uint32_t kind, uint32_t k)
{
    weft_op op = weft__op_blank(c, s->device, kind, s->q.n, k);
    memcpy(op.param, c->o->param, sizeof op.param);
    op.param[WEFT_ATTN_HEADS] = s->kv_heads * s->hpk;
    op.param[WEFT_ATTN_KV_HEADS] = s->kv_heads;
    op.eps = c->o->eps;
    return op;
}

/* The device's part of the cache: all pages, its heads. */
static int cache_on(const ctx *c, const share *s, weft_op *op)
{
    const weft__gtensor *kv = &c->p->g->tensors[c->o->w];
    int rc = rows_base(c, c->o->w, s->device, WEFT_ROLE_KV, kv->rows / c->o->param[WEFT_ATTN_KV_HEADS] * s->kv_heads,
                       kv->cols, &op->w);
    return rc ? rc : table_on(c, c->o->aux, s->device, &op->aux);
}

static int lower_rope(const ctx *c, const share *s)
{
    weft__plan_state *p = c->p;
    const weft__gtensor *turn = &p->g->tensors[c->o->extra];
    weft_op op = cache_op(c, s, WEFT_KIND_ROPE, s->kv_heads * (s->hpk + 2) * s->dim);
    op.flags = c->o->norm ? WEFT_OP_NORM : 0;
    int rc = weft__lower_activation(p, c->o->x, s->device, op.k, &op.x);
    if (!rc) rc = rows_base(c, c->o->out, s->device, WEFT_ROLE_ACT, p->m, s->q.n, &op.out);
    if (!rc) rc = cache_on(c, s, &op);
    if (!rc) {
        rc = weft__lower_weight(p, c->o->extra, s->device, (weft__slice){0, 1}, (weft__slice){0, turn->cols},
                                &op.scale);
    }
    return rc ? rc : weft__lower_add(c, &op);
}

static int lower_attn(const ctx *c, const share *s)
{
    weft__plan_state *p = c->p;
    const uint32_t units = p->m * s->kv_heads * c->o->param[WEFT_ATTN_MAX_BLOCKS];
    const weft_tensor t = {.name = WEFT_NONE,
                           .device = (uint16_t)s->device,
                           .dtype = WEFT_FP32,
                           .layout = WEFT_LAYOUT_ROW,
                           .role = WEFT_ROLE_PARTIAL,
                           .rows = units,
                           .cols = (uint32_t)weft_attn_unit_floats(s->hpk, s->dim),
                           .weight = WEFT_NONE,
                           .splits = 1};
    weft_tensor arrived = t;
    weft_op op = cache_op(c, s, WEFT_KIND_ATTN, s->q.n);
    arrived.dtype = WEFT_U32;
    arrived.role = WEFT_ROLE_TABLE;
    arrived.rows = p->m;
    arrived.cols = s->kv_heads;
    int rc = rows_base(c, c->o->x, s->device, WEFT_ROLE_ACT, p->m, s->q.n, &op.x);
    if (!rc) rc = cache_on(c, s, &op);
    if (!rc) rc = weft__base_new(p, &t, WEFT_NONE, &op.partial);
    const int together = p->m <= COMBINE_ROWS;
    if (!rc && together) rc = weft__base_new(p, &arrived, WEFT_NONE, &op.squares);
    if (!rc && together) rc = weft__lower_activation(p, c->o->out, s->device, s->q.n, &op.out);
    if (!rc) rc = weft__lower_add(c, &op);
    if (rc || together) return rc;
    weft_op end = cache_op(c, s, WEFT_KIND_ATTN_COMBINE, s->q.n);
    end.partial = op.partial;
    rc = weft__lower_activation(p, c->o->out, s->device, s->q.n, &end.out);
    return rc ? rc : weft__lower_add(c, &end);
}

static int lower_heads(const ctx *c, uint32_t first, uint32_t of)
{
    int rc = 0;
    if (c->o->kind == WEFT__GOP_ATTN && of > 1) c->sliced[c->o->out] = 1;
    if (c->o->kind == WEFT__GOP_ATTN && c->dests & ~(((1ull << (of - 1) << 1) - 1) << first)) {
        return weft__fail(WEFT_EUSAGE, "plan: op %s: its output is read by another group of devices", c->o->name);
    }
    for (uint32_t t = 0; t < of && !rc; t++) {
        const share s = share_of(c, first, t, of);
        if (s.q.n) rc = c->o->kind == WEFT__GOP_ROPE ? lower_rope(c, &s) : lower_attn(c, &s);
    }
    return rc;
}

/* Parts of a row's logits, so that many workers look for the largest. */
static int lower_survey(const ctx *c, uint32_t device, const weft_op *sample, uint32_t *found)
{
    weft__plan_state *p = c->p;
    const uint32_t workers = p->opt->workers[device], groups = weft_div_up(sample->n, 16);
    weft_op op = weft__op_blank(c, device, WEFT_KIND_SURVEY, sample->n, sample->k);
    op.partial = sample->partial;
    op.param[1] = workers < 64 ? workers : 64;
    if (op.param[1] > groups) op.param[1] = groups;
    const weft_tensor t = {.name = WEFT_NONE,
                           .device = (uint16_t)device,
                           .dtype = WEFT_FP32,
                           .layout = WEFT_LAYOUT_ROW,
                           .role = WEFT_ROLE_PARTIAL,
                           .rows = p->m,
                           .cols = op.param[1] * 4,
                           .weight = WEFT_NONE,
                           .splits = 1};
    int rc = weft__base_new(p, &t, WEFT_NONE, found);
    op.out = *found;
    return rc ? rc : weft__lower_add(c, &op);
}

static int lower_sample(const ctx *c, uint32_t device)
{
    weft__plan_state *p = c->p;
    const weft__gop *o = c->o;
    weft_op op = weft__op_blank(c, device, WEFT_KIND_SAMPLE, c->k, o->param[1]);
    op.m_tile = 1;
    op.partial = find(p, o->x, device);
    op.out = p->gt_first[o->out]; /* where EMBED has it */
    if (op.partial == WEFT_NONE || op.out == WEFT_NONE) {
        return weft__fail(WEFT_EUSAGE, "plan: op %s: no GEMM makes its sums, or no op takes its tokens", o->name);
    }
    int rc = lower_survey(c, device, &op, &op.scale);
    if (!rc && o->aux != WEFT_NONE) rc = whole_base(c, o->aux, device, &op.aux);
    if (!rc && o->w != WEFT_NONE) rc = whole_base(c, o->w, device, &op.w);
    if (!rc && o->extra != WEFT_NONE) rc = table_on(c, o->extra, device, &op.x);
    op.param[0] = o->param[0];
    op.param[1] = rc ? 0 : p->tensors[op.scale].t.cols / 4;
    return rc ? rc : weft__lower_add(c, &op);
}

int weft__lower_decode(weft__lowering *c, uint32_t first, uint32_t of)
{
    if (c->p->m > WEFT_MAX_ROWS) {
        return weft__fail(WEFT_EUSAGE, "plan: op %s: %u rows, a decoder's step has at most %u", c->o->name, c->p->m,
                          WEFT_MAX_ROWS);
    }
    switch (c->o->kind) {
    case WEFT__GOP_EMBED: c->dtype = c->p->g->tensors[c->o->out].dtype; return lower_embed(c, first);
    case WEFT__GOP_SAMPLE: c->dtype = WEFT_BF16; return lower_sample(c, first);
    default: return lower_heads(c, first, of);
    }
}
