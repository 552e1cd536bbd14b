/* bench.c: see bench.h. */
#include "bench.h"

#include "../runtime/clocks.h"

#include "../host/reference.h"
#include "weft_commit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

weft__bench weft__bench_defaults(const char *program)
{
    return (weft__bench){.program = program,
                         .queue = "static",
                         .steps = 2000,
                         .warmup = WEFT_STATS_WARMUP,
                         .deadline_us = 10000000,
                         .seed = 1};
}

/* clang-format off: a table */
weft__option *weft__bench_rows(weft__bench *b, weft__option *row)
{
    const weft__option rows[] = {
        {"--devices", "SPEC", "as `weft topo` takes it: cpu:2, cuda:0, cuda:0/8 (default: a GPU if there is one)",
         WEFT_OPT_TEXT, &b->devices, 0, 0},
        {"--queue", "Q", "static (default), fifo, push, steal, priority", WEFT_OPT_TEXT, &b->queue, 0, 0},
        {"--steps", "N", "timed steps (default 2000)", WEFT_OPT_U32, &b->steps, 1, 1e7},
        {"--warmup", "N", "steps before them (default 100)", WEFT_OPT_U32, &b->warmup, 0, 1e7},
        {"--deadline", "US", "of a step, in microseconds (default 10000000; 0: none)", WEFT_OPT_U32, &b->deadline_us, 0,
         4e9},
        {"--base", "N", "first value of all counters (default 0)", WEFT_OPT_U32, &b->base, 0, 4294967295.0},
        {"--seed", "N", "of everything random (default 1)", WEFT_OPT_U64, &b->seed, 0, 0},
    };
    memcpy(row, rows, sizeof rows);
    return row + sizeof rows / sizeof rows[0];
}
/* clang-format on */

/* ---------------------------------------------------------------------------------------------------------- engines */

int weft__bench_devices_of(const weft__bench *b, weft__bench_devices *out)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    memset(out, 0, sizeof *out);
    int status = weft_devices(b->devices, info, WEFT_MAX_DEVICES, &out->n);
    if (status) return status;
    for (uint32_t d = 0; d < out->n; d++)
        out->all += out->workers[d] = info[d].workers;
    return 0;
}

int weft__bench_plan(const weft__graph *g, const weft__bench_devices *d, weft__plan_options opt, void **image,
                     uint64_t *bytes)
{
    opt.n_device = d->n;
    memcpy(opt.workers, d->workers, sizeof opt.workers);
    return weft__plan(g, &opt, image, bytes, NULL);
}

int weft__bench_start(const weft__bench *b, const void *image, uint64_t bytes, uint32_t trace_records, weft_engine **e)
{
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = b->devices;
    config.queue = b->queue;
    config.deadline_us = b->deadline_us;
    config.counter_base = b->base;
    config.trace_records = trace_records;
    int status = weft_engine_create(image, bytes, &config, e);
    /* A GPU's ticks become ns by two readings of both clocks, one now, one at the last task: the farther apart, the better. */
    const struct timespec pause = {.tv_nsec = 20000000};
    if (!status && trace_records) nanosleep(&pause, NULL);
    return status;
}

int weft__bench_start_graph(const weft__bench *b, int built, weft__graph *g, const weft__bench_devices *d,
                            weft__plan_options opt, uint32_t trace_records, weft_engine **e)
{
    void *image = NULL;
    uint64_t bytes = 0;
    opt.seed = b->seed;
    int status = built ? built : weft__bench_plan(g, d, opt, &image, &bytes);
    if (!status) status = weft__bench_start(b, image, bytes, trace_records, e);
    free(image);
    weft__graph_free(g);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- timing */

static double since_us(uint64_t start_ns) { return (double)(weft__now_ns() - start_ns) * 1e-3; }

int weft__bench_time_steps(weft_engine *e, const weft_step *step, uint32_t n, double *us)
{
    static const weft_step plain = WEFT_STEP_INIT;
    int status = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        uint32_t seq;
        uint64_t start = weft__now_ns();
        status = weft_step_submit(e, step ? step : &plain, &seq);
        if (!status) status = weft_step_wait(e, seq);
        us[i] = since_us(start);
    }
    return status;
}

