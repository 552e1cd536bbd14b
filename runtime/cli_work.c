/* cli_work.c: see cli_work.h. */
#include "cli_work.h"

#include "../host/error.h"
#include "../host/reference.h"
#include "../tasks/half.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_THREADS = 64
};

int weft__parse_list(const char *option, const char *text, uint32_t max, uint32_t *out, uint32_t *n)
{
    uint32_t used = 0;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long v = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || v < 1 || v > max || (*end && *end != ','))
            return weft__fail(WEFT_EUSAGE, "%s %s: expected numbers from 1 to %u, separated by commas", option, text,
                              max);
        if (used == *n) return weft__fail(WEFT_EUSAGE, "%s %s: more than %u numbers", option, text, *n);
        out[used++] = (uint32_t)v;
        if (!*end) break;
        at = end;
    }
    *n = used;
    return 0;
}

static int parse_name(const char *option, const char *text, const char *const *names, uint32_t n, uint32_t *out)
{
    char all[128] = "";
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return 0;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    return weft__fail(WEFT_EUSAGE, "%s %s: expected one of: %s", option, text, all);
}

static int open_chain(weft__work *w, uint32_t dtype)
{
    static const char *const names[] = {"none", "bias", "silu", "gelu"};
    static const uint32_t epilogues[] = {WEFT_EPI_NONE, WEFT_EPI_BIAS, WEFT_EPI_SILU, WEFT_EPI_GELU};
    const weft__work_options *o = &w->options;
    uint32_t widths[256], n = 256, epilogue = 0;
    int status = weft__parse_list("--chain", o->chain, 1u << 20, widths, &n);
    if (!status) status = parse_name("--epilogue", o->epilogue, names, 4, &epilogue);
    if (status) return status;
    weft__chain chain = {.widths = widths,
                         .n_width = n,
                         .repeat = o->layers ? o->layers : 1,
                         .m = o->batch,
                         .dtype = dtype,
                         .seed = o->seed,
                         .epilogue = epilogues[epilogue]};
    snprintf(w->text, sizeof w->text, "a chain of %u GEMMs, widths %s", (n - 1) * chain.repeat, o->chain);
    return weft__graph_chain(&chain, &w->graph);
}

static int read_norm(const weft__work_options *o, weft__model *model)
{
    static const char *const names[] = {"fused", "separate"};
    return parse_name("--norm", o->norm, names, 2, &model->separate_norm);
}

static int open_seeded_mlp(weft__work *w, uint32_t dtype)
{
    const weft__work_options *o = &w->options;
    uint32_t widths[2], n = 2;
    int status = weft__parse_list("--mlp", o->mlp, 1u << 20, widths, &n);
    if (!status && n != 2) status = weft__fail(WEFT_EUSAGE, "--mlp %s: expected two widths", o->mlp);
    if (status) return status;
    weft__model model = {.hidden = widths[0],
                         .intermediate = widths[1],
                         .layers = o->layers ? o->layers : 1,
                         .eps = 1e-5f,
                         .dtype = dtype,
                         .seed = o->seed};
    status = read_norm(o, &model);
    if (status) return status;
    snprintf(w->text, sizeof w->text, "%u MLP block%s with seeded weights, %u -> %u -> %u", model.layers,
             model.layers == 1 ? "" : "s", widths[0], widths[1], widths[0]);
    return weft__graph_mlp(&model, o->batch, &w->graph);
}

static int open_model(weft__work *w, uint32_t dtype)
{
    const weft__work_options *o = &w->options;
    weft__model model;
    if (strcmp(o->block, "mlp") != 0) return weft__fail(WEFT_EUSAGE, "--block %s: only mlp", o->block);
    int status = weft__hfmodel_open(o->model, &w->hf);
    if (!status) status = weft__hfmodel_mlp(&w->hf, o->layers, &model);
    if (!status) status = read_norm(o, &model);
    if (status) return status;
    model.dtype = dtype;
    model.seed = o->seed;
    w->reader = weft__hfmodel_reader(&w->hf);
    w->has_reader = 1;
    const char *name = strrchr(o->model, '/');
    snprintf(w->text, sizeof w->text, "%u MLP blocks of %.60s, %u -> %u -> %u", model.layers,
             name && name[1] ? name + 1 : o->model, model.hidden, model.intermediate, model.hidden);
    return weft__graph_mlp(&model, o->batch, &w->graph);
}

/* The graph's input and output, and an input: uniform in [-1, 1), rounded to its type. */
static int make_input(weft__work *w)
{
    const weft__gtensor *in = NULL, *out = NULL;
    for (uint32_t t = 0; t < w->graph->n_tensor; t++) {
        if (w->graph->tensors[t].role == WEFT_ROLE_INPUT) in = &w->graph->tensors[t];
        if (w->graph->tensors[t].role == WEFT_ROLE_OUTPUT) out = &w->graph->tensors[t];
    }
    if (!in || !out) return weft__fail(WEFT_EUSAGE, "the graph has no input or no output");
    w->rows = in->rows;
    w->in_cols = in->cols;
    w->out_cols = out->cols;
    w->x = malloc((size_t)in->rows * in->cols * sizeof *w->x);
    if (!w->x) return weft__fail(WEFT_ENOMEM, "an input of %u x %u", in->rows, in->cols);
    for (uint32_t r = 0; r < in->rows; r++)
        for (uint32_t c = 0; c < in->cols; c++) {
            float v = weft_seeded(w->options.seed ^ 0x78696e70u, r, c, 1.0f);
            w->x[(size_t)r * in->cols + c] = weft_half_to_f32(in->dtype, weft_f32_to_half(in->dtype, v));
        }
    return 0;
}

