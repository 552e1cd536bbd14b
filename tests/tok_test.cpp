// tok: the ids and the text that the reference implementation gives (tests/tokenizers/make.py), for every style; streams hand
// out whole characters; files that are broken or of another kind are refused with file and field.
#include "../host/error.h"
#include "../host/tok.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace
{

#ifdef WEFT_HAVE_UNICODE
const std::string folder = std::string(WEFT_SOURCE_DIR) + "/tests/tokenizers/";

struct Tok {
    weft__tok *t = nullptr;
    explicit Tok(const std::string &path) { EXPECT_EQ(weft__tok_read(path.c_str(), &t), 0) << weft__error(); }
    ~Tok() { weft__tok_free(t); }
    Tok(const Tok &) = delete;
    Tok &operator=(const Tok &) = delete;

    std::vector<uint32_t> encode(const std::string &text) const
    {
        weft__tokens v = {};
        EXPECT_EQ(weft__tok_encode(t, text.data(), text.size(), 1, &v), 0) << weft__error();
        std::vector<uint32_t> out(v.id, v.id + v.n);
        free(v.id);
        return out;
    }
    // All pieces, each checked to be whole characters.
    std::string decode(const std::vector<uint32_t> &ids) const
    {
        weft__tok_stream s = {};
        weft__text v = {};
        for (uint32_t id : ids) {
            size_t before = v.n;
            EXPECT_EQ(weft__tok_put(t, &s, id, 1, &v), 0) << weft__error();
            EXPECT_TRUE(v.n == before || ((unsigned char)v.at[before] & 0xc0) != 0x80);
        }
        EXPECT_EQ(weft__tok_flush(t, &s, &v), 0);
        std::string out(v.at ? v.at : "", v.n);
        free(v.at);
        return out;
    }
};

std::string unhex(const std::string &hex)
{
    std::string out;
    for (size_t i = 0; hex != "-" && i + 1 < hex.size(); i += 2)
        out.push_back((char)strtol(hex.substr(i, 2).c_str(), nullptr, 16));
    return out;
}

std::vector<uint32_t> numbers(const std::string &list)
{
    std::vector<uint32_t> out;
    std::stringstream in(list == "-" ? "" : list);
    for (std::string one; std::getline(in, one, ',');)
        out.push_back((uint32_t)std::stoul(one));
    return out;
}

void compare(const Tok &tok, const std::string &expected)
{
    std::ifstream in(expected);
    std::string text, ids, decoded;
    int lines = 0;
    while (in >> text >> ids >> decoded) {
        EXPECT_EQ(tok.encode(unhex(text)), numbers(ids)) << "text: " << unhex(text);
        EXPECT_EQ(tok.decode(numbers(ids)), unhex(decoded)) << "text: " << unhex(text);
        lines++;
    }
    EXPECT_GT(lines, 200) << expected;
}

class Style : public ::testing::TestWithParam<const char *>
{
};

TEST_P(Style, GivesTheReferencesIdsAndText)
{
    Tok tok(folder + GetParam() + ".json");
    compare(tok, folder + GetParam() + ".txt");
}

INSTANTIATE_TEST_SUITE_P(Tok, Style, ::testing::Values("llama3", "qwen", "nfkc", "llama2", "mistral", "metaspace"),
                         [](const auto &p) { return std::string(p.param); });

TEST(Tok, RealSmolLM2)
{
    const char *cache = getenv("WEFT_CACHE"), *home = getenv("HOME");
    std::string dir = cache ? cache : std::string(home ? home : "") + "/.cache/weft";
    std::string path = dir + "/SmolLM2-135M-Instruct/tokenizer.json";
    if (!std::ifstream(path)) GTEST_SKIP() << path << " is not there (make run fetches it)";
    Tok tok(path);
    EXPECT_EQ(weft__tok_size(tok.t), 49152u);
    compare(tok, folder + "smollm2.txt");
}

TEST(Tok, HoldsBackWhatIsNoCharacterYet)
{
    Tok tok(folder + "mistral.json");
    uint32_t byte[3] = {weft__tok_id(tok.t, "<0xE2>"), weft__tok_id(tok.t, "<0x98>"), weft__tok_id(tok.t, "<0x83>")};
    weft__tok_stream s = {};
    weft__text v = {};
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(v.n, 0u);
        ASSERT_EQ(weft__tok_put(tok.t, &s, byte[i], 1, &v), 0);
    }
    EXPECT_STREQ(v.at, "\u2603");
    free(v.at);
    EXPECT_EQ(tok.decode({byte[0], byte[1]}), "\ufffd\ufffd"); // one a byte
    EXPECT_EQ(tok.decode({byte[0], byte[0], byte[1], byte[2]}), "\ufffd\u2603");
    EXPECT_EQ(weft__tok_put(tok.t, &s, weft__tok_size(tok.t), 1, &v), WEFT_EUSAGE);
}

