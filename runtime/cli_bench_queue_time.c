/* cli_bench_queue_time.c: engines, turns and traces of `weft bench queue`.
 *
 * In a round every policy takes its turn, in an order that follows from seed and round: some steps of the graph, of the same
 * graph of empty tasks, and of the same tasks without dependencies, each on an engine of its own, after a step that isn't
 * timed. Before the rounds each policy runs a few steps with a trace, which tell how long tasks took; they are not timed. */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "../tasks/seed.h"
#include "cli_bench_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRACED_STEPS = 5,
    TRACE_BYTES = 256 << 20,
    RECORD_BYTES = 64
};

static int start_engine(const weft__qbench *b, const weft__qside *s, uint32_t mode, uint32_t records, weft_engine **e)
{
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = b->c.devices;
    config.queue = s->queue;
    config.deadline_us = b->deadline_us;
    config.trace_records = records;
    return weft_engine_create(b->image[mode], b->image_bytes[mode], &config, e);
}

static int one_step(weft_engine *e, double *us)
{
    weft_step step = WEFT_STEP_INIT;
    uint32_t seq;
    const uint64_t start = weft__now_ns();
    int status = weft_step_submit(e, &step, &seq);
    if (!status) status = weft_step_wait(e, seq);
    *us = (double)(weft__now_ns() - start) * 1e-3;
    return status;
}

/* Adds (sign 1) or takes away (-1) what all workers have counted so far. */
static int add_counts(const weft__qbench *b, weft_engine *e, uint32_t sign, weft_queue_counts *sum)
{
    int status = 0;
    for (uint32_t d = 0; d < b->g.n_device && !status; d++)
        for (uint32_t w = 0; w < b->g.workers[d] && !status; w++) {
            weft_queue_counts c = {.size = sizeof c};
            status = weft_engine_queue_counts(e, d, w, &c);
            sum->pops += sign * c.pops, sum->empty += sign * c.empty, sum->steals += sign * c.steals;
            sum->failed += sign * c.failed, sum->abroad += sign * c.abroad;
        }
    return status;
}

