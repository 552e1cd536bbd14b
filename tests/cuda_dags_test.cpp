// cuda_dags: random task graphs on a GPU equal the sequential oracle, and so do the same images on emulated devices.
// 10,000 of them: bench/weft_dags --devices cuda:0/2 --count 10000 --pack 32 --both; here WEFT_TEST_DAGS (default 1000).
#include "cuda.h"
#include "dag_forest.h"

namespace
{

void run_many(const char *gpu_spec, uint32_t n_device, uint32_t policies, uint64_t first)
{
    std::string spec = on(gpu_spec);
    SKIP_WITHOUT(spec);
    const char *wanted = getenv("WEFT_TEST_DAGS");
    uint64_t n = wanted ? strtoull(wanted, nullptr, 10) : 1000;
    dag_limits l = {};
    l.devices = spec.c_str(), l.max_devices = n_device, l.policies = policies, l.deadline_us = 5000000;
    for (uint64_t i = 0; i < n; i += 25) {
        dag_case c;
        ASSERT_EQ(dag_run_forest(first + i, (uint32_t)std::min<uint64_t>(25, n - i), &l, 1, &c), 0) << weft__error();
    }
}

TEST(CudaDags, StaticOnOneDevice) { run_many("cuda:0", 1, 1u << WEFT_POLICY_STATIC, 1000000); }
TEST(CudaDags, FifoOnOneDevice) { run_many("cuda:0", 1, 1u << WEFT_POLICY_FIFO, 2000000); }
TEST(CudaDags, PushOnOneDevice) { run_many("cuda:0", 1, 1u << WEFT_POLICY_PUSH, 3000000); }
TEST(CudaDags, StealOnOneDevice) { run_many("cuda:0", 1, 1u << WEFT_POLICY_STEAL, 8000000); }
TEST(CudaDags, PriorityOnOneDevice) { run_many("cuda:0", 1, 1u << WEFT_POLICY_PRIORITY, 9000000); }
TEST(CudaDags, StaticOnTwoDevices) { run_many("cuda:0/2", 2, 1u << WEFT_POLICY_STATIC, 4000000); }
TEST(CudaDags, FifoOnTwoDevices) { run_many("cuda:0/2", 2, 1u << WEFT_POLICY_FIFO, 5000000); }
TEST(CudaDags, PushOnTwoDevices) { run_many("cuda:0/2", 2, 1u << WEFT_POLICY_PUSH, 6000000); }
TEST(CudaDags, StealOnTwoDevices) { run_many("cuda:0/2", 2, 1u << WEFT_POLICY_STEAL, 10000000); }
TEST(CudaDags, PriorityOnTwoDevices) { run_many("cuda:0/2", 2, 1u << WEFT_POLICY_PRIORITY, 11000000); }
TEST(CudaDags, AllOnEightDevices) { run_many("cuda:0/8", 8, (1u << WEFT_POLICY_COUNT) - 1, 7000000); }

} // namespace
