/* sim_dag.c: a placed task graph as the simulator sees it: a counter a task, an arrival an edge. What crosses to another
 * device goes once for each file and device, and the arrivals of all edges of that file there come after it.            */
#include "sim.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

typedef struct cross { /* an edge whose ends are on two devices */
    uint32_t file, to, edge;
} cross;

typedef struct by_start {
    double start;
    uint32_t device, task;
} by_start;

static int compare_start(const void *left, const void *right)
{
    const by_start *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->task < b->task ? -1 : a->task > b->task;
}

static int compare_cross(const void *left, const void *right)
{
    const cross *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    return a->edge < b->edge ? -1 : a->edge > b->edge;
}

static int allocate(const weft__taskgraph *g, weft__sim_plan *p)
{
    p->tasks = calloc(g->n_task + 1ull, sizeof *p->tasks);
    p->waits = calloc(g->n_task + 1ull, sizeof *p->waits);
    p->signals = calloc(g->n_edge + 1ull, sizeof *p->signals);
    p->transfers = calloc(g->n_edge + 1ull, sizeof *p->transfers);
    p->arrivals = calloc(g->n_task + 1ull, sizeof *p->arrivals);
    p->order = calloc(g->n_task + 1ull, sizeof *p->order);
    p->n_task = p->n_counter = g->n_task;
    if (p->tasks && p->waits && p->signals && p->transfers && p->arrivals && p->order) return 0;
    return weft__fail(WEFT_ENOMEM, "simulation: %u tasks, %u edges", g->n_task, g->n_edge);
}

/* Equal starts: a task of no length may stand before one that waits for it, so position in the topological order decides.
 * `place` [task] is that position.                                                                                     */
static int order_tasks(const weft__taskgraph *g, const weft__schedule_row *row, weft__sim_plan *p)
{
    by_start *all = malloc((g->n_task + 1ull) * sizeof *all);
    if (!all) return weft__fail(WEFT_ENOMEM, "simulation: %u tasks", g->n_task);
    for (uint32_t i = 0; i < g->n_task; i++)
        all[i] = (by_start){row[g->order[i]].start, row[g->order[i]].device, i};
    qsort(all, g->n_task, sizeof *all, compare_start);
    for (uint32_t i = 0; i < g->n_task; i++) {
        p->order[i] = g->order[all[i].task];
        p->first[all[i].device + 1]++;
    }
    for (uint32_t d = 0; d < p->n_device; d++)
        p->first[d + 1] += p->first[d];
    free(all);
    return 0;
}

/* Task t's signals, one an edge; transfers where they cross. `crosses`: room for its edges. */
static void put_edges(const weft__taskgraph *g, const weft__schedule_row *row, uint32_t t, cross *crosses,
                      weft__sim_plan *p, uint32_t *n_transfer)
{
    uint32_t n = 0;
    weft__sim_task *task = &p->tasks[t];
    task->signal = g->out0[t];
    task->transfer = *n_transfer;
    for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++) {
        const weft__tg_edge_row *r = &g->edges[e];
        const uint32_t to = row[r->to].device;
        p->signals[e] = (weft__sim_signal){.counter = r->to, .device = (uint16_t)to, .transfer = WEFT__SIM_ANY};
        if (to != task->device) crosses[n++] = (cross){r->file, to, e};
    }
    qsort(crosses, n, sizeof *crosses, compare_cross);
    for (uint32_t i = 0; i < n; i++) {
        const int again = i && crosses[i].file != WEFT__TG_NONE && crosses[i].file == crosses[i - 1].file &&
                          crosses[i].to == crosses[i - 1].to;
        if (!again)
            p->transfers[(*n_transfer)++] = (weft__sim_transfer){g->edges[crosses[i].edge].bytes, crosses[i].to, 0};
        p->signals[crosses[i].edge].transfer = (uint16_t)(*n_transfer - 1 - task->transfer);
    }
}

static int fill(const weft__taskgraph *g, const weft__schedule_row *row, weft__sim_plan *p)
{
    cross *crosses = malloc((g->n_edge + 1ull) * sizeof *crosses);
    uint32_t n_wait = 0, n_transfer = 0;
    if (!crosses) return weft__fail(WEFT_ENOMEM, "simulation: %u edges", g->n_edge);
    for (uint32_t t = 0; t < g->n_task; t++) {
        weft__sim_task *task = &p->tasks[t];
        *task = (weft__sim_task){.solo_ns = weft__tg_cost(g, t, row[t].device),
                                 .wait = n_wait,
                                 .device = (uint16_t)row[t].device,
                                 .worker = (uint16_t)row[t].worker,
                                 .alt = 0xff,
                                 .timed = 1};
        p->arrivals[t] = g->in0[t + 1] - g->in0[t];
        if (p->arrivals[t]) p->waits[n_wait++] = (weft__sim_wait){.counter = t};
        for (uint32_t i = g->in0[t]; i < g->in0[t + 1]; i++)
            if (row[g->edges[g->in[i]].from].device != row[t].device) p->waits[n_wait - 1].hop = WEFT__HOP_SYS;
        put_edges(g, row, t, crosses, p, &n_transfer);
    }
    p->tasks[g->n_task] = (weft__sim_task){.wait = n_wait, .signal = g->n_edge, .transfer = n_transfer};
    free(crosses);
    return 0;
}

int weft__sim_of_taskgraph(const weft__taskgraph *g, const weft__schedule_row *row, const weft__topology *topo,
                           weft__sim_plan *out)
{
    *out = (weft__sim_plan){.n_device = topo->n_device};
    for (uint32_t d = 0; d < topo->n_device; d++)
        out->workers[d] = topo->device[d].workers;
    if (g->n_column != 1 && g->n_column != topo->n_device)
        return weft__fail(WEFT_EUSAGE, "tasks have costs for %u devices, the topology has %u", g->n_column,
                          topo->n_device);
    for (uint32_t t = 0; t < g->n_task; t++) {
        if (row[t].device >= topo->n_device || row[t].worker >= topo->device[row[t].device].workers)
            return weft__fail(WEFT_EUSAGE, "task %s: no worker %u of device %u", weft__tg_name(g, t), row[t].worker,
                              row[t].device);
        if (weft__tg_cost(g, t, row[t].device) > 1e300)
            return weft__fail(WEFT_EUSAGE, "task %s: can't run on device %u", weft__tg_name(g, t), row[t].device);
        if (g->out0[t + 1] - g->out0[t] >= WEFT__SIM_ANY)
            return weft__fail(WEFT_EUSAGE, "task %s: %u edges leave it, at most 65534 can", weft__tg_name(g, t),
                              g->out0[t + 1] - g->out0[t]);
    }
    int status = allocate(g, out);
    if (!status) status = fill(g, row, out);
    if (!status) status = order_tasks(g, row, out);
    for (uint32_t i = 0; i < g->n_task && !status; i++) { /* priority: by place in the queue */
        const uint32_t t = out->order[i], d = row[t].device, n = out->first[d + 1] - out->first[d];
        out->tasks[t].ring = (uint16_t)((uint64_t)(i - out->first[d]) * 8 / n);
    }
    return status;
}
