/* cli_calibrate_check.c: predicted against measured: plans that calibration hasn't seen (other widths, batches, graphs), each
 * simulated with the profile and then run. See cli_calibrate.h.                                                         */
#include "../host/error.h"
#include "../host/plan.h"
#include "../tasks/seed.h"
#include "cli_calibrate.h"
#include "cli_case.h"
#include "cli_sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    N_DAG = 4,
    DAG_OPS = 60,
    MAX_PLANS = 64
};

static const struct {
    const char *widths, *strategy, *queue;
    uint32_t layers, batch;
} chains[] = {
    {"320,960,320", "single", "static", 4, 1}, {"320,960,320", "cta", "static", 4, 1},
    {"320,960,320", "cta", "push", 4, 12},     {"320,960,320", "tp", "static", 4, 12},
    {"320,960,320", "tp", "push", 4, 48},      {"320,960,320", "microbatch", "static", 4, 48},
    {"512,512", "single", "fifo", 8, 12},      {"512,512", "cta", "steal", 8, 48},
    {"512,512", "cta", "priority", 8, 1},      {"512,512", "tp", "steal", 8, 12},
    {"512,512", "microbatch", "push", 8, 24},  {"512,512", "cta", "fifo", 8, 24},
};
static const char *const dag_queues[N_DAG] = {"static", "fifo", "push", "steal"};

typedef struct checker {
    const char *devices;
    const weft__topology *topo;
    uint32_t steps;
    int json;
    double error[MAX_PLANS];
    size_t n;
} checker;

/* Up to four inputs among the ten ops before; 2 to 40 us a task. */
static int make_dag(const weft__topology *topo, uint64_t seed, void **image, uint64_t *bytes)
{
    weft__graph *g = NULL;
    weft__plan_options opt = weft__plan_defaults();
    opt.n_device = topo->n_device;
    for (uint32_t d = 0; d < topo->n_device; d++)
        opt.workers[d] = topo->device[d].workers;
    int status = weft__graph_new(&g);
    for (uint32_t i = 0; i < DAG_OPS && !status; i++) {
        uint32_t in[4], n = 0, op;
        for (uint32_t back = 1; back <= 10 && back <= i && n < 4; back++)
            if (weft_hash(seed, i, back) % 4 == 0) in[n++] = i - back;
        status = weft__graph_nop(g, weft_hash(seed, i, 20) % topo->n_device, 1 + weft_hash(seed, i, 21) % 3,
                                 2000 + weft_hash(seed, i, 22) % 38000, in, n, 0, &op);
    }
    if (!status) status = weft__plan(g, &opt, image, bytes, NULL);
    weft__graph_free(g);
    return status;
}

static int make_chain(const checker *c, size_t i, void **image, uint64_t *bytes)
{
    weft__work w;
    weft__work_options options = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    options.chain = chains[i].widths;
    options.layers = chains[i].layers;
    options.batch = chains[i].batch;
    flags.devices = c->devices;
    flags.strategy = chains[i].strategy;
    int status = weft__work_open(&options, &w);
    if (status) return status;
    status = weft__work_plan(&w, &flags, image, bytes, NULL);
    weft__work_close(&w);
    return status;
}

static int print_row(checker *c, const char *what, const char *strategy, uint32_t batch, const char *queue,
                     const weft__simulated *s, double measured)
{
    const double ratio = s->step_us / measured;
    c->error[c->n++] = fabs(ratio - 1);
    if (!c->json) {
        printf("%-12s %5u  %-10s  %-8s  %5u  %10.1f  %10.1f   %.3f\n", what, batch, strategy, queue, s->tasks,
               s->step_us, measured, ratio);
        return fflush(stdout) ? weft__fail(WEFT_EIO, "standard output") : 0;
    }
    json_t *r = weft__result_new("bench calibrate");
    json_object_set_new(r, "work", json_string(what));
    json_object_set_new(r, "batch", json_integer(batch));
    json_object_set_new(r, "strategy", json_string(strategy));
    json_object_set_new(r, "queue", json_string(queue));
    json_object_set_new(r, "devices", json_string(c->devices));
    json_object_set_new(r, "tasks", json_integer(s->tasks));
    json_object_set_new(r, "predicted_us", json_real(s->step_us));
    json_object_set_new(r, "measured_us", json_real(measured));
    json_object_set_new(r, "ratio", json_real(ratio));
    return weft__result_print(r);
}

/* Takes the image. */
static int check_image(checker *c, void *image, uint64_t bytes, const char *what, const char *strategy, uint32_t batch,
                       const char *queue)
{
    weft__image img;
    weft__simulated s;
    weft__probe probe = {0};
    int status = weft__image_open(image, bytes, "image", &img);
    if (!status) status = weft__simulate(&img, c->topo, queue, 0, NULL, &s);
    if (!status) status = weft__probe_run(image, bytes, c->devices, queue, c->steps, &probe);
    if (!status) status = print_row(c, what, strategy, batch, queue, &s, probe.step_us);
    weft__probe_free(&probe);
    free(image);
    return status;
}

/* The devices as they are, with the costs that were measured. */
static int make_topology(const weft__profile *p, const char *devices, weft__topology **out)
{
    int status = weft__sim_topology("found", devices, NULL, out);
    if (status) return status;
    for (uint32_t i = 0; i < (*out)->n_profile; i++)
        (*out)->profile[i] = *p;
    for (uint32_t a = 0; a < (*out)->n_device; a++)
        for (uint32_t b = 0; b < (*out)->n_device; b++)
            (*out)->route[a][b].latency_ns = p->link_ns;
    return 0;
}

int weft__calibrate_check(const weft__profile *p, const char *devices, uint32_t steps, int json, double *median,
                          double *worst)
{
    weft__topology *topo = NULL;
    checker c = {.devices = devices, .steps = steps, .json = json};
    int status = make_topology(p, devices, &topo);
    c.topo = topo;
    if (!status && !json) printf("work         batch  strategy    queue     tasks  predicted us  measured us  ratio\n");
    for (size_t i = 0; i < sizeof chains / sizeof chains[0] && !status; i++) {
        void *image = NULL;
        uint64_t bytes = 0;
        status = make_chain(&c, i, &image, &bytes);
        if (!status)
            status = check_image(&c, image, bytes, chains[i].widths, chains[i].strategy, chains[i].batch,
                                 chains[i].queue);
    }
    for (uint32_t i = 0; i < N_DAG && !status; i++) {
        void *image = NULL;
        uint64_t bytes = 0;
        char what[16];
        snprintf(what, sizeof what, "dag %u", i);
        status = make_dag(topo, 700 + i, &image, &bytes);
        if (!status) status = check_image(&c, image, bytes, what, "-", 0, dag_queues[i]);
    }
    *worst = 0;
    for (size_t i = 0; i < c.n; i++)
        if (c.error[i] > *worst) *worst = c.error[i];
    *median = weft__median_of(c.error, c.n);
    weft__topo_free(topo);
    return status;
}
