/* policy.h: what a queue policy is made of, one header a policy, compiled as C11 (emulated devices) and as CUDA.
 *
 * Enters: nothing but words of its own in its device's memory. Leaves: tasks, each once. A policy's header includes this one
 * and defines the five functions below with WEFT_POLICY_FN; policy_push.h is the built-in push, written that way, and
 * docs/policies.md walks through another. weft_add_policy (CMake) compiles a worker's whole loop around it.
 *
 *   uint64_t policy_words(const weft_policy_queue *q)                               64-bit words it needs; host
 *   void     policy_init(const weft_policy_queue *q)                                makes them ready; they are zero; host
 *   void     policy_push(const weft_policy_queue *q, uint32_t worker, uint32_t task)   the task is ready: make it poppable
 *   int      policy_pop(const weft_policy_queue *q, uint32_t worker, uint32_t *task)   1: *task is the worker's; 0: none now
 *   int      policy_done(const weft_policy_queue *q, uint32_t worker)               1: nothing is left in this step for this worker
 *
 * There is one such queue a device and variant; it lives from step to step. In a step each of its tasks is pushed once, when
 * all that it waits for has arrived, by the worker that saw the last arrival: of this device (`worker` is its index), of
 * another, or as one that waits for nothing (WEFT_NONE). Workers of this device pop. A pop that returns 0 is tried again, with
 * growing pauses, unless done returns 1 right after it: then the worker leaves the step. A step ends when all workers have
 * left, and its tasks have all been run then, so one worker that stays is enough.
 *
 * Order: push is called after an acquire of all that the task reads. What pop returns must have been acquired from what push
 * released; weft_ring_push with weft_ring_poll or weft_ring_try_pop (protocol.h) do so. No function waits, and none keeps state
 * outside of q->words: workers come and go between steps.
 * Counts run on freely from q->base, which may be close to the wrap; compare them by differences.                          */
#ifndef WEFT_MEGAKERNEL_POLICY_H
#define WEFT_MEGAKERNEL_POLICY_H

#include "../tasks/abi.h"

#ifdef __CUDACC__
#include "order_ptx.cuh"
#define WEFT_POLICY_FN static __device__ __forceinline__
#define WEFT_PROTOCOL_FN static __device__ __forceinline__
typedef uint32_t weft_w32;
typedef uint64_t weft_w64;
#define WEFT_POLICY_CAS(scope)                                                                                         \
    WEFT_DEV uint32_t weft_atom_cas_relaxed_##scope(uint32_t *p, uint32_t expect, uint32_t v)                          \
    {                                                                                                                  \
        uint32_t old;                                                                                                  \
        asm volatile("atom.relaxed." #scope ".global.cas.b32 %0, [%1], %2, %3;"                                        \
                     : "=r"(old)                                                                                       \
                     : "l"(p), "r"(expect), "r"(v)                                                                     \
                     : "memory");                                                                                      \
        return old;                                                                                                    \
    }                                                                                                                  \
    WEFT_DEV uint64_t weft_atom_cas_acq_rel_b64_##scope(uint64_t *p, uint64_t expect, uint64_t v)                      \
    {                                                                                                                  \
        uint64_t old;                                                                                                  \
        asm volatile("atom.acq_rel." #scope ".global.cas.b64 %0, [%1], %2, %3;"                                        \
                     : "=l"(old)                                                                                       \
                     : "l"(p), "l"(expect), "l"(v)                                                                     \
                     : "memory");                                                                                      \
        return old;                                                                                                    \
    }
WEFT_POLICY_CAS(gpu)
WEFT_POLICY_CAS(sys)
#undef WEFT_POLICY_CAS
#else
#include "order_c11.h"
#define WEFT_POLICY_FN static inline
#endif
#include "protocol.h"

#define WEFT_POLICY_PARAMS 8 /* at most */
#define WEFT_POLICY_LINE 16  /* words of a line: what different workers write should not share one */

typedef struct weft_policy_queue {
    weft_w64 *words;        /* the policy's own */
    const weft_task *tasks; /* [n_task]; cost_ns is the planner's estimate */
    const uint32_t *place;  /* [n_task]: position in the plan's order */
    const uint16_t *home;   /* [n_task]: the worker that the static cut gives it to */
    uint32_t n_task, n_worker;
    uint32_t capacity;                  /* a power of two, at least n_task: what a ring must hold */
    uint32_t base;                      /* where counts begin */
    uint32_t uses;                      /* steps of this variant so far, this one included; 0 in init */
    uint32_t param[WEFT_POLICY_PARAMS]; /* see weft_policy_param */
} weft_policy_queue;

/* A parameter: `--queue ./mine.so:NAME=VALUE`. A header that has any defines POLICY_PARAMS as an initializer list of these
 * ({"name", default, min, max}, ...); the n-th one's value is q->param[n].                                              */
typedef struct weft_policy_param {
    const char *name;
    uint32_t otherwise, min, max;
} weft_policy_param;

#endif
