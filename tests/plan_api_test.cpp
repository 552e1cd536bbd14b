// plan_api: a graph built through the public headers alone, planned over two devices and run, gives what it should.
#include "../runtime/weft_plan.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

namespace
{

struct Matrix {
    uint32_t rows, cols;
    std::vector<float> v;
    Matrix(uint32_t r, uint32_t c, uint32_t seed, float scale) : rows(r), cols(c), v((size_t)r * c)
    {
        for (float &x : v) { /* multiples of 1/64: exact in bf16 */
            seed = seed * 1664525u + 1013904223u;
            x = (float)((int)(seed >> 24) % 17 - 8) / 64.0f * scale;
        }
    }
};

using Model = std::map<std::string, Matrix>;

int shape(void *user, const char *name, uint32_t *rows, uint32_t *cols)
{
    auto found = static_cast<Model *>(user)->find(name);
    if (found == static_cast<Model *>(user)->end()) return -1;
    *rows = found->second.rows;
    *cols = found->second.cols;
    return 0;
}

int rows(void *user, const char *name, uint32_t row, uint32_t n, float *dst)
{
    const Matrix &m = static_cast<Model *>(user)->at(name);
    memcpy(dst, &m.v[(size_t)row * m.cols], (size_t)n * m.cols * sizeof *dst);
    return 0;
}

std::vector<double> multiply(const std::vector<double> &x, uint32_t m, const Matrix &w)
{
    std::vector<double> out((size_t)m * w.rows);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < w.rows; j++)
            for (uint32_t k = 0; k < w.cols; k++)
                out[i * w.rows + j] += x[i * w.cols + k] * w.v[(size_t)j * w.cols + k];
    return out;
}

/* Two layers with a residual over both of them: x + W2 (W1 x + b). */
int build(weft_graph *g, uint32_t m, uint32_t h, uint32_t f)
{
    uint32_t x, w1, b, mid, w2, out;
    int rc = weft_graph_tensor(g, "input", "x", "bf16", m, h, &x);
    if (!rc) rc = weft_graph_weight(g, "first", nullptr, nullptr, "bf16", f, h, &w1);
    if (!rc) rc = weft_graph_seeded(g, "shift", "fp32", 1, f, 7, 0.0f, &b);
    if (!rc) rc = weft_graph_tensor(g, "activation", "mid", "bf16", m, f, &mid);
    if (!rc) rc = weft_graph_weight(g, "second", nullptr, nullptr, "bf16", h, f, &w2);
    if (!rc) rc = weft_graph_tensor(g, "output", "out", "bf16", m, h, &out);
    if (rc) return rc;
    weft_gemm d = WEFT_GEMM_INIT;
    d.x = x, d.w = w1, d.aux = b, d.out = mid, d.epilogue = "bias";
    if ((rc = weft_graph_gemm(g, &d))) return rc;
    d.layer = 1, d.x = mid, d.w = w2, d.aux = x, d.out = out, d.epilogue = "residual";
    return weft_graph_gemm(g, &d);
}

