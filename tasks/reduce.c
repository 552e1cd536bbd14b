/* reduce.c: portable body of reduce: sums the partials of all splits in order 0, 1, ..., then norm and epilogue of the op. */
#include "epilogue.h"

#include "layout.h"

#include <math.h>

/* What the sums of a row are multiplied with; the squares of its splits stand beside the partials of each group. */
static float factor(const weft_op_rt *op, uint32_t row, uint32_t group)
{
    const float *squares = (const float *)(uintptr_t)op->squares;
    float sum = 0;
    if (!(op->flags & WEFT_OP_NORM)) return 1.0f;
    for (uint32_t s = 0; s < op->n_split; s++)
        sum += squares[weft_partial_index(op->m, weft_div_up(op->n, 16), s, row, group)];
    return 1.0f / sqrtf(sum / (float)op->k + op->eps);
}

int weft__body_reduce(const weft_task_ctx *ctx)
{
    const weft_op_rt *op = ctx->op;
    const uint32_t *tile = ctx->t->tile; /* m0, g0, ng, rows */
    const float *partial = (const float *)(uintptr_t)op->partial;
    uint32_t rows = weft_rows_of(op, ctx->step, tile[0], tile[3]);
    for (uint32_t row = tile[0]; row < tile[0] + rows; row++) {
        for (uint32_t g = tile[1]; g < tile[1] + tile[2]; g++) {
            float v[16] = {0};
            for (uint32_t s = 0; s < op->n_split; s++) {
                const float *p = partial + weft_partial_index(op->m, op->n, s, row, g * 16);
                for (uint32_t j = 0; j < 16; j++)
                    v[j] += p[j];
            }
            const float f = factor(op, row, g);
            for (uint32_t j = 0; j < 16; j++)
                v[j] *= f;
            if (weft__store_group(ctx, row, g, v)) return 1;
        }
    }
    return 0;
}
