// cuda_life: engines start, stop, park and resume many times in one process, count past the wrap, let the host copy while
// they are resident, and share their GPU with other libraries.
#include "cuda.h"

#include "../megakernel/clock.h"

#include <atomic>
#include <thread>
#include <unistd.h>

#ifdef WEFT_HAVE_CUDA
#include <cublas_v2.h>
#include <cuda_runtime.h>
#endif

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
        ASSERT_EQ(engine.start(image[i % 2], i % 2 ? two : one, gpu_policies[i % n_gpu_policies]), 0)
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

weft_engine_info info_of(const Engine &engine)
{
    weft_engine_info i = {};
    i.size = sizeof i;
    EXPECT_EQ(weft_engine_get_info(engine.e, &i), 0) << weft_last_error();
    return i;
}

bool await_parks(const Engine &engine, uint32_t parks)
{
    for (uint64_t begin = weft__now_ns(); weft__now_ns() - begin < 20000000000u; usleep(1000))
        if (info_of(engine).parks >= parks) return true;
    return false;
}

// Each step's input is made of the output of the step before.
int run_on(const Engine &engine, std::vector<float> &x)
{
    std::vector<float> out(x.size());
    int status = weft_tensor_write_f32(engine.e, "x", x.data(), x.size());
    if (!status) status = engine.step();
    if (!status) status = weft_tensor_read_f32(engine.e, "out", out.data(), out.size());
    for (size_t i = 0; i < out.size(); i++)
        x[i] = out[i] / (1 + std::fabs(out[i])) + 0.5f * x[i];
    return status;
}

// Counters pass the wrap on the way, and fifo and push hold tickets; m = 1 has packets, whose tag is the step's number.
TEST(CudaLife, StepsAfterAParkAreBitForBitTheSame)
{
    std::string spec = on("cuda:0/2");
    SKIP_WITHOUT(spec);
    for (const char *queue : gpu_policies)
        for (uint32_t m : {1u, 9u}) {
            Graph graph;
            Image image;
            ASSERT_EQ(make_chain(&graph.g, {128, 300, 128}, m, 3), 0) << weft_last_error();
            weft__plan_options o = weft__plan_defaults();
            o.strategy = WEFT__CTA;
            ASSERT_EQ(image.plan(graph.g, spec, o), 0) << weft_last_error();
            weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
            c.counter_base = 0u - 70, c.idle_ms = 0;
            std::vector<std::vector<float>> want;
            for (bool parks : {false, true}) { // one after the other: both would not find room
                Engine engine;
                ASSERT_EQ(engine.start(image, spec, queue, c), 0) << weft_last_error();
                std::vector<float> x = random_rows(m, 128, 5);
                for (size_t i = 0; i < 50; i++) {
                    if (parks && i % 3 == 0) {
                        ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
                        ASSERT_EQ(info_of(engine).resident, 0u);
                    }
                    if (parks && i % 2 == 0) {
                        ASSERT_EQ(weft_engine_resume(engine.e), 0) << weft_last_error();
                    }
                    ASSERT_EQ(run_on(engine, x), 0) << queue << " step " << i << ": " << weft_last_error();
                    if (!parks) want.push_back(x);
                    ASSERT_EQ(x, want[i]) << queue << " m " << m << " step " << i;
                }
                EXPECT_EQ(info_of(engine).parks, parks ? 17u : 0u);
            }
        }
}

TEST(CudaLife, ParkAndResumeThousandTimes)
{
    std::string spec = on("cuda:0/2");
    SKIP_WITHOUT(spec);
    for (const char *queue : gpu_policies) {
        Graph graph;
        Image image;
        Engine engine;
        ASSERT_EQ(make_chain(&graph.g, {128, 300, 128}, 3), 0) << weft_last_error();
        weft__plan_options o = weft__plan_defaults();
        o.strategy = WEFT__CTA;
        ASSERT_EQ(image.plan(graph.g, spec, o), 0) << weft_last_error();
        ASSERT_EQ(engine.start(image, spec, queue), 0) << weft_last_error();
        std::vector<float> x = random_rows(3, 128, 1), first, out;
        uint64_t begin = weft__now_ns();
        for (uint32_t i = 0; i < 1000; i++) {
            ASSERT_EQ(weft_engine_park(engine.e), 0) << i << ": " << weft_last_error();
            ASSERT_EQ(weft_engine_resume(engine.e), 0) << i << ": " << weft_last_error();
            if (i % 20) continue;
            ASSERT_LE(check_step(engine, graph.g, x, &out), 5e-3) << i << ": " << weft_last_error();
            if (first.empty()) first = out;
            ASSERT_EQ(out, first) << queue << " cycle " << i;
        }
        printf("%s: %.3f ms a cycle\n", queue, (double)(weft__now_ns() - begin) * 1e-6 / 1000);
        EXPECT_GE(info_of(engine).parks, 1000u);
    }
}

