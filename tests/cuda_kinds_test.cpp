// cuda_kinds: pages, embed, rope and attention alone on a GPU, on random inputs and poisoned outputs, against the portable
// bodies on an emulated device.
#include "kinds_rig.h"

#include "../tasks/attn.h"

namespace
{

// ------------------------------------------------------------------------------------------------------------ pages

TEST(CudaKinds, PagesWritesWhatThePayloadHoldsAndTheTableHasRoomFor)
{
    SKIP_WITHOUT(on("cuda:0"));
    Rig rig;
    const uint32_t slots = 7, cols = 33;
    const uint32_t table = rig.tensor("table", WEFT_U32, slots, cols, WEFT_ROLE_TABLE);
    rig.data["table"] = bytes_of(std::vector<uint32_t>(slots * cols, 77));
    rig.op(WEFT_KIND_PAGES, 1, 1, 0).out = table;
    rig.task();
    std::vector<Payload> steps(5);
    for (uint32_t s = 0; s < 3; s++) {
        const uint32_t rows[] = {64, 0, 5};
        steps[s].rows.assign(rows[s], row_of(0, 0, 0, 0));
        for (uint32_t i = 0; i < (s ? 200u : WEFT_MAX_PAGE_WRITES); i++) { // no place twice, and some out of range
            const uint32_t at = i * 3 + s, index = i % 5 < 4 ? at % cols : i % 2 ? cols : 60000;
            steps[s].writes.push_back({(uint16_t)(at / cols), (uint16_t)index, 1000 * s + i});
        }
        steps[s].more_writes = s ? 1000 : 0;
    }
    steps[3].none = true;
    steps[4].more_rows = 60, steps[4].more_writes = 3;
    for (const char *queue : gpu_policies) {
        RUN_PAIR(p, rig, steps, queue);
        p.same("table");
        const auto v = values_of<uint32_t>(p.have.tensors["table"]);
        EXPECT_EQ(v[0], 0u) << "the first write";
        EXPECT_GT(std::count(v.begin(), v.end(), 77u), 0) << "places that no write names";
    }
}

// ------------------------------------------------------------------------------------------------------------ embed

struct EmbedCase {
    uint32_t m, k, layout;
    bool packets;
};

void run_embed(const EmbedCase &c)
{
    SCOPED_TRACE("m " + std::to_string(c.m) + ", k " + std::to_string(c.k) + ", layout " + std::to_string(c.layout) +
                 (c.packets ? ", packets" : ""));
    Rig rig;
    const uint32_t vocab = 203;
    const uint32_t fed = rig.tensor("fed", WEFT_U32, 2, WEFT_MAX_ROWS, WEFT_ROLE_TABLE),
                   w = rig.tensor("w", WEFT_BF16, vocab, c.k, WEFT_ROLE_ACT, WEFT_LAYOUT_ATOM),
                   out = rig.tensor("out", WEFT_BF16, c.m, c.k, WEFT_ROLE_ACT, c.layout);
    weft_op &op = rig.op(WEFT_KIND_EMBED, c.m, vocab, c.k);
    op.x = fed, op.w = w, op.out = out;
    if (c.packets) {
        op.flags = WEFT_OP_OUT_PACKET;
        op.pk_out = rig.tensor("pk", WEFT_BF16, c.m, c.k, WEFT_ROLE_PACKET, WEFT_LAYOUT_PACKET);
        rig.view("packets", op.pk_out, WEFT_U32, WEFT_ROLE_TABLE);
    }
    for (uint32_t m0 = 0; m0 < c.m; m0 += 5)
        rig.task(m0, 0, weft_div_up(c.k, 16), std::min(5u, c.m - m0));
    std::vector<uint32_t> tokens(2 * WEFT_MAX_ROWS);
    for (uint32_t i = 0; i < tokens.size(); i++)
        tokens[i] = i % 11 == 3 ? WEFT_NONE : below(vocab, 31, i);
    rig.data["fed"] = bytes_of(tokens);
    rig.data["w"] = bytes_of(random_bf16((size_t)vocab * c.k, 5, 2.0f));
    // Seven rows of ten in the last step, which says there are more: what the first step left of the others stays.
    std::vector<Payload> steps(2);
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t r = 0; r < (s ? (c.m * 7 + 9) / 10 : c.m); r++) {
            const uint32_t kinds[] = {below(vocab, 40 + s, r), vocab - 1, WEFT_TOKEN_OF | (r * 5 + s) % 64, vocab};
            steps[s].rows.push_back(row_of(0, r, kinds[(r + s) % 4], 0));
        }
    steps[1].more_rows = 64;
    RUN_PAIR(p, rig, steps);
    p.same("out");
    if (c.packets) p.same("packets");
    for (uint16_t h : values_of<uint16_t>(p.have.tensors["out"]))
        ASSERT_NE(h, 0xffff) << "an element was not written";
}

