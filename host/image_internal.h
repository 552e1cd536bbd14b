/* image_internal.h: the list of an image's sections, in file order, for image.c and image_check.c; and what the checks
 * share. */
#ifndef WEFT_HOST_IMAGE_INTERNAL_H
#define WEFT_HOST_IMAGE_INTERNAL_H

#include "../tasks/layout.h"
#include "error.h"
#include "image.h"

/* field of weft_image_header, element type */
#define WEFT__SECTION_LIST(X)                                                                                          \
    X(devices, weft_image_device)                                                                                      \
    X(queues, weft_image_queue)                                                                                        \
    X(tensors, weft_tensor)                                                                                            \
    X(weights, weft_weight)                                                                                            \
    X(ops, weft_op)                                                                                                    \
    X(tasks, weft_task)                                                                                                \
    X(order, uint32_t)                                                                                                 \
    X(side, uint64_t)                                                                                                  \
    X(counters, weft_counter)                                                                                          \
    X(deps, uint32_t)                                                                                                  \
    X(args, uint32_t)                                                                                                  \
    X(costs, uint32_t)                                                                                                 \
    X(strings, char)

enum {
#define WEFT__SECTION(field, type) WEFT__SECTION_##field,
    WEFT__SECTION_LIST(WEFT__SECTION)
#undef WEFT__SECTION
    WEFT__SECTION_COUNT
};

typedef struct weft__section_info {
    const char *name;
    uint32_t size;  /* of an element */
    uint32_t field; /* offset of the weft_section in the header */
} weft__section_info;

extern const weft__section_info weft__sections[WEFT__SECTION_COUNT];

typedef struct weft__image_place { /* what a message names */
    const char *file, *section;
    uint64_t index;
} weft__image_place;

/* WEFT_EFILE, with the place, the field and its value. */
int weft__image_bad(weft__image_place p, const char *field, uint64_t value, const char *why);
int weft__image_below(weft__image_place p, const char *field, uint64_t value, uint64_t limit);
int weft__image_none_or_below(weft__image_place p, const char *field, uint32_t value, uint64_t limit);

/* image_ops.c */
int weft__image_check_ops(const char *file, const weft__image *img);

#endif
