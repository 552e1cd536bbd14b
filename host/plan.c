/* plan.c: the planner's stages in a row, its options and its statistics. */
#include "plan_internal.h"

#include "validate.h"

#include <stdlib.h>
#include <string.h>

static const char *const strategies[WEFT__STRATEGY_COUNT] = {"single", "cta", "microbatch", "tp", "cta-tp"};
static const char *const orders[WEFT__ORDER_COUNT] = {"breadth", "critical", "grouped", "auto"};

const char *weft__strategy_name(uint32_t s) { return s < WEFT__STRATEGY_COUNT ? strategies[s] : "?"; }
const char *weft__order_name(uint32_t o) { return o < WEFT__ORDER_COUNT ? orders[o] : "?"; }

static int parse(const char *what, const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], name)) return i;
    }
    return weft__fail(WEFT_EUSAGE, "unknown %s \"%s\"", what, name);
}

int weft__strategy_parse(const char *name) { return parse("strategy", strategies, WEFT__STRATEGY_COUNT, name); }
int weft__order_parse(const char *name) { return parse("order", orders, WEFT__ORDER_COUNT, name); }

weft__plan_options weft__plan_defaults(void)
{
    return (weft__plan_options){
        .n_device = 1, .workers = {1}, .packet_max_rows = 1, .wide = WEFT__AUTO, .tp = 1, .order = WEFT__ORDER_AUTO};
}

static int check_options(const weft__plan_options *o)
{
    if (!o->n_device || o->n_device > WEFT_MAX_DEVICES)
        return weft__fail(WEFT_EUSAGE, "plan: %u devices, not 1..64", o->n_device);
    for (uint32_t d = 0; d < o->n_device; d++) {
        if (!o->workers[d] || o->workers[d] > UINT16_MAX) {
            return weft__fail(WEFT_EUSAGE, "plan: device %u has %u workers, not 1..65535", d, o->workers[d]);
        }
    }
    if (o->strategy >= WEFT__STRATEGY_COUNT) return weft__fail(WEFT_EUSAGE, "plan: unknown strategy %u", o->strategy);
    if (o->order >= WEFT__ORDER_COUNT) return weft__fail(WEFT_EUSAGE, "plan: unknown order %u", o->order);
    if (o->packet_max_rows > 8)
        return weft__fail(WEFT_EUSAGE, "plan: packets for %u rows, at most 8", o->packet_max_rows);
    if (o->k_panels > WEFT__MAX_K_PANELS) {
        return weft__fail(WEFT_EUSAGE, "plan: %u K panels, at most %d", o->k_panels, WEFT__MAX_K_PANELS);
    }
    return 0;
}

static int is_linear(const weft__gop *op) { return op->kind != WEFT__GOP_MIX && op->kind != WEFT__GOP_NOP; }

static uint32_t rows_of(const weft__graph *g, const weft__gop *op)
{
    return g->tensors[op->kind == WEFT__GOP_EMBED ? op->out : op->x].rows;
}

/* *linear: whether the graph is of GEMMs and norms (then all of one batch) or of MIX and NOP ops. */
static int check_graph(const weft__graph *g, uint32_t n_device, int *linear, uint32_t *m)
{
    if (!g->n_op) return weft__fail(WEFT_EUSAGE, "plan: the graph has no ops");
    *linear = is_linear(&g->ops[0]);
    *m = *linear ? rows_of(g, &g->ops[0]) : 0;
    if (g->n_cost && g->n_cost_device != n_device) {
        return weft__fail(WEFT_EUSAGE, "plan: the graph has costs for %u devices, not for %u", g->n_cost_device,
                          n_device);
    }
    for (uint32_t i = 0; i < g->n_op; i++) {
        if (is_linear(&g->ops[i]) != *linear) {
            return weft__fail(WEFT_EUSAGE, "plan: op %u: GEMMs and norms don't mix with MIX and NOP ops", i);
        }
        if (*linear && rows_of(g, &g->ops[i]) != *m) {
            return weft__fail(WEFT_EUSAGE, "plan: op %s has %u rows, others %u", g->ops[i].name, rows_of(g, &g->ops[i]),
                              *m);
        }
    }
    return 0;
}

static int state_init(weft__plan_state *p, const weft__graph *g, const weft__plan_options *opt)
{
    const size_t nt = g->n_tensor + 1u;
    *p = (weft__plan_state){.g = g, .opt = opt};
    p->gt_first = malloc(nt * sizeof *p->gt_first);
    p->gt_name = malloc(nt * sizeof *p->gt_name);
    p->gt_need = calloc(nt, sizeof *p->gt_need);
    p->group_of = calloc(g->n_op + 1u, sizeof *p->group_of);
    if (!p->gt_first || !p->gt_name || !p->gt_need || !p->group_of) {
        return weft__fail(WEFT_ENOMEM, "plan: %u tensors", g->n_tensor);
    }
    memset(p->gt_first, 0xff, nt * sizeof *p->gt_first);
    memset(p->gt_name, 0xff, nt * sizeof *p->gt_name);
    return weft__plan_string(p, weft__strategy_name(opt->strategy), &p->strategy_name);
}

