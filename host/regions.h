/* regions.h: disjoint runs of memory, and where each tensor lies in them, for the validator. */
#ifndef WEFT_HOST_REGIONS_H
#define WEFT_HOST_REGIONS_H

#include "image.h"

typedef struct weft__place { /* of a tensor in its region's base */
    uint32_t region;         /* WEFT_NONE: a weight */
    uint32_t col0, split0;
} weft__place;

typedef struct weft__regions {
    weft__place *place; /* [tensor] */
    uint32_t *base;     /* [region]: the tensor that spans it */
    uint32_t n;
} weft__regions;

int weft__regions_init(const weft__image *img, weft__regions *r); /* free also after failure */
void weft__regions_free(weft__regions *r);

/* Region that holds a 32-bit word of a device's work arena, or WEFT_NONE. */
uint32_t weft__region_of_word(const weft__image *img, const weft__regions *r, uint32_t device, uint32_t word);

#endif
