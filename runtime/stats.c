/* stats.c: see stats.h. The median of a resample is decided by ranks alone, so a resample draws n ranks
 * and counts them; no values are moved.                                                                                */
#include "stats.h"

#include "../host/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESAMPLES = 1000
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *sorted, uint64_t n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static double percentile(const double *sorted, uint64_t n, double p)
{
    uint64_t rank = (uint64_t)ceil(p * (double)n);
    return sorted[(rank ? rank : 1) - 1];
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The median of one resample: counts how often each rank was drawn and walks to the middle. */
static double resample(const double *sorted, uint64_t n, uint32_t *drawn, uint64_t *state)
{
    uint64_t seen = 0, low = (n - 1) / 2, high = n / 2;
    double first = 0;
    memset(drawn, 0, n * sizeof *drawn);
    for (uint64_t i = 0; i < n; i++)
        drawn[(uint64_t)(((unsigned __int128)next_random(state) * n) >> 64)]++;
    for (uint64_t r = 0; r < n; r++) {
        if (seen <= low && low < seen + drawn[r]) first = sorted[r];
        seen += drawn[r];
        if (high < seen) return (first + sorted[r]) / 2;
    }
    return first;
}

static void interval(const double *sorted, uint64_t n, double *medians, uint32_t *drawn, weft__stats *out)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < RESAMPLES; i++)
        medians[i] = resample(sorted, n, drawn, &state);
    qsort(medians, RESAMPLES, sizeof *medians, ascending);
    out->low = medians[RESAMPLES / 40];
    out->high = medians[RESAMPLES - 1 - RESAMPLES / 40];
}

int weft__stats_of(double *samples, uint64_t n, weft__stats *out)
{
    if (n == 0) return weft__fail(WEFT_EUSAGE, "statistics of no samples");
    qsort(samples, n, sizeof *samples, ascending);
    *out = (weft__stats){.n = n, .min = samples[0], .p50 = median(samples, n)};
    out->p90 = percentile(samples, n, 0.90);
    out->p99 = n < 1000 ? NAN : percentile(samples, n, 0.99);
    out->low = out->high = out->p50;
    if (n < 2) return 0;
    double *medians = malloc(RESAMPLES * sizeof *medians);
    uint32_t *drawn = malloc(n * sizeof *drawn);
    int status = medians && drawn ? 0 : weft__fail(WEFT_ENOMEM, "statistics of %llu samples", (unsigned long long)n);
    if (!status) interval(samples, n, medians, drawn, out);
    free(medians);
    free(drawn);
    return status;
}