int weft__work_open(const weft__work_options *options, weft__work *out)
{
    static const char *const dtypes[] = {"bf16", "fp16"};
    uint32_t dtype = 0;
    *out = (weft__work){.options = *options};
    int given = !!options->chain + !!options->mlp + !!options->model;
    if (given != 1)
        return weft__fail(WEFT_EUSAGE, given ? "--chain, --mlp and --model exclude each other"
                                             : "what shall be computed? Give --chain, --mlp or --model");
    int status = parse_name("--dtype", options->dtype, dtypes, 2, &dtype);
    if (!status)
        status = options->chain ? open_chain(out, dtype)
                 : options->mlp ? open_seeded_mlp(out, dtype)
                                : open_model(out, dtype);
    if (!status) status = make_input(out);
    if (status) weft__work_close(out);
    return status;
}

void weft__work_close(weft__work *w)
{
    weft__graph_free(w->graph);
    weft__hfmodel_close(&w->hf);
    free(w->x);
    *w = (weft__work){0};
}

typedef struct part { /* rows of the reference that one thread computes */
    const weft__work *w;
    weft__observed *observed; /* [n_tensor], its own */
    uint32_t row, n;
    int status;
    char message[512]; /* errors are kept per thread */
} part;

static void *check_part(void *arg)
{
    part *p = arg;
    const weft__work *w = p->w;
    p->status = weft__reference_rows(w->graph, w->has_reader ? &w->reader : NULL, w->x + (size_t)p->row * w->in_cols,
                                     p->n, p->observed, NULL);
    if (p->status) snprintf(p->message, sizeof p->message, "%s", weft__error());
    return NULL;
}

/* What the run stored, tensor by tensor; NULL for those that aren't known. Freed by free_stored. */
static int read_stored(const weft__work *w, weft__work_stored *stored, void *user, float **values)
{
    const weft__graph *g = w->graph;
    for (uint32_t o = 0; o < g->n_op; o++) {
        const weft__gtensor *t = &g->tensors[g->ops[o].out];
        float *v = malloc((size_t)t->rows * t->cols * sizeof *v);
        if (!v) return weft__fail(WEFT_ENOMEM, "check: tensor of %u x %u", t->rows, t->cols);
        int unknown = stored(user, t->name, v, t->rows, t->cols);
        if (unknown) free(v);
        if (unknown && t->role == WEFT_ROLE_OUTPUT) return unknown;
        values[g->ops[o].out] = unknown ? NULL : v;
    }
    return 0;
}

static uint32_t cut_rows(const weft__work *w, float *const *values, part *parts, uint32_t max)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = cores < 1 ? 1 : cores > (long)max ? max : (uint32_t)cores;
    if (n > (w->rows + 3) / 4) n = (w->rows + 3) / 4; /* four rows share a read of the weights */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = (uint32_t)((uint64_t)w->rows * i / n), end = (uint32_t)((uint64_t)w->rows * (i + 1) / n);
        parts[i] = (part){.w = w, .row = first, .n = end - first};
        parts[i].observed = calloc(w->graph->n_tensor, sizeof *parts[i].observed);
        for (uint32_t t = 0; parts[i].observed && t < w->graph->n_tensor; t++)
            if (values[t]) parts[i].observed[t].got = values[t] + (size_t)first * w->graph->tensors[t].cols;
    }
    return n;
}

static int run_parts(part *parts, uint32_t n)
{
    pthread_t threads[MAX_THREADS];
    uint32_t started = 0;
    int status = 0;
    for (uint32_t i = 0; i < n && parts[i].observed; i++) {
        if (pthread_create(&threads[i], NULL, check_part, &parts[i])) break;
        started++;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        if (parts[i].status) status = weft__fail(parts[i].status, "%s", parts[i].message);
    }
    return started < n ? weft__fail(WEFT_ENOMEM, "check: thread %u of %u", started, n) : status;
}

static void sum_up(const weft__work *w, float *const *values, const part *parts, uint32_t n, weft__work_error *out)
{
    for (uint32_t t = 0; t < w->graph->n_tensor; t++) {
        double difference = 0, norm = 0;
        if (!values[t]) continue;
        for (uint32_t i = 0; i < n; i++) {
            difference += parts[i].observed[t].difference;
            norm += parts[i].observed[t].norm;
        }
        double error = norm > 0 ? sqrt(difference / norm) : sqrt(difference);
        out->tensors++;
        if (error <= out->rel_error || isnan(out->rel_error)) continue;
        out->rel_error = error;
        snprintf(out->worst, sizeof out->worst, "%s", w->graph->tensors[t].name);
    }
}

int weft__work_check(const weft__work *w, weft__work_stored *stored, void *user, weft__work_error *out)
{
    part parts[MAX_THREADS] = {0};
    uint32_t n = 0;
    *out = (weft__work_error){0};
    float **values = calloc(w->graph->n_tensor, sizeof *values);
    int status = values ? read_stored(w, stored, user, values) : weft__fail(WEFT_ENOMEM, "check: table of tensors");
    if (!status) {
        n = cut_rows(w, values, parts, MAX_THREADS);
        status = run_parts(parts, n);
    }
    if (!status) sum_up(w, values, parts, n, out);
    for (uint32_t i = 0; i < n; i++)
        free(parts[i].observed);
    for (uint32_t t = 0; values && t < w->graph->n_tensor; t++)
        free(values[t]);
    free(values);
    return status;
}
