/* cpu_queue.c: the five queue policies: where a worker's next task comes from, and what a finished task sets off.
 *
 *   static    its own list, then wait for the task's counters
 *   fifo      the next index of the device's list, by an atomic ticket, then wait
 *   push      a ticket for one ring; the last producer to arrive has pushed the task, so it is ready
 *   steal     a ring a worker; a task goes to the worker that the static cut gives it to; an idle worker looks into the
 *             others' rings, then into those of devices whose tasks name its own as their alternate, and stays until these
 *             are empty too
 *   priority  a ring a rank; the lowest ring that has a task
 *
 * Tickets of a variant run on from step to step: use u of it owns n_task of them. A worker whose ticket lies beyond the
 * step has nothing left to do, and keeps the ticket. The rings of steal and priority are popped without tickets: their
 * step is over when their heads have moved by n_task together.                                                        */
#include "cpu_worker.h"

static int is_push_family(const weft__worker *w) { return w->dev->policy >= WEFT_POLICY_PUSH; }

static weft_w32 *head_of(const weft_queue_rt *q, uint32_t ring)
{
    return &((weft_line *)(uintptr_t)q->heads)[2 * ring].value;
}
static weft_w32 *tail_of(const weft_queue_rt *q, uint32_t ring)
{
    return &((weft_line *)(uintptr_t)q->heads)[2 * ring + 1].value;
}
static weft_w64 *ring_of(const weft_queue_rt *q, uint32_t ring)
{
    return (weft_w64 *)(uintptr_t)q->ring + (uint64_t)ring * (q->ring_mask + 1);
}

void weft__push_task(const weft_queue_rt *q, uint32_t task)
{
    uint32_t ring = q->ring_of ? ((const uint16_t *)(uintptr_t)q->ring_of)[task] : 0;
    weft_ring_push(tail_of(q, ring), ring_of(q, ring), q->ring_mask, task);
}

void weft__queue_open(weft__worker *w)
{
    const weft_queue_rt *q = w->q;
    if (w->dev->policy == WEFT_POLICY_STATIC) {
        const uint32_t *first = (const uint32_t *)(uintptr_t)q->list_first;
        w->next = first[w->index];
        w->end = first[w->index + 1];
    }
    if (is_push_family(w) && w->index == 0)
        for (uint32_t i = 0; i < q->n_ready0; i++)
            weft__push_task(q, ((const uint32_t *)(uintptr_t)q->ready0)[i]);
}

static int fetch_static(weft__worker *w, uint32_t *task)
{
    if (w->next == w->end) return 0;
    *task = ((const uint32_t *)(uintptr_t)w->q->list)[w->next++];
    return 1;
}

/* Position of this worker's ticket in the step's tasks; n_task or more: it belongs to a later use of the variant. */
static uint32_t ticket_position(weft__worker *w)
{
    uint32_t v = w->step.variant;
    if (!(w->holds >> v & 1)) w->ticket[v] = weft_atom_add_relaxed_gpu(head_of(w->q, 0), 1);
    w->holds |= 1u << v;
    return w->ticket[v] - w->dev->base - w->q->n_task * (w->step.uses - 1);
}

static int fetch_fifo(weft__worker *w, uint32_t *task)
{
    uint32_t i = ticket_position(w);
    if (i >= w->q->n_task) return 0;
    w->holds &= ~(1u << w->step.variant);
    *task = ((const uint32_t *)(uintptr_t)w->q->list)[i];
    return 1;
}

static int fetch_push(weft__worker *w, uint32_t *task)
{
    if (ticket_position(w) >= w->q->n_task) return 0;
    uint32_t ticket = w->ticket[w->step.variant];
    weft__blame b = {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, ticket, WEFT_NONE};
    weft__spin_state s = {0};
    while (!weft_ring_poll(ring_of(w->q, 0), w->q->ring_mask, ticket, task)) {
        b.seen = weft_ld_relaxed_gpu(tail_of(w->q, 0));
        if (weft__spin(w, &s, &b)) return -1;
    }
    w->holds &= ~(1u << w->step.variant);
    return 1;
}

