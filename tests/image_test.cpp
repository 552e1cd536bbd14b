// image: bytes that are no image, or whose indices point elsewhere, are refused with section, index and field.
#include "files.h"
#include "plans.h"

#include <memory>
#include <random>

namespace
{

struct Spoilt {
    const char *says; // part of the message
    std::function<void(Plan &)> spoil;
};

TEST(Image, EveryIndexIsChecked)
{
    const std::vector<Spoilt> cases = {
        {"header.magic", [](Plan &p) { p.header()->magic++; }},
        {"header.version", [](Plan &p) { p.header()->version = 99; }},
        {"header.header_bytes", [](Plan &p) { p.header()->header_bytes = 8; }},
        {"header.n_device", [](Plan &p) { p.header()->n_device = 0; }},
        {"header.n_device", [](Plan &p) { p.header()->n_device = 65; }},
        {"header.n_variant", [](Plan &p) { p.header()->n_variant = 17; }},
        {"header.policies", [](Plan &p) { p.header()->policies = 1u << WEFT_POLICY_COUNT; }},
        {"header.strategy", [](Plan &p) { p.header()->strategy = 1u << 30; }},
        {"header.tasks", [](Plan &p) { p.header()->tasks.count = UINT64_MAX / 32; }},
        {"header.tasks", [](Plan &p) { p.header()->tasks.offset += 16; }},
        {"header.tensors", [](Plan &p) { p.header()->queues.count--; }},
        {"devices[1].workers", [](Plan &p) { const_cast<weft_image_device *>(p.img.devices)[1].workers = 0; }},
        {"devices[1].op", [](Plan &p) { const_cast<weft_image_device *>(p.img.devices)[1].op++; }},
        {"devices[0].work_bytes",
         [](Plan &p) { const_cast<weft_image_device *>(p.img.devices)[0].work_bytes = 1ull << 60; }},
        {"queues[1].task", [](Plan &p) { const_cast<weft_image_queue *>(p.img.queues)[1].task++; }},
        {"queues[1].side", [](Plan &p) { const_cast<weft_image_queue *>(p.img.queues)[1].n_side = 1000; }},
        {"tensors[0].name", [](Plan &p) { p.tensor(0)->name = 1u << 30; }},
        {"tensors[0].device", [](Plan &p) { p.tensor(0)->device = 2; }},
        {"tensors[0].dtype", [](Plan &p) { p.tensor(0)->dtype = 77; }},
        {"tensors[0].layout", [](Plan &p) { p.tensor(0)->layout = 77; }},
        {"tensors[0].role", [](Plan &p) { p.tensor(0)->role = 77; }},
        {"tensors[0].rows", [](Plan &p) { p.tensor(0)->rows = 0; }},
        {"tensors[0].rows", [](Plan &p) { p.tensor(0)->rows = p.tensor(0)->cols = UINT32_MAX; }},
        {"tensors[0].bytes", [](Plan &p) { p.tensor(0)->bytes++; }},
        {"tensors[0].offset", [](Plan &p) { p.tensor(0)->offset = 1; }},
        {"tensors[0].offset", [](Plan &p) { p.tensor(0)->offset = UINT64_MAX - 1023; }},
        {"weights[0].fill", [](Plan &p) { const_cast<weft_weight *>(p.img.weights)[0].fill = 9; }},
        {"weights[0].a", [](Plan &p) { const_cast<weft_weight *>(p.img.weights)[0].fill = WEFT_FILL_MODEL; }},
        {"weights[0].scale", [](Plan &p) { const_cast<weft_weight *>(p.img.weights)[0].scale = 1.0f / 0.0f; }},
        {"weights[0].row0", [](Plan &p) { const_cast<weft_weight *>(p.img.weights)[0].row0 = 1; }},
        {"ops[0].kind", [](Plan &p) { p.op(0)->kind = 99; }},
        {"ops[0].x", [](Plan &p) { p.op(0)->x = 1u << 20; }},
        {"ops[0].w", [](Plan &p) { p.op(0)->w = p.op(0)->x; }},
        {"ops[0].out", [](Plan &p) { p.op(0)->out = WEFT_NONE; }},
        {"ops[0].n_split", [](Plan &p) { p.op(0)->n_split = 3; }},
        {"ops[0].m_tile", [](Plan &p) { p.op(0)->m_tile = 12; }},
        {"ops[0].flags", [](Plan &p) { p.op(0)->flags = 1u << 20; }},
        {"ops[0].epilogue", [](Plan &p) { p.op(0)->epilogue = 9; }},
        {"ops[0].device", [](Plan &p) { p.op(0)->device = 1; }},
        {"ops[0].k", [](Plan &p) { p.op(0)->k = 0; }},
        {"tasks[0].kind", [](Plan &p) { p.task(0, 0)->kind = 99; }},
        {"tasks[0].kind", [](Plan &p) { p.task(0, 0)->kind = WEFT_KIND_NOP; }},
        {"tasks[0].op", [](Plan &p) { p.task(0, 0)->op = 999; }},
        {"tasks[0].alt_device", [](Plan &p) { p.task(0, 0)->alt_device = 7; }},
        {"tasks[0].extra", [](Plan &p) { p.task(0, 0)->n_signal = 3; }},
        {"tasks[0].signal.counter", [](Plan &p) { p.task(0, 0)->signal[0].counter = 1u << 20; }},
        {"tasks[0].signal.device", [](Plan &p) { p.task(0, 0)->signal[0].device = 2; }},
        {"tasks[0].signal.scope", [](Plan &p) { p.task(0, 0)->signal[0].scope ^= 1; }},
        {"].wait.counter", [](Plan &p) { p.task(1, 0)->wait[0].counter = 1u << 20; }},
        {"].wait.lag", [](Plan &p) { p.task(1, 0)->wait[0].lag = 2; }},
        {"].wait.arrivals", [](Plan &p) { p.task(1, 0)->wait[0].arrivals++; }},
        {"tasks[0].tile[0]", [](Plan &p) { p.task(0, 0)->tile[0] = 4; }},
        {"tasks[0].tile[1]", [](Plan &p) { p.task(0, 0)->tile[1] = 1000; }},
        {"tasks[0].tile[2]", [](Plan &p) { p.task(0, 0)->tile[2] = 0; }},
        {"tasks[0].tile[2]", [](Plan &p) { p.task(0, 0)->tile[2] = 9; }},
        {"tasks[0].tile[3]", [](Plan &p) { p.task(0, 0)->tile[3] += 1u << 16; }},
        {"order[0].task", [](Plan &p) { p.order(0)[0] = 1u << 20; }},
        {"order[1].task is 0: listed twice", [](Plan &p) { p.order(0)[1] = p.order(0)[0]; }},
        {"counters[0].arrivals", [](Plan &p) { p.counter(0, 0)->arrivals = 0; }},
        {"counters[0].arrivals", [](Plan &p) { p.counter(0, 0)->arrivals = 65536; }},
        {"counters[0].dep", [](Plan &p) { p.counter(0, 0)->n_dep = 1u << 30; }},
        {"deps[0].task", [](Plan &p) { p.deps(0)[0] = 1u << 30; }},
    };
    Work w;
    w.m = 8;
    for (size_t i = 0; i < cases.size(); i++) {
        Plan p(w, on(2, WEFT__CTA));
        ASSERT_EQ(p.rc, 0) << weft__error();
        cases[i].spoil(p);
        p.seal();
        weft__image view;
        int rc = weft__image_open(p.bytes, p.size, "spoilt.weft", &view);
        EXPECT_TRUE(rc == WEFT_EFILE && says(cases[i].says) && says("spoilt.weft"))
            << "case " << i << " (" << cases[i].says << "): " << rc << " " << weft__error();
    }
}

TEST(Image, MixArgumentsAreChecked)
{
    weft__graph *g;
    uint32_t a, b;
    ASSERT_EQ(weft__graph_new(&g), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 1, nullptr, 0, 0, &a), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 2, &a, 1, 0, &b), 0);
    const std::vector<std::function<void(uint32_t *)>> spoil = {
        [](uint32_t *args) { args[1] = 1000; }, [](uint32_t *args) { args[2] = 1000; },
        [](uint32_t *args) { args[3] = 99; }, [](uint32_t *args) { args[4] = 1u << 20; }};
    for (const auto &f : spoil) {
        Plan p(g, on(2));
        ASSERT_EQ(p.rc, 0) << weft__error();
        f(const_cast<uint32_t *>(p.img.args) + p.queue(0).arg);
        p.seal();
        weft__image view;
        EXPECT_EQ(weft__image_open(p.bytes, p.size, "spoilt", &view), WEFT_EFILE);
        EXPECT_TRUE(says("args.")) << weft__error();
    }
    weft__graph_free(g);
}

