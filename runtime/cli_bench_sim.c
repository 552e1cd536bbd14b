/* cli_bench_sim.c: `weft bench sim`: how fast a step is simulated, on one core, from 10^4 tasks to 10^6. Enters: argv. Leaves: a
 * row a size and queue; exit code 1 where --check finds a bar missed.                                                   */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "cli_case.h"
#include "cli_sim.h"

#include <stdio.h>
#include <stdlib.h>

#define MIN_TASKS_PER_S 2e6
#define MAX_GROWTH 1.5 /* of the time a task from 10^4 tasks to 10^6: what leaving the caches costs */

typedef struct sim_bench {
    const char *topology, *strategy;
    uint32_t width, batch, repeats;
    bool json, check;
    int missed;
} sim_bench;

static int plan_chain(const sim_bench *b, const weft__topology *topo, uint32_t layers, weft__image *img)
{
    char chain[32], shape[32];
    weft__work w;
    uint64_t size = 0;
    void *bytes = NULL;
    weft__work_options options = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    snprintf(chain, sizeof chain, "%u,%u", b->width, b->width);
    snprintf(shape, sizeof shape, "%ux%u", topo->n_device, topo->device[0].workers);
    options.chain = chain;
    options.batch = b->batch;
    options.layers = layers;
    flags.devices = shape;
    flags.strategy = b->strategy;
    int status = weft__work_open(&options, &w);
    if (status) return status;
    status = weft__work_plan(&w, &flags, &bytes, &size, NULL);
    weft__work_close(&w);
    if (!status) status = weft__image_open(bytes, size, "image", img);
    if (status)
        free(bytes);
    else
        img->owned = bytes;
    return status;
}

static int report(sim_bench *b, const char *queue, uint32_t tasks, const weft__stats *s, double *first_ns)
{
    const double ns = s->p50 * 1e9 / tasks, least = s->min * 1e9 / tasks;
    if (!(*first_ns > 0)) *first_ns = least;
    const int missed = 1e9 / least < MIN_TASKS_PER_S || least > MAX_GROWTH * *first_ns; /* others' work apart */
    b->missed |= missed;
    if (!b->json) {
        printf("%-8s  %9u  %9.4f  %9.4f  %8.1f  %12.2f%s\n", queue, tasks, s->p50, s->min, ns, 1e3 / ns,
               b->check && missed ? "  MISSED" : "");
        return fflush(stdout) ? weft__fail(WEFT_EIO, "standard output") : 0;
    }
    json_t *r = weft__result_new("bench sim");
    json_object_set_new(r, "topology", json_string(b->topology));
    json_object_set_new(r, "strategy", json_string(b->strategy));
    json_object_set_new(r, "queue", json_string(queue));
    json_object_set_new(r, "tasks", json_integer(tasks));
    json_object_set_new(r, "n", json_integer((json_int_t)s->n));
    json_object_set_new(r, "median_s", json_real(s->p50));
    json_object_set_new(r, "min_s", json_real(s->min));
    json_object_set_new(r, "ns_per_task", json_real(ns));
    return weft__result_print(r);
}

static int bench_image(sim_bench *b, const weft__image *img, const weft__topology *topo, uint32_t policy,
                       const char *queue, double *first_ns)
{
    weft__sim_plan plan = {0};
    weft__stats summary;
    const weft__sim_options options = {.policy = policy};
    double *seconds = malloc(b->repeats * sizeof *seconds);
    int status = seconds ? weft__sim_of_image(img, 0, topo, NULL, policy, &plan)
                         : weft__fail(WEFT_ENOMEM, "%u samples", b->repeats);
    for (uint32_t i = 0; i < b->repeats && !status; i++) {
        weft__sim_result result;
        const uint64_t start = weft__now_ns();
        status = weft__sim_run(&plan, topo, &options, NULL, &result);
        seconds[i] = (double)(weft__now_ns() - start) * 1e-9;
        weft__sim_result_free(&result);
    }
    if (!status) status = weft__stats_of(seconds, b->repeats, &summary);
    if (!status) status = report(b, queue, plan.n_task, &summary, first_ns);
    weft__sim_plan_free(&plan);
    free(seconds);
    return status;
}

static int bench_all(sim_bench *b, const weft__topology *topo)
{
    static const char *const queues[WEFT_POLICY_COUNT] = {"static", "fifo", "push", "steal", "priority"};
    double first_ns[WEFT_POLICY_COUNT] = {0};
    weft__image img = {0};
    int status = plan_chain(b, topo, 8, &img);
    if (status) return status;
    const uint64_t one = img.n_task;
    weft__image_close(&img);
    for (uint64_t tasks = 10000; tasks <= 1000000 && !status; tasks *= 10) {
        status = plan_chain(b, topo, (uint32_t)((tasks * 8 + one - 1) / one), &img);
        for (uint32_t p = 0; p < WEFT_POLICY_COUNT && !status; p++)
            if (img.header->policies >> p & 1) status = bench_image(b, &img, topo, p, queues[p], &first_ns[p]);
        weft__image_close(&img);
    }
    return status;
}

int weft__cli_bench_sim(int argc, char **argv)
{
    sim_bench b = {.topology = "h200:8", .strategy = "cta", .width = 8192, .batch = 2048, .repeats = 5};
    const weft__option table[] = {
        {"--topology", "T", "as in weft sim (default h200:8)", WEFT_OPT_TEXT, &b.topology, 0, 0},
        {"--strategy", "S", "default cta", WEFT_OPT_TEXT, &b.strategy, 0, 0},
        {"--repeats", "N", "simulations of each size and queue (default 5)", WEFT_OPT_U32, &b.repeats, 1, 1000},
        {"--check", NULL, "exit code 1 if under 2 M tasks a second, or not flat", WEFT_OPT_FLAG, &b.check, 0, 0},
        {"--json", NULL, "one JSON object a size and queue", WEFT_OPT_FLAG, &b.json, 0, 0},
        {0},
    };
    weft__topology *topo = NULL;
    int status = weft__options(argc, argv, table, "weft bench sim [options]",
                               "Simulates chains of 8192 x 8192 GEMMs at batch 2048 with every queue, on one core.",
                               NULL, NULL);
    if (status == -1) return 0;
    if (!status) status = weft__topo_open(b.topology, &topo);
    if (!status && !b.json)
        printf("simulating %s, strategy %s: median of %u\n\nqueue         tasks   median s      min s   ns/task  "
               "M tasks a s\n",
               b.topology, b.strategy, b.repeats);
    if (!status) status = bench_all(&b, topo);
    weft__topo_free(topo);
    if (status) return weft__exit("bench sim", status);
    return b.check && b.missed ? weft__exit("bench sim", weft__fail(WEFT_EWRONG, "a bar was missed")) : 0;
}
