// body_decode.cuh: what of a decoder is neither GEMM nor attention: pages, embed, rope, sample (tasks/attn.h, tasks/sample.h).
#ifndef WEFT_BODY_DECODE_CUH
#define WEFT_BODY_DECODE_CUH

#include "../tasks/sample.h"
#include "attn.cuh"
#include "body_small.cuh"

WEFT_DEV bool body_pages(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t rows = batch_rows(s), before = WEFT_BATCH_BYTES(rows, 0), bytes = step_of(s).payload_bytes;
    if (bytes < before) return true;
    uint32_t n = min(ld_cg32(&batch_of(s)->n_write), (bytes - before) / 8);
    const uint32_t *w = (const uint32_t *)&batch_of(s)->row[rows];
    for (uint32_t i = t.warp * 32 + t.lane; i < n; i += CONSUMERS) {
        uint32_t at = ld_cg32(w + 2 * i), slot = at & 0xffff, index = at >> 16;
        if (slot < s.op.out_rows && index < s.op.out_cols)
            ((uint32_t *)s.op.out)[(uint64_t)slot * s.op.out_cols + index] = ld_cg32(w + 2 * i + 1);
    }
    return true;
}

WEFT_DEV bool body_embed(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t end = min(s.task.tile[0] + s.task.tile[3], rows_to_write(s)), n_row = batch_rows(s), seq = step_of(s).seq;
    for (uint32_t m = s.task.tile[0]; m < end; m++) {
        bool used = m < n_row;
        uint32_t token = used ? ld_cg32(&batch_of(s)->row[m].token) : WEFT_NONE;
        if (used && token & WEFT_TOKEN_OF)
            token = ld_cg32((const uint32_t *)s.op.x + (seq - 1) % 2 * WEFT_MAX_ROWS + token % WEFT_MAX_ROWS);
        bool known = token < s.op.n;
        uint32_t instead = used ? 0x7fff7fffu : 0; // NaN: there is no such token
        for (uint32_t c = (t.warp * 32 + t.lane) * 2; c < s.op.k; c += CONSUMERS * 2) {
            uint32_t w = known ? __ldg((const uint32_t *)(s.op.w + weft_atom_offset(s.op.k, token, c))) : instead;
            if (!store_pair(s, seq, m, c, bf16_lo(w), bf16_hi(w))) return false;
        }
    }
    return true;
}

// ------------------------------------------------------------------------------------------------------------- rope

struct turned { // elements 2j, 2j + 1 of a head, and those half a head further
    float lo[2], hi[2];
};

WEFT_DEV uint32_t head_pair(const weft_slot &s, uint32_t row, uint32_t col)
{
    return ld_cg32(pair_at(s.op.x, s.op.x_layout, s.op.m, s.op.k, row, col));
}

WEFT_DEV float round_bf16(float v) { return bf16_lo(pack_bf16(v, 0.0f)); }

// Angles as fp32 has them; then exact turns, so that large ones take no other way.
WEFT_DEV void turn_pair(float &a, float &b, float angle)
{
    double turns = (double)angle * 0.15915494309189535;
    float sine, cosine, x = a, y = b;
    sincospif((float)(turns - floor(turns)) * 2.0f, &sine, &cosine);
    a = x * cosine - y * sine;
    b = y * cosine + x * sine;
}

