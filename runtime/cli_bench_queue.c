/* cli_bench_queue.c: `weft bench queue`: queue policies compared on graphs of tasks of one's choice. Enters: options. Leaves: a
 * table, or a line a policy. Lists of devices (;), graphs and distributions (,) are run one after another.              */
#include "../host/error.h"
#include "cli.h"
#include "cli_bench_queue.h"
#include "cli_case.h"
#include "queue_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LIST = 16
};

static const char about[] =
    "Compares queue policies on a graph of tasks: makespan over its lower bound, dispatch, waits, steals.\n"
    "Policies take turns in random order; each is compared with the first one, round by round.\n"
    "graphs: layers (each of --depth levels waits for all of the one before), wide (a source, --width x --depth "
    "nodes,\n"
    "a sink), deep (--width chains of --depth nodes), fan-in and fan-out (--depth trees of --width leaves, --degree a\n"
    "node), stencil and random (--depth levels; a node waits for the --degree nearest, or for drawn ones, of the "
    "level\n"
    "before). A queue is static, fifo, push[:capacity=N], steal[:victim=ring|random|near,amount=1|half,end=fifo|lifo,\n"
    "backoff=NS,capacity=N], priority[:buckets=N,capacity=N] or a module with its own policy: "
    "./POLICY.so[:NAME=N,..].\n"
    "example: weft bench queue --graph random,stencil --dist lognormal --devices cpu:2x1 --queue "
    "push,steal:amount=half";

static int split_list(const char *option, char *list, char mark, const char **out, uint32_t *n)
{
    for (char *at = list, *next; at; at = next) {
        if (*n == MOST_LIST) return weft__fail(WEFT_EUSAGE, "%s: more than %d", option, MOST_LIST);
        next = strchr(at, mark);
        if (next) *next++ = 0;
        out[(*n)++] = at;
    }
    return 0;
}

typedef struct lists { /* cut in place */
    char *texts[4];
    const char *devices[MOST_LIST], *graphs[MOST_LIST], *dists[MOST_LIST], *queues[WEFT__QUEUE_SIDES];
    uint32_t n_device, n_graph, n_dist, n_queue;
} lists;

static int read_lists(const weft__queue_case *c, const char *queues, lists *l)
{
    const char *const from[4] = {c->devices, c->graph, c->dist, queues};
    for (int i = 0; i < 4; i++)
        if (!(l->texts[i] = strdup(from[i]))) return weft__fail(WEFT_ENOMEM, "lists");
    int status = split_list("--devices", l->texts[0], ';', l->devices, &l->n_device);
    if (!status) status = split_list("--graph", l->texts[1], ',', l->graphs, &l->n_graph);
    if (!status) status = split_list("--dist", l->texts[2], ',', l->dists, &l->n_dist);
    if (!status) status = weft__queue_split(l->texts[3], l->queues, WEFT__QUEUE_SIDES, &l->n_queue);
    for (uint32_t i = 0; i < l->n_queue && !status; i++) {
        weft__queue_spec q;
        status = weft__queue_parse(l->queues[i], &q);
        weft__queue_close(&q);
    }
    return status;
}

static int run_all(const lists *l, weft__qbench *b, int format)
{
    int status = 0;
    bool first = true;
    for (uint32_t i = 0; i < l->n_device * l->n_graph * l->n_dist && !status; i++) {
        char text[256];
        b->c.devices = l->devices[i / (l->n_graph * l->n_dist)];
        b->c.graph = l->graphs[i / l->n_dist % l->n_graph];
        b->c.dist = l->dists[i % l->n_dist];
        snprintf(text, sizeof text, "%s, %s on %s", b->c.graph, b->c.dist, b->c.devices);
        b->n_side = l->n_queue;
        for (uint32_t k = 0; k < l->n_queue; k++)
            b->side[k].queue = l->queues[k];
        weft__progress(text);
        status = weft__qbench_run(b);
        weft__progress(NULL);
        if (!status) status = weft__qbench_print(b, format, first);
        weft__qbench_free(b);
        first = false;
    }
    return status;
}

