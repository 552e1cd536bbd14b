/* lower.c: ops of the graph become pops: rectangles of GEMMs, each on one device, and the reductions that join them.
 *
 *   whole       one device                         x (all), W (all)       -> out, in the memory of its reader
 *   column      device t of a group of T           x (all), W rows t      -> columns t of out, kept or sent to the
 * reader
 *   row         device t, reducer r                x columns t, W (r, t)  -> partial sums in r's memory
 *               reducer r, reader e                partials of all t      -> columns r of out in e's memory
 *   norm        reader e, or a device of the group x (all)                -> out (all) in e's memory
 *   copy        device t, reader e                 columns t of out       -> the same in e's memory
 *
 * Slices begin at multiples of 64 columns, so that a slice of a tensor is a run of its memory. A pair of GEMMs of
 * which the second alone reads the first is split by columns, then by rows: the tensor between them never leaves its
 * device. Where several devices read what one GEMM writes, and for split K, the sums go through partials as well. With
 * `copies`, a device writes its results into its own memory, and copies take them to those who read them. */
#include "plan_internal.h"

#include <stdlib.h>
#include <string.h>

typedef weft__slice slice;
typedef weft__lowering ctx;

/* Slice t of T of `cols` columns, in units of `quantum`, a multiple of 64. */
slice weft__slice_of(uint32_t cols, uint32_t t, uint32_t of, uint32_t quantum)
{
    const uint64_t units = weft_div_up(cols, quantum), a = units * t / of * quantum, b = units * (t + 1) / of * quantum;
    const uint32_t end = b < cols ? (uint32_t)b : cols;
    return (slice){(uint32_t)a, a < end ? end - (uint32_t)a : 0};
}

#define SEVERAL (WEFT_NONE - 1)

static uint32_t find(const weft__plan_state *p, uint32_t gt, uint32_t device)
{
    for (uint32_t i = p->gt_first[gt]; i != WEFT_NONE; i = p->tensors[i].next) {
        if (p->tensors[i].t.device == device) return i;
    }
    return WEFT_NONE;
}

static uint32_t find_weight(const weft__plan_state *p, uint32_t gt, uint32_t device, slice rows, slice cols)
{
    for (uint32_t i = p->gt_first[gt]; i != WEFT_NONE; i = p->tensors[i].next) {
        const weft_tensor *t = &p->tensors[i].t;
        const weft_weight *w = &p->weights[t->weight];
        if (t->device != device || t->rows != rows.n || t->cols != cols.n) continue;
        if (w->row0 == rows.first && w->col0 == cols.first) return i;
    }
    return WEFT_NONE;
}

static int gt_name(weft__plan_state *p, uint32_t gt, uint32_t *name)
{
    int rc = p->gt_name[gt] == WEFT_NONE ? weft__plan_string(p, p->g->tensors[gt].name, &p->gt_name[gt]) : 0;
    *name = p->gt_name[gt];
    return rc;
}

/* The base of an activation on a device; `cols` of it if this is a slice. */
int weft__lower_activation(weft__plan_state *p, uint32_t gt, uint32_t device, uint32_t cols, uint32_t *id)
{
    if ((*id = find(p, gt, device)) != WEFT_NONE) return 0;
    const weft__gtensor *g = &p->g->tensors[gt];
    uint32_t role = g->role;
    if (role == WEFT_ROLE_OUTPUT && device != p->group_of[g->producer]) role = WEFT_ROLE_ACT;
    weft_tensor t = {.device = (uint16_t)device,
                     .dtype = g->dtype,
                     .layout = (uint8_t)p->act_layout,
                     .role = (uint8_t)role,
                     .rows = g->rows,
                     .cols = cols,
                     .weight = WEFT_NONE,
                     .splits = 1};
    int rc = gt_name(p, gt, &t.name);
    return rc ? rc : weft__base_new(p, &t, gt, id);
}

