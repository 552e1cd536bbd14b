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

constexpr uint32_t DEFAULT_IN_FLIGHT = 4; // 64 KB an SM: bandwidth times latency (docs/notebook.md)

constexpr uint32_t ATTN_IN_FLIGHT = 4; // of 32 KB each: nothing waits behind these loads but their own consumers

struct loader {
    uint32_t it = 0; // pages of the sequence so far
    uint32_t in_flight;
    uint32_t at = 0;      // in cta_smem.recent: where this warp's next load goes
    uint32_t before = ~0; // what lies in_flight before that: read early, so that nothing waits for it
};

// Few enough loads are on their way for one more. A page that was claimed again since has landed, though its parity no longer
// tells; looked at only where it seems not to have.
WEFT_DEV bool await_landed(const loader &l)
{
    uint32_t page = l.before & 15, use = l.before >> 4;
    if (l.before == ~0u || mbar_try_wait(&smem()->full[page], use & 1)) return true;
    while (lds_relaxed(&smem()->held[page]) == use && !mbar_try_wait(&smem()->full[page], use & 1))
        if (leaving()) return false;
    return true;
}

WEFT_DEV void note_load(loader &l, uint32_t page, uint32_t use)
{
    smem()->recent[l.at] = page | use << 4;
    l.at = l.at + 1 < PAGES ? l.at + 1 : 0;
    l.before = smem()->recent[l.at >= l.in_flight ? l.at - l.in_flight : l.at + PAGES - l.in_flight];
}

// What the loader does for a page is on the critical path of a streaming kernel: one more look at shared memory cost 15 %
// (docs/notebook.md). So pages are counted, not divided. Pages of x are passed over: the waiter fills them, once it may (load_x).
WEFT_DEV bool load_stream(loader &l, weft_slot &s)
{
    uint32_t g0 = s.task.tile[1], ng = s.task.tile[2], kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
    uint32_t kb_total = weft_div_up(s.op.k, 64), skip = x_in_pages(s) ? x_pages(x_blocks(stream_rows(s))) : 0;
    uint32_t page = l.it % PAGES, use = l.it / PAGES;
    uint64_t group_bytes = (uint64_t)kb_total * WEFT_ATOM_BYTES;
    const uint8_t *chunk = (const uint8_t *)s.op.w + ((uint64_t)g0 * kb_total + kb0) * WEFT_ATOM_BYTES;
    sts_release(&s.first_page, l.it); // acquired in load_x
    for (uint32_t kb = 0; kb < nkb; kb += 8, chunk += WEFT_PAGE_BYTES) {
        uint32_t bytes = min(8u, nkb - kb) * WEFT_ATOM_BYTES;
        const uint8_t *w = chunk;
        page += skip;
        if (page >= PAGES) page -= PAGES, use++;
        for (uint32_t g = 0; g < ng; g++, w += group_bytes) {
            if (!await_landed(l) || !claim_page(page, use)) return false;
            mbar_arrive_expect(&smem()->full[page], bytes);
            bulk_load(smem()->page[page], w, bytes, &smem()->full[page]);
            note_load(l, page, use);
            if (++page == PAGES) page = 0, use++;
        }
    }
    l.it = use * PAGES + page;
    return true;
}

// Wide stages are three pages from a page number divisible by three: W (256 rows), then x. One thread.
WEFT_DEV bool load_wide(const cta &c, loader &l, weft_slot &s)
{
    uint32_t m0 = s.task.tile[0], g0 = s.task.tile[1], kb0 = s.task.tile[3] & 0xffff, nkb = s.task.tile[3] >> 16;
    uint32_t row_atoms = weft_div_up(s.op.m, 16), bytes = min(8u, row_atoms - m0 / 16) * WEFT_ATOM_BYTES;
    const uint8_t *map = (const uint8_t *)c.dev->maps + s.task.op * 128;
    const uint8_t *x = (const uint8_t *)s.op.x + ((uint64_t)kb0 * row_atoms + m0 / 16) * WEFT_ATOM_BYTES;
    for (; l.it % 3 != 0; l.it++) { // pages that no stage can use pass through empty
        if (!claim_page(l.it % PAGES, l.it / PAGES)) return false;
        mbar_arrive(&smem()->full[l.it % PAGES]);
    }
    if (!await_all(s)) return false;
    fence_proxy_async_global(); // x was written by ordinary stores
    for (uint32_t kb = 0; kb < nkb; kb++, l.it += 3) {
        uint32_t p = l.it % PAGES, use = l.it / PAGES;
        if (!claim_page(p + 1, use)) return false;
        mbar_arrive(&smem()->full[p + 1]); // its half comes with the first
        if (!claim_page(p, use)) return false;
        mbar_arrive_expect(&smem()->full[p], 2 * WEFT_PAGE_BYTES);
        bulk_load_box(smem()->page[p], map, kb0 + kb, g0, &smem()->full[p]);
        if (!claim_page(p + 2, use)) return false;
        mbar_arrive_expect(&smem()->full[p + 2], bytes);
        bulk_load(smem()->page[p + 2], x + (uint64_t)kb * row_atoms * WEFT_ATOM_BYTES, bytes, &smem()->full[p + 2]);
    }
    return true;
}

