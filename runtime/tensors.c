/* tensors.c: the host's view of tensors: plain row-major values in, values in the device's layout out, and back. */
#include "engine_internal.h"

#include "../tasks/half.h"

#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = {"bf16", "fp16", "fp32", "u32", "fp8", "int8"};

static uint32_t element_bytes(const weft_tensor *t) { return t->dtype == WEFT_FP32 || t->dtype == WEFT_U32 ? 4 : 2; }

static uint64_t address(const weft_engine *e, const weft_tensor *t) { return e->mem[t->device].work + t->offset; }

/* Tensors that the host may name: whole values in memory of their own. */
static int is_visible(const weft_tensor *t)
{
    return t->role != WEFT_ROLE_WEIGHT && t->role != WEFT_ROLE_PACKET && t->role != WEFT_ROLE_PARTIAL &&
           t->name != WEFT_NONE && t->dtype <= WEFT_U32 && t->layout <= WEFT_LAYOUT_FRAG;
}

static int is_named(const weft_engine *e, const weft_tensor *t, const char *name)
{
    return is_visible(t) && strcmp(weft__image_string(&e->img, t->name), name) == 0;
}

/* The one to read: marked as output, else the first. *copies may be NULL. */
static int find(const weft_engine *e, const char *name, const weft_tensor **out, uint32_t *copies)
{
    const weft_tensor *best = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->img.n_tensor; i++) {
        const weft_tensor *t = &e->img.tensors[i];
        if (!is_named(e, t, name)) continue;
        n++;
        if (!best || (t->role == WEFT_ROLE_OUTPUT && best->role != WEFT_ROLE_OUTPUT)) best = t;
    }
    if (!best) return weft__fail(WEFT_EUSAGE, "the plan has no tensor '%s'", name);
    *out = best;
    if (copies) *copies = n;
    return 0;
}

int weft_tensor_get_info(const weft_engine *e, const char *name, weft_tensor_info *info)
{
    const weft_tensor *t;
    uint32_t copies;
    int status = weft__check_size(info, info->size, info->size, "weft_tensor_info");
    if (!status) status = find(e, name, &t, &copies);
    if (status) return status;
    weft_tensor_info i = {info->size, t->rows, t->cols, element_bytes(t), copies, type_names[t->dtype]};
    memcpy(info, &i, info->size < sizeof i ? info->size : sizeof i);
    return 0;
}

/* Between row-major elements and the tensor's layout; padding in `laid` is left alone. */
static void convert(const weft_tensor *t, uint8_t *plain, uint8_t *laid, int to_laid)
{
    uint64_t size = element_bytes(t);
    if (t->layout == WEFT_LAYOUT_ROW) {
        memcpy(to_laid ? laid : plain, to_laid ? plain : laid, size * t->rows * t->cols);
        return;
    }
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < t->cols; c++, plain += 2) {
            uint8_t *at = laid + weft_offset16(t->layout, t->rows, t->cols, r, c);
            memcpy(to_laid ? at : plain, to_laid ? plain : at, 2);
        }
    }
}

static int check_bytes(const weft_tensor *t, const char *name, uint64_t bytes)
{
    uint64_t want = (uint64_t)t->rows * t->cols * element_bytes(t);
    if (bytes == want) return 0;
    return weft__fail(WEFT_EUSAGE, "tensor '%s' is %u x %u (%llu bytes of %s); given: %llu bytes", name, t->rows,
                      t->cols, (unsigned long long)want, type_names[t->dtype], (unsigned long long)bytes);
}

static int write_one(weft_engine *e, const weft_tensor *t, const void *src)
{
    uint8_t *laid = calloc(1, t->bytes ? t->bytes : 1);
    if (!laid) return weft__fail(WEFT_ENOMEM, "tensor of %llu bytes", (unsigned long long)t->bytes);
    convert(t, (uint8_t *)(uintptr_t)src, laid, 1);
    int status = e->b->write(e->m, t->device, address(e, t), laid, t->bytes);
    free(laid);
    return status;
}

int weft_tensor_write(weft_engine *e, const char *name, const void *src, size_t bytes)
{
    const weft_tensor *first;
    int status = find(e, name, &first, NULL);
    for (uint32_t i = 0; i < e->img.n_tensor && !status; i++) {
        const weft_tensor *t = &e->img.tensors[i];
        if (!is_named(e, t, name)) continue;
        status = check_bytes(t, name, bytes);
        if (!status) status = write_one(e, t, src);
    }
    return status;
}