TEST(CudaKinds, EmbedInEveryLayoutAndAsPackets)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t m : {1u, 3u, 8u, 33u, 64u})
        for (uint32_t k : {96u, 99u, 576u})
            for (uint32_t layout : {WEFT_LAYOUT_FRAG, WEFT_LAYOUT_PANEL, WEFT_LAYOUT_ROW}) {
                run_embed({m, k, layout, m <= 8 && layout == WEFT_LAYOUT_FRAG});
                if (fatal()) return;
            }
}

// ------------------------------------------------------------------------------------------------- rope and attention

struct Heads {
    uint32_t queries, kv_heads, dim; // queries: of each KV head
    uint32_t heads() const { return queries * kv_heads; }
    uint32_t qkv() const { return (queries + 2) * kv_heads * dim; }
    uint64_t page() const { return 2 * kv_heads * weft_attn_page_bytes(dim); } // bytes, K and V of all heads
};
std::string text(const Heads &h)
{
    return std::to_string(h.kv_heads) + " KV heads of " + std::to_string(h.dim) + ", " + std::to_string(h.queries) +
           " queries each";
}

const Heads head_shapes[] = {{1, 2, 64},  {3, 3, 64},  {4, 8, 64},  {8, 1, 64},
                             {1, 3, 128}, {4, 2, 128}, {5, 2, 128}, {8, 1, 128}};

struct Cache { // ids of its tensors
    uint32_t kv, table, slots, max_pages;
};

Cache add_cache(Rig &rig, const Heads &h, uint32_t slots, uint32_t max_pages, uint32_t pages)
{
    return {rig.tensor("kv", WEFT_BF16, pages * h.kv_heads * 2, h.dim * WEFT_ATTN_PAGE, WEFT_ROLE_KV),
            rig.tensor("table", WEFT_U32, slots, max_pages, WEFT_ROLE_TABLE), slots, max_pages};
}

void set_cache(weft_op &op, const Heads &h, const Cache &c)
{
    const uint32_t param[6] = {h.heads(), h.kv_heads, h.dim, WEFT_ATTN_BLOCK, weft_div_up(c.max_pages, 8), c.max_pages};
    memcpy(op.param, param, sizeof param);
    op.w = c.kv, op.aux = c.table;
}

