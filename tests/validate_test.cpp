// validate: a planted race, missing signal, cycle or false claim is refused by name; what every plan is built on is
// proven.
#include "plans.h"

namespace
{

Work rows(uint32_t m)
{
    Work w;
    w.m = m;
    return w;
}

TEST(Validate, AMissingSignalNamesItsCounterAndWhoWaits)
{
    Plan p(rows(8), on(2, WEFT__CTA));
    p.task(0, 0)->n_signal = 0;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("counter 0 of device 0 gets") && says("expects") && says("waiting: task")) << weft__error();
}

TEST(Validate, ASignalTooManyIsRefused)
{
    Plan p(rows(8), on(1));
    weft_task *t = p.task(0, 0);
    t->signal[t->n_signal++] = t->signal[0];
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("expects")) << weft__error();
}

// A reader that does not wait: both tasks are named.
TEST(Validate, ARaceNamesReaderAndWriter)
{
    for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
        Plan p(rows(8), on(2, strategy));
        ASSERT_EQ(p.rc, 0) << weft__error();
        int raced = 0;
        for (uint32_t d = 0; d < 2; d++) {
            for (uint32_t i = 0; i < p.queue(d).n_task && !raced; i++) {
                weft_task *t = p.task(d, i);
                if (t->n_wait != 1) continue;
                weft_counter *c = p.counter(d, t->wait[0].counter);
                uint32_t *deps = p.deps(d) + c->dep, n = 0;
                for (uint32_t k = 0; k < c->n_dep; k++) {
                    if (deps[k] != i) deps[n++] = deps[k];
                }
                c->n_dep = n;
                t->n_wait = 0;
                raced = 1;
            }
        }
        ASSERT_TRUE(raced);
        EXPECT_EQ(p.check(), WEFT_EREFUSED) << weft__strategy_name(strategy);
        EXPECT_TRUE(says("reads rows") && says("writes, and does not wait")) << weft__error();
    }
}

TEST(Validate, TwoWritersOfOneTileAreNamed)
{
    Plan p(rows(8), on(1));
    memcpy(p.task(0, 1)->tile, p.task(0, 0)->tile, sizeof p.task(0, 0)->tile);
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("task 0 of device 0") && says("task 1 of device 0") && says("both write")) << weft__error();
}

TEST(Validate, ReadingWhatNobodyWritesIsRefused)
{
    Work w = rows(8);
    w.chain = {64, 320, 64}; /* 20 groups in tasks of 4 */
    w.layers = 1;
    weft__plan_options o = on(1);
    o.tile_groups = 4;
    Plan p(w, o);
    p.task(0, 0)->tile[2] = 3;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("which nobody writes")) << weft__error();
}

TEST(Validate, TensorsThatShareMemoryAreRefused)
{
    Plan p(rows(8), on(1));
    uint32_t a = WEFT_NONE, b = WEFT_NONE;
    for (uint32_t i = 0; i < p.img.n_tensor; i++) {
        if (p.tensor(i)->role != WEFT_ROLE_ACT) continue;
        if (a == WEFT_NONE)
            a = i;
        else if (p.tensor(i)->cols != p.tensor(a)->cols)
            b = i;
    }
    ASSERT_NE(b, WEFT_NONE);
    if (p.tensor(a)->bytes < p.tensor(b)->bytes) std::swap(a, b);
    p.tensor(b)->offset = p.tensor(a)->offset + p.tensor(a)->bytes - 1024;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("share memory")) << weft__error();
}

TEST(Validate, AnOutputThatIsAnInputIsRefused)
{
    Work w = rows(8);
    w.chain = {64, 64};
    w.layers = 1;
    Plan p(w, on(1));
    p.op(0)->out = p.op(0)->x;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("writes an input")) << weft__error();
}

