/* order.c: one global topological order of units; each device's queue is its part of it.
 *
 *   breadth   level by level; within a level row tile by row tile
 *   critical  what has the longest way to the end goes first
 *   grouped   a few row tiles through all levels, then the next: what one consumer needs is made together, and the next
 *             device begins early. As many row tiles as keep every worker busy on the narrowest op.
 *
 * Within a unit tasks run along the columns of the output, which is the K order of whoever reads them. Micro-batches
 * go one after another in every order. */
#include "plan_internal.h"

#include <stdlib.h>

static int by_key(const void *a, const void *b)
{
    const weft__unit *x = a, *y = b;
    if (x->key[0] != y->key[0]) return x->key[0] < y->key[0] ? -1 : 1;
    if (x->key[1] != y->key[1]) return x->key[1] < y->key[1] ? -1 : 1;
    if (x->mt != y->mt) return x->mt < y->mt ? -1 : 1;
    return x->pop < y->pop ? -1 : x->pop > y->pop;
}

static uint64_t unit_cost(const weft__plan_state *p, const weft__pop *pop)
{
    const uint64_t tasks = (uint64_t)pop->n_nt * pop->op.n_split, workers = p->opt->workers[pop->op.device];
    return pop->cost_ns * ((tasks + workers - 1) / workers) + 1;
}

/* rank[i]: cost of the longest way from the start of pop i to the end. Pops are in topological order already. */
static uint64_t *pop_ranks(const weft__plan_state *p)
{
    uint64_t *rank = calloc(p->n_pop + 1, sizeof *rank), *after = calloc(p->n_tensor + 1, sizeof *after);
    for (uint32_t i = p->n_pop; rank && after && i-- > 0;) {
        const weft_op *op = &p->pops[i].op;
        const uint32_t out = weft__op_written(op), reads[2] = {weft__op_main(op), op->aux};
        rank[i] = after[p->tensors[out].base] + unit_cost(p, &p->pops[i]);
        for (int r = 0; r < 2; r++) {
            if (reads[r] == WEFT_NONE) continue;
            uint64_t *a = &after[p->tensors[reads[r]].base];
            if (*a < rank[i]) *a = rank[i];
        }
    }
    if (!after) {
        free(rank);
        rank = NULL;
    }
    free(after);
    return rank;
}

/* Row tiles that go together in the grouped order. */
static uint32_t group_size(const weft__plan_state *p)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < p->n_pop; i++) {
        const weft__pop *pop = &p->pops[i];
        if (!weft__is_gemm(pop->op.kind)) continue; /* short */
        const uint32_t want = weft_div_up(p->opt->workers[pop->op.device], pop->n_nt * pop->op.n_split);
        if (want > most) most = want;
    }
    return most;
}

int weft__order_units(weft__plan_state *p)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_pop; i++)
        n += p->pops[i].n_mt;
    if (n >= WEFT_NONE) return weft__fail(WEFT_EUSAGE, "plan: more than 2^32 units");
    uint64_t *rank = p->opt->order == WEFT__CRITICAL ? pop_ranks(p) : NULL;
    p->units = malloc((n + 1) * sizeof *p->units);
    if (!p->units || (p->opt->order == WEFT__CRITICAL && !rank)) {
        free(rank);
        return weft__fail(WEFT_ENOMEM, "plan: %llu units", (unsigned long long)n);
    }
    p->live_bytes += n * sizeof *p->units;
    const int chunked = p->opt->strategy ==
                        WEFT__MICROBATCH; /* its barriers are wider than a row tile: nothing to group */
    const int grouped = p->opt->order == WEFT__GROUPED && !chunked;
    const uint32_t together = group_size(p);
    const uint32_t per_chunk = chunked ? p->chunk_rows / p->m_tile : WEFT_NONE;
    for (uint32_t i = 0; i < p->n_pop; i++) {
        for (uint32_t mt = 0; mt < p->pops[i].n_mt; mt++) {
            weft__unit *u = &p->units[p->n_unit++];
            const uint32_t level = p->pops[i].level;
            const uint32_t panel = (uint32_t)((uint64_t)mt * p->pops[i].op.m_tile /
                                              p->m_tile); /* norms have smaller tiles */
            *u = (weft__unit){.pop = i, .mt = mt};
            u->key[0] = panel / per_chunk;
            if (rank)
                u->key[1] = ~rank[i];
            else
                u->key[1] = grouped ? (uint64_t)(panel / together) << 32 | level : (uint64_t)level << 32 | mt;
        }
    }
    qsort(p->units, p->n_unit, sizeof *p->units, by_key);
    free(rank);
    return 0;
}
