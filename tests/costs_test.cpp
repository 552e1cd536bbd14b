// costs: what an op costs, or that it can't run, device by device: placement goes by it, images keep it, and the validator
// holds plans to it.
#include "plans.h"

#include <map>

namespace
{

const uint32_t none = WEFT_NONE;

// Four layers of one GEMM; costs[layer][device].
struct Layers {
    weft__graph *g;
    explicit Layers(const std::vector<std::vector<uint32_t>> &costs)
    {
        Work w;
        w.chain = {256, 256};
        w.layers = (uint32_t)costs.size();
        w.m = 8;
        g = make_graph(w);
        for (uint32_t l = 0; l < costs.size(); l++)
            EXPECT_EQ(weft__graph_costs(g, l, costs[l].data(), (uint32_t)costs[l].size()), 0) << weft__error();
    }
    ~Layers() { weft__graph_free(g); }
};

// The device of each layer.
std::vector<uint32_t> placed(const Plan &p)
{
    std::map<std::string, uint32_t> device;
    std::vector<uint32_t> out;
    EXPECT_EQ(p.rc, 0) << weft__error();
    for (uint32_t i = 0; i < p.img.n_op; i++)
        device[weft__image_string(&p.img, p.img.ops[i].name)] = p.img.ops[i].device;
    for (const auto &d : device)
        out.push_back(d.second);
    return out;
}

using Devices = std::vector<uint32_t>;

TEST(Costs, BlocksOfLayersFollowThem)
{
    const weft__plan_options o = on(2, WEFT__CTA);
    EXPECT_EQ(placed(Plan(Layers({{100, 100}, {100, 100}, {100, 100}, {100, 100}}).g, o)), (Devices{0, 0, 1, 1}));
    EXPECT_EQ(placed(Plan(Layers({{100, 300}, {100, 300}, {100, 300}, {100, 300}}).g, o)), (Devices{0, 0, 0, 1}));
    EXPECT_EQ(placed(Plan(Layers({{100, 500}, {100, 500}, {100, 500}, {100, 500}}).g, o)), (Devices{0, 0, 0, 0}));
    EXPECT_EQ(placed(Plan(Layers({{100, 100}, {none, 100}, {100, 100}, {100, 100}}).g, o)), (Devices{0, 1, 1, 1}));
    EXPECT_EQ(placed(Plan(Layers({{none, 100}, {100, 100}, {100, 100}, {100, 100}}).g, o)), (Devices{1, 1, 1, 1}));
}

TEST(Costs, SingleTakesTheDeviceThatCanAndCostsLeast)
{
    EXPECT_EQ(placed(Plan(Layers({{100, 90, 95}, {100, 90, 95}}).g, on(3))), (Devices{1, 1}));
    EXPECT_EQ(placed(Plan(Layers({{100, none, 95}, {100, 1, 95}}).g, on(3))), (Devices{2, 2}));
}

TEST(Costs, GroupsAreAsSlowAsTheirSlowestDevice)
{
    weft__plan_options o = on(4, WEFT__CTA_TP);
    o.tp = 2;
    const std::vector<uint32_t> row = {100, 100, 300, 10};
    EXPECT_EQ(placed(Plan(Layers({row, row, row, row}).g, o)).back() / 2, 1u);
    uint32_t first = 0;
    Plan p(Layers({row, row, row, row}).g, o);
    for (uint32_t i = 0; i < p.img.n_op; i++)
        first += p.img.ops[i].device < 2 && p.img.ops[i].kind == WEFT_KIND_GEMM_STREAM && p.img.ops[i].device == 0;
    EXPECT_GE(first, 3u);
}

TEST(Costs, WhatCannotBePlacedIsRefusedByName)
{
    Plan order(Layers({{none, 1}, {1, none}}).g, on(2, WEFT__CTA)); // layers go over the devices in their order
    EXPECT_EQ(order.rc, WEFT_EUSAGE);
    EXPECT_TRUE(says("gemm1 can't run on any of the devices that strategy cta has")) << weft__error();
    Plan single(Layers({{none, 1}, {1, none}}).g, on(2));
    EXPECT_EQ(single.rc, WEFT_EUSAGE);
    Plan tp(Layers({{1, 1}, {1, none}}).g, on(2, WEFT__TP));
    EXPECT_EQ(tp.rc, WEFT_EUSAGE);
    EXPECT_TRUE(says("gemm1")) << weft__error();
    Plan devices(Layers({{1, 1}}).g, on(3));
    EXPECT_EQ(devices.rc, WEFT_EUSAGE);
    EXPECT_TRUE(says("costs for 2 devices")) << weft__error();
    Layers l({{1, 1}});
    const uint32_t row[3] = {none, none, none};
    EXPECT_EQ(weft__graph_costs(l.g, 0, row, 2), WEFT_EUSAGE);
    EXPECT_EQ(weft__graph_costs(l.g, 1, row, 2), WEFT_EUSAGE);
    EXPECT_EQ(weft__graph_costs(l.g, 0, row, 3), WEFT_EUSAGE);
}

TEST(Costs, TasksShareTheirOpsCost)
{
    Plan p(Layers({{1000000, 1000000}}).g, on(2));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p.queue(0).n_task; i++)
        sum += p.img.tasks[p.queue(0).task + i].cost_ns;
    EXPECT_NEAR((double)sum, 2 * 1e6, 2e4); // two workers, busy for as long as the op takes
}

TEST(Costs, TheImageKeepsThemAndTheValidatorHoldsPlansToThem)
{
    Layers l({{100, 300}, {100, 300}, {100, 300}, {100, 300}});
    Plan p(l.g, on(2, WEFT__CTA));
    ASSERT_EQ(p.rc, 0);
    ASSERT_EQ(p.img.header->costs.count, 8u);
    EXPECT_EQ(p.img.costs[0], 100u);
    EXPECT_EQ(p.check(), 0);
    uint32_t *costs = const_cast<uint32_t *>(p.img.costs);
    costs[0] = none;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("gemm0) lies with device 0, on which its costs say that it can't run")) << weft__error();
    costs[0] = 100;
    p.op(0)->cost = 4;
    EXPECT_EQ(p.check(), WEFT_EFILE);
    EXPECT_TRUE(says("ops[0].cost")) << weft__error();
}

TEST(Costs, NodesOfGraphsAreHeldToThem)
{
    weft__graph *g;
    ASSERT_EQ(weft__graph_new(&g), 0);
    ASSERT_EQ(weft__graph_nop(g, 1, 1, 10, nullptr, 0, 0, nullptr), 0);
    const uint32_t row[2] = {1, none};
    ASSERT_EQ(weft__graph_costs(g, 0, row, 2), 0);
    Plan p(g, on(2));
    EXPECT_EQ(p.rc, WEFT_EUSAGE);
    EXPECT_TRUE(says("device 1, where it can't run")) << weft__error();
    weft__graph_free(g);
}

} // namespace