WEFT_DEV void norm_pairs(const weft_slot &s, turned &v, const float *gain, uint32_t j, uint32_t half)
{
    float sum = v.lo[0] * v.lo[0] + v.lo[1] * v.lo[1] + v.hi[0] * v.hi[0] + v.hi[1] * v.hi[1];
    for (uint32_t i = 16; i > 0; i /= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    float factor = rsqrtf(sum / (float)(2 * half) + s.op.eps);
    if (2 * j >= half) return;
    for (uint32_t i = 0; i < 2; i++) {
        v.lo[i] = round_bf16(v.lo[i] * factor * __ldg(gain + 2 * j + i));
        v.hi[i] = round_bf16(v.hi[i] * factor * __ldg(gain + half + 2 * j + i));
    }
}

// A warp a head; lane j has elements 2j, 2j + 1 and those half a head further.
WEFT_DEV bool body_rope(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s)) return false;
    uint32_t dim = s.op.param[ATTN_HEAD_DIM], half = dim / 2, kv_heads = s.op.param[ATTN_KV_HEADS],
             hpk = s.op.param[ATTN_HEADS] / kv_heads, j = t.lane, each = hpk + 2,
             rows = min(s.task.tile[3], s.op.m - s.task.tile[0]), n_row = batch_rows(s);
    const float *frequency = (const float *)s.op.scale, *gain = frequency + half;
    for (uint32_t i = t.warp; i < rows * s.task.tile[2] * each; i += CONSUMER_WARPS) {
        uint32_t part = i % each, h = s.task.tile[1] + i / each % s.task.tile[2],
                 row = s.task.tile[0] + i / each / s.task.tile[2];
        if (row >= n_row) break;
        uint32_t kv_len = ld_cg32(&batch_of(s)->row[row].kv_len), position = kv_len - 1;
        if (kv_len == 0) continue;
        bool mine = 2 * j < half, is_q = part < hpk, is_v = part == hpk + 1;
        uint32_t col = (h * each + part) * dim + 2 * j;
        uint32_t lo = mine ? head_pair(s, row, col) : 0, hi = mine ? head_pair(s, row, col + half) : 0;
        if (!is_v) {
            turned v = {{bf16_lo(lo), bf16_hi(lo)}, {bf16_lo(hi), bf16_hi(hi)}};
            if (s.op.flags & WEFT_OP_NORM) norm_pairs(s, v, is_q ? gain : gain + dim, j, half);
            for (uint32_t e = 0; e < 2 && mine; e++)
                turn_pair(v.lo[e], v.hi[e], (float)position * __ldg(frequency + 2 * j + e));
            lo = pack_bf16(v.lo[0], v.lo[1]), hi = pack_bf16(v.hi[0], v.hi[1]);
        }
        if (!mine) continue;
        if (is_q) {
            uint32_t *q = (uint32_t *)(s.op.out + (((uint64_t)row * kv_heads + h) * hpk + part) * dim * 2) + j;
            q[0] = lo, q[half / 2] = hi;
            continue;
        }
        uint32_t slot = ld_cg32(&batch_of(s)->row[row].slot), token = position % ATTN_PAGE_TOKENS,
                 page = ld_cg32((const uint32_t *)s.op.aux + (uint64_t)slot * s.op.param[ATTN_MAX_PAGES] +
                                position / ATTN_PAGE_TOKENS);
        uint8_t *kv = (uint8_t *)s.op.w + weft_attn_page_offset(kv_heads, dim, page, h, is_v);
        *(uint32_t *)(kv + weft_attn_element(token, 2 * j)) = lo;
        *(uint32_t *)(kv + weft_attn_element(token, half + 2 * j)) = hi;
    }
    return true;
}

// ----------------------------------------------------------------------------------------------------------- sample

constexpr uint32_t SAMPLE_BINS = 64, SAMPLE_BITS_AT = 1024; // bytes of scratch before the bits of tokens held
constexpr float SAMPLE_UNIT = 1099511627776.0f; // 2^40: weights are added as whole numbers, in any order the same

struct sample_scratch {
    unsigned long long bin[SAMPLE_BINS];
    float value[CONSUMER_WARPS], other[CONSUMER_WARPS];
    uint32_t index[CONSUMER_WARPS];
};
static_assert(sizeof(sample_scratch) <= SAMPLE_BITS_AT, "it lies before the bits");

struct sampling { // one row's
    uint32_t row, n;
    float factor, max, scale, penalty; // scale: 1 / temperature
    bool held;
};

WEFT_DEV sample_scratch *sample_smem(void) { return (sample_scratch *)smem()->scratch; }
WEFT_DEV uint32_t *held_bits(void) { return (uint32_t *)(smem()->scratch + SAMPLE_BITS_AT); }

