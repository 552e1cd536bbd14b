/* cli_generate.c: `weft generate`: a model goes on from a prompt, whole decode steps in the resident kernel.
 *
 * Enters: argv, a Hugging Face directory. Leaves: text on stdout as it is decoded, times on stderr.
 * The prompt goes through in chunks of rows; then each step takes the token that the step before chose, on the device, and
 * a few steps are always submitted ahead of the one whose token is read. What lies past a stop token is dropped.         */
#include "../host/chat.h"
#include "../host/error.h"
#include "../host/hfmodel.h"
#include "../host/plan.h"
#include "../megakernel/clock.h"
#include "../tasks/attn.h"
#include "cli.h"
#include "weft.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STOPS = 16
};

typedef struct generate {
    const char *model, *prompt, *file, *system, *devices, *strategy, *queue;
    bool chat, json, ignore_stop;
    uint32_t max_tokens, rows, ahead, context, top_k, seed, deadline_us;
    double temperature, top_p, min_p, penalty;

    weft__hfmodel m;
    weft__tok *tok;
    weft__tokens prompt_ids;
    uint32_t stop[MAX_STOPS], n_stop;
    weft_engine *e;
    uint64_t start_ns, first_ns, last_ns, load_ns;
    uint32_t n_token; /* generated */
    const char *why;  /* it ended */
    weft__text text;
    json_t *ids; /* of the tokens generated */
} generate;

/* ------------------------------------------------------------------------------------------------------------- the model */

static void add_stop(generate *g, uint32_t id)
{
    for (uint32_t i = 0; i < g->n_stop; i++)
        if (g->stop[i] == id) return;
    if (g->n_stop < MAX_STOPS) g->stop[g->n_stop++] = id;
}

/* eos_token_id of a JSON file of the model: a number or an array of them. A file that isn't there adds nothing. */
static void read_stops(generate *g, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", g->model, file);
    json_t *root = json_load_file(path, 0, NULL), *eos = json_object_get(root, "eos_token_id"), *one;
    size_t i;
    if (json_is_integer(eos)) add_stop(g, (uint32_t)json_integer_value(eos));
    json_array_foreach(eos, i, one) add_stop(g, (uint32_t)json_integer_value(one));
    json_decref(root);
}

static int read_prompt_file(const char *path, char **out)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t n = 0, cap = 0;
    *out = NULL;
    if (!f) return weft__fail(WEFT_EFILE, "%s: can't be opened", path);
    do {
        char *grown = realloc(*out, cap += 65536);
        if (!grown || cap > WEFT__TOK_TEXT_BYTES) {
            if (f != stdin) fclose(f);
            return weft__fail(WEFT_EFILE, "%s: more text than fits", path);
        }
        *out = grown;
        n += fread(*out + n, 1, cap - 1 - n, f);
    } while (n == cap - 1);
    (*out)[n] = 0;
    if (f != stdin) fclose(f);
    return strlen(*out) == n ? 0 : weft__fail(WEFT_EFILE, "%s: a zero byte", path);
}

static int encode_prompt(generate *g)
{
    char *text = NULL;
    uint32_t stop = WEFT__NO_TOKEN;
    int rc = g->file ? read_prompt_file(g->file, &text) : 0;
    const char *prompt = text ? text : g->prompt;
    if (!rc && g->chat)
        rc = weft__chat_encode(g->tok, g->m.config.model_type, g->system, prompt, &g->prompt_ids, &stop);
    else if (!rc)
        rc = weft__tok_encode(g->tok, prompt, strlen(prompt), 1, &g->prompt_ids);
    free(text);
    if (!rc && stop != WEFT__NO_TOKEN) add_stop(g, stop);
    if (!rc && !g->prompt_ids.n) rc = weft__fail(WEFT_EUSAGE, "the prompt has no tokens");
    if (!rc && weft__tok_size(g->tok) > g->m.config.vocab)
        rc = weft__fail(WEFT_EFILE, "tokenizer.json has %u tokens, config.json %u", weft__tok_size(g->tok),
                        g->m.config.vocab);
    return rc;
}

