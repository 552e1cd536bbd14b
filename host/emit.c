/* emit.c: a lowered and ordered GEMM plan becomes an image.
 *
 *   arenas of a device    weights: bases of weights, in the order in which ops name them
 *                         work:    inputs, activations, partials, packets; every base has memory of its own
 *
 * Units are walked twice, once to count and once to write; a task's id is its place in its device's queue. */
#include "../tasks/attn.h"
#include "plan_internal.h"

#include <string.h>

/* Offsets of bases, then of views. Bases begin at multiples of 1024. */
static void lay_out(weft__plan_state *p, weft__image_writer *w)
{
    for (uint32_t d = 0; d < p->opt->n_device; d++)
        w->devices[d].weight_bytes = w->devices[d].work_bytes = 0;
    for (uint32_t i = 0; i < p->n_tensor; i++) {
        weft__ptensor *t = &p->tensors[i];
        weft_image_device *dev = &w->devices[t->t.device];
        uint64_t *end = t->t.role == WEFT_ROLE_WEIGHT ? &dev->weight_bytes : &dev->work_bytes;
        if (t->base != i) {
            t->t.offset += p->tensors[t->base].t.offset; /* a base comes before its views */
            continue;
        }
        t->t.offset = *end;
        *end = weft_round_up64(*end + t->t.bytes, 1024);
    }
    for (uint32_t i = 0; i < p->n_tensor; i++)
        w->tensors[i] = p->tensors[i].t;
}

/* The entry of a pop's op with the device that may steal its tasks. */
static weft_op alternate_of(const weft__pop *pop)
{
    weft_op op = pop->op;
    op.device = pop->alt;
    op.flags |= WEFT_OP_ALTERNATE;
    op.w = pop->alt_w;
    op.aux = pop->alt_aux;
    return op;
}

static uint32_t count_alternates(const weft__plan_state *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_pop; i++)
        n += p->pops[i].alt != 0xff;
    return n;
}

/* Ops of a device lie together, then its alternates. */
static int list_ops(weft__plan_state *p, weft__image_writer *w)
{
    uint32_t first = 0;
    for (uint32_t d = 0; d < p->opt->n_device; d++) {
        w->devices[d].workers = p->opt->workers[d];
        w->devices[d].op = first;
        for (uint32_t i = 0; i < p->n_pop; i++) {
            if (p->pops[i].op.device != d) continue;
            p->pops[i].local = w->devices[d].n_op++;
            w->ops[first++] = p->pops[i].op;
        }
        for (uint32_t i = 0; i < p->n_pop; i++) {
            if (p->pops[i].alt != d) continue;
            p->pops[i].alt_local = w->devices[d].n_op++;
            w->ops[first++] = alternate_of(&p->pops[i]);
        }
        if (w->devices[d].n_op > 65536) {
            return weft__fail(WEFT_EUSAGE, "plan: %u ops on device %u, at most 65536", w->devices[d].n_op, d);
        }
    }
    for (uint32_t i = 0; i < p->n_pop; i++) {
        const weft__pop *pop = &p->pops[i];
        if (pop->alt != 0xff) w->ops[w->devices[pop->op.device].op + pop->local].alt = (uint16_t)pop->alt_local;
    }
    return 0;
}

static uint32_t at_most(uint32_t v, uint32_t limit) { return v < limit ? v : limit; }

/* What the tasks of a row tile share out: groups of 16 columns; KV heads, shares, or (row, KV head) pairs. */
static uint32_t units_across(const weft__pop *pop)
{
    switch (pop->op.kind) {
    case WEFT_KIND_ROPE:
    case WEFT_KIND_SURVEY:
    case WEFT_KIND_ATTN: return pop->n_nt;
    case WEFT_KIND_ATTN_COMBINE: return pop->op.m * pop->op.param[WEFT_ATTN_KV_HEADS];
    case WEFT_KIND_PAGES:
    case WEFT_KIND_SAMPLE: return 1;
    case WEFT_KIND_EMBED: return weft_div_up(pop->op.k, 16);
    default: return weft_div_up(pop->op.n, 16);
    }
}

