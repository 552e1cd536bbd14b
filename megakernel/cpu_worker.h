/* cpu_worker.h: a worker of an emulated device, one CPU thread: the loop fetch, wait, run, signal.
 *
 * Enters: the root of its device (weft_dev), everything in one address space. Leaves: when told, when aborted, or after
 * max_steps. Files: cpu_worker.c the loop, cpu_step.c doorbell and gate, cpu_queue.c the five policies, cpu_spin.c waiting
 * with back-off, deadline and abort.
 * Invariant: every wait goes through weft__spin, so every wait ends by an abort or the deadline.                        */
#ifndef WEFT_MEGAKERNEL_CPU_WORKER_H
#define WEFT_MEGAKERNEL_CPU_WORKER_H

#include "../tasks/kinds.h"
#include "clock.h"
#include "order_c11.h"
#include "protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__worker {
    const weft_dev *dev;
    uint32_t index;      /* in its device */
    uint32_t busy_spins; /* polls before the core is yielded: few if workers share cores */
    weft_ctl *ctl;       /* of its device */
    weft_mailbox *mailbox;

    weft_step_head step; /* the present one */
    const uint8_t *payload;
    const weft_queue_rt *q; /* of the step's variant */
    const weft_dev *home;   /* of the present task: another device, if it was stolen there */
    const weft_queue_rt *hq;
    uint64_t deadline_ns; /* of what it waits for in this step; 0: none */

    uint32_t next, end;                 /* static: what is left of its list */
    uint32_t ticket[WEFT_MAX_VARIANTS]; /* fifo, push: of the variant's queue, kept from step to step */
    uint32_t holds;                     /* bit v: ticket[v] is one */

    weft_trace_record record; /* of the present task */
    uint32_t attempts;        /* polls for it */
    void *scratch;
} weft__worker;

/* Runs worker `index` of the device at root until it has to leave. scratch: WEFT_SCRATCH_BYTES, 64-byte aligned. */
void weft__worker_run(const weft_dev *root, uint32_t index, void *scratch, uint32_t busy_spins);

/* ------------------------------------------------------------------------------------------------------ cpu_spin.c */

typedef struct weft__spin_state {
    uint32_t polls;
    uint64_t start_ns; /* set at the first look at the clock */
} weft__spin_state;

typedef struct weft__blame { /* what a wait is for; becomes the report if it doesn't end */
    uint32_t cause, task, counter, expected, seen;
} weft__blame;

/* One unsuccessful poll: backs off, looks at the abort word, and at times at the clock. Not 0: leave. */
int weft__spin(weft__worker *w, weft__spin_state *s, const weft__blame *blame);

/* Stops all devices. The first to do so, engine-wide, writes the report. */
void weft__abort(weft__worker *w, const weft__blame *blame, uint64_t waited_ns);

/* ------------------------------------------------------------------------------------------------------ cpu_step.c */

void weft__check_in(weft__worker *w);
/* Waits for the next step's record and passes the gate. Not 0: leave. */
int weft__step_open(weft__worker *w);
void weft__step_close(weft__worker *w);

/* ----------------------------------------------------------------------------------------------------- cpu_queue.c */

/* Before the first fetch of a step. */
void weft__queue_open(weft__worker *w);
/* 1: *task is the next one, of w->home and w->hq (push family: it is ready); 0: this worker has none left in this step; -1: leave. */
int weft__fetch(weft__worker *w, uint32_t *task);
/* Sends a task's signals; push family: pushes what became ready by them. */
void weft__signal(weft__worker *w, const weft_task *t);
/* Sends a task that waits for nothing to its ring. */
void weft__push_task(const weft_queue_rt *q, uint32_t task);

/* Number n of a task's waits and signals: two inline, the others beside. */
static inline weft_wait weft__wait_of(const weft_queue_rt *q, const weft_task *t, uint32_t n)
{
    return n < 2 ? t->wait[n] : ((const weft_wait *)(uintptr_t)q->side)[t->extra + n - 2];
}

static inline weft_signal weft__signal_of(const weft_queue_rt *q, const weft_task *t, uint32_t n)
{
    uint32_t side_waits = t->n_wait > 2 ? t->n_wait - 2u : 0;
    return n < 2 ? t->signal[n] : ((const weft_signal *)(uintptr_t)q->side)[t->extra + side_waits + n - 2];
}

#ifdef __cplusplus
}
#endif

#endif
