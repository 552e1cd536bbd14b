// body_stream.cuh: out = x W^T for up to 64 rows of x; the weights stream through the ring once.
//
// The weights are the wide operand: mma.m16n8k16 takes 16 rows of W as A and 8 rows of x as B. A page holds 16 rows of W
// by 512 columns, eight blocks of 64. K is the outer loop, the groups of 16 output rows the inner one: x is read once a task, in
// operand order, as packets from L2 straight into registers, a few chunks ahead, or as plain elements (FRAG) through pages of
// the ring, before the weights of the same columns.
//
// The eight warps are 8 / KW teams: a team takes every (8 / KW)-th group, and its KW warps share the blocks of each page. More
// groups, more teams: fewer partial sums then meet in shared memory at the end, where they are added in a fixed order, and
// the warp that adds them applies norm and epilogue.
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

// How packets of x are read: one row of them is common enough for a way of its own.
enum x_form {
    X_PACKETS,
    X_ONE_ROW
};

// One warp's 64 columns of x, as they came from memory: nothing may touch them before they are used, or the load is waited for.
template <x_form FORM> struct x_chunk;
template <> struct x_chunk<X_PACKETS> { // the low half is x, the high half the tag
    ulonglong2 v[4];
    __device__ void operands(uint32_t (&b)[1][8], uint32_t) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[0][i * 2] = (uint32_t)v[i].x, b[0][i * 2 + 1] = (uint32_t)v[i].y;
    }
    __device__ uint32_t differs(uint32_t tag, uint32_t columns, uint32_t lane) const
    {
        uint32_t d = 0, c = lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++, c += 16)
            d |= (c < columns ? (uint32_t)(v[i].x >> 32) ^ tag : 0) |
                 (c + 8 < columns ? (uint32_t)(v[i].y >> 32) ^ tag : 0);
        return d;
    }
    __device__ uint32_t seen() const { return (uint32_t)(v[0].x >> 32); }
};
template <> struct x_chunk<X_ONE_ROW> { // a packet a lane: few registers, so many chunks may be on their way
    uint64_t v;
    __device__ void operands(uint32_t (&b)[1][8], uint32_t lane) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            b[0][i] = __shfl_sync(~0u, (uint32_t)v, i / 2 * 8 + lane % 4 * 2 + i % 2);
    }
    __device__ uint32_t differs(uint32_t tag, uint32_t columns, uint32_t lane) const
    {
        uint32_t c = lane / 8 * 16 + lane % 2 * 8 + lane % 8 / 2 * 2;
        return c < columns ? (uint32_t)(v >> 32) ^ tag : 0;
    }
    __device__ uint32_t seen() const { return (uint32_t)(v >> 32); }
};