static void state_free(weft__plan_state *p)
{
    free(p->tensors);
    free(p->pops);
    free(p->weights);
    free(p->strings);
    free(p->gt_first);
    free(p->gt_name);
    free(p->gt_need);
    free(p->group_of);
    free(p->units);
}

static int build(weft__plan_state *p, int linear, weft__image_writer *w)
{
    if (!linear) return weft__dag_emit(p, w);
    int rc = weft__tile_plan(p);
    if (!rc) rc = weft__place(p);
    if (!rc) rc = weft__lower(p);
    if (!rc) rc = weft__packets(p);
    if (!rc) rc = weft__counters(p);
    if (!rc) rc = weft__order_units(p);
    return rc ? rc : weft__emit(p, w);
}

/* The image opens and validates; it claims what is proven. */
static int prove(uint32_t name, uint64_t seed, weft__image_writer *w, weft__plan_stats *stats)
{
    weft__image img;
    uint32_t proven;
    w->header->strategy = name;
    w->header->seed = seed;
    weft__image_seal(w->bytes, w->size);
    int rc = weft__image_open(w->bytes, w->size, "plan", &img);
    if (!rc) rc = weft__validate(&img, &proven);
    if (rc) return rc;
    w->header->policies = proven;
    weft__image_seal(w->bytes, w->size);
    if (stats) weft__plan_stats_of(&img, stats);
    return 0;
}

int weft__plan(const weft__graph *g, const weft__plan_options *opt, void **bytes, uint64_t *size,
               weft__plan_stats *stats)
{
    weft__plan_state p;
    weft__image_writer w = {0};
    int linear = 0;
    uint32_t m = 0;
    int rc = check_options(opt);
    if (!rc) rc = check_graph(g, opt->n_device, &linear, &m);
    if (rc) return rc;
    weft__plan_options o = *opt;
    const int pipeline = o.strategy == WEFT__CTA || o.strategy == WEFT__CTA_TP;
    if (o.order == WEFT__ORDER_AUTO) o.order = pipeline ? WEFT__GROUPED : WEFT__BREADTH;
    rc = state_init(&p, g, &o);
    p.m = m;
    if (!rc) rc = build(&p, linear, &w);
    const uint64_t live = p.live_bytes;
    const uint32_t chunks = p.chunks, name = p.strategy_name;
    state_free(&p); /* before the validator needs memory */
    if (!rc) rc = prove(name, opt->seed, &w, stats);
    if (rc) {
        free(w.bytes);
        return rc;
    }
    if (stats) {
        stats->chunks = chunks ? chunks : 1;
        stats->peak_bytes = w.size + live;
    }
    *bytes = w.bytes;
    *size = w.size;
    return 0;
}

/* ----------------------------------------------------------------------------------------------------- statistics */

uint64_t weft__op_remote_bytes(const weft__image *img, const weft_op *op, uint32_t *to)
{
    const int partial = (op->flags & WEFT_OP_PARTIAL) != 0;
    const uint32_t outs[3] = {partial ? op->partial : op->out, op->pk_out, partial ? op->squares : WEFT_NONE};
    uint64_t bytes = 0;
    *to = WEFT_NONE;
    if (op->flags & WEFT_OP_ALTERNATE) return 0; /* its tasks are counted where they are at home */
    for (int i = 0; i < 3; i++) {
        if (outs[i] == WEFT_NONE || img->tensors[outs[i]].device == op->device) continue;
        const weft_tensor *t = &img->tensors[outs[i]];
        const uint32_t element = t->layout == WEFT_LAYOUT_PARTIAL || t->layout == WEFT_LAYOUT_PACKET ? 4 : 2;
        bytes += (uint64_t)t->rows * t->cols * element;
        *to = t->device;
    }
    return bytes;
}

static void count_task(const weft__image *img, const weft_image_queue *q, uint32_t device, const weft_task *t,
                       weft__plan_stats *s)
{
    s->tasks++;
    s->waits += t->n_wait;
    s->signals += t->n_signal;
    s->total_ns += t->cost_ns;
    for (uint32_t i = 0; i < t->n_signal; i++) {
        s->remote_signals += weft__task_signal(t, img->side + q->side, i).device != device;
    }
}

void weft__plan_stats_of(const weft__image *img, weft__plan_stats *s)
{
    memset(s, 0, sizeof *s);
    s->policies = img->header->policies;
    s->critical_ns = weft__critical_ns(img, 0);
    s->counters = img->header->counters.count;
    s->chunks = 1;
    for (uint32_t i = 0, to; i < img->n_op; i++)
        s->remote_bytes += weft__op_remote_bytes(img, &img->ops[i], &to);
    for (uint32_t d = 0; d < img->n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(img, 0, d);
        s->weight_bytes[d] = img->devices[d].weight_bytes;
        s->work_bytes[d] = img->devices[d].work_bytes;
        for (uint32_t i = 0; i < q->n_task; i++)
            count_task(img, q, d, &img->tasks[q->task + i], s);
    }
}
