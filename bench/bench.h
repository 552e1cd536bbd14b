/* bench.h: what the measurements that run through the engine share: their options, images, timed steps and result lines.
 *
 * Enters: a device spec ("cpu:2", "cuda:0/8"), so every program runs on emulated devices too, where its times say that
 * it works and nothing about a GPU. Leaves: one JSON object a line on stdout, and the exit codes of the command `weft`.
 * Times are taken host to host with one clock (clock.h) and summed up by stats.h.                                      */
#ifndef WEFT_BENCH_BENCH_H
#define WEFT_BENCH_BENCH_H

#include "../host/error.h"
#include "../host/plan.h"
#include "../megakernel/clock.h"
#include "../runtime/cli.h"
#include "../runtime/stats.h"
#include "../runtime/weft.h"

#include <jansson.h>

#define WEFT__BENCH_ROWS 32 /* room for a program's option table */

typedef struct weft__bench {
    const char *program; /* stands in every line */
    const char *devices, *queue;
    uint32_t steps, warmup;
    uint32_t deadline_us;
    uint32_t base; /* first value of all counters */
    uint64_t seed;
} weft__bench;
weft__bench weft__bench_defaults(const char *program);

/* Appends the rows that set *b to a table of WEFT__BENCH_ROWS zeroed rows; returns the next free one. */
weft__option *weft__bench_rows(weft__bench *b, weft__option *row);

/* ---------------------------------------------------------------------------------------------------------- engines */

typedef struct weft__bench_devices { /* what the spec opens */
    uint32_t n, workers[WEFT_MAX_DEVICES], all;
} weft__bench_devices;
int weft__bench_devices_of(const weft__bench *b, weft__bench_devices *out);

/* Plans g for those devices, with the other options as given. The image is freed with free(). */
int weft__bench_plan(const weft__graph *g, const weft__bench_devices *d, weft__plan_options opt, void **image,
                     uint64_t *bytes);

/* Starts an engine; trace_records per worker, 0: no trace. */
int weft__bench_start(const weft__bench *b, const void *image, uint64_t bytes, uint32_t trace_records, weft_engine **e);

/* Plans, starts, frees graph and image. g may be NULL after a failed builder, whose status is passed in `built`. */
int weft__bench_start_graph(const weft__bench *b, int built, weft__graph *g, const weft__bench_devices *d,
                            weft__plan_options opt, uint32_t trace_records, weft_engine **e);

/* ----------------------------------------------------------------------------------------------------------- timing */

/* `n` steps one after another, submit to wait: us[n]. step: NULL for a plain one. */
int weft__bench_time_steps(weft_engine *e, const weft_step *step, uint32_t n, double *us);

/* `n` steps with up to `flight` of them submitted: the time from the first submit to the last completion. */
int weft__bench_time_flight(weft_engine *e, const weft_step *step, uint32_t n, uint32_t flight, double *us);

/* Warm-up and b->steps timed steps, summed up. */
int weft__bench_steps(const weft__bench *b, weft_engine *e, const weft_step *step, weft__stats *us);

/* All events of the engine's trace, freed with free(). */
int weft__bench_trace(weft_engine *e, weft_event **events, size_t *n);

/* One step on poisoned memory with input x (rows of the graph's INPUT "x"), then every tensor that its ops wrote against
 * float64: the largest relative error. WEFT_EWRONG above 5e-3, with the tensor's name.                                 */
int weft__bench_check(weft_engine *e, const weft__graph *g, const float *x, uint32_t rows, uint32_t cols,
                      double *error);

/* ---------------------------------------------------------------------------------------------------------- results */

/* A line with everything that all lines have; e: NULL where there is no engine any more. */
json_t *weft__bench_line(const weft__bench *b, const char *what, const weft_engine *e);

/* NULL where the value is not finite. */
void weft__bench_set(json_t *line, const char *name, double v);
void weft__bench_count(json_t *line, const char *name, uint64_t v);

/* "n", "min_UNIT", "median_UNIT", "median_low_UNIT", "median_high_UNIT", "p90_UNIT", "p99_UNIT" */
void weft__bench_stats(json_t *line, const char *unit, const weft__stats *s);

/* Prints and releases the line. */
int weft__bench_print(json_t *line);

/* Reads the options, runs `body`, returns the exit code. `rows` holds the program's own rows and those of b. */
int weft__bench_main(int argc, char **argv, weft__bench *b, const weft__option *rows, const char *about,
                     int (*body)(void));

#endif
