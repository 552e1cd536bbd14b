// cuda_life: engines start and stop many times in one process, count past the wrap, and let the host copy while they are
// resident.
#include "cuda.h"

#include "../megakernel/clock.h"

namespace
{

int make_chain(weft__graph **g, std::vector<uint32_t> widths, uint32_t m, uint32_t repeat = 1)
{
    weft__chain chain{};
    chain.widths = widths.data(), chain.n_width = (uint32_t)widths.size(), chain.repeat = repeat, chain.m = m;
    chain.dtype = WEFT_BF16, chain.seed = 11;
    return weft__graph_chain(&chain, g);
}

// WEFT_TEST_CYCLES: how many (200).
TEST(CudaLife, StartAndStop)
{
    std::string one = on("cuda:0"), two = on("cuda:0/2");
    SKIP_WITHOUT(two);
    const char *wanted = getenv("WEFT_TEST_CYCLES");
    int n = wanted ? atoi(wanted) : 200;
    Graph graph;
    Image image[2];
    ASSERT_EQ(make_chain(&graph.g, {128, 300, 128}, 3), 0) << weft_last_error();
    weft__plan_options o = weft__plan_defaults();
    o.strategy = WEFT__CTA;
    ASSERT_EQ(image[0].plan(graph.g, one, o), 0) << weft_last_error();
    ASSERT_EQ(image[1].plan(graph.g, two, o), 0) << weft_last_error();
    std::vector<float> x = random_rows(3, 128, 1), first[2], out;
    uint64_t begin = weft__now_ns();
    for (int i = 0; i < n; i++) {
        Engine engine;
        ASSERT_EQ(engine.start(image[i % 2], i % 2 ? two : one, gpu_policies[i % 3]), 0)
            << i << ": " << weft_last_error();
        if (i % 10 == 9) continue; // some without a step
        ASSERT_LE(check_step(engine, graph.g, x, &out), 5e-3) << i << ": " << weft_last_error();
        if (first[i % 2].empty()) first[i % 2] = out;
        ASSERT_EQ(out, first[i % 2]) << i;
    }
    printf("%.2f ms a cycle\n", (double)(weft__now_ns() - begin) * 1e-6 / n);
}

// Counters, tickets and done words pass 2^32; packets carry the step's number besides.
TEST(CudaLife, CountersPassTheWrap)
{
    std::string spec = on("cuda:0/2");
    SKIP_WITHOUT(spec);
    for (const char *queue : gpu_policies)
        for (uint32_t m : {1u, 9u}) {
            Graph graph;
            Image image;
            Engine engine;
            ASSERT_EQ(make_chain(&graph.g, {128, 300, 128}, m, 2), 0) << weft_last_error();
            weft__plan_options o = weft__plan_defaults();
            o.strategy = WEFT__CTA;
            ASSERT_EQ(image.plan(graph.g, spec, o), 0) << weft_last_error();
            weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
            c.counter_base = 0u - 70;
            ASSERT_EQ(engine.start(image, spec, queue, c), 0) << weft_last_error();
            for (int i = 0; i < 60; i++)
                ASSERT_LE(check_step(engine, graph.g, random_rows(m, 128, i), nullptr), 5e-3)
                    << queue << " step " << i << ": " << weft_last_error();
        }
}

TEST(CudaLife, SixteenStepsInFlight)
{
    std::string spec = on("cuda:0/2");
    SKIP_WITHOUT(spec);
    for (const char *queue : gpu_policies) {
        Graph graph;
        Image image;
        Engine engine;
        ASSERT_EQ(make_chain(&graph.g, {256, 512, 256}, 1, 4), 0) << weft_last_error();
        weft__plan_options o = weft__plan_defaults();
        o.strategy = WEFT__CTA;
        ASSERT_EQ(image.plan(graph.g, spec, o), 0) << weft_last_error();
        ASSERT_EQ(engine.start(image, spec, queue), 0) << weft_last_error();
        std::vector<float> x = random_rows(1, 256, 2), first, last(256);
        ASSERT_LE(check_step(engine, graph.g, x, &first), 5e-3) << weft_last_error();
        weft_step s = WEFT_STEP_INIT;
        std::vector<uint32_t> seq(500);
        for (size_t i = 0; i < seq.size(); i++) {
            if (i >= 16) {
                ASSERT_EQ(weft_step_wait(engine.e, seq[i - 16]), 0) << weft_last_error();
            }
            ASSERT_EQ(weft_step_submit(engine.e, &s, &seq[i]), 0) << weft_last_error();
        }
        ASSERT_EQ(weft_step_wait(engine.e, seq.back()), 0) << weft_last_error();
        ASSERT_EQ(weft_tensor_read_f32(engine.e, "out", last.data(), last.size()), 0);
        EXPECT_EQ(first, last) << queue;
    }
}

TEST(CudaLife, OneshotLeavesByItself)
{
    std::string spec = on("cuda:0");
    SKIP_WITHOUT(spec);
    for (const char *queue : gpu_policies) {
        Graph graph;
        Image image;
        Engine engine;
        ASSERT_EQ(make_chain(&graph.g, {128, 128}, 2), 0) << weft_last_error();
        ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
        weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
        c.oneshot = 3;
        ASSERT_EQ(engine.start(image, spec, queue, c), 0) << weft_last_error();
        std::vector<float> x = random_rows(2, 128, 4), out(256);
        std::vector<double> want(256);
        ASSERT_EQ(weft_tensor_write_f32(engine.e, "x", x.data(), x.size()), 0) << weft_last_error();
        weft_step s = WEFT_STEP_INIT;
        uint32_t seq = 0;
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(weft_step_submit(engine.e, &s, &seq), 0) << weft_last_error();
        ASSERT_EQ(weft_step_wait(engine.e, seq), 0) << weft_last_error();
        ASSERT_EQ(weft_tensor_read_f32(engine.e, "out", out.data(), out.size()), 0) << weft_last_error();
        ASSERT_EQ(weft__reference_rows(graph.g, nullptr, x.data(), 2, nullptr, want.data()), 0);
        EXPECT_LE(weft__relative_error(out.data(), want.data(), out.size()), 5e-3);
    }
}

// 64 MB of pageable memory in and out again, while the workers are resident; it must not wait for the kernel to end.
TEST(CudaLife, PageableCopiesWhileResident)
{
    std::string spec = on("cuda:0");
    SKIP_WITHOUT(spec);
    const uint32_t rows = 512, cols = 65536;
    Graph graph;
    Image image;
    Engine engine;
    ASSERT_EQ(make_chain(&graph.g, {cols, 16}, rows), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
    ASSERT_EQ(engine.start(image, spec), 0) << weft_last_error();
    std::vector<uint16_t> in((size_t)rows * cols), out(in.size());
    uint64_t begin = weft__now_ns();
    for (uint32_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < in.size(); i++)
            in[i] = (uint16_t)(weft_mix32((uint32_t)i + round) & 0xbfff); // no NaN
        ASSERT_EQ(weft_tensor_write(engine.e, "x", in.data(), in.size() * 2), 0) << weft_last_error();
        std::fill(out.begin(), out.end(), 0);
        ASSERT_EQ(weft_tensor_read(engine.e, "x", out.data(), out.size() * 2), 0) << weft_last_error();
        ASSERT_TRUE(in == out);
    }
    EXPECT_LT((double)(weft__now_ns() - begin) * 1e-9, 30);
    EXPECT_EQ(engine.step(), 0) << weft_last_error();
}

} // namespace