// Reads x, chunk by chunk: this warp's block of 64 columns in each. Lanes of rows past the end read the last row again: their
// products meet no element that is stored. No load stands behind a branch: a register that is loaded on one path only is loaded
// elsewhere and then moved, and the move waits for the load. Past the end the last chunk is read again.
template <x_form FORM> struct x_reader {
    const uint8_t *base;  // this lane's part of the warp's block in chunk 0
    uint32_t stride, row; // bytes from one chunk to the next; from one 16-byte part to the next
    uint32_t mine;        // chunks in which this warp has a block
    uint32_t first;       // block of chunk 0, in all of K
    uint32_t tag, k, lane;
    bool sys; // another device writes them

    __device__ x_reader(const weft_slot &s, uint32_t seq, const consumer &t)
    {
        uint32_t kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
        mine = nkb > t.warp ? (nkb - t.warp + 7) / 8 : 0;
        first = kb0 + (mine ? t.warp : 0), tag = seq, k = s.op.k, lane = t.lane;
        sys = s.op.flags & WEFT_OP_X_SYS;
        uint32_t mp = weft_packet_rows(s.op.m), n = min(t.lane / 4, s.op.m - 1);
        row = mp * 64, stride = 8 * 4 * row;
        base = (const uint8_t *)s.op.pk_x + (uint64_t)first * 4 * row +
               (FORM == X_ONE_ROW ? t.lane * 8 : n * 64 + t.lane % 4 * 16);
    }

    __device__ void load(x_chunk<FORM> &x, uint32_t ch) const
    {
        const uint8_t *p = base + (uint64_t)min(ch, mine ? mine - 1 : 0) * stride;
        if constexpr (FORM == X_ONE_ROW) {
            x.v = sys ? weft_ld_relaxed_b64_sys((const uint64_t *)p) : weft_ld_relaxed_b64_gpu((const uint64_t *)p);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x.v[i] = sys ? weft_ld_relaxed_packets_sys(p + i * row) : weft_ld_relaxed_packets_gpu(p + i * row);
        }
    }

    // Of the last block only the columns that exist: nobody writes the others.
    __device__ bool all_here(const x_chunk<FORM> &x, uint32_t ch) const
    {
        return __all_sync(~0u, x.differs(tag, k - (first + ch * 8) * 64, lane) == 0);
    }

    // Reads x[u] again until all of it carries this step's tag; then the later chunks, which were read before this one was
    // there, once more, all together: else each of them would cost a trip of its own. False: leave.
    template <int AHEAD> __device__ bool finish(x_chunk<FORM> (&x)[AHEAD], int u, uint32_t ch)
    {
        if (all_here(x[u], ch)) return true;
        do {
            note_stall((first + ch * 8) * 32, tag, x[u].seen());
            if (leaving()) return false;
            load(x[u], ch);
        } while (!all_here(x[u], ch));
#pragma unroll
        for (int i = 1; i < AHEAD; i++)
            load(x[(u + i) % AHEAD], ch + i);
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

// Where this lane's ldmatrix rows lie in block `block` of a page, for the four K steps of 16 columns.
WEFT_DEV void matrix_offsets(uint32_t (&at)[4], const consumer &t, uint32_t block)
{
    uint32_t row = t.lane & 15;
#pragma unroll
    for (int q = 0; q < 4; q++)
        at[q] = smem_addr(smem()->page) + block * WEFT_ATOM_BYTES + row * 128 +
                (((q * 2 + (t.lane >> 4)) ^ (row & 7)) << 4);
}

// One block of a page: 16 rows of W by 64 columns, times its x. SETS: independent sums, so that few rows of x don't make one
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

// Where results go that need nothing but rounding: a shared struct is read again at each use, registers are not.
struct direct_out {
    uint64_t out;
    uint32_t rows, cols;
    bool direct;
    __device__ explicit direct_out(const weft_slot &s)
        : out(s.op.out), rows(s.op.out_rows), cols(s.op.out_cols),
          direct(s.op.out_layout == WEFT_LAYOUT_FRAG && s.op.out_cols % 2 == 0 &&
                 !(s.op.flags & (WEFT_OP_OUT_PACKET | WEFT_OP_PARTIAL)) &&
                 (s.op.epilogue == WEFT_EPI_NONE || s.op.epilogue == WEFT_EPI_GATED_SILU))
    {
    }
    __device__ void store(uint32_t m, uint32_t n, float lo, float hi) const
    {
        *(uint32_t *)(out + weft_frag_offset(rows, m, n)) = pack_bf16(lo, hi);
    }
};

// Eight rows of x from m0 times 16 rows of W, as mma left them: d[e] is row m0 + lane % 4 * 2 + e % 2 of x, row lane / 4 + e / 2 * 8
// of group g. Whole warp. False: leave.
WEFT_DEV bool store_block(weft_slot &s, const direct_out &to, uint32_t seq, uint32_t g, uint32_t m0, uint32_t m_end,
                          float (&d)[4], uint32_t lane)
{
    uint32_t m = m0 + lane % 4 * 2, r = lane / 4;
    if (s.op.flags & WEFT_OP_PARTIAL) {
        uint32_t split = (s.task.tile[3] & 0xffff) / s.op.split_kb;
        for (uint32_t e = 0; e < 2; e++) {
            float *p = (float *)s.op.partial + weft_partial_index(s.op.m, s.op.n, split, m + e, g * 16 + r);
            if (m + e < m_end) p[0] = e ? d[1] : d[0], p[8] = e ? d[3] : d[2];
        }
        return true;
    }
    bool gated = s.op.epilogue == WEFT_EPI_GATED_SILU, odd = r & 1, ok = true;
    if (gated) d[0] = silu(d[0]) * d[2], d[1] = silu(d[1]) * d[3];
    // Lanes of two rows of W swap: each has two columns of out.
    for (uint32_t half = 0; half < (gated ? 1 : 2); half++) {
        float got = __shfl_xor_sync(~0u, odd ? d[0] : d[1], 4);
        uint32_t n = gated ? g * 8 + (r & ~1u) : g * 16 + half * 8 + (r & ~1u);
        bool mine = m + odd < m_end && n < to.cols;
        if (mine && to.direct)
            to.store(m + odd, n, odd ? got : d[0], odd ? d[1] : got);
        else if (mine)
            ok = store_pair(s, seq, m + odd, n, odd ? got : d[0], odd ? d[1] : got) && ok;
        d[0] = d[2], d[1] = d[3];
    }
    return ok;
}

// Adds the sums of each team's warps and stores the results. A unit is a group by a block of 8 rows; unit u of a team is added by
// its warp u % KW, to which the others leave theirs in scratch. False: leave.
template <int MT, int GL, int SETS, int KW>
WEFT_DEV bool finish_units(weft_slot &s, uint32_t seq, const consumer &t, const float (&acc)[GL][SETS][MT][4],
                           const float (&ss)[MT])
{
    constexpr uint32_t TEAMS = CONSUMER_WARPS / KW, SLOT = 128; // floats: what a warp leaves of a unit
    constexpr uint32_t REGION = SCRATCH_BYTES / 4 / TEAMS, PASS = (REGION - KW * MT * 8) / ((KW - 1) * SLOT);
    static_assert(PASS > 0, "units at once");
    uint32_t team = t.warp % TEAMS, part = t.warp / TEAMS, ng = s.task.tile[2];
    uint32_t units = ng > team ? (ng - team - 1) / TEAMS * MT + MT : 0, most = weft_div_up(ng, TEAMS) * MT;
    uint32_t m_end = s.task.tile[0] + stream_rows(s);
    direct_out to(s);
    float *scratch = (float *)smem()->scratch + team * REGION, *squares = scratch + REGION - KW * MT * 8;
    bool norm = s.op.flags & WEFT_OP_NORM, ok = true;
    for (uint32_t u0 = 0; u0 < most; u0 += PASS) {
        if (!consumer_sync()) return false; // nobody reads what the pass, or the task, before left there
#pragma unroll
        for (uint32_t k = 0; k < GL * MT; k++) {
            if (k < u0 || k >= u0 + PASS || k >= units || k % KW == part) continue;
            const float *d = acc[k / MT][0][k % MT], *d1 = acc[k / MT][SETS - 1][k % MT];
            float4 v = SETS > 1 ? make_float4(d[0] + d1[0], d[1] + d1[1], d[2] + d1[2], d[3] + d1[3])
                                : make_float4(d[0], d[1], d[2], d[3]);
            uint32_t slot = (k - u0) * (KW - 1) + (part - k - 1) % KW; // counted from the warp that adds
            ((float4 *)(scratch + slot * SLOT))[t.lane] = v;
        }
        if (norm && t.lane % 4 == 0)
#pragma unroll
            for (int j = 0; j < MT; j++)
                squares[part * MT * 8 + j * 8 + t.lane / 4] = ss[j];
        if (!consumer_sync()) return false;
        uint32_t first = u0 + (part - u0) % KW;
        for (uint32_t u = first; u < min(units, u0 + PASS); u += KW) {
            float d[4] = {};
#pragma unroll
            for (uint32_t k = 0; k < GL * MT; k++) // registers have no index: find unit u's
                if (k == u)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        d[e] = acc[k / MT][0][k % MT][e] + (SETS > 1 ? acc[k / MT][SETS - 1][k % MT][e] : 0.0f);
#pragma unroll
            for (uint32_t i = 0; i < KW - 1; i++) {
                float4 v = ((const float4 *)(scratch + ((u - u0) * (KW - 1) + i) * SLOT))[t.lane];
                d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
            }
            uint32_t j = u % MT;
            if (norm) {
                float sum[2] = {};
                for (uint32_t i = 0; i < KW; i++)
                    for (uint32_t e = 0; e < 2; e++)
                        sum[e] += squares[i * MT * 8 + j * 8 + t.lane % 4 * 2 + e];
                uint32_t g = s.task.tile[1] + u / MT * TEAMS + team, m = s.task.tile[0] + j * 8 + t.lane % 4 * 2;
                float r0 = norm_factor(s, g, m, sum[0], t.lane < 4 && m < m_end);
                float r1 = norm_factor(s, g, m + 1, sum[1], t.lane < 4 && m + 1 < m_end);
                d[0] *= r0, d[1] *= r1, d[2] *= r0, d[3] *= r1;
            }
            ok = store_block(s, to, seq, s.task.tile[1] + u / MT * TEAMS + team, s.task.tile[0] + j * 8, m_end, d,
                             t.lane) &&
                 ok;
        }
    }
    return __all_sync(~0u, ok) && consumer_sync(); // other bodies' ends don't ask who reads here
}

// Few rows, one team (KW = 8): adds the eight warps' sums and stores the results, one a thread, 256 a round: 16 rows of one group,
// or 8 rows of two. Quicker than finish_units where a warp would have more than one result to store. False: leave.
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
        bool mine = g < s.task.tile[2] && m < s.task.tile[0] + stream_rows(s);
        float v = 0, sum = 0;
        if (mine)
#pragma unroll
            for (uint32_t w = 0; w < CONSUMER_WARPS; w++) {
                v += part[(w * 16 + col) * COL + r];
                if (norm) sum += part[(w * 16 + col) * COL + 16];
            }
        if (norm) v *= norm_factor(s, s.task.tile[1] + g, m, sum, mine && r == 0);
        if (!store_group(s, seq, s.task.tile[1] + g, m, r, v, mine)) return false;
    }
    return true;
}

