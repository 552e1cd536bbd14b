// config.json: fields with their defaults; wrong types, ranges and structure are refused by name.
#include "../host/config.h"
#include "../host/error.h"

#include <gtest/gtest.h>

#include <string>

namespace
{

const std::string fields = R"("hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,)"
                           R"("num_attention_heads":9,"vocab_size":49152)";

int parse(const std::string &text, weft__config *c)
{
    return weft__config_parse(text.data(), text.size(), "c.json", c);
}

void expect_refused(const std::string &more, const std::string &message, int status = WEFT_EFILE)
{
    weft__config c;
    EXPECT_EQ(parse("{" + fields + "," + more + "}", &c), status) << more;
    EXPECT_NE(std::string(weft__error()).find(message), std::string::npos) << weft__error();
    EXPECT_NE(std::string(weft__error()).find("c.json"), std::string::npos) << weft__error();
}

TEST(Config, FieldsAndDefaults)
{
    weft__config c;
    ASSERT_EQ(parse("{" + fields + "}", &c), 0) << weft__error();
    EXPECT_EQ(c.hidden, 576u);
    EXPECT_EQ(c.intermediate, 1536u);
    EXPECT_EQ(c.layers, 30u);
    EXPECT_EQ(c.heads, 9u);
    EXPECT_EQ(c.kv_heads, 9u);
    EXPECT_EQ(c.head_dim, 64u);
    EXPECT_EQ(c.norm_eps, 1e-6);
    EXPECT_EQ(c.tied_embeddings, 0u);
    ASSERT_EQ(parse("{" + fields +
                        R"(,"num_key_value_heads":3,"head_dim":null,"rms_norm_eps":1e-05,"rope_theta":100000,)"
                        R"("tie_word_embeddings":true,"hidden_act":"silu","other":[1,{"a":2}]})",
                    &c),
              0)
        << weft__error();
    EXPECT_EQ(c.kv_heads, 3u);
    EXPECT_EQ(c.norm_eps, 1e-5);
    EXPECT_EQ(c.rope_theta, 1e5);
    EXPECT_EQ(c.tied_embeddings, 1u);
}

TEST(Config, RefusesBadFields)
{
    expect_refused(R"("num_key_value_heads":4)", "num_key_value_heads does not divide");
    expect_refused(R"("num_key_value_heads":0)", "num_key_value_heads is not a whole number");
    expect_refused(R"("head_dim":"64")", "head_dim");
    expect_refused(R"("head_dim":1e99)", "head_dim");
    expect_refused(R"("rms_norm_eps":-1)", "rms_norm_eps");
    expect_refused(R"("rms_norm_eps":[])", "rms_norm_eps");
    expect_refused(R"("tie_word_embeddings":1)", "tie_word_embeddings");
    expect_refused(R"("model_type":")" + std::string(40, 'x') + "\"", "model_type");
    expect_refused(R"("hidden_act":"gelu")", "hidden_act", WEFT_EUNSUPPORTED);
    expect_refused(R"("mlp_bias":true)", "mlp_bias", WEFT_EUNSUPPORTED);
    expect_refused(R"("vocab_size":2)", "duplicate");
    expect_refused(R"("a":)" + std::string(100000, '[') + std::string(100000, ']'), "depth");
}

TEST(Config, RefusesBadFiles)
{
    weft__config c;
    for (const char *text : {"", "[]", "{", "1", "\"hidden_size\"", "{}", "{\"hidden_size\":1}"})
        EXPECT_EQ(parse(text, &c), WEFT_EFILE) << text;
    EXPECT_EQ(parse("{" + fields + "}" + std::string(600 << 10, ' '), &c), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find("larger than"), std::string::npos);
    EXPECT_EQ(weft__config_read("/nonexistent/config.json", &c), WEFT_EFILE);
    EXPECT_EQ(weft__config_read("/", &c), WEFT_EFILE);
}

TEST(Config, EveryTruncationIsRefused)
{
    const std::string whole = "{" + fields + "}";
    weft__config c;
    for (size_t n = 0; n < whole.size(); n++)
        EXPECT_EQ(parse(whole.substr(0, n), &c), WEFT_EFILE) << n;
}

} // namespace
