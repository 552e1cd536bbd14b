// task graphs: real files are read with the right counts, bad ones are refused with the place.
#include "../host/error.h"
#include "../host/taskgraph.h"
#include "files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace
{

const std::string graphs = std::string(WEFT_SOURCE_DIR) + "/tests/graphs/";

struct Read {
    weft__taskgraph g;
    int status;
    explicit Read(const std::string &path) { status = weft__tg_read(path.c_str(), &g); }
    Read(const Read &) = delete;
    ~Read() { weft__tg_free(&g); }
};

void expect_refused(const std::string &name, const std::string &text, const std::string &place)
{
    Folder folder;
    folder.write(name, text);
    Read r(folder / name);
    EXPECT_EQ(r.status, WEFT_EFILE) << text;
    EXPECT_NE(std::string(weft__error()).find(place), std::string::npos) << weft__error();
}

TEST(TaskGraph, StgFiles)
{
    Read sample(graphs + "stg/sample00.stg");
    ASSERT_EQ(sample.status, 0) << weft__error();
    EXPECT_EQ(sample.g.n_task, 10u); // 8 and the two dummies
    EXPECT_EQ(sample.g.n_edge, 13u);
    EXPECT_EQ(sample.g.zero_costs, 2u);
    EXPECT_EQ(sample.g.cost[6], 7000);
    for (const char *name : {"sample01", "sample02", "rand0000", "rand0001", "proto001"}) {
        Read r(graphs + "stg/" + name + ".stg");
        EXPECT_EQ(r.status, 0) << weft__error();
    }
    Read random(graphs + "stg/rand0000.stg");
    EXPECT_EQ(random.g.n_task, 52u);
}

TEST(TaskGraph, StgLinesInAnyOrderAndWithoutDummies)
{
    Folder folder;
    folder.write("a.stg", "3 20\n3 5 2 1 2\n\n2 4 1 1\r\n1 0 0\n# the end\nno more 1 2 3\n");
    Read r(folder / "a.stg");
    ASSERT_EQ(r.status, 0) << weft__error();
    EXPECT_EQ(r.g.n_task, 3u);
    EXPECT_STREQ(weft__tg_name(&r.g, r.g.order[0]), "1");
    EXPECT_STREQ(weft__tg_name(&r.g, r.g.order[2]), "3");
}

TEST(TaskGraph, BadStgFiles)
{
    expect_refused("a.stg", "", ":1: no number of tasks");
    expect_refused("a.stg", "2\n1 3 0\n1 4 0\n", ":3: a second line");
    expect_refused("a.stg", "2\n1 -3 0\n", ":2: expected a processing time");
    expect_refused("a.stg", "2\n1 3 0\n2 4 2 1\n", ":3: fewer predecessors");
    expect_refused("a.stg", "2\n1 3 0\n2 4 1 1 1\n", ":3: more predecessors");
    expect_refused("a.stg", "2\n1 3 0\n9 4 0\n", ":3: this task's number");
    expect_refused("a.stg", "2\n1 3 0\n2 4 1 9\n", ":3: a predecessor");
    expect_refused("a.stg", "2\n1 3 0\n2 4 1 3\n", "task 2: predecessor 3 has no line");
    expect_refused("a.stg", "3\n1 3 0\n2 4 0\n", "2 lines of tasks, 3 expected");
    expect_refused("a.stg", "2\n1 3 1 2\n2 4 1 1\n", "over a cycle");
    expect_refused("a.stg", "2\n1 3 1 1\n2 4 0\n", "task 1 waits for itself");
    expect_refused("a.stg", "2\n1 3 0\n2 4 2 1 1\n", "edge 1 -> 2 is given twice");
    expect_refused("a.stg", "99999999999\n", ":1: a number is too large");
}

TEST(TaskGraph, WfFormatFiles)
{
    Read chain(graphs + "wfcommons/helloworld-chain-5-chameleon.json");
    ASSERT_EQ(chain.status, 0) << weft__error();
    EXPECT_EQ(chain.g.n_task, 5u);
    EXPECT_EQ(chain.g.n_edge, 4u);
    EXPECT_GT(chain.g.cost[0], 0);
    Read fork(graphs + "wfcommons/helloworld-forkjoin-10-chameleon.json");
    ASSERT_EQ(fork.status, 0) << weft__error();
    EXPECT_GT(fork.g.n_edge, fork.g.n_task - 2);
}

std::string wf(const std::string &tasks, const std::string &files, const std::string &runs)
{
    return R"({"schemaVersion":"1.5","workflow":{"specification":{"tasks":[)" + tasks + R"(],"files":[)" + files +
           R"(]},"execution":{"tasks":[)" + runs + "]}}}";
}
const std::string run_ab = R"({"id":"a","runtimeInSeconds":1.5},{"id":"b","runtimeInSeconds":0})";

TEST(TaskGraph, WfFormatEdgesAreParentsAndChildrenWithTheirFiles)
{
    Folder folder; // b does not name its parent; both files cross; c shares none
    folder.write("a.json",
                 wf(R"({"id":"a","children":["b","c"],"outputFiles":["x","y"]},{"id":"b","inputFiles":["x","y","z"]},
                                {"id":"c","parents":["a"]})",
                    R"({"id":"x","sizeInBytes":5},{"id":"y","sizeInBytes":0},{"id":"z","sizeInBytes":9})",
                    run_ab + R"(,{"id":"c","runtimeInSeconds":2,"memoryInBytes":77})"));
    Read r(folder / "a.json");
    ASSERT_EQ(r.status, 0) << weft__error();
    EXPECT_EQ(r.g.n_edge, 3u);
    EXPECT_EQ(r.g.edges[0].bytes, 5);
    EXPECT_EQ(r.g.edges[2].file, WEFT__TG_NONE);
    EXPECT_EQ(r.g.cost[0], 1.5e9);
    EXPECT_EQ(r.g.memory[2], 77u);
    EXPECT_EQ(r.g.zero_costs, 1u);
    EXPECT_EQ(r.g.zero_bytes, 2u);
}

