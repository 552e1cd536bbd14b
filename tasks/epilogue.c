/* epilogue.c: from 16 fp32 sums to stored outputs. Columns beyond the tensor are not written; neither is padding. */
#include "epilogue.h"

#include "half.h"

#include <math.h>

static float silu(float v) { return v / (1.0f + expf(-v)); }
static float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

/* The residual of columns col .. col+n (col a multiple of 16, n <= 16), from memory or from its packets. */
static int load_residual(const weft_task_ctx *ctx, uint32_t row, uint32_t col, uint32_t n, float *out)
{
    const weft_op_rt *op = ctx->op;
    if (!(op->flags & WEFT_OP_AUX_PACKET)) {
        const uint8_t *aux = (const uint8_t *)(uintptr_t)op->aux;
        for (uint32_t j = 0; j < n; j++) {
            uint16_t h;
            memcpy(&h, aux + weft_offset16(op->aux_layout, op->out_rows, op->out_cols, row, col + j), 2);
            out[j] = weft_half_to_f32(op->dtype, h);
        }
        return 0;
    }
    uint32_t mp = weft_packet_rows(op->m), mask = 0, words[8];
    uint64_t first = weft_packet_index(mp, row, col); /* 16 aligned columns are one run of 8 packets */
    for (uint32_t j = 0; j < n; j += 2)
        mask |= 1u << (weft_packet_index(mp, row, col + j) - first);
    if (ctx->calls->packets(ctx->worker, op->pk_aux, first, mask, words)) return 1;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t word = words[weft_packet_index(mp, row, col + j) - first];
        out[j] = weft_half_to_f32(op->dtype, (uint16_t)(j % 2 ? word >> 16 : word));
    }
    return 0;
}

static int apply(const weft_task_ctx *ctx, uint32_t row, uint32_t col, uint32_t n, const float v[16], float *o)
{
    const weft_op_rt *op = ctx->op;
    const float *bias = (const float *)(uintptr_t)op->aux;
    switch (op->epilogue) {
    case WEFT_EPI_GATED_SILU:
        for (uint32_t j = 0; j < n; j++)
            o[j] = silu(v[j]) * v[8 + j];
        return 0;
    case WEFT_EPI_RESIDUAL:
        if (load_residual(ctx, row, col, n, o)) return 1;
        for (uint32_t j = 0; j < n; j++)
            o[j] += v[j];
        return 0;
    case WEFT_EPI_BIAS:
        for (uint32_t j = 0; j < n; j++)
            o[j] = v[j] + bias[col + j];
        return 0;
    case WEFT_EPI_SILU:
        for (uint32_t j = 0; j < n; j++)
            o[j] = silu(v[j]);
        return 0;
    case WEFT_EPI_GELU:
        for (uint32_t j = 0; j < n; j++)
            o[j] = gelu(v[j]);
        return 0;
    default: memcpy(o, v, n * sizeof *o); return 0;
    }
}

void weft__store_elements(const weft_task_ctx *ctx, uint32_t row, uint32_t col, uint32_t n, const uint16_t h[16])
{
    const weft_op_rt *op = ctx->op;
    if (op->out) {
        uint8_t *out = (uint8_t *)(uintptr_t)op->out;
        for (uint32_t j = 0; j < n; j++)
            memcpy(out + weft_offset16(op->out_layout, op->out_rows, op->out_cols, row, col + j), &h[j], 2);
    }
    if (op->flags & WEFT_OP_OUT_PACKET) {
        uint32_t mp = weft_packet_rows(op->m);
        for (uint32_t j = 0; j < n; j += 2) { /* the second half of an odd last packet is 0 */
            uint32_t high = j + 1 < n ? (uint32_t)h[j + 1] << 16 : 0;
            ctx->calls->put_packet(ctx->worker, op->pk_out, weft_packet_index(mp, row, col + j), h[j] | high);
        }
    }
}

int weft__store_group(const weft_task_ctx *ctx, uint32_t row, uint32_t group, const float v[16])
{
    const weft_op_rt *op = ctx->op;
    uint32_t width = op->epilogue == WEFT_EPI_GATED_SILU ? 8 : 16, col = group * width;
    if (col >= op->out_cols) return 0;
    uint32_t n = op->out_cols - col < width ? op->out_cols - col : width;
    float o[16];
    if (apply(ctx, row, col, n, v, o)) return 1;
    uint16_t h[16];
    for (uint32_t j = 0; j < n; j++)
        h[j] = weft_f32_to_half(op->dtype, o[j]);
    weft__store_elements(ctx, row, col, n, h);
    return 0;
}
