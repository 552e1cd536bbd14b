/* trace.c: what each worker did when. Enters: the records that workers wrote. Leaves: events on one clock, a file for
 * ui.perfetto.dev, a summary in text.                                                                                  */
#include "engine_internal.h"

#include "../tasks/kinds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct clock_map { /* ticks of a worker to ns */
    double ns_per_tick;
    uint64_t ns0, ticks0;
} clock_map;

static uint64_t records_at(const weft_engine *e, uint32_t d, uint32_t w)
{
    return e->mem[d].trace + (uint64_t)w * e->config.trace_records * sizeof(weft_trace_record);
}

static int read_clock(weft_engine *e, uint32_t d, uint32_t w, clock_map *map)
{
    *map = (clock_map){e->m->tick_ns, 0, 0};
    if (e->m->tick_ns > 0) return 0;
    weft_trace_clock c;
    int status = e->b->read(e->m, d, &c, e->mem[d].trace_clock + w * sizeof c, sizeof c);
    if (status) return status;
    double ticks = (double)(c.ticks1 - c.ticks0);
    *map = (clock_map){ticks > 0 ? (double)(c.ns1 - c.ns0) / ticks : 1.0, c.ns0, c.ticks0};
    return 0;
}

static uint64_t to_ns(const clock_map *m, uint64_t ticks)
{
    if (m->ns_per_tick == 1.0 && m->ns0 == 0) return ticks; /* a double would lose bits */
    return m->ns0 + (uint64_t)(int64_t)((double)(int64_t)(ticks - m->ticks0) * m->ns_per_tick);
}

static void settle(weft_trace_record *r, const clock_map *m)
{
    if (r->settled) return;
    r->t_pop = to_ns(m, r->t_pop);
    r->t_ready = to_ns(m, r->t_ready);
    r->t_start = to_ns(m, r->t_start);
    r->t_end = to_ns(m, r->t_end);
    r->t_signal = to_ns(m, r->t_signal);
    r->settled = 1;
}

int weft__trace_records(weft_engine *e, uint32_t d, uint32_t w, weft_trace_record *out, uint64_t cap, uint32_t *n,
                        uint32_t *dropped)
{
    clock_map map;
    int status = e->b->read(e->m, d, n, e->mem[d].trace_n + w * sizeof(weft_line), sizeof *n);
    if (!status) status = read_clock(e, d, w, &map);
    if (status) return status;
    *dropped = *n > e->config.trace_records ? *n - e->config.trace_records : 0;
    *n -= *dropped;
    uint64_t take = *n < cap ? *n : cap;
    if (take) status = e->b->read(e->m, d, out, records_at(e, d, w), take * sizeof *out);
    for (uint64_t i = 0; i < take && !status; i++)
        settle(&out[i], &map);
    return status;
}

int weft__trace_settle(weft_engine *e)
{
    if (e->m->tick_ns > 0 || e->config.trace_records == 0) return 0;
    weft_trace_record *r = malloc(e->config.trace_records * sizeof *r);
    int status = r ? 0 : weft__fail(WEFT_ENOMEM, "trace of %u records", e->config.trace_records);
    for (uint32_t d = 0; d < e->m->n_device; d++)
        for (uint32_t w = 0; w < e->m->workers[d] && !status; w++) {
            uint32_t n, dropped;
            status = weft__trace_records(e, d, w, r, e->config.trace_records, &n, &dropped);
            if (!status && n) status = e->b->write(e->m, d, records_at(e, d, w), r, n * sizeof *r);
        }
    free(r);
    return status;
}

static const weft_task *task_of(const weft_engine *e, uint32_t step, uint32_t device, uint32_t task,
                                const weft_image_queue **q)
{
    uint32_t v = step - 1 < e->cap_traced ? e->traced[step - 1].variant : 0;
    *q = weft__image_queue_of(&e->img, v, device);
    return task < (*q)->n_task ? &e->img.tasks[(*q)->task + task] : NULL;
}

