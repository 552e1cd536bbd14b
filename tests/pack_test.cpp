// pack: every value of a weight stands where layout.h says, padding is zero, slices are parts of the whole.
#include "../host/error.h"
#include "../host/pack.h"
#include "../tasks/half.h"
#include "../tasks/layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace
{

// Tensor "a": value 1000 * row + col; "b": minus that; "g": a gain of 2.
int shape(void *, const char *name, uint32_t *rows, uint32_t *cols)
{
    *rows = name[0] == 'g' ? 1 : 12;
    *cols = 70;
    return name[0] == 'z';
}
int rows(void *, const char *name, uint32_t row, uint32_t n, float *dst)
{
    for (uint32_t i = 0; i < n * 70; i++) {
        float v = float(i / 70 + row) * 4 + float(i % 70) / 32;
        dst[i] = name[0] == 'g' ? 2 : name[0] == 'b' ? -v : v;
    }
    return 0;
}
const weft__weight_reader reader{nullptr, shape, rows};

weft__weight weight(uint32_t n, uint32_t k, const char *a, const char *b, const char *gain)
{
    weft__weight w{};
    w.name = "w", w.rows = n, w.cols = k, w.dtype = WEFT_BF16;
    w.source.fill = WEFT_FILL_MODEL, w.source.a = a, w.source.b = b, w.source.gain = gain;
    w.source.rows_a = w.source.rows_b = 8;
    return w;
}

std::vector<uint16_t> packed(const weft__weight &w)
{
    std::vector<uint16_t> atoms(weft_layout_bytes(WEFT_LAYOUT_ATOM, WEFT_BF16, w.rows, w.cols, 1) / 2, 0xdead);
    EXPECT_EQ(weft__pack_atoms(&w, &reader, 0, weft_div_up(w.rows, 16), atoms.data()), 0) << weft__error();
    return atoms;
}

float at(const std::vector<uint16_t> &atoms, uint32_t k, uint32_t r, uint32_t c)
{
    return weft_bf16_to_f32(atoms[weft_atom_offset(k, r, c) / 2]);
}

float rounded(float v) { return weft_bf16_to_f32(weft_f32_to_bf16(v)); }
float value(uint32_t r, uint32_t c) { return float(r) * 4 + float(c) / 32; }

TEST(Pack, PlainWithPadding)
{
    auto atoms = packed(weight(12, 70, "a", nullptr, nullptr));
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t c = 0; c < 128; c++)
            EXPECT_EQ(at(atoms, 70, r, c), r < 12 && c < 70 ? rounded(value(r, c)) : 0) << r << " " << c;
}

TEST(Pack, GateAndUpAlternateInEightsWithTheGainFoldedIn)
{
    auto atoms = packed(weight(32, 70, "a", "b", "g"));
    for (uint32_t r = 0; r < 32; r++)
        for (uint32_t c = 0; c < 70; c++) {
            uint32_t row = r / 16 * 8 + r % 8;
            float v = row < 12 ? rounded(2 * value(row, c)) : 0;
            EXPECT_EQ(at(atoms, 70, r, c), r % 16 < 8 ? v : -v) << r << " " << c;
        }
}

TEST(Pack, SlicesArePartsOfTheWhole)
{
    for (const char *gain : {static_cast<const char *>(nullptr), "g"}) {
        weft__weight whole = weight(32, 70, "a", "b", gain), slice = whole;
        slice.row0 = 16, slice.rows = 16, slice.col0 = 64, slice.cols = 6;
        auto all = packed(whole), part = packed(slice);
        for (uint32_t r = 0; r < 16; r++)
            for (uint32_t c = 0; c < 6; c++)
                EXPECT_EQ(at(part, 6, r, c), at(all, 70, r + 16, c + 64));
    }
}

TEST(Pack, SeededValuesDependOnTheirPlaceInTheWhole)
{
    weft__weight w = weight(16, 70, nullptr, nullptr, nullptr);
    w.source.fill = WEFT_FILL_SEED, w.source.seed = 5, w.source.scale = 0.5f, w.row0 = 32, w.col0 = 64;
    auto atoms = packed(w);
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t c = 0; c < 128; c++)
            EXPECT_EQ(at(atoms, 70, r, c), c < 70 ? rounded(weft_seeded(5, r + 32, c + 64, 0.5f)) : 0);
}

TEST(Pack, RefusesWhatDoesNotFit)
{
    std::vector<uint16_t> room(64 << 10);
    weft__weight w = weight(16, 71, "a", nullptr, nullptr);
    EXPECT_EQ(weft__pack_atoms(&w, &reader, 0, 1, room.data()), WEFT_EFILE);
    w = weight(16, 70, "z", nullptr, nullptr);
    EXPECT_EQ(weft__pack_atoms(&w, &reader, 0, 1, room.data()), WEFT_EFILE);
    w = weight(16, 70, "a", nullptr, "a");
    EXPECT_EQ(weft__pack_atoms(&w, &reader, 0, 1, room.data()), WEFT_EFILE);
    EXPECT_EQ(weft__pack_atoms(&w, nullptr, 0, 1, room.data()), WEFT_EUSAGE);
    w = weight(16, 70, "a", nullptr, nullptr);
    w.dtype = WEFT_FP32;
    EXPECT_EQ(weft__pack_atoms(&w, &reader, 0, 1, room.data()), WEFT_EUNSUPPORTED);
}

} // namespace
