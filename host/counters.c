/* counters.c: which edges carry packets, which cells have counters, and what a task waits for and signals.
 *
 * A cell is a row panel (the plan's row tile, or a chunk) by a column panel (all columns; a share of them with
 * k_panels; a block of groups for partials). Row tiles of all pops nest in row panels, so a task touches one panel
 * down. */
#include "../tasks/attn.h"
#include "plan_internal.h"

static weft__ptensor *base_of(const weft__plan_state *p, uint32_t t) { return &p->tensors[p->tensors[t].base]; }

/* Written by tasks, so that its readers must wait. */
static int is_made(const weft__plan_state *p, uint32_t t)
{
    if (t == WEFT_NONE) return 0;
    const weft__ptensor *b = base_of(p, t);
    const uint8_t role = b->t.role;
    if (role == WEFT_ROLE_TABLE) return b->first_writer != WEFT_NONE;
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
        const uint32_t reads = weft__op_main(op);
        if (!is_made(p, reads)) continue;
        if (base_of(p, reads) == target) return 1;
        if (depth > 1 && covers(p, base_of(p, reads), target, depth - 1, memory)) return 1;
    }
    return 0;
}

/* A page table, or the partials of attention: nobody waits for part of them. */
static int is_one_cell(const weft__ptensor *b)
{
    return b->t.layout == WEFT_LAYOUT_ROW && (b->t.role == WEFT_ROLE_TABLE || b->t.role == WEFT_ROLE_PARTIAL);
}

static void make_cells(weft__plan_state *p, weft__ptensor *b)
{
    const uint32_t k_panels = p->opt->strategy == WEFT__MICROBATCH ? 1 : p->opt->k_panels;
    const uint32_t reduced = b->col_panel;
    b->row_panel = is_one_cell(b) ? b->t.rows : p->chunk_rows;
    b->col_panel = b->t.cols;
    if (b->t.layout == WEFT_LAYOUT_PARTIAL) {
        b->row_panel = p->m_tile;
        b->col_panel = reduced; /* what one reduction takes */
    } else if (k_panels > 1 && !is_one_cell(b)) {
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
        const uint32_t main = weft__op_main(op), second = weft__op_second(op);
        const uint32_t reduced = op->kind == WEFT_KIND_REDUCE ? pop->groups * 16 : op->n; /* SURVEY: all */
        if (is_made(p, main)) base_of(p, main)->read = 1;
        if (main != WEFT_NONE && main == op->partial && base_of(p, main)->col_panel < reduced)
            base_of(p, main)->col_panel = reduced;
        const int memory = !(op->flags & WEFT_OP_AUX_PACKET);
        pop->wait_second = is_made(p, second) && (!is_made(p, main) || (memory && op->flags & WEFT_OP_X_PACKET) ||
                                                  !covers(p, base_of(p, main), base_of(p, second), 2, memory));
        if (pop->wait_second) base_of(p, second)->read = 1;
        pop->level = max3(level_of(p, main), level_of(p, second), 0);
        weft__ptensor *out = base_of(p, weft__op_written(op));
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

static void wait_for_all(const weft__plan_state *p, uint32_t tensor, weft__edges *e)
{
    const weft__ptensor *b = base_of(p, tensor);
    add_waits(b, 0, 0, b->t.cols, WEFT_NONE, e);
}

/* Columns that a tile writes of what its op writes; *first counts from the tensor's own. */
static void columns_of(const weft_op *op, const weft__tile *t, uint32_t cols, uint32_t *first, uint32_t *end)
{
    const int partial = (op->flags & WEFT_OP_PARTIAL) != 0;
    uint32_t width = !partial && op->epilogue == WEFT_EPI_GATED_SILU ? 8 : 16, g0 = t->g0, g1 = t->g0 + t->ng;
    const uint32_t kv_heads = op->param[WEFT_ATTN_KV_HEADS];
    switch (op->kind) {
    case WEFT_KIND_PAGES:
    case WEFT_KIND_ATTN:
    case WEFT_KIND_SURVEY:
    case WEFT_KIND_SAMPLE: width = cols, g0 = 0, g1 = 1; break;
    case WEFT_KIND_ROPE: width = op->n / kv_heads; break;
    case WEFT_KIND_ATTN_COMBINE: /* pairs of row and KV head */
        width = op->n / kv_heads;
        if (g0 / kv_heads == (g1 - 1) / kv_heads)
            g1 = (g1 - 1) % kv_heads + 1, g0 %= kv_heads;
        else
            g0 = 0, g1 = kv_heads;
        break;
    default: break;
    }
    *first = g0 * width;
    *end = at_most(g1 * width, cols);
}

/* What a tile waits for of what its op reads first of all. */
static void main_waits(const weft__plan_state *p, const weft_op *op, const weft__tile *t, weft__edges *e)
{
    const uint32_t main = weft__op_main(op), k0 = t->kb0 * 64;
    if (!is_made(p, main)) return;
    const weft__ptensor *x = &p->tensors[main], *b = base_of(p, main);
    switch (op->kind) {
    case WEFT_KIND_REDUCE: add_waits(b, t->m0, t->g0 * 16, at_most((t->g0 + t->ng) * 16, op->n), WEFT_NONE, e); break;
    case WEFT_KIND_RMSNORM:
    case WEFT_KIND_COPY: {
        const uint32_t c0 = t->g0 * 16, c1 = at_most(c0 + t->ng * 16, op->n);
        add_waits(b, t->m0, x->col0 + c0, x->col0 + c1, WEFT_NONE, e);
        break;
    }
    case WEFT_KIND_ROPE: {
        const uint32_t width = op->k / op->param[WEFT_ATTN_KV_HEADS], c0 = t->g0 * width;
        add_waits(b, t->m0, c0, c0 + t->ng * width, WEFT_NONE, e);
        break;
    }
    case WEFT_KIND_SURVEY: add_waits(b, t->m0, 0, op->n, WEFT_NONE, e); break;
    case WEFT_KIND_SAMPLE:
    case WEFT_KIND_ATTN:
    case WEFT_KIND_ATTN_COMBINE: wait_for_all(p, main, e); break;
    default: add_waits(b, t->m0, k0, at_most(k0 + t->nkb * 64, op->k), k0, e); break;
    }
}

void weft__tile_edges(const weft__plan_state *p, const weft__pop *pop, const weft__tile *t, weft__edges *e)
{
    const weft_op *op = &pop->op;
    const weft__ptensor *out = &p->tensors[weft__op_written(op)], *base = &p->tensors[out->base];
    uint32_t c0, c1;
    columns_of(op, t, out->t.cols, &c0, &c1);
    e->n_wait = e->n_signal = 0;
    main_waits(p, op, t, e);
    if (pop->wait_second) {
        const weft__ptensor *second = &p->tensors[weft__op_second(op)];
        if (op->epilogue == WEFT_EPI_RESIDUAL)
            add_waits(base_of(p, op->aux), t->m0, second->col0 + c0, second->col0 + c1, WEFT_NONE, e);
        else
            wait_for_all(p, weft__op_second(op), e);
    }
    if (base->read) add_signals(base, is_one_cell(base) ? 0 : t->m0, out->col0 + c0, out->col0 + c1, e);
}
