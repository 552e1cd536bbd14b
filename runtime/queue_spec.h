/* queue_spec.h: what --queue and weft_engine_config.queue say: a policy with its parameters, or a module with its own policy.
 *
 *   static   fifo
 *   push     [:capacity=N]
 *   steal    [:victim=ring|random|near,amount=1|half,end=fifo|lifo,backoff=NS,capacity=N]
 *   priority [:buckets=N,capacity=N]
 *   PATH.so  [:NAME=N,...]     names as the module declares them; capacity=N too
 *
 * capacity: packets a ring, 0: as many as its device's tasks, rounded up to a power of two.                            */
#ifndef WEFT_RUNTIME_QUEUE_SPEC_H
#define WEFT_RUNTIME_QUEUE_SPEC_H

#include "../megakernel/policy_module.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__queue_spec {
    uint32_t policy; /* enum weft_policy; of a module: push */
    uint32_t capacity, buckets;
    weft__loop loop;
    const weft__policy_module *module; /* of push: the built-in one, or the loaded one */
    void *handle;                      /* of the loaded one, else NULL */
    char text[512];                    /* with all parameters */
} weft__queue_spec;

/* NULL: static. WEFT_EUSAGE: names policy, parameter and what it may be. A module that can't be loaded, or was made from other
 * sources than this library: WEFT_EFILE. Close *out also after a failure.                                              */
int weft__queue_parse(const char *text, weft__queue_spec *out);
void weft__queue_close(weft__queue_spec *spec); /* legal on a zeroed one, and twice */

/* WEFT_EUNSUPPORTED, naming it, if the spec has something that only emulated devices can do. */
int weft__queue_check_plain(const weft__queue_spec *spec);

/* Cuts a list of specs at its commas, those between parameters apart, in place. *n: their number so far; up to `most`. */
int weft__queue_split(char *list, const char **specs, uint32_t most, uint32_t *n);
/* 1: more than one spec. */
int weft__queue_is_list(const char *text);

#ifdef __cplusplus
}
#endif

#endif
