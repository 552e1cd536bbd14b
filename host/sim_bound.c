/* sim_bound.c: what no order of a plan's tasks can beat. See sim.h.
 *
 * Leaves out all that the loop costs (fetching, signals, hops), so it bounds every policy; weights loaded ahead count for the
 * memory only.                                                                                                          */
#include "sim.h"

#include "error.h"

#include <stdlib.h>

typedef struct bound {
    const weft__sim_plan *p;
    const weft__topology *topo;
    uint32_t *dep0, *dep;   /* [counter + 1]; tasks that wait for it */
    uint32_t *left, *to_do; /* arrivals of a counter; waits of a task */
    uint32_t *ready;        /* tasks whose waits are over, in the order in which that happened */
    double *start, *late;   /* [task]: earliest, of the body; of the end, by late waits */
    double *arrival;        /* [counter] */
    uint32_t n_ready;
} bound;

static int allocate(bound *b)
{
    const weft__sim_plan *p = b->p;
    b->dep0 = calloc(p->n_counter + 2ull, sizeof *b->dep0);
    b->dep = malloc((p->tasks[p->n_task].wait + 1ull) * sizeof *b->dep);
    b->left = malloc((p->n_counter + 1ull) * sizeof *b->left);
    b->to_do = malloc((p->n_task + 1ull) * sizeof *b->to_do);
    b->ready = malloc((p->n_task + 1ull) * sizeof *b->ready);
    b->start = calloc(p->n_task + 1ull, sizeof *b->start);
    b->late = calloc(p->n_task + 1ull, sizeof *b->late);
    b->arrival = calloc(p->n_counter + 1ull, sizeof *b->arrival);
    if (b->dep0 && b->dep && b->left && b->to_do && b->ready && b->start && b->late && b->arrival) return 0;
    return weft__fail(WEFT_ENOMEM, "bound of %u tasks", p->n_task);
}

static void release(bound *b)
{
    free(b->dep0);
    free(b->dep);
    free(b->left);
    free(b->to_do);
    free(b->ready);
    free(b->start);
    free(b->late);
    free(b->arrival);
}

/* Waits by counter: wait ids are kept as tasks, in order. */
static void find_deps(bound *b)
{
    const weft__sim_plan *p = b->p;
    for (uint32_t i = 0; i < p->tasks[p->n_task].wait; i++)
        b->dep0[p->waits[i].counter + 1]++;
    for (uint32_t c = 0; c < p->n_counter; c++)
        b->dep0[c + 1] += b->dep0[c];
    for (uint32_t t = 0; t < p->n_task; t++) {
        b->to_do[t] = p->tasks[t + 1].wait - p->tasks[t].wait;
        if (!b->to_do[t]) b->ready[b->n_ready++] = t;
        for (uint32_t i = p->tasks[t].wait; i < p->tasks[t + 1].wait; i++)
            b->dep[b->dep0[p->waits[i].counter]++] = t;
    }
    for (uint32_t c = p->n_counter; c > 0; c--) /* firsts have become ends */
        b->dep0[c] = b->dep0[c - 1];
    b->dep0[0] = 0;
    for (uint32_t c = 0; c < p->n_counter; c++)
        b->left[c] = p->arrivals[c];
}

static double length_of(const bound *b, const weft__sim_task *t)
{
    const weft__profile *f = weft__topo_profile(b->topo, t->device);
    const double slow = f->memory_bpns > 0 && f->stream_bpns > 0 ? (double)t->bytes / f->stream_bpns : 0;
    return t->solo_ns > slow ? t->solo_ns : slow;
}

/* Counter c is complete: what waits for it may begin, or end. */
static void complete(bound *b, uint32_t c)
{
    for (uint32_t n = b->dep0[c]; n < b->dep0[c + 1]; n++) {
        const uint32_t t = b->dep[n];
        for (uint32_t i = b->p->tasks[t].wait; i < b->p->tasks[t + 1].wait; i++) {
            const weft__sim_wait *w = &b->p->waits[i];
            if (w->counter != c) continue;
            if (!w->late && b->arrival[c] > b->start[t]) b->start[t] = b->arrival[c];
            const double rest = b->arrival[c] + b->p->tasks[t].solo_ns * (256 - w->late) / 256;
            if (w->late && rest > b->late[t]) b->late[t] = rest;
        }
        if (--b->to_do[t] == 0) b->ready[b->n_ready++] = t;
    }
}

static double end_of(const bound *b, uint32_t t)
{
    const weft__sim_task *task = &b->p->tasks[t];
    const double end = b->start[t] + length_of(b, task);
    return (end > b->late[t] ? end : b->late[t]) + (double)task->tail_ns;
}

static double find_path(bound *b)
{
    double longest = 0;
    for (uint32_t n = 0; n < b->n_ready; n++) {
        const uint32_t t = b->ready[n];
        const weft__sim_task *task = &b->p->tasks[t];
        const double end = end_of(b, t);
        if (end > longest) longest = end;
        for (uint32_t i = task->signal; i < task[1].signal; i++) {
            const weft__sim_signal *s = &b->p->signals[i];
            const double way = s->device == task->device ? 0 : b->topo->route[task->device][s->device].latency_ns;
            if (end + way > b->arrival[s->counter]) b->arrival[s->counter] = end + way;
            if (--b->left[s->counter] == 0) complete(b, s->counter);
        }
    }
    return longest;
}

/* Of workers, of the host's cores, of memories. */
static void find_work(const bound *b, weft__sim_bound *out)
{
    double work = 0, shared = 0, cores = 0, bytes[WEFT_MAX_DEVICES] = {0};
    uint32_t workers = 0;
    for (uint32_t d = 0; d < b->p->n_device; d++) {
        workers += b->p->workers[d];
        if (weft__topo_profile(b->topo, d)->cores > cores) cores = weft__topo_profile(b->topo, d)->cores;
    }
    for (uint32_t t = 0; t < b->p->n_task; t++) {
        const weft__sim_task *task = &b->p->tasks[t];
        work += task->solo_ns + (double)task->tail_ns;
        if (!task->timed && weft__topo_profile(b->topo, task->device)->cores > 0) shared += task->solo_ns;
        bytes[b->topo->device[task->device].memory % WEFT_MAX_DEVICES] += (double)task->bytes + (double)task->ahead;
    }
    out->work_ns = work / workers;
    if (cores > 0 && b->topo->device[b->p->n_device - 1].node == b->topo->device[0].node &&
        shared / cores > out->work_ns)
        out->work_ns = shared / cores;
    for (uint32_t d = 0; d < b->p->n_device; d++) {
        const double bpns = weft__topo_profile(b->topo, d)->memory_bpns;
        const double ns = bpns > 0 ? bytes[b->topo->device[d].memory % WEFT_MAX_DEVICES] / bpns : 0;
        if (ns > out->memory_ns) out->memory_ns = ns;
    }
}

int weft__sim_bound_of(const weft__sim_plan *plan, const weft__topology *topo, weft__sim_bound *out)
{
    bound b = {.p = plan, .topo = topo};
    *out = (weft__sim_bound){0};
    int status = allocate(&b);
    if (!status) {
        find_deps(&b);
        out->path_ns = find_path(&b);
        find_work(&b, out);
        out->bound_ns = out->path_ns > out->work_ns ? out->path_ns : out->work_ns;
        if (out->memory_ns > out->bound_ns) out->bound_ns = out->memory_ns;
    }
    release(&b);
    return status;
}
