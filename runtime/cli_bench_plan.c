/* cli_bench_plan.c: `weft bench plan`: how long planning, validating and writing takes, and the memory that it needs.
 * Enters: argv. Leaves: a row a size; exit code 1 where --check finds a bar missed.                                     */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "cli_case.h"

#include <stdio.h>
#include <stdlib.h>

/* One core, all tasks of 8 devices x 132 workers: the bars of this bench. */
#define MAX_SECONDS 3.0
#define MAX_BYTES_PER_TASK 400.0
#define MAX_GROWTH 1.5 /* of the time a task from 10^4 tasks to 10^6: what leaving the caches costs */

typedef struct plan_bench {
    const char *devices, *strategy;
    uint32_t width, batch, repeats;
    bool json, check;
    double first_ns; /* a task, at the smallest size */
    int missed;
} plan_bench;

/* A chain of square GEMMs with as many layers as give about `tasks` tasks. */
static int plan_once(const plan_bench *b, uint32_t layers, weft__plan_stats *stats, double *seconds)
{
    char chain[32];
    weft__work w;
    void *image = NULL;
    uint64_t bytes;
    weft__work_options options = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    snprintf(chain, sizeof chain, "%u,%u", b->width, b->width);
    options.chain = chain;
    options.batch = b->batch;
    options.layers = layers;
    flags.devices = b->devices;
    flags.strategy = b->strategy;
    int status = weft__work_open(&options, &w);
    if (status) return status;
    uint64_t start = weft__now_ns();
    status = weft__work_plan(&w, &flags, &image, &bytes, stats);
    *seconds = (double)(weft__now_ns() - start) * 1e-9;
    free(image);
    weft__work_close(&w);
    return status;
}

static int print_size(plan_bench *b, const weft__plan_stats *stats, const weft__stats *s)
{
    double tasks = (double)stats->tasks, ns = s->p50 * 1e9 / tasks, bytes = (double)stats->peak_bytes / tasks;
    int large = tasks >= 5e5, missed = (large && s->p50 * 1e6 / tasks > MAX_SECONDS) || bytes > MAX_BYTES_PER_TASK;
    double least = s->min * 1e9 / tasks; /* growth is judged by the least: other processes touch it least */
    if (b->first_ns == 0) b->first_ns = least;
    if (least > MAX_GROWTH * b->first_ns) missed = 1;
    b->missed |= missed;
    if (!b->json) {
        printf("%10.0f  %9.4f  %9.4f  %8.1f  %9.1f%s\n", tasks, s->p50, s->min, ns, bytes,
               b->check && missed ? "  MISSED" : "");
        return fflush(stdout) ? weft__fail(WEFT_EIO, "standard output") : 0;
    }
    json_t *r = weft__result_new("bench plan");
    json_object_set_new(r, "devices", json_string(b->devices));
    json_object_set_new(r, "strategy", json_string(b->strategy));
    json_object_set_new(r, "tasks", json_integer((json_int_t)stats->tasks));
    json_object_set_new(r, "n", json_integer((json_int_t)s->n));
    json_object_set_new(r, "median_s", json_real(s->p50));
    json_object_set_new(r, "min_s", json_real(s->min));
    json_object_set_new(r, "ns_per_task", json_real(ns));
    json_object_set_new(r, "bytes_per_task", json_real(bytes));
    return weft__result_print(r);
}

static int bench_size(plan_bench *b, uint32_t layers)
{
    weft__plan_stats stats;
    weft__stats summary;
    double *seconds = malloc(b->repeats * sizeof *seconds);
    int status = seconds ? 0 : weft__fail(WEFT_ENOMEM, "%u samples", b->repeats);
    for (uint32_t i = 0; i < b->repeats && !status; i++)
        status = plan_once(b, layers, &stats, &seconds[i]);
    if (!status) status = weft__stats_of(seconds, b->repeats, &summary);
    if (!status) status = print_size(b, &stats, &summary);
    free(seconds);
    return status;
}

int weft__cli_bench_plan(int argc, char **argv)
{
    plan_bench b = {.devices = "8x132", .strategy = "cta", .width = 8192, .batch = 2048, .repeats = 5};
    const weft__option table[] = {
        {"--devices", "NxW", "devices and workers (default 8x132)", WEFT_OPT_TEXT, &b.devices, 0, 0},
        {"--strategy", "S", "default cta", WEFT_OPT_TEXT, &b.strategy, 0, 0},
        {"--repeats", "N", "plans of each size (default 5)", WEFT_OPT_U32, &b.repeats, 1, 1000},
        {"--check", NULL, "exit code 1 if over 3 s a million tasks, 400 bytes a task, or not flat", WEFT_OPT_FLAG,
         &b.check, 0, 0},
        {"--json", NULL, "one JSON object a size", WEFT_OPT_FLAG, &b.json, 0, 0},
        {0},
    };
    int status = weft__options(argc, argv, table, "weft bench plan [options]",
                               "Plans, validates and writes chains of 8192 x 8192 GEMMs at batch 2048, on one core.",
                               NULL, NULL);
    if (status == -1) return 0;
    weft__plan_stats one;
    double seconds;
    if (!status) status = plan_once(&b, 8, &one, &seconds);
    if (!status && !b.json)
        printf("planning for %s, strategy %s: median of %u\n\n     tasks   median s      min s   ns/task  bytes/task\n",
               b.devices, b.strategy, b.repeats);
    for (uint64_t tasks = 10000; tasks <= 1000000 && !status; tasks *= 10)
        status = bench_size(&b, (uint32_t)((tasks * 8 + one.tasks - 1) / one.tasks));
    if (status) return weft__exit("bench plan", status);
    return b.check && b.missed ? weft__exit("bench plan", weft__fail(WEFT_EWRONG, "a bar was missed")) : 0;
}
