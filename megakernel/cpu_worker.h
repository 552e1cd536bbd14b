/* cpu_worker.h: a worker of an emulated device, one CPU thread: the loop fetch, wait, run, signal.
 *
 * Enters: the root of its device (weft_dev), everything in one address space. Leaves: when told, when aborted, or after
 * max_steps. Files: cpu_worker.c the loop, cpu_step.c doorbell and gate, cpu_queue.c where tasks come from, cpu_rings.c the rings
 * of steal and priority, cpu_spin.c waiting with back-off, deadline and abort. All of them are compiled once more into a module
 * with a policy of somebody's own (policy_module.h), so they call nothing outside: bodies come through weft__loop.
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

enum weft__victim {      /* steal: in which order a worker looks into the rings of others */
    WEFT__VICTIM_RING,   /* the next one, and so on around */
    WEFT__VICTIM_RANDOM, /* around from one that it draws */
    WEFT__VICTIM_NEAR    /* by distance of their numbers, which are those of cores where workers are pinned */
};

struct weft__worker;
typedef struct weft__loop weft__loop;
typedef void weft__run_fn(const weft_dev *root, uint32_t index, void *scratch, uint32_t busy_spins,
                          const weft__loop *loop);

/* What all workers of an engine have in common beside weft_dev, which CUDA knows too. Immutable while they run. */
struct weft__loop {
    weft__run_fn *run;
    const weft_kind_row *kinds; /* weft__kinds */
    uint32_t victim;            /* steal: enum weft__victim */
    uint32_t half;              /* steal: a thief on the same device takes half of a ring, not one task */
    uint32_t lifo;              /* steal: rings give the youngest task first */
    uint32_t backoff_ns;        /* steal: pause after a look into all rings that found nothing */
    uint32_t foreign;           /* the policy is a module's: what it gives is counted */
    uint32_t param[8];          /* of a module's policy */
};

/* How often, since the start; modular. In weft_dev.trace_n's line of the worker, from word WEFT__COUNTS on. */
typedef struct weft__counts {
    uint32_t pops;   /* tasks taken */
    uint32_t empty;  /* looks for a task that found none: one queue, or all rings that the worker may take from */
    uint32_t steals; /* tasks taken out of another worker's ring, of this device or another */
    uint32_t failed; /* looks into such a ring that got none */
    uint32_t abroad; /* of the steals: from other devices */
} weft__counts;
enum {
    WEFT__COUNTS = 2 /* words into the line */
};

typedef struct weft__worker {
    const weft_dev *dev;
    const weft__loop *loop;
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
    uint32_t ticket[WEFT_MAX_VARIANTS]; /* fifo: of the variant's queue, kept from step to step */
    uint32_t holds;                     /* bit v: ticket[v] is one */
    uint32_t random;                    /* steal: state of the draw of victims */
    weft__counts counts;
    uint32_t pops0; /* when the step opened */

    weft_trace_record record; /* of the present task */
    uint32_t attempts;        /* polls for it */
    void *scratch;
} weft__worker;

/* Runs worker `index` of the device at root until it has to leave. scratch: WEFT_SCRATCH_BYTES, 64-byte aligned. */
weft__run_fn weft__worker_run;

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
/* Not 0: leave. */
int weft__step_close(weft__worker *w);

/* ----------------------------------------------------------------------------------------------------- cpu_queue.c */

/* Before the first fetch of a step. */
void weft__queue_open(weft__worker *w);
/* Gives back the tickets of steps to come. All workers of the device are between steps: nobody takes one meanwhile. */
void weft__queue_leave(weft__worker *w);
/* 1: *task is the next one, of w->home and w->hq (push family: it is ready); 0: this worker has none left in this step; -1: leave. */
int weft__fetch(weft__worker *w, uint32_t *task);
/* Sends a task's signals; push family: pushes what became ready by them. */
void weft__signal(weft__worker *w, const weft_task *t);

/* ----------------------------------------------------------------------------------------------------- cpu_rings.c */

/* As weft__fetch, for steal and priority. */
int weft__rings_fetch(weft__worker *w, uint32_t *task);
void weft__stack_push(const weft_queue_rt *q, uint32_t ring, uint32_t task);

static inline weft_line *weft__ring_line(const weft_queue_rt *q, uint32_t i)
{
    return &((weft_line *)(uintptr_t)q->heads)[i];
}
static inline weft_w32 *weft__ring_tail(const weft_queue_rt *q, uint32_t ring)
{
    return &weft__ring_line(q, 2 * ring + 1)->value;
}
static inline weft_w64 *weft__ring_slots(const weft_queue_rt *q, uint32_t ring)
{
    return (weft_w64 *)(uintptr_t)q->ring + (uint64_t)ring * (q->ring_mask + 1);
}

/* Makes a ready task poppable. q: of the device whose task it is. */
static inline void weft__rings_push(const weft__worker *w, const weft_queue_rt *q, uint32_t ring, uint32_t task)
{
    if (w->loop->lifo)
        weft__stack_push(q, ring, task);
    else
        weft_ring_push(weft__ring_tail(q, ring), weft__ring_slots(q, ring), q->ring_mask, task);
}

/* ----------------------------------------------------------------------------------------------------------- tasks */

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
