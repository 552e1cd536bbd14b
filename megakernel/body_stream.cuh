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
    uint32_t page = 0,
             parity = 0; // next page of the ring, and the phase of its `full` barrier that will say it is there
    uint32_t round = 0;  // rounds of finish_groups so far
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

// How x comes: as plain elements, or as packets; one row of packets is common enough for a way of its own.
enum x_form {
    X_PLAIN,
    X_PACKETS,
    X_ONE_ROW
};

// One warp's 64 columns of x, as they came from memory: nothing may touch them before they are used, or the load is waited for.
template <int MT, x_form FORM> struct x_chunk {
    uint4 v[MT][2];
    __device__ void operands(uint32_t (&b)[MT][8], uint32_t) const
    {
#pragma unroll
        for (int j = 0; j < MT; j++) {
            b[j][0] = v[j][0].x, b[j][1] = v[j][0].y, b[j][2] = v[j][0].z, b[j][3] = v[j][0].w;
            b[j][4] = v[j][1].x, b[j][5] = v[j][1].y, b[j][6] = v[j][1].z, b[j][7] = v[j][1].w;
        }
    }
};
template <> struct x_chunk<1, X_PACKETS> { // the low half is x, the high half the tag
    ulonglong2 v[4];
    __device__ void operands(uint32_t (&b)[1][8], uint32_t) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[0][i * 2] = (uint32_t)v[i].x, b[0][i * 2 + 1] = (uint32_t)v[i].y;
    }
    __device__ uint32_t differs(uint32_t tag) const
    {
        uint32_t d = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            d |= ((uint32_t)(v[i].x >> 32) ^ tag) | ((uint32_t)(v[i].y >> 32) ^ tag);
        return d;
    }
    __device__ uint32_t seen() const { return (uint32_t)(v[0].x >> 32); }
};
template <> struct x_chunk<1, X_ONE_ROW> { // a packet a lane: few registers, so many chunks may be on their way
    uint64_t v;
    __device__ void operands(uint32_t (&b)[1][8], uint32_t lane) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            b[0][i] = __shfl_sync(~0u, (uint32_t)v, i / 2 * 8 + lane % 4 * 2 + i % 2);
    }
    __device__ uint32_t differs(uint32_t tag) const { return (uint32_t)(v >> 32) ^ tag; }
    __device__ uint32_t seen() const { return (uint32_t)(v >> 32); }
};