static int open_model(generate *g)
{
    char path[4096];
    int rc = weft__hfmodel_open(g->model, &g->m);
    snprintf(path, sizeof path, "%s/tokenizer.json", g->model);
    if (!rc) rc = weft__tok_read(path, &g->tok);
    if (!rc) rc = encode_prompt(g);
    read_stops(g, "config.json");
    read_stops(g, "generation_config.json");
    if (rc) return rc;
    const uint64_t want = g->prompt_ids.n + (uint64_t)g->max_tokens;
    if (!g->context) g->context = want < g->m.config.max_positions ? (uint32_t)want : g->m.config.max_positions;
    if (g->prompt_ids.n >= g->context)
        return weft__fail(WEFT_EUSAGE, "the prompt has %zu tokens, and the context only %u", g->prompt_ids.n,
                          g->context);
    return 0;
}

/* -------------------------------------------------------------------------------------------------------------- the engine */

static int plan_model(generate *g, const weft_device_info *info, uint32_t n, void **image, uint64_t *bytes)
{
    weft__plan_options o = weft__plan_defaults();
    weft__graph *graph = NULL;
    const int strategy = weft__strategy_parse(g->strategy);
    if (strategy < 0) return strategy;
    const weft__decode d = {.config = &g->m.config,
                            .named = 1,
                            .prefix = g->m.prefix,
                            .dtype = WEFT_BF16,
                            .rows = g->rows,
                            .slots = 1,
                            .pages = weft_div_up(g->context, WEFT_ATTN_PAGE),
                            .context = g->context};
    o.n_device = n;
    o.strategy = (uint32_t)strategy;
    for (uint32_t i = 0; i < n; i++)
        o.workers[i] = info[i].workers;
    int rc = weft__graph_decode(&d, &graph);
    if (!rc) rc = weft__plan(graph, &o, image, bytes, NULL);
    weft__graph_free(graph);
    return rc;
}

static int start_engine(generate *g)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    uint32_t n;
    void *image = NULL;
    uint64_t bytes = 0;
    int rc = weft_devices(g->devices, info, WEFT_MAX_DEVICES, &n);
    if (rc) return rc;
    if (!g->rows) g->rows = strncmp(info[0].name, "cpu", 3) ? 1 : 16; /* a GPU computes all rows that a plan has */
    weft__progress("reading the model");
    const uint64_t t0 = weft__now_ns();
    const weft__weight_reader r = weft__hfmodel_reader(&g->m);
    const weft_weight_source source = {r.user, r.shape, r.rows};
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = g->devices;
    c.queue = g->queue;
    c.deadline_us = g->deadline_us;
    c.weights = &source;
    c.idle_ms = 0; /* a reader may be slow, and a token is fed back from the step just before only */
    rc = plan_model(g, info, n, &image, &bytes);
    if (!rc) rc = weft_engine_create(image, bytes, &c, &g->e);
    free(image);
    g->load_ns = weft__now_ns() - t0;
    weft__progress(NULL);
    return rc;
}

/* --------------------------------------------------------------------------------------------------------------- the steps */

typedef struct batch {
    weft_step_batch b;
    weft_page_write room[WEFT_MAX_PAGE_WRITES];
} batch;

/* `n` tokens from `position` on; ids NULL: one, the token that row `fed` of the step before chose. */
static int submit(const generate *g, uint32_t position, uint32_t n, const uint32_t *ids, uint32_t fed, uint32_t *seq)
{
    batch p = {.b = {.n_row = n}};
    weft_page_write *w = (weft_page_write *)&p.b.row[n];
    for (uint32_t i = 0; i < n; i++)
        p.b.row[i] = (weft_step_row){.kv_len = position + i + 1,
                                     .token = ids ? ids[i] : WEFT_TOKEN_OF | fed,
                                     .flags = i + 1 == n ? WEFT_ROW_SAMPLE : 0,
                                     .temperature = (float)g->temperature,
                                     .top_p = (float)g->top_p,
                                     .min_p = (float)g->min_p,
                                     .penalty = (float)g->penalty,
                                     .top_k = g->top_k,
                                     .seed = g->seed};
    for (uint32_t i = 0; i < n; i++)
        if ((position + i) % WEFT_ATTN_PAGE == 0) {
            const uint32_t page = (position + i) / WEFT_ATTN_PAGE;
            w[p.b.n_write++] = (weft_page_write){0, (uint16_t)page, page};
        }
    weft_step s = WEFT_STEP_INIT;
    s.rows = n;
    s.payload = &p;
    s.payload_bytes = WEFT_BATCH_BYTES(n, p.b.n_write);
    return weft_step_submit(g->e, &s, seq);
}

