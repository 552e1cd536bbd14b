/* protocol.h: what workers and host do to shared words, one function a step of the protocol.
 *
 * Enters: pointers to shared words (weft_w32, weft_w64) from an order header included before: order_c11.h for emulated
 * devices and the host, a test's own for model checking. The CUDA kernel keeps to the same steps in PTX. docs/protocol.md
 * lists each release with its acquire, and what breaks when one is weakened.
 * All counts are free-running 32-bit numbers, compared by modular difference.                                          */
#ifndef WEFT_MEGAKERNEL_PROTOCOL_H
#define WEFT_MEGAKERNEL_PROTOCOL_H

#include <stdint.h>

#ifndef WEFT_PROTOCOL_FN /* policy.h compiles these as device code too */
#define WEFT_PROTOCOL_FN static inline
#endif

/* -------------------------------------------------------------------------------------------------------- counters */

WEFT_PROTOCOL_FN uint32_t weft_target(uint32_t base, uint32_t uses, uint32_t lag, uint32_t arrivals)
{
    return base + (uses - lag) * arrivals;
}

/* A producer's arrival: its outputs are written before. Pairs with weft_counter_ready. */
WEFT_PROTOCOL_FN void weft_signal_counter(weft_w32 *word) { weft_red_release_sys(word, 1); }

/* Polled by a consumer; once true, it may read what all producers wrote. Only the last look pays for an acquire. */
WEFT_PROTOCOL_FN int weft_counter_ready(const weft_w32 *word, uint32_t target, uint32_t *seen)
{
    *seen = weft_ld_relaxed_sys(word);
    if (!weft_reached(*seen, target)) return 0;
    *seen = weft_ld_acquire_sys(word); /* pairs with weft_signal_counter */
    return 1;
}

/* Push family: an arrival that tells whether it was the last one. The last arriver has acquired what all others wrote, and
 * hands it on with what it does next (weft_arrive on a pending word, weft_ring_push).                                  */
WEFT_PROTOCOL_FN int weft_arrive(weft_w32 *word, uint32_t target)
{
    return weft_atom_add_acq_rel_sys(word, 1) + 1 == target;
}

/* --------------------------------------------------------------------------------------------------------- packets */

WEFT_PROTOCOL_FN uint64_t weft_packet(uint32_t data, uint32_t tag) { return data | (uint64_t)tag << 32; }

/* Data and readiness travel in one word, so nothing needs ordering; reuse is ordered by the step gate. */
WEFT_PROTOCOL_FN void weft_packet_put(weft_w64 *p, uint32_t data, uint32_t tag)
{
    weft_st_relaxed_b64_sys(p, weft_packet(data, tag));
}

/* 1: *data is this step's. 0: not yet. -1: from a step that has not begun. */
WEFT_PROTOCOL_FN int weft_packet_poll(const weft_w64 *p, uint32_t tag, uint32_t *data)
{
    uint64_t v = weft_ld_relaxed_b64_sys(p);
    int32_t ahead = (int32_t)((uint32_t)(v >> 32) - tag);
    *data = (uint32_t)v;
    return ahead == 0 ? 1 : ahead < 0 ? 0 : -1;
}

/* ----------------------------------------------------------------------------------------------------------- rings
 * Slots are packets (task, ticket): a slot holds ticket t once its upper half is t. A ring holds all tasks of its device, and
 * a step's tasks are all taken before the next step pushes, so a slot is never written before it was read.              */

WEFT_PROTOCOL_FN void weft_ring_push(weft_w32 *tail, weft_w64 *ring, uint32_t mask, uint32_t task)
{
    uint32_t ticket = weft_atom_add_relaxed_sys(tail, 1);
    weft_st_release_b64_sys(&ring[ticket & mask], weft_packet(task, ticket)); /* pairs with weft_ring_poll, _try_pop */
}

/* push: has the task of `ticket` (taken by an atomic add on head) been pushed? */
WEFT_PROTOCOL_FN int weft_ring_poll(const weft_w64 *ring, uint32_t mask, uint32_t ticket, uint32_t *task)
{
    const weft_w64 *slot = &ring[ticket & mask];
    if ((uint32_t)(weft_ld_relaxed_b64_sys(slot) >> 32) != ticket) return 0;
    *task = (uint32_t)weft_ld_acquire_b64_sys(slot); /* pairs with weft_ring_push */
    return 1;
}

/* steal, priority: takes a task if there is one. Nobody holds a place in these rings, so an idle worker may look at the next.
 * *head is what was seen; a pop that lost its race returns 0 and is tried again by the caller's loop.                   */
WEFT_PROTOCOL_FN int weft_ring_peek(const weft_w32 *head_word, const weft_w64 *ring, uint32_t mask, uint32_t *head,
                                    uint32_t *task)
{
    uint32_t h = weft_ld_relaxed_sys(head_word);
    uint64_t v = weft_ld_acquire_b64_sys(&ring[h & mask]); /* pairs with weft_ring_push */
    *head = h;
    *task = (uint32_t)v;
    return (uint32_t)(v >> 32) == h;
}

/* Takes the task that was seen at `head`; 0: another was faster. The slot's acquire has ordered what the task reads. */
WEFT_PROTOCOL_FN int weft_ring_take(weft_w32 *head_word, uint32_t head)
{
    return weft_atom_cas_relaxed_sys(head_word, head, head + 1) == head;
}

WEFT_PROTOCOL_FN int weft_ring_try_pop(weft_w32 *head_word, const weft_w64 *ring, uint32_t mask, uint32_t *head,
                                       uint32_t *task)
{
    return weft_ring_peek(head_word, ring, mask, head, task) && weft_ring_take(head_word, *head);
}

