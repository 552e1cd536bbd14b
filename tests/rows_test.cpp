// rows: the kinds that move rows: norms as ops of their own, copies between devices, and norms over split K, computed
// under every strategy and policy against float64.
#include "../runtime/weft.h"
#include "../tasks/seed.h"
#include "plans.h"

#include "../host/reference.h"

#include <chrono>
#include <cmath>

namespace
{

const char *const policies[] = {"static", "fifo", "push", "steal", "priority"};

// x -> norm (gain) -> GEMM + residual x -> ... `layers` times; the norm is an op, or the GEMM's.
struct Blocks {
    weft__graph *g = nullptr;
    uint32_t m, k;
    std::vector<float> x;
    std::vector<double> want;

    Blocks(uint32_t rows, uint32_t width, uint32_t layers, bool separate, uint32_t dtype = WEFT_BF16)
        : m(rows), k(width)
    {
        uint32_t at, w, out;
        EXPECT_EQ(weft__graph_new(&g), 0);
        EXPECT_EQ(weft__graph_tensor(g, "x", WEFT_ROLE_INPUT, dtype, m, k, &at), 0);
        for (uint32_t l = 0; l < layers; l++) {
            weft__source source = {}, gains = {};
            source.fill = gains.fill = WEFT_FILL_SEED;
            source.seed = l + 1, source.scale = 1.0f / std::sqrt((float)k);
            gains.seed = l + 77, gains.scale = 2.0f;
            const std::string n = std::to_string(l);
            uint32_t normed = at, gain;
            if (separate) {
                EXPECT_EQ(weft__graph_tensor(g, ("n" + n).c_str(), WEFT_ROLE_ACT, dtype, m, k, &normed), 0);
                EXPECT_EQ(weft__graph_weight(g, ("g" + n).c_str(), WEFT_FP32, 1, k, &gains, &gain), 0);
                const weft__rmsnorm d = {nullptr, l, at, l % 2 ? WEFT_NONE : gain, normed, 1e-5f};
                EXPECT_EQ(weft__graph_rmsnorm(g, &d, nullptr), 0) << weft__error();
            }
            const bool last = l + 1 == layers;
            EXPECT_EQ(weft__graph_weight(g, ("w" + n).c_str(), dtype, k, k, &source, &w), 0);
            EXPECT_EQ(weft__graph_tensor(g, last ? "out" : ("h" + n).c_str(), last ? WEFT_ROLE_OUTPUT : WEFT_ROLE_ACT,
                                         dtype, m, k, &out),
                      0);
            const weft__gemm d = {nullptr, l, normed, w, at, out, WEFT_EPI_RESIDUAL, !separate, 1e-5f, 0};
            EXPECT_EQ(weft__graph_gemm(g, &d, nullptr), 0) << weft__error();
            at = out;
        }
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t i = 0; i < k; i++)
                x.push_back(weft_seeded(99, r, i, 1.0f));
        want.resize((size_t)m * k);
        EXPECT_EQ(weft__reference_rows(g, nullptr, x.data(), m, nullptr, want.data()), 0) << weft__error();
    }
    ~Blocks() { weft__graph_free(g); }
};

std::vector<float> run(const Plan &p, const Blocks &b, const std::string &devices, const char *queue)
{
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    weft_engine *e = nullptr;
    weft_step s = WEFT_STEP_INIT;
    std::vector<float> out((size_t)b.m * b.k);
    c.devices = devices.c_str(), c.queue = queue, c.counter_base = 0xfffffff0u, c.deadline_us = 30000000;
    EXPECT_EQ(weft_engine_create(p.bytes, p.size, &c, &e), 0) << weft_last_error();
    for (int i = 0; e && i < 2; i++) {
        uint32_t seq;
        EXPECT_EQ(weft_engine_poison(e, 0xff), 0);
        EXPECT_EQ(weft_tensor_write_f32(e, "x", b.x.data(), b.x.size()), 0) << weft_last_error();
        EXPECT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
        EXPECT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
    }
    if (e) {
        EXPECT_EQ(weft_tensor_read_f32(e, "out", out.data(), out.size()), 0) << weft_last_error();
    }
    weft_engine_destroy(e);
    return out;
}