static int weight_source(weft__plan_state *p, const weft__gtensor *g, uint32_t row0, uint32_t col0, uint32_t *id)
{
    weft_weight w = {.fill = g->source.fill,
                     .a = WEFT_NONE,
                     .b = WEFT_NONE,
                     .c = WEFT_NONE,
                     .gain = WEFT_NONE,
                     .rows_a = g->source.rows_a,
                     .rows_b = g->source.rows_b,
                     .rows_c = g->source.rows_c,
                     .seed = g->source.seed,
                     .scale = g->source.scale,
                     .row0 = row0,
                     .col0 = col0};
    int rc = g->source.a ? weft__plan_string(p, g->source.a, &w.a) : 0;
    if (!rc && g->source.b) rc = weft__plan_string(p, g->source.b, &w.b);
    if (!rc && g->source.c) rc = weft__plan_string(p, g->source.c, &w.c);
    if (!rc && g->source.gain) rc = weft__plan_string(p, g->source.gain, &w.gain);
    if (!rc) rc = weft__plan_grow(p, (void **)&p->weights, p->n_weight, 1, &p->cap_weight, sizeof *p->weights);
    if (rc) return rc;
    *id = p->n_weight;
    p->weights[p->n_weight++] = w;
    return 0;
}

/* A rectangle of a weight (a GEMM's, or a bias, which is one row of fp32) on a device. */
int weft__lower_weight(weft__plan_state *p, uint32_t gt, uint32_t device, slice rows, slice cols, uint32_t *id)
{
    if ((*id = find_weight(p, gt, device, rows, cols)) != WEFT_NONE) return 0;
    const weft__gtensor *g = &p->g->tensors[gt];
    weft_tensor t = {.device = (uint16_t)device,
                     .dtype = g->dtype,
                     .role = WEFT_ROLE_WEIGHT,
                     .rows = rows.n,
                     .cols = cols.n,
                     .splits = 1,
                     .layout = g->dtype == WEFT_FP32 ? WEFT_LAYOUT_ROW : WEFT_LAYOUT_ATOM};
    int rc = weight_source(p, g, rows.first, cols.first, &t.weight);
    if (!rc) rc = gt_name(p, gt, &t.name);
    return rc ? rc : weft__base_new(p, &t, gt, id);
}

/* A cost that the graph gives stands for the whole op on a device; a task has its part of it, a slice's task less. */
static void give_cost(const ctx *c, weft__pop *pop)
{
    const weft__plan_state *p = c->p;
    const weft__gop *o = c->o;
    const uint32_t device = pop->op.device, ns = weft__given_cost(p->g, o, device);
    if (pop->op.kind == WEFT_KIND_COPY) return;
    pop->op.cost = o->cost;
    if (!ns || pop->op.kind == WEFT_KIND_REDUCE) return;
    const double all = o->kind == WEFT__GOP_GEMM ? (double)p->g->tensors[o->w].rows * c->k : c->k;
    const double part = o->kind == WEFT__GOP_GEMM ? (double)pop->op.n * pop->op.k : pop->op.k;
    const double tasks = (double)pop->n_mt * pop->n_nt * pop->op.n_split;
    const double each = ns * part / all * p->opt->workers[device] / tasks;
    pop->cost_ns = each < 1 ? 1 : each < 4e9 ? (uint32_t)each : 4000000000u;
}

int weft__lower_add(const ctx *c, const weft_op *op)
{
    weft__plan_state *p = c->p;
    int rc = weft__plan_grow(p, (void **)&p->pops, p->n_pop, 1, &p->cap_pop, sizeof *p->pops);
    if (rc) return rc;
    weft__pop *pop = &p->pops[p->n_pop];
    *pop = (weft__pop){.op = *op, .gop = c->gop, .next_writer = WEFT_NONE, .alt = 0xff};
    weft__tile_pop(p, pop);
    give_cost(c, pop);
    const uint32_t written = weft__op_written(op);
    weft__ptensor *base = &p->tensors[p->tensors[written].base];
    pop->next_writer = base->first_writer;
    base->first_writer = p->n_pop++;
    return 0;
}

