/* half.h: 16-bit floating point and fp32, by integer operations only: the same bits from every compiler and processor.
 * Rounding is to nearest even. Host and portable bodies.                                        */
#ifndef WEFT_TASKS_HALF_H
#define WEFT_TASKS_HALF_H

#include "seed.h"

#include <string.h>

static inline uint32_t weft_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float weft_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t weft_f32_to_bf16(float f) { return weft_bf16_bits(weft_f32_bits(f)); }
static inline float weft_bf16_to_f32(uint16_t h) { return weft_bits_f32((uint32_t)h << 16); }

/* The product with 2^112 moves the exponent from fp16's bias to fp32's, subnormals included. */
static inline float weft_fp16_to_f32(uint16_t h)
{
    uint32_t m = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    if (m >= 0x0f800000u) return weft_bits_f32(sign | m | 0x7f800000u);
    return weft_bits_f32(sign | weft_f32_bits(weft_bits_f32(m) * 0x1p112f));
}

static inline uint16_t weft_f32_to_fp16(float f)
{
    uint32_t u = weft_f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
    if (a < 0x38800000u) /* subnormal: adding 0.5 leaves a multiple of 2^-24, rounded by the addition itself */
        return (uint16_t)(sign | (weft_f32_bits(weft_bits_f32(a) + 0.5f) - 0x3f000000u));
    a -= 0x38000000u;
    return (uint16_t)(sign | ((a + 0xfffu + ((a >> 13) & 1)) >> 13));
}

static inline float weft_half_to_f32(uint32_t dtype, uint16_t h)
{
    return dtype == WEFT_FP16 ? weft_fp16_to_f32(h) : weft_bf16_to_f32(h);
}

static inline uint16_t weft_f32_to_half(uint32_t dtype, float f)
{
    return dtype == WEFT_FP16 ? weft_f32_to_fp16(f) : weft_f32_to_bf16(f);
}

#endif
