// body_small.cuh: the kinds that a few instructions do: nop, mix, reduce.
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
        if (!store_group(s, step_of(s).seq, g, m, r, v, mine)) return false;
    }
    return true;
}

#endif
