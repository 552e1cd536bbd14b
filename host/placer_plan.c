/* placer_plan.c: the ops of a graph of GEMMs as a task graph, and a placement of them back to the planner (place.c). */
#include "error.h"
#include "plan_internal.h"
#include "placer_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t element_bytes(uint32_t dtype) { return dtype == WEFT_FP32 || dtype == WEFT_U32 ? 4 : 2; }

/* What a tensor that an op wrote carries to its readers. It is one file: it goes to a device once. */
static int add_input(const weft__graph *g, uint32_t tensor, uint32_t to, weft__taskgraph *out)
{
    const weft__gtensor *t = tensor == WEFT_NONE ? NULL : &g->tensors[tensor];
    if (!t || t->producer == WEFT_NONE) return 0;
    return weft__tg_edge(out, t->producer, to, tensor, (double)t->rows * t->cols * element_bytes(t->dtype));
}

static uint64_t weight_bytes(const weft__graph *g, const weft__gop *o)
{
    if (o->w == WEFT_NONE) return 0;
    return (uint64_t)g->tensors[o->w].rows * g->tensors[o->w].cols * element_bytes(g->tensors[o->w].dtype);
}

int weft__tg_of_ops(const weft__graph *g, const weft__plan_options *opt, weft__taskgraph *out)
{
    double cost[WEFT_MAX_DEVICES];
    int status = 0;
    weft__tg_init(out, opt->n_device);
    for (uint32_t i = 0; i < g->n_op && !status; i++) {
        const weft__gop *o = &g->ops[i];
        if (o->kind != WEFT__GOP_GEMM && o->kind != WEFT__GOP_RMSNORM)
            return weft__fail(WEFT_EUNSUPPORTED, "op %s is neither a GEMM nor a norm: it can't be placed by itself",
                              o->name);
        for (uint32_t d = 0; d < opt->n_device; d++) {
            const uint64_t ns = weft__op_ns(g, opt, o, d);
            cost[d] = ns == UINT64_MAX ? INFINITY : (double)ns;
        }
        status = weft__tg_task(out, o->name, cost, weight_bytes(g, o));
        if (!status) status = add_input(g, o->x, i, out);
        if (!status && o->aux != o->x) status = add_input(g, o->aux, i, out);
    }
    return status ? status : weft__tg_finish(out, "the work");
}

int weft__place_ops(const weft__graph *g, const weft__plan_options *opt, const char *path, uint32_t **device)
{
    weft__taskgraph tasks;
    weft__machine m = {.n_device = opt->n_device}; /* an op runs on all workers of its device at once */
    weft__schedule s = {0};
    for (uint32_t d = 0; d < opt->n_device; d++)
        m.workers[d] = 1;
    int status = weft__tg_of_ops(g, opt, &tasks);
    if (!status) status = weft__placement_read(path, &tasks, &m, &s);
    *device = status ? NULL : malloc(g->n_op * sizeof **device);
    if (!status && !*device) status = weft__fail(WEFT_ENOMEM, "placement of %u ops", g->n_op);
    for (uint32_t i = 0; i < g->n_op && !status; i++)
        (*device)[i] = s.row[i].device;
    weft__schedule_free(&s);
    weft__tg_free(&tasks);
    return status;
}
