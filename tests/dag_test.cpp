/* Random task graphs against the sequential oracle, under every policy, counters starting just below the wrap.
 * More of them: build/bench/weft_dags (a seed that fails there replays here with WEFT_DAG_SEED=n).                        */
#include "dag.h"

#include <chrono>
#include <gtest/gtest.h>

namespace
{

void run_many(uint32_t policies, uint64_t first_seed)
{
    dag_limits l = {};
    l.policies = policies;
    if (const char *seed = getenv("WEFT_DAG_SEED")) {
        ASSERT_EQ(dag_run(strtoull(seed, nullptr, 10), &l), 0) << weft__error();
        return;
    }
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    int n = 0;
    for (uint64_t seed = first_seed; std::chrono::steady_clock::now() < until; seed++, n++)
        ASSERT_EQ(dag_run(seed, &l), 0) << weft__error();
    ::testing::Test::RecordProperty("graphs", n);
    EXPECT_GT(n, 20);
}

TEST(Dag, Static) { run_many(1u << WEFT_POLICY_STATIC, 1000000); }
TEST(Dag, Fifo) { run_many(1u << WEFT_POLICY_FIFO, 2000000); }
TEST(Dag, Push) { run_many(1u << WEFT_POLICY_PUSH, 3000000); }
TEST(Dag, Steal) { run_many(1u << WEFT_POLICY_STEAL, 4000000); }
TEST(Dag, Priority) { run_many(1u << WEFT_POLICY_PRIORITY, 5000000); }

/* The oracle is able to fail: a value that was changed is found. */
TEST(Dag, OracleNoticesAWrongValue)
{
    dag_limits l = {};
    dag_case c = dag_make(42, &l), other = c;
    other.seed = 43; /* other constants, other edges */
    weft__graph *g, *h;
    void *bytes;
    uint64_t size;
    ASSERT_EQ(dag_graph(&c, &g), 0);
    ASSERT_EQ(dag_graph(&other, &h), 0);
    ASSERT_EQ(dag_image(&c, g, &bytes, &size), 0) << weft__error();
    EXPECT_EQ(dag_run_image(&c, &l, g, bytes, size), 0) << weft__error();
    EXPECT_EQ(dag_run_image(&c, &l, h, bytes, size), WEFT_EWRONG);
    free(bytes);
    weft__graph_free(g);
    weft__graph_free(h);
}

} // namespace
