/* sample.c: portable bodies of embed, survey and sample: sample.h says what they do.
 *
 * Thresholds (the k-th largest, the last of the nucleus) are found by halving the range of float keys, 8 bits a pass: the
 * number, or the probability, of what lies above decides. No sorting; a pass reads the row once.                        */
#include "sample.h"

#include "batch.h"
#include "epilogue.h"
#include "half.h"

#include <math.h>

/* ------------------------------------------------------------------------------------------------------------- embed */

static uint32_t token_of(const weft_task_ctx *ctx, uint32_t token)
{
    if (!(token & WEFT_TOKEN_OF)) return token;
    const uint32_t *fed = (const uint32_t *)(uintptr_t)ctx->op->x;
    return fed[(ctx->step->seq - 1) % 2 * WEFT_MAX_ROWS + token % WEFT_MAX_ROWS];
}

int weft__body_embed(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const weft_step_batch *batch = (const weft_step_batch *)ctx->payload;
    const uint32_t n_row = weft__batch_rows(ctx), *tile = ctx->t->tile;
    const uint32_t end = weft__rows_to_write(ctx);
    for (uint32_t r = tile[0]; r < tile[0] + tile[3] && r < end; r++) {
        const int used = r < n_row;
        const uint32_t token = used ? token_of(ctx, batch->row[r].token) : WEFT_NONE;
        for (uint32_t c = 0; c < op->k; c += 16) {
            const uint32_t n = op->k - c < 16 ? op->k - c : 16;
            uint16_t h[16];
            for (uint32_t j = 0; j < n; j++) {
                h[j] = used ? 0x7fff : 0; /* NaN in both types */
                if (token < op->n)
                    memcpy(&h[j], (const uint8_t *)(uintptr_t)op->w + weft_atom_offset(op->k, token, c + j), 2);
            }
            weft__store_elements(ctx, r, c, n, h);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ sample */

typedef struct row { /* of logits */
    const weft_task_ctx *ctx;
    const weft_op_rt *op;
    const weft_step_batch *batch;
    uint32_t m;     /* which */
    float factor;   /* that the norm left out */
    float max;      /* the largest, as penalised and divided by the temperature */
    uint32_t *held; /* bit t: the sequence holds token t; NULL without a penalty */
} row;

enum {
    MAX_PENALISED = (WEFT_SCRATCH_BYTES - 64) * 8
};

static float logit(const row *r, uint32_t token)
{
    const float v = ((const float *)(uintptr_t)r->op->partial)[weft_partial_index(r->op->m, r->op->n, 0, r->m, token)];
    return v * r->factor;
}

static float penalised(const row *r, uint32_t token)
{
    const float v = logit(r, token), penalty = r->batch->row[r->m].penalty;
    if (!r->held || !(r->held[token / 32] >> token % 32 & 1)) return v;
    return v > 0 ? v / penalty : v * penalty;
}

static float norm_factor(const row *r)
{
    const weft_op_rt *op = r->op;
    if (!(op->flags & WEFT_OP_NORM)) return 1.0f;
    const float sum = ((const float *)(uintptr_t)
                           op->squares)[weft_partial_index(op->m, weft_div_up(op->n, 16), 0, r->m, 0)];
    return 1.0f / sqrtf(sum / (float)op->k + op->eps);
}

/* The tokens of a sequence lie where its pages are: those of earlier steps, and this step's own from the payload. */
static uint32_t *tokens_at(const row *r, uint32_t position)
{
    const weft_step_row *at = &r->batch->row[r->m];
    const uint32_t *table = (const uint32_t *)(uintptr_t)r->op->x;
    const uint32_t page = table[(uint64_t)at->slot * r->op->param[0] + position / 64];
    return (uint32_t *)(uintptr_t)r->op->w + (uint64_t)page * 64 + position % 64;
}

/* What SAMPLE itself chose for row i of the step before. */
static uint32_t chosen_before(const weft_task_ctx *ctx, uint32_t i)
{
    const weft_mailbox *box = (const weft_mailbox *)(uintptr_t)ctx->dev->mailbox;
    return box->result[(ctx->step->seq - 1) % WEFT_STEP_RING].token[i % WEFT_MAX_ROWS];
}

static uint32_t own_token(const weft_task_ctx *ctx, const weft_step_row *row)
{
    return row->token & WEFT_TOKEN_OF ? chosen_before(ctx, row->token) : row->token;
}

static void mark(row *r, uint32_t token)
{
    if (token < r->op->n) r->held[token / 32] |= 1u << token % 32;
}

static void find_held(row *r)
{
    const weft_step_row *at = &r->batch->row[r->m];
    uint32_t before = at->kv_len - 1; /* tokens of earlier steps */
    r->held = NULL;
    if (!r->op->w || !(at->penalty > 0) || at->penalty == 1.0f || r->op->n > MAX_PENALISED) return;
    r->held = r->ctx->scratch;
    memset(r->held, 0, weft_div_up(r->op->n, 32) * 4u);
    for (uint32_t i = 0; i <= r->m; i++) {
        const weft_step_row *other = &r->batch->row[i];
        if (other->slot != at->slot || !other->kv_len || other->kv_len > at->kv_len) continue;
        mark(r, own_token(r->ctx, other));
        if (other->kv_len - 1 < before) before = other->kv_len - 1;
    }
    for (uint32_t t = 0; t < before; t++)
        mark(r, *tokens_at(r, t));
}

typedef struct found { /* what SURVEY leaves of a part */
    float max, token, sum, nan;
} found;

int weft__body_survey(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const uint32_t *tile = ctx->t->tile; /* m0, part, parts, rows */
    const uint32_t first = weft_survey_first(op->n, tile[1], tile[2]),
                   end = weft_survey_first(op->n, tile[1] + 1, tile[2]);
    const weft_step_batch *batch = (const weft_step_batch *)ctx->payload;
    const uint32_t n_row = weft__batch_rows(ctx);
    for (uint32_t m = tile[0]; m < tile[0] + tile[3] && m < n_row && m < op->m; m++) {
        if (!(batch->row[m].flags & WEFT_ROW_SAMPLE)) continue;
        row r = {.ctx = ctx, .op = op, .m = m};
        found f = {-INFINITY, (float)first, 0, 0};
        r.factor = norm_factor(&r);
        for (uint32_t t = first; t < end; t++) {
            const float v = logit(&r, t);
            if (isnan(v)) f.nan = 1;
            if (v > f.max) {
                f.max = v;
                f.token = (float)t;
            }
        }
        for (uint32_t t = first; t < end && f.max > -INFINITY; t++)
            f.sum += expf(logit(&r, t) - f.max);
        memcpy((found *)(uintptr_t)op->out + (uint64_t)m * tile[2] + tile[1], &f, sizeof f);
    }
    return 0;
}

/* The most likely token without a penalty, the first of equals (WEFT_NONE: a logit is NaN), and the logarithm of the sum of
 * exponentials. */
static uint32_t most_likely(row *r, float *logsum)
{
    const uint32_t parts = r->op->param[1];
    const found *f = (const found *)(uintptr_t)r->op->scale + (uint64_t)r->m * parts;
    double sum = 0;
    uint32_t best = 0;
    float nan = 0;
    for (uint32_t i = 0; i < parts; i++) {
        if (f[i].max > f[best].max) best = i;
        nan += f[i].nan;
    }
    for (uint32_t i = 0; i < parts; i++)
        if (f[i].sum > 0) sum += (double)f[i].sum * exp((double)f[i].max - f[best].max);
    r->max = f[best].max;
    *logsum = f[best].max + (float)log(sum);
    return nan > 0 ? WEFT_NONE : (uint32_t)f[best].token;
}

/* The same with it. r->max gets the largest logit. */
static uint32_t most_likely_penalised(row *r)
{
    uint32_t best = 0;
    r->max = -INFINITY;
    for (uint32_t t = 0; t < r->op->n; t++) {
        const float v = penalised(r, t);
        if (v > r->max) {
            r->max = v;
            best = t;
        }
    }
    return best;
}

/* ---------------------------------------------------------------------------------------------------- cuts and the draw */

typedef struct cuts {
    float scale;     /* 1 / temperature */
    uint32_t lowest; /* key that a kept logit has at least */
} cuts;

static float weight_of(const row *r, const cuts *c, float v) { return expf((v - r->max) * c->scale); }

/* The largest key such that what is not below it, and not below `lowest`, weighs at least `want`: as numbers, or as
 * probabilities of those. */
static uint32_t threshold(const row *r, const cuts *c, double want, int count)
{
    uint32_t prefix = 0;
    double above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        double bin[256] = {0};
        for (uint32_t t = 0; t < r->op->n; t++) {
            const float v = penalised(r, t);
            const uint32_t key = weft_sample_key(v);
            if (key < c->lowest || (shift < 24 && key >> (shift + 8) != prefix >> (shift + 8))) continue;
            bin[key >> shift & 255] += count ? 1.0 : (double)weight_of(r, c, v);
        }
        int b = 255;
        for (; b > 0 && above + bin[b] < want; b--)
            above += bin[b];
        prefix |= (uint32_t)b << shift;
    }
    return prefix;
}

static double total_of(const row *r, const cuts *c)
{
    double sum = 0;
    for (uint32_t t = 0; t < r->op->n; t++) {
        const float v = penalised(r, t);
        if (weft_sample_key(v) >= c->lowest) sum += (double)weight_of(r, c, v);
    }
    return sum;
}

static uint32_t draw(const row *r)
{
    const weft_step_row *at = &r->batch->row[r->m];
    cuts c = {1.0f / at->temperature, 0};
    if (at->top_k && at->top_k < r->op->n) c.lowest = threshold(r, &c, at->top_k, 1);
    if (at->top_p > 0 && at->top_p < 1.0f) {
        const uint32_t key = threshold(r, &c, (double)at->top_p * total_of(r, &c), 0);
        if (key > c.lowest) c.lowest = key;
    }
    if (at->min_p > 0) {
        const uint32_t key = weft_sample_key(r->max + logf(at->min_p) / c.scale);
        if (key > c.lowest) c.lowest = key;
    }
    const double stop = (double)weft_sample_draw(at->seed, at->kv_len) * total_of(r, &c);
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t t = 0; t < r->op->n; t++) {
        const float v = penalised(r, t);
        if (weft_sample_key(v) < c.lowest) continue;
        sum += (double)weight_of(r, &c, v);
        last = t;
        if (sum > stop) break;
    }
    return last;
}

static void sample_row(row *r)
{
    const weft_step_row *at = &r->batch->row[r->m];
    weft_mailbox *box = (weft_mailbox *)(uintptr_t)r->ctx->dev->mailbox;
    weft_step_result *result = &box->result[r->ctx->step->seq % WEFT_STEP_RING];
    uint32_t *fed = (uint32_t *)(uintptr_t)r->op->out + r->ctx->step->seq % 2 * WEFT_MAX_ROWS;
    float logsum;
    uint32_t token = most_likely(r, &logsum);
    find_held(r);
    if (token != WEFT_NONE && r->held) token = most_likely_penalised(r);
    if (token != WEFT_NONE && at->temperature > 0) token = draw(r);
    fed[r->m] = result->token[r->m] = token;
    result->logprob[r->m] = token == WEFT_NONE ? NAN : logit(r, token) - logsum;
}

int weft__body_sample(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const weft_step_batch *batch = (const weft_step_batch *)ctx->payload;
    const uint32_t n_row = weft__batch_rows(ctx), *tile = ctx->t->tile;
    for (uint32_t m = tile[0]; m < tile[0] + tile[3] && m < n_row && m < op->m; m++) {
        row r = {.ctx = ctx, .op = op, .batch = batch, .m = m};
        const weft_step_row *at = &batch->row[m];
        if (!at->kv_len) continue;
        r.factor = norm_factor(&r);
        if (op->w) *tokens_at(&r, at->kv_len - 1) = own_token(ctx, at);
        if (at->flags & WEFT_ROW_LOGITS && op->aux)
            for (uint32_t t = 0; t < op->n; t++)
                ((float *)(uintptr_t)op->aux)[(uint64_t)m * op->n + t] = logit(&r, t);
        if (at->flags & WEFT_ROW_SAMPLE) sample_row(&r);
    }
    return 0;
}
