/* decode.c: a whole decoder's step on seeded weights of a model's shape: how long does a token take, and how far is that from
 * the time that reading the weights and the cache takes?
 *
 * Each sequence stands at --context tokens of a cache that no prompt has filled (its keys and values are zero), and goes on from
 * there, each token fed back on the device. Two times: steps run ahead, 16 in flight, from the first submit of a sample to
 * its last completion over its tokens; and host to host, one step after another, with the token read back.               */
#include "bench.h"

#include "../host/config.h"
#include "../tasks/attn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft__bench b;
static uint32_t batch = 1, context = 512, tokens = 128, repeats = 10, packets = 1, trace_steps;
static const char *shape = "llama-3.2-1b", *strategy = "single", *trace_file;
static double ceiling_gbs;

static const struct named_shape {
    const char *name;
    weft__config c;
} shapes[] = {
    {"llama-3.2-1b",
     {.hidden = 2048,
      .intermediate = 8192,
      .layers = 16,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 64,
      .vocab = 128256,
      .max_positions = 131072,
      .norm_eps = 1e-5,
      .tied_embeddings = 1}},
    {"llama-3.1-8b",
     {.hidden = 4096,
      .intermediate = 14336,
      .layers = 32,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .vocab = 128256,
      .max_positions = 131072,
      .norm_eps = 1e-5}},
    {"smollm2-135m",
     {.hidden = 576,
      .intermediate = 1536,
      .layers = 30,
      .heads = 9,
      .kv_heads = 3,
      .head_dim = 64,
      .vocab = 49152,
      .max_positions = 8192,
      .norm_eps = 1e-5,
      .tied_embeddings = 1}},
};

typedef struct run {
    const weft__config *c;
    weft_engine *e;
    uint32_t pages; /* of a sequence */
} run;

/* Sequence i holds pages i * pages .. of the cache. */
static int write_tables(const run *r)
{
    const uint32_t all = batch * r->pages, most = (WEFT_STEP_PAYLOAD_BYTES - WEFT_BATCH_BYTES(0, 0)) / 8;
    uint8_t payload[WEFT_STEP_PAYLOAD_BYTES];
    int status = 0;
    for (uint32_t at = 0; at < all && !status;) {
        weft_step_batch *p = (weft_step_batch *)payload;
        weft_page_write *w = (weft_page_write *)p->row;
        *(uint32_t *)payload = 0;
        p->n_write = all - at < most ? all - at : most;
        for (uint32_t i = 0; i < p->n_write; i++, at++)
            w[i] = (weft_page_write){(uint16_t)(at / r->pages), (uint16_t)(at % r->pages), at};
        weft_step step = WEFT_STEP_INIT;
        uint32_t seq;
        step.payload = payload;
        step.payload_bytes = WEFT_BATCH_BYTES(0, p->n_write);
        status = weft_step_submit(r->e, &step, &seq);
        if (!status) status = weft_step_wait(r->e, seq);
    }
    return status;
}

/* Token `t` of a sample: its position is context + t. */
static int submit(const run *r, uint32_t t, uint32_t *seq)
{
    weft_step_batch p = {.n_row = batch};
    for (uint32_t i = 0; i < batch; i++)
        p.row[i] = (weft_step_row){.kv_len = context + t + 1,
                                   .slot = i,
                                   .token = t ? WEFT_TOKEN_OF | i : i,
                                   .flags = WEFT_ROW_SAMPLE,
                                   .top_p = 1,
                                   .penalty = 1};
    weft_step step = WEFT_STEP_INIT;
    step.rows = batch;
    step.payload = &p;
    step.payload_bytes = WEFT_BATCH_BYTES(batch, 0);
    return weft_step_submit(r->e, &step, seq);
}

static int run_ahead(const run *r, double *us)
{
    const uint64_t t0 = weft__now_ns();
    uint32_t seq = 0, first = 0;
    int status = 0;
    for (uint32_t t = 0; t < tokens && !status; t++) {
        if (t >= WEFT_MAX_STEPS_IN_FLIGHT) status = weft_step_wait(r->e, first + t - WEFT_MAX_STEPS_IN_FLIGHT);
        if (!status) status = submit(r, t, &seq);
        if (!t) first = seq;
    }
    if (!status) status = weft_step_wait(r->e, seq);
    *us = (double)(weft__now_ns() - t0) * 1e-3 / tokens;
    return status;
}

static int one_by_one(const run *r, double *us)
{
    int status = 0;
    for (uint32_t t = 0; t < tokens && !status; t++) {
        uint32_t seq, token[WEFT_MAX_ROWS];
        const uint64_t t0 = weft__now_ns();
        status = submit(r, t, &seq);
        if (!status) status = weft_step_wait(r->e, seq);
        if (!status) status = weft_step_tokens(r->e, seq, batch, token, NULL);
        us[t] = (double)(weft__now_ns() - t0) * 1e-3;
    }
    return status;
}

/* Weights that a step reads, once each, and the cache up to the middle of a sample. */
static uint64_t floor_bytes(const run *r)
{
    const weft__config *c = r->c;
    const uint64_t h = c->hidden, q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    const uint64_t layer = h * (q + 2 * kv) + q * h + 3 * h * c->intermediate;
    return 2 * (layer * c->layers + h * c->vocab) + (uint64_t)c->layers * batch * (context + tokens / 2) * kv * 2 * 2;
}