static void tile_of(const weft__plan_state *p, const weft__pop *pop, uint32_t mt, uint32_t nt, uint32_t split,
                    weft__tile *t)
{
    const weft_op *op = &pop->op;
    const uint32_t groups = units_across(pop), blocks = weft_div_up(op->k, 64);
    t->mt = mt;
    t->nt = nt;
    t->split = split;
    t->m0 = mt * op->m_tile;
    t->rows = p->m - t->m0 < op->m_tile ? p->m - t->m0 : op->m_tile; /* PAGES, ATTN: one tile, whatever that says */
    t->g0 = pop->even ? (uint32_t)((uint64_t)nt * groups / pop->n_nt) : nt * pop->groups;
    t->ng = (pop->even ? (uint32_t)((nt + 1ull) * groups / pop->n_nt) : at_most(t->g0 + pop->groups, groups)) - t->g0;
    t->kb0 = split * op->split_kb;
    t->nkb = blocks - t->kb0 < op->split_kb ? blocks - t->kb0 : op->split_kb;
}

/* tile[] as abi.h has it by kind. */
static void tile_words(const weft__pop *pop, const weft__tile *t, uint32_t tile[4])
{
    const uint32_t kind = pop->op.kind;
    tile[0] = kind == WEFT_KIND_ATTN || kind == WEFT_KIND_ATTN_COMBINE ? t->g0 : t->m0;
    tile[1] = kind == WEFT_KIND_ATTN ? pop->n_nt : kind == WEFT_KIND_ATTN_COMBINE ? t->ng : t->g0;
    tile[2] = kind == WEFT_KIND_SURVEY ? pop->n_nt : t->ng;
    tile[3] = weft__is_gemm(kind) ? t->kb0 | t->nkb << 16 : t->rows;
}

static uint32_t splits_of(const weft__pop *pop) { return weft__is_gemm(pop->op.kind) ? pop->op.n_split : 1; }

typedef void tile_fn(weft__plan_state *p, const weft__pop *pop, const weft__tile *t, const weft__edges *e, void *arg);

static void each_tile(weft__plan_state *p, tile_fn *fn, void *arg)
{
    weft__edges e;
    weft__tile t;
    for (uint32_t u = 0; u < p->n_unit; u++) {
        const weft__pop *pop = &p->pops[p->units[u].pop];
        for (uint32_t nt = 0; nt < pop->n_nt; nt++) {
            for (uint32_t s = 0; s < splits_of(pop); s++) {
                tile_of(p, pop, p->units[u].mt, nt, s, &t);
                weft__tile_edges(p, pop, &t, &e);
                fn(p, pop, &t, &e, arg);
            }
        }
    }
}

typedef struct counts {
    uint64_t task[WEFT_MAX_DEVICES], side[WEFT_MAX_DEVICES], dep[WEFT_MAX_DEVICES];
    uint64_t tasks, sides, deps, counters;
} counts;

static uint32_t beyond2(uint32_t n) { return n > 2 ? n - 2 : 0; }

static void count_tile(weft__plan_state *p, const weft__pop *pop, const weft__tile *t, const weft__edges *e, void *arg)
{
    counts *c = arg;
    const uint32_t d = pop->op.device;
    (void)p;
    (void)t;
    c->task[d]++;
    c->dep[d] += e->n_wait;
    c->side[d] += beyond2(e->n_wait) + beyond2(e->n_signal);
}

/* Of a tile that may be smaller than its pop's: then its part of the pop's cost, which may be a given one. */
static uint32_t cost_of(const weft__pop *pop, const weft__tile *t)
{
    const weft_op *op = &pop->op;
    if (t->ng == pop->groups && t->rows == op->m_tile && t->nkb == op->split_kb) return pop->cost_ns;
    const uint32_t part = weft__cost_task(op, t->ng, t->rows, t->nkb);
    if (op->cost == WEFT_NONE) return part;
    const uint32_t whole = weft__cost_task(op, pop->groups, op->m_tile, op->split_kb);
    return (uint32_t)((double)pop->cost_ns * part / whole);
}

