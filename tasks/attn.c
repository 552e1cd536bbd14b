/* attn.c: portable bodies of attn and attn_combine. Layout, units and partials: attn.h.
 *
 * Invariants: a unit's partial depends on its sequence alone; partials combine in block order. So a sequence's result
 * doesn't depend on the batch, nor on how units were dealt out.                                                        */
#include "attn.h"
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
    uint32_t heads, kv_heads, dim, hpk, max_blocks, max_pages;
    uint32_t n_seq;
    const uint32_t *kv_len;
} shape;

static shape shape_of(const weft_task_ctx *ctx)
{
    const uint32_t *p = ctx->op->param;
    const weft_step_attn *a = (const weft_step_attn *)ctx->payload;
    shape s = {ctx->op,
               p[WEFT_ATTN_HEADS],
               p[WEFT_ATTN_KV_HEADS],
               p[WEFT_ATTN_HEAD_DIM],
               p[WEFT_ATTN_HEADS] / p[WEFT_ATTN_KV_HEADS],
               p[WEFT_ATTN_MAX_BLOCKS],
               p[WEFT_ATTN_MAX_PAGES],
               0,
               NULL};
    if (ctx->step->payload_bytes < sizeof *a) return s;
    s.kv_len = a->kv_len;
    s.n_seq = a->n_seq < 64 ? a->n_seq : 64;
    if (s.n_seq > ctx->op->m) s.n_seq = ctx->op->m;
    return s;
}

/* Token t of sequence seq, as fp32. The sequence's pages are those that its row of the table names. */
static void load_token(const shape *s, uint32_t seq, uint32_t h, uint32_t t, uint32_t v, float *row)
{
    const uint32_t *table = (const uint32_t *)(uintptr_t)s->op->aux;
    const uint8_t *page = (const uint8_t *)(uintptr_t)s->op->w +
                          weft_attn_page_offset(s->kv_heads, s->dim, table[(uint64_t)seq * s->max_pages + t / 64], h,
                                                v);
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

static void load_q(const shape *s, uint32_t seq, uint32_t h, scratch *w)
{
    const uint16_t *q = (const uint16_t *)(uintptr_t)s->op->x + ((uint64_t)seq * s->heads + h * s->hpk) * s->dim;
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

static void run_unit(const shape *s, uint32_t seq, uint32_t h, uint32_t block, scratch *w)
{
    uint32_t t0 = block * WEFT_ATTN_BLOCK, left = s->kv_len[seq] - t0,
             n = left < WEFT_ATTN_BLOCK ? left : WEFT_ATTN_BLOCK;
    float scale = 1.44269504f / sqrtf((float)s->dim);
    float *m = (float *)(uintptr_t)s->op->partial +
               weft_attn_unit(s->kv_heads, s->max_blocks, seq, h, block) * weft_attn_unit_floats(s->hpk, s->dim);
    float *l = m + s->hpk, *o = l + s->hpk;
    load_q(s, seq, h, w);
    for (uint32_t j = 0; j < s->hpk; j++) {
        m[j] = -INFINITY;
        l[j] = 0;
    }
    memset(o, 0, (size_t)s->hpk * s->dim * sizeof *o);
    for (uint32_t t = 0; t < n; t++) {
        load_token(s, seq, h, t0 + t, 0, w->row);
        for (uint32_t j = 0; j < s->hpk; j++) {
            w->p[j][t] = dot(w->q[j], w->row, s->dim) * scale;
            if (w->p[j][t] > m[j]) m[j] = w->p[j][t];
        }
    }
    for (uint32_t t = 0; t < n; t++) {
        load_token(s, seq, h, t0 + t, 1, w->row);
        for (uint32_t j = 0; j < s->hpk; j++) {
            float p = exp2f(w->p[j][t] - m[j]);
            l[j] += p;
            for (uint32_t d = 0; d < s->dim; d++)
                o[j * s->dim + d] += p * w->row[d];
        }
    }
}

int weft__body_attn(const weft_task_ctx *ctx)
{
    shape s = shape_of(ctx);
    uint64_t total = 0, share = ctx->t->tile[0], shares = ctx->t->tile[1], first = 0;
    for (uint32_t seq = 0; seq < s.n_seq; seq++)
        total += (uint64_t)s.kv_len[seq] * s.kv_heads;
    uint64_t begin = share * total / shares, end = (share + 1) * total / shares;
    for (uint32_t seq = 0; seq < s.n_seq; seq++) {
        uint32_t len = s.kv_len[seq];
        for (uint32_t h = 0; h < s.kv_heads; h++, first += len) {
            if (first + len <= begin || first >= end) continue;
            for (uint32_t t = 0; t < len; t += WEFT_ATTN_BLOCK)
                if (first + t >= begin && first + t < end) run_unit(&s, seq, h, t / WEFT_ATTN_BLOCK, ctx->scratch);
        }
    }
    return 0;
}

/* One query head: the partials of all blocks, brought to one maximum. */
static void combine(const shape *s, uint32_t seq, uint32_t h, uint32_t j, float *o)
{
    uint32_t blocks = weft_div_up(s->kv_len[seq], WEFT_ATTN_BLOCK);
    uint64_t unit_floats = weft_attn_unit_floats(s->hpk, s->dim);
    const float *unit = (const float *)(uintptr_t)s->op->partial +
                        weft_attn_unit(s->kv_heads, s->max_blocks, seq, h, 0) * unit_floats;
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

int weft__body_attn_combine(const weft_task_ctx *ctx)
{
    shape s = shape_of(ctx);
    const weft_op_rt *op = ctx->op;
    uint8_t *out = (uint8_t *)(uintptr_t)op->out;
    float *o = ((scratch *)ctx->scratch)->row;
    for (uint32_t i = ctx->t->tile[0]; i < ctx->t->tile[0] + ctx->t->tile[1]; i++) {
        uint32_t seq = i / s.kv_heads, h = i % s.kv_heads;
        if (seq >= s.n_seq) return 0;
        for (uint32_t j = 0; j < s.hpk; j++) {
            combine(&s, seq, h, j, o);
            for (uint32_t d = 0; d < s.dim; d++) {
                uint16_t half = weft_f32_to_half(op->dtype, o[d]);
                uint32_t col = (h * s.hpk + j) * s.dim + d;
                memcpy(out + weft_offset16(op->out_layout, op->out_rows, op->out_cols, seq, col), &half, 2);
            }
        }
    }
    return 0;
}
