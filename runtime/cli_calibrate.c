/* cli_calibrate.c: a profile of devices from what the engine's traces say; through weft.h alone, so that it measures GPUs as
 * it measures emulated devices.
 *
 *   bodies    chains of GEMMs at several batches and tile sizes, alone: a cell (kind, rows, blocks) holds the median of its
 *             tasks' durations; a line through the sizes gives ns a block and ns a task
 *   loop      NOP tasks: of no length without edges (fetching), in a chain (hand-off), over all devices (remote hand-off)
 *   sharing   the same bodies on all workers at once: how many work at full speed                                        */
#include "cli_calibrate.h"

#include "../host/error.h"
#include "../host/sim.h"
#include "cli_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CELLS = 256,
    FREE_TASKS = 400,
    CHAIN = 64,
    BODY_NS =
        20000 /* of a chain's tasks: workers that wait for long may sleep, and hand-offs are as slow as that makes them */
};

typedef struct cell {
    uint32_t kind, rows;
    double blocks, ns; /* median */
} cell;

typedef struct calibration {
    const char *devices;
    char one[64];   /* the spec of one of them */
    char alone[64]; /* the spec of one worker; of one device where there is none */
    int emulated;
    uint32_t steps, n_device, workers;
    cell cells[MAX_CELLS];
    uint32_t n_cell;
    weft__profile *p;
} calibration;

/* ------------------------------------------------------------------------------------------------------------ bodies */

static int same_cell(const weft__image *img, const weft_event *e, const cell *c)
{
    uint32_t rows;
    double blocks;
    const weft_task *t = &img->tasks[weft__image_queue_of(img, 0, e->home)->task + e->task];
    return t->kind == c->kind && weft__sim_shape(img, e->home, t, &rows, &blocks) && rows == c->rows &&
           blocks == c->blocks;
}

/* One cell a kind and shape of this probe. */
static int add_cells(calibration *c, const weft__image *img, const weft__probe *probe)
{
    double *ns = malloc((probe->n + 1) * sizeof *ns);
    const uint32_t first = c->n_cell;
    if (!ns) return weft__fail(WEFT_ENOMEM, "%zu durations", probe->n);
    for (size_t i = 0; i < probe->n; i++) {
        const weft_event *e = &probe->events[i];
        const weft_task *t = &img->tasks[weft__image_queue_of(img, 0, e->home)->task + e->task];
        cell new = {.kind = t->kind};
        if (c->n_cell == MAX_CELLS || !weft__sim_shape(img, e->home, t, &new.rows, &new.blocks)) continue;
        uint32_t at = first;
        while (at < c->n_cell && !same_cell(img, e, &c->cells[at]))
            at++;
        if (at < c->n_cell) continue;
        size_t n = 0;
        for (size_t k = i; k < probe->n; k++)
            if (same_cell(img, &probe->events[k], &new))
                ns[n++] = (double)(probe->events[k].end_ns - probe->events[k].start_ns);
        new.ns = weft__median_of(ns, n);
        c->cells[c->n_cell++] = new;
    }
    free(ns);
    return 0;
}

static int probe_work(calibration *c, const weft__work_options *options, weft__plan_flags *flags)
{
    weft__work w;
    weft__image img;
    weft__probe probe = {0};
    void *image = NULL;
    uint64_t bytes = 0;
    int status = weft__work_open(options, &w);
    if (status) return status;
    flags->devices = c->alone;
    status = weft__work_plan(&w, flags, &image, &bytes, NULL);
    if (!status) status = weft__image_open(image, bytes, "image", &img);
    if (!status) status = weft__probe_run(image, bytes, c->alone, "static", c->steps, &probe);
    if (!status) status = add_cells(c, &img, &probe);
    weft__probe_free(&probe);
    free(image);
    weft__work_close(&w);
    return status;
}

static int measure_bodies(calibration *c)
{
    static const uint32_t batches[] = {1, 2, 4, 8, 16, 32, 64, 128};
    int status = 0;
    for (size_t i = 0; i < 2 * sizeof batches / sizeof batches[0] && !status; i++) {
        weft__work_options options = weft__work_defaults();
        weft__plan_flags flags = weft__plan_flag_defaults();
        options.chain = "384,384";
        options.layers = 16; /* more weights than a core's cache holds */
        options.batch = batches[i / 2];
        flags.tile_groups = i % 2 ? 4 : 1;
        status = probe_work(c, &options, &flags);
        flags.split_k = 2; /* partial sums, and REDUCE */
        if (!status && i % 2) status = probe_work(c, &options, &flags);
    }
    for (uint32_t batch = 1; batch <= 64 && !status; batch *= 8) {
        weft__work_options options = weft__work_defaults();
        weft__plan_flags flags = weft__plan_flag_defaults();
        options.mlp = "256,512";
        options.norm = "separate"; /* RMSNORM */
        options.layers = 4;
        options.batch = batch;
        status = probe_work(c, &options, &flags);
    }
    return status;
}

