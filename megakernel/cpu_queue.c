/* cpu_queue.c: where a worker's next task comes from, and what a finished task sets off.
 *
 *   static    its own list, then wait for the task's counters
 *   fifo      the next index of the device's list, by an atomic ticket, then wait
 *   push      the policy that this file is compiled around: policy_push.h, or a module's. The last producer to arrive has
 *             pushed the task, so it is ready
 *   steal, priority   rings, a worker or a rank each (cpu_rings.c); ready as well
 *
 * Tickets of a variant run on from step to step: use u of it owns n_task of them. A worker whose ticket lies beyond the
 * step has nothing left to do, and keeps the ticket.                                                                  */
#include "cpu_worker.h"

#include <string.h>

#ifdef WEFT_POLICY_HEADER
#include WEFT_POLICY_HEADER
#else
#include "policy_push.h"
#endif

static int is_push_family(const weft__worker *w) { return w->dev->policy >= WEFT_POLICY_PUSH; }

/* The queue q of device dev as the policy sees it. */
static weft_policy_queue policy_of(const weft__worker *w, const weft_dev *dev, const weft_queue_rt *q)
{
    weft_policy_queue p = {.words = (weft_w64 *)(uintptr_t)q->heads,
                           .tasks = (const weft_task *)(uintptr_t)q->tasks,
                           .place = (const uint32_t *)(uintptr_t)q->list,
                           .home = (const uint16_t *)(uintptr_t)q->ring_of,
                           .n_task = q->n_task,
                           .n_worker = dev->n_worker,
                           .capacity = q->ring_mask + 1,
                           .base = dev->base,
                           .uses = w->step.uses};
    memcpy(p.param, w->loop->param, sizeof p.param);
    return p;
}

/* by: the worker of the same device that saw the last arrival, or WEFT_NONE. */
static void push_task(const weft__worker *w, const weft_dev *dev, const weft_queue_rt *q, uint32_t by, uint32_t task)
{
    if (dev->policy != WEFT_POLICY_PUSH) {
        weft__rings_push(w, q, ((const uint16_t *)(uintptr_t)q->ring_of)[task], task);
        return;
    }
    const weft_policy_queue p = policy_of(w, dev, q);
    policy_push(&p, by, task);
}

static weft_w32 *fifo_head(const weft_queue_rt *q) { return &((weft_line *)(uintptr_t)q->heads)->value; }

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
            push_task(w, w->dev, q, WEFT_NONE, ((const uint32_t *)(uintptr_t)q->ready0)[i]);
}

void weft__queue_leave(weft__worker *w)
{
    for (uint32_t v = 0; v < w->dev->n_variant; v++)
        if (w->holds >> v & 1) weft_atom_add_relaxed_gpu(fifo_head(&w->dev->queue[v]), UINT32_MAX);
    w->holds = 0;
}

static int fetch_static(weft__worker *w, uint32_t *task)
{
    if (w->next == w->end) return 0;
    *task = ((const uint32_t *)(uintptr_t)w->q->list)[w->next++];
    return 1;
}

/* n_task or more: the ticket belongs to a later use of the variant. */
static int fetch_fifo(weft__worker *w, uint32_t *task)
{
    const uint32_t v = w->step.variant;
    if (!(w->holds >> v & 1)) w->ticket[v] = weft_atom_add_relaxed_gpu(fifo_head(w->q), 1);
    w->holds |= 1u << v;
    const uint32_t i = w->ticket[v] - w->dev->base - w->q->n_task * (w->step.uses - 1);
    if (i >= w->q->n_task) return 0;
    w->holds &= ~(1u << v);
    *task = ((const uint32_t *)(uintptr_t)w->q->list)[i];
    return 1;
}

static int fetch_policy(weft__worker *w, uint32_t *task)
{
    const weft_policy_queue p = policy_of(w, w->dev, w->q);
    const weft__blame b = {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, WEFT_NONE, WEFT_NONE};
    weft__spin_state s = {0};
    while (!policy_pop(&p, w->index, task)) {
        if (policy_done(&p, w->index)) return 0;
        w->counts.empty++;
        if (weft__spin(w, &s, &b)) return -1;
    }
    return 1;
}

int weft__fetch(weft__worker *w, uint32_t *task)
{
    w->home = w->dev;
    w->hq = w->q;
    switch (w->dev->policy) {
    case WEFT_POLICY_STATIC: return fetch_static(w, task);
    case WEFT_POLICY_FIFO: return fetch_fifo(w, task);
    case WEFT_POLICY_PUSH: return fetch_policy(w, task);
    default: return weft__rings_fetch(w, task);
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
 * device `to` that waits.                                                                                              */
static void complete(const weft__worker *w, const weft_dev *to, const weft_queue_rt *q, const weft_counter *c)
{
    for (uint32_t i = 0; i < c->n_dep; i++) {
        uint32_t task = ((const uint32_t *)(uintptr_t)q->deps)[c->dep + i];
        uint32_t waits = waits_of_this_step(q, (const weft_task *)(uintptr_t)q->tasks + task);
        if (waits > 1 && !weft_arrive((weft_w32 *)(uintptr_t)q->pending + task, waits * w->step.uses)) continue;
        push_task(w, to, q, to == w->dev ? w->index : WEFT_NONE, task);
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
        if (weft_arrive(word, weft_target(w->dev->base, w->step.uses, 0, c->arrivals))) complete(w, to, q, c);
    }
}
