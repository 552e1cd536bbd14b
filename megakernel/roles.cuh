// roles.cuh: the four warps that move tasks through a worker: fetcher, loader, waiter, signaler.
//
// Each walks the same sequence of slots. See cta.cuh for who hands what to whom, and abi.h for the protocol's words.
#ifndef WEFT_ROLES_CUH
#define WEFT_ROLES_CUH

#include "cta.cuh"

// ------------------------------------------------------------------------------------------------------- the fetcher

struct fetcher {
    uint32_t n = 0;     // slots filled so far
    uint32_t step = 0;  // last step whose record has been read
    uint32_t holds = 0; // bit v: a ticket of variant v's ring is held
};

// All 16 words of step s's head, one a lane, once they carry its tag: one trip, as with any packet. Waiting has no deadline;
// only an abort ends it. False: leave.
WEFT_DEV bool await_head(const cta &c, const uint64_t *from, bool sys, uint32_t s, uint64_t *head)
{
    uint32_t lane = threadIdx.x % 32;
    poll p;
    for (;;) {
        *head = (uint64_t)s << 32;
        if (lane < 16) *head = sys ? weft_ld_relaxed_b64_sys(from + lane) : weft_ld_relaxed_b64_gpu(from + lane);
        if (__all_sync(~0u, (uint32_t)(*head >> 32) == s)) return true;
        if (!keep_polling_for(c, p, s, 0, {WEFT_ABORT_HOST, WEFT_NONE, WEFT_NONE, s, 0})) return false;
    }
}

// Copies the record of step s from the host's ring to every device's: the payload first, if there is one, then the head's
// packets, which await_step polls. Worker 0 of device 0 only; whole warp.
WEFT_DEV bool forward_step(const cta &c, uint32_t s)
{
    uint32_t lane = threadIdx.x % 32;
    const weft_step_record *from = &mailbox(c)->ring[s % WEFT_STEP_RING];
    uint64_t head;
    if (!await_head(c, from->head, true, s, &head)) return false;
    uint32_t payload = __shfl_sync(~0u, (uint32_t)head, 5);
    if (payload) weft_fence_acq_rel_sys(); // the host released the head after the payload
    for (uint32_t d = 0; payload && d < smem()->n_device; d++) {
        weft_step_record *to = &peer_ctl(c, d)->ring[s % WEFT_STEP_RING];
        for (uint32_t i = lane; i < (payload + 15) / 16; i += 32)
            ((uint4 *)to->payload)[i] = ld_cg(from->payload + i * 16);
    }
    if (payload) weft_fence_acq_rel_sys(); // pairs with the one in await_step
    for (uint32_t d = 0; d < smem()->n_device; d++) {
        uint64_t *to = peer_ctl(c, d)->ring[s % WEFT_STEP_RING].head + lane;
        if (lane < 16 && d == smem()->device)
            weft_st_relaxed_b64_gpu(to, head);
        else if (lane < 16)
            weft_st_relaxed_b64_sys(to, head);
    }
    return true;
}

// Reads the head of the next step into sm->step. False: leave.
WEFT_DEV bool await_step(const cta &c, fetcher &f)
{
    uint32_t lane = threadIdx.x % 32, s = f.step + 1;
    if (smem()->device == 0 && smem()->worker == 0 && !forward_step(c, s)) return false;
    uint64_t head;
    if (!await_head(c, smem()->ctl->ring[s % WEFT_STEP_RING].head, smem()->device != 0, s, &head)) return false;
    if (__shfl_sync(~0u, (uint32_t)head, 5)) weft_fence_acq_rel_sys(); // the payload: pairs with forward_step
    if (lane < 16) ((uint32_t *)&smem()->step[s % STEPS])[lane] = (uint32_t)head;
    __syncwarp();
    f.step = s;
    return true;
}

// ------------------------------------------------------------------------------------- waits and signals of a task

WEFT_DEV weft_wait wait_of(const weft_queue_rt &q, const weft_task &t, uint32_t i)
{
    if (i < 2) return t.wait[i];
    uint64_t w = __ldg((const unsigned long long *)q.side + t.extra + i - 2);
    return {(uint32_t)w, (uint16_t)(w >> 32), (uint8_t)(w >> 48), (uint8_t)(w >> 56)};
}

WEFT_DEV uint32_t scope_of(const weft_queue_rt &q, uint32_t counter)
{
    return __ldg(&((const weft_counter *)q.counters)[counter].scope);
}

