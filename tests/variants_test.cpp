/* Images of several variants: steps that change between them, and tickets that workers keep from one use to the next.
 * The image is two random graphs side by side: variant 0 works in the lower part of each work arena, variant 1 above.     */
#include "dag.h"

#include "../host/image.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace
{

struct Graph {
    dag_case c;
    weft__graph *g = nullptr;
    void *bytes = nullptr;
    uint64_t size = 0;
    weft__image img{};
    std::vector<uint32_t> want;
    Graph(uint64_t seed, uint32_t n_device)
    {
        dag_limits l = {};
        l.max_tasks = 60;
        c = dag_make(seed, &l);
        c.n_device = n_device;
        EXPECT_EQ(dag_graph(&c, &g), 0) << weft__error();
        EXPECT_EQ(dag_image(&c, g, &bytes, &size), 0) << weft__error();
        EXPECT_EQ(weft__image_open(bytes, size, "variant", &img), 0) << weft__error();
        want.resize(c.n_task);
        EXPECT_EQ(weft__graph_mix_values(g, want.data()), 0);
    }
    Graph(const Graph &) = delete;
    ~Graph()
    {
        free(bytes);
        weft__graph_free(g);
    }
};

template <class T> void join(T *to, const T *a, uint64_t n_a, const T *b, uint64_t n_b)
{
    std::copy(a, a + n_a, to);
    std::copy(b, b + n_b, to + n_a);
}

/* A MIX task's args: inputs and outputs lie higher in variant 1. */
void shift_args(uint32_t *arg, const std::vector<uint32_t> &words, uint32_t device)
{
    arg++;
    for (uint32_t n = *arg++; n > 0; n--)
        *arg++ += words[device];
    for (uint32_t n = *arg++; n > 0; n--, arg += 2)
        arg[1] += words[arg[0]];
}

void shift_tensors(weft_op &op, uint64_t by)
{
    for (uint32_t *t : {&op.x, &op.w, &op.out, &op.aux, &op.scale, &op.pk_x, &op.pk_out, &op.pk_aux, &op.partial})
        if (*t != WEFT_NONE) *t += (uint32_t)by;
    op.name = WEFT_NONE; /* an offset in the other image's strings */
}

void merge(const Graph &a, const Graph &b, void **bytes, uint64_t *size)
{
    const weft_image_header *x = a.img.header, *y = b.img.header;
    uint32_t n = a.img.n_device;
    std::string strings(a.img.strings, x->strings.count);
    uint32_t upper = (uint32_t)strings.size();
    strings += std::string("upper") + '\0';
    weft__image_counts k = {n,
                            2 * n,
                            x->tensors.count + y->tensors.count,
                            0,
                            x->ops.count + y->ops.count,
                            x->tasks.count + y->tasks.count,
                            x->order.count + y->order.count,
                            x->side.count + y->side.count,
                            x->counters.count + y->counters.count,
                            x->deps.count + y->deps.count,
                            x->args.count + y->args.count,
                            0,
                            strings.size()};
    weft__image_writer w;
    ASSERT_EQ(weft__image_writer_init(&w, &k, n, 2), 0) << weft__error();
    w.header->policies = x->policies & y->policies;
    w.header->strategy = x->strategy;
    join(w.tensors, a.img.tensors, x->tensors.count, b.img.tensors, y->tensors.count);
    join(w.tasks, a.img.tasks, x->tasks.count, b.img.tasks, y->tasks.count);
    join(w.order, a.img.order, x->order.count, b.img.order, y->order.count);
    join(w.side, a.img.side, x->side.count, b.img.side, y->side.count);
    join(w.counters, a.img.counters, x->counters.count, b.img.counters, y->counters.count);
    join(w.deps, a.img.deps, x->deps.count, b.img.deps, y->deps.count);
    join(w.args, a.img.args, x->args.count, b.img.args, y->args.count);
    std::copy(strings.begin(), strings.end(), w.strings);
    std::vector<uint32_t> words;
    for (uint32_t d = 0, op = 0; d < n; d++) {
        uint64_t low = (a.img.devices[d].work_bytes + 1023) / 1024 * 1024;
        words.push_back((uint32_t)(low / 4));
        w.devices[d] = a.img.devices[d];
        w.devices[d].work_bytes = low + b.img.devices[d].work_bytes;
        const weft_image_device &low_device = a.img.devices[d], &high_device = b.img.devices[d];
        join(w.ops + op, a.img.ops + low_device.op, low_device.n_op, b.img.ops + high_device.op, high_device.n_op);
        for (uint32_t i = low_device.n_op; i < low_device.n_op + high_device.n_op; i++)
            shift_tensors(w.ops[op + i], x->tensors.count);
        w.devices[d].op = op;
        w.devices[d].n_op = low_device.n_op + high_device.n_op;
        op += w.devices[d].n_op;
        w.queues[d] = a.img.queues[d];
        weft_image_queue q = b.img.queues[d];
        q.task += (uint32_t)x->tasks.count, q.order += (uint32_t)x->order.count, q.side += (uint32_t)x->side.count;
        q.counter += (uint32_t)x->counters.count, q.dep += (uint32_t)x->deps.count, q.arg += (uint32_t)x->args.count;
        w.queues[n + d] = q;
    }
    for (uint64_t i = x->tensors.count; i < k.tensors; i++) {
        w.tensors[i].offset += words[w.tensors[i].device] * 4ull;
        w.tensors[i].name = upper;
    }
    for (uint32_t d = 0; d < n; d++)
        for (uint32_t i = 0; i < w.queues[n + d].n_task; i++) {
            weft_task &t = w.tasks[w.queues[n + d].task + i];
            t.op = (uint16_t)(t.op + a.img.devices[d].n_op);
            shift_args(w.args + w.queues[n + d].arg + t.tile[0], words, d);
        }
    weft__image_seal(w.bytes, w.size);
    *bytes = w.bytes;
    *size = w.size;
}

void check(weft_engine *e, const char *name, const Graph &g, const char *what)
{
    std::vector<uint32_t> got(g.want.size());
    ASSERT_EQ(weft_tensor_read(e, name, got.data(), got.size() * 4), 0) << weft__error();
    EXPECT_EQ(got, g.want) << name << " under " << what;
}

TEST(Variants, StepsChangeBetweenThem)
{
    std::mt19937 rng(3);
    for (uint32_t round = 0; round < 6; round++) {
        Graph a(100 + round, 3), b(200 + round, 3);
        void *bytes = nullptr;
        uint64_t size = 0;
        merge(a, b, &bytes, &size);
        ASSERT_NE(bytes, nullptr);
        for (uint32_t policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
            weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
            c.devices = "cpu:3x2", c.queue = dag_policy_name(policy), c.counter_base = 0xffffffe0u,
            c.deadline_us = 10000000;
            weft_engine *e;
            ASSERT_EQ(weft_engine_create(bytes, size, &c, &e), 0) << weft__error();
            for (uint32_t burst = 0; burst < 8; burst++) {
                uint32_t seq = 0, ran = 0;
                ASSERT_EQ(weft_engine_poison(e, (uint8_t)burst), 0);
                for (uint32_t i = 0, n = 1 + (uint32_t)(rng() % 12); i < n; i++) {
                    weft_step s = WEFT_STEP_INIT;
                    s.variant = (uint32_t)(rng() % 2);
                    ran |= 1u << s.variant;
                    ASSERT_EQ(weft_step_submit(e, &s, &seq), 0) << weft__error();
                }
                ASSERT_EQ(weft_step_wait(e, seq), 0) << weft__error();
                if (ran & 1) check(e, "out", a, c.queue);
                if (ran & 2) check(e, "upper", b, c.queue);
            }
            weft_engine_destroy(e);
        }
        free(bytes);
    }
}

} // namespace