/* clang-format off: a table */
int weft__cli_bench_queue(int argc, char **argv)
{
    weft__qbench *b = calloc(1, sizeof *b);
    lists l;
    weft__queue_case c = {.devices = "cpu:2x1",
                          .graph = "random",
                          .dist = "lognormal",
                          .work = "spin",
                          .place = "columns",
                          .order = "critical",
                          .counters = "shared",
                          .width = 16,
                          .depth = 32,
                          .degree = 3,
                          .mean_us = 20,
                          .spread = 0.5,
                          .sigma = 1,
                          .long_share = 0.1,
                          .long_factor = 10,
                          .bytes = 65536,
                          .seed = 1};
    const char *queues = "static,fifo,push,steal,priority";
    memset(&l, 0, sizeof l);
    uint32_t steps = 10, rounds = 10, deadline = 60000000;
    bool json = false, csv = false;
    const weft__option table[] = {
        {"--devices", "SPEC;..", "default cpu:2x1", WEFT_OPT_TEXT, &c.devices, 0, 0},
        {"--queue", "Q,..", "default static,fifo,push,steal,priority", WEFT_OPT_TEXT, &queues, 0, 0},
        {"--graph", "G,..", "layers, wide, deep, fan-in, fan-out, stencil, random (default)", WEFT_OPT_TEXT, &c.graph,
         0, 0},
        {"--width", "N", "default 16", WEFT_OPT_U32, &c.width, 1, 1e6},
        {"--depth", "N", "default 32", WEFT_OPT_U32, &c.depth, 1, 1e6},
        {"--degree", "N", "default 3", WEFT_OPT_U32, &c.degree, 1, 1024},
        {"--seed", "N", "of graph, durations and turns (default 1)", WEFT_OPT_U64, &c.seed, 0, 0},
        {"--place", "P", "on devices: columns (default: neighbours together), levels", WEFT_OPT_TEXT, &c.place, 0, 0},
        {"--order", "O", "of the plan: critical (default: longest way to the end first), breadth", WEFT_OPT_TEXT,
         &c.order, 0, 0},
        {"--counters", "C",
         "one a producer and reading device, shared by those that go together (default); producer; consumer",
         WEFT_OPT_TEXT, &c.counters, 0, 0},
        {"--alternates", NULL, "steal: the next device may take a device's spinning tasks", WEFT_OPT_FLAG,
         &c.alternates, 0, 0},
        {"--work", "W", "a node: spin (default), stream, both (one task after the other)", WEFT_OPT_TEXT, &c.work, 0,
         0},
        {"--dist", "D,..", "of durations and bytes: constant, uniform, lognormal (default), bimodal", WEFT_OPT_TEXT,
         &c.dist, 0, 0},
        {"--mean", "US", "mean duration of a spin (default 20; 0: empty tasks)", WEFT_OPT_F64, &c.mean_us, 0, 1e6},
        {"--spread", "F", "uniform: from mean (1 - F) to mean (1 + F) (default 0.5)", WEFT_OPT_F64, &c.spread, 0, 1},
        {"--sigma", "F", "lognormal: of the logarithm (default 1)", WEFT_OPT_F64, &c.sigma, 0, 5},
        {"--long-share", "F", "bimodal: share of long ones (default 0.1)", WEFT_OPT_F64, &c.long_share, 0, 1},
        {"--long-factor", "F", "bimodal: how much longer they are (default 10)", WEFT_OPT_F64, &c.long_factor, 1, 1e6},
        {"--bytes", "N", "that a node streams on average: read, and written elsewhere (default 65536)", WEFT_OPT_U64,
         &c.bytes, 1, 1e9},
        {"--edge-bytes", "N", "that a node stores on each device that reads it (default 0)", WEFT_OPT_U64,
         &c.edge_bytes, 0, 1e9},
        {"--steps", "N", "timed steps a turn (default 10)", WEFT_OPT_U32, &steps, 1, 1e6},
        {"--rounds", "N", "turns of each policy (default 10)", WEFT_OPT_U32, &rounds, 1, 1e4},
        {"--deadline", "US", "of a step, in microseconds (default 60000000; 0: none)", WEFT_OPT_U32, &deadline, 0, 4e9},
        {"--json", NULL, "one JSON object a policy", WEFT_OPT_FLAG, &json, 0, 0},
        {"--csv", NULL, "a line of names, then one a policy (bench/queue_plot.py draws it)", WEFT_OPT_FLAG, &csv, 0, 0},
        {0},
    };
    /* clang-format on */
    int status = weft__options(argc, argv, table, "weft bench queue [options]", about, NULL, NULL);
    if (status == -1) {
        free(b);
        return 0;
    }
    if (!status && !b) status = weft__fail(WEFT_ENOMEM, "a bench");
    if (!status && json && csv) status = weft__fail(WEFT_EUSAGE, "--json and --csv exclude each other");
    if (!status) {
        b->c = c;
        b->steps = steps;
        b->rounds = rounds;
        b->deadline_us = deadline;
        status = read_lists(&c, queues, &l);
    }
    if (!status) status = run_all(&l, b, json ? 1 : csv ? 2 : 0);
    for (int i = 0; i < 4; i++)
        free(l.texts[i]);
    free(b);
    return weft__exit("bench queue", status);
}
