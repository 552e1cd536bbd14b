// kinds_rig.h: images of a few of a decoder's ops, made by hand and run on a GPU and on an emulated device; for tests.
#ifndef WEFT_TESTS_KINDS_RIG_H
#define WEFT_TESTS_KINDS_RIG_H

#include "cuda.h"
#include "decode.h"

#include "../tasks/half.h"

#include <map>

inline bool fatal() { return testing::Test::HasFatalFailure(); }

struct Payload { // of a step
    std::vector<weft_step_row> rows;
    std::vector<weft_page_write> writes;
    uint32_t more_rows = 0, more_writes = 0; // said to be there, but not
    bool none = false;

    std::vector<uint8_t> bytes() const
    {
        if (none) return {};
        std::vector<uint8_t> out(WEFT_BATCH_BYTES(rows.size(), writes.size()));
        const uint32_t head[4] = {(uint32_t)rows.size() + more_rows, (uint32_t)writes.size() + more_writes, 0, 0};
        memcpy(out.data(), head, sizeof head);
        if (!rows.empty()) memcpy(&out[16], rows.data(), rows.size() * sizeof rows[0]);
        if (!writes.empty()) memcpy(&out[WEFT_BATCH_BYTES(rows.size(), 0)], writes.data(), writes.size() * 8);
        return out;
    }
};

template <class T> std::vector<uint8_t> bytes_of(const std::vector<T> &v)
{
    const auto *p = reinterpret_cast<const uint8_t *>(v.data());
    return {p, p + v.size() * sizeof(T)};
}
template <class T> std::vector<T> values_of(const std::vector<uint8_t> &bytes)
{
    std::vector<T> v(bytes.size() / sizeof(T));
    if (!v.empty()) memcpy(v.data(), bytes.data(), v.size() * sizeof(T));
    return v;
}

struct Rig { // ops of one device, one after another: the tasks of one wait for all tasks of the op before
    std::vector<weft_tensor> tensors;
    std::vector<weft_op> ops;
    std::vector<std::vector<weft_task>> tasks;
    std::string strings = std::string("rig\0", 4);
    std::map<std::string, std::vector<uint8_t>> data; // that the host writes; all else is poison, tables are zero
    uint64_t end = 0;

    uint32_t tensor(const std::string &name, uint32_t dtype, uint32_t rows, uint32_t cols,
                    uint32_t role = WEFT_ROLE_ACT, uint32_t layout = WEFT_LAYOUT_ROW)
    {
        weft_tensor t = {};
        t.name = (uint32_t)strings.size(), strings += name + '\0';
        t.dtype = (uint8_t)dtype, t.layout = (uint8_t)layout, t.role = (uint8_t)role;
        t.rows = rows, t.cols = cols, t.weight = WEFT_NONE, t.splits = 1, t.offset = end;
        t.bytes = weft_layout_bytes(layout, dtype, rows, cols, 1);
        end = weft_round_up64(end + t.bytes, 1024);
        tensors.push_back(t);
        return (uint32_t)tensors.size() - 1;
    }
    // The memory of `id` in words, for the host, which sees neither packets nor partial sums.
    void view(const std::string &name, uint32_t id, uint32_t dtype, uint32_t role)
    {
        const uint64_t whole = end, bytes = tensors[id].bytes, offset = tensors[id].offset;
        const uint32_t at = tensor(name, dtype, 1, (uint32_t)(bytes / 4), role);
        tensors[at].offset = offset, end = whole;
    }
    weft_op &op(uint32_t kind, uint32_t m, uint32_t n, uint32_t k)
    {
        weft_op o = {};
        o.kind = (uint8_t)kind, o.dtype = WEFT_BF16, o.m = m, o.n = n, o.k = k, o.m_tile = m;
        o.split_kb = o.n_split = 1, o.eps = 1e-5f;
        o.x = o.w = o.out = o.aux = o.scale = o.pk_x = o.pk_out = o.pk_aux = WEFT_NONE;
        o.partial = o.squares = o.cost = WEFT_NONE;
        ops.push_back(o), tasks.emplace_back();
        return ops.back();
    }
    void task(uint32_t a = 0, uint32_t b = 0, uint32_t c = 0, uint32_t d = 0) // of the last op
    {
        weft_task t = {};
        t.kind = ops.back().kind, t.alt_device = 0xff, t.op = (uint16_t)(ops.size() - 1), t.cost_ns = 1000;
        const uint32_t tile[4] = {a, b, c, d};
        memcpy(t.tile, tile, sizeof tile);
        tasks.back().push_back(t);
    }

    void make(Image &image) const
    {
        weft__image_counts c = {};
        c.devices = c.queues = 1, c.tensors = tensors.size(), c.ops = ops.size(), c.strings = strings.size();
        c.counters = ops.size() - 1;
        for (size_t o = 0; o < ops.size(); o++)
            c.tasks += tasks[o].size(), c.deps += o ? tasks[o].size() : 0;
        c.order = c.tasks;
        weft__image_writer w = {};
        ASSERT_EQ(weft__image_writer_init(&w, &c, 1, 1), 0) << weft__error();
        memcpy(w.strings, strings.data(), strings.size());
        memcpy(w.tensors, tensors.data(), tensors.size() * sizeof tensors[0]);
        memcpy(w.ops, ops.data(), ops.size() * sizeof ops[0]);
        w.devices[0].workers = 1, w.devices[0].n_op = (uint32_t)ops.size(), w.devices[0].work_bytes = end;
        w.queues[0].n_task = (uint32_t)c.tasks, w.queues[0].n_counter = (uint32_t)c.counters;
        w.queues[0].n_dep = (uint32_t)c.deps;
        uint32_t id = 0, dep = 0;
        for (size_t o = 0; o < ops.size(); o++) {
            if (o)
                w.counters[o - 1] = {(uint32_t)tasks[o - 1].size(), WEFT_SCOPE_GPU, 0, dep, (uint32_t)tasks[o].size()};
            for (weft_task t : tasks[o]) {
                if (o) {
                    t.n_wait = 1, t.wait[0] = {(uint32_t)o - 1, (uint16_t)tasks[o - 1].size(), 0, 0};
                    w.deps[dep++] = id;
                }
                if (o + 1 < ops.size()) t.n_signal = 1, t.signal[0] = {(uint32_t)o, 0, WEFT_SCOPE_GPU};
                w.order[id] = id, w.tasks[id++] = t;
            }
        }
        image.bytes = w.bytes, image.size = w.size;
        image.seal();
    }
};

