// validate_mutant: no wait and no signal of a plan can be left out, however consistently: each mutant is refused.
#include "plans.h"

namespace
{

struct Case {
    uint32_t m, strategy, k_panels, split_k;
};
const Case cases[] = {{8, WEFT__SINGLE, 1, 1}, {8, WEFT__CTA, 2, 1},         {1, WEFT__CTA, 1, 1},
                      {1, WEFT__SINGLE, 1, 2}, {24, WEFT__MICROBATCH, 1, 1}, {8, WEFT__TP, 2, 1},
                      {1, WEFT__TP, 1, 1},     {8, WEFT__CTA_TP, 1, 1},      {130, WEFT__CTA, 1, 1},
                      {8, WEFT__SINGLE, 3, 3}, {100, WEFT__SINGLE, 2, 1}};

struct Mutant : Plan {
    static Work work(const Case &c)
    {
        Work w;
        w.mlp = true;
        w.chain = {128, 1024};
        w.m = c.m;
        return w;
    }
    static weft__plan_options options(const Case &c)
    {
        weft__plan_options o = on(c.strategy == WEFT__CTA_TP ? 4 : 2, c.strategy);
        o.k_panels = c.k_panels;
        o.split_k = c.split_k;
        o.chunks = 3;
        o.tile_groups = 2; /* no tile lies across two column panels: such a tile's second signal may be redundant */
        return o;
    }
    const std::vector<uint8_t> good;
    explicit Mutant(const Case &c)
        : Plan(work(c), options(c)), good((uint8_t *)bytes, (uint8_t *)bytes + (rc ? 0 : size))
    {
    }
    void restore() { memcpy(bytes, good.data(), size); }
    uint64_t *side(uint32_t d) { return const_cast<uint64_t *>(img.side) + queue(d).side; }

    // Task `id` no longer waits for its n-th counter, and the counter no longer lists it.
    void drop_wait(uint32_t d, uint32_t id, uint32_t n)
    {
        weft_task *t = task(d, id);
        const weft_wait gone = weft__task_wait(t, side(d), n);
        weft_counter *c = counter(d, gone.counter);
        uint32_t *list = deps(d) + c->dep, kept = 0;
        for (uint32_t i = 0; i < c->n_dep; i++)
            if (list[i] != id) list[kept++] = list[i];
        c->n_dep = kept;
        std::vector<uint64_t> waits, signals;
        for (uint32_t i = 0; i < t->n_wait; i++)
            if (i != n) waits.push_back(word(weft__task_wait(t, side(d), i)));
        for (uint32_t i = 0; i < t->n_signal; i++)
            signals.push_back(word(weft__task_signal(t, side(d), i)));
        put(d, t, waits, signals);
    }

    // Task `id` no longer signals its n-th counter, and nobody expects it to.
    void drop_signal(uint32_t d, uint32_t id, uint32_t n)
    {
        weft_task *t = task(d, id);
        const weft_signal gone = weft__task_signal(t, side(d), n);
        std::vector<uint64_t> waits, signals;
        for (uint32_t i = 0; i < t->n_wait; i++)
            waits.push_back(word(weft__task_wait(t, side(d), i)));
        for (uint32_t i = 0; i < t->n_signal; i++)
            if (i != n) signals.push_back(word(weft__task_signal(t, side(d), i)));
        put(d, t, waits, signals);
        weft_counter *c = counter(gone.device, gone.counter);
        c->arrivals--;
        for (uint32_t i = 0; i < c->n_dep; i++) {
            weft_task *waiting = task(gone.device, deps(gone.device)[c->dep + i]);
            for (uint32_t k = 0; k < waiting->n_wait; k++) {
                weft_wait *w = k < 2 ? &waiting->wait[k] : (weft_wait *)&side(gone.device)[waiting->extra + k - 2];
                if (w->counter == gone.counter) w->arrivals--;
            }
        }
    }

  private:
    template <class T> static uint64_t word(T v)
    {
        uint64_t w;
        memcpy(&w, &v, sizeof w);
        return w;
    }
    void put(uint32_t d, weft_task *t, const std::vector<uint64_t> &waits, const std::vector<uint64_t> &signals)
    {
        uint64_t *beyond = side(d) + t->extra;
        t->n_wait = (uint16_t)waits.size();
        t->n_signal = (uint16_t)signals.size();
        for (size_t i = 0; i < waits.size(); i++)
            memcpy(i < 2 ? (void *)&t->wait[i] : (void *)beyond++, &waits[i], 8);
        for (size_t i = 0; i < signals.size(); i++)
            memcpy(i < 2 ? (void *)&t->signal[i] : (void *)beyond++, &signals[i], 8);
    }
};

TEST(ValidateMutant, EveryWaitIsNeeded)
{
    for (const Case &c : cases) {
        Mutant p(c);
        ASSERT_EQ(p.rc, 0) << weft__error();
        int n = 0;
        for (uint32_t d = 0; d < p.img.n_device; d++) {
            for (uint32_t i = 0; i < p.queue(d).n_task; i++) {
                for (uint32_t k = 0; k < p.task(d, i)->n_wait; k++, n++) {
                    p.drop_wait(d, i, k);
                    EXPECT_EQ(p.check(), WEFT_EREFUSED) << "wait " << k << " of task " << i << " of device " << d
                                                        << ", m " << c.m << " " << weft__strategy_name(c.strategy);
                    p.restore();
                }
            }
        }
        EXPECT_GT(n, 10);
        EXPECT_EQ(p.check(), 0) << weft__error();
    }
}

TEST(ValidateMutant, EverySignalIsNeeded)
{
    for (const Case &c : cases) {
        Mutant p(c);
        ASSERT_EQ(p.rc, 0) << weft__error();
        int n = 0;
        for (uint32_t d = 0; d < p.img.n_device; d++) {
            for (uint32_t i = 0; i < p.queue(d).n_task; i++) {
                for (uint32_t k = 0; k < p.task(d, i)->n_signal; k++, n++) {
                    p.drop_signal(d, i, k);
                    const int rc = p.check(); /* a counter without arrivals is not even an image */
                    EXPECT_TRUE(rc == WEFT_EREFUSED || (rc == WEFT_EFILE && says("arrivals is 0")))
                        << "signal " << k << " of task " << i << " of device " << d << ", m " << c.m << " "
                        << weft__strategy_name(c.strategy) << ": " << rc << " " << weft__error();
                    p.restore();
                }
            }
        }
        EXPECT_GT(n, 10);
    }
}

} // namespace
