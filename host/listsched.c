/* listsched.c: see listsched.h. One loop serves the three: the ready task of highest rank goes where a policy's score is
 * lowest. Ranks fall strictly along edges where costs are positive, so for HEFT this is the papers' sorted list.
 *
 * Edges between the same two tasks (several files) move side by side: the latest counts.                                */
#include "listsched.h"

#include "error.h"
#include "listsched_gaps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sched {
    const weft__taskgraph *g;
    const weft__machine *m;
    weft__schedule *out;
    double *rank;      /* [task] */
    double *oct;       /* [task * n_device + device]: PEFT */
    uint8_t *critical; /* [task]: CPOP */
    uint32_t critical_device;
    double latency, ns_per_byte; /* means over pairs of devices */
    const uint32_t *fixed;       /* [task]: its device, or NULL */
    weft__gaps gaps;
    double ready[WEFT__SCHED_MAX_DEVICES];
    uint64_t used[WEFT__SCHED_MAX_DEVICES];
    uint32_t *waits, *heap, n_heap;
} sched;

static double mean_cost(const sched *s, uint32_t t)
{
    double sum = 0;
    uint32_t n = 0;
    if (s->g->n_column == 1) return s->g->cost[t];
    for (uint32_t d = 0; d < s->m->n_device; d++) {
        const double c = weft__tg_cost(s->g, t, d);
        if (isinf(c)) continue;
        sum += c;
        n++;
    }
    return sum / n;
}

/* Of what is placed: costs and links as they are. */
static void rank_fixed(sched *s)
{
    const weft__taskgraph *g = s->g;
    for (uint32_t i = g->n_task; i-- > 0;) {
        const uint32_t t = g->order[i], d = s->fixed[t];
        double longest = 0;
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++) {
            const uint32_t to = g->edges[e].to;
            longest = fmax(longest, weft__arrival(s->m, s->rank[to], g->edges[e].bytes, d, s->fixed[to]));
        }
        s->rank[t] = weft__tg_cost(g, t, d) + longest;
    }
}

static double mean_move(const sched *s, const weft__tg_edge_row *e) { return s->latency + e->bytes * s->ns_per_byte; }

static void mean_links(sched *s)
{
    uint32_t pairs = 0;
    for (uint32_t a = 0; a < s->m->n_device; a++)
        for (uint32_t b = 0; b < s->m->n_device; b++) {
            if (a == b) continue;
            s->latency += s->m->latency_ns[a][b];
            s->ns_per_byte += s->m->ns_per_byte[a][b];
            pairs++;
        }
    if (!pairs) return;
    s->latency /= pairs;
    s->ns_per_byte /= pairs;
}

static void rank_upward(sched *s)
{
    const weft__taskgraph *g = s->g;
    for (uint32_t i = g->n_task; i-- > 0;) {
        const uint32_t t = g->order[i];
        double longest = 0;
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++)
            longest = fmax(longest, mean_move(s, &g->edges[e]) + s->rank[g->edges[e].to]);
        s->rank[t] = mean_cost(s, t) + longest;
    }
}

/* CPOP's priorities: upward plus downward rank. The critical path is followed from the entry of highest priority, always to
 * the first successor of the same priority (up to rounding), and runs on the device that runs all of it soonest.          */
static int rank_both(sched *s)
{
    const weft__taskgraph *g = s->g;
    double *down = calloc(g->n_task, sizeof *down), best = INFINITY;
    double sum[WEFT__SCHED_MAX_DEVICES] = {0};
    uint32_t at = WEFT__TG_NONE;
    s->critical = calloc(g->n_task, 1);
    if (!down || !s->critical) {
        free(down);
        return weft__fail(WEFT_ENOMEM, "cpop: %u tasks", g->n_task);
    }
    for (uint32_t i = 0; i < g->n_task; i++) {
        const uint32_t t = g->order[i];
        const double mean = mean_cost(s, t);
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++)
            down[g->edges[e].to] = fmax(down[g->edges[e].to], down[t] + mean + mean_move(s, &g->edges[e]));
        s->rank[t] += down[t];
        if (g->in0[t] == g->in0[t + 1] && (at == WEFT__TG_NONE || s->rank[t] > s->rank[at])) at = t;
    }
    free(down);
    for (const double length = s->rank[at]; at != WEFT__TG_NONE;) {
        uint32_t next = WEFT__TG_NONE;
        s->critical[at] = 1;
        for (uint32_t d = 0; d < s->m->n_device; d++)
            sum[d] += weft__tg_cost(g, at, d);
        for (uint32_t e = g->out0[at]; e < g->out0[at + 1] && next == WEFT__TG_NONE; e++)
            if (fabs(s->rank[g->edges[e].to] - length) <= 1e-9 * length) next = g->edges[e].to;
        at = next;
    }
    for (uint32_t d = 0; d < s->m->n_device; d++)
        if (sum[d] < best) {
            best = sum[d];
            s->critical_device = d;
        }
    if (isinf(best)) memset(s->critical, 0, g->n_task); /* no device runs all of it: each task where it ends first */
    return 0;
}