static const char *op_name(const weft_engine *e, uint32_t device, const weft_task *t)
{
    if (!t || t->op >= e->img.devices[device].n_op) return "";
    return weft__image_string(&e->img, weft__image_op(&e->img, device, t)->name);
}

static weft_event make_event(const weft_engine *e, const weft_trace_record *r, uint32_t d, uint32_t w)
{
    const weft_image_queue *q;
    const uint32_t home = r->stolen_from < e->img.n_device ? r->stolen_from : d;
    const weft_task *t = task_of(e, r->step, home, r->task, &q);
    weft_event v = {
        .step = r->step,
        .device = d,
        .worker = w,
        .task = r->task,
        .kind = r->kind < WEFT_KIND_COUNT ? weft__kinds[r->kind].name : "",
        .op = op_name(e, home, t),
        .pop_ns = r->t_pop,
        .ready_ns = r->t_ready,
        .start_ns = r->t_start,
        .end_ns = r->t_end,
        .signal_ns = r->t_signal,
        .counter = WEFT_NONE,
        .home = home,
    };
    if (t && t->n_wait) v.counter = weft__task_wait(t, e->img.side + q->side, t->n_wait - 1u).counter;
    return v;
}

/* Events of one worker; *n grows past cap without writing. */
static int read_worker(weft_engine *e, uint32_t d, uint32_t w, weft_event *out, size_t cap, size_t *n)
{
    uint32_t count = 0, dropped;
    size_t room = *n >= cap ? 0 : cap - *n;
    if (room > e->config.trace_records) room = e->config.trace_records;
    weft_trace_record *records = malloc((room ? room : 1) * sizeof *records);
    if (!records) return weft__fail(WEFT_ENOMEM, "trace of %zu records", room);
    int status = weft__trace_records(e, d, w, records, room, &count, &dropped);
    for (size_t i = 0; i < room && i < count && !status; i++)
        out[*n + i] = make_event(e, &records[i], d, w);
    free(records);
    *n += count;
    return status;
}

static void start_at_zero(weft_event *v, size_t n)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (v[i].pop_ns < first) first = v[i].pop_ns;
    for (size_t i = 0; i < n; i++) {
        v[i].pop_ns -= first;
        v[i].ready_ns -= first;
        v[i].start_ns -= first;
        v[i].end_ns -= first;
        v[i].signal_ns -= first;
    }
}

int weft__trace_check(weft_engine *e)
{
    if (!e->stopped && weft__steps_in_flight(e)) weft__steps_refresh(e);
    return !e->stopped && weft__steps_in_flight(e) ? weft__fail(WEFT_EBUSY, "trace: a step is in flight") : 0;
}

static int read_events(weft_engine *e, weft_event *out, size_t cap, size_t *n)
{
    size_t total = 0;
    int busy = weft__trace_check(e);
    if (busy) return busy;
    for (uint32_t d = 0; d < e->m->n_device && e->config.trace_records; d++) {
        for (uint32_t w = 0; w < e->m->workers[d]; w++) {
            int status = read_worker(e, d, w, out, cap, &total);
            if (status) return status;
        }
    }
    start_at_zero(out, total < cap ? total : cap);
    *n = total;
    return 0;
}

int weft_trace_read(weft_engine *e, weft_event *out, size_t cap, size_t *n)
{
    weft__lock(e);
    int status = read_events(e, out, cap, n);
    weft__unlock(e);
    return status;
}

/* All events, in memory of their own. */
static int read_all(weft_engine *e, weft_event **events, size_t *n)
{
    int status = weft_trace_read(e, NULL, 0, n);
    if (status) return status;
    *events = malloc((*n ? *n : 1) * sizeof **events);
    if (!*events) return weft__fail(WEFT_ENOMEM, "trace of %zu events", *n);
    status = weft_trace_read(e, *events, *n, n);
    if (status) free(*events);
    return status;
}

int weft__open_output(const char *path, FILE **out)
{
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *out ? 0 : weft__fail(WEFT_EIO, "%s: can't be written", path);
}

