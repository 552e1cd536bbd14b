/* safetensors.c: one file. Layout: 8 bytes of header length (little-endian), the header (JSON), the data.
 *
 * Invariants after weft__st_parse: names are unique; the tensors' bytes lie inside the data, don't overlap and leave no
 * gap; bytes == elements * size of the type; no product wrapped.                                                       */
#include "safetensors.h"

#include "../tasks/half.h"
#include "error.h"
#include "json_scan.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER (100u << 20) /* as in the format's reference implementation */
#define NAME(t) (int)((t)->name_length < 200 ? (t)->name_length : 200), (t)->name

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
#define WEFT__ST_DTYPE(name, bytes) {#name, bytes},
    WEFT__ST_DTYPES(WEFT__ST_DTYPE)
#undef WEFT__ST_DTYPE
};

static int slice_is(const weft__slice *s, const char *text)
{
    return s->length == strlen(text) && memcmp(s->text, text, s->length) == 0;
}

static int read_dtype(weft__json *j, weft__st_tensor *t)
{
    weft__slice s;
    int status = weft__json_string(j, &s);
    if (status) return status;
    for (uint32_t d = 0; d < WEFT__ST_DTYPE_COUNT; d++) {
        if (!slice_is(&s, dtypes[d].name)) continue;
        t->dtype = (uint8_t)d;
        return 0;
    }
    return weft__fail(WEFT_EFILE, "%s: tensor %.*s: dtype '%.*s' is unknown", j->name, NAME(t),
                      (int)(s.length < 40 ? s.length : 40), s.text);
}

static int read_shape(weft__json *j, weft__st_tensor *t)
{
    int more, status = weft__json_expect(j, '[');
    if (status) return status;
    uint64_t first = 1, rest = 1, n = 0;
    for (;; n++) {
        uint64_t v;
        if ((status = weft__json_next(j, ']', n, &more))) return status;
        if (!more) break;
        if ((status = weft__json_u64(j, &v))) return status;
        if (n == 32) return weft__fail(WEFT_EFILE, "%s: tensor %.*s: shape has over 32 dimensions", j->name, NAME(t));
        if (n == 0)
            first = v;
        else if (__builtin_mul_overflow(rest, v, &rest))
            return weft__fail(WEFT_EFILE, "%s: tensor %.*s: shape overflows", j->name, NAME(t));
    }
    t->n_dim = (uint8_t)n;
    t->rows = n < 2 ? 1 : first;
    t->cols = n < 2 ? first : rest;
    return 0;
}

static int read_offsets(weft__json *j, uint64_t offsets[2])
{
    int status = weft__json_expect(j, '[');
    if (!status) status = weft__json_u64(j, &offsets[0]);
    if (!status) status = weft__json_expect(j, ',');
    if (!status) status = weft__json_u64(j, &offsets[1]);
    return status ? status : weft__json_expect(j, ']');
}

/* The bytes that the offsets name must be there and be as many as the shape says. */
static int place(const weft__json *j, weft__st_tensor *t, const uint64_t offsets[2], const uint8_t *data, uint64_t size)
{
    uint64_t bytes;
    if (offsets[0] > offsets[1] || offsets[1] > size)
        return weft__fail(WEFT_EFILE, "%s: tensor %.*s: data_offsets [%llu, %llu] outside of %llu bytes of data",
                          j->name, NAME(t), (unsigned long long)offsets[0], (unsigned long long)offsets[1],
                          (unsigned long long)size);
    if (__builtin_mul_overflow(t->rows, t->cols, &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)dtypes[t->dtype].bytes, &bytes))
        return weft__fail(WEFT_EFILE, "%s: tensor %.*s: shape overflows", j->name, NAME(t));
    if (bytes != offsets[1] - offsets[0])
        return weft__fail(WEFT_EFILE, "%s: tensor %.*s: shape needs %llu bytes, data_offsets give %llu", j->name,
                          NAME(t), (unsigned long long)bytes, (unsigned long long)(offsets[1] - offsets[0]));
    t->data = data + offsets[0];
    t->bytes = bytes;
    return 0;
}