TEST(TaskGraph, BadWfFormatFiles)
{
    const std::string ab = R"({"id":"a"},{"id":"b","parents":["a"]})";
    expect_refused("a.json", "{\"schemaVersion\":\"1.5\",\n\"schemaVersion\":\"1.5\"}", ":2:");
    expect_refused("a.json", "{", ":1:");
    expect_refused("a.json", R"({"schemaVersion":"1.4"})", "schemaVersion 1.4");
    expect_refused("a.json", wf("", "", ""), "no tasks");
    expect_refused("a.json", wf(R"({"id":"a"},{"id":"a"})", "", run_ab), "task a is there twice");
    expect_refused("a.json", wf(R"({"id":"a","parents":["q"]},{"id":"b"})", "", run_ab), "unknown id q");
    expect_refused("a.json", wf(R"({"id":"a","children":["q"]},{"id":"b"})", "", run_ab), "unknown id q");
    expect_refused("a.json", wf(R"({"id":"a","inputFiles":["q"]},{"id":"b"})", "", run_ab), "inputFiles[0]");
    expect_refused("a.json", wf(ab, "", R"({"id":"a","runtimeInSeconds":-1})"), "task a: runtimeInSeconds");
    expect_refused("a.json", wf(ab, "", R"({"id":"a","runtimeInSeconds":1})"), "task b has no runtime");
    expect_refused("a.json", wf(ab, R"({"id":"f","sizeInBytes":-4})", run_ab), "file f");
    expect_refused("a.json", wf(R"({"id":"a","parents":["b"]},{"id":"b","parents":["a"]})", "", run_ab),
                   "over a cycle");
}

