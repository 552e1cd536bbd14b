/* cpu_worker.c: the loop of a worker: fetch, wait, run, signal. */
#include "cpu_worker.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------- what a body may call */

static int read_packets(void *worker, uint64_t buffer, uint64_t first, uint32_t mask, uint32_t words[8])
{
    weft__worker *w = worker;
    const weft_w64 *p = (const weft_w64 *)(uintptr_t)buffer + first;
    for (uint32_t i = 0; i < 8; i++) {
        words[i] = 0;
        if (!(mask >> i & 1)) continue;
        weft__spin_state s = {0};
        int state;
        while ((state = weft_packet_poll(&p[i], w->step.seq, &words[i])) != 1) {
            weft__blame b = {WEFT_ABORT_PACKET, w->record.task, (uint32_t)(first + i), w->step.seq,
                             (uint32_t)(weft_ld_relaxed_b64_sys(&p[i]) >> 32)};
            if (state < 0) {
                b.cause = WEFT_ABORT_FUTURE;
                weft__abort(w, &b, 0);
                return 1;
            }
            if (weft__spin(w, &s, &b)) return 1;
        }
    }
    return 0;
}

static void write_packet(void *worker, uint64_t buffer, uint64_t index, uint32_t word)
{
    weft__worker *w = worker;
    weft_packet_put((weft_w64 *)(uintptr_t)buffer + index, word, w->step.seq);
}

static int arrive_at(void *worker, uint64_t word, uint32_t n)
{
    weft_w32 *w = (weft_w32 *)(uintptr_t)word;
    (void)worker;
    if (weft_atom_add_acq_rel_gpu(w, 1) + 1 != n) return 0; /* each releases to the last, which acquires */
    weft_st_relaxed_gpu(w, 0);
    return 1;
}

static uint64_t read_clock(void *worker)
{
    (void)worker;
    return weft__now_ns();
}

static const weft_worker_calls calls = {read_packets, write_packet, arrive_at, read_clock};

/* -------------------------------------------------------------------------------------------------------- the loop */

static const weft_op_rt *op_of(const weft__worker *w, const weft_task *t)
{
    if (t->kind == WEFT_KIND_NOP || t->kind == WEFT_KIND_MIX) return NULL;
    const weft_op_rt *op = (const weft_op_rt *)(uintptr_t)w->home->ops + t->op;
    return w->home == w->dev ? op : (const weft_op_rt *)(uintptr_t)w->dev->ops + op->alt;
}

/* One counter. A count beyond this step's means that someone signals who may not: the image is wrong. */
static int await_counter(weft__worker *w, uint32_t task, const weft_wait *wait)
{
    const weft_w32 *word = &((const weft_line *)(uintptr_t)w->q->words[w->dev->device])[wait->counter].value;
    uint32_t target = weft_target(w->dev->base, w->step.uses, wait->lag, wait->arrivals);
    uint32_t last = weft_target(w->dev->base, w->step.uses, 0, wait->arrivals);
    weft__blame b = {WEFT_ABORT_COUNTER, task, wait->counter, target, 0};
    weft__spin_state s = {0};
    while (!weft_counter_ready(word, target, &b.seen)) /* pairs with weft_signal_counter in weft__signal */
        if (weft__spin(w, &s, &b)) return 1;
    if (weft_reached(last, b.seen)) return 0;
    b.cause = WEFT_ABORT_FUTURE;
    weft__abort(w, &b, 0);
    return 1;
}

/* Waits of the push family are over when the task is fetched. `due` is taken as 0: a body on a CPU starts with all it needs.
 * A task whose x comes as packets is told by them, and needs no counter.                                              */
static int await_inputs(weft__worker *w, uint32_t id, const weft_task *t, const weft_op_rt *op)
{
    if (w->dev->policy >= WEFT_POLICY_PUSH) return 0;
    if (t->kind == WEFT_KIND_GEMM_STREAM && op->flags & WEFT_OP_X_PACKET) return 0;
    for (uint32_t i = 0; i < t->n_wait; i++) {
        weft_wait wait = weft__wait_of(w->q, t, i);
        if (await_counter(w, id, &wait)) return 1;
    }
    return 0;
}