static int is_stop(const generate *g, uint32_t token)
{
    for (uint32_t i = 0; i < g->n_stop && !g->ignore_stop; i++)
        if (g->stop[i] == token) return 1;
    return 0;
}

/* Takes one token; *more: whether to go on. */
static int take(generate *g, weft__tok_stream *stream, uint32_t token, int *more)
{
    const size_t before = g->text.n;
    if (!g->n_token++) g->first_ns = weft__now_ns();
    g->last_ns = weft__now_ns();
    *more = 0;
    json_array_append_new(g->ids, json_integer(token));
    if (token == WEFT_NONE) return weft__fail(WEFT_EWRONG, "token %u: a logit is not a number", g->n_token);
    if (is_stop(g, token)) {
        g->why = "stop";
        return 0;
    }
    int rc = token < weft__tok_size(g->tok) ? weft__tok_put(g->tok, stream, token, 1, &g->text) : 0;
    if (!g->json && g->text.n > before) {
        fwrite(g->text.at + before, 1, g->text.n - before, stdout);
        fflush(stdout);
    }
    *more = !rc;
    return rc;
}

static int run_prompt(generate *g, uint32_t *seq, uint32_t *last_row)
{
    const uint32_t all = (uint32_t)g->prompt_ids.n;
    int rc = 0;
    for (uint32_t at = 0, n; at < all && !rc; at += n) {
        n = all - at < g->rows ? all - at : g->rows;
        rc = submit(g, at, n, g->prompt_ids.id + at, 0, seq);
        if (!rc && at + n < all) rc = weft_step_wait(g->e, *seq);
        *last_row = n - 1;
    }
    return rc;
}

/* The step whose token comes next, then those after it, up to `ahead` of them submitted. */
static int run(generate *g)
{
    weft__tok_stream stream = {{0}, 0, 0, 0};
    uint32_t prompt = (uint32_t)g->prompt_ids.n, row = 0, seq, most = g->context - prompt, sent = 1, next;
    int more = 1, rc;
    if (most > g->max_tokens) most = g->max_tokens;
    g->start_ns = weft__now_ns();
    g->why = most < g->max_tokens ? "context" : "length";
    rc = run_prompt(g, &seq, &row);
    next = seq;
    for (uint32_t taken = 0; more && taken < most && !rc; taken++, next++) {
        for (; sent < most && sent - taken < g->ahead && !rc; sent++)
            rc = submit(g, prompt + sent - 1, 1, NULL, sent == 1 ? row : 0, &seq);
        uint32_t tokens[WEFT_MAX_ROWS];
        if (!rc) rc = weft_step_wait(g->e, next);
        if (!rc) rc = weft_step_tokens(g->e, next, WEFT_MAX_ROWS, tokens, NULL);
        if (!rc) rc = take(g, &stream, tokens[taken ? 0 : row], &more);
    }
    if (!rc) rc = weft_step_wait(g->e, seq); /* those past a stop */
    const size_t before = g->text.n;
    if (!rc) rc = weft__tok_flush(g->tok, &stream, &g->text);
    if (!g->json && g->text.n > before) fwrite(g->text.at + before, 1, g->text.n - before, stdout);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------------- the verb */

static void report(const generate *g)
{
    weft_device_info d;
    weft_engine_device(g->e, 0, &d);
    const double first_ms = (double)(g->first_ns - g->start_ns) * 1e-6,
                 rest_s = (double)(g->last_ns - g->first_ns) * 1e-9,
                 rate = g->n_token > 1 && rest_s > 0 ? (g->n_token - 1) / rest_s : 0;
    if (!g->json) {
        printf("\n");
        fflush(stdout);
        fprintf(stderr, "%zu tokens in, %u out (%s); first after %.1f ms, then %.1f tokens/s; %s, read in %.1f s\n",
                g->prompt_ids.n, g->n_token, g->why, first_ms, rate, d.name, (double)g->load_ns * 1e-9);
        return;
    }
    json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:s}", "schema", WEFT_RESULT_SCHEMA,
                          "verb", "generate", "device", d.name, "strategy", g->strategy, "queue", g->queue,
                          "prompt_tokens", (json_int_t)g->prompt_ids.n, "tokens", (json_int_t)g->n_token, "ended",
                          g->why, "first_token_ms", first_ms, "tokens_per_s", rate, "load_s", (double)g->load_ns * 1e-9,
                          "text", g->text.at ? g->text.at : "");
    json_object_set(o, "token_ids", g->ids);
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

