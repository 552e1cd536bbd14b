/* The protocol's steps (megakernel/protocol.h) under Relacy's model checker: right as they stand, and wrong as soon as any
 * one order is weakened by one step. docs/protocol.md holds the table; each row there is a line here.
 *
 * Plain memory is rl::var: Relacy reports any two accesses to it that are not ordered.                                  */
#include <gtest/gtest.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__) || !__has_include(<relacy/relacy.hpp>)
TEST(Protocol, ModelChecking)
{
    GTEST_SKIP()
        << "needs Relacy (Debian: relacy-dev) and gcc without sanitizers: clang 14 and they don't bear its fibers";
}
#else

#include "order_relacy.h"

#include "../megakernel/protocol.h"

#include <ostream>
#include <vector>

namespace
{

constexpr uint32_t BASE = 0xfffffffeu; /* every count wraps */

void pause_thread() { rl::yield(1, RL_INFO); }

void await_counter(const weft_w32 &word, uint32_t target)
{
    uint32_t seen;
    while (!weft_counter_ready(&word, target, &seen))
        pause_thread();
}

/* Two producers, one consumer, one counter. */
struct Counter : rl::test_suite<Counter, 3> {
    weft_w32 counter;
    rl::var<int> data[2];
    void before() { counter.init("counter", BASE); }
    void thread(unsigned i)
    {
        if (i < 2) {
            data[i](RL_INFO) = 1;
            weft_signal_counter(&counter);
        } else {
            await_counter(counter, weft_target(BASE, 1, 0, 2));
            RL_ASSERT(data[0](RL_INFO) + data[1](RL_INFO) == 2);
        }
    }
};

/* A task that waits for counters A (two producers) and B (one): the last arrival on its pending word pushes it. */
struct Push : rl::test_suite<Push, 4> {
    weft_w32 a, b, pending, tail;
    weft_w64 ring[2];
    rl::var<int> data[3];
    void before()
    {
        a.init("counter", BASE), b.init("counter", BASE), pending.init("pending", 0), tail.init("tail", BASE);
        for (uint32_t t = BASE; t != BASE + 2; t++)
            ring[t & 1].init("slot", weft_packet(0, t - 2));
    }
    void thread(unsigned i)
    {
        if (i < 3) {
            data[i](RL_INFO) = 1;
            if (!weft_arrive(i < 2 ? &a : &b, weft_target(BASE, 1, 0, i < 2 ? 2 : 1))) return;
            if (weft_arrive(&pending, 2)) weft_ring_push(&tail, ring, 1, 5);
            return;
        }
        uint32_t task;
        while (!weft_ring_poll(ring, 1, BASE, &task))
            pause_thread();
        RL_ASSERT(task == 5 && data[0](RL_INFO) + data[1](RL_INFO) + data[2](RL_INFO) == 3);
    }
};

/* Two producers push, two workers take from the same ring (steal, priority): every task once, with its data. */
struct TryPop : rl::test_suite<TryPop, 4> {
    weft_w32 head, tail;
    weft_w64 ring[2];
    rl::var<int> data[2];
    rl::var<int> taken[2];
    void before()
    {
        head.init("head", BASE), tail.init("tail", BASE);
        for (uint32_t t = BASE; t != BASE + 2; t++)
            ring[t & 1].init("slot", weft_packet(0, t - 2));
        taken[0](RL_INFO) = taken[1](RL_INFO) = 0;
    }
    void thread(unsigned i)
    {
        if (i < 2) {
            data[i](RL_INFO) = 1;
            weft_ring_push(&tail, ring, 1, i);
            return;
        }
        for (uint32_t seen = BASE, task; seen != BASE + 2;) {
            if (weft_ring_try_pop(&head, ring, 1, &seen, &task)) {
                RL_ASSERT(data[task](RL_INFO) == 1);
                taken[task](RL_INFO) = taken[task](RL_INFO) + 1; /* a second taker would race here */
            } else {
                pause_thread();
            }
        }
    }
    void after() { RL_ASSERT(taken[0](RL_INFO) == 1 && taken[1](RL_INFO) == 1); }
};

/* steal with end=lifo: two push, two take; one of them as many as there are. */
struct Stack : rl::test_suite<Stack, 4> {
    weft_w64 top;
    weft_w32 below[2];
    rl::var<int> data[2], taken[2];
    void before()
    {
        top.init("top", BASE);
        below[0].init("below", 0), below[1].init("below", 0);
        taken[0](RL_INFO) = taken[1](RL_INFO) = 0;
    }
    void thread(unsigned i)
    {
        if (i < 2) {
            data[i](RL_INFO) = 1;
            weft_stack_push(&top, below, i);
            return;
        }
        for (;;) {
            uint32_t tasks[2];
            uint64_t seen;
            const uint32_t n = weft_stack_peek(&top, below, 2, i == 2 ? 1 : 2, tasks, &seen);
            if ((uint32_t)seen == BASE + 2) return;
            if (!n || !weft_stack_take(&top, below, n, tasks[n - 1], seen)) {
                pause_thread();
                continue;
            }
            for (uint32_t k = 0; k < n; k++) {
                RL_ASSERT(data[tasks[k]](RL_INFO) == 1);
                taken[tasks[k]](RL_INFO) = taken[tasks[k]](RL_INFO) + 1; /* a second taker would race here */
            }
        }
    }
    void after() { RL_ASSERT(taken[0](RL_INFO) == 1 && taken[1](RL_INFO) == 1); }
};

/* steal with amount=half: the thief (1) brings what it doesn't run into a ring of its own; the owner (0) takes from both.
 * Whoever finds that all tasks are taken (2) is right: nothing is pushed any more.                                    */
struct Half : rl::test_suite<Half, 3> {
    weft_w32 head[2], tail[2], brought, over;
    weft_w64 ring[2][2];
    rl::var<int> taken[2];
    void before()
    {
        for (uint32_t r = 0; r < 2; r++) {
            head[r].init("run", BASE), tail[r].init("tail", BASE);
            for (uint32_t t = BASE; t != BASE + 2; t++)
                ring[r][t & 1].init("slot", weft_packet(0, t - 2));
        }
        brought.init("brought", 0), over.init("over", 0);
        for (uint32_t i = 0; i < 2; i++) {
            taken[i](RL_INFO) = 0;
            weft_ring_push(&tail[0], ring[0], 1, i);
        }
    }
    void mark(uint32_t task) { taken[task](RL_INFO) = taken[task](RL_INFO) + 1; } /* a second taker would race here */
    bool is_over()
    {
        uint32_t n = 0;
        for (uint32_t r = 0; r < 2; r++)
            n += weft_ld_acquire_sys(&head[r]) - BASE;
        return n - weft_ld_relaxed_sys(&brought) == 2;
    }
    void steal()
    {
        uint32_t tasks[2];
        weft_atom_add_relaxed_sys(&brought, 1);
        const uint32_t n = weft_ring_take_run(&head[0], ring[0], 1, 2, tasks);
        if (n < 2) weft_atom_add_relaxed_sys(&brought, UINT32_MAX);
        if (n) mark(tasks[0]);
        if (n < 2) return;
        RL_ASSERT(weft_atom_add_relaxed_sys(&over, 0) == 0);
        weft_ring_push(&tail[1], ring[1], 1, tasks[1]);
    }
    void thread(unsigned i)
    {
        if (i == 1) steal();
        while (!is_over()) {
            uint32_t seen, task;
            bool got = false;
            for (uint32_t r = 0; r < 2 && i != 2 && !got; r++)
                if ((got = weft_ring_try_pop(&head[r], ring[r], 1, &seen, &task))) mark(task);
            if (!got) pause_thread();
        }
        if (i == 2) weft_atom_add_relaxed_sys(&over, 1);
    }
    void after()
    {
        for (auto &t : taken)
            RL_ASSERT(t(RL_INFO) == 1);
    }
};

/* TryPop by claims (steal and priority of the CUDA kernel); the step is over when all are claimed. */
struct Claim : rl::test_suite<Claim, 4> {
    weft_w32 head, tail, unclaimed, claimed;
    weft_w64 ring[2];
    rl::var<int> data[2];
    rl::var<int> taken[2];
    void before()
    {
        head.init("head", BASE), tail.init("tail", BASE), unclaimed.init("unclaimed", 0), claimed.init("claimed", 0);
        for (uint32_t t = BASE; t != BASE + 2; t++)
            ring[t & 1].init("slot", weft_packet(0, t - 2));
        taken[0](RL_INFO) = taken[1](RL_INFO) = 0;
    }
    void thread(unsigned i)
    {
        if (i < 2) {
            data[i](RL_INFO) = 1;
            weft_ring_push(&tail, ring, 1, i);
            weft_ring_offer(&unclaimed, 1);
            return;
        }
        while (weft_ld_relaxed_sys(&claimed) != 2) {
            uint32_t n = i - 1, task; /* thread 3 takes both or none */
            if (!weft_ring_claim(&unclaimed, n)) {
                pause_thread();
                continue;
            }
            uint32_t ticket = weft_atom_add_relaxed_sys(&head, n);
            weft_atom_add_relaxed_sys(&claimed, n);
            for (; n > 0; n--, ticket++) {
                while (!weft_ring_poll(ring, 1, ticket, &task))
                    pause_thread();
                RL_ASSERT(data[task](RL_INFO) == 1);
                taken[task](RL_INFO) = taken[task](RL_INFO) + 1; /* a second taker would race here */
            }
        }
    }
    void after()
    {
        RL_ASSERT(taken[0](RL_INFO) == 1 && taken[1](RL_INFO) == 1);
        RL_ASSERT(weft_ld_relaxed_sys(&unclaimed) == 0);
    }
};

/* Device 0 (threads 0, 1) writes into device 1 (thread 2) and reads its own memory, two steps; the host (thread 3) reads
 * what both workers wrote once `completed` says so.                                                                     */
struct Gate : rl::test_suite<Gate, 4> {
    weft_w32 done, finished, completed, counter;
    rl::var<int> remote, local, out;
    void before()
    {
        done.init("done", BASE), finished.init("finished", 0), completed.init("completed", 0),
            counter.init("signal", BASE);
        remote(RL_INFO) = local(RL_INFO) = out(RL_INFO) = 0;
    }
    void worker(unsigned i)
    {
        for (uint32_t s = 1; s <= 2; s++) {
            await_counter(done, BASE + 2 * (s - 1)); /* the gate: this device, then the one it writes to */
            await_counter(finished, s - 1);
            if (i == 0) {
                remote(RL_INFO) = (int)s; /* device 1 may not read step s - 1's any more */
                weft_signal_counter(&counter);
                if (s == 2) local(RL_INFO) = 2; /* worker 1 read it in step 1 */
            } else if (s == 1) {
                RL_ASSERT(local(RL_INFO) == 0);
                out(RL_INFO) = 1;
            }
            if (weft_arrive(&done, BASE + 2 * s)) weft_st_release_sys(&completed, s);
        }
    }
    void peer()
    {
        for (uint32_t s = 1; s <= 2; s++) {
            await_counter(counter, BASE + s);
            RL_ASSERT(remote(RL_INFO) == (int)s);
            weft_st_release_sys(&finished, s);
        }
    }
    void host()
    {
        while (!weft_reached(weft_ld_acquire_sys(&completed), 1))
            pause_thread();
        RL_ASSERT(out(RL_INFO) == 1);
    }
    void thread(unsigned i) { i < 2 ? worker(i) : i == 2 ? peer() : host(); }
};

/* Host, forwarder, worker; two steps through the same slot, which is rewritten once the first has completed. */
struct Doorbell : rl::test_suite<Doorbell, 3> {
    weft_w64 head[16];
    weft_w32 published, completed;
    rl::var<uint32_t> payload, copy, copied_head;
    void before()
    {
        for (auto &h : head)
            h.init("head", 0);
        published.init("published", 0), completed.init("completed", 0);
    }
    void host()
    {
        for (uint32_t s = 1; s <= 2; s++) {
            while (!weft_reached(weft_ld_acquire_sys(&completed), s - 1))
                pause_thread();
            payload(RL_INFO) = 10 * s;
            uint32_t words[16];
            for (uint32_t i = 0; i < 16; i++)
                words[i] = s + i;
            weft_record_post(head, words, s);
        }
    }
    void forwarder()
    {
        for (uint32_t s = 1; s <= 2; s++) {
            uint32_t words[16];
            while (!weft_record_poll(head, words, s))
                pause_thread();
            for (uint32_t i = 0; i < 16; i++)
                RL_ASSERT(words[i] == s + i);
            copy(RL_INFO) = payload(RL_INFO);
            copied_head(RL_INFO) = words[0];
            weft_st_release_sys(&published, s);
        }
    }
    void worker()
    {
        for (uint32_t s = 1; s <= 2; s++) {
            await_counter(published, s);
            RL_ASSERT(copy(RL_INFO) == 10 * s && copied_head(RL_INFO) == s);
            weft_st_release_sys(&completed, s);
        }
    }
    void thread(unsigned i) { i == 0 ? host() : i == 1 ? forwarder() : worker(); }
};

/* Two workers stop the engine at once: one report, complete when the host sees it. */
struct Abort : rl::test_suite<Abort, 3> {
    weft_w32 first, mailbox;
    rl::var<int> report;
    void before() { first.init("first", 0), mailbox.init("mailbox", 0); }
    void thread(unsigned i)
    {
        if (i < 2) {
            if (!weft_abort_win(&first, 2 + i)) return;
            report(RL_INFO) = 2 + (int)i;
            weft_st_release_sys(&mailbox, 2 + i);
            return;
        }
        uint32_t cause;
        while (!(cause = weft_ld_acquire_sys(&mailbox)))
            pause_thread();
        RL_ASSERT(report(RL_INFO) == (int)cause);
    }
};

/* A packet is rewritten a step later, behind the gate: the consumer sees each step's value and never one too early. */
struct Packet : rl::test_suite<Packet, 2> {
    weft_w64 packet;
    weft_w32 finished;
    void before() { packet.init("packet", 0), finished.init("finished", 0); }
    void thread(unsigned i)
    {
        for (uint32_t s = 1; s <= 3; s++) {
            if (i == 0) {
                await_counter(finished, s - 1);
                weft_packet_put(&packet, 100 + s, s);
            } else {
                uint32_t data;
                int state;
                while ((state = weft_packet_poll(&packet, s, &data)) == 0)
                    pause_thread();
                RL_ASSERT(state == 1 && data == 100 + s);
                weft_st_release_sys(&finished, s);
            }
        }
    }
};

/* Relacy replaces operator new while it runs, so what it prints must not allocate. */
struct FixedText : std::streambuf {
    char text[6000];
    FixedText() { setp(text, text + sizeof text - 1); }
    const char *str()
    {
        *pptr() = 0;
        return text;
    }
};

/* What the checker says of the model with one order weakened. */
template <class Model> rl::test_result_e result(Weakening w, unsigned long iterations = 20000)
{
    static FixedText buffer;
    buffer = FixedText();
    std::ostream report(&buffer);
    rl::test_params p;
    p.iteration_count = iterations;
    p.search_type = rl::sched_random;
    p.collect_history = true; /* a failure is told at once, not replayed */
    p.output_stream = p.progress_stream = &report;
    weakened() = w;
    rl::simulate<Model>(p);
    weakened() = Weakening();
    if (w.what == Weak::NONE && p.test_result != rl::test_result_success) ADD_FAILURE() << buffer.str();
    return p.test_result;
}

/* Right as it stands; with any of these weakened, some execution reads or writes unordered memory, or a wrong value. */
template <class Model> void check(const std::vector<Weakening> &needed)
{
    EXPECT_EQ(result<Model>({}), rl::test_result_success);
    for (const Weakening &w : needed) {
        rl::test_result_e r = result<Model>(w);
        EXPECT_TRUE(r == rl::test_result_data_race || r == rl::test_result_user_assert_failed ||
                    r == rl::test_result_unitialized_access)
            << w.site << " without " << (w.what == Weak::ACQUIRE ? "acquire" : "release") << ": "
            << rl::test_result_str(r);
    }
}

TEST(Protocol, Counter) { check<Counter>({{"counter", Weak::RELEASE}, {"counter", Weak::ACQUIRE}}); }
TEST(Protocol, Push)
{
    check<Push>({{"counter", Weak::RELEASE},
                 {"counter", Weak::ACQUIRE},
                 {"pending", Weak::RELEASE},
                 {"pending", Weak::ACQUIRE},
                 {"slot", Weak::RELEASE},
                 {"slot", Weak::ACQUIRE}});
}
TEST(Protocol, TryPop) { check<TryPop>({{"slot", Weak::RELEASE}, {"slot", Weak::ACQUIRE}}); }
TEST(Protocol, Stack) { check<Stack>({{"top", Weak::RELEASE}, {"top", Weak::ACQUIRE}}); }
TEST(Protocol, Half) { check<Half>({{"run", Weak::RELEASE}, {"run", Weak::ACQUIRE}}); }
TEST(Protocol, Claim) { check<Claim>({{"slot", Weak::RELEASE}, {"slot", Weak::ACQUIRE}}); }
TEST(Protocol, Gate)
{
    check<Gate>({{"done", Weak::RELEASE},
                 {"done", Weak::ACQUIRE},
                 {"finished", Weak::RELEASE},
                 {"finished", Weak::ACQUIRE},
                 {"completed", Weak::RELEASE},
                 {"completed", Weak::ACQUIRE}});
}
TEST(Protocol, Doorbell)
{
    check<Doorbell>({{"head", Weak::RELEASE},
                     {"head", Weak::ACQUIRE},
                     {"published", Weak::RELEASE},
                     {"published", Weak::ACQUIRE},
                     {"completed", Weak::RELEASE},
                     {"completed", Weak::ACQUIRE}});
}
TEST(Protocol, Abort) { check<Abort>({{"mailbox", Weak::RELEASE}, {"mailbox", Weak::ACQUIRE}}); }
TEST(Protocol, Packet) { check<Packet>({}); }

} // namespace
#endif