// qkv -> q: one task a few rows and heads. `norm`: heads are normalised first.
uint32_t add_rope(Rig &rig, const Heads &h, const Cache &c, uint32_t m, uint32_t layout, bool norm)
{
    const uint32_t x = rig.tensor("qkv", WEFT_BF16, m, h.qkv(), WEFT_ROLE_ACT, layout),
                   turn = rig.tensor("turn", WEFT_FP32, 1, h.dim / 2 + (norm ? 2 * h.dim : 0)),
                   q = rig.tensor("q", WEFT_BF16, m, h.heads() * h.dim);
    weft_op &op = rig.op(WEFT_KIND_ROPE, m, h.heads() * h.dim, h.qkv());
    set_cache(op, h, c);
    op.x = x, op.out = q, op.scale = turn, op.flags = norm ? WEFT_OP_NORM : 0;
    for (uint32_t m0 = 0; m0 < m; m0 += 3)
        for (uint32_t head = 0; head < h.kv_heads; head += 2)
            rig.task(m0, head, std::min(2u, h.kv_heads - head), std::min(3u, m - m0));
    std::vector<float> values;
    for (uint32_t i = 0; i < h.dim / 2; i++)
        values.push_back(std::pow(500000.0f, -2.0f * (float)i / (float)h.dim));
    for (uint32_t i = 0; norm && i < 2 * h.dim; i++)
        values.push_back(1.0f + weft_seeded(61, i, 0, 0.5f));
    rig.data["turn"] = bytes_of(values);
    rig.data["qkv"] = bytes_of(random_bf16((size_t)m * h.qkv(), 62, 2.0f));
    return q;
}

void add_attention(Rig &rig, const Heads &h, const Cache &c, uint32_t q, uint32_t m, uint32_t shares, uint32_t layout,
                   bool packets)
{
    const uint32_t blocks = weft_div_up(c.max_pages, 8), cols = h.heads() * h.dim;
    const uint32_t partial = rig.tensor("partial", WEFT_FP32, m * h.kv_heads * blocks,
                                        (uint32_t)weft_attn_unit_floats(h.queries, h.dim), WEFT_ROLE_PARTIAL),
                   out = rig.tensor("out", WEFT_BF16, m, cols, WEFT_ROLE_ACT, layout);
    weft_op &attn = rig.op(WEFT_KIND_ATTN, m, cols, cols);
    set_cache(attn, h, c);
    attn.x = q, attn.partial = partial;
    for (uint32_t i = 0; i < shares; i++)
        rig.task(i, shares);
    weft_op &combine = rig.op(WEFT_KIND_ATTN_COMBINE, m, cols, cols);
    set_cache(combine, h, c);
    combine.w = combine.aux = WEFT_NONE, combine.partial = partial, combine.out = out;
    if (packets) {
        combine.flags = WEFT_OP_OUT_PACKET;
        combine.pk_out = rig.tensor("pk", WEFT_BF16, m, cols, WEFT_ROLE_PACKET, WEFT_LAYOUT_PACKET);
        rig.view("packets", rig.ops.back().pk_out, WEFT_U32, WEFT_ROLE_TABLE);
    }
    for (uint32_t i = 0; i < m * h.kv_heads; i += 3)
        rig.task(i, std::min(3u, m * h.kv_heads - i));
}

// Head by head: probabilities are rounded to bf16 on the way, so the last bits differ.
void expect_heads(const Pair &p, const Heads &h, uint32_t m, const char *name = "out")
{
    const auto have = values_of<uint16_t>(p.have.tensors.at(name)), want = values_of<uint16_t>(p.want.tensors.at(name));
    for (uint32_t i = 0; i < m * h.heads(); i++) {
        double gap = 0, norm = 0;
        bool same = true, poison = false;
        for (uint32_t d = i * h.dim; d < (i + 1) * h.dim; d++) {
            const double a = weft_bf16_to_f32(have[d]), b = weft_bf16_to_f32(want[d]);
            same = same && (have[d] == want[d] || (std::isnan(a) && std::isnan(b)));
            poison = poison || (have[d] == 0xffff) != (want[d] == 0xffff);
            gap += (a - b) * (a - b), norm += b * b;
        }
        ASSERT_FALSE(poison) << "row " << i / h.heads() << ", head " << i % h.heads()
                             << ": not written, or should not be";
        if (!same) {
            ASSERT_LE(std::sqrt(gap), 1e-2 * std::sqrt(norm)) << "row " << i / h.heads() << ", head " << i % h.heads();
        }
    }
}

