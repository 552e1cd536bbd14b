/* cli_run.c: `weft run`: plan, load, check, time. Enters: argv. Leaves: a text or one JSON line a side; exit code 1 where the
 * output is wrong (the line is printed all the same). Several strategies or queues are sides of a comparison.           */
#include "../host/error.h"
#include "cli_case.h"
#include "cli_place.h"
#include "queue_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_text(const weft__work *w, const weft__plan_flags *flags, const weft__case_options *o,
                       const weft__case *c)
{
    printf("work       %s, batch %u\n", w->text, w->rows);
    printf("devices    %s; %u workers\n", c->devices, c->info.n_worker);
    printf("plan       %s, %u tasks, %u remote signals a step, hash %016llx\n", o->image ? o->image : flags->strategy,
           c->info.tasks, c->info.remote_signals, (unsigned long long)c->info.plan_hash);
    printf("queue      %s\n", c->queue);
    printf("a step     median %.1f us (95 %% interval %.1f to %.1f), min %.1f, p90 %.1f", c->us.p50, c->us.low,
           c->us.high, c->us.min, c->us.p90);
    if (isfinite(c->us.p99)) printf(", p99 %.1f", c->us.p99);
    printf("; %llu steps after %u warm-up\n", (unsigned long long)c->us.n, c->warmup);
    if (o->check)
        printf(
            "check      %u tensors against float64, op by op: largest relative error %.2e in %s (%s, at most %.0e)\n",
            c->error.tensors, c->rel_error, c->error.worst, c->rel_error <= WEFT_MAX_REL_ERROR ? "ok" : "WRONG",
            WEFT_MAX_REL_ERROR);
}

/* The names of a list with commas, cut in place. */
static int split(const char *option, char *list, const char **names, uint32_t *n)
{
    for (char *at = list;; at++) {
        char *comma = strchr(at, ',');
        if (*n == WEFT_MAX_SIDES) return weft__fail(WEFT_EUSAGE, "%s: more than %u names", option, WEFT_MAX_SIDES);
        names[(*n)++] = at;
        if (!comma) return 0;
        *comma = 0;
        at = comma;
    }
}

static void print_comparison(const weft__work *w, const weft__side *sides, uint32_t n)
{
    const weft__case *first = NULL;
    printf("work       %s, batch %u\n", w->text, w->rows);
    printf(
        "strategy    queue     workers   tasks  remote   median us  95%% interval           p99 us    steps  times the "
        "first\n");
    for (uint32_t i = 0; i < n; i++) {
        const weft__case *c = &sides[i].result;
        char p99[24] = "-";
        printf("%-10s  %-8s  ", sides[i].flags.strategy, sides[i].options.queue);
        if (sides[i].status && sides[i].status != WEFT_EWRONG) {
            printf("failed: %s\n", sides[i].error);
            continue;
        }
        if (!first) first = c;
        if (isfinite(c->us.p99)) snprintf(p99, sizeof p99, "%.1f", c->us.p99);
        printf("%7u  %6u  %6u  %10.1f  %9.1f - %9.1f  %9s  %7llu  %.3f%s\n", c->info.n_worker, c->info.tasks,
               c->info.remote_signals, c->us.p50, c->us.low, c->us.high, p99, (unsigned long long)c->us.n,
               c->us.p50 / first->us.p50, sides[i].status ? "  WRONG" : "");
    }
    printf("Sides took turns in %u rounds, each in an order of its own that follows from the seed.\n",
           first ? first->rounds : 0);
}

/* Every strategy with every queue. */
static int compare(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, bool json)
{
    const char *strategies[WEFT_MAX_SIDES], *queues[WEFT_MAX_SIDES];
    uint32_t n_strategy = 0, n_queue = 0, n = 0;
    char *s = strdup(flags->strategy), *q = strdup(options->queue);
    weft__side *sides = calloc(WEFT_MAX_SIDES, sizeof *sides);
    int status = s && q && sides ? 0 : weft__fail(WEFT_ENOMEM, "sides of a comparison");
    if (!status) status = split("--strategy", s, strategies, &n_strategy);
    if (!status) status = weft__queue_split(q, queues, WEFT_MAX_SIDES, &n_queue);
    if (!status && n_strategy * n_queue > WEFT_MAX_SIDES)
        status = weft__fail(WEFT_EUSAGE, "%u strategies with %u queues: at most %u sides", n_strategy, n_queue,
                            WEFT_MAX_SIDES);
    for (uint32_t i = 0; !status && i < n_strategy * n_queue; i++, n++) {
        sides[i] = (weft__side){.flags = *flags, .options = *options};
        sides[i].flags.strategy = strategies[i / n_queue];
        sides[i].options.queue = queues[i % n_queue];
    }
    int result = weft__exit("run", status);
    if (n) weft__compare(w, sides, n, w->options.seed);
    if (n && !json) print_comparison(w, sides, n);
    for (uint32_t i = 0; i < n; i++) {
        weft__side *side = &sides[i];
        if (json && (!side->status || side->status == WEFT_EWRONG))
            weft__case_print_json(w, &side->flags, &side->options, &side->result);
        if (side->status)
            fprintf(stderr, "weft run: %s, %s: %s\n", side->flags.strategy, side->options.queue, side->error);
        if (side->status && !result) result = weft_status_exit(side->status);
        weft__case_close(&side->result);
    }
    free(sides);
    free(s);
    free(q);
    return result;
}