int weft_tensor_read(weft_engine *e, const char *name, void *dst, size_t bytes)
{
    const weft_tensor *t;
    int status = find(e, name, &t, NULL);
    if (!status) status = check_bytes(t, name, bytes);
    if (status) return status;
    uint8_t *laid = malloc(t->bytes ? t->bytes : 1);
    if (!laid) return weft__fail(WEFT_ENOMEM, "tensor of %llu bytes", (unsigned long long)t->bytes);
    status = e->b->read(e->m, t->device, laid, address(e, t), t->bytes);
    if (!status) convert(t, dst, laid, 0);
    free(laid);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- fp32 */

static int check_f32(const weft_tensor *t, const char *name, size_t count)
{
    if (t->dtype == WEFT_U32) return weft__fail(WEFT_EUSAGE, "tensor '%s' holds integers", name);
    if (count == (uint64_t)t->rows * t->cols) return 0;
    return weft__fail(WEFT_EUSAGE, "tensor '%s' is %u x %u; given: %zu values", name, t->rows, t->cols, count);
}

int weft_tensor_write_f32(weft_engine *e, const char *name, const float *src, size_t count)
{
    const weft_tensor *t;
    int status = find(e, name, &t, NULL);
    if (!status) status = check_f32(t, name, count);
    if (status) return status;
    if (t->dtype == WEFT_FP32) return weft_tensor_write(e, name, src, count * 4);
    uint16_t *half = malloc(count * 2 + 1);
    if (!half) return weft__fail(WEFT_ENOMEM, "tensor '%s'", name);
    for (size_t i = 0; i < count; i++)
        half[i] = weft_f32_to_half(t->dtype, src[i]);
    status = weft_tensor_write(e, name, half, count * 2);
    free(half);
    return status;
}

int weft_tensor_read_f32(weft_engine *e, const char *name, float *dst, size_t count)
{
    const weft_tensor *t;
    int status = find(e, name, &t, NULL);
    if (!status) status = check_f32(t, name, count);
    if (status) return status;
    if (t->dtype == WEFT_FP32) return weft_tensor_read(e, name, dst, count * 4);
    uint16_t *half = malloc(count * 2 + 1);
    if (!half) return weft__fail(WEFT_ENOMEM, "tensor '%s'", name);
    status = weft_tensor_read(e, name, half, count * 2);
    for (size_t i = 0; i < count && !status; i++)
        dst[i] = weft_half_to_f32(t->dtype, half[i]);
    free(half);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- poison */

/* Padding stays zero: producers never write it, and consumers count on it. */
static int poison_one(weft_engine *e, const weft_tensor *t, uint8_t byte)
{
    if (t->layout == WEFT_LAYOUT_ROW || t->layout == WEFT_LAYOUT_PARTIAL)
        return e->b->fill(e->m, t->device, address(e, t), byte, t->bytes);
    uint64_t bytes = (uint64_t)t->rows * t->cols * element_bytes(t);
    uint8_t *plain = malloc(bytes ? bytes : 1);
    if (!plain) return weft__fail(WEFT_ENOMEM, "tensor of %llu bytes", (unsigned long long)t->bytes);
    memset(plain, byte, bytes);
    int status = write_one(e, t, plain);
    free(plain);
    return status;
}

static int poison(weft_engine *e, uint8_t byte)
{
    if (weft__steps_in_flight(e)) {
        int status = weft__steps_refresh(e);
        if (status) return status;
        if (weft__steps_in_flight(e)) return weft__fail(WEFT_EBUSY, "poison: a step is in flight");
    }
    for (uint32_t i = 0; i < e->img.n_tensor; i++) {
        const weft_tensor *t = &e->img.tensors[i];
        if (t->role == WEFT_ROLE_WEIGHT || t->role == WEFT_ROLE_PACKET || t->role == WEFT_ROLE_TABLE) continue;
        int status = poison_one(e, t, byte);
        if (status) return status;
    }
    return 0;
}

int weft_engine_poison(weft_engine *e, uint8_t byte)
{
    weft__lock(e);
    int status = poison(e, byte);
    weft__unlock(e);
    return status;
}
