// decode.h: decoders of tiny models on any devices, batch by batch, against the plain decoder; for tests.
#ifndef WEFT_TESTS_DECODE_H
#define WEFT_TESTS_DECODE_H

#include "../host/decoder.h"
#include "../host/error.h"
#include "../host/plan.h"
#include "../runtime/weft.h"
#include "../tasks/sample.h"

#include "tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

struct Family {
    const char *name, *more;
    uint32_t heads, kv_heads, dim;
};

const Family families[] = {
    {"llama", "", 6, 2, 64},
    {"mistral", ",\"tie_word_embeddings\":true", 4, 4, 128},
    {"qwen2", "", 6, 3, 64},
    {"qwen3", ",\"tie_word_embeddings\":true,\"attention_bias\":false", 4, 1, 128},
};

inline std::string config_of(const Family &f)
{
    return "{\"model_type\":\"" + std::string(f.name) +
           "\",\"hidden_size\":96,\"intermediate_size\":200,\"num_hidden_layers\":3,\"num_attention_heads\":" +
           std::to_string(f.heads) + ",\"num_key_value_heads\":" + std::to_string(f.kv_heads) +
           ",\"head_dim\":" + std::to_string(f.dim) +
           ",\"vocab_size\":150,\"max_position_embeddings\":1024,\"rms_norm_eps\":1e-5,"
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
inline std::vector<std::vector<float>> expected(const Model &m, const std::vector<uint32_t> &tokens)
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

inline weft_step_row row_of(uint32_t slot, uint32_t position, uint32_t token, uint32_t flags)
{
    weft_step_row r = {};
    r.kv_len = position + 1, r.slot = slot, r.token = token, r.flags = flags;
    r.top_p = r.penalty = 1.0f;
    return r;
}

inline double error_of(const float *have, const std::vector<float> &want)
{
    double d = 0, n = 0;
    for (size_t i = 0; i < want.size(); i++)
        d += (have[i] - want[i]) * (have[i] - want[i]), n += want[i] * want[i];
    return std::sqrt(d / n);
}

inline uint32_t argmax(const float *v, size_t n) { return (uint32_t)(std::max_element(v, v + n) - v); }

struct Sequence {
    uint32_t slot;
    std::vector<uint32_t> tokens;
    std::vector<std::vector<float>> want;
    size_t done = 0;
};

// Sequences of mixed lengths, read in chunks of uneven size, over shuffled pages: every row's logits.
inline std::vector<float> run_batch(const Model &model, std::vector<Sequence> seqs, Machine &m)
{
    std::vector<float> all;
    std::vector<uint32_t> pages(m.pages);
    for (uint32_t i = 0; i < m.pages; i++)
        pages[i] = i;
    std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
    std::mt19937 random(11);
    double errors = 0, rows = 0;
    for (size_t step = 0; step < 400; step++) {
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
            if (token[r] >= model.vocab()) return all;
            for (uint32_t t = 0; t < model.vocab(); t++)
                sum += std::exp((double)have[t] - have[token[r]]);
            EXPECT_NEAR(logprob[r], -std::log(sum), 1e-4);
            all.insert(all.end(), have, have + model.vocab());
        }
    }
    EXPECT_LT(errors / rows, 0.025); // a few roundings to bf16 a layer, of weights without any pattern
    return all;
}

inline std::vector<Sequence> sequences_of(const Model &m)
{
    std::vector<Sequence> out;
    std::mt19937 random(5);
#ifdef __SANITIZE_THREAD__
    const size_t longest = 140; // two blocks of attention; the rest would take minutes
#else
    const size_t longest = 300;
#endif
    const std::pair<uint32_t, size_t> shapes[] = {{3, longest}, {0, 9}, {4, 1}, {1, 33}};
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

// What SAMPLE is to choose of a row's logits, by sorting; `held`: tokens of its sequence.
inline uint32_t expected_sample(const weft_step_row &row, const float *logits, uint32_t n,
                                const std::vector<uint32_t> &held)
{
    std::vector<double> v(logits, logits + n);
    for (uint32_t t = 0; t < n; t++)
        if (std::find(held.begin(), held.end(), t) != held.end())
            v[t] = (float)v[t] > 0 ? (float)v[t] / row.penalty : (float)v[t] * row.penalty;
    const double top = *std::max_element(v.begin(), v.end());
    if (row.temperature == 0) return (uint32_t)(std::max_element(v.begin(), v.end()) - v.begin());
    std::vector<double> sorted(v);
    std::sort(sorted.rbegin(), sorted.rend());
    double lowest = row.top_k && row.top_k < n ? sorted[row.top_k - 1] : -INFINITY, total = 0, sum = 0;
    auto weight = [&](double x) { return std::exp((x - top) / row.temperature); };
    for (double x : sorted)
        if (x >= lowest) total += weight(x);
    if (row.top_p < 1.0f)
        for (double x : sorted) {
            sum += weight(x);
            if (sum >= row.top_p * total) {
                lowest = std::max(lowest, x);
                break;
            }
        }
    if (row.min_p > 0) lowest = std::max(lowest, top + std::log(row.min_p) * row.temperature);
    total = sum = 0;
    for (double x : v)
        if (x >= lowest) total += weight(x);
    const double stop = weft_sample_draw(row.seed, row.kv_len) * total;
    for (uint32_t t = 0; t < n; t++)
        if (v[t] >= lowest && (sum += weight(v[t])) > stop) return t;
    return WEFT_NONE;
}

// Sequences that are sampled with everything that there is; how many tokens differ from what sorting gives.
inline uint32_t run_sampling(const Model &model, Machine &m, uint32_t *chosen)
{
    std::mt19937 random(23);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    std::vector<std::vector<uint32_t>> held(m.rows, {3});
    uint32_t off = 0;
    *chosen = 0;
    for (uint32_t step = 0; step < 60; step++) {
        std::vector<weft_step_row> batch;
        std::vector<weft_page_write> writes;
        for (uint32_t r = 0; r < m.rows; r++) {
            if (step == 0) writes.push_back({(uint16_t)r, 0, r + 2});
            weft_step_row row = row_of(r, step, held[r].back(), WEFT_ROW_SAMPLE | WEFT_ROW_LOGITS);
            row.temperature = random() % 5 ? 0.3f + 2 * unit(random) : 0.0f;
            row.top_k = random() % 2 ? random() % 40 : 0;
            row.top_p = random() % 2 ? unit(random) : 1.0f;
            row.min_p = random() % 2 ? 0.2f * unit(random) : 0.0f;
            row.penalty = random() % 2 ? 0.8f + unit(random) : 1.0f;
            row.seed = random();
            batch.push_back(row);
        }
        const uint32_t seq = m.submit(batch, writes);
        EXPECT_EQ(weft_step_wait(m.e, seq), 0) << weft_last_error();
        if (::testing::Test::HasFailure()) return off;
        const std::vector<float> logits = m.logits();
        std::vector<uint32_t> token(m.rows);
        EXPECT_EQ(weft_step_tokens(m.e, seq, m.rows, token.data(), nullptr), 0);
        for (uint32_t r = 0; r < m.rows; r++, ++*chosen) {
            const float *have = logits.data() + (size_t)r * model.vocab();
            off += token[r] != expected_sample(batch[r], have, model.vocab(), held[r]);
            EXPECT_LT(token[r], model.vocab());
            held[r].push_back(token[r]);
        }
    }
    return off;
}

#endif
