// attn.cuh: which part of a mixed batch an attention task takes; the loader and the consumers walk it alike.
//
// The step's units are (row, KV head, block of tokens), in that order; each counts its tokens. Task i of n takes
// the units whose first token, in the running total T, lies in [i T / n, (i + 1) T / n): the same share on every backend.
// Cache: pages of 64 tokens; page p of KV head h is K then V, 128 bytes a dim each, at (p kv_heads + h) of both. K's is
// [dims / 64][64 tokens][128 bytes], 16-byte chunk c of token t at c ^ (t & 7).
#ifndef WEFT_ATTN_CUH
#define WEFT_ATTN_CUH

#include "../tasks/attn.h"
#include "cta.cuh"

constexpr uint32_t ATTN_PAGE_TOKENS = 64;
constexpr uint32_t ATTN_HEADS = WEFT_ATTN_HEADS, ATTN_KV_HEADS = WEFT_ATTN_KV_HEADS, ATTN_HEAD_DIM = WEFT_ATTN_HEAD_DIM,
                   ATTN_BLOCK_TOKENS = WEFT_ATTN_BLOCK_TOKENS, ATTN_MAX_BLOCKS = WEFT_ATTN_MAX_BLOCKS,
                   ATTN_MAX_PAGES = WEFT_ATTN_MAX_PAGES;

// The step's rows, as the forwarder has left them in this device's memory (await_step acquired them).
WEFT_DEV const weft_step_batch *batch_of(const weft_slot &s)
{
    return (const weft_step_batch *)smem()->ctl->ring[step_of(s).seq % WEFT_STEP_RING].payload;
}
WEFT_DEV uint32_t batch_rows(const weft_slot &s) // that the payload holds
{
    uint32_t bytes = step_of(s).payload_bytes, held = bytes < 16 ? 0 : (bytes - 16) / (uint32_t)sizeof(weft_step_row);
    return held == 0 ? 0 : min(min(ld_cg32(&batch_of(s)->n_row), held), WEFT_MAX_ROWS);
}

// Rows of out that are written: those of the step, and where there are packets all of them, since GEMMs take all rows.
WEFT_DEV uint32_t rows_to_write(const weft_slot &s)
{
    return s.op.flags & WEFT_OP_OUT_PACKET ? s.op.m : min(step_of(s).rows, s.op.m);
}

// Pages of the ring that K and V of one page of the cache take: heads of 64 dims, or of 128.
WEFT_DEV uint32_t attn_pages(const weft_slot &s) { return s.op.param[ATTN_HEAD_DIM] / 64; }

struct attn_unit {
    uint32_t row, tokens, slot, head, block; // tokens that the row sees; head: of KV
    uint32_t first, last;                    // tokens
};

// A whole warp walks a share together; lane i keeps the lengths and slots of rows i and 32 + i.
struct attn_share {
    const uint8_t *cache;
    uint32_t kv_heads, page_bytes, block_tokens, n_row, lengths[2], slots[2];
    uint64_t at, end, run; // first token of the share, of the next share; running total at (row, head, block)
    uint32_t row = 0, head = 0, block = 0;

    __device__ uint32_t length(uint32_t i) const { return __shfl_sync(~0u, i < 32 ? lengths[0] : lengths[1], i % 32); }
    __device__ uint32_t slot(uint32_t i) const { return __shfl_sync(~0u, i < 32 ? slots[0] : slots[1], i % 32); }

    __device__ explicit attn_share(const weft_slot &s)
        : cache((const uint8_t *)s.op.w), kv_heads(s.op.param[ATTN_KV_HEADS]),
          page_bytes(s.op.param[ATTN_HEAD_DIM] * ATTN_PAGE_TOKENS * 4), block_tokens(s.op.param[ATTN_BLOCK_TOKENS]),
          run(0)
    {
        const weft_step_row *r = batch_of(s)->row + threadIdx.x % 32;
        n_row = min(batch_rows(s), s.op.m);
        for (uint32_t i = 0; i < 2; i++, r += 32) {
            bool has = i * 32 + threadIdx.x % 32 < n_row;
            lengths[i] = has ? ld_cg32(&r->kv_len) : 0, slots[i] = has ? ld_cg32(&r->slot) : 0;
        }
        uint64_t total = (uint64_t)__reduce_add_sync(~0u, lengths[0] + lengths[1]) * kv_heads;
        at = total * s.task.tile[0] / s.task.tile[1], end = total * (s.task.tile[0] + 1) / s.task.tile[1];
        while (row < n_row && run + (uint64_t)length(row) * kv_heads <= at) // whole rows before the share
            run += (uint64_t)length(row++) * kv_heads;
        if (row < n_row && length(row) > 0) { // whole heads
            head = (uint32_t)((at - run) / length(row));
            run += (uint64_t)head * length(row);
        }
    }

    __device__ bool next(attn_unit &u)
    {
        while (run < end && row < n_row) {
            uint32_t len = length(row);
            if (block * block_tokens >= len) {
                block = 0;
                if (++head == kv_heads) head = 0, row++;
                continue;
            }
            u.row = row, u.tokens = len, u.slot = slot(row), u.head = head, u.block = block;
            u.first = block * block_tokens, u.last = min(len, u.first + block_tokens);
            bool mine = run >= at;
            run += u.last - u.first;
            block++;
            if (mine) return true;
        }
        return false;
    }

    __device__ const uint8_t *page(const attn_unit &u, uint32_t id) const
    {
        return cache + ((uint64_t)id * kv_heads + u.head) * page_bytes;
    }
};

#endif