TEST(CudaLife, ParksWhenIdleAndWaitsForStepsInFlight)
{
    std::string spec = on("cuda:0");
    SKIP_WITHOUT(spec);
    Graph graph;
    Image image;
    Engine engine;
    ASSERT_EQ(make_chain(&graph.g, {256, 512, 256}, 1, 8), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.idle_ms = 50;
    ASSERT_EQ(engine.start(image, spec, "push", c), 0) << weft_last_error();
    std::vector<float> x = random_rows(1, 256, 2), first, out;
    for (uint32_t i = 0; i < 5; i++) {
        ASSERT_LE(check_step(engine, graph.g, x, &out), 5e-3) << weft_last_error();
        if (i == 0) first = out;
        EXPECT_EQ(out, first);
        EXPECT_EQ(info_of(engine).resident, 1u);
        ASSERT_TRUE(await_parks(engine, i + 1));
        EXPECT_EQ(info_of(engine).resident, 0u);
    }
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq[16];
    for (uint32_t &q : seq)
        ASSERT_EQ(weft_step_submit(engine.e, &s, &q), 0) << weft_last_error();
    ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
    for (uint32_t q : seq) {
        int done = 0;
        ASSERT_EQ(weft_step_poll(engine.e, q, &done), 0) << weft_last_error();
        EXPECT_EQ(done, 1);
    }
    ASSERT_EQ(weft_tensor_read_f32(engine.e, "out", out.data(), out.size()), 0) << weft_last_error();
    EXPECT_EQ(out, first);
}

// A worker may come back on another SM, whose clock is another one: what was recorded before keeps its place in time.
TEST(CudaLife, TraceGoesOnAfterAPark)
{
    std::string spec = on("cuda:0/2");
    SKIP_WITHOUT(spec);
    Graph graph;
    Image image;
    Engine engine;
    ASSERT_EQ(make_chain(&graph.g, {256, 512, 256}, 4, 4), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.trace_records = 4096, c.idle_ms = 0;
    ASSERT_EQ(engine.start(image, spec, "static", c), 0) << weft_last_error();
    std::vector<float> x = random_rows(4, 256, 3);
    size_t n = 0, one = 0;
    ASSERT_LE(check_step(engine, graph.g, x, nullptr), 5e-3) << weft_last_error();
    ASSERT_EQ(weft_trace_read(engine.e, nullptr, 0, &one), 0) << weft_last_error();
    for (size_t round = 1; round <= 3; round++) {
        ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
        usleep(20000);
        ASSERT_LE(check_step(engine, graph.g, x, nullptr), 5e-3) << weft_last_error();
        std::vector<weft_event> v((round + 1) * one);
        ASSERT_EQ(weft_trace_read(engine.e, v.data(), v.size(), &n), 0) << weft_last_error();
        ASSERT_EQ(n, v.size());
        for (size_t i = 0; i < n; i++) {
            EXPECT_LE(v[i].pop_ns, v[i].start_ns + 2000) << i;
            EXPECT_LE(v[i].start_ns, v[i].end_ns) << i;
            bool follows = i > 0 && v[i].device == v[i - 1].device && v[i].worker == v[i - 1].worker;
            if (follows && v[i].step != v[i - 1].step) {
                EXPECT_GE(v[i].start_ns - v[i - 1].end_ns, 20000000u) << i; // the pause is between them
            }
        }
    }
}

#ifdef WEFT_HAVE_CUDA

#define CUDA_OK(call) ASSERT_EQ(call, cudaSuccess) << #call
#define CUBLAS_OK(call) ASSERT_EQ(call, CUBLAS_STATUS_SUCCESS) << #call

// C = A B of small integers in fp32: exact, whatever the order of sums.
struct Product {
    static constexpr int n = 512;
    cublasHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;
    float *a = nullptr, *b = nullptr, *c = nullptr;
    float *got = nullptr; // pinned: a copy into pageable memory would not return before the product is there
    std::vector<float> ha, hb, want;

    void make()
    {
        CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CUBLAS_OK(cublasCreate(&handle));
        CUBLAS_OK(cublasSetStream(handle, stream));
        ha.resize(n * n), hb.resize(n * n), want.assign(n * n, 0);
        for (int i = 0; i < n * n; i++)
            ha[i] = (float)(i % 7 - 3), hb[i] = (float)(i % 5 - 2);
        for (int col = 0; col < n; col++)
            for (int k = 0; k < n; k++)
                for (int row = 0; row < n; row++)
                    want[col * n + row] += ha[k * n + row] * hb[col * n + k];
        for (float **p : {&a, &b, &c})
            CUDA_OK(cudaMalloc(p, n * n * 4));
        CUDA_OK(cudaHostAlloc(&got, n * n * 4, cudaHostAllocDefault));
        CUDA_OK(cudaMemcpyAsync(a, ha.data(), n * n * 4, cudaMemcpyHostToDevice, stream));
        CUDA_OK(cudaMemcpyAsync(b, hb.data(), n * n * 4, cudaMemcpyHostToDevice, stream));
    }
    void launch()
    {
        const float one = 1, zero = 0;
        CUDA_OK(cudaMemsetAsync(c, 0xff, n * n * 4, stream));
        CUBLAS_OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n));
        CUDA_OK(cudaMemcpyAsync(got, c, n * n * 4, cudaMemcpyDeviceToHost, stream));
    }
    void check()
    {
        CUDA_OK(cudaStreamSynchronize(stream));
        ASSERT_TRUE(std::equal(want.begin(), want.end(), got));
        std::fill(got, got + n * n, -1e9f);
    }
    ~Product()
    {
        for (float *p : {a, b, c})
            cudaFree(p);
        cudaFreeHost(got);
        if (handle) cublasDestroy(handle);
        if (stream) cudaStreamDestroy(stream);
    }
};