WEFT_DEV weft_signal signal_of(const weft_queue_rt &q, const weft_task &t, uint32_t i)
{
    if (i < 2) return t.signal[i];
    uint32_t waits = t.n_wait > 2 ? t.n_wait - 2 : 0;
    uint64_t w = __ldg((const unsigned long long *)q.side + t.extra + waits + i - 2);
    return {(uint32_t)w, (uint16_t)(w >> 32), (uint16_t)(w >> 48)};
}

// Waits for a free slot and puts a task into it (id WEFT_NONE: a slot without a task). Whole warp.
WEFT_DEV bool put_slot(fetcher &f, const weft_dev *dev, const weft_queue_rt *q, uint32_t id, uint32_t flags)
{
    uint32_t lane = threadIdx.x % 32, sys = 0;
    weft_slot &s = smem()->slot[f.n % SLOTS];
    uint4 part = {}, op = {}; // lanes 0..3: the descriptor; 0..8: the op
    uint32_t *word[2] = {};   // lane 2: of the inline waits; 3: of the inline signals
    if (id != WEFT_NONE) {
        if (lane < 4) part = __ldg((const uint4 *)((const weft_task *)q->tasks + id) + lane);
        uint32_t head = __shfl_sync(~0u, part.x, 0),
                 counts = __shfl_sync(~0u, part.y, 0); // kind, alt_device, op; n_wait, n_signal
        bool bare = (head & 0xff) == WEFT_KIND_NOP || (head & 0xff) == WEFT_KIND_MIX; // its op is not looked at
        if (!bare && lane < sizeof(weft_op_rt) / 16)
            op = __ldg((const uint4 *)((const weft_op_rt *)dev->ops + (head >> 16)) + lane);
        uint32_t n = lane == 2 ? counts & 0xffff : counts >> 16;
        bool waits = smem()->policy <= WEFT_POLICY_FIFO;
        if (lane == 3 || (lane == 2 && waits)) {
            if (n > 0) word[0] = counter_word(*q, lane == 2 ? smem()->device : part.y & 0xffff, part.x);
            if (n > 1) word[1] = counter_word(*q, lane == 2 ? smem()->device : part.w & 0xffff, part.z);
        }
        if (lane == 2 && waits && smem()->n_device > 1)
            for (uint32_t i = 0; i < 2 && i < n; i++)
                sys |= scope_of(*q, i ? part.z : part.x) << i;
    } else {
        flags |= SLOT_EMPTY;
    }
    sys = __shfl_sync(~0u, sys, 2);
    if (!await_free_slot(f.n)) return false;
    if (id != WEFT_NONE) {
        if (lane < 4) ((uint4 *)&s.task)[lane] = part;
        if (lane < sizeof(weft_op_rt) / 16) ((uint4 *)&s.op)[lane] = op;
        if (lane == 2) s.wait_word[0] = word[0], s.wait_word[1] = word[1];
        if (lane == 3) s.signal_word[0] = word[0], s.signal_word[1] = word[1];
    }
    if (lane == 0) {
        s.id = id, s.flags = flags, s.step = f.step % STEPS, s.ready = 0, s.first_page = NO_PAGE, s.wait_sys = sys;
        s.t_pop = smem()->trace ? clock_ticks() : 0;
    }
    __syncwarp();
    if (lane == 0) mbar_arrive(&smem()->slot_full[f.n % SLOTS]);
    f.n++;
    return true;
}

WEFT_DEV bool fetch_static(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    const uint32_t *first = (const uint32_t *)q->list_first + smem()->worker, *list = (const uint32_t *)q->list;
    uint32_t i = __ldg(first), end = __ldg(first + 1), lane = threadIdx.x % 32, ids = 0;
    if (i == end) return put_slot(f, c.dev, q, WEFT_NONE, SLOT_FIRST | SLOT_LAST);
    for (uint32_t k = 0; i < end; i++, k++) {
        if (k % 32 == 0) ids = i + lane < end ? __ldg(list + i + lane) : 0;
        uint32_t id = __shfl_sync(~0u, ids, k % 32);
        if (!put_slot(f, c.dev, q, id, (k == 0 ? SLOT_FIRST : 0) | (i + 1 == end ? SLOT_LAST : 0))) return false;
    }
    return true;
}

