// body_attn.cuh: attention of one worker's share of a mixed batch, and the combination of its partial results.
//
// Queries of one KV head are the rows of A (at most 8 of 16 are used), keys the columns of B, so the probabilities are in
// place as A of the second product (FlashAttention-2, Dao 2023). Warps 0..3 take the even pages of 64 tokens, warps 4..7 the
// odd ones, 16 tokens a warp; each keeps its own maximum, sum and output, which meet in scratch at the unit's end.
#ifndef WEFT_BODY_ATTN_CUH
#define WEFT_BODY_ATTN_CUH

#include "attn.cuh"
#include "body_stream.cuh"

constexpr float LOG2E = 1.4426950408889634f;
constexpr uint32_t ATTN_MERGE_HEADS = 4; // queries a merge round
static_assert(CONSUMER_WARPS * ATTN_MERGE_HEADS * (128 + 2) * sizeof(float) <= SCRATCH_BYTES - 4, "a round fits");

template <uint32_t DIM> struct attn_state { // of this lane's query (lane / 4): logits in units of log2
    float max, sum, o[DIM / 8][4];
};

// Queries of one KV head as A: row = query, zero past `hpk`.
template <uint32_t DIM>
WEFT_DEV void load_queries(uint32_t (&q)[DIM / 16][2], const weft_slot &s, const attn_unit &u, uint32_t hpk,
                           uint32_t lane)
{
    const uint8_t *row = (const uint8_t *)s.op.x +
                         ((uint64_t)u.row * s.op.param[ATTN_HEADS] + u.head * hpk + lane / 4) * DIM * 2;
    for (uint32_t k = 0; k < DIM / 16; k++)
        for (uint32_t h = 0; h < 2; h++)
            q[k][h] = lane / 4 < hpk ? ld_cg32((const uint32_t *)row + k * 8 + h * 4 + lane % 4) : 0;
}

// 16 tokens from `tok` of the pages at (k, v); `valid` of them count.
template <uint32_t DIM>
WEFT_DEV void attn_tokens(attn_state<DIM> &a, const uint32_t (&q)[DIM / 16][2], const uint8_t *k, const uint8_t *v,
                          uint32_t tok, uint32_t valid, float scale, uint32_t lane)
{
    float d[2][4] = {};
    uint32_t row = tok + (lane % 8) + (lane / 16) * 8, pick = lane / 8 % 2;
#pragma unroll
    for (uint32_t i = 0; i < DIM / 16; i++) {
        uint32_t b[4], a4[4] = {q[i][0], 0, q[i][1], 0};
        ldmatrix_x4(b, smem_addr(k) + (i / 4) * 8192 + row * 128 + ((((i % 4) * 2 + pick) ^ (row & 7)) << 4));
        mma_bf16(d[0], a4, b[0], b[1]);
        mma_bf16(d[1], a4, b[2], b[3]);
    }
    float top = a.max, p[4];
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t at = (i / 2) * 8 + (lane % 4) * 2 + i % 2;
        p[i] = at < valid ? d[i / 2][i % 2] * scale : -INFINITY;
        top = fmaxf(top, p[i]);
    }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    float keep = a.max == -INFINITY ? 0.0f : exp2f(a.max - top);
    a.max = top;
    a.sum *= keep;
    for (uint32_t i = 0; i < 4; i++) {
        p[i] = p[i] == -INFINITY ? 0.0f : exp2f(p[i] - top);
        a.sum += p[i];
    }
    uint32_t pa[4] = {pack_bf16(p[0], p[1]), 0, pack_bf16(p[2], p[3]), 0};
    // What lies behind the last token may be anything, and 0 * NaN is NaN: those rows of V count as zero.
    uint32_t token = lane % 4 * 2, keep_v[2];
    for (uint32_t h = 0; h < 2; h++, token += 8)
        keep_v[h] = (token < valid ? 0xffffu : 0u) | (token + 1 < valid ? 0xffff0000u : 0u);
    uint32_t vrow = tok + (lane % 8) + (lane / 8 % 2) * 8, vpick = lane / 16;
#pragma unroll
    for (uint32_t i = 0; i < DIM / 16; i++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, smem_addr(v) + (i / 4) * 8192 + vrow * 128 + ((((i % 4) * 2 + vpick) ^ (vrow & 7)) << 4));
        if (valid < 16) b[0] &= keep_v[0], b[1] &= keep_v[1], b[2] &= keep_v[0], b[3] &= keep_v[1];
        for (uint32_t h = 0; h < 2; h++) {
            float(&o)[4] = a.o[i * 2 + h];
            o[0] *= keep, o[1] *= keep;
            mma_bf16(o, pa, b[h * 2], b[h * 2 + 1]);
        }
    }
}