TEST(Image, AChangedByteChangesTheHash)
{
    Plan p(Work(), on(1));
    ASSERT_EQ(p.rc, 0);
    ((uint8_t *)p.bytes)[p.size - 1] ^= 1;
    weft__image view;
    EXPECT_EQ(weft__image_open(p.bytes, p.size, "f", &view), WEFT_EFILE);
    EXPECT_TRUE(says("header.hash")) << weft__error();
}

TEST(Image, EveryTruncationIsRefused)
{
    Plan p(Work(), on(2, WEFT__CTA));
    ASSERT_EQ(p.rc, 0);
    weft__image view;
    for (uint64_t n = 0; n < p.size; n++) {
        std::vector<uint64_t> copy((n + 31) / 8); // of just that size, so that a sanitizer sees a read past it
        void *bytes = copy.data();
        size_t room = copy.size() * 8;
        bytes = std::align(16, n, bytes, room);
        ASSERT_NE(bytes, nullptr);
        memcpy(bytes, p.bytes, n);
        ASSERT_EQ(weft__image_open(bytes, n, "cut", &view), WEFT_EFILE) << n;
    }
}

// Whatever the bytes: refused, or an image that the validator can walk.
TEST(Image, RandomDamageNeverCrashes)
{
    std::mt19937 random(1);
    Work w;
    w.mlp = true;
    w.m = 3;
    int opened = 0, refused = 0;
    for (uint32_t strategy : {WEFT__SINGLE, WEFT__TP}) {
        Plan p(w, on(2, strategy));
        ASSERT_EQ(p.rc, 0) << weft__error();
        const std::vector<uint8_t> good((uint8_t *)p.bytes, (uint8_t *)p.bytes + p.size);
        for (int i = 0; i < 20000; i++) {
            memcpy(p.bytes, good.data(), p.size);
            for (int n = 1 + random() % 3; n > 0; n--) {
                ((uint8_t *)p.bytes)[random() % p.size] = random() % 4 ? (uint8_t)(1u << random() % 8) : 0xff;
            }
            const int rc = p.check();
            opened += rc != WEFT_EFILE;
            refused += rc == WEFT_EREFUSED;
        }
    }
    EXPECT_GT(opened, 100);
    EXPECT_GT(refused, 100);
}