/* steal with amount=half: up to `most` tasks, oldest first; 0: another was faster, or there is none. What the slots held counts
 * only if the head then moves, so it doesn't matter that others may read and push them meanwhile.                      */
WEFT_PROTOCOL_FN uint32_t weft_ring_take_run(weft_w32 *head_word, const weft_w64 *ring, uint32_t mask, uint32_t most,
                                             uint32_t *tasks)
{
    const uint32_t head = weft_ld_relaxed_sys(head_word);
    uint32_t n = 0;
    while (n < most && weft_ring_poll(ring, mask, head + n, &tasks[n])) /* pairs with weft_ring_push */
        n++;
    /* The release is for who looks whether all are taken: it acquires the heads, then reads what thieves have brought. */
    return n && weft_atom_cas_acq_rel_sys(head_word, head, head + n) == head ? n : 0;
}

/* ---------------------------------------------------------------------------------------------------------- stacks
 * steal with end=lifo (Treiber 1986). `top`: tasks taken so far, and the top task plus 1 in the upper half, 0 for none.
 * below[task]: the one under it, plus 1. A task lies on one stack at a time. A top that comes back was taken, and then the
 * count has changed, so a compare-and-swap that succeeds has found what it saw (in 2^32 takes).                        */

WEFT_PROTOCOL_FN void weft_stack_push(weft_w64 *top, weft_w32 *below, uint32_t task)
{
    uint64_t seen = weft_ld_relaxed_b64_sys(top), now;
    for (;; seen = now) {
        weft_st_relaxed_sys(&below[task], (uint32_t)(seen >> 32));
        now = weft_atom_cas_acq_rel_b64_sys(top, seen, weft_packet((uint32_t)seen, task + 1)); /* pairs with _peek */
        if (now == seen) return;
    }
}

/* Up to `most` of n_task tasks from the top; *seen is for weft_stack_take, and what was read holds if that succeeds. All later
 * changes of top are read-modify-writes, so its acquire meets every push below.                                       */
WEFT_PROTOCOL_FN uint32_t weft_stack_peek(const weft_w64 *top, const weft_w32 *below, uint32_t n_task, uint32_t most,
                                          uint32_t *tasks, uint64_t *seen)
{
    *seen = weft_ld_acquire_b64_sys(top); /* pairs with weft_stack_push */
    uint32_t n = 0, at = (uint32_t)(*seen >> 32);
    for (; at && at <= n_task && n < most; at = weft_ld_relaxed_sys(&below[at - 1]))
        tasks[n++] = at - 1;
    return n;
}

/* Takes the n tasks that were seen, the lowest of them `last`; 0: another was faster. */
WEFT_PROTOCOL_FN int weft_stack_take(weft_w64 *top, const weft_w32 *below, uint32_t n, uint32_t last, uint64_t seen)
{
    const uint64_t next = weft_packet((uint32_t)seen + n, weft_ld_relaxed_sys(&below[last]));
    return weft_atom_cas_acq_rel_b64_sys(top, seen, next) == seen;
}

/* The CUDA kernel's way with the rings of steal and priority, where a hundred workers would fail against each other by
 * compare-and-swap: a worker claims tasks by number first, then takes as many tickets by an atomic add on head, so it never holds
 * a ticket without a task (weft_ring_poll may have to wait for the push that is under way). `unclaimed` is a signed count, from 0;
 * a claim that fails dips below for a moment. It orders nothing: the slot does.                                      */
WEFT_PROTOCOL_FN void weft_ring_offer(weft_w32 *unclaimed, uint32_t n) /* after as many weft_ring_push */
{
    weft_atom_add_relaxed_sys(unclaimed, n);
}

WEFT_PROTOCOL_FN int weft_ring_claim(weft_w32 *unclaimed, uint32_t n)
{
    if ((int32_t)weft_ld_relaxed_sys(unclaimed) <= 0) return 0;
    if ((int32_t)weft_atom_add_relaxed_sys(unclaimed, 0u - n) >= (int32_t)n) return 1;
    weft_atom_add_relaxed_sys(unclaimed, n);
    return 0;
}

/* -------------------------------------------------------------------------------------------------------- doorbell */

/* Host: publishes a record whose payload is written. Each word of the head carries the tag; the release on each makes the
 * payload visible to whoever has acquired any of them. Pairs with weft_record_poll.                                    */
WEFT_PROTOCOL_FN void weft_record_post(weft_w64 *head, const uint32_t words[16], uint32_t seq)
{
    for (uint32_t i = 0; i < 16; i++)
        weft_st_release_b64_sys(&head[i], weft_packet(words[i], seq));
}

/* Forwarder: 1 when all 16 words of step `seq` are there. */
WEFT_PROTOCOL_FN int weft_record_poll(const weft_w64 *head, uint32_t words[16], uint32_t seq)
{
    if ((uint32_t)(weft_ld_relaxed_b64_sys(&head[0]) >> 32) != seq) return 0;
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t v = weft_ld_acquire_b64_sys(&head[i]); /* pairs with weft_record_post */
        if ((uint32_t)(v >> 32) != seq) return 0;
        words[i] = (uint32_t)v;
    }
    return 1;
}

/* ----------------------------------------------------------------------------------------------------------- abort */

/* 1: this caller is the first, and writes the report. Order comes with the report's own release and acquire. */
WEFT_PROTOCOL_FN int weft_abort_win(weft_w32 *abort, uint32_t cause)
{
    return weft_atom_cas_relaxed_sys(abort, 0, cause) == 0;
}

#endif