static int read_tensor(weft__json *j, weft__st_tensor *t, const uint8_t *data, uint64_t size)
{
    enum {
        DTYPE = 1,
        SHAPE = 2,
        OFFSETS = 4
    };
    unsigned seen = 0;
    uint64_t offsets[2] = {0, 0};
    int more, status = weft__json_expect(j, '{');
    for (uint64_t n = 0; !status; n++) {
        weft__slice key;
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        if ((status = weft__json_string(j, &key)) || (status = weft__json_expect(j, ':'))) break;
        unsigned field = slice_is(&key, "dtype")          ? DTYPE
                         : slice_is(&key, "shape")        ? SHAPE
                         : slice_is(&key, "data_offsets") ? OFFSETS
                                                          : 0;
        if (!field || seen & field)
            return weft__fail(WEFT_EFILE, "%s: tensor %.*s: field '%.*s' is %s", j->name, NAME(t),
                              (int)(key.length < 40 ? key.length : 40), key.text, field ? "there twice" : "unknown");
        seen |= field;
        status = field == DTYPE ? read_dtype(j, t) : field == SHAPE ? read_shape(j, t) : read_offsets(j, offsets);
    }
    if (status) return status;
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return weft__fail(WEFT_EFILE, "%s: tensor %.*s: %s is missing", j->name, NAME(t),
                          !(seen & DTYPE)   ? "dtype"
                          : !(seen & SHAPE) ? "shape"
                                            : "data_offsets");
    return place(j, t, offsets, data, size);
}

static int add_tensor(weft__st_file *f, uint32_t *cap, const weft__slice *name)
{
    if (f->n_tensor == *cap) {
        uint32_t more = *cap ? *cap + *cap / 2 : 64;
        weft__st_tensor *grown = realloc(f->tensors, more * sizeof *grown);
        if (!grown) return weft__fail(WEFT_ENOMEM, "table of %u tensors", more);
        f->tensors = grown;
        *cap = more;
    }
    f->tensors[f->n_tensor++] = (weft__st_tensor){.name = name->text, .name_length = name->length};
    return 0;
}

static int read_header(weft__json *j, weft__st_file *f, const uint8_t *data, uint64_t size)
{
    uint32_t cap = 0, metadata = 0;
    int more, status = weft__json_expect(j, '{');
    for (uint64_t n = 0; !status; n++) {
        weft__slice key;
        if ((status = weft__json_next(j, '}', n, &more))) break;
        if (!more) return weft__json_finish(j);
        if ((status = weft__json_string(j, &key)) || (status = weft__json_expect(j, ':'))) break;
        if (slice_is(&key, "__metadata__")) {
            if (metadata++) return weft__fail(WEFT_EFILE, "%s: __metadata__ is there twice", j->name);
            status = weft__json_skip(j);
            continue;
        }
        if (key.escaped || key.length == 0)
            return weft__fail(WEFT_EFILE, "%s: a tensor's name is empty or holds a backslash", j->name);
        if (!(status = add_tensor(f, &cap, &key))) status = read_tensor(j, &f->tensors[f->n_tensor - 1], data, size);
    }
    return status;
}

static int compare_names(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int c = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return c ? c : (a_length > b_length) - (a_length < b_length);
}

static int by_name(const void *pa, const void *pb)
{
    const weft__st_tensor *a = pa, *b = pb;
    return compare_names(a->name, a->name_length, b->name, b->name_length);
}

