/* gemm.c: portable bodies of gemm_stream and gemm_wide: out = epilogue(norm(x) W^T) for a tile.
 *
 * Enters: rows m0.. of x in any layout or as packets, groups of 16 rows of W as atoms, a K range in blocks of 64.
 * Leaves: outputs, or fp32 partial sums where the op is split, with their sums of squares if it normalises.
 * Order of summation, for every shape, tile and processor the same: a block of 64 is summed by chunks of 8 in a tree, lane
 * by lane; blocks are added one after another; the 8 lanes come together at the end. So a row's result depends neither on
 * the rows beside it nor on how the tiles were cut.                                                                   */
#include "epilogue.h"
#include "half.h"

#include <math.h>

enum {
    MAX_ROWS = 128,
    MAX_GROUPS = 16,
    X_FLOATS = MAX_ROWS * (512 + 16), /* of x are held as fp32: as many columns as fit */
    X_PAD = 16,                       /* rows start in different cache sets */
    ROW_BLOCK = 16                    /* rows of x that stay in the L1 cache */
};

typedef struct sum8 { /* a sum in the making: eight lanes that come together at its end */
    WEFT_ALIGNAS(32) float lane[8];
} sum8;

typedef struct scratch {
    float x[X_FLOATS];
    sum8 acc[MAX_GROUPS][MAX_ROWS / ROW_BLOCK][16][ROW_BLOCK]; /* [group][block of rows of x][row of W][row of x] */
    sum8 squares[MAX_ROWS];
} scratch;
WEFT_STATIC_ASSERT(sizeof(scratch) <= WEFT_SCRATCH_BYTES, "the worker's scratch holds it");

/* The inner loops, once for any processor and once for AVX2. Not with fused multiply-add, so that the result doesn't depend
 * on which one runs.                                                                                                  */
#define DOT(name) name##_base
#define DOT_TARGET
#include "gemm_dot.h"
#if defined(__x86_64__)
#define WEFT_DOT_AVX2
#define DOT(name) name##_avx2
#define DOT_TARGET __attribute__((target("avx2")))
#include "gemm_dot.h"
#endif

typedef struct tile {
    uint32_t m0, rows, g0, ng, kb0, nkb;
    uint32_t x_stride; /* floats from row to row of scratch.x */
} tile;

/* Columns 64*kb .. +64 of one row of x as 16-bit values; what lies beyond k is undefined. */
static void gather(const weft_op_rt *op, uint32_t row, uint32_t kb, uint16_t h[64])
{
    const uint8_t *x = (const uint8_t *)(uintptr_t)op->x;
    uint32_t col = kb * 64, n = op->k - col < 64 ? op->k - col : 64;
    switch (op->x_layout) {
    case WEFT_LAYOUT_ROW: memcpy(h, x + weft_offset16(WEFT_LAYOUT_ROW, op->m, op->k, row, col), n * 2); return;
    case WEFT_LAYOUT_FRAG: {
        const uint8_t *block = x + weft_frag_offset(op->m, row, col); /* row's four lanes, 16 bytes each, twice */
        for (uint32_t half = 0; half < 2; half++)
            for (uint32_t lane = 0; lane < 4; lane++)
                for (uint32_t i = 0; i < 4; i++)
                    memcpy(&h[half * 32 + i * 8 + lane * 2], block + half * 512 + lane * 16 + i * 4, 4);
        return;
    }
    default: /* ATOM, PANEL: chunks of 8 stand apart by the swizzle */
        for (uint32_t c = 0; c < 64; c += 8)
            memcpy(&h[c], x + weft_offset16(op->x_layout, op->m, op->k, row, col + c), 16);
    }
}

static int gather_packets(const weft_task_ctx *ctx, uint32_t row, uint32_t kb, uint16_t h[64])
{
    const weft_op_rt *op = ctx->op;
    uint32_t mp = weft_packet_rows(op->m), words[8];
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t col = kb * 64 + i * 16, mask = 0;
        for (uint32_t j = 0; j < 8; j++)
            mask |= (uint32_t)(col + 8 * (j % 2) + 2 * (j / 2) < op->k) << j;
        if (ctx->calls->packets(ctx->worker, op->pk_x, weft_packet_index(mp, row, col), mask, words)) return 1;
        for (uint32_t j = 0; j < 8; j++)
            memcpy(&h[i * 16 + 8 * (j % 2) + 2 * (j / 2)], &words[j], 4);
    }
    return 0;
}

static void to_f32(const weft_op_rt *op, uint32_t kb, const uint16_t h[64], float *x)
{
    uint32_t left = op->k - kb * 64, n = left < 64 ? left : 64;
    if (op->dtype == WEFT_FP16)
        for (uint32_t c = 0; c < n; c++)
            x[c] = weft_fp16_to_f32(h[c]);
    else
        for (uint32_t c = 0; c < n; c++)
            x[c] = weft_bf16_to_f32(h[c]);
    for (uint32_t c = n; c < 64; c++)
        x[c] = 0; /* padding of W is 0, but 0 times a NaN isn't */
}

