/* cli_calibrate_probe.c: an image on an engine, traced. See cli_calibrate.h. */
#include "../host/error.h"
#include "../host/image.h"
#include "../host/plan.h"
#include "../megakernel/clock.h"
#include "cli_calibrate.h"

#include <math.h>
#include <stdlib.h>

enum {
    WARM_UP = 5
};

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double weft__median_of(double *v, size_t n)
{
    if (!n) return NAN;
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int step_once(weft_engine *e, double *us)
{
    weft_step step = WEFT_STEP_INIT;
    uint32_t seq;
    const uint64_t start = weft__now_ns();
    int status = weft_step_submit(e, &step, &seq);
    if (!status) status = weft_step_wait(e, seq);
    *us = (double)(weft__now_ns() - start) * 1e-3;
    return status;
}

/* The events of steps after the first WARM_UP, which are moved to the front. */
static int read_events(weft_engine *e, weft__probe *out)
{
    size_t n = 0;
    int status = weft_trace_read(e, NULL, 0, &n);
    out->events = malloc((n + 1) * sizeof *out->events);
    if (!status && !out->events) status = weft__fail(WEFT_ENOMEM, "%zu events", n);
    if (!status) status = weft_trace_read(e, out->events, n, &n);
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < n && !status; i++)
        if (out->events[i].step < first) first = out->events[i].step;
    for (size_t i = 0; i < n && !status; i++)
        if (out->events[i].step - first >= WARM_UP) out->events[out->n++] = out->events[i];
    for (size_t i = 0; i < out->n; i++)
        out->events[i].kind = out->events[i].op = NULL; /* they are the engine's */
    return status;
}

int weft__probe_run(const void *image, uint64_t bytes, const char *devices, const char *queue, uint32_t steps,
                    weft__probe *out)
{
    *out = (weft__probe){0};
    weft_engine *e = NULL;
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    weft_engine_info info = {.size = sizeof info};
    weft__image img;
    double *us = malloc(steps * sizeof *us), ignored;
    int status = us ? weft__image_open(image, bytes, "image", &img) : weft__fail(WEFT_ENOMEM, "%u samples", steps);
    if (!status) {
        config.devices = devices;
        config.queue = queue;
        config.trace_records = (steps + WARM_UP) * (img.n_task + 1);
        if (config.trace_records > 1u << 20) config.trace_records = 1u << 20;
        status = weft_engine_create(image, bytes, &config, &e);
    }
    if (!status) status = weft_engine_get_info(e, &info);
    for (uint32_t i = 0; i < WARM_UP && !status; i++)
        status = step_once(e, &ignored);
    for (uint32_t i = 0; i < steps && !status; i++)
        status = step_once(e, &us[i]);
    if (!status) status = read_events(e, out);
    out->step_us = weft__median_of(us, status ? 0 : steps);
    out->workers = info.n_worker;
    weft_engine_destroy(e);
    free(us);
    return status;
}

void weft__probe_free(weft__probe *p)
{
    free(p->events);
    *p = (weft__probe){0};
}

int weft__probe_nops(uint32_t n_device, uint32_t workers, uint32_t layers, uint32_t tiles, uint32_t cost_ns,
                     int free_ones, void **image, uint64_t *bytes)
{
    weft__graph *g = NULL;
    weft__plan_options opt = weft__plan_defaults();
    uint32_t before = 0;
    opt.n_device = n_device;
    for (uint32_t d = 0; d < n_device; d++)
        opt.workers[d] = workers;
    int status = weft__graph_new(&g);
    for (uint32_t i = 0; i < layers && !status; i++) {
        uint32_t op = 0;
        status = weft__graph_nop(g, i % n_device, tiles, cost_ns, &before, i && !free_ones, 0, &op);
        before = op;
    }
    if (!status) status = weft__plan(g, &opt, image, bytes, NULL);
    weft__graph_free(g);
    return status;
}
