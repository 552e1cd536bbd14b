/* cli_case.c: see cli_case.h. Enters: a work, flags. Leaves: an engine that has run, its times and its error.
 *
 * Before the checked step all work memory is poisoned (NaN), so what a step fails to write shows in the output.          */
#include "cli_case.h"

#include "../host/error.h"
#include "../host/image.h"
#include "../megakernel/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft__case_options weft__case_defaults(void)
{
    return (weft__case_options){.queue = "static", .warmup = WEFT_NONE, .budget_s = 10, .deadline_us = 10000000};
}

weft__option *weft__case_rows(weft__case_options *o, weft__option *row)
{
    const weft__option rows[] = {
        {"--queue", "Q",
         "static (default), fifo, push, steal, priority, ./POLICY.so; with parameters (weft bench queue --help)",
         WEFT_OPT_TEXT, &o->queue, 0, 0},
        {"--image", "FILE", "run this image (weft plan --out) instead of planning; the work options must fit it",
         WEFT_OPT_TEXT, &o->image, 0, 0},
        {"--steps", "N", "timed steps (default 1000, fewer where they would take over 10 s)", WEFT_OPT_U32, &o->steps,
         1, 1e9},
        {"--warmup", "N", "steps before timing (default 100, fewer where a step is long)", WEFT_OPT_U32, &o->warmup, 0,
         1e9},
        {"--deadline", "US", "of a step, in microseconds (default 10000000; 0: none)", WEFT_OPT_U32, &o->deadline_us, 0,
         4e9},
        {"--in-flight", "N", "weight pages of 16 KB on their way at once, a worker (CUDA; default 0: chosen)",
         WEFT_OPT_U32, &o->in_flight, 0, 12},
        {"--check", NULL, "compare the output with a float64 reference", WEFT_OPT_FLAG, &o->check, 0, 0},
    };
    memcpy(row, rows, sizeof rows);
    return row + sizeof rows / sizeof rows[0];
}

static int read_image(const char *path, void **bytes, uint64_t *size)
{
    weft__image img;
    int status = weft__image_read_file(path, &img);
    if (status) return status;
    *bytes = malloc(img.size);
    *size = img.size;
    if (*bytes) memcpy(*bytes, img.bytes, img.size);
    weft__image_close(&img);
    return *bytes ? 0 : weft__fail(WEFT_ENOMEM, "%s: %llu bytes", path, (unsigned long long)*size);
}

static int start_engine(const weft__work *w, const weft__plan_flags *flags, const weft__case_options *o, weft__case *c)
{
    void *image = NULL;
    uint64_t bytes = 0;
    weft__progress("planning");
    int status = o->image ? read_image(o->image, &image, &bytes) : weft__work_plan(w, flags, &image, &bytes, NULL);
    if (status) return status;
    weft_weight_source source = {w->reader.user, w->reader.shape, w->reader.rows};
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = flags->devices;
    config.queue = o->queue;
    config.deadline_us = o->deadline_us;
    config.in_flight = o->in_flight;
    config.trace_records = o->trace_records;
    config.weights = w->has_reader ? &source : NULL;
    weft__progress("loading weights");
    uint64_t start = weft__now_ns();
    status = weft_engine_create(image, bytes, &config, &c->engine);
    c->load_s = (double)(weft__now_ns() - start) * 1e-9;
    free(image);
    return status;
}

static int describe(weft__case *c)
{
    c->info.size = sizeof c->info;
    int status = weft_engine_get_info(c->engine, &c->info);
    size_t used = 0;
    if (!status) snprintf(c->driver, sizeof c->driver, "%s", c->info.driver ? c->info.driver : "");
    if (!status) snprintf(c->queue, sizeof c->queue, "%s", c->info.queue);
    c->info.driver = c->info.queue = NULL;
    for (uint32_t d = 0; d < c->info.n_device && !status; d++) {
        weft_device_info device;
        status = weft_engine_device(c->engine, d, &device);
        if (!status && used < sizeof c->devices)
            used += (size_t)snprintf(c->devices + used, sizeof c->devices - used, "%s%s", d ? ", " : "", device.name);
    }
    return status;
}

static int one_step(weft_engine *e)
{
    weft_step step = WEFT_STEP_INIT;
    uint32_t seq;
    int status = weft_step_submit(e, &step, &seq);
    return status ? status : weft_step_wait(e, seq);
}

/* A step on poisoned memory; its output goes to `out`, and how long it took to *seconds. */
static int checked_step(const weft__work *w, weft_engine *e, float *out, double *seconds)
{
    int status = weft_engine_poison(e, 0xff);
    if (!status) status = weft_tensor_write_f32(e, "x", w->x, (size_t)w->rows * w->in_cols);
    uint64_t start = weft__now_ns();
    if (!status) status = one_step(e);
    *seconds = (double)(weft__now_ns() - start) * 1e-9;
    return status ? status : weft_tensor_read_f32(e, "out", out, (size_t)w->rows * w->out_cols);
}

/* Steps to time and steps before them, from how long the checked step took (which was a first warm-up). */
static void choose_counts(const weft__case_options *o, double step_s, uint32_t *warmup, uint32_t *steps)
{
    double fit = o->budget_s / (step_s > 1e-9 ? step_s : 1e-9);
    *steps = o->steps ? o->steps : fit > WEFT_STATS_STEPS ? WEFT_STATS_STEPS : fit < 3 ? 3 : (uint32_t)fit;
    uint32_t tenth = *steps / 10;
    *warmup = o->warmup != WEFT_NONE ? o->warmup : tenth > WEFT_STATS_WARMUP ? WEFT_STATS_WARMUP : tenth;
}