// The step gate: every device that this one writes to, itself included, has finished the step before. One thread.
WEFT_DEV bool await_gate(const cta &c, const weft_step_head &step)
{
    uint32_t before = step.seq - 1, all = smem()->base + smem()->n_worker * before, seen;
    poll p;
    while (!weft_reached(seen = weft_ld_acquire_gpu(&smem()->ctl->done.value),
                         all)) // released in finish_step, by each worker
        if (!keep_polling(c, p, step, {WEFT_ABORT_GATE, WEFT_NONE, smem()->device, all, seen})) return false;
    for (uint32_t d = 0; d < smem()->n_device; d++) {
        if (d == smem()->device || !(smem()->peers >> d & 1)) continue;
        while (!weft_reached(seen = weft_ld_acquire_sys(&smem()->ctl->finished[d].value),
                             before)) // finish_step, last worker of d
            if (!keep_polling(c, p, step, {WEFT_ABORT_GATE, WEFT_NONE, d, before, seen})) return false;
    }
    return true;
}

// Makes `id` poppable. The caller's acquire of all its inputs happens before; the popper acquires the slot.
// Lanes that call it together take neighbouring tickets with one atomic.
WEFT_DEV void push_task(const weft_queue_rt &q, uint32_t id, bool sys)
{
    uint32_t *tail = &((weft_line *)q.heads)[1].value, active = __activemask(), lane = threadIdx.x % 32,
             leader = __ffs(active) - 1, t = 0;
    if (lane == leader)
        t = sys ? weft_atom_add_relaxed_sys(tail, __popc(active)) : weft_atom_add_relaxed_gpu(tail, __popc(active));
    t = __shfl_sync(active, t, leader) + __popc(active & ((1u << lane) - 1));
    uint64_t *slot = (uint64_t *)q.ring + (t & q.ring_mask), v = id | (uint64_t)t << 32;
    if (sys)
        weft_st_release_b64_sys(slot, v); // acquired in pop_task
    else
        weft_st_release_b64_gpu(slot, v);
}

// steal, priority: a ring is two lines and its packets. In the tail's line: tasks that were pushed and that nobody has claimed,
// from 0; in the first ring's head's line: tasks claimed from all rings of the variant, from 0.
WEFT_DEV weft_line *ring_tail(const weft_queue_rt &q, uint32_t ring) { return (weft_line *)q.heads + 2 * ring + 1; }
WEFT_DEV uint32_t *unclaimed_in(const weft_queue_rt &q, uint32_t ring) { return &ring_tail(q, ring)->pad[1]; }
WEFT_DEV uint32_t *claimed_of(const weft_queue_rt &q) { return &((weft_line *)q.heads)[0].pad[1]; }
WEFT_DEV uint32_t ring_of(const weft_queue_rt &q, uint32_t id) { return __ldg((const uint16_t *)q.ring_of + id); }
WEFT_DEV uint64_t *ring_slot(const weft_queue_rt &q, uint32_t ring, uint32_t ticket)
{
    return (uint64_t *)q.ring + (uint64_t)ring * (q.ring_mask + 1) + (ticket & q.ring_mask);
}

// push_task for these. Lanes that push into the same ring do it with one atomic each on its two words. The count comes last:
// a task that was counted has its ticket, and its slot is written or about to be.
WEFT_DEV void push_to_ring(const weft_queue_rt &q, uint32_t id, uint32_t ring, bool sys)
{
    uint32_t same = __match_any_sync(__activemask(), ring), lane = threadIdx.x % 32, leader = __ffs(same) - 1, t = 0;
    uint32_t *tail = &ring_tail(q, ring)->value, *unclaimed = unclaimed_in(q, ring);
    sys |= smem()->n_device > 1; // whoever else pushes here or claims has the same scope
    if (lane == leader)
        t = sys ? weft_atom_add_relaxed_sys(tail, __popc(same)) : weft_atom_add_relaxed_gpu(tail, __popc(same));
    t = __shfl_sync(same, t, leader) + __popc(same & ((1u << lane) - 1));
    uint64_t *slot = ring_slot(q, ring, t), v = id | (uint64_t)t << 32;
    if (sys)
        weft_st_release_b64_sys(slot, v); // acquired in take_claimed
    else
        weft_st_release_b64_gpu(slot, v);
    if (lane != leader) return;
    if (sys)
        weft_atom_add_relaxed_sys(unclaimed, __popc(same));
    else
        weft_atom_add_relaxed_gpu(unclaimed, __popc(same));
}

WEFT_DEV void take_ticket(const cta &c, const weft_queue_rt *q, uint32_t v)
{
    if (threadIdx.x % 32 == 0) smem()->ticket[v] = weft_atom_add_relaxed_gpu(&((weft_line *)q->heads)[0].value, 1);
    __syncwarp();
}

