/* cli_sim.c: `weft sim`: what a step would take on devices that may not be there. Enters: what `weft run` takes, and a
 * topology. Leaves: a table or one JSON line a side, all of them marked as simulated; perhaps a row a task as CSV.       */
#include "cli_sim.h"

#include "../host/error.h"
#include "cli_case.h"
#include "queue_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_run {
    weft__work_options work;
    weft__plan_flags flags;
    const char *queue, *image, *topology, *profile, *rows;
    bool contention_free, json;
    weft__topology *topo;
    double first_us;
} sim_run;

static void print_heading(const sim_run *r, const weft__work *w)
{
    printf("SIMULATED, nothing was run. work: %s, batch %u\n", w->text, w->rows);
    printf("topology   %s\n", r->topo->text);
    for (uint32_t i = 0; i < r->topo->n_profile; i++)
        printf("costs      %s: %s\n", r->topo->profile[i].name, r->topo->profile[i].source);
    printf("\nstrategy    queue     devices  workers   tasks  remote  remote MB     step us  makespan us   bound us  "
           "busy  times the first\n");
}

int weft__simulated_print(const weft__work *w, const weft__topology *topo, const char *strategy, const char *queue,
                          int contention_free, const weft__simulated *s)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->plan_hash);
    json_t *o = weft__result_new("sim");
    json_object_set_new(o, "simulated", json_true());
    json_object_set_new(o, "work", json_string(w->text));
    json_object_set_new(o, "batch", json_integer(w->rows));
    json_object_set_new(o, "strategy", strategy ? json_string(strategy) : json_null());
    json_object_set_new(o, "queue", json_string(queue));
    json_object_set_new(o, "topology", json_string(topo->text));
    json_object_set_new(o, "profile", json_string(topo->profile[0].name));
    json_object_set_new(o, "profile_source", json_string(topo->profile[0].source));
    json_object_set_new(o, "devices", json_integer(s->devices));
    json_object_set_new(o, "workers", json_integer(s->workers));
    json_object_set_new(o, "tasks", json_integer(s->tasks));
    json_object_set_new(o, "remote_signals", json_integer((json_int_t)s->remote_signals));
    json_object_set_new(o, "remote_bytes", json_real(s->remote_bytes));
    json_object_set_new(o, "plan_hash", json_string(hash));
    json_object_set_new(o, "seed", json_integer((json_int_t)w->options.seed));
    json_object_set_new(o, "step_us", json_real(s->step_us));
    json_object_set_new(o, "makespan_us", json_real(s->makespan_us));
    json_object_set_new(o, "bound_us", json_real(s->bound_us));
    json_object_set_new(o, "path_us", json_real(s->path_us));
    json_object_set_new(o, "work_us", json_real(s->work_us));
    json_object_set_new(o, "memory_us", json_real(s->memory_us));
    json_object_set_new(o, "utilisation", json_real(s->utilisation));
    json_object_set_new(o, "busiest_port", json_real(s->busiest_port));
    json_object_set_new(o, "stolen", json_integer((json_int_t)s->stolen));
    json_object_set_new(o, "contention_free", json_boolean(contention_free));
    return weft__result_print(o);
}

static int write_rows(const sim_run *r, const weft__image *img, const weft__sim_row *rows)
{
    FILE *f = fopen(r->rows, "w");
    if (!f) return weft__fail(WEFT_EIO, "%s: %s", r->rows, strerror(errno));
    fprintf(f, "task,home,device,worker,t_fetch,t_start,t_end\n");
    for (uint32_t d = 0, at = 0; d < img->n_device; d++)
        for (uint32_t i = 0; i < weft__image_queue_of(img, 0, d)->n_task; i++, at++)
            fprintf(f, "%u,%u,%u,%u,%.1f,%.1f,%.1f\n", i, d, rows[at].device, rows[at].worker, rows[at].fetch,
                    rows[at].start, rows[at].end);
    const int bad = ferror(f);
    return fclose(f) || bad ? weft__fail(WEFT_EIO, "%s: can't be written", r->rows) : 0;
}

static int simulate_one(sim_run *r, const weft__work *w, const weft__image *img, const char *strategy,
                        const char *queue)
{
    weft__simulated s;
    weft__sim_row *rows = NULL;
    int status = weft__simulate(img, r->topo, queue, r->contention_free, r->rows ? &rows : NULL, &s);
    if (!status && rows) status = write_rows(r, img, rows);
    free(rows);
    if (status) return status;
    if (r->json) return weft__simulated_print(w, r->topo, r->image ? NULL : strategy, queue, r->contention_free, &s);
    if (!(r->first_us > 0)) r->first_us = s.step_us;
    printf("%-10s  %-8s  %7u  %7u  %6u  %6llu  %9.2f  %10.1f   %10.1f %10.1f  %3.0f%%  %.3f\n",
           r->image ? "(image)" : strategy, queue, s.devices, s.workers, s.tasks, (unsigned long long)s.remote_signals,
           s.remote_bytes * 1e-6, s.step_us, s.makespan_us, s.bound_us, 100 * s.utilisation,
           r->first_us > 0 ? s.step_us / r->first_us : 1);
    return fflush(stdout) ? weft__fail(WEFT_EIO, "standard output") : 0;
}