/* What a task takes before its first block: where a line through two sizes of the same rows meets no blocks. */
static double intercept(const calibration *c, uint32_t kind)
{
    double v[MAX_CELLS];
    size_t n = 0;
    for (uint32_t i = 0; i < c->n_cell; i++)
        for (uint32_t k = 0; k < c->n_cell; k++) {
            const cell *a = &c->cells[i], *b = &c->cells[k];
            if (a->kind != kind || b->kind != kind || a->rows != b->rows || !(b->blocks >= 2 * a->blocks)) continue;
            if (n < MAX_CELLS) v[n++] = a->ns - a->blocks * (b->ns - a->ns) / (b->blocks - a->blocks);
        }
    const double median = n ? weft__median_of(v, n) : 0;
    return median > 0 ? median : 0;
}

static int by_rows(const void *pa, const void *pb)
{
    const cell *a = pa, *b = pb;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->rows != b->rows) return a->rows < b->rows ? -1 : 1;
    return a->blocks < b->blocks ? -1 : a->blocks > b->blocks;
}

static void fit_bodies(calibration *c)
{
    for (uint32_t kind = 0; kind < WEFT_KIND_COUNT; kind++)
        c->p->kind[kind].task_ns = intercept(c, kind);
    qsort(c->cells, c->n_cell, sizeof c->cells[0], by_rows);
    for (uint32_t i = 0, end; i < c->n_cell; i = end) {
        double v[MAX_CELLS];
        weft__kind_cost *k = &c->p->kind[c->cells[i].kind];
        for (end = i;
             end < c->n_cell && c->cells[end].kind == c->cells[i].kind && c->cells[end].rows == c->cells[i].rows;
             end++) {
            const double ns = (c->cells[end].ns - k->task_ns) / c->cells[end].blocks;
            v[end - i] = ns > 0 ? ns : 0;
        }
        if (k->n_point == WEFT__PROFILE_POINTS) continue;
        k->rows[k->n_point] = c->cells[i].rows;
        k->block_ns[k->n_point++] = weft__median_of(v, end - i);
    }
}

/* -------------------------------------------------------------------------------------------------------------- loop */

/* ns from one pop to the next, and from a body's end to its signals, of workers that never wait. */
static int measure_fetch(calibration *c, const char *queue, double *fetch, double *signal)
{
    void *image = NULL;
    uint64_t bytes;
    weft__probe probe = {0};
    int status = weft__probe_nops(1, 1, FREE_TASKS, 1, 0, 1, &image, &bytes);
    if (!status) status = weft__probe_run(image, bytes, c->alone, queue, c->steps, &probe);
    double *between = malloc((probe.n + 1) * sizeof *between), *end = malloc((probe.n + 1) * sizeof *end);
    size_t n = 0;
    for (size_t i = 1; between && end && i < probe.n; i++) {
        const weft_event *a = &probe.events[i - 1], *b = &probe.events[i];
        if (a->step != b->step || a->worker != b->worker || a->device != b->device) continue;
        end[n] = (double)(a->signal_ns - a->end_ns);
        between[n++] = (double)(b->start_ns - a->signal_ns) + (double)(a->end_ns - a->start_ns);
    }
    *fetch = n ? weft__median_of(between, n) : 0;
    *signal = n ? weft__median_of(end, n) : 0;
    free(between);
    free(end);
    free(image);
    weft__probe_free(&probe);
    return status;
}