// This worker's ticket, as a position among the step's tasks; n_task or more: it belongs to a later step, and is kept.
WEFT_DEV uint32_t ticket_position(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    const weft_step_head &step = smem()->step[f.step % STEPS];
    if (!(f.holds >> step.variant & 1)) take_ticket(c, q, step.variant);
    f.holds |= 1u << step.variant;
    return smem()->ticket[step.variant] - smem()->base - q->n_task * (step.uses - 1);
}

// Waits for the task of this worker's ticket; the caller then takes the next ticket. *id = WEFT_NONE: the step has no more.
WEFT_DEV bool pop_task(const cta &c, fetcher &f, const weft_queue_rt *q, uint32_t *id)
{
    *id = WEFT_NONE;
    if (ticket_position(c, f, q) >= q->n_task) return true;
    const weft_step_head &step = smem()->step[f.step % STEPS];
    uint32_t t = smem()->ticket[step.variant];
    const uint64_t *slot = (const uint64_t *)q->ring + (t & q->ring_mask);
    uint64_t got;
    bool many = smem()->n_device > 1; // another device may push
    poll p;
    while ((uint32_t)((got = (many ? weft_ld_acquire_b64_sys(slot) : weft_ld_acquire_b64_gpu(slot))) >> 32) != t ||
           (uint32_t)got == WEFT_NONE) // push_task
        if (!keep_polling(c, p, step, {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, t, (uint32_t)(got >> 32)})) return false;
    *id = (uint32_t)got;
    return true;
}

// Keeps a worker from taking more than two tasks that it can't run yet: another may be idle.
WEFT_DEV bool await_idle(const cta &c, const fetcher &f)
{
    return f.n < 2 || await(&smem()->slot_done[(f.n - 2) % SLOTS], slot_parity(f.n - 2));
}

WEFT_DEV bool fetch_fifo(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    for (uint32_t flags = SLOT_FIRST;; flags = 0) {
        if (!await_idle(c, f)) return false;
        uint32_t i = ticket_position(c, f, q);
        if (i >= q->n_task) return put_slot(f, c.dev, q, WEFT_NONE, flags | SLOT_LAST);
        uint32_t id = __ldg((const uint32_t *)q->list + i);
        __syncwarp();
        take_ticket(c, q, smem()->step[f.step % STEPS].variant);
        if (!put_slot(f, c.dev, q, id, flags)) return false;
    }
}

// Each worker pushes its share of the tasks that wait for nothing.
WEFT_DEV bool push_ready(const cta &c, const fetcher &f, const weft_queue_rt *q)
{
    uint32_t lane = threadIdx.x % 32;
    bool rings = smem()->policy != WEFT_POLICY_PUSH;
    if (q->n_ready0 > smem()->worker * 32 && !__all_sync(~0u, await_gate(c, smem()->step[f.step % STEPS])))
        return false;
    for (uint32_t i = smem()->worker * 32 + lane; i < q->n_ready0; i += smem()->n_worker * 32) {
        uint32_t id = __ldg((const uint32_t *)q->ready0 + i);
        if (rings)
            push_to_ring(*q, id, ring_of(*q, id), false);
        else
            push_task(*q, id, false);
    }
    __syncwarp();
    return true;
}

WEFT_DEV bool fetch_push(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    if (!push_ready(c, f, q)) return false;
    for (uint32_t flags = SLOT_FIRST;; flags = 0) {
        if (!await_idle(c, f)) return false;
        uint32_t id;
        if (!pop_task(c, f, q, &id)) return false;
        if (id == WEFT_NONE) return put_slot(f, c.dev, q, WEFT_NONE, flags | SLOT_LAST);
        if (!put_slot(f, c.dev, q, id, flags)) return false;
        take_ticket(c, q, smem()->step[f.step % STEPS].variant);
    }
}

