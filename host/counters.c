/* counters.c: which edges carry packets, which cells have counters, and what a task waits for and signals.
 *
 * A cell is a row panel (the plan's row tile, or a chunk) by a column panel (all columns; a share of them with
 * k_panels; a block of groups for partials). Row tiles of all pops nest in row panels, so a task touches one panel
 * down. */
#include "plan_internal.h"

static weft__ptensor *base_of(const weft__plan_state *p, uint32_t t) { return &p->tensors[p->tensors[t].base]; }

/* Written by tasks, so that its readers must wait. */
static int is_made(const weft__plan_state *p, uint32_t t)
{
    if (t == WEFT_NONE) return 0;
    const uint8_t role = base_of(p, t)->t.role;
    return role == WEFT_ROLE_ACT || role == WEFT_ROLE_OUTPUT || role == WEFT_ROLE_PARTIAL;
}

/* ------------------------------------------------------------------------------------------------------- packets */

/* The packets of (a view of) an activation, made when first asked for. */
static int packets_of(weft__plan_state *p, uint32_t tensor, uint32_t *id)
{
    const weft__ptensor view = p->tensors[tensor];
    const uint32_t base = view.base;
    if (p->tensors[base].packets == WEFT_NONE) {
        weft_tensor t = p->tensors[base].t;
        t.role = WEFT_ROLE_PACKET;
        t.layout = WEFT_LAYOUT_PACKET;
        uint32_t pk;
        int rc = weft__base_new(p, &t, WEFT_NONE, &pk);
        if (rc) return rc;
        p->tensors[base].packets = pk;
    }
    return weft__view_new(p, p->tensors[base].packets, view.col0, view.t.cols, 0, id);
}

/* A task of a packet edge doesn't wait (static, fifo), so all that it reads must come in packets. */
static int take_packets(weft__plan_state *p, uint32_t i)
{
    const weft_op op = p->pops[i].op;
    uint32_t pk_x, pk_aux = WEFT_NONE;
    if (op.kind != WEFT_KIND_GEMM_STREAM || !is_made(p, op.x)) return 0;
    int rc = packets_of(p, op.x, &pk_x);
    if (!rc && op.epilogue == WEFT_EPI_RESIDUAL && is_made(p, op.aux)) rc = packets_of(p, op.aux, &pk_aux);
    if (rc) return rc;
    p->pops[i].op.flags |= WEFT_OP_X_PACKET | (pk_aux != WEFT_NONE ? WEFT_OP_AUX_PACKET : 0);
    p->pops[i].op.pk_x = pk_x;
    p->pops[i].op.pk_aux = pk_aux;
    return 0;
}

int weft__packets(weft__plan_state *p)
{
    if (p->m > p->opt->packet_max_rows || p->wide || p->opt->strategy == WEFT__MICROBATCH) return 0;
    int rc = 0;
    for (uint32_t i = 0; i < p->n_pop && !rc; i++)
        rc = take_packets(p, i);
    for (uint32_t i = 0; i < p->n_pop && !rc; i++) {
        const uint32_t out = p->pops[i].op.out;
        if (out == WEFT_NONE || base_of(p, out)->packets == WEFT_NONE) continue;
        p->pops[i].op.flags |= WEFT_OP_OUT_PACKET;
        rc = packets_of(p, out, &p->pops[i].op.pk_out);
    }
    return rc;
}

/* ------------------------------------------------------------------------------------------------------ counters */

/* Does whoever has waited for all of `base` know that `target` was complete before, over at most `depth` + 1
 * counters? memory: it is to see it too, which tasks that read packets don't pass on. */
static int covers(const weft__plan_state *p, const weft__ptensor *base, const weft__ptensor *target, int depth,
                  int memory)
{
    for (uint32_t w = base->first_writer; w != WEFT_NONE; w = p->pops[w].next_writer) {
        const weft_op *op = &p->pops[w].op;
        if (memory && op->flags & WEFT_OP_X_PACKET) continue;
        const uint32_t reads = op->kind == WEFT_KIND_REDUCE ? op->partial : op->x;
        if (!is_made(p, reads)) continue;
        if (base_of(p, reads) == target) return 1;
        if (depth > 1 && covers(p, base_of(p, reads), target, depth - 1, memory)) return 1;
    }
    return 0;
}

static void make_cells(weft__plan_state *p, weft__ptensor *b)
{
    const uint32_t k_panels = p->opt->strategy == WEFT__MICROBATCH ? 1 : p->opt->k_panels;
    const uint32_t reduced = b->col_panel;
    b->row_panel = p->chunk_rows;
    b->col_panel = b->t.cols;
    if (b->t.role == WEFT_ROLE_PARTIAL) {
        b->row_panel = p->m_tile;
        b->col_panel = reduced; /* what one reduction takes */
    } else if (k_panels > 1) {
        b->col_panel = (uint32_t)weft_round_up64(weft_div_up(b->t.cols, k_panels), WEFT_K_CHUNK);
    }
    b->n_col = weft_div_up(b->t.cols, b->col_panel);
    b->counter0 = (uint32_t)p->counters[b->t.device];
    p->counters[b->t.device] += (uint64_t)b->n_col * weft_div_up(b->t.rows, b->row_panel);
}