/* Looks into the rings of device d for a task that this one may take. 1: taken; 0: none now; -1: none any more. */
static int steal_from(weft__worker *w, uint32_t d, uint32_t *task)
{
    const weft_dev *home = (const weft_dev *)(uintptr_t)w->dev->roots[d];
    const weft_queue_rt *q = &home->queue[w->step.variant];
    uint32_t taken = 0, head;
    for (uint32_t ring = 0; ring < q->n_ring; ring++) {
        int there = weft_ring_peek(head_of(q, ring), ring_of(q, ring), q->ring_mask, &head, task);
        taken += head - home->base;
        if (!there || ((const weft_task *)(uintptr_t)q->tasks)[*task].alt_device != w->dev->device) continue;
        if (!weft_ring_take(head_of(q, ring), head)) continue;
        w->home = home;
        w->hq = q;
        return 1;
    }
    return taken == q->n_task * w->step.uses ? -1 : 0;
}

/* The same for all devices whose tasks it may take; the gate keeps them in this step until this device has left it. */
static int steal_abroad(weft__worker *w, uint32_t *task)
{
    int last = -1;
    for (uint64_t m = w->dev->policy == WEFT_POLICY_STEAL ? w->dev->victims : 0; m; m &= m - 1) {
        int got = steal_from(w, (uint32_t)__builtin_ctzll(m), task);
        if (got > 0) return 1;
        if (got == 0) last = 0;
    }
    return last;
}

/* steal starts with its own ring, priority with the most urgent one. */
static int fetch_rings(weft__worker *w, uint32_t *task)
{
    const weft_queue_rt *q = w->q;
    uint32_t first = w->dev->policy == WEFT_POLICY_STEAL ? w->index : 0;
    uint32_t all = q->n_task * w->step.uses;
    weft__blame b = {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, all, 0};
    weft__spin_state s = {0};
    for (;;) {
        uint32_t taken = 0, head;
        for (uint32_t i = 0; i < q->n_ring; i++) {
            uint32_t ring = first + i < q->n_ring ? first + i : first + i - q->n_ring;
            if (weft_ring_try_pop(head_of(q, ring), ring_of(q, ring), q->ring_mask, &head, task)) return 1;
            taken += head - w->dev->base;
        }
        int abroad = steal_abroad(w, task);
        if (abroad > 0) return 1;
        if (taken == all && abroad < 0) return 0;
        b.seen = taken;
        if (weft__spin(w, &s, &b)) return -1;
    }
}

int weft__fetch(weft__worker *w, uint32_t *task)
{
    w->home = w->dev;
    w->hq = w->q;
    switch (w->dev->policy) {
    case WEFT_POLICY_STATIC: return fetch_static(w, task);
    case WEFT_POLICY_FIFO: return fetch_fifo(w, task);
    case WEFT_POLICY_PUSH: return fetch_push(w, task);
    default: return fetch_rings(w, task);
    }
}

static uint32_t waits_of_this_step(const weft_queue_rt *q, const weft_task *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_wait; i++)
        n += weft__wait_of(q, t, i).lag == 0;
    return n;
}

/* The counter is complete: arrive on each task that waits for it, and push those for which this was the last. q: of the
 * device that waits.                                                                                                   */
static void complete(const weft__worker *w, const weft_queue_rt *q, const weft_counter *c)
{
    for (uint32_t i = 0; i < c->n_dep; i++) {
        uint32_t task = ((const uint32_t *)(uintptr_t)q->deps)[c->dep + i];
        uint32_t waits = waits_of_this_step(q, (const weft_task *)(uintptr_t)q->tasks + task);
        if (waits > 1 && !weft_arrive((weft_w32 *)(uintptr_t)q->pending + task, waits * w->step.uses)) continue;
        weft__push_task(q, task);
    }
}

void weft__signal(weft__worker *w, const weft_task *t)
{
    for (uint32_t i = 0; i < t->n_signal; i++) {
        weft_signal s = weft__signal_of(w->hq, t, i);
        weft_w32 *word = &((weft_line *)(uintptr_t)w->hq->words[s.device])[s.counter].value;
        if (!is_push_family(w)) {
            weft_signal_counter(word);
            continue;
        }
        const weft_dev *to = (const weft_dev *)(uintptr_t)w->dev->roots[s.device];
        const weft_queue_rt *q = &to->queue[w->step.variant];
        const weft_counter *c = (const weft_counter *)(uintptr_t)q->counters + s.counter;
        if (weft_arrive(word, weft_target(w->dev->base, w->step.uses, 0, c->arrivals))) complete(w, q, c);
    }
}
