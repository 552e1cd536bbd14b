/* The engine from outside, through weft.h: results of GEMM chains against float64 under every strategy and policy, the same
 * bits whoever computes them, and what calls do with bad arguments.                                                      */
#include "../host/plan.h"
#include "../host/reference.h"
#include "../runtime/weft.h"
#include "../tasks/seed.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace
{

const char *const policies[] = {"static", "fifo", "push", "steal", "priority"};

struct Chain {
    weft__graph *g = nullptr;
    std::vector<uint32_t> widths;
    uint32_t m;
    std::vector<float> x;
    std::vector<double> want;

    Chain(std::vector<uint32_t> w, uint32_t rows, uint32_t epilogue = WEFT_EPI_NONE, uint32_t dtype = WEFT_BF16)
        : widths(std::move(w)), m(rows)
    {
        weft__chain c = {widths.data(), (uint32_t)widths.size(), 1, m, dtype, 7, epilogue};
        EXPECT_EQ(weft__graph_chain(&c, &g), 0) << weft_last_error();
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t i = 0; i < widths[0]; i++)
                x.push_back(weft_seeded(99, r, i, 1.0f));
        want.resize((size_t)m * widths.back());
        EXPECT_EQ(weft__reference_rows(g, nullptr, x.data(), m, nullptr, want.data()), 0) << weft_last_error();
    }
    ~Chain() { weft__graph_free(g); }
};

struct Planned {
    void *bytes = nullptr;
    uint64_t size = 0;
    ~Planned() { free(bytes); }
    int plan(const Chain &c, uint32_t n_device, uint32_t workers, uint32_t strategy, uint32_t tp = 0)
    {
        weft__plan_options o = weft__plan_defaults();
        o.n_device = n_device, o.strategy = strategy, o.tp = tp;
        for (uint32_t d = 0; d < n_device; d++)
            o.workers[d] = workers;
        return weft__plan(c.g, &o, &bytes, &size, nullptr);
    }
};

weft_engine *create(const Planned &p, const char *devices, const char *queue, uint32_t trace = 0, uint32_t oneshot = 0)
{
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = devices, c.queue = queue, c.counter_base = 0xfffffff0u, c.deadline_us = 30000000;
    c.trace_records = trace, c.oneshot = oneshot;
    weft_engine *e = nullptr;
    EXPECT_EQ(weft_engine_create(p.bytes, p.size, &c, &e), 0) << weft_last_error();
    return e;
}

std::vector<float> run(weft_engine *e, const Chain &c, int steps = 1)
{
    std::vector<float> out((size_t)c.m * c.widths.back(), 0);
    weft_step s = WEFT_STEP_INIT;
    for (int i = 0; i < steps; i++) {
        uint32_t seq;
        EXPECT_EQ(weft_engine_poison(e, 0xff), 0) << weft_last_error();
        EXPECT_EQ(weft_tensor_write_f32(e, "x", c.x.data(), c.x.size()), 0) << weft_last_error();
        EXPECT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
        EXPECT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
    }
    EXPECT_EQ(weft_tensor_read_f32(e, "out", out.data(), out.size()), 0) << weft_last_error();
    return out;
}

struct Machine {
    const char *spec;
    uint32_t devices, workers;
};
const Machine machines[] = {{"cpu:1x1", 1, 1}, {"cpu:2x1", 2, 1}, {"cpu:3x2", 3, 2}, {"cpu:8x1", 8, 1}};

TEST(Engine, ChainsUnderEveryStrategyPolicyAndMachine)
{
    const Chain chains[] = {{{33, 70, 200, 33}, 1}, {{130, 257, 64, 96}, 7}, {{97, 300, 40}, 130, WEFT_EPI_GELU}};
    for (const Chain &c : chains)
        for (const Machine &m : machines)
            for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
                Planned p;
                if (strategy == WEFT__CTA_TP && m.devices % 2) continue;
                ASSERT_EQ(p.plan(c, m.devices, m.workers, strategy, strategy == WEFT__CTA_TP ? 2 : 0), 0)
                    << weft_last_error();
                std::vector<float> first;
                for (const char *queue : policies) {
                    weft_engine *e = create(p, m.spec, queue);
                    ASSERT_NE(e, nullptr);
                    std::vector<float> out = run(e, c, 2);
                    std::string what = std::string(m.spec) + " " + weft__strategy_name(strategy) + " " + queue + " m " +
                                       std::to_string(c.m);
                    EXPECT_LE(weft__relative_error(out.data(), c.want.data(), out.size()), 5e-3) << what;
                    if (first.empty()) first = out;
                    EXPECT_EQ(out, first) << what << ": other bits than under static";
                    weft_engine_destroy(e);
                }
            }
}