// The same for the one row of a packet edge inside a device: row r of group g of W, a thread each.
struct row_out {
    uint64_t *packet;
    uint32_t *out;
    bool direct, gated, second; // second of a pair, or not a column of out
    __device__ row_out(const weft_slot &s, uint32_t g, uint32_t r)
    {
        uint32_t flags = s.op.flags, cols = s.op.out_cols;
        gated = s.op.epilogue == WEFT_EPI_GATED_SILU;
        uint32_t n = gated ? g * 8 + r % 8 : g * 16 + r;
        direct = (flags & (WEFT_OP_OUT_PACKET | WEFT_OP_OUT_SYS | WEFT_OP_PARTIAL)) == WEFT_OP_OUT_PACKET &&
                 s.op.out_layout == WEFT_LAYOUT_FRAG && cols % 2 == 0 && (gated || s.op.epilogue == WEFT_EPI_NONE);
        second = r % 2 != 0 || (gated && r >= 8) || n >= cols;
        packet = (uint64_t *)s.op.pk_out + weft_packet_index(1, 0, n);
        out = (uint32_t *)(s.op.out + weft_frag_offset(1, 0, n));
    }
    __device__ void store(uint32_t seq, float v, bool mine) const
    {
        float up = __shfl_down_sync(~0u, v, 8);
        if (gated) v = silu(v) * up;
        float next = __shfl_down_sync(~0u, v, 1);
        if (!mine || second) return;
        uint32_t word = pack_bf16(v, next);
        weft_st_relaxed_b64_gpu(packet, word | (uint64_t)seq << 32);
        *out = word;
    }
};

