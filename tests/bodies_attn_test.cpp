/* Portable bodies of attn and attn_combine against float64: mixed lengths, any number of shares, any page order. */
#include "../tasks/attn.h"
#include "../tasks/half.h"
#include "../tasks/kinds.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>

namespace
{

struct Attention {
    uint32_t heads, kv_heads, dim = 128, n_seq, max_blocks, max_pages, n_page;
    std::vector<uint32_t> table;
    std::vector<uint16_t> q, out;
    std::vector<float> partial;
    std::vector<uint8_t> kv;
    weft_op_rt op{};
    weft_step_batch payload{};
    weft_step_head step{};

    Attention(uint32_t h, uint32_t kvh, const std::vector<uint32_t> &len)
        : heads(h), kv_heads(kvh), n_seq((uint32_t)len.size())
    {
        uint32_t longest = 1, pages = 0;
        for (uint32_t l : len)
            longest = std::max(longest, l), pages += weft_div_up(l, 64);
        max_blocks = weft_div_up(longest, WEFT_ATTN_BLOCK), max_pages = weft_div_up(longest, 64), n_page = pages + 3;
        std::vector<uint32_t> shuffled(n_page);
        std::iota(shuffled.begin(), shuffled.end(), 0u);
        std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
        table.assign((size_t)n_seq * max_pages, 0);
        for (uint32_t s = 0, used = 0; s < n_seq; s++)
            for (uint32_t i = 0; i < weft_div_up(len[s], 64); i++)
                table[(size_t)s * max_pages + i] = shuffled[used++];
        kv.assign(n_page * kv_heads * 2 * weft_attn_page_bytes(dim), 0xff);
        q.resize((size_t)n_seq * heads * dim), out.assign(q.size(), 0xffff);
        partial.assign((size_t)n_seq * kv_heads * max_blocks * weft_attn_unit_floats(heads / kv_heads, dim), NAN);
        payload.n_row = n_seq;
        for (uint32_t s = 0; s < n_seq; s++)
            payload.row[s].kv_len = len[s], payload.row[s].slot = s;
        fill(len);
        op.x = addr(q), op.w = addr(kv), op.aux = addr(table), op.partial = addr(partial), op.out = addr(out);
        op.m = op.out_rows = n_seq, op.out_cols = heads * dim, op.out_layout = WEFT_LAYOUT_ROW, op.dtype = WEFT_BF16;
        uint32_t p[6] = {heads, kv_heads, dim, WEFT_ATTN_BLOCK, max_blocks, max_pages};
        memcpy(op.param, p, sizeof p);
        step.seq = 1, step.rows = n_seq, step.payload_bytes = sizeof payload;
    }

    template <class T> static uint64_t addr(std::vector<T> &v) { return (uint64_t)(uintptr_t)v.data(); }

    uint16_t *element(uint32_t s, uint32_t h, uint32_t t, uint32_t v, uint32_t d)
    {
        uint32_t page = table[(size_t)s * max_pages + t / 64];
        return (uint16_t *)(kv.data() + weft_attn_page_offset(kv_heads, dim, page, h, v) +
                            weft_attn_element(t % 64, d));
    }

    void fill(const std::vector<uint32_t> &len)
    {
        for (size_t i = 0; i < q.size(); i++)
            q[i] = weft_f32_to_bf16(weft_seeded(1, 0, (uint32_t)i, 2.0f));
        for (uint32_t s = 0; s < n_seq; s++)
            for (uint32_t h = 0; h < kv_heads; h++)
                for (uint32_t t = 0; t < len[s]; t++)
                    for (uint32_t v = 0; v < 2; v++)
                        for (uint32_t d = 0; d < dim; d++)
                            *element(s, h, t, v,
                                     d) = weft_f32_to_bf16(weft_seeded(2 + v, s * 64 + h, t * dim + d, 1.0f));
    }

    void run(uint32_t shares)
    {
        weft_task t{};
        weft_task_ctx ctx{};
        void *scratch = aligned_alloc(64, WEFT_SCRATCH_BYTES);
        ctx.t = &t, ctx.op = &op, ctx.step = &step, ctx.payload = (const uint8_t *)&payload, ctx.scratch = scratch;
        t.tile[1] = shares;
        for (t.tile[0] = 0; t.tile[0] < shares; t.tile[0]++)
            ASSERT_EQ(weft__body_attn(&ctx), 0);
        t.tile[1] = 1;
        for (t.tile[0] = 0; t.tile[0] < n_seq * kv_heads; t.tile[0]++)
            ASSERT_EQ(weft__body_attn_combine(&ctx), 0);
        free(scratch);
    }

    double error()
    {
        double diff = 0, norm = 0;
        for (uint32_t s = 0; s < n_seq; s++)
            for (uint32_t h = 0; h < heads; h++) {
                uint32_t len = payload.row[s].kv_len, kvh = h / (heads / kv_heads);
                std::vector<double> p(len), o(dim, 0.0);
                double most = -INFINITY, sum = 0;
                for (uint32_t t = 0; t < len; t++) {
                    double dot = 0;
                    for (uint32_t d = 0; d < dim; d++)
                        dot += (double)weft_bf16_to_f32(q[((size_t)s * heads + h) * dim + d]) *
                               weft_bf16_to_f32(*element(s, kvh, t, 0, d));
                    p[t] = dot / std::sqrt((double)dim), most = std::max(most, p[t]);
                }
                for (uint32_t t = 0; t < len; t++) {
                    double e = std::exp(p[t] - most);
                    sum += e;
                    for (uint32_t d = 0; d < dim; d++)
                        o[d] += e * weft_bf16_to_f32(*element(s, kvh, t, 1, d));
                }
                for (uint32_t d = 0; d < dim; d++) {
                    double want = o[d] / sum, got = weft_bf16_to_f32(out[((size_t)s * heads + h) * dim + d]);
                    diff += (got - want) * (got - want), norm += want * want;
                }
            }
        return std::sqrt(diff / norm);
    }
};

TEST(BodiesAttn, MixedBatchOfAnyShares)
{
    std::vector<uint16_t> first;
    for (uint32_t shares : {1u, 3u, 16u, 132u}) {
        Attention a(8, 2, {1, 64, 65, 511, 512, 513, 1500});
        a.run(shares);
        EXPECT_LE(a.error(), 5e-3) << shares << " shares";
        if (first.empty()) first = a.out;
        EXPECT_EQ(a.out, first) << "bits depend on the number of shares: " << shares;
    }
}

TEST(BodiesAttn, ManySharesOfFewTokens)
{
    Attention a(4, 4, {2, 1});
    a.run(64);
    EXPECT_LE(a.error(), 5e-3);
}

} // namespace
