/* Hangs of every kind are reported in time, with who, where and for what; and none is reported where there is none. */
#include "dag.h"

#include "../host/image.h"
#include "../megakernel/clock.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace
{

const char *const policies[] = {"static", "fifo", "push", "steal", "priority"};
constexpr uint32_t DEADLINE_US = 400000;

struct Image {
    void *bytes = nullptr;
    uint64_t size = 0;
    ~Image() { free(bytes); }
    weft_image_header *header() const { return (weft_image_header *)bytes; }
    template <class T> T *section(const weft_section &s) const { return (T *)((uint8_t *)bytes + s.offset); }
    weft_task *tasks() const { return section<weft_task>(header()->tasks); }
    weft_image_queue *queue(uint32_t d) const { return section<weft_image_queue>(header()->queues) + d; }
    void seal() const { weft__image_seal(bytes, size); }
};

/* `layers` layers of `wide` tasks of `ns` each, layer i on device i % n_device, each waiting for all of the one before. */
void make_layers(Image &img, uint32_t n_device, uint32_t layers, uint32_t wide, uint32_t ns)
{
    weft__graph *g;
    ASSERT_EQ(weft__graph_new(&g), 0);
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t before = i - 1;
        ASSERT_EQ(weft__graph_nop(g, i % n_device, wide, ns, &before, i ? 1 : 0, 1, nullptr), 0) << weft__error();
    }
    weft__plan_options o = weft__plan_defaults();
    o.n_device = n_device;
    for (uint32_t d = 0; d < n_device; d++)
        o.workers[d] = 2;
    ASSERT_EQ(weft__plan(g, &o, &img.bytes, &img.size, nullptr), 0) << weft__error();
    weft__graph_free(g);
}

weft_engine *start(const Image &img, const char *devices, const char *queue, uint32_t unchecked = 1)
{
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = devices, c.queue = queue, c.unchecked = unchecked, c.deadline_us = DEADLINE_US,
    c.counter_base = 0xfffffffeu;
    weft_engine *e = nullptr;
    EXPECT_EQ(weft_engine_create(img.bytes, img.size, &c, &e), 0) << weft_last_error();
    return e;
}

/* How late this machine wakes threads while it exists: other processes may hold the cores, and then nobody is in time. Near
 * zero on an idle machine.                                                                                             */
class Lateness
{
  public:
    Lateness()
        : watcher([this] {
              for (uint64_t t0 = weft__now_ns(); !over.load();) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  const uint64_t t1 = weft__now_ns(), late = t1 - t0 > 1000000 ? t1 - t0 - 1000000 : 0;
                  if (late > worst.load()) worst.store(late);
                  t0 = t1;
              }
          })
    {
    }
    ~Lateness()
    {
        over.store(true);
        watcher.join();
    }
    double us() const { return (double)worst.load() * 1e-3; }

  private:
    std::atomic<bool> over{false};
    std::atomic<uint64_t> worst{0};
    std::thread watcher;
};

/* Submits a step and waits; the report, and that it came within 1.1 x the deadline (and not before it). Two wakes lie between
 * the deadline and the caller: the waiting worker's and the host's.                                                    */
weft_stop_report run_into_the_wall(weft_engine *e, double *late_us = nullptr)
{
    Lateness machine;
    weft_step s = WEFT_STEP_INIT;
    weft_stop_report r = {};
    uint32_t seq;
    r.size = sizeof r;
    uint64_t t0 = weft__now_ns();
    EXPECT_EQ(weft_step_submit(e, &s, &seq), 0) << weft_last_error();
    EXPECT_EQ(weft_step_wait(e, seq), WEFT_EABORT);
    double us = (double)(weft__now_ns() - t0) * 1e-3, late = machine.us();
    if (late_us) *late_us = late;
    EXPECT_LE(us, 1.1 * DEADLINE_US + 2 * late);
    EXPECT_GE(us, 0.99 * DEADLINE_US);
    EXPECT_EQ(weft_engine_report(e, &r), 0) << weft_last_error();
    EXPECT_EQ(std::string(weft_last_error()), r.text);
    EXPECT_EQ(r.step, seq);
    EXPECT_EQ(weft_step_submit(e, &s, nullptr), WEFT_EABORT) << "an engine that has stopped takes no steps";
    return r;
}

TEST(Abort, MissingSignalNamesTheWait)
{
    for (const char *queue : {"static", "fifo"}) {
        Image img;
        make_layers(img, 2, 2, 3, 1000);
        img.tasks()[img.queue(0)->task].n_signal = 0; /* the first task of the first layer keeps quiet */
        img.seal();
        weft_engine *e = start(img, "cpu:2x2", queue);
        weft_stop_report r = run_into_the_wall(e);
        EXPECT_STREQ(r.cause, "counter") << r.text;
        EXPECT_EQ(r.device, 1u) << r.text;
        EXPECT_LT(r.worker, 2u);
        EXPECT_LT(r.task, 3u);
        EXPECT_EQ(r.expected - r.seen, 1u) << r.text;
        EXPECT_EQ(r.expected, 0xfffffffeu + 3);
        weft_engine_destroy(e);
    }
}

/* The wait that gives up may be far downstream; the text says where it began. */
TEST(Abort, ReportNamesWhereItBegan)
{
    for (const char *queue : policies) {
        Image img;
        make_layers(img, 2, 6, 3, 1000);
        img.tasks()[img.queue(0)->task].n_signal = 0; /* layer 0, so layer 1 waits, and with it all others */
        img.seal();
        weft_engine *e = start(img, "cpu:2x2", queue);
        weft_stop_report r = run_into_the_wall(e);
        std::string text = r.text;
        EXPECT_NE(text.find("of cpu:1: 2 of 3 arrivals, though all 2 producers (such as task"), std::string::npos)
            << text;
        weft_engine_destroy(e);
    }
}

