// body_stream.cuh: out = x W^T for up to 64 rows of x; the weights stream through the ring once.
//
// The weights are the wide operand: mma.m16n8k16 takes 16 rows of W as A and 8 rows of x as B. A page holds 16 rows of W
// by 512 columns; consumer warp w takes columns 64 w .. 64 w + 63 of it, so no two warps read the same x, and x goes from L2
// straight into registers, in operand order (FRAG, PACKET), a few chunks ahead. K is the outer loop, the groups of 16 output
// rows the inner one: x is read once a task. At the end the eight warps' partial sums meet in shared memory, are added in
// warp order, and the thread that adds them applies norm and epilogue.
//
// MT: blocks of 8 rows of x; G: most groups a task may have (both only size the registers).
#ifndef WEFT_BODY_STREAM_CUH
#define WEFT_BODY_STREAM_CUH

#include "cta.cuh"
#include "epilogue.cuh"

struct consumer { // what a consumer thread carries from task to task
    uint32_t it = 0;    // pages consumed
    uint32_t round = 0; // which half of scratch comes next
    uint32_t warp, lane;
};

template <int MT> struct x_chunk { // one warp's 64 columns of x, as B operands; or packets, until they are all there
    uint4 v[MT][2];
    uint4 tag[2];
};

template <int MT, bool PACKET> struct x_reader {
    const cta &c;
    weft_slot &s;
    const uint8_t *base;
    uint32_t kb0, nkb, blocks, row_ok, tag, mp, warp, lane;
    bool sys;

    __device__ x_reader(const cta &c_, weft_slot &s_, const consumer &t) : c(c_), s(s_), warp(t.warp), lane(t.lane)
    {
        uint32_t m0 = s.task.tile[0];
        kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16, blocks = weft_div_up(s.op.m, 8), tag = step_of(c, s).seq;
        row_ok = 0;
#pragma unroll
        for (int j = 0; j < MT; j++) row_ok |= (m0 + j * 8 + lane / 4 < s.op.m ? 1u : 0u) << j;
        mp = weft_packet_rows(s.op.m);
        base = PACKET ? (const uint8_t *)s.op.pk_x : (const uint8_t *)s.op.x + (uint64_t)(m0 / 8) * WEFT_FRAG_BYTES;
    }

    // Starts the loads of this warp's columns of chunk `ch`. Plain x: waits until the chunk may be read. False: leave.
    __device__ bool start(x_chunk<MT> &x, uint32_t ch)
    {
        uint32_t kb = ch * 8 + warp;
#pragma unroll
        for (int j = 0; j < MT; j++) x.v[j][0] = x.v[j][1] = make_uint4(0, 0, 0, 0);
        if (kb >= nkb) return true;
        if (!PACKET && !await_ready(c, s, (kb0 + kb) / 8)) return false;
        if (PACKET) {
            load_packets(x, kb);
        } else {
#pragma unroll
            for (int j = 0; j < MT; j++)
                if (row_ok >> j & 1) {
                    const uint8_t *p = base + ((uint64_t)(kb0 + kb) * blocks + j) * WEFT_FRAG_BYTES + lane * 16;
                    x.v[j][0] = ld_cg(p), x.v[j][1] = ld_cg(p + 512);
                }
        }
        return true;
    }

    __device__ void load_packets(x_chunk<MT> &x, uint32_t kb)
    {
        if (!(row_ok & 1)) return;
        const uint8_t *p = base + (((uint64_t)(kb0 + kb) * 4 * mp + lane / 4) * 8 + (lane % 4) * 2) * 8;
        uint32_t stride = mp * 64;
        ulonglong2 a = weft_ld_relaxed_packets_sys(p), b = weft_ld_relaxed_packets_sys(p + stride);
        ulonglong2 d = weft_ld_relaxed_packets_sys(p + 2 * stride), e = weft_ld_relaxed_packets_sys(p + 3 * stride);
        x.v[0][0] = make_uint4((uint32_t)a.x, (uint32_t)a.y, (uint32_t)b.x, (uint32_t)b.y);
        x.v[0][1] = make_uint4((uint32_t)d.x, (uint32_t)d.y, (uint32_t)e.x, (uint32_t)e.y);
        x.tag[0] = make_uint4((uint32_t)(a.x >> 32), (uint32_t)(a.y >> 32), (uint32_t)(b.x >> 32), (uint32_t)(b.y >> 32));
        x.tag[1] = make_uint4((uint32_t)(d.x >> 32), (uint32_t)(d.y >> 32), (uint32_t)(e.x >> 32), (uint32_t)(e.y >> 32));
    }

    __device__ bool all_here(const x_chunk<MT> &x) const
    {
        uint4 a = x.tag[0], b = x.tag[1];
        uint32_t differ = (a.x ^ tag) | (a.y ^ tag) | (a.z ^ tag) | (a.w ^ tag) | (b.x ^ tag) | (b.y ^ tag) | (b.z ^ tag) | (b.w ^ tag);
        return __all_sync(~0u, differ == 0 || !(row_ok & 1));
    }

    // Packets: reads again until all of the chunk's carry this step's tag. False: leave.
    __device__ bool finish(x_chunk<MT> &x, uint32_t ch)
    {
        uint32_t kb = ch * 8 + warp;
        if (!PACKET || kb >= nkb) return true;
        poll p;
        while (!all_here(x)) {
            uint32_t seen = x.tag[0].x;
            if (!__all_sync(~0u, keep_polling(c, p, step_of(c, s), {WEFT_ABORT_PACKET, s.id, (kb0 + kb) * 32, tag, seen}))) return false;
            load_packets(x, kb);
        }
        return true;
    }
};

