/* dags.c: many random task graphs on an engine, against the sequential oracle (tests/dag_forest.h).
 *
 * Enters: a first seed, a number of graphs, devices, policies. Leaves: one JSON line; the first graph that differs, hangs or
 * is refused ends the run with a sentence that replays it. `--pack P` puts P graphs, of consecutive seeds, side by side into
 * one engine, which is what takes the time on a GPU; devices, workers, policy, steps and first counter value are then those
 * of the first of them. Without --devices every engine has emulated devices of its own choice.                         */
#include "../tests/dag_forest.h"

#include "../runtime/queue_spec.h"
#include "bench.h"

#include <math.h>

static weft__bench b;
static uint32_t count = 1000, pack = 1;
static dag_limits limits;
static const char *policies = "all", *queue; /* one with parameters, or a module: instead of policies */
static bool both;

typedef struct tally {
    uint64_t engines, tasks, steps, by_policy[WEFT_POLICY_COUNT];
} tally;

static int run_forest(uint64_t first, uint32_t n, tally *t)
{
    dag_case c;
    int status = dag_run_forest(first, n, &limits, both, &c);
    if (status) {
        char why[1024];
        snprintf(why, sizeof why, "%s", weft__error());
        return weft__fail(status, "replay with --seed %llu --count %u --pack %u and the other options as now: %s",
                          (unsigned long long)first, n, n, why);
    }
    t->engines += both ? 2 : 1;
    t->tasks += (uint64_t)c.n_task * c.n_step * (both ? 2 : 1);
    t->steps += c.n_step;
    t->by_policy[c.policy] += n;
    return 0;
}

/* "all", or names with commas between; a GPU runs the first three. */
static int read_policies(void)
{
    if (queue) {
        weft__queue_spec q;
        const int status = weft__queue_parse(queue, &q);
        weft__queue_close(&q);
        limits.policies = 1u << q.policy;
        limits.queue = policies = queue;
        return status;
    }
    const int gpu = b.devices && strncmp(b.devices, "cuda", 4) == 0;
    if (strcmp(policies, "all") == 0) {
        limits.policies = gpu ? 7 : 31;
        return 0;
    }
    for (const char *p = policies; *p;) {
        const size_t n = strcspn(p, ",");
        uint32_t found = WEFT_POLICY_COUNT;
        for (uint32_t i = 0; i < WEFT_POLICY_COUNT; i++)
            if (strlen(dag_policy_name(i)) == n && !strncmp(dag_policy_name(i), p, n)) found = i;
        if (found == WEFT_POLICY_COUNT)
            return weft__fail(WEFT_EUSAGE, "--policies %s: '%.*s' is none", policies, (int)n, p);
        limits.policies |= 1u << found;
        p += n + (p[n] == ',');
    }
    return limits.policies ? 0 : weft__fail(WEFT_EUSAGE, "--policies: none given");
}

/* With --devices, graphs use all of its devices, and dag.h runs each engine on that spec. */
static int read_devices(void)
{
    weft__bench_devices d;
    if (!b.devices) return 0;
    int status = weft__bench_devices_of(&b, &d);
    limits.devices = b.devices;
    limits.max_devices = d.n;
    return status;
}

static int report(const tally *t, double seconds)
{
    json_t *line = weft__bench_line(&b, "random_graphs", NULL);
    json_object_set_new(line, "queue", json_string(policies));
    json_object_set_new(line, "device", json_string(b.devices ? b.devices : "cpu, 1..8 devices x 1..3 workers"));
    weft__bench_count(line, "graphs", count);
    weft__bench_count(line, "pack", pack);
    json_object_set_new(line, "both", json_boolean(both));
    weft__bench_count(line, "engines", t->engines);
    weft__bench_count(line, "steps", t->steps);
    weft__bench_count(line, "task_runs", t->tasks);
    for (uint32_t p = 0; p < WEFT_POLICY_COUNT; p++)
        weft__bench_count(line, dag_policy_name(p), t->by_policy[p]);
    weft__bench_count(line, "mismatches", 0); /* or we would not be here */
    weft__bench_set(line, "seconds", seconds);
    return weft__bench_print(line);
}

static int body(void)
{
    tally t = {0};
    limits.deadline_us = b.deadline_us;
    int status = read_policies();
    if (!status) status = read_devices();
    const uint64_t start = weft__now_ns();
    uint64_t told = start;
    for (uint32_t done = 0; done < count && !status;) {
        const uint32_t n = count - done < pack ? count - done : pack;
        status = run_forest(b.seed + done, n, &t);
        done += n;
        if (weft__now_ns() - told < 5000000000u) continue;
        told = weft__now_ns();
        fprintf(stderr, "%u of %u graphs, %.0f s\n", done, count, (double)(told - start) * 1e-9);
    }
    return status ? status : report(&t, (double)(weft__now_ns() - start) * 1e-9);
}

/* clang-format off: a table */
int main(int argc, char **argv)
{
    b = weft__bench_defaults("dags");
    const weft__option rows[] = {
        {"--devices", "SPEC", "run all on these (default: 1..8 emulated devices of 1..3 workers, by the seed)",
         WEFT_OPT_TEXT, &b.devices, 0, 0},
        {"--policies", "P,P", "of static, fifo, push, steal, priority (default: all; on GPUs the first three)",
         WEFT_OPT_TEXT, &policies, 0, 0},
        {"--queue", "Q", "one with parameters, or a module's, ./POLICY.so (instead of --policies)", WEFT_OPT_TEXT,
         &queue, 0, 0},
        {"--seed", "N", "of the first graph (default 1); graph i has seed N + i", WEFT_OPT_U64, &b.seed, 0, 0},
        {"--count", "N", "graphs (default 1000)", WEFT_OPT_U32, &count, 1, 1e9},
        {"--pack", "N", "graphs side by side in one engine (default 1)", WEFT_OPT_U32, &pack, 1, 4096},
        {"--both", NULL, "with --devices: run each image on emulated devices too", WEFT_OPT_FLAG, &both, 0, 0},
        {"--max-tasks", "N", "of a graph (default 512)", WEFT_OPT_U32, &limits.max_tasks, 3, 100000},
        {"--max-steps", "N", "of an engine (default 4)", WEFT_OPT_U32, &limits.max_steps, 1, 1000},
        {"--deadline", "US", "of a step, in microseconds (default 10000000)", WEFT_OPT_U32, &b.deadline_us, 1, 4e9},
        {0},
    };
    return weft__bench_main(argc, argv, &b, rows, "Random task graphs against a sequential oracle. One JSON line.",
                            body);
}
/* clang-format on */
