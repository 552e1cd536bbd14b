/* order_relacy.h: the wrappers of order_c11.h over Relacy's atomics, so that protocol.h itself is what gets checked.
 *
 * A word carries the name of its site; one (site, order) can be weakened by one step, to see that the model notices.    */
#ifndef WEFT_TESTS_ORDER_RELACY_H
#define WEFT_TESTS_ORDER_RELACY_H

#include <cstdint>
#include <cstring>
#pragma GCC system_header /* Relacy's headers don't compile without warnings */
#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free

enum class Weak {
    NONE,
    ACQUIRE,
    RELEASE
};

struct Weakening {
    const char *site = "";
    Weak what = Weak::NONE;
};
inline Weakening &weakened()
{
    static Weakening w;
    return w;
}

template <class T> struct Word {
    rl::atomic<T> a;
    const char *site = "";
    void init(const char *name, T value)
    {
        site = name;
        a.store(value, rl::mo_relaxed, RL_INFO);
    }
    bool weak(Weak what) const { return weakened().what == what && std::strcmp(weakened().site, site) == 0; }
};
typedef Word<uint32_t> weft_w32;
typedef Word<uint64_t> weft_w64;

template <class T> T relacy_load(const Word<T> *p, bool acquire)
{
    return p->a.load(acquire && !p->weak(Weak::ACQUIRE) ? rl::mo_acquire : rl::mo_relaxed, RL_INFO);
}
template <class T> void relacy_store(Word<T> *p, T v, bool release)
{
    p->a.store(v, release && !p->weak(Weak::RELEASE) ? rl::mo_release : rl::mo_relaxed, RL_INFO);
}
template <class T> rl::memory_order relacy_rmw_order(const Word<T> *p, bool acquire, bool release)
{
    acquire = acquire && !p->weak(Weak::ACQUIRE);
    release = release && !p->weak(Weak::RELEASE);
    return acquire ? (release ? rl::mo_acq_rel : rl::mo_acquire) : release ? rl::mo_release : rl::mo_relaxed;
}
inline uint32_t relacy_add(weft_w32 *p, uint32_t v, bool acquire, bool release)
{
    return p->a.fetch_add(v, relacy_rmw_order(p, acquire, release), RL_INFO);
}

inline uint32_t weft_ld_relaxed_sys(const weft_w32 *p) { return relacy_load(p, false); }
inline uint32_t weft_ld_acquire_sys(const weft_w32 *p) { return relacy_load(p, true); }
inline void weft_st_release_sys(weft_w32 *p, uint32_t v) { relacy_store(p, v, true); }
inline void weft_red_release_sys(weft_w32 *p, uint32_t v) { relacy_add(p, v, false, true); }
inline uint32_t weft_atom_add_relaxed_sys(weft_w32 *p, uint32_t v) { return relacy_add(p, v, false, false); }
inline uint32_t weft_atom_add_acq_rel_sys(weft_w32 *p, uint32_t v) { return relacy_add(p, v, true, true); }
inline uint32_t weft_atom_cas_relaxed_sys(weft_w32 *p, uint32_t expect, uint32_t v)
{
    p->a.compare_exchange_strong(expect, v, rl::mo_relaxed, RL_INFO);
    return expect;
}
template <class T> T relacy_cas(Word<T> *p, T expect, T v)
{
    p->a.compare_exchange_strong(expect, v, relacy_rmw_order(p, true, true), RL_INFO);
    return expect;
}
inline uint32_t weft_atom_cas_acq_rel_sys(weft_w32 *p, uint32_t expect, uint32_t v) { return relacy_cas(p, expect, v); }
inline uint64_t weft_atom_cas_acq_rel_b64_sys(weft_w64 *p, uint64_t expect, uint64_t v)
{
    return relacy_cas(p, expect, v);
}
inline void weft_st_relaxed_sys(weft_w32 *p, uint32_t v) { relacy_store(p, v, false); }
inline uint64_t weft_ld_relaxed_b64_sys(const weft_w64 *p) { return relacy_load(p, false); }
inline uint64_t weft_ld_acquire_b64_sys(const weft_w64 *p) { return relacy_load(p, true); }
inline void weft_st_relaxed_b64_sys(weft_w64 *p, uint64_t v) { relacy_store(p, v, false); }
inline void weft_st_release_b64_sys(weft_w64 *p, uint64_t v) { relacy_store(p, v, true); }
inline int weft_reached(uint32_t seen, uint32_t target) { return (int32_t)(seen - target) >= 0; }

#endif
