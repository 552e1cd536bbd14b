// placement policies: schedules hold, optima agree with brute force, placements are files, policies may be shared objects.
#include "../host/error.h"
#include "../host/graphgen.h"
#include "../host/listsched_gaps.h"
#include "../host/placer.h"
#include "files.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace
{

Output weft(const std::string &args) { return run_command(std::string(WEFT_BINARY) + " " + args); }

struct Taskgraph {
    weft__taskgraph g;
    Taskgraph() { weft__tg_init(&g, 1); }
    explicit Taskgraph(const std::string &text) { EXPECT_EQ(weft__tg_read(text.c_str(), &g), 0) << weft__error(); }
    Taskgraph(const Taskgraph &) = delete;
    ~Taskgraph() { weft__tg_free(&g); }
};

weft__machine machine(uint32_t devices, uint32_t workers, double ns_per_byte = 1, double latency = 0)
{
    weft__machine m = {};
    m.n_device = devices;
    for (uint32_t a = 0; a < devices; a++) {
        m.workers[a] = workers;
        for (uint32_t b = 0; b < devices; b++) {
            m.ns_per_byte[a][b] = ns_per_byte;
            m.latency_ns[a][b] = latency;
        }
    }
    return m;
}

struct Placed {
    weft__schedule s = {};
    weft__placement_score score = {};
    double proven = 0;
    int status;
    Placed(const std::string &spec, const weft__taskgraph &g, const weft__machine &m, uint64_t seed = 1)
    {
        weft__policy policy;
        weft_placing placing = {};
        status = weft__policy_open(spec.c_str(), &policy);
        if (!status) status = weft__placing_new(&g, &m, seed, &placing);
        if (!status) status = weft__policy_run(&policy, &placing);
        if (!status) status = weft__placing_schedule(&placing, &s);
        if (!status) status = weft__schedule_check(&g, &m, &s);
        if (!status) status = weft__placement_score_of(&g, &m, &s, &score);
        proven = placing.bound;
        weft__placing_free(&placing);
        weft__policy_close(&policy);
    }
    Placed(const Placed &) = delete;
    ~Placed() { weft__schedule_free(&s); }
};

bool built_without(const Placed &p) { return p.status == WEFT_EUNSUPPORTED; }

const std::vector<std::string> plain = {"single", "round-robin", "blocks", "list",       "heft",
                                        "peft",   "cpop",        "ldg",    "sa:moves=50"};

TEST(Placer, EveryPolicyHoldsOnEveryFamily)
{
    for (const char *family : {"gen:layered,n=120,width=9", "gen:forkjoin,depth=3", "gen:stencil,width=8,depth=8",
                               "gen:cholesky,n=5", "gen:lu,n=4", "gen:fft,n=16", "gen:mapreduce,depth=2"}) {
        Taskgraph g(family);
        const weft__machine m = machine(3, 2, 0.01);
        for (const std::string &policy : plain) {
            Placed p(policy, g.g, m);
            ASSERT_EQ(p.status, 0) << family << " " << policy << ": " << weft__error();
            EXPECT_GE(p.s.makespan, p.score.bound * (1 - 1e-12)) << family << " " << policy;
            EXPECT_GE(p.score.balance, 1 - 1e-12);
        }
        Placed scotch("scotch", g.g, m);
        if (!built_without(scotch)) {
            ASSERT_EQ(scotch.status, 0) << weft__error();
            EXPECT_LT(scotch.score.balance, 1.6) << family;
        }
    }
}

TEST(Placer, SameSeedSamePlacement)
{
    Taskgraph g("gen:layered,n=200,width=10,bytes=1000");
    const weft__machine m = machine(3, 2);
    for (const char *policy : {"sa:moves=300", "ldg", "heft"}) {
        Placed a(policy, g.g, m, 5), b(policy, g.g, m, 5);
        ASSERT_EQ(a.status, 0) << weft__error();
        for (uint32_t t = 0; t < g.g.n_task; t++)
            ASSERT_EQ(a.s.row[t].start, b.s.row[t].start) << policy;
    }
}

TEST(Placer, AnnealingIsNoWorseThanItsStart)
{
    Taskgraph g("gen:layered,n=100,width=8,bytes=5000");
    const weft__machine m = machine(4, 1);
    for (const char *start : {"round-robin", "heft", "single"}) {
        Placed from(start, g.g, m), to(std::string("sa:moves=2000,start=") + start, g.g, m);
        ASSERT_EQ(to.status, 0) << weft__error();
        EXPECT_LE(to.s.makespan, from.s.makespan);
        if (start[0] == 'r') {
            EXPECT_LT(to.s.makespan, 0.95 * from.s.makespan);
        }
    }
}

TEST(Placer, LdgKeepsNeighboursTogetherAndBalances)
{
    Taskgraph g("gen:stencil,width=64,depth=50");
    const weft__machine m = machine(4, 4);
    Placed ldg("ldg", g.g, m), robin("round-robin", g.g, m);
    ASSERT_EQ(ldg.status, 0) << weft__error();
    EXPECT_LT(ldg.s.cut_bytes, 0.5 * robin.s.cut_bytes);
    EXPECT_LE(ldg.score.balance, 1.11); // slack is 0.1, and the last task of a device may go a little beyond
}

// ---------------------------------------------------------------------------------------------------------- optimum

// All orders of tasks and all workers, cut off where even the longest path from there is too long.
struct Brute {
    const weft__taskgraph &g;
    const weft__machine &m;
    std::vector<double> tail, end;
    std::vector<uint32_t> device;
    std::vector<std::vector<double>> free_at;
    std::vector<char> done;
    double best = INFINITY;
    Brute(const weft__taskgraph &graph, const weft__machine &on)
        : g(graph), m(on), tail(g.n_task), end(g.n_task), device(g.n_task), done(g.n_task)
    {
        for (uint32_t d = 0; d < m.n_device; d++)
            free_at.emplace_back(m.workers[d]);
        for (uint32_t i = g.n_task; i-- > 0;) {
            const uint32_t t = g.order[i];
            double least = INFINITY;
            for (uint32_t e = g.out0[t]; e < g.out0[t + 1]; e++)
                tail[t] = std::fmax(tail[t], tail[g.edges[e].to]);
            for (uint32_t d = 0; d < m.n_device; d++)
                least = std::fmin(least, weft__tg_cost(&g, t, d));
            tail[t] += least;
        }
        go(0, 0);
    }
    void go(uint32_t placed, double makespan)
    {
        if (placed == g.n_task) best = std::fmin(best, makespan);
        for (uint32_t t = 0; t < g.n_task && placed < g.n_task; t++) {
            bool ready = !done[t];
            for (uint32_t i = g.in0[t]; i < g.in0[t + 1]; i++)
                ready = ready && done[g.edges[g.in[i]].from];
            for (uint32_t d = 0; ready && d < m.n_device; d++)
                for (uint32_t w = 0; w < m.workers[d]; w++)
                    try_at(t, d, w, placed, makespan);
        }
    }
    void try_at(uint32_t t, uint32_t d, uint32_t w, uint32_t placed, double makespan)
    {
        const double cost = weft__tg_cost(&g, t, d), before = free_at[d][w];
        if (std::isinf(cost) || (w && free_at[d][w - 1] == before)) return; // as good on the worker before
        double start = before;
        for (uint32_t i = g.in0[t]; i < g.in0[t + 1]; i++) {
            const weft__tg_edge_row &e = g.edges[g.in[i]];
            start = std::fmax(start, weft__arrival(&m, end[e.from], e.bytes, device[e.from], d));
        }
        double rest = start + cost;
        for (uint32_t e = g.out0[t]; e < g.out0[t + 1]; e++)
            rest = std::fmax(rest, start + cost + tail[g.edges[e].to]);
        if (rest >= best) return;
        done[t] = 1;
        device[t] = d;
        free_at[d][w] = end[t] = start + cost;
        go(placed + 1, std::fmax(makespan, start + cost));
        done[t] = 0;
        free_at[d][w] = before;
    }
};

void random_graph(uint32_t seed, weft__taskgraph *g, uint32_t devices)
{
    std::mt19937 random(seed);
    const uint32_t n = 4 + random() % 6;
    weft__tg_init(g, devices);
    for (uint32_t t = 0; t < n; t++) {
        std::vector<double> cost(devices);
        for (uint32_t d = 0; d < devices; d++)
            cost[d] = d && random() % 6 == 0 ? INFINITY : 1 + random() % 20;
        ASSERT_EQ(weft__tg_task(g, std::to_string(t).c_str(), cost.data(), 0), 0);
        for (uint32_t from = 0; from < t; from++)
            if (random() % n < 2) {
                ASSERT_EQ(weft__tg_edge(g, from, t, WEFT__TG_NONE, random() % 15), 0);
            }
    }
    ASSERT_EQ(weft__tg_finish(g, "random"), 0) << weft__error();
}

TEST(Placer, OptimaAgreeWithBruteForceAndNoPolicyIsBelowThem)
{
    for (uint32_t seed = 1; seed <= 16; seed++) {
        Taskgraph g;
        const uint32_t devices = 2 + seed % 2;
        random_graph(seed, &g.g, devices);
        const weft__machine m = machine(devices, seed % 4 == 0 ? 2 : 1, 1, seed % 3);
        Placed milp("milp:limit=60", g.g, m);
        if (built_without(milp)) GTEST_SKIP() << weft__error();
        ASSERT_EQ(milp.status, 0) << weft__error();
        const Brute brute(g.g, m);
        EXPECT_NEAR(milp.s.makespan, brute.best, 1e-6) << "seed " << seed << ", " << g.g.n_task << " tasks";
        EXPECT_NEAR(milp.proven, brute.best, 1e-6) << "seed " << seed;
        for (const std::string &policy : plain) {
            Placed p(policy, g.g, m);
            if (policy == "single" && p.status == WEFT_EMACHINE) continue; // no device runs all
            ASSERT_EQ(p.status, 0) << policy << ": " << weft__error();
            EXPECT_GE(p.s.makespan, brute.best - 1e-9) << policy << ", seed " << seed;
        }
    }
}

TEST(Placer, TheOptimumOfALargeGraphIsRefused)
{
    Taskgraph g("gen:layered,n=60");
    Placed p("milp", g.g, machine(2, 1));
    if (built_without(p)) GTEST_SKIP() << weft__error();
    EXPECT_EQ(p.status, WEFT_EUSAGE);
    EXPECT_NE(std::string(weft__error()).find("60 tasks: at most 40"), std::string::npos) << weft__error();
}

TEST(Placer, AStoppedOptimumSaysItsGap)
{
    Taskgraph g("gen:layered,n=24,width=6,bytes=2000000");
    Placed milp("milp:limit=1", g.g, machine(3, 1, 0.002)), heft("heft", g.g, machine(3, 1, 0.002));
    if (built_without(milp)) GTEST_SKIP() << weft__error();
    ASSERT_EQ(milp.status, 0) << weft__error();
    EXPECT_LE(milp.s.makespan, heft.s.makespan);
    EXPECT_LT(milp.proven, milp.s.makespan);
    EXPECT_GE(milp.proven, milp.score.bound * (1 - 1e-9));
}

TEST(Placer, TasksOfNoCostAreTasks)
{
    Taskgraph g("gen:layered,n=40,width=5,cost=0,bytes=0");
    for (const std::string &policy : plain) {
        Placed p(policy, g.g, machine(3, 2));
        ASSERT_EQ(p.status, 0) << policy << ": " << weft__error();
        EXPECT_EQ(p.s.makespan, 0) << policy;
    }
}

// -------------------------------------------------------------------------------------------------------------- gaps

TEST(Placer, GapsAreFoundWhereALookAtEveryWorkerFindsThem)
{
    for (uint32_t seed = 1; seed <= 20; seed++) {
        std::mt19937 random(seed);
        const uint32_t workers = 1 + random() % 5;
        weft__gaps gaps;
        ASSERT_EQ(weft__gaps_init(&gaps, 1, &workers), 0);
        std::vector<std::vector<std::pair<double, double>>> idle(workers, {{0, INFINITY}});
        for (int i = 0; i < 2000; i++) {
            const double ready = random() % 3000, cost = random() % 12;
            double best = INFINITY, start;
            for (const auto &w : idle)
                for (const auto &gap : w)
                    if (std::fmax(ready, gap.first) + cost <= gap.second)
                        best = std::fmin(best, std::fmax(ready, gap.first));
            const uint32_t id = weft__gaps_find(&gaps, 0, ready, cost, &start);
            ASSERT_EQ(start, best) << "seed " << seed << ", task " << i;
            auto &w = idle[gaps.node[id].worker];
            size_t k = 0;
            while (k < w.size() && !(w[k].first == gaps.node[id].start && w[k].second == gaps.node[id].end))
                k++;
            ASSERT_LT(k, w.size());
            const auto old = w[k];
            w.erase(w.begin() + (long)k);
            if (old.first < start) w.emplace_back(old.first, start);
            if (start + cost < old.second) w.emplace_back(start + cost, old.second);
            ASSERT_EQ(weft__gaps_take(&gaps, 0, id, start, start + cost), 0);
        }
        weft__gaps_free(&gaps);
    }
}

// ------------------------------------------------------------------------------------------------- files and options

TEST(Placer, SpecsAreChecked)
{
    const std::pair<const char *, const char *> bad[] = {
        {"best", "expected single"},          {"heft:moves=3", "no option 'moves=3'"},
        {"sa:moves", "no option 'moves'"},    {"ldg:slack=x", "slack: expected a number"},
        {"sa:start=sa", "start from itself"}, {"./none.so", "none.so"}};
    Taskgraph g("gen:fft,n=8");
    for (const auto &[spec, why] : bad) {
        Placed p(spec, g.g, machine(2, 1));
        EXPECT_NE(p.status, 0) << spec;
        EXPECT_NE(std::string(weft__error()).find(why), std::string::npos) << weft__error();
    }
}

TEST(Placer, PlacementsComeBackAsTheyWereWritten)
{
    Folder folder;
    Taskgraph g("gen:cholesky,n=6,seed=3");
    const weft__machine m = machine(3, 2, 0.1);
    Placed p("heft", g.g, m);
    ASSERT_EQ(weft__placement_write(&g.g, &p.s, (folder / "p.csv").c_str()), 0) << weft__error();
    weft__schedule s;
    ASSERT_EQ(weft__placement_read((folder / "p.csv").c_str(), &g.g, &m, &s), 0) << weft__error();
    EXPECT_EQ(s.makespan, p.s.makespan);
    EXPECT_EQ(s.cut_bytes, p.s.cut_bytes);
    for (uint32_t t = 0; t < g.g.n_task; t++)
        ASSERT_EQ(s.row[t].start, p.s.row[t].start);
    weft__schedule_free(&s);
}

TEST(Placer, BadPlacementsNameTheTask)
{
    Folder folder;
    folder.write("g.dot", "digraph g { \"a,1\" [cost=10]; b [cost=\"5\"]; c [cost=1]; \"a,1\" -> b [bytes=8] }");
    Taskgraph g(folder / "g.dot");
    const weft__machine m = machine(2, 1);
    const std::pair<const char *, const char *> bad[] = {
        {"", "expected a first line"},
        {"task,device,device\n", "twice"},
        {"task,device,start\n", "go together"},
        {"task,device\n\"a,1\",0\nb,1\n", "task c is not placed"},
        {"task,device\n\"a,1\",0\nb,1\nd,0\n", ":4: the graph has no task d"},
        {"task,device\n\"a,1\",0\nb,1\nb,1\n", ":4: task b is there twice"},
        {"task,device\nb,2\n", ":2: task b: device '2'"},
        {"task,device\nb\n", ":2: fewer columns"},
        {"task,device\n\"b\"x,1\n", ":2: something behind a quoted field"},
        {"task,device,worker,start\nb,1,1,0\n", "task b: worker '1'"},
        {"task,device,worker,start\n\"a,1\",0,0,0\nb,1,0,17\nc,0,0,10\n", "task b starts at 17"},
        {"task,device,worker,start\n\"a,1\",0,0,0\nb,1,0,18\nc,0,0,9\n", "tasks a,1 and c run at once"},
    };
    for (const auto &[text, why] : bad) {
        folder.write("p.csv", text);
        weft__schedule s;
        EXPECT_EQ(weft__placement_read((folder / "p.csv").c_str(), &g.g, &m, &s), WEFT_EFILE) << text;
        EXPECT_NE(std::string(weft__error()).find(why), std::string::npos) << weft__error();
        weft__schedule_free(&s);
    }
    folder.write("p.csv", "device,note,task\r\n0,x,\"a,1\"\r\n1,y,b\r\n\r\n0,z,c\r\n"); // any columns, any order
    weft__schedule s;
    ASSERT_EQ(weft__placement_read((folder / "p.csv").c_str(), &g.g, &m, &s), 0) << weft__error();
    EXPECT_EQ(s.makespan, 23);
    weft__schedule_free(&s);
}

// -------------------------------------------------------------------------------------------------------- the command

double makespan_of(const std::string &args)
{
    Output out = weft("place " + args + " --json");
    json_t *o = json_loads(out.text.c_str(), 0, nullptr);
    const double us = json_number_value(json_object_get(o, "makespan_us"));
    EXPECT_EQ(out.exit, 0) << out.text;
    json_decref(o);
    return us;
}

TEST(PlaceVerb, ThePapersGraphThroughFiles)
{
    Folder folder;
    const std::string dot = WEFT_SOURCE_DIR "/tests/graphs/dot/heft.dot",
                      paper = " --devices 3x1 --bandwidth 1 --latency 0 --model contention-free ";
    EXPECT_EQ(makespan_of(dot + paper + "--policy heft"), 0.080);
    EXPECT_EQ(makespan_of(dot + " " + (folder / "g.json") + paper + "--policy cpop --export json"), 0.086);
    EXPECT_EQ(makespan_of((folder / "g.json") + " " + (folder / "g.dot") + paper + "--export dot --out " +
                          (folder / "p.csv")),
              0.080);
    EXPECT_EQ(makespan_of((folder / "g.dot") + paper + "--place " + (folder / "p.csv")), 0.080);
    Output text = weft("place " + dot + paper + "--policy heft,sa:moves=100,start=peft,ldg");
    EXPECT_EQ(text.exit, 0) << text.text;
    EXPECT_NE(text.text.find("sa:moves=100,start=peft"), std::string::npos) << text.text;
}

TEST(PlaceVerb, ZerosScalesAndRatios)
{
    const std::string stg = WEFT_SOURCE_DIR "/tests/graphs/stg/rand0000.stg --devices 2x4 ";
    const double once = makespan_of(stg);
    EXPECT_NEAR(makespan_of(stg + "--time-scale 2 --latency 3.6"), 2 * once, 1e-6 * once);
    EXPECT_NE(makespan_of(stg + "--ccr 5"), once);
    EXPECT_EQ(makespan_of(stg + "--ccr 5 --seed 9"), makespan_of(stg + "--ccr 5 --seed 9"));
    Output reject = weft("place " + stg + "--zero reject");
    EXPECT_EQ(reject.exit, 5);
    EXPECT_NE(reject.text.find("task 0 costs 0, one of 2"), std::string::npos) << reject.text;
    Output impute = weft("place " + stg + "--zero impute");
    EXPECT_NE(impute.text.find("imputed  2 costs"), std::string::npos) << impute.text;
    EXPECT_EQ(weft("place gen:fft --ccr 1").exit, 2); // they carry bytes already
    EXPECT_EQ(weft("place gen:fft --zero drop").exit, 2);
    EXPECT_EQ(weft("place gen:fft,m=3").exit, 2);
    EXPECT_EQ(weft("place /nowhere.stg").exit, 5);
    EXPECT_EQ(weft("place " WEFT_SOURCE_DIR "/tests/graphs/dot/heft.dot --devices 2x1").exit, 2); // costs for 3
}

TEST(PlaceVerb, MemoryIsALimit)
{
    Folder folder;
    folder.write("g.dot", "digraph { node [cost=9, memory=6e8]; a; b; c; d }");
    const std::string graph = "place " + (folder / "g.dot") + " --devices 2x4 ";
    EXPECT_EQ(weft(graph + "--policy single").exit, 0);
    EXPECT_EQ(weft(graph + "--memory 1.2 --policy heft").exit, 0); // two on each
    for (const char *policy : {"--memory 1.2 --policy single", "--memory 1.1 --policy heft"}) {
        Output out = weft(graph + policy);
        EXPECT_EQ(out.exit, 3) << policy;
        EXPECT_NE(out.text.find("600000000 bytes left"), std::string::npos) << out.text;
    }
}

TEST(PlaceVerb, APolicyOfOnesOwn)
{
    if (std::string(WEFT_SANITIZE_FLAGS).size()) GTEST_SKIP() << "the command is built with sanitizers";
    Folder folder;
    std::filesystem::create_directory_symlink(WEFT_SOURCE_DIR "/host", folder / "weft"); // as installed: weft/placer.h
    const std::string so = folder / "stripes.so";
    Output cc = run_command("cc -Wall -Wextra -Werror -shared -fPIC -I " + folder.path +
                            " " WEFT_SOURCE_DIR "/tests/consumer/placer/stripes.c -o " + so);
    ASSERT_EQ(cc.exit, 0) << cc.text;
    const std::string graph = "gen:stencil --devices 4x8 ";
    EXPECT_EQ(makespan_of(graph + "--policy " + so + ":stripe=1000000"), makespan_of(graph + "--policy single"));
    EXPECT_EQ(makespan_of(graph + "--policy " + so + ":stripe=1"), makespan_of(graph + "--policy round-robin"));
    Output bad = weft("place " + graph + "--policy " + so + ":lines=3");
    EXPECT_EQ(bad.exit, 2);
    EXPECT_NE(bad.text.find("expected stripe=N, not 'lines=3'"), std::string::npos) << bad.text;
    ASSERT_EQ(run_command("echo 'int x;' | cc -shared -fPIC -x c - -o " + (folder / "none.so")).exit, 0);
    Output none = weft("place " + graph + "--policy " + (folder / "none.so"));
    EXPECT_EQ(none.exit, 5);
    EXPECT_NE(none.text.find("weft_placer_module"), std::string::npos) << none.text;
}

TEST(PlaceVerb, ThePythonExample)
{
    Folder folder;
    ASSERT_EQ(weft("place gen:lu,n=6 " + (folder / "g.json") + " --devices 4x1 --export json").exit, 0);
    Output py = run_command("python3 " WEFT_SOURCE_DIR "/docs/examples/place.py " + (folder / "g.json") + " 4 > " +
                            (folder / "p.csv"));
    ASSERT_EQ(py.exit, 0) << py.text;
    const std::string graph = (folder / "g.json") + " --devices 4x1 ";
    EXPECT_LT(makespan_of(graph + "--place " + (folder / "p.csv")), 0.6 * makespan_of(graph + "--policy single"));
}

// ops of a model: out to a file, placed by a script, back in; what is computed stays the same
TEST(PlanVerb, OpsArePlacedByAFile)
{
    Folder folder;
    const std::string work = "--mlp 128,256 --layers 3 --batch 3 --norm separate ", csv = folder / "p.csv";
    Output dump = weft("plan " + work + "--devices 3x2 --dump " + (folder / "g.json"));
    ASSERT_EQ(dump.exit, 0) << dump.text;
    Taskgraph g(folder / "g.json");
    ASSERT_EQ(g.g.n_column, 3u);
    ASSERT_GE(g.g.n_task, 9u);
    EXPECT_GE(g.g.n_edge, g.g.n_task - 1);
    EXPECT_EQ(g.g.zero_costs + g.g.zero_bytes, 0u);
    Output py = run_command("python3 " WEFT_SOURCE_DIR "/docs/examples/place.py " + (folder / "g.json") + " 3 > " +
                            csv);
    ASSERT_EQ(py.exit, 0) << py.text;
    EXPECT_EQ(weft("plan " + work + "--devices 3x2 --strategy cta --place " + csv).exit, 0);
    for (uint32_t seed = 1; seed <= 4; seed++) { // any placement at all
        std::mt19937 random(seed);
        std::string text = "task,device\n";
        for (uint32_t t = 0; t < g.g.n_task; t++)
            text += std::string(weft__tg_name(&g.g, t)) + "," + std::to_string(random() % 3) + "\n";
        folder.write("p.csv", text);
        Output run = weft("run " + work + "--devices cpu:3x1 --steps 2 --warmup 0 --check --strategy cta --place " +
                          csv);
        EXPECT_EQ(run.exit, 0) << run.text;
    }
    ASSERT_EQ(weft("place " + (folder / "g.json") + " --devices 3x1 --policy sa:moves=200 --out " + csv).exit, 0);
    Output all = weft("run " + work + "--devices cpu:3x2 --steps 2 --warmup 0 --check --strategy cta --place " + csv);
    EXPECT_EQ(all.exit, 0) << all.text;
    folder.write("p.csv", "task,device\n" + std::string(weft__tg_name(&g.g, 0)) + ",3\n");
    Output bad = weft("plan " + work + "--devices 3x2 --strategy cta --place " + csv);
    EXPECT_EQ(bad.exit, 5);
    EXPECT_NE(bad.text.find(std::string("task ") + weft__tg_name(&g.g, 0) + ": device '3'"), std::string::npos)
        << bad.text;
    ASSERT_EQ(
        run_command("python3 " WEFT_SOURCE_DIR "/docs/examples/place.py " + (folder / "g.json") + " 3 > " + csv).exit,
        0);
    Output tp = weft("plan " + work + "--devices 3x2 --strategy tp --place " + csv);
    EXPECT_EQ(tp.exit, 2);
    EXPECT_NE(tp.text.find("goes with strategy cta"), std::string::npos) << tp.text;
}

TEST(RunVerb, PlacedGraphsAreExecuted)
{
    Folder folder;
    const std::string graph = "gen:lu,n=4,cost=20000";
    ASSERT_EQ(weft("place " + graph + " --devices 2x2 --policy ldg --out " + (folder / "p.csv")).exit, 0);
    for (const std::string how :
         {"--policy peft --queue static", "--queue fifo", "--queue push", "--policy cpop --queue steal",
          "--policy sa:moves=20 --queue priority", "--place FILE"}) {
        std::string args = how;
        if (args.find("FILE") != std::string::npos) args = "--place " + (folder / "p.csv");
        Output out = weft("run --graph " + graph + " --devices cpu:2x2 --steps 3 --warmup 1 --json " + args);
        ASSERT_EQ(out.exit, 0) << out.text;
        json_t *o = json_loads(out.text.c_str(), 0, nullptr);
        Taskgraph g(graph);
        double bound = 0; // of its tasks alone, over four workers
        for (uint32_t t = 0; t < g.g.n_task; t++)
            bound += g.g.cost[t] / 4;
        EXPECT_GE(json_number_value(json_object_get(o, "min_us")), bound / 1e3) << out.text;
        EXPECT_GT(json_number_value(json_object_get(o, "predicted_us")), 0.999 * bound / 1e3) << out.text;
        json_decref(o);
    }
    folder.write("p.csv", "task,device\nnone,0\n");
    Output bad = weft("run --graph " + graph + " --devices cpu:2x2 --place " + (folder / "p.csv"));
    EXPECT_EQ(bad.exit, 5);
    EXPECT_NE(bad.text.find("no task none"), std::string::npos) << bad.text;
    EXPECT_EQ(weft("run --graph " + graph + " --chain 8,8").exit, 2);
    Output slow = weft("run --graph gen:fft,n=2,cost=9e9 --devices cpu:1x1");
    EXPECT_EQ(slow.exit, 2);
    EXPECT_NE(slow.text.find("at most 4 s"), std::string::npos) << slow.text;
}

TEST(PlaceVerb, TheBenchRuns)
{
    Output out = weft("bench place --tasks 10000 --repeats 1 --policy heft,ldg --json");
    EXPECT_EQ(out.exit, 0) << out.text;
    EXPECT_NE(out.text.find("\"ns_per_task\""), std::string::npos) << out.text;
}

} // namespace
