/* image.h: a plan as bytes (tasks/abi.h). Opening checks everything that a worker relies on without looking: magic,
 * version, hash, section bounds and alignment, and that every index in it is in range. What the plan *does* (races,
 * cycles, arrivals) is the validator's business (validate.h).
 *
 * Enters: bytes or a file. Leaves: weft__image, a view into those bytes. A view never outlives its bytes and never
 * changes them. Errors: WEFT_EFILE with file, section, index and field; WEFT_EIO; WEFT_ENOMEM. */
#ifndef WEFT_HOST_IMAGE_H
#define WEFT_HOST_IMAGE_H

#include "../tasks/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__image {
    const weft_image_header *header;
    const weft_image_device *devices; /* [n_device] */
    const weft_image_queue *queues;   /* [variant * n_device + device] */
    const weft_tensor *tensors;
    const weft_weight *weights;
    const weft_op *ops;
    const weft_task *tasks;
    const uint32_t *order;
    const uint64_t *side;
    const weft_counter *counters;
    const uint32_t *deps;
    const uint32_t *args;
    const uint32_t *costs;
    const char *strings;
    uint32_t n_device, n_variant;
    uint32_t n_tensor, n_weight, n_op, n_task;
    const uint8_t *bytes;
    uint64_t size;
    void *owned; /* freed by close; NULL if the caller owns the bytes */
} weft__image;

/* Checks `size` bytes (16-byte aligned) and fills the view. `name` stands in messages (a file name or "image"). The
 * bytes stay the caller's and must outlive the view. */
int weft__image_open(const void *bytes, uint64_t size, const char *name, weft__image *out);

/* Reads and opens a file; close frees it. */
int weft__image_read_file(const char *path, weft__image *out);

/* Writes the bytes of an image to `path` through a temporary file beside it: there is the old file or the new one. */
int weft__image_write_file(const void *bytes, uint64_t size, const char *path);

/* Frees what read_file allocated; legal on a zeroed view and on one that open filled. */
void weft__image_close(weft__image *img);

/* Hash of an image's bytes as the header should have it (its hash field taken as zero). */
uint64_t weft__image_hash(const void *bytes, uint64_t size);

/* ------------------------------------------------------------------------------------------------ reading a view */

/* Of the kinds whose tile[3] is a range of K. */
static inline int weft__is_gemm(uint32_t kind) { return kind == WEFT_KIND_GEMM_STREAM || kind == WEFT_KIND_GEMM_WIDE; }

static inline const weft_image_queue *weft__image_queue_of(const weft__image *i, uint32_t variant, uint32_t device)
{
    return &i->queues[variant * i->n_device + device];
}

/* "" for WEFT_NONE. */
static inline const char *weft__image_string(const weft__image *i, uint32_t offset)
{
    return offset == WEFT_NONE ? "" : i->strings + offset;
}

/* The op of a task of device d. */
static inline const weft_op *weft__image_op(const weft__image *i, uint32_t device, const weft_task *t)
{
    return &i->ops[i->devices[device].op + t->op];
}

/* Wait and signal number n of a task: two of each inline, the others in its queue's side table. */
static inline weft_wait weft__task_wait(const weft_task *t, const uint64_t *queue_side, uint32_t n)
{
    union {
        uint64_t word;
        weft_wait wait;
    } u;
    if (n < 2) return t->wait[n];
    u.word = queue_side[t->extra + n - 2];
    return u.wait;
}

static inline uint32_t weft__task_side_waits(const weft_task *t) { return t->n_wait > 2 ? t->n_wait - 2u : 0; }

static inline weft_signal weft__task_signal(const weft_task *t, const uint64_t *queue_side, uint32_t n)
{
    union {
        uint64_t word;
        weft_signal signal;
    } u;
    if (n < 2) return t->signal[n];
    u.word = queue_side[t->extra + weft__task_side_waits(t) + n - 2];
    return u.signal;
}

/* Tensor by name and role on `device` (WEFT_NONE: on any); index, or WEFT_NONE. INPUT tensors of one name on several
 * devices are copies of each other: the host writes all. */
uint32_t weft__image_find(const weft__image *img, const char *name, uint32_t role, uint32_t device);

/* Bit d: device `device` writes to device d's memory or signals there, in any variant (itself included). */
uint64_t weft__image_peers(const weft__image *img, uint32_t device);
/* The devices whose tasks name this one as their alternate. */
uint64_t weft__image_victims(const weft__image *img, uint32_t device);

/* ------------------------------------------------------------------------------------------------ making an image */

typedef struct weft__image_counts { /* elements of each section; strings in bytes */
    uint64_t devices, queues, tensors, weights, ops, tasks, order, side, counters, deps, args, costs, strings;
} weft__image_counts;

/* An image under construction: one buffer of the final size, zeroed, with the header's sections laid out. Fill the
 * arrays in place, then seal. `bytes` is freed with free() by whoever holds it. */
typedef struct weft__image_writer {
    uint8_t *bytes;
    uint64_t size;
    weft_image_header *header;
    weft_image_device *devices;
    weft_image_queue *queues;
    weft_tensor *tensors;
    weft_weight *weights;
    weft_op *ops;
    weft_task *tasks;
    uint32_t *order;
    uint64_t *side;
    weft_counter *counters;
    uint32_t *deps;
    uint32_t *args;
    uint32_t *costs;
    char *strings;
} weft__image_writer;

int weft__image_writer_init(weft__image_writer *w, const weft__image_counts *counts, uint32_t n_device,
                            uint32_t n_variant);

/* Writes the hash of bytes that are otherwise complete (also after a change to them). */
void weft__image_seal(void *bytes, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