struct Outcome { // what memory holds after the last step, and what each step chose
    std::map<std::string, std::vector<uint8_t>> tensors;
    std::vector<std::vector<uint32_t>> token;
    std::vector<std::vector<float>> logprob;
};

inline void read_all(const Rig &rig, const Engine &engine, const std::vector<uint32_t> &seqs, Outcome *out)
{
    for (uint32_t seq : seqs) {
        out->token.emplace_back(WEFT_MAX_ROWS), out->logprob.emplace_back(WEFT_MAX_ROWS);
        ASSERT_EQ(weft_step_tokens(engine.e, seq, WEFT_MAX_ROWS, out->token.back().data(), out->logprob.back().data()),
                  0)
            << weft_last_error();
    }
    for (const weft_tensor &t : rig.tensors) {
        if (t.role == WEFT_ROLE_PACKET || t.role == WEFT_ROLE_PARTIAL) continue;
        const std::string name = rig.strings.c_str() + t.name;
        std::vector<uint8_t> &v = out->tensors[name];
        v.resize((size_t)t.rows * t.cols * (t.dtype == WEFT_BF16 ? 2 : 4));
        ASSERT_EQ(weft_tensor_read(engine.e, name.c_str(), v.data(), v.size()), 0) << weft_last_error();
    }
}

// All steps (up to 15) are in flight at once.
inline void run(const Rig &rig, const std::string &spec, const char *queue, const std::vector<Payload> &steps,
                Outcome *out)
{
    Image image;
    Engine engine;
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.unchecked = 1, c.counter_base = 0xfffffffeu;
    rig.make(image);
    ASSERT_NE(image.bytes, nullptr);
    ASSERT_EQ(engine.start(image, spec, queue, c), 0) << weft_last_error();
    ASSERT_EQ(weft_engine_poison(engine.e, 0xff), 0);
    for (auto &[name, bytes] : rig.data)
        ASSERT_EQ(weft_tensor_write(engine.e, name.c_str(), bytes.data(), bytes.size()), 0) << weft_last_error();
    std::vector<uint32_t> seqs;
    for (const Payload &p : steps) {
        const std::vector<uint8_t> bytes = p.bytes();
        weft_step s = WEFT_STEP_INIT;
        s.payload = bytes.empty() ? nullptr : bytes.data(), s.payload_bytes = (uint32_t)bytes.size();
        seqs.emplace_back();
        ASSERT_EQ(weft_step_submit(engine.e, &s, &seqs.back()), 0) << weft_last_error();
    }
    ASSERT_EQ(weft_step_wait(engine.e, seqs.back()), 0) << weft_last_error();
    read_all(rig, engine, seqs, out);
}

struct Pair { // the same on both backends
    Outcome have, want;
    Pair(const Rig &rig, const std::vector<Payload> &steps, const char *queue = "static")
    {
        run(rig, "cpu:1x1", "static", steps, &want);
        if (!fatal()) run(rig, on("cuda:0"), queue, steps, &have);
    }
    void same(const std::string &name) const
    {
        const std::vector<uint8_t> &h = have.tensors.at(name), &w = want.tensors.at(name);
        size_t off = 0, first = 0;
        for (size_t i = h.size(); i-- > 0;)
            if (h[i] != w[i]) off++, first = i;
        EXPECT_EQ(off, 0u) << "bytes of " << name << " differ, the first at " << first;
    }
    // bf16: what differs at all is a rare rounding; what one left as poison the other did too.
    void close(const std::string &name, double allowed, double share) const
    {
        const auto h = values_of<uint16_t>(have.tensors.at(name)), w = values_of<uint16_t>(want.tensors.at(name));
        size_t off = 0, n = 0, far = 0, first = 0;
        for (size_t i = h.size(); i-- > 0;) {
            n += w[i] != 0xffff;
            if (h[i] == w[i]) continue;
            off++;
            const double gap = std::fabs((double)weft_bf16_to_f32(h[i]) - weft_bf16_to_f32(w[i]));
            if (!(gap <= allowed)) far++, first = i;
        }
        EXPECT_GT(n, 0u) << name << " was not written";
        EXPECT_EQ(far, 0u) << "elements of " << name << " are off by more than " << allowed << ", the first at "
                           << first;
        EXPECT_LE((double)off, 2 + share * (double)n) << "elements of " << name << " differ, of " << n;
    }
};
#define RUN_PAIR(p, ...)                                                                                               \
    Pair p(__VA_ARGS__);                                                                                               \
    if (fatal()) return

inline std::vector<uint16_t> random_bf16(size_t n, uint64_t seed, float scale)
{
    std::vector<uint16_t> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = weft_f32_to_bf16(weft_seeded(seed, (uint32_t)i, 0, scale));
    return v;
}

inline uint32_t below(uint32_t n, uint64_t seed, uint32_t i) { return weft_hash(seed, i, 9) % n; }

#endif
