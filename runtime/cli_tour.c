/* cli_tour.c: `weft tour`: a real model's MLP blocks under every strategy, checked, as one table. What `make run` shows.
 * Enters: argv, perhaps a model directory. Leaves: the table, a trace, what to try next; the worst row's exit code.        */
#include "../host/error.h"
#include "cli_case.h"
#include "cli_sim.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tour {
    const char *model, *trace;
    bool json;
    bool gpu;
    char one[32], two[32]; /* specs of one device and of two, with the same workers in all */
    int worst;             /* exit code */
} tour;

static const struct {
    const char *strategy, *queue;
} rows[] = {
    {"single", "static"}, {"cta", "static"}, {"cta", "push"}, {"microbatch", "static"}, {"tp", "static"},
};
enum {
    N_ROWS = sizeof rows / sizeof rows[0]
};

static void choose_devices(tour *t)
{
    weft_device_info device;
    uint32_t n;
    t->gpu = weft_devices("cuda:0", &device, 1, &n) == 0 && n == 1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int workers = cores < 2 ? 2 : cores > 16 ? 16 : (int)(cores / 2 * 2);
    snprintf(t->one, sizeof t->one, t->gpu ? "cuda:0" : "cpu:1x%d", workers);
    snprintf(t->two, sizeof t->two, t->gpu ? "cuda:0/2" : "cpu:2x%d", workers / 2);
}

static weft__work_options work_options(const tour *t, uint32_t batch)
{
    weft__work_options o = weft__work_defaults();
    o.batch = batch;
    o.model = t->model;
    if (!t->model) {
        o.mlp = "576,1536"; /* the shapes of SmolLM2-135M */
        o.layers = 30;
    }
    return o;
}

static void print_heading(const tour *t, const weft__work *w)
{
    printf(
        "weft runs layers of GEMMs as tile tasks: each device has resident workers, and a task starts as soon as the\n"
        "tiles that it reads are there, on whichever device they were made.\n\n");
    printf("Work: %s, bf16.\n", w->text);
    if (t->gpu)
        printf("Devices: %s for one, %s for two: the GPU, and the same GPU cut into two logical devices.\n", t->one,
               t->two);
    else
        printf("Devices: emulated, groups of CPU threads (%s for one, %s for two), because no GPU was found.\n"
               "         Their times show that the protocol works, not what a GPU does.\n",
               t->one, t->two);
    printf("Check: all that a layer stores is compared with a float64 reference that starts from the same inputs; the\n"
           "       largest relative error must stay under %.0e.\n\n",
           WEFT_MAX_REL_ERROR);
    printf("                                       remote    time a step, us                 relative\n");
    printf("batch  strategy    queue  workers  tasks  signals      median       p99   steps     error\n");
}

static void print_row(const weft__work *w, int row, const weft__side *s)
{
    const weft__case *c = &s->result;
    char p99[24] = "-";
    if (s->status && s->status != WEFT_EWRONG) {
        printf("%5u  %-10s  %-6s  failed: %s\n", w->rows, rows[row].strategy, rows[row].queue, s->error);
        return;
    }
    if (isfinite(c->us.p99)) snprintf(p99, sizeof p99, "%.1f", c->us.p99);
    printf("%5u  %-10s  %-6s %7u %6u  %7u  %10.1f  %8s  %6llu  %8.1e  %s\n", w->rows, rows[row].strategy,
           rows[row].queue, c->info.n_worker, c->info.tasks, c->info.remote_signals, c->us.p50, p99,
           (unsigned long long)c->us.n, c->rel_error, s->status ? "WRONG" : "ok");
    fflush(stdout);
}

static void set_up_row(const tour *t, int row, weft__side *s)
{
    *s = (weft__side){.flags = weft__plan_flag_defaults(), .options = weft__case_defaults()};
    s->flags.strategy = rows[row].strategy;
    s->flags.devices = strcmp(rows[row].strategy, "single") == 0 ? t->one : t->two;
    s->options.queue = rows[row].queue;
    s->options.check = true;
    s->options.budget_s = t->gpu ? 2 : 0.5;
}