TEST(CudaKinds, RopeTurnsQueriesAndFillsPages)
{
    SKIP_WITHOUT(on("cuda:0"));
    const uint32_t m = 11, layouts[] = {WEFT_LAYOUT_FRAG, WEFT_LAYOUT_PANEL, WEFT_LAYOUT_ROW};
    uint32_t n = 0;
    for (const Heads &h : head_shapes)
        for (bool norm : {false, true}) {
            SCOPED_TRACE(text(h) + (norm ? ", normalised" : ""));
            Rig rig;
            const Cache c = add_cache(rig, h, 12, 2048, 13);
            add_rope(rig, h, c, m, layouts[n++ % 3], norm);
            // Each row a slot and a page of its own, but for rows 8 and 9, neighbours in one; row 6 does nothing; row 11 is past m.
            const uint32_t positions[] = {0, 1, 63, 64, 4095, 131071, 5, 77777, 128, 129, 100, 3};
            std::vector<uint32_t> table((size_t)c.slots * c.max_pages, 12);
            Payload p;
            for (uint32_t r = 0; r < 12; r++) {
                const uint32_t slot = r == 9 ? 8 : (r * 5) % 12 == 8 ? 9 : r == 8 ? 8 : (r * 5) % 12;
                p.rows.push_back(row_of(slot, positions[r], 0, 0));
                table[(size_t)slot * c.max_pages + positions[r] / 64] = slot;
            }
            p.rows[6].kv_len = 0;
            rig.data["table"] = bytes_of(table);
            RUN_PAIR(pair, rig, {p});
            pair.close("q", 4.0 / 128, 0.01);
            pair.close("kv", 4.0 / 128, 0.01);
            const auto q = values_of<uint16_t>(pair.have.tensors["q"]);
            for (uint32_t r = 0; r < m; r++)
                EXPECT_EQ(q[(size_t)r * h.heads() * h.dim] == 0xffff, r == 6) << "row " << r;
        }
}

// Tokens that no row sees, pages' tails too, are not numbers: they must not count.
TEST(CudaKinds, AttentionOfMixedLengthsOnAnyShares)
{
    SKIP_WITHOUT(on("cuda:0"));
    const std::vector<uint32_t> batches[] = {{1}, {2047, 3}, {64, 65, 1, 0, 511, 512, 513, 1500}};
    uint32_t n = 0;
    for (const Heads &h : head_shapes)
        for (const auto &lengths : batches)
            for (uint32_t shares : {1u, 7u, 132u}) {
                const uint32_t m = (uint32_t)lengths.size(),
                               layouts[] = {WEFT_LAYOUT_FRAG, WEFT_LAYOUT_ROW, WEFT_LAYOUT_PANEL};
                SCOPED_TRACE(text(h) + ", " + std::to_string(m) + " rows, " + std::to_string(shares) + " shares");
                Rig rig;
                const Cache c = add_cache(rig, h, m + 2, 32, 80);
                const uint32_t q = rig.tensor("q", WEFT_BF16, m, h.heads() * h.dim);
                add_attention(rig, h, c, q, m, shares, layouts[n++ % 3], m <= 2);
                std::vector<uint32_t> table((size_t)c.slots * c.max_pages, 79), pages(79);
                for (uint32_t i = 0; i < 79; i++)
                    pages[i] = i;
                std::shuffle(pages.begin(), pages.end(), std::mt19937(n));
                std::vector<uint16_t> kv(80 * h.page() / 2, 0xffff);
                const std::vector<uint16_t> values = random_bf16(kv.size(), 70 + n, 1.0f);
                Payload p;
                for (uint32_t r = 0; r < m; r++) {
                    const uint32_t slot = (r * 3 + 1) % (m + 2);
                    p.rows.push_back(row_of(slot, lengths[r] - 1, 0, 0));
                    for (uint32_t t = 0; t < lengths[r]; t++) {
                        uint32_t &page = table[(size_t)slot * c.max_pages + t / 64];
                        if (t % 64 == 0) page = pages.back(), pages.pop_back();
                        for (uint32_t i = 0; i < 2 * h.kv_heads; i++)
                            for (uint32_t d = 0; d < h.dim; d++) {
                                const uint64_t at = (weft_attn_page_offset(h.kv_heads, h.dim, page, i / 2, i % 2) +
                                                     weft_attn_element(t % 64, d)) /
                                                    2;
                                kv[at] = values[at];
                            }
                    }
                }
                p.rows.push_back(row_of(0, 5, 0, 0)); // past m
                rig.data["table"] = bytes_of(table), rig.data["kv"] = bytes_of(kv);
                rig.data["q"] = bytes_of(random_bf16((size_t)m * h.heads() * h.dim, 71, 3.0f));
                RUN_PAIR(pair, rig, {p}, gpu_policies[n % n_gpu_policies]);
                expect_heads(pair, h, m);
                if (fatal()) return;
                for (uint16_t v : values_of<uint16_t>(pair.have.tensors["out"]))
                    ASSERT_FALSE(std::isnan(weft_bf16_to_f32(v)));
                if (m > 2) continue;
                const auto words = values_of<uint32_t>(pair.have.tensors["packets"]);
                const auto out = values_of<uint16_t>(pair.have.tensors["out"]);
                for (uint32_t r = 0; r < m; r++)
                    for (uint32_t d = 0; d < h.heads() * h.dim; d += 2) {
                        const uint64_t at = weft_packet_index(weft_packet_rows(m), r, d),
                                       i = (size_t)r * h.heads() * h.dim + d;
                        ASSERT_EQ(words[at * 2], out[i] | (uint32_t)out[i + 1] << 16)
                            << "packet of row " << r << ", " << d;
                        ASSERT_EQ(words[at * 2 + 1], 1u) << "its tag";
                    }
            }
}

