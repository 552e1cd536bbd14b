/* decoder.c: see decoder.h. All weights lie in one block, in the order in which `each_weight` names them. */
#include "decoder.h"

#include "error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8u

typedef struct layer {
    const float *norm, *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *o;
    const float *mlp_norm, *gate, *up, *down;
} layer;

struct weft__decoder {
    weft__config c;
    uint32_t max_tokens, n_token;
    float *weights; /* owns all that follow */
    layer *layers;
    const float *embedding, *norm, *head;
    float *kv;    /* [layer][token][k, v][kv_heads * head_dim] */
    float *turns; /* [head_dim / 2]: radians a position */
    float *x, *y, *q, *attn, *gate, *up, *scores;
};

/* ------------------------------------------------------------------------------------------------------ weights */

typedef struct loader {
    const weft__hfmodel *m;
    float *at; /* NULL: only counts */
    uint64_t n;
    int status;
} loader;

static const float *take(loader *l, const char *name, uint32_t rows, uint32_t cols)
{
    weft__weight_reader r = weft__hfmodel_reader(l->m);
    uint32_t have_rows, have_cols;
    if (l->status || (l->status = r.shape(r.user, name, &have_rows, &have_cols))) return NULL;
    if (have_rows != rows || have_cols != cols) {
        l->status = weft__fail(WEFT_EFILE, "tensor %s: shape %u x %u, but config.json says %u x %u", name, have_rows,
                               have_cols, rows, cols);
        return NULL;
    }
    float *at = l->at ? l->at + l->n : NULL;
    if (at) l->status = r.rows(r.user, name, 0, rows, at);
    l->n += (uint64_t)rows * cols;
    return at;
}

static const float *take_of_layer(loader *l, uint32_t i, const char *part, uint32_t rows, uint32_t cols)
{
    char name[160];
    snprintf(name, sizeof name, "%slayers.%u.%s", l->m->prefix, i, part);
    return take(l, name, rows, cols);
}

static layer take_layer(loader *l, uint32_t i)
{
    const weft__config *c = &l->m->config;
    uint32_t h = c->hidden, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    layer y = {.norm = take_of_layer(l, i, "input_layernorm.weight", 1, h),
               .q = take_of_layer(l, i, "self_attn.q_proj.weight", q, h),
               .k = take_of_layer(l, i, "self_attn.k_proj.weight", kv, h),
               .v = take_of_layer(l, i, "self_attn.v_proj.weight", kv, h),
               .o = take_of_layer(l, i, "self_attn.o_proj.weight", h, q),
               .mlp_norm = take_of_layer(l, i, "post_attention_layernorm.weight", 1, h),
               .gate = take_of_layer(l, i, "mlp.gate_proj.weight", c->intermediate, h),
               .up = take_of_layer(l, i, "mlp.up_proj.weight", c->intermediate, h),
               .down = take_of_layer(l, i, "mlp.down_proj.weight", h, c->intermediate)};
    if (c->qkv_bias) {
        y.q_bias = take_of_layer(l, i, "self_attn.q_proj.bias", 1, q);
        y.k_bias = take_of_layer(l, i, "self_attn.k_proj.bias", 1, kv);
        y.v_bias = take_of_layer(l, i, "self_attn.v_proj.bias", 1, kv);
    }
    if (c->qk_norm) {
        y.q_norm = take_of_layer(l, i, "self_attn.q_norm.weight", 1, c->head_dim);
        y.k_norm = take_of_layer(l, i, "self_attn.k_norm.weight", 1, c->head_dim);
    }
    return y;
}

static void take_all(loader *l, weft__decoder *d)
{
    char name[160];
    const weft__config *c = &l->m->config;
    snprintf(name, sizeof name, "%sembed_tokens.weight", l->m->prefix);
    d->embedding = d->head = take(l, name, c->vocab, c->hidden);
    if (!c->tied_embeddings) d->head = take(l, "lm_head.weight", c->vocab, c->hidden);
    snprintf(name, sizeof name, "%snorm.weight", l->m->prefix);
    d->norm = take(l, name, 1, c->hidden);
    for (uint32_t i = 0; i < c->layers && !l->status; i++)
        d->layers[i] = take_layer(l, i);
}

