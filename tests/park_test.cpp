// park: workers leave and come back, by call, by a submit and by the idle time-out, and nothing that a step needs is lost.
#include "../host/plan.h"
#include "../host/reference.h"
#include "../megakernel/clock.h"
#include "../runtime/weft.h"
#include "../tasks/seed.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

const char *const policies[] = {"static", "fifo", "push", "steal", "priority"};
const uint32_t rows = 3, width = 96;

struct Planned {
    weft__graph *g = nullptr;
    void *bytes = nullptr;
    uint64_t size = 0;
    explicit Planned(uint32_t devices, uint32_t layers = 2)
    {
        const uint32_t widths[] = {width, 200, width};
        weft__chain c = {widths, 3, layers, rows, WEFT_BF16, 7, WEFT_EPI_NONE};
        weft__plan_options o = weft__plan_defaults();
        o.n_device = devices, o.strategy = WEFT__CTA;
        for (uint32_t d = 0; d < devices; d++)
            o.workers[d] = 2;
        EXPECT_EQ(weft__graph_chain(&c, &g), 0) << weft_last_error();
        EXPECT_EQ(weft__plan(g, &o, &bytes, &size, nullptr), 0) << weft_last_error();
    }
    Planned(const Planned &) = delete;
    ~Planned()
    {
        weft__graph_free(g);
        free(bytes);
    }
};

struct Engine {
    weft_engine *e = nullptr;
    Engine(const Planned &p, const char *devices, const char *queue, uint32_t idle_ms = 0, uint32_t oneshot = 0,
           uint32_t trace = 0)
    {
        weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
        c.devices = devices, c.queue = queue, c.counter_base = 0xffffffe0u, c.deadline_us = 30000000;
        c.idle_ms = idle_ms, c.oneshot = oneshot, c.trace_records = trace;
        EXPECT_EQ(weft_engine_create(p.bytes, p.size, &c, &e), 0) << weft_last_error();
    }
    Engine(const Engine &) = delete;
    ~Engine() { weft_engine_destroy(e); }
    weft_engine_info info() const
    {
        weft_engine_info i = {};
        i.size = sizeof i;
        EXPECT_EQ(weft_engine_get_info(e, &i), 0) << weft_last_error();
        return i;
    }
};

// Output of a step that reads the output of the step before: what was lost at a park would show in all that follow.
std::vector<float> next(const Engine &engine, const std::vector<float> &x)
{
    std::vector<float> out((size_t)rows * width);
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq;
    EXPECT_EQ(weft_tensor_write_f32(engine.e, "x", x.data(), x.size()), 0) << weft_last_error();
    EXPECT_EQ(weft_step_submit(engine.e, &s, &seq), 0) << weft_last_error();
    EXPECT_EQ(weft_step_wait(engine.e, seq), 0) << weft_last_error();
    EXPECT_EQ(weft_tensor_read_f32(engine.e, "out", out.data(), out.size()), 0) << weft_last_error();
    for (size_t i = 0; i < out.size(); i++) // neither growing nor vanishing
        out[i] = out[i] / (1 + std::fabs(out[i])) + 0.5f * x[i];
    return out;
}

std::vector<float> first_input()
{
    std::vector<float> x;
    for (uint32_t i = 0; i < rows * width; i++)
        x.push_back(weft_seeded(5, 0, i, 1.0f));
    return x;
}

size_t threads()
{
    size_t n = 0;
    for ([[maybe_unused]] const auto &task : std::filesystem::directory_iterator("/proc/self/task"))
        n++;
    return n;
}

bool await(const Engine &engine, uint32_t parks, int seconds)
{
    for (uint64_t begin = weft__now_ns(); weft__now_ns() - begin < (uint64_t)seconds * 1000000000u; usleep(1000))
        if (engine.info().parks >= parks) return true;
    return false;
}

// A sanitizer's own thread comes with the first that is made.
size_t threads_at_rest()
{
    std::thread([] {}).join();
    return threads();
}

TEST(Park, StepsAfterItAreBitForBitTheSame)
{
    for (uint32_t devices : {1u, 3u}) {
        Planned p(devices);
        std::string spec = "cpu:" + std::to_string(devices) + "x2";
        for (const char *queue : policies) {
            Engine stays(p, spec.c_str(), queue), parks(p, spec.c_str(), queue);
            std::vector<float> a = first_input(), b = a;
            for (int i = 0; i < 40; i++) { // counters pass the wrap
                if (i % 3 == 0) {
                    ASSERT_EQ(weft_engine_park(parks.e), 0) << weft_last_error();
                }
                if (i % 2 == 0) {
                    ASSERT_EQ(weft_engine_resume(parks.e), 0) << weft_last_error();
                }
                a = next(stays, a), b = next(parks, b);
                ASSERT_EQ(a, b) << spec << " " << queue << " step " << i;
            }
            EXPECT_EQ(parks.info().parks, 14u);
            EXPECT_EQ(stays.info().parks, 0u);
        }
    }
}

