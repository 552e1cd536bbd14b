// plan: every shape, strategy, order and option makes an image that is proven for all policies and writes every
// output once.
#include "files.h"
#include "plans.h"

#include <chrono>
#include <sys/resource.h>

namespace
{

// Each element of the OUTPUT tensor is written by one task: the validator excludes two, this counts the columns.
void expect_output_complete(const Plan &p)
{
    const uint32_t out = weft__image_find(&p.img, "out", WEFT_ROLE_OUTPUT, WEFT_NONE);
    ASSERT_NE(out, WEFT_NONE);
    const weft_tensor &o = p.img.tensors[out];
    uint64_t written = 0;
    for (uint32_t d = 0; d < p.img.n_device; d++) {
        for (uint32_t i = 0; i < p.queue(d).n_task; i++) {
            const weft_task &t = p.img.tasks[p.queue(d).task + i];
            const weft_op &op = *weft__image_op(&p.img, d, &t);
            if (op.out == WEFT_NONE || (op.flags & WEFT_OP_PARTIAL)) continue;
            const weft_tensor &w = p.img.tensors[op.out];
            if (w.device != o.device || w.offset < o.offset || w.offset >= o.offset + o.bytes) continue;
            const uint32_t width = op.epilogue == WEFT_EPI_GATED_SILU ? 8 : 16, c0 = t.tile[1] * width;
            const uint32_t c1 = std::min((t.tile[1] + t.tile[2]) * width, w.cols);
            const uint32_t rows = t.kind == WEFT_KIND_GEMM_STREAM || t.kind == WEFT_KIND_GEMM_WIDE
                                      ? std::min(op.m_tile, op.m - t.tile[0])
                                      : t.tile[3];
            written += (uint64_t)(c1 - c0) * rows;
        }
    }
    EXPECT_EQ(written, (uint64_t)o.rows * o.cols);
}

TEST(Plan, EveryShapeAndStrategyIsProven)
{
    const std::vector<std::vector<uint32_t>> chains = {{1, 1},   {1, 4097, 1},     {7, 17, 7},
                                                       {64, 64}, {576, 1536, 576}, {130, 65, 200}};
    for (const auto &chain : chains) {
        for (uint32_t m : {1u, 3u, 8u, 65u, 127u, 128u, 513u}) {
            for (uint32_t devices : {1u, 2u, 3u, 8u}) {
                for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
                    for (uint32_t order = 0; order < WEFT__ORDER_COUNT; order++) {
                        Work w;
                        w.chain = chain;
                        w.m = m;
                        w.layers = chain.front() == chain.back() ? 3 : 1;
                        weft__plan_options o = on(devices, strategy);
                        o.order = order;
                        Plan p(w, o);
                        ASSERT_EQ(p.rc, 0) << weft__error() << " m " << m << " devices " << devices << " "
                                           << weft__strategy_name(strategy) << " " << weft__order_name(order);
                        EXPECT_EQ(p.img.header->policies, (1u << WEFT_POLICY_COUNT) - 1);
                        expect_output_complete(p);
                    }
                }
            }
        }
    }
}

TEST(Plan, EveryOptionIsProven)
{
    for (int i = 0; i < 2000; i++) {
        auto pick = [state = (uint32_t)i * 2654435761u](std::initializer_list<uint32_t> of) mutable {
            state = state * 1664525u + 1013904223u;
            return of.begin()[(state >> 16) % of.size()];
        };
        Work w;
        w.mlp = pick({0, 1});
        w.chain = {pick({1, 64, 200, 576}), pick({1, 65, 333, 1100})};
        if (!w.mlp) w.chain.push_back(w.chain[0]);
        w.m = pick({1, 2, 7, 8, 40, 129, 300});
        w.layers = pick({1, 2, 5});
        w.dtype = pick({WEFT_BF16, WEFT_FP16});
        if (!w.mlp) w.epilogue = pick({WEFT_EPI_NONE, WEFT_EPI_BIAS, WEFT_EPI_SILU, WEFT_EPI_GELU});
        weft__plan_options o = on(pick({1, 2, 4, 6, 64}), pick({0, 1, 2, 3, 4}), pick({1, 3, 132}));
        o.order = pick({0, 1, 2});
        o.chunks = pick({0, 1, 2, 5, 100});
        o.tile_groups = pick({0, 1, 2});
        o.split_k = pick({0, 1, 2, 7, 1000});
        o.k_panels = pick({0, 1, 2, 5, 32});
        o.packet_max_rows = pick({0, 1, 8});
        o.wide = (int32_t)pick({0, 1, 2}) - 1;
        o.copies = pick({0, 1});
        o.alternates = pick({0, 1});
        w.separate_norm = pick({0, 1});
        Plan p(w, o);
        ASSERT_EQ(p.rc, 0) << "case " << i << ": " << weft__error();
        EXPECT_EQ(p.img.header->policies, (1u << WEFT_POLICY_COUNT) - 1) << "case " << i;
        expect_output_complete(p);
    }
}

