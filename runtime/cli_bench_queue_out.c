/* cli_bench_queue_out.c: what `weft bench queue` has measured, as a table, JSON lines or CSV.
 *
 * The lower bound takes what spinning tasks were asked for, and of those that move bytes what they took on average in all
 * policies' traces.                                                                                                    */
#include "../host/error.h"
#include "cli.h"
#include "cli_bench_queue.h"
#include "cli_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row { /* of one side */
    weft__stats us[WEFT__QDAG_MODES];
    weft__stats ratio, over; /* round by round over the first side; achieved over requested durations */
    double over_bound, dispatch_ns, wait, idle, signal, requested_us, achieved_us;
} row;

static double tasks_of(const weft__qbench *b) { return b->g.n; }

static int make_ratio(const weft__qbench *b, const weft__qside *s, weft__stats *out)
{
    double *r = malloc(b->rounds * sizeof *r);
    if (!r) return weft__fail(WEFT_ENOMEM, "ratios");
    for (uint32_t i = 0; i < b->rounds; i++)
        r[i] = s->median[WEFT__QDAG_FULL][i] / b->side[0].median[WEFT__QDAG_FULL][i];
    int status = weft__stats_of(r, b->rounds, out);
    free(r);
    return status;
}

static int sum_up_side(const weft__qbench *b, weft__qside *s, const weft__qbound *bound, row *r)
{
    int status = 0;
    memset(r, 0, sizeof *r);
    for (uint32_t m = 0; m < WEFT__QDAG_MODES && !status; m++)
        status = weft__stats_of(s->us[m], s->n[m], &r->us[m]);
    if (!status) status = make_ratio(b, s, &r->ratio);
    if (!status && s->n_over) status = weft__stats_of(s->over, s->n_over, &r->over);
    if (status) return status;
    const double all = s->span * b->g.all_workers;
    r->over_bound = bound->bound > 0 ? r->us[WEFT__QDAG_FULL].p50 / bound->bound : NAN;
    r->dispatch_ns = r->us[WEFT__QDAG_EMPTY].p50 * 1e3 / tasks_of(b);
    r->wait = all > 0 ? s->wait / all : NAN;
    r->signal = all > 0 ? s->signal / all : NAN;
    r->idle = all > 0 ? fmax(0, (all - s->compute - s->wait - s->signal) / all) : NAN;
    r->requested_us = s->n_over ? s->requested / s->n_over * 1e-3 : NAN;
    r->achieved_us = s->n_over ? s->achieved / s->n_over * 1e-3 : NAN;
    return 0;
}

