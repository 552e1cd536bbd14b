/* sample.h: the two ends of a decoder's step: tokens to rows (EMBED), logits to tokens (SAMPLE). C11, C++ and CUDA.
 *
 *   EMBED   x     tokens fed back: u32 [2][WEFT_MAX_ROWS]; a step reads the row that the step before it wrote
 *           w     embedding: ATOM, vocab x k
 *           out   m x k, with packets where the op has them. A token past the vocabulary gives a row of NaN, a row
 *                 that the payload lacks one of zeros
 *   SURVEY  partial, squares   as SAMPLE
 *           out   fp32 ROW, m x 4 parts: of each part its largest logit, the token that has it (a float: exact below 2^24; the
 *                 first of equals), the sum of exp(logit - largest), and 1 if a logit is NaN, else 0. Part i of n has the
 *                 groups of 16 tokens i*G/n .. (i+1)*G/n
 *   SAMPLE  scale what SURVEY found, partial, squares   logits of a GEMM with WEFT_OP_PARTIAL, n_split 1, m x vocab (n); with WEFT_OP_NORM they are
 *                 divided by the row's root mean square, as REDUCE does
 *           out   tokens fed back, on EMBED's device
 *           aux   logits for the host: fp32 ROW m x vocab, rows with WEFT_ROW_LOGITS only; or WEFT_NONE
 *           x     page table (attn.h), w: tokens of sequences, u32 [page][64], for the penalty; or WEFT_NONE both
 *
 * The rows of `tokens fed back` take turns: step s writes row s % 2, so nothing of step s reads what s writes. Row r of a step
 * that names WEFT_TOKEN_OF | i gets what SAMPLE made of row i in the step before it; it must have made something of it, and the
 * two steps' numbers must follow each other: an engine that has parked between them has skipped one.
 *
 * SAMPLE, for rows with WEFT_ROW_SAMPLE, in the order in which the transformers library applies them:
 *   penalty       logits of tokens that the sequence holds are divided by it if positive, else multiplied
 *   temperature   0: the largest logit, the first of equals. Else logits / temperature
 *   top_k         keeps what is not below the k-th largest (Fan et al. 2018)
 *   top_p         keeps the fewest of the most likely whose probabilities reach top_p, and their equals (Holtzman et al. 2020)
 *   min_p         keeps what has at least min_p of the largest probability (Nguyen et al. 2024)
 *   draw          in order of token ids: the first whose cumulative probability exceeds u, a hash of seed and position
 * A logit that is NaN makes the row's token WEFT_NONE. The log-probability is that of the token before all cuts.          */
#ifndef WEFT_TASKS_SAMPLE_H
#define WEFT_TASKS_SAMPLE_H

#include "layout.h"
#include "seed.h"

/* First token of part i of n. */
WEFT_HD uint32_t weft_survey_first(uint32_t vocab, uint32_t i, uint32_t n)
{
    const uint32_t first = (uint32_t)((uint64_t)weft_div_up(vocab, 16) * i / n) * 16;
    return first < vocab ? first : vocab;
}

/* [0, 1), 24 bits. */
WEFT_HD float weft_sample_draw(uint32_t seed, uint32_t position)
{
    return (float)(weft_hash(seed, position, 0x73616d70u) >> 8) * (1.0f / 16777216.0f);
}

/* Order of floats as that of unsigned numbers. */
WEFT_HD uint32_t weft_sample_key(float v)
{
    union {
        float f;
        uint32_t u;
    } b;
    b.f = v;
    return b.u & 0x80000000u ? ~b.u : b.u | 0x80000000u;
}

#endif
