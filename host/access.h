/* access.h: what a task reads and writes, for the validator. Weights are left out: nobody writes them. */
#ifndef WEFT_HOST_ACCESS_H
#define WEFT_HOST_ACCESS_H

#include "image.h"

enum {
    WEFT__READ,
    WEFT__READ_PACKET,
    WEFT__WRITE
};

typedef struct weft__access {
    uint32_t tensor;
    uint32_t r0, r1, c0, c1, s0, s1; /* rows, columns, splits, in the tensor's own coordinates */
    uint32_t
        origin; /* column at which the task's K range begins: `due` counts from it; WEFT_NONE: needed at the start */
    uint8_t what;
    uint8_t shares; /* all that the shares of an ATTN op write: columns are shares, which of them writes what is data */
} weft__access;

typedef struct weft__accesses {
    weft__access part[8];
    uint32_t n;
    const uint32_t *words; /* MIX: its args; else NULL */
} weft__accesses;

/* Not 0: nothing is known about this kind. */
int weft__task_accesses(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                        weft__accesses *a);

#endif