TEST(Plan, SameInputSameBytes)
{
    for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
        Work w;
        w.mlp = true;
        Plan a(w, on(4, strategy)), b(w, on(4, strategy));
        ASSERT_EQ(a.size, b.size);
        EXPECT_EQ(memcmp(a.bytes, b.bytes, a.size), 0) << weft__strategy_name(strategy);
    }
}

TEST(Plan, CtaPutsLayersInBlocksAndSendsOnlyTheEdgesBetween)
{
    Work w;
    w.chain = {512, 512};
    w.layers = 8;
    w.m = 8;
    Plan p(w, on(4, WEFT__CTA));
    ASSERT_EQ(p.rc, 0);
    for (uint32_t d = 0; d < 4; d++) {
        EXPECT_EQ(p.img.devices[d].n_op, 2u);
        EXPECT_EQ(p.stats.weight_bytes[d], 2u * 512 * 512 * 2);
    }
    EXPECT_EQ(p.stats.remote_bytes, 3u * 8 * 512 * 2);
    uint64_t remote = 0;
    for (uint32_t i = 0; i < p.queue(0).n_task; i++) {
        const weft_task &t = p.img.tasks[p.queue(0).task + i];
        for (uint32_t s = 0; s < t.n_signal; s++) {
            EXPECT_EQ(t.signal[s].scope, t.signal[s].device ? WEFT_SCOPE_SYS : WEFT_SCOPE_GPU);
            remote += t.signal[s].device != 0;
        }
    }
    EXPECT_EQ(p.stats.remote_signals, 3 * remote);
    Plan single(w, on(4));
    EXPECT_EQ(single.stats.remote_signals, 0u);
    EXPECT_EQ(single.stats.weight_bytes[1], 0u);
}

TEST(Plan, MoreDevicesThanLayersLeavesSomeIdle)
{
    Work w;
    w.layers = 1;
    Plan p(w, on(8, WEFT__CTA));
    ASSERT_EQ(p.rc, 0) << weft__error();
    EXPECT_GT(p.queue(1).n_task, 0u);
    for (uint32_t d = 2; d < 8; d++)
        EXPECT_EQ(p.queue(d).n_task, 0u);
}

TEST(Plan, TensorParallelSplitsWeightsEvenlyAndKeepsTheMiddleLocal)
{
    Work w;
    w.mlp = true;
    w.chain = {512, 1024};
    w.m = 8;
    Plan p(w, on(4, WEFT__TP));
    ASSERT_EQ(p.rc, 0) << weft__error();
    for (uint32_t d = 0; d < 4; d++)
        EXPECT_EQ(p.stats.weight_bytes[d], 2u * (2 * 1024 * 512 + 512 * 1024) / 4 * 2);
    for (uint32_t i = 0; i < p.img.n_tensor; i++) { /* gateup<l>: slices, each read where it was made */
        const weft_tensor &t = p.img.tensors[i];
        if (!strcmp(weft__image_string(&p.img, t.name), "gateup0")) {
            EXPECT_EQ(t.cols, 256u);
        }
    }
    uint32_t inputs = 0;
    for (uint32_t d = 0; d < 4; d++)
        inputs += weft__image_find(&p.img, "x", WEFT_ROLE_INPUT, d) != WEFT_NONE;
    EXPECT_EQ(inputs, 4u);
}

TEST(Plan, SlicesNameTheirPlaceInTheWeight)
{
    Work w;
    w.chain = {256, 512, 256};
    w.layers = 1;
    w.m = 8;
    Plan p(w, on(2, WEFT__TP));
    ASSERT_EQ(p.rc, 0);
    std::vector<bool> seen(4); /* rows and columns of the second weight, 2 x 2 */
    for (uint32_t i = 0; i < p.img.n_tensor; i++) {
        const weft_tensor &t = p.img.tensors[i];
        if (t.role != WEFT_ROLE_WEIGHT || strcmp(weft__image_string(&p.img, t.name), "w1")) continue;
        const weft_weight &s = p.img.weights[t.weight];
        EXPECT_EQ(t.rows, 128u);
        EXPECT_EQ(t.cols, 256u);
        EXPECT_EQ(s.col0, t.device * 256u);
        seen[s.row0 / 128 * 2 + s.col0 / 256] = true;
    }
    EXPECT_EQ(seen, std::vector<bool>(4, true));
}

TEST(Plan, MicroBatchesAreAsManyAsAsked)
{
    for (uint32_t m : {1u, 8u, 64u, 128u, 512u, 513u}) {
        for (uint32_t chunks : {1u, 2u, 3u, 8u}) {
            Work w;
            w.m = m;
            weft__plan_options o = on(2, WEFT__MICROBATCH);
            o.chunks = chunks;
            Plan p(w, o);
            ASSERT_EQ(p.rc, 0) << weft__error();
            const uint32_t eights = (m + 7) / 8, rows = (eights + chunks - 1) / chunks * 8;
            if (m <= 64) {
                EXPECT_EQ(p.stats.chunks, (m + rows - 1) / rows) << m << " " << chunks;
            }
            EXPECT_LE(p.stats.chunks, chunks);
        }
    }
}