/* The last row: the same work on eight H200 that are not here. */
static int simulate_row(const tour *t, const weft__work *w)
{
    weft__topology *topo = NULL;
    weft__image img;
    weft__simulated s;
    weft__plan_flags flags = weft__plan_flag_defaults();
    void *image = NULL;
    uint64_t bytes = 0;
    flags.strategy = "cta";
    flags.devices = "8x132";
    int status = weft__topo_open("h200:8", &topo);
    if (!status) status = weft__work_plan(w, &flags, &image, &bytes, NULL);
    if (!status) status = weft__image_open(image, bytes, "image", &img);
    if (!status) status = weft__simulate(&img, topo, "static", 0, NULL, &s);
    if (!status && t->json) status = weft__simulated_print(w, topo, flags.strategy, "static", 0, &s);
    if (!status && !t->json)
        printf("%5u  %-10s  %-6s %7u %6u  %7llu  %10.1f  %8s  %6s  %8s  SIMULATED: eight H200, nothing was run\n",
               w->rows, flags.strategy, "static", s.workers, s.tasks, (unsigned long long)s.remote_signals, s.step_us,
               "-", "-", "-");
    free(image);
    weft__topo_free(topo);
    return status;
}

/* All rows of one batch, in turns. */
static int run_batch(tour *t, uint32_t batch)
{
    weft__work w;
    weft__side sides[N_ROWS];
    weft__work_options options = work_options(t, batch);
    int status = weft__work_open(&options, &w);
    if (status) return status;
    if (batch == 1 && !t->json) print_heading(t, &w);
    for (int row = 0; row < N_ROWS; row++)
        set_up_row(t, row, &sides[row]);
    weft__compare(&w, sides, N_ROWS, options.seed);
    for (int row = 0; row < N_ROWS; row++) {
        weft__side *s = &sides[row];
        if (!t->json)
            print_row(&w, row, s);
        else if (!s->status || s->status == WEFT_EWRONG)
            weft__case_print_json(&w, &s->flags, &s->options, &s->result);
        if (s->status && !t->worst) t->worst = weft_status_exit(s->status);
        weft__case_close(&s->result);
    }
    status = simulate_row(t, &w);
    if (!t->json) putchar('\n');
    weft__work_close(&w);
    return status;
}

/* Three steps of cta at batch 1, so that the hand-off between the devices can be looked at. */
static int write_trace(const tour *t)
{
    weft__work w;
    weft__work_options work = work_options(t, 1);
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__case_options options = weft__case_defaults();
    weft__case c = {0};
    flags.strategy = "cta";
    flags.devices = t->two;
    options.steps = 3;
    options.warmup = 0;
    options.trace_records = 1 << 14;
    int status = weft__work_open(&work, &w);
    if (status) return status;
    status = weft__case_run(&w, &flags, &options, &c);
    if (!status) status = weft_trace_write(c.engine, t->trace);
    weft__case_close(&c);
    weft__work_close(&w);
    return status;
}

static void print_closing(const tour *t)
{
    const char *weft = program_invocation_name;
    printf("single: all on one device. cta: the layers in blocks over the devices, tile by tile. microbatch: the same\n"
           "blocks, whole layers at a time. tp: every layer cut over all devices. p99 needs 1000 steps.\n\n");
    printf("Trace of three steps (cta, batch 1): %s; open it at https://ui.perfetto.dev\n\n", t->trace);
    printf("Next:\n");
    printf("  your own model     %s run --model DIR --block mlp --batch 8 --check\n", weft);
    printf("  a bigger machine   %s plan --mlp 4096,14336 --layers 32 --batch 256 --devices 8x132 --strategy cta\n",
           weft);
    printf("  how it works       %s trace --chain 1024,1024 --layers 6 --batch 64 --devices cpu:2 --strategy cta "
           "--queue push\n",
           weft);
}

int weft__cli_tour(int argc, char **argv)
{
    tour t = {.trace = "weft.trace.json"};
    const weft__option table[] = {
        {"--model", "DIR", "a Hugging Face directory (default: seeded weights of SmolLM2-135M's shapes)", WEFT_OPT_TEXT,
         &t.model, 0, 0},
        {"--trace", "FILE", "where the trace goes (default weft.trace.json)", WEFT_OPT_TEXT, &t.trace, 0, 0},
        {"--json", NULL, "one JSON object a row, no other text", WEFT_OPT_FLAG, &t.json, 0, 0},
        {0},
    };
    int status = weft__options(argc, argv, table, "weft tour [options]",
                               "Runs a model's MLP blocks under every strategy and checks each result.", NULL, NULL);
    if (status == -1) return 0;
    choose_devices(&t);
    if (!status) status = run_batch(&t, 1);
    if (!status) status = run_batch(&t, 128);
    if (!status && !t.json) status = write_trace(&t);
    if (!status && !t.json) print_closing(&t);
    return status ? weft__exit("tour", status) : t.worst;
}
