// safetensors: what is read is what was written; every malformed file is refused with file and field.
#include "../host/error.h"
#include "../host/safetensors.h"

#include "files.h"

#include <gtest/gtest.h>

#include <cmath>

namespace
{

// Bytes of a file with this header and `data` bytes after it.
std::string file_of(const std::string &header, size_t data)
{
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; i++)
        bytes[i] = static_cast<char>(header.size() >> (8 * i));
    bytes += header;
    for (size_t i = 0; i < data; i++)
        bytes += static_cast<char>(i * 7 + 1);
    return bytes;
}

struct Parsed {
    weft__st_file file{};
    std::string bytes;
    int status;
    explicit Parsed(std::string b) : bytes(std::move(b))
    {
        status = weft__st_parse(bytes.data(), bytes.size(), "t.st", &file);
    }
    ~Parsed() { weft__st_file_close(&file); }
    const weft__st_tensor *find(const char *name)
    {
        weft__safetensors st{&file, 1};
        return weft__st_find(&st, name);
    }
};

// Refused, and the message holds both texts.
void expect_refused(const std::string &bytes, const std::string &a, const std::string &b = "t.st")
{
    Parsed p(bytes);
    EXPECT_EQ(p.status, WEFT_EFILE) << a;
    EXPECT_NE(std::string(weft__error()).find(a), std::string::npos) << weft__error();
    EXPECT_NE(std::string(weft__error()).find(b), std::string::npos) << weft__error();
}

std::string entry(const std::string &name, const std::string &dtype, const std::string &shape,
                  const std::string &offsets)
{
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets +
           "]}";
}

TEST(Safetensors, ReadsThreeTypes)
{
    std::string bytes = file_of("{" + entry("a", "F32", "2,1", "0,8") + ", \"__metadata__\":{\"format\":\"pt\"}," +
                                    entry("h", "F16", "2", "8,12") + "," + entry("b", "BF16", "1,2", "12,16") + "}  ",
                                0);
    const float f[2] = {1.5f, -2};
    const uint16_t h[4] = {0x3c00, 0xc000, 0x3f80, 0xc000}; // 1, -2 in fp16; 1, -2 in bf16
    bytes.append(reinterpret_cast<const char *>(f), 8);
    bytes.append(reinterpret_cast<const char *>(h), 8);
    Parsed p(bytes);
    ASSERT_EQ(p.status, 0) << weft__error();
    float out[2];
    ASSERT_NE(p.find("a"), nullptr);
    EXPECT_EQ(p.find("a")->rows, 2u);
    EXPECT_EQ(p.find("a")->cols, 1u);
    EXPECT_EQ(weft__st_read(p.find("a"), 0, 2, out), 0);
    EXPECT_EQ(out[0], 1.5f);
    EXPECT_EQ(out[1], -2.0f);
    for (const char *name : {"h", "b"}) {
        ASSERT_NE(p.find(name), nullptr) << name;
        EXPECT_EQ(p.find(name)->rows, 1u);
        EXPECT_EQ(p.find(name)->cols, 2u);
        EXPECT_EQ(weft__st_read(p.find(name), 0, 2, out), 0);
        EXPECT_EQ(out[0], 1.0f);
        EXPECT_EQ(out[1], -2.0f);
        EXPECT_EQ(weft__st_read(p.find(name), 1, 2, out), WEFT_EUSAGE);
    }
    EXPECT_EQ(p.find("c"), nullptr);
    EXPECT_EQ(p.find(""), nullptr);
}

TEST(Safetensors, TypesThatAreNoFloatsCanBeThereButNotBeRead)
{
    Parsed p(file_of("{" + entry("ids", "I64", "1", "0,8") + "}", 8));
    ASSERT_EQ(p.status, 0) << weft__error();
    float out;
    EXPECT_EQ(weft__st_read(p.find("ids"), 0, 1, &out), WEFT_EUNSUPPORTED);
}

TEST(Safetensors, EveryTruncationIsRefused)
{
    const std::string whole = file_of("{" + entry("a", "F32", "2,2", "0,16") + "}", 16);
    Parsed p(whole);
    ASSERT_EQ(p.status, 0) << weft__error();
    for (size_t n = 0; n < whole.size(); n++) {
        Parsed cut(whole.substr(0, n));
        EXPECT_EQ(cut.status, WEFT_EFILE) << n;
    }
}

TEST(Safetensors, RefusesSizesAndOffsets)
{
    expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), "header length");
    expect_refused(file_of("{" + entry("a", "F32", "2", "0,7") + "}", 7), "shape needs 8 bytes", "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "2", "0,16") + "}", 8), "data_offsets [0, 16]", "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "2", "8,0") + "}", 8), "data_offsets [8, 0]", "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "2", "0,8") + "}", 9), "belong to no tensor");
    expect_refused(file_of("{" + entry("a", "F32", "1", "4,8") + "}", 8), "gap", "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "2", "0,8") + "," + entry("b", "F32", "2", "4,12") + "}", 12),
                   "overlap", "tensor b");
}

