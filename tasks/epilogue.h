/* epilogue.h: what happens to 16 fp32 sums on their way out, shared by the kinds that end a GEMM (gemm.c,
 * reduce.c); and the store alone, for the others (rows.c). */
#ifndef WEFT_TASKS_EPILOGUE_H
#define WEFT_TASKS_EPILOGUE_H

#include "kinds.h"

/* v: sums of row `row` of x and rows 16*group .. +16 of W. Applies the op's epilogue and writes out, as 16-bit values in out's
 * layout and as packets where the op says so. Not 0: the engine is stopping.                                         */
int weft__store_group(const weft_task_ctx *ctx, uint32_t row, uint32_t group, const float v[16]);

/* Columns col .. col+n (col even, n <= 16) of row `row`, as 16-bit elements h: into out, and as packets where the op says so. */
void weft__store_elements(const weft_task_ctx *ctx, uint32_t row, uint32_t col, uint32_t n, const uint16_t h[16]);

#endif
