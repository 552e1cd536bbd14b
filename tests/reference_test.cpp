// reference: against plain sums written out here, on shapes small enough to follow.
#include "../host/error.h"
#include "../host/reference.h"
#include "../tasks/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace
{

TEST(Reference, RoundsOnceToNearestEven)
{
    EXPECT_EQ(weft__round_to(WEFT_BF16, 1 + 0x1p-8), 1.0);                  // half way: to even
    EXPECT_EQ(weft__round_to(WEFT_BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);       // half way: to even, upwards
    EXPECT_EQ(weft__round_to(WEFT_BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7); // by way of fp32 this would be 1
    EXPECT_EQ(weft__round_to(WEFT_FP16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
    EXPECT_EQ(weft__round_to(WEFT_FP16, 65519.0), 65504.0);
    EXPECT_EQ(weft__round_to(WEFT_FP16, 65520.0), INFINITY);
    EXPECT_EQ(weft__round_to(WEFT_FP16, 0x1.8p-25), 0x1p-24);
    EXPECT_EQ(weft__round_to(WEFT_BF16, -0x1p-133), -0x1p-133);
    EXPECT_TRUE(std::isnan(weft__round_to(WEFT_BF16, NAN)));
    for (uint32_t i = 0; i < 100000; i++) { // both roads agree where fp32 is exact
        float f = weft_seeded(3, i, 0, 1.0f);
        EXPECT_EQ(weft__round_to(WEFT_BF16, f), weft_bf16_to_f32(weft_f32_to_bf16(f)));
        EXPECT_EQ(weft__round_to(WEFT_FP16, f), weft_fp16_to_f32(weft_f32_to_fp16(f)));
    }
}

TEST(Reference, RelativeError)
{
    const double want[3] = {3, 0, 4};
    const float exact[3] = {3, 0, 4}, off[3] = {3, 5, 4}, nan[3] = {3, NAN, 4};
    EXPECT_EQ(weft__relative_error(exact, want, 3), 0);
    EXPECT_EQ(weft__relative_error(off, want, 3), 1);
    EXPECT_TRUE(std::isnan(weft__relative_error(nan, want, 3)));
    const double zero[3] = {0, 0, 0};
    EXPECT_GT(weft__relative_error(exact, zero, 3), 1);
}

std::vector<float> inputs(uint32_t rows, uint32_t cols)
{
    std::vector<float> x(rows * cols);
    for (uint32_t i = 0; i < x.size(); i++)
        x[i] = weft_bf16_to_f32(weft_f32_to_bf16(weft_seeded(9, i, 0, 1.0f)));
    return x;
}

double bf16(double v) { return weft__round_to(WEFT_BF16, v); }

TEST(Reference, ChainOfRaggedWidths)
{
    const uint32_t widths[] = {13, 70, 9}, m = 5;
    for (uint32_t epilogue : {WEFT_EPI_NONE, WEFT_EPI_SILU, WEFT_EPI_GELU}) {
        weft__chain chain{};
        chain.widths = widths, chain.n_width = 3, chain.repeat = 1, chain.m = m, chain.dtype = WEFT_BF16,
        chain.seed = 7;
        chain.epilogue = epilogue;
        weft__graph *g;
        ASSERT_EQ(weft__graph_chain(&chain, &g), 0) << weft__error();
        std::vector<float> x = inputs(m, 13);
        std::vector<double> out(m * 9), at(x.begin(), x.end());
        ASSERT_EQ(weft__reference_rows(g, nullptr, x.data(), m, nullptr, out.data()), 0) << weft__error();
        for (uint32_t o = 0; o < g->n_op; o++) {
            const weft__gtensor &w = g->tensors[g->ops[o].w];
            std::vector<double> next(m * w.rows);
            for (uint32_t r = 0; r < m; r++)
                for (uint32_t n = 0; n < w.rows; n++) {
                    double sum = 0;
                    for (uint32_t k = 0; k < w.cols; k++)
                        sum += at[r * w.cols + k] * bf16(weft_seeded(w.source.seed, n, k, w.source.scale));
                    if (epilogue == WEFT_EPI_SILU) sum = sum / (1 + std::exp(-sum));
                    if (epilogue == WEFT_EPI_GELU) sum = 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
                    next[r * w.rows + n] = bf16(sum);
                }
            at = next;
        }
        // Sums in another order may round to the other neighbour now and then; never further.
        for (size_t i = 0; i < out.size(); i++)
            EXPECT_NEAR(out[i], at[i], std::fabs(at[i]) * 0x1p-7);
        weft__graph_free(g);
    }
}

// A model of one block in memory: names to matrices.
struct Model {
    std::map<std::string, std::vector<float>> tensors;
    std::map<std::string, std::pair<uint32_t, uint32_t>> shapes;
    void add(const std::string &name, uint32_t rows, uint32_t cols)
    {
        shapes[name] = {rows, cols};
        for (uint32_t i = 0; i < rows * cols; i++)
            tensors[name].push_back(weft_bf16_to_f32(weft_f32_to_bf16(weft_seeded(shapes.size(), i, 1, 0.5f))));
    }
    static int shape(void *user, const char *name, uint32_t *rows, uint32_t *cols)
    {
        auto &s = static_cast<Model *>(user)->shapes;
        if (!s.count(name)) return -1;
        std::tie(*rows, *cols) = s[name];
        return 0;
    }
    static int rows(void *user, const char *name, uint32_t row, uint32_t n, float *dst)
    {
        auto *m = static_cast<Model *>(user);
        uint32_t cols = m->shapes[name].second;
        std::copy_n(m->tensors[name].begin() + row * cols, n * cols, dst);
        return 0;
    }
};

TEST(Reference, MlpBlockWithNormGateAndResidual)
{
    const uint32_t h = 12, f = 20, m = 3; // f is no multiple of 8: padding between gate and up
    Model model;
    model.add("model.layers.0.mlp.gate_proj.weight", f, h);
    model.add("model.layers.0.mlp.up_proj.weight", f, h);
    model.add("model.layers.0.mlp.down_proj.weight", h, f);
    model.add("model.layers.0.post_attention_layernorm.weight", 1, h);
    weft__model desc{};
    desc.hidden = h, desc.intermediate = f, desc.layers = 1, desc.eps = 1e-5f, desc.named = 1, desc.dtype = WEFT_BF16;
    weft__graph *g;
    ASSERT_EQ(weft__graph_mlp(&desc, m, &g), 0) << weft__error();
    weft__weight_reader reader{&model, Model::shape, Model::rows};
    std::vector<float> x = inputs(m, h);
    std::vector<double> out(m * h);
    ASSERT_EQ(weft__reference_rows(g, &reader, x.data(), m, nullptr, out.data()), 0) << weft__error();

    auto &gate = model.tensors["model.layers.0.mlp.gate_proj.weight"],
         &up = model.tensors["model.layers.0.mlp.up_proj.weight"];
    auto &down = model.tensors["model.layers.0.mlp.down_proj.weight"];
    auto &gain = model.tensors["model.layers.0.post_attention_layernorm.weight"];
    for (uint32_t r = 0; r < m; r++) {
        double squares = 0;
        for (uint32_t k = 0; k < h; k++)
            squares += double(x[r * h + k]) * x[r * h + k];
        double factor = 1 / std::sqrt(squares / h + double(1e-5f));
        std::vector<double> mid(f);
        for (uint32_t j = 0; j < f; j++) {
            double a = 0, b = 0;
            for (uint32_t k = 0; k < h; k++) {
                a += x[r * h + k] * bf16(gate[j * h + k] * gain[k]);
                b += x[r * h + k] * bf16(up[j * h + k] * gain[k]);
            }
            a *= factor;
            mid[j] = bf16(a / (1 + std::exp(-a)) * (b * factor));
        }
        for (uint32_t c = 0; c < h; c++) {
            double sum = 0;
            for (uint32_t j = 0; j < f; j++)
                sum += mid[j] * down[c * f + j];
            double want = bf16(x[r * h + c] + sum);
            EXPECT_NEAR(out[r * h + c], want, std::fabs(want) * 0x1p-7);
        }
    }
    model.shapes.erase("model.layers.0.mlp.up_proj.weight");
    EXPECT_EQ(weft__reference_rows(g, &reader, x.data(), m, nullptr, out.data()), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("up_proj"), std::string::npos);
    EXPECT_NE(weft__reference_rows(g, nullptr, x.data(), m, nullptr, out.data()), 0);
    weft__graph_free(g);
}

// An error in one op is charged to that op alone: ops after it start from what was stored.
TEST(Reference, ObservedTensorsAreJudgedOpByOp)
{
    const uint32_t widths[] = {24, 40, 24}, m = 3;
    weft__chain chain{};
    chain.widths = widths, chain.n_width = 3, chain.repeat = 2, chain.m = m, chain.dtype = WEFT_BF16, chain.seed = 11;
    weft__graph *g;
    ASSERT_EQ(weft__graph_chain(&chain, &g), 0) << weft__error();
    std::vector<float> x = inputs(m, 24), stored;
    std::vector<weft__observed> observed(g->n_tensor, weft__observed{});
    std::vector<std::vector<float>> kept(g->n_tensor);
    for (uint32_t o = 0; o < g->n_op; o++) { // find what each op stores, one after another
        uint32_t t = g->ops[o].out;
        kept[t].assign(m * g->tensors[t].cols, 0);
        observed[t].got = kept[t].data();
        std::vector<double> values(m * g->tensors[t].cols);
        uint32_t role = g->tensors[t].role, last = g->ops[g->n_op - 1].out, n_op = g->n_op;
        g->tensors[last].role = WEFT_ROLE_ACT, g->tensors[t].role = WEFT_ROLE_OUTPUT, g->n_op = o + 1;
        observed[t].got = nullptr;
        ASSERT_EQ(weft__reference_rows(g, nullptr, x.data(), m, observed.data(), values.data()), 0) << weft__error();
        g->tensors[t].role = WEFT_ROLE_ACT, g->tensors[last].role = WEFT_ROLE_OUTPUT, g->n_op = n_op;
        if (t != last) g->tensors[t].role = role;
        std::copy(values.begin(), values.end(), kept[t].begin());
        observed[t].got = kept[t].data();
    }
    ASSERT_EQ(weft__reference_rows(g, nullptr, x.data(), m, observed.data(), nullptr), 0);
    for (uint32_t o = 0; o < g->n_op; o++)
        EXPECT_EQ(observed[g->ops[o].out].difference, 0) << o;
    kept[g->ops[1].out][5] += 1;
    ASSERT_EQ(weft__reference_rows(g, nullptr, x.data(), m, observed.data(), nullptr), 0);
    EXPECT_NEAR(observed[g->ops[1].out].difference, 1, 1e-6);
    EXPECT_EQ(observed[g->ops[0].out].difference, 0);
    EXPECT_GT(observed[g->ops[2].out].difference, 0); // it was computed from the right value, which is no longer stored
    EXPECT_EQ(observed[g->ops[3].out].difference, 0);
    weft__graph_free(g);
}

TEST(Reference, RowsAreIndependent)
{
    const uint32_t widths[] = {33, 17}, m = 7;
    weft__chain chain{};
    chain.widths = widths, chain.n_width = 2, chain.repeat = 1, chain.m = m, chain.dtype = WEFT_FP16, chain.seed = 3;
    chain.epilogue = WEFT_EPI_BIAS;
    weft__graph *g;
    ASSERT_EQ(weft__graph_chain(&chain, &g), 0) << weft__error();
    std::vector<float> x = inputs(m, 33);
    std::vector<double> all(m * 17), one(17);
    ASSERT_EQ(weft__reference_rows(g, nullptr, x.data(), m, nullptr, all.data()), 0) << weft__error();
    for (uint32_t r = 0; r < m; r++) {
        ASSERT_EQ(weft__reference_rows(g, nullptr, x.data() + r * 33, 1, nullptr, one.data()), 0);
        EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + r * 17)) << r;
    }
    weft__graph_free(g);
}

} // namespace
