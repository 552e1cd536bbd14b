// body_wide.cuh: out = x W^T in tiles of 128 rows of x by 256 rows of W, for large M: wgmma from shared memory.
//
// A stage of 64 columns is three pages: W (256 x 64) and x (128 x 64), both in atoms, so both are wgmma operands as they
// lie. Each consumer warpgroup takes 64 rows of x. Rows and columns past the end hold what the page held before; they
// meet no valid element and are not stored.
#ifndef WEFT_BODY_WIDE_CUH
#define WEFT_BODY_WIDE_CUH

#include "body_stream.cuh"
#include "wgmma_n256.cuh"

// This warp's 16 rows of x in one stage: two lanes a row, each squares half of it.
WEFT_DEV float squares_of_page(const uint8_t *page, uint32_t row, uint32_t half)
{
    float ss = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint4 v = *(const uint4 *)(page + row * 128 + (((half * 4 + i) ^ (row & 7)) << 4));
        uint32_t w[4] = {v.x, v.y, v.z, v.w};
        for (int j = 0; j < 4; j++)
            ss += bf16_lo(w[j]) * bf16_lo(w[j]) + bf16_hi(w[j]) * bf16_hi(w[j]);
    }
    return ss;
}

// Stores this warp's 16 rows of x by 256 rows of W: 32 of these at a time go through scratch, so that each lane gets all 16
// rows of one group for one row of x. False: leave.
WEFT_DEV bool store_wide(weft_slot &s, uint32_t seq, const float (&acc)[128], uint32_t row, float squares,
                         const consumer &t)
{
    constexpr uint32_t ROW = 40; // floats: 32 and padding against bank conflicts
    static_assert(CONSUMER_WARPS * 16 * ROW * sizeof(float) <= SCRATCH_BYTES, "a warp's part of scratch");
    float *mine = (float *)smem()->scratch + t.warp * 16 * ROW;
    uint32_t m = row + t.lane / 2;
    bool norm = s.op.flags & WEFT_OP_NORM;
    for (uint32_t r = 0; r * 2 < s.task.tile[2]; r++) {
        __syncwarp();
        float *p = mine + t.lane / 4 * ROW + t.lane % 4 * 2;
#pragma unroll
        for (uint32_t j = 0; j < 32; j++)
            if (j / 4 == r) {
                *(float2 *)(p + j % 4 * 8) = make_float2(acc[j * 4], acc[j * 4 + 1]);
                *(float2 *)(p + 8 * ROW + j % 4 * 8) = make_float2(acc[j * 4 + 2], acc[j * 4 + 3]);
            }
        __syncwarp();
        uint32_t g = r * 2 + t.lane % 2;
        bool there = g < s.task.tile[2] && m < s.op.m;
        float f = norm ? norm_factor(s, s.task.tile[1] + g, m, squares, there) : 1.0f, v[16];
        for (int i = 0; i < 4; i++) {
            float4 q = *(float4 *)(mine + t.lane / 2 * ROW + t.lane % 2 * 16 + i * 4);
            v[i * 4] = q.x * f, v[i * 4 + 1] = q.y * f, v[i * 4 + 2] = q.z * f, v[i * 4 + 3] = q.w * f;
        }
        if (there && !store_sixteen(s, seq, s.task.tile[1] + g, m, v)) return false;
    }
    return true;
}

WEFT_DEV void release_stage(uint32_t page, uint32_t lane)
{
    __syncwarp();
    if (lane < 3) mbar_arrive(&smem()->empty[page + lane]);
}

WEFT_DEV bool body_gemm_wide(const cta &c, weft_slot &s, consumer &t)
{
    uint32_t nkb = s.task.tile[3] >> 16, group = t.warp / 4;
    for (; t.page % 3 != 0; next_page(t)) { // as the loader does
        if (!await_full(t)) return false;
        release_page(t);
    }
    float acc[128], ss = 0;
#pragma unroll
    for (int i = 0; i < 128; i++)
        acc[i] = 0;
    bool ok = true; // no way out of the loop: wgmma in flight must not meet divergence; an abort runs it dry
    uint32_t last = 0;
    for (uint32_t kb = 0; kb < nkb; kb++) {
        uint32_t p = t.page;
        ok &= await(&smem()->full[p], t.parity) & await(&smem()->full[p + 2], t.parity);
        uint64_t a = wgmma_desc(smem_addr(smem()->page[p + 2]) + group * 8192),
                 b = wgmma_desc(smem_addr(smem()->page[p]));
        wgmma_fence();
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            wgmma_m64n256k16(acc, a + k * 2, b + k * 2, 1);
        wgmma_commit();
        if (s.op.flags & WEFT_OP_NORM) ss += squares_of_page(smem()->page[p + 2], t.warp * 16 + t.lane / 2, t.lane % 2);
        wgmma_wait<1>();
        if (kb > 0) release_stage(last, t.lane);
        last = p;
        for (uint32_t i = 0; i < 3; i++)
            next_page(t);
    }
    wgmma_wait<0>();
    if (nkb > 0) release_stage(last, t.lane);
    if (!ok) return false;
    ss += __shfl_xor_sync(~0u, ss, 1);  // of row lane / 2, which squares_of_page has shared between two lanes
    if (!consumer_sync()) return false; // scratch: other tasks' rounds are over
    return store_wide(s, step_of(s).seq, acc, s.task.tile[0] + t.warp * 16, ss, t);
}

#endif
