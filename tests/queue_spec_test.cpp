// queue_spec: policies with parameters: what is refused with which words, and that every combination runs every task once.
#include "../runtime/queue_spec.h"
#include "dag.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace
{

TEST(QueueSpec, ParametersAreEchoed)
{
    const std::pair<const char *, const char *> cases[] = {
        {"static", "static"},
        {"fifo", "fifo"},
        {"push", "push:capacity=0"},
        {"push:capacity=4096", "push:capacity=4096"},
        {"steal", "steal:victim=ring,amount=1,end=fifo,backoff=0,capacity=0"},
        {"steal:end=lifo,victim=near", "steal:victim=near,amount=1,end=lifo,backoff=0,capacity=0"},
        {"steal:amount=half,backoff=500,victim=random",
         "steal:victim=random,amount=half,end=fifo,backoff=500,capacity=0"},
        {"priority", "priority:buckets=8,capacity=0"},
        {"priority:buckets=3", "priority:buckets=3,capacity=0"},
    };
    for (const auto &[text, echo] : cases) {
        weft__queue_spec q;
        EXPECT_EQ(weft__queue_parse(text, &q), 0) << weft__error();
        EXPECT_STREQ(q.text, echo);
        weft__queue_close(&q);
    }
}

TEST(QueueSpec, RefusesWithThePolicyTheParameterAndWhatItMayBe)
{
    const std::vector<std::pair<const char *, std::vector<const char *>>> cases = {
        {"lifo", {"'lifo'", "static, fifo, push, steal or priority"}},
        {"", {"''"}},
        {"static:capacity=4", {"no parameter 'capacity'", "it has none"}},
        {"push:victim=ring", {"'push:victim=ring'", "no parameter 'victim'", "it has capacity"}},
        {"steal:victim=far", {"victim: expected ring, random, near"}},
        {"steal:amount=2", {"amount: expected 1, half"}},
        {"steal:end=", {"end: expected fifo, lifo"}},
        {"steal:end", {"end needs a value"}},
        {"steal:", {"no parameter ''", "victim, amount, end, backoff, capacity"}},
        {"steal:backoff=-1", {"backoff: expected a number from 0 to 1000000"}},
        {"steal:backoff=1x", {"backoff"}},
        {"steal:backoff=99999999999999999999", {"backoff"}},
        {"priority:buckets=0", {"buckets: expected a number from 1 to 64"}},
        {"priority:buckets=65", {"buckets"}},
        {"push:capacity=1000", {"capacity 1000 is not a power of two"}},
    };
    for (const auto &[text, words] : cases) {
        weft__queue_spec q;
        EXPECT_EQ(weft__queue_parse(text, &q), WEFT_EUSAGE) << text;
        for (const char *word : words)
            EXPECT_NE(std::string(weft__error()).find(word), std::string::npos) << weft__error();
        weft__queue_close(&q);
    }
    weft__queue_spec q;
    EXPECT_EQ(weft__queue_parse("./there-is-none.so", &q), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("there-is-none.so"), std::string::npos) << weft__error();
    weft__queue_close(&q);
}

TEST(QueueSpec, ListsAreCutBetweenSpecs)
{
    char list[] = "static,steal:victim=near,amount=half,./a=b/mine.so:x=1,y=2,push";
    const char *specs[8];
    uint32_t n = 0;
    EXPECT_TRUE(weft__queue_is_list(list));
    EXPECT_FALSE(weft__queue_is_list("steal:victim=near,amount=half"));
    ASSERT_EQ(weft__queue_split(list, specs, 8, &n), 0);
    ASSERT_EQ(n, 4u);
    EXPECT_STREQ(specs[1], "steal:victim=near,amount=half");
    EXPECT_STREQ(specs[2], "./a=b/mine.so:x=1,y=2");
    EXPECT_STREQ(specs[3], "push");
    char many[] = "static,fifo,push";
    n = 0;
    EXPECT_EQ(weft__queue_split(many, specs, 2, &n), WEFT_EUSAGE);
}

// Random graphs of integers, counters just below the wrap, several devices and steps.
TEST(QueueSpec, EveryCombinationRunsEveryTaskOnce)
{
    std::vector<std::pair<uint32_t, std::string>> queues;
    for (const char *victim : {"ring", "random", "near"})
        for (const char *amount : {"1", "half"})
            for (const char *end : {"fifo", "lifo"})
                for (const char *backoff : {"0", "2000"})
                    queues.emplace_back(WEFT_POLICY_STEAL, std::string("steal:victim=") + victim + ",amount=" + amount +
                                                               ",end=" + end + ",backoff=" + backoff);
    queues.emplace_back(WEFT_POLICY_PRIORITY, "priority:buckets=1");
    queues.emplace_back(WEFT_POLICY_PRIORITY, "priority:buckets=64,capacity=1024");
    queues.emplace_back(WEFT_POLICY_PUSH, "push:capacity=2048");
    uint64_t seed = 9000000;
    for (const auto &[policy, queue] : queues) {
        dag_limits l = {};
        l.policies = 1u << policy;
        l.max_workers = 4;
        l.queue = queue.c_str();
        for (int i = 0; i < 20; i++)
            ASSERT_EQ(dag_run(seed++, &l), 0) << weft__error();
    }
}

// Two workers, and all tasks wait for one: it finds the thief's half in other hands, and each task runs once.
TEST(QueueSpec, HalvesAreStolenAndCounted)
{
    weft__graph *g;
    void *image;
    uint64_t bytes;
    uint32_t first;
    ASSERT_EQ(weft__graph_new(&g), 0);
    ASSERT_EQ(weft__graph_nop(g, 0, 1, 0, nullptr, 0, 0, &first), 0);
    ASSERT_EQ(weft__graph_nop(g, 0, 400, 20000, &first, 1, 0, nullptr), 0);
    weft__plan_options o = weft__plan_defaults();
    o.workers[0] = 2;
    ASSERT_EQ(weft__plan(g, &o, &image, &bytes, nullptr), 0) << weft__error();
    weft__graph_free(g);
    for (const char *queue : {"steal:amount=half", "steal:amount=half,end=lifo", "push"}) {
        weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
        weft_engine *e;
        c.devices = "cpu:1x2", c.queue = queue, c.deadline_us = 30000000, c.counter_base = 0xffffffc0u;
        ASSERT_EQ(weft_engine_create(image, bytes, &c, &e), 0) << weft_last_error();
        weft_step s = WEFT_STEP_INIT;
        for (uint32_t step = 1; step <= 3; step++) {
            uint32_t seq, pops = 0, abroad = 0;
            ASSERT_EQ(weft_step_submit(e, &s, &seq), 0);
            ASSERT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
            for (uint32_t w = 0; w < 2; w++) {
                weft_queue_counts n = {};
                n.size = sizeof n;
                ASSERT_EQ(weft_engine_queue_counts(e, 0, w, &n), 0);
                pops += n.pops, abroad += n.abroad;
                EXPECT_LE(n.abroad, n.steals);
            }
            EXPECT_EQ(pops, 401 * step) << queue;
            EXPECT_EQ(abroad, 0u);
        }
        weft_queue_counts n = {};
        n.size = sizeof n;
        EXPECT_EQ(weft_engine_queue_counts(e, 0, 2, &n), WEFT_EUSAGE);
        weft_engine_destroy(e);
    }
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    weft_engine *e;
    c.devices = "cpu:1x2", c.queue = "push:capacity=256";
    EXPECT_EQ(weft_engine_create(image, bytes, &c, &e), WEFT_EUSAGE);
    EXPECT_NE(std::string(weft_last_error()).find("capacity 256: device 0 has 401 tasks"), std::string::npos)
        << weft_last_error();
    free(image);
}

} // namespace