TEST(TaskGraph, DotFiles)
{
    Folder folder;
    folder.write(
        "a.dot",
        "/* all of it */ strict digraph \"x y\" {\n# a line\n rankdir=LR; node [cost=7, shape=box]; // more\n"
        " a [weight=3,memory=64] [label=\"<\\\"a\\\">\"]; subgraph s { node [cost=2]; b; { c [cost=\"1.5e3\"] } }\n"
        " edge [bytes=5]; a -> b -> c -> d; a -> c [weight=9] ; a -> d [bytes=0]}\n");
    Read r(folder / "a.dot");
    ASSERT_EQ(r.status, 0) << weft__error();
    ASSERT_EQ(r.g.n_task, 4u);
    EXPECT_EQ(r.g.n_edge, 5u);
    EXPECT_EQ(std::vector<double>(r.g.cost, r.g.cost + 4), (std::vector<double>{3, 2, 1500, 7}));
    EXPECT_EQ(r.g.memory[0], 64u);
    EXPECT_EQ(r.g.edges[0].bytes, 5); // a -> b
    EXPECT_EQ(r.g.edges[1].bytes, 9); // a -> c
    EXPECT_EQ(r.g.edges[2].bytes, 0); // a -> d
    Read devices(graphs + "dot/heft.dot");
    ASSERT_EQ(devices.status, 0) << weft__error();
    EXPECT_EQ(devices.g.n_column, 3u);
    EXPECT_EQ(weft__tg_cost(&devices.g, 9, 1), 7);
}

TEST(TaskGraph, BadDotFiles)
{
    const std::string ab = "digraph {\n a [cost=1];\n b [cost=2];\n";
    expect_refused("a.dot", "", ":1: expected digraph");
    expect_refused("a.dot", "graph { a -- b }", ":1: expected digraph");
    expect_refused("a.dot", ab, "ends before }");
    expect_refused("a.dot", ab + "a -- b }", ":4: an undirected edge");
    expect_refused("a.dot", ab + "a -> q }", ":4: task q has no cost");
    expect_refused("a.dot", ab + "a:x -> b }", ":4: ports");
    expect_refused("a.dot", ab + "a [cost=3] }", ":4: task a is declared twice (first in line 2)");
    expect_refused("a.dot", ab + "c [cost=3, cost=4] }", ":4: an attribute");
    expect_refused("a.dot", ab + "c [cost=3, weight=4] }", ":4: an attribute");
    expect_refused("a.dot", ab + "c [cost=-3] }", ":4: cost '-3'");
    expect_refused("a.dot", ab + "c [cost=x] }", ":4: cost 'x'");
    expect_refused("a.dot", ab + "c [cost=\"1,2\"] e [cost=\"1,2,3\"]}", ":4: task c has 2 costs, others 3");
    expect_refused("a.dot", ab + "c [cost=none] }", "task c can run on no device");
    expect_refused("a.dot", ab + "a -> b [bytes=-1] }", ":4: bytes '-1'");
    expect_refused("a.dot", ab + "a -> b\n a -> b }", "edge a -> b is given twice");
    expect_refused("a.dot", ab + "a -> b -> a }", "over a cycle");
    expect_refused("a.dot", ab + "a -> a }", "task a waits for itself");
    expect_refused("a.dot", ab + "a -> { b } }", ":4: expected a task's name behind ->");
    expect_refused("a.dot", ab + "{ b } -> a }", ":4: an edge from a subgraph");
    expect_refused("a.dot", ab + "c [label=<b>] }", ":4: HTML");
    expect_refused("a.dot", ab + "\"c [cost=1] }", ":4: a string without an end");
    expect_refused("a.dot", ab + "/* }", ":4: a comment without an end");
    expect_refused("a.dot", ab + "} digraph { }", ":4: something behind the graph");
    expect_refused("a.dot", "digraph " + std::string(100, '{'), "too many subgraphs");
    expect_refused("a.dot", "digraph { }", "no tasks");
}