// Pages, rope, attention: each step's keys and values are seen by the same step, and by those that follow at once.
TEST(CudaKinds, SequencesGrowStepByStep)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (const Heads &h : head_shapes)
        for (const char *queue : gpu_policies) {
            SCOPED_TRACE(text(h) + ", " + queue);
            Rig rig;
            const uint32_t m = 8;
            const Cache c = add_cache(rig, h, 5, 16, 20);
            rig.op(WEFT_KIND_PAGES, 1, 1, 0).out = c.table;
            rig.task();
            const uint32_t q = add_rope(rig, h, c, m, WEFT_LAYOUT_FRAG, false);
            add_attention(rig, h, c, q, m, 9, WEFT_LAYOUT_FRAG, true);
            // Of every step: one token of slot 3 and of slot 0, five of slot 2's prompt; slot 1 has one, in two steps of three.
            uint32_t position[4] = {0, 0, 0, 0}, page = 20;
            std::vector<Payload> steps(15);
            for (uint32_t s = 0; s < steps.size(); s++) {
                const uint32_t slots[] = {3, 2, 2, 2, 2, 2, 0, 1};
                for (uint32_t r = 0; r < m; r++) {
                    const uint32_t slot = slots[(r + s * 3) % m];
                    if (slot == 1 && s % 3 == 0) {
                        steps[s].rows.push_back(row_of(1, 0, 0, 0));
                        steps[s].rows.back().kv_len = 0;
                        continue;
                    }
                    const uint32_t at = position[slot]++;
                    if (at % 64 == 0) steps[s].writes.push_back({(uint16_t)slot, (uint16_t)(at / 64), --page});
                    steps[s].rows.push_back(row_of(slot, at, 0, 0));
                }
            }
            ASSERT_GT(position[2], 64u);
            RUN_PAIR(p, rig, steps, queue);
            p.same("table");
            p.close("kv", 4.0 / 128, 0.01);
            p.close("q", 4.0 / 128, 0.01);
            expect_heads(p, h, m);
            if (fatal()) return;
        }
}

} // namespace
