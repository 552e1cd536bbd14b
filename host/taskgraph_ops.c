/* taskgraph_ops.c: what may be done to a finished graph before it is placed: scales, zeros, bytes for a ratio. */
#include "taskgraph.h"

#include "../tasks/seed.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>

/* Zeros are counted anew: a product may round to zero. */
static void count_zeros(weft__taskgraph *g)
{
    g->zero_costs = g->zero_bytes = 0;
    for (uint32_t t = 0; t < g->n_task; t++) {
        int zero = 1;
        for (uint32_t d = 0; d < g->n_column; d++)
            zero &= g->cost[(uint64_t)t * g->n_column + d] == 0;
        g->zero_costs += (uint32_t)zero;
    }
    for (uint32_t e = 0; e < g->n_edge; e++)
        g->zero_bytes += g->edges[e].bytes == 0;
}

int weft__tg_scale(weft__taskgraph *g, double time, double bytes)
{
    if (!(time > 0) || !(bytes > 0) || isinf(time) || isinf(bytes))
        return weft__fail(WEFT_EUSAGE, "scales of %g and %g: expected numbers above 0", time, bytes);
    for (uint64_t i = 0; i < (uint64_t)g->n_task * g->n_column; i++)
        if (!isinf(g->cost[i]) && isinf(g->cost[i] *= time))
            return weft__fail(WEFT_EUSAGE, "a cost times %g is too large", time);
    for (uint32_t e = 0; e < g->n_edge; e++)
        if (isinf(g->edges[e].bytes *= bytes)) return weft__fail(WEFT_EUSAGE, "bytes times %g are too large", bytes);
    count_zeros(g);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of what is above zero; 0 if nothing is. */
static int find_median(const double *values, uint64_t n, uint64_t stride, double *out)
{
    double *v = malloc((n + 1) * sizeof *v);
    uint64_t kept = 0;
    *out = 0;
    if (!v) return weft__fail(WEFT_ENOMEM, "median of %llu values", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        const double x = *(const double *)((const char *)values + i * stride);
        if (x > 0 && !isinf(x)) v[kept++] = x;
    }
    qsort(v, kept, sizeof *v, by_value);
    if (kept) *out = v[kept / 2];
    free(v);
    return 0;
}

int weft__tg_reject_zeros(const weft__taskgraph *g, const char *where)
{
    for (uint32_t t = 0; t < g->n_task && g->zero_costs; t++) {
        int zero = 1;
        for (uint32_t d = 0; d < g->n_column; d++)
            zero &= g->cost[(uint64_t)t * g->n_column + d] == 0;
        if (zero)
            return weft__fail(WEFT_EFILE, "%s: task %s costs 0, one of %u", where, weft__tg_name(g, t), g->zero_costs);
    }
    for (uint32_t e = 0; e < g->n_edge; e++)
        if (g->edges[e].bytes == 0)
            return weft__fail(WEFT_EFILE, "%s: edge %s -> %s carries 0 bytes, one of %u", where,
                              weft__tg_name(g, g->edges[e].from), weft__tg_name(g, g->edges[e].to), g->zero_bytes);
    return 0;
}

int weft__tg_impute_zeros(weft__taskgraph *g, uint32_t *costs, uint32_t *bytes)
{
    double cost, size;
    int status = find_median(g->cost, (uint64_t)g->n_task * g->n_column, sizeof *g->cost, &cost);
    if (!status) status = find_median(&g->edges[0].bytes, g->n_edge, sizeof *g->edges, &size);
    if (status) return status;
    *costs = cost > 0 ? g->zero_costs : 0;
    *bytes = size > 0 ? g->zero_bytes : 0;
    for (uint32_t t = 0; t < g->n_task; t++) {
        double sum = 0;
        for (uint32_t d = 0; d < g->n_column; d++)
            sum += g->cost[(uint64_t)t * g->n_column + d];
        for (uint32_t d = 0; d < g->n_column && sum == 0; d++)
            g->cost[(uint64_t)t * g->n_column + d] = cost;
    }
    for (uint32_t e = 0; e < g->n_edge; e++)
        if (g->edges[e].bytes == 0) g->edges[e].bytes = size;
    count_zeros(g);
    return 0;
}

int weft__tg_ccr(weft__taskgraph *g, double ratio, double ns_per_byte, uint64_t seed)
{
    double sum = 0;
    uint64_t n = 0;
    if (g->zero_bytes != g->n_edge)
        return weft__fail(WEFT_EUSAGE, "a ratio of communication: %u of %u edges carry bytes already",
                          g->n_edge - g->zero_bytes, g->n_edge);
    if (!(ratio > 0) || isinf(ratio) || !(ns_per_byte > 0))
        return weft__fail(WEFT_EUSAGE, "a ratio of communication of %g at %g ns a byte", ratio, ns_per_byte);
    for (uint64_t i = 0; i < (uint64_t)g->n_task * g->n_column; i++)
        if (!isinf(g->cost[i])) {
            sum += g->cost[i];
            n++;
        }
    const double mean = ratio * sum / (double)n / ns_per_byte;
    for (uint32_t e = 0; e < g->n_edge; e++) /* uniform in (0, 2 * mean): never 0 */
        g->edges[e].bytes = 2 * mean * (weft_hash(seed, e, 0x636372) + 0.5) / 4294967296.0;
    count_zeros(g);
    return 0;
}
