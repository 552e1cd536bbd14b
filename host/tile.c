/* tile.c: how large a task is.
 *
 * Enters: options, rows, and for each pop its shape. Leaves: one row tile and one layout of activations for the
 * whole plan (so that row panels of all tensors coincide), and for each pop how many 16-row groups of W a task
 * takes. */
#include "../tasks/attn.h"
#include "plan_internal.h"

enum {
    WIDE_ROWS = 128,
    WIDE_GROUPS = 16,
    STREAM_ROWS = 64,
    REDUCE_SUMS = 16,
    MAX_REDUCE_SUMS = 1024
};

static int is_rows(uint32_t rows) { return rows && rows % 8 == 0; }

static uint32_t up8(uint32_t v) { return (v + 7) / 8 * 8; }

static uint32_t at_most(uint32_t v, uint32_t limit) { return v < limit ? v : limit; }

/* Groups of 16 rows of W that a task of the plan's row tile may take. */
static uint32_t most_groups(const weft__plan_state *p)
{
    return p->wide ? WIDE_GROUPS : weft_stream_groups(at_most(p->m_tile, p->m));
}

/* Estimated time of all ops for `rows` rows on one device. */
static uint64_t pass_ns(const weft__plan_state *p, uint32_t rows)
{
    const uint32_t tile = p->wide ? WIDE_ROWS : at_most(STREAM_ROWS, rows),
                   groups = p->wide ? WIDE_GROUPS : weft_stream_groups(tile);
    uint64_t ns = 0;
    for (uint32_t i = 0; i < p->g->n_op; i++) {
        const weft__gop *o = &p->g->ops[i];
        const weft_op op = {.kind = WEFT_KIND_GEMM_STREAM};
        if (o->kind != WEFT__GOP_GEMM) continue;
        const uint32_t tasks = weft_div_up(weft_div_up(p->g->tensors[o->w].rows, 16), groups) * weft_div_up(rows, tile);
        const uint32_t kb = weft_div_up(p->g->tensors[o->x].cols, 64);
        ns += (uint64_t)weft_div_up(tasks, p->opt->workers[0]) * weft__cost_task(&op, groups, at_most(tile, rows), kb);
    }
    return ns;
}

/* The number of chunks with the shortest estimated pass through the pipeline: c chunks take c + stages - 1 turns. */
static uint32_t best_chunks(const weft__plan_state *p, uint32_t unit)
{
    const uint32_t most = at_most(64, weft_div_up(p->m, unit)), stages = at_most(p->opt->n_device, p->g->n_op);
    uint32_t best = 1;
    uint64_t best_ns = UINT64_MAX;
    for (uint32_t c = 1; c <= most; c++) {
        const uint32_t rows = (uint32_t)weft_round_up64(weft_div_up(p->m, c), unit),
                       turns = weft_div_up(p->m, rows) + stages - 1;
        const uint64_t ns = turns * pass_ns(p, rows);
        if (ns < best_ns) {
            best = c;
            best_ns = ns;
        }
    }
    return best;
}

/* Rows of a chunk, as a multiple of the row tile; tiles shrink where chunks are smaller. */
static int choose_chunks(weft__plan_state *p)
{
    const weft__plan_options *o = p->opt;
    p->chunks = 1;
    p->chunk_rows = p->m_tile;
    if (o->strategy != WEFT__MICROBATCH) return 0;
    const uint32_t unit = p->wide ? WIDE_ROWS : 8, most = weft_div_up(p->m, unit);
    const uint32_t want = at_most(o->chunks ? o->chunks : best_chunks(p, unit), most);
    const uint32_t rows = (uint32_t)weft_round_up64(weft_div_up(p->m, want), unit);
    if (!p->wide && rows <= p->m_tile) p->m_tile = rows;
    p->chunk_rows = (uint32_t)weft_round_up64(rows, p->m_tile);
    p->chunks = weft_div_up(p->m, p->chunk_rows);
    return 0;
}

