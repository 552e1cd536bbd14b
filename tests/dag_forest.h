/* dag_forest.h: several random task graphs (dag.h) side by side in one engine: on a GPU, starting one is what takes time.
 *
 * The graphs are those of consecutive seeds; devices, workers, policy, steps and first counter value those of the first. */
#ifndef WEFT_TESTS_DAG_FOREST_H
#define WEFT_TESTS_DAG_FOREST_H

#include "dag.h"

static inline int dag_forest(const dag_case *c, uint64_t first, uint32_t n, const dag_limits *l, weft__graph **out)
{
    int status = weft__graph_new(out);
    for (uint32_t k = 0; k < n && !status; k++) {
        dag_case one = dag_make(first + k, l);
        weft__graph *g = NULL;
        const uint32_t at = (*out)->n_op;
        one.n_device = c->n_device;
        status = dag_graph(&one, &g);
        if (status) break;
        for (uint32_t i = 0; !status && i < g->n_op; i++) {
            const weft__gop *o = &g->ops[i];
            uint32_t in[8];
            for (uint32_t j = 0; j < o->n_in; j++)
                in[j] = g->inputs[o->in + j] + at;
            status = weft__graph_mix(*out, o->device, o->constant, in, o->n_in, o->join, NULL);
        }
        weft__graph_free(g);
    }
    return status;
}

/* Runs the graphs of seeds first .. first + n on l's devices, and, with `both`, the same image on emulated devices as well;
 * *c: the case as it was run. Not 0: weft__error() says what was wrong.                                                 */
static inline int dag_run_forest(uint64_t first, uint32_t n, const dag_limits *l, int both, dag_case *c)
{
    weft__graph *g = NULL;
    void *image = NULL;
    uint64_t bytes = 0;
    *c = dag_make(first, l);
    int status = dag_forest(c, first, n, l, &g);
    if (!status) {
        c->n_task = g->n_op;
        status = dag_image(c, g, &image, &bytes);
    }
    if (!status) status = dag_run_image(c, l, g, image, bytes);
    if (!status && both) {
        dag_limits emulated = *l;
        emulated.devices = NULL;
        status = dag_run_image(c, &emulated, g, image, bytes);
    }
    if (status) {
        char what[160], why[512];
        dag_print(c, what, sizeof what);
        snprintf(why, sizeof why, "%s", weft__error());
        weft__fail(status, "%u graphs from %s: %s", n, what, why);
    }
    free(image);
    weft__graph_free(g);
    return status;
}

#endif
