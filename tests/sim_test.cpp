// the simulator: textbook makespans, what is shared and what is not, the five policies, the same bytes on a rerun.
#include "../host/error.h"
#include "../host/sim.h"
#include "tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

namespace
{

// A plan built task by task; waits name tasks.
struct Plan {
    weft__sim_plan p = {};
    std::vector<weft__sim_task> tasks;
    std::vector<weft__sim_wait> waits;
    std::vector<weft__sim_signal> signals;
    std::vector<weft__sim_transfer> transfers;
    std::vector<uint32_t> arrivals, order;
    struct Task {
        double solo;
        uint32_t device;
        std::vector<uint32_t> after;
        double ahead = 0, bytes = 0, send = 0; // send: to every other device that reads
        uint32_t worker = WEFT__SIM_ANY, alt = 0xff, ring = 0;
    };

    explicit Plan(const std::vector<Task> &in, const std::vector<uint32_t> &workers)
    {
        p.n_device = (uint32_t)workers.size();
        for (size_t d = 0; d < workers.size(); d++)
            p.workers[d] = workers[d];
        arrivals.assign(in.size(), 0);
        for (uint32_t i = 0; i < in.size(); i++) {
            weft__sim_task t = {};
            t.solo_ns = in[i].solo;
            t.ahead = (float)in[i].ahead;
            t.bytes = (float)in[i].bytes;
            t.wait = (uint32_t)waits.size();
            t.signal = (uint32_t)signals.size();
            t.transfer = (uint32_t)transfers.size();
            t.device = (uint16_t)in[i].device;
            t.worker = (uint16_t)in[i].worker;
            t.ring = (uint16_t)in[i].ring;
            t.alt = (uint8_t)in[i].alt;
            tasks.push_back(t);
            if (!in[i].after.empty()) waits.push_back({i, WEFT__HOP_GPU, 0, 0});
            arrivals[i] = (uint32_t)in[i].after.size();
            for (uint32_t d = 0; d < workers.size(); d++) {
                bool reads = false;
                for (const Task &r : in)
                    for (uint32_t a : r.after)
                        reads |= a == i && r.device == d && d != in[i].device;
                if (reads && in[i].send > 0) transfers.push_back({in[i].send, d, 0});
            }
            for (uint32_t r = 0; r < in.size(); r++)
                for (uint32_t a : in[r].after) {
                    if (a != i) continue;
                    weft__sim_signal s = {r, (uint16_t)in[r].device, WEFT__SIM_ANY};
                    for (uint32_t x = t.transfer; x < transfers.size(); x++)
                        if (transfers[x].to == s.device) s.transfer = (uint16_t)(x - t.transfer);
                    signals.push_back(s);
                }
        }
        weft__sim_task end = {};
        end.wait = (uint32_t)waits.size();
        end.signal = (uint32_t)signals.size();
        end.transfer = (uint32_t)transfers.size();
        tasks.push_back(end);
        for (uint32_t d = 0; d < workers.size(); d++) {
            p.first[d] = (uint32_t)order.size();
            for (uint32_t i = 0; i < in.size(); i++)
                if (in[i].device == d) order.push_back(i);
        }
        p.first[workers.size()] = p.n_task = p.n_counter = (uint32_t)in.size();
        p.tasks = tasks.data();
        p.waits = waits.data();
        p.signals = signals.data();
        p.transfers = transfers.data();
        p.arrivals = arrivals.data();
        p.order = order.data();
    }
};

struct Topo {
    weft__topology *t = nullptr;
    explicit Topo(const std::string &text) { EXPECT_EQ(weft__topo_open(text.c_str(), &t), 0) << weft__error(); }
    Topo(const Topo &) = delete;
    ~Topo() { weft__topo_free(t); }
    weft__profile *profile() { return &t->profile[0]; }
};

// Devices whose loop costs nothing and which share nothing but what a test sets.
struct Bare : Topo {
    explicit Bare(uint32_t devices, const std::string &more = "")
        : Topo("cpu:" + std::to_string(devices) + " sm:1 nvlink:0,0" + more)
    {
        const std::string name = profile()->name;
        *profile() = {};
        strcpy(profile()->name, name.c_str());
    }
};

struct Simulated {
    weft__sim_result r = {};
    std::vector<weft__sim_row> rows;
    int status;
    Simulated(const weft__sim_plan &p, const Topo &t, uint32_t policy = WEFT_POLICY_STATIC, int contention_free = 0)
        : rows(p.n_task)
    {
        weft__sim_options o = {policy, contention_free};
        status = weft__sim_run(&p, t.t, &o, rows.data(), &r);
    }
    Simulated(const Simulated &) = delete;
    ~Simulated() { weft__sim_result_free(&r); }
};

TEST(Sim, AChainTakesTheSumOfItsTasks)
{
    Plan p({{10, 0, {}}, {20, 0, {0}}, {30, 0, {1}}}, {1});
    Bare t(1);
    for (uint32_t policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        Simulated run(p.p, t, policy);
        ASSERT_EQ(run.status, 0) << weft__error();
        EXPECT_EQ(run.r.makespan_ns, 60) << policy;
        EXPECT_EQ(run.r.worker[0].busy_ns, 60);
        EXPECT_EQ(run.rows[2].start, 30);
    }
}

TEST(Sim, LatencyAndBytesOfALinkComeBeforeTheReader)
{
    Plan p({{10, 0, {}, 0, 0, 4500}, {20, 1, {0}}}, {1, 1});
    Bare t(2);
    t.t->route[0][1].latency_ns = 7;
    uint32_t port;
    ASSERT_EQ(weft__topo_add_port(t.t, "cable", 450, &port), 0);
    t.t->route[0][1].port[0] = port;
    Simulated run(p.p, t);
    ASSERT_EQ(run.status, 0) << weft__error();
    EXPECT_DOUBLE_EQ(run.rows[1].start, 10 + 10 + 7);
    EXPECT_EQ(run.r.link[1].bytes, 4500);
    EXPECT_EQ(run.r.link[1].signals, 1u);
    EXPECT_DOUBLE_EQ(run.r.port_busy_ns[port], 10);
}

// Two devices send 4500 bytes each into the same port at once: each gets half of it.
TEST(Sim, APortIsSharedByEqualParts)
{
    Plan p({{10, 0, {}, 0, 0, 4500}, {10, 1, {}, 0, 0, 4500}, {1, 2, {0}}, {1, 2, {1}}}, {1, 1, 2});
    Bare t(3, " + cpu:1 sm:2 nvlink:0,0 net:0,0");
    t.t->n_device = 3;
    t.t->device[2].workers = 2;
    uint32_t in;
    ASSERT_EQ(weft__topo_add_port(t.t, "into", 450, &in), 0);
    t.t->route[0][2].port[1] = t.t->route[1][2].port[1] = in;
    Simulated shared(p.p, t), alone(p.p, t, WEFT_POLICY_STATIC, 1);
    ASSERT_EQ(shared.status, 0) << weft__error();
    ASSERT_EQ(alone.status, 0);
    EXPECT_DOUBLE_EQ(shared.r.makespan_ns, 10 + 20 + 1);
    EXPECT_DOUBLE_EQ(alone.r.makespan_ns, 10 + 10 + 1);
}

// 100 bytes each at 10 a ns, at most 4 a worker: one takes 25 ns, four share.
TEST(Sim, MemoryIsSharedAndAWorkerDrawsOnlySoMuch)
{
    Bare t(1);
    t.profile()->memory_bpns = 10;
    t.profile()->stream_bpns = 4;
    t.t->device[0].workers = 4;
    Plan one({{0, 0, {}, 0, 100}}, {4});
    Plan four({{0, 0, {}, 0, 100}, {0, 0, {}, 0, 100}, {0, 0, {}, 0, 100}, {0, 0, {}, 0, 100}}, {4});
    Simulated a(one.p, t), b(four.p, t);
    EXPECT_DOUBLE_EQ(a.r.makespan_ns, 25);
    EXPECT_DOUBLE_EQ(b.r.makespan_ns, 40);
    EXPECT_EQ(b.r.memory_bytes[0], 400);
}

// Weights of the second task come while it waits for the first one, on another worker; the push family can't do that.
TEST(Sim, WeightsAreLoadedAheadOfTheWait)
{
    Bare t(1);
    t.profile()->memory_bpns = 10;
    t.profile()->ahead_bytes = 1000;
    t.t->device[0].workers = 2;
    Plan p({{50, 0, {}, 0, 0, 0, 0}, {5, 0, {0}, 300, 20, 0, 1}}, {2});
    Simulated in_turn(p.p, t), push(p.p, t, WEFT_POLICY_PUSH);
    ASSERT_EQ(in_turn.status, 0) << weft__error();
    EXPECT_DOUBLE_EQ(in_turn.r.makespan_ns, 50 + 5); // 20 bytes take 2 ns, beside 5 of its own
    EXPECT_DOUBLE_EQ(push.r.makespan_ns, 50 + 32);
}

TEST(Sim, CoresOfTheHostAreSharedByAllWorkers)
{
    Bare t(2);
    t.profile()->cores = 1;
    Plan p({{10, 0, {}}, {10, 1, {}}}, {1, 1});
    Simulated run(p.p, t);
    EXPECT_DOUBLE_EQ(run.r.makespan_ns, 20);
    p.tasks[0].timed = p.tasks[1].timed = 1;
    Simulated timed(p.p, t);
    EXPECT_DOUBLE_EQ(timed.r.makespan_ns, 10);
}

TEST(Sim, TheLoopHasItsPrices)
{
    Bare t(1);
    weft__profile *f = t.profile();
    for (double &ns : f->fetch_ns)
        ns = 3;
    f->signal_ns = 2;
    f->hop_ns[WEFT__HOP_GPU] = 5;
    f->ready_ns[0] = 7;
    f->push_ns = 1;
    f->open_ns = 100;
    f->close_ns = 10;
    t.t->device[0].workers = 2;
    Plan p({{10, 0, {}, 0, 0, 0, 0}, {10, 0, {0}, 0, 0, 0, 1}}, {2});
    Simulated in_turn(p.p, t), push(p.p, t, WEFT_POLICY_PUSH);
    EXPECT_DOUBLE_EQ(in_turn.r.makespan_ns, 3 + 10 + 2 + 5 + 10);
    EXPECT_DOUBLE_EQ(in_turn.r.step_ns, 100 + 30 + 10);
    EXPECT_DOUBLE_EQ(in_turn.r.worker[1].wait_ns, 20 - 3);
    EXPECT_DOUBLE_EQ(push.r.makespan_ns, 3 + 10 + 2 + 7 + 3 + 10);
}

// A long task on worker 0's list holds up what follows it; with one ring the other worker takes that.
TEST(Sim, PoliciesDifferWhereTheyShould)
{
    Bare t(1);
    t.t->device[0].workers = 2;
    std::vector<Plan::Task> in = {{100, 0, {}}, {10, 0, {}}, {10, 0, {}}, {10, 0, {}}, {10, 0, {}}};
    Plan p(in, {2});
    for (uint32_t i = 0; i < 5; i++)
        p.tasks[i].worker = (uint16_t)(i % 2);
    EXPECT_DOUBLE_EQ(Simulated(p.p, t, WEFT_POLICY_STATIC).r.makespan_ns, 120);
    for (uint32_t policy : {WEFT_POLICY_FIFO, WEFT_POLICY_PUSH, WEFT_POLICY_STEAL, WEFT_POLICY_PRIORITY})
        EXPECT_DOUBLE_EQ(Simulated(p.p, t, policy).r.makespan_ns, 100) << policy;
}

TEST(Sim, PriorityTakesTheMostUrgentRing)
{
    Bare t(1);
    Plan p({{10, 0, {}}, {10, 0, {0}}, {10, 0, {0}}}, {1});
    p.tasks[1].ring = 5;
    p.tasks[2].ring = 2;
    Simulated run(p.p, t, WEFT_POLICY_PRIORITY);
    EXPECT_LT(run.rows[2].start, run.rows[1].start);
}

TEST(Sim, AnotherDeviceStealsWhereThePlanLetsIt)
{
    Bare t(2);
    Plan p({{10, 0, {}}, {10, 0, {}}}, {1, 1});
    EXPECT_DOUBLE_EQ(Simulated(p.p, t, WEFT_POLICY_STEAL).r.makespan_ns, 20);
    p.tasks[0].alt = p.tasks[1].alt = 1;
    Simulated run(p.p, t, WEFT_POLICY_STEAL);
    EXPECT_DOUBLE_EQ(run.r.makespan_ns, 10);
    EXPECT_EQ(run.r.stolen, 1u);
}

// 256 of 256 parts minus 128: half of the body comes after the late wait.
TEST(Sim, ALateWaitHoldsOnlyTheRestOfTheBody)
{
    Bare t(1);
    t.t->device[0].workers = 2;
    Plan p({{50, 0, {}, 0, 0, 0, 0}, {40, 0, {0}, 0, 0, 0, 1}}, {2});
    p.waits[0].late = 128;
    Simulated run(p.p, t);
    EXPECT_DOUBLE_EQ(run.rows[1].start, 0);
    EXPECT_DOUBLE_EQ(run.r.makespan_ns, 50 + 20);
}

TEST(Sim, TasksThatNeverBecomeReadyAreNamed)
{
    Plan p({{10, 0, {}}, {10, 0, {0}}}, {1});
    Bare t(1);
    p.arrivals[1] = 2;
    for (uint32_t policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        Simulated run(p.p, t, policy);
        EXPECT_EQ(run.status, WEFT_EREFUSED);
        EXPECT_NE(std::string(weft__error()).find("task 1 of device 0 waits for counter 1"), std::string::npos)
            << weft__error();
    }
}

TEST(Sim, WithoutAWayItIsRefused)
{
    Plan p({{10, 0, {}}, {10, 1, {0}}}, {1, 1});
    Topo t("gpu:1 + gpu:1");
    EXPECT_EQ(Simulated(p.p, t).status, WEFT_EUSAGE);
    EXPECT_NE(std::string(weft__error()).find("from device 0 to 1"), std::string::npos) << weft__error();
}

// Two workers, work of 10 + 20 + 30 on a chain beside 40 more: the chain is longer than half of the sum.
TEST(Sim, TheBoundIsThePathOrTheWork)
{
    Bare t(1);
    t.t->device[0].workers = 2;
    weft__sim_bound b;
    Plan chain({{10, 0, {}}, {20, 0, {0}}, {30, 0, {1}}, {40, 0, {}}}, {2});
    ASSERT_EQ(weft__sim_bound_of(&chain.p, t.t, &b), 0);
    EXPECT_EQ(b.path_ns, 60);
    EXPECT_EQ(b.work_ns, 50);
    EXPECT_EQ(b.bound_ns, 60);
    t.profile()->memory_bpns = 10;
    Plan heavy({{10, 0, {}, 300, 700}, {10, 0, {}}}, {2});
    ASSERT_EQ(weft__sim_bound_of(&heavy.p, t.t, &b), 0);
    EXPECT_EQ(b.bound_ns, 100);
}

Output weft(const std::string &args) { return run_command(std::string(WEFT_BINARY) + " " + args); }

TEST(SimCommand, TakesWhatRunTakesAndSaysThatItIsSimulated)
{
    const std::string args = "sim --chain 256,512,256 --layers 4 --batch 16 --topology 'h200:4 sm:8' --strategy "
                             "single,cta,microbatch,tp --queue static,push,steal --json";
    Output out = weft(args);
    ASSERT_EQ(out.exit, 0) << out.text;
    EXPECT_EQ(std::count(out.text.begin(), out.text.end(), '\n'), 12);
    size_t marked = 0;
    for (size_t at = 0; (at = out.text.find("\"verb\":\"sim\"", at)) != std::string::npos; at++)
        marked++;
    EXPECT_EQ(marked, 12u);
    for (const char *field :
         {"simulated\":true", "makespan_us", "bound_us", "utilisation", "remote_bytes", "remote_signals",
          "\"queue\":\"steal\"", "\"strategy\":\"tp\"", "\"devices\":4", "\"workers\":32"})
        EXPECT_NE(out.text.find(field), std::string::npos) << field;
    EXPECT_EQ(weft(args).text, out.text);
    EXPECT_EQ(weft("sim --chain 64,64").text.rfind("SIMULATED", 0), 0u);
}

TEST(SimCommand, BadInputIsNamed)
{
    const struct {
        const char *args, *message;
        int exit;
    } cases[] = {
        {"--chain 64,64 --topology foo:3", "'foo:3'", 2},
        {"--chain 64,64 --topology none.json", "none.json", 5},
        {"--chain 64,64 --profile none.json", "none.json", 5},
        {"--chain 64,64 --topology h200:2 --devices 4x8 --strategy cta", "the plan has 4 devices", 2},
        {"--chain 64,64 --topology h200:2 --queue lifo", "lifo", 2},
        {"--chain 64,64 --topology h200:2 --strategy best", "best", 2},
        {"--topology h200:2", "what shall be computed", 2},
        {"--chain 64,64 --topology h200:2 --queue static,push --rows x.csv", "--rows", 2},
    };
    for (const auto &c : cases) {
        Output out = weft(std::string("sim ") + c.args);
        EXPECT_EQ(out.exit, c.exit) << c.args << out.text;
        EXPECT_NE(out.text.find(c.message), std::string::npos) << out.text;
    }
}

// What a calibration writes, weft sim and --use read; a few steps only, so nothing is asked of the figures but that they are there.
TEST(SimCommand, ACalibrationIsAProfile)
{
    const std::string file = testing::TempDir() + "weft_sim_test_" + std::to_string(getpid()) + ".json";
    Output out = weft("bench calibrate --devices cpu:2x1 --steps 3 --out " + file);
    ASSERT_EQ(out.exit, 0) << out.text;
    weft__profile p;
    ASSERT_EQ(weft__profile_read(file.c_str(), &p), 0) << weft__error();
    EXPECT_EQ(p.workers, 1u);
    EXPECT_GE(p.cores, 1);
    EXPECT_GT(p.open_ns, 0);
    EXPECT_GT(p.fetch_ns[WEFT_POLICY_STATIC], 0);
    for (uint32_t kind : {WEFT_KIND_GEMM_STREAM, WEFT_KIND_REDUCE, WEFT_KIND_RMSNORM}) {
        ASSERT_GE(p.kind[kind].n_point, 2u) << kind;
        EXPECT_GT(weft__profile_block_ns(&p.kind[kind], 64), weft__profile_block_ns(&p.kind[kind], 1)) << kind;
    }
    Output sim = weft("sim --chain 320,960,320 --batch 4 --devices cpu:2x1 --strategy cta,tp --json --profile " + file);
    EXPECT_EQ(sim.exit, 0) << sim.text;
    EXPECT_NE(sim.text.find("weft bench calibrate --devices cpu:2x1"), std::string::npos) << sim.text;
    Output check = weft("bench calibrate --devices cpu:2x1 --steps 3 --check --use " + file);
    EXPECT_TRUE(check.exit == 0 || check.exit == 1) << check.text; // 1: over the bar, as on a busy machine
    EXPECT_NE(check.text.find("error: median"), std::string::npos) << check.text;
    std::remove(file.c_str());
    EXPECT_EQ(weft("bench calibrate --devices tpu").exit, 2);
    EXPECT_EQ(weft("bench calibrate --check --use none.json").exit, 5);
}

TEST(SimCommand, TheTourEndsWithEightSimulatedDevices)
{
    Folder dir;
    ASSERT_EQ(write_tiny_model(dir, "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
                                    "\"num_hidden_layers\":8,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                    "\"head_dim\":64,\"vocab_size\":128,\"max_position_embeddings\":256,"
                                    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}"),
              0)
        << weft__error();
    Output out = weft("tour --model " + dir.path + " --trace " + (dir / "trace.json"));
    ASSERT_EQ(out.exit, 0) << out.text;
    size_t rows = 0;
    for (size_t at = 0; (at = out.text.find("SIMULATED: eight H200", at)) != std::string::npos; at++)
        rows++;
    EXPECT_EQ(rows, 2u) << out.text;
}

// A made-up graph with everything in it, twice: the same bytes.
TEST(Sim, TheSameInputGivesTheSameBytes)
{
    std::vector<Plan::Task> in;
    uint32_t x = 12345;
    auto next = [&](uint32_t n) { return (x = x * 1664525 + 1013904223) / 65536 % n; };
    for (uint32_t i = 0; i < 400; i++) {
        Plan::Task t = {(double)(100 + next(1000)), next(3),           {}, (double)next(5000),
                        (double)next(3000),         (double)next(9000)};
        for (uint32_t n = next(4); n > 0 && i; n--)
            t.after.push_back(i - 1 - next(i < 20 ? i : 20));
        std::sort(t.after.begin(), t.after.end());
        t.after.erase(std::unique(t.after.begin(), t.after.end()), t.after.end());
        t.alt = (t.device + 1) % 3;
        t.ring = i * 8 / 400;
        in.push_back(t);
    }
    Plan p(in, {4, 4, 4});
    Topo t("h200:3 sm:4");
    for (uint32_t policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        Simulated a(p.p, t, policy), b(p.p, t, policy);
        ASSERT_EQ(a.status, 0) << weft__error();
        EXPECT_EQ(memcmp(a.rows.data(), b.rows.data(), a.rows.size() * sizeof a.rows[0]), 0);
        EXPECT_EQ(memcmp(&a.r.makespan_ns, &b.r.makespan_ns, sizeof(double)), 0);
        weft__sim_bound bound;
        ASSERT_EQ(weft__sim_bound_of(&p.p, t.t, &bound), 0);
        EXPECT_GT(bound.path_ns, 1000);
        EXPECT_GE(bound.bound_ns, std::max(bound.path_ns, std::max(bound.work_ns, bound.memory_ns)));
        EXPECT_LE(bound.bound_ns, a.r.makespan_ns) << policy;
        double sum = 0;
        for (const weft__sim_row &r : a.rows)
            sum += r.end - r.start;
        double busy = 0;
        for (uint32_t w = 0; w < 12; w++)
            busy += a.r.worker[w].busy_ns;
        EXPECT_NEAR(sum, busy, 1e-6 * sum);
        for (uint32_t i = 0; i < 400; i++)
            for (uint32_t n : in[i].after)
                EXPECT_GE(a.rows[i].start, a.rows[n].end) << policy;
    }
}

// The schedule of HEFT's paper, simulated without contention, takes the 80 units that the paper says.
TEST(Sim, ContentionFreeReproducesTheTextbook)
{
    const double costs[10][3] = {{14, 16, 9}, {13, 19, 18}, {11, 13, 19}, {13, 8, 17},  {12, 13, 10},
                                 {13, 16, 9}, {7, 15, 11},  {5, 11, 14},  {18, 12, 20}, {21, 7, 16}};
    const struct {
        uint32_t from, to;
        double bytes;
    } edges[] = {{1, 2, 18}, {1, 3, 12}, {1, 4, 9},  {1, 5, 11}, {1, 6, 14},  {2, 8, 19},  {2, 9, 16}, {3, 7, 23},
                 {4, 8, 27}, {4, 9, 23}, {5, 9, 13}, {6, 8, 15}, {7, 10, 17}, {8, 10, 11}, {9, 10, 13}};
    weft__taskgraph g;
    weft__tg_init(&g, 3);
    for (int i = 0; i < 10; i++)
        ASSERT_EQ(weft__tg_task(&g, std::to_string(i + 1).c_str(), costs[i], 0), 0);
    for (const auto &e : edges)
        ASSERT_EQ(weft__tg_edge(&g, e.from - 1, e.to - 1, WEFT__TG_NONE, e.bytes), 0);
    ASSERT_EQ(weft__tg_finish(&g, "test"), 0);
    Topo t("h200:3 sm:1 nvlink:1GB/s,0");
    weft__machine m;
    ASSERT_EQ(weft__topo_machine(t.t, &m), 0);
    const double makespan[] = {80, 86, 0};
    for (int kind = WEFT__HEFT; kind <= WEFT__PEFT; kind++) {
        weft__schedule s;
        weft__sim_plan p;
        ASSERT_EQ(weft__listsched(&g, &m, (weft__listsched_kind)kind, &s), 0);
        ASSERT_EQ(weft__sim_of_taskgraph(&g, s.row, t.t, &p), 0) << weft__error();
        Simulated run(p, t, WEFT_POLICY_STATIC, 1);
        ASSERT_EQ(run.status, 0) << weft__error();
        EXPECT_DOUBLE_EQ(run.r.makespan_ns, s.makespan);
        if (makespan[kind] > 0) {
            EXPECT_DOUBLE_EQ(run.r.makespan_ns, makespan[kind]);
        }
        for (int i = 0; i < 10; i++)
            EXPECT_DOUBLE_EQ(run.rows[i].start, s.row[i].start);
        weft__sim_plan_free(&p);
        weft__schedule_free(&s);
    }
    weft__tg_free(&g);
}

// Two readers of one file on another device: its bytes cross once.
TEST(Sim, AFileCrossesOnceForEachDevice)
{
    weft__taskgraph g;
    const double cost[1] = {10};
    weft__tg_init(&g, 1);
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(weft__tg_task(&g, std::to_string(i).c_str(), cost, 0), 0);
    ASSERT_EQ(weft__tg_edge(&g, 0, 1, 7, 100), 0);
    ASSERT_EQ(weft__tg_edge(&g, 0, 2, 7, 100), 0);
    ASSERT_EQ(weft__tg_finish(&g, "test"), 0);
    Topo t("h200:2 sm:2 nvlink:1GB/s,5ns");
    const weft__schedule_row rows[] = {{0, 10, 0, 0}, {115, 125, 1, 0}, {115, 125, 1, 1}};
    weft__sim_plan p;
    ASSERT_EQ(weft__sim_of_taskgraph(&g, rows, t.t, &p), 0) << weft__error();
    Simulated run(p, t, WEFT_POLICY_STATIC, 1);
    EXPECT_DOUBLE_EQ(run.r.makespan_ns, 125);
    EXPECT_EQ(run.r.link[1].bytes, 100);
    EXPECT_EQ(run.r.link[1].signals, 2u);
    weft__sim_plan_free(&p);
    weft__tg_free(&g);
}

} // namespace