WEFT_DEV float raw_logit(const weft_slot &s, const sampling &r, uint32_t token)
{
    float v = __ldcg((const float *)s.op.partial + weft_partial_index(s.op.m, s.op.n, 0, r.row, token));
    return s.op.flags & WEFT_OP_NORM ? v * r.factor : v; // a NaN keeps its bits
}
WEFT_DEV float logit_of(const weft_slot &s, const sampling &r, uint32_t token)
{
    float v = raw_logit(s, r, token); // what it holds was marked before
    if (!r.held || !(held_bits()[token / 32] >> token % 32 & 1)) return v;
    return v > 0 ? v / r.penalty : v * r.penalty;
}

WEFT_DEV uint32_t own_token(const cta &c, const weft_slot &s, const weft_step_row *at)
{
    uint32_t token = ld_cg32(&at->token);
    if (!(token & WEFT_TOKEN_OF)) return token;
    return weft_ld_relaxed_sys(&mailbox(c)->result[(step_of(s).seq - 1) % WEFT_STEP_RING].token[token % WEFT_MAX_ROWS]);
}

WEFT_DEV uint32_t *token_place(const weft_slot &s, const weft_step_row *at, uint32_t position)
{
    uint32_t page = ld_cg32((const uint32_t *)s.op.x + (uint64_t)ld_cg32(&at->slot) * s.op.param[0] + position / 64);
    return (uint32_t *)s.op.w + (uint64_t)page * 64 + position % 64;
}

WEFT_DEV void hold(const weft_slot &s, uint32_t token)
{
    if (token < s.op.n) atomicOr(held_bits() + token / 32, 1u << token % 32);
}

// Marks the tokens that the row's sequence holds: this step's from the payload, those before from their pages.
WEFT_DEV bool find_held(const cta &c, const weft_slot &s, sampling &r, uint32_t tid)
{
    const weft_step_row *at = &batch_of(s)->row[r.row];
    r.penalty = __uint_as_float(ld_cg32(&at->penalty));
    r.held = s.op.w && r.penalty > 0 && r.penalty != 1.0f && s.op.n / 8 + 4 <= SCRATCH_BYTES - SAMPLE_BITS_AT;
    if (!r.held) return true;
    for (uint32_t i = tid; i < weft_div_up(s.op.n, 32); i += CONSUMERS)
        held_bits()[i] = 0;
    if (!consumer_sync()) return false;
    uint32_t slot = ld_cg32(&at->slot), kv_len = ld_cg32(&at->kv_len), before = kv_len - 1;
    for (uint32_t i = 0; i <= r.row; i++) {
        const weft_step_row *o = &batch_of(s)->row[i];
        uint32_t len = ld_cg32(&o->kv_len);
        if (ld_cg32(&o->slot) != slot || len == 0 || len > kv_len) continue;
        if (tid == 0) hold(s, own_token(c, s, o));
        before = min(before, len - 1);
    }
    for (uint32_t i = tid; i < before; i += CONSUMERS)
        hold(s, ld_cg32(token_place(s, at, i)));
    return consumer_sync();
}

struct
    found { // of some logits: the largest, its token (the first of equals), the sum of exp(. - max), whether one is NaN
    float max;
    uint32_t token;
    float sum;
    bool nan;
};

WEFT_DEV found join(const found &a, const found &b)
{
    bool first = a.max > b.max || (a.max == b.max && a.token < b.token);
    float max = first ? a.max : b.max;
    float sum = max == -INFINITY ? 0.0f : a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max);
    return {max, first ? a.token : b.token, sum, a.nan || b.nan};
}

