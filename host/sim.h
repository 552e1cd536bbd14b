/* sim.h: what a step would take: discrete events of the very loop that workers run. Pure, deterministic.
 *
 *   image, task graph ─ sim_image.c, sim_dag.c ─ weft__sim_plan ─ sim.c ─ times, waits, traffic
 *
 * The loop: fetch (five policies), load weights ahead of the waits (static, fifo), wait for counters, run, signal. Workers of a
 * device share its memory, all who pass a port of the topology share that port, emulated workers share cores: by equal
 * parts. A task ends when its own work is done and all its bytes are there. Arrivals of a remote counter come after the bytes
 * that they announce, plus the way's latency.                                                                           */
#ifndef WEFT_HOST_SIM_H
#define WEFT_HOST_SIM_H

#include "image.h"
#include "taskgraph.h"
#include "topology.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__SIM_ANY 0xffffu /* no worker of its own */

typedef struct weft__sim_task {
    double solo_ns;                  /* of its worker, alone: what doesn't wait for bytes */
    float tail_ns;                   /* after that and after the last byte */
    float ahead, bytes;              /* of device memory: weights that may be loaded ahead of the waits; the rest */
    uint32_t wait, signal, transfer; /* first of its waits, signals, transfers; the next task's first ends them */
    uint16_t device, worker;         /* worker: static's and steal's list; WEFT__SIM_ANY: the simulator deals */
    uint16_t ring;                   /* priority: 0 is the most urgent */
    uint8_t alt;                     /* steal: device that may take it; 0xff: none */
    uint8_t timed;                   /* 1: takes solo_ns of the clock, also where cores are shared */
} weft__sim_task;

typedef struct weft__sim_wait {
    uint32_t counter;
    uint8_t hop;  /* WEFT__HOP_* */
    uint8_t late; /* 0: gates the start; else the part of the task, of 256, that can be done before */
    uint16_t pad;
} weft__sim_wait;

typedef struct weft__sim_signal {
    uint32_t counter;
    uint16_t device; /* of the counter */
    uint16_t
        transfer; /* of this task (its first is 0): the arrival comes after those bytes; WEFT__SIM_ANY: after none */
} weft__sim_signal;

typedef struct weft__sim_transfer { /* bytes that a task sends once its body has ended */
    double bytes;
    uint32_t to;
    uint32_t pad;
} weft__sim_transfer;

typedef struct weft__sim_plan {
    uint32_t n_device, n_task, n_counter;
    uint32_t workers[WEFT_MAX_DEVICES];
    uint32_t first[WEFT_MAX_DEVICES + 1]; /* order[first[d] .. first[d + 1]): device d's queue */
    weft__sim_task *tasks;                /* [n_task + 1] */
    weft__sim_wait *waits;
    weft__sim_signal *signals;
    weft__sim_transfer *transfers;
    uint32_t *arrivals; /* [n_counter] */
    uint32_t *order;    /* [n_task] */
} weft__sim_plan;
void weft__sim_plan_free(weft__sim_plan *p); /* legal on a zeroed struct */

typedef struct weft__sim_options {
    uint32_t policy; /* enum weft_policy */
    int contention_free; /* the textbooks' model: ways, memory and cores are not shared, and the loop itself costs nothing */
} weft__sim_options;

typedef struct weft__sim_row { /* of a task */
    double fetch, start, end;
    uint32_t device, worker; /* that ran it */
} weft__sim_row;

typedef struct weft__sim_worker {
    double busy_ns, wait_ns,
        idle_ns;    /* in bodies; for inputs of a task that it holds; without a task. They add up to */
    uint32_t tasks; /* the makespan, fetching and signalling apart */
    uint32_t stolen;
} weft__sim_worker;

typedef struct weft__sim_link {
    double bytes;
    uint64_t transfers, signals;
} weft__sim_link;

typedef struct weft__sim_result {
    double makespan_ns; /* from the first fetch to the last end, signals included */
    double step_ns;     /* host to host: with the doorbell */
    uint32_t n_device;
    uint32_t workers[WEFT_MAX_DEVICES], first_worker[WEFT_MAX_DEVICES + 1];
    weft__sim_worker *worker;              /* device after device */
    weft__sim_link *link;                  /* [from * n_device + to] */
    double memory_bytes[WEFT_MAX_DEVICES]; /* read by workers of device d */
    double *port_busy_ns;                  /* [n_port of the topology]: time with anything in it */
    uint64_t stolen;
} weft__sim_result;
void weft__sim_result_free(weft__sim_result *r); /* legal on a zeroed struct */

/* One step. rows: [n_task], or NULL. WEFT_EUSAGE: the plan doesn't fit the topology; WEFT_EREFUSED: tasks that never become
 * ready, the first of them named by number; WEFT_ENOMEM. *out is freed by the caller, also after a failure.               */
int weft__sim_run(const weft__sim_plan *plan, const weft__topology *topo, const weft__sim_options *options,
                  weft__sim_row *rows, weft__sim_result *out);

/* ------------------------------------------------------------------------------------------------------- sim_bound.c */

typedef struct weft__sim_bound { /* ns that no policy beats */
    double path_ns;              /* bodies and ways along the longest chain of waits */
    double work_ns;              /* all bodies over all workers, or over the host's cores where that is more */
    double memory_ns;            /* bytes of the busiest memory over its bandwidth */
    double bound_ns;             /* the largest of the three */
} weft__sim_bound;

/* WEFT_ENOMEM. The plan fits the topology (weft__sim_run has said so). */
int weft__sim_bound_of(const weft__sim_plan *plan, const weft__topology *topo, weft__sim_bound *out);

/* ------------------------------------------------------------------------------------------------------- sim_image.c */

/* Variant v of an image. worker_of[d][task]: the worker of each task as the engine cuts lists (runtime/upload.c); NULL: dealt
 * here, one after another. Workers of the topology count, not the image's.                                              */
int weft__sim_of_image(const weft__image *img, uint32_t variant, const weft__topology *topo,
                       const uint16_t *const *worker_of, uint32_t policy, weft__sim_plan *out);

/* The rows and blocks (profile.h) by which a task is priced; 0: its kind has no blocks. */
int weft__sim_shape(const weft__image *img, uint32_t device, const weft_task *t, uint32_t *rows, double *blocks);

/* --------------------------------------------------------------------------------------------------------- sim_dag.c */

/* A task graph where s says: device and worker of each task; tasks of one worker, and of a device's queue, in order of their
 * start, then of their number.                                                                                          */
int weft__sim_of_taskgraph(const weft__taskgraph *g, const weft__schedule_row *row, const weft__topology *topo,
                           weft__sim_plan *out);

#ifdef __cplusplus
}
#endif

#endif
