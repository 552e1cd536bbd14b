/* cli_case.h: one measured run: plan, load, check, time. What `weft run` prints one of and `weft tour` many. */
#ifndef WEFT_RUNTIME_CLI_CASE_H
#define WEFT_RUNTIME_CLI_CASE_H

#include "cli_work.h"
#include "clocks.h"
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
    char devices[256];                /* their names, separated by commas */
    char driver[64];                  /* a copy: info's is the engine's, which may be gone when results are printed */
    char queue[512];                  /* the same */
    weft__stats us;                   /* a step, host to host */
    double *samples;                  /* in the order of time, n_sample of them */
    uint32_t n_sample, steps, warmup; /* taken so far; to take; before them */
    float *first;                     /* the checked step's output */
    double rel_error;                 /* NaN: not checked */
    weft__work_error error;           /* in detail */
    weft__clocks clocks;              /* after the last timed step */
    uint32_t rounds;                  /* of the comparison that this was a side of; 0: none */
    double load_s;                    /* planning apart: upload and start of the workers */
} weft__case;

/* Plans w (or reads the image), starts an engine, checks what it stored against the reference, times steps and checks that
 * the last output is the first one's, bit for bit. On success the engine is still there, for traces. WEFT_EWRONG: more than
 * 5e-3 off the reference, or an output that changed: *out is filled in and must be closed too.                          */
int weft__case_run(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *out);
void weft__case_close(weft__case *c); /* legal on a zeroed struct */

/* The same in parts, for comparisons that take turns: start, check and warm up; time n more of c->steps steps; sum up. */
int weft__case_open(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *out);
int weft__case_time(weft__case *c, uint32_t n);
void weft__case_suspend(weft__case *c); /* gives the devices back; resume takes them again, loads and warms up */
int weft__case_resume(weft__work *w, const weft__plan_flags *flags, const weft__case_options *options, weft__case *c);
int weft__case_finish(const weft__work *w, const weft__case_options *options, weft__case *c);

/* The sides of a comparison: other flags or queues for the same work. */
#define WEFT_MAX_SIDES 32
typedef struct weft__side {
    weft__plan_flags flags;
    weft__case_options options;
    weft__case result;
    int status;
    char error[1024]; /* where status is not 0 */
} weft__side;

/* Measures all sides in rounds: in each, every side takes its part of its steps, in an order that follows from the seed, so
 * that what changes slowly on the machine meets all of them alike. A side that fails (status) leaves the others alone. Results
 * have no engine any more; close them.                                                                                  */
void weft__compare(weft__work *w, weft__side *sides, uint32_t n, uint64_t seed);

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