static uint32_t level_of(const weft__plan_state *p, uint32_t t) { return is_made(p, t) ? base_of(p, t)->level : 0; }

static uint32_t max3(uint32_t a, uint32_t b, uint32_t c) { return a > b ? (a > c ? a : c) : b > c ? b : c; }

int weft__counters(weft__plan_state *p)
{
    for (uint32_t i = 0; i < p->n_pop; i++) {
        weft__pop *pop = &p->pops[i];
        const weft_op *op = &pop->op;
        const int reduce = op->kind == WEFT_KIND_REDUCE;
        const uint32_t main = reduce ? op->partial : op->x, aux = op->aux;
        if (is_made(p, main)) base_of(p, main)->read = 1;
        if (reduce && base_of(p, main)->col_panel < pop->groups * 16) base_of(p, main)->col_panel = pop->groups * 16;
        const int memory = !(op->flags & WEFT_OP_AUX_PACKET);
        pop->wait_aux = is_made(p, aux) && (!is_made(p, main) || (memory && op->flags & WEFT_OP_X_PACKET) ||
                                            !covers(p, base_of(p, main), base_of(p, aux), 2, memory));
        if (pop->wait_aux) base_of(p, aux)->read = 1;
        pop->level = max3(level_of(p, main), level_of(p, aux), 0);
        weft__ptensor *out = base_of(p, op->flags & WEFT_OP_PARTIAL ? op->partial : op->out);
        if (out->level < pop->level + 1) out->level = pop->level + 1;
    }
    for (uint32_t i = 0; i < p->n_tensor; i++) {
        if (p->tensors[i].base == i && p->tensors[i].read) make_cells(p, &p->tensors[i]);
    }
    for (uint32_t d = 0; d < p->opt->n_device; d++) {
        if (p->counters[d] >= WEFT_NONE) return weft__fail(WEFT_EUSAGE, "plan: too many counters on device %u", d);
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- edges */

/* Waits for columns [c0, c1) of a base; `origin`: the column at which the task's K range begins, or WEFT_NONE for
 * what it needs at once. */
static void add_waits(const weft__ptensor *b, uint32_t m0, uint32_t c0, uint32_t c1, uint32_t origin, weft__edges *e)
{
    const uint32_t row = b->counter0 + m0 / b->row_panel * b->n_col;
    for (uint32_t c = c0 / b->col_panel; c <= (c1 - 1) / b->col_panel; c++) {
        uint32_t due = 0;
        if (origin != WEFT_NONE && c * b->col_panel > origin) due = (c * b->col_panel - origin) / WEFT_K_CHUNK;
        uint32_t w = 0;
        while (w < e->n_wait && e->wait[w].counter != row + c)
            w++;
        if (w == e->n_wait) e->wait[e->n_wait++] = (weft_wait){.counter = row + c, .due = 255};
        if (due < e->wait[w].due) e->wait[w].due = (uint8_t)due;
    }
}

static void add_signals(const weft__ptensor *b, uint32_t m0, uint32_t c0, uint32_t c1, weft__edges *e)
{
    const uint32_t row = b->counter0 + m0 / b->row_panel * b->n_col;
    for (uint32_t c = c0 / b->col_panel; c <= (c1 - 1) / b->col_panel; c++) {
        e->signal[e->n_signal++] = (weft_signal){.counter = row + c, .device = b->t.device};
    }
}

static uint32_t at_most(uint32_t v, uint32_t limit) { return v < limit ? v : limit; }

void weft__tile_edges(const weft__plan_state *p, const weft__pop *pop, const weft__tile *t, weft__edges *e)
{
    const weft_op *op = &pop->op;
    const int partial = (op->flags & WEFT_OP_PARTIAL) != 0;
    const uint32_t width = !partial && op->epilogue == WEFT_EPI_GATED_SILU ? 8 : 16;
    const weft__ptensor *out = &p->tensors[partial ? op->partial : op->out];
    const uint32_t c0 = t->g0 * width, c1 = at_most((t->g0 + t->ng) * width, out->t.cols);
    e->n_wait = e->n_signal = 0;
    if (op->kind == WEFT_KIND_REDUCE) {
        add_waits(base_of(p, op->partial), t->m0, t->g0 * 16, at_most((t->g0 + t->ng) * 16, op->n), WEFT_NONE, e);
    } else if (op->kind == WEFT_KIND_RMSNORM || op->kind == WEFT_KIND_COPY) {
        const weft__ptensor *x = &p->tensors[op->x];
        if (is_made(p, op->x)) add_waits(base_of(p, op->x), t->m0, x->col0 + c0, x->col0 + c1, WEFT_NONE, e);
    } else if (is_made(p, op->x)) {
        const uint32_t k0 = t->kb0 * 64;
        add_waits(base_of(p, op->x), t->m0, k0, at_most(k0 + t->nkb * 64, op->k), k0, e);
    }
    if (pop->wait_aux) {
        const weft__ptensor *aux = &p->tensors[op->aux];
        add_waits(base_of(p, op->aux), t->m0, aux->col0 + c0, aux->col0 + c1, WEFT_NONE, e);
    }
    const weft__ptensor *base = &p->tensors[out->base];
    if (base->read) add_signals(base, t->m0, out->col0 + c0, out->col0 + c1, e);
}
