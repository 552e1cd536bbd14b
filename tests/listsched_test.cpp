// list schedulers: the worked examples of their papers, task for task; insertion, costs by device, memory; schedules hold.
#include "../host/error.h"
#include "../host/listsched.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace
{

struct Edge {
    uint32_t from, to; // from 1, as the papers count
    double bytes;
};

struct Graph {
    weft__taskgraph g;
    Graph(const std::vector<std::vector<double>> &costs, const std::vector<Edge> &edges,
          const std::vector<uint64_t> &memory = {})
    {
        weft__tg_init(&g, (uint32_t)costs[0].size());
        for (size_t t = 0; t < costs.size(); t++)
            EXPECT_EQ(
                weft__tg_task(&g, std::to_string(t + 1).c_str(), costs[t].data(), t < memory.size() ? memory[t] : 0),
                0);
        for (const Edge &e : edges)
            EXPECT_EQ(weft__tg_edge(&g, e.from - 1, e.to - 1, WEFT__TG_NONE, e.bytes), 0);
        EXPECT_EQ(weft__tg_finish(&g, "test"), 0) << weft__error();
    }
    Graph(const Graph &) = delete;
    ~Graph() { weft__tg_free(&g); }
};

// A byte takes one unit of time between any two devices, as in the papers.
weft__machine machine(uint32_t devices, uint32_t workers = 1)
{
    weft__machine m = {};
    m.n_device = devices;
    for (uint32_t a = 0; a < devices; a++) {
        m.workers[a] = workers;
        for (uint32_t b = 0; b < devices; b++)
            m.ns_per_byte[a][b] = 1;
    }
    return m;
}

struct Schedule {
    weft__schedule s = {};
    int status;
    Schedule(const Graph &g, const weft__machine &m, weft__listsched_kind kind)
    {
        status = weft__listsched(&g.g, &m, kind, &s);
        EXPECT_EQ(status ? 0 : weft__schedule_check(&g.g, &m, &s), 0) << weft__error();
    }
    Schedule(const Schedule &) = delete;
    ~Schedule() { weft__schedule_free(&s); }
    void expect(const std::vector<uint32_t> &devices, const std::vector<double> &starts) const
    {
        ASSERT_EQ(status, 0) << weft__error();
        for (size_t t = 0; t < devices.size(); t++) {
            EXPECT_EQ(s.row[t].device, devices[t]) << "task " << t + 1;
            EXPECT_EQ(s.row[t].start, starts[t]) << "task " << t + 1;
        }
    }
};

// Topcuoglu, Hariri, Wu: Performance-effective and low-complexity task scheduling for heterogeneous computing, IEEE TPDS
// 13(3), 2002: figures 2 and 3, table 1.
const std::vector<std::vector<double>> topcuoglu_costs = {{14, 16, 9},  {13, 19, 18}, {11, 13, 19}, {13, 8, 17},
                                                          {12, 13, 10}, {13, 16, 9},  {7, 15, 11},  {5, 11, 14},
                                                          {18, 12, 20}, {21, 7, 16}};
const std::vector<Edge> topcuoglu_edges = {{1, 2, 18}, {1, 3, 12}, {1, 4, 9},   {1, 5, 11},  {1, 6, 14},
                                           {2, 8, 19}, {2, 9, 16}, {3, 7, 23},  {4, 8, 27},  {4, 9, 23},
                                           {5, 9, 13}, {6, 8, 15}, {7, 10, 17}, {8, 10, 11}, {9, 10, 13}};

// Arabnejad, Barbosa: List scheduling algorithm for heterogeneous systems by an optimistic cost table, IEEE TPDS 25(3), 2014:
// figure 1 and table of the schedule; the same example is in chapter 3 of H. Arabnejad's thesis (Porto).
const std::vector<std::vector<double>> peft_costs = {{22, 21, 36}, {22, 18, 18}, {32, 27, 43}, {7, 10, 4},
                                                     {29, 27, 35}, {26, 17, 24}, {14, 25, 30}, {29, 23, 36},
                                                     {15, 21, 8},  {13, 16, 33}};
const std::vector<Edge> peft_edges = {{1, 2, 17}, {1, 3, 31}, {1, 4, 29}, {1, 5, 13},  {1, 6, 7},
                                      {2, 8, 3},  {2, 9, 30}, {3, 7, 16}, {4, 8, 11},  {4, 9, 7},
                                      {5, 9, 57}, {6, 8, 5},  {7, 10, 9}, {8, 10, 42}, {9, 10, 7}};

TEST(ListSched, HeftOfItsPaperTakes80)
{
    Graph g(topcuoglu_costs, topcuoglu_edges);
    Schedule s(g, machine(3), WEFT__HEFT);
    s.expect({2, 0, 2, 1, 2, 1, 2, 0, 1, 1}, {0, 27, 9, 18, 28, 26, 38, 57, 56, 73});
    EXPECT_EQ(s.s.makespan, 80);
}

TEST(ListSched, CpopOfItsPaperTakes86)
{
    Graph g(topcuoglu_costs, topcuoglu_edges);
    Schedule s(g, machine(3), WEFT__CPOP);
    ASSERT_EQ(s.status, 0);
    EXPECT_EQ(s.s.makespan, 86);
    for (int t : {1, 2, 9, 10}) // the critical path, all on P2
        EXPECT_EQ(s.s.row[t - 1].device, 1u) << t;
}

TEST(ListSched, PeftOfItsPaperTakes122AndHeft133)
{
    Graph g(peft_costs, peft_edges);
    Schedule peft(g, machine(3), WEFT__PEFT), heft(g, machine(3), WEFT__HEFT);
    peft.expect({0, 0, 0, 0, 2, 1, 0, 1, 2, 1}, {0, 29, 51, 22, 35, 29, 83, 54, 81, 106});
    EXPECT_EQ(peft.s.makespan, 122);
    EXPECT_EQ(heft.s.makespan, 133);
}

TEST(ListSched, ATaskGoesIntoAGapThatIsLargeEnough)
{
    // 1 -> 2 over a slow edge leaves device 1 idle; 3 has the lowest rank and fits in before 2.
    Graph g({{10, INFINITY}, {INFINITY, 10}, {INFINITY, 5}}, {{1, 2, 30}});
    Schedule s(g, machine(2), WEFT__HEFT);
    s.expect({0, 1, 1}, {0, 40, 0});
    Graph tight({{10, INFINITY}, {INFINITY, 50}, {INFINITY, 41}}, {{1, 2, 30}});
    Schedule after(tight, machine(2), WEFT__HEFT);
    after.expect({0, 1, 1}, {0, 40, 90});
}

TEST(ListSched, MemoryIsALimitAndTheTaskIsNamed)
{
    Graph g({{1, 2}, {1, 2}, {1, 2}}, {}, {60, 60, 60});
    weft__machine m = machine(2, 4);
    m.memory[0] = 100;
    m.memory[1] = 120;
    Schedule fits(g, m, WEFT__HEFT);
    fits.expect({0, 1, 1}, {0, 0, 0});
    m.memory[1] = 100;
    Schedule full(g, m, WEFT__HEFT);
    EXPECT_EQ(full.status, WEFT_EMACHINE);
    EXPECT_NE(std::string(weft__error()).find("task 3"), std::string::npos) << weft__error();
}

TEST(ListSched, AFileCrossesOnceToADevice)
{
    weft__taskgraph g;
    const double a[] = {1, INFINITY}, b[] = {INFINITY, 1};
    weft__tg_init(&g, 2);
    ASSERT_EQ(weft__tg_task(&g, "writer", a, 0), 0);
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(weft__tg_task(&g, "reader", b, 0), 0);
        ASSERT_EQ(weft__tg_edge(&g, 0, 1 + i, i < 2 ? 0 : 1, 8), 0);
    }
    ASSERT_EQ(weft__tg_finish(&g, "test"), 0);
    weft__machine m = machine(2);
    weft__schedule s;
    ASSERT_EQ(weft__listsched(&g, &m, WEFT__HEFT, &s), 0);
    EXPECT_EQ(s.cut_files, 2u); // three edges, two files
    EXPECT_EQ(s.cut_bytes, 16);
    weft__schedule_free(&s);
    weft__tg_free(&g);
}

