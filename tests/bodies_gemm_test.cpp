/* Portable bodies of gemm_stream, gemm_wide and reduce against float64, on poisoned outputs. */
#include "body_bench.h"

#include <gtest/gtest.h>
#include <random>

namespace
{

constexpr double BF16_BAR = 5e-3, FP16_BAR = 1e-3;

void check(const GemmCase &c, weft_body *body = weft__body_gemm_stream)
{
    BodyBench b(c);
    ASSERT_EQ(b.run_all(body), 0);
    double bar = c.dtype == WEFT_FP16 ? FP16_BAR : BF16_BAR;
    EXPECT_LE(b.error(), bar) << "m " << c.m << " n " << c.n << " k " << c.k << " x " << c.x_layout << " out "
                              << c.out_layout << " epilogue " << c.epilogue << " flags " << c.flags << " splits "
                              << c.splits;
    EXPECT_EQ(b.stray_bytes(), 0u) << "m " << c.m << " n " << c.n << " out " << c.out_layout;
}

const uint32_t layouts[] = {WEFT_LAYOUT_ROW, WEFT_LAYOUT_ATOM, WEFT_LAYOUT_PANEL, WEFT_LAYOUT_FRAG};

TEST(BodiesGemm, EveryPairOfLayouts)
{
    for (uint32_t x : layouts)
        for (uint32_t out : layouts) {
            GemmCase c{13, 83, 200};
            c.x_layout = x, c.out_layout = out;
            check(c);
        }
}

TEST(BodiesGemm, EveryEpilogueInBothTypes)
{
    for (uint32_t dtype : {WEFT_BF16, WEFT_FP16})
        for (uint32_t e = WEFT_EPI_NONE; e <= WEFT_EPI_GELU; e++)
            for (uint32_t norm : {0u, (uint32_t)WEFT_OP_NORM}) {
                GemmCase c{9, 176, 577};
                c.dtype = dtype, c.epilogue = e, c.flags = norm;
                check(c);
            }
}

TEST(BodiesGemm, RaggedRandomShapes)
{
    std::mt19937 rng(11);
    for (int i = 0; i < 60; i++) {
        auto pick = [&](uint32_t a, uint32_t b) -> uint32_t { return a + (uint32_t)(rng() % (b - a + 1)); };
        GemmCase c{pick(1, 70), pick(1, 300), pick(1, 700)};
        c.x_layout = layouts[rng() % 4], c.out_layout = layouts[rng() % 4];
        c.epilogue = (uint32_t)(rng() % 6), c.seed = rng(), c.groups = pick(1, 8);
        if (c.epilogue == WEFT_EPI_GATED_SILU) c.n = (c.n + 15) / 16 * 16;
        if (rng() % 3 == 0) c.flags |= WEFT_OP_NORM;
        check(c);
    }
}

TEST(BodiesGemm, WideTiles)
{
    GemmCase c{257, 330, 192};
    c.x_layout = WEFT_LAYOUT_PANEL, c.out_layout = WEFT_LAYOUT_PANEL, c.m_tile = 128, c.groups = 16;
    check(c, weft__body_gemm_wide);
    c.epilogue = WEFT_EPI_RESIDUAL;
    check(c, weft__body_gemm_wide);
}

TEST(BodiesGemm, LongRowsAreHeldInParts)
{
    GemmCase c{64, 32, 5000};
    check(c);
}

TEST(BodiesGemm, SplitsAreSummedInOrder)
{
    for (uint32_t splits : {2u, 3u, 7u}) {
        GemmCase c{5, 99, 1000};
        c.splits = splits, c.flags = WEFT_OP_PARTIAL, c.epilogue = WEFT_EPI_RESIDUAL;
        check(c);
    }
}

TEST(BodiesGemm, PacketsInAndOut)
{
    for (uint32_t m : {1u, 2u, 3u, 5u, 8u}) {
        GemmCase c{m, 90, 333};
        c.flags = WEFT_OP_X_PACKET | WEFT_OP_OUT_PACKET | WEFT_OP_AUX_PACKET;
        c.epilogue = WEFT_EPI_RESIDUAL;
        check(c);
        BodyBench b(c);
        ASSERT_EQ(b.run_all(weft__body_gemm_stream), 0);
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t i = 0; i < b.out_cols; i++) {
                uint64_t p = ((const uint64_t *)b.pk_out.p)[weft_packet_index(weft_packet_rows(m), r, i)];
                ASSERT_EQ(p >> 32, BodyBench::TAG);
                ASSERT_EQ(weft_half_to_f32(c.dtype, (uint16_t)(p >> (i % 2 * 16))), b.got(r, i));
            }
    }
}

TEST(BodiesGemm, RowsBeyondTheBatchAreLeftAlone)
{
    for (uint32_t rows : {1u, 7u, 20u}) {
        GemmCase c{40, 64, 128};
        c.rows = rows, c.m_tile = 16;
        check(c);
    }
}

/* A row's bits depend neither on the rows beside it nor on the tiles. */
TEST(BodiesGemm, BitsDontDependOnCompanyOrTiles)
{
    GemmCase one{1, 128, 640}, many{37, 128, 640};
    many.groups = 3, many.m_tile = 24;
    one.flags = many.flags = WEFT_OP_NORM;
    BodyBench a(one), b(many);
    ASSERT_EQ(a.run_all(weft__body_gemm_stream), 0);
    ASSERT_EQ(b.run_all(weft__body_gemm_stream), 0);
    for (uint32_t i = 0; i < 128; i++)
        ASSERT_EQ(weft_f32_bits(a.got(0, i)), weft_f32_bits(b.got(0, i)));
}

/* Every 16-bit number through the conversions, and all roundings of fp16 near a tie. */
TEST(BodiesHalf, ConversionsRoundTripAndRoundToEven)
{
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t fp16_special = (h & 0x7c00) == 0x7c00 && (h & 0x3ff),
                 bf16_special = (h & 0x7f80) == 0x7f80 && (h & 0x7f);
        if (!fp16_special) {
            ASSERT_EQ(weft_f32_to_fp16(weft_fp16_to_f32((uint16_t)h)), h);
        }
        if (!bf16_special) {
            ASSERT_EQ(weft_f32_to_bf16(weft_bf16_to_f32((uint16_t)h)), h);
        }
        if (h >= 0x7bff) continue; /* positive, finite, with a finite neighbour */
        float lo = weft_fp16_to_f32((uint16_t)h), hi = weft_fp16_to_f32((uint16_t)(h + 1)), mid = lo + (hi - lo) / 2;
        ASSERT_EQ(weft_f32_to_fp16(mid), h % 2 ? h + 1 : h) << h;
        ASSERT_EQ(weft_f32_to_fp16(std::nextafterf(mid, INFINITY)), h + 1) << h;
        ASSERT_EQ(weft_f32_to_fp16(std::nextafterf(mid, 0)), h) << h;
    }
    EXPECT_EQ(weft_f32_to_fp16(65520.0f), 0x7c00);
    EXPECT_EQ(weft_f32_to_fp16(65519.0f), 0x7bff);
    EXPECT_TRUE(std::isnan(weft_fp16_to_f32(weft_f32_to_fp16(NAN))));
    EXPECT_TRUE(std::isnan(weft_bf16_to_f32(weft_f32_to_bf16(NAN))));
}

} // namespace
