/* dag.h: random task graphs of integers, run on an engine and compared with a sequential oracle. C11 and C++.
 *
 * Enters: a seed. Leaves: nothing, or a sentence that says what differed and how to replay it. Everything about a case
 * follows from its seed (dag_make): graph, devices, workers, policy, first counter value, number of steps, hand-off of inputs.
 * A task hashes its constant and its inputs' values in order, so a task that ran early, twice, late or not at all changes
 * its own value and that of all that depend on it. Work memory is poisoned before the first step, and before every step
 * where the case says so; else steps overlap as far as the step gate lets them.                                          */
#ifndef WEFT_TESTS_DAG_H
#define WEFT_TESTS_DAG_H

#include "../host/error.h"
#include "../host/graph.h"
#include "../host/plan.h"
#include "../runtime/weft.h"
#include "../tasks/seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dag_limits { /* zero: the defaults in brackets */
    uint32_t max_tasks;     /* [512] */
    uint32_t max_devices;   /* [8] */
    uint32_t max_workers;   /* per device [3] */
    uint32_t max_steps;     /* [4] */
    uint32_t policies;      /* bit p: policy p may be chosen [all five] */
    const char *devices;    /* a spec to run on instead of cpu:NxW; it opens exactly max_devices devices */
    uint32_t deadline_us;   /* [20 s] */
    const char *queue;      /* instead of the policy's name: with parameters, or a module */
} dag_limits;

typedef struct dag_case {
    uint64_t seed;
    uint32_t n_task, n_device, n_worker, n_step, policy, base, join, poison_each;
    uint32_t order, alternates;
} dag_case;

typedef struct dag_random {
    uint64_t seed;
    uint32_t n;
} dag_random;

static inline uint32_t dag_next(dag_random *r, uint32_t below) { return weft_hash(r->seed, r->n++, 17) % below; }

static inline const char *dag_policy_name(uint32_t p)
{
    static const char *const names[] = {"static", "fifo", "push", "steal", "priority"};
    return names[p];
}

static inline uint32_t dag_or(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }

static inline dag_case dag_make(uint64_t seed, const dag_limits *l)
{
    dag_random r = {seed, 0};
    dag_case c;
    uint32_t max_tasks = dag_or(l->max_tasks, 512), policies = dag_or(l->policies, 31);
    c.seed = seed;
    c.n_device = l->devices ? l->max_devices : 1 + dag_next(&r, dag_or(l->max_devices, 8));
    c.n_worker = 1 + dag_next(&r, dag_or(l->max_workers, 3));
    c.n_step = 1 + dag_next(&r, dag_or(l->max_steps, 4));
    /* Small graphs are as good at finding races, and many more of them run in the same time. */
    c.n_task = 2 + dag_next(&r, dag_next(&r, 4) ? (max_tasks < 64 ? max_tasks - 1 : 63) : max_tasks - 1);
    do
        c.policy = dag_next(&r, WEFT_POLICY_COUNT);
    while (!(policies >> c.policy & 1));
    c.base = 0u - dag_next(&r, 2 * c.n_task); /* just below the wrap */
    c.join = dag_next(&r, 2);
    c.poison_each = dag_next(&r, 2);
    c.order = dag_next(&r, WEFT__ORDER_COUNT);
    c.alternates = dag_next(&r, 2);
    return c;
}

static inline void dag_print(const dag_case *c, char *to, size_t size)
{
    snprintf(to, size, "seed %llu: %u tasks, %u devices x %u workers, %u steps, %s, base 0x%08x%s%s%s",
             (unsigned long long)c->seed, c->n_task, c->n_device, c->n_worker, c->n_step, dag_policy_name(c->policy),
             c->base, c->join ? ", join" : "", c->poison_each ? ", poisoned each step" : "",
             c->alternates ? ", alternates" : "");
}

