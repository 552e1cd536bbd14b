// tiny_model.h: model directories of any Llama-family config, small and the same everywhere, for tests.
#ifndef WEFT_TESTS_TINY_MODEL_H
#define WEFT_TESTS_TINY_MODEL_H

#include "../host/hfmodel.h"

#include "files.h"

#include <algorithm>
#include <cstring>

// As in decoder_expected.py.
inline float tiny_value(const std::string &name, uint64_t i)
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

inline Tensors weights_of(const weft__config &c, const std::string &without)
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

// config.json and model.safetensors, without one tensor if it is named.
inline int write_tiny_model(const Folder &dir, const std::string &config, const std::string &without = "")
{
    weft__config c;
    int status = weft__config_parse(config.data(), config.size(), "config", &c);
    if (status) return status;
    dir.write("config.json", config);
    dir.write("model.safetensors", weights_of(c, without).file());
    return 0;
}

#endif
