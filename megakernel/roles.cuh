// roles.cuh: the four warps that move tasks through a worker: fetcher, loader, waiter, signaler.
//
// Each walks the same sequence of slots. See cta.cuh for who hands what to whom, and abi.h for the protocol's words.
#ifndef WEFT_ROLES_CUH
#define WEFT_ROLES_CUH

#include "cta.cuh"

// ------------------------------------------------------------------------------------------------------- the fetcher

struct fetcher {
    uint32_t n = 0;    // slots filled so far
    uint32_t step = 0; // last step whose record has been read
    uint32_t holds = 0; // bit v: a ticket of variant v's ring is held
};

// Copies the record of step `s` from the host's ring to every device's. Worker 0 of device 0 only; whole warp.
WEFT_DEV bool forward_step(const cta &c, uint32_t s)
{
    uint32_t lane = threadIdx.x % 32;
    weft_step_record *from = &mailbox(c)->ring[s % WEFT_STEP_RING];
    uint64_t head;
    poll p;
    for (;;) {
        head = lane < 16 ? weft_ld_relaxed_b64_sys(&from->head[lane]) : (uint64_t)s << 32;
        if (__all_sync(~0u, (uint32_t)(head >> 32) == s)) break;
        // Waiting for the host has no deadline; only an abort ends it.
        if (!keep_polling_for(c, p, s, 0, {WEFT_ABORT_HOST, WEFT_NONE, WEFT_NONE, s, 0})) return false;
    }
    uint32_t payload = __shfl_sync(~0u, (uint32_t)head, 5);
    if (payload) weft_fence_acq_rel_sys(); // pairs with the host's release of the head (steps.c)
    for (uint32_t d = 0; d < c.dev->n_device; d++) {
        weft_step_record *to = &peer_ctl(c, d)->ring[s % WEFT_STEP_RING];
        if (lane < 16) to->head[lane] = head;
        for (uint32_t i = lane; i < (payload + 15) / 16; i += 32) ((uint4 *)to->payload)[i] = ld_cg(from->payload + i * 16);
        __syncwarp();
        if (lane == 0) { // acquired in await_step
            if (d == smem()->device) weft_st_release_gpu(&peer_ctl(c, d)->published.value, s);
            else weft_st_release_sys(&peer_ctl(c, d)->published.value, s);
        }
    }
    return true;
}

// Reads the head of the next step into sm->step. False: leave.
WEFT_DEV bool await_step(const cta &c, fetcher &f)
{
    uint32_t lane = threadIdx.x % 32, s = f.step + 1;
    if (smem()->device == 0 && smem()->worker == 0 && !forward_step(c, s)) return false;
    poll p;
    bool local = smem()->device == 0; // else the forwarder is on another device
    while (!weft_reached(local ? weft_ld_acquire_gpu(&smem()->ctl->published.value) : weft_ld_acquire_sys(&smem()->ctl->published.value), s)) { // forward_step
        if (!keep_polling_for(c, p, s, 0, {WEFT_ABORT_HOST, WEFT_NONE, WEFT_NONE, s, 0})) return false;
    }
    if (lane < 16) ((uint32_t *)&smem()->step[s % STEPS])[lane] = (uint32_t)smem()->ctl->ring[s % WEFT_STEP_RING].head[lane];
    __syncwarp();
    f.step = s;
    return true;
}

