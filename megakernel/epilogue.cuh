// epilogue.cuh: what happens to a sum on its way to memory: residual, bias, activation, gate; then out and its packets.
#ifndef WEFT_EPILOGUE_CUH
#define WEFT_EPILOGUE_CUH

#include "cta.cuh"

WEFT_DEV float silu(float v) { return v / (1.0f + __expf(-v)); }
WEFT_DEV float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

// Two adjacent elements (n even) of row m of a 16-bit tensor.
WEFT_DEV uint32_t *pair_at(uint64_t base, uint32_t layout, uint32_t rows, uint32_t cols, uint32_t m, uint32_t n)
{
    return (uint32_t *)(base + weft_offset16(layout, rows, cols, m, n));
}

// The residual's pair (m, n), from its packets where the op says so. False: leave.
WEFT_DEV bool load_aux_pair(weft_slot &s, uint32_t seq, uint32_t m, uint32_t n, uint32_t *pair)
{
    if (!(s.op.flags & WEFT_OP_AUX_PACKET)) {
        *pair = ld_cg32(pair_at(s.op.aux, s.op.aux_layout, s.op.out_rows, s.op.out_cols, m, n));
        return true;
    }
    uint32_t index = weft_packet_index(weft_packet_rows(s.op.m), m, n);
    uint64_t got;
    while ((uint32_t)((got = weft_ld_relaxed_b64_sys((const uint64_t *)s.op.pk_aux + index)) >> 32) != seq) {
        note_stall(index, seq, (uint32_t)(got >> 32));
        if (leaving()) return false;
    }
    *pair = (uint32_t)got;
    return true;
}

// out[m][n], out[m][n + 1] = lo, hi (the epilogue's other half: residual, bias, activation), n even. False: leave.
WEFT_DEV bool store_pair(weft_slot &s, uint32_t seq, uint32_t m, uint32_t n, float lo, float hi)
{
    bool odd_end = n + 1 >= s.op.out_cols;
    if (s.op.epilogue == WEFT_EPI_RESIDUAL) {
        uint32_t aux;
        if (odd_end && s.op.aux_layout == WEFT_LAYOUT_ROW)
            aux = *(const uint16_t *)pair_at(s.op.aux, s.op.aux_layout, s.op.out_rows, s.op.out_cols, m, n);
        else if (!load_aux_pair(s, seq, m, n, &aux))
            return false;
        lo += bf16_lo(aux), hi += bf16_hi(aux);
    } else if (s.op.epilogue == WEFT_EPI_BIAS) {
        lo += __ldg((const float *)s.op.aux + n);
        if (!odd_end) hi += __ldg((const float *)s.op.aux + n + 1);
    } else if (s.op.epilogue == WEFT_EPI_SILU) {
        lo = silu(lo), hi = silu(hi);
    } else if (s.op.epilogue == WEFT_EPI_GELU) {
        lo = gelu(lo), hi = gelu(hi);
    }
    uint32_t word = pack_bf16(lo, odd_end ? 0.0f : hi);
    if (s.op.flags & WEFT_OP_OUT_PACKET) {
        uint64_t *p = (uint64_t *)s.op.pk_out + weft_packet_index(weft_packet_rows(s.op.m), m, n),
                 v = word | (uint64_t)seq << 32;
        if (s.op.flags & WEFT_OP_OUT_SYS)
            weft_st_relaxed_b64_sys(p, v);
        else
            weft_st_relaxed_b64_gpu(p, v);
    }
    uint32_t *out = pair_at(s.op.out, s.op.out_layout, s.op.out_rows, s.op.out_cols, m, n);
    if (s.op.out_layout != WEFT_LAYOUT_ROW) {
        *out = word;
    } else { // rows of odd length: no 4-byte alignment
        ((uint16_t *)out)[0] = (uint16_t)word;
        if (!odd_end) ((uint16_t *)out)[1] = (uint16_t)(word >> 16);
    }
    return true;
}