int weft__tile_plan(weft__plan_state *p)
{
    const weft__plan_options *o = p->opt;
    if (o->m_tile && !is_rows(o->m_tile)) {
        return weft__fail(WEFT_EUSAGE, "plan: m_tile %u is not a multiple of 8", o->m_tile);
    }
    const uint32_t chunks = o->strategy == WEFT__MICROBATCH ? o->chunks : 1; /* small ones are not worth wide tasks */
    p->wide = o->wide == WEFT__ON || (o->wide == WEFT__AUTO && p->m >= WIDE_ROWS &&
                                      (!o->m_tile || o->m_tile == WIDE_ROWS) && chunks <= weft_div_up(p->m, WIDE_ROWS));
    if (p->wide && o->m_tile && o->m_tile != WIDE_ROWS) {
        return weft__fail(WEFT_EUSAGE, "plan: m_tile %u, but wide tasks take 128 rows", o->m_tile);
    }
    if (!p->wide && o->m_tile > STREAM_ROWS) {
        return weft__fail(WEFT_EUSAGE, "plan: m_tile %u, but streaming tasks take at most 64 rows", o->m_tile);
    }
    const uint32_t tiles = weft_div_up(p->m, STREAM_ROWS);
    p->m_tile = p->wide ? WIDE_ROWS : o->m_tile ? o->m_tile : up8(weft_div_up(p->m, tiles));
    const uint32_t most = most_groups(p);
    if (o->tile_groups > most) {
        return weft__fail(WEFT_EUSAGE, "plan: tile_groups %u, a task of %u rows takes at most %u", o->tile_groups,
                          p->m_tile, most);
    }
    p->act_layout = p->wide ? WEFT_LAYOUT_PANEL : WEFT_LAYOUT_FRAG;
    return choose_chunks(p);
}

/* The most groups a task may take while there are tasks for nine workers in ten: x is read once a task. */
static uint32_t choose_groups(const weft__plan_state *p, const weft__pop *pop, uint32_t groups)
{
    const uint32_t workers = p->opt->workers[pop->op.device], others = pop->n_mt * pop->op.n_split;
    if (p->opt->tile_groups) return p->opt->tile_groups;
    uint32_t t = most_groups(p);
    while (t > 1 && (uint64_t)weft_div_up(groups, t) * others * 10 < workers * 9ull)
        t /= 2;
    return t;
}

/* A reduction takes whole blocks of its GEMMs. It is short, so it takes as many as a worker sums at once (REDUCE_SUMS
 * rows of 16), and more where there are several reductions for each worker. */
static uint32_t reduce_groups(const weft__plan_state *p, const weft__pop *pop, uint32_t groups, uint32_t rows)
{
    const uint32_t workers = p->opt->workers[pop->op.device];
    uint32_t g = 1, w = p->tensors[p->tensors[pop->op.partial].base].first_writer;
    for (; w != WEFT_NONE; w = p->pops[w].next_writer) {
        if (p->pops[w].groups > g) g = p->pops[w].groups;
    }
    while (2 * g <= groups && 2 * g * rows <= MAX_REDUCE_SUMS) {
        const uint64_t tasks = (uint64_t)weft_div_up(groups, g) * pop->n_mt * p->group;
        if (2 * g * rows > REDUCE_SUMS && tasks <= 2ull * workers) break;
        g *= 2;
    }
    return g;
}

/* As many tasks as fill the rounds that the largest ones would take: 132 workers do 896 groups in one round of 6 or 7 each.
 * Not where tiles are of one shape (wide), chosen, or meet in reductions. */