int weft__close_output(const char *path, FILE *f)
{
    int bad = ferror(f);
    if (f == stdout)
        bad |= fflush(f);
    else
        bad |= fclose(f);
    return bad ? weft__fail(WEFT_EIO, "%s: writing failed", path) : 0;
}

/* ------------------------------------------------------------------------------------------------------------ Perfetto */

static void write_string(FILE *f, const char *s)
{
    putc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putc('\\', f);
        if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            putc(*s, f);
    }
    putc('"', f);
}

static void write_names(const weft_engine *e, FILE *f)
{
    for (uint32_t d = 0; d < e->m->n_device; d++) {
        fprintf(f, "%s{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":", d ? ",\n" : "", d);
        write_string(f, e->m->names[d]);
        fprintf(f, "}}");
        for (uint32_t w = 0; w < e->m->workers[d]; w++)
            fprintf(
                f, ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"worker %u\"}}",
                d, w, w);
    }
}

static void write_slice(FILE *f, const weft_event *v, const char *name, uint64_t from, uint64_t to)
{
    fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":", v->device, v->worker,
            (double)from * 1e-3, (double)(to - from) * 1e-3);
    write_string(f, name);
    fprintf(f, ",\"cat\":\"%s\",\"args\":{\"step\":%u,\"task\":%u,\"of\":%u,\"counter\":%" PRId64 "}}", v->kind,
            v->step, v->task, v->home, v->counter == WEFT_NONE ? (int64_t)-1 : (int64_t)v->counter);
}

int weft_trace_write(weft_engine *e, const char *path)
{
    weft_event *v;
    size_t n;
    FILE *f;
    int status = read_all(e, &v, &n);
    if (status) return status;
    status = weft__open_output(path, &f);
    if (!status) {
        fprintf(f, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        write_names(e, f);
        for (size_t i = 0; i < n; i++) {
            if (v[i].ready_ns > v[i].pop_ns) write_slice(f, &v[i], "wait", v[i].pop_ns, v[i].ready_ns);
            write_slice(f, &v[i], *v[i].op ? v[i].op : v[i].kind, v[i].start_ns, v[i].end_ns);
            if (v[i].signal_ns > v[i].end_ns) write_slice(f, &v[i], "signal", v[i].end_ns, v[i].signal_ns);
        }
        fprintf(f, "\n]}\n");
        status = weft__close_output(path, f);
    }
    free(v);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- summary */

typedef struct row { /* time of all events that share a key */
    const char *name, *other;
    uint64_t tasks, compute_ns, wait_ns, signal_ns;
} row;

static row *row_of(row *rows, size_t *n, const char *name, const char *other)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(rows[i].name, name) == 0 && strcmp(rows[i].other, other) == 0) return &rows[i];
    rows[*n] = (row){.name = name, .other = other};
    return &rows[(*n)++];
}

static void add(row *r, const weft_event *v)
{
    r->tasks++;
    r->compute_ns += v->end_ns - v->start_ns;
    r->wait_ns += v->ready_ns - v->pop_ns;
    r->signal_ns += v->signal_ns - v->end_ns;
}

/* [a counter of the image]: name of the op whose tasks signal it. */
static const char **find_producers(const weft_engine *e)
{
    uint64_t n = e->img.header->counters.count;
    const char **name = malloc((n ? n : 1) * sizeof *name);
    for (uint64_t i = 0; name && i < n; i++)
        name[i] = "";
    for (uint32_t v = 0; name && v < e->img.n_variant; v++) {
        for (uint32_t d = 0; d < e->img.n_device; d++) {
            const weft_image_queue *q = weft__image_queue_of(&e->img, v, d);
            for (uint32_t i = 0; i < q->n_task; i++) {
                const weft_task *t = &e->img.tasks[q->task + i];
                for (uint32_t s = 0; s < t->n_signal; s++) {
                    weft_signal g = weft__task_signal(t, e->img.side + q->side, s);
                    name[weft__image_queue_of(&e->img, v, g.device)->counter + g.counter] = op_name(e, d, t);
                }
            }
        }
    }
    return name;
}

