// trace_csv: every task of every step in a row, times that fit each other and the events, clocks that bound what they claim.
#include "../host/plan.h"
#include "../megakernel/clock.h"
#include "../runtime/weft.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

const char
    *const columns = "step,task,kind,device,worker,t_ready,t_pop,t_start,t_end,t_signal,attempts,stolen_from,dropped";

// ctest runs the tests beside each other
const std::string path = ::testing::TempDir() + "/weft-trace-" + std::to_string(getpid()) + ".csv";

struct Table {
    std::vector<std::string> notes; // lines with #
    std::vector<std::vector<std::string>> rows;
    uint64_t at(size_t row, const char *name) const
    {
        std::istringstream in(columns);
        size_t i = 0;
        for (std::string c; std::getline(in, c, ',') && c != name;)
            i++;
        return std::stoull(rows[row][i]);
    }
    // The number behind `what` in the note that begins with `start`.
    double number(const std::string &start, const std::string &what) const
    {
        for (const std::string &n : notes)
            if (n.rfind(start, 0) == 0 && n.find(what) != std::string::npos)
                return std::stod(n.substr(n.find(what) + what.size()));
        ADD_FAILURE() << "no '" << what << "' in a line '" << start << "'";
        return -1;
    }
};

Table read(const std::string &path)
{
    Table t;
    std::ifstream in(path);
    std::string line;
    while (std::getline(in, line) && line.rfind("# ", 0) == 0)
        t.notes.push_back(line);
    EXPECT_EQ(line, columns);
    while (std::getline(in, line)) {
        std::vector<std::string> cells(1);
        for (char c : line)
            if (c == ',')
                cells.emplace_back();
            else
                cells.back() += c;
        EXPECT_EQ(cells.size(), 13u) << line;
        t.rows.push_back(cells);
    }
    return t;
}

struct Engine {
    weft_engine *e = nullptr;
    Engine(uint32_t devices, const char *queue, uint32_t records)
    {
        const uint32_t widths[] = {96, 200, 96};
        weft__chain c = {widths, 3, 2, 3, WEFT_BF16, 7, WEFT_EPI_NONE};
        weft__graph *g = nullptr;
        weft__plan_options o = weft__plan_defaults();
        void *bytes = nullptr;
        uint64_t size = 0;
        o.n_device = devices, o.strategy = WEFT__CTA;
        for (uint32_t d = 0; d < devices; d++)
            o.workers[d] = 2;
        EXPECT_EQ(weft__graph_chain(&c, &g), 0) << weft_last_error();
        EXPECT_EQ(weft__plan(g, &o, &bytes, &size, nullptr), 0) << weft_last_error();
        std::string spec = "cpu:" + std::to_string(devices) + "x2";
        weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
        config.devices = spec.c_str(), config.queue = queue, config.trace_records = records, config.idle_ms = 0;
        EXPECT_EQ(weft_engine_create(bytes, size, &config, &e), 0) << weft_last_error();
        free(bytes);
        weft__graph_free(g);
    }
    Engine(const Engine &) = delete;
    ~Engine()
    {
        weft_engine_destroy(e);
        remove(path.c_str());
    }
    void run(int steps) const
    {
        for (int i = 0; i < steps; i++) {
            weft_step s = WEFT_STEP_INIT;
            uint32_t seq;
            EXPECT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
            EXPECT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
        }
    }
    uint32_t tasks() const
    {
        weft_engine_info i = {};
        i.size = sizeof i;
        EXPECT_EQ(weft_engine_get_info(e, &i), 0);
        return i.tasks;
    }
};

