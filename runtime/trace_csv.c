/* trace_csv.c: the trace as it was recorded, a row a task, and what is known of its clocks.
 *
 * Enters: records, and when the host submitted each step and saw it done. Leaves: text.
 * A device's clock is held against the host's by causality: whatever a step did came after its submission and before the host
 * saw it done, so each record bounds the offset from both sides. Half of what is left between the bounds is the error.  */
#include "engine_internal.h"

#include "../tasks/kinds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

typedef struct offset { /* host's clock minus this one: between low and high */
    int64_t low, high;
    uint64_t records;
} offset;

typedef struct csv {
    weft_engine *e;
    FILE *f;
    weft_trace_record *buffer; /* trace_records of them */
    uint64_t first;            /* all times are written from here on */
    offset clock[WEFT_MAX_DEVICES];
} csv;

static void bound(csv *c, const weft_trace_record *r, offset *o)
{
    if (r->t_pop < c->first) c->first = r->t_pop;
    if (r->step == 0 || r->step > c->e->cap_traced) return;
    const weft__traced_step *s = &c->e->traced[r->step - 1];
    const int64_t low = (int64_t)(s->submit_ns - r->t_pop), high = (int64_t)(s->done_ns - r->t_signal);
    if (s->done_ns == 0) return; /* the engine stopped before */
    if (low > o->low) o->low = low;
    if (high < o->high) o->high = high;
    o->records++;
}

static void write_row(const csv *c, const weft_trace_record *r, uint32_t dropped)
{
    fprintf(c->f, "%u,%u,%s,%u,%u", r->step, r->task, r->kind < WEFT_KIND_COUNT ? weft__kinds[r->kind].name : "",
            r->device, r->worker);
    const uint64_t times[] = {r->t_ready, r->t_pop, r->t_start, r->t_end, r->t_signal};
    for (int i = 0; i < 5; i++)
        fprintf(c->f, ",%" PRIu64, times[i] - c->first);
    fprintf(c->f, ",%u,", r->attempts);
    if (r->stolen_from < c->e->m->n_device) fprintf(c->f, "%u", r->stolen_from);
    fprintf(c->f, ",%u\n", dropped);
}

/* All records, device by device, worker by worker: to bound the clocks, or to write them. */
static int pass(csv *c, int writing)
{
    const weft_engine *e = c->e;
    for (uint32_t d = 0; d < e->m->n_device && e->config.trace_records; d++) {
        for (uint32_t w = 0; w < e->m->workers[d]; w++) {
            uint32_t n, dropped;
            int status = weft__trace_records(c->e, d, w, c->buffer, e->config.trace_records, &n, &dropped);
            if (status) return status;
            for (uint32_t i = 0; i < n; i++) {
                if (writing)
                    write_row(c, &c->buffer[i], dropped);
                else
                    bound(c, &c->buffer[i], &c->clock[e->m->clock_of[d]]);
            }
        }
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- the clocks */

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What a device's clock is read from, in what steps; for clocks with ticks of their own from all workers' pairs of readings. */
static int write_resolution(const csv *c)
{
    weft_engine *e = c->e;
    struct timespec t = {0, 0};
    if (e->m->tick_ns > 0) {
        clock_getres(CLOCK_MONOTONIC, &t);
        fprintf(c->f, "# clock: %s; resolution %ld ns\n", e->m->clock, (long)t.tv_sec * 1000000000 + t.tv_nsec);
        return 0;
    }
    double least = INFINITY, most = 0;
    uint64_t one = 0, step = 0; /* the readings of the slower clock are multiples of `step` apart */
    for (uint32_t d = 0; d < e->m->n_device; d++)
        for (uint32_t w = 0; w < e->m->workers[d]; w++) {
            weft_trace_clock k;
            int status = e->b->read(e->m, d, &k, e->mem[d].trace_clock + w * sizeof k, sizeof k);
            if (status) return status;
            if (!one) one = k.ns0;
            step = divisor(step, k.ns0 > one ? k.ns0 - one : one - k.ns0);
            if (k.ticks1 <= k.ticks0 || k.ns1 <= k.ns0) continue; /* it has run no task since it came */
            step = divisor(step, k.ns1 - k.ns0);
            least = fmin(least, (double)(k.ns1 - k.ns0) / (double)(k.ticks1 - k.ticks0));
            most = fmax(most, (double)(k.ns1 - k.ns0) / (double)(k.ticks1 - k.ticks0));
        }
    fprintf(
        c->f,
        "# clock: %s; resolution a tick of %.4f to %.4f ns; each worker's is tied by two readings of the latter, which "
        "moves by %" PRIu64 " ns: so much may times of different workers be off\n",
        e->m->clock, most > 0 ? least : 0, most, step);
    return 0;
}

static double middle(const offset *o) { return ((double)o->low + (double)o->high) / 2; }
static double half(const offset *o) { return ((double)o->high - (double)o->low) / 2; }

static void write_offsets(const csv *c)
{
    const weft__machine *m = c->e->m;
    const offset *zero = &c->clock[m->clock_of[0]];
    for (uint32_t d = 0; d < m->n_device; d++) {
        const offset *o = &c->clock[m->clock_of[d]];
        fprintf(c->f, "# device %u (%s): ", d, m->names[d]);
        if (m->clock_of[d] == m->clock_of[0])
            fprintf(c->f, "offset 0 ns, error 0 ns: %s\n",
                    d ? "the clock of device 0" : "all offsets are to its clock");
        else if (!o->records || !zero->records)
            fprintf(c->f, "offset unknown: no whole step was recorded\n");
        else
            fprintf(c->f, "offset %.0f ns, error %.0f ns: add the offset to get device 0's time\n",
                    middle(o) - middle(zero), half(o) + half(zero));
    }
    if (zero->records)
        fprintf(c->f,
                "# host: CLOCK_MONOTONIC is device 0's time here plus %.0f ns, error %.0f ns, by %" PRIu64 " records\n",
                middle(zero) + (double)c->first, half(zero), zero->records);
}

static int write_all(csv *c)
{
    int status = pass(c, 0);
    if (c->first == UINT64_MAX) c->first = 0;
    fprintf(
        c->f,
        "# weft trace 1: times in ns from the first t_pop; device and worker ran it; stolen_from: whose task it is, "
        "if not theirs; attempts: failed polls for it, up to 255 (emulated devices); dropped: the worker's tasks "
        "after its last row that found no room\n");
    if (!status) status = write_resolution(c);
    if (status) return status;
    write_offsets(c);
    fprintf(c->f, "step,task,kind,device,worker,t_ready,t_pop,t_start,t_end,t_signal,attempts,stolen_from,dropped\n");
    return pass(c, 1);
}

static int write_csv(weft_engine *e, const char *path)
{
    csv c = {.e = e, .first = UINT64_MAX};
    int status = weft__trace_check(e);
    if (status) return status;
    for (uint32_t d = 0; d < e->m->n_device; d++)
        c.clock[d] = (offset){INT64_MIN, INT64_MAX, 0};
    c.buffer = malloc((e->config.trace_records + 1ull) * sizeof *c.buffer);
    if (!c.buffer) return weft__fail(WEFT_ENOMEM, "trace of %u records", e->config.trace_records);
    status = weft__open_output(path, &c.f);
    if (!status) {
        status = write_all(&c);
        int closed = weft__close_output(path, c.f);
        if (!status) status = closed;
    }
    free(c.buffer);
    return status;
}

int weft_trace_csv(weft_engine *e, const char *path)
{
    weft__lock(e);
    int status = write_csv(e, path);
    weft__unlock(e);
    return status;
}
