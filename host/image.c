/* image.c: images as files and as buffers.
 *
 * Enters: counts of elements, or a file. Leaves: a zeroed buffer with every section laid out (in the header's order,
 * each at a multiple of 16, no gaps beyond that), or a checked view. What a view may hold is checked in
 * image_check.c. */
#include "image_internal.h"
#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL /* its state then fits on the stack: hashing needs no memory */
#include <xxhash.h>

const weft__section_info weft__sections[WEFT__SECTION_COUNT] = {
#define WEFT__SECTION(field, type) {#field, sizeof(type), offsetof(weft_image_header, field)},
    WEFT__SECTION_LIST(WEFT__SECTION)
#undef WEFT__SECTION
};

uint64_t weft__image_hash(const void *bytes, uint64_t size)
{
    const uint64_t zero = 0;
    const size_t at = offsetof(weft_image_header, hash), after = at + sizeof zero;
    XXH3_state_t s;
    XXH3_64bits_reset(&s);
    XXH3_64bits_update(&s, bytes, at);
    XXH3_64bits_update(&s, &zero, sizeof zero);
    XXH3_64bits_update(&s, (const uint8_t *)bytes + after, size - after);
    return XXH3_64bits_digest(&s);
}

void weft__image_seal(void *bytes, uint64_t size)
{
    ((weft_image_header *)bytes)->hash = weft__image_hash(bytes, size);
}

void weft__image_close(weft__image *img)
{
    free(img->owned);
    memset(img, 0, sizeof *img);
}

uint32_t weft__image_find(const weft__image *img, const char *name, uint32_t role, uint32_t device)
{
    for (uint32_t i = 0; i < img->n_tensor; i++) {
        const weft_tensor *t = &img->tensors[i];
        if (t->role != role || (device != WEFT_NONE && t->device != device)) continue;
        if (!strcmp(weft__image_string(img, t->name), name)) return i;
    }
    return WEFT_NONE;
}

static uint64_t mix_peers(const uint32_t *args)
{
    uint64_t peers = 0;
    const uint32_t *out = args + 2 + args[1];
    for (uint32_t i = 0; i < out[0]; i++)
        peers |= 1ull << out[1 + 2 * i];
    return peers;
}

static uint64_t op_peers(const weft__image *img, const weft_op *op)
{
    uint64_t peers = 0;
    const uint32_t outs[] = {op->out, op->pk_out, op->flags & WEFT_OP_PARTIAL ? op->partial : WEFT_NONE};
    for (size_t i = 0; i < sizeof outs / sizeof *outs; i++) {
        if (outs[i] != WEFT_NONE) peers |= 1ull << img->tensors[outs[i]].device;
    }
    return peers;
}

uint64_t weft__image_victims(const weft__image *img, uint32_t device)
{
    uint64_t victims = 0;
    for (uint32_t i = 0; i < img->header->queues.count; i++) {
        const weft_image_queue *q = &img->queues[i];
        for (uint32_t t = 0; t < q->n_task; t++) {
            if (img->tasks[q->task + t].alt_device == device) victims |= 1ull << (i % img->n_device);
        }
    }
    return victims;
}

/* Those who take tasks of a device read its memory and write where its tasks write, so they and all who write to it wait for
 * one another's steps. */
static uint64_t thieves_of(const weft__image *img, uint32_t device)
{
    uint64_t thieves = 0;
    for (uint32_t v = 0; v < img->n_variant; v++) {
        const weft_image_queue *q = weft__image_queue_of(img, v, device);
        for (uint32_t t = 0; t < q->n_task; t++) {
            if (img->tasks[q->task + t].alt_device != 0xff) thieves |= 1ull << img->tasks[q->task + t].alt_device;
        }
    }
    return thieves;
}

/* Devices that choose the tokens with which this one begins its next step. */
static uint64_t feeders_of(const weft__image *img, uint32_t device)
{
    uint64_t feeders = 0;
    for (uint32_t i = 0; i < img->n_op; i++) {
        const weft_op *op = &img->ops[i];
        if (op->kind == WEFT_KIND_SAMPLE && img->tensors[op->out].device == device) feeders |= 1ull << op->device;
    }
    return feeders;
}

static uint64_t direct_peers(const weft__image *img, uint32_t device)
{
    const weft_image_device *dev = &img->devices[device];
    uint64_t peers = 1ull << device | feeders_of(img, device);
    for (uint32_t i = 0; i < dev->n_op; i++)
        peers |= op_peers(img, &img->ops[dev->op + i]);
    for (uint32_t v = 0; v < img->n_variant; v++) {
        const weft_image_queue *q = weft__image_queue_of(img, v, device);
        for (uint32_t i = 0; i < q->n_task; i++) {
            const weft_task *t = &img->tasks[q->task + i];
            if (t->kind == WEFT_KIND_MIX) peers |= mix_peers(&img->args[q->arg + t->tile[0]]);
            for (uint32_t s = 0; s < t->n_signal; s++) {
                peers |= 1ull << weft__task_signal(t, img->side + q->side, s).device;
            }
        }
    }
    return peers;
}

