// cuda_abort: what hangs is reported within 1.1 x the deadline, with names and numbers, and the process goes on: a new engine
// on the same GPU gives right results.
#include "cuda.h"

#include "../megakernel/clock.h"

#include <thread>

namespace
{

constexpr uint32_t DEADLINE_US = 200000, BASE = 0xfffffff0u;

struct Broken {
    Graph graph;
    Image image;
    std::string spec;
    std::vector<float> x;

    // A chain of `layers` GEMMs of 64 -> 64: layer i is op "gemm<i>".
    void make(const char *gpu_spec, uint32_t strategy, uint32_t packets)
    {
        spec = on(gpu_spec);
        const uint32_t widths[] = {64, 64};
        weft__chain chain{};
        chain.widths = widths, chain.n_width = 2, chain.repeat = 6, chain.m = 1, chain.dtype = WEFT_BF16,
        chain.seed = 3;
        ASSERT_EQ(weft__graph_chain(&chain, &graph.g), 0) << weft_last_error();
        weft__plan_options o = weft__plan_defaults();
        o.strategy = strategy, o.packet_max_rows = packets, o.tile_groups = 1;
        ASSERT_EQ(image.plan(graph.g, spec, o), 0) << weft_last_error();
        x = random_rows(1, 64, 5);
    }

    weft_image_queue *queue(uint32_t d) const { return image.section<weft_image_queue>(image.header()->queues) + d; }
    weft_task *tasks(uint32_t d) const { return image.section<weft_task>(image.header()->tasks) + queue(d)->task; }
    weft_op *ops() const { return image.section<weft_op>(image.header()->ops); }

