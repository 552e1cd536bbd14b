/* seed.h: seeded values, the same on every backend: value (i, j) of stream `seed` depends on nothing else.
 * The mixer is the 32-bit finaliser of MurmurHash3 (Appleby, public domain), applied to a 64-bit index folded twice.  */
#ifndef WEFT_TASKS_SEED_H
#define WEFT_TASKS_SEED_H

#include "layout.h"

WEFT_HD uint32_t weft_mix32(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}

WEFT_HD uint32_t weft_hash(uint64_t seed, uint32_t i, uint32_t j)
{
    uint32_t h = weft_mix32((uint32_t)seed ^ (i * 0x9e3779b9u));
    return weft_mix32(h ^ (uint32_t)(seed >> 32) ^ (j * 0x7feb352du + 0x165667b1u));
}

/* Uniform in [-scale, scale): 24 random bits. */
WEFT_HD float weft_seeded(uint64_t seed, uint32_t i, uint32_t j, float scale)
{
    return ((float)(weft_hash(seed, i, j) >> 8) * (1.0f / 8388608.0f) - 1.0f) * scale;
}

/* bf16, round to nearest even; NaN stays NaN. */
WEFT_HD uint16_t weft_bf16_bits(uint32_t f)
{
    if ((f & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((f >> 16) | 0x40);
    return (uint16_t)((f + 0x7fffu + ((f >> 16) & 1)) >> 16);
}

/* What a MIX task writes: a running hash of its constant and its inputs, in order. */
WEFT_HD uint32_t weft_mix_step(uint32_t h, uint32_t in) { return weft_mix32(h ^ (in * 0x9e3779b9u + 0x7f4a7c15u)); }

#endif