// Which devices' tasks each device ran in a few steps under steal, by the trace: [device][home].
std::vector<std::vector<uint32_t>> who_ran(const Plan &p, const Blocks &b, const std::string &devices, uint32_t n,
                                           int steps = 20)
{
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    weft_engine *e = nullptr;
    weft_step s = WEFT_STEP_INIT;
    std::vector<std::vector<uint32_t>> ran(n, std::vector<uint32_t>(n));
    std::vector<weft_event> events(100000);
    size_t count = 0;
    c.devices = devices.c_str(), c.queue = "steal", c.deadline_us = 30000000, c.trace_records = 20000;
    EXPECT_EQ(weft_engine_create(p.bytes, p.size, &c, &e), 0) << weft_last_error();
    if (!e) return ran;
    EXPECT_EQ(weft_tensor_write_f32(e, "x", b.x.data(), b.x.size()), 0);
    for (int i = 0; i < steps; i++) {
        uint32_t seq;
        EXPECT_EQ(weft_step_submit(e, &s, &seq), 0);
        EXPECT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
    }
    EXPECT_EQ(weft_trace_read(e, events.data(), events.size(), &count), 0);
    for (size_t i = 0; i < count && i < events.size(); i++)
        ran[events[i].device][events[i].home]++;
    weft_engine_destroy(e);
    return ran;
}

uint32_t ops_of(const Plan &p, uint32_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p.img.n_op; i++)
        n += p.img.ops[i].kind == kind;
    return n;
}

TEST(Rows, NormsCopiesAndSplitsUnderEveryStrategyAndPolicy)
{
#ifdef WEFT_SANITIZED
    const std::vector<uint32_t> batches = {7};
#else
    const std::vector<uint32_t> batches = {1, 7, 130};
#endif
    for (uint32_t m : batches) {
        for (bool separate : {true, false}) {
            const Blocks b(m, m == 7 ? 333 : 200, 3, separate);
            for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
                for (uint32_t variant = 0; variant < 4; variant++) {
                    const uint32_t devices = strategy == WEFT__CTA_TP ? 4 : strategy == WEFT__SINGLE ? 1 : 3;
                    weft__plan_options o = on(devices, strategy, 1);
                    o.copies = variant & 1;
                    o.split_k = variant & 2 ? 3 : 1;
                    o.tp = 2;
                    Plan p(b.g, o);
                    ASSERT_EQ(p.rc, 0) << weft__error();
                    EXPECT_EQ(ops_of(p, WEFT_KIND_RMSNORM) > 0, separate);
                    EXPECT_EQ(ops_of(p, WEFT_KIND_COPY) > 0,
                              o.copies && (strategy == WEFT__CTA || strategy == WEFT__MICROBATCH));
                    std::vector<float> first;
                    for (const char *queue : policies) {
                        const std::string what = std::string(weft__strategy_name(strategy)) + " " + queue + " m " +
                                                 std::to_string(m) + " variant " + std::to_string(variant);
                        std::vector<float> out = run(p, b, "cpu:" + std::to_string(devices) + "x1", queue);
                        EXPECT_LE(weft__relative_error(out.data(), b.want.data(), out.size()), 5e-3) << what;
                        if (first.empty()) first = out;
                        EXPECT_EQ(out, first) << what << ": other bits than under static";
                    }
                }
            }
        }
    }
}