static int warm_up(weft__case *c, const weft__case_options *o, double step_s)
{
    int status = 0;
    choose_counts(o, step_s, &c->warmup, &c->steps);
    c->samples = malloc(c->steps * sizeof *c->samples);
    if (!c->samples) return weft__fail(WEFT_ENOMEM, "%u samples", c->steps);
    for (uint32_t i = 0; i < c->warmup && !status; i++)
        status = one_step(c->engine);
    return status;
}

int weft__case_time(weft__case *c, uint32_t n)
{
    int status = 0;
    for (uint32_t i = 0; i < n && c->n_sample < c->steps && !status; i++) {
        uint64_t start = weft__now_ns();
        status = one_step(c->engine);
        c->samples[c->n_sample++] = (double)(weft__now_ns() - start) * 1e-3;
    }
    weft__clocks_read(c->devices, &c->clocks);
    return status;
}

static int sum_up(weft__case *c)
{
    double *sorted = malloc(c->n_sample * sizeof *sorted + 1);
    if (!sorted) return weft__fail(WEFT_ENOMEM, "%u samples", c->n_sample);
    memcpy(sorted, c->samples, c->n_sample * sizeof *sorted);
    int status = weft__stats_of(sorted, c->n_sample, &c->us);
    free(sorted);
    return status;
}

/* A tensor as the engine stored it; refused where no device holds it whole (tensor parallel: a slice each). */
static int stored_tensor(void *user, const char *tensor, float *dst, uint32_t rows, uint32_t cols)
{
    weft_tensor_info info = {.size = sizeof info};
    int status = weft_tensor_get_info(user, tensor, &info);
    if (!status && (info.rows != rows || info.cols != cols))
        status = weft__fail(WEFT_EUSAGE, "tensor %s is %u x %u, expected %u x %u", tensor, info.rows, info.cols, rows,
                            cols);
    return status ? status : weft_tensor_read_f32(user, tensor, dst, (size_t)rows * cols);
}

/* The first step, its check against the reference, and the warm-up. */
static int begin(const weft__work *w, const weft__case_options *o, weft__case *c)
{
    double step_s = 0;
    weft__progress("running a first step");
    int status = checked_step(w, c->engine, c->first, &step_s);
    if (!status && o->check) {
        weft__progress("checking against float64");
        status = weft__work_check(w, stored_tensor, c->engine, &c->error);
        c->rel_error = c->error.rel_error;
    }
    weft__progress("timing steps");
    return status ? status : warm_up(c, o, step_s);
}

/* Statistics; the last step's output against the first one's, bit for bit; then the error found before. */
int weft__case_finish(const weft__work *w, const weft__case_options *o, weft__case *c)
{
    size_t count = (size_t)w->rows * w->out_cols;
    float *last = malloc(count * sizeof *last);
    int status = last ? sum_up(c) : weft__fail(WEFT_ENOMEM, "an output of %u rows", w->rows);
    if (!status) status = weft_tensor_read_f32(c->engine, "out", last, count);
    const int same = !status && memcmp(c->first, last, count * sizeof *last) == 0;
    free(last);
    if (status) return status;
    if (!same)
        return weft__fail(WEFT_EWRONG, "the same step gave another output after %u steps", c->warmup + 1 + c->n_sample);
    if (o->check && !(c->rel_error <= WEFT_MAX_REL_ERROR))
        return weft__fail(WEFT_EWRONG, "tensor %s: relative error %.3g against float64, more than %g", c->error.worst,
                          c->rel_error, WEFT_MAX_REL_ERROR);
    return 0;
}

int weft__case_open(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *out)
{
    *out = (weft__case){.rel_error = NAN, .first = malloc((size_t)w->rows * w->out_cols * sizeof(float))};
    int status = out->first ? start_engine(w, flags, options, out)
                            : weft__fail(WEFT_ENOMEM, "an output of %u rows", w->rows);
    if (!status) status = describe(out);
    if (!status) status = begin(w, options, out);
    weft__progress(NULL);
    if (status) weft__case_close(out);
    return status;
}

int weft__case_run(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *out)
{
    int status = weft__case_open(w, flags, options, out);
    if (status) return status;
    weft__progress("timing steps");
    status = weft__case_time(out, out->steps);
    if (!status) status = weft__case_finish(w, options, out);
    weft__progress(NULL);
    if (status && status != WEFT_EWRONG) weft__case_close(out);
    return status;
}

void weft__case_suspend(weft__case *c)
{
    weft_engine_destroy(c->engine);
    c->engine = NULL;
}

int weft__case_resume(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *c)
{
    float *out = malloc((size_t)w->rows * w->out_cols * sizeof *out);
    double seconds;
    int status = out ? start_engine(w, flags, options, c) : weft__fail(WEFT_ENOMEM, "an output of %u rows", w->rows);
    if (!status) status = checked_step(w, c->engine, out, &seconds);
    for (uint32_t i = 0; i < c->warmup && !status; i++)
        status = one_step(c->engine);
    free(out);
    weft__progress("timing steps");
    return status;
}

void weft__case_close(weft__case *c)
{
    weft_engine_destroy(c->engine);
    free(c->samples);
    free(c->first);
    *c = (weft__case){0};
}
