// body_small.cuh: the kinds that a few instructions do: nop, mix, reduce, rmsnorm, copy.
#ifndef WEFT_BODY_SMALL_CUH
#define WEFT_BODY_SMALL_CUH

#include "body_stream.cuh"

WEFT_DEV bool body_nop(const cta &c, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    if (s.task.cost_ns == 0 || t.warp != 0) return true;
    for (uint64_t t0 = clock_ns(); clock_ns() - t0 < s.task.cost_ns;)
        if (leaving()) return false;
    return true;
}

WEFT_DEV bool body_mix(const cta &c, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    if (t.warp != 0 || t.lane != 0) return true;
    const uint32_t *a = (const uint32_t *)queue_of(s).args + s.task.tile[0];
    uint32_t h = a[0], n_in = a[1];
    for (uint32_t i = 0; i < n_in; i++)
        h = weft_mix_step(h, ld_cg32((const uint32_t *)c.dev->work[smem()->device] + a[2 + i]));
    const uint32_t *out = a + 2 + n_in;
    for (uint32_t i = 0; i < out[0]; i++)
        ((uint32_t *)c.dev->work[out[1 + 2 * i]])[out[2 + 2 * i]] = h;
    return true;
}

WEFT_DEV bool body_reduce(const cta &c, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t g0 = s.task.tile[1], ng = s.task.tile[2], rows = s.task.tile[3], tid = t.warp * 32 + t.lane, r = tid % 16;
    for (uint32_t i = tid / 16; i < weft_div_up(ng * rows, 2) * 2;
         i += CONSUMERS / 16) { // both halves of a warp take part
        uint32_t g = g0 + i / rows, m = s.task.tile[0] + i % rows;
        bool mine = i < ng * rows && m < s.op.m;
        float v = 0;
        if (mine)
            for (uint32_t k = 0; k < s.op.n_split; k++)
                v += __ldcg((const float *)s.op.partial + weft_partial_index(s.op.m, s.op.n, k, m, g * 16 + r));
        if (s.op.flags & WEFT_OP_NORM) {
            float sum = 0;
            if (mine)
                for (uint32_t k = 0; k < s.op.n_split; k++)
                    sum += __ldcg((const float *)s.op.squares +
                                  weft_partial_index(s.op.m, weft_div_up(s.op.n, 16), k, m, g));
            v *= rsqrtf(sum / (float)s.op.k + s.op.eps);
        }
        if (!store_group(s, step_of(s).seq, g, m, r, v, mine)) return false;
    }
    return true;
}

// Two adjacent elements (n even) of row m of x; the layouts of activations keep them together, and padding is zero.
WEFT_DEV uint32_t x_pair(const weft_slot &s, uint32_t m, uint32_t n)
{
    return ld_cg32(pair_at(s.op.x, s.op.x_layout, s.op.m, s.op.k, m, n));
}

// A row at a time, all consumers on it; the second reading comes from L2.
WEFT_DEV bool body_rmsnorm(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s) || !consumer_sync()) return false; // scratch: a wide task's stores are over
    const float *gain = (const float *)s.op.w;
    uint32_t tid = t.warp * 32 + t.lane, end = min(s.task.tile[0] + s.task.tile[3], s.op.m), seq = step_of(s).seq;
    for (uint32_t m = s.task.tile[0]; m < end; m++, t.round++) {
        float sum = 0, *part = (float *)(smem()->scratch + t.round % 2 * (SCRATCH_BYTES / 2));
        for (uint32_t n = tid * 2; n < s.op.k; n += CONSUMERS * 2) {
            uint32_t x = x_pair(s, m, n);
            sum += bf16_lo(x) * bf16_lo(x) + bf16_hi(x) * bf16_hi(x);
        }
        for (uint32_t i = 16; i > 0; i /= 2)
            sum += __shfl_xor_sync(~0u, sum, i);
        if (t.lane == 0) part[t.warp] = sum;
        if (!consumer_sync()) return false; // the other half was read before this barrier's threads came here
        sum = 0;
        for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
            sum += part[w];
        float factor = rsqrtf(sum / (float)s.op.k + s.op.eps);
        for (uint32_t n = tid * 2; n < s.op.k; n += CONSUMERS * 2) {
            uint32_t x = x_pair(s, m, n);
            float lo = bf16_lo(x) * factor, hi = bf16_hi(x) * factor;
            if (gain) lo *= __ldg(gain + n), hi *= n + 1 < s.op.k ? __ldg(gain + n + 1) : 0.0f;
            if (!store_pair(s, seq, m, n, lo, hi)) return false;
        }
    }
    return true;
}

// Whole blocks of the layout (8 or 16 rows by 64 columns), which lie one after another down the rows; padding is zero on both
// sides. Packets besides, for few rows.
WEFT_DEV bool body_copy(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t m0 = s.task.tile[0], rows = min(s.task.tile[3], s.op.m - m0), c0 = s.task.tile[1] * 16,
             c1 = min(c0 + s.task.tile[2] * 16, s.op.k), tid = t.warp * 32 + t.lane, seq = step_of(s).seq;
    uint32_t per = s.op.x_layout == WEFT_LAYOUT_FRAG ? 8 : 16, run = weft_div_up(rows, per) * per * 8; // 16-byte words
    for (uint32_t i = tid; i < run * weft_div_up(c1 - c0, 64); i += CONSUMERS) {
        uint64_t at = weft_offset16(s.op.x_layout, s.op.m, s.op.k, m0, c0 + i / run * 64) + i % run * 16;
        *(uint4 *)(s.op.out + at) = ld_cg((const uint8_t *)s.op.x + at);
    }
    if (!(s.op.flags & WEFT_OP_OUT_PACKET)) return true;
    uint32_t pairs = weft_div_up(c1 - c0, 2);
    for (uint32_t i = tid; i < rows * pairs; i += CONSUMERS) {
        uint32_t m = m0 + i / pairs, n = c0 + i % pairs * 2, x = x_pair(s, m, n);
        if (!store_pair(s, seq, m, n, bf16_lo(x), bf16_hi(x))) return false;
    }
    return true;
}

#endif