// Waits for a free slot and puts a task into it (id WEFT_NONE: a slot without a task). Whole warp.
WEFT_DEV bool put_slot(const cta &c, fetcher &f, const weft_queue_rt *q, uint32_t id, uint32_t flags)
{
    uint32_t lane = threadIdx.x % 32;
    weft_slot &s = smem()->slot[f.n % SLOTS];
    uint4 part;
    const weft_op_rt *op = nullptr;
    if (id != WEFT_NONE) {
        const weft_task *t = (const weft_task *)q->tasks + id;
        if (lane < 4) part = __ldg((const uint4 *)t + lane);
        uint32_t word = __shfl_sync(~0u, part.x, 0); // kind, alt_device, op
        op = (const weft_op_rt *)c.dev->ops + (word >> 16);
    } else {
        flags |= SLOT_EMPTY;
    }
    uint4 oppart;
    if (op && lane < sizeof(weft_op_rt) / 16) oppart = __ldg((const uint4 *)op + lane);
    if (!await_free(&smem()->slot_free[f.n % SLOTS], f.n, SLOTS)) return false;
    if (id != WEFT_NONE) {
        if (lane < 4) ((uint4 *)&s.task)[lane] = part;
        if (lane < sizeof(weft_op_rt) / 16) ((uint4 *)&s.op)[lane] = oppart;
    }
    if (lane == 0) {
        s.id = id, s.flags = flags, s.step = f.step % STEPS, s.ready = 0;
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
    if (i == end) return put_slot(c, f, q, WEFT_NONE, SLOT_FIRST | SLOT_LAST);
    for (uint32_t k = 0; i < end; i++, k++) {
        if (k % 32 == 0) ids = i + lane < end ? __ldg(list + i + lane) : 0;
        uint32_t id = __shfl_sync(~0u, ids, k % 32);
        if (!put_slot(c, f, q, id, (k == 0 ? SLOT_FIRST : 0) | (i + 1 == end ? SLOT_LAST : 0))) return false;
    }
    return true;
}

// The step gate: every device that this one writes to, itself included, has finished the step before. One thread.
WEFT_DEV bool await_gate(const cta &c, const weft_step_head &step)
{
    uint32_t before = step.seq - 1, all = c.dev->base + c.dev->n_worker * before, seen;
    poll p;
    while (!weft_reached(seen = weft_ld_acquire_gpu(&smem()->ctl->done.value), all)) // released in finish_step, by each worker
        if (!keep_polling(c, p, step, {WEFT_ABORT_GATE, WEFT_NONE, smem()->device, all, seen})) return false;
    for (uint32_t d = 0; d < c.dev->n_device; d++) {
        if (d == smem()->device || !(c.dev->peers >> d & 1)) continue;
        while (!weft_reached(seen = weft_ld_acquire_sys(&smem()->ctl->finished[d].value), before)) // finish_step, last worker of d
            if (!keep_polling(c, p, step, {WEFT_ABORT_GATE, WEFT_NONE, d, before, seen})) return false;
    }
    return true;
}

// Makes `id` poppable. The caller's acquire of all its inputs happens before; the popper acquires the slot.
WEFT_DEV void push_task(const cta &c, const weft_queue_rt &q, uint32_t id, bool sys)
{
    uint32_t *tail = &((weft_line *)q.heads)[1].value;
    uint32_t t = sys ? weft_atom_add_relaxed_sys(tail, 1) : weft_atom_add_relaxed_gpu(tail, 1);
    uint64_t *slot = (uint64_t *)q.ring + (t & q.ring_mask), v = id | (uint64_t)t << 32;
    if (sys) weft_st_release_b64_sys(slot, v); // acquired in pop_task
    else weft_st_release_b64_gpu(slot, v);
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
    return smem()->ticket[step.variant] - c.dev->base - q->n_task * (step.uses - 1);
}

// Waits for the task of this worker's ticket, then takes the next ticket. *id = WEFT_NONE: the step has no more.
WEFT_DEV bool pop_task(const cta &c, fetcher &f, const weft_queue_rt *q, uint32_t *id)
{
    *id = WEFT_NONE;
    if (ticket_position(c, f, q) >= q->n_task) return true;
    const weft_step_head &step = smem()->step[f.step % STEPS];
    uint32_t t = smem()->ticket[step.variant];
    const uint64_t *slot = (const uint64_t *)q->ring + (t & q->ring_mask);
    uint64_t got;
    poll p;
    while ((uint32_t)((got = weft_ld_acquire_b64_sys(slot)) >> 32) != t || (uint32_t)got == WEFT_NONE) // push_task
        if (!keep_polling(c, p, step, {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, t, (uint32_t)(got >> 32)})) return false;
    *id = (uint32_t)got;
    __syncwarp();
    take_ticket(c, q, step.variant);
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
        if (i >= q->n_task) return put_slot(c, f, q, WEFT_NONE, flags | SLOT_LAST);
        uint32_t id = __ldg((const uint32_t *)q->list + i);
        __syncwarp();
        take_ticket(c, q, smem()->step[f.step % STEPS].variant);
        if (!put_slot(c, f, q, id, flags)) return false;
    }
}

WEFT_DEV bool fetch_push(const cta &c, fetcher &f, const weft_queue_rt *q)
{
    uint32_t lane = threadIdx.x % 32, flags = SLOT_FIRST;
    if (smem()->worker == 0) {
        if (!__all_sync(~0u, await_gate(c, smem()->step[f.step % STEPS]))) return false;
        for (uint32_t i = lane; i < q->n_ready0; i += 32) push_task(c, *q, ((const uint32_t *)q->ready0)[i], false);
    }
    for (;; flags = 0) {
        if (!await_idle(c, f)) return false;
        uint32_t id;
        if (!pop_task(c, f, q, &id)) return false;
        if (id == WEFT_NONE) return put_slot(c, f, q, WEFT_NONE, flags | SLOT_LAST);
        if (!put_slot(c, f, q, id, flags)) return false;
    }
}

