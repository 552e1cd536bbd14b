/* kinds.c: the table of portable bodies, one row a row of tasks.def, and the two kinds that are too small for a file. */
#include "kinds.h"

#include "seed.h"

const weft_kind_row weft__kinds[WEFT_KIND_COUNT] = {
#define WEFT_KIND(ID, name, text) {#name, text, weft__body_##name},
#include "tasks.def"
#undef WEFT_KIND
};

/* Runs for cost_ns, without preemption: it doesn't look at the abort word, so that a test can have a body that stays. */
int weft__body_nop(const weft_task_ctx *ctx)
{
    if (ctx->t->cost_ns == 0) return 0;
    uint64_t start = ctx->calls->now_ns(ctx->worker);
    while (ctx->calls->now_ns(ctx->worker) - start < ctx->t->cost_ns)
        continue;
    return 0;
}

/* args: constant, n_in, in..., n_out, (device, out)...; the value is a running hash of the constant and the inputs. */
int weft__body_mix(const weft_task_ctx *ctx)
{
    const uint32_t *arg = (const uint32_t *)(uintptr_t)ctx->q->args + ctx->t->tile[0];
    const uint32_t *own = (const uint32_t *)(uintptr_t)ctx->dev->work[ctx->dev->device];
    uint32_t h = *arg++;
    for (uint32_t n = *arg++; n > 0; n--)
        h = weft_mix_step(h, own[*arg++]);
    for (uint32_t n = *arg++; n > 0; n--, arg += 2)
        ((uint32_t *)(uintptr_t)ctx->dev->work[arg[0]])[arg[1]] = h;
    return 0;
}
