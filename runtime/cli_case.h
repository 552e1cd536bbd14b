/* cli_case.h: one measured run: plan, load, check, time. What `weft run` prints one of and `weft tour` many. */
#ifndef WEFT_RUNTIME_CLI_CASE_H
#define WEFT_RUNTIME_CLI_CASE_H

#include "cli_work.h"
#include "stats.h"
#include "weft.h"

#include <jansson.h>

typedef struct weft__case_options {
    const char *queue;
    const char *image;      /* run this image file instead of planning; NULL: plan */
    uint32_t steps;         /* timed; 0: 1000, or as many as fit into budget_s */
    uint32_t warmup;        /* WEFT_NONE: 100, or fewer where a step is long */
    double budget_s;        /* for the timed steps, where `steps` is 0 */
    uint32_t deadline_us;   /* of a step */
    uint32_t in_flight;     /* weight pages on their way, a worker */
    uint32_t trace_records; /* per worker; 0: no trace */
    bool check;
} weft__case_options;
weft__case_options weft__case_defaults(void);
weft__option *weft__case_rows(weft__case_options *o, weft__option *row);

typedef struct weft__case {
    weft_engine *engine;
    weft_engine_info info;
    char devices[256]; /* their names, separated by commas */
    weft__stats us;    /* a step, host to host */
    double *samples;   /* in the order of time, us.n of them */
    uint32_t warmup;
    double rel_error;       /* NaN: not checked */
    weft__work_error error; /* in detail */
    double load_s;          /* planning apart: upload and start of the workers */
} weft__case;

/* Plans w (or reads the image), starts an engine, checks what it stored against the reference, times steps and checks that
 * the last output is the first one's, bit for bit. On success the engine is still there, for traces. WEFT_EWRONG: more than
 * 5e-3 off the reference, or an output that changed: *out is filled in and must be closed too.                          */
int weft__case_run(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *out);
void weft__case_close(weft__case *c); /* legal on a zeroed struct */

/* One JSON line on stdout. */
int weft__case_print_json(const weft__work *w, const weft__plan_flags *flags, const weft__case_options *o,
                          const weft__case *c);

/* Writes the samples, one a line, in us. */
int weft__case_write_samples(const weft__case *c, const char *path);

/* What every JSON line of this project carries: schema, version, commit. A new reference. */
json_t *weft__result_new(const char *verb);
/* Prints and releases it. */
int weft__result_print(json_t *result);

#define WEFT_MAX_REL_ERROR 5e-3

#endif