// A copy moves bits: whether results are stored at the reader or copied to it is the same to the last bit.
TEST(Rows, CopiesDontChangeABit)
{
    for (uint32_t dtype : {WEFT_BF16, WEFT_FP16}) {
        const Blocks b(5, 200, 4, true, dtype);
        weft__plan_options o = on(4, WEFT__CTA, 2);
        Plan direct(b.g, o);
        o.copies = 1;
        Plan copied(b.g, o);
        ASSERT_EQ(copied.rc, 0) << weft__error();
        EXPECT_EQ(ops_of(direct, WEFT_KIND_COPY), 0u);
        EXPECT_EQ(run(direct, b, "cpu:4x1", "static"), run(copied, b, "cpu:4x2", "push"));
        for (uint32_t d = 0; d < 4; d++)
            for (uint32_t i = 0; i < copied.queue(d).n_task; i++) { // only copies cross, under .sys
                const weft_task &t = copied.img.tasks[copied.queue(d).task + i];
                for (uint32_t s = 0; s < t.n_signal; s++) {
                    const weft_signal sig = weft__task_signal(&t, copied.img.side + copied.queue(d).side, s);
                    EXPECT_TRUE(sig.device == d || (t.kind == WEFT_KIND_COPY && sig.scope == WEFT_SCOPE_SYS));
                }
            }
    }
}

TEST(Rows, NormsSpreadOverTheWorkers)
{
    const Blocks b(64, 200, 1, true);
    for (uint32_t workers : {1u, 8u}) {
        Plan p(b.g, on(1, WEFT__SINGLE, workers));
        uint32_t norms = 0;
        for (uint32_t i = 0; i < p.queue(0).n_task; i++)
            norms += p.img.tasks[p.queue(0).task + i].kind == WEFT_KIND_RMSNORM;
        EXPECT_EQ(norms, workers == 1 ? 1u : 8u);
    }
}

// With alternates a device may take another's tasks: same bits, each task runs once, and the steps of all devices stay apart.
TEST(Rows, TheftChangesNothing)
{
    for (bool separate : {true, false}) {
        const Blocks b(7, 333, 4, separate);
        for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
            const uint32_t devices = strategy == WEFT__CTA_TP ? 4 : 2;
            weft__plan_options o = on(devices, strategy, 1);
            o.tp = 2;
            Plan alone(b.g, o);
            o.alternates = 1;
            Plan p(b.g, o);
            ASSERT_EQ(p.rc, 0) << weft__error();
            const std::string spec = "cpu:" + std::to_string(devices) + "x1";
            const std::vector<float> want = run(alone, b, spec, "static");
            for (const char *queue : policies)
                EXPECT_EQ(run(p, b, spec, queue), want) << weft__strategy_name(strategy) << " " << queue;
            const auto ran = who_ran(p, b, spec, devices), home = who_ran(alone, b, spec, devices);
            for (uint32_t d = 0; d < devices; d++) {
                uint32_t of = 0;
                for (uint32_t by = 0; by < devices; by++)
                    of += ran[by][d];
                EXPECT_EQ(of, home[d][d]) << "tasks of device " << d << " run once each";
            }
        }
    }
}

// Device 0 has all tasks and one worker, device 1 has nothing else to do. A step's tasks take device 0 longer than a scheduler
// keeps device 1 from a core; where the machine is so busy that it does, the next step is another chance, for a minute.
TEST(Rows, AnIdleDeviceStealsWhereThePlanLetsIt)
{
    for (bool separate : {true, false}) {
        const Blocks b(32, 1024, 2, separate);
        weft__plan_options o = on(2, WEFT__SINGLE, 1);
        o.alternates = 1;
        Plan p(b.g, o);
        ASSERT_EQ(p.rc, 0) << weft__error();
        ASSERT_GE(p.queue(0).n_task, 16u);
        ASSERT_EQ(p.queue(1).n_task, 0u);
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        uint32_t stolen = 0;
        while (!stolen && std::chrono::steady_clock::now() < until) {
            const auto ran = who_ran(p, b, "cpu:2x1", 2, 1);
            EXPECT_EQ(ran[0][0] + ran[1][0], p.queue(0).n_task) << "tasks run once each";
            stolen = ran[1][0];
        }
        EXPECT_GT(stolen, 0u) << "separate " << separate;
    }
}