WEFT_DEV void fetch_loop(const cta &c)
{
    fetcher f;
    for (;;) {
        if (!await_step(c, f)) return;
        const weft_step_head &step = smem()->step[f.step % STEPS];
        if (step.flags & WEFT_STEP_STOP) {
            put_slot(c, f, nullptr, WEFT_NONE, SLOT_EXIT);
            return;
        }
        const weft_queue_rt *q = &c.dev->queue[step.variant];
        bool ok = smem()->policy == WEFT_POLICY_STATIC ? fetch_static(c, f, q)
                  : smem()->policy == WEFT_POLICY_FIFO ? fetch_fifo(c, f, q)
                                                      : fetch_push(c, f, q);
        if (!ok) return;
        if (f.step == c.dev->max_steps) {
            put_slot(c, f, nullptr, WEFT_NONE, SLOT_EXIT);
            return;
        }
    }
}

// -------------------------------------------------------------------------------------------------------- the waiter

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

WEFT_DEV bool await_counters(const cta &c, weft_slot &s)
{
    const weft_step_head &step = step_of(s);
    const weft_queue_rt &q = queue_of(c, s);
    for (uint32_t i = 0; i < s.task.n_wait; i++) {
        weft_wait w = wait_of(q, s.task, i);
        if (w.due) sts_release(&s.ready, w.due); // chunks before `due` may go: acquired in await_ready
        const uint32_t *word = counter_word(q, smem()->device, w.counter);
        uint32_t target = c.dev->base + (step.uses - w.lag) * w.arrivals, seen;
        bool sys = scope_of(q, w.counter) == WEFT_SCOPE_SYS;
        poll p;
        // Released in signal_static, by each producer.
        while (!weft_reached(seen = sys ? weft_ld_relaxed_sys(word) : weft_ld_relaxed_gpu(word), target))
            if (!keep_polling(c, p, step, {WEFT_ABORT_COUNTER, s.id, w.counter, target, seen})) return false;
        if (sys) weft_ld_acquire_sys(word);
        else weft_ld_acquire_gpu(word);
    }
    return true;
}

WEFT_DEV void wait_loop(const cta &c)
{
    if (threadIdx.x % 32 != 0) return;
    for (uint32_t n = 0;; n++) {
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n))) return;
        if (s.flags & SLOT_EXIT) return;
        if (s.flags & SLOT_FIRST && !await_gate(c, step_of(s))) return;
        bool waits = !(s.flags & SLOT_EMPTY) && smem()->policy <= WEFT_POLICY_FIFO &&
                     !(s.task.kind == WEFT_KIND_GEMM_STREAM && s.op.flags & WEFT_OP_X_PACKET);
        if (waits && !await_counters(c, s)) return;
        if (smem()->trace) s.t_ready = clock_ticks();
        sts_release(&s.ready, READY_ALL); // acquired in await_ready
        mbar_arrive(&smem()->slot_free[n % SLOTS]);
    }
}

// ------------------------------------------------------------------------------------------------------ the signaler

WEFT_DEV weft_signal signal_of(const weft_queue_rt &q, const weft_task &t, uint32_t i)
{
    if (i < 2) return t.signal[i];
    uint32_t waits = t.n_wait > 2 ? t.n_wait - 2 : 0;
    uint64_t w = __ldg((const unsigned long long *)q.side + t.extra + waits + i - 2);
    return {(uint32_t)w, (uint16_t)(w >> 32), (uint16_t)(w >> 48)};
}

// Static: one release an arrival, by one thread. What the consumer warps stored happens before: slot_done orders it.
WEFT_DEV void signal_static(const cta &c, const weft_slot &s)
{
    const weft_queue_rt &q = queue_of(c, s);
    for (uint32_t i = threadIdx.x % 32; i < s.task.n_signal; i += 32) {
        weft_signal g = signal_of(q, s.task, i);
        uint32_t *word = counter_word(q, g.device, g.counter);
        if (g.scope == WEFT_SCOPE_SYS) weft_red_release_sys(word, 1); // acquired in await_counters
        else weft_red_release_gpu(word, 1);
    }
}

WEFT_DEV uint32_t waits_of_this_step(const weft_queue_rt &q, const weft_task &t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.n_wait; i++) n += wait_of(q, t, i).lag == 0;
    return n;
}

