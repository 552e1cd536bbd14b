/* placer_map.c: policies that need nothing but the graph: the simple ones, the list schedulers, and LDG:
 * Stanton, Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012, the weighted linear greedy rule,
 * with bytes for edges and work for sizes.                                                                             */
#include "placer.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int can_run(const weft_placing *p, uint32_t t, uint32_t d) { return !isinf(weft__tg_cost(p->graph, t, d)); }

int weft__place_single(weft_placing *p)
{
    double best = INFINITY;
    uint32_t device = 0;
    for (uint32_t d = 0; d < p->machine->n_device; d++) {
        double sum = 0;
        for (uint32_t t = 0; t < p->graph->n_task; t++)
            sum += weft__tg_cost(p->graph, t, d);
        sum /= p->machine->workers[d];
        if (sum >= best) continue;
        best = sum;
        device = d;
    }
    if (isinf(best)) return weft__fail(WEFT_EMACHINE, "policy single: no device can run all tasks");
    for (uint32_t t = 0; t < p->graph->n_task; t++)
        p->device[t] = device;
    return 0;
}

int weft__place_round_robin(weft_placing *p)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < p->graph->n_task; i++) {
        const uint32_t t = p->graph->order[i];
        uint32_t d = next++ % p->machine->n_device;
        while (!can_run(p, t, d))
            d = (d + 1) % p->machine->n_device;
        p->device[t] = d;
    }
    return 0;
}

/* The least cost of any device. */
static double least_cost(const weft_placing *p, uint32_t t)
{
    double least = INFINITY;
    if (p->graph->n_column == 1) return p->graph->cost[t];
    for (uint32_t d = 0; d < p->machine->n_device; d++)
        least = fmin(least, weft__tg_cost(p->graph, t, d));
    return least;
}

static double worker_share(const weft_placing *p, uint32_t d)
{
    double all = 0;
    for (uint32_t i = 0; i < p->machine->n_device; i++)
        all += p->machine->workers[i];
    return p->machine->workers[d] / all;
}

/* The topological order goes by depth, lowest first: blocks of it are blocks of levels, and a level may be cut in two. */
int weft__place_blocks(weft_placing *p)
{
    const uint32_t n = p->machine->n_device;
    double sum = 0, done = 0, until = 0;
    uint32_t block = 0;
    for (uint32_t t = 0; t < p->graph->n_task; t++)
        sum += least_cost(p, t);
    until = sum * worker_share(p, 0);
    for (uint32_t i = 0; i < p->graph->n_task; i++) {
        const uint32_t t = p->graph->order[i];
        const double cost = least_cost(p, t);
        while (block + 1 < n && done + cost / 2 > until)
            until += sum * worker_share(p, ++block);
        done += cost;
        uint32_t d = block;
        while (!can_run(p, t, d))
            d = (d + 1) % n;
        p->device[t] = d;
    }
    return 0;
}

static int run_list(weft_placing *p, weft__listsched_kind kind)
{
    weft__schedule s;
    int status = weft__listsched(p->graph, p->machine, kind, &s);
    if (!status) memcpy(p->row, s.row, p->graph->n_task * sizeof *s.row);
    p->timed = 1;
    weft__schedule_free(&s);
    return status;
}

int weft__place_list(weft_placing *p) { return run_list(p, WEFT__LIST); }
int weft__place_heft(weft_placing *p) { return run_list(p, WEFT__HEFT); }
int weft__place_peft(weft_placing *p) { return run_list(p, WEFT__PEFT); }
int weft__place_cpop(weft_placing *p) { return run_list(p, WEFT__CPOP); }

/* One pass, nothing is looked at twice: a task goes where (bytes of its inputs + 1 each) * (1 - load / capacity) is most; a device
 * that is full takes none; with no inputs, or among equals, the least loaded.                                          */
int weft__place_ldg(weft_placing *p)
{
    const weft__taskgraph *g = p->graph;
    const uint32_t n = p->machine->n_device;
    double slack = 0.1, sum = 0, load[WEFT__SCHED_MAX_DEVICES] = {0}, room[WEFT__SCHED_MAX_DEVICES];
    int status = weft__placing_number(p, "slack", 0, 100, &slack);
    if (status) return status;
    for (uint32_t t = 0; t < g->n_task; t++)
        sum += least_cost(p, t);
    for (uint32_t d = 0; d < n; d++)
        room[d] = sum > 0 ? (1 + slack) * sum * worker_share(p, d) : 1;
    for (uint32_t i = 0; i < g->n_task; i++) {
        const uint32_t t = g->order[i];
        double near[WEFT__SCHED_MAX_DEVICES] = {0}, best = -INFINITY;
        uint32_t at = WEFT__TG_NONE;
        for (uint32_t k = g->in0[t]; k < g->in0[t + 1]; k++) {
            const weft__tg_edge_row *e = &g->edges[g->in[k]];
            near[p->device[e->from]] += e->bytes + 1;
        }
        for (uint32_t d = 0; d < n; d++) {
            const double cost = weft__tg_cost(g, t, d);
            if (isinf(cost)) continue;
            const double left = 1 - load[d] / room[d];
            const double score = left > 0 ? near[d] * left : left; /* full: the emptiest of those */
            if (score < best || (score == best && load[d] / room[d] >= load[at] / room[at])) continue;
            best = score;
            at = d;
        }
        p->device[t] = at;
        load[at] += weft__tg_cost(g, t, at);
    }
    return 0;
}
