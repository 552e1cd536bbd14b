/* sim_queue.c: the five queue policies, as workers run them (megakernel/cpu_queue.c, roles.cuh):
 *
 *   static    a list a worker
 *   fifo      the next of the device's queue
 *   push      one ring; idle workers hold places in it, in the order in which they became idle
 *   steal     a ring a worker; an idle one looks into its own, then into the following ones, then abroad
 *   priority  a ring a rank; the most urgent ring that has a task
 *
 * Of several idle workers that could take a task of steal or priority, the ring's owner does, else the one that has been
 * idle longest: on a machine chance decides.                                                                           */
#include "sim_internal.h"

#include "error.h"

#include <stdlib.h>

enum {
    RANKS = 8 /* as runtime/upload.c has it */
};

/* ------------------------------------------------------------------------------------------------------------- static */

/* Where no worker is given, tasks are dealt in turn. */
static int cut_lists(weft__sim *s)
{
    const weft__sim_plan *p = s->p;
    s->list = malloc((p->n_task + 1ull) * sizeof *s->list);
    if (!s->list) return weft__fail(WEFT_ENOMEM, "simulation: lists of %u tasks", p->n_task);
    for (uint32_t d = 0, at = 0; d < p->n_device; d++) {
        weft__sim_state *w = s->w + s->device[d].worker;
        const uint32_t n = s->device[d].n_worker;
        for (int fill = 0; fill < 2; fill++) {
            for (uint32_t i = p->first[d]; i < p->first[d + 1]; i++) {
                const uint32_t id = p->order[i], given = p->tasks[id].worker,
                               mine = given == WEFT__SIM_ANY ? (i - p->first[d]) % n : given;
                if (mine >= n) return weft__fail(WEFT_EUSAGE, "task %u: no worker %u on device %u", id, mine, d);
                if (fill) s->list[w[mine].list_end] = id;
                w[mine].list_end++;
            }
            for (uint32_t i = 0; i < n && !fill; i++) {
                const uint32_t count = w[i].list_end;
                w[i].list = w[i].list_end = at;
                at += count;
            }
        }
    }
    return 0;
}

/* -------------------------------------------------------------------------------------------------------------- rings */

static int count_deps(weft__sim *s)
{
    const weft__sim_plan *p = s->p;
    s->dep0 = calloc(p->n_counter + 2ull, sizeof *s->dep0);
    s->dep = malloc((p->tasks[p->n_task].wait + 1ull) * sizeof *s->dep);
    s->pending = malloc((p->n_task + 1ull) * sizeof *s->pending);
    s->ready = calloc(p->n_task + 1ull, sizeof *s->ready);
    s->ring_next = malloc((p->n_task + 1ull) * sizeof *s->ring_next);
    if (!s->dep0 || !s->dep || !s->pending || !s->ready || !s->ring_next)
        return weft__fail(WEFT_ENOMEM, "simulation: %u waits", p->tasks[p->n_task].wait);
    for (uint32_t i = 0; i < p->tasks[p->n_task].wait; i++)
        s->dep0[p->waits[i].counter + 1]++;
    for (uint32_t c = 0; c < p->n_counter; c++)
        s->dep0[c + 1] += s->dep0[c];
    for (uint32_t n = 0; n < p->n_task; n++) {
        const uint32_t t = p->order[n];
        s->pending[t] = p->tasks[t + 1].wait - p->tasks[t].wait;
        for (uint32_t i = p->tasks[t].wait; i < p->tasks[t + 1].wait; i++)
            s->dep[s->dep0[p->waits[i].counter]++] = t;
    }
    for (uint32_t c = p->n_counter; c > 0; c--) /* firsts have become ends */
        s->dep0[c] = s->dep0[c - 1];
    s->dep0[0] = 0;
    return 0;
}

static int make_rings(weft__sim *s)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < s->p->n_device; d++) {
        weft__sim_device *at = &s->device[d];
        at->ring = n;
        at->n_ring = s->o.policy == WEFT_POLICY_STEAL ? at->n_worker : s->o.policy == WEFT_POLICY_PRIORITY ? RANKS : 1;
        at->idle_first = at->idle_last = WEFT__SIM_NONE;
        at->full = calloc((at->n_ring + 63) / 64, sizeof *at->full);
        if (!at->full) return weft__fail(WEFT_ENOMEM, "simulation: %u rings", at->n_ring);
        n += at->n_ring;
    }
    s->ring_head = malloc(n * sizeof *s->ring_head);
    s->ring_tail = malloc(n * sizeof *s->ring_tail);
    if (!s->ring_head || !s->ring_tail) return weft__fail(WEFT_ENOMEM, "simulation: %u rings", n);
    for (uint32_t i = 0; i < n; i++)
        s->ring_head[i] = WEFT__SIM_NONE;
    for (uint32_t t = 0; t < s->p->n_task && s->o.policy == WEFT_POLICY_STEAL; t++) {
        const uint32_t thief = s->p->tasks[t].alt;
        if (thief < s->p->n_device) s->device[thief].victims |= 1ull << s->p->tasks[t].device;
    }
    return 0;
}

/* Tasks that wait for nothing are in the rings from the start, in the queues' order. */
static int push_first(weft__sim *s)
{
    for (uint32_t i = 0; i < s->p->n_task; i++) {
        uint32_t w;
        if (!s->pending[s->p->order[i]]) weft__sim_ready(s, s->p->order[i], &w);
    }
    return 0;
}

int weft__sim_queues_init(weft__sim *s)
{
    for (uint32_t d = 0; d < s->p->n_device; d++) {
        s->device[d].head = s->p->first[d];
        s->device[d].end = s->p->first[d + 1];
    }
    if (s->o.policy == WEFT_POLICY_STATIC) return cut_lists(s);
    if (s->o.policy == WEFT_POLICY_FIFO) return 0;
    int status = count_deps(s);
    if (!status) status = make_rings(s);
    return status ? status : push_first(s);
}