TEST(Safetensors, RefusesOverflowingShapes)
{
    const std::string big = "4294967296";
    expect_refused(file_of("{" + entry("a", "F32", big + "," + big, "0,0") + "}", 0), "shape overflows", "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "0," + big + "," + big, "0,0") + "}", 0), "shape overflows",
                   "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "4611686018427387905", "0,4") + "}", 4), "shape overflows",
                   "tensor a");
    expect_refused(file_of("{" + entry("a", "F32", "18446744073709551616", "0,4") + "}", 4), "below 2^64");
    expect_refused(file_of("{" + entry("a", "F32", "-1", "0,4") + "}", 4), "whole number");
    expect_refused(file_of("{" + entry("a", "F32", "1.0", "0,4") + "}", 4), "whole number");
}

TEST(Safetensors, RefusesDuplicatesAndStrangeFields)
{
    const std::string a = entry("a", "U8", "0", "0,0");
    expect_refused(file_of("{" + a + "," + a + "}", 0), "there twice", "tensor a");
    expect_refused(file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0),
                   "'dtype' is there twice", "tensor a");
    expect_refused(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0), "data_offsets is missing", "tensor a");
    expect_refused(file_of("{\"a\":{\"dtype\":\"U8\",\"size\":[0]}}", 0), "'size' is unknown", "tensor a");
    expect_refused(file_of("{" + entry("a", "F17", "0", "0,0") + "}", 0), "dtype 'F17'", "tensor a");
    expect_refused(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "__metadata__");
    expect_refused(file_of("{" + entry("a\\u0062", "U8", "0", "0,0") + "}", 0), "backslash");
}

TEST(Safetensors, RefusesDeepNestingAndBrokenJson)
{
    expect_refused(file_of("{\"__metadata__\":" + std::string(100000, '[') + "}", 0), "less nesting");
    for (const char *text : {"", "{", "[]", "{\"a\"}", "{\"a\":1}", "{} x", "{,}", "{\"a\":{}}", "{\"\n\":1}", "nul"})
        expect_refused(file_of(text, 0), "t.st");
}

TEST(Safetensors, HeaderThatIsMostlyTensorsTakesLittleMemory)
{
    std::string header = "{";
    for (int i = 0; i < 200000; i++)
        header += (i ? "," : "") +
                  entry("t" + std::to_string(i), "U8", "", std::to_string(i) + "," + std::to_string(i + 1));
    Parsed p(file_of(header + "}", 200000));
    ASSERT_EQ(p.status, 0) << weft__error();
    EXPECT_EQ(p.file.n_tensor, 200000u);
    EXPECT_LE(p.file.n_tensor * sizeof(weft__st_tensor), 2 * p.bytes.size());
    ASSERT_NE(p.find("t77777"), nullptr);
    EXPECT_EQ(p.find("t77777")->data[0], static_cast<uint8_t>(77777 * 7 + 1));
}

TEST(SafetensorsDirectory, ReadsShardsThroughTheIndex)
{
    Folder dir;
    dir.write("one.safetensors", file_of("{" + entry("a", "U8", "1", "0,1") + "}", 1));
    dir.write("two.safetensors", file_of("{" + entry("b", "U8", "2", "0,2") + "}", 2));
    dir.write("model.safetensors.index.json",
              R"({"metadata":{"total_size":3},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
    weft__safetensors st;
    ASSERT_EQ(weft__safetensors_open(dir.path.c_str(), &st), 0) << weft__error();
    EXPECT_EQ(st.n_file, 2u);
    ASSERT_NE(weft__st_find(&st, "b"), nullptr);
    EXPECT_EQ(weft__st_find(&st, "b")->bytes, 2u);
    weft__safetensors_close(&st);
}

TEST(SafetensorsDirectory, RefusesABadIndex)
{
    Folder dir;
    dir.write("one.safetensors", file_of("{" + entry("a", "U8", "1", "0,1") + "}", 1));
    dir.write("two.safetensors",
              file_of("{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "U8", "1", "1,2") + "}", 2));
    const std::pair<const char *, const char *> cases[] = {
        {R"({"weight_map":{"z":"one.safetensors"}})", "tensor z"},
        {R"({"weight_map":{"a":"three.safetensors"}})", "three.safetensors"},
        {R"({"weight_map":{"a":"../one.safetensors"}})", "no name of a file"},
        {R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})", "two shards"},
        {R"({"metadata":{}})", "weight_map is missing"},
        {R"({"weight_map":{}, "weight_map":{}})", "there twice"},
        {"", "index.json"},
    };
    for (const auto &[text, message] : cases) {
        dir.write("model.safetensors.index.json", text);
        weft__safetensors st;
        EXPECT_EQ(weft__safetensors_open(dir.path.c_str(), &st), WEFT_EFILE) << text;
        EXPECT_NE(std::string(weft__error()).find(message), std::string::npos) << weft__error();
    }
}

TEST(SafetensorsDirectory, RefusesWhatIsNotThere)
{
    Folder dir;
    weft__safetensors st;
    EXPECT_EQ(weft__safetensors_open(dir.path.c_str(), &st), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("model.safetensors"), std::string::npos);
    EXPECT_EQ(weft__safetensors_open(std::string(10000, 'x').c_str(), &st), WEFT_EFILE);
}

} // namespace