static inline int dag_graph(const dag_case *c, weft__graph **out)
{
    dag_random r = {c->seed ^ 0x5851f42d4c957f2dull, 0};
    int status = weft__graph_new(out);
    for (uint32_t i = 0; i < c->n_task && !status; i++) {
        uint32_t in[5], n = i ? dag_next(&r, i < 5 ? i + 1 : 6) : 0, n_in = 0;
        for (uint32_t j = 0; j < n; j++) { /* near ones mostly: long chains and wide fronts both occur */
            uint32_t pick = dag_next(&r, 3) && i > 8 ? i - 1 - dag_next(&r, 8) : dag_next(&r, i), seen = 0;
            for (uint32_t k = 0; k < n_in; k++)
                seen |= in[k] == pick;
            if (!seen) in[n_in++] = pick;
        }
        status = weft__graph_mix(*out, dag_next(&r, c->n_device), weft_hash(c->seed, i, 23), in, n_in, c->join, NULL);
    }
    if (status) weft__graph_free(*out);
    return status;
}

static inline int dag_image(const dag_case *c, const weft__graph *g, void **bytes, uint64_t *size)
{
    weft__plan_options o = weft__plan_defaults();
    o.n_device = c->n_device;
    for (uint32_t d = 0; d < c->n_device; d++)
        o.workers[d] = c->n_worker;
    o.order = c->order;
    o.alternates = c->alternates;
    o.seed = c->seed;
    return weft__plan(g, &o, bytes, size, NULL);
}

static inline int dag_steps(const dag_case *c, weft_engine *e)
{
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq = 0;
    int status = weft_engine_poison(e, 0xa5);
    for (uint32_t i = 0; i < c->n_step && !status; i++) {
        if (i && c->poison_each) {
            status = weft_step_wait(e, seq);
            if (!status) status = weft_engine_poison(e, (uint8_t)i);
        }
        if (!status) status = weft_step_submit(e, &s, &seq);
    }
    return status ? status : weft_step_wait(e, seq);
}

static inline int dag_compare(const dag_case *c, const weft__graph *g, weft_engine *e)
{
    uint32_t *want = (uint32_t *)malloc(c->n_task * sizeof *want), *got = (uint32_t *)malloc(c->n_task * sizeof *got);
    int status = want && got ? 0 : weft__fail(WEFT_ENOMEM, "values of %u tasks", c->n_task);
    if (!status) status = weft__graph_mix_values(g, want);
    if (!status) status = weft_tensor_read(e, "out", got, c->n_task * sizeof *got);
    for (uint32_t i = 0; i < c->n_task && !status; i++)
        if (got[i] != want[i])
            status = weft__fail(WEFT_EWRONG, "op %u gave 0x%08x, expected 0x%08x", i, got[i], want[i]);
    free(want);
    free(got);
    return status;
}

static inline int dag_run_image(const dag_case *c, const dag_limits *l, const weft__graph *g, const void *bytes,
                                uint64_t size)
{
    char spec[32];
    snprintf(spec, sizeof spec, "cpu:%ux%u", c->n_device, c->n_worker);
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = l->devices ? l->devices : spec;
    config.queue = l->queue ? l->queue : dag_policy_name(c->policy);
    config.counter_base = c->base;
    config.deadline_us = dag_or(l->deadline_us, 20000000);
    weft_engine *e;
    int status = weft_engine_create(bytes, size, &config, &e);
    if (status) return status;
    status = dag_steps(c, e);
    if (!status) status = dag_compare(c, g, e);
    weft_engine_destroy(e);
    return status;
}

/* Runs the case of `seed`. Not 0: weft__error() says what and how to replay it. */
static inline int dag_run(uint64_t seed, const dag_limits *l)
{
    dag_case c = dag_make(seed, l);
    weft__graph *g;
    void *bytes = NULL;
    uint64_t size;
    int status = dag_graph(&c, &g);
    if (status) return status;
    status = dag_image(&c, g, &bytes, &size);
    if (!status) status = dag_run_image(&c, l, g, bytes, size);
    if (status) {
        char what[160], why[512];
        dag_print(&c, what, sizeof what);
        if (l->queue) snprintf(what + strlen(what), sizeof what - strlen(what), ", %s", l->queue);
        snprintf(why, sizeof why, "%s", weft__error());
        weft__fail(status, "%s: %s", what, why);
    }
    free(bytes);
    weft__graph_free(g);
    return status;
}

#endif