// Merges the eight warps' states of queries h0 .. h0 + 3 and writes the unit's partial result.
template <uint32_t DIM>
WEFT_DEV bool attn_merge(const weft_slot &s, const attn_unit &u, const attn_state<DIM> &a, uint32_t hpk, uint32_t h0,
                         const consumer &t)
{
    constexpr uint32_t FLOATS = DIM + 2; // output, maximum, sum
    float *all = (float *)smem()->scratch;
    if (!consumer_sync()) return false; // the round before has been read
    uint32_t h = t.lane / 4;
    if (h >= h0 && h < h0 + ATTN_MERGE_HEADS) {
        float *p = all + (t.warp * ATTN_MERGE_HEADS + h - h0) * FLOATS;
        for (uint32_t i = 0; i < DIM / 8; i++)
            p[i * 8 + (t.lane % 4) * 2] = a.o[i][0], p[i * 8 + (t.lane % 4) * 2 + 1] = a.o[i][1];
        if (t.lane % 4 == 0) p[DIM] = a.max, p[DIM + 1] = a.sum;
    }
    if (!consumer_sync()) return false;
    uint32_t tid = t.warp * 32 + t.lane, mine = tid / (DIM / 2), dim = tid % (DIM / 2) * 2, q = h0 + mine;
    if (mine >= ATTN_MERGE_HEADS || q >= hpk) return true;
    float top = -INFINITY, sum = 0, lo = 0, hi = 0;
    for (uint32_t w = 0; w < CONSUMER_WARPS; w++)
        top = fmaxf(top, all[(w * ATTN_MERGE_HEADS + mine) * FLOATS + DIM]);
    for (uint32_t w = 0; w < CONSUMER_WARPS; w++) {
        const float *p = all + (w * ATTN_MERGE_HEADS + mine) * FLOATS;
        if (p[DIM] == -INFINITY) continue;
        float f = exp2f(p[DIM] - top);
        sum += p[DIM + 1] * f, lo += p[dim] * f, hi += p[dim + 1] * f;
    }
    uint64_t unit = ((uint64_t)u.row * s.op.param[ATTN_KV_HEADS] + u.head) * s.op.param[ATTN_MAX_BLOCKS] + u.block;
    float *out = (float *)s.op.partial + unit * hpk * FLOATS;
    if (dim == 0) out[q] = top / LOG2E, out[hpk + q] = sum;
    out[2 * hpk + q * DIM + dim] = lo, out[2 * hpk + q * DIM + dim + 1] = hi;
    return true;
}

// The partial results of a row's queries of one KV head, added in block order; zeros where there are no blocks. False: leave.
WEFT_DEV bool combine_pair(weft_slot &s, uint32_t row, uint32_t head, uint32_t blocks, uint32_t tid)
{
    uint32_t kv_heads = s.op.param[ATTN_KV_HEADS], hpk = s.op.param[ATTN_HEADS] / kv_heads,
             dims = s.op.param[ATTN_HEAD_DIM], pairs = dims / 2, floats = dims + 2;
    for (uint32_t q = tid / pairs; q < hpk; q += CONSUMERS / pairs) {
        uint32_t dim = tid % pairs * 2;
        float top = -INFINITY, sum = 0, lo = 0, hi = 0;
#pragma unroll 4
        for (uint32_t b = 0; b < blocks; b++) {
            const float *p = (const float *)s.op.partial +
                             (((uint64_t)row * kv_heads + head) * s.op.param[ATTN_MAX_BLOCKS] + b) * hpk * floats;
            float m = __ldcg(p + q), next = fmaxf(top, m), keep = top == -INFINITY ? 0.0f : __expf(top - next),
                  f = __expf(m - next);
            sum = sum * keep + __ldcg(p + hpk + q) * f;
            lo = lo * keep + __ldcg(p + 2 * hpk + q * dims + dim) * f;
            hi = hi * keep + __ldcg(p + 2 * hpk + q * dims + dim + 1) * f;
            top = next;
        }
        float scale = sum > 0 ? 1.0f / sum : 0.0f;
        if (!store_pair(s, step_of(s).seq, row, (head * hpk + q) * dims + dim, lo * scale, hi * scale)) return false;
    }
    return true;
}

