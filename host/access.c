/* access.c: which parts of which tensors a task reads and writes: one function a kind, in one table. A kind that
 * lacks one can't be validated.
 *
 * A part is a rectangle of rows and columns of a tensor (of a range of splits, for partials), or words of an arena
 * (MIX). */
#include "access.h"

#include "../tasks/attn.h"

static uint32_t at_most(uint32_t v, uint32_t limit) { return v < limit ? v : limit; }

static int put(weft__accesses *a, uint32_t tensor, uint32_t what, uint32_t r0, uint32_t r1, uint32_t c0, uint32_t c1)
{
    a->part[a->n++] = (weft__access){.tensor = tensor,
                                     .what = (uint8_t)what,
                                     .r0 = r0,
                                     .r1 = r1,
                                     .c0 = c0,
                                     .c1 = c1,
                                     .s0 = 0,
                                     .s1 = 1,
                                     .origin = WEFT_NONE};
    return 0;
}

/* The end of a GEMM or a reduction: rows r0 .. r1, groups g0 .. +ng of W. */
static void linear_end(const weft_op *op, uint32_t r0, uint32_t r1, uint32_t g0, uint32_t ng, weft__accesses *a,
                       const weft__image *img)
{
    const uint32_t width = op->epilogue == WEFT_EPI_GATED_SILU ? 8 : 16;
    const uint32_t c0 = g0 * width, c1 = at_most((g0 + ng) * width, img->tensors[op->out].cols);
    if (c0 >= c1) return;
    put(a, op->out, WEFT__WRITE, r0, r1, c0, c1);
    if (op->flags & WEFT_OP_OUT_PACKET) put(a, op->pk_out, WEFT__WRITE, r0, r1, c0, c1);
    if (op->flags & WEFT_OP_AUX_PACKET)
        put(a, op->pk_aux, WEFT__READ_PACKET, r0, r1, c0, c1);
    else if (op->epilogue == WEFT_EPI_RESIDUAL)
        put(a, op->aux, WEFT__READ, r0, r1, c0, c1);
}

static void gemm(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                 weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = at_most(r0 + op->m_tile, op->m), g0 = t->tile[1], ng = t->tile[2];
    const uint32_t kb0 = t->tile[3] & 0xffff, nkb = t->tile[3] >> 16, packets = op->flags & WEFT_OP_X_PACKET;
    (void)q;
    put(a, packets ? op->pk_x : op->x, packets ? WEFT__READ_PACKET : WEFT__READ, r0, r1, kb0 * 64,
        at_most((kb0 + nkb) * 64, op->k));
    a->part[0].origin = kb0 * 64;
    if (op->flags & WEFT_OP_PARTIAL) {
        put(a, op->partial, WEFT__WRITE, r0, r1, g0 * 16, at_most((g0 + ng) * 16, op->n));
        if (op->flags & WEFT_OP_NORM) put(a, op->squares, WEFT__WRITE, r0, r1, g0, g0 + ng);
        for (uint32_t i = 1; i < a->n; i++) {
            a->part[i].s0 = kb0 / op->split_kb;
            a->part[i].s1 = a->part[i].s0 + 1;
        }
    } else {
        linear_end(op, r0, r1, g0, ng, a, img);
    }
}

static void reduce(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                   weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = r0 + t->tile[3], g0 = t->tile[1], ng = t->tile[2];
    (void)q;
    put(a, op->partial, WEFT__READ, r0, r1, g0 * 16, at_most((g0 + ng) * 16, op->n));
    if (op->flags & WEFT_OP_NORM) put(a, op->squares, WEFT__READ, r0, r1, g0, g0 + ng);
    for (uint32_t i = 0; i < a->n; i++)
        a->part[i].s1 = op->n_split;
    linear_end(op, r0, r1, g0, ng, a, img);
}

/* Rows m0 .., columns of groups g0 .. of x to the same of out: COPY, and RMSNORM with all groups. */
static void rows_to_rows(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                         weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = r0 + t->tile[3], g0 = t->tile[1], ng = t->tile[2];
    (void)q;
    put(a, op->x, WEFT__READ, r0, r1, g0 * 16, at_most((g0 + ng) * 16, op->n));
    linear_end(op, r0, r1, g0, ng, a, img);
}

static void table_whole(const weft__image *img, uint32_t table, weft__accesses *a)
{
    put(a, table, WEFT__READ, 0, img->tensors[table].rows, 0, img->tensors[table].cols);
}

/* Share i of n writes the units that fall to it: every unit has one owner, so shares count as columns. */
static void attn(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                 weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    (void)q;
    put(a, op->partial, WEFT__WRITE, 0, 1, t->tile[0], t->tile[0] + 1);
    a->part[0].shares = 1;
    if (op->out != WEFT_NONE) { /* by whoever is last: any of them */
        put(a, op->out, WEFT__WRITE, 0, 1, t->tile[0], t->tile[0] + 1);
        a->part[a->n - 1].shares = 1;
    }
    if (op->flags & WEFT_OP_OUT_PACKET) {
        put(a, op->pk_out, WEFT__WRITE, 0, 1, t->tile[0], t->tile[0] + 1);
        a->part[a->n - 1].shares = 1;
    }
    put(a, op->x, WEFT__READ, 0, op->m, 0, op->n);
    table_whole(img, op->aux, a);
    put(a, op->w, WEFT__READ, 0, op->m, 0, op->param[WEFT_ATTN_KV_HEADS]);
}

