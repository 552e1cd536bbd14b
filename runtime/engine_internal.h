/* engine_internal.h: what the engine's files share: engine.c (life), upload.c (device memory), tensors.c, doorbell.c (doorbell
 * and watchdog), park.c, trace.c. Nothing in them asks what kind of device it has: that is behind backend.h.                    */
#ifndef WEFT_RUNTIME_ENGINE_INTERNAL_H
#define WEFT_RUNTIME_ENGINE_INTERNAL_H

#include "../host/error.h"
#include "../host/image.h"
#include "../megakernel/clock.h"
#include "backend.h"
#include "queue_spec.h"
#include "weft.h"

#include <pthread.h>
#include <stdio.h>

typedef struct weft__alloc { /* device memory to be freed */
    uint32_t device;
    uint64_t addr;
} weft__alloc;

typedef struct weft__flight { /* a step that was submitted; slot seq % WEFT_STEP_RING */
    uint64_t submit_ns;
    uint32_t variant, uses, deadline_us;
} weft__flight;

typedef struct weft__traced_step { /* one that was submitted while a trace is kept, by the host's clock */
    uint64_t submit_ns, done_ns;   /* done: seen to be; 0: not yet */
    uint32_t variant, pad;
} weft__traced_step;

/* Addresses of one device's structs. */
typedef struct weft__device_memory {
    uint64_t weights, work; /* arenas */
    uint64_t tables;        /* everything else, one allocation; what follows lies in it */
    uint64_t root, ctl, trace, trace_n, trace_clock, running;
} weft__device_memory;

struct weft_engine {
    weft__machine *m;
    const weft__backend *b;
    void *image_bytes; /* a copy; img looks into it */
    weft__image img;
    uint32_t policy;
    weft__queue_spec queue;
    weft_engine_config config; /* strings and source are not kept */

    weft__alloc *allocs;
    uint32_t n_alloc, cap_alloc;
    weft__device_memory mem[WEFT_MAX_DEVICES];
    uint64_t words[WEFT_MAX_VARIANTS][WEFT_MAX_DEVICES]; /* counters */
    weft_mailbox *mailbox;
    uint64_t mailbox_addr;

    int launched;                  /* workers are there, or on their way; not while the engine is parked */
    uint32_t submitted, completed; /* steps; seq of the last one */
    uint64_t completed_ns;         /* when the host saw it */
    uint32_t uses[WEFT_MAX_VARIANTS];
    uint32_t rows[WEFT_MAX_VARIANTS]; /* rows that a variant has */
    weft__flight flight[WEFT_STEP_RING];
    weft__traced_step *traced; /* with a trace: [seq - 1] */
    uint32_t cap_traced;

    int stopped;
    uint64_t stop_seen_ns; /* when the host first saw that a stop was asked for */
    weft_report report;
    uint32_t report_variant, report_uses;
    char *report_text;

    /* park.c: what follows, and all of the steps above, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* of the watcher */
    pthread_t watcher;
    int watching, quit;
    uint32_t parks;     /* so far */
    uint64_t active_ns; /* last time that a step was submitted or seen to be done, or workers started */
};

/* engine.c */
int weft__engine_alloc(weft_engine *e, uint32_t device, uint64_t bytes, uint64_t *addr); /* freed with the engine */
int weft__engine_launch(weft_engine *e); /* starts the workers and waits until all have checked in */
/* A wait of the host: spins, then yields, then sleeps; n counts its polls from 0. */
void weft__host_pause(const weft_engine *e, uint32_t n);

/* upload.c */
int weft__upload(weft_engine *e, const weft_weight_source *source);

/* doorbell.c */
int weft__post_stop(weft_engine *e);     /* the record that tells the workers to leave; WEFT_EBUSY: no room yet */
int weft__steps_refresh(weft_engine *e); /* looks for completed steps, aborts and overdue steps; 0 or WEFT_EABORT */
void weft__steps_look(weft_engine *e);   /* for completed steps only */

/* park.c */
int weft__parking_init(weft_engine *e); /* first of all */
int weft__watch_start(weft_engine *e);  /* once the workers are there */
void weft__watch_end(weft_engine *e);   /* before anything of the engine goes */
void weft__lock(const weft_engine *e);
void weft__unlock(const weft_engine *e);
int weft__bring_back(weft_engine *e); /* starts the workers of a parked engine; lock held */

/* trace.c */
int weft__trace_settle(weft_engine *e); /* the workers have left: their clocks may be others when they come back */
/* No step in flight: 0, else WEFT_EBUSY. */
int weft__trace_check(weft_engine *e);
/* The records of one worker, up to `cap` of them (at most trace_records), with times in ns of its device's clock; *n: how many it
 * has. *dropped: those beyond, which were not kept. */
int weft__trace_records(weft_engine *e, uint32_t d, uint32_t w, weft_trace_record *out, uint64_t cap, uint32_t *n,
                        uint32_t *dropped);
int weft__open_output(const char *path, FILE **out); /* "-": standard output */
int weft__close_output(const char *path, FILE *f);

/* report.c */
void weft__make_report(weft_engine *e); /* e->report is set: makes the text */
int weft__find_running(weft_engine *e, uint32_t *device, uint32_t *worker,
                       uint32_t *task); /* 1: the first task in a body */

/* cause.c */
typedef struct weft__cause {
    uint32_t device, counter, arrived, arrivals;
    uint32_t producers;                /* in the image; all have their inputs */
    uint32_t ready_device, ready_task; /* one of them */
} weft__cause;
int weft__find_cause(weft_engine *e, uint32_t variant, uint32_t uses, weft__cause *out); /* 1: found */

static inline int weft__steps_in_flight(const weft_engine *e) { return e->submitted != e->completed; }

/* Checks a struct that starts with its size: `known` bytes are ours; what lies beyond must be zero. */
int weft__check_size(const void *s, size_t size, size_t known, const char *name);

#endif
