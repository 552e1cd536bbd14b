/* taskgraph_names.h: numbers for names, in the order in which they came. */
#ifndef WEFT_HOST_TASKGRAPH_NAMES_H
#define WEFT_HOST_TASKGRAPH_NAMES_H

#include "taskgraph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__tg_names { /* open addressing; a slot holds a number + 1 */
    const char **text;          /* not copied: it must outlive the table */
    uint32_t *slot;
    uint64_t room;
    uint32_t mask, n;
} weft__tg_names;

/* For `room` names. WEFT_ENOMEM. Free also after a failure. */
int weft__tg_names_init(weft__tg_names *n, uint64_t room);
void weft__tg_names_free(weft__tg_names *n);

/* The number of a text, or WEFT__TG_NONE; with `add` a new number (`room` of them at most). */
uint32_t weft__tg_names_find(weft__tg_names *n, const char *text, int add);

/* All tasks of a graph; a name that two tasks have: WEFT_EFILE. */
int weft__tg_names_of(const weft__taskgraph *g, weft__tg_names *out);

#ifdef __cplusplus
}
#endif

#endif