weft_op weft__op_blank(const ctx *c, uint32_t device, uint32_t kind, uint32_t n, uint32_t k)
{
    return (weft_op){.name = c->name,
                     .device = (uint16_t)device,
                     .kind = (uint8_t)kind,
                     .dtype = (uint8_t)c->dtype,
                     .m = c->p->m,
                     .n = n,
                     .k = k,
                     .m_tile = c->p->m_tile,
                     .n_split = 1,
                     .split_kb = weft_div_up(k, 64),
                     .x = WEFT_NONE,
                     .w = WEFT_NONE,
                     .out = WEFT_NONE,
                     .aux = WEFT_NONE,
                     .scale = WEFT_NONE,
                     .pk_x = WEFT_NONE,
                     .pk_out = WEFT_NONE,
                     .pk_aux = WEFT_NONE,
                     .partial = WEFT_NONE,
                     .squares = WEFT_NONE,
                     .cost = WEFT_NONE};
}

static weft_op gemm(const ctx *c, uint32_t device, uint32_t n, uint32_t k)
{
    return weft__op_blank(c, device, c->p->wide ? WEFT_KIND_GEMM_WIDE : WEFT_KIND_GEMM_STREAM, n, k);
}

/* Rows of W that make columns s of out. */
static slice w_rows(const ctx *c, slice s)
{
    if (c->o->epilogue != WEFT_EPI_GATED_SILU) return s;
    return (slice){2 * s.first, 2 * (uint32_t)weft_round_up64(s.n, 8)};
}

/* The second input of the epilogue for columns s of out. */
static int set_aux(const ctx *c, weft_op *op, slice s)
{
    weft__plan_state *p = c->p;
    uint32_t base;
    if (c->o->aux == WEFT_NONE) return 0;
    if (c->o->epilogue == WEFT_EPI_BIAS) {
        return weft__lower_weight(p, c->o->aux, op->device, (slice){0, 1}, s, &op->aux);
    }
    int rc = weft__lower_activation(p, c->o->aux, op->device, c->cols, &base);
    return rc ? rc : weft__view_new(p, base, s.first, s.n, 0, &op->aux);
}

/* Columns s of out on a device: all that it has of the tensor, if it only keeps them for copies. */
int weft__lower_out(const ctx *c, weft_op *op, uint32_t reader, slice s)
{
    uint32_t base;
    if (!(c->dests >> reader & 1)) return weft__lower_activation(c->p, c->o->out, reader, s.n, &op->out);
    int rc = weft__lower_activation(c->p, c->o->out, reader, c->cols, &base);
    return rc ? rc : weft__view_new(c->p, base, s.first, s.n, 0, &op->out);
}

/* Where a device's tasks store columns s of out: with all who read it, or, for copies, at home. Not slices: a copy would wait
 * for the whole tensor at home, and with it for the copies of the other slices. */
static uint64_t stored_on(const ctx *c, uint32_t device, slice s)
{
    const uint64_t home = 1ull << device;
    return c->p->opt->copies && s.n == c->cols && c->dests & ~home ? home : c->dests;
}

/* Copies of columns s of out, which `from` on `device` holds, to those who read them elsewhere. */
static int send_copies(const ctx *c, uint32_t device, uint32_t from, slice s)
{
    const uint64_t left = c->dests & ~stored_on(c, device, s);
    int rc = 0;
    for (uint32_t e = 0; e < c->p->opt->n_device && !rc; e++) {
        if (!(left >> e & 1)) continue;
        weft_op op = weft__op_blank(c, device, WEFT_KIND_COPY, s.n, s.n);
        op.x = from;
        rc = weft__lower_out(c, &op, e, s);
        if (!rc) rc = weft__lower_add(c, &op);
    }
    return rc;
}

/* Sums of `splits` parts of K for n rows of W; also the sums of squares of those parts. */
static int new_partial(const ctx *c, uint32_t device, uint32_t n, uint32_t splits, uint32_t *id)
{
    weft_tensor t = {.name = WEFT_NONE,
                     .device = (uint16_t)device,
                     .dtype = WEFT_FP32,
                     .layout = WEFT_LAYOUT_PARTIAL,
                     .role = WEFT_ROLE_PARTIAL,
                     .rows = c->p->m,
                     .cols = n,
                     .weight = WEFT_NONE,
                     .splits = splits};
    return weft__base_new(c->p, &t, WEFT_NONE, id);
}