int weft__bench_time_flight(weft_engine *e, const weft_step *step, uint32_t n, uint32_t flight, double *us)
{
    static const weft_step plain = WEFT_STEP_INIT;
    uint32_t seq[WEFT_MAX_STEPS_IN_FLIGHT];
    int status = 0;
    uint64_t start = weft__now_ns();
    for (uint32_t i = 0; i < n && !status; i++) {
        if (i >= flight) status = weft_step_wait(e, seq[i % flight]);
        if (!status) status = weft_step_submit(e, step ? step : &plain, &seq[i % flight]);
    }
    if (!status && n) status = weft_step_wait(e, seq[(n - 1) % flight]);
    *us = since_us(start);
    return status;
}

int weft__bench_steps(const weft__bench *b, weft_engine *e, const weft_step *step, weft__stats *us)
{
    const uint32_t most = b->steps > b->warmup ? b->steps : b->warmup;
    double *samples = malloc((most + 1ull) * sizeof *samples);
    if (!samples) return weft__fail(WEFT_ENOMEM, "%u samples", most);
    int status = weft__bench_time_steps(e, step, b->warmup, samples);
    if (!status) status = weft__bench_time_steps(e, step, b->steps, samples);
    if (!status) status = weft__stats_of(samples, b->steps, us);
    free(samples);
    return status;
}