static int by_step_then_start(const void *pa, const void *pb)
{
    const weft_event *a = pa, *b = pb;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* ns from the signal of a task to the start of the one that waits for it, on one device or all in turn. */
static int measure_hop(calibration *c, const char *queue, uint32_t n_device, double *ns)
{
    void *image = NULL;
    uint64_t bytes;
    weft__probe probe = {0};
    int status = weft__probe_nops(n_device, c->workers, CHAIN, 1, BODY_NS, 0, &image, &bytes);
    if (!status) status = weft__probe_run(image, bytes, n_device > 1 ? c->devices : c->one, queue, c->steps, &probe);
    double *hop = malloc((probe.n + 1) * sizeof *hop);
    size_t n = 0;
    if (!status) qsort(probe.events, probe.n, sizeof *probe.events, by_step_then_start);
    for (size_t i = 1; hop && i < probe.n; i++)
        if (probe.events[i].step == probe.events[i - 1].step)
            hop[n++] = (double)probe.events[i].start_ns - (double)probe.events[i - 1].signal_ns;
    *ns = n ? weft__median_of(hop, n) : 0;
    if (*ns < 0) *ns = 0;
    free(hop);
    free(image);
    weft__probe_free(&probe);
    return status;
}

static int measure_step(calibration *c)
{
    void *image = NULL;
    uint64_t bytes;
    weft__probe probe = {0};
    int status = weft__probe_nops(1, 1, 1, 1, 0, 1, &image, &bytes);
    if (!status) status = weft__probe_run(image, bytes, c->one, "static", 10 * c->steps, &probe);
    const double ns = probe.step_us * 1e3 - c->p->fetch_ns[WEFT_POLICY_STATIC] - c->p->signal_ns;
    if (!status) c->p->open_ns = c->p->close_ns = ns > 0 ? ns / 2 : 0;
    free(image);
    weft__probe_free(&probe);
    return status;
}

static int measure_loop(calibration *c)
{
    static const char *const queues[WEFT_POLICY_COUNT] = {"static", "fifo", "push", "steal", "priority"};
    weft__profile *p = c->p;
    double signal, local = 0, remote = 0;
    int status = 0;
    for (uint32_t i = 0; i < WEFT_POLICY_COUNT && !status; i++) {
        status = measure_fetch(c, queues[i], &p->fetch_ns[i], &signal);
        if (i == WEFT_POLICY_STATIC) p->signal_ns = signal;
    }
    if (!status) status = measure_hop(c, "static", 1, &local);
    if (!status && c->n_device > 1) status = measure_hop(c, "static", c->n_device, &remote);
    p->hop_ns[WEFT__HOP_GPU] = p->hop_ns[WEFT__HOP_SYS] = p->hop_ns[WEFT__HOP_PACKET] = local;
    p->link_ns = remote > local ? remote - local : 0;
    if (!status) status = measure_hop(c, "push", 1, &local);
    local -= p->fetch_ns[WEFT_POLICY_PUSH];
    p->ready_ns[0] = p->ready_ns[1] = local > 0 ? local : 0;
    return status ? status : measure_step(c);
}

/* ----------------------------------------------------------------------------------------------------------- sharing */

/* A layer of alike tasks on all workers: their work alone over the time that it takes is how many work at once. */
static int measure_sharing(calibration *c)
{
    weft__work w;
    weft__work_options options = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__image img;
    weft__probe probe = {0};
    void *image = NULL;
    uint64_t bytes = 0;
    double work = 0;
    char spread[32]; /* one device with the workers of all */
    const uint32_t workers = c->workers * c->n_device;
    snprintf(spread, sizeof spread, "cpu:1x%u", workers);
    options.chain = "384,384";
    options.layers = 6;
    options.batch = 32;
    flags.devices = spread;
    int status = weft__work_open(&options, &w);
    if (status) return status;
    status = weft__work_plan(&w, &flags, &image, &bytes, NULL);
    if (!status) status = weft__image_open(image, bytes, "image", &img);
    if (!status) status = weft__probe_run(image, bytes, spread, "push", 5 * c->steps, &probe);
    for (uint32_t i = 0; i < img.n_task && !status; i++) {
        uint32_t rows;
        double blocks;
        const weft__kind_cost *k = &c->p->kind[img.tasks[i].kind];
        if (weft__sim_shape(&img, 0, &img.tasks[i], &rows, &blocks))
            work += k->task_ns + blocks * weft__profile_block_ns(k, rows);
    }
    const double span = probe.step_us * 1e3 - c->p->open_ns - c->p->close_ns;
    if (!status && span > 0) c->p->cores = fmax(1, fmin(work / span, workers));
    free(image);
    weft__probe_free(&probe);
    weft__work_close(&w);
    return status;
}

static int describe(calibration *c)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    int status = weft_devices(c->devices, info, WEFT_MAX_DEVICES, &c->n_device);
    if (status) return status;
    c->workers = info[0].workers;
    c->emulated = strncmp(c->devices, "cpu", 3) == 0;
    if (c->emulated)
        snprintf(c->one, sizeof c->one, "cpu:1x%u", c->workers);
    else
        snprintf(c->one, sizeof c->one, "%.*s", (int)strcspn(c->devices, ","), c->devices);
    snprintf(c->alone, sizeof c->alone, "%s", c->emulated ? "cpu:1x1" : c->one);
    snprintf(c->p->name, sizeof c->p->name, "%.40s", info[0].name);
    snprintf(c->p->source, sizeof c->p->source, "weft bench calibrate --devices %.200s, %u steps a probe, weft %s",
             c->devices, c->steps, WEFT_VERSION);
    c->p->workers = c->workers;
    return 0;
}

int weft__calibrate(const char *devices, uint32_t steps, weft__profile *out)
{
    calibration *c = calloc(1, sizeof *c);
    if (!c) return weft__fail(WEFT_ENOMEM, "a calibration");
    *out = (weft__profile){0};
    c->devices = devices;
    c->steps = steps;
    c->p = out;
    int status = describe(c);
    weft__progress("bodies");
    if (!status) status = measure_bodies(c);
    if (!status) fit_bodies(c);
    weft__progress("the loop");
    if (!status) status = measure_loop(c);
    weft__progress("what is shared");
    if (!status && c->emulated) status = measure_sharing(c);
    weft__progress(NULL);
    free(c);
    return status;
}
