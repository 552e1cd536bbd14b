/* listsched_gaps.h: when the workers of a device are idle: a tree of gaps by start, for insertion in time log n.
 *
 * Every worker has one gap without an end: what follows its last run. Each node knows the latest end and the greatest length
 * below it, so both searches go down once. A treap (Seidel, Aragon 1996) with priorities from node numbers: deterministic. */
#ifndef WEFT_HOST_LISTSCHED_GAPS_H
#define WEFT_HOST_LISTSCHED_GAPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__GAP_NONE UINT32_MAX

typedef struct weft__gap {
    double start, end;
    double latest, longest; /* of the node and all below it */
    uint32_t worker, left, right, priority;
} weft__gap;

typedef struct weft__gaps { /* one tree a device, one pool for all */
    weft__gap *node;
    uint32_t n, room, unused; /* unused: a list through `left` */
    uint32_t *root;           /* [device] */
} weft__gaps;

/* All idle from 0 on. WEFT_ENOMEM. Free also after a failure. */
int weft__gaps_init(weft__gaps *g, uint32_t n_device, const uint32_t *workers);
void weft__gaps_free(weft__gaps *g);

/* The gap in which `cost` starts soonest at or after `ready`, among equals the shortest idle; *start. There always is one. */
uint32_t weft__gaps_find(const weft__gaps *g, uint32_t device, double ready, double cost, double *start);

/* Takes [start, end) out of a gap that was found. */
int weft__gaps_take(weft__gaps *g, uint32_t device, uint32_t gap, double start, double end);

#ifdef __cplusplus
}
#endif

#endif
