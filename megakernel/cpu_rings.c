/* cpu_rings.c: the rings of steal and priority.
 *
 *   steal     a ring a worker; a task goes to the worker that the static cut gives it to; an idle worker looks into the
 *             others' rings, then into those of devices whose tasks name its own as their alternate, and stays until these
 *             are empty too
 *   priority  a ring a rank; the lowest ring that has a task
 *
 * A ring is two lines (weft_queue_rt.heads) and packets. First line: tasks taken so far, from base. Second: tasks pushed so
 * far; beside it, from 0, how many of these a thief has brought: they were counted as taken elsewhere already. There are no
 * tickets: a step is over when as many tasks are taken as it has, all rings together.
 *
 * lifo: a ring is a stack instead (protocol.h). Its top shares the first line with `taken`; the rings' memory holds what lies
 * below each task.                                                                                                     */
#include "cpu_worker.h"

enum {
    HALF_MOST = 64 /* tasks taken at once */
};

static weft_w32 *head_of(const weft_queue_rt *q, uint32_t ring) { return &weft__ring_line(q, 2 * ring)->value; }
static weft_w32 *brought_of(const weft_queue_rt *q, uint32_t ring) { return weft__ring_tail(q, ring) + 1; }

/* ----------------------------------------------------------------------------------------------------- either shape */

static weft_w64 *top_of(const weft_queue_rt *q, uint32_t ring) { return (weft_w64 *)weft__ring_line(q, 2 * ring); }
static weft_w32 *below_of(const weft_queue_rt *q) { return (weft_w32 *)(uintptr_t)q->ring; }

void weft__stack_push(const weft_queue_rt *q, uint32_t ring, uint32_t task)
{
    weft_stack_push(top_of(q, ring), below_of(q), task);
    weft_atom_add_relaxed_sys(weft__ring_tail(q, ring), 1);
}

/* The next task of a ring, without taking it; *seen is for take. */
static int peek(const weft__worker *w, const weft_queue_rt *q, uint32_t ring, uint64_t *seen, uint32_t *task)
{
    if (w->loop->lifo) return weft_stack_peek(top_of(q, ring), below_of(q), q->n_task, 1, task, seen) == 1;
    uint32_t head;
    const int there = weft_ring_peek(head_of(q, ring), weft__ring_slots(q, ring), q->ring_mask, &head, task);
    *seen = head;
    return there;
}

static int take(const weft__worker *w, const weft_queue_rt *q, uint32_t ring, uint64_t seen, uint32_t task)
{
    return w->loop->lifo ? weft_stack_take(top_of(q, ring), below_of(q), 1, task, seen)
                         : weft_ring_take(head_of(q, ring), (uint32_t)seen);
}

static int pop_ring(const weft_queue_rt *q, uint32_t ring, uint32_t *task)
{
    uint32_t head;
    return weft_ring_try_pop(head_of(q, ring), weft__ring_slots(q, ring), q->ring_mask, &head, task);
}

/* Half of a ring, at least one task, runs the first and puts the others into its own ring. They count as brought before they
 * count as taken, so that nobody takes the step for over: see is_over.                                                 */
static int take_half(const weft__worker *w, const weft_queue_rt *q, uint32_t ring, uint32_t *task)
{
    uint32_t tasks[HALF_MOST], own = w->index, n = 0;
    const uint32_t there = weft_ld_relaxed_sys(weft__ring_tail(q, ring)) - weft_ld_relaxed_sys(head_of(q, ring));
    uint32_t most = (int32_t)there < 2 ? 1 : there / 2 < HALF_MOST ? there / 2 : HALF_MOST;
    weft_atom_add_relaxed_sys(brought_of(q, own), most - 1);
    if (w->loop->lifo) {
        uint64_t seen;
        n = weft_stack_peek(top_of(q, ring), below_of(q), q->n_task, most, tasks, &seen);
        if (n && !weft_stack_take(top_of(q, ring), below_of(q), n, tasks[n - 1], seen)) n = 0;
    } else {
        n = weft_ring_take_run(head_of(q, ring), weft__ring_slots(q, ring), q->ring_mask, most, tasks);
    }
    const uint32_t kept = n ? n - 1 : 0;
    if (kept != most - 1) weft_atom_add_relaxed_sys(brought_of(q, own), kept - (most - 1));
    for (uint32_t i = kept; i > 0; i--)
        weft__rings_push(w, q, own, tasks[w->loop->lifo ? i : kept + 1 - i]);
    if (n) *task = tasks[0];
    return n > 0;
}

