/* doorbell.c: the host's end of the doorbell, and the watchdog.
 *
 * Enters: steps. Leaves: records in the mailbox's ring, completions, or the report of who stopped.
 * Invariants: slot seq % 16 is written only after step seq - 16 has completed on every device, so nobody reads it then; the
 * host's acquire of `completed` orders that, and makes a step's outputs readable.
 * Workers watch their own waits; the host watches the step as a whole, a little later, and so catches a body that stays. */
#include "engine_internal.h"

#include "../megakernel/order_c11.h"
#include "../megakernel/protocol.h"

#include <stdlib.h>
#include <string.h>

enum {
    GRACE_PERCENT = 105,
    LONG_GRACE_PERCENT = 108, /* where no body runs: workers wait, and will say for what as soon as they have a core */
    ANSWER_NS = 20000000
}; /* ANSWER_NS: for workers to answer a stop before the host reports alone */

static uint32_t slot_of(uint32_t seq) { return seq % WEFT_STEP_RING; }

/* ----------------------------------------------------------------------------------------------------------- stopping */

static int stopped(const weft_engine *e)
{
    return weft__fail(WEFT_EABORT, "%s", e->report_text ? e->report_text : "stopped");
}

static int set_stopped(weft_engine *e)
{
    e->stopped = 1;
    e->report_variant = e->flight[slot_of(e->report.step)].variant;
    e->report_uses = e->flight[slot_of(e->report.step)].uses;
    weft__make_report(e);
    return stopped(e);
}

/* The host asked for the stop: who is in a body is what there is to say. */
static int host_report(weft_engine *e, uint32_t cause)
{
    weft_report *r = &e->report;
    uint32_t seq = e->completed + 1;
    *r = (weft_report){.cause = cause,
                       .device = WEFT_NONE,
                       .worker = WEFT_NONE,
                       .step = seq,
                       .task = WEFT_NONE,
                       .counter = WEFT_NONE,
                       .expected = WEFT_NONE,
                       .seen = WEFT_NONE};
    if (weft__steps_in_flight(e)) r->waited_ns = weft__now_ns() - e->flight[slot_of(seq)].submit_ns;
    if (cause == WEFT_ABORT_BODY && !weft__find_running(e, &r->device, &r->worker, &r->task))
        r->cause = WEFT_ABORT_INTERNAL;
    return set_stopped(e);
}

/* A stop was asked for: by a worker (its report is complete), or by the host. */
static int check_stop(weft_engine *e)
{
    uint32_t cause = weft_ld_acquire_sys(&e->mailbox->abort.value); /* released by the first to abort */
    uint32_t asked = weft_ld_relaxed_sys(&e->mailbox->abort_request.value);
    if (cause && cause != asked) {
        e->report = e->mailbox->report;
        return set_stopped(e);
    }
    if (!asked) return 0;
    uint64_t now = weft__now_ns();
    if (e->stop_seen_ns == 0) e->stop_seen_ns = now;
    /* A stop from elsewhere may cross a worker's own report; an overdue body's waiters have had their time for one. */
    uint64_t patience = asked == WEFT_ABORT_BODY ? 0 : ANSWER_NS;
    if (!cause && e->launched && now - e->stop_seen_ns < patience) return 0;
    return host_report(e, asked);
}

/* ---------------------------------------------------------------------------------------------------------- completion */

/* Steps complete in order on each device; the least advanced device counts. */
void weft__steps_look(weft_engine *e)
{
    uint32_t least = e->submitted;
    for (uint32_t d = 0; d < e->m->n_device; d++) {
        uint32_t done = weft_ld_acquire_sys(&e->mailbox->completed[d].value); /* released in weft__step_close */
        if ((int32_t)(done - least) < 0) least = done;
    }
    if (least == e->completed) return;
    e->active_ns = e->completed_ns = weft__now_ns();
    for (uint32_t s = e->completed + 1; s != least + 1 && e->config.trace_records && s <= e->cap_traced; s++)
        e->traced[s - 1].done_ns = e->completed_ns;
    e->completed = least;
}

/* The oldest step in flight has had its time, and then some: its workers would have reported a wait. */
static void check_deadline(weft_engine *e)
{
    const weft__flight *f = &e->flight[slot_of(e->completed + 1)];
    if (!weft__steps_in_flight(e) || !e->launched || f->deadline_us == 0) return;
    uint64_t start = f->submit_ns > e->completed_ns ? f->submit_ns : e->completed_ns;
    uint64_t passed = weft__now_ns() - start, percent = (uint64_t)f->deadline_us * 10;
    uint32_t device, worker, task;
    if (passed < percent * GRACE_PERCENT) return;
    if (passed < percent * LONG_GRACE_PERCENT && !weft__find_running(e, &device, &worker, &task)) return;
    weft_atom_cas_relaxed_sys(&e->mailbox->abort_request.value, 0, WEFT_ABORT_BODY);
}