// The same for all consumers; in a fixed order. False: leave.
WEFT_DEV bool join_all(found &f, const consumer &t)
{
    for (uint32_t i = 16; i > 0; i /= 2) {
        found o = {__shfl_xor_sync(~0u, f.max, i), __shfl_xor_sync(~0u, f.token, i), __shfl_xor_sync(~0u, f.sum, i),
                   (bool)__shfl_xor_sync(~0u, (int)f.nan, i)};
        f = t.lane & i ? join(o, f) : join(f, o);
    }
    sample_scratch *p = sample_smem();
    if (!consumer_sync()) return false; // what was there has been read
    if (t.lane == 0) {
        p->value[t.warp] = f.max, p->other[t.warp] = f.sum, p->index[t.warp] = f.token;
        p->bin[t.warp] = f.nan;
    }
    if (!consumer_sync()) return false;
    f = {p->value[0], p->index[0], p->other[0], p->bin[0] != 0};
    for (uint32_t w = 1; w < CONSUMER_WARPS; w++)
        f = join(f, {p->value[w], p->index[w], p->other[w], p->bin[w] != 0});
    return consumer_sync();
}

// The largest of tokens [first, end), eight loads on their way at once. False: leave.
WEFT_DEV bool find_largest(const weft_slot &s, const sampling &r, const consumer &t, uint32_t first, uint32_t end,
                           found &f)
{
    constexpr uint32_t AHEAD = 8;
    f = {-INFINITY, first, 0, false};
    for (uint32_t i = first + t.warp * 32 + t.lane; i < end; i += CONSUMERS * AHEAD) {
        float v[AHEAD], top = f.max;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            v[k] = i + k * CONSUMERS < end ? logit_of(s, r, i + k * CONSUMERS) : -INFINITY;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
            f.nan = f.nan || v[k] != v[k];
            if (v[k] > top) top = v[k], f.token = i + k * CONSUMERS;
        }
        if (top > f.max) f.sum = f.max == -INFINITY ? 0.0f : f.sum * __expf(f.max - top), f.max = top;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            f.sum += top == -INFINITY ? 0.0f : __expf(v[k] - top);
    }
    return join_all(f, t);
}

WEFT_DEV sampling sampling_of(const weft_slot &s, uint32_t m)
{
    sampling r = {m, s.op.n, 1.0f, 0, 0, 1.0f, false};
    if (s.op.flags & WEFT_OP_NORM) {
        uint64_t i = weft_partial_index(s.op.m, weft_div_up(s.op.n, 16), 0, m, 0);
        r.factor = rsqrtf(__ldcg((const float *)s.op.squares + i) / (float)s.op.k + s.op.eps);
    }
    return r;
}

WEFT_DEV bool body_survey(const cta &, weft_slot &s, consumer &t)
{
    if (!await_all(s) || !consumer_sync()) return false; // scratch: a wide task's stores are over
    uint32_t part = s.task.tile[1], parts = s.task.tile[2], first = weft_survey_first(s.op.n, part, parts),
             last = weft_survey_first(s.op.n, part + 1, parts),
             end = min(s.task.tile[0] + s.task.tile[3], min(batch_rows(s), s.op.m));
    for (uint32_t m = s.task.tile[0]; m < end; m++) {
        found f;
        if (!(ld_cg32(&batch_of(s)->row[m].flags) & WEFT_ROW_SAMPLE)) continue;
        if (!find_largest(s, sampling_of(s, m), t, first, last, f)) return false;
        if (t.warp == 0 && t.lane == 0)
            ((float4 *)s.op.out)[(uint64_t)m * parts + part] = make_float4(f.max, (float)f.token, f.sum,
                                                                           f.nan ? 1.0f : 0.0f);
    }
    return true;
}

// What the parts of a row found, joined: `best` is WEFT_NONE if a logit is NaN. False: leave.
WEFT_DEV bool most_likely(const weft_slot &s, sampling &r, const consumer &t, uint32_t *best, float *logsum)
{
    const uint32_t tid = t.warp * 32 + t.lane, parts = s.op.param[1];
    found f = {-INFINITY, 0xffffff, 0, false};
    for (uint32_t i = tid; i < parts; i += CONSUMERS) {
        float4 v = __ldcg((const float4 *)s.op.scale + (uint64_t)r.row * parts + i);
        f = join(f, {v.x, (uint32_t)v.y, v.z, v.w > 0});
    }
    if (!join_all(f, t)) return false;
    r.max = f.max;
    *best = f.nan ? WEFT_NONE : f.token;
    *logsum = f.max + __logf(f.sum);
    return true;
}

