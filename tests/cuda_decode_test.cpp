// cuda_decode: a decoder's step on a GPU gives the logits of the plain decoder; the same bits under every queue policy.
#include "cuda.h"
#include "decode.h"

namespace
{

TEST(CudaDecode, EveryFamilyHasTheLogitsOfThePlainDecoder)
{
    SKIP_WITHOUT(on("cuda:0"));
    for (const Family &f : families) {
        SCOPED_TRACE(f.name);
        Model model(f);
        const std::vector<Sequence> seqs = sequences_of(model);
        for (uint32_t rows : {1u, 7u, 20u}) {
            Machine m(model, rows, on("cuda:0").c_str(), 1, WEFT__SINGLE, "static", 132);
            ASSERT_NE(m.e, nullptr);
            run_batch(model, seqs, m);
            if (HasFailure()) return;
        }
    }
}

TEST(CudaDecode, TheSameBitsUnderEveryPolicy)
{
    SKIP_WITHOUT(on("cuda:0/2"));
    Model model(families[0]);
    const std::vector<Sequence> seqs = sequences_of(model);
    for (uint32_t strategy : {WEFT__SINGLE, WEFT__CTA, WEFT__TP}) {
        const uint32_t n = strategy == WEFT__SINGLE ? 1 : 2;
        std::vector<float> first;
        for (const char *queue : gpu_policies) {
            SCOPED_TRACE(std::string(weft__strategy_name(strategy)) + " " + queue);
            Machine m(model, 4, on(n == 1 ? "cuda:0" : "cuda:0/2").c_str(), n, strategy, queue, n == 1 ? 132 : 64);
            ASSERT_NE(m.e, nullptr);
            const std::vector<float> all = run_batch(model, seqs, m);
            if (HasFailure()) return;
            if (first.empty()) first = all;
            EXPECT_EQ(first, all);
        }
    }
}

// Sums are added in another order than sorting adds them, so a draw close to a boundary may fall on its other side.
TEST(CudaDecode, SamplesWhatSortingWouldGive)
{
    SKIP_WITHOUT(on("cuda:0"));
    Model model(families[2]);
    Machine m(model, 4, on("cuda:0").c_str(), 1, WEFT__SINGLE, "push", 132);
    ASSERT_NE(m.e, nullptr);
    uint32_t chosen;
    EXPECT_LE(run_sampling(model, m, &chosen), 2u);
    EXPECT_EQ(chosen, 240u);
}

} // namespace
