// decoder: logits of tiny models of every family are those that decoder_expected.py computes; what doesn't fit is refused.
#include "../host/decoder.h"
#include "../host/error.h"

#include "files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

namespace
{

const std::vector<uint32_t> tokens = {3, 41, 5, 5, 17, 0, 49, 22, 8, 30, 11, 2};

// As in decoder_expected.py.
float tiny_value(const std::string &name, uint64_t i)
{
    uint32_t h = 2166136261u;
    for (unsigned char c : name)
        h = (h ^ c) * 16777619u;
    uint32_t x = uint32_t(i) * 2654435761u + h;
    x = (x ^ (x >> 15)) * 2246822519u;
    float v = float(x >> 16) / 131072 - 0.25f;
    return name.find("norm") != std::string::npos ? v + 1 : v;
}

struct Tensors {
    std::string header, data;
    void add(const std::string &name, uint32_t rows, uint32_t cols) // rows 0: a vector
    {
        size_t begin = data.size();
        for (uint64_t i = 0; i < uint64_t(std::max(rows, 1u)) * cols; i++) {
            float v = tiny_value(name, i);
            data.append(reinterpret_cast<const char *>(&v), 4);
        }
        header += (begin ? ",\"" : "{\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" +
                  (rows ? std::to_string(rows) + "," : "") + std::to_string(cols) + "],\"data_offsets\":[" +
                  std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    std::string file() const
    {
        uint64_t n = header.size() + 1;
        std::string bytes(8, '\0');
        std::memcpy(bytes.data(), &n, 8);
        return bytes + header + "}" + data;
    }
};

Tensors weights_of(const weft__config &c, const std::string &without)
{
    Tensors t;
    auto add = [&](const std::string &name, uint32_t rows, uint32_t cols) {
        if (name != without) t.add(name, rows, cols);
    };
    uint32_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    add("model.embed_tokens.weight", c.vocab, c.hidden);
    if (!c.tied_embeddings) add("lm_head.weight", c.vocab, c.hidden);
    add("model.norm.weight", 0, c.hidden);
    for (uint32_t i = 0; i < c.layers; i++) {
        const std::string p = "model.layers." + std::to_string(i) + ".", a = p + "self_attn.";
        add(p + "input_layernorm.weight", 0, c.hidden);
        add(p + "post_attention_layernorm.weight", 0, c.hidden);
        for (const char *part : {"q", "k", "v"}) {
            uint32_t n = *part == 'q' ? q : kv;
            add(a + part + "_proj.weight", n, c.hidden);
            if (c.qkv_bias) add(a + part + "_proj.bias", 0, n);
            if (c.qk_norm && *part != 'v') add(a + part + "_norm.weight", 0, c.head_dim);
        }
        add(a + "o_proj.weight", c.hidden, q);
        add(p + "mlp.gate_proj.weight", c.intermediate, c.hidden);
        add(p + "mlp.up_proj.weight", c.intermediate, c.hidden);
        add(p + "mlp.down_proj.weight", c.hidden, c.intermediate);
    }
    return t;
}

struct Decoder {
    weft__hfmodel model = {};
    weft__decoder *d = nullptr;
    int status;
    Decoder(const std::string &config, uint32_t max_tokens, const std::string &without = "")
    {
        Folder dir;
        weft__config c;
        status = weft__config_parse(config.data(), config.size(), "config", &c);
        if (status) return;
        dir.write("config.json", config);
        dir.write("model.safetensors", weights_of(c, without).file());
        status = weft__hfmodel_open(dir.path.c_str(), &model);
        if (!status) status = weft__decoder_open(&model, max_tokens, &d);
    }
    Decoder(const Decoder &) = delete;
    ~Decoder()
    {
        weft__decoder_close(d);
        weft__hfmodel_close(&model);
    }
};

std::string first_config()
{
    std::ifstream file(WEFT_SOURCE_DIR "/tests/golden/decoder.txt");
    std::string name, config;
    std::getline(file, name);
    std::getline(file, config);
    return config;
}

void expect_row(std::istream &want, const std::vector<float> &have)
{
    double difference = 0, norm = 0;
    for (float v : have) {
        double w = NAN;
        want >> w;
        difference += (v - w) * (v - w);
        norm += w * w;
    }
    EXPECT_LT(std::sqrt(difference / norm), 2e-6);
}

TEST(Decoder, LogitsOfEveryFamily)
{
    std::ifstream file(WEFT_SOURCE_DIR "/tests/golden/decoder.txt");
    std::string name, config;
    int models = 0;
    for (; std::getline(file, name) && std::getline(file, config); models++) {
        SCOPED_TRACE(name);
        Decoder x(config, uint32_t(tokens.size()));
        ASSERT_EQ(x.status, 0) << weft__error();
        std::vector<float> logits(x.model.config.vocab);
        for (uint32_t t : tokens) {
            ASSERT_EQ(weft__decoder_step(x.d, t, logits.data()), 0);
            expect_row(file, logits);
        }
        file >> std::ws;
    }
    EXPECT_EQ(models, 7);
}

TEST(Decoder, TruncatedItGoesOnAsIfNothingHadBeen)
{
    Decoder x(first_config(), 8);
    ASSERT_EQ(x.status, 0) << weft__error();
    std::vector<float> a(x.model.config.vocab), b(a.size());
    for (uint32_t i = 0; i < 5; i++)
        ASSERT_EQ(weft__decoder_step(x.d, tokens[i], a.data()), 0);
    for (uint32_t i = 0; i < 3; i++)
        ASSERT_EQ(weft__decoder_step(x.d, 7, nullptr), 0);
    EXPECT_EQ(weft__decoder_step(x.d, 7, nullptr), WEFT_EUSAGE); // full
    weft__decoder_truncate(x.d, 4);
    ASSERT_EQ(weft__decoder_step(x.d, tokens[4], b.data()), 0);
    EXPECT_EQ(a, b);
    EXPECT_EQ(weft__decoder_step(x.d, 50, nullptr), WEFT_EUSAGE);
}

TEST(Decoder, RefusesWhatDoesNotFit)
{
    for (const char *name : {"model.norm.weight", "lm_head.weight", "model.layers.1.self_attn.o_proj.weight"}) {
        Decoder x(first_config(), 8, name);
        EXPECT_EQ(x.status, WEFT_EFILE);
        EXPECT_NE(std::string(weft__error()).find(name), std::string::npos) << weft__error();
    }
    EXPECT_EQ(Decoder(first_config(), 65).status, WEFT_EUSAGE); // positions
    EXPECT_EQ(Decoder(first_config(), 0).status, WEFT_EUSAGE);
}

} // namespace