// Reads x, chunk by chunk: this warp's block of 64 columns in each. Lanes of rows past the end read the last row again: their
// products meet no element that is stored. No load stands behind a branch: a register that is loaded on one path only is loaded
// elsewhere and then moved, and the move waits for the load. Past the end plain loads are predicated off, packets read again.
template <int MT, x_form FORM> struct x_reader {
    static constexpr bool PACKET = FORM != X_PLAIN;
    const uint8_t *base;  // this lane's part of the warp's block in chunk 0
    uint32_t offset[MT];  // plain: of each block of 8 rows
    uint32_t stride, row; // bytes from one chunk to the next; packets: from one 16-byte part to the next
    uint32_t mine;        // chunks in which this warp has a block
    uint32_t first;       // block of chunk 0, in all of K
    uint32_t ready, tag;
    bool sys; // packets: another device writes them

    __device__ x_reader(const weft_slot &s, uint32_t seq, const consumer &t)
    {
        uint32_t m0 = s.task.tile[0], kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
        mine = nkb > t.warp ? (nkb - t.warp + 7) / 8 : 0;
        first = kb0 + (mine ? t.warp : 0), ready = 0, tag = seq, sys = s.op.flags & WEFT_OP_X_SYS;
        if constexpr (PACKET) {
            uint32_t mp = weft_packet_rows(s.op.m), n = min(t.lane / 4, s.op.m - 1);
            row = mp * 64, stride = 8 * 4 * row;
            base = (const uint8_t *)s.op.pk_x + (uint64_t)first * 4 * row +
                   (FORM == X_ONE_ROW ? t.lane * 8 : n * 64 + t.lane % 4 * 16);
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

    __device__ void load(x_chunk<MT, FORM> &x, uint32_t ch) const
    {
        const uint8_t *p = base + (uint64_t)min(ch, mine ? mine - 1 : 0) * stride;
        if constexpr (FORM == X_ONE_ROW) {
            x.v = sys ? weft_ld_relaxed_b64_sys((const uint64_t *)p) : weft_ld_relaxed_b64_gpu((const uint64_t *)p);
        } else if constexpr (FORM == X_PACKETS) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x.v[i] = sys ? weft_ld_relaxed_packets_sys(p + i * row) : weft_ld_relaxed_packets_gpu(p + i * row);
        } else {
#pragma unroll
            for (int j = 0; j < MT; j++)
                ld_cg_if(x.v[j][0], p + offset[j], ch < mine), ld_cg_if(x.v[j][1], p + offset[j] + 512, ch < mine);
        }
    }

    // Starts the loads of chunk `ch`. Plain x: once the chunk may be read. False: leave.
    __device__ bool start(x_chunk<MT, FORM> &x, uint32_t ch, weft_slot &s)
    {
        if (!PACKET && ch < mine && (first + ch * 8) / 8 >= ready && !await_ready(s, (first + ch * 8) / 8, &ready))
            return false;
        load(x, ch);
        return true;
    }

    __device__ bool all_here(const x_chunk<MT, FORM> &x) const { return __all_sync(~0u, x.differs(tag) == 0); }

    // Packets: reads x[u] again until all of it carries this step's tag; then the later chunks, which were read before this
    // one was there, once more, all together: else each of them would cost a trip of its own. False: leave.
    template <int AHEAD> __device__ bool finish(x_chunk<MT, FORM> (&x)[AHEAD], int u, uint32_t ch)
    {
        if constexpr (PACKET) {
            if (all_here(x[u])) return true;
            do {
                note_stall((first + ch * 8) * 32, tag, x[u].seen());
                if (leaving()) return false;
                load(x[u], ch);
            } while (!all_here(x[u]));
#pragma unroll
            for (int i = 1; i < AHEAD; i++)
                load(x[(u + i) % AHEAD], ch + i);
        }
        return true;
    }
};

template <int MT> WEFT_DEV void add_squares(const uint32_t (&b)[MT][8], float (&ss)[MT])
{
#pragma unroll
    for (int j = 0; j < MT; j++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            ss[j] += bf16_lo(b[j][i]) * bf16_lo(b[j][i]) + bf16_hi(b[j][i]) * bf16_hi(b[j][i]);
}

// Where this lane's ldmatrix rows lie in a page, for the four K steps of 16 columns.
WEFT_DEV void matrix_offsets(uint32_t (&at)[4], const consumer &t)
{
    uint32_t row = t.lane & 15;
#pragma unroll
    for (int q = 0; q < 4; q++)
        at[q] = smem_addr(smem()->page) + t.warp * WEFT_ATOM_BYTES + row * 128 +
                (((q * 2 + (t.lane >> 4)) ^ (row & 7)) << 4);
}

// One page: 16 rows of W by this warp's 64 columns, times its x. SETS: independent sums, so that few rows of x don't make one
// chain of dependent mma.
template <int MT, int SETS>
WEFT_DEV void mma_page(float (&acc)[SETS][MT][4], const uint32_t (&at)[4], uint32_t page, const uint32_t (&b)[MT][8])
{
    uint32_t a[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++)
        ldmatrix_x4(a[q], at[q] + page * WEFT_PAGE_BYTES);
#pragma unroll
    for (int j = 0; j < MT; j++) {
#pragma unroll
        for (int q = 0; q < 4; q++)
            mma_bf16(acc[q % SETS][j], a[q], b[j][q * 2], b[j][q * 2 + 1]);
    }
}

// Adds the eight warps' sums and stores the results, 256 of them a round: 16 rows of one group, or 8 rows of two. False: leave.
template <int MT, int G, int SETS>
WEFT_DEV bool finish_groups(weft_slot &s, uint32_t seq, consumer &t, const float (&acc)[G][SETS][MT][4],
                            const float (&ss)[MT])
{
    constexpr int PAIR = MT < 2 ? 1 : 2, PER = 2 / PAIR,
                  ROUNDS = MT / PAIR; // blocks of rows and groups a round; rounds a group
    constexpr uint32_t COL = 20; // floats from one row of x to the next: no bank conflicts; word 16: its sum of squares
    static_assert(CONSUMER_WARPS * 16 * COL * sizeof(float) <= SCRATCH_BYTES / 2, "half of scratch a round");
    bool norm = s.op.flags & WEFT_OP_NORM;
    for (uint32_t i = 0; i * PER < s.task.tile[2] * ROUNDS; i++, t.round++) {
        float *part = (float *)(smem()->scratch + t.round % 2 * (SCRATCH_BYTES / 2));
        float *p = part + (t.warp * 16 + t.lane % 4 * 2) * COL + t.lane / 4;
#pragma unroll
        for (int k = 0; k < G * ROUNDS; k++) // registers have no index: find round i's
            if (k / PER == (int)i) {
#pragma unroll
                for (int j = 0; j < PAIR; j++) {
                    int at = PER > 1 ? k % PER : j; // block of eight columns of scratch
                    float d[4];
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        d[e] = acc[k / ROUNDS][0][k % ROUNDS * PAIR + j][e] +
                               (SETS > 1 ? acc[k / ROUNDS][SETS - 1][k % ROUNDS * PAIR + j][e] : 0.0f);
                    p[at * 8 * COL] = d[0], p[(at * 8 + 1) * COL] = d[1], p[at * 8 * COL + 8] = d[2],
                               p[(at * 8 + 1) * COL + 8] = d[3];
                    if (norm && t.lane % 4 == 0)
                        part[(t.warp * 16 + at * 8 + t.lane / 4) * COL + 16] = ss[k % ROUNDS * PAIR + j];
                }
            }
        if (!consumer_sync()) return false; // the other half was read before this barrier's threads came here
        uint32_t r = t.lane % 16,
                 col = (t.warp + t.round) % CONSUMER_WARPS * 2 + t.lane / 16; // few rows: each warp's turn
        uint32_t g = PER > 1 ? i * PER + col / 8 : i / ROUNDS;
        uint32_t m = s.task.tile[0] + (PER > 1 ? col % 8 : i % ROUNDS * 16 + col);
        bool mine = g < s.task.tile[2] && m < s.op.m;
        float v = 0, sum = 0;
        if (mine)
#pragma unroll
            for (uint32_t w = 0; w < CONSUMER_WARPS; w++) {
                v += part[(w * 16 + col) * COL + r];
                if (norm) sum += part[(w * 16 + col) * COL + 16];
            }
        if (norm) v *= rsqrtf(sum / (float)s.op.k + s.op.eps);
        if (!store_group(s, seq, s.task.tile[1] + g, m, r, v, mine)) return false;
    }
    return true;
}

// The same for one row of x: all groups in one round, since only one column of each sum counts.
template <int G>
WEFT_DEV bool finish_one_row(weft_slot &s, uint32_t seq, consumer &t, const float (&acc)[G][2][1][4], float ss)
{
    float *part = (float *)(smem()->scratch + t.round++ % 2 * (SCRATCH_BYTES / 2)),
          *squares = part + G * 16 * CONSUMER_WARPS;
    static_assert((G * 16 + 1) * CONSUMER_WARPS * sizeof(float) <= SCRATCH_BYTES / 2, "half of scratch a round");
    bool norm = s.op.flags & WEFT_OP_NORM;
    if (t.lane % 4 == 0)
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                part[(t.warp * G + g) * 16 + h * 8 + t.lane / 4] = acc[g][0][0][h * 2] + acc[g][1][0][h * 2];
    if (norm && t.lane == 0) squares[t.warp] = ss;
    if (!consumer_sync()) return false; // the other half was read before this barrier's threads came here
    uint32_t i = (t.warp + t.round) % CONSUMER_WARPS * 32 + t.lane, g = i / 16, r = i % 16; // each pair of warps' turn
    if (i >= G * 16) return true;
    bool mine = g < s.task.tile[2];
    float v = 0, sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
        v += part[w * G * 16 + i];
    if (norm) {
        for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
            sum += squares[w];
        v *= rsqrtf(sum / (float)s.op.k + s.op.eps);
    }
    return store_group(s, seq, s.task.tile[1] + g, 0, r, v, mine);
}

template <int MT, int G, x_form FORM> WEFT_DEV bool stream_task(weft_slot &s, uint32_t seq, consumer &t)
{
    constexpr int AHEAD = FORM == X_ONE_ROW ? 8 : FORM == X_PACKETS ? 4 : MT == 1 ? 6 : MT == 2 ? 4 : MT == 4 ? 2 : 1;
    constexpr int SETS = MT == 1 ? 2 : 1;
    x_reader<MT, FORM> reader(s, seq, t);
    uint32_t ng = s.task.tile[2], chunks = weft_div_up(s.task.tile[3] >> 16, 8), at[4];
    bool norm = s.op.flags & WEFT_OP_NORM;
    float acc[G][SETS][MT][4] = {}, ss[MT] = {};
    x_chunk<MT, FORM> x[AHEAD] = {}; // else a register that some path leaves unset stays live through all other bodies
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
            uint32_t b[MT][8] = {};
            if (mine) {
                if (!reader.finish(x, u, ch)) return false;
                x[u].operands(b, t.lane);
                if (norm) add_squares(b, ss);
            }
#pragma unroll
            for (int g = 0; g < G; g++) {
                if (g >= (int)ng) break;
                if (!await_full(t)) return false;
                if (mine) mma_page<MT, SETS>(acc[g], at, t.page, b);
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
    if constexpr (FORM == X_ONE_ROW)
        return finish_one_row<G>(s, seq, t, acc, ss[0]);
    else
        return finish_groups<MT, G, SETS>(s, seq, t, acc, ss);
}

WEFT_DEV bool body_gemm_stream(const cta &, weft_slot &s, consumer &t)
{
    uint32_t rows = min(s.op.m_tile, s.op.m - s.task.tile[0]), ng = s.task.tile[2], seq = step_of(s).seq;
    if (s.op.flags & WEFT_OP_X_PACKET && s.op.m == 1)
        return ng == 1 ? stream_task<1, 1, X_ONE_ROW>(s, seq, t) : stream_task<1, 4, X_ONE_ROW>(s, seq, t);
    if (s.op.flags & WEFT_OP_X_PACKET) return stream_task<1, 4, X_PACKETS>(s, seq, t);
    if (rows <= 8) return ng == 1 ? stream_task<1, 1, X_PLAIN>(s, seq, t) : stream_task<1, 4, X_PLAIN>(s, seq, t);
    if (rows <= 16) return stream_task<2, 4, X_PLAIN>(s, seq, t);
    if (rows <= 32) return stream_task<4, 4, X_PLAIN>(s, seq, t);
    return stream_task<8, 2, X_PLAIN>(s, seq, t);
}

#endif
