// cuda_bodies: every GEMM body against float64, op by op, on ragged shapes and under every option that the planner has.
#include "../tasks/layout.h"
#include "cuda.h"

namespace
{

struct Case {
    std::vector<uint32_t> widths = {256, 256};
    uint32_t m = 1, epilogue = WEFT_EPI_NONE;
    bool mlp = false; // widths: hidden, intermediate: norm, gate, residual
    uint32_t layers = 1;
    weft__plan_options o = weft__plan_defaults();
    uint64_t seed = 1;
    std::string spec = "cuda:0", queue = "static";
};

std::string text(const Case &c)
{
    std::string s = c.mlp ? "mlp" : "chain";
    for (uint32_t w : c.widths)
        s += " " + std::to_string(w);
    const std::pair<const char *, uint32_t> numbers[] = {{"m", c.m},
                                                         {"epilogue", c.epilogue},
                                                         {"layers", c.layers},
                                                         {"seed", (uint32_t)c.seed},
                                                         {"tp", c.o.tp},
                                                         {"chunks", c.o.chunks},
                                                         {"split_k", c.o.split_k},
                                                         {"tile_groups", c.o.tile_groups},
                                                         {"m_tile", c.o.m_tile},
                                                         {"k_panels", c.o.k_panels},
                                                         {"packets", c.o.packet_max_rows},
                                                         {"order", c.o.order}};
    for (auto &n : numbers)
        s += std::string(", ") + n.first + " " + std::to_string(n.second);
    return s + ", wide " + std::to_string(c.o.wide) + ", " + weft__strategy_name(c.o.strategy) + ", " + c.spec + ", " +
           c.queue;
}

int make_graph(const Case &c, weft__graph **g)
{
    if (!c.mlp) {
        weft__chain chain{};
        chain.widths = c.widths.data(), chain.n_width = (uint32_t)c.widths.size(), chain.repeat = c.layers,
        chain.m = c.m;
        chain.dtype = WEFT_BF16, chain.seed = c.seed, chain.epilogue = c.epilogue;
        return weft__graph_chain(&chain, g);
    }
    weft__model model{};
    model.hidden = c.widths[0], model.intermediate = c.widths[1], model.layers = c.layers, model.eps = 1e-5f;
    model.dtype = WEFT_BF16, model.seed = c.seed;
    return weft__graph_mlp(&model, c.m, g);
}

// Two checked steps (the second finds what the first has left), with the same bits.
void run_case(const Case &c)
{
    SCOPED_TRACE(text(c));
    std::string spec = on(c.spec);
    Graph graph;
    Image image;
    Engine engine;
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.counter_base = 0xffffffffu - (uint32_t)c.seed % 3;
    ASSERT_EQ(make_graph(c, &graph.g), 0) << weft_last_error();
    ASSERT_EQ(image.plan(graph.g, spec, c.o), 0) << weft_last_error();
    ASSERT_EQ(engine.start(image, spec, c.queue.c_str(), config), 0) << weft_last_error();
    std::vector<float> x = random_rows(c.m, c.widths[0], c.seed + 7), first, second;
    double error = check_step(engine, graph.g, x, &first);
    ASSERT_GE(error, 0) << weft_last_error();
    ASSERT_LE(error, 5e-3);
    ASSERT_LE(check_step(engine, graph.g, x, &second), 5e-3) << weft_last_error();
    ASSERT_EQ(first, second) << "the same step gave other bits";
}

const uint32_t all_rows[] = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,  24,  31,  32,
                             33, 47, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300};

TEST(CudaBodies, StreamOfAnyRows)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t m : all_rows) {
        Case c;
        c.m = m, c.widths = {200, 333, 70}, c.o.wide = WEFT__OFF;
        run_case(c);
        if (HasFatalFailure()) return;
    }
}

TEST(CudaBodies, WideOfAnyRows)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t m : all_rows) {
        Case c;
        c.m = m, c.widths = {200, 333, 70}, c.o.wide = WEFT__ON;
        run_case(c);
        if (HasFatalFailure()) return;
    }
}

TEST(CudaBodies, RaggedWidths)
{
    SKIP_WITHOUT(on("cuda:0"));
    const std::vector<uint32_t> widths[] = {
        {1, 1},          {1, 17, 1}, {33, 70, 200, 33}, {130, 257, 64, 96}, {576, 1536, 576}, {63, 65, 511, 513, 64},
        {4097, 40, 1030}};
    for (auto &w : widths)
        for (uint32_t m : {1u, 6u, 40u, 130u})
            for (int32_t wide : {WEFT__OFF, WEFT__ON}) {
                Case c;
                c.widths = w, c.m = m, c.o.wide = wide;
                run_case(c);
                if (HasFatalFailure()) return;
            }
}

TEST(CudaBodies, Epilogues)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t epilogue : {WEFT_EPI_NONE, WEFT_EPI_BIAS, WEFT_EPI_SILU, WEFT_EPI_GELU})
        for (uint32_t m : {1u, 7u, 64u, 150u})
            for (int32_t wide : {WEFT__OFF, WEFT__ON}) {
                Case c;
                c.widths = {190, 333, 100}, c.m = m, c.epilogue = epilogue, c.o.wide = wide;
                run_case(c);
                if (HasFatalFailure()) return;
            }
}

// Norm of the input, gate beside up, residual; widths that are no multiples of eight pad the gate.
TEST(CudaBodies, MlpBlocks)
{
    SKIP_WITHOUT(on("cuda:0"));
    const std::vector<uint32_t> widths[] = {{576, 1536}, {100, 250}, {12, 20}, {512, 1023}};
    for (auto &w : widths)
        for (uint32_t m : {1u, 5u, 8u, 33u, 128u, 300u})
            for (int32_t wide : {WEFT__OFF, WEFT__ON}) {
                Case c;
                c.mlp = true, c.layers = 3, c.widths = w, c.m = m, c.o.wide = wide;
                run_case(c);
                if (HasFatalFailure()) return;
            }
}

