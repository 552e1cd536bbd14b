// attn.cuh: which part of a mixed batch an attention task takes; the loader and the consumers walk it alike.
//
// The step's units are (sequence, KV head, block of 512 tokens), in that order; each counts its tokens. Task i of n takes
// the units whose first token, in the running total T, lies in [i T / n, (i + 1) T / n): the same share on every backend.
// Cache: pages of 64 tokens; page p of KV head h is K then V, 16 KB each, at ((p kv_heads + h) 2) 16 KB. A half page is
// [2 halves of 64 dims][64 tokens][128 bytes], 16-byte chunk c of token t at c ^ (t & 7).
#ifndef WEFT_ATTN_CUH
#define WEFT_ATTN_CUH

#include "cta.cuh"

constexpr uint32_t ATTN_PAGE_TOKENS = 64, ATTN_BLOCK_TOKENS = 512, ATTN_DIM = 128;
enum attn_param {
    ATTN_HEADS,
    ATTN_KV_HEADS,
    ATTN_HEAD_DIM,
    ATTN_PAGE,
    ATTN_MAX_BLOCKS,
    ATTN_MAX_PAGES
};

struct attn_unit {
    uint32_t seq, head, block; // head: of KV
    uint32_t first, last;      // tokens
};

// A whole warp walks a share together; lane i keeps the lengths of sequences i and 32 + i.
struct attn_share {
    const uint32_t *table;
    const uint8_t *cache;
    uint32_t kv_heads, max_pages, n_seq, lengths[2];
    uint64_t at, end, run; // first token of the share, of the next share; running total at (seq, head, block)
    uint32_t seq = 0, head = 0, block = 0;

    __device__ uint32_t length(uint32_t i) const { return __shfl_sync(~0u, i < 32 ? lengths[0] : lengths[1], i % 32); }

    __device__ explicit attn_share(const weft_slot &s)
        : table((const uint32_t *)s.op.aux), cache((const uint8_t *)s.op.w), kv_heads(s.op.param[ATTN_KV_HEADS]),
          max_pages(s.op.param[ATTN_MAX_PAGES]), run(0)
    {
        const weft_step_attn *step = (const weft_step_attn *)smem()->ctl->ring[step_of(s).seq % WEFT_STEP_RING].payload;
        uint32_t lane = threadIdx.x % 32, a = ld_cg32(&step->kv_len[lane]), b = ld_cg32(&step->kv_len[32 + lane]);
        n_seq = ld_cg32(&step->n_seq);
        lengths[0] = lane < n_seq ? a : 0, lengths[1] = 32 + lane < n_seq ? b : 0;
        uint64_t total = (uint64_t)__reduce_add_sync(~0u, lengths[0] + lengths[1]) * kv_heads;
        at = total * s.task.tile[0] / s.task.tile[1], end = total * (s.task.tile[0] + 1) / s.task.tile[1];
        while (seq < n_seq && run + (uint64_t)length(seq) * kv_heads <= at) // whole sequences before the share
            run += (uint64_t)length(seq++) * kv_heads;
        if (seq < n_seq && length(seq) > 0) { // whole heads
            head = (uint32_t)((at - run) / length(seq));
            run += (uint64_t)head * length(seq);
        }
    }

    __device__ bool next(attn_unit &u)
    {
        while (run < end && seq < n_seq) {
            uint32_t len = length(seq);
            if (block * ATTN_BLOCK_TOKENS >= len) {
                block = 0;
                if (++head == kv_heads) head = 0, seq++;
                continue;
            }
            u.seq = seq, u.head = head, u.block = block;
            u.first = block * ATTN_BLOCK_TOKENS, u.last = min(len, u.first + ATTN_BLOCK_TOKENS);
            bool mine = run >= at;
            run += u.last - u.first;
            block++;
            if (mine) return true;
        }
        return false;
    }

    __device__ uint32_t page_id(const attn_unit &u, uint32_t token) const
    {
        return __ldcg(table + (uint64_t)u.seq * max_pages + token / ATTN_PAGE_TOKENS);
    }

    __device__ const uint8_t *page(const attn_unit &u, uint32_t id) const
    {
        return cache + ((uint64_t)id * kv_heads + u.head) * 2 * WEFT_PAGE_BYTES;
    }
};

#endif