WEFT_DEV unsigned long long weight_units(const sampling &r, float v)
{
    return (unsigned long long)(__expf((v - r.max) * r.scale) * SAMPLE_UNIT);
}

// The largest key such that what is not below it (nor below `lowest`) numbers, or weighs, at least `want`.
WEFT_DEV bool find_threshold(const weft_slot &s, const sampling &r, uint32_t tid, uint32_t lowest,
                             unsigned long long want, bool count, uint32_t *key)
{
    uint32_t prefix = 0, known = 32; // bits below `known` are open
    unsigned long long above = 0;
    while (known > 0) {
        uint32_t bits = known < 6 ? known : 6, shift = known - bits;
        if (tid < SAMPLE_BINS) sample_smem()->bin[tid] = 0;
        if (!consumer_sync()) return false;
        for (uint32_t i = tid; i < s.op.n; i += CONSUMERS) {
            float v = logit_of(s, r, i);
            uint32_t k = weft_sample_key(v);
            if (k < lowest || (known < 32 && k >> known != prefix >> known)) continue;
            atomicAdd(&sample_smem()->bin[k >> shift & ((1u << bits) - 1)], count ? 1ull : weight_units(r, v));
        }
        if (!consumer_sync()) return false;
        uint32_t b = (1u << bits) - 1;
        for (; b > 0 && above + sample_smem()->bin[b] < want; b--)
            above += sample_smem()->bin[b];
        prefix |= b << shift;
        known = shift;
        if (!consumer_sync()) return false;
    }
    *key = prefix;
    return true;
}

// What is not below `lowest` weighs so much. False: leave.
WEFT_DEV bool total_units(const weft_slot &s, const sampling &r, uint32_t tid, uint32_t lowest,
                          unsigned long long *total)
{
    if (tid == 0) sample_smem()->bin[0] = 0;
    if (!consumer_sync()) return false;
    unsigned long long sum = 0;
    for (uint32_t i = tid; i < s.op.n; i += CONSUMERS) {
        float v = logit_of(s, r, i);
        if (weft_sample_key(v) >= lowest) sum += weight_units(r, v);
    }
    atomicAdd(&sample_smem()->bin[0], sum);
    if (!consumer_sync()) return false;
    *total = sample_smem()->bin[0];
    return consumer_sync();
}

// The first token, in order of ids, whose cumulative weight exceeds `stop`: each warp weighs its part of the ids, then one of
// them goes through its own.
WEFT_DEV bool pick(const weft_slot &s, const sampling &r, const consumer &t, uint32_t lowest, unsigned long long stop,
                   uint32_t *token)
{
    uint32_t part = weft_div_up(weft_div_up(s.op.n, CONSUMER_WARPS), 32) * 32, first = t.warp * part,
             end = min(first + part, s.op.n);
    unsigned long long sum = 0, before = 0;
    for (uint32_t i = first + t.lane; i < end; i += 32) {
        float v = logit_of(s, r, i);
        if (weft_sample_key(v) >= lowest) sum += weight_units(r, v);
    }
    for (uint32_t i = 16; i > 0; i /= 2)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (t.lane == 0) sample_smem()->bin[t.warp] = sum;
    if (!consumer_sync()) return false;
    for (uint32_t w = 0; w < t.warp; w++)
        before += sample_smem()->bin[w];
    if (before <= stop && before + sum > stop) { // one warp
        bool found = false;
        for (uint32_t i = first; i < end && !found; i += 32) {
            float v = i + t.lane < end ? logit_of(s, r, i + t.lane) : -INFINITY;
            bool kept = i + t.lane < end && weft_sample_key(v) >= lowest;
            unsigned long long w = kept ? weight_units(r, v) : 0, upto = w;
            for (uint32_t d = 1; d < 32; d *= 2) {
                unsigned long long o = __shfl_up_sync(~0u, upto, d);
                if (t.lane >= d) upto += o;
            }
            uint32_t over = __ballot_sync(~0u, kept && before + upto > stop);
            found = over != 0;
            if (found && t.lane == 0) sample_smem()->index[0] = i + __ffs(over) - 1;
            before += __shfl_sync(~0u, upto, 31);
        }
    }
    if (!consumer_sync()) return false;
    *token = sample_smem()->index[0];
    return consumer_sync();
}