// cuBLAS beside an engine that lives: what it launches while the workers are resident runs once they have parked, and steps
// and products stay right whichever comes first.
TEST(CudaLife, CublasInTheSameProcess)
{
    if (emulated()) GTEST_SKIP() << "emulated devices have no cuBLAS";
    std::string spec = on("cuda:0");
    SKIP_WITHOUT(spec);
    Graph graph;
    Image image;
    Engine engine;
    Product product;
    ASSERT_EQ(make_chain(&graph.g, {256, 512, 256}, 4, 4), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.idle_ms = 20;
    ASSERT_EQ(engine.start(image, spec, "static", c), 0) << weft_last_error();
    std::vector<float> x = random_rows(4, 256, 3), first, out;
    ASSERT_LE(check_step(engine, graph.g, x, &first), 5e-3) << weft_last_error();
    product.make(); // a handle and memory, with the workers resident: waits for their idle time at worst
    if (HasFatalFailure()) return;
    for (int round = 0; round < 20; round++) {
        weft_step s = WEFT_STEP_INIT;
        uint32_t seq;
        ASSERT_EQ(weft_step_submit(engine.e, &s, &seq), 0) << weft_last_error();
        product.launch(); // behind the workers
        if (HasFatalFailure()) return;
        ASSERT_EQ(weft_step_wait(engine.e, seq), 0) << weft_last_error();
        if (round % 2) {
            ASSERT_EQ(weft_engine_park(engine.e), 0) << weft_last_error();
        }
        product.check(); // by the idle time-out in even rounds
        if (HasFatalFailure()) return;
        ASSERT_EQ(info_of(engine).resident, 0u);
        product.launch(); // and before the workers, which have to wait for it
        if (HasFatalFailure()) return;
        ASSERT_LE(check_step(engine, graph.g, x, &out), 5e-3) << round << ": " << weft_last_error();
        ASSERT_EQ(out, first) << round;
        product.check();
        if (HasFatalFailure()) return;
    }
}

// A stream of its own in a thread of its own, as any library may have: memsets (kernels) and copies, checked each time.
void other_library(std::atomic<bool> &over, std::atomic<int> &rounds, std::atomic<int> &wrong)
{
    const size_t n = 1 << 20;
    cudaStream_t stream;
    uint8_t *p;
    std::vector<uint8_t> back(n);
    if (cudaStreamCreate(&stream) || cudaMalloc(&p, n)) {
        wrong++;
        return;
    }
    for (int value = 1; !over; value = value % 250 + 1) {
        bool bad = cudaMemsetAsync(p, value, n, stream) != cudaSuccess;
        bad |= cudaMemcpyAsync(back.data(), p, n, cudaMemcpyDeviceToHost, stream) != cudaSuccess;
        bad |= cudaStreamSynchronize(stream) != cudaSuccess;
        for (uint8_t v : back)
            bad |= v != value;
        wrong += bad;
        rounds++;
    }
    cudaFree(p);
    cudaStreamDestroy(stream);
}

TEST(CudaLife, StreamOfAnotherLibrary)
{
    if (emulated()) GTEST_SKIP() << "emulated devices have no streams";
    std::string spec = on("cuda:0");
    SKIP_WITHOUT(spec);
    Graph graph;
    Image image;
    Engine engine;
    ASSERT_EQ(make_chain(&graph.g, {256, 512, 256}, 4, 4), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec), 0) << weft_last_error();
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.idle_ms = 10;
    ASSERT_EQ(engine.start(image, spec, "fifo", c), 0) << weft_last_error();
    std::atomic<bool> over{false};
    std::atomic<int> rounds{0}, wrong{0};
    std::thread other(other_library, std::ref(over), std::ref(rounds), std::ref(wrong));
    std::vector<float> x = random_rows(4, 256, 3), first, out;
    bool ok = true;
    for (int burst = 0; burst < 20 && ok; burst++) {
        int before = rounds;
        for (int i = 0; i < 10 && ok; i++) {
            ok = check_step(engine, graph.g, x, &out) <= 5e-3;
            if (first.empty()) first = out;
            ok = ok && out == first;
        }
        for (int ms = 0; ms < 5000 && rounds < before + 2; ms++) // the engine is idle: the other one gets on
            usleep(1000);
        ok = ok && rounds >= before + 2;
    }
    EXPECT_TRUE(ok) << weft_last_error();
    over = true;
    weft_engine_park(engine.e); // so that the other thread ends now
    other.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(info_of(engine).parks, 5u);
}

#endif

} // namespace