// Eight elements out[m][n ..], n a multiple of 8; one 16-byte store where the layout keeps them together. False: leave.
WEFT_DEV bool store_eight(weft_slot &s, uint32_t seq, uint32_t m, uint32_t n, const float (&v)[8])
{
    bool whole = s.op.out_layout == WEFT_LAYOUT_PANEL || (s.op.out_layout == WEFT_LAYOUT_ROW && s.op.out_cols % 8 == 0);
    bool plain = s.op.epilogue == WEFT_EPI_NONE || s.op.epilogue == WEFT_EPI_GATED_SILU;
    if (whole && (plain || (s.op.epilogue == WEFT_EPI_RESIDUAL && s.op.aux_layout == s.op.out_layout)) &&
        !(s.op.flags & WEFT_OP_OUT_PACKET)) {
        uint64_t at = weft_offset16(s.op.out_layout, s.op.out_rows, s.op.out_cols, m, n);
        uint4 aux = plain ? make_uint4(0, 0, 0, 0) : ld_cg((const uint8_t *)s.op.aux + at);
        *(uint4 *)(s.op.out + at) = make_uint4(pack_bf16(v[0] + bf16_lo(aux.x), v[1] + bf16_hi(aux.x)),
                                               pack_bf16(v[2] + bf16_lo(aux.y), v[3] + bf16_hi(aux.y)),
                                               pack_bf16(v[4] + bf16_lo(aux.z), v[5] + bf16_hi(aux.z)),
                                               pack_bf16(v[6] + bf16_lo(aux.w), v[7] + bf16_hi(aux.w)));
        return true;
    }
    float lo[4] = {v[0], v[2], v[4], v[6]}, hi[4] = {v[1], v[3], v[5], v[7]};
    for (uint32_t i = 0; i < 4; i++, n += 2) {
        if (n < s.op.out_cols && !store_pair(s, seq, m, n, lo[0], hi[0])) return false;
        lo[0] = lo[1], lo[1] = lo[2], lo[2] = lo[3], hi[0] = hi[1], hi[1] = hi[2], hi[2] = hi[3];
    }
    return true;
}

// What the sums of a row are multiplied with, given its sum of squares. Of a part of K: 1, and the sum goes beside the partial
// sums of group g, for REDUCE, from the thread that says `store`.
WEFT_DEV float norm_factor(weft_slot &s, uint32_t g, uint32_t m, float sum, bool store)
{
    if (!(s.op.flags & WEFT_OP_PARTIAL)) return rsqrtf(sum / (float)s.op.k + s.op.eps);
    uint32_t split = (s.task.tile[3] & 0xffff) / s.op.split_kb;
    if (store) ((float *)s.op.squares)[weft_partial_index(s.op.m, weft_div_up(s.op.n, 16), split, m, g)] = sum;
    return 1.0f;
}

// The 16 rows of group g of W times row m of x. False: leave.
WEFT_DEV bool store_sixteen(weft_slot &s, uint32_t seq, uint32_t g, uint32_t m, const float (&v)[16])
{
    if (s.op.flags & WEFT_OP_PARTIAL) {
        float4 *p = (float4 *)((float *)s.op.partial + weft_partial_index(s.op.m, s.op.n,
                                                                          (s.task.tile[3] & 0xffff) / s.op.split_kb, m,
                                                                          g * 16));
        for (int i = 0; i < 4; i++)
            p[i] = make_float4(v[i * 4], v[i * 4 + 1], v[i * 4 + 2], v[i * 4 + 3]);
        return true;
    }
    bool gated = s.op.epilogue == WEFT_EPI_GATED_SILU;
    float e[2][8];
    for (int i = 0; i < 8; i++)
        e[0][i] = gated ? silu(v[i]) * v[8 + i] : v[i], e[1][i] = v[8 + i];
    uint32_t n = gated ? g * 8 : g * 16;
    if (n < s.op.out_cols && !store_eight(s, seq, m, n, e[0])) return false;
    return gated || n + 8 >= s.op.out_cols || store_eight(s, seq, m, n + 8, e[1]);
}

// Row r of group g of W times row m of x, one value a thread; threads 16 q .. 16 q + 15 hold one group. False: leave.
WEFT_DEV bool store_group(weft_slot &s, uint32_t seq, uint32_t g, uint32_t m, uint32_t r, float v, bool mine)
{
    bool ok = true;
    if (s.op.flags & WEFT_OP_PARTIAL) {
        uint32_t split = (s.task.tile[3] & 0xffff) / s.op.split_kb;
        if (mine) ((float *)s.op.partial)[weft_partial_index(s.op.m, s.op.n, split, m, g * 16 + r)] = v;
        return true;
    }
    if (s.op.epilogue == WEFT_EPI_GATED_SILU) {
        float up = __shfl_down_sync(__activemask(), v, 8);
        v = silu(v) * up; // in threads r < 8
    }
    float next = __shfl_down_sync(__activemask(), v, 1);
    bool gated = s.op.epilogue == WEFT_EPI_GATED_SILU;
    uint32_t n = gated ? g * 8 + r : g * 16 + r;
    if (mine && r % 2 == 0 && (!gated || r < 8) && n < s.op.out_cols) ok = store_pair(s, seq, m, n, v, next);
    return ok;
}

#endif
