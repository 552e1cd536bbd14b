// bench_queue: `weft bench queue`: its graphs have the shape that they are called by, its bound is one, its numbers add up.
#include "files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <jansson.h>
#include <sstream>
#include <vector>

namespace
{

struct Line { // one JSON object
    json_t *root;
    explicit Line(const std::string &text) { root = json_loads(text.c_str(), 0, nullptr); }
    Line(Line &&other) : root(other.root) { other.root = nullptr; }
    ~Line() { json_decref(root); }
    double operator[](const char *field) const
    {
        const json_t *v = json_object_get(root, field);
        EXPECT_TRUE(json_is_number(v)) << field;
        return json_number_value(v);
    }
    std::string text(const char *field) const
    {
        const char *s = json_string_value(json_object_get(root, field));
        return s ? s : "";
    }
};

std::vector<Line> bench(const std::string &args)
{
    const Output out = run_command(WEFT_BINARY " bench queue --json --steps 2 --rounds 2 " + args);
    EXPECT_EQ(out.exit, 0) << args << "\n" << out.text;
    std::vector<Line> lines;
    std::istringstream in(out.text);
    for (std::string line; std::getline(in, line);)
        lines.emplace_back(line);
    return lines;
}

TEST(BenchQueue, GraphsHaveTheirShape)
{
    const struct {
        const char *graph;
        double nodes, edges, critical; // critical path: nodes on it
    } shapes[] = {
        {"layers", 12, 32, 3}, {"wide", 14, 24, 3},    {"deep", 12, 8, 3},
        {"fan-in", 21, 18, 3}, {"fan-out", 21, 18, 3}, {"stencil", 12, 16, 3},
    };
    for (const auto &s : shapes) {
        const auto lines = bench(
            std::string("--width 4 --depth 3 --degree 2 --dist constant --mean 2 --queue push --graph ") + s.graph);
        ASSERT_EQ(lines.size(), 1u);
        EXPECT_EQ(lines[0]["nodes"], s.nodes) << s.graph;
        EXPECT_EQ(lines[0]["edges"], s.edges) << s.graph;
        EXPECT_DOUBLE_EQ(lines[0]["critical_us"], 2 * s.critical) << s.graph;
        EXPECT_DOUBLE_EQ(lines[0]["work_us"], 2 * s.nodes) << s.graph;
    }
    const auto lines = bench("--width 40 --depth 20 --degree 3 --mean 0 --queue push --graph random");
    EXPECT_GT(lines[0]["edges"], 2 * 19 * 40); // three draws of forty are seldom equal
    EXPECT_LE(lines[0]["edges"], 3 * 19 * 40);
}

TEST(BenchQueue, DurationsHaveTheirMeanAndFollowTheSeed)
{
    const std::string shape = "--graph deep --width 64 --depth 32 --mean 1 --queue push --steps 1 --rounds 1 ";
    const auto mean = [&](const std::string &dist) {
        const auto lines = bench(shape + dist);
        return lines[0]["work_us"] / lines[0]["nodes"];
    };
    EXPECT_DOUBLE_EQ(mean("--dist constant"), 1);
    EXPECT_DOUBLE_EQ(mean("--dist uniform --spread 0"), 1);
    EXPECT_DOUBLE_EQ(mean("--dist lognormal --sigma 0"), 1);
    EXPECT_DOUBLE_EQ(mean("--dist bimodal --long-share 0"), 1);
    EXPECT_NEAR(mean("--dist uniform --spread 1"), 1, 0.06); // four standard errors, 2048 nodes
    EXPECT_NEAR(mean("--dist lognormal --sigma 1"), 1, 0.12);
    EXPECT_NEAR(mean("--dist bimodal --long-share 0.2 --long-factor 10"), 1, 0.12);
    EXPECT_DOUBLE_EQ(mean("--dist lognormal --seed 5"), mean("--dist lognormal --seed 5"));
    EXPECT_NE(mean("--dist lognormal --seed 5"), mean("--dist lognormal --seed 6"));
}

TEST(BenchQueue, EveryPolicyRunsEveryTaskAndNoneBeatsTheBound)
{
    for (const char *how : {"--devices cpu:2x1", "--devices cpu:1x2 --counters consumer --order breadth",
                            "--devices cpu:2x2 --place levels --alternates"}) {
        const auto lines = bench(std::string(how) +
                                 " --graph stencil,random --width 8 --depth 8 --dist uniform --mean 20 "
                                 "--queue static,fifo,push,steal:amount=half,victim=near,priority");
        ASSERT_EQ(lines.size(), 10u);
        for (const Line &l : lines) {
            EXPECT_EQ(l["tasks"], 64);
            EXPECT_EQ(l["pops"], 64) << l.text("queue");
            EXPECT_GE(l["min_us"], l["bound_us"]) << l.text("queue");
            EXPECT_GE(l["bound_us"], l["critical_us"]);
            EXPECT_GE(l["bound_us"], l["work_per_worker_us"] * 0.999);
            EXPECT_GE(l["achieved_us"], l["requested_us"]);
            EXPECT_GT(l["ns_per_task"], 0);
            EXPECT_GT(l["no_edges_us"], 0);
            EXPECT_GE(l["wait_share"] + l["idle_share"], 0);
            EXPECT_LE(l["wait_share"] + l["idle_share"], 1);
            EXPECT_LE(l["steals_abroad"], l["steals"]);
        }
        EXPECT_EQ(lines[3].text("queue_spec"), "steal:victim=near,amount=half,end=fifo,backoff=0,capacity=0");
        EXPECT_EQ(lines[0]["over_first"], 1);
    }
}

// Layers on one device: a counter a layer. However edges are counted, the same tasks run for as long.
TEST(BenchQueue, CountersAreSharedWhereInputsAndReadersAreTheSame)
{
    double signals[3] = {};
    const char *const how[] = {"shared", "producer", "consumer"};
    for (int i = 0; i < 3; i++) {
        const auto lines = bench(
            std::string("--devices cpu:2x1 --place levels --graph layers,wide,fan-out --width 4 --depth 3 "
                        "--mean 2 --edge-bytes 100 --queue push,static --counters ") +
            how[i]);
        ASSERT_EQ(lines.size(), 6u);
        for (const Line &l : lines)
            EXPECT_EQ(l["pops"], l["tasks"]) << how[i];
        signals[i] = lines[0]["remote_signals"];
    }
    EXPECT_LE(signals[0], signals[1]);
    EXPECT_LE(signals[1], signals[2]);
}

TEST(BenchQueue, BytesAreMoved)
{
    auto lines = bench("--devices cpu:2x1 --graph deep --width 4 --depth 5 --work stream --bytes 3000 --dist constant");
    ASSERT_EQ(lines.size(), 5u);
    for (const Line &l : lines) {
        EXPECT_EQ(l["tasks"], 20);
        EXPECT_EQ(l["step_bytes"], 20 * 2 * 3072); // whole blocks of 1 KB, read and written
        EXPECT_EQ(l["remote_bytes"], 0);
        EXPECT_GT(l["bound_us"], 0); // of what the streams took
    }
    lines = bench(
        "--devices cpu:2x1 --graph deep --place levels --width 4 --depth 5 --work both --bytes 1024 --edge-bytes 2048 "
        "--mean 3 --dist constant --queue push,static");
    ASSERT_EQ(lines.size(), 2u);
    for (const Line &l : lines) {
        EXPECT_EQ(l["tasks"], 20 + 20 + 16); // spins, streams, edges
        EXPECT_EQ(l["pops"], 56);
        EXPECT_EQ(l["remote_edges"], 16);
        EXPECT_EQ(l["remote_signals"], 16);
        EXPECT_EQ(l["remote_bytes"], 16 * 2048);
        EXPECT_EQ(l["requested_us"], 3);
    }
}

TEST(BenchQueue, CsvHasALineOfNamesAndOneASide)
{
    const Output out = run_command(WEFT_BINARY
                                   " bench queue --csv --steps 1 --rounds 1 --width 2 --depth 2 --mean 1 --graph "
                                   "deep,wide --devices 'cpu:1x1;cpu:2x1' --queue push,steal:end=lifo,amount=half");
    ASSERT_EQ(out.exit, 0) << out.text;
    std::istringstream in(out.text);
    std::vector<size_t> columns;
    for (std::string line; std::getline(in, line);) {
        bool quoted = false;
        columns.push_back(1 + (size_t)std::count_if(line.begin(), line.end(), [&](char c) {
                              quoted ^= c == '"';
                              return c == ',' && !quoted;
                          }));
    }
    ASSERT_EQ(columns.size(), 9u) << out.text;
    for (size_t n : columns)
        EXPECT_EQ(n, columns[0]);
    EXPECT_EQ(out.text.rfind("schema,verb,", 0), 0u);
}

TEST(BenchQueue, WhatMakesNoSenseIsRefused)
{
    const std::pair<const char *, const char *> cases[] = {
        {"--graph ring", "--graph ring: expected layers"},
        {"--dist normal", "--dist normal: expected constant"},
        {"--work sleep", "--work sleep: expected spin"},
        {"--place random", "--place random: expected columns"},
        {"--order none", "--order none: expected critical"},
        {"--counters none", "--counters none: expected shared, producer or consumer"},
        {"--width 100000 --depth 100000", "at most"},
        {"--graph layers --width 5000 --depth 50", "more than 16777216 edges"},
        {"--work stream --bytes 1000000000 --width 8", "over 4 GB"},
        {"--json --csv", "exclude"},
        {"--queue steal:amount=3", "amount: expected 1, half"},
        {"--queue ./none.so", "none.so"},
        {"--devices 'cpu:1x1;tpu'", "tpu"},
        {"--mean -1", "--mean -1"},
    };
    for (const auto &[args, message] : cases) {
        const Output out = run_command(WEFT_BINARY " bench queue --steps 1 --rounds 1 --mean 1 --width 2 --depth 2 " +
                                       std::string(args));
        EXPECT_EQ(out.exit, std::string(args) == "--queue ./none.so" ? 5 : 2) << args << "\n" << out.text;
        EXPECT_NE(out.text.find(message), std::string::npos) << args << "\n" << out.text;
    }
}

} // namespace
