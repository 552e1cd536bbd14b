/* fidelity.c: a real model's decode steps against a plain decoder in fp32: greedy tokens, KL divergence of the logits, NLL.
 *
 * For each prompt the plain decoder (host/decoder.c: fp32 weights and activations, double sums) chooses --tokens tokens,
 * greedily. The engine then gets the same tokens, so that both have the same context at each position, and must choose the
 * same token there, except where the plain decoder's top two logits are closer than bf16 can tell: they are listed. bf16 has
 * 8 bits, so two logits x and y count as tied if |x - y| <= 2^-7 max(|x|, |y|).                                           */
#include "bench.h"

#include "../host/decoder.h"
#include "../host/tok.h"
#include "../tasks/attn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft__bench b;
static uint32_t tokens = 64, n_prompt = 20, packets = 1;
static const char *model, *strategy = "single";

static const char *const prompts[] = {
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "The three laws of thermodynamics are",
    "Q: What is 17 times 23?\nA:",
    "Die Hauptstadt von Deutschland ist",
    "La Révolution française a commencé en",
    "<|im_start|>user\nWrite a haiku about autumn.<|im_end|>\n<|im_start|>assistant\n",
    "import numpy as np\n\n# Solve a linear system\n",
    "The mitochondria is the powerhouse of the cell because",
    "In 1969, the first human",
    "SELECT name, COUNT(*) FROM users",
    "The quick brown fox jumps over the lazy dog. The lazy dog",
    "El agua hierve a",
    "<|im_start|>user\nExplain gravity to a child.<|im_end|>\n<|im_start|>assistant\n",
    "Ingredients:\n- 2 cups of flour\n- 1 cup of sugar\n-",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 1, 2, 3, 5, 8, 13,",
    "The theory of relativity, proposed by",
    "#include <stdio.h>\n\nint main(void)\n{\n",
};

typedef struct fidelity {
    weft__hfmodel m;
    weft__tok *tok;
    weft__decoder *d;
    weft_engine *e;
    float *want, *have;
    uint32_t compared, differ, ties;
    double kl, nll_want, nll_have;
} fidelity;

static int start(fidelity *f, const weft__bench_devices *d, uint32_t context)
{
    weft__graph *g = NULL;
    void *image = NULL;
    uint64_t bytes = 0;
    weft__plan_options o = weft__plan_defaults();
    const int s = weft__strategy_parse(strategy);
    if (s < 0) return s;
    const weft__decode decode = {.config = &f->m.config,
                                 .named = 1,
                                 .prefix = f->m.prefix,
                                 .dtype = WEFT_BF16,
                                 .rows = 1,
                                 .slots = 1,
                                 .pages = weft_div_up(context, WEFT_ATTN_PAGE),
                                 .context = context};
    const weft__weight_reader r = weft__hfmodel_reader(&f->m);
    const weft_weight_source source = {r.user, r.shape, r.rows};
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = b.devices;
    c.queue = b.queue;
    c.deadline_us = b.deadline_us;
    c.weights = &source;
    o.strategy = (uint32_t)s;
    o.packet_max_rows = packets;
    int rc = weft__graph_decode(&decode, &g);
    if (!rc) rc = weft__bench_plan(g, d, o, &image, &bytes);
    if (!rc) rc = weft_engine_create(image, bytes, &c, &f->e);
    weft__graph_free(g);
    free(image);
    return rc;
}

/* f->have: the engine's logits after `token` at `position`. */
static int engine_step(fidelity *f, uint32_t position, uint32_t token)
{
    struct {
        weft_step_batch b;
        weft_page_write w;
    } p = {.b = {.n_row = 1}};
    const weft_page_write w = {0, (uint16_t)(position / WEFT_ATTN_PAGE), position / WEFT_ATTN_PAGE};
    uint32_t seq;
    weft_step s = WEFT_STEP_INIT;
    p.b.row[0] = (weft_step_row){.kv_len = position + 1, .token = token, .flags = WEFT_ROW_SAMPLE | WEFT_ROW_LOGITS};
    p.b.row[0].top_p = p.b.row[0].penalty = 1;
    if (position % WEFT_ATTN_PAGE == 0) {
        memcpy(&p.b.row[1], &w, sizeof w);
        p.b.n_write = 1;
    }
    s.rows = 1;
    s.payload = &p;
    s.payload_bytes = WEFT_BATCH_BYTES(1, p.b.n_write);
    int rc = weft_step_submit(f->e, &s, &seq);
    if (!rc) rc = weft_step_wait(f->e, seq);
    return rc ? rc : weft_tensor_read_f32(f->e, "logits", f->have, f->m.config.vocab);
}

static uint32_t best_of(const float *v, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return best;
}

static double log_sum(const float *v, uint32_t n)
{
    const double top = v[best_of(v, n)];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(v[i] - top);
    return top + log(sum);
}