TEST(Rows, AlternatesMustDoTheSame)
{
    const Blocks b(16, 200, 2, true);
    weft__plan_options o = on(2, WEFT__CTA);
    o.alternates = 1;
    struct Bad {
        const char *says;
        std::function<void(Plan &)> set;
    };
    auto there = [](Plan &p) { return p.op(p.img.devices[1].op + p.op(0)->alt); }; // of device 0's first op
    const std::vector<Bad> bad = {
        {"does something else", [&](Plan &p) { there(p)->eps = 1; }},
        {"does something else",
         [&](Plan &p) { const_cast<weft_weight *>(p.img.weights)[p.img.tensors[there(p)->w].weight].seed++; }},
        {"not an alternate of its kind", [&](Plan &p) { p.op(0)->alt = 0; }},
        {"the task's own", [](Plan &p) { p.task(0, 0)->alt_device = 0; }},
        {"op.alt", [](Plan &p) { p.op(0)->alt = 999; }},
        {"another device's tasks use it", [](Plan &p) { p.task(1, 0)->op = p.op(0)->alt; }},
        {"scope", [](Plan &p) { p.counter(0, 0)->scope = WEFT_SCOPE_GPU; }},
    };
    for (const Bad &c : bad) {
        Plan p(b.g, o);
        ASSERT_EQ(p.rc, 0) << weft__error();
        c.set(p);
        EXPECT_NE(p.check(), 0) << c.says;
        EXPECT_TRUE(says(c.says)) << weft__error();
    }
}

TEST(Rows, WhatDoesNotFitIsRefusedByName)
{
    const Blocks b(16, 200, 2, true);
    weft__plan_options o = on(2, WEFT__CTA);
    o.copies = 1;
    auto first = [](Plan &p, uint32_t kind) -> weft_task * {
        for (uint32_t d = 0; d < 2; d++)
            for (uint32_t i = 0; i < p.queue(d).n_task; i++)
                if (p.task(d, i)->kind == kind) return p.task(d, i);
        return nullptr;
    };
    struct Bad {
        uint32_t kind;
        const char *says;
        std::function<void(weft_task *)> set;
    };
    const std::vector<Bad> bad = {
        {WEFT_KIND_RMSNORM, "not whole rows", [](weft_task *t) { t->tile[2]--; }},
        {WEFT_KIND_RMSNORM, "rows past", [](weft_task *t) { t->tile[3] = 17; }},
        {WEFT_KIND_COPY, "not whole blocks", [](weft_task *t) { t->tile[0] = 4, t->tile[3] = 4; }},
        {WEFT_KIND_COPY, "not whole blocks", [](weft_task *t) { t->tile[1] = 2, t->tile[2] = 1; }},
        {WEFT_KIND_COPY, "groups past", [](weft_task *t) { t->tile[2] = 99; }},
        {WEFT_KIND_COPY, "both write", [](weft_task *t) { t->tile[3] = 8; }},
    };
    for (const Bad &c : bad) {
        Plan p(b.g, o);
        ASSERT_EQ(p.rc, 0) << weft__error();
        ASSERT_NE(first(p, c.kind), nullptr);
        c.set(first(p, c.kind));
        EXPECT_NE(p.check(), 0) << c.says;
        EXPECT_TRUE(says(c.says)) << weft__error();
    }
    Plan p(b.g, o);
    for (uint32_t i = 0; i < p.img.n_op; i++)
        if (p.img.ops[i].kind == WEFT_KIND_COPY) p.op(i)->k++;
    EXPECT_EQ(p.check(), WEFT_EFILE);
    EXPECT_TRUE(says(".k is")) << weft__error();
}

} // namespace