// Looks into `rings` rings from `first` on, 32 at a time, and claims tasks of the first that has any: one, or four where there are
// so many that nobody goes without. The number of tasks; 0: there was none, or others were faster. Whole warp.
WEFT_DEV uint32_t claim_tasks(const weft_queue_rt &q, uint32_t first, uint32_t rings, uint32_t plenty, uint32_t *ring)
{
    uint32_t lane = threadIdx.x % 32;
    bool many = smem()->n_device > 1; // another device may push
    for (uint32_t i = 0; i < rings; i += 32) {
        uint32_t r = first + i + lane, seen = 0;
        if (r >= q.n_ring) r -= q.n_ring;
        if (i + lane < rings)
            seen = many ? weft_ld_relaxed_sys(unclaimed_in(q, r)) : weft_ld_relaxed_gpu(unclaimed_in(q, r));
        uint32_t some = __ballot_sync(~0u, (int32_t)seen > 0);
        if (some == 0) continue;
        *ring = __shfl_sync(~0u, r, __ffs(some) - 1);
        uint32_t n = __shfl_sync(~0u, seen, __ffs(some) - 1) >= plenty ? 4 : 1, *word = unclaimed_in(q, *ring), had = 0;
        if (lane == 0) had = many ? weft_atom_add_relaxed_sys(word, 0u - n) : weft_atom_add_relaxed_gpu(word, 0u - n);
        had = __shfl_sync(~0u, had, 0);
        if ((int32_t)had >= (int32_t)n) return n;
        if (lane == 0) many ? weft_atom_add_relaxed_sys(word, n) : weft_atom_add_relaxed_gpu(word, n);
        return 0;
    }
    return 0;
}

// The tasks that were claimed, lane i's in *id: takes their tickets, and waits for their slots, which are written or about to be.
WEFT_DEV bool take_claimed(const cta &c, const fetcher &f, const weft_queue_rt &q, uint32_t ring, uint32_t n,
                           uint32_t *id)
{
    const weft_step_head &step = smem()->step[f.step % STEPS];
    uint32_t lane = threadIdx.x % 32, t = 0;
    bool many = smem()->n_device > 1;
    if (lane == 0) {
        t = weft_atom_add_relaxed_gpu(&(ring_tail(q, ring) - 1)->value, n);
        weft_atom_add_relaxed_gpu(claimed_of(q), n);
    }
    t = __shfl_sync(~0u, t, 0) + min(lane, n - 1);
    const uint64_t *slot = ring_slot(q, ring, t);
    poll p;
    for (;;) {
        uint64_t got = many ? weft_ld_acquire_b64_sys(slot) : weft_ld_acquire_b64_gpu(slot); // released in push_to_ring
        *id = (uint32_t)got;
        if (__all_sync(~0u, (uint32_t)(got >> 32) == t)) return true;
        bool on = keep_polling(c, p, step, {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, t, (uint32_t)(got >> 32)});
        if (!__all_sync(~0u, on)) return false;
    }
}

// steal: a ring a worker, its own first; one look in four goes into all of them. priority: a ring a rank, the lowest first.
// Nobody holds a place in a ring (protocol.h: weft_ring_claim), so an idle worker takes what comes first, wherever it comes.
WEFT_DEV bool fetch_rings(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    if (!push_ready(c, f, q)) return false;
    const weft_step_head &step = smem()->step[f.step % STEPS];
    bool steal = smem()->policy == WEFT_POLICY_STEAL;
    uint32_t first = steal ? smem()->worker : 0, plenty = steal ? 8 : 8 * smem()->n_worker;
    uint32_t all = q->n_task * step.uses, flags = SLOT_FIRST;
    for (;;) {
        uint32_t ring, n, id, seen;
        poll p;
        if (!await_idle(c, f)) return false;
        while ((n = claim_tasks(*q, first, steal && p.n % 4 ? 1 : q->n_ring, plenty, &ring)) == 0) {
            seen = weft_ld_relaxed_gpu(claimed_of(*q));
            if (seen == all) return put_slot(f, c.dev, q, WEFT_NONE, flags | SLOT_LAST);
            bool on = keep_polling(c, p, step, {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, all, seen});
            if (!__all_sync(~0u, on)) return false;
        }
        if (!take_claimed(c, f, *q, ring, n, &id)) return false;
        for (uint32_t i = 0; i < n; i++, flags = 0)
            if (!await_idle(c, f) || !put_slot(f, c.dev, q, __shfl_sync(~0u, id, i), flags)) return false;
    }
}

// A stop is a step without tasks, so that all counts can go on from there when the kernel is launched again. Tickets of
// steps to come are given back: all workers of the device are between steps, and nobody takes one meanwhile.
WEFT_DEV void fetch_stop(const cta &c, fetcher &f)
{
    uint32_t lane = threadIdx.x % 32;
    if (lane < WEFT_MAX_VARIANTS && f.holds >> lane & 1)
        weft_atom_add_relaxed_gpu(&((weft_line *)smem()->queue[lane].heads)[0].value, ~0u);
    __syncwarp();
    if (put_slot(f, c.dev, nullptr, WEFT_NONE, SLOT_FIRST | SLOT_LAST))
        put_slot(f, c.dev, nullptr, WEFT_NONE, SLOT_EXIT);
}

