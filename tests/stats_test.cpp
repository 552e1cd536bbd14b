// stats: ranks, the p99 rule, and an interval that holds the median.
#include "../host/error.h"
#include "../runtime/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace
{

TEST(Stats, Ranks)
{
    std::vector<double> v;
    for (int i = 1000; i >= 1; i--)
        v.push_back(i);
    weft__stats s;
    ASSERT_EQ(weft__stats_of(v.data(), v.size(), &s), 0);
    EXPECT_EQ(s.n, 1000u);
    EXPECT_EQ(s.min, 1);
    EXPECT_EQ(s.p50, 500.5);
    EXPECT_EQ(s.p90, 900);
    EXPECT_EQ(s.p99, 990);
    EXPECT_LT(s.low, 500.5);
    EXPECT_GT(s.high, 500.5);
    EXPECT_NEAR(s.high - s.low, 2 * 1.96 * 500 / std::sqrt(1000.0), 15); // n/2 +- 1.96 sqrt(n)/2 ranks
}

TEST(Stats, FewSamples)
{
    weft__stats s;
    double one[] = {7}, two[] = {3, 1};
    ASSERT_EQ(weft__stats_of(one, 1, &s), 0);
    EXPECT_EQ(s.p50, 7);
    EXPECT_EQ(s.low, 7);
    EXPECT_TRUE(std::isnan(s.p99));
    ASSERT_EQ(weft__stats_of(two, 2, &s), 0);
    EXPECT_EQ(s.p50, 2);
    EXPECT_GE(s.low, 1);
    EXPECT_LE(s.high, 3);
    EXPECT_EQ(weft__stats_of(one, 0, &s), WEFT_EUSAGE);
}

} // namespace