TEST(Image, WriteAndReadAFile)
{
    Folder f;
    Plan p(Work(), on(2, WEFT__CTA));
    ASSERT_EQ(weft__image_write_file(p.bytes, p.size, (f / "a.weft").c_str()), 0) << weft__error();
    weft__image img;
    ASSERT_EQ(weft__image_read_file((f / "a.weft").c_str(), &img), 0) << weft__error();
    EXPECT_EQ(img.size, p.size);
    EXPECT_EQ(memcmp(img.bytes, p.bytes, p.size), 0);
    EXPECT_STREQ(weft__image_string(&img, img.header->strategy), "cta");
    weft__image_close(&img);
    weft__image_close(&img); // legal
    EXPECT_EQ(weft__image_read_file((f / "none").c_str(), &img), WEFT_EIO);
    EXPECT_TRUE(says("none"));
    f.write("short", "!WEFTIMG");
    EXPECT_EQ(weft__image_read_file((f / "short").c_str(), &img), WEFT_EFILE);
    EXPECT_EQ(weft__image_read_file(f.path.c_str(), &img), WEFT_EFILE);
    EXPECT_EQ(weft__image_write_file(p.bytes, p.size, (f / "no/such/folder").c_str()), WEFT_EIO);
}

TEST(Image, PeersAreWrittenDevices)
{
    Work w;
    w.layers = 2;
    Plan p(w, on(3, WEFT__CTA));
    ASSERT_EQ(p.rc, 0);
    EXPECT_EQ(weft__image_peers(&p.img, 0), 3u);
    EXPECT_EQ(weft__image_peers(&p.img, 1), 6u);
    EXPECT_EQ(weft__image_peers(&p.img, 2), 4u);
}

} // namespace
