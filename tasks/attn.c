/* attn.c: portable bodies of pages, rope, attn and attn_combine. Layout, units and partials: attn.h.
 *
 * Invariants: a unit's partial depends on its sequence alone; partials combine in block order. So a sequence's result
 * doesn't depend on the batch, nor on how units were dealt out.                                                        */
#include "attn.h"
#include "batch.h"
#include "epilogue.h"
#include "half.h"
#include "kinds.h"

#include <math.h>

enum {
    MAX_HPK = 64,
    MAX_DIM = 512
};

typedef struct scratch {
    float q[MAX_HPK][MAX_DIM];
    float p[MAX_HPK][WEFT_ATTN_BLOCK]; /* scores, then weights */
    float row[MAX_DIM];                /* one token of K or V */
} scratch;
WEFT_STATIC_ASSERT(sizeof(scratch) <= WEFT_SCRATCH_BYTES, "the worker's scratch holds it");

typedef struct shape {
    const weft_op_rt *op;
    uint32_t heads, kv_heads, dim, hpk, block, max_blocks, max_pages;
    uint32_t n_row;
    const weft_step_row *row;
} shape;

static shape shape_of(const weft_task_ctx *ctx)
{
    const uint32_t *p = ctx->op->param;
    const weft_step_batch *batch = (const weft_step_batch *)ctx->payload;
    shape s = {ctx->op,
               p[WEFT_ATTN_HEADS],
               p[WEFT_ATTN_KV_HEADS],
               p[WEFT_ATTN_HEAD_DIM],
               p[WEFT_ATTN_HEADS] / p[WEFT_ATTN_KV_HEADS],
               p[WEFT_ATTN_BLOCK_TOKENS],
               p[WEFT_ATTN_MAX_BLOCKS],
               p[WEFT_ATTN_MAX_PAGES],
               weft__batch_rows(ctx),
               batch->row};
    if (s.n_row > ctx->op->m) s.n_row = ctx->op->m;
    return s;
}

/* K's or V's page of token t of row r's sequence, as its slot's row of the table names it. */
static uint8_t *page_of(const shape *s, uint32_t r, uint32_t h, uint32_t t, uint32_t v)
{
    const uint32_t *table = (const uint32_t *)(uintptr_t)s->op->aux + (uint64_t)s->row[r].slot * s->max_pages;
    return (uint8_t *)(uintptr_t)s->op->w + weft_attn_page_offset(s->kv_heads, s->dim, table[t / WEFT_ATTN_PAGE], h, v);
}

/* Token t of row r's sequence, as fp32. */
static void load_token(const shape *s, uint32_t r, uint32_t h, uint32_t t, uint32_t v, float *row)
{
    const uint8_t *page = page_of(s, r, h, t, v);
    for (uint32_t d = 0; d < s->dim; d += 8) {
        uint16_t half[8];
        memcpy(half, page + weft_attn_element(t % 64, d), sizeof half);
        if (s->op->dtype == WEFT_FP16)
            for (uint32_t i = 0; i < 8; i++)
                row[d + i] = weft_fp16_to_f32(half[i]);
        else
            for (uint32_t i = 0; i < 8; i++)
                row[d + i] = weft_bf16_to_f32(half[i]);
    }
}

static void load_q(const shape *s, uint32_t r, uint32_t h, scratch *w)
{
    const uint16_t *q = (const uint16_t *)(uintptr_t)s->op->x + ((uint64_t)r * s->heads + h * s->hpk) * s->dim;
    for (uint32_t j = 0; j < s->hpk; j++)
        for (uint32_t d = 0; d < s->dim; d++)
            w->q[j][d] = weft_half_to_f32(s->op->dtype, q[j * s->dim + d]);
}

