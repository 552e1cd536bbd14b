/* steps.c: what a step costs beside its work.
 *
 *   empty         a plan of one task that does nothing: submit to wait, host to host
 *   back_to_back  every worker one task of D ns, up to F steps submitted ahead: (total / steps - D) is what the step gate,
 *                 the forwarding of the doorbell and the fetch of a task cost a step
 * Each plan is also run with a trace, which shows that every task ran once a step, where it should, and for at least D. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRACED_STEPS = 20
};

static weft__bench b;
static uint32_t work_ns = 20000, repeats = 20, flight = WEFT_MAX_STEPS_IN_FLIGHT;

/* n tasks of `ns` each on every device of its workers, or one task on device 0. */
static int start(const weft__bench_devices *d, int everywhere, uint32_t ns, uint32_t trace_records, weft_engine **e)
{
    weft__graph *g = NULL;
    int status = weft__graph_new(&g);
    for (uint32_t i = 0; i < (everywhere ? d->n : 1) && !status; i++)
        status = weft__graph_nop(g, i, everywhere ? d->workers[i] : 1, ns, NULL, 0, 0, NULL);
    return weft__bench_start_graph(&b, status, g, d, weft__plan_defaults(), trace_records, e);
}

/* Every task once a step, none shorter than `ns`; static: every worker one. */
static int check_events(const weft_event *v, size_t n, uint32_t tasks, uint32_t ns)
{
    if (n != (size_t)tasks * TRACED_STEPS)
        return weft__fail(WEFT_EWRONG, "trace of %d steps of %u tasks has %zu events", TRACED_STEPS, tasks, n);
    for (size_t i = 0; i < n; i++) {
        /* A GPU's task measures itself with a clock that may tick once a microsecond; the trace has another one. */
        if (v[i].end_ns - v[i].start_ns + 1100 + ns / 50 < ns)
            return weft__fail(WEFT_EWRONG, "step %u: task %u of device %u took %llu ns, not %u", v[i].step, v[i].task,
                              v[i].device, (unsigned long long)(v[i].end_ns - v[i].start_ns), ns);
        if (i && v[i].device == v[i - 1].device && v[i].worker == v[i - 1].worker && v[i].step == v[i - 1].step &&
            !strcmp(b.queue, "static"))
            return weft__fail(WEFT_EWRONG, "step %u: worker %u of device %u ran two tasks", v[i].step, v[i].worker,
                              v[i].device);
    }
    return 0;
}

/* On a GPU a body is entered before the step gate opens, and waits inside. */
static void start_when_ready(weft_event *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].start_ns < v[i].ready_ns) v[i].start_ns = v[i].ready_ns;
}

static int check(const weft__bench_devices *d, int everywhere, uint32_t ns, double *body_ns)
{
    weft_engine *e = NULL;
    weft_event *events;
    size_t n;
    double us[TRACED_STEPS], sum = 0;
    const uint32_t tasks = everywhere ? d->all : 1;
    int status = start(d, everywhere, ns, tasks * TRACED_STEPS, &e);
    if (!status) status = weft__bench_time_steps(e, NULL, TRACED_STEPS, us);
    if (!status && !(status = weft__bench_trace(e, &events, &n))) {
        start_when_ready(events, n);
        status = check_events(events, n, tasks, ns);
        for (size_t i = 0; i < n; i++)
            sum += (double)(events[i].end_ns - events[i].start_ns);
        *body_ns = sum / (double)(n ? n : 1);
        free(events);
    }
    weft_engine_destroy(e);
    return status;
}

/* What the call of submit itself takes. */
static int time_submit(weft_engine *e, uint32_t n, weft__stats *us)
{
    const weft_step step = WEFT_STEP_INIT;
    double *samples = malloc(n * sizeof *samples);
    int status = samples ? 0 : weft__fail(WEFT_ENOMEM, "%u samples", n);
    for (uint32_t i = 0; i < n && !status; i++) {
        uint32_t seq;
        uint64_t t0 = weft__now_ns();
        status = weft_step_submit(e, &step, &seq);
        samples[i] = (double)(weft__now_ns() - t0) * 1e-3;
        if (!status) status = weft_step_wait(e, seq);
    }
    if (!status) status = weft__stats_of(samples, n, us);
    free(samples);
    return status;
}