// The ids of a unit's pages: lane i's is that of page i. Read a unit ahead, so that no load waits for them.
WEFT_DEV uint32_t unit_pages(const weft_slot &s, const attn_unit &u)
{
    const uint32_t *table = (const uint32_t *)s.op.aux + (uint64_t)u.slot * s.op.param[ATTN_MAX_PAGES];
    uint32_t token = u.first + threadIdx.x % 32 * ATTN_PAGE_TOKENS;
    return token < u.last ? __ldcg(table + token / ATTN_PAGE_TOKENS) : 0;
}

// K and V of one page: neighbours in the cache and in the ring, so one copy brings both: into one page of the ring, or into two.
WEFT_DEV bool load_kv(loader &l, const uint8_t *kv, uint32_t pages, uint32_t page, uint32_t use)
{
    if (!await_landed(l)) return false;
    if (pages == 2) {
        if (!claim_page(page + 1, use)) return false;
        mbar_arrive(&smem()->full[page + 1]); // its half comes with the first
    }
    if (!claim_page(page, use)) return false;
    mbar_arrive_expect(&smem()->full[page], pages * WEFT_PAGE_BYTES);
    bulk_load(smem()->page[page], kv, pages * WEFT_PAGE_BYTES, &smem()->full[page]);
    note_load(l, page, use);
    return true;
}

// Whole warp; lane 0 loads.
WEFT_DEV bool load_attn(loader &l, weft_slot &s)
{
    uint32_t lane = threadIdx.x % 32, page = l.it % PAGES, use = l.it / PAGES, pages = attn_pages(s);
    bool ok = true;
    if (page % pages != 0) { // K and V of a page lie side by side
        if (lane == 0 && (ok = claim_page(page, use))) mbar_arrive(&smem()->full[page]);
        if (!__shfl_sync(~0u, ok, 0)) return false;
        if (++page == PAGES) page = 0, use++;
    }
    if (!__all_sync(~0u, await_all(s))) return false; // the step's rows and the cache itself
    fence_proxy_async_global();
    attn_share share(s);
    attn_unit u, next;
    bool more = share.next(u);
    uint32_t ids = more ? unit_pages(s, u) : 0;
    while (more) {
        more = share.next(next);
        uint32_t next_ids = more ? unit_pages(s, next) : 0;
        for (uint32_t i = 0, n = weft_div_up(u.last - u.first, ATTN_PAGE_TOKENS); i < n; i++) {
            const uint8_t *kv = share.page(u, __shfl_sync(~0u, ids, i));
            if (lane == 0) ok = load_kv(l, kv, pages, page, use);
            if (!__shfl_sync(~0u, ok, 0)) return false;
            if ((page += pages) == PAGES) page = 0, use++;
        }
        u = next, ids = next_ids;
    }
    l.it = use * PAGES + page;
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
        if (lane == 0 && kind == WEFT_KIND_GEMM_STREAM) ok = load_stream(l, s);
        if (lane == 0 && kind == WEFT_KIND_GEMM_WIDE) ok = load_wide(c, l, s);
        if (kind == WEFT_KIND_ATTN) {
            uint32_t cap = l.in_flight;
            if (c.dev->in_flight == 0) l.in_flight = ATTN_IN_FLIGHT;
            ok = load_attn(l, s);
            l.in_flight = cap;
        }
        ok = __shfl_sync(~0u, ok, 0);
        l.it = __shfl_sync(~0u, l.it, 0);
        if (l.it >= 2 * SEQUENCE_CUT) l.it -= SEQUENCE_CUT;
        __syncwarp();
        if (lane == 0) mbar_arrive(&smem()->slot_free[n % SLOTS]);
    }
    if (lane == 0) drain_pages();
}

#endif