// Push: the last to arrive on a counter arrives on each task of its list; the last to arrive there pushes the task.
// All of it happens in the memory of the device that waits, at .sys if it is another one.
WEFT_DEV void signal_push(const cta &c, const weft_slot &s)
{
    const weft_step_head &step = step_of(s);
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < s.task.n_signal; i++) {
        weft_signal g = signal_of(queue_of(c, s), s.task, i);
        const weft_dev *peer = (const weft_dev *)c.dev->roots[g.device];
        const weft_queue_rt &q = peer->queue[step.variant];
        const weft_counter k = ((const weft_counter *)q.counters)[g.counter];
        uint32_t *word = counter_word(q, g.device, g.counter), old = 0;
        bool sys = g.scope == WEFT_SCOPE_SYS;
        if (lane == 0) old = sys ? weft_atom_add_acq_rel_sys(word, 1) : weft_atom_add_acq_rel_gpu(word, 1);
        old = __shfl_sync(~0u, old, 0);
        if (old + 1 != c.dev->base + step.uses * k.arrivals) continue;
        for (uint32_t j = lane; j < k.n_dep; j += 32) {
            uint32_t id = ((const uint32_t *)q.deps)[k.dep + j];
            uint32_t waits = waits_of_this_step(q, ((const weft_task *)q.tasks)[id]);
            if (waits > 1) {
                uint32_t *pending = (uint32_t *)q.pending + id;
                uint32_t before = sys ? weft_atom_add_acq_rel_sys(pending, 1) : weft_atom_add_acq_rel_gpu(pending, 1);
                if (before + 1 != step.uses * waits) continue;
            }
            push_task(c, q, id, sys);
        }
    }
    __syncwarp();
}

// This worker has done its share of the step. The last worker of the device tells the peers and the host.
WEFT_DEV void finish_step(const cta &c, const weft_step_head &step)
{
    uint32_t old = weft_atom_add_acq_rel_gpu(&smem()->ctl->done.value, 1); // acquired in await_gate
    if (old + 1 != c.dev->base + c.dev->n_worker * step.seq) return;
    if (c.dev->n_device > 1)
        for (uint32_t d = 0; d < c.dev->n_device; d++)
            weft_st_release_sys(&peer_ctl(c, d)->finished[smem()->device].value, step.seq); // acquired in await_gate
    weft_st_release_sys(&mailbox(c)->completed[smem()->device].value, step.seq); // acquired by the host in steps.c
}

WEFT_DEV void trace_task(const cta &c, const weft_slot &s, uint64_t t_signal)
{
    weft_line *n = (weft_line *)c.dev->trace_n + smem()->worker;
    uint32_t i = n->value;
    if (i < c.dev->trace_cap) {
        weft_trace_record *r = (weft_trace_record *)c.dev->trace + (uint64_t)smem()->worker * c.dev->trace_cap + i;
        r->step = step_of(s).seq, r->task = s.id, r->device = (uint16_t)smem()->device, r->worker = (uint16_t)smem()->worker;
        r->kind = s.task.kind, r->attempts = 0, r->stolen_from = 0xffff;
        r->t_pop = s.t_pop, r->t_ready = s.t_ready, r->t_start = s.t_start, r->t_end = s.t_end, r->t_signal = t_signal;
    }
    n->value = i + 1;
    if (s.flags & SLOT_LAST || i % 64 == 0) {
        weft_trace_clock *k = (weft_trace_clock *)c.dev->trace_clock + smem()->worker;
        k->ticks1 = clock_ticks(), k->ns1 = clock_ns();
    }
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
        stall why = {packets ? WEFT_ABORT_PACKET : WEFT_ABORT_BODY, s.id, packets ? w[0] : WEFT_NONE, packets ? w[1] : 0, packets ? w[2] : 0};
        uint32_t limit = step_of(s).deadline_us;
        if (!keep_polling_for(c, p, step_of(s).seq, limit + limit / 32, why)) return false;
    }
    return true;
}

WEFT_DEV void signal_loop(const cta &c)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t n = 0;; n++) {
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n))) return;
        if (s.flags & SLOT_EXIT) return;
        if (!await_done(c, s, n)) return;
        if (!(s.flags & SLOT_EMPTY)) {
            if (smem()->policy == WEFT_POLICY_PUSH) signal_push(c, s);
            else signal_static(c, s);
            if (smem()->trace && lane == 0) trace_task(c, s, clock_ticks());
        }
        __syncwarp();
        if (lane == 0) {
            if (s.flags & SLOT_LAST) finish_step(c, step_of(s));
            mbar_arrive(&smem()->slot_free[n % SLOTS]);
        }
    }
}

#endif