static int run_one(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, const char *samples,
                   bool json)
{
    weft__case c = {0};
    int status = weft__case_run(w, flags, options, &c), result = weft__exit("run", status);
    if (c.engine) {
        if (json)
            status = weft__case_print_json(w, flags, options, &c);
        else
            print_text(w, flags, options, &c);
        if (json && status && !result) result = weft__exit("run", status);
        if (samples && (status = weft__case_write_samples(&c, samples)) && !result) result = weft__exit("run", status);
    }
    weft__case_close(&c);
    return result;
}

static int run_graph(weft__place_run *g, const weft__work_options *work, const weft__plan_flags *flags,
                     const weft__case_options *o, bool json)
{
    if (work->chain || work->model || work->mlp || o->image || o->check)
        return weft__fail(WEFT_EUSAGE, "--graph goes without --chain, --model, --mlp, --image and --check");
    g->options.devices = flags->devices ? flags->devices : "cpu:1";
    g->options.seed = work->seed;
    g->file = flags->place;
    g->queue = o->queue;
    g->steps = o->steps ? o->steps : 20;
    g->warmup = o->warmup == WEFT_NONE ? 3 : o->warmup;
    g->deadline_us = o->deadline_us;
    g->json = json;
    return weft__place_run_graph(g);
}

int weft__cli_run(int argc, char **argv)
{
    weft__work_options work = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__case_options options = weft__case_defaults();
    const char *samples = NULL;
    bool json = false;
    weft__place_run graph = {.options = weft__place_defaults(), .policy = "heft"};
    weft__option table[WEFT_OPTIONS_MAX] = {0}, *row = table;
    *row++ = (weft__option){"--graph",
                            "GRAPH",
                            "a task graph instead (weft place): tasks spin for what they cost",
                            WEFT_OPT_TEXT,
                            &graph.graph,
                            0,
                            0};
    *row++ = (weft__option){"--policy", "P", "of --graph (default heft)", WEFT_OPT_TEXT, &graph.policy, 0, 0};
    row = weft__place_rows(&graph.options, row);
    row = weft__work_rows(&work, row);
    row = weft__plan_rows(&flags, row);
    row = weft__case_rows(&options, row);
    *row++ = (weft__option){"--samples", "FILE", "write the time of each step, in us", WEFT_OPT_TEXT, &samples, 0, 0};
    *row++ = (weft__option){"--json", NULL, "one JSON object a side", WEFT_OPT_FLAG, &json, 0, 0};
    int status = weft__options(argc, argv, table,
                               "weft run (--chain W,W,.. | --model DIR | --mlp H,F | --graph GRAPH) [options]",
                               "Plans the work, runs it with resident workers, and reports how long a step takes.\n"
                               "--strategy and --queue take lists with commas: then all combinations are compared, in\n"
                               "turns whose order is random and follows from the seed.\n"
                               "example: weft run --chain 576,1536,576 --batch 7 --layers 3 --devices cpu:3x2 "
                               "--strategy cta --check",
                               NULL, NULL);
    if (status == -1) return 0;
    if (!status && graph.graph) return weft__exit("run", run_graph(&graph, &work, &flags, &options, json));
    weft__work w = {0};
    const bool several = strchr(flags.strategy, ',') || weft__queue_is_list(options.queue);
    if (!status && several && (samples || options.image))
        status = weft__fail(WEFT_EUSAGE, "--samples and --image go with one strategy and one queue");
    if (!status) status = weft__work_open(&work, &w);
    int result = weft__exit("run", status);
    if (!status) result = several ? compare(&w, &flags, &options, json) : run_one(&w, &flags, &options, samples, json);
    weft__work_close(&w);
    return result;
}
