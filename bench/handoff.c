/* handoff.c: what it costs that one task follows another.
 *
 *   chain    tasks that each wait for the one before, on another worker where the queue decides so. hop = time of a step /
 *            tasks - the body's own time: from the producer's last store to the consumer's first instruction. hop_net takes
 *            the step of one task away first, so doorbell and step gate are not in it. local: all on device 0; remote:
 *            device after device.
 *   empty    tasks of no work that wait for nothing, `--per-worker` for each worker: makespan x workers / tasks
 *   packets  a chain of small GEMMs, a task a layer, readiness by counters or in the data (packets)
 *
 * Parts of a hop come from traced runs, where they lie on one worker's clock: end to signal (producer), ready to start
 * (consumer); flight is what remains: the signal's way, the queue, the poll. Values are checked against a sequential run. */
#include "bench.h"

#include "../tasks/layout.h"
#include "../tasks/seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRACED_STEPS = 20
};

static weft__bench b;
static uint32_t tasks = 512, per_worker = 200, layers = 200, width = 64;
static bool only_chain, only_empty, only_packets;

/* ------------------------------------------------------------------------------------------------------------ traces */

typedef struct parts { /* means, in ns */
    double body, pop_ready, ready_start, end_signal;
    double early;         /* share of tasks whose body was entered before it was ready */
    uint64_t hops, moved; /* consumers that ran on another worker than their producer */
} parts;

/* Chains go round the devices that they use, so task t of device d comes before task t of device d + 1. */
static int by_step_and_task(const void *a, const void *c)
{
    const weft_event *x = a, *y = c;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->task != y->task) return x->task < y->task ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static void sum_parts(weft_event *v, size_t n, parts *p)
{
    *p = (parts){0};
    qsort(v, n, sizeof *v, by_step_and_task);
    for (size_t i = 0; i < n; i++) {
        /* On a GPU a body is entered before its inputs are there, and waits inside. */
        if (v[i].start_ns < v[i].ready_ns) {
            v[i].start_ns = v[i].ready_ns;
            p->early += 1 / (double)n;
        }
        p->body += (double)(v[i].end_ns - v[i].start_ns) / (double)n;
        p->end_signal += (double)(v[i].signal_ns - v[i].end_ns) / (double)n;
        p->ready_start += (double)(v[i].start_ns - v[i].ready_ns) / (double)n;
        p->pop_ready += (double)(int64_t)(v[i].ready_ns - v[i].pop_ns) / (double)n;
        if (i == 0 || v[i].step != v[i - 1].step) continue;
        p->hops++;
        p->moved += v[i].worker != v[i - 1].worker || v[i].device != v[i - 1].device;
    }
}

/* Runs steps on a traced engine, which is destroyed; every step must show `n_task` events. */
static int trace_parts(weft_engine *e, uint32_t n_step, uint64_t n_task, parts *p)
{
    double us[TRACED_STEPS];
    weft_event *v;
    size_t n;
    int status = weft__bench_time_steps(e, NULL, n_step, us);
    if (!status && !(status = weft__bench_trace(e, &v, &n))) {
        if (n != n_step * n_task)
            status = weft__fail(WEFT_EWRONG, "trace of %u steps of %llu tasks has %zu events", n_step,
                                (unsigned long long)n_task, n);
        else
            sum_parts(v, n, p);
        free(v);
    }
    weft_engine_destroy(e);
    return status;
}

static void set_parts(json_t *line, const parts *p)
{
    weft__bench_set(line, "body_ns", p->body);
    weft__bench_set(line, "end_to_signal_ns", p->end_signal);
    weft__bench_set(line, "ready_to_start_ns", p->ready_start);
    weft__bench_set(line, "pop_to_ready_ns", p->pop_ready);
    weft__bench_set(line, "entered_early", p->early);
}

/* ------------------------------------------------------------------------------------------------------------- chain */