TEST(ListSched, RandomSchedulesHoldAndAreNoShorterThanTheLongestPath)
{
    for (uint32_t seed = 1; seed <= 60; seed++) {
        std::mt19937 random(seed);
        const uint32_t n = 1 + random() % 120, devices = 1 + random() % 4;
        std::vector<std::vector<double>> costs(n, std::vector<double>(devices));
        std::vector<Edge> edges;
        std::vector<double> longest(n);
        double bound = 0;
        for (uint32_t t = 0; t < n; t++) {
            double least = INFINITY;
            for (uint32_t d = 0; d < devices; d++)
                costs[t][d] = d && random() % 5 == 0 ? INFINITY : random() % 20; // zero is a cost too
            for (double c : costs[t])
                least = std::fmin(least, c);
            for (uint32_t from = 0; from < t; from++)
                if (random() % n < 3) {
                    edges.push_back({from + 1, t + 1, double(random() % 30)});
                    longest[t] = std::fmax(longest[t], longest[from]);
                }
            longest[t] += least;
            bound = std::fmax(bound, longest[t]);
        }
        Graph g(costs, edges);
        for (weft__listsched_kind kind : {WEFT__HEFT, WEFT__CPOP, WEFT__PEFT}) {
            Schedule s(g, machine(devices, 1 + seed % 3), kind);
            ASSERT_EQ(s.status, 0) << weft__error();
            EXPECT_GE(s.s.makespan, bound) << "seed " << seed;
        }
    }
}

TEST(ListSched, TheCheckNamesWhatBreaks)
{
    Graph g({{5}, {5}}, {{1, 2, 10}});
    const weft__machine m = machine(2);
    weft__schedule_row rows[] = {{0, 5, 0, 0}, {15, 20, 1, 0}};
    weft__schedule s = {rows, 20, 0, 0};
    EXPECT_EQ(weft__schedule_check(&g.g, &m, &s), 0);
    rows[1] = {14, 19, 1, 0};
    EXPECT_EQ(weft__schedule_check(&g.g, &m, &s), WEFT_EWRONG);
    rows[1] = {15, 20, 1, 1};
    EXPECT_EQ(weft__schedule_check(&g.g, &m, &s), WEFT_EWRONG);
    Graph apart({{5}, {5}}, {});
    rows[1] = {4, 9, 0, 0};
    EXPECT_EQ(weft__schedule_check(&apart.g, &m, &s), WEFT_EWRONG);
    EXPECT_NE(std::string(weft__error()).find("run at once"), std::string::npos);
}

} // namespace