/* The shortest way from t's end to the end of the graph, if t runs on device d. */
static double optimistic(const sched *s, uint32_t t, uint32_t d)
{
    const weft__taskgraph *g = s->g;
    double longest = 0;
    for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++) {
        double shortest = INFINITY;
        for (uint32_t w = 0; w < s->m->n_device; w++) {
            const uint32_t to = g->edges[e].to;
            shortest = fmin(shortest, s->oct[(uint64_t)to * s->m->n_device + w] + weft__tg_cost(g, to, w) +
                                          (w == d ? 0 : mean_move(s, &g->edges[e])));
        }
        longest = fmax(longest, shortest);
    }
    return longest;
}

static int rank_optimistic(sched *s)
{
    const uint32_t n = s->m->n_device;
    s->oct = malloc((uint64_t)s->g->n_task * n * sizeof *s->oct);
    if (!s->oct) return weft__fail(WEFT_ENOMEM, "peft: %u tasks", s->g->n_task);
    for (uint32_t i = s->g->n_task; i-- > 0;) {
        const uint32_t t = s->g->order[i];
        s->rank[t] = 0;
        for (uint32_t d = 0; d < n; d++) {
            s->oct[(uint64_t)t * n + d] = optimistic(s, t, d);
            s->rank[t] += s->oct[(uint64_t)t * n + d] / n;
        }
    }
    return 0;
}

static int before(const sched *s, uint32_t a, uint32_t b)
{
    return s->rank[a] != s->rank[b] ? s->rank[a] > s->rank[b] : a < b;
}

