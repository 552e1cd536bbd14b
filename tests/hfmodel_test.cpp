// hfmodel: a model directory gives the planner its shapes and the packing its values; what doesn't fit is refused by name.
#include "../host/error.h"
#include "../host/hfmodel.h"

#include "files.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace
{

const std::string config = R"({"hidden_size":8,"intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":1,)"
                           R"("vocab_size":10,"rms_norm_eps":0.001})";

using Shapes = std::map<std::string, std::pair<uint32_t, uint32_t>>; // rows 0: a vector

Shapes mlp_shapes(const std::string &prefix)
{
    Shapes s;
    for (int i = 0; i < 2; i++) {
        std::string layer = prefix + "layers." + std::to_string(i) + ".";
        s[layer + "mlp.gate_proj.weight"] = {24, 8};
        s[layer + "mlp.up_proj.weight"] = {24, 8};
        s[layer + "mlp.down_proj.weight"] = {8, 24};
        s[layer + "post_attention_layernorm.weight"] = {0, 8};
    }
    return s;
}

// A file of F32 tensors; value i of a tensor is i.
std::string safetensors(const Shapes &shapes)
{
    std::string header = "{", data;
    for (const auto &[name, shape] : shapes) {
        size_t n = size_t(shape.first ? shape.first : 1) * shape.second, begin = data.size();
        for (size_t i = 0; i < n; i++) {
            float v = float(i);
            data.append(reinterpret_cast<const char *>(&v), 4);
        }
        header += (begin ? ",\"" : "\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" +
                  (shape.first ? std::to_string(shape.first) + "," : "") + std::to_string(shape.second) +
                  "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; i++)
        bytes[i] = char(header.size() >> (8 * i));
    return bytes + header + data;
}

TEST(HfModel, ShapesAndValues)
{
    for (const std::string prefix : {"model.", ""}) {
        Folder dir;
        dir.write("config.json", config);
        dir.write("model.safetensors", safetensors(mlp_shapes(prefix)));
        weft__hfmodel m;
        weft__model desc;
        ASSERT_EQ(weft__hfmodel_open(dir.path.c_str(), &m), 0) << weft__error();
        ASSERT_EQ(weft__hfmodel_mlp(&m, 0, &desc), 0) << weft__error();
        EXPECT_EQ(desc.hidden, 8u);
        EXPECT_EQ(desc.intermediate, 24u);
        EXPECT_EQ(desc.layers, 2u);
        EXPECT_EQ(desc.eps, 0.001f);
        EXPECT_EQ(desc.prefix, prefix);
        weft__weight_reader r = weft__hfmodel_reader(&m);
        uint32_t rows, cols;
        std::string name = prefix + "layers.1.mlp.down_proj.weight";
        ASSERT_EQ(r.shape(r.user, name.c_str(), &rows, &cols), 0);
        EXPECT_EQ(rows, 8u);
        EXPECT_EQ(cols, 24u);
        std::vector<float> values(48);
        ASSERT_EQ(r.rows(r.user, name.c_str(), 2, 2, values.data()), 0);
        for (int i = 0; i < 48; i++)
            EXPECT_EQ(values[i], 48 + i);
        EXPECT_NE(r.rows(r.user, name.c_str(), 7, 2, values.data()), 0);
        EXPECT_NE(r.shape(r.user, "nothing", &rows, &cols), 0);
        EXPECT_EQ(weft__hfmodel_mlp(&m, 3, &desc), WEFT_EUSAGE);
        weft__hfmodel_close(&m);
    }
}

void expect_refused(const Shapes &shapes, const std::string &message)
{
    Folder dir;
    dir.write("config.json", config);
    dir.write("model.safetensors", safetensors(shapes));
    weft__hfmodel m;
    weft__model desc;
    ASSERT_EQ(weft__hfmodel_open(dir.path.c_str(), &m), 0) << weft__error();
    EXPECT_EQ(weft__hfmodel_mlp(&m, 0, &desc), WEFT_EFILE);
    EXPECT_NE(std::string(weft__error()).find(message), std::string::npos) << weft__error();
    weft__hfmodel_close(&m);
}

TEST(HfModel, RefusesMissingTensorsAndOtherShapes)
{
    Shapes s = mlp_shapes("model.");
    s.erase("model.layers.1.mlp.up_proj.weight");
    expect_refused(s, "no tensor model.layers.1.mlp.up_proj.weight");
    s = mlp_shapes("model.");
    s["model.layers.0.mlp.down_proj.weight"] = {24, 8};
    expect_refused(s, "model.layers.0.mlp.down_proj.weight: shape 24 x 8, but config.json says 8 x 24");
    s = mlp_shapes("model.");
    s["model.layers.0.post_attention_layernorm.weight"] = {0, 9};
    expect_refused(s, "model.layers.0.post_attention_layernorm.weight");
}

TEST(HfModel, TheCommandRunsIt)
{
    Folder dir;
    dir.write("config.json", config);
    dir.write("model.safetensors", safetensors(mlp_shapes("model.")));
    Output out = run_command(WEFT_BINARY " run --model " + dir.path +
                             " --batch 3 --devices cpu:2x1 --strategy cta --steps 2 --check");
    EXPECT_EQ(out.exit, 0) << out.text;
}

} // namespace
