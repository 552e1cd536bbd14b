// cuda_sample: what SAMPLE chooses on a GPU, of random logits with equals, NaNs and infinities, against the portable body on an
// emulated device, and against sorting.
#include "kinds_rig.h"

namespace
{

struct Sampler {
    Rig rig;
    uint32_t m, n, slots = 0, max_pages = 0;
    std::vector<float> sums; // [m][n]

    // tokens: with pages of what sequences hold, for the penalty; norm: squares are given too.
    Sampler(uint32_t rows, uint32_t vocab, uint32_t each, bool tokens, bool norm)
        : m(rows), n(vocab), sums((size_t)m * n)
    {
        const uint32_t partial = rig.tensor("partial", WEFT_FP32, m, n, WEFT_ROLE_PARTIAL, WEFT_LAYOUT_PARTIAL),
                       fed = rig.tensor("fed", WEFT_U32, 2, WEFT_MAX_ROWS, WEFT_ROLE_TABLE),
                       logits = rig.tensor("logits", WEFT_FP32, m, n, WEFT_ROLE_OUTPUT);
        rig.view("sums", partial, WEFT_FP32, WEFT_ROLE_ACT);
        const uint32_t parts = std::min(7u, weft_div_up(n, 16)),
                       found = rig.tensor("found", WEFT_FP32, m, 4 * parts, WEFT_ROLE_PARTIAL);
        uint32_t squares = WEFT_NONE;
        if (norm) {
            squares = rig.tensor("squared", WEFT_FP32, m, weft_div_up(n, 16), WEFT_ROLE_PARTIAL, WEFT_LAYOUT_PARTIAL);
            rig.view("squares", squares, WEFT_FP32, WEFT_ROLE_ACT);
        }
        weft_op &survey = rig.op(WEFT_KIND_SURVEY, m, n, 64);
        survey.partial = partial, survey.out = found, survey.param[1] = parts;
        survey.squares = squares, survey.flags = norm ? WEFT_OP_NORM : 0;
        for (uint32_t i = 0; i < parts; i++)
            rig.task(0, i, parts, m);
        weft_op &op = rig.op(WEFT_KIND_SAMPLE, m, n, 64);
        op.partial = partial, op.out = fed, op.aux = logits, op.m_tile = each;
        op.scale = found, op.param[1] = parts, op.squares = squares, op.flags = norm ? WEFT_OP_NORM : 0;
        if (tokens) {
            slots = 4, max_pages = 3;
            op.x = rig.tensor("table", WEFT_U32, slots, max_pages, WEFT_ROLE_TABLE);
            op.w = rig.tensor("tokens", WEFT_U32, 12, 64, WEFT_ROLE_KV);
            op.param[0] = max_pages;
        }
        for (uint32_t m0 = 0; m0 < m; m0 += each)
            rig.task(m0, 0, 0, std::min(each, m - m0));
        rig.data["fed"] = bytes_of(std::vector<uint32_t>(2 * WEFT_MAX_ROWS, 0xdead));
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t t = 0; t < n; t++)
                sums[(size_t)r * n + t] = weft_seeded(80 + r, t, n, 6.0f);
    }
    Pair run(const std::vector<Payload> &steps, const char *queue = "static")
    {
        std::vector<float> laid((size_t)weft_div_up(n, 16) * 16 * m, NAN); // padding counts for nothing
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t t = 0; t < n; t++)
                laid[weft_partial_index(m, n, 0, r, t)] = sums[(size_t)r * n + t];
        rig.data["sums"] = bytes_of(laid);
        return Pair(rig, steps, queue);
    }
};

void expect_logprobs(const Pair &p)
{
    for (size_t s = 0; s < p.want.logprob.size(); s++)
        for (uint32_t r = 0; r < WEFT_MAX_ROWS; r++) {
            const float have = p.have.logprob[s][r], want = p.want.logprob[s][r];
            if (p.have.token[s][r] != p.want.token[s][r] || (std::isnan(have) && std::isnan(want))) continue;
            ASSERT_NEAR(have, want, 1e-4 + 1e-5 * std::fabs(want)) << "step " << s << ", row " << r;
        }
}