// Two MIX tasks on two devices, each waiting for the other.
TEST(Validate, ACycleIsNamed)
{
    weft__graph *g;
    uint32_t a, b, c;
    ASSERT_EQ(weft__graph_new(&g), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 1, nullptr, 0, 0, &a), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 2, &a, 1, 0, &b), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 3, &b, 1, 0, &c), 0);
    Plan p(g, on(2));
    weft__graph_free(g);
    ASSERT_EQ(p.rc, 0) << weft__error();
    /* device 0: task 0 signals counter 0 of device 1; task 1 (c) waits for counter 0 of device 0, which b signals.
     * Let c signal
       what a does, and b wait for c alone. */
    std::swap(p.task(0, 0)->signal[0], p.task(0, 1)->signal[0]);
    std::swap(p.task(0, 0)->n_signal, p.task(0, 1)->n_signal);
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("cycle of 2 tasks") && says("task 1 of device 0") && says("task 0 of device 1")) << weft__error();
    p.header()->policies = 0;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("cycle of 2 tasks by waits:")) << weft__error();
}

// A queue order that can deadlock lists, but not rings.
TEST(Validate, AnOrderAgainstTheWaitsLeavesPushAlone)
{
    Plan p(rows(8), on(1));
    const uint32_t n = p.queue(0).n_task;
    std::swap(p.order(0)[0], p.order(0)[n - 1]);
    EXPECT_EQ(p.check(), WEFT_EREFUSED) << "it claims static";
    EXPECT_TRUE(says("by waits and queue order")) << weft__error();
    const uint32_t dynamic = 1u << WEFT_POLICY_PUSH | 1u << WEFT_POLICY_STEAL | 1u << WEFT_POLICY_PRIORITY;
    uint32_t proven = 0;
    p.header()->policies = dynamic;
    EXPECT_EQ(p.check(&proven), 0) << weft__error();
    EXPECT_EQ(proven, dynamic);
}

// Each device's order is fine by itself, the two together are not.
TEST(Validate, OrdersOfAllDevicesCount)
{
    weft__graph *g;
    uint32_t a, b, c, d;
    ASSERT_EQ(weft__graph_new(&g), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 1, nullptr, 0, 0, &a), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 2, nullptr, 0, 0, &b), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 3, &a, 1, 0, &c), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 4, &b, 1, 0, &d), 0);
    Plan p(g, on(2));
    weft__graph_free(g);
    ASSERT_EQ(p.rc, 0) << weft__error();
    EXPECT_EQ(p.check(), 0) << weft__error();
    std::swap(p.order(0)[0], p.order(0)[1]); /* d before a */
    EXPECT_EQ(p.header()->policies & 1, 1u);
    p.header()->policies = 0;
    uint32_t proven = 0;
    EXPECT_EQ(p.check(&proven), 0);
    EXPECT_TRUE(proven & 1) << "one device alone may still be turned round";
    std::swap(p.order(1)[0], p.order(1)[1]); /* c before b */
    EXPECT_EQ(p.check(&proven), 0);
    EXPECT_FALSE(proven & 1);
    p.header()->policies = 1;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("cycle of 4 tasks")) << weft__error();
}

TEST(Validate, AListThatForgetsATaskIsRefused)
{
    Plan p(rows(8), on(1));
    p.counter(0, 0)->n_dep--;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("counter 0 of device 0 lists")) << weft__error();
}

TEST(Validate, AListWithAStrangerIsRefused)
{
    Plan p(rows(8), on(1));
    p.deps(0)[p.counter(0, 0)->dep] = 0;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("which does not wait for it")) << weft__error();
}

// A wait that is due after its columns are read.
TEST(Validate, ALateWaitIsARace)
{
    Work w = rows(8);
    w.chain = {64, 2048, 64};
    weft__plan_options o = on(1);
    o.k_panels = 4;
    Plan p(w, o);
    ASSERT_EQ(p.rc, 0) << weft__error();
    weft_task *late = nullptr;
    for (uint32_t i = 0; i < p.queue(0).n_task && !late; i++) {
        if (p.task(0, i)->n_wait == 4) late = p.task(0, i);
    }
    ASSERT_NE(late, nullptr);
    EXPECT_EQ(late->wait[1].due, 1);
    late->wait[1].due = 2;
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("columns 512..")) << weft__error();
    late->wait[1].due = 0; /* early is safe */
    EXPECT_EQ(p.check(), 0) << weft__error();
}

