/* report.c: who stopped the engine, in words. Enters: weft_report, and what each worker was doing. Leaves: a sentence. */
#include "engine_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES = 2048,
    WORKERS_NAMED = 8
};

static const char *const causes[] = {"none", "host",  "counter", "packet", "future",
                                     "gate", "queue", "checkin", "body",   "internal"};

typedef struct text {
    char *s;
    size_t used;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->s + t->used, TEXT_BYTES - t->used, fmt, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n;
    if (t->used >= TEXT_BYTES) t->used = TEXT_BYTES - 1;
}

static const char *op_name(const weft_engine *e, uint32_t device, uint32_t task)
{
    if (device >= e->img.n_device || task == WEFT_NONE || e->report_variant >= e->img.n_variant) return "";
    const weft_image_queue *q = weft__image_queue_of(&e->img, e->report_variant, device);
    if (task >= q->n_task) return "";
    const weft_task *t = &e->img.tasks[q->task + task];
    if (t->op >= e->img.devices[device].n_op) return "";
    return weft__image_string(&e->img, weft__image_op(&e->img, device, t)->name);
}

/* Task whose body worker `worker` of `device` is in, or WEFT_NONE; *home: the device whose task it is. */
static uint32_t running(weft_engine *e, uint32_t device, uint32_t worker, uint32_t *home)
{
    uint32_t words[2] = {WEFT_NONE, 0}; /* task; 0, or the device from which it was stolen, plus 1 */
    uint64_t at = e->mem[device].running + worker * sizeof(weft_line);
    const int failed = e->b->read(e->m, device, words, at, sizeof words);
    *home = words[1] && words[1] <= e->m->n_device ? words[1] - 1 : device;
    return failed ? WEFT_NONE : words[0];
}

int weft__find_running(weft_engine *e, uint32_t *device, uint32_t *worker, uint32_t *task)
{
    for (uint32_t d = 0; d < e->m->n_device; d++) {
        for (uint32_t w = 0; w < e->m->workers[d]; w++) {
            uint32_t home, id = running(e, d, w, &home);
            if (id == WEFT_NONE) continue;
            *device = d;
            *worker = w;
            *task = home == d ? id : WEFT_NONE; /* say_others names a stolen one */
            return 1;
        }
    }
    return 0;
}

static void say_who(text *t, const weft_engine *e, const weft_report *r)
{
    if (r->device < e->m->n_device) say(t, "%s", e->m->names[r->device]);
    if (r->worker != WEFT_NONE) say(t, " worker %u", r->worker);
    if (r->task != WEFT_NONE) say(t, ", task %u", r->task);
    const char *op = op_name(e, r->device, r->task);
    if (*op) say(t, " of op %s", op);
}

static void say_why(text *t, const weft_engine *e, const weft_report *r)
{
    say(t, ", step %u: ", r->step);
    switch (r->cause) {
    case WEFT_ABORT_HOST: say(t, "stopped by the host"); return;
    case WEFT_ABORT_COUNTER: say(t, "counter %u is %u short", r->counter, r->expected - r->seen); break;
    case WEFT_ABORT_PACKET: say(t, "packet %u did not arrive", r->counter); break;
    case WEFT_ABORT_FUTURE: say(t, "counter or packet %u is ahead of the step: the image is wrong", r->counter); break;
    case WEFT_ABORT_GATE:
        say(t, "%s did not finish the step before", r->counter < e->m->n_device ? e->m->names[r->counter] : "a device");
        break;
    case WEFT_ABORT_QUEUE:
        say(t,
            r->counter == WEFT_NONE ? "no task became ready" : "its policy gave more or fewer tasks than the step has");
        break;
    case WEFT_ABORT_CHECKIN: say(t, "not all workers are resident"); return;
    case WEFT_ABORT_BODY: say(t, "its body did not return"); break;
    default: say(t, "the workers stopped answering"); break;
    }
    if (r->expected != WEFT_NONE || r->seen != WEFT_NONE) say(t, " (expected %u, seen %u)", r->expected, r->seen);
    say(t, ", after %.3f ms", (double)r->waited_ns * 1e-6);
}

static void say_others(text *t, weft_engine *e)
{
    uint32_t named = 0;
    for (uint32_t d = 0; d < e->m->n_device; d++) {
        for (uint32_t w = 0; w < e->m->workers[d]; w++) {
            uint32_t home, id = running(e, d, w, &home);
            const int own = home == d;
            if (id == WEFT_NONE || (own && d == e->report.device && w == e->report.worker)) continue;
            if (named++ >= WORKERS_NAMED) continue;
            say(t, "%s %s worker %u in task %u", named > 1 ? "," : "; meanwhile", e->m->names[d], w, id);
            if (!own) say(t, " of %s", e->m->names[home]);
        }
    }
    if (named > WORKERS_NAMED) say(t, " and %u others", named - WORKERS_NAMED);
}

/* Where it began, if that is elsewhere than at the wait that gave up. */
static void say_cause(text *t, weft_engine *e)
{
    weft__cause c;
    const weft_report *r = &e->report;
    if (r->cause == WEFT_ABORT_HOST || r->cause == WEFT_ABORT_BODY || r->cause == WEFT_ABORT_CHECKIN ||
        e->report_uses == 0)
        return;
    if (!weft__find_cause(e, e->report_variant, e->report_uses, &c)) return;
    say(t, "; it began at counter %u of %s: %u of %u arrivals, though all %u producers", c.counter,
        e->m->names[c.device], c.arrived, c.arrivals, c.producers);
    const char *op = op_name(e, c.ready_device, c.ready_task);
    if (c.producers)
        say(t, " (such as task %u of %s%s%s)", c.ready_task, e->m->names[c.ready_device], *op ? ", op " : "", op);
    say(t, " have their inputs");
}

void weft__make_report(weft_engine *e)
{
    text t = {malloc(TEXT_BYTES), 0};
    if (!t.s) return;
    t.s[0] = 0;
    say_who(&t, e, &e->report);
    say_why(&t, e, &e->report);
    say_others(&t, e);
    say_cause(&t, e);
    e->report_text = t.s;
}

static int report_of(weft_engine *e, weft_stop_report *report)
{
    int status = weft__check_size(report, report->size, report->size, "weft_stop_report");
    if (!status && !e->stopped) weft__steps_refresh(e);
    if (!status && !e->stopped) status = weft__fail(WEFT_EUSAGE, "the engine has not stopped");
    if (status) return status;
    const weft_report *r = &e->report;
    weft_stop_report out = {
        .size = report->size,
        .cause = causes[r->cause < sizeof causes / sizeof causes[0] ? r->cause : WEFT_ABORT_INTERNAL],
        .device = r->device,
        .worker = r->worker,
        .step = r->step,
        .variant = e->report_variant,
        .task = r->task,
        .counter = r->counter,
        .expected = r->expected,
        .seen = r->seen,
        .waited_ns = r->waited_ns,
        .op = op_name(e, r->device, r->task),
        .text = e->report_text ? e->report_text : "",
    };
    memcpy(report, &out, report->size < sizeof out ? report->size : sizeof out);
    return 0;
}

int weft_engine_report(weft_engine *e, weft_stop_report *report)
{
    weft__lock(e);
    int status = report_of(e, report);
    weft__unlock(e);
    return status;
}