// Where ATTN has an out: whoever finishes the last unit of a row and KV head combines them all. False: leave.
WEFT_DEV bool finish_unit(weft_slot &s, const attn_unit &u, const consumer &t)
{
    uint32_t tid = t.warp * 32 + t.lane, blocks = weft_div_up(u.tokens, s.op.param[ATTN_BLOCK_TOKENS]);
    uint32_t *last = (uint32_t *)(smem()->scratch + SCRATCH_BYTES) - 1;
    if (!consumer_sync()) return false; // the unit is stored
    if (blocks > 1) {
        if (tid == 0) {
            uint32_t *word = (uint32_t *)s.op.squares + u.row * s.op.param[ATTN_KV_HEADS] + u.head;
            bool mine = weft_atom_add_acq_rel_gpu(word, 1) + 1 == blocks; // each releases to the last, which acquires
            if (mine) weft_st_relaxed_gpu(word, 0);
            *last = mine;
        }
        if (!consumer_sync()) return false;
        if (!*last) return true;
    }
    return combine_pair(s, u.row, u.head, blocks, tid);
}

// Rows without units: the first share makes zeros of them. False: leave.
WEFT_DEV bool finish_idle_rows(weft_slot &s, const consumer &t)
{
    if (s.task.tile[0] != 0) return true;
    for (uint32_t row = 0, n = batch_rows(s); row < rows_to_write(s); row++) {
        if (row < n && ld_cg32(&batch_of(s)->row[row].kv_len) > 0) continue;
        for (uint32_t h = 0; h < s.op.param[ATTN_KV_HEADS]; h++)
            if (!combine_pair(s, row, h, 0, t.warp * 32 + t.lane)) return false;
    }
    return true;
}

template <uint32_t DIM> WEFT_DEV bool attn_of_dim(weft_slot &s, consumer &t)
{
    constexpr uint32_t PAGES_EACH = DIM / 64;
    attn_share share(s); // the step's rows are there before its inputs are
    if (!await_all(s)) return false;
    if (t.page % PAGES_EACH != 0) { // as the loader does
        if (!await_full(t)) return false;
        release_page(t);
        next_page(t);
    }
    uint32_t hpk = s.op.param[ATTN_HEADS] / s.op.param[ATTN_KV_HEADS], group = t.warp / 4;
    float scale = rsqrtf((float)DIM) * LOG2E;
    for (attn_unit u; share.next(u);) {
        uint32_t q[DIM / 16][2], page = 0;
        load_queries<DIM>(q, s, u, hpk, t.lane);
        attn_state<DIM> a = {-INFINITY, 0, {}};
        for (uint32_t tok = u.first; tok < u.last; tok += ATTN_PAGE_TOKENS, page++) {
            uint32_t k = t.page, v = t.page + PAGES_EACH - 1, from = (t.warp % 4) * 16, n = u.last - tok;
            // K and V come together. All wait, though half of them read: a warp that ran ahead would free a page twice.
            if (!await(&smem()->full[k], t.parity) || !await(&smem()->full[v], t.parity)) return false;
            if (page % 2 == group && from < n)
                attn_tokens<DIM>(a, q, smem()->page[k], smem()->page[k] + DIM * 128, from, n - from, scale, t.lane);
            for (uint32_t i = 0; i < PAGES_EACH; i++, next_page(t))
                release_page(t);
        }
        a.sum += __shfl_xor_sync(~0u, a.sum, 1);
        a.sum += __shfl_xor_sync(~0u, a.sum, 2);
        for (uint32_t h0 = 0; h0 < hpk; h0 += ATTN_MERGE_HEADS)
            if (!attn_merge<DIM>(s, u, a, hpk, h0, t)) return false;
        if (s.op.squares && !finish_unit(s, u, t)) return false;
    }
    return !s.op.squares || finish_idle_rows(s, t);
}

WEFT_DEV bool body_attn(const cta &, weft_slot &s, consumer &t)
{
    return attn_pages(s) == 1 ? attn_of_dim<64>(s, t) : attn_of_dim<128>(s, t);
}

// Adds the partial results of each (row, KV head) in block order.
WEFT_DEV bool body_attn_combine(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t kv_heads = s.op.param[ATTN_KV_HEADS], n_row = min(batch_rows(s), s.op.m), last = rows_to_write(s);
    for (uint32_t i = s.task.tile[0]; i < s.task.tile[0] + s.task.tile[1]; i++) {
        uint32_t row = i / kv_heads;
        if (row >= last) break;
        uint32_t tokens = row < n_row ? ld_cg32(&batch_of(s)->row[row].kv_len) : 0;
        if (!combine_pair(s, row, i % kv_heads, weft_div_up(tokens, s.op.param[ATTN_BLOCK_TOKENS]),
                          t.warp * 32 + t.lane))
            return false;
    }
    return true;
}

#endif