TEST(Park, ThreadsEndAndMemoryStays)
{
    Planned p(2);
    const size_t before = threads_at_rest();
    Engine engine(p, "cpu:2x2", "fifo");
    EXPECT_EQ(threads(), before + 4);
    EXPECT_EQ(engine.info().resident, 1u);
    std::vector<float> x = first_input(), back(x.size());
    next(engine, x);
    for (int twice = 0; twice < 2; twice++) {
        ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
        EXPECT_EQ(threads(), before);
        EXPECT_EQ(engine.info().resident, 0u);
        EXPECT_EQ(engine.info().parks, 1u); // parking a parked engine is nothing
    }
    for (float &v : x)
        v = -v;
    ASSERT_EQ(weft_tensor_write_f32(engine.e, "x", x.data(), x.size()), 0) << weft_last_error();
    ASSERT_EQ(weft_tensor_read_f32(engine.e, "x", back.data(), back.size()), 0) << weft_last_error();
    for (size_t i = 0; i < x.size(); i++)
        EXPECT_NEAR(back[i], x[i], 0.01f);
    for (int twice = 0; twice < 2; twice++) {
        ASSERT_EQ(weft_engine_resume(engine.e), 0) << weft_last_error();
        EXPECT_EQ(threads(), before + 4);
        EXPECT_EQ(engine.info().resident, 1u);
    }
}

TEST(Park, ThousandCycles)
{
    Planned p(2);
    for (const char *queue : {"fifo", "push"}) { // those whose workers hold tickets
        Engine stays(p, "cpu:2x2", queue), parks(p, "cpu:2x2", queue);
        std::vector<float> a = first_input(), b = a;
        for (int i = 0; i < 1400; i++) { // 1000 that find it resident
            ASSERT_EQ(weft_engine_park(parks.e), 0) << i << ": " << weft_last_error();
            if (i % 4 == 0) { // a step on resumed workers, by a submit on parked ones, or none
                ASSERT_EQ(weft_engine_resume(parks.e), 0) << i << ": " << weft_last_error();
            }
            if (i % 4 == 3) continue;
            a = next(stays, a), b = next(parks, b);
            ASSERT_EQ(a, b) << queue << " cycle " << i;
        }
        EXPECT_GE(parks.info().parks, 1000u);
    }
}

TEST(Park, WaitsForStepsInFlight)
{
    Planned p(2, 6);
    Engine engine(p, "cpu:2x2", "static");
    weft_step s = WEFT_STEP_INIT;
    for (int round = 0; round < 20; round++) {
        std::vector<uint32_t> seq(WEFT_MAX_STEPS_IN_FLIGHT);
        for (uint32_t &q : seq)
            ASSERT_EQ(weft_step_submit(engine.e, &s, &q), 0) << weft_last_error();
        EXPECT_EQ(weft_step_submit(engine.e, &s, nullptr), WEFT_EBUSY);
        ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
        for (uint32_t q : seq) {
            int done = 0;
            ASSERT_EQ(weft_step_poll(engine.e, q, &done), 0) << weft_last_error();
            EXPECT_EQ(done, 1);
        }
    }
    EXPECT_EQ(engine.info().parks, 20u);
}

TEST(Park, ByItselfWhenIdle)
{
    Planned p(2);
    const size_t before = threads_at_rest();
    Engine stays(p, "cpu:2x2", "push"), idles(p, "cpu:2x2", "push", 30);
    std::vector<float> a = first_input(), b = a;
    for (uint32_t i = 0; i < 5; i++) {
        a = next(stays, a), b = next(idles, b);
        EXPECT_EQ(a, b) << i;
        EXPECT_EQ(idles.info().resident, 1u);
        ASSERT_TRUE(await(idles, i + 1, 30)) << "not parked after 30 ms";
        EXPECT_EQ(idles.info().resident, 0u);
        EXPECT_EQ(threads(), before + 5); // four workers that stay, and the thread that watches
    }
    EXPECT_EQ(stays.info().parks, 0u);
}

// Never while a step is in flight, however long it takes; without polls of the caller, the engine sees its end by itself.
TEST(Park, IdleTimeDoesNotCountSteps)
{
    weft__graph *g = nullptr;
    const uint32_t widths[] = {2048, 4096, 2048};
    weft__chain c = {widths, 3, 1, 32, WEFT_BF16, 7, WEFT_EPI_NONE};
    ASSERT_EQ(weft__graph_chain(&c, &g), 0) << weft_last_error();
    weft__plan_options o = weft__plan_defaults();
    o.workers[0] = 1;
    Planned p(1);
    free(p.bytes);
    ASSERT_EQ(weft__plan(g, &o, &p.bytes, &p.size, nullptr), 0) << weft_last_error();
    weft__graph_free(g);
    Engine engine(p, "cpu:1x1", "static", 2);
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq;
    ASSERT_EQ(weft_step_submit(engine.e, &s, &seq), 0) << weft_last_error();
    uint32_t parks = engine.info().parks;
    EXPECT_TRUE(await(engine, parks + 1, 120));
    int done = 0;
    ASSERT_EQ(weft_step_poll(engine.e, seq, &done), 0) << weft_last_error();
    EXPECT_EQ(done, 1); // it was not parked before
}