/* Blocks kb .. kb+n of all rows into s->x, and their squares into s->squares. */
static int load_x(const weft_task_ctx *ctx, scratch *s, const tile *t, uint32_t kb, uint32_t n)
{
    const weft_op_rt *op = ctx->op;
    uint16_t h[64] = {0};
    for (uint32_t row = 0; row < t->rows; row++) {
        for (uint32_t b = 0; b < n; b++) {
            float *x = s->x + row * t->x_stride + b * 64;
            if (!(op->flags & WEFT_OP_X_PACKET))
                gather(op, t->m0 + row, kb + b, h);
            else if (gather_packets(ctx, t->m0 + row, kb + b, h))
                return 1;
            to_f32(op, kb + b, h, x);
            if (!(op->flags & WEFT_OP_NORM)) continue;
            for (uint32_t c = 0; c < 64; c++)
                s->squares[row].lane[c % 8] += x[c] * x[c];
        }
    }
    return 0;
}

/* All groups of the tile against blocks kb .. kb+n, which s->x holds. */
static void multiply(scratch *s, const tile *t, const weft_op_rt *op, uint32_t kb, uint32_t n)
{
    uint64_t group_bytes = (uint64_t)weft_div_up(op->k, 64) * WEFT_ATOM_BYTES;
    const uint8_t *w = (const uint8_t *)(uintptr_t)op->w + (uint64_t)kb * WEFT_ATOM_BYTES;
    for (uint32_t g = 0; g < t->ng; g++) {
        for (uint32_t row = 0; row < t->rows; row += ROW_BLOCK) {
            uint32_t rows = t->rows - row < ROW_BLOCK ? t->rows - row : ROW_BLOCK;
#ifdef WEFT_DOT_AVX2
            if (__builtin_cpu_supports("avx2")) {
                dot_run_avx2(op->dtype, w + (t->g0 + g) * group_bytes, n, s->x + row * t->x_stride, t->x_stride,
                             s->acc[g][row / ROW_BLOCK], rows);
                continue;
            }
#endif
            dot_run_base(op->dtype, w + (t->g0 + g) * group_bytes, n, s->x + row * t->x_stride, t->x_stride,
                         s->acc[g][row / ROW_BLOCK], rows);
        }
    }
}

static float total(const sum8 *s)
{
    const float *v = s->lane;
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static int store(const weft_task_ctx *ctx, scratch *s, const tile *t)
{
    const weft_op_rt *op = ctx->op;
    for (uint32_t row = 0; row < t->rows; row++) {
        float scale = 1.0f;
        const int partial = op->flags & WEFT_OP_PARTIAL, norm = op->flags & WEFT_OP_NORM;
        if (norm && !partial) scale = 1.0f / sqrtf(total(&s->squares[row]) / (float)op->k + op->eps);
        for (uint32_t g = 0; g < t->ng; g++) {
            float v[16];
            for (uint32_t r = 0; r < 16; r++)
                v[r] = total(&s->acc[g][row / ROW_BLOCK][r][row % ROW_BLOCK]) * scale;
            if (partial) {
                float *sums = (float *)(uintptr_t)op->partial, *squares = (float *)(uintptr_t)op->squares;
                uint32_t split = t->kb0 / op->split_kb, groups = weft_div_up(op->n, 16);
                memcpy(sums + weft_partial_index(op->m, op->n, split, t->m0 + row, (t->g0 + g) * 16), v, sizeof v);
                if (norm)
                    squares[weft_partial_index(op->m, groups, split, t->m0 + row, t->g0 + g)] = total(&s->squares[row]);
            } else if (weft__store_group(ctx, t->m0 + row, t->g0 + g, v)) {
                return 1;
            }
        }
    }
    return 0;
}

static int gemm(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const uint32_t *arg = ctx->t->tile;
    tile t = {arg[0], 0, arg[1], arg[2], arg[3] & 0xffff, arg[3] >> 16, 0};
    t.rows = weft_rows_of(op, ctx->step, t.m0, op->m_tile < MAX_ROWS ? op->m_tile : MAX_ROWS);
    if (t.rows == 0) return 0;
    scratch *s = ctx->scratch;
    for (uint32_t g = 0; g < t.ng; g++)
        memset(s->acc[g], 0, weft_div_up(t.rows, ROW_BLOCK) * sizeof s->acc[g][0]);
    memset(s->squares, 0, t.rows * sizeof(sum8));
    uint32_t fit = (X_FLOATS / t.rows - X_PAD) / 64, chunk = t.nkb < fit ? t.nkb : fit;
    t.x_stride = chunk * 64 + X_PAD;
    for (uint32_t b = 0; b < t.nkb; b += chunk) {
        uint32_t n = t.nkb - b < chunk ? t.nkb - b : chunk;
        if (load_x(ctx, s, &t, t.kb0 + b, n)) return 1;
        multiply(s, &t, op, t.kb0 + b, n);
    }
    return store(ctx, s, &t);
}

int weft__body_gemm_stream(const weft_task_ctx *ctx) { return gemm(ctx); }
int weft__body_gemm_wide(const weft_task_ctx *ctx) { return gemm(ctx); }