static int make_image(const sim_run *r, const weft__work *w, const char *strategy, weft__image *img)
{
    weft__plan_flags flags = r->flags;
    void *bytes = NULL;
    uint64_t size = 0;
    if (r->image) return weft__image_read_file(r->image, img);
    flags.strategy = strategy;
    int status = weft__work_plan(w, &flags, &bytes, &size, NULL);
    if (!status) status = weft__image_open(bytes, size, "image", img);
    if (status)
        free(bytes);
    else
        img->owned = bytes;
    return status;
}

/* Every strategy with every queue. A side that fails leaves the others alone. */
static int simulate_all(sim_run *r, const weft__work *w)
{
    const char *queues[WEFT_MAX_SIDES];
    uint32_t n_queue = 0;
    char *strategies = strdup(r->flags.strategy), *list = strdup(r->queue), *rest = strategies;
    int status = strategies && list ? weft__queue_split(list, queues, WEFT_MAX_SIDES, &n_queue)
                                    : weft__fail(WEFT_ENOMEM, "sides of a comparison");
    int result = weft__exit("sim", status);
    for (const char *strategy; !status && (strategy = strsep(&rest, ","));) {
        weft__image img = {0};
        int failed = make_image(r, w, strategy, &img);
        if (failed && !result) result = weft__exit("sim", failed);
        for (uint32_t i = 0; i < n_queue && !failed; i++) {
            const int one = simulate_one(r, w, &img, strategy, queues[i]);
            if (one) fprintf(stderr, "weft sim: %s, %s: %s\n", strategy, queues[i], weft__error());
            if (one && !result) result = weft_status_exit(one);
        }
        weft__image_close(&img);
    }
    free(strategies);
    free(list);
    return result;
}

/* The shape to plan for: --devices, or the topology's. */
static int choose_shape(sim_run *r, char *room, size_t bytes)
{
    int status = weft__sim_topology(r->topology, r->flags.devices, r->profile, &r->topo);
    if (status || (r->flags.devices && r->topology)) return status;
    uint32_t workers = 0;
    for (uint32_t d = 0; d < r->topo->n_device; d++)
        if (r->topo->device[d].workers > workers) workers = r->topo->device[d].workers;
    snprintf(room, bytes, "%ux%u", r->topo->n_device, workers);
    r->flags.devices = room;
    return 0;
}

int weft__cli_sim(int argc, char **argv)
{
    sim_run r = {.work = weft__work_defaults(), .flags = weft__plan_flag_defaults(), .queue = "static"};
    char shape[32];
    weft__option table[WEFT_OPTIONS_MAX] = {0}, *row = table;
    row = weft__work_rows(&r.work, row);
    row = weft__plan_rows(&r.flags, row);
    const weft__option own[] = {
        {"--queue", "Q", "static (default), fifo, push, steal, priority; a list with commas", WEFT_OPT_TEXT, &r.queue,
         0, 0},
        {"--topology", "T", "\"node:1 h200:8 sm:132 nvlink:450GB/s,1.8us\", FILE.json, or found (docs/simulator.md)",
         WEFT_OPT_TEXT, &r.topology, 0, 0},
        {"--profile", "P", "costs: a file of weft bench calibrate, or h100, h200, b200, cpu", WEFT_OPT_TEXT, &r.profile,
         0, 0},
        {"--image", "FILE", "this image (weft plan --out) instead of planning", WEFT_OPT_TEXT, &r.image, 0, 0},
        {"--rows", "FILE", "a row a task as CSV: when and where; with one strategy and queue", WEFT_OPT_TEXT, &r.rows,
         0, 0},
        {"--contention-free", NULL, "the textbooks' model: nothing is shared, and the loop costs nothing",
         WEFT_OPT_FLAG, &r.contention_free, 0, 0},
        {"--json", NULL, "one JSON object a side", WEFT_OPT_FLAG, &r.json, 0, 0},
    };
    memcpy(row, own, sizeof own);
    int status = weft__options(
        argc, argv, table, "weft sim (--chain W,W,.. | --model DIR | --mlp H,F) [options]",
        "Plans the work and simulates a step of it: workers, queues, memory, links, cores. Nothing\n"
        "runs, and the devices need not exist. --devices gives the shape to plan for; without it,\n"
        "the topology's; without a topology, NxW are H200s. Same input, same output.\n"
        "example: weft sim --chain 8192,8192 --layers 8 --batch 2048 --strategy cta,microbatch,tp "
        "--topology \"h200:8\"",
        NULL, NULL);
    if (status == -1) return 0;
    weft__work w = {0};
    if (!status && r.rows && (strchr(r.flags.strategy, ',') || weft__queue_is_list(r.queue)))
        status = weft__fail(WEFT_EUSAGE, "--rows goes with one strategy and one queue");
    if (!status) status = choose_shape(&r, shape, sizeof shape);
    if (!status) status = weft__work_open(&r.work, &w);
    int result = weft__exit("sim", status);
    if (!status && !r.json) print_heading(&r, &w);
    if (!status) result = simulate_all(&r, &w);
    weft__work_close(&w);
    weft__topo_free(r.topo);
    return result;
}
