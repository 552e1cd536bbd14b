/* pack.h: the values of a weight, and those values in the layout in which tasks read them.
 *
 * A weight is described by its source (abi.h, weft_weight): names in a model or a seed, gate and up rows alternating in
 * eights, a gain folded into the columns, perhaps only a slice of the whole. weft__weight_rows is the one place that turns
 * that into numbers; packing and the reference (reference.h) both stand on it, so both see the same rounded values.      */
#ifndef WEFT_HOST_PACK_H
#define WEFT_HOST_PACK_H

#include "graph.h"
#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where named tensors come from; the same shape as weft.h's weft_weight_source. A vector has one row. */
typedef struct weft__weight_reader {
    void *user;
    int (*shape)(void *user, const char *name, uint32_t *rows, uint32_t *cols);
    int (*rows)(void *user, const char *name, uint32_t row, uint32_t n, float *dst);
} weft__weight_reader;

typedef struct weft__weight { /* what to make: rows x cols values from (row0, col0) of the whole packed matrix */
    const char *name;         /* of the tensor, for messages */
    uint32_t rows, cols, row0, col0;
    uint8_t dtype; /* BF16, FP16 or FP32 */
    weft__source source;
} weft__weight;

weft__weight weft__weight_of_graph(const weft__gtensor *t);
weft__weight weft__weight_of_image(const weft__image *img, uint32_t tensor); /* tensor must be a weight */

/* Rows row .. row+n-1 of the weight as fp32, already rounded to its type; n * cols values. Rows past those of the model's
 * tensor are zero. `reader` may be NULL for seeded weights. `scratch`: weft__weight_scratch(w) floats.
 * WEFT_EFILE: no such tensor, or shapes that don't fit.                                                                 */
uint64_t weft__weight_scratch(const weft__weight *w);
int weft__weight_rows(const weft__weight *w, const weft__weight_reader *reader, uint32_t row, uint32_t n,
                      float *scratch, float *dst);

/* Groups group .. group+n-1 (16 rows each) of a 16-bit weight in ATOM layout: n * ceil(cols / 64) * 2048 bytes, padding
 * zero. The groups of a tensor follow each other in memory, so callers may pack and upload a few at a time.              */
int weft__pack_atoms(const weft__weight *w, const weft__weight_reader *reader, uint32_t group, uint32_t n, void *dst);

/* A whole weight tensor of an image as its layout says (ATOM, or ROW of any type): dst has tensors[tensor].bytes. */
int weft__pack_tensor(const weft__image *img, uint32_t tensor, const weft__weight_reader *reader, void *dst);

#ifdef __cplusplus
}
#endif

#endif
