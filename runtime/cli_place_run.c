/* cli_place_run.c: `weft run --graph`: a placed task graph, executed: each task spins for as long as it costs on its device, and starts
 * when the tasks that it waits for have signalled. The bytes of edges are not moved.
 *
 * Enters: options. Leaves: a text or one JSON line. A device's tasks stand in the order of the schedule's starts; which of its
 * workers runs one is the queue policy's affair.                                                                       */
#include "../host/error.h"
#include "../host/plan.h"
#include "../host/validate.h"
#include "../megakernel/clock.h"
#include "cli_case.h"
#include "cli_place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place_step {
    double start;
    uint32_t task, rank; /* rank: in the topological order */
} place_step;

static int by_start(const void *left, const void *right)
{
    const place_step *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* steps[i].task is the i-th task to start; op[task] = i. */
static int sort_steps(const weft__place_input *in, const weft__schedule *s, place_step *steps, uint32_t *op)
{
    for (uint32_t i = 0; i < in->g.n_task; i++) {
        const uint32_t t = in->g.order[i];
        const double ns = s->row[t].end - s->row[t].start;
        steps[i] = (place_step){s->row[t].start, t, i};
        if (ns >= UINT32_MAX)
            return weft__fail(WEFT_EUSAGE, "task %s takes %g s: at most 4 s can be run (--time-scale)",
                              weft__tg_name(&in->g, t), ns * 1e-9);
    }
    qsort(steps, in->g.n_task, sizeof *steps, by_start);
    for (uint32_t i = 0; i < in->g.n_task; i++)
        op[steps[i].task] = i;
    return 0;
}

/* A graph of NOP ops, one a task, whose cost is their number: finish_image() finds them again by it. */
static int make_ops(const weft__place_input *in, const weft__schedule *s, const place_step *steps, const uint32_t *op,
                    weft__graph *graph)
{
    const weft__taskgraph *g = &in->g;
    uint32_t *inputs = malloc((g->n_edge + 1ull) * sizeof *inputs);
    int status = inputs ? 0 : weft__fail(WEFT_ENOMEM, "a graph of %u tasks", g->n_task);
    for (uint32_t i = 0; i < g->n_task && !status; i++) {
        const uint32_t t = steps[i].task;
        uint32_t n = 0;
        for (uint32_t k = g->in0[t]; k < g->in0[t + 1]; k++)
            inputs[n++] = op[g->edges[g->in[k]].from];
        status = weft__graph_nop(graph, s->row[t].device, 1, i, inputs, n, 1, NULL);
    }
    free(inputs);
    return status;
}

static int by_number(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Each device's order, by the numbers that stand for costs; then costs. Proven anew. */
static int finish_image(const weft__schedule *s, const place_step *steps, uint32_t n_task, void *bytes, uint64_t size)
{
    weft__image img;
    uint32_t proven = 0;
    uint64_t *key = malloc((n_task + 1ull) * sizeof *key);
    int status = key ? weft__image_open(bytes, size, "graph", &img) : weft__fail(WEFT_ENOMEM, "%u tasks", n_task);
    for (uint32_t d = 0; !status && d < img.n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(&img, 0, d);
        weft_task *tasks = (weft_task *)(uintptr_t)img.tasks + q->task;
        uint32_t *order = (uint32_t *)(uintptr_t)img.order + q->order;
        for (uint32_t i = 0; i < q->n_task; i++)
            key[i] = (uint64_t)tasks[i].cost_ns << 32 | i;
        qsort(key, q->n_task, sizeof *key, by_number);
        for (uint32_t i = 0; i < q->n_task; i++)
            order[i] = (uint32_t)key[i];
        for (uint32_t i = 0; i < q->n_task; i++) {
            const weft__schedule_row *r = &s->row[steps[tasks[i].cost_ns].task];
            tasks[i].cost_ns = (uint32_t)lround(r->end - r->start);
        }
    }
    free(key);
    if (status) return status;
    weft__image_seal(bytes, size);
    status = weft__image_open(bytes, size, "graph", &img);
    if (!status) status = weft__validate(&img, &proven);
    if (status) return status;
    ((weft_image_header *)bytes)->policies = proven;
    weft__image_seal(bytes, size);
    return 0;
}

int weft__place_image(const weft__place_input *in, const weft__schedule *s, uint64_t seed, void **bytes, uint64_t *size)
{
    weft__plan_options opt = weft__plan_defaults();
    weft__graph *graph = NULL;
    place_step *steps = malloc(in->g.n_task * sizeof *steps);
    uint32_t *op = malloc(in->g.n_task * sizeof *op);
    *bytes = NULL;
    opt.n_device = in->m.n_device;
    memcpy(opt.workers, in->m.workers, sizeof opt.workers);
    opt.order = WEFT__BREADTH;
    opt.seed = seed;
    int status = steps && op ? 0 : weft__fail(WEFT_ENOMEM, "a graph of %u tasks", in->g.n_task);
    if (!status) status = sort_steps(in, s, steps, op);
    if (!status) status = weft__graph_new(&graph);
    if (!status) status = make_ops(in, s, steps, op, graph);
    if (!status) status = weft__plan(graph, &opt, bytes, size, NULL);
    if (!status) status = finish_image(s, steps, in->g.n_task, *bytes, *size);
    weft__graph_free(graph);
    free(steps);
    free(op);
    if (status) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- running */

static int time_steps(weft_engine *e, const weft__place_run *r, double *us, weft__stats *out)
{
    int status = 0;
    for (uint32_t i = 0; i < r->warmup + r->steps && !status; i++) {
        weft_step step = WEFT_STEP_INIT;
        uint32_t seq;
        const uint64_t start = weft__now_ns();
        status = weft_step_submit(e, &step, &seq);
        if (!status) status = weft_step_wait(e, seq);
        if (i >= r->warmup) us[i - r->warmup] = (double)(weft__now_ns() - start) * 1e-3;
    }
    return status ? status : weft__stats_of(us, r->steps, out);
}

static int print(const weft__place_run *r, const weft__place_input *in, const weft__place_result *p,
                 const weft__stats *us, weft_engine *e)
{
    weft_engine_info info = {.size = sizeof info};
    int status = weft_engine_get_info(e, &info);
    if (status) return status;
    if (!r->json) {
        printf("graph      %s: %u tasks, %u edges, on %s\n", in->text, in->g.n_task, in->g.n_edge, r->options.devices);
        printf("placement  %s; queue %s\n", p->name, info.queue);
        printf("predicted  %.1f us: the list scheduler's makespan, with transfers\n", p->s.makespan / 1e3);
        printf("a step     median %.1f us (95 %% interval %.1f to %.1f), min %.1f", us->p50, us->low, us->high,
               us->min);
        printf("; %llu steps; bytes are not moved\n", (unsigned long long)us->n);
        printf("           %.3f times the prediction\n", us->p50 * 1e3 / p->s.makespan);
        return 0;
    }
    json_t *o = weft__result_new("run graph");
    weft__place_json(&r->options, in, o);
    json_object_set_new(o, "policy", json_string(p->name));
    json_object_set_new(o, "queue", json_string(info.queue));
    json_object_set_new(o, "predicted_us", json_real(p->s.makespan / 1e3));
    json_object_set_new(o, "steps", json_integer((json_int_t)us->n));
    json_object_set_new(o, "warmup", json_integer(r->warmup));
    json_object_set_new(o, "min_us", json_real(us->min));
    json_object_set_new(o, "median_us", json_real(us->p50));
    json_object_set_new(o, "bytes_moved", json_false());
    return weft__result_print(o);
}

int weft__place_run_graph(const weft__place_run *r)
{
    weft__place_input in;
    weft__place_result p = {0};
    weft_engine *e = NULL;
    weft__stats stats;
    void *image = NULL;
    uint64_t size = 0;
    double *us = malloc(r->steps * sizeof *us);
    int status = us ? weft__place_open(&r->options, r->graph, &in) : weft__fail(WEFT_ENOMEM, "%u samples", r->steps);
    if (!us) return status;
    if (!status) status = weft__place_one(&in, r->policy, r->file, r->options.seed, &p);
    if (!status) status = weft__place_image(&in, &p.s, r->options.seed, &image, &size);
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = r->options.devices;
    config.queue = r->queue;
    config.deadline_us = r->deadline_us;
    if (!status) status = weft_engine_create(image, size, &config, &e);
    if (!status) status = time_steps(e, r, us, &stats);
    if (!status) status = print(r, &in, &p, &stats, e);
    weft_engine_destroy(e);
    free(image);
    free(us);
    weft__place_free(&p);
    weft__place_close(&in);
    return status;
}