template <bool RINGS> WEFT_DEV void fetch_loop(const cta &c)
{
    fetcher f;
    f.step = weft_ld_relaxed_sys(&mailbox(c)->completed[smem()->device].value); // not 0: the kernel was parked
    for (;;) {
        if (!await_step(c, f)) return;
        const weft_step_head &step = smem()->step[f.step % STEPS];
        if (step.flags & WEFT_STEP_STOP) return fetch_stop(c, f);
        const weft_queue_rt *q = &smem()->queue[step.variant];
        bool ok;
        if constexpr (RINGS)
            ok = smem()->policy == WEFT_POLICY_PUSH ? fetch_push(c, f, q) : fetch_rings(c, f, q);
        else
            ok = smem()->policy == WEFT_POLICY_STATIC ? fetch_static(c, f, q) : fetch_fifo(c, f, q);
        if (!ok) return;
        if (f.step == c.dev->max_steps) {
            put_slot(f, c.dev, nullptr, WEFT_NONE, SLOT_EXIT);
            return;
        }
    }
}

// -------------------------------------------------------------------------------------------------------- the waiter

// Brings chunks [from, to) of 512 columns of x into their pages of a streaming GEMM's sequence. False: leave.
WEFT_DEV bool load_x(weft_slot &s, uint32_t from, uint32_t to)
{
    uint32_t it;
    while ((it = lds_acquire(&s.first_page)) == NO_PAGE) // released in load_stream
        if (leaving()) return false;
    uint32_t kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16, rows = stream_rows(s);
    uint32_t all = weft_div_up(s.op.m, 8), blocks = weft_div_up(rows, 8), width = x_blocks(rows);
    uint32_t pages = x_pages(width), per_page = 8 / pages;
    fence_proxy_async_global(); // x was written by ordinary stores
    it += from * (pages + s.task.tile[2]);
    for (uint32_t ch = from; ch < to; ch++, it += s.task.tile[2])
        for (uint32_t i = 0; i < pages; i++, it++) {
            uint32_t kb = ch * 8 + i * per_page, n = kb < nkb ? min(per_page, nkb - kb) : 0;
            uint64_t *bar = &smem()->full[it % PAGES];
            uint8_t *page = smem()->page[it % PAGES];
            const uint8_t *x = (const uint8_t *)s.op.x +
                               ((uint64_t)(kb0 + kb) * all + s.task.tile[0] / 8) * WEFT_FRAG_BYTES;
            if (!claim_x_page(it % PAGES, it / PAGES)) return false;
            mbar_arrive_expect(bar, n * blocks * WEFT_FRAG_BYTES);
            if (blocks == all && blocks == width && n)
                bulk_load(page, x, n * blocks * WEFT_FRAG_BYTES, bar);
            else
                for (uint32_t j = 0; j < n; j++)
                    bulk_load(page + j * width * WEFT_FRAG_BYTES, x + (uint64_t)j * all * WEFT_FRAG_BYTES,
                              blocks * WEFT_FRAG_BYTES, bar);
        }
    return true;
}

WEFT_DEV bool await_counters(const cta &c, weft_slot &s)
{
    const weft_step_head &step = step_of(s);
    const weft_queue_rt &q = queue_of(s);
    uint32_t chunk = 0, first = (s.task.tile[3] & 0xffff) / 8, chunks = weft_div_up(s.task.tile[3] >> 16, 8);
    for (uint32_t i = 0; i < s.task.n_wait; i++) {
        weft_wait w = wait_of(q, s.task, i);
        if (w.due > first + chunk && x_in_pages(s)) { // chunks before `due` may go
            uint32_t to = min(w.due - first, chunks);
            if (!load_x(s, chunk, to)) return false;
            chunk = to;
        }
        const uint32_t *word = i < 2 ? s.wait_word[i] : counter_word(q, smem()->device, w.counter);
        uint32_t target = smem()->base + (step.uses - w.lag) * w.arrivals, seen;
        bool sys = i < 2 ? s.wait_sys >> i & 1 : scope_of(q, w.counter) == WEFT_SCOPE_SYS;
        poll p;
        // Released in signal_static, by each producer.
        while (!weft_reached(seen = sys ? weft_ld_relaxed_sys(word) : weft_ld_relaxed_gpu(word), target))
            if (!keep_polling(c, p, step, {WEFT_ABORT_COUNTER, s.id, w.counter, target, seen})) return false;
        if (sys)
            weft_ld_acquire_sys(word);
        else
            weft_ld_acquire_gpu(word);
    }
    return !x_in_pages(s) || load_x(s, chunk, chunks);
}

