/* batch.h: how many rows and page writes a step's payload names, whatever it holds. */
#ifndef WEFT_TASKS_BATCH_H
#define WEFT_TASKS_BATCH_H

#include "kinds.h"

/* Rows that the payload holds and the op has. */
static inline uint32_t weft__batch_rows(const weft_task_ctx *ctx)
{
    const weft_step_batch *b = (const weft_step_batch *)ctx->payload;
    if (ctx->step->payload_bytes < WEFT_BATCH_BYTES(0, 0)) return 0;
    const uint32_t held = (ctx->step->payload_bytes - WEFT_BATCH_BYTES(0, 0)) / (uint32_t)sizeof b->row[0];
    uint32_t n = b->n_row < held ? b->n_row : held;
    if (n > WEFT_MAX_ROWS) n = WEFT_MAX_ROWS;
    return n;
}

/* Rows of out that are written: those of the step, and where there are packets all of them, since who reads packets may take
 * rows that the step lacks. */
static inline uint32_t weft__rows_to_write(const weft_task_ctx *ctx)
{
    const uint32_t m = ctx->op->m;
    return ctx->op->flags & WEFT_OP_OUT_PACKET || ctx->step->rows > m ? m : ctx->step->rows;
}

static inline uint32_t weft__batch_writes(const weft_task_ctx *ctx)
{
    const weft_step_batch *b = (const weft_step_batch *)ctx->payload;
    const uint32_t before = WEFT_BATCH_BYTES(weft__batch_rows(ctx), 0);
    if (ctx->step->payload_bytes < before) return 0;
    const uint32_t held = (ctx->step->payload_bytes - before) / (uint32_t)sizeof(weft_page_write);
    return b->n_write < held ? b->n_write : held;
}

#endif
