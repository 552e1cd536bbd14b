// cuda.h: what the tests of GPUs share. They run through weft.h only, so WEFT_TEST_DEVICES=cpu runs them on emulated
// devices instead, and checks the tests themselves. Without a GPU they skip, and say why.
#ifndef WEFT_TESTS_CUDA_H
#define WEFT_TESTS_CUDA_H

#include "../host/error.h"
#include "../host/plan.h"
#include "../host/reference.h"
#include "../runtime/weft.h"
#include "../tasks/seed.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

// "cuda:0/4", or as many emulated devices of two threads.
inline std::string on(const std::string &spec)
{
    const char *instead = getenv("WEFT_TEST_DEVICES");
    if (!instead || strcmp(instead, "cpu") != 0) return spec;
    size_t slash = spec.find('/');
    return "cpu:" + (slash == std::string::npos ? "1" : spec.substr(slash + 1)) + "x2";
}
inline bool emulated() { return on("cuda:0") != "cuda:0"; }

// "" if the spec opens.
inline std::string why_not(const std::string &spec)
{
    uint32_t n;
    return weft_devices(spec.c_str(), nullptr, 0, &n) ? weft_last_error() : "";
}
#define SKIP_WITHOUT(spec)                                                                                             \
    if (std::string why_skipped = why_not(spec); !why_skipped.empty()) GTEST_SKIP() << why_skipped

// Queue policies that the CUDA kernel runs.
const char *const gpu_policies[] = {"static", "fifo", "push", "steal", "priority"};
const size_t n_gpu_policies = sizeof gpu_policies / sizeof gpu_policies[0];

struct Graph {
    weft__graph *g = nullptr;
    Graph() = default;
    Graph(const Graph &) = delete;
    ~Graph() { weft__graph_free(g); }
};

struct Image {
    void *bytes = nullptr;
    uint64_t size = 0;
    Image() = default;
    Image(const Image &) = delete;
    ~Image() { free(bytes); }
    // Plans for the devices of `spec`; the other options as given. A status.
    int plan(const weft__graph *g, const std::string &spec, weft__plan_options o = weft__plan_defaults())
    {
        weft_device_info info[WEFT_MAX_DEVICES];
        int status = weft_devices(spec.c_str(), info, WEFT_MAX_DEVICES, &o.n_device);
        for (uint32_t d = 0; d < o.n_device && !status; d++)
            o.workers[d] = info[d].workers;
        return status ? status : weft__plan(g, &o, &bytes, &size, nullptr);
    }
    weft_image_header *header() const { return static_cast<weft_image_header *>(bytes); }
    template <class T> T *section(const weft_section &s) const
    {
        return reinterpret_cast<T *>(static_cast<uint8_t *>(bytes) + s.offset);
    }
    void seal() const { weft__image_seal(bytes, size); }
};

struct Engine {
    weft_engine *e = nullptr;
    Engine() = default;
    Engine(const Engine &) = delete;
    ~Engine() { weft_engine_destroy(e); }
    int start(const Image &image, const std::string &spec, const char *queue = "static",
              weft_engine_config c = WEFT_ENGINE_CONFIG_INIT)
    {
        weft_engine_destroy(e);
        e = nullptr;
        c.devices = spec.c_str(), c.queue = queue;
        if (!c.deadline_us) c.deadline_us = 20000000;
        return weft_engine_create(image.bytes, image.size, &c, &e);
    }
    int step() const
    {
        weft_step s = WEFT_STEP_INIT;
        uint32_t seq;
        int status = weft_step_submit(e, &s, &seq);
        return status ? status : weft_step_wait(e, seq);
    }
};

inline std::vector<float> random_rows(uint32_t rows, uint32_t cols, uint64_t seed)
{
    std::vector<float> x;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++)
            x.push_back(weft_seeded(seed, r, c, 1.0f));
    return x;
}

// A step on poisoned memory, then each tensor that an op stored against float64, from the inputs that the run itself stored;
// the worst relative error, or a status below zero. Tensors that no device holds whole (tp) are left out, but for "out".
inline double check_step(const Engine &engine, const weft__graph *g, const std::vector<float> &x,
                         std::vector<float> *out)
{
    uint32_t rows = 0;
    for (uint32_t t = 0; t < g->n_tensor; t++)
        if (g->tensors[t].role == WEFT_ROLE_INPUT) rows = g->tensors[t].rows;
    int status = weft_engine_poison(engine.e, 0xff);
    if (!status) status = weft_tensor_write_f32(engine.e, "x", x.data(), x.size());
    if (!status) status = engine.step();
    if (status) return status;
    std::vector<weft__observed> seen(g->n_tensor);
    std::vector<std::vector<float>> values(g->n_tensor);
    for (uint32_t o = 0; o < g->n_op; o++) {
        const weft__gtensor &t = g->tensors[g->ops[o].out];
        weft_tensor_info info = {};
        info.size = sizeof info;
        status = weft_tensor_get_info(engine.e, t.name, &info);
        bool whole = !status && info.rows == t.rows && info.cols == t.cols;
        if (!whole && t.role != WEFT_ROLE_OUTPUT) continue;
        std::vector<float> &v = values[g->ops[o].out];
        v.resize((size_t)t.rows * t.cols);
        if (!status) status = weft_tensor_read_f32(engine.e, t.name, v.data(), v.size());
        if (status) return status;
        seen[g->ops[o].out].got = v.data();
        if (t.role == WEFT_ROLE_OUTPUT && out) *out = v;
    }
    status = weft__reference_rows(g, nullptr, x.data(), rows, seen.data(), nullptr);
    if (status) return status;
    double worst = 0;
    for (const weft__observed &o : seen) {
        if (!o.got) continue;
        double here = std::sqrt(o.norm > 0 ? o.difference / o.norm : o.difference);
        if (!(here <= worst)) worst = here; // NaN too
    }
    return worst;
}

#endif