// Equal logits, rows of all kinds: NaN first, last and between, nothing but -inf, an inf; rows that do nothing.
TEST(CudaSample, TakesTheFirstOfTheLargest)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t n : {1u, 17u, 150u, 1000u, 49152u, 128256u})
        for (uint32_t each : {1u, 4u}) {
            SCOPED_TRACE(std::to_string(n) + " tokens, " + std::to_string(each) + " rows a task");
            Sampler s(12, n, each, false, false);
            for (uint32_t r = 0; r < s.m; r++)
                for (uint32_t t = 0; t < n && r % 2; t++) // few values: equals everywhere
                    s.sums[(size_t)r * n + t] = (float)(below(5, r, t)) - 2.5f;
            auto row = [&](uint32_t r) { return s.sums.begin() + r * (ptrdiff_t)n; };
            row(2)[0] = NAN, row(3)[n - 1] = NAN, row(4)[n / 2] = NAN;
            std::fill(row(5), row(6), -INFINITY);
            row(6)[n / 3] = INFINITY, row(7)[n / 4] = -INFINITY;
            std::fill(row(8), row(9), 1.25f);
            Payload p;
            for (uint32_t r = 0; r < 11; r++) // the twelfth is not in the batch
                p.rows.push_back(row_of(0, r, 1, (r == 9 ? 0 : WEFT_ROW_SAMPLE) | (r % 3 ? WEFT_ROW_LOGITS : 0)));
            p.rows[10].kv_len = 0;
            Payload again = p, empty;
            empty.none = true;
            again.rows.resize(2), again.more_rows = 62;
            Pair pair = s.run({p, empty, again});
            if (fatal()) return;
            EXPECT_EQ(pair.have.token, pair.want.token);
            EXPECT_EQ(pair.have.token[0][2], WEFT_NONE);
            EXPECT_EQ(pair.have.token[0][8], 0u);
            EXPECT_EQ(pair.have.token[0][6], n / 3);
            pair.same("fed"), pair.same("logits");
            expect_logprobs(pair);
        }
}

struct Cut {
    const char *name;
    float temperature, top_p, min_p;
    uint32_t top_k;
};
const Cut all_cuts[] = {
    {"temperature 1", 1, 1, 0, 0},   {"temperature 0.3", 0.3f, 1, 0, 0}, {"top k 1", 1, 1, 0, 1},
    {"top k 40", 2, 1, 0, 40},       {"top p 0.5", 1.5f, 0.5f, 0, 0},    {"top p 0.95", 1, 0.95f, 0, 0},
    {"min p 0.1", 1.3f, 1, 0.1f, 0}, {"all", 1.2f, 0.9f, 0.02f, 50},     {"k past n", 1, 1, 0, 1u << 30}};

// Sums are added in another order, so that a draw at a boundary may fall on its other side: one in two hundred at most.
TEST(CudaSample, DrawsWhatIsLeftByTheCuts)
{
    SKIP_WITHOUT(on("cuda:0"));
    const std::pair<uint32_t, uint32_t> sizes[] = {{64, 150}, {64, 1000}, {6, 32003}};
    for (auto [m, n] : sizes)
        for (const Cut &c : all_cuts) {
            SCOPED_TRACE(std::string(c.name) + " of " + std::to_string(n));
            Sampler s(m, n, 1, false, false);
            if (n == 150)
                for (float &v : s.sums)
                    v = std::round(v * 4) / 4; // equals at every boundary
            std::vector<Payload> steps(15);
            for (uint32_t i = 0; i < 15; i++)
                for (uint32_t r = 0; r < m; r++) {
                    weft_step_row row = row_of(0, r * 3 + i, 1, WEFT_ROW_SAMPLE);
                    row.temperature = c.temperature, row.top_p = c.top_p, row.min_p = c.min_p, row.top_k = c.top_k;
                    row.seed = i * 1000 + r / 2;
                    steps[i].rows.push_back(row);
                }
            Pair p = s.run(steps, gpu_policies[m % n_gpu_policies]);
            if (fatal()) return;
            uint32_t off = 0, wrong = 0, kinds = 0;
            std::vector<bool> seen(n);
            for (uint32_t i = 0; i < 15; i++)
                for (uint32_t r = 0; r < m; r++) {
                    const uint32_t token = p.have.token[i][r];
                    ASSERT_LT(token, n);
                    off += token != p.want.token[i][r];
                    wrong += token != expected_sample(steps[i].rows[r], &s.sums[(size_t)r * n], n, {});
                    kinds += !seen[token], seen[token] = true;
                }
            EXPECT_LE(off, m * 15 / 200) << "of " << m * 15 << " draws are not the portable body's";
            EXPECT_LE(wrong, 1 + m * 15 / 200) << "of " << m * 15 << " draws are not what sorting gives";
            EXPECT_GT(kinds, std::min(m, 3u)) << "the draws differ";
            expect_logprobs(p);
        }
}