/* Reductions of a partial that hold columns s of out: one for each place where it is stored. */
static int reduce_to_all(const ctx *c, uint32_t device, uint32_t partial, uint32_t squares, slice s)
{
    const uint64_t stored = stored_on(c, device, s);
    uint32_t last = WEFT_NONE;
    int rc = 0;
    for (uint32_t e = 0; e < c->p->opt->n_device && !rc; e++) {
        if (!(stored >> e & 1)) continue;
        weft_op op = weft__op_blank(c, device, WEFT_KIND_REDUCE, w_rows(c, s).n, c->k);
        op.epilogue = c->o->epilogue;
        op.flags = squares != WEFT_NONE ? WEFT_OP_NORM : 0;
        op.eps = c->o->eps;
        op.squares = squares;
        op.partial = partial;
        op.n_split = c->p->tensors[partial].t.splits;
        rc = set_aux(c, &op, s);
        if (!rc) rc = weft__lower_out(c, &op, e, s);
        if (!rc) rc = weft__lower_add(c, &op);
        last = op.out;
    }
    return rc ? rc : send_copies(c, device, last, s);
}

/* Sums as they are, for the op that reads them (SAMPLE), on its device. */
static int lower_sums(const ctx *c, uint32_t device, slice s)
{
    weft__plan_state *p = c->p;
    const uint32_t reader = (uint32_t)__builtin_ctzll(c->dests);
    uint32_t base = find(p, c->o->out, reader);
    weft_op op = gemm(c, device, s.n, c->k);
    op.flags = WEFT_OP_PARTIAL;
    int rc = weft__lower_activation(p, c->o->x, device, c->k, &op.x);
    if (!rc) rc = weft__lower_weight(p, c->o->w, device, s, (slice){0, c->k}, &op.w);
    if (!rc && base == WEFT_NONE) {
        weft_tensor t = {.name = WEFT_NONE,
                         .device = (uint16_t)reader,
                         .dtype = WEFT_FP32,
                         .layout = WEFT_LAYOUT_PARTIAL,
                         .role = WEFT_ROLE_PARTIAL,
                         .rows = p->m,
                         .cols = c->cols,
                         .weight = WEFT_NONE,
                         .splits = 1};
        rc = weft__base_new(p, &t, c->o->out, &base);
    }
    if (!rc) rc = weft__view_new(p, base, s.first, s.n, 0, &op.partial);
    return rc ? rc : weft__lower_add(c, &op);
}

/* Columns s of out from all of x, on one device: straight into the reader's memory, or through partials. */
static int lower_columns(const ctx *c, uint32_t device, slice s)
{
    weft__plan_state *p = c->p;
    if (c->o->sums) return lower_sums(c, device, s);
    const slice rows = w_rows(c, s);
    const uint32_t blocks = weft_div_up(c->k, 64), split = p->opt->split_k > 1 ? p->opt->split_k : 1;
    const uint64_t stored = stored_on(c, device, s);
    weft_op op = gemm(c, device, rows.n, c->k);
    op.split_kb = weft_div_up(blocks, split < blocks ? split : blocks);
    op.n_split = weft_div_up(blocks, op.split_kb);
    int rc = weft__lower_activation(p, c->o->x, device, c->k, &op.x);
    if (!rc) rc = weft__lower_weight(p, c->o->w, device, rows, (slice){0, c->k}, &op.w);
    op.flags = c->o->norm ? WEFT_OP_NORM : 0;
    op.eps = c->o->eps;
    if (rc) return rc;
    if (op.n_split == 1 && __builtin_popcountll(stored) == 1) {
        op.epilogue = c->o->epilogue;
        rc = set_aux(c, &op, s);
        if (!rc) rc = weft__lower_out(c, &op, (uint32_t)__builtin_ctzll(stored), s);
        if (!rc) rc = weft__lower_add(c, &op);
        return rc ? rc : send_copies(c, device, op.out, s);
    }
    op.flags |= WEFT_OP_PARTIAL;
    rc = new_partial(c, device, rows.n, op.n_split, &op.partial);
    if (!rc && c->o->norm) rc = new_partial(c, device, weft_div_up(rows.n, 16), op.n_split, &op.squares);
    if (!rc) rc = weft__lower_add(c, &op);
    return rc ? rc : reduce_to_all(c, device, op.partial, op.squares, s);
}