// The cuts and the draw of a row with a temperature. *token: the most likely one so far. False: leave.
WEFT_DEV bool draw_token(const weft_slot &s, sampling &r, const consumer &t, uint32_t *token)
{
    const weft_step_row *at = &batch_of(s)->row[r.row];
    uint32_t tid = t.warp * 32 + t.lane, lowest = 0, key, top_k = ld_cg32(&at->top_k);
    float top_p = __uint_as_float(ld_cg32(&at->top_p)), min_p = __uint_as_float(ld_cg32(&at->min_p));
    unsigned long long total;
    if (top_k > 0 && top_k < s.op.n && !find_threshold(s, r, tid, 0, top_k, true, &lowest)) return false;
    if (top_p > 0 && top_p < 1.0f) {
        if (!total_units(s, r, tid, lowest, &total)) return false;
        if (!find_threshold(s, r, tid, lowest, (unsigned long long)((double)total * top_p), false, &key)) return false;
        lowest = max(lowest, key);
    }
    if (min_p > 0) lowest = max(lowest, weft_sample_key(r.max + __logf(min_p) / r.scale));
    if (!total_units(s, r, tid, lowest, &total)) return false;
    if (tid == 0) sample_smem()->index[0] = *token;
    float u = weft_sample_draw(ld_cg32(&at->seed), ld_cg32(&at->kv_len));
    return pick(s, r, t, lowest, (unsigned long long)((double)total * u), token);
}

WEFT_DEV bool sample_row(const cta &c, weft_slot &s, sampling &r, const consumer &t)
{
    uint32_t tid = t.warp * 32 + t.lane, token, seq = step_of(s).seq;
    float temperature = __uint_as_float(ld_cg32(&batch_of(s)->row[r.row].temperature)), logsum;
    if (!most_likely(s, r, t, &token, &logsum) || !find_held(c, s, r, tid)) return false;
    if (token != WEFT_NONE && r.held) {
        found f;
        if (!find_largest(s, r, t, 0, s.op.n, f)) return false;
        token = f.token, r.max = f.max;
    }
    r.scale = 1.0f / temperature;
    if (token != WEFT_NONE && temperature > 0 && !draw_token(s, r, t, &token)) return false;
    if (tid != 0) return true;
    weft_step_result *result = &mailbox(c)->result[seq % WEFT_STEP_RING]; // read by the host once the step is done
    weft_st_relaxed_sys(&result->token[r.row], token);
    result->logprob[r.row] = token == WEFT_NONE ? NAN : raw_logit(s, r, token) - logsum;
    ((uint32_t *)s.op.out)[seq % 2 * WEFT_MAX_ROWS + r.row] = token;
    return true;
}

WEFT_DEV bool body_sample(const cta &c, weft_slot &s, consumer &t)
{
    if (!await_all(s) || !consumer_sync()) return false; // scratch: a wide task's stores are over
    uint32_t tid = t.warp * 32 + t.lane, end = min(s.task.tile[0] + s.task.tile[3], min(batch_rows(s), s.op.m));
    for (uint32_t m = s.task.tile[0]; m < end; m++) {
        const weft_step_row *at = &batch_of(s)->row[m];
        uint32_t kv_len = ld_cg32(&at->kv_len), flags = ld_cg32(&at->flags);
        if (kv_len == 0) continue;
        sampling r = sampling_of(s, m);
        if (s.op.w && tid == 0) *token_place(s, at, kv_len - 1) = own_token(c, s, at);
        if (flags & WEFT_ROW_LOGITS && s.op.aux)
            for (uint32_t i = tid; i < s.op.n; i += CONSUMERS)
                ((float *)s.op.aux)[(uint64_t)m * s.op.n + i] = raw_logit(s, r, i);
        if (flags & WEFT_ROW_SAMPLE && !sample_row(c, s, r, t)) return false;
    }
    return true;
}

#endif