TEST(TaskGraph, OwnFilesAreExact)
{
    Folder folder;
    const std::string own = R"({"weft_graph": 1, "devices": 2, "tasks": [{"id": "a\"", "cost": [0.1, null]},
        {"id": "b", "cost": 3, "memory": 9}], "edges": [{"from": "a\"", "to": "b", "bytes": 1e17, "file": 4}]})";
    folder.write("a.json", own);
    Read a(folder / "a.json");
    ASSERT_EQ(a.status, 0) << weft__error();
    ASSERT_EQ(weft__tg_write_json(&a.g, (folder / "b.json").c_str()), 0) << weft__error();
    ASSERT_EQ(weft__tg_write_dot(&a.g, nullptr, (folder / "c.dot").c_str()), 0) << weft__error();
    for (const char *name : {"b.json", "c.dot"}) {
        Read b(folder / name);
        ASSERT_EQ(b.status, 0) << weft__error();
        EXPECT_EQ(b.g.cost[0], 0.1);
        EXPECT_TRUE(std::isinf(b.g.cost[1]));
        EXPECT_EQ(b.g.cost[3], 3);
        EXPECT_EQ(b.g.memory[1], 9u);
        EXPECT_EQ(b.g.edges[0].bytes, 1e17);
        EXPECT_STREQ(weft__tg_name(&b.g, 0), "a\"");
    }
    const std::string
        head = R"({"weft_graph": 1, "tasks": [{"id": "a", "cost": 1}, {"id": "b", "cost": 1}], "edges": [)";
    expect_refused("a.json", head + R"({"from": "a", "to": "q"}]})", "edges[0]: to: unknown id q");
    expect_refused("a.json", head + R"({"from": "a", "to": "b", "bytes": -1}]})", "edges[0]: bytes");
    expect_refused("a.json", head + R"({"from": "a", "to": "b", "size": 1}]})", "edges[0]: unknown key 'size'");
    expect_refused("a.json", head + R"({"from": "a", "to": "b", "to": "b"}]})", ":1: duplicate object key");
    expect_refused("a.json", head + R"({"from": "a", "to": "b"}, {"from": "b", "to": "a"}]})", "over a cycle");
    expect_refused("a.json", R"({"weft_graph": 2})", "only version 1");
    expect_refused("a.json", R"({"weft_graph": 1, "tasks": [{"id": "a", "cost": -1}]})", "tasks[0]: cost");
    expect_refused("a.json", R"({"weft_graph": 1, "tasks": [{"id": "a", "cost": 1}, {"id": "a", "cost": 1}]})",
                   "tasks[1]: task a is there twice");
}

TEST(TaskGraph, FamiliesHaveTheSizesOfTheirFormulas)
{
    const struct {
        const char *spec;
        uint32_t tasks, edges;
    } rows[] = {
        {"gen:layered,n=100,width=10,degree=3", 100, 270},
        {"gen:forkjoin,width=4,depth=3", 16, 24},
        {"gen:stencil,width=5,depth=4", 20, 39},
        {"gen:cholesky,n=4", 20, 30}, // n + n(n-1) + n(n-1)(n-2)/6 tasks
        {"gen:lu,n=3", 14, 21},
        {"gen:fft,n=8", 32, 48},
        {"gen:mapreduce,width=6,degree=2,depth=2", 16, 30},
    };
    for (const auto &row : rows) {
        Read r(row.spec), again(row.spec);
        ASSERT_EQ(r.status, 0) << weft__error();
        EXPECT_EQ(r.g.n_task, row.tasks) << row.spec;
        EXPECT_EQ(r.g.n_edge, row.edges) << row.spec;
        EXPECT_TRUE(std::equal(r.g.cost, r.g.cost + r.g.n_task, again.g.cost));
        Read other(std::string(row.spec) + ",seed=2");
        EXPECT_FALSE(std::equal(r.g.cost, r.g.cost + r.g.n_task, other.g.cost));
    }
    for (const char *spec : {"gen:tree", "gen:fft,n=12", "gen:fft,width=3", "gen:layered,n=0", "gen:layered,n=1.5",
                             "gen:layered,n=5,n=6", "gen:lu,n=600", "gen:lu,n", "gen:lu;n=3"}) {
        Read r(spec);
        EXPECT_EQ(r.status, WEFT_EUSAGE) << spec;
    }
}

