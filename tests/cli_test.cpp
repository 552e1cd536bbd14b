// cli: the command as a person meets it: help, usage errors, exit codes, JSON lines.
#include "files.h"

#include <gtest/gtest.h>

#include <jansson.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace
{

Output weft(const std::string &args) { return run_command(std::string(WEFT_BINARY) + " " + args); }

const std::string small = "--chain 70,200,70 --batch 5 --layers 2 --steps 20 --warmup 2 ";

struct Json {
    json_t *root;
    explicit Json(const std::string &text) { root = json_loads(text.c_str(), 0, nullptr); }
    ~Json() { json_decref(root); }
    std::string text(const char *field) const
    {
        const char *s = json_string_value(json_object_get(root, field));
        return s ? s : "";
    }
    double number(const char *field) const { return json_number_value(json_object_get(root, field)); }
    bool has(const char *field) const { return json_object_get(root, field) != nullptr; }
    bool null(const char *field) const { return json_is_null(json_object_get(root, field)); }
};

TEST(Cli, HelpAndVersion)
{
    EXPECT_EQ(weft("--help").exit, 0);
    EXPECT_EQ(weft("--version").exit, 0);
    EXPECT_EQ(weft("--version").text.rfind("weft ", 0), 0u);
    for (const char *verb : {"tour", "run", "plan", "trace", "topo", "bench"}) {
        Output out = weft(std::string(verb) + " --help");
        EXPECT_EQ(out.exit, 0) << verb;
        EXPECT_NE(out.text.find("usage: weft " + std::string(verb)), std::string::npos) << out.text;
        EXPECT_NE(weft("--help").text.find(verb), std::string::npos);
    }
}

TEST(Cli, UsageErrorsExitWith2AndSayWhatIsWrong)
{
    const std::pair<const char *, const char *> cases[] = {
        {"", "usage"},
        {"walk", "unknown verb 'walk'"},
        {"run", "what shall be computed"},
        {"run --chain 64", "2 are needed"},
        {"run --chain 64,x", "--chain 64,x"},
        {"run --chain 64,64 --mlp 64,64", "exclude"},
        {"run --chain 64,64 --batch 0", "--batch 0"},
        {"run --chain 64,64 --batch", "--batch needs a value"},
        {"run --chain 64,64 --frobnicate", "--frobnicate"},
        {"run --chain 64,64 --strategy best", "--strategy best"},
        {"run --chain 64,64 --queue lifo --devices cpu:1", "lifo"},
        {"run --chain 64,64 --devices tpu", "tpu"},
        {"run --chain 64,64 --check=1", "takes no value"},
        {"run --chain 64,64 --dtype fp4", "fp4"},
        {"plan --chain 64,64 --devices 0x1", "0x1"},
        {"topo extra", "extra"},
    };
    for (const auto &[args, message] : cases) {
        Output out = weft(args);
        EXPECT_EQ(out.exit, 2) << args << "\n" << out.text;
        EXPECT_NE(out.text.find(message), std::string::npos) << args << "\n" << out.text;
    }
}

TEST(Cli, RunChecksAndReportsJson)
{
    Output out = weft("run " + small + "--devices cpu:2x2 --strategy cta --queue push --check --json");
    ASSERT_EQ(out.exit, 0) << out.text;
    Json j(out.text);
    ASSERT_NE(j.root, nullptr) << out.text;
    EXPECT_EQ(j.text("strategy"), "cta");
    EXPECT_EQ(j.text("queue"), "push");
    EXPECT_EQ(j.number("devices"), 2);
    EXPECT_EQ(j.number("workers"), 4);
    EXPECT_EQ(j.number("steps"), 20);
    EXPECT_GT(j.number("tasks"), 3);
    EXPECT_GT(j.number("remote_signals"), 0);
    EXPECT_GT(j.number("median_us"), 0);
    EXPECT_TRUE(j.null("p99_us")); // under 1000 samples
    EXPECT_TRUE(json_is_real(json_object_get(j.root, "rel_error")));
    EXPECT_LE(j.number("rel_error"), 5e-3);
    for (const char *field : {"schema", "seed", "plan_hash", "commit", "device", "driver", "clocks", "version"})
        EXPECT_TRUE(j.has(field)) << field;
}

TEST(Cli, SeveralStrategiesAndQueuesTakeTurns)
{
    Output out = weft("run " + small + "--devices cpu:2x1 --strategy single,cta --queue static,push --check --json");
    ASSERT_EQ(out.exit, 0) << out.text;
    std::istringstream lines(out.text);
    std::vector<std::string> sides;
    for (std::string line; std::getline(lines, line);) {
        Json j(line);
        ASSERT_NE(j.root, nullptr) << line;
        sides.push_back(j.text("strategy") + " " + j.text("queue"));
        EXPECT_EQ(j.number("steps"), 20);
        EXPECT_GE(j.number("rounds"), 2);
        EXPECT_LE(j.number("rel_error"), 5e-3);
        EXPECT_TRUE(!j.null("clocks") || j.has("clocks_why"));
    }
    EXPECT_EQ(sides, (std::vector<std::string>{"single static", "single push", "cta static", "cta push"}));
    EXPECT_EQ(weft("run " + small + "--devices cpu:1 --queue static,push --samples s").exit, 2);
    Output wrong = weft("run " + small + "--devices cpu:2x1 --strategy cta,best"); // the other side is still measured
    EXPECT_EQ(wrong.exit, 2);
    EXPECT_NE(wrong.text.find("--strategy best"), std::string::npos) << wrong.text;
    EXPECT_NE(wrong.text.find("rounds"), std::string::npos) << wrong.text;
}

TEST(Cli, CostsThatMeanNothingAreRefused)
{
    const std::string plan = "plan --chain 64,64,64 --devices cpu:2x1 --tasks --costs ";
    Output good = weft(plan + "0:1:5000,0-1:0:none");
    EXPECT_EQ(good.exit, 0) << good.text;
    EXPECT_NE(good.text.find("ns by device: none, 5000"), std::string::npos) << good.text;
    for (const char *bad : {"9:0:5", "1-0:0:5", "-1:0:5", "0:2:5", "0:0:-5", "0:0:0", "0:0:4294967295",
                            "0:0:4294967297", "0:0:5x", "0:0:nonesuch", "0:0:", "0:0"}) {
        Output out = weft(plan + bad);
        EXPECT_EQ(out.exit, 2) << bad << ": " << out.text;
        EXPECT_NE(out.text.find("--costs"), std::string::npos) << bad << ": " << out.text;
    }
}

TEST(Cli, AStepPastItsDeadlineExitsWith4)
{
    Output out = weft("run --chain 2048,2048 --layers 20 --devices cpu:2x1 --strategy cta --deadline 50 --steps 3");
    EXPECT_EQ(out.exit, 4) << out.text;
    EXPECT_NE(out.text.find("stopped by the watchdog"), std::string::npos) << out.text;
}

TEST(Cli, SamplesAreOneALine)
{
    Folder dir;
    Output out = weft("run " + small + "--devices cpu:1 --samples " + (dir / "s.txt"));
    ASSERT_EQ(out.exit, 0) << out.text;
    std::ifstream in(dir / "s.txt");
    int n = 0;
    for (double v; in >> v; n++)
        EXPECT_GT(v, 0);
    EXPECT_EQ(n, 20);
}

TEST(Cli, PlansAreTheSameBytesAndCanBeCheckedAndRun)
{
    Folder dir;
    const std::string work = "--chain 70,200,70 --batch 5 --layers 2 --devices cpu:2x1 --strategy cta ";
    ASSERT_EQ(weft("plan " + work + "--out " + (dir / "a")).exit, 0);
    ASSERT_EQ(weft("plan " + work + "--out " + (dir / "b")).exit, 0);
    EXPECT_EQ(read_file(dir / "a"), read_file(dir / "b"));
    Output check = weft("plan --json --check " + (dir / "a"));
    EXPECT_EQ(check.exit, 0) << check.text;
    Output run = weft("run " + work + "--image " + (dir / "a") + " --steps 5 --check --json");
    ASSERT_EQ(run.exit, 0) << run.text;
    EXPECT_EQ(Json(run.text).text("plan_hash"), Json(check.text).text("plan_hash"));
}

TEST(Cli, BadFilesExitWith5)
{
    Folder dir;
    ASSERT_EQ(weft("plan --chain 64,64 --devices 1x1 --out " + (dir / "good")).exit, 0);
    std::string good = read_file(dir / "good");
    dir.write("short", good.substr(0, good.size() / 2));
    std::string other = good;
    other[good.size() / 2] ^= 1;
    dir.write("flipped", other);
    dir.write("text", "not an image");
    dir.write("config.json", "{\"hidden_size\": \"many\"}");
    for (const char *name : {"short", "flipped", "text", "absent"}) {
        Output out = weft("plan --check " + (dir / name));
        EXPECT_EQ(out.exit, 5) << name << "\n" << out.text;
        EXPECT_NE(out.text.find(name), std::string::npos) << out.text;
    }
    Output model = weft("run --devices cpu:1 --model " + dir.path);
    EXPECT_EQ(model.exit, 5) << model.text;
    EXPECT_NE(model.text.find("hidden_size"), std::string::npos) << model.text;
}

TEST(Cli, TraceIsJsonForPerfetto)
{
    Folder dir;
    Output out = weft("trace " + small + "--devices cpu:2x1 --strategy cta --out " + (dir / "t.json"));
    ASSERT_EQ(out.exit, 0) << out.text;
    Json j(read_file(dir / "t.json"));
    ASSERT_NE(j.root, nullptr);
    json_t *events = json_is_array(j.root) ? j.root : json_object_get(j.root, "traceEvents");
    EXPECT_GT(json_array_size(events), 8u);
}

TEST(Cli, TraceAsCsv)
{
    Folder dir;
    Output out = weft("trace " + small + "--devices cpu:2x1 --strategy cta --out " + (dir / "t.json") + " --csv " +
                      (dir / "t.csv"));
    ASSERT_EQ(out.exit, 0) << out.text;
    std::string csv = read_file(dir / "t.csv");
    EXPECT_EQ(csv.rfind("# weft trace 1", 0), 0u) << csv.substr(0, 200);
    EXPECT_NE(csv.find("\nstep,task,kind,device,worker,t_ready,"), std::string::npos);
    EXPECT_NE(csv.find(",gemm_stream,"), std::string::npos);
    EXPECT_EQ(weft("trace " + small + "--devices cpu:1 --csv /nonexistent/x --out " + (dir / "t.json")).exit, 5);
}

TEST(Cli, BenchCeilingIsOneDevices)
{
    Output out = weft("bench ceiling --devices cpu:1x2 --mb 3 --steps 5 --json");
    ASSERT_EQ(out.exit, 0) << out.text;
    Json j(out.text);
    EXPECT_EQ(j.number("workers"), 2);
    EXPECT_EQ(j.number("bytes"), 12 * 262144); // rounded up
    EXPECT_EQ(j.number("steps"), 5);
    EXPECT_GT(j.number("gb_per_s"), 0);
    EXPECT_NEAR(j.number("gb_per_s") * j.number("median_us") * 1e3, j.number("bytes"), 1);
    EXPECT_EQ(weft("bench ceiling --devices cpu:2").exit, 2);
    EXPECT_EQ(weft("bench ceiling --in-flight 13").exit, 2);
}

TEST(Cli, TopoReadsASyntheticMachine)
{
    Output out = weft("topo --json --synthetic 'pack:2 core:4 pu:2'");
    ASSERT_EQ(out.exit, 0) << out.text;
    Json j(out.text);
    EXPECT_EQ(j.number("packages"), 2);
    EXPECT_EQ(j.number("cores"), 8);
    EXPECT_EQ(j.number("threads"), 16);
}

TEST(Cli, PlanNeedsNoSuchMachine)
{
    Output out = weft("plan --mlp 512,1024 --layers 8 --devices 8x132 --strategy cta --json");
    ASSERT_EQ(out.exit, 0) << out.text;
    EXPECT_EQ(Json(out.text).number("devices"), 8);
}

} // namespace
