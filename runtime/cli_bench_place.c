/* cli_bench_place.c: `weft bench place`: how long policies take, 10^4 to 10^6 tasks. Enters: argv. Leaves: a row a size and policy;
 * exit code 1 where --check finds a bar missed. Time is this process's processor time: others may be on the core too.    */
#include "../host/error.h"
#include "cli_case.h"
#include "cli_place.h"
#include "queue_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_HEFT 6.0 /* seconds for a million tasks on 8 x 132 workers, one core */
#define MAX_LDG 1.5
#define MAX_GROWTH 2.0 /* of the time a task from 10^5 tasks to 10^6 */

enum {
    MOST_POLICIES = 16
};

typedef struct place_bench {
    weft__place_options options;
    const char *policy, *family;
    uint32_t repeats, most;
    bool json, check;
    double before[MOST_POLICIES]; /* ns a task at the size before */
    int missed;
} place_bench;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int time_policy(const place_bench *b, const weft__place_input *in, const char *spec, double *seconds,
                       double *schedule_s, double *makespan)
{
    int status = 0;
    for (uint32_t i = 0; i < b->repeats && !status; i++) {
        weft__policy policy;
        weft_placing placing = {0};
        weft__schedule s = {0};
        status = weft__policy_open(spec, &policy);
        if (!status) status = weft__placing_new(&in->g, &in->m, b->options.seed, &placing);
        const double start = cpu_seconds();
        if (!status) status = weft__policy_run(&policy, &placing);
        const double decided = cpu_seconds();
        if (!status) status = weft__placing_schedule(&placing, &s);
        seconds[i] = decided - start;
        *schedule_s = cpu_seconds() - decided;
        *makespan = s.makespan;
        weft__schedule_free(&s);
        weft__placing_free(&placing);
        weft__policy_close(&policy);
    }
    return status;
}

static int report(place_bench *b, const weft__place_input *in, const char *spec, uint32_t index, double *seconds,
                  double schedule_s, double makespan)
{
    weft__stats s;
    int status = weft__stats_of(seconds, b->repeats, &s);
    if (status) return status;
    const double ns = s.min * 1e9 / in->g.n_task;
    const double bar = strcmp(spec, "heft") == 0 ? MAX_HEFT : strcmp(spec, "ldg") == 0 ? MAX_LDG : 0;
    int missed = in->g.n_task >= 1000000 && bar > 0 && s.p50 > bar;
    if (in->g.n_task >= 1000000 && b->before[index] > 0 && ns > MAX_GROWTH * b->before[index]) missed = 1;
    b->before[index] = ns;
    b->missed |= missed;
    if (!b->json) {
        printf("%9u %9u  %-14s %9.3f %9.3f %9.0f %11.3f %14.1f%s\n", in->g.n_task, in->g.n_edge, spec, s.p50, s.min, ns,
               schedule_s, makespan / 1e3, b->check && missed ? "  MISSED" : "");
        return fflush(stdout) ? weft__fail(WEFT_EIO, "standard output") : 0;
    }
    json_t *r = weft__result_new("bench place");
    weft__place_json(&b->options, in, r);
    json_object_set_new(r, "policy", json_string(spec));
    json_object_set_new(r, "n", json_integer((json_int_t)s.n));
    json_object_set_new(r, "median_s", json_real(s.p50));
    json_object_set_new(r, "min_s", json_real(s.min));
    json_object_set_new(r, "ns_per_task", json_real(ns));
    json_object_set_new(r, "schedule_s", json_real(schedule_s));
    json_object_set_new(r, "makespan_us", json_real(makespan / 1e3));
    return weft__result_print(r);
}

static int bench_size(place_bench *b, uint32_t tasks, const char *const *specs, uint32_t n)
{
    char graph[256];
    weft__place_input in;
    double *seconds = malloc(b->repeats * sizeof *seconds), schedule_s = 0, makespan = 0;
    snprintf(graph, sizeof graph, "%s,n=%u", b->family, tasks);
    int status = seconds ? weft__place_open(&b->options, graph, &in) : weft__fail(WEFT_ENOMEM, "samples");
    if (!seconds) return status;
    for (uint32_t i = 0; i < n && !status; i++) {
        status = time_policy(b, &in, specs[i], seconds, &schedule_s, &makespan);
        if (!status) status = report(b, &in, specs[i], i, seconds, schedule_s, makespan);
    }
    weft__place_close(&in);
    free(seconds);
    return status;
}

int weft__cli_bench_place(int argc, char **argv)
{
    place_bench b = {.options = weft__place_defaults(),
                     .policy = "heft,ldg",
                     .family = "gen:layered,width=2000,degree=3",
                     .repeats = 3,
                     .most = 1000000};
    b.options.devices = "8x132";
    weft__option table[24] = {
        {"--devices", "NxW", "devices and workers (default 8x132)", WEFT_OPT_TEXT, &b.options.devices, 0, 0},
        {"--policy", "P[,P..]", "default heft,ldg", WEFT_OPT_TEXT, &b.policy, 0, 0},
        {"--graph", "GEN", "a family that has n (default gen:layered,width=2000,degree=3)", WEFT_OPT_TEXT, &b.family, 0,
         0},
        {"--repeats", "N", "of each (default 3)", WEFT_OPT_U32, &b.repeats, 1, 1000},
        {"--tasks", "N", "sizes go from 10000 up to this by tens (default 1000000)", WEFT_OPT_U32, &b.most, 10000, 1e7},
        {"--seed", "N", "of the graph's bytes and of policies (default 1)", WEFT_OPT_U64, &b.options.seed, 0, 0},
    };
    weft__option *row = weft__place_rows(&b.options, table + 6);
    *row++ = (weft__option){"--check",
                            NULL,
                            "exit code 1 over 6 s (heft), 1.5 s (ldg) a million tasks, or not flat",
                            WEFT_OPT_FLAG,
                            &b.check,
                            0,
                            0};
    *row++ = (weft__option){"--json", NULL, "one JSON object a size and policy", WEFT_OPT_FLAG, &b.json, 0, 0};
    int status = weft__options(argc, argv, table, "weft bench place [options]",
                               "Times placement policies on one core, 10^4 to 10^6 tasks.", NULL, NULL);
    if (status == -1) return 0;
    const char *specs[MOST_POLICIES] = {0};
    uint32_t n = 0;
    char *list = strdup(b.policy);
    if (!status)
        status = list ? weft__queue_split(list, specs, MOST_POLICIES, &n) : weft__fail(WEFT_ENOMEM, "policies");
    if (!status && !b.json)
        printf("%s on %s: processor seconds, median of %u\n\n    tasks     edges  policy          median s     min s   "
               "ns/task  schedule s    makespan us\n",
               b.family, b.options.devices, b.repeats);
    for (uint32_t tasks = 10000; tasks <= b.most && !status; tasks *= 10)
        status = bench_size(&b, tasks, specs, n);
    free(list);
    if (status) return weft__exit("bench place", status);
    return b.check && b.missed ? weft__exit("bench place", weft__fail(WEFT_EWRONG, "a bar was missed")) : 0;
}
