/* graph_decode.c: a decoder's own ops, and a whole decoder of the Llama family as a graph. */
#include "graph.h"

#include "../tasks/attn.h"
#include "../tasks/seed.h"
#include "config.h"
#include "error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------------------- ops */

static int is_state(const weft__graph *g, const char *op, const char *field, uint32_t id, uint32_t role, uint32_t dtype)
{
    if (id >= g->n_tensor) return weft__fail(WEFT_EUSAGE, "graph: op %s: %s is no tensor", op, field);
    const weft__gtensor *t = &g->tensors[id];
    if (t->role == role && t->dtype == dtype) return 0;
    return weft__fail(WEFT_EUSAGE, "graph: op %s: %s (%s) has role %u and type %u, must have %u and %u", op, field,
                      t->name, t->role, t->dtype, role, dtype);
}

int weft__graph_embed(weft__graph *g, const weft__embed *d, uint32_t *op)
{
    const char *name = d->name ? d->name : "embed";
    int rc = is_state(g, name, "fed", d->fed, WEFT_ROLE_TABLE, WEFT_U32);
    if (!rc) rc = weft__graph_readable(g, name, "w", d->w);
    if (!rc) rc = weft__graph_writable(g, name, d->out);
    if (!rc) rc = weft__graph_shape(g, name, "fed", d->fed, 2, WEFT_MAX_ROWS, WEFT_U32);
    if (rc) return rc;
    const weft__gtensor *w = &g->tensors[d->w], *out = &g->tensors[d->out];
    rc = weft__graph_shape(g, name, "out", d->out, out->rows, w->cols, w->dtype);
    const weft__gop o = {.kind = WEFT__GOP_EMBED,
                         .layer = d->layer,
                         .device = WEFT_NONE,
                         .x = d->fed,
                         .w = d->w,
                         .aux = WEFT_NONE,
                         .out = d->out,
                         .extra = WEFT_NONE,
                         .n_tile = 1};
    if (!rc) rc = weft__graph_add(g, &o, name, op);
    if (!rc) g->tensors[d->out].producer = g->n_op - 1;
    return rc;
}

static int check_attention(const weft__graph *g, const weft__attention *d, const char *name)
{
    const uint32_t dim = d->head_dim, heads = d->heads, kv = d->kv_heads;
    if (!kv || !heads || heads % kv) {
        return weft__fail(WEFT_EUSAGE, "graph: op %s: %u heads over %u KV heads", name, heads, kv);
    }
    if (!dim || dim % 64 || dim > 512) {
        return weft__fail(WEFT_EUNSUPPORTED, "graph: op %s: heads of %u, not of a multiple of 64 up to 512", name, dim);
    }
    int rc = weft__graph_readable(g, name, "qkv", d->qkv);
    if (!rc) rc = weft__graph_readable(g, name, "turn", d->turn);
    if (!rc) rc = is_state(g, name, "table", d->table, WEFT_ROLE_TABLE, WEFT_U32);
    if (!rc) rc = weft__graph_writable(g, name, d->out);
    if (rc) return rc;
    const weft__gtensor *qkv = &g->tensors[d->qkv];
    rc = is_state(g, name, "kv", d->kv, WEFT_ROLE_KV, qkv->dtype);
    if (!rc) rc = weft__graph_shape(g, name, "qkv", d->qkv, qkv->rows, (heads + 2 * kv) * dim, qkv->dtype);
    if (!rc) rc = weft__graph_shape(g, name, "out", d->out, qkv->rows, heads * dim, qkv->dtype);
    if (!rc) {
        rc = weft__graph_shape(g, name, "kv", d->kv, g->tensors[d->kv].rows, dim * WEFT_ATTN_PAGE, qkv->dtype);
    }
    if (!rc) rc = weft__graph_shape(g, name, "turn", d->turn, 1, dim / 2 + (d->norm ? 2 * dim : 0), WEFT_FP32);
    if (!rc && g->tensors[d->kv].rows % (2 * kv)) {
        rc = weft__fail(WEFT_EUSAGE, "graph: op %s: the cache is not of whole pages", name);
    }
    return rc;
}

