/* safetensors.h: tensors in .safetensors files, single or sharded with an index, read in place through mmap.
 *
 * Opening checks every size, offset and shape before anything uses it; data is not looked at. Errors are WEFT_EFILE with
 * file, tensor and field. Memory taken is less than the header. Not thread-safe while opening; readers may share.        */
#ifndef WEFT_HOST_SAFETENSORS_H
#define WEFT_HOST_SAFETENSORS_H

#include "map.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types of the format: name, bytes. */
#define WEFT__ST_DTYPES(X)                                                                                             \
    X(F32, 4)                                                                                                          \
    X(F16, 2)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(F64, 8)                                                                                                          \
    X(I64, 8)                                                                                                          \
    X(I32, 4)                                                                                                          \
    X(I16, 2)                                                                                                          \
    X(I8, 1)                                                                                                           \
    X(U64, 8)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(U8, 1)                                                                                                           \
    X(BOOL, 1)                                                                                                         \
    X(F8_E4M3, 1)                                                                                                      \
    X(F8_E5M2, 1)
enum weft__st_dtype {
#define WEFT__ST_DTYPE(name, bytes) WEFT__ST_##name,
    WEFT__ST_DTYPES(WEFT__ST_DTYPE)
#undef WEFT__ST_DTYPE
    WEFT__ST_DTYPE_COUNT
};

typedef struct weft__st_tensor {
    const char *name; /* in the file, not NUL-ended */
    uint32_t name_length;
    uint8_t dtype, n_dim;
    uint16_t pad;
    uint64_t rows, cols; /* a scalar is 1 x 1, a vector 1 x n; n_dim > 2: first dimension, product of the others */
    const uint8_t *data; /* any alignment */
    uint64_t bytes;
} weft__st_tensor;

typedef struct weft__st_file {
    weft__map map;
    weft__st_tensor *tensors; /* by name */
    uint32_t n_tensor;
} weft__st_file;

typedef struct weft__safetensors {
    weft__st_file *files;
    uint32_t n_file;
} weft__safetensors;

/* Checks `size` bytes as one file. They stay the caller's and must outlive *out. Close with weft__st_file_close. */
int weft__st_parse(const void *bytes, uint64_t size, const char *name, weft__st_file *out);
void weft__st_file_close(weft__st_file *file);

/* model.safetensors.index.json with its shards, or else model.safetensors, in directory `dir`. */
int weft__safetensors_open(const char *dir, weft__safetensors *out);
void weft__safetensors_close(weft__safetensors *st); /* legal on a zeroed struct */

const weft__st_tensor *weft__st_find(const weft__safetensors *st, const char *name); /* NULL: none */

/* Values first .. first + n - 1 (row-major) as fp32. F32, F16 and BF16 only: else WEFT_EUNSUPPORTED. */
int weft__st_read(const weft__st_tensor *t, uint64_t first, uint64_t n, float *dst);

#ifdef __cplusplus
}
#endif

#endif