// Rows take the tokens that other rows got in the step before; sequences have tokens of a prompt, and several rows a step.
TEST(CudaSample, PenalisesWhatTheSequenceHolds)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t n : {150u, 1000u, 151936u}) {
        SCOPED_TRACE(n);
        Sampler s(6, n, 1, true, false);
        for (uint32_t r = 1; r < s.m; r++) // all sequences want the same tokens
            std::copy_n(s.sums.begin(), n, s.sums.begin() + r * (ptrdiff_t)n);
        std::vector<uint32_t> table(s.slots * s.max_pages), tokens(12 * 64);
        for (uint32_t i = 0; i < table.size(); i++)
            table[i] = (i * 5 + 3) % 12;
        for (uint32_t i = 0; i < tokens.size(); i++)
            tokens[i] = i % 50 == 7 ? WEFT_NONE : below(n, 90, i);
        s.rig.data["table"] = bytes_of(table), s.rig.data["tokens"] = bytes_of(tokens);
        std::vector<Payload> steps(14);
        uint32_t at[4] = {0, 60, 127, 5};
        for (uint32_t i = 0; i < steps.size(); i++) {
            for (uint32_t r = 0; r < 6; r++) {
                const uint32_t slot = r == 3 ? 0 : (r + i) % 4; // slot 0 often has several rows
                weft_step_row row = row_of(
                    slot, at[slot]++, i && r % 2 ? WEFT_TOKEN_OF | (r + 4) % 6 : below(n, 91, r + i), WEFT_ROW_SAMPLE);
                row.penalty = slot == 2 ? 0.6f : slot == 1 ? 1.0f : 1.7f;
                steps[i].rows.push_back(row);
            }
        }
        Pair p = s.run(steps, "push");
        if (fatal()) return;
        for (uint32_t i = 0; i < steps.size(); i++)
            ASSERT_EQ(p.have.token[i], p.want.token[i]) << "step " << i;
        p.same("fed"), p.same("tokens");
        EXPECT_NE(p.have.token[13], p.have.token[0]) << "the penalty moves tokens";
        expect_logprobs(p);
    }
}

TEST(CudaSample, DividesByTheNorm)
{
    SKIP_WITHOUT(on("cuda:0"));
    const uint32_t n = 1003;
    Sampler s(5, n, 2, false, true);
    std::vector<float> squares((size_t)weft_div_up(weft_div_up(n, 16), 16) * 16 * s.m, NAN);
    for (uint32_t r = 0; r < s.m; r++)
        squares[weft_partial_index(s.m, weft_div_up(n, 16), 0, r, 0)] = 64.0f * (0.3f + (float)r);
    s.rig.data["squares"] = bytes_of(squares);
    Payload p;
    for (uint32_t r = 0; r < s.m; r++)
        p.rows.push_back(row_of(0, r, 1, WEFT_ROW_SAMPLE | WEFT_ROW_LOGITS));
    Pair pair = s.run({p});
    if (fatal()) return;
    EXPECT_EQ(pair.have.token, pair.want.token);
    pair.same("fed");
    const auto have = values_of<float>(pair.have.tensors["logits"]),
               want = values_of<float>(pair.want.tensors["logits"]);
    for (size_t i = 0; i < have.size(); i++)
        ASSERT_NEAR(have[i], want[i], 2e-6 * std::fabs(want[i])) << "logit " << i;
    expect_logprobs(pair);
}

} // namespace