static int take_part(const weft__qbench *b, weft__qside *s, uint32_t mode, uint32_t round)
{
    weft_engine *e = NULL;
    weft__stats stats;
    double us, *turn = malloc(b->steps * sizeof *turn);
    int status = turn ? start_engine(b, s, mode, 0, &e) : weft__fail(WEFT_ENOMEM, "samples");
    if (!status) status = one_step(e, &us);
    if (!status && mode == WEFT__QDAG_FULL) status = add_counts(b, e, -1u, &s->counts);
    for (uint32_t i = 0; i < b->steps && !status; i++) {
        status = one_step(e, &turn[i]);
        s->us[mode][s->n[mode]++] = turn[i];
    }
    if (!status && mode == WEFT__QDAG_FULL) status = add_counts(b, e, 1, &s->counts);
    if (mode == WEFT__QDAG_FULL) s->counted += b->steps;
    if (!status) status = weft__stats_of(turn, b->steps, &stats);
    if (!status) s->median[mode][round] = stats.p50;
    weft_engine_destroy(e);
    free(turn);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- traces */

static void add_event(weft__qbench *b, weft__qside *s, const weft_event *v)
{
    const uint32_t task = b->g.task_of[v->home][v->task];
    const double ran = (double)(v->end_ns - v->start_ns), asked = b->g.tasks[task].cost_ns;
    s->compute += ran;
    s->wait += (double)(v->ready_ns - v->pop_ns);
    s->signal += (double)(v->signal_ns - v->end_ns);
    b->ns[task] += ran;
    b->seen[task]++;
    if (asked <= 0) return;
    s->requested += asked;
    s->achieved += ran;
    s->over[s->n_over++] = ran / asked;
}

/* Steps follow one another, so a step's span lies between its first pop and its last signal. */
static int read_trace(weft__qbench *b, weft__qside *s, weft_engine *e, uint32_t steps)
{
    const size_t cap = (size_t)b->g.n * (steps + 1u);
    uint64_t first[TRACED_STEPS + 2], last[TRACED_STEPS + 2] = {0};
    size_t n;
    weft_event *v = malloc(cap * sizeof *v);
    s->over = malloc(cap * sizeof *s->over);
    memset(first, 0xff, sizeof first);
    int status = v && s->over ? weft_trace_read(e, v, cap, &n) : weft__fail(WEFT_ENOMEM, "a trace");
    for (size_t i = 0; !status && i < n && i < cap; i++) {
        if (v[i].step < 2 || v[i].step > steps + 1) continue;
        add_event(b, s, &v[i]);
        if (v[i].pop_ns < first[v[i].step]) first[v[i].step] = v[i].pop_ns;
        if (v[i].signal_ns > last[v[i].step]) last[v[i].step] = v[i].signal_ns;
    }
    for (uint32_t i = 2; i <= steps + 1 && !status; i++)
        s->span += last[i] > first[i] ? (double)(last[i] - first[i]) : 0;
    s->traced = status ? 0 : steps;
    free(v);
    return status;
}

static int trace_side(weft__qbench *b, weft__qside *s)
{
    const uint64_t step_bytes = (uint64_t)RECORD_BYTES * b->g.n * b->g.all_workers, fit = TRACE_BYTES / step_bytes;
    const uint32_t steps = fit > TRACED_STEPS + 1 ? TRACED_STEPS : fit > 1 ? (uint32_t)fit - 1 : 0;
    weft_engine *e = NULL;
    weft_engine_info info = {.size = sizeof info};
    double us;
    int status = start_engine(b, s, WEFT__QDAG_FULL, steps ? b->g.n * (steps + 1) : 0, &e);
    if (!status) status = weft_engine_get_info(e, &info);
    if (!status) snprintf(s->spec, sizeof s->spec, "%s", info.queue);
    b->remote_signals = info.remote_signals;
    for (uint32_t d = 0, used = 0; d < b->g.n_device && !status && used < sizeof b->names; d++) {
        weft_device_info device;
        status = weft_engine_device(e, d, &device);
        used += (uint32_t)snprintf(b->names + used, sizeof b->names - used, "%s%s", d ? ", " : "", device.name);
    }
    for (uint32_t i = 0; i <= steps && steps && !status; i++)
        status = one_step(e, &us);
    if (!status && steps) status = read_trace(b, s, e, steps);
    weft_engine_destroy(e);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- all */

static void free_side(weft__qside *s)
{
    for (uint32_t m = 0; m < WEFT__QDAG_MODES; m++) {
        free(s->us[m]);
        free(s->median[m]);
    }
    free(s->over);
    *s = (weft__qside){0};
}

static int allocate(weft__qbench *b)
{
    b->ns = calloc(b->g.n + 1u, sizeof *b->ns);
    b->seen = calloc(b->g.n + 1u, sizeof *b->seen);
    if (!b->ns || !b->seen) return weft__fail(WEFT_ENOMEM, "a graph of %u tasks", b->g.n);
    for (uint32_t i = 0; i < b->n_side; i++)
        for (uint32_t m = 0; m < WEFT__QDAG_MODES; m++) {
            b->side[i].us[m] = malloc((size_t)b->steps * b->rounds * sizeof(double));
            b->side[i].median[m] = calloc(b->rounds, sizeof(double));
            if (!b->side[i].us[m] || !b->side[i].median[m]) return weft__fail(WEFT_ENOMEM, "samples");
        }
    return 0;
}

static int make_images(weft__qbench *b)
{
    static const uint32_t modes[] = {WEFT__QDAG_FREE, WEFT__QDAG_EMPTY,
                                     WEFT__QDAG_FULL}; /* the last one's tasks are traced */
    int status = 0;
    for (uint32_t i = 0; i < WEFT__QDAG_MODES && !status; i++)
        status = weft__qdag_image(&b->c, &b->g, modes[i], &b->image[modes[i]], &b->image_bytes[modes[i]]);
    return status;
}

/* The sides in an order that follows from seed and round. */
static void shuffle_sides(const weft__qbench *b, uint32_t round, uint32_t *turn)
{
    for (uint32_t i = 0; i < b->n_side; i++)
        turn[i] = i;
    for (uint32_t i = b->n_side; i-- > 1;) {
        const uint32_t j = weft_hash(b->c.seed, round, i + 7777) % (i + 1), t = turn[i];
        turn[i] = turn[j];
        turn[j] = t;
    }
}

/* Sides that can't run here are left out: the samples of the others move up. */
static int trace_sides(weft__qbench *b)
{
    for (uint32_t i = 0; i < b->n_side;) {
        const int status = trace_side(b, &b->side[i]);
        if (status && (status != WEFT_EUNSUPPORTED || b->n_side == 1)) return status;
        if (!status) {
            i++;
            continue;
        }
        fprintf(stderr, "weft bench queue: left out: %s\n", weft__error());
        free_side(&b->side[i]);
        memmove(&b->side[i], &b->side[i + 1], (--b->n_side - i) * sizeof b->side[i]);
    }
    return 0;
}

int weft__qbench_run(weft__qbench *b)
{
    uint32_t turn[WEFT__QUEUE_SIDES];
    int status = weft__qdag_make(&b->c, &b->g);
    if (!status) status = allocate(b);
    if (!status) status = make_images(b);
    if (!status) status = trace_sides(b);
    for (uint32_t r = 0; r < b->rounds && !status; r++) {
        shuffle_sides(b, r, turn);
        for (uint32_t i = 0; i < b->n_side && !status; i++)
            for (uint32_t m = 0; m < WEFT__QDAG_MODES && !status; m++)
                status = take_part(b, &b->side[turn[i]], m, r);
    }
    return status;
}

void weft__qbench_free(weft__qbench *b)
{
    for (uint32_t i = 0; i < b->n_side; i++)
        free_side(&b->side[i]);
    for (uint32_t m = 0; m < WEFT__QDAG_MODES; m++) {
        free(b->image[m]);
        b->image[m] = NULL;
    }
    weft__qdag_free(&b->g);
    free(b->ns);
    free(b->seen);
    b->ns = b->seen = NULL;
}