TEST(PlanApi, GraphToResult)
{
    const uint32_t m = 5, h = 200, f = 328;
    Model model = {{"first", Matrix(f, h, 1, 1.0f)}, {"second", Matrix(h, f, 2, 1.0f)}};
    const Matrix x(m, h, 3, 4.0f);
    const std::vector<double> xd(x.v.begin(), x.v.end());
    std::vector<double> want = multiply(multiply(xd, m, model.at("first")), m, model.at("second"));
    for (size_t i = 0; i < want.size(); i++)
        want[i] += xd[i];
    for (const char *strategy : {"single", "cta", "tp"}) {
        weft_graph *g;
        ASSERT_EQ(weft_graph_create(&g), 0);
        ASSERT_EQ(build(g, m, h, f), 0) << weft_last_error();
        weft_plan_config c = WEFT_PLAN_CONFIG_INIT;
        const uint32_t workers[2] = {1, 1};
        c.n_device = 2;
        c.workers = workers;
        c.strategy = strategy;
        void *image;
        size_t bytes;
        ASSERT_EQ(weft_plan(g, &c, &image, &bytes), 0) << strategy << ": " << weft_last_error();
        weft_graph_destroy(g);
        EXPECT_EQ(weft_image_check(image, bytes), 0) << weft_last_error();
        const weft_weight_source source = {&model, shape, rows};
        weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
        config.devices = "cpu:2x1";
        config.weights = &source;
        weft_engine *e;
        ASSERT_EQ(weft_engine_create(image, bytes, &config, &e), 0) << weft_last_error();
        weft_image_free(image);
        ASSERT_EQ(weft_tensor_write_f32(e, "x", x.v.data(), x.v.size()), 0) << weft_last_error();
        weft_step s = WEFT_STEP_INIT;
        uint32_t seq;
        ASSERT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
        ASSERT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
        std::vector<float> got((size_t)m * h);
        ASSERT_EQ(weft_tensor_read_f32(e, "out", got.data(), got.size()), 0) << weft_last_error();
        weft_engine_destroy(e);
        double diff = 0, norm = 0;
        for (size_t i = 0; i < got.size(); i++) {
            diff += (got[i] - want[i]) * (got[i] - want[i]);
            norm += want[i] * want[i];
        }
        EXPECT_LT(std::sqrt(diff / norm), 5e-3) << strategy;
    }
}

TEST(PlanApi, ErrorsNameWhatIsWrong)
{
    weft_graph *g;
    uint32_t id;
    ASSERT_EQ(weft_graph_create(&g), 0);
    EXPECT_EQ(weft_graph_tensor(g, "inputs", "x", "bf16", 1, 1, &id), WEFT_EUSAGE);
    EXPECT_NE(std::string(weft_last_error()).find("inputs"), std::string::npos);
    EXPECT_EQ(weft_graph_tensor(g, "input", "x", "int7", 1, 1, &id), WEFT_EUSAGE);
    EXPECT_NE(std::string(weft_last_error()).find("int7"), std::string::npos);
    EXPECT_EQ(weft_graph_tensor(g, "input", "x", "bf16", 0, 1, &id), WEFT_EUSAGE);
    weft_gemm d = WEFT_GEMM_INIT;
    EXPECT_EQ(weft_graph_gemm(g, &d), WEFT_EUSAGE);
    d.size = 1;
    EXPECT_EQ(weft_graph_gemm(g, &d), WEFT_EUSAGE);
    weft_plan_config c = WEFT_PLAN_CONFIG_INIT;
    void *image;
    size_t bytes;
    EXPECT_EQ(weft_plan(g, &c, &image, &bytes), WEFT_EUSAGE); /* no ops */
    c.strategy = "magic";
    EXPECT_EQ(weft_plan(g, &c, &image, &bytes), WEFT_EUSAGE);
    EXPECT_NE(std::string(weft_last_error()).find("magic"), std::string::npos);
    weft_graph_destroy(g);
    weft_graph_destroy(nullptr);
    alignas(16) const char junk[16] = "not an image";
    EXPECT_EQ(weft_image_check(junk, sizeof junk), WEFT_EFILE);
}

TEST(PlanApi, Builders)
{
    weft_graph *g;
    const uint32_t widths[] = {64, 128, 64};
    weft_plan_config c = WEFT_PLAN_CONFIG_INIT;
    c.n_device = 4;
    c.strategy = "cta-tp";
    c.tp = 2;
    void *image;
    size_t bytes;
    ASSERT_EQ(weft_graph_chain(widths, 3, 4, 8, "fp16", 1, &g), 0) << weft_last_error();
    ASSERT_EQ(weft_plan(g, &c, &image, &bytes), 0) << weft_last_error();
    weft_image_free(image);
    weft_graph_destroy(g);
    ASSERT_EQ(weft_graph_mlp(64, 160, 4, 1e-5f, 1, "bf16", 1, 0, &g), 0) << weft_last_error();
    ASSERT_EQ(weft_plan(g, &c, &image, &bytes), 0) << weft_last_error();
    weft_image_free(image);
    weft_graph_destroy(g);
}

} // namespace