int weft__graph_attention(weft__graph *g, const weft__attention *d)
{
    const char *name = d->name ? d->name : "attn";
    char text[128];
    uint32_t q;
    int rc = check_attention(g, d, name);
    if (rc) return rc;
    const weft__gtensor *qkv = &g->tensors[d->qkv];
    const uint32_t dim = d->head_dim, dtype = qkv->dtype, rows = qkv->rows, pages = g->tensors[d->table].cols;
    const uint32_t block = d->block ? d->block : rows <= 8 ? 128 : WEFT_ATTN_BLOCK; /* few rows: many parts */
    g->tensors[d->qkv].quantum = (d->heads / d->kv_heads + 2) * dim;
    g->tensors[d->out].quantum = d->heads / d->kv_heads * dim;
    snprintf(text, sizeof text, "%s.q", name);
    rc = weft__graph_tensor(g, text, WEFT_ROLE_ACT, dtype, rows, d->heads * dim, &q);
    weft__gop o = {.kind = WEFT__GOP_ROPE,
                   .layer = d->layer,
                   .device = WEFT_NONE,
                   .norm = d->norm != 0,
                   .x = d->qkv,
                   .w = d->kv,
                   .aux = d->table,
                   .out = q,
                   .extra = d->turn,
                   .eps = d->eps,
                   .n_tile = 1,
                   .param = {d->heads, d->kv_heads, dim, block, weft_div_up(pages * WEFT_ATTN_PAGE, block), pages}};
    snprintf(text, sizeof text, "%s.rope", name);
    if (!rc) rc = weft__graph_add(g, &o, text, NULL);
    if (rc) return rc;
    g->tensors[q].producer = g->n_op - 1;
    o.kind = WEFT__GOP_ATTN;
    o.x = q;
    o.out = d->out;
    o.norm = 0;
    o.extra = WEFT_NONE;
    rc = weft__graph_add(g, &o, name, NULL);
    if (!rc) g->tensors[d->out].producer = g->n_op - 1;
    return rc;
}

int weft__graph_sample(weft__graph *g, const weft__sample *d, uint32_t *op)
{
    const char *name = d->name ? d->name : "sample";
    int rc = weft__graph_readable(g, name, "sums", d->sums);
    if (!rc) rc = weft__graph_shape(g, name, "fed", d->fed, 2, WEFT_MAX_ROWS, WEFT_U32);
    if (!rc && (d->tokens == WEFT_NONE) != (d->table == WEFT_NONE)) {
        rc = weft__fail(WEFT_EUSAGE, "graph: op %s: tokens and a page table go together", name);
    }
    if (!rc && d->tokens != WEFT_NONE) rc = is_state(g, name, "tokens", d->tokens, WEFT_ROLE_KV, WEFT_U32);
    if (!rc && d->table != WEFT_NONE) rc = is_state(g, name, "table", d->table, WEFT_ROLE_TABLE, WEFT_U32);
    if (!rc && d->logits != WEFT_NONE) rc = weft__graph_writable(g, name, d->logits);
    if (rc) return rc;
    const weft__gtensor *sums = &g->tensors[d->sums];
    rc = weft__graph_shape(g, name, "sums", d->sums, sums->rows, sums->cols, WEFT_FP32);
    if (!rc && d->logits != WEFT_NONE) {
        rc = weft__graph_shape(g, name, "logits", d->logits, sums->rows, sums->cols, WEFT_FP32);
    }
    const uint32_t gemm = sums->producer;
    if (!rc && (gemm >= g->n_op || !g->ops[gemm].sums)) {
        rc = weft__fail(WEFT_EUSAGE, "graph: op %s: %s is no GEMM's sums", name, sums->name);
    }
    if (rc) return rc;
    const weft__gop o = {
        .kind = WEFT__GOP_SAMPLE,
        .layer = d->layer,
        .device = WEFT_NONE,
        .x = d->sums,
        .w = d->tokens,
        .aux = d->logits,
        .out = d->fed,
        .extra = d->table,
        .n_tile = 1,
        .param = {d->table == WEFT_NONE ? 0 : g->tensors[d->table].cols, g->tensors[g->ops[gemm].x].cols}};
    rc = weft__graph_add(g, &o, name, op);
    if (!rc && d->logits != WEFT_NONE) g->tensors[d->logits].producer = g->n_op - 1;
    return rc;
}

/* ------------------------------------------------------------------------------------------------------ a whole decoder */

typedef struct build {
    const weft__decode *d;
    const weft__config *c;
    weft__graph *g;
    uint32_t weights; /* so far, for seeds */
    uint32_t table;
} build;