static void heap_push(sched *s, uint32_t t)
{
    uint32_t i = s->n_heap++;
    for (; i && before(s, t, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = t;
}

static uint32_t heap_pop(sched *s)
{
    const uint32_t top = s->heap[0], last = s->heap[--s->n_heap];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && before(s, s->heap[child + 1], s->heap[child])) child++;
        if (!before(s, s->heap[child], last)) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* When what t reads is there, for each device: one look at each edge. */
static void find_ready(sched *s, uint32_t t)
{
    for (uint32_t d = 0; d < s->m->n_device; d++)
        s->ready[d] = 0;
    for (uint32_t i = s->g->in0[t]; i < s->g->in0[t + 1]; i++) {
        const weft__tg_edge_row *e = &s->g->edges[s->g->in[i]];
        const weft__schedule_row *from = &s->out->row[e->from];
        for (uint32_t d = 0; d < s->m->n_device; d++) {
            const double at = weft__arrival(s->m, from->end, e->bytes, from->device, d);
            if (at > s->ready[d]) s->ready[d] = at;
        }
    }
}

static int may_run(const sched *s, uint32_t t, uint32_t d)
{
    if (isinf(weft__tg_cost(s->g, t, d)) || (s->fixed && s->fixed[t] != d)) return 0;
    if (s->critical && s->critical[t] && d != s->critical_device) return 0;
    return !s->m->memory[d] || s->g->memory[t] <= s->m->memory[d] - s->used[d];
}

static int place_task(sched *s, uint32_t t)
{
    weft__schedule_row *row = &s->out->row[t];
    double best = INFINITY;
    uint32_t best_gap = WEFT__GAP_NONE;
    find_ready(s, t);
    for (uint32_t d = 0; d < s->m->n_device; d++) {
        const double cost = weft__tg_cost(s->g, t, d), beyond = s->oct ? s->oct[(uint64_t)t * s->m->n_device + d] : 0;
        if (s->ready[d] + cost + beyond >= best || !may_run(s, t, d)) continue;
        double start;
        const uint32_t gap = weft__gaps_find(&s->gaps, d, s->ready[d], cost, &start);
        if (start + cost + beyond >= best) continue;
        best = start + cost + beyond;
        best_gap = gap;
        *row = (weft__schedule_row){start, start + cost, d, s->gaps.node[gap].worker};
    }
    if (isinf(best))
        return weft__fail(WEFT_EMACHINE, "task %s: no device that can run it has %llu bytes left",
                          weft__tg_name(s->g, t), (unsigned long long)s->g->memory[t]);
    s->used[row->device] += s->g->memory[t];
    if (row->end > s->out->makespan) s->out->makespan = row->end;
    return weft__gaps_take(&s->gaps, row->device, best_gap, row->start, row->end);
}

static int place_all(sched *s)
{
    const weft__taskgraph *g = s->g;
    int status = 0;
    for (uint32_t t = 0; t < g->n_task; t++)
        if (!(s->waits[t] = g->in0[t + 1] - g->in0[t])) heap_push(s, t);
    while (s->n_heap && !status) {
        const uint32_t t = heap_pop(s);
        status = place_task(s, t);
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++)
            if (--s->waits[g->edges[e].to] == 0) heap_push(s, g->edges[e].to);
    }
    return status;
}

/* What crosses: rows of one producer that name one file count once for each device. */
int weft__schedule_cut(const weft__taskgraph *g, weft__schedule *s)
{
    uint32_t n_file = 0;
    s->cut_files = 0;
    s->cut_bytes = 0;
    for (uint32_t e = 0; e < g->n_edge; e++)
        if (g->edges[e].file != WEFT__TG_NONE && g->edges[e].file >= n_file) n_file = g->edges[e].file + 1;
    uint64_t *sent = calloc(n_file + 1ull, sizeof *sent); /* [file]: devices that have it from `owner` */
    uint32_t *owner = calloc(n_file + 1ull, sizeof *owner);
    if (sent && owner)
        for (uint32_t e = 0; e < g->n_edge; e++) {
            const weft__tg_edge_row *r = &g->edges[e];
            const uint32_t to = s->row[r->to].device;
            if (s->row[r->from].device == to) continue;
            if (r->file != WEFT__TG_NONE) {
                if (owner[r->file] != r->from + 1) sent[r->file] = 0;
                owner[r->file] = r->from + 1;
                if (sent[r->file] >> to & 1) continue;
                sent[r->file] |= 1ull << to;
            }
            s->cut_files++;
            s->cut_bytes += r->bytes;
        }
    int status = sent && owner ? 0 : weft__fail(WEFT_ENOMEM, "schedule: %u files", n_file);
    free(sent);
    free(owner);
    return status;
}

int weft__machine_check(const weft__taskgraph *g, const weft__machine *m)
{
    if (m->n_device < 1 || m->n_device > WEFT__SCHED_MAX_DEVICES)
        return weft__fail(WEFT_EUSAGE, "%u devices, 1 to %u expected", m->n_device, WEFT__SCHED_MAX_DEVICES);
    if (g->n_column != 1 && g->n_column != m->n_device)
        return weft__fail(WEFT_EUSAGE, "tasks have costs for %u devices, the machine has %u", g->n_column, m->n_device);
    for (uint32_t d = 0; d < m->n_device; d++)
        if (!m->workers[d] || m->workers[d] > 1u << 20)
            return weft__fail(WEFT_EUSAGE, "device %u: %u workers", d, m->workers[d]);
    return 0;
}

static int prepare(sched *s)
{
    const uint32_t n = s->g->n_task;
    s->out->row = calloc(n, sizeof *s->out->row);
    s->rank = calloc(n, sizeof *s->rank);
    s->waits = malloc(n * sizeof *s->waits);
    s->heap = malloc(n * sizeof *s->heap);
    if (!s->out->row || !s->rank || !s->waits || !s->heap) return weft__fail(WEFT_ENOMEM, "schedule: %u tasks", n);
    return weft__gaps_init(&s->gaps, s->m->n_device, s->m->workers);
}

static int run(sched *s, weft__listsched_kind kind)
{
    *s->out = (weft__schedule){0};
    int status = weft__machine_check(s->g, s->m);
    if (status) return status;
    status = prepare(s);
    if (kind != WEFT__LIST) mean_links(s);
    if (!status && s->fixed)
        rank_fixed(s);
    else if (!status && kind != WEFT__PEFT)
        rank_upward(s);
    if (!status && kind == WEFT__CPOP) status = rank_both(s);
    if (!status && kind == WEFT__PEFT) status = rank_optimistic(s);
    if (!status) status = place_all(s);
    if (!status) status = weft__schedule_cut(s->g, s->out);
    weft__gaps_free(&s->gaps);
    free(s->rank);
    free(s->oct);
    free(s->critical);
    free(s->waits);
    free(s->heap);
    return status;
}

int weft__listsched(const weft__taskgraph *g, const weft__machine *m, weft__listsched_kind kind, weft__schedule *out)
{
    sched s = {.g = g, .m = m, .out = out};
    return run(&s, kind);
}

int weft__listsched_fixed(const weft__taskgraph *g, const weft__machine *m, const uint32_t *device, weft__schedule *out)
{
    sched s = {.g = g, .m = m, .out = out, .fixed = device};
    return run(&s, WEFT__HEFT);
}

void weft__schedule_free(weft__schedule *s)
{
    free(s->row);
    *s = (weft__schedule){0};
}

typedef struct slot {
    weft__schedule_row row;
    uint32_t task;
} slot;

static int by_worker(const void *left, const void *right)
{
    const slot *a = left, *b = right;
    if (a->row.device != b->row.device) return a->row.device < b->row.device ? -1 : 1;
    if (a->row.worker != b->row.worker) return a->row.worker < b->row.worker ? -1 : 1;
    if (a->row.start != b->row.start) return a->row.start < b->row.start ? -1 : 1;
    if (a->row.end != b->row.end) return a->row.end < b->row.end ? -1 : 1;
    return a->task < b->task ? -1 : 1;
}

static int check_overlap(const weft__taskgraph *g, const weft__schedule *s)
{
    slot *slots = malloc(g->n_task * sizeof *slots);
    if (!slots) return weft__fail(WEFT_ENOMEM, "schedule: %u tasks", g->n_task);
    for (uint32_t t = 0; t < g->n_task; t++)
        slots[t] = (slot){s->row[t], t};
    qsort(slots, g->n_task, sizeof *slots, by_worker);
    int status = 0;
    for (uint32_t i = 1; i < g->n_task && !status; i++) {
        const slot *a = &slots[i - 1], *b = &slots[i];
        if (a->row.device == b->row.device && a->row.worker == b->row.worker && b->row.start < a->row.end)
            status = weft__fail(WEFT_EWRONG, "tasks %s and %s run at once on device %u, worker %u",
                                weft__tg_name(g, a->task), weft__tg_name(g, b->task), a->row.device, a->row.worker);
    }
    free(slots);
    return status;
}

int weft__schedule_check(const weft__taskgraph *g, const weft__machine *m, const weft__schedule *s)
{
    uint64_t used[WEFT__SCHED_MAX_DEVICES] = {0};
    int status = weft__machine_check(g, m);
    if (status) return status;
    for (uint32_t t = 0; t < g->n_task; t++) {
        const weft__schedule_row *r = &s->row[t];
        if (r->device >= m->n_device || r->worker >= m->workers[r->device])
            return weft__fail(WEFT_EWRONG, "task %s: no device %u, worker %u", weft__tg_name(g, t), r->device,
                              r->worker);
        const double cost = weft__tg_cost(g, t, r->device);
        if (isinf(cost) || !(r->start >= 0) || fabs(r->end - r->start - cost) > 1e-9 * (r->end + cost))
            return weft__fail(WEFT_EWRONG, "task %s: from %g to %g on device %u, where it costs %g",
                              weft__tg_name(g, t), r->start, r->end, r->device, cost);
        used[r->device] += g->memory[t];
        if (m->memory[r->device] && used[r->device] > m->memory[r->device])
            return weft__fail(WEFT_EWRONG, "task %s: the memory of device %u is full", weft__tg_name(g, t), r->device);
    }
    for (uint32_t e = 0; e < g->n_edge; e++) {
        const weft__tg_edge_row *r = &g->edges[e];
        const weft__schedule_row *from = &s->row[r->from], *to = &s->row[r->to];
        if (to->start < weft__arrival(m, from->end, r->bytes, from->device, to->device))
            return weft__fail(WEFT_EWRONG, "task %s starts at %g, before what task %s sends is there",
                              weft__tg_name(g, r->to), to->start, weft__tg_name(g, r->from));
    }
    return check_overlap(g, s);
}