WEFT_DEV bool await_inputs(const cta &c, weft_slot &s)
{
    if (s.flags & SLOT_FIRST && !await_gate(c, step_of(s))) return false;
    if (s.flags & SLOT_EMPTY) return true;
    bool packets = s.task.kind == WEFT_KIND_GEMM_STREAM && s.op.flags & WEFT_OP_X_PACKET;
    if (smem()->policy <= WEFT_POLICY_FIFO && !packets) return await_counters(c, s);
    return !x_in_pages(s) || load_x(s, 0, weft_div_up(s.task.tile[3] >> 16, 8));
}

WEFT_DEV void wait_loop(const cta &c)
{
    if (threadIdx.x % 32 != 0) return;
    for (uint32_t n = 0;; n++) {
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n)) || s.flags & SLOT_EXIT || !await_inputs(c, s)) break;
        if (smem()->trace) s.t_ready = clock_ticks();
        sts_release(&s.ready, READY_ALL); // acquired in await_all
        mbar_arrive(&smem()->slot_free[n % SLOTS]);
    }
    drain_pages();
}

// ------------------------------------------------------------------------------------------------------ the signaler

// Static: one release an arrival, by one thread. What the consumer warps stored happens before: slot_done orders it.
WEFT_DEV void signal_static(const weft_slot &s)
{
    const weft_queue_rt &q = queue_of(s);
    for (uint32_t i = threadIdx.x % 32; i < s.task.n_signal; i += 32) {
        weft_signal g = signal_of(q, s.task, i);
        uint32_t *word = i < 2 ? s.signal_word[i] : counter_word(q, g.device, g.counter);
        if (g.scope == WEFT_SCOPE_SYS)
            weft_red_release_sys(word, 1); // acquired in await_counters
        else
            weft_red_release_gpu(word, 1);
    }
}

// Push family: the last to arrive on a counter arrives on each task of its list; the last to arrive there pushes the task.
// All of it happens in the memory of the device that waits, at .sys if it is another one.
struct arrival {            // one signal, and what its completion would set off: looked up while the task still runs
    const weft_queue_rt *q; // of the device that waits
    uint32_t *word;
    weft_counter counter;
    uint32_t id, waits, ring; // of the counter's task number `lane`; push has no rings to choose from: WEFT_NONE
    bool sys;
};

WEFT_DEV uint32_t waits_of_this_step(const weft_queue_rt &q, const weft_task &t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.n_wait; i++)
        n += wait_of(q, t, i).lag == 0;
    return n;
}

WEFT_DEV void look_up_dep(arrival &a, uint32_t j)
{
    a.id = WEFT_NONE;
    if (j >= a.counter.n_dep) return;
    a.id = __ldg((const uint32_t *)a.q->deps + a.counter.dep + j);
    a.waits = waits_of_this_step(*a.q, ((const weft_task *)a.q->tasks)[a.id]);
    a.ring = smem()->policy == WEFT_POLICY_PUSH ? WEFT_NONE : ring_of(*a.q, a.id);
}

WEFT_DEV arrival look_up(const cta &c, const weft_slot &s, uint32_t i)
{
    weft_signal g = signal_of(queue_of(s), s.task, i);
    arrival a;
    a.q = g.device == smem()->device ? &queue_of(s)
                                     : &((const weft_dev *)c.dev->roots[g.device])->queue[step_of(s).variant];
    a.word = i < 2 ? s.signal_word[i] : counter_word(queue_of(s), g.device, g.counter);
    uint4 k = __ldg((const uint4 *)a.q->counters + g.counter);
    a.counter.arrivals = k.x, a.counter.dep = k.z, a.counter.n_dep = k.w;
    a.sys = g.scope == WEFT_SCOPE_SYS;
    look_up_dep(a, threadIdx.x % 32);
    return a;
}

WEFT_DEV void arrive_push(const weft_slot &s, arrival &a)
{
    uint32_t lane = threadIdx.x % 32, old = 0, uses = step_of(s).uses;
    if (lane == 0) old = a.sys ? weft_atom_add_acq_rel_sys(a.word, 1) : weft_atom_add_acq_rel_gpu(a.word, 1);
    old = __shfl_sync(~0u, old, 0);
    if (old + 1 != smem()->base + uses * a.counter.arrivals) return;
    for (uint32_t j = lane; j < a.counter.n_dep; look_up_dep(a, j += 32)) {
        if (a.waits > 1) {
            uint32_t *pending = (uint32_t *)a.q->pending + a.id;
            uint32_t before = a.sys ? weft_atom_add_acq_rel_sys(pending, 1) : weft_atom_add_acq_rel_gpu(pending, 1);
            if (before + 1 != uses * a.waits) continue;
        }
        if (a.ring == WEFT_NONE)
            push_task(*a.q, a.id, a.sys);
        else
            push_to_ring(*a.q, a.id, a.ring, a.sys);
    }
    __syncwarp();
}