int weft__steps_refresh(weft_engine *e)
{
    if (e->stopped) return stopped(e);
    weft__steps_look(e);
    check_deadline(e);
    int status = check_stop(e);
    if (status) weft__steps_look(e); /* what was done before the stop stays done */
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- submit */

static int check_step(const weft_engine *e, const weft_step *s)
{
    int status = weft__check_size(s, s->size, sizeof *s, "weft_step");
    if (status) return status;
    if (s->variant >= e->img.n_variant)
        return weft__fail(WEFT_EUSAGE, "step: variant %u, but the image has %u", s->variant, e->img.n_variant);
    if (s->rows > e->rows[s->variant])
        return weft__fail(WEFT_EUSAGE, "step: %u rows, but variant %u has %u", s->rows, s->variant,
                          e->rows[s->variant]);
    if (s->payload_bytes > WEFT_STEP_PAYLOAD_BYTES)
        return weft__fail(WEFT_EUSAGE, "step: payload of %u bytes; at most %u", s->payload_bytes,
                          WEFT_STEP_PAYLOAD_BYTES);
    return 0;
}

static int remember_step(weft_engine *e, uint32_t seq, uint32_t variant)
{
    if (e->config.trace_records == 0) return 0;
    if (seq > e->cap_traced) {
        uint32_t cap = seq * 2 + 64;
        weft__traced_step *grown = realloc(e->traced, cap * sizeof *grown);
        if (!grown) return weft__fail(WEFT_ENOMEM, "trace of %u steps", seq);
        e->traced = grown;
        e->cap_traced = cap;
    }
    e->traced[seq - 1] = (weft__traced_step){.submit_ns = weft__now_ns(), .variant = variant};
    return 0;
}

static void post(weft_engine *e, const weft_step_head *head, const void *payload)
{
    weft_step_record *r = &e->mailbox->ring[slot_of(head->seq)];
    uint32_t words[16];
    memcpy(words, head, sizeof words);
    if (head->payload_bytes) memcpy(r->payload, payload, head->payload_bytes);
    e->flight[slot_of(head->seq)] = (weft__flight){weft__now_ns(), head->variant, head->uses, head->deadline_us};
    e->submitted = head->seq;
    weft_record_post(r->head, words, head->seq); /* acquired by device 0's worker 0 */
}

int weft__post_stop(weft_engine *e)
{
    if (e->config.oneshot && e->submitted == e->config.oneshot) return 0; /* they leave by themselves */
    weft__steps_look(e);
    if (e->submitted - e->completed >= WEFT_STEP_RING) return WEFT_EBUSY;
    weft_step_head head = {.seq = e->submitted + 1, .flags = WEFT_STEP_STOP};
    post(e, &head, NULL);
    return 0;
}

static int submit(weft_engine *e, const weft_step *step, uint32_t *seq)
{
    weft_step s = WEFT_STEP_INIT;
    int status = check_step(e, step);
    if (!status) status = weft__steps_refresh(e);
    if (status) return status;
    if (weft_ld_relaxed_sys(&e->mailbox->abort_request.value) != 0) /* idle workers may not have seen it yet */
        return weft__fail(WEFT_EABORT, "the engine was asked to stop");
    memcpy(&s, step, step->size < sizeof s ? step->size : sizeof s);
    if (e->config.oneshot && e->submitted == e->config.oneshot)
        return weft__fail(WEFT_EUSAGE, "all %u steps of a oneshot engine were submitted", e->config.oneshot);
    if (e->submitted - e->completed >= WEFT_STEP_RING)
        return weft__fail(WEFT_EBUSY, "%u steps are in flight", WEFT_STEP_RING);
    status = weft__bring_back(e);
    if (!status) status = remember_step(e, e->submitted + 1, s.variant);
    if (status) return status;
    weft_step_head head = {
        .seq = e->submitted + 1,
        .variant = s.variant,
        .uses = ++e->uses[s.variant],
        .rows = s.rows ? s.rows : e->rows[s.variant],
        .payload_bytes = s.payload_bytes,
        .deadline_us = s.deadline_us ? s.deadline_us : e->config.deadline_us,
    };
    post(e, &head, s.payload);
    e->active_ns = weft__now_ns();
    if (seq) *seq = head.seq;
    if (e->config.oneshot && e->submitted == e->config.oneshot) return weft__engine_launch(e);
    return 0;
}

int weft_step_submit(weft_engine *e, const weft_step *step, uint32_t *seq)
{
    weft__lock(e);
    int status = submit(e, step, seq);
    weft__unlock(e);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- wait */

static int is_done(const weft_engine *e, uint32_t seq) { return (int32_t)(e->completed - seq) >= 0; }

static int poll(weft_engine *e, uint32_t seq, int *done)
{
    if ((int32_t)(seq - e->submitted) > 0) return weft__fail(WEFT_EUSAGE, "step %u was not submitted", seq);
    int status = is_done(e, seq) ? 0 : weft__steps_refresh(e);
    *done = is_done(e, seq);
    return *done ? 0 : status;
}

int weft_step_poll(weft_engine *e, uint32_t seq, int *done)
{
    weft__lock(e);
    int status = poll(e, seq, done);
    weft__unlock(e);
    return status;
}

int weft_step_wait(weft_engine *e, uint32_t seq)
{
    int done = 0;
    if (e->config.oneshot && !e->launched)
        return weft__fail(WEFT_EUSAGE, "%u of %u steps of a oneshot engine were submitted", e->submitted,
                          e->config.oneshot);
    for (uint32_t n = 0; !done; n++) {
        int status = weft_step_poll(e, seq, &done);
        if (status) return status;
        if (!done) weft__host_pause(e, n);
    }
    return 0;
}
