// task graphs: real files are read with the right counts, bad ones are refused with the place.
#include "../host/error.h"
#include "../host/taskgraph.h"
#include "files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace
{

const std::string graphs = std::string(WEFT_SOURCE_DIR) + "/tests/graphs/";

struct Read {
    weft__taskgraph g;
    int status;
    explicit Read(const std::string &path)
    {
        const bool json = path.size() > 5 && path.substr(path.size() - 5) == ".json";
        status = json ? weft__tg_read_wfformat(path.c_str(), &g) : weft__tg_read_stg(path.c_str(), &g);
    }
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