static int empty_step(const weft__bench_devices *d)
{
    weft_engine *e = NULL;
    weft__stats us, submit;
    double body_ns = NAN;
    int status = check(d, 0, 0, &body_ns);
    if (!status) status = start(d, 0, 0, 0, &e);
    if (!status) status = weft__bench_steps(&b, e, NULL, &us);
    if (!status) status = time_submit(e, b.steps, &submit);
    if (!status) {
        json_t *line = weft__bench_line(&b, "empty", e);
        weft__bench_count(line, "warmup", b.warmup);
        weft__bench_stats(line, "us", &us);
        weft__bench_set(line, "submit_us", submit.p50);
        weft__bench_set(line, "body_ns", body_ns);
        status = weft__bench_print(line);
    }
    weft_engine_destroy(e);
    return status;
}

static int time_back_to_back(weft_engine *e, uint32_t ns, uint32_t ahead, double body_ns)
{
    double *us = malloc(repeats * sizeof *us), first;
    weft__stats s;
    int status = us ? 0 : weft__fail(WEFT_ENOMEM, "%u samples", repeats);
    if (!status) status = weft__bench_time_flight(e, NULL, b.warmup, ahead, &first);
    for (uint32_t i = 0; i < repeats && !status; i++) {
        status = weft__bench_time_flight(e, NULL, b.steps, ahead, &us[i]);
        us[i] = us[i] / b.steps;
    }
    if (!status) status = weft__stats_of(us, repeats, &s);
    if (!status) {
        json_t *line = weft__bench_line(&b, "back_to_back", e);
        weft__bench_count(line, "work_ns", ns);
        weft__bench_count(line, "in_flight", ahead);
        weft__bench_count(line, "steps", b.steps); /* of one sample */
        weft__bench_stats(line, "us", &s);
        weft__bench_set(line, "loss_us", s.p50 - ns * 1e-3);
        weft__bench_set(line, "loss_low_us", s.low - ns * 1e-3);
        weft__bench_set(line, "loss_high_us", s.high - ns * 1e-3);
        weft__bench_set(line, "body_ns", body_ns); /* mean of a task, traced */
        weft__bench_set(line, "loss_of_body_us", s.p50 - body_ns * 1e-3);
        status = weft__bench_print(line);
    }
    free(us);
    return status;
}

static int back_to_back(const weft__bench_devices *d, uint32_t ns)
{
    weft_engine *e = NULL;
    double body_ns = NAN;
    int status = check(d, 1, ns, &body_ns);
    if (!status) status = start(d, 1, ns, 0, &e);
    for (uint32_t ahead = 1; ahead <= flight && !status; ahead *= 4)
        status = time_back_to_back(e, ns, ahead, body_ns);
    weft_engine_destroy(e);
    return status;
}

static int body(void)
{
    weft__bench_devices d;
    int status = weft__bench_devices_of(&b, &d);
    if (!status) status = empty_step(&d);
    if (!status) status = back_to_back(&d, work_ns);
    if (!status && work_ns) status = back_to_back(&d, 0);
    return status;
}

int main(int argc, char **argv)
{
    weft__option rows[WEFT__BENCH_ROWS] = {{0}};
    b = weft__bench_defaults("steps");
    weft__option *row = weft__bench_rows(&b, rows);
    *row++ = (weft__option){
        "--work-ns", "NS", "of one task, in the back-to-back steps (default 20000)", WEFT_OPT_U32, &work_ns, 0, 1e9};
    *row++ = (weft__option){
        "--repeats", "N", "samples of --steps back-to-back steps each (default 20)", WEFT_OPT_U32, &repeats, 1, 1e5};
    *row++ = (weft__option){
        "--in-flight", "N", "steps submitted ahead: 1, 4, 16 up to this (default 16)", WEFT_OPT_U32, &flight, 1, 16};
    return weft__bench_main(argc, argv, &b, rows, "What a step costs beside its work: one JSON object a line.", body);
}
