/* lanes.h: a queue policy of somebody's own (docs/policies.md): two lanes. Tasks in the first `urgent` percent of the plan's order
 * go to the fast lane, and nobody looks into the other one while the fast lane has a task.
 *
 *   words   head, tail of the fast lane | head, tail of the slow one, a line each | two rings                            */
#include "policy.h"

#define POLICY_PARAMS                                                                                                  \
    {                                                                                                                  \
        "urgent", 25, 0, 100                                                                                           \
    }

WEFT_POLICY_FN weft_w32 *lane_word(const weft_policy_queue *q, uint32_t i)
{
    return (weft_w32 *)(q->words + i * WEFT_POLICY_LINE);
}
WEFT_POLICY_FN weft_w64 *lane_ring(const weft_policy_queue *q, uint32_t lane)
{
    return q->words + 4 * WEFT_POLICY_LINE + (uint64_t)lane * q->capacity;
}

WEFT_POLICY_FN uint64_t policy_words(const weft_policy_queue *q)
{
    return 4 * WEFT_POLICY_LINE + 2 * (uint64_t)q->capacity;
}

WEFT_POLICY_FN void policy_init(const weft_policy_queue *q)
{
    for (uint32_t i = 0; i < 4; i++)
        *lane_word(q, i) = q->base;
    for (uint32_t i = 0; i < 2 * q->capacity; i++) { /* a ticket that the slot never holds */
        const uint32_t ticket = q->base + i % q->capacity;
        lane_ring(q, i / q->capacity)[ticket & (q->capacity - 1)] = (uint64_t)(ticket - q->capacity) << 32;
    }
}

WEFT_POLICY_FN void policy_push(const weft_policy_queue *q, uint32_t worker, uint32_t task)
{
    const uint32_t lane = (uint64_t)q->place[task] * 100 >= (uint64_t)q->n_task * q->param[0];
    (void)worker;
    weft_ring_push(lane_word(q, 2 * lane + 1), lane_ring(q, lane), q->capacity - 1, task);
}

WEFT_POLICY_FN int policy_pop(const weft_policy_queue *q, uint32_t worker, uint32_t *task)
{
    uint32_t head;
    (void)worker;
    for (uint32_t lane = 0; lane < 2; lane++)
        if (weft_ring_try_pop(lane_word(q, 2 * lane), lane_ring(q, lane), q->capacity - 1, &head, task)) return 1;
    return 0;
}

/* All tasks of the steps so far have been taken. */
WEFT_POLICY_FN int policy_done(const weft_policy_queue *q, uint32_t worker)
{
    (void)worker;
    return weft_ld_relaxed_sys(lane_word(q, 0)) - q->base + (weft_ld_relaxed_sys(lane_word(q, 2)) - q->base) ==
           q->n_task * q->uses;
}
