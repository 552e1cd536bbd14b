// decoder: logits of tiny models of every family are those that decoder_expected.py computes; what doesn't fit is refused.
#include "../host/decoder.h"
#include "../host/error.h"

#include "tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

namespace
{

const std::vector<uint32_t> tokens = {3, 41, 5, 5, 17, 0, 49, 22, 8, 30, 11, 2};

struct Decoder {
    weft__hfmodel model = {};
    weft__decoder *d = nullptr;
    int status;
    Decoder(const std::string &config, uint32_t max_tokens, const std::string &without = "")
    {
        Folder dir;
        status = write_tiny_model(dir, config, without);
        if (!status) status = weft__hfmodel_open(dir.path.c_str(), &model);
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