/* (sequence, KV head) pairs first .. +count: part of a row, whole rows, part of a row. */
static void attn_combine(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                         weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t kv_heads = op->param[WEFT_ATTN_KV_HEADS], width = op->n / kv_heads;
    uint32_t at = t->tile[0];
    const uint32_t end = at + t->tile[1];
    (void)q;
    put(a, op->partial, WEFT__READ, 0, 1, 0, 1);
    a->part[0].shares = 1;
    while (at < end) {
        const uint32_t row = at / kv_heads, h = at % kv_heads;
        const uint32_t rows = h || end - at < kv_heads ? 1 : (end - at) / kv_heads;
        const uint32_t last = rows > 1 || end - at >= kv_heads - h ? kv_heads : h + end - at;
        put(a, op->out, WEFT__WRITE, row, row + rows, h * width, last * width);
        if (op->flags & WEFT_OP_OUT_PACKET) put(a, op->pk_out, WEFT__WRITE, row, row + rows, h * width, last * width);
        at += rows > 1 ? rows * kv_heads : last - h;
    }
}

static void pages(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                  weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const weft_tensor *table = &img->tensors[op->out];
    (void)q;
    put(a, op->out, WEFT__WRITE, 0, table->rows, 0, table->cols);
}

/* The tokens that it reads are those that the step before wrote. */
static void embed(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                  weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    (void)q;
    put(a, op->out, WEFT__WRITE, t->tile[0], t->tile[0] + t->tile[3], 0, op->k);
    if (op->flags & WEFT_OP_OUT_PACKET) put(a, op->pk_out, WEFT__WRITE, t->tile[0], t->tile[0] + t->tile[3], 0, op->k);
}

/* The cache counts as (row of the step, KV head): where that lies is data, and no two rows of a step lie at one place. */
static void rope(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                 weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = r0 + t->tile[3], h0 = t->tile[1], h1 = h0 + t->tile[2],
                   dim = op->param[WEFT_ATTN_HEAD_DIM],
                   hpk = op->param[WEFT_ATTN_HEADS] / op->param[WEFT_ATTN_KV_HEADS];
    (void)q;
    put(a, op->x, WEFT__READ, r0, r1, h0 * (hpk + 2) * dim, h1 * (hpk + 2) * dim);
    table_whole(img, op->aux, a);
    put(a, op->out, WEFT__WRITE, r0, r1, h0 * hpk * dim, h1 * hpk * dim);
    put(a, op->w, WEFT__WRITE, r0, r1, h0, h1);
}

static void survey(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                   weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = r0 + t->tile[3];
    (void)q;
    put(a, op->partial, WEFT__READ, r0, r1, 0, op->n);
    if (op->flags & WEFT_OP_NORM) put(a, op->squares, WEFT__READ, r0, r1, 0, 1);
    put(a, op->out, WEFT__WRITE, r0, r1, t->tile[1] * 4, t->tile[1] * 4 + 4);
}

/* `tokens fed back` has a row for this step (1) and one for the step before (0). Tokens of sequences: by row of the step. */
static void sample(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                   weft__accesses *a)
{
    const weft_op *op = weft__image_op(img, device, t);
    const uint32_t r0 = t->tile[0], r1 = r0 + t->tile[3];
    (void)q;
    put(a, op->scale, WEFT__READ, r0, r1, 0, op->param[1] * 4);
    put(a, op->partial, WEFT__READ, r0, r1, 0, op->n);
    if (op->flags & WEFT_OP_NORM) put(a, op->squares, WEFT__READ, r0, r1, 0, 1);
    put(a, op->out, WEFT__WRITE, 1, 2, r0, r1);
    if (op->aux != WEFT_NONE) put(a, op->aux, WEFT__WRITE, r0, r1, 0, op->n);
    if (op->x != WEFT_NONE) table_whole(img, op->x, a);
    if (op->w != WEFT_NONE) put(a, op->w, WEFT__WRITE, r0, r1, 0, 1);
}

static void nop(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                weft__accesses *a)
{
    (void)img;
    (void)q;
    (void)device;
    (void)t;
    (void)a;
}

static void mix(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                weft__accesses *a)
{
    (void)device;
    a->words = img->args + q->arg + t->tile[0];
}

typedef void access_fn(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                       weft__accesses *a);
static access_fn *const table[WEFT_KIND_COUNT] = {
    [WEFT_KIND_NOP] = nop,
    [WEFT_KIND_MIX] = mix,
    [WEFT_KIND_GEMM_STREAM] = gemm,
    [WEFT_KIND_GEMM_WIDE] = gemm,
    [WEFT_KIND_REDUCE] = reduce,
    [WEFT_KIND_ATTN] = attn,
    [WEFT_KIND_ATTN_COMBINE] = attn_combine,
    [WEFT_KIND_RMSNORM] = rows_to_rows,
    [WEFT_KIND_COPY] = rows_to_rows,
    [WEFT_KIND_PAGES] = pages,
    [WEFT_KIND_EMBED] = embed,
    [WEFT_KIND_ROPE] = rope,
    [WEFT_KIND_SAMPLE] = sample,
    [WEFT_KIND_SURVEY] = survey,
};

int weft__task_accesses(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                        weft__accesses *a)
{
    a->n = 0;
    a->words = NULL;
    if (!table[t->kind]) return -1;
    table[t->kind](img, q, device, t, a);
    return 0;
}