/* What the event's task waited for last. */
static const char *producer_of(const weft_engine *e, const char *const *producers, const weft_event *v)
{
    const weft_image_queue *q;
    if (v->counter == WEFT_NONE || !task_of(e, v->step, v->home, v->task, &q)) return "";
    return producers[q->counter + v->counter];
}

static int by_wait(const void *a, const void *b)
{
    uint64_t x = ((const row *)a)->wait_ns, y = ((const row *)b)->wait_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_workers(const weft_engine *e, FILE *f, const weft_event *v, size_t n)
{
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].signal_ns > last) last = v[i].signal_ns;
    fprintf(f, "%-28s %6s %8s %12s %12s %12s\n", "device", "worker", "tasks", "compute us", "wait us", "idle us");
    for (size_t i = 0; i < n;) {
        row r = {0};
        uint32_t d = v[i].device, w = v[i].worker;
        for (; i < n && v[i].device == d && v[i].worker == w; i++)
            add(&r, &v[i]);
        uint64_t busy = r.compute_ns + r.wait_ns + r.signal_ns;
        fprintf(f, "%-28s %6u %8" PRIu64 " %12.1f %12.1f %12.1f\n", e->m->names[d], w, r.tasks,
                (double)r.compute_ns * 1e-3, (double)r.wait_ns * 1e-3, (double)(last > busy ? last - busy : 0) * 1e-3);
    }
}

static void print_op_rows(FILE *f, const row *ops, size_t n_ops, row *edges, size_t n_edges)
{
    fprintf(f, "\n%-28s %8s %12s %12s\n", "op", "tasks", "compute us", "wait us");
    for (size_t i = 0; i < n_ops; i++)
        fprintf(f, "%-28s %8" PRIu64 " %12.1f %12.1f\n", ops[i].name, ops[i].tasks, (double)ops[i].compute_ns * 1e-3,
                (double)ops[i].wait_ns * 1e-3);
    qsort(edges, n_edges, sizeof *edges, by_wait);
    fprintf(f, "\nwaited for most:\n");
    for (size_t i = 0; i < n_edges && i < 8; i++)
        fprintf(f, "%12.1f us  %s waits for %s\n", (double)edges[i].wait_ns * 1e-3, edges[i].name,
                *edges[i].other ? edges[i].other : "its queue");
}

/* Rows by op, and by (op, op that it waited for), the longest waits first. */
static int print_ops(const weft_engine *e, FILE *f, const weft_event *v, size_t n)
{
    size_t cap = (size_t)e->img.n_op + WEFT_KIND_COUNT + 1, n_ops = 0, n_edges = 0;
    row *ops = malloc(cap * sizeof *ops), *edges = malloc((n ? n : 1) * sizeof *edges);
    const char **producers = find_producers(e);
    int status = ops && edges && producers ? 0 : weft__fail(WEFT_ENOMEM, "summary of %zu events", n);
    for (size_t i = 0; i < n && !status; i++) {
        const char *name = *v[i].op ? v[i].op : v[i].kind;
        add(row_of(ops, &n_ops, name, ""), &v[i]);
        if (v[i].ready_ns - v[i].pop_ns > 0)
            add(row_of(edges, &n_edges, name, producer_of(e, producers, &v[i])), &v[i]);
    }
    if (!status) print_op_rows(f, ops, n_ops, edges, n_edges);
    free(ops);
    free(edges);
    free(producers);
    return status;
}

int weft_trace_summary(weft_engine *e, const char *path)
{
    weft_event *v;
    size_t n;
    FILE *f;
    int status = read_all(e, &v, &n);
    if (status) return status;
    status = weft__open_output(path, &f);
    if (!status) {
        print_workers(e, f, v, n);
        status = print_ops(e, f, v, n);
        int closed = weft__close_output(path, f);
        if (!status) status = closed;
    }
    free(v);
    return status;
}
