/* regions.c: which tensors share memory, and how.
 *
 * Enters: an image's tensors. Leaves: regions, disjoint runs of work arenas. All tensors of a region are views of
 * its base: splits of a PARTIAL, column slices of FRAG, PANEL or PACKET, or the base again. Any other overlap is
 * refused. */
#include "regions.h"

#include "../tasks/layout.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local const weft_tensor *sorting; /* qsort has no argument for it */

static int by_place(const void *a, const void *b)
{
    const weft_tensor *x = &sorting[*(const uint32_t *)a], *y = &sorting[*(const uint32_t *)b];
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* Where view v begins in base b; not 0 if it is no view of it. */
static int place_view(const weft_tensor *b, const weft_tensor *v, weft__place *at)
{
    const uint64_t from = v->offset - b->offset;
    if (v->layout != b->layout || v->dtype != b->dtype || v->rows != b->rows) return -1;
    if (from + v->bytes > b->bytes) return -1;
    if (b->layout == WEFT_LAYOUT_PARTIAL && b->splits == 1 && v->splits == 1) { /* columns, in sixteens */
        const uint64_t block = (uint64_t)b->rows * 64;
        if (from % block || from / block * 16 + v->cols > b->cols) return -1;
        at->col0 = (uint32_t)(from / block * 16);
        return 0;
    }
    if (b->layout == WEFT_LAYOUT_PARTIAL) {
        const uint64_t plane = b->bytes / b->splits;
        if (v->cols != b->cols || from % plane || from / plane + v->splits > b->splits) return -1;
        at->split0 = (uint32_t)(from / plane);
        return 0;
    }
    if (b->layout == WEFT_LAYOUT_FRAG || b->layout == WEFT_LAYOUT_PANEL || b->layout == WEFT_LAYOUT_PACKET) {
        const uint64_t block = weft_layout_bytes(b->layout, b->dtype, b->rows, 64, 1);
        if (from % block || from / block * 64 + v->cols > b->cols) return -1;
        at->col0 = (uint32_t)(from / block * 64);
        return 0;
    }
    return from || v->cols != b->cols ? -1 : 0;
}

static const char *tensor_name(const weft__image *img, uint32_t t)
{
    return img->tensors[t].name == WEFT_NONE ? "-" : weft__image_string(img, img->tensors[t].name);
}

static int refuse_overlap(const weft__image *img, uint32_t a, uint32_t b)
{
    return weft__fail(WEFT_EREFUSED,
                      "tensors %u (%s) and %u (%s) share memory of device %u, and neither is a slice of the other", a,
                      tensor_name(img, a), b, tensor_name(img, b), img->tensors[b].device);
}

/* Weights are written at load, one after another: they share nothing. */
static int check_weights(const weft__image *img, uint32_t *sorted)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < img->n_tensor; i++) {
        if (img->tensors[i].role == WEFT_ROLE_WEIGHT) sorted[n++] = i;
    }
    qsort(sorted, n, sizeof *sorted, by_place);
    for (uint32_t i = 1; i < n; i++) {
        const weft_tensor *a = &img->tensors[sorted[i - 1]], *b = &img->tensors[sorted[i]];
        if (a->device == b->device && b->offset < a->offset + a->bytes)
            return refuse_overlap(img, sorted[i - 1], sorted[i]);
    }
    return 0;
}

int weft__regions_init(const weft__image *img, weft__regions *r)
{
    uint32_t *sorted = malloc((img->n_tensor + 1u) * 4ul), n = 0;
    *r = (weft__regions){.place = calloc(img->n_tensor + 1u, sizeof *r->place),
                         .base = malloc((img->n_tensor + 1u) * 4ul)};
    if (!sorted || !r->place || !r->base) {
        free(sorted);
        return weft__fail(WEFT_ENOMEM, "validator: %u tensors", img->n_tensor);
    }
    sorting = img->tensors;
    if (check_weights(img, sorted)) {
        free(sorted);
        return WEFT_EREFUSED;
    }
    for (uint32_t i = 0; i < img->n_tensor; i++) {
        r->place[i].region = WEFT_NONE;
        if (img->tensors[i].role != WEFT_ROLE_WEIGHT) sorted[n++] = i;
    }
    qsort(sorted, n, sizeof *sorted, by_place);
    for (uint32_t i = 0; i < n; i++) {
        const weft_tensor *t = &img->tensors[sorted[i]];
        const weft_tensor *b = r->n ? &img->tensors[r->base[r->n - 1]] : NULL;
        weft__place *at = &r->place[sorted[i]];
        if (!b || b->device != t->device || t->offset >= b->offset + b->bytes) {
            r->base[r->n++] = sorted[i];
        } else if (place_view(b, t, at)) {
            free(sorted);
            return refuse_overlap(img, r->base[r->n - 1], (uint32_t)(t - img->tensors));
        }
        at->region = r->n - 1;
    }
    free(sorted);
    return 0;
}

void weft__regions_free(weft__regions *r)
{
    free(r->place);
    free(r->base);
}

/* Regions are in order of device, then offset. */
uint32_t weft__region_of_word(const weft__image *img, const weft__regions *r, uint32_t device, uint32_t word)
{
    uint32_t lo = 0, hi = r->n;
    while (lo < hi) { /* the first region that begins after the word */
        const uint32_t mid = (lo + hi) / 2;
        const weft_tensor *t = &img->tensors[r->base[mid]];
        if (t->device < device || (t->device == device && t->offset <= (uint64_t)word * 4))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (!lo) return WEFT_NONE;
    const weft_tensor *t = &img->tensors[r->base[lo - 1]];
    return t->device == device && (uint64_t)word * 4 + 4 <= t->offset + t->bytes ? lo - 1 : WEFT_NONE;
}