/* Each reader of the group normalises for itself; one device of the group does for the readers elsewhere. */
static int lower_norm(const ctx *c, uint32_t first, uint32_t of)
{
    int rc = 0;
    for (uint32_t e = 0; e < c->p->opt->n_device && !rc; e++) {
        if (!(c->dests >> e & 1)) continue;
        const uint32_t device = e >= first && e < first + of ? e : first;
        weft_op op = weft__op_blank(c, device, WEFT_KIND_RMSNORM, c->k, c->k);
        op.eps = c->o->eps;
        rc = weft__lower_activation(c->p, c->o->x, device, c->k, &op.x);
        if (!rc && c->o->w != WEFT_NONE) {
            rc = weft__lower_weight(c->p, c->o->w, device, (slice){0, 1}, (slice){0, c->k}, &op.w);
        }
        if (!rc) rc = weft__lower_out(c, &op, e, (slice){0, c->cols});
        if (!rc) rc = weft__lower_add(c, &op);
    }
    return rc;
}

/* Columns s of out, kept on the device that makes them: all that device reads of the tensor. */
static int lower_kept(const ctx *c, uint32_t device, slice s)
{
    const slice rows = w_rows(c, s);
    weft_op op = gemm(c, device, rows.n, c->k);
    op.flags = c->o->norm ? WEFT_OP_NORM : 0;
    op.eps = c->o->eps;
    op.epilogue = c->o->epilogue;
    int rc = weft__lower_activation(c->p, c->o->x, device, c->k, &op.x);
    if (!rc) rc = weft__lower_weight(c->p, c->o->w, device, rows, (slice){0, c->k}, &op.w);
    if (!rc) rc = set_aux(c, &op, s);
    if (!rc) rc = weft__lower_activation(c->p, c->o->out, device, s.n, &op.out);
    return rc ? rc : weft__lower_add(c, &op);
}

/* x is cut over the group: device t adds its share of every reducer's columns into that reducer's memory. */
static int lower_rows(const ctx *c, uint32_t first, uint32_t of)
{
    weft__plan_state *p = c->p;
    uint32_t shares = 0;
    for (uint32_t t = 0; t < of; t++)
        shares += weft__slice_of(c->k, t, of, c->quantum[c->o->x]).n > 0;
    for (uint32_t r = 0; r < of; r++) {
        const slice s = weft__slice_of(c->cols, r, of, c->quantum[c->o->out]), rows = w_rows(c, s);
        uint32_t partial, split = 0;
        if (!s.n) continue;
        int rc = new_partial(c, first + r, rows.n, shares, &partial);
        for (uint32_t t = 0; t < of && !rc; t++) {
            const slice ks = weft__slice_of(c->k, t, of, c->quantum[c->o->x]);
            if (!ks.n) continue;
            weft_op op = gemm(c, first + t, rows.n, ks.n);
            op.flags = WEFT_OP_PARTIAL;
            rc = weft__lower_activation(p, c->o->x, first + t, ks.n, &op.x);
            if (!rc) rc = weft__lower_weight(p, c->o->w, first + t, rows, ks, &op.w);
            if (!rc) rc = weft__view_new(p, partial, 0, rows.n, split++, &op.partial);
            if (!rc) rc = weft__lower_add(c, &op);
        }
        if (!rc) rc = reduce_to_all(c, first + r, partial, WEFT_NONE, s);
        if (rc) return rc;
    }
    return 0;
}

/* Is out read by one op alone, as x, in the same group, by an op that can take it in slices? */
static int stays_sliced(const ctx *c)
{
    const weft__graph *g = c->p->g;
    const uint32_t reader = c->reader[c->o->out];
    if (g->tensors[c->o->out].role != WEFT_ROLE_ACT || reader >= g->n_op) return 0;
    if (g->ops[reader].kind == WEFT__GOP_ROPE) return 1;
    if (g->ops[reader].kind != WEFT__GOP_GEMM) return 0;
    return g->ops[reader].x == c->o->out && !g->ops[reader].norm && c->p->group_of[reader] == c->p->group_of[c->gop];
}

