/* stats.h: how every measurement of this project is summed up. Defined once, for the command and all benches. */
#ifndef WEFT_RUNTIME_STATS_H
#define WEFT_RUNTIME_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_STATS_WARMUP 100u /* steps before timing, and timed steps, unless told otherwise */
#define WEFT_STATS_STEPS 1000u

typedef struct weft__stats {
    uint64_t n;
    double min, p50, p90, p99; /* in the samples' unit; p99 is NaN below 1000 samples */
    double low, high;          /* 95 % bootstrap interval of the median; both p50 below 2 samples */
} weft__stats;

/* Sorts `samples` in place. Percentile p is the value at rank ceil(p * n), the median of an even number the mean of the
 * middle two. The bootstrap draws 1000 resamples with a generator of fixed seed: the same samples give the same bytes.
 * WEFT_EUSAGE if n is 0; WEFT_ENOMEM.                                                                                 */
int weft__stats_of(double *samples, uint64_t n, weft__stats *out);

#ifdef __cplusplus
}
#endif

#endif