/* Eight lanes, so that the compiler may vectorise a sum whose order is fixed. */
static float dot(const float *a, const float *b, uint32_t n)
{
    float lane[8] = {0};
    for (uint32_t i = 0; i < n; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            lane[j] += a[i + j] * b[i + j];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void run_unit(const shape *s, uint32_t r, uint32_t h, uint32_t block, scratch *w)
{
    uint32_t t0 = block * s->block, left = s->row[r].kv_len - t0, n = left < s->block ? left : s->block;
    float scale = 1.44269504f / sqrtf((float)s->dim);
    float *m = (float *)(uintptr_t)s->op->partial +
               weft_attn_unit(s->kv_heads, s->max_blocks, r, h, block) * weft_attn_unit_floats(s->hpk, s->dim);
    float *l = m + s->hpk, *o = l + s->hpk;
    load_q(s, r, h, w);
    for (uint32_t j = 0; j < s->hpk; j++) {
        m[j] = -INFINITY;
        l[j] = 0;
    }
    memset(o, 0, (size_t)s->hpk * s->dim * sizeof *o);
    for (uint32_t t = 0; t < n; t++) {
        load_token(s, r, h, t0 + t, 0, w->row);
        for (uint32_t j = 0; j < s->hpk; j++) {
            w->p[j][t] = dot(w->q[j], w->row, s->dim) * scale;
            if (w->p[j][t] > m[j]) m[j] = w->p[j][t];
        }
    }
    for (uint32_t t = 0; t < n; t++) {
        load_token(s, r, h, t0 + t, 1, w->row);
        for (uint32_t j = 0; j < s->hpk; j++) {
            float p = exp2f(w->p[j][t] - m[j]);
            l[j] += p;
            for (uint32_t d = 0; d < s->dim; d++)
                o[j * s->dim + d] += p * w->row[d];
        }
    }
}

static void combine_pair(const weft_task_ctx *ctx, const shape *s, uint32_t r, uint32_t h);

/* Where ATTN has an out: the last unit of a row and KV head combines all of them. */
static void finish_unit(const weft_task_ctx *ctx, const shape *s, uint32_t r, uint32_t h)
{
    const uint64_t word = s->op->squares + ((uint64_t)r * s->kv_heads + h) * 4;
    if (s->op->squares && ctx->calls->arrive(ctx->worker, word, weft_div_up(s->row[r].kv_len, s->block)))
        combine_pair(ctx, s, r, h);
}

/* Rows without units: the first share makes zeros of them. */
static void finish_idle_rows(const weft_task_ctx *ctx, const shape *s)
{
    if (!s->op->squares || ctx->t->tile[0]) return;
    for (uint32_t r = 0; r < weft__rows_to_write(ctx); r++)
        for (uint32_t h = 0; h < s->kv_heads && (r >= s->n_row || !s->row[r].kv_len); h++)
            combine_pair(ctx, s, r, h);
}

int weft__body_attn(const weft_task_ctx *ctx)
{
    shape s = shape_of(ctx);
    uint64_t total = 0, share = ctx->t->tile[0], shares = ctx->t->tile[1], first = 0;
    for (uint32_t r = 0; r < s.n_row; r++)
        total += (uint64_t)s.row[r].kv_len * s.kv_heads;
    uint64_t begin = share * total / shares, end = (share + 1) * total / shares;
    for (uint32_t r = 0; r < s.n_row; r++) {
        uint32_t len = s.row[r].kv_len;
        for (uint32_t h = 0; h < s.kv_heads; h++, first += len) {
            if (first + len <= begin || first >= end) continue;
            for (uint32_t t = 0; t < len; t += s.block)
                if (first + t >= begin && first + t < end) {
                    run_unit(&s, r, h, t / s.block, ctx->scratch);
                    finish_unit(ctx, &s, r, h);
                }
        }
    }
    finish_idle_rows(ctx, &s);
    return 0;
}

/* One query head: the partials of all blocks, brought to one maximum. */
static void combine(const shape *s, uint32_t r, uint32_t h, uint32_t j, float *o)
{
    uint32_t blocks = weft_div_up(s->row[r].kv_len, s->block);
    uint64_t unit_floats = weft_attn_unit_floats(s->hpk, s->dim);
    const float *unit = (const float *)(uintptr_t)s->op->partial +
                        weft_attn_unit(s->kv_heads, s->max_blocks, r, h, 0) * unit_floats;
    float m = -INFINITY, l = 0;
    for (uint32_t b = 0; b < blocks; b++)
        m = fmaxf(m, unit[b * unit_floats + j]);
    memset(o, 0, s->dim * sizeof *o);
    for (uint32_t b = 0; b < blocks; b++) {
        const float *u = unit + b * unit_floats, *v = u + 2 * s->hpk + j * s->dim;
        float f = exp2f(u[j] - m);
        l += f * u[s->hpk + j];
        for (uint32_t d = 0; d < s->dim; d++)
            o[d] += f * v[d];
    }
    for (uint32_t d = 0; d < s->dim && l > 0; d++)
        o[d] /= l;
}

/* A row's queries of one KV head, stored; zeros for a row that the step lacks: who reads packets waits for every row's. */
static void combine_pair(const weft_task_ctx *ctx, const shape *s, uint32_t r, uint32_t h)
{
    float *o = ((scratch *)ctx->scratch)->row;
    for (uint32_t j = 0; j < s->hpk; j++) {
        if (r < s->n_row)
            combine(s, r, h, j, o);
        else
            memset(o, 0, s->dim * sizeof *o);
        for (uint32_t d = 0; d < s->dim; d += 16) {
            uint16_t half[16];
            for (uint32_t c = 0; c < 16; c++)
                half[c] = weft_f32_to_half(s->op->dtype, o[d + c]);
            weft__store_elements(ctx, r, (h * s->hpk + j) * s->dim + d, 16, half);
        }
    }
}

int weft__body_attn_combine(const weft_task_ctx *ctx)
{
    shape s = shape_of(ctx);
    for (uint32_t i = ctx->t->tile[0]; i < ctx->t->tile[0] + ctx->t->tile[1]; i++) {
        if (i / s.kv_heads >= weft__rows_to_write(ctx)) return 0;
        combine_pair(ctx, &s, i / s.kv_heads, i % s.kv_heads);
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------- the cache is written */

int weft__body_pages(const weft_task_ctx *ctx)
{
    const weft_step_batch *batch = (const weft_step_batch *)ctx->payload;
    const weft_page_write *w = (const weft_page_write *)&batch->row[weft__batch_rows(ctx)];
    uint32_t *table = (uint32_t *)(uintptr_t)ctx->op->out, n = weft__batch_writes(ctx);
    for (uint32_t i = 0; i < n; i++)
        if (w[i].slot < ctx->op->out_rows && w[i].index < ctx->op->out_cols)
            table[(uint64_t)w[i].slot * ctx->op->out_cols + w[i].index] = w[i].page;
    return 0;
}

/* Elements col .. + dim of row r of x. */
static void load_head(const shape *s, uint32_t r, uint32_t col, float *v)
{
    const weft_op_rt *op = s->op;
    for (uint32_t d = 0; d < s->dim; d++) {
        uint16_t h;
        memcpy(&h, (const uint8_t *)(uintptr_t)op->x + weft_offset16(op->x_layout, op->m, op->k, r, col + d), 2);
        v[d] = weft_half_to_f32(op->dtype, h);
    }
}

/* RMSNorm of a head with its gains, where the model has them; rounded as a stored result would be. */
static void norm_head(const shape *s, const float *gain, float *v)
{
    if (!(s->op->flags & WEFT_OP_NORM)) return;
    const float factor = 1.0f / sqrtf(dot(v, v, s->dim) / (float)s->dim + s->op->eps);
    for (uint32_t d = 0; d < s->dim; d++)
        v[d] = weft_half_to_f32(s->op->dtype, weft_f32_to_half(s->op->dtype, v[d] * factor * gain[d]));
}

static void turn_head(const shape *s, uint32_t position, float *v)
{
    const float *frequency = (const float *)(uintptr_t)s->op->scale;
    const uint32_t half = s->dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        const float angle = (float)position * frequency[i], c = cosf(angle), sn = sinf(angle), a = v[i],
                    b = v[half + i];
        v[i] = a * c - b * sn;
        v[half + i] = b * c + a * sn;
    }
}

static void store_token(const shape *s, uint32_t r, uint32_t h, uint32_t t, uint32_t v, const float *row)
{
    uint8_t *page = page_of(s, r, h, t, v);
    for (uint32_t d = 0; d < s->dim; d++) {
        const uint16_t half = weft_f32_to_half(s->op->dtype, row[d]);
        memcpy(page + weft_attn_element(t % WEFT_ATTN_PAGE, d), &half, 2);
    }
}

int weft__body_rope(const weft_task_ctx *ctx)
{
    shape s = shape_of(ctx);
    const uint32_t *tile = ctx->t->tile; /* m0, h0, nh, rows */
    const float *gain = (const float *)(uintptr_t)s.op->scale + s.dim / 2;
    float *v = ((scratch *)ctx->scratch)->row;
    uint16_t *q = (uint16_t *)(uintptr_t)s.op->out;
    for (uint32_t r = tile[0]; r < tile[0] + tile[3] && r < s.n_row; r++) {
        if (!s.row[r].kv_len) continue;
        const uint32_t position = s.row[r].kv_len - 1;
        for (uint32_t h = tile[1]; h < tile[1] + tile[2]; h++) {
            const uint32_t first = h * (s.hpk + 2) * s.dim;
            for (uint32_t j = 0; j < s.hpk; j++) {
                uint16_t *to = q + ((uint64_t)r * s.heads + h * s.hpk + j) * s.dim;
                load_head(&s, r, first + j * s.dim, v);
                norm_head(&s, gain, v);
                turn_head(&s, position, v);
                for (uint32_t d = 0; d < s.dim; d++)
                    to[d] = weft_f32_to_half(s.op->dtype, v[d]);
            }
            load_head(&s, r, first + s.hpk * s.dim, v);
            norm_head(&s, gain + s.dim, v);
            turn_head(&s, position, v);
            store_token(&s, r, h, position, 0, v);
            load_head(&s, r, first + (s.hpk + 1) * s.dim, v);
            store_token(&s, r, h, position, 1, v);
        }
    }
    return 0;
}