// The same for one row of x from packets: all groups in one round, since only one column of each sum counts.
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
    uint32_t i = (t.warp + t.round) % CONSUMER_WARPS * 32 + t.lane, g = i / 16, r = i % 16; // each pair of warps' turn
    bool mine = g < s.task.tile[2];
    row_out to(s, s.task.tile[1] + g,
               r);                      // before the barrier: what it looks up is not in the way of the next GEMM then
    if (!consumer_sync()) return false; // the other half was read before this barrier's threads came here
    if (i - t.lane >= G * 16) return true; // whole warps: the others exchange values
    float v = 0, sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
        v += part[w * G * 16 + i];
    if (norm) {
        for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
            sum += squares[w];
        v *= norm_factor(s, s.task.tile[1] + g, 0, sum, mine && r == 0);
    }
    if (!to.direct) return store_group(s, seq, s.task.tile[1] + g, 0, r, v, mine);
    to.store(seq, v, mine);
    return true;
}

// The groups' pages of one chunk. False: leave.
template <int MT, int G, int SETS>
WEFT_DEV bool mma_chunk(float (&acc)[G][SETS][MT][4], const uint32_t (&at)[4], uint32_t ng, bool mine,
                        const uint32_t (&b)[MT][8], consumer &t)
{
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g >= (int)ng) break;
        if (!await_full(t)) return false;
        if (mine) mma_page<MT, SETS>(acc[g], at, t.page, b);
        release_page(t);
        next_page(t);
    }
    return true;
}

