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
    uint32_t page = 0, parity = 0; // next page of the ring, and the phase of its `full` barrier that will say it is there
    uint32_t round = 0;            // rounds of finish_groups so far
    uint32_t warp, lane;
};

WEFT_DEV bool await_full(const consumer &t) { return await(&smem()->full[t.page], t.parity); }
WEFT_DEV void next_page(consumer &t)
{
    if (++t.page == PAGES) t.page = 0, t.parity ^= 1;
}
WEFT_DEV void release_page(const consumer &t) // this warp has read it
{
    __syncwarp();
    if (t.lane == 0) mbar_arrive(&smem()->empty[t.page]);
}

template <int MT> struct x_chunk { // one warp's 64 columns of x, as B operands
    uint4 v[MT][2];
    uint4 tag[2]; // of packets
};

// Reads x, chunk by chunk: this warp's block of 64 columns in each. Lanes of rows past the end read the last row again: their
// products meet no element that is stored.
template <int MT, bool PACKET> struct x_reader {
    const uint8_t *base;  // this lane's part of the warp's block in chunk 0
    uint32_t offset[MT];  // plain: of each block of 8 rows
    uint32_t stride, row; // bytes from one chunk to the next; packets: from one 16-byte part to the next
    uint32_t mine;        // chunks in which this warp has a block
    uint32_t first;       // block of chunk 0, in all of K
    uint32_t ready, tag;

    __device__ x_reader(const weft_slot &s, uint32_t seq, const consumer &t)
    {
        uint32_t m0 = s.task.tile[0], kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
        mine = nkb > t.warp ? (nkb - t.warp + 7) / 8 : 0;
        first = kb0 + t.warp, ready = 0, tag = seq;
        if constexpr (PACKET) {
            uint32_t mp = weft_packet_rows(s.op.m), n = min(t.lane / 4, s.op.m - 1);
            row = mp * 64, stride = 8 * 4 * row;
            base = (const uint8_t *)s.op.pk_x + (uint64_t)first * 4 * row + n * 64 + t.lane % 4 * 16;
        } else {
            uint32_t blocks = weft_div_up(s.op.m, 8);
            stride = 8 * blocks * WEFT_FRAG_BYTES;
            base = (const uint8_t *)s.op.x + (uint64_t)first * blocks * WEFT_FRAG_BYTES + t.lane % 4 * 16;
#pragma unroll
            for (int j = 0; j < MT; j++) {
                uint32_t m = min(m0 + j * 8 + t.lane / 4, s.op.m - 1);
                offset[j] = m / 8 * WEFT_FRAG_BYTES + m % 8 * 64;
            }
        }
    }

    __device__ void load(x_chunk<MT> &x, uint32_t ch) const
    {
        const uint8_t *p = base + (uint64_t)ch * stride;
        if constexpr (PACKET) {
            ulonglong2 a = weft_ld_relaxed_packets_sys(p), b = weft_ld_relaxed_packets_sys(p + row);
            ulonglong2 d = weft_ld_relaxed_packets_sys(p + 2 * row), e = weft_ld_relaxed_packets_sys(p + 3 * row);
            x.v[0][0] = make_uint4((uint32_t)a.x, (uint32_t)a.y, (uint32_t)b.x, (uint32_t)b.y);
            x.v[0][1] = make_uint4((uint32_t)d.x, (uint32_t)d.y, (uint32_t)e.x, (uint32_t)e.y);
            x.tag[0] = make_uint4((uint32_t)(a.x >> 32), (uint32_t)(a.y >> 32), (uint32_t)(b.x >> 32), (uint32_t)(b.y >> 32));
            x.tag[1] = make_uint4((uint32_t)(d.x >> 32), (uint32_t)(d.y >> 32), (uint32_t)(e.x >> 32), (uint32_t)(e.y >> 32));
        } else {
#pragma unroll
            for (int j = 0; j < MT; j++) x.v[j][0] = ld_cg(p + offset[j]), x.v[j][1] = ld_cg(p + offset[j] + 512);
        }
    }

    // Starts the loads of chunk `ch`. Plain x: once the chunk may be read. False: leave.
    __device__ bool start(x_chunk<MT> &x, uint32_t ch, weft_slot &s)
    {
        if (ch >= mine) return true;
        if (!PACKET && (first + ch * 8) / 8 >= ready && !await_ready(s, (first + ch * 8) / 8, &ready)) return false;
        load(x, ch);
        return true;
    }

    __device__ bool all_here(const x_chunk<MT> &x) const
    {
        uint4 a = x.tag[0], b = x.tag[1];
        uint32_t differ = (a.x ^ tag) | (a.y ^ tag) | (a.z ^ tag) | (a.w ^ tag) | (b.x ^ tag) | (b.y ^ tag) | (b.z ^ tag) | (b.w ^ tag);
        return __all_sync(~0u, differ == 0);
    }

    // Packets: reads again until all of the chunk's carry this step's tag. False: leave.
    __device__ bool finish(x_chunk<MT> &x, uint32_t ch)
    {
        if (PACKET)
            while (!all_here(x)) {
                note_stall((first + ch * 8) * 32, tag, x.tag[0].x);
                if (leaving()) return false;
                load(x, ch);
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

// Where this lane's ldmatrix rows lie in a page, for the four K steps of 16 columns.
WEFT_DEV void matrix_offsets(uint32_t (&at)[4], const consumer &t)
{
    uint32_t row = t.lane & 15;
#pragma unroll
    for (int q = 0; q < 4; q++)
        at[q] = smem_addr(smem()->page) + t.warp * WEFT_ATOM_BYTES + row * 128 + (((q * 2 + (t.lane >> 4)) ^ (row & 7)) << 4);
}

// One page: 16 rows of W by this warp's 64 columns, times its x. SETS: independent sums, so that few rows of x don't make one
// chain of dependent mma.
template <int MT, int SETS> WEFT_DEV void mma_page(float (&acc)[SETS][MT][4], const uint32_t (&at)[4], uint32_t page, const x_chunk<MT> &x)
{
    uint32_t a[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++) ldmatrix_x4(a[q], at[q] + page * WEFT_PAGE_BYTES);
#pragma unroll
    for (int j = 0; j < MT; j++) {
        mma_bf16(acc[0][j], a[0], x.v[j][0].x, x.v[j][0].y);
        mma_bf16(acc[1 % SETS][j], a[1], x.v[j][0].z, x.v[j][0].w);
        mma_bf16(acc[0][j], a[2], x.v[j][1].x, x.v[j][1].y);
        mma_bf16(acc[1 % SETS][j], a[3], x.v[j][1].z, x.v[j][1].w);
    }
}

// Adds the eight warps' sums, one group and up to 16 rows of x a round, and stores the results. False: leave.
template <int MT, int G, int SETS> WEFT_DEV bool finish_groups(weft_slot &s, uint32_t seq, consumer &t, const float (&acc)[G][SETS][MT][4], const float (&ss)[MT])
{
    constexpr int PAIR = MT < 2 ? 1 : 2, ROUNDS = MT / PAIR; // blocks of 8 rows a round, rounds a group
    constexpr uint32_t COL = 20; // floats from one row of x to the next: no bank conflicts; word 16: its sum of squares
    static_assert(CONSUMER_WARPS * PAIR * 8 * COL * sizeof(float) <= SCRATCH_BYTES / 2, "half of scratch a round");
    bool norm = s.op.flags & WEFT_OP_NORM;
    for (uint32_t i = 0; i < s.task.tile[2] * ROUNDS; i++, t.round++) {
        float *part = (float *)(smem()->scratch + t.round % 2 * (SCRATCH_BYTES / 2));
        uint32_t r = t.lane % 16, col = (t.warp + t.round) % CONSUMER_WARPS * 2 + t.lane / 16; // few rows: each warp's turn
        float *p = part + (t.warp * PAIR * 8 + t.lane % 4 * 2) * COL + t.lane / 4;
#pragma unroll
        for (int k = 0; k < G * ROUNDS; k++) // registers have no index: find round i's
            if (k == (int)i) {
#pragma unroll
                for (int j = 0; j < PAIR; j++) {
                    float d[4];
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        d[e] = acc[k / ROUNDS][0][k % ROUNDS * PAIR + j][e] + (SETS > 1 ? acc[k / ROUNDS][SETS - 1][k % ROUNDS * PAIR + j][e] : 0.0f);
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
        if (!store_group(s, seq, s.task.tile[1] + i / ROUNDS, m, r, v, mine)) return false;
    }
    return true;
}

template <int MT, int G, bool PACKET> WEFT_DEV bool stream_task(weft_slot &s, uint32_t seq, consumer &t)
{
    constexpr int AHEAD = MT == 1 ? 4 : MT == 2 ? 3 : MT == 4 ? 2 : 1, SETS = MT == 1 ? 2 : 1;
    x_reader<MT, PACKET> reader(s, seq, t);
    uint32_t ng = s.task.tile[2], chunks = weft_div_up(s.task.tile[3] >> 16, 8), at[4];
    bool norm = s.op.flags & WEFT_OP_NORM;
    float acc[G][SETS][MT][4] = {}, ss[MT] = {};
    x_chunk<MT> x[AHEAD] = {}; // else a register that some path leaves unset stays live through all other bodies
    matrix_offsets(at, t);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (!reader.start(x[u], u, s)) return false;
    for (uint32_t ch0 = 0; ch0 < chunks; ch0 += AHEAD) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            uint32_t ch = ch0 + u;
            if (ch >= chunks) break;
            bool mine = ch < reader.mine;
            if (mine) {
                if (!reader.finish(x[u], ch)) return false;
                if (norm) add_squares(x[u], ss);
            }
#pragma unroll
            for (int g = 0; g < G; g++) {
                if (g >= (int)ng) break;
                if (!await_full(t)) return false;
                if (mine) mma_page<MT, SETS>(acc[g], at, t.page, x[u]);
                release_page(t);
                next_page(t);
            }
            if (!reader.start(x[u], ch + AHEAD, s)) return false;
        }
    }
    if (norm) {
#pragma unroll
        for (int j = 0; j < MT; j++) { // over the four lanes that share a row of x
            ss[j] += __shfl_xor_sync(~0u, ss[j], 1);
            ss[j] += __shfl_xor_sync(~0u, ss[j], 2);
        }
    }
    if (!await_all(s)) return false; // waits that no chunk needed (the residual's)
    return finish_groups<MT, G, SETS>(s, seq, t, acc, ss);
}

WEFT_DEV bool body_gemm_stream(const cta &c, weft_slot &s, consumer &t)
{
    uint32_t rows = min(s.op.m_tile, s.op.m - s.task.tile[0]), ng = s.task.tile[2], seq = step_of(s).seq;
    if (s.op.flags & WEFT_OP_X_PACKET) return ng == 1 ? stream_task<1, 1, true>(s, seq, t) : stream_task<1, 4, true>(s, seq, t);
    if (rows <= 8) return ng == 1 ? stream_task<1, 1, false>(s, seq, t) : stream_task<1, 4, false>(s, seq, t);
    if (rows <= 16) return stream_task<2, 4, false>(s, seq, t);
    if (rows <= 32) return stream_task<4, 4, false>(s, seq, t);
    return stream_task<8, 2, false>(s, seq, t);
}

#endif
