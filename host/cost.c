/* cost.c: what a task takes, roughly. The figures are of one of 132 workers of an H200; on other machines only their
 * proportions matter: lists are balanced by them and ranks follow from them. */
#include "plan_internal.h"

#define FIXED_NS 500.0       /* queue, wait, signal */
#define WEIGHT_B_PER_NS 34.0 /* device memory: 4.5 TB/s by 132 */
#define X_B_PER_NS 90.0      /* L2 */
#define FLOP_PER_NS 5200.0   /* tensor cores: 690 TFLOP/s by 132 */

uint32_t weft__cost_task(const weft_op *op, uint32_t groups, uint32_t rows, uint32_t kb)
{
    double ns = FIXED_NS;
    if (op->kind >= WEFT_KIND_PAGES || op->kind == WEFT_KIND_ATTN || op->kind == WEFT_KIND_ATTN_COMBINE) {
        ns += 2000.0; /* what they take is data */
    } else if (op->kind == WEFT_KIND_REDUCE) {
        ns += 64.0 * groups * rows * op->n_split / X_B_PER_NS;
    } else if (op->kind == WEFT_KIND_RMSNORM || op->kind == WEFT_KIND_COPY) {
        ns += 64.0 * groups * rows / X_B_PER_NS; /* two bytes in, two out */
    } else {
        const double weights = (double)groups * kb * WEFT_ATOM_BYTES, x = (double)rows * kb * 128;
        const double memory = weights / WEIGHT_B_PER_NS + x / X_B_PER_NS,
                     math = 2.0 * 16 * groups * rows * kb * 64 / FLOP_PER_NS;
        ns += memory > math ? memory : math;
    }
    return ns < 4e9 ? (uint32_t)ns : 4000000000u;
}