TEST(Engine, BitsDontDependOnTheNumberOfWorkers)
{
    Chain c({256, 512, 256}, 5);
    Planned p;
    ASSERT_EQ(p.plan(c, 2, 2, WEFT__CTA), 0) << weft_last_error();
    std::vector<float> first;
    for (const char *spec : {"cpu:2x1", "cpu:2x2", "cpu:2x3", "cpu:2x5"})
        for (const char *queue : policies) {
            weft_engine *e = create(p, spec, queue);
            ASSERT_NE(e, nullptr);
            std::vector<float> out = run(e, c, 3);
            if (first.empty()) first = out;
            EXPECT_EQ(out, first) << spec << " " << queue;
            weft_engine_destroy(e);
        }
}

TEST(Engine, Fp16)
{
    Chain c({100, 300, 100}, 4, WEFT_EPI_SILU, WEFT_FP16);
    Planned p;
    ASSERT_EQ(p.plan(c, 2, 1, WEFT__CTA), 0) << weft_last_error();
    weft_engine *e = create(p, "cpu:2x1", "static");
    std::vector<float> out = run(e, c);
    EXPECT_LE(weft__relative_error(out.data(), c.want.data(), out.size()), 1e-3);
    weft_engine_destroy(e);
}

TEST(Engine, SixteenStepsInFlightAndNoMore)
{
    Chain c({64, 64}, 1);
    Planned p;
    ASSERT_EQ(p.plan(c, 1, 1, WEFT__SINGLE), 0);
    weft_engine *e = create(p, "cpu:1x1", "static", 0, 16);
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq = 0;
    for (uint32_t i = 0; i < 15; i++)
        ASSERT_EQ(weft_step_submit(e, &s, &seq), 0);
    int done;
    ASSERT_EQ(weft_step_poll(e, 1, &done), 0);
    EXPECT_EQ(done, 0) << "a oneshot engine starts with its last step";
    EXPECT_EQ(weft_step_wait(e, 1), WEFT_EUSAGE);
    ASSERT_EQ(weft_step_submit(e, &s, &seq), 0);
    EXPECT_EQ(weft_step_submit(e, &s, nullptr), WEFT_EUSAGE);
    EXPECT_EQ(seq, 16u);
    EXPECT_EQ(weft_step_wait(e, 16), 0) << weft_last_error();
    weft_engine_destroy(e);

    e = create(p, "cpu:1x1", "static");
    int busy = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        int status = weft_step_submit(e, &s, &seq);
        if (status == WEFT_EBUSY) {
            busy++;
            ASSERT_EQ(weft_step_wait(e, seq - 8), 0);
            continue;
        }
        ASSERT_EQ(status, 0) << weft_last_error();
    }
    EXPECT_GT(busy, 0);
    EXPECT_EQ(weft_step_wait(e, seq), 0);
    weft_engine_destroy(e);
}

TEST(Engine, TraceHasEveryTaskOnce)
{
    Chain c({64, 160, 64}, 3);
    Planned p;
    ASSERT_EQ(p.plan(c, 2, 2, WEFT__CTA), 0);
    for (const char *queue : policies) {
        weft_engine *e = create(p, "cpu:2x2", queue, 1000);
        run(e, c, 4);
        weft_engine_info info = {};
        info.size = sizeof info;
        ASSERT_EQ(weft_engine_get_info(e, &info), 0);
        std::vector<weft_event> v(100000);
        size_t n;
        ASSERT_EQ(weft_trace_read(e, v.data(), v.size(), &n), 0) << weft_last_error();
        EXPECT_EQ(n, 4u * info.tasks) << queue;
        for (size_t i = 0; i < n; i++) {
            EXPECT_LE(v[i].pop_ns, v[i].ready_ns);
            EXPECT_LE(v[i].start_ns, v[i].end_ns);
            EXPECT_LE(v[i].end_ns, v[i].signal_ns);
            EXPECT_EQ(std::string(v[i].kind), "gemm_stream");
        }
        std::string path = ::testing::TempDir() + "/weft-trace.json";
        EXPECT_EQ(weft_trace_write(e, path.c_str()), 0) << weft_last_error();
        EXPECT_EQ(weft_trace_summary(e, path.c_str()), 0) << weft_last_error();
        EXPECT_EQ(weft_trace_write(e, "/nonexistent/x"), WEFT_EIO);
        weft_engine_destroy(e);
    }
}