typedef struct source { /* of a weight: names of the model's tensors */
    char name[4][192];
} source;

static const char *of_layer(const build *b, char *text, uint32_t layer, const char *part)
{
    snprintf(text, 192, "%slayers.%u.%s", b->d->prefix ? b->d->prefix : "model.", layer, part);
    return text;
}

static int add_weight(build *b, const char *name, uint32_t dtype, uint32_t rows, uint32_t cols, weft__source s,
                      float scale, uint32_t *id)
{
    if (!b->d->named) {
        s = (weft__source){.fill = WEFT_FILL_SEED,
                           .seed = (uint64_t)weft_hash(b->d->seed, b->weights, 1) << 32 |
                                   weft_hash(b->d->seed, b->weights, 2),
                           .scale = scale};
    }
    b->weights++;
    return weft__graph_weight(b->g, name, dtype, rows, cols, &s, id);
}

/* Variance of x is kept. */
static int add_matrix(build *b, const char *name, uint32_t rows, uint32_t cols, const weft__source *s, uint32_t *id)
{
    return add_weight(b, name, b->d->dtype, rows, cols, *s, sqrtf(3.0f / (float)cols), id);
}

static int add_act(build *b, const char *what, uint32_t layer, uint32_t cols, uint32_t *id)
{
    char name[64];
    snprintf(name, sizeof name, "%s%u", what, layer);
    return weft__graph_tensor(b->g, name, WEFT_ROLE_ACT, b->d->dtype, b->d->rows, cols, id);
}

/* qkv of a layer: its KV heads one after another, each with its queries. */
static int add_qkv(build *b, uint32_t layer, uint32_t x, uint32_t *out)
{
    const weft__config *c = b->c;
    const uint32_t hpk = c->heads / c->kv_heads, dim = c->head_dim, n = (c->heads + 2 * c->kv_heads) * dim;
    source s;
    char name[64], text[64];
    weft__source w = {.fill = WEFT_FILL_MODEL,
                      .a = of_layer(b, s.name[0], layer, "self_attn.q_proj.weight"),
                      .b = of_layer(b, s.name[1], layer, "self_attn.k_proj.weight"),
                      .c = of_layer(b, s.name[2], layer, "self_attn.v_proj.weight"),
                      .gain = of_layer(b, s.name[3], layer, "input_layernorm.weight"),
                      .rows_a = hpk * dim,
                      .rows_b = dim,
                      .rows_c = dim};
    snprintf(name, sizeof name, "layer%u.qkv", layer);
    weft__gemm d = {.name = name, .layer = layer, .x = x, .aux = WEFT_NONE, .norm = 1, .eps = (float)c->norm_eps};
    snprintf(text, sizeof text, "qkv%u.w", layer);
    int rc = add_matrix(b, text, n, c->hidden, &w, &d.w);
    if (!rc && c->qkv_bias) {
        w.a = of_layer(b, s.name[0], layer, "self_attn.q_proj.bias");
        w.b = of_layer(b, s.name[1], layer, "self_attn.k_proj.bias");
        w.c = of_layer(b, s.name[2], layer, "self_attn.v_proj.bias");
        w.gain = NULL;
        d.epilogue = WEFT_EPI_BIAS;
        snprintf(text, sizeof text, "qkv%u.b", layer);
        rc = add_weight(b, text, WEFT_FP32, 1, n, w, 0.1f, &d.aux);
    }
    if (!rc) rc = add_act(b, "qkv", layer, n, &d.out);
    *out = d.out;
    return rc ? rc : weft__graph_gemm(b->g, &d, NULL);
}