TEST(TaskGraph, ZerosAreImputedByTheMedian)
{
    weft__taskgraph g;
    weft__tg_init(&g, 1);
    for (double cost : {0.0, 4.0, 6.0, 100.0})
        ASSERT_EQ(weft__tg_task(&g, "t", &cost, 0), 0);
    ASSERT_EQ(weft__tg_edge(&g, 0, 1, WEFT__TG_NONE, 0), 0);
    ASSERT_EQ(weft__tg_edge(&g, 0, 2, WEFT__TG_NONE, 8), 0);
    ASSERT_EQ(weft__tg_finish(&g, "test"), 0);
    uint32_t costs, bytes;
    ASSERT_EQ(weft__tg_impute_zeros(&g, &costs, &bytes), 0);
    EXPECT_EQ(costs, 1u);
    EXPECT_EQ(bytes, 1u);
    EXPECT_EQ(g.cost[0], 6);
    EXPECT_EQ(g.edges[0].bytes, 8);
    EXPECT_EQ(g.zero_costs + g.zero_bytes, 0u);
    weft__tg_free(&g);
}

TEST(TaskGraph, ARatioOfCommunicationIsMet)
{
    Read r("gen:layered,n=20000,width=100,bytes=0");
    ASSERT_EQ(r.status, 0) << weft__error();
    ASSERT_EQ(weft__tg_ccr(&r.g, 2, 0.5, 3), 0) << weft__error();
    double costs = 0, moves = 0;
    for (uint32_t t = 0; t < r.g.n_task; t++)
        costs += r.g.cost[t] / r.g.n_task;
    for (uint32_t e = 0; e < r.g.n_edge; e++)
        moves += 0.5 * r.g.edges[e].bytes / r.g.n_edge;
    EXPECT_NEAR(moves / costs, 2, 0.02);
    EXPECT_EQ(weft__tg_ccr(&r.g, 2, 0.5, 3), WEFT_EUSAGE); // it has bytes now
}

TEST(TaskGraph, CostsAndBytesAreChecked)
{
    weft__taskgraph g;
    weft__tg_init(&g, 1);
    const double bad = -1, none = __builtin_inf(), one = 1;
    EXPECT_EQ(weft__tg_task(&g, "a", &bad, 0), WEFT_EFILE);
    ASSERT_EQ(weft__tg_task(&g, "a", &one, 0), 0);
    EXPECT_EQ(weft__tg_edge(&g, 0, 0, WEFT__TG_NONE, -1), WEFT_EFILE);
    ASSERT_EQ(weft__tg_task(&g, "b", &none, 0), 0);
    EXPECT_EQ(weft__tg_finish(&g, "test"), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("task b can run on no device"), std::string::npos);
    weft__tg_free(&g);
}

TEST(TaskGraph, TenMillionEdgesAreSortedInATopologicalOrder)
{
    weft__taskgraph g;
    weft__tg_init(&g, 1);
    const uint32_t n = 1000000;
    const double cost = 1;
    for (uint32_t t = 0; t < n; t++)
        ASSERT_EQ(weft__tg_task(&g, "t", &cost, 0), 0);
    for (uint32_t t = n - 1; t >= 10; t--)
        for (uint32_t k = 1; k <= 10; k++)
            ASSERT_EQ(weft__tg_edge(&g, t - k, t, WEFT__TG_NONE, 1), 0);
    ASSERT_EQ(weft__tg_finish(&g, "test"), 0) << weft__error();
    EXPECT_TRUE(std::is_sorted(g.order + 10, g.order + n));
    ASSERT_GT(g.n_edge, 9999000u);
    ASSERT_EQ(weft__tg_edge(&g, n - 1, 10, WEFT__TG_NONE, 1), 0); // now a cycle
    weft__taskgraph again;
    weft__tg_init(&again, 1);
    for (uint32_t t = 0; t < n; t++)
        ASSERT_EQ(weft__tg_task(&again, "t", &cost, 0), 0);
    for (uint32_t e = 0; e < g.n_edge; e++)
        ASSERT_EQ(weft__tg_edge(&again, g.edges[e].from, g.edges[e].to, WEFT__TG_NONE, 1), 0);
    EXPECT_EQ(weft__tg_finish(&again, "test"), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("cycle"), std::string::npos);
    weft__tg_free(&again);
    weft__tg_free(&g);
}

} // namespace