static int chain_graph(const weft__bench_devices *d, uint32_t n, int remote, weft__graph **g)
{
    int status = weft__graph_new(g);
    for (uint32_t i = 0; i < n && !status; i++) {
        const uint32_t in = i - 1;
        status = weft__graph_mix(*g, remote ? i % d->n : 0, weft_hash(b.seed, i, 0), &in, i > 0, 0, NULL);
    }
    return status;
}

static int start_chain(const weft__bench_devices *d, uint32_t n, int remote, uint32_t records, weft_engine **e)
{
    weft__graph *g = NULL;
    int status = chain_graph(d, n, remote, &g);
    return weft__bench_start_graph(&b, status, g, d, weft__plan_defaults(), records, e);
}

/* One step on poisoned memory; every value is that of a sequential run. */
static int check_chain(weft_engine *e, const weft__bench_devices *d, uint32_t n, int remote)
{
    weft__graph *g = NULL;
    uint32_t *want = calloc(n, 4), *got = calloc(n, 4);
    double us;
    int status = want && got ? chain_graph(d, n, remote, &g) : weft__fail(WEFT_ENOMEM, "%u values", n);
    if (!status) status = weft__graph_mix_values(g, want);
    if (!status) status = weft_engine_poison(e, 0xff);
    if (!status) status = weft__bench_time_steps(e, NULL, 1, &us);
    if (!status) status = weft_tensor_read(e, "out", got, n * 4ull);
    for (uint32_t i = 0; i < n && !status; i++)
        if (got[i] != want[i]) status = weft__fail(WEFT_EWRONG, "value %u is 0x%08x, not 0x%08x", i, got[i], want[i]);
    free(want);
    free(got);
    weft__graph_free(g);
    return status;
}

static int time_chain(const weft__bench_devices *d, uint32_t n, int remote, weft__stats *us, weft_engine **e)
{
    int status = start_chain(d, n, remote, 0, e);
    if (!status) status = check_chain(*e, d, n, remote);
    if (!status) status = weft__bench_steps(&b, *e, NULL, us);
    if (!status) status = check_chain(*e, d, n, remote);
    return status;
}

static int trace_chain(const weft__bench_devices *d, int remote, parts *p)
{
    weft_engine *e = NULL;
    int status = start_chain(d, tasks, remote, TRACED_STEPS * tasks, &e);
    return status ? status : trace_parts(e, TRACED_STEPS, tasks, p);
}