uint64_t weft__image_peers(const weft__image *img, uint32_t device)
{
    uint64_t peers = direct_peers(img, device);
    for (uint64_t m = weft__image_victims(img, device); m; m &= m - 1)
        peers |= direct_peers(img, (uint32_t)__builtin_ctzll(m));
    for (uint64_t m = peers; m; m &= m - 1)
        peers |= thieves_of(img, (uint32_t)__builtin_ctzll(m));
    return peers;
}

/* ------------------------------------------------------------------------------------------------------- writing */

static weft_section *section_of(weft_image_header *h, uint32_t s)
{
    return (weft_section *)((uint8_t *)h + weft__sections[s].field);
}

int weft__image_writer_init(weft__image_writer *w, const weft__image_counts *c, uint32_t n_device, uint32_t n_variant)
{
    const uint64_t counts[WEFT__SECTION_COUNT] = {c->devices, c->queues, c->tensors, c->weights,  c->ops,
                                                  c->tasks,   c->order,  c->side,    c->counters, c->deps,
                                                  c->args,    c->costs,  c->strings};
    weft_image_header head = {.magic = WEFT_IMAGE_MAGIC,
                              .version = WEFT_ABI_VERSION,
                              .header_bytes = sizeof head,
                              .n_variant = n_variant,
                              .n_device = n_device};
    memset(w, 0, sizeof *w);
    uint64_t at = weft_round_up64(sizeof head, 16);
    for (uint32_t s = 0; s < WEFT__SECTION_COUNT; s++) {
        if (counts[s] >= WEFT_NONE) {
            return weft__fail(WEFT_EUSAGE, "image: %s would have %llu elements, more than 32 bits can count",
                              weft__sections[s].name, (unsigned long long)counts[s]);
        }
        *section_of(&head, s) = (weft_section){at, counts[s]};
        at = weft_round_up64(at + counts[s] * weft__sections[s].size, 16);
    }
    head.bytes = w->size = at;
    w->bytes = weft__table_zero(at, 1);
    if (!w->bytes) return weft__fail(WEFT_ENOMEM, "image of %llu bytes", (unsigned long long)at);
    w->header = (weft_image_header *)w->bytes;
    *w->header = head;
#define WEFT__SECTION(field, type) w->field = (type *)(w->bytes + head.field.offset);
    WEFT__SECTION_LIST(WEFT__SECTION)
#undef WEFT__SECTION
    return 0;
}

static int write_all(int fd, const uint8_t *p, uint64_t n)
{
    while (n) {
        ssize_t done = write(fd, p, n < (1u << 30) ? n : 1u << 30);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        p += done;
        n -= (uint64_t)done;
    }
    return 0;
}

int weft__image_write_file(const void *bytes, uint64_t size, const char *path)
{
    size_t len = strlen(path) + sizeof ".XXXXXX";
    char *temp = malloc(len);
    if (!temp) return weft__fail(WEFT_ENOMEM, "%s: name of a temporary file", path);
    snprintf(temp, len, "%s.XXXXXX", path);
    int fd = mkstemp(temp);
    if (fd < 0) {
        int e = errno;
        free(temp);
        return weft__fail(WEFT_EIO, "%s: can't create a file beside it: %s", path, strerror(e));
    }
    int failed = write_all(fd, bytes, size) || fchmod(fd, 0644);
    failed = close(fd) || failed;
    failed = failed || rename(temp, path);
    int e = errno;
    if (failed) unlink(temp);
    free(temp);
    return failed ? weft__fail(WEFT_EIO, "%s: %s", path, strerror(e)) : 0;
}

/* ------------------------------------------------------------------------------------------------------- reading */

static int read_all(int fd, uint8_t *p, uint64_t n)
{
    while (n) {
        ssize_t got = read(fd, p, n < (1u << 30) ? n : 1u << 30);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        p += got;
        n -= (uint64_t)got;
    }
    return 0;
}

int weft__image_read_file(const char *path, weft__image *out)
{
    struct stat st;
    uint8_t *bytes = NULL;
    int rc = 0;
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return weft__fail(WEFT_EIO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st))
        rc = weft__fail(WEFT_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = weft__fail(WEFT_EFILE, "%s: not a regular file", path);
    else if (st.st_size < (off_t)sizeof(weft_image_header)) {
        rc = weft__fail(WEFT_EFILE, "%s: header: file has %lld bytes, a header %zu", path, (long long)st.st_size,
                        sizeof(weft_image_header));
    } else if (!(bytes = malloc((size_t)st.st_size))) {
        rc = weft__fail(WEFT_ENOMEM, "%s: %lld bytes", path, (long long)st.st_size);
    } else if (read_all(fd, bytes, (uint64_t)st.st_size)) {
        rc = weft__fail(WEFT_EIO, "%s: can't read %lld bytes", path, (long long)st.st_size);
    } else {
        rc = weft__image_open(bytes, (uint64_t)st.st_size, path, out);
    }
    close(fd);
    if (rc)
        free(bytes);
    else
        out->owned = bytes;
    return rc;
}
