// config.json: fields with their defaults; wrong types, ranges and structure are refused by name.
#include "../host/config.h"
#include "../host/error.h"

#include <gtest/gtest.h>

#include <cmath>
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

TEST(Config, Families)
{
    weft__config c;
    auto read = [&c](const std::string &more) {
        EXPECT_EQ(parse("{" + fields + "," + more + "}", &c), 0) << weft__error();
    };
    read(R"("model_type":"llama","sliding_window":16)");
    EXPECT_EQ(c.qkv_bias + c.qk_norm, 0u);
    EXPECT_EQ(c.max_positions, 2048u); // Llama knows no window
    read(R"("model_type":"mistral","sliding_window":4096,"max_position_embeddings":32768)");
    EXPECT_EQ(c.qkv_bias + c.qk_norm, 0u);
    EXPECT_EQ(c.max_positions, 4096u);
    read(R"("model_type":"mistral","sliding_window":null,"max_position_embeddings":32768)");
    EXPECT_EQ(c.max_positions, 32768u);
    const std::string qwen = R"("sliding_window":1024,"max_window_layers":28,"max_position_embeddings":32768)";
    read(R"("model_type":"qwen2",)" + qwen + R"(,"use_sliding_window":false)");
    EXPECT_EQ(c.qkv_bias, 1u);
    EXPECT_EQ(c.qk_norm, 0u);
    EXPECT_EQ(c.head_dim, 64u);
    EXPECT_EQ(c.max_positions, 32768u);
    read(R"("model_type":"qwen3",)" + qwen + R"(,"use_sliding_window":true)");
    EXPECT_EQ(c.qkv_bias, 0u);
    EXPECT_EQ(c.qk_norm, 1u);
    EXPECT_EQ(c.head_dim, 128u);
    EXPECT_EQ(c.max_positions, 1024u);
    read(R"("model_type":"qwen3","head_dim":80)");
    EXPECT_EQ(c.head_dim, 80u);
}

const std::string llama3 = R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                           R"("original_max_position_embeddings":8192)";

// Expected: Llama 3.1's published rule, by wavelength, in double.
TEST(Config, RopeOfLlama3)
{
    weft__config c;
    float f[64];
    for (const std::string &more : {R"("rope_theta":500000.0,"rope_scaling":{)" + llama3 + "}",
                                    R"("rope_parameters":{"rope_theta":500000.0,)" + llama3 + "}"}) {
        ASSERT_EQ(parse("{" + fields + R"(,"head_dim":128,)" + more + "}", &c), 0) << weft__error();
        EXPECT_EQ(c.rope_theta, 500000);
        weft__config_rope(&c, f);
        uint32_t kept = 0, divided = 0;
        for (int i = 0; i < 64; i++) {
            double plain = std::pow(500000.0, -i / 64.0), wave = 2 * M_PI / plain, want = plain;
            double smooth = (8192 / wave - 1) / 3;
            if (wave > 8192)
                want = plain / 8, divided++;
            else if (wave >= 8192 / 4.0)
                want = (1 - smooth) * plain / 8 + smooth * plain;
            else
                kept++;
            EXPECT_NEAR(f[i] / want, 1, 1e-7) << i;
        }
        EXPECT_EQ(kept, 29u);
        EXPECT_EQ(divided, 29u);
    }
}

TEST(Config, RopePlainAndLinear)
{
    weft__config c;
    float f[32];
    ASSERT_EQ(parse("{" + fields + R"(,"rope_theta":16,"rope_scaling":{"type":"linear","factor":4}})", &c), 0);
    weft__config_rope(&c, f);
    EXPECT_EQ(f[0], 0.25f);
    EXPECT_EQ(f[16], 0.0625f);
    ASSERT_EQ(parse("{" + fields + R"(,"rope_theta":16,"rope_parameters":{"rope_type":"default"}})", &c), 0);
    weft__config_rope(&c, f);
    EXPECT_EQ(f[0], 1.0f);
    EXPECT_EQ(f[16], 0.25f);
}

TEST(Config, RefusesByName)
{
    expect_refused(R"("model_type":"mixtral")", "model_type: 'mixtral'", WEFT_EUNSUPPORTED);
    expect_refused(R"("model_type":"gemma2")", "model_type: 'gemma2'", WEFT_EUNSUPPORTED);
    expect_refused(R"("attention_bias":true)", "attention_bias", WEFT_EUNSUPPORTED);
    expect_refused(R"("quantization_config":{"bits":4})", "quantization_config", WEFT_EUNSUPPORTED);
    expect_refused(R"("partial_rotary_factor":0.5)", "partial_rotary_factor", WEFT_EUNSUPPORTED);
    expect_refused(R"("rope_parameters":{"partial_rotary_factor":0.5})", "rope_parameters.partial_rotary_factor",
                   WEFT_EUNSUPPORTED);
    expect_refused(R"("rope_scaling":{"rope_type":"yarn","factor":4})", "rope_scaling.rope_type: 'yarn'",
                   WEFT_EUNSUPPORTED);
    expect_refused(R"("rope_scaling":{"type":"dynamic","factor":4})", "'dynamic'", WEFT_EUNSUPPORTED);
    expect_refused(R"("rope_scaling":4)", "rope_scaling is not an object");
    expect_refused(R"("rope_scaling":{"type":"linear"})", "rope_scaling.factor is missing");
    expect_refused(R"("rope_scaling":{"type":"linear","factor":0})", "rope_scaling.factor is not a number");
    expect_refused(R"("rope_scaling":{"rope_type":"llama3","factor":8})", "rope_scaling.low_freq_factor is missing");
    expect_refused(R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,)"
                   R"("original_max_position_embeddings":8192})",
                   "rope_scaling.high_freq_factor is not above");
    expect_refused(R"("model_type":"mistral","sliding_window":-1)", "sliding_window");
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