/* The two logits after one position; `next`: the token that follows. */
static void compare(fidelity *f, uint32_t prompt, uint32_t position, uint32_t next)
{
    const uint32_t n = f->m.config.vocab, have = best_of(f->have, n);
    const double lw = log_sum(f->want, n), lh = log_sum(f->have, n);
    for (uint32_t i = 0; i < n; i++)
        f->kl += exp(f->want[i] - lw) * (f->want[i] - lw - f->have[i] + lh);
    f->nll_want += lw - f->want[next];
    f->nll_have += lh - f->have[next];
    f->compared++;
    if (have == next) return;
    const double x = f->want[next], y = f->want[have];
    const int tie = fabs(x - y) <= ldexp(fmax(fabs(x), fabs(y)), -7);
    f->ties += tie;
    f->differ += !tie;
    fprintf(stderr, "prompt %u, position %u: token %u (%.4f), the engine %u (%.4f): %s\n", prompt, position, next, x,
            have, y, tie ? "closer than bf16 tells" : "DIFFERENT");
}

static int run_prompt(fidelity *f, uint32_t i)
{
    weft__tokens ids = {0};
    int rc = weft__tok_encode(f->tok, prompts[i], strlen(prompts[i]), 1, &ids);
    uint32_t token = 0;
    weft__decoder_truncate(f->d, 0);
    for (uint32_t p = 0; p < ids.n + tokens - 1 && !rc; p++) {
        if (p < ids.n) token = ids.id[p];
        rc = weft__decoder_step(f->d, token, f->want);
        if (!rc) rc = engine_step(f, p, token);
        if (rc || p + 1 < ids.n) continue;
        token = best_of(f->want, f->m.config.vocab);
        compare(f, i, p, token);
    }
    free(ids.id);
    return rc;
}

static int report(const fidelity *f)
{
    json_t *line = weft__bench_line(&b, "fidelity", f->e);
    json_object_set_new(line, "strategy", json_string(strategy));
    weft__bench_count(line, "prompts", n_prompt);
    weft__bench_count(line, "tokens", f->compared);
    weft__bench_count(line, "ties", f->ties);
    weft__bench_count(line, "differ", f->differ);
    weft__bench_set(line, "kl", f->kl / f->compared);
    weft__bench_set(line, "nll", f->nll_have / f->compared);
    weft__bench_set(line, "nll_fp32", f->nll_want / f->compared);
    int rc = weft__bench_print(line);
    return rc || !f->differ ? rc : weft__fail(WEFT_EWRONG, "%u tokens differ", f->differ);
}

static int body(void)
{
    fidelity f = {0};
    char path[4096];
    weft__bench_devices d;
    const uint32_t context = 256 + tokens;
    if (!model) return weft__fail(WEFT_EUSAGE, "--model is missing");
    int rc = weft__hfmodel_open(model, &f.m);
    snprintf(path, sizeof path, "%s/tokenizer.json", model);
    if (!rc) rc = weft__tok_read(path, &f.tok);
    if (!rc) rc = weft__decoder_open(&f.m, context, &f.d);
    if (!rc) rc = weft__bench_devices_of(&b, &d);
    if (!rc) rc = start(&f, &d, context);
    f.want = malloc(f.m.config.vocab * sizeof(float) + 4);
    f.have = malloc(f.m.config.vocab * sizeof(float) + 4);
    if (!rc && (!f.want || !f.have)) rc = weft__fail(WEFT_ENOMEM, "logits");
    for (uint32_t i = 0; i < n_prompt && !rc; i++) {
        weft__progress(prompts[i]);
        rc = run_prompt(&f, i);
    }
    weft__progress(NULL);
    if (!rc) rc = report(&f);
    weft_engine_destroy(f.e);
    weft__decoder_close(f.d);
    weft__tok_free(f.tok);
    weft__hfmodel_close(&f.m);
    free(f.want);
    free(f.have);
    return rc;
}

int main(int argc, char **argv)
{
    weft__option rows[WEFT__BENCH_ROWS] = {{0}};
    b = weft__bench_defaults("fidelity");
    weft__option *row = weft__bench_rows(&b, rows);
    *row++ = (weft__option){"--model", "DIR", "Hugging Face directory", WEFT_OPT_TEXT, &model, 0, 0};
    *row++ = (weft__option){"--strategy", "NAME", "single (default), cta, tp", WEFT_OPT_TEXT, &strategy, 0, 0};
    *row++ = (weft__option){"--prompts", "N", "of twenty (default 20)", WEFT_OPT_U32, &n_prompt, 1, 20};
    *row++ = (weft__option){"--tokens", "N", "a prompt (default 64)", WEFT_OPT_U32, &tokens, 1, 1000};
    *row++ = (weft__option){
        "--packets", "N", "rows up to which edges carry packets (default 1)", WEFT_OPT_U32, &packets, 0, 8};
    return weft__bench_main(argc, argv, &b, rows,
                            "Greedy tokens and logits of a model against fp32. One JSON line; what differs on stderr.",
                            body);
}