// Over the four lanes that share a row of x.
template <int MT> WEFT_DEV void sum_squares(float (&ss)[MT])
{
#pragma unroll
    for (int j = 0; j < MT; j++) {
        ss[j] += __shfl_xor_sync(~0u, ss[j], 1);
        ss[j] += __shfl_xor_sync(~0u, ss[j], 2);
    }
}

// x from packets: up to 8 rows.
template <int G, x_form FORM> WEFT_DEV bool stream_packets(weft_slot &s, uint32_t seq, consumer &t)
{
    constexpr int AHEAD = FORM == X_ONE_ROW ? 8 : 4;
    x_reader<FORM> reader(s, seq, t);
    uint32_t ng = s.task.tile[2], chunks = weft_div_up(s.task.tile[3] >> 16, 8), at[4];
    bool norm = s.op.flags & WEFT_OP_NORM;
    float acc[G][2][1][4] = {}, ss[1] = {};
    x_chunk<FORM> x[AHEAD] = {}; // else a register that some path leaves unset stays live through all other bodies
    matrix_offsets(at, t, t.warp);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        reader.load(x[u], u);
    for (uint32_t ch0 = 0; ch0 < chunks; ch0 += AHEAD) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            uint32_t ch = ch0 + u;
            if (ch >= chunks) break;
            bool mine = ch < reader.mine;
            uint32_t b[1][8] = {};
            if (mine) {
                if (!reader.finish(x, u, ch)) return false;
                x[u].operands(b, t.lane);
                if (norm) add_squares(b, ss);
            }
            if (!mma_chunk<1, G, 2>(acc, at, ng, mine, b, t)) return false;
            reader.load(x[u], ch + AHEAD);
        }
    }
    if (norm) sum_squares(ss);
    if (!await_all(s)) return false; // waits that no chunk needed (the residual's)
    if constexpr (FORM == X_ONE_ROW)
        return finish_one_row<G>(s, seq, t, acc, ss[0]);
    else
        return finish_groups<1, G, 2>(s, seq, t, acc, ss);
}

// Block `block` of a chunk of x, which starts in page `page`.
template <int MT> WEFT_DEV void load_block(uint32_t (&b)[MT][8], uint32_t page, uint32_t block, uint32_t lane)
{
    constexpr uint32_t PER_PAGE = MT < 4 ? 8 : 16 / MT;
    page += block / PER_PAGE;
    const uint4 *x = (const uint4 *)(smem()->page[page < PAGES ? page : page - PAGES] +
                                     block % PER_PAGE * MT * WEFT_FRAG_BYTES) +
                     lane;
#pragma unroll
    for (int j = 0; j < MT; j++) {
        uint4 lo = x[j * 64], hi = x[j * 64 + 32];
        b[j][0] = lo.x, b[j][1] = lo.y, b[j][2] = lo.z, b[j][3] = lo.w;
        b[j][4] = hi.x, b[j][5] = hi.y, b[j][6] = hi.z, b[j][7] = hi.w;
    }
}

// A page of W times the chunk's x: this warp's blocks of it. `squares`: add those of x too.
template <int MT, int SETS, int KW>
WEFT_DEV void mma_blocks(float (&acc)[SETS][MT][4], float (&ss)[MT], const consumer &t, uint32_t x_page,
                         uint32_t blocks, bool squares)
{
#pragma unroll
    for (uint32_t i = 0; i < 8 / KW; i++) {
        uint32_t block = t.warp / (CONSUMER_WARPS / KW) + i * KW, b[MT][8], at[4];
        if (block >= blocks) break;
        load_block(b, x_page, block, t.lane);
        matrix_offsets(at, t, block);
        mma_page<MT, SETS>(acc, at, t.page, b);
        if (squares) add_squares(b, ss);
    }
}