static void share_evenly(const weft__plan_state *p, weft__pop *pop, uint32_t groups)
{
    if (p->wide || p->opt->tile_groups || pop->op.kind == WEFT_KIND_REDUCE || (pop->op.flags & WEFT_OP_PARTIAL)) return;
    const uint64_t workers = p->opt->workers[pop->op.device],
                   tasks = (uint64_t)weft_div_up(groups, most_groups(p)) * pop->n_mt;
    const uint64_t rounds = (tasks + workers - 1) / workers, fit = rounds * workers / pop->n_mt;
    pop->n_nt = fit < groups ? (uint32_t)fit : groups;
    pop->groups = weft_div_up(groups, pop->n_nt);
    pop->even = 1;
}

/* As many blocks of 64 columns as leave a task for nine workers in ten. */
static uint32_t copy_groups(const weft__plan_state *p, const weft__pop *pop, uint32_t groups)
{
    const uint64_t workers = p->opt->workers[pop->op.device];
    uint32_t t = (uint32_t)weft_round_up64(groups, 4);
    while (t > 4 && (uint64_t)weft_div_up(groups, t) * pop->n_mt * 10 < workers * 9)
        t = (uint32_t)weft_round_up64(t / 2, 4);
    return t;
}

/* A norm takes whole rows, and few of them if that is what keeps the workers busy: eights divide every row tile. */
static uint32_t norm_rows(const weft__plan_state *p, const weft__pop *pop)
{
    return weft_div_up(p->m, p->m_tile) * 10ull < p->opt->workers[pop->op.device] * 9ull ? 8 : p->m_tile;
}

/* The kinds of decoders, whose tasks are not of groups: as many attention tasks as workers, a KV head each for ROPE. */
static int tile_decode(const weft__plan_state *p, weft__pop *pop)
{
    const uint32_t workers = p->opt->workers[pop->op.device], kv_heads = pop->op.param[WEFT_ATTN_KV_HEADS];
    pop->n_mt = pop->groups = pop->n_nt = pop->even = 1;
    switch (pop->op.kind) {
    case WEFT_KIND_PAGES: break;
    case WEFT_KIND_EMBED:
        pop->op.m_tile = norm_rows(p, pop);
        pop->n_mt = weft_div_up(p->m, pop->op.m_tile);
        break;
    case WEFT_KIND_ROPE: pop->n_nt = kv_heads; break;
    case WEFT_KIND_ATTN: pop->n_nt = workers; break;
    case WEFT_KIND_ATTN_COMBINE: pop->n_nt = at_most(workers, p->m * kv_heads); break;
    case WEFT_KIND_SURVEY: pop->n_nt = pop->op.param[1]; break;
    case WEFT_KIND_SAMPLE: pop->n_mt = p->m; break;
    default: pop->even = 0; return 0;
    }
    pop->cost_ns = weft__cost_task(&pop->op, 1, pop->op.m_tile, 1);
    return 1;
}

static uint32_t groups_of(const weft__plan_state *p, const weft__pop *pop, uint32_t groups, uint32_t rows)
{
    switch (pop->op.kind) {
    case WEFT_KIND_REDUCE: return reduce_groups(p, pop, groups, rows);
    case WEFT_KIND_RMSNORM: return groups;
    case WEFT_KIND_COPY: return copy_groups(p, pop, groups);
    default: return choose_groups(p, pop, groups);
    }
}

void weft__tile_pop(const weft__plan_state *p, weft__pop *pop)
{
    if (tile_decode(p, pop)) return;
    if (pop->op.kind == WEFT_KIND_RMSNORM) pop->op.m_tile = norm_rows(p, pop);
    const uint32_t groups = weft_div_up(pop->op.n, 16), rows = p->m < pop->op.m_tile ? p->m : pop->op.m_tile;
    pop->n_mt = weft_div_up(p->m, pop->op.m_tile);
    pop->groups = groups_of(p, pop, groups, rows);
    if (pop->groups > groups) pop->groups = groups;
    pop->n_nt = weft_div_up(groups, pop->groups);
    if (pop->op.kind == WEFT_KIND_GEMM_STREAM) share_evenly(p, pop, groups);
    pop->cost_ns = weft__cost_task(&pop->op, pop->groups, rows, pop->op.split_kb);
}