TEST(Engine, BadArgumentsAreNamed)
{
    Chain c({64, 64}, 2);
    Planned p;
    ASSERT_EQ(p.plan(c, 1, 1, WEFT__SINGLE), 0);
    weft_engine *e;
    auto refuse = [&](weft_engine_config config, int status, const char *word) {
        EXPECT_EQ(weft_engine_create(p.bytes, p.size, &config, &e), status) << weft_last_error();
        EXPECT_NE(std::string(weft_last_error()).find(word), std::string::npos) << weft_last_error();
    };
    weft_engine_config good = WEFT_ENGINE_CONFIG_INIT, bad = good;
    good.devices = bad.devices = "cpu:1x1";
    for (const char *spec : {"cpu:0", "cpu:1x0", "cpu:65", "cpu:1x", "cpu:x", "cpux", "cpu:1x1x1", "tpu", "cpu:-1"}) {
        bad.devices = spec;
        refuse(bad, WEFT_EUSAGE, spec);
    }
    bad.devices = "cpu:2x1";
    refuse(bad, WEFT_EUSAGE, "2 devices");
    bad = good, bad.queue = "lifo";
    refuse(bad, WEFT_EUSAGE, "lifo");
    bad = good, bad.oneshot = 17;
    refuse(bad, WEFT_EUSAGE, "17");
    bad = good, bad.size = 0;
    refuse(bad, WEFT_EUSAGE, "size");
    EXPECT_EQ(weft_engine_create(p.bytes, 100, &good, &e), WEFT_EFILE);
    ((uint8_t *)p.bytes)[p.size - 1] ^= 1;
    EXPECT_EQ(weft_engine_create(p.bytes, p.size, &good, &e), WEFT_EFILE) << "a changed byte";
    ((uint8_t *)p.bytes)[p.size - 1] ^= 1;

    weft_image_header *header = (weft_image_header *)p.bytes;
    uint32_t proven = header->policies;
    header->policies = 1u << WEFT_POLICY_STATIC;
    weft__image_seal(p.bytes, p.size);
    bad = good, bad.queue = "push";
    refuse(bad, WEFT_EREFUSED, "push");
    header->policies = proven;
    weft__image_seal(p.bytes, p.size);

    ASSERT_EQ(weft_engine_create(p.bytes, p.size, &good, &e), 0) << weft_last_error();
    float f[128];
    EXPECT_EQ(weft_tensor_write_f32(e, "y", f, 128), WEFT_EUSAGE);
    EXPECT_EQ(weft_tensor_write_f32(e, "x", f, 127), WEFT_EUSAGE);
    EXPECT_EQ(weft_tensor_read_f32(e, "out", f, 1), WEFT_EUSAGE);
    weft_step s = WEFT_STEP_INIT;
    s.variant = 1;
    EXPECT_EQ(weft_step_submit(e, &s, nullptr), WEFT_EUSAGE);
    s.variant = 0, s.rows = 3;
    EXPECT_EQ(weft_step_submit(e, &s, nullptr), WEFT_EUSAGE);
    int done;
    EXPECT_EQ(weft_step_poll(e, 1, &done), WEFT_EUSAGE);
    weft_stop_report r = {};
    r.size = sizeof r;
    EXPECT_EQ(weft_engine_report(e, &r), WEFT_EUSAGE);
    weft_device_info d;
    EXPECT_EQ(weft_engine_device(e, 0, &d), 0);
    EXPECT_STREQ(d.name, "cpu:0");
    EXPECT_EQ(weft_engine_device(e, 1, &d), WEFT_EUSAGE);
    weft_engine_destroy(e);
    weft_engine_destroy(nullptr);
}

TEST(Engine, FewerRowsThanTheVariantHas)
{
    Chain c({64, 96, 64}, 24);
    Planned p;
    ASSERT_EQ(p.plan(c, 2, 1, WEFT__CTA), 0);
    weft_engine *e = create(p, "cpu:2x1", "push");
    weft_step s = WEFT_STEP_INIT;
    s.rows = 5;
    uint32_t seq;
    ASSERT_EQ(weft_engine_poison(e, 0xff), 0);
    ASSERT_EQ(weft_tensor_write_f32(e, "x", c.x.data(), c.x.size()), 0);
    ASSERT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
    ASSERT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
    std::vector<float> out((size_t)c.m * 64);
    ASSERT_EQ(weft_tensor_read_f32(e, "out", out.data(), out.size()), 0);
    EXPECT_LE(weft__relative_error(out.data(), c.want.data(), 5 * 64), 5e-3);
    EXPECT_TRUE(std::isnan(out[5 * 64])) << "rows beyond the batch are not written";
    weft_engine_destroy(e);
}

TEST(Engine, StatusesHaveTextsAndExitCodes)
{
    EXPECT_STREQ(weft_status_text(WEFT_EABORT), "stopped by the watchdog");
    EXPECT_EQ(weft_status_exit(WEFT_EABORT), 4);
    EXPECT_EQ(weft_status_exit(0), 0);
    EXPECT_STREQ(weft_status_text(-999), "unknown status");
}

} // namespace