static uint64_t tick(const weft__worker *w) { return w->dev->trace_cap ? weft__now_ns() : 0; }

static void trace(weft__worker *w, const weft_task *t)
{
    weft_w32 *count = &((weft_line *)(uintptr_t)w->dev->trace_n)[w->index].value;
    uint32_t n = weft_ld_relaxed_gpu(count);
    weft_trace_record *r = &w->record;
    r->step = w->step.seq;
    r->device = (uint16_t)w->dev->device;
    r->worker = (uint16_t)w->index;
    r->kind = t->kind;
    r->attempts = (uint8_t)(w->attempts < 255 ? w->attempts : 255);
    r->stolen_from = w->home == w->dev ? 0xffff : (uint16_t)w->home->device;
    r->t_signal = tick(w);
    if (n < w->dev->trace_cap)
        ((weft_trace_record *)(uintptr_t)w->dev->trace)[(uint64_t)w->index * w->dev->trace_cap + n] = *r;
    if (n != UINT32_MAX) weft_st_relaxed_gpu(count, n + 1);
}

static int run_task(weft__worker *w, uint32_t id)
{
    const weft_task *t = (const weft_task *)(uintptr_t)w->hq->tasks + id;
    const weft_op_rt *op = op_of(w, t);
    weft_w32 *running = &((weft_line *)(uintptr_t)w->dev->running)[w->index].value;
    w->record.task = id;
    w->record.t_pop = tick(w);
    if (await_inputs(w, id, t, op)) return 1;
    w->record.t_ready = w->record.t_start = tick(w);
    weft_task_ctx ctx = {w->home, w->hq, t, op, &w->step, w->payload, w->scratch, w, &calls};
    weft_st_relaxed_gpu(running + 1, w->home == w->dev ? 0 : w->home->device + 1);
    weft_st_relaxed_gpu(running, id); /* read by the host when a step is late */
    if (w->loop->kinds[t->kind].body(&ctx)) return 1;
    weft_st_relaxed_gpu(running, WEFT_NONE);
    w->record.t_end = tick(w);
    weft__signal(w, t);
    if (w->dev->trace_cap) trace(w, t);
    w->attempts = 0;
    return 0;
}

/* Into the worker's own line, for the host. */
static void show_counts(const weft__worker *w)
{
    const uint32_t words[] = {w->counts.pops, w->counts.empty, w->counts.steals, w->counts.failed, w->counts.abroad};
    weft_w32 *to = &((weft_line *)(uintptr_t)w->dev->trace_n)[w->index].value + WEFT__COUNTS;
    for (uint32_t i = 0; i < sizeof words / sizeof words[0]; i++)
        weft_st_relaxed_gpu(to + i, words[i]);
}

static void read_counts(weft__worker *w)
{
    weft_w32 *from = &((weft_line *)(uintptr_t)w->dev->trace_n)[w->index].value + WEFT__COUNTS;
    memcpy(&w->counts, from, sizeof w->counts);
}

void weft__worker_run(const weft_dev *root, uint32_t index, void *scratch, uint32_t busy_spins, const weft__loop *loop)
{
    weft__worker w = {.dev = root,
                      .loop = loop,
                      .index = index,
                      .busy_spins = busy_spins,
                      .ctl = (weft_ctl *)(uintptr_t)root->ctl[root->device],
                      .mailbox = (weft_mailbox *)(uintptr_t)root->mailbox,
                      .scratch = scratch};
    w.random = root->device * 1024 + index + 1;
    read_counts(&w);
    weft__check_in(&w);
    while (weft__step_open(&w) == 0) {
        uint32_t task;
        int got;
        while ((got = weft__fetch(&w, &task)) > 0) {
            w.counts.pops++;
            if (run_task(&w, task)) return;
        }
        if (got < 0) return;
        show_counts(&w);
        if (weft__step_close(&w)) return;
    }
}
