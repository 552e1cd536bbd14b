/* listsched.h: list schedulers over a task graph: HEFT, CPOP, PEFT, with insertion into the gaps of workers.
 *
 * The model is the textbooks': links without contention, bytes that go nowhere on their own device, tasks that run alone on
 * a worker. All workers of a device are alike. Deterministic: ties go to the lower task and device, on a device to the worker
 * that idles shortest. Takes log n a task, device and edge.
 *
 *   HEFT, CPOP: Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002. PEFT: Arabnejad, Barbosa, IEEE TPDS 25(3), 2014.          */
#ifndef WEFT_HOST_LISTSCHED_H
#define WEFT_HOST_LISTSCHED_H

#include "taskgraph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__SCHED_MAX_DEVICES 64u

typedef struct weft__machine { /* what tasks are placed on */
    uint32_t n_device;
    uint32_t workers[WEFT__SCHED_MAX_DEVICES];
    uint64_t memory[WEFT__SCHED_MAX_DEVICES]; /* bytes for what tasks leave there; 0: no limit */
    double latency_ns[WEFT__SCHED_MAX_DEVICES][WEFT__SCHED_MAX_DEVICES]; /* from, to */
    double ns_per_byte[WEFT__SCHED_MAX_DEVICES][WEFT__SCHED_MAX_DEVICES];
} weft__machine;

typedef enum weft__listsched_kind {
    WEFT__HEFT,
    WEFT__CPOP,
    WEFT__PEFT,
    WEFT__LIST /* the critical path of costs alone: HLFET (Adam, Chandy, Dickson, CACM 17(12), 1974), with insertion */
} weft__listsched_kind;

typedef struct weft__schedule_row {
    double start, end;
    uint32_t device, worker;
} weft__schedule_row;

typedef struct weft__schedule {
    weft__schedule_row *row; /* [task] */
    double makespan;
    uint64_t cut_files; /* transfers; a file counts once for each device that it goes to */
    double cut_bytes;
} weft__schedule;

/* WEFT_EUSAGE: a machine without workers, or with another number of devices than the graph has costs for.
 * WEFT_EMACHINE: a task (named) fits into no device's memory. `out` is freed by the caller, also after failure.       */
int weft__machine_check(const weft__taskgraph *g, const weft__machine *m); /* the first of these errors */
int weft__listsched(const weft__taskgraph *g, const weft__machine *m, weft__listsched_kind kind, weft__schedule *out);

/* The same where each task's device is given: tasks in the order of the longest way to the end, costs and links as placed. A
 * task that its device can't run, or can't hold: WEFT_EMACHINE.                                                        */
int weft__listsched_fixed(const weft__taskgraph *g, const weft__machine *m, const uint32_t *device,
                          weft__schedule *out);

/* Sets cut_files and cut_bytes from the rows' devices. */
int weft__schedule_cut(const weft__taskgraph *g, weft__schedule *s);
void weft__schedule_free(weft__schedule *s);

/* WEFT_EWRONG, with the task, where rows break the graph, the machine or the workers: two at once, too early, ... */
int weft__schedule_check(const weft__taskgraph *g, const weft__machine *m, const weft__schedule *s);

/* When the bytes of edge e, ready on device `from` at `ready`, are on device `to`. */
static inline double weft__arrival(const weft__machine *m, double ready, double bytes, uint32_t from, uint32_t to)
{
    return from == to ? ready : ready + m->latency_ns[from][to] + bytes * m->ns_per_byte[from][to];
}

#ifdef __cplusplus
}
#endif

#endif