typedef struct writing {
    weft__image_writer *w;
    uint32_t task[WEFT_MAX_DEVICES], side[WEFT_MAX_DEVICES]; /* next of each queue */
} writing;

static void write_tile(weft__plan_state *p, const weft__pop *pop, const weft__tile *t, const weft__edges *e, void *arg)
{
    writing *at = arg;
    const weft_op *op = &pop->op;
    const weft_image_queue *q = &at->w->queues[op->device];
    weft_task *task = &at->w->tasks[q->task + at->task[op->device]++];
    uint64_t *side = at->w->side + q->side;
    uint32_t *next = &at->side[op->device];
    (void)p;
    *task = (weft_task){.kind = op->kind,
                        .alt_device = pop->alt,
                        .op = (uint16_t)pop->local,
                        .n_wait = (uint16_t)e->n_wait,
                        .n_signal = (uint16_t)e->n_signal,
                        .extra = *next,
                        .cost_ns = cost_of(pop, t)};
    tile_words(pop, t, task->tile);
    for (uint32_t i = 0; i < e->n_wait; i++) {
        if (i < 2)
            task->wait[i] = e->wait[i];
        else
            memcpy(&side[(*next)++], &e->wait[i], 8);
    }
    for (uint32_t i = 0; i < e->n_signal; i++) {
        if (i < 2)
            task->signal[i] = e->signal[i];
        else
            memcpy(&side[(*next)++], &e->signal[i], 8);
    }
}

static void list_queues(const weft__plan_state *p, const counts *c, weft__image_writer *w)
{
    uint64_t task = 0, side = 0, dep = 0, counter = 0;
    for (uint32_t d = 0; d < p->opt->n_device; d++) {
        w->queues[d] = (weft_image_queue){.task = (uint32_t)task,
                                          .n_task = (uint32_t)c->task[d],
                                          .order = (uint32_t)task,
                                          .side = (uint32_t)side,
                                          .n_side = (uint32_t)c->side[d],
                                          .counter = (uint32_t)counter,
                                          .n_counter = (uint32_t)p->counters[d],
                                          .dep = (uint32_t)dep,
                                          .n_dep = (uint32_t)c->dep[d]};
        task += c->task[d];
        side += c->side[d];
        dep += c->dep[d];
        counter += p->counters[d];
    }
}

int weft__emit(weft__plan_state *p, weft__image_writer *w)
{
    counts c = {0};
    writing at = {.w = w};
    each_tile(p, count_tile, &c);
    for (uint32_t d = 0; d < p->opt->n_device; d++) {
        c.tasks += c.task[d];
        c.sides += c.side[d];
        c.deps += c.dep[d];
        c.counters += p->counters[d];
    }
    const weft__image_counts n = {.devices = p->opt->n_device,
                                  .queues = p->opt->n_device,
                                  .tensors = p->n_tensor,
                                  .weights = p->n_weight,
                                  .ops = (uint64_t)p->n_pop + count_alternates(p),
                                  .tasks = c.tasks,
                                  .order = c.tasks,
                                  .side = c.sides,
                                  .counters = c.counters,
                                  .deps = c.deps,
                                  .costs = (uint64_t)p->g->n_cost * p->g->n_cost_device,
                                  .strings = p->n_string};
    int rc = weft__image_writer_init(w, &n, p->opt->n_device, 1);
    if (rc) return rc;
    lay_out(p, w);
    if ((rc = list_ops(p, w))) return rc;
    if (p->n_weight) memcpy(w->weights, p->weights, p->n_weight * sizeof *p->weights);
    if (n.costs) memcpy(w->costs, p->g->costs, n.costs * sizeof *w->costs);
    memcpy(w->strings, p->strings, p->n_string);
    list_queues(p, &c, w);
    each_tile(p, write_tile, &at);
    return weft__finish(w);
}