TEST(Plan, PacketsWhereRowsAllow)
{
    Work w;
    w.mlp = true;
    auto flags = [](const Plan &p) {
        uint32_t f = 0;
        for (uint32_t i = 0; i < p.img.n_op; i++)
            f |= p.img.ops[i].flags;
        return f & (WEFT_OP_X_PACKET | WEFT_OP_OUT_PACKET | WEFT_OP_AUX_PACKET);
    };
    weft__plan_options o = on(2, WEFT__CTA);
    EXPECT_EQ(flags(Plan(w, o)), WEFT_OP_X_PACKET | WEFT_OP_OUT_PACKET | WEFT_OP_AUX_PACKET);
    o.packet_max_rows = 0;
    EXPECT_EQ(flags(Plan(w, o)), 0u);
    o.packet_max_rows = 4;
    w.m = 4;
    EXPECT_EQ(flags(Plan(w, o)), WEFT_OP_X_PACKET | WEFT_OP_OUT_PACKET | WEFT_OP_AUX_PACKET);
    w.m = 5;
    EXPECT_EQ(flags(Plan(w, o)), 0u);
}

TEST(Plan, OptionsThatDontFitAreRefusedByName)
{
    struct Bad {
        const char *says;
        std::function<void(weft__plan_options &, Work &)> set;
    };
    const std::vector<Bad> bad = {
        {"0 devices", [](weft__plan_options &o, Work &) { o.n_device = 0; }},
        {"65 devices", [](weft__plan_options &o, Work &) { o.n_device = 65; }},
        {"has 0 workers", [](weft__plan_options &o, Work &) { o.workers[1] = 0; }},
        {"unknown strategy 9", [](weft__plan_options &o, Work &) { o.strategy = 9; }},
        {"unknown order 9", [](weft__plan_options &o, Work &) { o.order = 9; }},
        {"m_tile 12", [](weft__plan_options &o, Work &) { o.m_tile = 12; }},
        {"m_tile 72", [](weft__plan_options &o, Work &) { o.m_tile = 72; }},
        {"tile_groups 9", [](weft__plan_options &o, Work &) { o.tile_groups = 9; }},
        {"33 K panels", [](weft__plan_options &o, Work &) { o.k_panels = 33; }},
        {"packets for 9 rows", [](weft__plan_options &o, Work &) { o.packet_max_rows = 9; }},
        {"groups of 3 devices", [](weft__plan_options &o, Work &) { o.strategy = WEFT__CTA_TP, o.tp = 3; }},
    };
    for (const Bad &b : bad) {
        Work w;
        weft__plan_options o = on(2);
        b.set(o, w);
        Plan p(w, o);
        EXPECT_EQ(p.rc, WEFT_EUSAGE) << b.says;
        EXPECT_TRUE(says(b.says)) << weft__error();
    }
}

TEST(Plan, WorkersWithoutTasksAndTasksWithoutWorkers)
{
    Work w;
    w.m = 32;
    for (uint32_t workers : {1u, 132u, 1000u}) {
        Plan p(w, on(1, WEFT__SINGLE, workers));
        ASSERT_EQ(p.rc, 0);
        EXPECT_EQ(p.img.devices[0].workers, workers);
    }
}

#ifdef WEFT_SANITIZED
const double slower = 20;
#else
const double slower = 1;
#endif

double seconds_per_task(uint32_t layers, uint64_t *tasks)
{
    Work w;
    w.chain = {8192, 8192};
    w.layers = layers;
    weft__plan_options o = on(8, WEFT__CTA, 132);
    o.tile_groups = 1;
    Folder f;
    auto begin = std::chrono::steady_clock::now();
    Plan p(w, o);
    EXPECT_EQ(p.rc, 0) << weft__error();
    EXPECT_EQ(weft__image_write_file(p.bytes, p.size, (f / "plan").c_str()), 0);
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    *tasks = p.stats.tasks;
    return took.count() / (double)p.stats.tasks;
}

// One million tasks over 8 devices of 132 workers: planned, validated and written. `weft bench plan` measures it.
TEST(Plan, AMillionTasks)
{
    uint64_t small, large;
    struct rusage before, after;
    seconds_per_task(20, &small);
    getrusage(RUSAGE_SELF, &before);
    const double each = seconds_per_task(2000, &large);
    getrusage(RUSAGE_SELF, &after);
    EXPECT_GE(large, 1000000u);
    EXPECT_LT(each * (double)large, 3 * slower);
    EXPECT_LT((double)(after.ru_maxrss - before.ru_maxrss) * 1024 / (double)large, 400 * slower);
}

} // namespace
