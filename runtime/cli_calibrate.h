/* cli_calibrate.h: what `weft bench calibrate` is made of: probes on engines, cells of measured task durations, a profile. */
#ifndef WEFT_RUNTIME_CLI_CALIBRATE_H
#define WEFT_RUNTIME_CLI_CALIBRATE_H

#include "../host/graph.h"
#include "../host/profile.h"
#include "weft.h"

typedef struct weft__probe { /* one image on an engine: what its traces say */
    weft_event *events;      /* of the steps after warm-up, by device, worker, time */
    size_t n;
    double step_us; /* median, host to host */
    uint32_t workers;
} weft__probe;

/* Runs `steps` steps after a few for warm-up. Free also after a failure. */
int weft__probe_run(const void *image, uint64_t bytes, const char *devices, const char *queue, uint32_t steps,
                    weft__probe *out);
void weft__probe_free(weft__probe *p);

/* A chain of `layers` NOP ops of `tiles` tasks of cost_ns, op i on device i % n_device; each waits for the one before, or
 * (free = 1) for none. */
int weft__probe_nops(uint32_t n_device, uint32_t workers, uint32_t layers, uint32_t tiles, uint32_t cost_ns,
                     int free_ones, void **image, uint64_t *bytes);

/* The profile of `devices` (emulated ones: one worker alone is measured first, then all). */
int weft__calibrate(const char *devices, uint32_t steps, weft__profile *out);

/* Predicts plans that calibration has not seen, runs them, prints a row each; *median, *worst: |predicted / measured - 1|. */
int weft__calibrate_check(const weft__profile *p, const char *devices, uint32_t steps, int json, double *median,
                          double *worst);

double weft__median_of(double *v, size_t n); /* sorts; NaN of none */

#endif
