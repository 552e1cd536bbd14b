/* policy_push.h: the built-in push: one ring with tickets. A worker takes a ticket and waits for the task that is pushed under
 * it; a ticket beyond the step's tasks is kept for a later step.
 *
 *   words   head line | tail line | a line a worker: holds a ticket, its ticket | ring of `capacity` packets             */
#ifndef WEFT_MEGAKERNEL_POLICY_PUSH_H
#define WEFT_MEGAKERNEL_POLICY_PUSH_H

#include "policy.h"

WEFT_POLICY_FN weft_w32 *push_word(const weft_policy_queue *q, uint32_t line)
{
    return (weft_w32 *)(q->words + (uint64_t)line * WEFT_POLICY_LINE);
}

WEFT_POLICY_FN weft_w64 *push_ring(const weft_policy_queue *q)
{
    return q->words + (uint64_t)(2 + q->n_worker) * WEFT_POLICY_LINE;
}

WEFT_POLICY_FN uint64_t policy_words(const weft_policy_queue *q)
{
    return (uint64_t)(2 + q->n_worker) * WEFT_POLICY_LINE + q->capacity;
}

/* A slot's first content is a ticket that it never holds. */
WEFT_POLICY_FN void policy_init(const weft_policy_queue *q)
{
    *push_word(q, 0) = *push_word(q, 1) = q->base;
    for (uint32_t i = 0; i < q->capacity; i++) {
        const uint32_t ticket = q->base + i;
        push_ring(q)[ticket & (q->capacity - 1)] = (uint64_t)(ticket - q->capacity) << 32;
    }
}

WEFT_POLICY_FN void policy_push(const weft_policy_queue *q, uint32_t worker, uint32_t task)
{
    (void)worker;
    weft_ring_push(push_word(q, 1), push_ring(q), q->capacity - 1, task);
}

/* The worker's ticket as a position in the step's tasks; n_task or more: it belongs to a later step. */
WEFT_POLICY_FN uint32_t push_position(const weft_policy_queue *q, uint32_t worker)
{
    weft_w32 *own = push_word(q, 2 + worker);
    if (!weft_ld_relaxed_gpu(own)) {
        weft_st_relaxed_gpu(own + 1, weft_atom_add_relaxed_gpu(push_word(q, 0), 1));
        weft_st_relaxed_gpu(own, 1);
    }
    return weft_ld_relaxed_gpu(own + 1) - q->base - q->n_task * (q->uses - 1);
}

WEFT_POLICY_FN int policy_pop(const weft_policy_queue *q, uint32_t worker, uint32_t *task)
{
    weft_w32 *own = push_word(q, 2 + worker);
    if (push_position(q, worker) >= q->n_task ||
        !weft_ring_poll(push_ring(q), q->capacity - 1, weft_ld_relaxed_gpu(own + 1), task))
        return 0;
    weft_st_relaxed_gpu(own, 0);
    return 1;
}

WEFT_POLICY_FN int policy_done(const weft_policy_queue *q, uint32_t worker)
{
    return push_position(q, worker) >= q->n_task;
}

#endif