template <int MT> WEFT_DEV void add_squares(const x_chunk<MT> &x, float (&ss)[MT])
{
#pragma unroll
    for (int j = 0; j < MT; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w[4] = {x.v[j][h].x, x.v[j][h].y, x.v[j][h].z, x.v[j][h].w};
#pragma unroll
            for (int i = 0; i < 4; i++) ss[j] += bf16_lo(w[i]) * bf16_lo(w[i]) + bf16_hi(w[i]) * bf16_hi(w[i]);
        }
}

// One page: 16 rows of W by this warp's 64 columns, times its x.
template <int MT> WEFT_DEV void mma_page(float (&acc)[MT][4], const uint8_t *page, const x_chunk<MT> &x, uint32_t warp, uint32_t lane)
{
    uint32_t row = lane & 15, base = smem_addr(page) + warp * WEFT_ATOM_BYTES + row * 128, hi = lane >> 4;
    uint32_t a[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++) ldmatrix_x4(a[q], base + (((q * 2 + hi) ^ (row & 7)) << 4));
#pragma unroll
    for (int j = 0; j < MT; j++) {
        mma_bf16(acc[j], a[0], x.v[j][0].x, x.v[j][0].y);
        mma_bf16(acc[j], a[1], x.v[j][0].z, x.v[j][0].w);
        mma_bf16(acc[j], a[2], x.v[j][1].x, x.v[j][1].y);
        mma_bf16(acc[j], a[3], x.v[j][1].z, x.v[j][1].w);
    }
}