    // One more arrival than there are signals, on the first counter that the last task of device d waits for.
    uint32_t raise_arrivals(uint32_t d) const
    {
        weft_task *t = tasks(d), *last = t + queue(d)->n_task - 1;
        weft_counter *counters = image.section<weft_counter>(image.header()->counters) + queue(d)->counter;
        uint32_t id = last->wait[0].counter;
        EXPECT_GT(last->n_wait, 0u);
        counters[id].arrivals++;
        for (uint32_t i = 0; i < queue(d)->n_task; i++)
            for (uint32_t w = 0; w < t[i].n_wait && w < 2; w++)
                if (t[i].wait[w].counter == id) t[i].wait[w].arrivals++;
        image.seal();
        return id;
    }
};

struct Report {
    weft_stop_report r = {};
    double us = 0;
};

// Steps into the wall: the report and how long it took.
Report hit(const Engine &engine)
{
    Report report;
    report.r.size = sizeof report.r;
    uint64_t start = weft__now_ns();
    EXPECT_EQ(engine.step(), WEFT_EABORT);
    report.us = (double)(weft__now_ns() - start) * 1e-3;
    EXPECT_LE(report.us, 1.1 * DEADLINE_US);
    EXPECT_GE(report.us, 0.99 * DEADLINE_US);
    EXPECT_EQ(weft_engine_report(engine.e, &report.r), 0) << weft_last_error();
    EXPECT_EQ(report.r.step, 1u);
    printf("%.1f ms: %s\n", report.us * 1e-3, report.r.text ? report.r.text : "");
    return report;
}

int start(Engine &engine, const Broken &b, const char *queue)
{
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.deadline_us = DEADLINE_US, c.unchecked = 1, c.counter_base = BASE;
    return engine.start(b.image, b.spec, queue, c);
}

// The same process, the same devices: a sound image runs.
void still_works(const char *gpu_spec, uint32_t strategy, const char *queue)
{
    Broken sound;
    Engine engine;
    sound.make(gpu_spec, strategy, 1);
    ASSERT_EQ(start(engine, sound, queue), 0) << weft_last_error();
    for (int i = 0; i < 3; i++)
        EXPECT_LE(check_step(engine, sound.graph.g, sound.x, nullptr), 5e-3) << weft_last_error();
}

void missing_arrival(const char *gpu_spec, uint32_t strategy, uint32_t device, const char *queue)
{
    SKIP_WITHOUT(on(gpu_spec));
    Broken b;
    b.make(gpu_spec, strategy, 0);
    uint32_t counter = b.raise_arrivals(device);
    {
        Engine checked;
        EXPECT_EQ(checked.start(b.image, b.spec, queue), WEFT_EREFUSED) << "the validator lets it pass";
        Engine engine;
        ASSERT_EQ(start(engine, b, queue), 0) << weft_last_error();
        ASSERT_EQ(weft_tensor_write_f32(engine.e, "x", b.x.data(), b.x.size()), 0);
        Report report = hit(engine);
        const weft_stop_report &r = report.r;
        if (!strcmp(queue, "push")) {
            EXPECT_STREQ(r.cause, "queue") << r.text;
        } else {
            EXPECT_STREQ(r.cause, "counter") << r.text;
            EXPECT_EQ(r.counter, counter) << r.text;
            EXPECT_EQ(r.device, device) << r.text;
            EXPECT_EQ(r.expected - r.seen, 1u) << r.text;
            EXPECT_EQ(r.expected, BASE + 5) << r.text; // four tiles a layer, and the one that never comes
            EXPECT_STREQ(r.op, "gemm5") << r.text;
            EXPECT_NE(std::string(r.text).find("gemm5"), std::string::npos) << r.text;
        }
    }
    still_works(gpu_spec, strategy, queue);
}

TEST(CudaAbort, MissingArrivalStatic) { missing_arrival("cuda:0", WEFT__SINGLE, 0, "static"); }
TEST(CudaAbort, MissingArrivalFifo) { missing_arrival("cuda:0", WEFT__SINGLE, 0, "fifo"); }
TEST(CudaAbort, MissingArrivalPush) { missing_arrival("cuda:0", WEFT__SINGLE, 0, "push"); }
TEST(CudaAbort, MissingArrivalOnAnotherDevice) { missing_arrival("cuda:0/2", WEFT__CTA, 1, "static"); }

// The producer of layer 3 writes no packets, and layer 4 waits for them.
TEST(CudaAbort, MissingPacket)
{
    SKIP_WITHOUT(on("cuda:0"));
    Broken b;
    b.make("cuda:0", WEFT__SINGLE, 1);
    ASSERT_TRUE(b.ops()[3].flags & WEFT_OP_OUT_PACKET);
    b.ops()[3].flags &= ~(uint32_t)WEFT_OP_OUT_PACKET;
    b.image.seal();
    {
        Engine engine;
        ASSERT_EQ(start(engine, b, "static"), 0) << weft_last_error();
        ASSERT_EQ(weft_tensor_write_f32(engine.e, "x", b.x.data(), b.x.size()), 0);
        Report report = hit(engine);
        EXPECT_STREQ(report.r.cause, "packet") << report.r.text;
        EXPECT_EQ(report.r.expected, 1u) << report.r.text;
        EXPECT_EQ(report.r.seen, 0u) << report.r.text;
    }
    still_works("cuda:0", WEFT__SINGLE, "static");
}

// A body that does not end in time: nobody waits for it but the host.
TEST(CudaAbort, BodyThatStays)
{
    SKIP_WITHOUT(on("cuda:0"));
    Broken b;
    b.spec = on("cuda:0");
    ASSERT_EQ(weft__graph_new(&b.graph.g), 0);
    ASSERT_EQ(weft__graph_nop(b.graph.g, 0, 1, 600000000, nullptr, 0, 0, nullptr), 0);
    ASSERT_EQ(b.image.plan(b.graph.g, b.spec), 0) << weft_last_error();
    {
        Engine engine;
        ASSERT_EQ(start(engine, b, "static"), 0) << weft_last_error();
        Report report = hit(engine);
        EXPECT_STREQ(report.r.cause, "body") << report.r.text;
        EXPECT_EQ(report.r.device, 0u);
        EXPECT_EQ(report.r.worker, 0u);
        EXPECT_EQ(report.r.task, 0u);
    }
    still_works("cuda:0", WEFT__SINGLE, "static");
}

// What was right before the stop stays right, and stop works from idle.
TEST(CudaAbort, StopOfAnIdleEngine)
{
    SKIP_WITHOUT(on("cuda:0"));
    Broken b;
    b.make("cuda:0", WEFT__SINGLE, 1);
    {
        Engine engine;
        ASSERT_EQ(start(engine, b, "static"), 0) << weft_last_error();
        EXPECT_LE(check_step(engine, b.graph.g, b.x, nullptr), 5e-3) << weft_last_error();
        weft_engine_stop(engine.e);
        EXPECT_EQ(engine.step(), WEFT_EABORT);
    }
    still_works("cuda:0", WEFT__SINGLE, "static");
}

} // namespace