static int add_attention(build *b, uint32_t layer, uint32_t qkv, uint32_t *out)
{
    const weft__config *c = b->c;
    source s;
    char name[64], text[64];
    snprintf(name, sizeof name, "layer%u.attn", layer);
    weft__attention d = {.name = name,
                         .layer = layer,
                         .qkv = qkv,
                         .table = b->table,
                         .heads = c->heads,
                         .kv_heads = c->kv_heads,
                         .head_dim = c->head_dim,
                         .norm = c->qk_norm,
                         .eps = (float)c->norm_eps};
    const uint32_t half = c->head_dim / 2;
    weft__source turn = {.fill = WEFT_FILL_MODEL, .a = "@rope"};
    if (c->qk_norm) {
        turn.b = of_layer(b, s.name[0], layer, "self_attn.q_norm.weight");
        turn.c = of_layer(b, s.name[1], layer, "self_attn.k_norm.weight");
        turn.rows_a = half;
        turn.rows_b = turn.rows_c = c->head_dim;
    }
    snprintf(text, sizeof text, "turn%u", layer);
    int rc = add_weight(b, text, WEFT_FP32, 1, half + (c->qk_norm ? 2 * c->head_dim : 0), turn, 1.0f, &d.turn);
    snprintf(text, sizeof text, "kv%u", layer);
    if (!rc) {
        rc = weft__graph_state(b->g, text, WEFT_ROLE_KV, b->d->dtype, b->d->pages * c->kv_heads * 2,
                               c->head_dim * WEFT_ATTN_PAGE, &d.kv);
    }
    if (!rc) rc = add_act(b, "attn", layer, c->heads * c->head_dim, &d.out);
    *out = d.out;
    return rc ? rc : weft__graph_attention(b->g, &d);
}

/* *x + a GEMM of h becomes *x. */
static int add_back(build *b, uint32_t layer, const char *what, const char *part, uint32_t h, uint32_t *x)
{
    source s;
    char name[64], text[64];
    const weft__source w = {.fill = WEFT_FILL_MODEL, .a = of_layer(b, s.name[0], layer, part)};
    snprintf(name, sizeof name, "layer%u.%s", layer, what);
    weft__gemm d = {.name = name, .layer = layer, .x = h, .aux = *x, .epilogue = WEFT_EPI_RESIDUAL};
    snprintf(text, sizeof text, "%s%u.w", what, layer);
    int rc = add_matrix(b, text, b->c->hidden, b->g->tensors[h].cols, &w, &d.w);
    if (!rc) rc = add_act(b, what, layer, b->c->hidden, &d.out);
    *x = d.out;
    return rc ? rc : weft__graph_gemm(b->g, &d, NULL);
}

static int add_gateup(build *b, uint32_t layer, uint32_t x, uint32_t *out)
{
    const weft__config *c = b->c;
    source s;
    char name[64], text[64];
    const weft__source w = {.fill = WEFT_FILL_MODEL,
                            .a = of_layer(b, s.name[0], layer, "mlp.gate_proj.weight"),
                            .b = of_layer(b, s.name[1], layer, "mlp.up_proj.weight"),
                            .gain = of_layer(b, s.name[2], layer, "post_attention_layernorm.weight"),
                            .rows_a = 8,
                            .rows_b = 8};
    snprintf(name, sizeof name, "layer%u.gateup", layer);
    weft__gemm d = {.name = name,
                    .layer = layer,
                    .x = x,
                    .aux = WEFT_NONE,
                    .epilogue = WEFT_EPI_GATED_SILU,
                    .norm = 1,
                    .eps = (float)c->norm_eps};
    snprintf(text, sizeof text, "gateup%u.w", layer);
    int rc = add_matrix(b, text, (uint32_t)weft_round_up64(c->intermediate, 8) * 2, c->hidden, &w, &d.w);
    if (!rc) rc = add_act(b, "gateup", layer, c->intermediate, &d.out);
    *out = d.out;
    return rc ? rc : weft__graph_gemm(b->g, &d, NULL);
}

static int add_layer(build *b, uint32_t layer, uint32_t *x)
{
    uint32_t h;
    int rc = add_qkv(b, layer, *x, &h);
    if (!rc) rc = add_attention(b, layer, h, &h);
    if (!rc) rc = add_back(b, layer, "o", "self_attn.o_proj.weight", h, x);
    if (!rc) rc = add_gateup(b, layer, *x, &h);
    return rc ? rc : add_back(b, layer, "down", "mlp.down_proj.weight", h, x);
}

