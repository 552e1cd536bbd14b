/* order_c11.h: every access to a word that several threads share, for emulated devices. order_ptx.cuh has the same names.
 *
 * A name states operation, order and scope. Scopes (.gpu, .sys) say which parties may be involved; on CPU threads both
 * are the same. No stand-alone fences: ThreadSanitizer doesn't model them. A release names its acquire where it is used. */
#ifndef WEFT_ORDER_C11_H
#define WEFT_ORDER_C11_H

#include <stdint.h>

typedef uint32_t weft_w32; /* a word that several threads share */
typedef uint64_t weft_w64;

#define WEFT_ORDER_SCOPED(scope)                                                                                       \
    static inline uint32_t weft_ld_relaxed_##scope(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); } \
    static inline uint32_t weft_ld_acquire_##scope(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); } \
    static inline void weft_st_relaxed_##scope(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }  \
    static inline void weft_st_release_##scope(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }  \
    static inline void weft_red_release_##scope(uint32_t *p, uint32_t v)                                               \
    {                                                                                                                  \
        (void)__atomic_fetch_add(p, v, __ATOMIC_RELEASE);                                                              \
    }                                                                                                                  \
    static inline uint32_t weft_atom_add_relaxed_##scope(uint32_t *p, uint32_t v)                                      \
    {                                                                                                                  \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                                             \
    }                                                                                                                  \
    static inline uint32_t weft_atom_add_acq_rel_##scope(uint32_t *p, uint32_t v)                                      \
    {                                                                                                                  \
        return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);                                                             \
    }                                                                                                                  \
    static inline uint32_t weft_atom_cas_relaxed_##scope(uint32_t *p, uint32_t expect, uint32_t v)                     \
    {                                                                                                                  \
        __atomic_compare_exchange_n(p, &expect, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                             \
        return expect;                                                                                                 \
    }                                                                                                                  \
    static inline uint32_t weft_atom_cas_acq_rel_##scope(uint32_t *p, uint32_t expect, uint32_t v)                     \
    {                                                                                                                  \
        __atomic_compare_exchange_n(p, &expect, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                             \
        return expect;                                                                                                 \
    }                                                                                                                  \
    static inline uint64_t weft_atom_cas_acq_rel_b64_##scope(uint64_t *p, uint64_t expect, uint64_t v)                 \
    {                                                                                                                  \
        __atomic_compare_exchange_n(p, &expect, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);                             \
        return expect;                                                                                                 \
    }                                                                                                                  \
    static inline uint64_t weft_ld_relaxed_b64_##scope(const uint64_t *p)                                              \
    {                                                                                                                  \
        return __atomic_load_n(p, __ATOMIC_RELAXED);                                                                   \
    }                                                                                                                  \
    static inline uint64_t weft_ld_acquire_b64_##scope(const uint64_t *p)                                              \
    {                                                                                                                  \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);                                                                   \
    }                                                                                                                  \
    static inline void weft_st_relaxed_b64_##scope(uint64_t *p, uint64_t v)                                            \
    {                                                                                                                  \
        __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                                      \
    }                                                                                                                  \
    static inline void weft_st_release_b64_##scope(uint64_t *p, uint64_t v)                                            \
    {                                                                                                                  \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                                      \
    }

WEFT_ORDER_SCOPED(gpu)
WEFT_ORDER_SCOPED(sys)
#undef WEFT_ORDER_SCOPED

/* Modular: has `seen` reached `target`? */
static inline int weft_reached(uint32_t seen, uint32_t target) { return (int32_t)(seen - target) >= 0; }

#endif