// A task that takes packets does not wait, so nothing else may depend on its waits.
TEST(Validate, PacketsOrderOnlyThemselves)
{
    Work w = rows(1);
    w.mlp = true;
    Plan p(w, on(1));
    ASSERT_EQ(p.rc, 0) << weft__error();
    int n = 0;
    for (uint32_t i = 0; i < p.img.n_op; i++) {
        weft_op *op = p.op(i);
        if (!(op->flags & WEFT_OP_AUX_PACKET)) continue;
        op->flags &= ~(uint32_t)WEFT_OP_AUX_PACKET; /* reads the residual from memory, unordered */
        n++;
    }
    ASSERT_GT(n, 0);
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("does not wait")) << weft__error();
}

TEST(Validate, LagIsNotProvenAndTheftNeedsAnAlternate)
{
    Plan lag(rows(8), on(2, WEFT__CTA));
    lag.task(1, 0)->wait[0].lag = 1;
    EXPECT_EQ(lag.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("not proven")) << weft__error();
    Plan theft(rows(8), on(2, WEFT__CTA));
    theft.task(1, 0)->alt_device = 0;
    EXPECT_EQ(theft.check(), WEFT_EFILE);
    EXPECT_TRUE(says("not an alternate of its kind")) << weft__error();
}

TEST(Validate, SignalsToOtherDevicesNeedScopeSys)
{
    Plan p(rows(8), on(2, WEFT__CTA));
    int changed = 0;
    for (uint32_t i = 0; i < p.queue(1).n_counter; i++) {
        if (p.counter(1, i)->scope != WEFT_SCOPE_SYS) continue;
        p.counter(1, i)->scope = WEFT_SCOPE_GPU;
        for (uint32_t d = 0; d < 2; d++) {
            for (uint32_t t = 0; t < p.queue(d).n_task; t++) {
                weft_task *task = p.task(d, t);
                for (uint32_t s = 0; s < task->n_signal; s++) {
                    if (task->signal[s].device == 1 && task->signal[s].counter == i)
                        task->signal[s].scope = WEFT_SCOPE_GPU;
                }
            }
        }
        changed++;
    }
    ASSERT_GT(changed, 0);
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("with scope gpu")) << weft__error();
}

TEST(Validate, AWaitAfterTheLastInputIsRefused)
{
    Plan p(rows(8), on(1));
    for (uint32_t i = 0; i < p.queue(0).n_task; i++) {
        if (p.task(0, i)->n_wait) p.task(0, i)->wait[0].due = 1; /* K is one chunk */
    }
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("due after the last of its input")) << weft__error();
}

TEST(Validate, WeightsShareNothing)
{
    Plan p(rows(8), on(1));
    uint32_t first = WEFT_NONE;
    for (uint32_t i = 0; i < p.img.n_tensor; i++) {
        if (p.tensor(i)->role != WEFT_ROLE_WEIGHT) continue;
        if (first == WEFT_NONE)
            first = i;
        else
            p.tensor(i)->offset = p.tensor(first)->offset;
    }
    EXPECT_EQ(p.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("share memory")) << weft__error();
}

TEST(Validate, CutListsAreProvenAgain)
{
    Plan p(rows(8), on(1));
    const uint32_t n = p.queue(0).n_task;
    std::vector<uint32_t> list, first = {0};
    for (uint32_t w = 0; w < 3; w++) {
        for (uint32_t i = w; i < n; i += 3)
            list.push_back(i);
        first.push_back((uint32_t)list.size());
    }
    EXPECT_EQ(weft__validate_lists(&p.img, 0, 0, list.data(), first.data(), 3), 0) << weft__error();
    std::swap(list[0], list[1]);
    EXPECT_EQ(weft__validate_lists(&p.img, 0, 0, list.data(), first.data(), 3), WEFT_EREFUSED);
    EXPECT_TRUE(says("against the queue's order")) << weft__error();
    std::swap(list[0], list[1]);
    list[1] = list[0];
    EXPECT_EQ(weft__validate_lists(&p.img, 0, 0, list.data(), first.data(), 3), WEFT_EREFUSED);
    EXPECT_TRUE(says("listed twice")) << weft__error();
    first[3]--;
    EXPECT_EQ(weft__validate_lists(&p.img, 0, 0, list.data(), first.data(), 3), WEFT_EREFUSED);
}

} // namespace