template <int MT> WEFT_DEV void release_x(consumer from)
{
#pragma unroll
    for (uint32_t i = 0; i < x_pages(MT); i++) {
        release_page(from);
        next_page(from);
    }
}

// x through pages: up to 8 MT rows. Rows past the task's are whatever the page held; their products are not stored.
template <int MT, int G, int KW> WEFT_DEV bool stream_pages(weft_slot &s, uint32_t seq, consumer &t)
{
    constexpr uint32_t TEAMS = CONSUMER_WARPS / KW;
    constexpr int SETS = MT == 1 ? 2 : 1, GL = (G + TEAMS - 1) / TEAMS;
    uint32_t ng = s.task.tile[2], nkb = s.task.tile[3] >> 16, team = t.warp % TEAMS, at[4];
    bool norm = s.op.flags & WEFT_OP_NORM;
    float acc[GL][SETS][MT][4] = {}, ss[MT] = {};
    matrix_offsets(at, t, t.warp);
    for (uint32_t kb = 0; kb < nkb; kb += 8) {
        consumer from = t;
#pragma unroll
        for (uint32_t i = 0; i < x_pages(MT); i++) { // all of them: a warp that ran ahead would free a page twice
            if (!await_full(t)) return false;
            next_page(t);
        }
        if constexpr (KW == 8) { // one block a warp: x is read once, and its pages go back at once
            uint32_t b[MT][8];
            bool mine = kb + t.warp < nkb;
            load_block(b, from.page, t.warp, t.lane);
            if (norm && mine) add_squares(b, ss);
            release_x<MT>(from);
            if (!mma_chunk<MT, G, SETS>(acc, at, ng, mine, b, t)) return false;
        } else {
#pragma unroll
            for (uint32_t l = 0; l < GL; l++)
                for (uint32_t i = 0; i < TEAMS && l * TEAMS + i < ng; i++) {
                    if (!await_full(t)) return false;
                    if (i == team) mma_blocks<MT, SETS, KW>(acc[l], ss, t, from.page, nkb - kb, norm && l == 0);
                    release_page(t);
                    next_page(t);
                }
            release_x<MT>(from);
        }
    }
    if (norm) sum_squares(ss);
    if (!await_all(s)) return false; // waits that no chunk needed (the residual's)
    if constexpr (MT <= 2)
        return finish_groups<MT, GL, SETS>(s, seq, t, acc, ss);
    else
        return finish_units<MT, GL, SETS, KW>(s, seq, t, acc, ss);
}

template <int MT> WEFT_DEV bool stream_rows_of(weft_slot &s, uint32_t seq, consumer &t)
{
    if constexpr (MT <= 2) return stream_pages<MT, 8, 8>(s, seq, t);
    if (s.task.tile[2] == 1) return stream_pages<MT, 1, 8>(s, seq, t);
    if (s.task.tile[2] == 2) return stream_pages<MT, 2, 4>(s, seq, t);
    return stream_pages < MT, MT < 8 ? 8 : 4, 2 > (s, seq, t);
}

WEFT_DEV bool body_gemm_stream(const cta &, weft_slot &s, consumer &t)
{
    uint32_t ng = s.task.tile[2], seq = step_of(s).seq;
    if (s.op.flags & WEFT_OP_X_PACKET && s.op.m == 1)
        return ng == 1 ? stream_packets<1, X_ONE_ROW>(s, seq, t) : stream_packets<8, X_ONE_ROW>(s, seq, t);
    if (s.op.flags & WEFT_OP_X_PACKET) return stream_packets<8, X_PACKETS>(s, seq, t);
    switch (x_blocks(stream_rows(s))) {
    case 1: return stream_rows_of<1>(s, seq, t);
    case 2: return stream_rows_of<2>(s, seq, t);
    case 4: return stream_rows_of<4>(s, seq, t);
    default: return stream_rows_of<8>(s, seq, t);
    }
}

#endif
