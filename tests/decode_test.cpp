// decode: a whole decoder's step as tasks gives the logits of the plain decoder, on any devices, under any policy.
#include "decode.h"

namespace
{

TEST(Decode, EveryFamilyHasTheLogitsOfThePlainDecoder)
{
    for (const Family &f : families) {
        SCOPED_TRACE(f.name);
        Model model(f);
        const std::vector<Sequence> seqs = sequences_of(model);
        for (uint32_t rows : {1u, 7u}) {
            Machine m(model, rows, "cpu:1x2", 1, WEFT__SINGLE, "static");
            ASSERT_NE(m.e, nullptr);
            run_batch(model, seqs, m);
            if (HasFailure()) return;
        }
    }
}

TEST(Decode, TheSameBitsUnderEveryPolicyAndTheSameNumbersUnderEveryStrategy)
{
    Model model(families[0]);
    const std::vector<Sequence> seqs = sequences_of(model);
    const std::pair<const char *, uint32_t> devices[] = {{"cpu:1x2", 1}, {"cpu:2x1", 2}, {"cpu:3x1", 3}};
    for (uint32_t strategy : {WEFT__SINGLE, WEFT__CTA, WEFT__TP}) {
        for (auto [spec, n] : devices) {
            std::vector<float> first;
            if ((strategy == WEFT__SINGLE) != (n == 1)) continue;
            for (const char *queue : {"static", "fifo", "push", "steal", "priority"}) {
                SCOPED_TRACE(std::string(spec) + " " + weft__strategy_name(strategy) + " " + queue);
                Machine m(model, 4, spec, n, strategy, queue, n == 1 ? 3 : 1);
                ASSERT_NE(m.e, nullptr);
                const std::vector<float> all = run_batch(model, seqs, m);
                if (HasFailure()) return;
                if (first.empty()) first = all;
                EXPECT_EQ(first, all);
            }
        }
    }
}

// Steps run ahead of the host: each takes the token that the one before chose.
TEST(Decode, TokensFedBackOnTheDeviceAreThoseOfTheHost)
{
    for (auto [devices, n, strategy] : {std::tuple<const char *, uint32_t, uint32_t>{"cpu:1x2", 1, WEFT__SINGLE},
                                        {"cpu:3x1", 3, WEFT__CTA},
                                        {"cpu:2x1", 2, WEFT__TP}}) {
        SCOPED_TRACE(devices);
        Model model(families[1]);
        std::vector<uint32_t> by_host, by_device;
        for (int ahead = 0; ahead < 2; ahead++) {
            Machine m(model, 2, devices, n, strategy, "push");
            ASSERT_NE(m.e, nullptr);
            uint32_t token = 17, seq = 0;
            std::vector<uint32_t> seqs;
            for (uint32_t p = 0; p < 12; p++) {
                // Rows change places from step to step.
                std::vector<weft_step_row> batch(2, row_of(2, 0, 0, 0));
                batch[(p + 1) % 2].kv_len = 0;
                batch[p % 2] = row_of(2, p, ahead && p ? WEFT_TOKEN_OF | (p + 1) % 2 : token, WEFT_ROW_SAMPLE);
                seq = m.submit(batch, p ? std::vector<weft_page_write>{} : std::vector<weft_page_write>{{2, 0, 7}});
                seqs.push_back(seq);
                if (ahead) continue;
                ASSERT_EQ(weft_step_wait(m.e, seq), 0) << weft_last_error();
                uint32_t both[2];
                ASSERT_EQ(weft_step_tokens(m.e, seq, 2, both, nullptr), 0);
                by_host.push_back(token = both[p % 2]);
            }
            ASSERT_EQ(weft_step_wait(m.e, seq), 0) << weft_last_error();
            for (uint32_t p = 0; ahead && p < 12; p++) {
                uint32_t both[2];
                ASSERT_EQ(weft_step_tokens(m.e, seqs[p], 2, both, nullptr), 0);
                by_device.push_back(both[p % 2]);
            }
        }
        EXPECT_EQ(by_host, by_device);
    }
}

TEST(Decode, SamplesWhatSortingWouldGive)
{
    Model model(families[0]);
    for (auto [devices, n, strategy] :
         {std::tuple<const char *, uint32_t, uint32_t>{"cpu:1x2", 1, WEFT__SINGLE}, {"cpu:2x1", 2, WEFT__CTA}}) {
        Machine m(model, 4, devices, n, strategy, "static");
        ASSERT_NE(m.e, nullptr);
        uint32_t chosen;
        EXPECT_EQ(run_sampling(model, m, &chosen), 0u);
        EXPECT_EQ(chosen, 240u);
    }
}

} // namespace
