// plans.h: plans made in one line, and views of their bytes that a test may change, for tests of the planner.
#ifndef WEFT_TESTS_PLANS_H
#define WEFT_TESTS_PLANS_H

#include "../host/error.h"
#include "../host/image.h"
#include "../host/plan.h"
#include "../host/validate.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_SANITIZED 1
#endif
#endif

struct Work { // what is computed
    std::vector<uint32_t> chain = {200, 333, 200};
    bool mlp = false; // chain[0] x chain[1] blocks
    bool separate_norm = false;
    uint32_t layers = 2, m = 1, dtype = WEFT_BF16, epilogue = WEFT_EPI_NONE;
};

inline weft__graph *make_graph(const Work &w)
{
    weft__graph *g = nullptr;
    int rc;
    if (w.mlp) {
        weft__model model = {};
        model.hidden = w.chain[0];
        model.intermediate = w.chain[1];
        model.layers = w.layers;
        model.eps = 1e-5f;
        model.dtype = w.dtype;
        model.separate_norm = w.separate_norm;
        rc = weft__graph_mlp(&model, w.m, &g);
    } else {
        weft__chain c = {};
        c.widths = w.chain.data();
        c.n_width = (uint32_t)w.chain.size();
        c.repeat = w.layers;
        c.m = w.m;
        c.dtype = w.dtype;
        c.epilogue = w.epilogue;
        rc = weft__graph_chain(&c, &g);
    }
    EXPECT_EQ(rc, 0) << weft__error();
    return g;
}

inline weft__plan_options on(uint32_t devices, uint32_t strategy = WEFT__SINGLE, uint32_t workers = 2)
{
    weft__plan_options o = weft__plan_defaults();
    o.n_device = devices;
    for (uint32_t d = 0; d < devices; d++)
        o.workers[d] = workers;
    o.strategy = strategy;
    o.tp = devices % 2 ? 1 : 2;
    return o;
}

struct Plan { // the bytes of an image, and a view of them
    void *bytes = nullptr;
    uint64_t size = 0;
    int rc = 0;
    weft__plan_stats stats = {};
    weft__image img = {};

    Plan(const weft__graph *g, const weft__plan_options &o) { make(g, o); }
    Plan(const Work &w, const weft__plan_options &o)
    {
        weft__graph *g = make_graph(w);
        make(g, o);
        weft__graph_free(g);
    }
    Plan(const Plan &) = delete;
    ~Plan() { free(bytes); }

    // Arrays of the image as something to spoil. seal() afterwards, or the hash gives it away.
    weft_image_header *header() { return (weft_image_header *)bytes; }
    weft_task *task(uint32_t device, uint32_t id) { return change(img.tasks) + queue(device).task + id; }
    weft_counter *counter(uint32_t device, uint32_t id) { return change(img.counters) + queue(device).counter + id; }
    uint32_t *order(uint32_t device) { return change(img.order) + queue(device).order; }
    uint32_t *deps(uint32_t device) { return change(img.deps) + queue(device).dep; }
    weft_op *op(uint32_t id) { return change(img.ops) + id; }
    weft_tensor *tensor(uint32_t id) { return change(img.tensors) + id; }
    const weft_image_queue &queue(uint32_t device) const { return *weft__image_queue_of(&img, 0, device); }
    void seal() { weft__image_seal(bytes, size); }

    // Opens and validates the bytes as they are now.
    int check(uint32_t *proven = nullptr)
    {
        seal();
        weft__image view;
        int status = weft__image_open(bytes, size, "spoilt", &view);
        return status ? status : weft__validate(&view, proven);
    }

  private:
    template <class T> static T *change(const T *p) { return const_cast<T *>(p); }
    void make(const weft__graph *g, const weft__plan_options &o)
    {
        rc = weft__plan(g, &o, &bytes, &size, &stats);
        if (rc) return;
        EXPECT_EQ(weft__image_open(bytes, size, "plan", &img), 0) << weft__error();
    }
};

inline bool says(const char *part) { return strstr(weft__error(), part) != nullptr; }

#endif