static int find_bound(const weft__qbench *b, weft__qbound *bound)
{
    double *ns = malloc((b->g.n + 1u) * sizeof *ns);
    if (!ns) return weft__fail(WEFT_ENOMEM, "a bound");
    for (uint32_t i = 0; i < b->g.n; i++)
        ns[i] = b->g.tasks[i].kind == WEFT__QTASK_SPIN ? b->g.tasks[i].cost_ns
                : b->seen[i] > 0                       ? b->ns[i] / b->seen[i]
                                                       : 0;
    int status = weft__qdag_bound(&b->c, &b->g, ns, bound);
    free(ns);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- table */

static int label_width(const weft__qbench *b)
{
    size_t width = 8;
    for (uint32_t i = 0; i < b->n_side; i++)
        if (strlen(b->side[i].queue) > width) width = strlen(b->side[i].queue);
    return width < 48 ? (int)width : 48;
}

static void print_head(const weft__qbench *b, const weft__qbound *bound)
{
    const weft__queue_case *c = &b->c;
    printf("graph      %s: width %u, depth %u, degree %u, seed %llu; %u nodes, %u tasks, %u edges, %u of them between "
           "devices; "
           "%s order\n",
           c->graph, c->width, c->depth, c->degree, (unsigned long long)c->seed, b->g.n_node, b->g.n, b->g.edges,
           b->g.remote_edges, c->order);
    printf("a node     %s, %s: mean %.3g us", c->work, c->dist, c->mean_us);
    if (!strcmp(c->dist, "uniform")) printf(", spread %.3g", c->spread);
    if (!strcmp(c->dist, "lognormal")) printf(", sigma %.3g", c->sigma);
    if (!strcmp(c->dist, "bimodal"))
        printf(", %.3g %% of them %.3g times as long", c->long_share * 100, c->long_factor);
    if (strcmp(c->work, "spin")) printf("; streams %llu bytes on average", (unsigned long long)c->bytes);
    if (c->edge_bytes) printf("; an edge carries %llu bytes", (unsigned long long)c->edge_bytes);
    printf("\ndevices    %s (%s); %u workers\n", c->devices, b->names, b->g.all_workers);
    printf("a step     %u signals and %llu bytes to other devices; %llu bytes read and written in all\n",
           b->remote_signals, (unsigned long long)b->g.remote_bytes, (unsigned long long)b->g.bytes);
    printf("bound      %.1f us: critical path %.1f, work/workers %.1f, of the fullest device %.1f\n", bound->bound,
           bound->critical, bound->share, bound->fullest);
    printf("%u rounds of %u steps a policy, in turns\n\n", b->rounds, b->steps);
    printf("%-*s %10s  %-21s %7s %10s %9s %6s %6s %8s %8s %8s  %s\n", label_width(b), "queue", "us a step",
           "95% interval", "x bound", "no edges", "ns/task", "wait%", "idle%", "empty", "steals", "failed",
           "x first, by rounds");
}

/* Into text[16], "-" where there is none. */
static const char *show(char *text, double v, int digits)
{
    snprintf(text, 16, isfinite(v) ? "%.*f" : "-", digits, v);
    return text;
}

static void print_side(const weft__qbench *b, const weft__qside *s, const row *r)
{
    const weft__stats *us = &r->us[WEFT__QDAG_FULL];
    const double steps = s->counted ? s->counted : 1;
    char interval[32], bound[16], wait[16], idle[16];
    snprintf(interval, sizeof interval, "%.1f to %.1f", us->low, us->high);
    printf("%-*s %10.1f  %-21s %7s %10.1f %9.1f %6s %6s %8.1f %8.1f %8.1f  %.3f (%.3f to %.3f)\n", label_width(b),
           s->queue, us->p50, interval, show(bound, r->over_bound, 3), r->us[WEFT__QDAG_FREE].p50, r->dispatch_ns,
           show(wait, r->wait * 100, 1), show(idle, r->idle * 100, 1), s->counts.empty / steps,
           s->counts.steals / steps, s->counts.failed / steps, r->ratio.p50, r->ratio.low, r->ratio.high);
}

static void print_foot(const weft__qbench *b, const row *rows)
{
    printf("\n");
    for (uint32_t i = 0; i < b->n_side; i++) {
        const weft__qside *s = &b->side[i];
        printf("%s: %.1f pops a step", s->spec, s->counts.pops / (double)(s->counted ? s->counted : 1));
        if (s->counts.abroad) printf(", %.1f of them from other devices", s->counts.abroad / (double)s->counted);
        if (s->n_over)
            printf("; spins asked for %.2f us on average, took %.2f (median of the ratios %.3f, p90 %.3f)",
                   rows[i].requested_us, rows[i].achieved_us, rows[i].over.p50, rows[i].over.p90);
        printf("\n");
    }
    printf("no edges: the same tasks without dependencies, us a step. ns/task: the same graph of empty tasks. wait, "
           "idle: share of\n"
           "workers' time, from a trace: for inputs of a task they hold; for a task. empty, steals, failed: a step.\n");
}

/* ------------------------------------------------------------------------------------------------------ JSON and CSV */

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void set_number(json_t *o, const char *name, double v) { json_object_set_new(o, name, number(v)); }

static void set_case(json_t *o, const weft__qbench *b, const weft__qbound *bound)
{
    const weft__queue_case *c = &b->c;
    const char *const texts[][2] = {{"devices", c->devices}, {"device", b->names},     {"graph", c->graph},
                                    {"dist", c->dist},       {"work", c->work},        {"place", c->place},
                                    {"order", c->order},     {"counters", c->counters}};
    const struct {
        const char *name;
        double v;
    } numbers[] = {{"mean_us", c->mean_us},
                   {"spread", c->spread},
                   {"sigma", c->sigma},
                   {"long_share", c->long_share},
                   {"long_factor", c->long_factor},
                   {"critical_us", bound->critical},
                   {"work_us", bound->work},
                   {"work_per_worker_us", bound->share},
                   {"fullest_device_us", bound->fullest},
                   {"bound_us", bound->bound}};
    const struct {
        const char *name;
        uint64_t v;
    } counts[] = {{"width", c->width},
                  {"depth", c->depth},
                  {"degree", c->degree},
                  {"seed", c->seed},
                  {"bytes", c->bytes},
                  {"edge_bytes", c->edge_bytes},
                  {"workers", b->g.all_workers},
                  {"nodes", b->g.n_node},
                  {"tasks", b->g.n},
                  {"edges", b->g.edges},
                  {"remote_edges", b->g.remote_edges},
                  {"remote_signals", b->remote_signals},
                  {"remote_bytes", b->g.remote_bytes},
                  {"step_bytes", b->g.bytes},
                  {"alternates", c->alternates},
                  {"rounds", b->rounds}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        json_object_set_new(o, texts[i][0], json_string(texts[i][1]));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        json_object_set_new(o, counts[i].name, json_integer((json_int_t)counts[i].v));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        set_number(o, numbers[i].name, numbers[i].v);
}

static json_t *side_object(const weft__qbench *b, const weft__qbound *bound, const weft__qside *s, const row *r)
{
    const weft__stats *us = &r->us[WEFT__QDAG_FULL];
    const double steps = s->counted ? s->counted : 1;
    json_t *o = weft__result_new("bench queue");
    json_object_set_new(o, "queue", json_string(s->queue));
    json_object_set_new(o, "queue_spec", json_string(s->spec));
    set_case(o, b, bound);
    json_object_set_new(o, "steps", json_integer((json_int_t)us->n));
    set_number(o, "min_us", us->min);
    set_number(o, "median_us", us->p50);
    set_number(o, "median_low_us", us->low);
    set_number(o, "median_high_us", us->high);
    set_number(o, "p90_us", us->p90);
    set_number(o, "p99_us", us->p99);
    set_number(o, "over_bound", r->over_bound);
    set_number(o, "no_edges_us", r->us[WEFT__QDAG_FREE].p50);
    set_number(o, "empty_us", r->us[WEFT__QDAG_EMPTY].p50);
    set_number(o, "ns_per_task", r->dispatch_ns);
    set_number(o, "over_first", r->ratio.p50);
    set_number(o, "over_first_low", r->ratio.low);
    set_number(o, "over_first_high", r->ratio.high);
    set_number(o, "requested_us", r->requested_us);
    set_number(o, "achieved_us", r->achieved_us);
    set_number(o, "achieved_over_requested", s->n_over ? r->over.p50 : NAN);
    set_number(o, "achieved_over_requested_p90", s->n_over ? r->over.p90 : NAN);
    set_number(o, "wait_share", r->wait);
    set_number(o, "idle_share", r->idle);
    set_number(o, "signal_share", r->signal);
    json_object_set_new(o, "traced_steps", json_integer(s->traced));
    set_number(o, "pops", s->counts.pops / steps);
    set_number(o, "empty_looks", s->counts.empty / steps);
    set_number(o, "steals", s->counts.steals / steps);
    set_number(o, "failed_steals", s->counts.failed / steps);
    set_number(o, "steals_abroad", s->counts.abroad / steps);
    return o;
}

static void print_csv_text(const char *s)
{
    putchar('"');
    for (; *s; s++)
        printf(*s == '"' ? "\"\"" : "%c", *s);
    putchar('"');
}

static void print_csv(json_t *o, bool names)
{
    const char *key;
    json_t *v;
    const char *mark = "";
    json_object_foreach(o, key, v)
    {
        if (names) printf("%s%s", mark, key);
        mark = ",";
    }
    if (names) printf("\n");
    mark = "";
    json_object_foreach(o, key, v)
    {
        fputs(mark, stdout);
        if (json_is_string(v))
            print_csv_text(json_string_value(v));
        else if (json_is_integer(v))
            printf("%lld", (long long)json_integer_value(v));
        else if (json_is_real(v))
            printf("%.9g", json_real_value(v));
        mark = ",";
    }
    printf("\n");
    json_decref(o);
}

int weft__qbench_print(weft__qbench *b, int format, bool first)
{
    weft__qbound bound;
    row *rows = calloc(WEFT__QUEUE_SIDES, sizeof *rows);
    int status = rows ? find_bound(b, &bound) : weft__fail(WEFT_ENOMEM, "rows");
    for (uint32_t i = 0; i < b->n_side && !status; i++)
        status = sum_up_side(b, &b->side[i], &bound, &rows[i]);
    if (!status && format == 0) {
        if (!first) printf("\n");
        print_head(b, &bound);
    }
    for (uint32_t i = 0; i < b->n_side && !status; i++) {
        if (format == 0)
            print_side(b, &b->side[i], &rows[i]);
        else if (format == 1)
            status = weft__result_print(side_object(b, &bound, &b->side[i], &rows[i]));
        else
            print_csv(side_object(b, &bound, &b->side[i], &rows[i]), first && i == 0);
    }
    if (!status && format == 0) print_foot(b, rows);
    free(rows);
    fflush(stdout);
    return status;
}