TEST(Tok, RefusesTextThatIsNotUtf8)
{
    Tok tok(folder + "qwen.json");
    weft__tokens v = {};
    for (const char *text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"})
        EXPECT_EQ(weft__tok_encode(tok.t, text, strlen(text), 1, &v), WEFT_EUSAGE) << text;
    EXPECT_NE(std::string(weft__error()).find("byte 0"), std::string::npos);
    free(v.id);
}

std::string refusal(const std::string &json)
{
    weft__tok *t = nullptr;
    int status = weft__tok_parse(json.data(), json.size(), "tokenizer.json", &t);
    EXPECT_TRUE(status == WEFT_EFILE || status == WEFT_EUNSUPPORTED) << status << ": " << json;
    EXPECT_EQ(t, nullptr);
    EXPECT_EQ(std::string(weft__error()).rfind("tokenizer.json: ", 0), 0u) << weft__error();
    return weft__error();
}

TEST(Tok, RefusesWithFileAndField)
{
    const std::string good = R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},)"
                             R"("merges":["a b"]}})";
    weft__tok *t = nullptr;
    ASSERT_EQ(weft__tok_parse(good.data(), good.size(), "tokenizer.json", &t), 0) << weft__error();
    weft__tok_free(t);
    const char *cases[][3] = {
        // what, by what, what the message names
        {R"("a b")", R"("a c")", "model.merges"},
        {R"("a b")", R"("a  b")", "a merge of two tokens"},
        {R"("a":0)", R"("a":1)", "stands twice"},
        {R"("a":0)", R"("a":-1)", "a whole number"},
        {R"("a":0)", R"("a":99999999)", "below 4194304"},
        {R"("a":0)", R"("\ud800":0)", "surrogates"},
        {R"("BPE")", R"("Unigram")", "model.type"},
        {R"("BPE")", R"("BPE","dropout":0.1)", "model.dropout"},
        {R"("BPE")", R"("BPE","unk_token":"x")", "model.unk_token"},
        {R"("vocab")", R"("vocabulary")", "model.vocab"},
        {R"({"type":"ByteLevel"})", R"({"type":"WordPiece"})", "decoder: \"WordPiece\""},
        {R"({"type":"ByteLevel"})", "null", "decoder"},
        {R"({"dec)", R"({"normalizer":{"type":"Precompiled"},"dec)", "normalizer: \"Precompiled\""},
        {R"({"dec)", R"({"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"(a"}},"dec)", "(a"},
        {R"({"dec)", R"({"pre_tokenizer":3,"dec)", "pre_tokenizer"},
        {R"({"dec)", R"({"added_tokens":[{"id":0,"content":"zz"}],"dec)", "id 0"},
        {R"({"dec)", R"({"added_tokens":[{"content":"zz"}],"dec)", "added_tokens"},
        {R"({"dec)", R"({"post_processor":{"type":"BertProcessing"},"dec)", "post_processor"},
        {R"(]}})", R"(]}}})", "JSON byte"},
    };
    for (const auto &c : cases) {
        std::string bad = good;
        size_t at = bad.find(c[0]);
        ASSERT_NE(at, std::string::npos) << c[0];
        bad.replace(at, strlen(c[0]), c[1]);
        EXPECT_NE(refusal(bad).find(c[2]), std::string::npos) << c[1] << ": " << weft__error();
    }
    for (size_t n = 0; n < good.size(); n++)
        refusal(good.substr(0, n));
}
#else
TEST(Tok, BuiltWithoutUnicodeRefusesAll)
{
    weft__tok *t = nullptr;
    EXPECT_EQ(weft__tok_parse("{}", 2, "tokenizer.json", &t), WEFT_EUNSUPPORTED);
    EXPECT_NE(std::string(weft__error()).find("PCRE2"), std::string::npos);
}
#endif

} // namespace