// Adds the eight warps' sums, one group and up to 16 rows of x a round, and stores the results. False: leave.
template <int MT, int G> WEFT_DEV bool finish_groups(const cta &c, weft_slot &s, consumer &t, const float (&acc)[G][MT][4], const float (&ss)[MT])
{
    constexpr int PAIR = MT < 2 ? 1 : 2, ROUNDS = MT / PAIR; // blocks of 8 rows a round, rounds a group
    constexpr uint32_t COL = 20; // floats from one row of x to the next: no bank conflicts; word 16: its sum of squares
    static_assert(CONSUMER_WARPS * PAIR * 8 * COL * sizeof(float) <= SCRATCH_BYTES / 2, "half of scratch a round");
    bool norm = s.op.flags & WEFT_OP_NORM;
    uint32_t r = t.lane % 16, col = t.warp * 2 + t.lane / 16;
    for (uint32_t i = 0; i < s.task.tile[2] * ROUNDS; i++, t.round ^= 1) {
        float *part = (float *)(smem()->scratch + t.round * (SCRATCH_BYTES / 2));
        float *p = part + (t.warp * PAIR * 8 + t.lane % 4 * 2) * COL + t.lane / 4;
#pragma unroll
        for (int k = 0; k < G * ROUNDS; k++) // registers have no index: find round i's
            if (k == (int)i) {
#pragma unroll
                for (int j = 0; j < PAIR; j++) {
                    const float(&d)[4] = acc[k / ROUNDS][k % ROUNDS * PAIR + j];
                    p[j * 8 * COL] = d[0], p[(j * 8 + 1) * COL] = d[1], p[j * 8 * COL + 8] = d[2], p[(j * 8 + 1) * COL + 8] = d[3];
                    if (norm && t.lane % 4 == 0) part[(t.warp * PAIR * 8 + j * 8 + t.lane / 4) * COL + 16] = ss[k % ROUNDS * PAIR + j];
                }
            }
        consumer_sync(); // the other half was read before this barrier's threads came here
        uint32_t m = s.task.tile[0] + i % ROUNDS * PAIR * 8 + col;
        bool mine = col < PAIR * 8 && m < s.op.m;
        float v = 0, sum = 0;
        if (mine)
            for (uint32_t w = 0; w < CONSUMER_WARPS; w++) {
                v += part[(w * PAIR * 8 + col) * COL + r];
                if (norm) sum += part[(w * PAIR * 8 + col) * COL + 16];
            }
        if (norm) v *= rsqrtf(sum / (float)s.op.k + s.op.eps);
        if (!store_group(c, s, s.task.tile[1] + i / ROUNDS, m, r, v, mine)) return false;
    }
    return true;
}

template <int MT, int G, bool PACKET> WEFT_DEV bool stream_task(const cta &c, weft_slot &s, consumer &t)
{
    constexpr int AHEAD = PACKET ? 4 : MT == 1 ? 4 : MT == 2 ? 3 : MT == 4 ? 2 : 1;
    x_reader<MT, PACKET> reader(c, s, t);
    uint32_t ng = s.task.tile[2], chunks = weft_div_up(reader.nkb, 8);
    bool norm = s.op.flags & WEFT_OP_NORM;
    float acc[G][MT][4] = {}, ss[MT] = {};
    x_chunk<MT> x[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (!reader.start(x[u], u)) return false;
    for (uint32_t ch0 = 0; ch0 < chunks; ch0 += AHEAD) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            uint32_t ch = ch0 + u;
            if (ch >= chunks) break;
            if (!reader.finish(x[u], ch)) return false;
            if (norm) add_squares(x[u], ss);
#pragma unroll
            for (int g = 0; g < G; g++) {
                if (g >= (int)ng) break;
                uint32_t p = t.it % PAGES;
                if (!await(c, &smem()->full[p], page_parity(t.it))) return false;
                if (ch * 8 + t.warp < reader.nkb) mma_page(acc[g], smem()->page[p], x[u], t.warp, t.lane);
                release_page(t.it);
                t.it++;
            }
            if (!reader.start(x[u], ch + AHEAD)) return false;
        }
    }
    if (norm)
#pragma unroll
        for (int j = 0; j < MT; j++) { // over the four lanes that share a row of x
            ss[j] += __shfl_xor_sync(~0u, ss[j], 1);
            ss[j] += __shfl_xor_sync(~0u, ss[j], 2);
        }
    if (!await_all(c, s)) return false; // waits that no chunk needed (the residual's)
    return finish_groups<MT, G>(c, s, t, acc, ss);
}

WEFT_DEV bool body_gemm_stream(const cta &c, weft_slot &s, consumer &t)
{
    uint32_t rows = min(s.op.m_tile, s.op.m - s.task.tile[0]), ng = s.task.tile[2];
    if (s.op.flags & WEFT_OP_X_PACKET) return ng == 1 ? stream_task<1, 1, true>(c, s, t) : stream_task<1, 4, true>(c, s, t);
    if (rows <= 8) return ng == 1 ? stream_task<1, 1, false>(c, s, t) : stream_task<1, 4, false>(c, s, t);
    if (rows <= 16) return stream_task<2, 4, false>(c, s, t);
    if (rows <= 32) return stream_task<4, 4, false>(c, s, t);
    return stream_task<8, 2, false>(c, s, t);
}

#endif