// The idle time begins when the end of a step is seen, also where the engine itself sees it first: steps with pauses shorter than
// the time-out are never parked between.
TEST(Park, IdleTimeBeginsAtTheEndOfAStep)
{
    Planned p(2);
    Engine engine(p, "cpu:2x2", "static", 2000);
    weft_step s = WEFT_STEP_INIT;
    const uint64_t begin = weft__now_ns();
    while (weft__now_ns() - begin < 5000000000u) { // the watch looks every two seconds, often between these
        uint32_t seq;
        ASSERT_EQ(weft_step_submit(engine.e, &s, &seq), 0) << weft_last_error();
        usleep(20000); // done long before; nobody has looked yet
        ASSERT_EQ(engine.info().parks, 0u);
        ASSERT_EQ(weft_step_wait(engine.e, seq), 0) << weft_last_error();
    }
}

// Three threads, one engine: steps here, parks and resumes there, as weft.h allows; the idle watch beside them.
TEST(Park, FromOtherThreads)
{
    Planned p(2);
    Engine stays(p, "cpu:2x2", "fifo"), engine(p, "cpu:2x2", "fifo", 1);
    std::atomic<bool> over{false};
    std::atomic<int> failed{0};
    auto repeat = [&](int (*call)(weft_engine *), useconds_t us) {
        while (!over) {
            failed += call(engine.e) != 0;
            usleep(us);
        }
    };
    std::thread parker(repeat, weft_engine_park, 300), resumer(repeat, weft_engine_resume, 700);
    std::vector<float> a = first_input(), b = a;
    for (int i = 0; i < 1000 && a == b; i++)
        a = next(stays, a), b = next(engine, b);
    over = true;
    parker.join();
    resumer.join();
    EXPECT_EQ(a, b);
    EXPECT_EQ(failed, 0);
    EXPECT_GT(engine.info().parks, 0u);
}

TEST(Park, TraceGoesOn)
{
    Planned p(2);
    Engine engine(p, "cpu:2x2", "push", 0, 0, 4096);
    std::vector<float> x = first_input();
    size_t n = 0, one = 0;
    next(engine, x);
    ASSERT_EQ(weft_trace_read(engine.e, nullptr, 0, &one), 0) << weft_last_error();
    ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
    ASSERT_EQ(weft_trace_read(engine.e, nullptr, 0, &n), 0) << weft_last_error();
    EXPECT_EQ(n, one);
    next(engine, x);
    std::vector<weft_event> v(4 * one);
    ASSERT_EQ(weft_trace_read(engine.e, v.data(), v.size(), &n), 0) << weft_last_error();
    ASSERT_EQ(n, 2 * one);
    for (size_t i = 1; i < n; i++)
        if (v[i].device == v[i - 1].device && v[i].worker == v[i - 1].worker) {
            EXPECT_LE(v[i - 1].signal_ns, v[i].pop_ns) << i;
        }
}

TEST(Park, Refused)
{
    Planned p(1);
    Engine once(p, "cpu:1x2", "static", 5, 3);
    EXPECT_EQ(weft_engine_park(once.e), WEFT_EUSAGE);
    EXPECT_EQ(weft_engine_resume(once.e), WEFT_EUSAGE);
    EXPECT_EQ(once.info().resident, 0u);
    Engine engine(p, "cpu:1x2", "static");
    ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
    weft_engine_stop(engine.e);
    weft_step s = WEFT_STEP_INIT;
    EXPECT_EQ(weft_step_submit(engine.e, &s, nullptr), WEFT_EABORT);
    EXPECT_EQ(weft_engine_resume(engine.e), WEFT_EABORT);
    EXPECT_EQ(weft_engine_park(engine.e), WEFT_EABORT);
    EXPECT_EQ(engine.info().resident, 0u);
    weft_stop_report r = {};
    r.size = sizeof r;
    ASSERT_EQ(weft_engine_report(engine.e, &r), 0) << weft_last_error();
    EXPECT_STREQ(r.cause, "host");
}

// A caller built before the field existed gets the default; zero is never.
TEST(Park, IdleTimeOfOlderCallers)
{
    Planned p(1);
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    EXPECT_EQ(c.idle_ms, 1000u);
    c.size = offsetof(weft_engine_config, idle_ms);
    c.devices = "cpu:1x1", c.idle_ms = 1;
    weft_engine *e;
    ASSERT_EQ(weft_engine_create(p.bytes, p.size, &c, &e), 0) << weft_last_error();
    usleep(200000);
    weft_engine_info i = {};
    i.size = sizeof i;
    EXPECT_EQ(weft_engine_get_info(e, &i), 0);
    EXPECT_EQ(i.parks, 0u);
    weft_engine_destroy(e);
}

} // namespace
