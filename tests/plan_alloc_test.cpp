// plan_alloc: the n-th allocation fails, for every n: planner and validator return WEFT_ENOMEM and leak nothing.
#include "plans.h"

#if defined(WEFT_SANITIZED) || !defined(__GLIBC__)
#define WEFT_NO_FAILING_MALLOC
#endif

namespace
{
thread_local long fail_at = -1; // allocations from now on until one fails; negative: none does
thread_local long live = 0;     // allocations less frees, since counting began
thread_local bool counting = false;

#ifndef WEFT_NO_FAILING_MALLOC
bool fails() { return counting && fail_at >= 0 && fail_at-- == 0; }
#endif
} // namespace

#ifndef WEFT_NO_FAILING_MALLOC
// These take the place of the C library's for the whole program.
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

void *malloc(size_t n)
{
    if (fails()) return nullptr;
    live += counting;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    if (fails()) return nullptr;
    live += counting;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    if (fails()) return nullptr;
    live += counting && !p;
    return __libc_realloc(p, n);
}

void free(void *p)
{
    live -= counting && p;
    __libc_free(p);
}
}
#endif

namespace
{

// Runs `work` with the n-th allocation failing, for n = 0, 1, ... until it passes. Returns how often it failed.
template <class F> int fail_each(F work)
{
    for (int n = 0; n < 100000; n++) {
        fail_at = n;
        live = 0;
        counting = true;
        const int rc = work();
        counting = false;
        EXPECT_EQ(live, 0) << "allocation " << n << " failed, and something was not freed";
        if (rc == 0) return n;
        EXPECT_EQ(rc, WEFT_ENOMEM) << "allocation " << n << ": " << weft__error();
        if (rc != WEFT_ENOMEM || live) return n;
    }
    return -1;
}

TEST(PlanAlloc, GraphPlanAndProof)
{
#ifdef WEFT_NO_FAILING_MALLOC
    GTEST_SKIP() << "malloc belongs to the sanitizer";
#endif
    for (uint32_t strategy = 0; strategy < WEFT__STRATEGY_COUNT; strategy++) {
        for (uint32_t m : {1u, 8u}) {
            const weft__plan_options o = on(2, strategy);
            const int failures = fail_each([&] {
                weft__model model = {};
                model.hidden = 64;
                model.intermediate = 128;
                model.layers = 2;
                model.dtype = WEFT_BF16;
                model.named = m > 1;
                weft__graph *g = nullptr;
                void *bytes = nullptr;
                uint64_t size;
                int rc = weft__graph_mlp(&model, m, &g);
                if (!rc) rc = weft__plan(g, &o, &bytes, &size, nullptr);
                weft__graph_free(g);
                if (!rc) free(bytes);
                return rc;
            });
            EXPECT_GT(failures, 30) << weft__strategy_name(strategy);
        }
    }
}

TEST(PlanAlloc, Dag)
{
#ifdef WEFT_NO_FAILING_MALLOC
    GTEST_SKIP() << "malloc belongs to the sanitizer";
#endif
    const weft__plan_options o = on(2);
    const int failures = fail_each([&] {
        weft__graph *g = nullptr;
        uint32_t id[3];
        void *bytes = nullptr;
        uint64_t size;
        int rc = weft__graph_new(&g);
        if (!rc) rc = weft__graph_mix(g, 0, 1, nullptr, 0, 0, &id[0]);
        if (!rc) rc = weft__graph_mix(g, 1, 2, id, 1, 0, &id[1]);
        if (!rc) rc = weft__graph_mix(g, 0, 3, id, 2, 1, &id[2]);
        if (!rc) rc = weft__plan(g, &o, &bytes, &size, nullptr);
        weft__graph_free(g);
        if (!rc) free(bytes);
        return rc;
    });
    EXPECT_GT(failures, 20);
}

} // namespace
