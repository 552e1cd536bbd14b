/* attn.h: attention over a paged KV cache: memory layout, units of work, partials. C11, C++ and CUDA.
 *
 * Rows r = 0 .. n_row-1 of the step's payload (weft_step_batch) each see the first kv_len tokens of their sequence, their own
 * included. param[] of the ops (enum weft_attn_param): heads, kv_heads, head_dim, block_tokens, max_blocks, max_pages. Query
 * heads h * hpk .. + hpk (hpk = heads / kv_heads) share KV head h. head_dim is a multiple of 64; so is block_tokens, up to 512.
 *
 *   table (PAGES op.out; op.aux) u32 [slot][max_pages]: the page of tokens 64*i .. of a slot's sequence
 *   qkv   (ROPE op.x)  [row][KV head][hpk queries, key, value][head_dim], 16-bit, any layout of activations
 *   turn  (ROPE op.scale) fp32: head_dim / 2 frequencies, radians a position; with WEFT_OP_NORM the head_dim gains of queries
 *                   and those of keys follow (Qwen3's q_norm, k_norm: RMSNorm of each head before it is turned)
 *   q     (ROPE op.out, ATTN op.x) ROW, [row][heads * head_dim], 16-bit. Pair i of a head is elements i, i + head_dim / 2
 *                   (RoFormer, Su et al. 2021, in the arrangement of Llama's public checkpoints)
 *   KV    (op.w)    pages. Page p of KV head h: K at byte ((p * kv_heads + h) * 2 + 0) * page bytes, V at ... + 1.
 *                   A page holds 64 tokens: [head_dim/64][64 tokens][128 bytes]; 16-byte chunk c of a token's 128 bytes stands
 *                   at c ^ (token & 7). head_dim 128: 16 KB, two boxes of 8 KB in 128-byte swizzle
 *   partials        fp32, unit u = (row * kv_heads + h) * max_blocks + block: m[hpk], l[hpk], o[hpk][head_dim], where
 *                   m = max of score * log2(e) / sqrt(head_dim), l = sum of 2^(. - m), o = sum of 2^(. - m) * v
 *   arrived (ATTN op.squares, where it has an out) u32 [row][KV head], zero between steps: units of this step that are done
 *   out   (ATTN with `arrived`: whoever finishes the last unit of a row and KV head combines them; else ATTN_COMBINE) [row][heads * head_dim], in its own layout
 *
 * ROPE writes what row r has for KV head h at its position; ATTN reads what all rows wrote, and what earlier steps did.
 *
 * A unit is (row, KV head, block of block_tokens tokens at absolute positions), numbered in that order. Units are dealt out by
 * tokens: unit u begins at first(u) in the running total of the tokens of all units; share i of n takes those with
 * i*T/n <= first(u) < (i+1)*T/n (64-bit integers, T the total). So every unit has one owner, whatever n.             */
#ifndef WEFT_TASKS_ATTN_H
#define WEFT_TASKS_ATTN_H

#include "layout.h"

#define WEFT_ATTN_BLOCK 512u /* the longest, and where nothing else is said */
#define WEFT_ATTN_PAGE 64u

enum weft_attn_param {
    WEFT_ATTN_HEADS = 0,
    WEFT_ATTN_KV_HEADS = 1,
    WEFT_ATTN_HEAD_DIM = 2,
    WEFT_ATTN_BLOCK_TOKENS = 3,
    WEFT_ATTN_MAX_BLOCKS = 4,
    WEFT_ATTN_MAX_PAGES = 5
};

WEFT_HD uint64_t weft_attn_page_bytes(uint32_t head_dim) { return (uint64_t)head_dim * WEFT_ATTN_PAGE * 2; }

/* Byte of K's page (v = 0) or V's (v = 1) of `page` and KV head h. */
WEFT_HD uint64_t weft_attn_page_offset(uint32_t kv_heads, uint32_t head_dim, uint32_t page, uint32_t h, uint32_t v)
{
    return (((uint64_t)page * kv_heads + h) * 2 + v) * weft_attn_page_bytes(head_dim);
}

/* Byte in a page of element d of `token` (0 .. 63). */
WEFT_HD uint32_t weft_attn_element(uint32_t token, uint32_t d)
{
    return ((d / 64) * WEFT_ATTN_PAGE + token) * 128 + (((d % 64 / 8) ^ (token & 7)) * 16) + (d % 8) * 2;
}

/* Floats of one unit's partial, and where the unit's begin. */
WEFT_HD uint64_t weft_attn_unit_floats(uint32_t hpk, uint32_t head_dim) { return (uint64_t)hpk * (head_dim + 2); }
WEFT_HD uint64_t weft_attn_unit(uint32_t kv_heads, uint32_t max_blocks, uint32_t s, uint32_t h, uint32_t block)
{
    return ((uint64_t)s * kv_heads + h) * max_blocks + block;
}

#endif
