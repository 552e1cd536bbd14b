/* placer.h: placement policies: which device runs each task of a graph. Installed as weft/placer.h: a policy can live outside the
 * tree, as a shared object that `weft place GRAPH --policy ./mine.so` loads (docs/placement.md has one, whole).
 *
 * A policy is one function. It is given a finished graph and a machine, and fills in, for each task, either its device (weft then
 * schedules: tasks in the order of the longest way to the end, each where its device is free first, gaps included), or device,
 * worker, start and end, and sets `timed`. Times are ns. Same input and seed, same placement: weft compares on that ground.
 * Pointers that it is given are weft's, and valid until it returns; it keeps no state between calls.                   */
#ifndef WEFT_HOST_PLACER_H
#define WEFT_HOST_PLACER_H

#include "listsched.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_placing {
    const weft__taskgraph *graph;
    const weft__machine *machine;
    const char *options; /* "moves=100,start=heft": what stood behind the policy's colon; "" */
    uint64_t seed;

    uint32_t *device;        /* out: [task], all 0 at first */
    weft__schedule_row *row; /* out, if the policy sets `timed`: [task] */
    int timed;
    double bound;    /* out: no schedule on this machine is shorter; 0: not known */
    char error[256]; /* out, where it fails: why */
} weft_placing;

/* Returns 0, or a negative status of weft.h: WEFT_EUSAGE (-2) where graph, machine or options are none for this policy. */
typedef int weft_place_fn(weft_placing *p);

#define WEFT_PLACER_ABI 1u
#define WEFT_PLACER_SYMBOL "weft_placer_module"

typedef struct weft_placer {
    uint32_t abi, bytes; /* WEFT_PLACER_ABI, WEFT_PLACER_BYTES: of the headers that it was compiled with */
    const char *name, *about;
    const char *keys; /* options that it takes, a blank behind each: "moves start "; NULL: it looks at them itself */
    weft_place_fn *place;
} weft_placer;

#define WEFT_PLACER_BYTES                                                                                              \
    (uint32_t)(sizeof(weft_placing) + sizeof(weft__taskgraph) + sizeof(weft__machine) + sizeof(weft__tg_edge_row))

/* In a shared object, once: WEFT_PLACER("mine", "what it does", my_place) */
#define WEFT_PLACER(name, about, function)                                                                             \
    __attribute__((visibility("default")))                                                                             \
    const weft_placer weft_placer_module = {WEFT_PLACER_ABI, WEFT_PLACER_BYTES, name, about, NULL, function}

/* ------------------------------------------------------------------------------------------ what follows is weft's side */

typedef struct weft__policy {
    const weft_placer *placer;
    const char *options;
    void *handle; /* of a loaded one */
    char text[512];
} weft__policy;

/* "heft", "sa:moves=500,start=peft", "./mine.so:a=1" (a path has a /). WEFT_EUSAGE: no such policy, or option of it; WEFT_EFILE: a
 * shared object that is none. Close *out also after a failure.                                                         */
int weft__policy_open(const char *spec, weft__policy *out);
void weft__policy_close(weft__policy *p);
/* One line each of the built-in ones; NULL behind the last. */
const weft_placer *weft__policy_at(uint32_t i);

/* Room for the answers; run() the policy (this is what policy time is the time of); a schedule, checked: WEFT_EWRONG, with the
 * task, where the policy broke something. Free all three also after a failure.                                         */
int weft__placing_new(const weft__taskgraph *g, const weft__machine *m, uint64_t seed, weft_placing *out);
int weft__policy_run(const weft__policy *p, weft_placing *placing);
int weft__placing_schedule(const weft_placing *p, weft__schedule *out);
void weft__placing_free(weft_placing *p);

/* A number among the options; *out stays where it isn't there. WEFT_EUSAGE: no number of min .. max. */
int weft__placing_number(weft_placing *p, const char *key, double min, double max, double *out);
/* A word among the options, cut at the comma, or `otherwise`. */
const char *weft__placing_word(const weft_placing *p, const char *key, const char *otherwise, char *out, size_t room);

typedef struct weft__placement_score {
    double bound;      /* ns: the longest path of least costs, or all least costs over all workers */
    double slr;        /* makespan over bound */
    double speedup;    /* time of the one device and worker that runs all soonest, over makespan; 0: none runs all */
    double efficiency; /* speedup over workers */
    double balance;    /* the busiest device's time a worker over the mean; 1 is best */
} weft__placement_score;
int weft__placement_score_of(const weft__taskgraph *g, const weft__machine *m, const weft__schedule *s,
                             weft__placement_score *out);

/* placer_csv.c: task,device,worker,start (ns). Reading: columns by the names in the first line; worker and start may be missing.
 * WEFT_EFILE: the line; a task that is unknown, there twice, missing, on no device, or that breaks the schedule.
 * The schedule keeps what the file says; without start, devices are kept and the rest is made.                         */
int weft__placement_write(const weft__taskgraph *g, const weft__schedule *s, const char *path);
int weft__placement_read(const char *path, const weft__taskgraph *g, const weft__machine *m, weft__schedule *out);

/* The policies of placer.c's table. */
weft_place_fn weft__place_single, weft__place_round_robin, weft__place_blocks, weft__place_list, weft__place_heft,
    weft__place_peft, weft__place_cpop, weft__place_ldg, weft__place_sa, weft__place_scotch, weft__place_milp;

#ifdef __cplusplus
}
#endif

#endif
