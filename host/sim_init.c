/* sim_init.c: from a plan and a topology to the state at the start of a step. */
#include "sim_internal.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

static int check_ways(const weft__sim_plan *p, const weft__topology *topo)
{
    for (uint32_t t = 0; t < p->n_task; t++) {
        const weft__sim_task *task = &p->tasks[t];
        for (uint32_t i = task->transfer; i < task[1].transfer; i++)
            if (p->transfers[i].to >= p->n_device || !topo->route[task->device][p->transfers[i].to].there)
                return weft__fail(WEFT_EUSAGE, "task %u sends from device %u to %u, between which there is no way", t,
                                  task->device, p->transfers[i].to);
        for (uint32_t i = task->signal; i < task[1].signal; i++)
            if (p->signals[i].device != task->device && !topo->route[task->device][p->signals[i].device].there)
                return weft__fail(WEFT_EUSAGE, "task %u signals from device %u to %u, between which there is no way", t,
                                  task->device, p->signals[i].device);
    }
    return 0;
}

int weft__sim_check(const weft__sim_plan *p, const weft__topology *topo, const weft__sim_options *o)
{
    if (o->policy >= WEFT_POLICY_COUNT) return weft__fail(WEFT_EUSAGE, "simulation: queue policy %u", o->policy);
    if (!p->n_device || p->n_device > topo->n_device)
        return weft__fail(WEFT_EUSAGE, "the plan has %u devices, the topology %u", p->n_device, topo->n_device);
    for (uint32_t d = 0; d < p->n_device; d++)
        if (!p->workers[d]) return weft__fail(WEFT_EUSAGE, "device %u has no workers", d);
    return check_ways(p, topo);
}

static uint32_t add_share(weft__sim *s, uint32_t kind, double capacity, double each)
{
    s->share[s->n_share] = (weft__sim_share){.kind = kind, .capacity = capacity, .each = each > 0 ? each : INFINITY};
    return s->n_share++;
}

/* Memories and the host's cores, each once, and every port. */
static void find_shares(weft__sim *s)
{
    const weft__topology *t = s->topo;
    for (uint32_t i = 0; i < t->n_port; i++)
        s->port_share[i] = t->port[i].bpns > 0 ? add_share(s, WEFT__SIM_PORT, t->port[i].bpns, 0) : WEFT__SIM_NONE;
    for (uint32_t d = 0; d < s->p->n_device; d++) {
        weft__sim_device *at = &s->device[d];
        at->p = weft__topo_profile(t, d);
        at->memory = at->cores = WEFT__SIM_NONE;
        for (uint32_t e = 0; e < d; e++) {
            if (t->device[e].memory == t->device[d].memory) at->memory = s->device[e].memory;
            if (t->device[e].profile == t->device[d].profile && t->device[e].node == t->device[d].node)
                at->cores = s->device[e].cores;
        }
        if (s->o.contention_free) continue;
        if (at->memory == WEFT__SIM_NONE && at->p->memory_bpns > 0)
            at->memory = add_share(s, WEFT__SIM_MEMORY, at->p->memory_bpns, at->p->stream_bpns);
        if (at->cores == WEFT__SIM_NONE && at->p->cores > 0) at->cores = add_share(s, WEFT__SIM_CORES, at->p->cores, 1);
    }
}

static void price_loop(weft__sim *s)
{
    for (uint32_t d = 0; d < s->p->n_device && !s->o.contention_free; d++) {
        weft__sim_device *at = &s->device[d];
        at->fetch_ns = at->p->fetch_ns[s->o.policy];
        at->signal_ns = at->p->signal_ns;
        at->push_ns = at->p->push_ns;
        memcpy(at->hop_ns, at->p->hop_ns, sizeof at->hop_ns);
        memcpy(at->ready_ns, at->p->ready_ns, sizeof at->ready_ns);
    }
}

static void number_workers(weft__sim *s)
{
    for (uint32_t d = 0; d < s->p->n_device; d++) {
        s->device[d].worker = s->n_worker;
        s->device[d].n_worker = s->r->workers[d] = s->p->workers[d];
        s->r->first_worker[d] = s->n_worker;
        s->n_worker += s->p->workers[d];
    }
    s->r->first_worker[s->p->n_device] = s->n_worker;
    s->r->n_device = s->p->n_device;
}

static int allocate(weft__sim *s)
{
    const uint32_t n = s->p->n_device;
    s->share = calloc(s->topo->n_port + 2ull * n, sizeof *s->share);
    s->port_share = malloc((s->topo->n_port + 1ull) * sizeof *s->port_share);
    s->w = calloc(s->n_worker, sizeof *s->w);
    s->counter = malloc((s->p->n_counter + 1ull) * sizeof *s->counter);
    s->r->worker = calloc(s->n_worker, sizeof *s->r->worker);
    s->r->link = calloc((size_t)n * n, sizeof *s->r->link);
    s->r->port_busy_ns = calloc(s->topo->n_port + 1ull, sizeof *s->r->port_busy_ns);
    if (s->share && s->port_share && s->w && s->counter && s->r->worker && s->r->link && s->r->port_busy_ns) return 0;
    return weft__fail(WEFT_ENOMEM, "simulation of %u tasks", s->p->n_task);
}

int weft__sim_init(weft__sim *s)
{
    number_workers(s);
    int status = allocate(s);
    if (status) return status;
    find_shares(s);
    price_loop(s);
    for (uint32_t d = 0; d < s->p->n_device; d++)
        for (uint32_t w = s->device[d].worker; w < s->device[d].worker + s->device[d].n_worker; w++)
            s->w[w] = (weft__sim_state){.task = WEFT__SIM_NONE, .next = WEFT__SIM_NONE, .device = (uint16_t)d};
    for (uint32_t c = 0; c < s->p->n_counter; c++)
        s->counter[c] = (weft__sim_counter){.left = s->p->arrivals[c], .held = WEFT__SIM_NONE};
    status = weft__sim_clock_init(&s->clock, s->n_worker + s->n_share);
    return status ? status : weft__sim_queues_init(s);
}

void weft__sim_free(weft__sim *s)
{
    for (uint32_t i = 0; i < s->n_share; i++)
        free(s->share[i].heap);
    free(s->share);
    free(s->port_share);
    free(s->w);
    free(s->counter);
    free(s->moves);
    free(s->pushes.heap);
    weft__sim_clock_free(&s->clock);
    weft__sim_queues_free(s);
}