/* Are all tasks of the step taken? Heads first, with acquire: whoever has moved one has counted what it brought before. */
static int is_over(const weft__worker *w, const weft_dev *home, const weft_queue_rt *q)
{
    uint32_t taken = 0;
    for (uint32_t r = 0; r < q->n_ring; r++)
        taken += weft_ld_acquire_sys(head_of(q, r)) - home->base;
    for (uint32_t r = 0; w->loop->half && r < q->n_ring; r++)
        taken -= weft_ld_relaxed_sys(brought_of(q, r));
    return taken == q->n_task * w->step.uses;
}

/* ------------------------------------------------------------------------------------------------------------ abroad */

/* Looks into the rings of device d for a task that this one may take. 1: taken; 0: none now; -1: none any more. */
static int steal_from(weft__worker *w, uint32_t d, uint32_t *task)
{
    const weft_dev *home = (const weft_dev *)(uintptr_t)w->dev->roots[d];
    const weft_queue_rt *q = &home->queue[w->step.variant];
    for (uint32_t ring = 0; ring < q->n_ring; ring++) {
        uint64_t seen;
        w->counts.failed++;
        if (!peek(w, q, ring, &seen, task)) continue;
        if (((const weft_task *)(uintptr_t)q->tasks)[*task].alt_device != w->dev->device) continue;
        if (!take(w, q, ring, seen, *task)) continue;
        w->counts.failed--;
        w->counts.steals++;
        w->counts.abroad++;
        w->home = home;
        w->hq = q;
        return 1;
    }
    return is_over(w, home, q) ? -1 : 0;
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

/* ----------------------------------------------------------------------------------------------------------- at home */

static uint32_t draw(weft__worker *w, uint32_t below_this) /* xorshift (Marsaglia 2003) */
{
    uint32_t x = w->random;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    w->random = x;
    return (uint32_t)((uint64_t)x * below_this >> 32);
}

/* The i-th ring to look into, i > 0, from the worker's own; from: what was drawn for this round. */
static uint32_t victim(const weft__worker *w, uint32_t i, uint32_t from)
{
    const uint32_t n = w->q->n_ring, far = (i + 1) / 2;
    switch (w->loop->victim) {
    case WEFT__VICTIM_RANDOM: return (w->index + 1 + (from + i - 1) % (n - 1)) % n;
    case WEFT__VICTIM_NEAR: return (w->index + (i % 2 ? far : n - far)) % n;
    default: return (w->index + i) % n;
    }
}

/* Into the rings of others. */
static int look_steal(weft__worker *w, uint32_t *task)
{
    const weft_queue_rt *q = w->q;
    uint64_t seen;
    if (q->n_ring == 1) return 0;
    const uint32_t from = w->loop->victim == WEFT__VICTIM_RANDOM ? draw(w, q->n_ring - 1) : 0;
    for (uint32_t i = 1; i < q->n_ring; i++) {
        const uint32_t ring = victim(w, i, from);
        const int got = peek(w, q, ring, &seen, task) &&
                        (w->loop->half ? take_half(w, q, ring, task) : take(w, q, ring, seen, *task));
        w->counts.steals += got;
        w->counts.failed += !got;
        if (got) return 1;
    }
    return 0;
}

/* The most urgent ring first. */
static int look_priority(weft__worker *w, uint32_t *task)
{
    for (uint32_t ring = 0; ring < w->q->n_ring; ring++)
        if (pop_ring(w->q, ring, task)) return 1;
    return 0;
}

/* Not 0: leave. */
static int back_off(weft__worker *w, weft__spin_state *s, const weft__blame *b)
{
    if (weft__spin(w, s, b)) return 1;
    if (!w->loop->backoff_ns) return 0;
    const uint64_t start = weft__now_ns();
    while (weft__now_ns() - start < w->loop->backoff_ns)
        if (weft__spin(w, s, b)) return 1;
    return 0;
}

static int pop_own(weft__worker *w, uint32_t *task)
{
    uint64_t seen;
    if (w->dev->policy != WEFT_POLICY_STEAL) return look_priority(w, task);
    if (!w->loop->lifo) return pop_ring(w->q, w->index, task);
    return peek(w, w->q, w->index, &seen, task) && take(w, w->q, w->index, seen, *task);
}

static int fetch_idle(weft__worker *w, uint32_t *task)
{
    weft__blame b = {WEFT_ABORT_QUEUE, WEFT_NONE, WEFT_NONE, w->q->n_task * w->step.uses, WEFT_NONE};
    weft__spin_state s = {0};
    for (;;) {
        if (w->dev->policy == WEFT_POLICY_STEAL && look_steal(w, task)) return 1;
        const int abroad = steal_abroad(w, task);
        if (abroad > 0) return 1;
        if (abroad < 0 && is_over(w, w->dev, w->q)) return 0;
        w->counts.empty++;
        if (back_off(w, &s, &b)) return -1;
        if (pop_own(w, task)) return 1;
    }
}

int weft__rings_fetch(weft__worker *w, uint32_t *task) { return pop_own(w, task) ? 1 : fetch_idle(w, task); }
