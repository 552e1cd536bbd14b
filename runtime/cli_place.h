/* cli_place.h: what verbs that take a task graph share: its options, the graph, the machine that it is placed on. */
#ifndef WEFT_RUNTIME_CLI_PLACE_H
#define WEFT_RUNTIME_CLI_PLACE_H

#include "../host/placer.h"
#include "cli.h"

#include <jansson.h>

typedef struct weft__place_options {
    const char *devices, *zero, *model;
    double bandwidth, latency; /* GB/s, us; between any two devices */
    double memory;             /* GB of each device for what tasks leave there; 0: no limit */
    double ccr, time_scale, byte_scale;
    uint64_t seed;
} weft__place_options;
weft__place_options weft__place_defaults(void);
/* Appends the rows that set *o (but not --devices, --seed, --model) to a table with room; returns the next free row. */
weft__option *weft__place_rows(weft__place_options *o, weft__option *row);

typedef struct weft__place_input {
    const char *text; /* the graph, as it was named */
    weft__taskgraph g;
    weft__machine m;
    uint32_t imputed_costs, imputed_bytes;
} weft__place_input;

/* Reads or makes the graph, scales it, treats its zeros, gives it bytes, and describes the machine. Close also after a failure. */
int weft__place_open(const weft__place_options *o, const char *graph, weft__place_input *out);
void weft__place_close(weft__place_input *in);

typedef struct weft__place_result {
    weft__schedule s;
    weft__placement_score score;
    double policy_s, schedule_s; /* deciding; making and checking the schedule */
    double proven;               /* ns: no schedule is shorter; 0: not known */
    char name[512];
} weft__place_result;

/* One policy (a spec of placer.h) or, where `file` is not NULL, the placement in that file. Free also after a failure. */
int weft__place_one(const weft__place_input *in, const char *spec, const char *file, uint64_t seed,
                    weft__place_result *out);
void weft__place_free(weft__place_result *r);

/* The schedule as an image: NOP tasks that take as long as they cost. Freed with free(). */
int weft__place_image(const weft__place_input *in, const weft__schedule *s, uint64_t seed, void **bytes,
                      uint64_t *size);

typedef struct weft__place_run { /* `weft run --graph` */
    weft__place_options options;
    const char *graph, *policy, *file, *queue; /* file: a placement, or NULL */
    uint32_t steps, warmup, deadline_us;
    bool json;
} weft__place_run;
int weft__place_run_graph(const weft__place_run *r);

/* What belongs to the graph and the machine, into a JSON line. */
void weft__place_json(const weft__place_options *o, const weft__place_input *in, json_t *to);

#endif