static int load(weft__decoder *d, const weft__hfmodel *m)
{
    loader l = {.m = m};
    take_all(&l, d);
    if (l.status) return l.status;
    d->weights = malloc(l.n * sizeof(float));
    if (!d->weights) return weft__fail(WEFT_ENOMEM, "%llu weights in fp32", (unsigned long long)l.n);
    l = (loader){.m = m, .at = d->weights};
    take_all(&l, d);
    return l.status;
}

static int make_buffers(weft__decoder *d)
{
    const weft__config *c = &d->c;
    size_t kv = (size_t)c->kv_heads * c->head_dim, q = (size_t)c->heads * c->head_dim;
    d->kv = calloc((size_t)c->layers * d->max_tokens, sizeof(float) * 2 * kv); /* it refuses products past 64 bits */
    d->turns = malloc(sizeof(float) * (c->head_dim / 2 + 1));
    d->x = malloc(sizeof(float) * c->hidden);
    d->y = malloc(sizeof(float) * c->hidden);
    d->q = malloc(sizeof(float) * q);
    d->attn = malloc(sizeof(float) * q);
    d->gate = malloc(sizeof(float) * c->intermediate);
    d->up = malloc(sizeof(float) * c->intermediate);
    d->scores = malloc(sizeof(float) * d->max_tokens);
    if (!d->kv || !d->turns || !d->x || !d->y || !d->q || !d->attn || !d->gate || !d->up || !d->scores)
        return weft__fail(WEFT_ENOMEM, "a reference decoder of %u tokens", d->max_tokens);
    weft__config_rope(c, d->turns);
    return 0;
}

int weft__decoder_open(const weft__hfmodel *m, uint32_t max_tokens, weft__decoder **out)
{
    *out = NULL;
    if (!max_tokens || max_tokens > m->config.max_positions)
        return weft__fail(WEFT_EUSAGE, "%u tokens wanted, the model has %u positions", max_tokens,
                          m->config.max_positions);
    if (m->config.head_dim % 2) return weft__fail(WEFT_EUNSUPPORTED, "head_dim %u is odd", m->config.head_dim);
    weft__decoder *d = calloc(1, sizeof *d);
    if (!d) return weft__fail(WEFT_ENOMEM, "a reference decoder");
    d->c = m->config;
    d->max_tokens = max_tokens;
    d->layers = calloc(d->c.layers, sizeof *d->layers);
    int status = d->layers ? load(d, m) : weft__fail(WEFT_ENOMEM, "%u layers", d->c.layers);
    if (!status) status = make_buffers(d);
    if (status)
        weft__decoder_close(d);
    else
        *out = d;
    return status;
}

void weft__decoder_close(weft__decoder *d)
{
    if (!d) return;
    free(d->weights);
    free(d->layers);
    free(d->kv);
    free(d->turns);
    free(d->x);
    free(d->y);
    free(d->q);
    free(d->attn);
    free(d->gate);
    free(d->up);
    free(d->scores);
    free(d);
}

/* --------------------------------------------------------------------------------------------------- arithmetic */

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum[LANES] = {0}, total = 0;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            sum[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++)
        total += (double)a[i] * b[i];
    for (uint32_t j = 0; j < LANES; j++)
        total += sum[j];
    return total;
}

/* y[n] = W x + bias, W: n x k */
static void product(const float *w, const float *bias, const float *x, uint32_t n, uint32_t k, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)(dot(w + (size_t)i * k, x, k) + (bias ? bias[i] : 0));
}

static void normalise(const float *x, const float *gain, uint32_t n, double eps, float *y)
{
    double r = 1 / sqrt(dot(x, x, n) / n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)(x[i] * r * gain[i]);
}

/* Each head is normalised where `gain` is given, then turned: element i with element i + head_dim / 2. */
static void place_heads(const weft__decoder *d, const float *gain, uint32_t heads, float *v)
{
    uint32_t n = d->c.head_dim, half = n / 2;
    for (uint32_t h = 0; h < heads; h++, v += n) {
        if (gain) normalise(v, gain, n, d->c.norm_eps, v);
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)d->n_token * d->turns[i], c = cos(angle), s = sin(angle);
            double a = v[i], b = v[i + half];
            v[i] = (float)(a * c - b * s);
            v[i + half] = (float)(b * c + a * s);
        }
    }
}

