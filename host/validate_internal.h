/* validate_internal.h: one variant under proof, shared by validate.c (progress) and races.c (memory).
 *
 * Tasks and counters of all devices are numbered through: task id = queue.task - queue[0].task + id on its device. */
#ifndef WEFT_HOST_VALIDATE_INTERNAL_H
#define WEFT_HOST_VALIDATE_INTERNAL_H

#include "../tasks/layout.h"
#include "error.h"
#include "validate.h"

typedef struct weft__proof {
    const weft__image *img;
    uint32_t variant, n_task, n_counter;
    const weft_image_queue *queues; /* of this variant, [device] */
    const weft_task *tasks;         /* of this variant, numbered through */
    const weft_counter *counters;
} weft__proof;

static inline uint32_t weft__proof_task(const weft__proof *p, uint32_t device, uint32_t id)
{
    return p->queues[device].task - p->queues[0].task + id;
}

static inline uint32_t weft__proof_counter(const weft__proof *p, uint32_t device, uint32_t id)
{
    return p->queues[device].counter - p->queues[0].counter + id;
}

/* Device of a task numbered through. */
static inline uint32_t weft__proof_device(const weft__proof *p, uint32_t task)
{
    uint32_t lo = 0, hi = p->img->n_device;
    while (hi - lo > 1) {
        const uint32_t mid = (lo + hi) / 2;
        if (weft__proof_task(p, mid, 0) <= task)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* "task 17 of device 1 (layer3.down)" */
typedef struct weft__task_name {
    char text[112];
} weft__task_name;
weft__task_name weft__name_task(const weft__proof *p, uint32_t task);

/* validate.c */
int weft__prove_progress(const weft__proof *p, uint32_t *proven);
/* races.c: every read has one ordered writer, no byte two writers. writers[tensor region]: devices, over all
 * variants. */
int weft__prove_memory(const weft__proof *p);

#endif
