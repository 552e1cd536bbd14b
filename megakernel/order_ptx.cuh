// order_ptx.cuh: every access to a word that several threads share, for CUDA. order_c11.h has the same names.
//
// A name states operation, order and scope: one PTX instruction each (PTX ISA, "Memory Consistency Model"). A release
// names its acquire where it is used. No volatile, no stand-alone fence but weft_fence_acq_rel_*, which merges the order
// of several accesses by one thread where the push family needs it.
#ifndef WEFT_ORDER_PTX_CUH
#define WEFT_ORDER_PTX_CUH

#include <stdint.h>

#define WEFT_DEV static __device__ __forceinline__

#define WEFT_ORDER_SCOPED(scope)                                                                                       \
    WEFT_DEV uint32_t weft_ld_relaxed_##scope(const uint32_t *p)                                                       \
    {                                                                                                                  \
        uint32_t v;                                                                                                    \
        asm volatile("ld.relaxed." #scope ".global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    WEFT_DEV uint32_t weft_ld_acquire_##scope(const uint32_t *p)                                                       \
    {                                                                                                                  \
        uint32_t v;                                                                                                    \
        asm volatile("ld.acquire." #scope ".global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    WEFT_DEV void weft_st_relaxed_##scope(uint32_t *p, uint32_t v)                                                     \
    {                                                                                                                  \
        asm volatile("st.relaxed." #scope ".global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");                        \
    }                                                                                                                  \
    WEFT_DEV void weft_st_release_##scope(uint32_t *p, uint32_t v)                                                     \
    {                                                                                                                  \
        asm volatile("st.release." #scope ".global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");                        \
    }                                                                                                                  \
    WEFT_DEV void weft_red_release_##scope(uint32_t *p, uint32_t v)                                                    \
    {                                                                                                                  \
        asm volatile("red.release." #scope ".global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");                   \
    }                                                                                                                  \
    WEFT_DEV uint32_t weft_atom_add_relaxed_##scope(uint32_t *p, uint32_t v)                                           \
    {                                                                                                                  \
        uint32_t old;                                                                                                  \
        asm volatile("atom.relaxed." #scope ".global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");  \
        return old;                                                                                                    \
    }                                                                                                                  \
    WEFT_DEV uint32_t weft_atom_add_acq_rel_##scope(uint32_t *p, uint32_t v)                                           \
    {                                                                                                                  \
        uint32_t old;                                                                                                  \
        asm volatile("atom.acq_rel." #scope ".global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");  \
        return old;                                                                                                    \
    }                                                                                                                  \
    WEFT_DEV uint32_t weft_atom_cas_acq_rel_##scope(uint32_t *p, uint32_t expect, uint32_t v)                          \
    {                                                                                                                  \
        uint32_t old;                                                                                                  \
        asm volatile("atom.acq_rel." #scope ".global.cas.b32 %0, [%1], %2, %3;"                                        \
                     : "=r"(old)                                                                                       \
                     : "l"(p), "r"(expect), "r"(v)                                                                     \
                     : "memory");                                                                                      \
        return old;                                                                                                    \
    }                                                                                                                  \
    WEFT_DEV uint64_t weft_ld_relaxed_b64_##scope(const uint64_t *p)                                                   \
    {                                                                                                                  \
        uint64_t v;                                                                                                    \
        asm volatile("ld.relaxed." #scope ".global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    WEFT_DEV void weft_st_relaxed_b64_##scope(uint64_t *p, uint64_t v)                                                 \
    {                                                                                                                  \
        asm volatile("st.relaxed." #scope ".global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");                        \
    }                                                                                                                  \
    WEFT_DEV uint64_t weft_ld_acquire_b64_##scope(const uint64_t *p)                                                   \
    {                                                                                                                  \
        uint64_t v;                                                                                                    \
        asm volatile("ld.acquire." #scope ".global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");                      \
        return v;                                                                                                      \
    }                                                                                                                  \
    WEFT_DEV void weft_st_release_b64_##scope(uint64_t *p, uint64_t v)                                                 \
    {                                                                                                                  \
        asm volatile("st.release." #scope ".global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");                        \
    }                                                                                                                  \
    WEFT_DEV void weft_fence_acq_rel_##scope(void) { asm volatile("fence.acq_rel." #scope ";" ::: "memory"); }

WEFT_ORDER_SCOPED(gpu)
WEFT_ORDER_SCOPED(sys)
#undef WEFT_ORDER_SCOPED

// Two packets of one lane: a vector of two 64-bit accesses, each of them single-copy atomic.
WEFT_DEV ulonglong2 weft_ld_relaxed_packets_sys(const void *p)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
    return v;
}
WEFT_DEV ulonglong2 weft_ld_relaxed_packets_gpu(const void *p)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
    return v;
}

// Modular: has `seen` reached `target`?
WEFT_DEV bool weft_reached(uint32_t seen, uint32_t target) { return (int32_t)(seen - target) >= 0; }

#endif