static int report(const run *r, const weft__stats *ahead, const weft__stats *host)
{
    const double bytes = (double)floor_bytes(r), floor_us = bytes / ceiling_gbs * 1e-3;
    json_t *line = weft__bench_line(&b, "decode", r->e);
    json_object_set_new(line, "shape", json_string(shape));
    json_object_set_new(line, "strategy", json_string(strategy));
    weft__bench_count(line, "batch", batch);
    weft__bench_count(line, "context", context);
    weft__bench_count(line, "tokens", tokens);
    weft__bench_count(line, "bytes", floor_bytes(r));
    weft__bench_stats(line, "us", ahead);
    weft__bench_set(line, "host_median_us", host->p50);
    weft__bench_set(line, "host_p99_us", host->p99);
    weft__bench_set(line, "gb_s", bytes / ahead->p50 * 1e-3);
    weft__bench_set(line, "ceiling_gb_s", ceiling_gbs > 0 ? ceiling_gbs : NAN);
    weft__bench_set(line, "floor_us", ceiling_gbs > 0 ? floor_us : NAN);
    weft__bench_set(line, "over_floor", ceiling_gbs > 0 ? ahead->p50 / floor_us : NAN);
    return weft__bench_print(line);
}

static int measure(const run *r)
{
    double *us = malloc((repeats > tokens ? repeats : tokens) * sizeof *us), first;
    weft__stats ahead, host;
    int status = us ? 0 : weft__fail(WEFT_ENOMEM, "%u samples", repeats);
    if (!status) status = write_tables(r);
    if (!status) status = run_ahead(r, &first); /* warm-up */
    for (uint32_t i = 0; i < repeats && !status; i++)
        status = run_ahead(r, &us[i]);
    if (!status) status = weft__stats_of(us, repeats, &ahead);
    if (!status) status = one_by_one(r, us);
    if (!status) status = weft__stats_of(us, tokens, &host);
    free(us);
    if (!status && trace_file) return weft_trace_write(r->e, trace_file);
    return status ? status : report(r, &ahead, &host);
}

static int find_shape(const weft__config **c)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, shape)) continue;
        *c = &shapes[i].c;
        return 0;
    }
    return weft__fail(WEFT_EUSAGE, "--shape %s: not llama-3.2-1b, llama-3.1-8b or smollm2-135m", shape);
}

static int body(void)
{
    run r = {0};
    weft__bench_devices d;
    weft__graph *g = NULL;
    weft__plan_options o = weft__plan_defaults();
    int status = find_shape(&r.c), s = weft__strategy_parse(strategy);
    if (!status) status = s < 0 ? s : weft__bench_devices_of(&b, &d);
    if (status) return status;
    r.pages = weft_div_up(context + tokens + 1, WEFT_ATTN_PAGE);
    const weft__decode decode = {.config = r.c,
                                 .dtype = WEFT_BF16,
                                 .seed = b.seed,
                                 .rows = batch,
                                 .slots = batch,
                                 .pages = r.pages * batch,
                                 .context = r.pages * WEFT_ATTN_PAGE};
    o.strategy = (uint32_t)s;
    o.packet_max_rows = packets;
    int built = weft__graph_decode(&decode, &g);
    status = weft__bench_start_graph(&b, built, g, &d, o, trace_file ? trace_steps : 0, &r.e);
    if (!status) status = measure(&r);
    weft_engine_destroy(r.e);
    return status;
}

int main(int argc, char **argv)
{
    weft__option rows[WEFT__BENCH_ROWS] = {{0}};
    b = weft__bench_defaults("decode");
    weft__option *row = weft__bench_rows(&b, rows);
    *row++ = (weft__option){
        "--shape", "NAME", "llama-3.2-1b (default), llama-3.1-8b, smollm2-135m", WEFT_OPT_TEXT, &shape, 0, 0};
    *row++ = (weft__option){"--strategy", "NAME", "single (default), cta, tp", WEFT_OPT_TEXT, &strategy, 0, 0};
    *row++ = (weft__option){"--batch", "N", "sequences (default 1)", WEFT_OPT_U32, &batch, 1, 64};
    *row++ = (weft__option){
        "--context", "N", "tokens before the first of a sample (default 512)", WEFT_OPT_U32, &context, 0, 131000};
    *row++ = (weft__option){"--tokens", "N", "of a sample (default 128)", WEFT_OPT_U32, &tokens, 16, 4096};
    *row++ = (weft__option){"--repeats", "N", "samples (default 10)", WEFT_OPT_U32, &repeats, 1, 1e5};
    *row++ = (weft__option){
        "--packets", "N", "rows up to which edges carry packets (default 1)", WEFT_OPT_U32, &packets, 0, 8};
    *row++ = (weft__option){"--ceiling", "GB/S", "read bandwidth to compare with", WEFT_OPT_F64, &ceiling_gbs, 0, 1e6};
    *row++ = (weft__option){"--trace", "FILE", "write a trace instead of the figures", WEFT_OPT_TEXT, &trace_file,
                            0,         0};
    *row++ = (weft__option){"--records", "N", "of the trace, a worker (default 4000)", WEFT_OPT_U32, &trace_steps,
                            0,           1e6};
    trace_steps = 4000;
    return weft__bench_main(argc, argv, &b, rows,
                            "A whole decoder's step over the time of reading its weights and cache. One JSON line.",
                            body);
}
