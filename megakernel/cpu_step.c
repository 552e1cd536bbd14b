/* cpu_step.c: from the host's doorbell to an open step, and from the last task to the host. */
#include "cpu_worker.h"

#include <string.h>

static weft_ctl *ctl_of(const weft__worker *w, uint32_t d) { return (weft_ctl *)(uintptr_t)w->dev->ctl[d]; }

void weft__check_in(weft__worker *w)
{
    weft_line *resident = &w->mailbox->resident[w->dev->device];
    w->step.seq = weft_ld_relaxed_sys(&w->mailbox->completed[w->dev->device].value); /* not 0: they were parked */
    if (weft_atom_add_acq_rel_gpu(&w->ctl->checkin.value, 1) + 1 != w->dev->n_worker) return;
    weft_st_relaxed_gpu(&w->ctl->checkin.value, 0);          /* nobody else looks until the workers are started again */
    weft_st_release_sys(&resident->value, w->dev->n_worker); /* acquired by the host before the first step (engine.c) */
}

/* Device 0's worker 0: copies the record of step `seq` to every device. */
static int forward(weft__worker *w, uint32_t seq)
{
    static const weft__blame waiting = {WEFT_ABORT_HOST, WEFT_NONE, WEFT_NONE, WEFT_NONE, WEFT_NONE};
    const weft_step_record *from = &w->mailbox->ring[seq % WEFT_STEP_RING];
    uint32_t words[16];
    weft__spin_state s = {0};
    while (!weft_record_poll(from->head, words, seq)) /* posted by doorbell.c */
        if (weft__spin(w, &s, &waiting)) return 1;
    weft_step_head head;
    memcpy(&head, words, sizeof head);
    for (uint32_t d = 0; d < w->dev->n_device; d++) {
        weft_step_record *to = &ctl_of(w, d)->ring[seq % WEFT_STEP_RING];
        for (uint32_t i = 0; i < 16; i++)
            to->head[i] = weft_packet(words[i], seq);
        memcpy(to->payload, from->payload, head.payload_bytes);
        weft_st_release_sys(&ctl_of(w, d)->published.value, seq); /* acquired in await_record */
    }
    return 0;
}

static int await_record(weft__worker *w)
{
    static const weft__blame waiting = {WEFT_ABORT_HOST, WEFT_NONE, WEFT_NONE, WEFT_NONE, WEFT_NONE};
    uint32_t seq = w->step.seq + 1, seen;
    if (w->dev->device == 0 && w->index == 0 && forward(w, seq)) return 1;
    weft__spin_state s = {0};
    while (!weft_counter_ready(&w->ctl->published.value, seq, &seen))
        if (weft__spin(w, &s, &waiting)) return 1;
    const weft_step_record *r = &w->ctl->ring[seq % WEFT_STEP_RING];
    uint32_t words[16];
    for (uint32_t i = 0; i < 16; i++)
        words[i] = (uint32_t)r->head[i];
    memcpy(&w->step, words, sizeof w->step);
    w->payload = r->payload;
    return 0;
}

static int await_word(weft__worker *w, const weft_w32 *word, uint32_t target, uint32_t device)
{
    weft__blame b = {WEFT_ABORT_GATE, WEFT_NONE, device, target, 0};
    weft__spin_state s = {0};
    while (!weft_counter_ready(word, target, &b.seen))
        if (weft__spin(w, &s, &b)) return 1;
    return 0;
}

static void start_clock(weft__worker *w)
{
    w->deadline_ns = w->step.deadline_us ? weft__now_ns() + (uint64_t)w->step.deadline_us * 1000 : 0;
}

/* This device and every device that it writes to have finished the step before. */
static int pass_gate(weft__worker *w)
{
    uint32_t before = w->step.seq - 1;
    if (await_word(w, &w->ctl->done.value, w->dev->base + w->dev->n_worker * before, w->dev->device)) return 1;
    for (uint32_t d = 0; d < w->dev->n_device; d++)
        if (d != w->dev->device && w->dev->peers >> d & 1)
            if (await_word(w, &w->ctl->finished[d].value, before, d)) return 1; /* released in weft__step_close */
    return 0;
}

int weft__step_open(weft__worker *w)
{
    if (w->dev->max_steps && w->step.seq == w->dev->max_steps) return 1;
    w->deadline_ns = 0; /* waiting for work has none */
    if (await_record(w)) return 1;
    w->pops0 = w->counts.pops;
    start_clock(w);
    if (pass_gate(w)) return 1;
    if (w->step.flags & WEFT_STEP_STOP) { /* a step without tasks, so that all counts can go on from there */
        weft__queue_leave(w);
        weft__step_close(w);
        return 1;
    }
    start_clock(w); /* waiting for others' last step doesn't count */
    w->q = &w->dev->queue[w->step.variant];
    weft__queue_open(w);
    return 0;
}

/* Of a policy that isn't ours: has it given as many tasks as the step has? Last worker of the device: all have added theirs.
 * ctl.head: given so far; ctl.tail: what it should be. Not 0: leave. */
static int check_pops(weft__worker *w)
{
    const uint32_t n = w->step.flags & WEFT_STEP_STOP ? 0 : w->q->n_task;
    const uint32_t before = weft_ld_relaxed_gpu(&w->ctl->tail.value), seen = weft_ld_relaxed_gpu(&w->ctl->head.value);
    weft_st_relaxed_gpu(&w->ctl->tail.value, before + n);
    if (seen - before == n) return 0;
    const weft__blame b = {WEFT_ABORT_QUEUE, WEFT_NONE, 0, n, seen - before};
    weft__abort(w, &b, 0);
    return 1;
}

/* The last worker of the device tells peers and host. Each worker's release is acquired by the last one, so `finished` and
 * `completed` carry what all of them wrote.                                                                            */
int weft__step_close(weft__worker *w)
{
    uint32_t seq = w->step.seq, self = w->dev->device;
    if (w->loop->foreign) weft_atom_add_relaxed_gpu(&w->ctl->head.value, w->counts.pops - w->pops0);
    if (!weft_arrive(&w->ctl->done.value, w->dev->base + w->dev->n_worker * seq)) return 0;
    if (w->loop->foreign && check_pops(w)) return 1;
    for (uint32_t d = 0; d < w->dev->n_device; d++)
        weft_st_release_sys(&ctl_of(w, d)->finished[self].value, seq); /* acquired in pass_gate */
    weft_st_release_sys(&w->mailbox->completed[self].value, seq);      /* acquired by the host (doorbell.c) */
    return 0;
}
