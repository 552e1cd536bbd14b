// decode: a whole decoder's step as tasks gives the logits of the plain decoder, on any devices, under any policy.
#include "../host/decoder.h"
#include "../host/error.h"
#include "../host/plan.h"
#include "../runtime/weft.h"

#include "tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace
{

struct Family {
    const char *name, *more;
    uint32_t heads, kv_heads;
};

const Family families[] = {
    {"llama", "", 6, 2},
    {"mistral", ",\"tie_word_embeddings\":true", 4, 4},
    {"qwen2", "", 6, 3},
    {"qwen3", ",\"tie_word_embeddings\":true,\"attention_bias\":false", 4, 1},
};

std::string config_of(const Family &f)
{
    return "{\"model_type\":\"" + std::string(f.name) +
           "\",\"hidden_size\":96,\"intermediate_size\":200,\"num_hidden_layers\":3,\"num_attention_heads\":" +
           std::to_string(f.heads) + ",\"num_key_value_heads\":" + std::to_string(f.kv_heads) +
           ",\"head_dim\":64,\"vocab_size\":150,\"max_position_embeddings\":1024,\"rms_norm_eps\":1e-5,"
           "\"rope_theta\":10000.0,\"hidden_act\":\"silu\"" +
           f.more + "}";
}

struct Model {
    weft__hfmodel m = {};
    explicit Model(const Family &f)
    {
        Folder dir;
        EXPECT_EQ(write_tiny_model(dir, config_of(f)), 0) << weft__error();
        EXPECT_EQ(weft__hfmodel_open(dir.path.c_str(), &m), 0) << weft__error();
    }
    ~Model() { weft__hfmodel_close(&m); }
    uint32_t vocab() const { return m.config.vocab; }
};

// One sequence: the logits after each of its tokens, in fp32 with double sums.
std::vector<std::vector<float>> expected(const Model &m, const std::vector<uint32_t> &tokens)
{
    weft__decoder *d = nullptr;
    EXPECT_EQ(weft__decoder_open(&m.m, (uint32_t)tokens.size(), &d), 0) << weft__error();
    std::vector<std::vector<float>> out(tokens.size(), std::vector<float>(m.vocab()));
    for (size_t i = 0; i < tokens.size(); i++)
        EXPECT_EQ(weft__decoder_step(d, tokens[i], out[i].data()), 0) << weft__error();
    weft__decoder_close(d);
    return out;
}

struct Machine { // a decoder's engine
    const Model &model;
    uint32_t rows, slots = 5, context = 640, pages = 40;
    void *image = nullptr;
    uint64_t bytes = 0;
    weft_engine *e = nullptr;
    int (*shape)(void *, const char *, uint32_t *, uint32_t *) = nullptr;

    Machine(const Model &m, uint32_t n_row, const char *devices, uint32_t n_device, uint32_t strategy,
            const char *queue, uint32_t workers = 2)
        : model(m), rows(n_row)
    {
        weft__decode d = {};
        d.config = &m.m.config, d.named = 1, d.prefix = m.m.prefix, d.dtype = WEFT_BF16;
        d.rows = rows, d.slots = slots, d.pages = pages, d.context = context;
        weft__graph *g = nullptr;
        EXPECT_EQ(weft__graph_decode(&d, &g), 0) << weft__error();
        weft__plan_options o = weft__plan_defaults();
        o.n_device = n_device, o.strategy = strategy;
        for (uint32_t i = 0; i < n_device; i++)
            o.workers[i] = workers;
        EXPECT_EQ(weft__plan(g, &o, &image, &bytes, nullptr), 0) << weft__error();
        weft__graph_free(g);
        weft__weight_reader r = weft__hfmodel_reader(&m.m);
        weft_weight_source source = {r.user, r.shape, r.rows};
        weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
        c.devices = devices, c.queue = queue, c.counter_base = 0xfffffff0u, c.deadline_us = 20000000;
        c.weights = &source;
        EXPECT_EQ(weft_engine_create(image, bytes, &c, &e), 0) << weft_last_error();
        if (e) {
            EXPECT_EQ(weft_engine_poison(e, 0xff), 0);
        }
    }
    ~Machine()
    {
        weft_engine_destroy(e);
        free(image);
    }

    uint32_t submit(const std::vector<weft_step_row> &batch, const std::vector<weft_page_write> &writes)
    {
        std::vector<uint8_t> payload(WEFT_BATCH_BYTES(batch.size(), writes.size()));
        auto *b = reinterpret_cast<weft_step_batch *>(payload.data());
        b->n_row = (uint32_t)batch.size(), b->n_write = (uint32_t)writes.size();
        memcpy(b->row, batch.data(), batch.size() * sizeof batch[0]);
        if (!writes.empty()) memcpy((void *)&b->row[batch.size()], writes.data(), writes.size() * sizeof writes[0]);
        weft_step s = WEFT_STEP_INIT;
        s.rows = (uint32_t)batch.size(), s.payload = payload.data(), s.payload_bytes = (uint32_t)payload.size();
        uint32_t seq = 0;
        EXPECT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
        return seq;
    }
    std::vector<float> logits()
    {
        std::vector<float> v((size_t)rows * model.vocab());
        EXPECT_EQ(weft_tensor_read_f32(e, "logits", v.data(), v.size()), 0) << weft_last_error();
        return v;
    }
};

weft_step_row row_of(uint32_t slot, uint32_t position, uint32_t token, uint32_t flags)
{
    weft_step_row r = {};
    r.kv_len = position + 1, r.slot = slot, r.token = token, r.flags = flags;
    r.top_p = r.penalty = 1.0f;
    return r;
}

double error_of(const float *have, const std::vector<float> &want)
{
    double d = 0, n = 0;
    for (size_t i = 0; i < want.size(); i++)
        d += (have[i] - want[i]) * (have[i] - want[i]), n += want[i] * want[i];
    return std::sqrt(d / n);
}

uint32_t argmax(const float *v, size_t n) { return (uint32_t)(std::max_element(v, v + n) - v); }

struct Sequence {
    uint32_t slot;
    std::vector<uint32_t> tokens;
    std::vector<std::vector<float>> want;
    size_t done = 0;
};

// Sequences of mixed lengths, read in chunks of uneven size, over shuffled pages: every row's logits.
std::vector<float> run_batch(const Model &model, std::vector<Sequence> seqs, Machine &m)
{
    std::vector<float> all;
    std::vector<uint32_t> pages(m.pages);
    for (uint32_t i = 0; i < m.pages; i++)
        pages[i] = i;
    std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
    std::mt19937 random(11);
    double errors = 0, rows = 0;
    for (size_t step = 0; step < 200; step++) {
        std::vector<weft_step_row> batch;
        std::vector<weft_page_write> writes;
        std::vector<std::pair<size_t, size_t>> at; // of each row: sequence, position
        for (size_t s = 0; s < seqs.size(); s++) {
            size_t n = 1 + random() % m.rows;
            for (; n > 0 && batch.size() < m.rows && seqs[s].done < seqs[s].tokens.size(); n--) {
                const size_t p = seqs[s].done++;
                if (p % 64 == 0) {
                    writes.push_back({(uint16_t)seqs[s].slot, (uint16_t)(p / 64), pages.back()});
                    pages.pop_back();
                }
                batch.push_back(
                    row_of(seqs[s].slot, (uint32_t)p, seqs[s].tokens[p], WEFT_ROW_SAMPLE | WEFT_ROW_LOGITS));
                at.push_back({s, p});
            }
        }
        if (batch.empty()) break;
        const uint32_t seq = m.submit(batch, writes);
        EXPECT_EQ(weft_step_wait(m.e, seq), 0) << weft_last_error();
        if (::testing::Test::HasFailure()) return all;
        std::vector<float> logits = m.logits();
        std::vector<uint32_t> token(batch.size());
        std::vector<float> logprob(batch.size());
        EXPECT_EQ(weft_step_tokens(m.e, seq, (uint32_t)batch.size(), token.data(), logprob.data()), 0);
        for (size_t r = 0; r < batch.size(); r++) {
            const float *have = logits.data() + r * model.vocab();
            const double error = error_of(have, seqs[at[r].first].want[at[r].second]);
            EXPECT_LT(error, 0.1) << "step " << step << " sequence " << at[r].first << " position " << at[r].second;
            errors += error, rows++;
            EXPECT_EQ(token[r], argmax(have, model.vocab()));
            double sum = 0;
            for (uint32_t t = 0; t < model.vocab(); t++)
                sum += std::exp((double)have[t] - have[token[r]]);
            EXPECT_NEAR(logprob[r], -std::log(sum), 1e-4);
            all.insert(all.end(), have, have + model.vocab());
        }
    }
    EXPECT_LT(errors / rows, 0.025); // a few roundings to bf16 a layer, of weights without any pattern
    return all;
}

std::vector<Sequence> sequences_of(const Model &m)
{
    std::vector<Sequence> out;
    std::mt19937 random(5);
    const std::pair<uint32_t, size_t> shapes[] = {{3, 70}, {0, 9}, {4, 1}, {1, 33}};
    for (auto [slot, n] : shapes) {
        Sequence s;
        s.slot = slot;
        for (size_t i = 0; i < n; i++)
            s.tokens.push_back(random() % m.vocab());
        s.want = expected(m, s.tokens);
        out.push_back(s);
    }
    return out;
}

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

} // namespace