/* The last norm is an op of its own: a tied embedding can't have its gain folded in. */
static int add_head(build *b, uint32_t x, uint32_t embedding, uint32_t fed)
{
    const weft__config *c = b->c;
    const char *prefix = b->d->prefix ? b->d->prefix : "model.";
    char text[192];
    snprintf(text, sizeof text, "%snorm.weight", prefix);
    const weft__source gain = {.fill = WEFT_FILL_MODEL, .a = text},
                       w = {.fill = WEFT_FILL_MODEL, .a = "lm_head.weight"};
    weft__rmsnorm norm = {.name = "norm", .layer = c->layers, .x = x, .gain = WEFT_NONE, .eps = (float)c->norm_eps};
    weft__gemm head = {.name = "head", .layer = c->layers, .w = embedding, .aux = WEFT_NONE, .sums = 1};
    weft__sample sample = {.name = "sample", .layer = c->layers, .fed = fed, .table = b->table};
    int rc = b->d->named ? add_weight(b, "norm.gain", WEFT_FP32, 1, c->hidden, gain, 1.0f, &norm.gain) : 0;
    if (!rc) rc = add_act(b, "norm", c->layers, c->hidden, &norm.out);
    if (!rc) rc = weft__graph_rmsnorm(b->g, &norm, NULL);
    if (!rc && !c->tied_embeddings) rc = add_matrix(b, "head.w", c->vocab, c->hidden, &w, &head.w);
    if (!rc) {
        rc = weft__graph_tensor(b->g, "sums", WEFT_ROLE_ACT, WEFT_FP32, b->d->rows, c->vocab, &head.out);
    }
    head.x = norm.out;
    if (!rc) rc = weft__graph_gemm(b->g, &head, NULL);
    sample.sums = head.out;
    if (!rc) {
        rc = weft__graph_tensor(b->g, "logits", WEFT_ROLE_OUTPUT, WEFT_FP32, b->d->rows, c->vocab, &sample.logits);
    }
    if (!rc) rc = weft__graph_state(b->g, "tokens", WEFT_ROLE_KV, WEFT_U32, b->d->pages, 64, &sample.tokens);
    return rc ? rc : weft__graph_sample(b->g, &sample, NULL);
}

static int check_decode(const weft__decode *d)
{
    const weft__config *c = d->config;
    if (!d->rows || d->rows > WEFT_MAX_ROWS)
        return weft__fail(WEFT_EUSAGE, "decoder: %u rows a step, not 1..%u", d->rows, WEFT_MAX_ROWS);
    if (!d->slots || d->slots > 65536) return weft__fail(WEFT_EUSAGE, "decoder: %u sequences, not 1..65536", d->slots);
    if (!d->context || d->context > c->max_positions) {
        return weft__fail(WEFT_EUSAGE, "decoder: a context of %u tokens, the model has 1..%u", d->context,
                          c->max_positions);
    }
    if (!d->pages || d->pages > WEFT_NONE / (2 * c->kv_heads))
        return weft__fail(WEFT_EUSAGE, "decoder: a cache of %u pages", d->pages);
    if (d->dtype != WEFT_BF16 && d->dtype != WEFT_FP16)
        return weft__fail(WEFT_EUSAGE, "decoder: element type %u is neither bf16 nor fp16", d->dtype);
    return 0;
}

int weft__graph_decode(const weft__decode *d, weft__graph **out)
{
    build b = {.d = d, .c = d->config};
    const weft__config *c = d->config;
    char text[192];
    uint32_t fed = WEFT_NONE, embedding = WEFT_NONE, x = WEFT_NONE;
    *out = NULL;
    int rc = check_decode(d);
    if (rc || (rc = weft__graph_new(&b.g))) return rc;
    snprintf(text, sizeof text, "%sembed_tokens.weight", d->prefix ? d->prefix : "model.");
    const weft__source w = {.fill = WEFT_FILL_MODEL, .a = text};
    rc = weft__graph_state(b.g, "fed", WEFT_ROLE_TABLE, WEFT_U32, 2, WEFT_MAX_ROWS, &fed);
    if (!rc) {
        rc = weft__graph_state(b.g, "pages", WEFT_ROLE_TABLE, WEFT_U32, d->slots,
                               weft_div_up(d->context, WEFT_ATTN_PAGE), &b.table);
    }
    if (!rc) rc = add_matrix(&b, "embed.w", c->vocab, c->hidden, &w, &embedding);
    if (!rc) rc = weft__graph_tensor(b.g, "x", WEFT_ROLE_ACT, d->dtype, d->rows, c->hidden, &x);
    const weft__embed e = {.name = "embed", .layer = 0, .fed = fed, .w = embedding, .out = x};
    if (!rc) rc = weft__graph_embed(b.g, &e, NULL);
    for (uint32_t l = 0; l < c->layers && !rc; l++)
        rc = add_layer(&b, l, &x);
    if (!rc) rc = add_head(&b, x, embedding, fed);
    if (rc)
        weft__graph_free(b.g);
    else
        *out = b.g;
    return rc;
}