int weft__bench_trace(weft_engine *e, weft_event **events, size_t *n)
{
    int status = weft_trace_read(e, NULL, 0, n);
    if (status) return status;
    *events = malloc((*n + 1) * sizeof **events);
    if (!*events) return weft__fail(WEFT_ENOMEM, "trace of %zu events", *n);
    status = weft_trace_read(e, *events, *n, n);
    if (status) free(*events);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- checking */

/* What each op wrote; a tensor that no device holds whole (tensor parallel) is left out, but never the output. */
static int read_observed(weft_engine *e, const weft__graph *g, weft__observed *observed)
{
    for (uint32_t o = 0; o < g->n_op; o++) {
        const weft__gtensor *t = &g->tensors[g->ops[o].out];
        const size_t count = (size_t)t->rows * t->cols;
        weft_tensor_info info = {.size = sizeof info};
        int status = weft_tensor_get_info(e, t->name, &info);
        if (!status && (info.rows != t->rows || info.cols != t->cols))
            status = weft__fail(WEFT_EWRONG, "%s: another shape", t->name);
        if (status && t->role != WEFT_ROLE_OUTPUT) continue;
        float *got = status ? NULL : malloc(count * sizeof *got + 1);
        if (!status && !got) status = weft__fail(WEFT_ENOMEM, "%s: %zu values", t->name, count);
        if (!status) status = weft_tensor_read_f32(e, t->name, got, count);
        observed[g->ops[o].out].got = got;
        if (status) return status;
    }
    return 0;
}

static int judge(const weft__graph *g, const weft__observed *observed, double *error)
{
    *error = 0;
    for (uint32_t t = 0; t < g->n_tensor; t++) {
        const weft__observed *o = &observed[t];
        if (!o->got) continue;
        const double here = sqrt(o->norm > 0 ? o->difference / o->norm : o->difference);
        if (!(here <= *error)) *error = here;
        if (!(here <= 5e-3))
            return weft__fail(WEFT_EWRONG, "tensor %s: relative error %.3g against float64", g->tensors[t].name, here);
    }
    return 0;
}

int weft__bench_check(weft_engine *e, const weft__graph *g, const float *x, uint32_t rows, uint32_t cols, double *error)
{
    double us;
    weft__observed *observed = calloc(g->n_tensor + 1u, sizeof *observed);
    int status = observed ? weft_engine_poison(e, 0xff) : weft__fail(WEFT_ENOMEM, "%u tensors", g->n_tensor);
    if (!status) status = weft_tensor_write_f32(e, "x", x, (size_t)rows * cols);
    if (!status) status = weft__bench_time_steps(e, NULL, 1, &us);
    if (!status) status = read_observed(e, g, observed);
    if (!status) status = weft__reference_rows(g, NULL, x, rows, observed, NULL);
    if (!status) status = judge(g, observed, error);
    for (uint32_t t = 0; observed && t < g->n_tensor; t++)
        free((void *)observed[t].got);
    free(observed);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- results */

static void describe(json_t *line, const weft_engine *e)
{
    weft_engine_info info = {.size = sizeof info};
    char names[512] = "", hash[20];
    size_t used = 0;
    if (weft_engine_get_info(e, &info)) return;
    for (uint32_t d = 0; d < info.n_device && used < sizeof names; d++) {
        weft_device_info device;
        if (weft_engine_device(e, d, &device)) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", d ? ", " : "", device.name);
    }
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info.plan_hash);
    json_object_set_new(line, "device", json_string(names));
    json_object_set_new(line, "driver", json_string(info.driver ? info.driver : ""));
    weft__clocks clocks;
    weft__clocks_read(names, &clocks);
    json_object_set_new(line, "clocks", clocks.why[0] ? json_null() : json_string(clocks.text));
    if (clocks.why[0]) json_object_set_new(line, "clocks_why", json_string(clocks.why));
    weft__bench_count(line, "devices", info.n_device);
    weft__bench_count(line, "workers", info.n_worker);
    weft__bench_count(line, "tasks", info.tasks);
    json_object_set_new(line, "plan_hash", json_string(hash));
    json_object_set_new(line, "queue_spec", json_string(info.queue));
}

json_t *weft__bench_line(const weft__bench *b, const char *what, const weft_engine *e)
{
    json_t *line = json_pack("{s:i, s:s, s:s, s:s, s:s}", "schema", WEFT_RESULT_SCHEMA, "bench", b->program, "what",
                             what, "version", weft_version(), "commit", WEFT_COMMIT);
    json_object_set_new(line, "queue", json_string(b->queue));
    weft__bench_count(line, "seed", b->seed);
    if (e) describe(line, e);
    return line;
}

void weft__bench_set(json_t *line, const char *name, double v)
{
    json_object_set_new(line, name, isfinite(v) ? json_real(v) : json_null());
}

void weft__bench_count(json_t *line, const char *name, uint64_t v)
{
    json_object_set_new(line, name, json_integer((json_int_t)v));
}

void weft__bench_stats(json_t *line, const char *unit, const weft__stats *s)
{
    const struct {
        const char *name;
        double v;
    } values[] = {{"min", s->min},          {"median", s->p50}, {"median_low", s->low},
                  {"median_high", s->high}, {"p90", s->p90},    {"p99", s->p99}};
    weft__bench_count(line, "n", s->n);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s", values[i].name, unit);
        weft__bench_set(line, name, values[i].v);
    }
}

int weft__bench_print(json_t *line)
{
    int bad = !line || json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(line);
    putchar('\n');
    return fflush(stdout) || bad ? weft__fail(WEFT_EIO, "the result can't be written: %s", strerror(errno)) : 0;
}

int weft__bench_main(int argc, char **argv, weft__bench *b, const weft__option *rows, const char *about,
                     int (*body)(void))
{
    char synopsis[64], verb[64];
    snprintf(synopsis, sizeof synopsis, "%s [options]", b->program);
    snprintf(verb, sizeof verb, "bench %s", b->program);
    int status = weft__options(argc, argv, rows, synopsis, about, NULL, NULL);
    if (status == -1) return 0; /* --help */
    if (!status) status = body();
    return weft__exit(verb, status);
}