static int lower_op(ctx *c)
{
    weft__plan_state *p = c->p;
    const uint32_t first = p->group_of[c->gop], of = p->group;
    int rc = weft__plan_string(p, c->o->name, &c->name);
    if (rc) return rc;
    c->dtype = p->g->tensors[c->o->x].dtype;
    c->k = p->g->tensors[c->o->x].cols;
    c->cols = p->g->tensors[c->o->out].cols;
    c->dests = p->gt_need[c->o->out];
    if (!c->dests) c->dests = 1ull << first; /* nobody reads it */
    if (c->o->kind >= WEFT__GOP_EMBED) return weft__lower_decode(c, first, of);
    if (c->o->kind == WEFT__GOP_RMSNORM) return lower_norm(c, first, of);
    if (of == 1) return lower_columns(c, first, (slice){0, c->cols});
    if (c->sliced[c->o->x]) return lower_rows(c, first, of);
    c->sliced[c->o->out] = (uint8_t)stays_sliced(c);
    for (uint32_t t = 0; t < of && !rc; t++) {
        const slice s = weft__slice_of(c->cols, t, of, c->quantum[c->o->out]);
        if (!s.n) continue;
        rc = c->sliced[c->o->out] ? lower_kept(c, first + t, s) : lower_columns(c, first + t, s);
    }
    return rc;
}

/* The same part of a weight on another device. */
static int weight_there(weft__plan_state *p, uint32_t tensor, uint32_t device, uint32_t *id)
{
    const weft__ptensor *t = &p->tensors[tensor];
    const weft_weight *w = &p->weights[t->t.weight];
    return weft__lower_weight(p, t->gt, device, (slice){w->row0, t->t.rows}, (slice){w->col0, t->t.cols}, id);
}

/* What the next device needs to take GEMMs and norms of a device: their weights. */
static int add_alternates(weft__plan_state *p)
{
    const uint32_t n = p->opt->n_device;
    int rc = 0;
    for (uint32_t i = 0; i < p->n_pop && n > 1 && !rc; i++) {
        weft__pop *pop = &p->pops[i];
        const uint32_t kind = pop->op.kind, alt = (pop->op.device + 1) % n;
        if (!weft__is_gemm(kind) && kind != WEFT_KIND_RMSNORM) continue;
        if (weft__given_cost(p->g, &p->g->ops[pop->gop], alt) == WEFT_NONE) continue;
        pop->alt_w = pop->op.w;
        pop->alt_aux = pop->op.aux;
        if (pop->op.w != WEFT_NONE) rc = weight_there(p, pop->op.w, alt, &pop->alt_w);
        if (!rc && pop->op.epilogue == WEFT_EPI_BIAS && pop->op.aux != WEFT_NONE) {
            rc = weight_there(p, pop->op.aux, alt, &pop->alt_aux);
        }
        pop->alt = (uint8_t)alt;
    }
    return rc;
}

static void note_reader(ctx *c, uint32_t gt)
{
    if (gt != WEFT_NONE) c->reader[gt] = c->reader[gt] == WEFT_NONE ? c->gop : SEVERAL;
}

int weft__lower(weft__plan_state *p)
{
    const uint32_t n = p->g->n_tensor;
    ctx c = {.p = p,
             .sliced = calloc(n + 1, 1),
             .reader = malloc((n + 1) * sizeof(uint32_t)),
             .quantum = malloc((n + 1) * sizeof(uint32_t))};
    int rc = c.sliced && c.reader && c.quantum ? 0 : weft__fail(WEFT_ENOMEM, "plan: %u tensors", n);
    if (!rc) memset(c.reader, 0xff, (n + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < n && !rc; i++)
        c.quantum[i] = p->g->tensors[i].quantum ? p->g->tensors[i].quantum : 64;
    for (c.gop = 0; c.gop < p->g->n_op && !rc; c.gop++) {
        note_reader(&c, p->g->ops[c.gop].x);
        note_reader(&c, p->g->ops[c.gop].aux);
    }
    for (c.gop = 0; c.gop < p->g->n_op && !rc; c.gop++) {
        c.o = &p->g->ops[c.gop];
        rc = lower_op(&c);
    }
    if (!rc && p->opt->alternates) rc = add_alternates(p);
    free(c.sliced);
    free(c.reader);
    free(c.quantum);
    return rc;
}
