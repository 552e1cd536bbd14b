/* cli_bench_queue.c: `weft bench queue`: what a task costs beyond its work, under each queue policy.
 *
 * The graph is layers of empty tasks, each layer waiting for all of the one before it through one counter: fetch, wait,
 * signal and nothing else. The policies take turns in random order.                                                     */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "cli_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_POLICIES = WEFT_POLICY_COUNT
};
static const char *const policies[N_POLICIES] = {"static", "fifo", "push", "steal", "priority"};

typedef struct queue_bench {
    const char *devices;
    uint32_t layers, tiles, steps, rounds;
    bool json;
    void *image;
    uint64_t bytes;
    uint32_t tasks, workers;
    double *us[N_POLICIES];
    uint64_t n[N_POLICIES];
} queue_bench;

static int make_plan(queue_bench *b)
{
    weft_device_info devices[WEFT_MAX_DEVICES];
    weft__graph *g;
    weft__plan_options opt = weft__plan_defaults();
    int status = weft_devices(b->devices, devices, WEFT_MAX_DEVICES, &opt.n_device);
    if (!status && opt.n_device > WEFT_MAX_DEVICES)
        status = weft__fail(WEFT_EUSAGE, "over %u devices", WEFT_MAX_DEVICES);
    if (status || (status = weft__graph_new(&g))) return status;
    for (uint32_t d = 0; d < opt.n_device; d++)
        opt.workers[d] = devices[d].workers;
    for (uint32_t layer = 0; layer < b->layers && !status; layer++) {
        uint32_t before = layer - 1;
        status = weft__graph_nop(g, layer % opt.n_device, b->tiles, 0, &before, layer ? 1 : 0, 0, NULL);
    }
    if (!status) status = weft__plan(g, &opt, &b->image, &b->bytes, NULL);
    weft__graph_free(g);
    return status;
}

static int time_policy(queue_bench *b, uint32_t policy)
{
    weft_engine *e = NULL;
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    weft_engine_info info = {.size = sizeof info};
    weft_step step = WEFT_STEP_INIT;
    config.devices = b->devices;
    config.queue = policies[policy];
    config.deadline_us = 10000000;
    int status = weft_engine_create(b->image, b->bytes, &config, &e);
    if (!status) status = weft_engine_get_info(e, &info);
    b->tasks = info.tasks;
    b->workers = info.n_worker;
    for (uint32_t i = 0; i < b->steps + b->steps / 10 && !status; i++) {
        uint32_t seq;
        uint64_t start = weft__now_ns();
        status = weft_step_submit(e, &step, &seq);
        if (!status) status = weft_step_wait(e, seq);
        if (i >= b->steps / 10) b->us[policy][b->n[policy]++] = (double)(weft__now_ns() - start) * 1e-3;
    }
    weft_engine_destroy(e);
    return status;
}

static int print_policy(const queue_bench *b, uint32_t policy)
{
    weft__stats s;
    int status = weft__stats_of(b->us[policy], b->n[policy], &s);
    if (status) return status;
    double ns = s.p50 * 1e3 / b->tasks, low = s.low * 1e3 / b->tasks, high = s.high * 1e3 / b->tasks;
    if (!b->json) {
        printf("%-9s  %12.1f  %9.1f  (%.1f to %.1f)\n", policies[policy], s.p50, ns, low, high);
        return 0;
    }
    json_t *r = weft__result_new("bench queue");
    json_object_set_new(r, "queue", json_string(policies[policy]));
    json_object_set_new(r, "devices", json_string(b->devices));
    json_object_set_new(r, "workers", json_integer(b->workers));
    json_object_set_new(r, "tasks", json_integer(b->tasks));
    json_object_set_new(r, "steps", json_integer((json_int_t)s.n));
    json_object_set_new(r, "median_us", json_real(s.p50));
    json_object_set_new(r, "ns_per_task", json_real(ns));
    json_object_set_new(r, "ns_per_task_low", json_real(low));
    json_object_set_new(r, "ns_per_task_high", json_real(high));
    return weft__result_print(r);
}

static int run_rounds(queue_bench *b)
{
    int status = make_plan(b);
    uint32_t turn[N_POLICIES] = {0, 1, 2, 3, 4};
    srand48((long)weft__now_ns());
    for (uint32_t r = 0; r < b->rounds && !status; r++)
        for (uint32_t i = 0; i < N_POLICIES && !status; i++) {
            uint32_t j = i + (uint32_t)lrand48() % (N_POLICIES - i), policy = turn[j];
            turn[j] = turn[i];
            turn[i] = policy;
            status = time_policy(b, policy);
        }
    if (!status && !b->json)
        printf(
            "%u layers of %u empty tasks on %s, %u workers; %u steps a policy\n\nqueue       median us/step  ns/task\n",
            b->layers, b->tiles, b->devices, b->workers, b->rounds * b->steps);
    for (uint32_t p = 0; p < N_POLICIES && !status; p++)
        status = print_policy(b, p);
    return status;
}

int weft__cli_bench_queue(int argc, char **argv)
{
    queue_bench b = {.devices = "cpu:2x1", .layers = 50, .tiles = 20, .steps = 200, .rounds = 5};
    const weft__option table[] = {
        {"--devices", "SPEC", "default cpu:2x1", WEFT_OPT_TEXT, &b.devices, 0, 0},
        {"--layers", "N", "default 50; layer i is on device i modulo their number", WEFT_OPT_U32, &b.layers, 1, 100000},
        {"--tiles", "N", "tasks a layer (default 20)", WEFT_OPT_U32, &b.tiles, 1, 100000},
        {"--steps", "N", "timed steps a turn (default 200)", WEFT_OPT_U32, &b.steps, 1, 1000000},
        {"--rounds", "N", "turns of each policy (default 5)", WEFT_OPT_U32, &b.rounds, 1, 1000},
        {"--json", NULL, "one JSON object a policy", WEFT_OPT_FLAG, &b.json, 0, 0},
        {0},
    };
    int status = weft__options(argc, argv, table, "weft bench queue [options]",
                               "Times layers of empty tasks under each queue policy.", NULL, NULL);
    if (status == -1) return 0;
    for (uint32_t p = 0; p < N_POLICIES && !status; p++) {
        b.us[p] = malloc((size_t)b.steps * b.rounds * sizeof *b.us[p]);
        if (!b.us[p]) status = weft__fail(WEFT_ENOMEM, "samples");
    }
    if (!status) status = run_rounds(&b);
    for (uint32_t p = 0; p < N_POLICIES; p++)
        free(b.us[p]);
    free(b.image);
    return weft__exit("bench queue", status);
}
