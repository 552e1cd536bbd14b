/* profile.h: what work and waiting cost on one kind of device. Measured by `weft bench calibrate`, or built in.
 *
 * A profile is plain data: JSON of a versioned schema (docs/simulator.md), or one of the built-in ones, whose sources stand
 * beside each figure in profile_builtin.c. Times are nanoseconds, rates bytes a nanosecond (which is GB/s).              */
#ifndef WEFT_HOST_PROFILE_H
#define WEFT_HOST_PROFILE_H

#include "../tasks/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__PROFILE_SCHEMA 1
#define WEFT__PROFILE_POINTS 12

/* Of one worker that works alone: task_ns, and for each block ns that depend on the rows of x, linearly between points and
 * beyond the last two. A block is 16 rows of W by 64 of K (GEMMs), 16 columns (REDUCE: of one split; RMSNORM, COPY), an
 * input or output (MIX). No points: tasks of this kind take what the planner's cost model says.                         */
typedef struct weft__kind_cost {
    double task_ns; /* whatever the size; on GPUs the end of a task, which no later load hides */
    uint32_t n_point;
    uint32_t rows[WEFT__PROFILE_POINTS]; /* rising */
    double block_ns[WEFT__PROFILE_POINTS];
} weft__kind_cost;

enum { /* from the last arrival of a counter to the start of a task that waits for it */
    WEFT__HOP_GPU,
    WEFT__HOP_SYS,
    WEFT__HOP_PACKET,
    WEFT__HOP_COUNT
};

typedef struct weft__profile {
    char name[48];
    char source[512];
    uint32_t workers;                   /* of a device, where the topology doesn't say; 0: it must */
    double memory_bpns;                 /* device memory, shared by its workers; 0: no limit is modelled */
    double stream_bpns;                 /* of it, what one worker can draw; 0: all */
    double activation;                  /* a byte of activations counts as so many of weights: it comes from a cache */
    double ahead_bytes;                 /* weights loaded before a task's inputs are there; 0: no prefetch */
    double cores;                       /* workers of the whole host that compute at full speed at once; 0: all */
    double fetch_ns[WEFT_POLICY_COUNT]; /* taking a task and being done with it, by policy */
    double signal_ns;                   /* of the worker, a signal */
    double push_ns;                     /* push family: of the worker, a task that it pushes */
    double hop_ns[WEFT__HOP_COUNT];     /* static, fifo */
    double ready_ns[2];                 /* push family: from the last arrival to the ring, .gpu and .sys */
    double open_ns, close_ns;           /* of a step: host to first fetch, last end to host */
    double link_bpns, link_ns;          /* each way of the device's link, and its latency; 0: none of its own */
    weft__kind_cost kind[WEFT_KIND_COUNT];
} weft__profile;

/* ns a block at so many rows. 0 where the kind has no points. */
double weft__profile_block_ns(const weft__kind_cost *k, uint32_t rows);

/* "h100", "h200", "b200", "cpu"; NULL if there is none of that name. Static storage. n-th name, or NULL. */
const weft__profile *weft__profile_builtin(const char *name);
const char *weft__profile_builtin_name(uint32_t n);

/* WEFT_EFILE with the line or the field. */
int weft__profile_read(const char *path, weft__profile *out);
/* The JSON text that weft__profile_read takes; free() it. NULL: out of memory. */
char *weft__profile_text(const weft__profile *p);

#ifdef __cplusplus
}
#endif

#endif