TEST(Abort, MissingSignalUnderThePushFamilyIsAnEmptyQueue)
{
    for (const char *queue : {"push", "steal", "priority"}) {
        Image img;
        make_layers(img, 2, 4, 3, 1000);
        img.tasks()[img.queue(0)->task].n_signal = 0;
        img.seal();
        weft_engine *e = start(img, "cpu:2x2", queue);
        weft_stop_report r = run_into_the_wall(e);
        EXPECT_STREQ(r.cause, "queue") << queue << ": " << r.text;
        weft_engine_destroy(e);
    }
}

TEST(Abort, DeadlockedImage)
{
    for (const char *queue : policies) {
        Image img;
        make_layers(img, 1, 2, 2, 1000);
        weft_task *t = img.tasks() + img.queue(0)->task; /* tasks of layer 0 wait for layer 1, which waits for them */
        for (uint32_t i = 0; i < 4; i++)
            if (t[i].n_wait == 0) t[i].n_wait = 1, t[i].wait[0] = {0, 2, 0, 0};
        img.seal();
        weft_engine *e = start(img, "cpu:1x2", queue);
        weft_stop_report r = run_into_the_wall(e);
        EXPECT_NE(r.device, WEFT_NONE) << r.text;
        EXPECT_TRUE(!strcmp(r.cause, "counter") || !strcmp(r.cause, "queue")) << r.text;
        weft_engine_destroy(e);
        weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
        c.devices = "cpu:1x2", c.queue = queue;
        EXPECT_EQ(weft_engine_create(img.bytes, img.size, &c, &e), WEFT_EREFUSED) << "the validator lets it pass";
    }
}

TEST(Abort, BodyThatStaysIsReportedByTheHost)
{
    for (const char *queue : policies) {
        Image img;
        make_layers(img, 1, 1, 1, 900000000); /* 0.9 s in one body; nobody waits for it */
        weft_engine *e = start(img, "cpu:1x1", queue);
        weft_stop_report r = run_into_the_wall(e);
        EXPECT_STREQ(r.cause, "body") << r.text;
        EXPECT_EQ(r.device, 0u);
        EXPECT_EQ(r.worker, 0u);
        EXPECT_EQ(r.task, 0u);
        weft_engine_destroy(e); /* waits for the body */
    }
}

TEST(Abort, BodyThatStaysWhileOthersWait)
{
    Image img;
    make_layers(img, 2, 2, 1, 1000);
    img.tasks()[img.queue(0)->task].cost_ns = 1600000000; /* long after the deadline: the host still finds it running */
    img.seal();
    weft_engine *e = start(img, "cpu:2x1", "static");
    double late = 0;
    weft_stop_report r = run_into_the_wall(e, &late);
    if (!strcmp(r.cause,
                "body")) { /* the waiting worker woke so late that the host was first: it names the body itself */
        EXPECT_GT(late, 0.02 * DEADLINE_US) << r.text;
        EXPECT_EQ(r.device, 0u);
        EXPECT_EQ(r.task, 0u);
    } else {
        EXPECT_STREQ(r.cause, "counter") << r.text;
        EXPECT_EQ(r.device, 1u);
        EXPECT_NE(std::string(r.text).find("cpu:0 worker 0 in task 0"), std::string::npos) << r.text;
    }
    weft_engine_destroy(e);
}

TEST(Abort, StopFromAnotherThread)
{
    Image img;
    make_layers(img, 2, 2, 2, 1000);
    img.tasks()[img.queue(0)->task].n_signal = 0;
    img.seal();
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = "cpu:2x1", c.unchecked = 1; /* no deadline: would wait for ever */
    weft_engine *e;
    ASSERT_EQ(weft_engine_create(img.bytes, img.size, &c, &e), 0) << weft_last_error();
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq;
    ASSERT_EQ(weft_step_submit(e, &s, &seq), 0);
    std::thread stopper([e] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        weft_engine_stop(e);
    });
    EXPECT_EQ(weft_step_wait(e, seq), WEFT_EABORT);
    stopper.join();
    weft_stop_report r = {};
    r.size = sizeof r;
    ASSERT_EQ(weft_engine_report(e, &r), 0);
    EXPECT_STREQ(r.cause, "host") << r.text;
    weft_engine_destroy(e);
}

TEST(Abort, StepsThatWereDoneStayDone)
{
    Image img;
    make_layers(img, 2, 2, 2, 1000);
    weft_engine *e = start(img, "cpu:2x1", "push", 0);
    weft_step s = WEFT_STEP_INIT;
    uint32_t seq;
    int done = 0;
    ASSERT_EQ(weft_step_submit(e, &s, &seq), 0);
    ASSERT_EQ(weft_step_wait(e, seq), 0) << weft_last_error();
    weft_engine_stop(e);
    EXPECT_EQ(weft_step_poll(e, seq, &done), 0);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(weft_step_wait(e, seq), 0);
    weft_engine_destroy(e);
}

/* 500 engines here, 10,000 with WEFT_FALSE_ALARM_RUNS=10000; steps of far less than the deadline. */
TEST(Abort, NoFalseAlarm)
{
    const char *wanted = getenv("WEFT_FALSE_ALARM_RUNS");
    uint64_t n = wanted ? strtoull(wanted, nullptr, 10) : 500;
    dag_limits l = {};
    l.max_tasks = 48;
    l.deadline_us = 2000000;
    for (uint64_t seed = 0; seed < n; seed++)
        ASSERT_EQ(dag_run(7000000 + seed, &l), 0) << weft__error();
}

} // namespace