static int by_place(const void *pa, const void *pb)
{
    const weft__st_tensor *a = pa, *b = pb;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int check_places(weft__st_file *f, const char *name, const uint8_t *data, uint64_t size)
{
    const uint8_t *at = data;
    if (f->n_tensor) qsort(f->tensors, f->n_tensor, sizeof *f->tensors, by_place); /* NULL is no array to qsort */
    for (uint32_t i = 0; i < f->n_tensor; i++) {
        const weft__st_tensor *t = &f->tensors[i];
        if (t->data != at)
            return weft__fail(WEFT_EFILE, "%s: tensor %.*s: data_offsets %s", name, NAME(t),
                              t->data < at ? "overlap those of another tensor" : "leave a gap before this tensor");
        at = t->data + t->bytes;
    }
    if (at != data + size)
        return weft__fail(WEFT_EFILE, "%s: %llu bytes of data belong to no tensor", name,
                          (unsigned long long)(data + size - at));
    return 0;
}

static int check_names(weft__st_file *f, const char *name)
{
    if (f->n_tensor) qsort(f->tensors, f->n_tensor, sizeof *f->tensors, by_name);
    for (uint32_t i = 1; i < f->n_tensor; i++)
        if (by_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return weft__fail(WEFT_EFILE, "%s: tensor %.*s is there twice", name, NAME(&f->tensors[i]));
    return 0;
}

int weft__st_parse(const void *bytes, uint64_t size, const char *name, weft__st_file *out)
{
    *out = (weft__st_file){0};
    if (size < 8)
        return weft__fail(WEFT_EFILE, "%s: %llu bytes are no safetensors file", name, (unsigned long long)size);
    const uint8_t *p = bytes;
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | p[i];
    if (header > MAX_HEADER || header > size - 8)
        return weft__fail(WEFT_EFILE,
                          "%s: header length %llu, but the file has %llu bytes (and %u are the most allowed)", name,
                          (unsigned long long)header, (unsigned long long)size, MAX_HEADER);
    const char *text = (const char *)p + 8;
    weft__json j = {name, text, text, text + header};
    const uint8_t *data = p + 8 + header;
    uint64_t data_size = size - 8 - header;
    int status = read_header(&j, out, data, data_size);
    if (!status) status = check_places(out, name, data, data_size);
    if (!status) status = check_names(out, name);
    if (status) weft__st_file_close(out);
    return status;
}

void weft__st_file_close(weft__st_file *file)
{
    free(file->tensors);
    weft__map_close(&file->map);
    *file = (weft__st_file){0};
}

static const weft__st_tensor *find_in_file(const weft__st_file *f, const char *name, size_t length)
{
    uint32_t low = 0, high = f->n_tensor;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const weft__st_tensor *t = &f->tensors[mid];
        int c = compare_names(name, length, t->name, t->name_length);
        if (c == 0) return t;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const weft__st_tensor *weft__st_find(const weft__safetensors *st, const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < st->n_file; i++) {
        const weft__st_tensor *t = find_in_file(&st->files[i], name, length);
        if (t) return t;
    }
    return NULL;
}

int weft__st_read(const weft__st_tensor *t, uint64_t first, uint64_t n, float *dst)
{
    uint64_t all = t->rows * t->cols;
    if (first > all || n > all - first)
        return weft__fail(WEFT_EUSAGE, "tensor %.*s: values %llu + %llu of %llu", NAME(t), (unsigned long long)first,
                          (unsigned long long)n, (unsigned long long)all);
    if (t->dtype == WEFT__ST_F32) {
        memcpy(dst, t->data + first * 4, n * 4);
        return 0;
    }
    if (t->dtype != WEFT__ST_BF16 && t->dtype != WEFT__ST_F16)
        return weft__fail(WEFT_EUNSUPPORTED, "tensor %.*s: dtype %s can't be read (F32, F16 and BF16 can)", NAME(t),
                          dtypes[t->dtype].name);
    const uint8_t *src = t->data + first * 2;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + i * 2, 2);
        dst[i] = t->dtype == WEFT__ST_BF16 ? weft_bf16_to_f32(h) : weft_fp16_to_f32(h);
    }
    return 0;
}
