// install: what `cmake --install` leaves behind serves find_package(weft) and pkg-config, and exports only weft_ names.
#include "dag.h"
#include "files.h"

#include <gtest/gtest.h>

namespace
{

// The sanitizers' runtime must come first in a program; a consumer built without them can't load such a library.
bool sanitized() { return std::string(WEFT_SANITIZE_FLAGS).size() > 0; }

class Install : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        if (sanitized()) return;
        folder = new Folder;
        Output out = run_command("cmake --install " WEFT_BINARY_DIR " --prefix " + folder->path);
        ASSERT_EQ(out.exit, 0) << out.text;
    }
    static void TearDownTestSuite() { delete folder; }
    void SetUp() override
    {
        if (sanitized()) GTEST_SKIP() << "the library is built with sanitizers";
    }
    static Folder *folder;
};
Folder *Install::folder;

TEST_F(Install, FindPackage)
{
    Output out = run_command("cmake -S " WEFT_SOURCE_DIR "/tests/consumer -B " + (*folder / "build") +
                             " -DCMAKE_PREFIX_PATH=" + folder->path +
                             " -DWEFT_SYSROOT=" WEFT_SYSROOT_DIR " && cmake --build " + (*folder / "build"));
    ASSERT_EQ(out.exit, 0) << out.text;
    for (const char *name : {"consumer_shared", "consumer_static"}) {
        Output run = run_command(*folder / ("build/" + std::string(name)));
        EXPECT_EQ(run.exit, 0) << run.text;
        EXPECT_NE(run.text.find("2 devices"), std::string::npos) << run.text;
    }
}

// A policy built outside the tree passes the suite of random graphs, is echoed with its parameters, and is refused when it was
// made from other sources.
TEST_F(Install, APolicyOfOnesOwn)
{
    std::string source = *folder / "lanes", build = *folder / "lanes-build", module = build + "/lanes.so";
    std::filesystem::copy(WEFT_SOURCE_DIR "/tests/consumer/policy", source);
    std::string make = "cmake -S " + source + " -B " + build + " -DCMAKE_PREFIX_PATH=" + folder->path +
                       " -DWEFT_SYSROOT=" WEFT_SYSROOT_DIR " && cmake --build " + build;
    Output out = run_command(make);
    ASSERT_EQ(out.exit, 0) << out.text;
    dag_limits l = {};
    l.policies = 1u << WEFT_POLICY_PUSH;
    for (const char *parameters : {"", ":urgent=0", ":urgent=100,capacity=1024"}) {
        const std::string queue = module + parameters;
        l.queue = queue.c_str();
        for (uint64_t seed = 7000000; seed < 7000060; seed++)
            ASSERT_EQ(dag_run(seed, &l), 0) << weft__error();
    }
    const std::string weft = *folder / "bin/weft";
    out = run_command(
        weft + " run --chain 64,64 --devices cpu:2x2 --strategy cta --steps 20 --warmup 2 --check --queue " + module);
    EXPECT_EQ(out.exit, 0) << out.text;
    EXPECT_NE(out.text.find("lanes.so:urgent=25,capacity=0"), std::string::npos) << out.text;
    out = run_command(weft + " run --chain 512,512,512 --devices cpu:1x2 --steps 20 --warmup 2 --queue " + build +
                      "/lossy.so");
    EXPECT_EQ(out.exit, 4) << out.text;
    EXPECT_NE(out.text.find("its policy gave more or fewer tasks than the step has (expected "), std::string::npos)
        << out.text;
    out = run_command(weft + " run --chain 64,64 --devices cpu:1 --queue " + module + ":urgent=101");
    EXPECT_EQ(out.exit, 2) << out.text;
    EXPECT_NE(out.text.find("urgent: expected a number from 0 to 100"), std::string::npos) << out.text;
    std::ofstream(*folder / "share/weft/src/weft_policy_abi.h") << "#define WEFT_POLICY_ABI 1ull\n";
    out = run_command(make);
    ASSERT_EQ(out.exit, 0) << out.text;
    out = run_command(weft + " run --chain 64,64 --devices cpu:1 --queue " + module);
    EXPECT_EQ(out.exit, 5) << out.text;
    EXPECT_NE(out.text.find("made from sources with hash 0000000000000001"), std::string::npos) << out.text;
}

TEST_F(Install, PkgConfig)
{
    if (run_command("pkg-config --version").exit != 0) GTEST_SKIP() << "no pkg-config here";
    std::string path = run_command("dirname $(find " + folder->path + " -name weft.pc)").text;
    path = path.substr(0, path.find('\n'));
    std::string lib = path.substr(0, path.rfind('/'));
    Output out = run_command("export PKG_CONFIG_PATH=" + path +
                             ":$PKG_CONFIG_PATH; cc " WEFT_SOURCE_DIR "/tests/consumer/consumer.c -o " +
                             (*folder / "plain") + " $(pkg-config --define-prefix --cflags --libs weft) -Wl,-rpath," +
                             lib + " && " + (*folder / "plain"));
    EXPECT_EQ(out.exit, 0) << out.text;
}

TEST_F(Install, APlacementPolicyOfOnesOwn)
{
    Output out = run_command("cc -Wall -Wextra -Werror -shared -fPIC -I " + (*folder / "include") +
                             " " WEFT_SOURCE_DIR "/tests/consumer/placer/stripes.c -o " + (*folder / "stripes.so") +
                             " && " + (*folder / "bin/weft") + " place gen:fft --devices 2x2 --policy " +
                             (*folder / "stripes.so"));
    EXPECT_EQ(out.exit, 0) << out.text;
}

TEST_F(Install, OnlyPublicNamesLeaveTheSharedLibrary)
{
    Output out = run_command("nm -D --defined-only $(find " + folder->path +
                             " -name libweft.so) | grep ' [TDBRVW] ' | "
                             "grep -v ' weft_[a-z]' ; true");
    EXPECT_EQ(out.text, "");
    out = run_command("readelf -d $(find " + folder->path + " -name libweft.so) | grep SONAME");
    EXPECT_NE(out.text.find("libweft.so.0"), std::string::npos) << out.text;
}

TEST_F(Install, EveryVerbHasAManPageWithItsOptions)
{
    for (const char *verb : {"run", "plan", "tour", "topo", "place", "bench-plan", "bench-place"}) {
        std::string page = read_file(*folder / ("share/man/man1/weft-" + std::string(verb) + ".1"));
        EXPECT_NE(page.find(".SH OPTIONS"), std::string::npos) << verb;
        EXPECT_NE(page.find("\\-\\-json"), std::string::npos) << verb;
    }
    EXPECT_NE(read_file(*folder / "share/man/man1/weft.1").find(".SH EXIT STATUS"), std::string::npos);
}

TEST_F(Install, TheCommandRuns)
{
    Output out = run_command((*folder / "bin/weft") + " --version");
    EXPECT_EQ(out.exit, 0) << out.text;
}

} // namespace
