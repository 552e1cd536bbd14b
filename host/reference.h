/* reference.h: what a graph's output should be: float64 accumulation, rounded wherever every plan stores.
 *
 * It knows nothing of tiles, devices or layouts: it walks the graph that plans are made from, op by op, so an error of the
 * planner, the packing or a kernel shows as a difference. Split-K partials are fp32 in a plan and don't exist here.
 * Rows of a batch don't depend on each other: callers may compute parts of the batch in several threads at once.         */
#ifndef WEFT_HOST_REFERENCE_H
#define WEFT_HOST_REFERENCE_H

#include "graph.h"
#include "pack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run stored in a tensor, against what it should have stored given its op's inputs *as the run stored them*. A long
 * chain of layers amplifies a difference of one rounding without bound (a residual stream whose large values cancel: two
 * correct bf16 runs of 30 layers differ by 2 %), so a whole chain says little; each op by itself says all.               */
typedef struct weft__observed {
    const float *got;        /* n rows as stored, or NULL: not known, the reference goes on with its own values */
    double difference, norm; /* set: sums of squares of got - want and of want */
} weft__observed;

/* n rows of the graph's one INPUT, x[n][its columns], give n rows of its one OUTPUT, out[n][its columns]; out may be NULL.
 * x is rounded to the input's type first. observed[n_tensor] may be NULL; where got is given, ops after it start from it.
 * Graphs of GEMMs and norms only (weft__graph_mix_values serves the others): else WEFT_EUSAGE. Also fails as weft__weight_rows does.   */
int weft__reference_rows(const weft__graph *g, const weft__weight_reader *reader, const float *x, uint32_t n,
                         weft__observed *observed, double *out);

/* v as element type `dtype` stores it, rounded once, to nearest even. */
double weft__round_to(uint32_t dtype, double v);

/* ||got - want|| / ||want||; ||got|| where want is zero; NaN or infinity if any value of `got` is. */
double weft__relative_error(const float *got, const double *want, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
