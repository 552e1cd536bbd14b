// generate: `weft generate` on a tiny model: the same text however the work is spread; what is wrong is said.
#include "../host/chat.h"
#include "../host/error.h"

#include "tiny_model.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <vector>

namespace
{

const char *const tokenizers = WEFT_SOURCE_DIR "/tests/tokenizers/";

std::string config_text(uint32_t vocab, const char *type = "llama")
{
    return "{\"model_type\":\"" + std::string(type) +
           "\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
           "\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":" +
           std::to_string(vocab) +
           ",\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}";
}

struct Model {
    Folder dir;
    weft__tok *tok = nullptr;
    explicit Model(const std::string &tokenizer = "llama3.json")
    {
        EXPECT_EQ(weft__tok_read((tokenizers + tokenizer).c_str(), &tok), 0) << weft__error();
        EXPECT_EQ(write_tiny_model(dir, config_text(weft__tok_size(tok))), 0) << weft__error();
        dir.write("tokenizer.json", read_file(tokenizers + tokenizer));
    }
    ~Model() { weft__tok_free(tok); }
};

Output generate(const Model &m, const std::string &args)
{
    return run_command(std::string(WEFT_BINARY) + " generate --model " + m.dir.path + " " + args);
}

std::string field(const Output &out, const char *name)
{
    json_t *root = json_loads(out.text.c_str(), 0, nullptr), *v = json_object_get(root, name);
    std::string text = json_is_string(v) ? json_string_value(v) : v ? std::to_string(json_integer_value(v)) : "none";
    json_decref(root);
    return text;
}

TEST(Generate, TheSameTextHoweverTheWorkIsSpread)
{
    Model m;
    const std::string base = "--prompt 'hello, world: one two three' --json --ignore-stop --max-tokens 70 ";
    const Output first = generate(m, base + "--devices cpu:1x1 --rows 1 --ahead 1");
    ASSERT_EQ(first.exit, 0) << first.text;
    EXPECT_EQ(field(first, "tokens"), "70");
    EXPECT_EQ(field(first, "ended"), "length");
    for (const char *how : {"--devices cpu:1x2 --rows 1", "--devices cpu:1x3 --rows 1 --queue push --ahead 9",
                            "--devices cpu:1x2 --rows 1 --queue steal --ahead 14"}) {
        const Output out = generate(m, base + how);
        ASSERT_EQ(out.exit, 0) << out.text;
        EXPECT_EQ(field(out, "text"), field(first, "text")) << how;
    }
    const Output rows = generate(m, base + "--devices cpu:2x1 --strategy cta --rows 5");
    ASSERT_EQ(rows.exit, 0) << rows.text;
    EXPECT_EQ(field(rows, "tokens"), "70");
}

TEST(Generate, StopsAtAStopTokenAndAtTheEndOfTheContext)
{
    Model m;
    const std::string base = "--prompt 'a b c' --json --temperature 3 --max-tokens 60 --devices cpu:1x2 ";
    const Output all = generate(m, base);
    ASSERT_EQ(all.exit, 0) << all.text;
    json_t *root = json_loads(all.text.c_str(), 0, nullptr), *ids = json_object_get(root, "token_ids");
    ASSERT_EQ(json_array_size(ids), 60u) << all.text;
    const json_int_t stop = json_integer_value(json_array_get(ids, 20));
    size_t first = 0;
    while (json_integer_value(json_array_get(ids, first)) != stop)
        first++;
    json_decref(root);
    m.dir.write("generation_config.json", "{\"eos_token_id\":[604," + std::to_string(stop) + "]}");
    const Output some = generate(m, base);
    ASSERT_EQ(some.exit, 0) << some.text;
    EXPECT_EQ(field(some, "ended"), "stop");
    EXPECT_EQ(field(some, "tokens"), std::to_string(first + 1));
    const Output full = generate(
        m, "--prompt 'a b c' --json --ignore-stop --context 20 --max-tokens 200 --devices cpu:1x2");
    ASSERT_EQ(full.exit, 0) << full.text;
    EXPECT_EQ(field(full, "ended"), "context");
    EXPECT_EQ(std::stoi(field(full, "tokens")) + std::stoi(field(full, "prompt_tokens")), 20);
}

TEST(Generate, WhatIsWrongIsSaid)
{
    Model m;
    EXPECT_EQ(run_command(std::string(WEFT_BINARY) + " generate --prompt x").exit, 2);
    EXPECT_EQ(generate(m, "").exit, 2);
    EXPECT_EQ(generate(m, "--prompt x --prompt-file y").exit, 2);
    EXPECT_EQ(generate(m, "--prompt-file " + m.dir.path + "/nothing").exit, 5);
    const Output longer = generate(m, "--prompt 'a b c d e f g h' --context 3");
    EXPECT_EQ(longer.exit, 2);
    EXPECT_NE(longer.text.find("context"), std::string::npos) << longer.text;
    m.dir.write("config.json", config_text(100000));
    EXPECT_EQ(generate(m, "--prompt x").exit, 5);
    m.dir.write("tokenizer.json", "{");
    EXPECT_EQ(generate(m, "--prompt x").exit, 5);
}

TEST(Generate, TemplatesOfTheFamilies)
{
    weft__tokens ids = {};
    uint32_t stop = 0;
    Model qwen("qwen.json");
    ASSERT_EQ(weft__chat_encode(qwen.tok, "qwen2", "S", "U", &ids, &stop), 0) << weft__error();
    EXPECT_EQ(stop, weft__tok_id(qwen.tok, "<|im_end|>"));
    weft__text text = {};
    weft__tok_stream stream = {};
    for (size_t i = 0; i < ids.n; i++)
        ASSERT_EQ(weft__tok_put(qwen.tok, &stream, ids.id[i], 0, &text), 0);
    EXPECT_STREQ(text.at, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
    free(text.at);
    free(ids.id);
}

} // namespace
