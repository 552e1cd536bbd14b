/* rows.c: portable bodies of rmsnorm and copy: rows of x in FRAG or PANEL layout to rows of out.
 *
 * Enters: rows m0 .. +rows, all their columns (rmsnorm) or groups of 16 from g0 (copy). Leaves: out, and its packets.
 * Order of summation: eight lanes (column mod 8), along the columns; the lanes come together at the end. It depends on
 * neither rows nor tiles.                                                                                             */
#include "epilogue.h"
#include "half.h"
#include "layout.h"

#include <math.h>

static float element(const weft_op_rt *op, uint32_t row, uint32_t col)
{
    uint16_t h;
    memcpy(&h, (const uint8_t *)(uintptr_t)op->x + weft_offset16(op->x_layout, op->m, op->k, row, col), 2);
    return weft_half_to_f32(op->dtype, h);
}

static float row_factor(const weft_op_rt *op, uint32_t row)
{
    float s[8] = {0};
    for (uint32_t c = 0; c < op->k; c++) {
        const float v = element(op, row, c);
        s[c % 8] += v * v;
    }
    const float sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    return 1.0f / sqrtf(sum / (float)op->k + op->eps);
}

int weft__body_rmsnorm(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const uint32_t *tile = ctx->t->tile; /* m0, 0, all groups, rows */
    const float *gain = (const float *)(uintptr_t)op->w;
    const uint32_t end = tile[0] + weft_rows_of(op, ctx->step, tile[0], tile[3]);
    for (uint32_t row = tile[0]; row < end; row++) {
        const float factor = row_factor(op, row);
        for (uint32_t c = 0; c < op->k; c += 16) {
            const uint32_t n = op->k - c < 16 ? op->k - c : 16;
            uint16_t h[16];
            for (uint32_t j = 0; j < n; j++) {
                const float v = element(op, row, c + j) * factor;
                h[j] = weft_f32_to_half(op->dtype, gain ? v * gain[c + j] : v);
            }
            weft__store_elements(ctx, row, c, n, h);
        }
    }
    return 0;
}

/* Blocks of the layout as they are, padding included: it is zero on both sides. */
static void copy_blocks(const weft_op_rt *op, uint32_t m0, uint32_t m1, uint32_t kb0, uint32_t kb1)
{
    const uint32_t rows = op->x_layout == WEFT_LAYOUT_FRAG ? 8 : 16, bytes = rows * 128;
    for (uint32_t kb = kb0; kb < kb1; kb++) {
        const uint64_t at = weft_offset16(op->x_layout, op->m, op->k, m0, kb * 64);
        memcpy((uint8_t *)(uintptr_t)op->out + at, (const uint8_t *)(uintptr_t)op->x + at,
               (uint64_t)weft_div_up(m1 - m0, rows) * bytes);
    }
}

int weft__body_copy(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const uint32_t *tile = ctx->t->tile; /* m0, g0, ng, rows */
    const uint32_t rows = weft_rows_of(op, ctx->step, tile[0], tile[3]), c1 = (tile[1] + tile[2]) * 16;
    if (rows == 0) return 0;
    copy_blocks(op, tile[0], tile[0] + rows, tile[1] / 4, weft_div_up(c1 < op->k ? c1 : op->k, 64));
    if (!(op->flags & WEFT_OP_OUT_PACKET)) return 0;
    for (uint32_t row = tile[0]; row < tile[0] + rows; row++) {
        for (uint32_t c = tile[1] * 16; c < c1 && c < op->k; c += 16) {
            const uint32_t n = op->k - c < 16 ? op->k - c : 16;
            uint16_t h[16];
            for (uint32_t j = 0; j < n; j++)
                h[j] = weft_f32_to_half(op->dtype, element(op, row, c + j));
            weft__store_elements(ctx, row, c, n, h);
        }
    }
    return 0;
}
