// loader.cuh: the warp that fills the ring of pages, tasks ahead of the consumers.
//
// Weights don't depend on the step, so a streaming GEMM's are loaded before its waits hold. At most `in_flight` pages
// are on their way at once, whatever the ring still holds free: more would only lengthen the queue that the hand-offs
// of all workers stand in. Both sides derive the same sequence of pages from the task; page `it` of that sequence
// lies in page[it % PAGES].
#ifndef WEFT_LOADER_CUH
#define WEFT_LOADER_CUH

#include "attn.cuh"
#include "cta.cuh"

constexpr uint32_t DEFAULT_IN_FLIGHT = 3; // 48 KB an SM: bandwidth times latency (docs/notebook.md)

struct loader {
    uint32_t it = 0; // pages handed out so far
    uint32_t in_flight;
};

// The page for load `it`: free, and few enough others on their way. One thread or a whole warp.
WEFT_DEV bool await_page(const cta &c, const loader &l, uint32_t it)
{
    if (!await_free(&smem()->empty[it % PAGES], it, PAGES)) return false;
    uint32_t before = it - l.in_flight;
    return it < l.in_flight || await(&smem()->full[before % PAGES], page_parity(before));
}

WEFT_DEV bool load_stream(const cta &c, loader &l, const weft_slot &s)
{
    uint32_t g0 = s.task.tile[1], ng = s.task.tile[2], kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
    uint32_t kb_total = weft_div_up(s.op.k, 64);
    const uint8_t *w = (const uint8_t *)s.op.w + ((uint64_t)g0 * kb_total + kb0) * WEFT_ATOM_BYTES;
    for (uint32_t kb = 0; kb < nkb; kb += 8) {
        uint32_t bytes = min(8u, nkb - kb) * WEFT_ATOM_BYTES;
        for (uint32_t g = 0; g < ng; g++, l.it++) {
            if (!await_page(c, l, l.it)) return false;
            uint64_t *bar = &smem()->full[l.it % PAGES];
            mbar_arrive_expect(bar, bytes);
            bulk_load(smem()->page[l.it % PAGES], w + ((uint64_t)g * kb_total + kb) * WEFT_ATOM_BYTES, bytes, bar);
        }
    }
    return true;
}

// Wide stages are three pages from a page number divisible by three: W rows 0..127, 128..255, then x. Whole warp.
WEFT_DEV bool load_wide(const cta &c, loader &l, weft_slot &s)
{
    uint32_t m0 = s.task.tile[0], g0 = s.task.tile[1], ng = s.task.tile[2];
    uint32_t kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16, lane = threadIdx.x % 32;
    uint32_t kb_total = weft_div_up(s.op.k, 64), row_atoms = weft_div_up(s.op.m, 16), ra = min(8u, row_atoms - m0 / 16);
    const uint8_t *w = (const uint8_t *)s.op.w + ((uint64_t)(g0 + lane) * kb_total + kb0) * WEFT_ATOM_BYTES;
    const uint8_t *x = (const uint8_t *)s.op.x + ((uint64_t)kb0 * row_atoms + m0 / 16) * WEFT_ATOM_BYTES;
    for (; l.it % 3 != 0; l.it++) { // pages that no stage can use pass through empty
        if (!await_page(c, l, l.it)) return false;
        if (lane == 0) mbar_arrive(&smem()->full[l.it % PAGES]);
    }
    if (!__all_sync(~0u, await_all(s))) return false;
    fence_proxy_async_global(); // x was written by ordinary stores
    for (uint32_t kb = 0; kb < nkb; kb++, l.it += 3) {
        uint32_t p = l.it % PAGES;
        for (uint32_t i = 0; i < 3; i++)
            if (!await_free(&smem()->empty[p + i], l.it + i, PAGES)) return false;
        if (lane < 3) {
            uint32_t atoms = lane == 2 ? ra : ng < 8 * lane ? 0 : min(8u, ng - 8 * lane);
            mbar_arrive_expect(&smem()->full[p + lane], atoms * WEFT_ATOM_BYTES);
        }
        __syncwarp();
        if (lane < ng)
            bulk_load(smem()->page[p] + lane * WEFT_ATOM_BYTES, w + (uint64_t)kb * WEFT_ATOM_BYTES, WEFT_ATOM_BYTES,
                      &smem()->full[p + lane / 8]);
        if (lane == 31)
            bulk_load(smem()->page[p + 2], x + (uint64_t)kb * row_atoms * WEFT_ATOM_BYTES, ra * WEFT_ATOM_BYTES, &smem()->full[p + 2]);
    }
    return true;
}

WEFT_DEV bool load_attn(const cta &c, loader &l, weft_slot &s)
{
    if (!await_all(s)) return false; // the step's lengths and the cache itself
    fence_proxy_async_global();
    for (; l.it % 2 != 0; l.it++) { // K and V of a page lie side by side
        if (!await_page(c, l, l.it)) return false;
        mbar_arrive(&smem()->full[l.it % PAGES]);
    }
    attn_share share(c, s);
    for (attn_unit u; share.next(u);)
        for (uint32_t t = u.first; t < u.last; t += ATTN_PAGE_TOKENS) {
            const uint8_t *kv = share.page(u, t);
            for (uint32_t half = 0; half < 2; half++, l.it++) { // K, then V
                if (!await_page(c, l, l.it)) return false;
                uint64_t *bar = &smem()->full[l.it % PAGES];
                mbar_arrive_expect(bar, WEFT_PAGE_BYTES);
                bulk_load(smem()->page[l.it % PAGES], kv + half * WEFT_PAGE_BYTES, WEFT_PAGE_BYTES, bar);
            }
        }
    return true;
}

WEFT_DEV void load_loop(const cta &c)
{
    loader l;
    l.in_flight = c.dev->in_flight == 0 ? DEFAULT_IN_FLIGHT : min(c.dev->in_flight, PAGES);
    uint32_t lane = threadIdx.x % 32;
    bool ok = true;
    for (uint32_t n = 0; ok; n++) {
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n)) || s.flags & SLOT_EXIT) break;
        uint32_t kind = s.flags & SLOT_EMPTY ? WEFT_KIND_NOP : s.task.kind;
        if (kind == WEFT_KIND_GEMM_WIDE) {
            ok = load_wide(c, l, s);
        } else {
            if (lane == 0 && kind == WEFT_KIND_GEMM_STREAM) ok = load_stream(c, l, s);
            if (lane == 0 && kind == WEFT_KIND_ATTN) ok = load_attn(c, l, s);
            ok = __shfl_sync(~0u, ok, 0);
            l.it = __shfl_sync(~0u, l.it, 0);
        }
        __syncwarp();
        if (lane == 0) mbar_arrive(&smem()->slot_free[n % SLOTS]);
    }
    // Shared memory must outlive the copies that are on their way into it.
    for (uint32_t i = l.it > PAGES ? l.it - PAGES : 0; i < l.it; i++)
        while (!mbar_try_wait(&smem()->full[i % PAGES], page_parity(i))) {}
}

#endif