TEST(TraceCsv, HasEveryTaskOnceAndTheTimesOfTheEvents)
{
    for (const char *queue : {"static", "fifo", "push", "steal", "priority"}) {
        Engine engine(2, queue, 1000);
        engine.run(2);
        EXPECT_EQ(weft_engine_park(engine.e), 0) << weft_last_error(); // leaves out a number
        engine.run(2);
        ASSERT_EQ(weft_trace_csv(engine.e, path.c_str()), 0) << weft_last_error();
        Table t = read(path);
        ASSERT_EQ(t.rows.size(), 4 * engine.tasks()) << queue;
        std::vector<weft_event> v(t.rows.size());
        size_t n;
        ASSERT_EQ(weft_trace_read(engine.e, v.data(), v.size(), &n), 0) << weft_last_error();
        std::set<std::string> seen, steps;
        for (size_t i = 0; i < t.rows.size(); i++) {
            seen.insert(t.rows[i][0] + " " + t.rows[i][1] + " " + std::to_string(v[i].home));
            steps.insert(t.rows[i][0]);
            EXPECT_EQ(t.rows[i][2], v[i].kind);
            const uint64_t have[] = {t.at(i, "step"),    t.at(i, "task"),    t.at(i, "device"),
                                     t.at(i, "worker"),  t.at(i, "t_ready"), t.at(i, "t_pop"),
                                     t.at(i, "t_start"), t.at(i, "t_end"),   t.at(i, "t_signal")};
            const uint64_t want[] = {v[i].step,   v[i].task,     v[i].device, v[i].worker,   v[i].ready_ns,
                                     v[i].pop_ns, v[i].start_ns, v[i].end_ns, v[i].signal_ns};
            for (int k = 0; k < 9; k++)
                EXPECT_EQ(have[k], want[k]) << queue << " row " << i << " column " << k;
            EXPECT_LE(t.at(i, "attempts"), 255u);
            EXPECT_EQ(t.rows[i][11], ""); // the plan lets nobody steal from another device
            EXPECT_EQ(t.at(i, "dropped"), 0u);
        }
        EXPECT_EQ(seen.size(), t.rows.size());
        EXPECT_EQ(steps, (std::set<std::string>{"1", "2", "4", "5"}));
    }
}

// The bounds are tested where the answer is known: an emulated device's clock is the host's.
TEST(TraceCsv, ClocksSayWhatTheyAre)
{
    Engine engine(3, "static", 1000);
    const double begin = (double)weft__now_ns();
    engine.run(20);
    const double end = (double)weft__now_ns();
    ASSERT_EQ(weft_trace_csv(engine.e, path.c_str()), 0) << weft_last_error();
    Table t = read(path);
    EXPECT_EQ(t.number("# weft trace ", "trace "), 1);
    EXPECT_GE(t.number("# clock: CLOCK_MONOTONIC", "resolution "), 1);
    for (int d = 0; d < 3; d++)
        for (const char *what : {"offset ", "error "})
            EXPECT_EQ(t.number("# device " + std::to_string(d) + " (cpu:", what), 0) << d;
    const double first = t.number("# host: CLOCK_MONOTONIC", " plus "),
                 error = t.number("# host: CLOCK_MONOTONIC", " error ");
    EXPECT_EQ(t.number("# host: CLOCK_MONOTONIC", " by "), (double)t.rows.size());
    EXPECT_GE(error, 0);
    EXPECT_LT(error, (end - begin) / 2);
    uint64_t last = 0;
    for (size_t i = 0; i < t.rows.size(); i++)
        last = std::max(last, t.at(i, "t_signal"));
    EXPECT_GE(first + error, begin); // the first event, by the host's clock
    EXPECT_LE(first - error + (double)last, end);
}

TEST(TraceCsv, SaysWhatWasDropped)
{
    Engine engine(1, "static", 4);
    engine.run(10);
    ASSERT_EQ(weft_trace_csv(engine.e, path.c_str()), 0) << weft_last_error();
    Table t = read(path);
    ASSERT_EQ(t.rows.size(), 8u); // two workers
    std::map<uint64_t, uint64_t> dropped;
    for (size_t i = 0; i < 8; i++)
        dropped[t.at(i, "worker")] = t.at(i, "dropped");
    EXPECT_EQ(dropped[0] + dropped[1], 10 * engine.tasks() - 8);
}

TEST(TraceCsv, NothingToWriteAndNowhere)
{
    Engine none(1, "static", 0);
    none.run(1);
    ASSERT_EQ(weft_trace_csv(none.e, path.c_str()), 0) << weft_last_error();
    EXPECT_EQ(read(path).rows.size(), 0u);
    EXPECT_EQ(weft_trace_csv(none.e, "/nonexistent/x"), WEFT_EIO);
}

} // namespace