// This worker has done its share of the step. The last worker of the device tells the peers and the host.
WEFT_DEV void finish_step(const cta &c, const weft_step_head &step)
{
    uint32_t old = weft_atom_add_acq_rel_gpu(&smem()->ctl->done.value, 1); // acquired in await_gate
    if (old + 1 != smem()->base + smem()->n_worker * step.seq) return;
    if (smem()->n_device > 1)
        for (uint32_t d = 0; d < smem()->n_device; d++)
            weft_st_release_sys(&peer_ctl(c, d)->finished[smem()->device].value, step.seq); // acquired in await_gate
    weft_st_release_sys(&mailbox(c)->completed[smem()->device].value, step.seq); // acquired by the host in doorbell.c
}

WEFT_DEV void trace_clock(const cta &c)
{
    weft_trace_clock *k = (weft_trace_clock *)c.dev->trace_clock + smem()->worker;
    k->ticks1 = clock_ticks(), k->ns1 = clock_ns();
}

WEFT_DEV void trace_task(const cta &c, const weft_slot &s, uint64_t t_signal)
{
    weft_line *n = (weft_line *)c.dev->trace_n + smem()->worker;
    uint32_t i = n->value;
    if (i < c.dev->trace_cap) {
        weft_trace_record *r = (weft_trace_record *)c.dev->trace + (uint64_t)smem()->worker * c.dev->trace_cap + i;
        r->step = step_of(s).seq, r->task = s.id, r->device = (uint16_t)smem()->device,
        r->worker = (uint16_t)smem()->worker;
        r->kind = s.task.kind, r->attempts = 0, r->stolen_from = 0xffff;
        r->t_pop = s.t_pop, r->t_ready = s.t_ready, r->t_start = s.t_start, r->t_end = s.t_end, r->t_signal = t_signal;
    }
    n->value = i + 1;
    if (i % 64 == 0) trace_clock(c);
}

// Waits for the consumers' hand-over, and watches over them: a body that polls packets is reported with what it waits for.
// Counters have their own watch (await_counters), which is a little quicker, since it names the counter.
WEFT_DEV bool await_done(const cta &c, const weft_slot &s, uint32_t n)
{
    poll p;
    while (!mbar_try_wait(&smem()->slot_done[n % SLOTS], slot_parity(n))) {
        if (leaving()) return false;
        bool packets = s.op.flags & (WEFT_OP_X_PACKET | WEFT_OP_AUX_PACKET);
        const uint32_t *w = smem()->stall;
        stall why = {packets ? (uint32_t)WEFT_ABORT_PACKET : (uint32_t)WEFT_ABORT_BODY, s.id,
                     packets ? w[0] : WEFT_NONE, packets ? w[1] : 0, packets ? w[2] : 0};
        uint32_t limit = step_of(s).deadline_us;
        p.n++; // each miss took the hardware's own wait
        if ((p.since = poll_slow(c, p.since, p.n % 64 == 0, step_of(s).seq, limit + limit / 32, why)) == 0)
            return false;
    }
    return true;
}

template <bool RINGS> WEFT_DEV void signal_loop(const cta &c)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t n = 0;; n++) {
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n))) return;
        if (s.flags & SLOT_EXIT) return;
        bool push = RINGS && !(s.flags & SLOT_EMPTY);
        arrival first;
        if (push && s.task.n_signal) first = look_up(c, s, 0);
        if (!await_done(c, s, n)) return;
        if (!(s.flags & SLOT_EMPTY)) {
            if (!push) signal_static(s);
            if (push && s.task.n_signal) arrive_push(s, first);
            for (uint32_t i = 1; push && i < s.task.n_signal; i++) {
                arrival a = look_up(c, s, i);
                arrive_push(s, a);
            }
            if (smem()->trace && lane == 0) trace_task(c, s, clock_ticks());
        }
        __syncwarp();
        if (lane == 0) {
            if (s.flags & SLOT_LAST && smem()->trace) trace_clock(c);
            if (s.flags & SLOT_LAST) finish_step(c, step_of(s));
            mbar_arrive(&smem()->slot_free[n % SLOTS]);
        }
    }
}

#endif