void weft__sim_queues_free(weft__sim *s)
{
    for (uint32_t d = 0; d < s->p->n_device; d++)
        free(s->device[d].full);
    free(s->list);
    free(s->dep0);
    free(s->dep);
    free(s->pending);
    free(s->ready);
    free(s->ring_head);
    free(s->ring_tail);
    free(s->ring_next);
}

/* The ring, of its device's, that a task goes to. */
static uint32_t ring_of(const weft__sim *s, uint32_t task)
{
    const weft__sim_task *t = &s->p->tasks[task];
    const uint32_t n = s->device[t->device].n_ring;
    if (s->o.policy == WEFT_POLICY_STEAL) return t->worker < n ? t->worker : task % n;
    return s->o.policy == WEFT_POLICY_PRIORITY && t->ring < n ? t->ring : 0;
}

static uint32_t pop(weft__sim *s, weft__sim_device *d, uint32_t ring)
{
    const uint32_t task = s->ring_head[d->ring + ring], next = s->ring_next[task];
    s->ring_head[d->ring + ring] = next;
    if (next == WEFT__SIM_NONE) d->full[ring / 64] &= ~(1ull << ring % 64);
    return task;
}

/* The first ring from `from` on, around, that holds a task; n_ring if none does. */
static uint32_t full_ring(const weft__sim_device *d, uint32_t from)
{
    const uint32_t words = (d->n_ring + 63) / 64;
    for (uint32_t i = 0; i <= words; i++) {
        const uint32_t word = (from / 64 + i) % words;
        uint64_t bits = d->full[word];
        if (i == 0) bits &= ~0ull << from % 64;
        if (bits) return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return d->n_ring;
}

/* A task of another device that may run on d; its ring's first only. */
static uint32_t take_abroad(weft__sim *s, uint32_t d)
{
    for (uint64_t m = s->device[d].victims; m; m &= m - 1) {
        weft__sim_device *v = &s->device[__builtin_ctzll(m)];
        for (uint32_t word = 0; word < (v->n_ring + 63) / 64; word++)
            for (uint64_t bits = v->full[word]; bits; bits &= bits - 1) {
                const uint32_t ring = word * 64 + (uint32_t)__builtin_ctzll(bits);
                if (s->p->tasks[s->ring_head[v->ring + ring]].alt == d) return pop(s, v, ring);
            }
    }
    return WEFT__SIM_NONE;
}

static void be_idle(weft__sim *s, weft__sim_device *d, uint32_t w)
{
    s->w[w].idle_prev = d->idle_last;
    s->w[w].idle_next = WEFT__SIM_NONE;
    if (d->idle_last == WEFT__SIM_NONE)
        d->idle_first = w;
    else
        s->w[d->idle_last].idle_next = w;
    d->idle_last = w;
    s->w[w].is_idle = 1;
}

static void be_busy(weft__sim *s, weft__sim_device *d, uint32_t w)
{
    const uint32_t next = s->w[w].idle_next, prev = s->w[w].idle_prev;
    if (prev == WEFT__SIM_NONE)
        d->idle_first = next;
    else
        s->w[prev].idle_next = next;
    if (next == WEFT__SIM_NONE)
        d->idle_last = prev;
    else
        s->w[next].idle_prev = prev;
    s->w[w].is_idle = 0;
}

static uint32_t fetch_ring(weft__sim *s, uint32_t w)
{
    weft__sim_device *d = &s->device[s->w[w].device];
    const uint32_t ring = full_ring(d, s->o.policy == WEFT_POLICY_STEAL ? w - d->worker : 0);
    if (ring < d->n_ring) return pop(s, d, ring);
    const uint32_t task = d->victims ? take_abroad(s, s->w[w].device) : WEFT__SIM_NONE;
    if (task == WEFT__SIM_NONE) be_idle(s, d, w);
    return task;
}

uint32_t weft__sim_fetch(weft__sim *s, uint32_t w)
{
    weft__sim_state *st = &s->w[w];
    weft__sim_device *d = &s->device[st->device];
    if (s->o.policy == WEFT_POLICY_STATIC) return st->list < st->list_end ? s->list[st->list++] : WEFT__SIM_NONE;
    if (s->o.policy == WEFT_POLICY_FIFO) return d->head < d->end ? s->p->order[d->head++] : WEFT__SIM_NONE;
    return fetch_ring(s, w);
}

void weft__sim_ready(weft__sim *s, uint32_t task, uint32_t *w)
{
    const weft__sim_task *t = &s->p->tasks[task];
    weft__sim_device *d = &s->device[t->device], *thief = t->alt < s->p->n_device ? &s->device[t->alt] : NULL;
    const uint32_t ring = ring_of(s, task), at = d->ring + ring;
    *w = d->idle_first;
    if (s->o.policy == WEFT_POLICY_STEAL && s->w[d->worker + ring].is_idle) *w = d->worker + ring;
    if (*w == WEFT__SIM_NONE && s->o.policy == WEFT_POLICY_STEAL && thief && s->ring_head[at] == WEFT__SIM_NONE)
        *w = thief->idle_first;
    if (*w != WEFT__SIM_NONE) {
        be_busy(s, &s->device[s->w[*w].device], *w);
        return;
    }
    s->ring_next[task] = WEFT__SIM_NONE;
    if (s->ring_head[at] == WEFT__SIM_NONE)
        s->ring_head[at] = task;
    else
        s->ring_next[s->ring_tail[at]] = task;
    s->ring_tail[at] = task;
    d->full[ring / 64] |= 1ull << ring % 64;
}