static int chain(const weft__bench_devices *d, int remote)
{
    weft_engine *e = NULL, *one = NULL;
    weft__stats us, us1;
    parts p;
    int status = time_chain(d, 1, remote, &us1, &one);
    weft_engine_destroy(one);
    if (!status) status = trace_chain(d, remote, &p);
    if (!status) status = time_chain(d, tasks, remote, &us, &e);
    if (!status && !strcmp(b.queue, "static") && p.moved != p.hops && (remote ? d->n : d->workers[0]) > 1)
        status = weft__fail(WEFT_EWRONG, "%llu of %llu hops stayed on their worker",
                            (unsigned long long)(p.hops - p.moved), (unsigned long long)p.hops);
    if (!status) {
        const double hop = us.p50 * 1e3 / tasks - p.body, net = (us.p50 - us1.p50) * 1e3 / (tasks - 1) - p.body;
        json_t *line = weft__bench_line(&b, remote ? "chain_remote" : "chain_local", e);
        weft__bench_stats(line, "us", &us);
        weft__bench_set(line, "hop_ns", hop);
        weft__bench_set(line, "hop_net_ns", net);
        set_parts(line, &p);
        weft__bench_set(line, "flight_ns", net - p.end_signal - p.ready_start);
        weft__bench_set(line, "moved", p.hops ? (double)p.moved / (double)p.hops : NAN);
        weft__bench_set(line, "one_task_step_us", us1.p50);
        status = weft__bench_print(line);
    }
    weft_engine_destroy(e);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- empty tasks */

static int start_empty(const weft__bench_devices *d, uint32_t n_device, uint32_t each, uint32_t records,
                       weft_engine **e)
{
    weft__graph *g = NULL;
    int status = weft__graph_new(&g);
    for (uint32_t i = 0; i < n_device && !status; i++)
        status = weft__graph_nop(g, i, each ? d->workers[i] * each : 1, 0, NULL, 0, 0, NULL);
    return weft__bench_start_graph(&b, status, g, d, weft__plan_defaults(), records, e);
}

/* On the first n_device devices. */
static int empty_tasks(const weft__bench_devices *d, uint32_t n_device)
{
    weft_engine *e = NULL, *traced = NULL, *one = NULL;
    weft__stats us, us1;
    parts p;
    uint32_t workers = 0, most = 0;
    for (uint32_t i = 0; i < n_device; i++) {
        workers += d->workers[i];
        if (d->workers[i] > most) most = d->workers[i];
    }
    const uint64_t n = (uint64_t)workers * per_worker;
    int status = start_empty(d, n_device, per_worker, most * per_worker,
                             &traced); /* one worker may take all of a step */
    if (!status) status = trace_parts(traced, 1, n, &p);
    if (!status) status = start_empty(d, n_device, 0, 0, &one);
    if (!status) status = weft__bench_steps(&b, one, NULL, &us1);
    weft_engine_destroy(one);
    if (!status) status = start_empty(d, n_device, per_worker, 0, &e);
    if (!status) status = weft__bench_steps(&b, e, NULL, &us);
    if (!status) {
        json_t *line = weft__bench_line(&b, "empty_tasks", e);
        weft__bench_count(line, "busy_workers", workers);
        weft__bench_stats(line, "us", &us);
        weft__bench_set(line, "task_ns", us.p50 * 1e3 / per_worker);
        weft__bench_set(line, "task_net_ns", (us.p50 - us1.p50) * 1e3 / per_worker);
        weft__bench_set(line, "empty_step_us", us1.p50);
        set_parts(line, &p);
        status = weft__bench_print(line);
    }
    weft_engine_destroy(e);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- packets */

static int gemm_graph(weft__graph **g)
{
    const uint32_t widths[2] = {width, width};
    const weft__chain c = {
        .widths = widths, .n_width = 2, .repeat = layers, .m = 1, .dtype = WEFT_BF16, .seed = b.seed};
    return weft__graph_chain(&c, g);
}

static int start_gemms(const weft__bench_devices *d, uint32_t packets, uint32_t records, weft_engine **e)
{
    weft__graph *g = NULL;
    weft__plan_options opt = weft__plan_defaults();
    opt.packet_max_rows = packets;
    opt.tile_groups = weft_stream_groups(1);
    opt.strategy = WEFT__SINGLE;
    int status = gemm_graph(&g);
    return weft__bench_start_graph(&b, status, g, d, opt, records, e);
}

/* One checked step; the output goes to got[width]. */
static int check_gemms(weft_engine *e, float *got, double *error)
{
    weft__graph *g = NULL;
    float *x = malloc(width * sizeof *x);
    int status = x ? gemm_graph(&g) : weft__fail(WEFT_ENOMEM, "%u values", width);
    for (uint32_t i = 0; i < width && x; i++)
        x[i] = weft_seeded(b.seed + 99, 0, i, 1);
    if (!status) status = weft__bench_check(e, g, x, 1, width, error);
    if (!status) status = weft_tensor_read_f32(e, "out", got, width);
    free(x);
    weft__graph_free(g);
    return status;
}

/* The median of a layer goes to *layer_ns, the output to got[width]. */
static int gemms(const weft__bench_devices *d, uint32_t packets, float *got, double *layer_ns)
{
    weft_engine *e = NULL, *traced = NULL;
    weft_engine_info info = {.size = sizeof info};
    weft__stats us;
    parts p;
    double error = NAN;
    int status = start_gemms(d, packets, TRACED_STEPS * layers * weft_div_up(width, 16 * weft_stream_groups(1)),
                             &traced);
    if (!status) status = weft_engine_get_info(traced, &info);
    if (!status) status = trace_parts(traced, TRACED_STEPS, info.tasks, &p);
    if (!status) status = start_gemms(d, packets, 0, &e);
    if (!status) status = check_gemms(e, got, &error);
    if (!status) status = weft__bench_steps(&b, e, NULL, &us);
    if (!status) {
        *layer_ns = us.p50 * 1e3 / layers;
        json_t *line = weft__bench_line(&b, packets ? "gemm_packets" : "gemm_counters", e);
        weft__bench_count(line, "width", width);
        weft__bench_count(line, "layers", layers);
        weft__bench_stats(line, "us", &us);
        weft__bench_set(line, "layer_ns", *layer_ns);
        set_parts(line, &p); /* with packets the body waits for them: its time is no work */
        weft__bench_set(line, "hop_ns", packets ? NAN : *layer_ns - p.body);
        weft__bench_set(line, "rel_error", error);
        status = weft__bench_print(line);
    }
    weft_engine_destroy(e);
    return status;
}

static int packets(const weft__bench_devices *d)
{
    float *got[2] = {malloc(width * sizeof(float)), malloc(width * sizeof(float))};
    double ns[2] = {NAN, NAN};
    int status = got[0] && got[1] ? 0 : weft__fail(WEFT_ENOMEM, "%u values", width);
    for (uint32_t i = 0; i < 2 && !status; i++)
        status = gemms(d, i, got[i], &ns[i]);
    if (!status) {
        json_t *line = weft__bench_line(&b, "packets_save", NULL);
        weft__bench_set(line, "hop_saved_ns", ns[0] - ns[1]);
        json_object_set_new(line, "same_bits", json_boolean(!memcmp(got[0], got[1], width * sizeof(float))));
        status = weft__bench_print(line);
    }
    free(got[0]);
    free(got[1]);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- main */

static int body(void)
{
    weft__bench_devices d;
    const bool all = !only_chain && !only_empty && !only_packets;
    int status = weft__bench_devices_of(&b, &d);
    if (!status && (all || only_chain)) status = chain(&d, 0);
    if (!status && (all || only_chain) && d.n > 1) status = chain(&d, 1);
    if (!status && (all || only_empty)) status = empty_tasks(&d, 1);
    if (!status && (all || only_empty) && d.n > 1) status = empty_tasks(&d, d.n);
    if (!status && (all || only_packets)) status = packets(&d);
    return status;
}

int main(int argc, char **argv)
{
    weft__option rows[WEFT__BENCH_ROWS] = {{0}};
    b = weft__bench_defaults("handoff");
    weft__option *row = weft__bench_rows(&b, rows);
    *row++ = (weft__option){"--tasks", "N", "of the chain (default 512)", WEFT_OPT_U32, &tasks, 2, 100000};
    *row++ = (weft__option){"--per-worker", "N", "empty tasks (default 200)", WEFT_OPT_U32, &per_worker, 1, 100000};
    *row++ = (weft__option){"--layers", "N", "of the GEMM chain (default 200)", WEFT_OPT_U32, &layers, 1, 10000};
    *row++ = (weft__option){"--width", "N", "of its layers (default 64)", WEFT_OPT_U32, &width, 1, 65536};
    *row++ = (weft__option){"--chain", NULL, "only the chain", WEFT_OPT_FLAG, &only_chain, 0, 0};
    *row++ = (weft__option){"--empty", NULL, "only the empty tasks", WEFT_OPT_FLAG, &only_empty, 0, 0};
    *row++ = (weft__option){"--packets", NULL, "only counters against packets", WEFT_OPT_FLAG, &only_packets, 0, 0};
    return weft__bench_main(argc, argv, &b, rows,
                            "What it costs that one task follows another: one JSON object a line.", body);
}
