/* placer_sa.c: simulated annealing (Kirkpatrick, Gelatt, Vecchi, Science 220, 1983) over devices, from any policy's placement.
 *
 * A move takes a task to another device: one that a neighbour is on, or any. What it is worth is the makespan of the whole
 * schedule, so moves are few where graphs are large. The result is never worse than the start.                         */
#include "placer.h"

#include "../tasks/seed.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct annealing {
    weft_placing *p;
    uint32_t draws;
    uint32_t *device; /* [task]: as it is now; p->row has the best */
    double now, best;
} annealing;

static uint32_t draw(annealing *a, uint32_t below) { return weft_hash(a->p->seed, a->draws++, 0x5a) % below; }

static void keep(annealing *a, const weft__schedule *s)
{
    if (s->makespan >= a->best) return;
    a->best = s->makespan;
    memcpy(a->p->row, s->row, a->p->graph->n_task * sizeof *s->row);
}

static int begin(annealing *a)
{
    char word[64];
    const char *name = weft__placing_word(a->p, "start", "heft", word, sizeof word);
    weft__policy policy;
    weft_placing start;
    weft__schedule s = {0};
    if (strcmp(name, "sa") == 0) return weft__fail(WEFT_EUSAGE, "policy sa: it can't start from itself");
    int status = weft__policy_open(name, &policy);
    if (!status) status = weft__placing_new(a->p->graph, a->p->machine, a->p->seed, &start);
    if (!status) {
        status = weft__policy_run(&policy, &start);
        if (!status) status = weft__placing_schedule(&start, &s);
        weft__placing_free(&start);
    }
    if (!status) keep(a, &s);
    for (uint32_t t = 0; t < a->p->graph->n_task && !status; t++)
        a->device[t] = s.row[t].device;
    weft__schedule_free(&s);
    weft__policy_close(&policy);
    return status;
}

/* Another device for t; its own if there is none. */
static uint32_t propose(annealing *a, uint32_t t)
{
    const weft__taskgraph *g = a->p->graph;
    const uint32_t n_in = g->in0[t + 1] - g->in0[t], n = n_in + g->out0[t + 1] - g->out0[t];
    uint32_t d = draw(a, a->p->machine->n_device);
    if (n && draw(a, 2)) {
        const uint32_t k = draw(a, n);
        d = k < n_in ? a->device[g->edges[g->in[g->in0[t] + k]].from] : a->device[g->edges[g->out0[t] + k - n_in].to];
    }
    return isinf(weft__tg_cost(g, t, d)) ? a->device[t] : d;
}

static int move(annealing *a, double heat)
{
    const uint32_t t = draw(a, a->p->graph->n_task), old = a->device[t], to = propose(a, t);
    weft__schedule s;
    if (to == old) return 0;
    a->device[t] = to;
    int status = weft__listsched_fixed(a->p->graph, a->p->machine, a->device, &s);
    const double u = (draw(a, 1u << 24) + 0.5) / (1u << 24);
    if (!status && (s.makespan <= a->now || u < exp((a->now - s.makespan) / heat))) {
        a->now = s.makespan;
        keep(a, &s);
    } else {
        a->device[t] = old;
    }
    weft__schedule_free(&s);
    return status == WEFT_EMACHINE ? 0 : status; /* a device's memory is full: no such move */
}

int weft__place_sa(weft_placing *p)
{
    annealing a = {.p = p, .best = INFINITY};
    double moves = fmin(20000, fmax(100, 2e6 / p->graph->n_task));
    int status = weft__placing_number(p, "moves", 0, 1e9, &moves);
    if (status) return status;
    a.device = malloc(p->graph->n_task * sizeof *a.device);
    status = a.device ? begin(&a) : weft__fail(WEFT_ENOMEM, "policy sa: %u tasks", p->graph->n_task);
    a.now = a.best;
    const double hot = 0.05 * a.best, cold = 1e-4 * a.best;
    for (uint32_t i = 0; i < (uint32_t)moves && p->machine->n_device > 1 && !status; i++)
        status = move(&a, hot * pow(cold / hot, i / moves));
    p->timed = 1;
    free(a.device);
    return status;
}