TEST(CudaBodies, SplitK)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t split : {2u, 3u, 4u})
        for (uint32_t m : {1u, 8u, 33u, 130u})
            for (int32_t wide : {WEFT__OFF, WEFT__ON})
                for (bool mlp : {false, true}) {
                    Case c;
                    c.mlp = mlp, c.widths = {700, 1100}, c.m = m, c.o.wide = wide, c.o.split_k = split;
                    run_case(c);
                    if (HasFatalFailure()) return;
                }
}

TEST(CudaBodies, Packets)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t m : {1u, 2u, 3u, 4u, 5u, 7u, 8u})
        for (uint32_t packets : {0u, 8u})
            for (bool mlp : {false, true})
                for (const char *queue : gpu_policies) {
                    Case c;
                    c.mlp = mlp, c.widths = {300, 700}, c.layers = mlp ? 2 : 1, c.m = m, c.o.packet_max_rows = packets,
                    c.queue = queue;
                    if (!mlp) c.widths = {300, 700, 70, 300};
                    run_case(c);
                    if (HasFatalFailure()) return;
                }
}

TEST(CudaBodies, TileGroupsAndKPanels)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (uint32_t groups = 1; groups <= 4; groups++)
        for (uint32_t panels = 1; panels <= 4; panels++)
            for (uint32_t m : {1u, 8u, 50u}) {
                if (groups > weft_stream_groups(m)) continue;
                Case c;
                c.widths = {600, 2600, 1700, 90}, c.m = m, c.o.tile_groups = groups, c.o.k_panels = panels,
                c.o.wide = WEFT__OFF;
                c.o.packet_max_rows = m > 1 ? 0 : 1;
                run_case(c);
                if (HasFatalFailure()) return;
            }
    for (uint32_t panels = 1; panels <= 4; panels++) {
        Case c;
        c.widths = {600, 2600, 1700, 90}, c.m = 200, c.o.k_panels = panels, c.o.wide = WEFT__ON;
        run_case(c);
        if (HasFatalFailure()) return;
    }
}

// Every strategy over one, two and four devices, under every policy of the kernel.
TEST(CudaBodies, Strategies)
{
    SKIP_WITHOUT(on("cuda:0/4"));
    for (const char *spec : {"cuda:0", "cuda:0/2", "cuda:0/4"})
        for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++)
            for (const char *queue : gpu_policies)
                for (uint32_t m : {1u, 20u, 140u})
                    for (bool mlp : {false, true}) {
                        Case c;
                        c.spec = spec, c.queue = queue, c.m = m, c.mlp = mlp, c.layers = mlp ? 4 : 2;
                        c.widths = mlp ? std::vector<uint32_t>{256, 600} : std::vector<uint32_t>{256, 520, 256};
                        c.o.strategy = strategy;
                        c.o.tp = strategy == WEFT__CTA_TP && strcmp(spec, "cuda:0") != 0 ? 2 : 1;
                        run_case(c);
                        if (HasFatalFailure()) return;
                    }
}

uint32_t pick(uint64_t seed, uint32_t &n, uint32_t below) { return weft_hash(seed, n++, 5) % below; }

Case random_case(uint64_t seed)
{
    uint32_t n = 0;
    Case c;
    c.seed = seed;
    c.mlp = pick(seed, n, 3) == 0;
    c.m = pick(seed, n, 2) ? 1 + pick(seed, n, 9) : 1 + pick(seed, n, 300);
    c.widths.clear();
    for (uint32_t i = 0, end = c.mlp ? 2 : 2 + pick(seed, n, 3); i < end; i++)
        c.widths.push_back(1 + pick(seed, n, pick(seed, n, 4) ? 700 : 2100));
    c.layers = c.mlp ? 1 + pick(seed, n, 3) : 1;
    const uint32_t epilogues[] = {WEFT_EPI_NONE, WEFT_EPI_BIAS, WEFT_EPI_SILU, WEFT_EPI_GELU};
    c.epilogue = epilogues[pick(seed, n, 4)];
    c.o.wide = (int32_t)pick(seed, n, 3) - 1;
    c.o.split_k = pick(seed, n, 3) ? 0 : 1 + pick(seed, n, 4);
    c.o.k_panels = pick(seed, n, 2) ? 0 : 1 + pick(seed, n, 4);
    c.o.tile_groups = pick(seed, n, 2) ? 0 : 1 + pick(seed, n, 2);
    c.o.packet_max_rows = pick(seed, n, 9);
    c.o.order = pick(seed, n, WEFT__ORDER_COUNT);
    c.o.strategy = pick(seed, n, WEFT__STRATEGY_COUNT);
    c.spec = pick(seed, n, 2) ? "cuda:0/2" : "cuda:0";
    c.o.tp = c.spec == "cuda:0" ? 1 : 1 + pick(seed, n, 2);
    c.queue = gpu_policies[pick(seed, n, n_gpu_policies)];
    return c;
}

// WEFT_TEST_CASES: how many (200), WEFT_TEST_SEED: the first (1).
TEST(CudaBodies, Random)
{
    SKIP_WITHOUT(on("cuda:0/2"));
    const char *cases = getenv("WEFT_TEST_CASES"), *seed = getenv("WEFT_TEST_SEED");
    uint64_t first = seed ? strtoull(seed, nullptr, 10) : 1, n = cases ? strtoull(cases, nullptr, 10) : 200;
    for (uint64_t i = first; i < first + n; i++) {
        run_case(random_case(i));
        if (HasFatalFailure()) return;
    }
}

} // namespace