/* One head over all tokens up to the present one; `k` and `v` step from token to token. */
static void attend(weft__decoder *d, const float *q, const float *k, const float *v, size_t step, float *out)
{
    uint32_t n = d->c.head_dim, tokens = d->n_token + 1;
    double top = -INFINITY, sum = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        d->scores[t] = (float)(dot(q, k + t * step, n) / sqrt(n));
        top = fmax(top, d->scores[t]);
    }
    for (uint32_t t = 0; t < tokens; t++) {
        d->scores[t] = (float)exp(d->scores[t] - top);
        sum += d->scores[t];
    }
    for (uint32_t i = 0; i < n; i++) {
        double x = 0;
        for (uint32_t t = 0; t < tokens; t++)
            x += (double)d->scores[t] * v[t * step + i];
        out[i] = (float)(x / sum);
    }
}

static void add_to(float *x, const float *y, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void run_attention(weft__decoder *d, const layer *l, uint32_t index)
{
    const weft__config *c = &d->c;
    uint32_t n = c->head_dim, kv = c->kv_heads * n, group = c->heads / c->kv_heads;
    size_t step = 2 * (size_t)kv;
    float *cache = d->kv + (size_t)index * d->max_tokens * step, *now = cache + d->n_token * step;
    normalise(d->x, l->norm, c->hidden, c->norm_eps, d->y);
    product(l->q, l->q_bias, d->y, c->heads * n, c->hidden, d->q);
    product(l->k, l->k_bias, d->y, kv, c->hidden, now);
    product(l->v, l->v_bias, d->y, kv, c->hidden, now + kv);
    place_heads(d, l->q_norm, c->heads, d->q);
    place_heads(d, l->k_norm, c->kv_heads, now);
    for (uint32_t h = 0; h < c->heads; h++) {
        const float *k = cache + (size_t)(h / group) * n;
        attend(d, d->q + (size_t)h * n, k, k + kv, step, d->attn + (size_t)h * n);
    }
    product(l->o, NULL, d->attn, c->hidden, c->heads * n, d->y);
    add_to(d->x, d->y, c->hidden);
}

static void run_mlp(weft__decoder *d, const layer *l)
{
    const weft__config *c = &d->c;
    normalise(d->x, l->mlp_norm, c->hidden, c->norm_eps, d->y);
    product(l->gate, NULL, d->y, c->intermediate, c->hidden, d->gate);
    product(l->up, NULL, d->y, c->intermediate, c->hidden, d->up);
    for (uint32_t i = 0; i < c->intermediate; i++)
        d->gate[i] = (float)(d->gate[i] / (1 + exp(-(double)d->gate[i])) * d->up[i]);
    product(l->down, NULL, d->gate, c->hidden, c->intermediate, d->y);
    add_to(d->x, d->y, c->hidden);
}

int weft__decoder_step(weft__decoder *d, uint32_t token, float *logits)
{
    const weft__config *c = &d->c;
    if (token >= c->vocab) return weft__fail(WEFT_EUSAGE, "token %u, the vocabulary has %u", token, c->vocab);
    if (d->n_token == d->max_tokens) return weft__fail(WEFT_EUSAGE, "more than %u tokens", d->max_tokens);
    memcpy(d->x, d->embedding + (size_t)token * c->hidden, sizeof(float) * c->hidden);
    for (uint32_t i = 0; i < c->layers; i++) {
        run_attention(d, &d->layers[i], i);
        run_mlp(d, &d->layers[i]);
    }
    d->n_token++;
    if (!logits) return 0;
    normalise(d->x, d->norm, c->hidden, c->norm_eps, d->y);
    product(d->head, NULL, d->y, c->vocab, c->hidden, logits);
    return 0;
}

void weft__decoder_truncate(weft__decoder *d, uint32_t tokens)
{
    if (tokens < d->n_token) d->n_token = tokens;
}