int weft__cli_generate(int argc, char **argv)
{
    generate g = {.strategy = "single",
                  .queue = "static",
                  .max_tokens = 128,
                  .ahead = 4,
                  .seed = 1,
                  .top_p = 1,
                  .penalty = 1,
                  .deadline_us = 60000000};
    const weft__option table[] = {
        {"--model", "DIR", "Hugging Face directory: config.json, safetensors, tokenizer.json", WEFT_OPT_TEXT, &g.model,
         0, 0},
        {"--prompt", "TEXT", "what to go on from", WEFT_OPT_TEXT, &g.prompt, 0, 0},
        {"--prompt-file", "FILE", "the same from a file; -: standard input", WEFT_OPT_TEXT, &g.file, 0, 0},
        {"--chat", NULL, "the prompt is a user's turn: wrap it as the model's family does", WEFT_OPT_FLAG, &g.chat, 0,
         0},
        {"--system", "TEXT", "with --chat: the system's turn", WEFT_OPT_TEXT, &g.system, 0, 0},
        {"--max-tokens", "N", "to generate (default 128)", WEFT_OPT_U32, &g.max_tokens, 1, 1e6},
        {"--context", "N", "tokens to hold (default: as many as may come)", WEFT_OPT_U32, &g.context, 0, 1e7},
        {"--temperature", "X", "0: the most likely token (default)", WEFT_OPT_F64, &g.temperature, 0, 100},
        {"--top-k", "N", "keep the N most likely tokens; 0: all (default)", WEFT_OPT_U32, &g.top_k, 0, 1e7},
        {"--top-p", "P", "keep the most likely tokens up to this probability (default 1)", WEFT_OPT_F64, &g.top_p, 0,
         1},
        {"--min-p", "P", "keep tokens of at least this share of the largest probability (default 0)", WEFT_OPT_F64,
         &g.min_p, 0, 1},
        {"--penalty", "X", "divides logits of tokens that are there already (default 1)", WEFT_OPT_F64, &g.penalty, 0,
         100},
        {"--seed", "N", "of the draws (default 1)", WEFT_OPT_U32, &g.seed, 0, 4294967295.0},
        {"--ignore-stop", NULL, "go on past stop tokens", WEFT_OPT_FLAG, &g.ignore_stop, 0, 0},
        {"--devices", "SPEC", "cpu:N[xW], cuda, cuda:0/4 ... (default: cuda, else cpu:1)", WEFT_OPT_TEXT, &g.devices, 0,
         0},
        {"--strategy", "NAME", "single (default), cta, tp", WEFT_OPT_TEXT, &g.strategy, 0, 0},
        {"--queue", "POLICY", "static (default), fifo, push, steal, priority", WEFT_OPT_TEXT, &g.queue, 0, 0},
        {"--rows", "N", "of the prompt a step takes (default: 1 on GPUs, else 16)", WEFT_OPT_U32, &g.rows, 0, 64},
        {"--ahead", "N", "steps that run ahead of the token that is read (default 4)", WEFT_OPT_U32, &g.ahead, 1, 14},
        {"--deadline", "US", "of a step, in microseconds (default 60000000)", WEFT_OPT_U32, &g.deadline_us, 0, 4e9},
        {"--json", NULL, "one JSON object instead of text", WEFT_OPT_FLAG, &g.json, 0, 0},
        {0},
    };
    int rc = weft__options(argc, argv, table, "weft generate --model DIR --prompt TEXT [options]",
                           "Lets a model go on from a prompt, whole decode steps in the resident kernel.", NULL, NULL);
    if (rc == -1) return 0;
    if (!rc && !g.model) rc = weft__fail(WEFT_EUSAGE, "--model is missing");
    if (!rc && !g.prompt == !g.file) rc = weft__fail(WEFT_EUSAGE, "give --prompt or --prompt-file");
    g.ids = json_array();
    if (!rc) rc = open_model(&g);
    if (!rc) rc = start_engine(&g);
    if (!rc) rc = run(&g);
    if (!rc) report(&g);
    weft_engine_destroy(g.e);
    weft__tok_free(g.tok);
    weft__hfmodel_close(&g.m);
    free(g.prompt_ids.id);
    free(g.text.at);
    json_decref(g.ids);
    return weft__exit("generate", rc);
}
