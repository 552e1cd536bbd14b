/* dag.c: graphs of MIX and NOP ops: one unit an op, where the graph says, in the same image as everything else.
 *
 * Counters: an op that doesn't join waits for each of its inputs at that input's counter on its device (one counter
 * for all such readers there, as many arrivals as the input has tasks). An op that joins has one counter of its own,
 * which all tasks of all its inputs signal. Values of MIX ops: word i of a tensor of n_op words on every device: op
 * i's, where it is read, and on device 0 ("out"). */
#include "plan_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct dag {
    weft__plan_state *p;
    const weft__graph *g;
    uint64_t *readers; /* [op]: devices with readers */
    uint64_t *plain;   /* [op]: devices with readers that don't join */
    uint32_t *plain0;  /* [op + 1]: first of its plain counters in ids */
    uint32_t *ids;     /* counter of (op, device), by op, then device */
    uint32_t *joined0; /* [op + 1]: first of its joining readers in joined */
    uint32_t *joined;  /* ops */
    uint32_t *join_id; /* [op]: counter of an op that joins */
    uint32_t *stamp;   /* [op]: last op that has counted it as input, plus 1 */
    uint64_t *rank;    /* [op]: level, longest way to the end, or last producer, by order */
    uint64_t tasks[WEFT_MAX_DEVICES], sides[WEFT_MAX_DEVICES], deps[WEFT_MAX_DEVICES], args[WEFT_MAX_DEVICES];
    uint32_t task[WEFT_MAX_DEVICES], side[WEFT_MAX_DEVICES], arg[WEFT_MAX_DEVICES]; /* next, while writing */
} dag;

static void dag_free(dag *d)
{
    free(d->readers);
    free(d->plain);
    free(d->plain0);
    free(d->ids);
    free(d->joined0);
    free(d->joined);
    free(d->join_id);
    free(d->stamp);
    free(d->rank);
}

static int dag_alloc(dag *d)
{
    const size_t n = d->g->n_op + 1u;
    d->readers = calloc(n, 8);
    d->plain = calloc(n, 8);
    d->plain0 = calloc(n, 4);
    d->joined0 = calloc(n, 4);
    d->joined = calloc(d->g->n_input + 1u, 4);
    d->join_id = calloc(n, 4);
    d->stamp = calloc(n, 4);
    d->rank = calloc(n, 8);
    d->p->units = calloc(n, sizeof *d->p->units);
    if (d->readers && d->plain && d->plain0 && d->joined0 && d->joined && d->join_id && d->stamp && d->rank &&
        d->p->units)
        return 0;
    return weft__fail(WEFT_ENOMEM, "plan: %u ops", d->g->n_op);
}

/* The next input of op i that it has not named before; advances *at; WEFT_NONE at the end. */
static uint32_t next_input(dag *d, uint32_t i, uint32_t *at)
{
    const weft__gop *o = &d->g->ops[i];
    while (*at < o->n_in) {
        const uint32_t in = d->g->inputs[o->in + (*at)++];
        if (d->stamp[in] == i + 1) continue;
        d->stamp[in] = i + 1;
        return in;
    }
    return WEFT_NONE;
}

static void forget_inputs(dag *d, uint32_t i)
{
    const weft__gop *o = &d->g->ops[i];
    for (uint32_t j = 0; j < o->n_in; j++)
        d->stamp[d->g->inputs[o->in + j]] = 0;
}

static int find_readers(dag *d)
{
    const weft__graph *g = d->g;
    for (uint32_t i = 0; i < g->n_op; i++) {
        const weft__gop *o = &g->ops[i];
        if (o->device >= d->p->opt->n_device) {
            return weft__fail(WEFT_EUSAGE, "plan: op %u is on device %u of %u", i, o->device, d->p->opt->n_device);
        }
        if (weft__given_cost(g, o, o->device) == WEFT_NONE) {
            return weft__fail(WEFT_EUSAGE, "plan: op %u is on device %u, where it can't run", i, o->device);
        }
        for (uint32_t at = 0, in; (in = next_input(d, i, &at)) != WEFT_NONE;) {
            d->readers[in] |= 1ull << o->device;
            if (o->join)
                d->joined0[in + 1]++;
            else
                d->plain[in] |= 1ull << o->device;
        }
        forget_inputs(d, i);
    }
    for (uint32_t i = 0; i < g->n_op; i++) {
        d->joined0[i + 1] += d->joined0[i];
        d->plain0[i + 1] = d->plain0[i] + (uint32_t)__builtin_popcountll(d->plain[i]);
    }
    d->ids = calloc(d->plain0[g->n_op] + 1u, 4);
    uint32_t *next = malloc((g->n_op + 1u) * sizeof *next);
    if (!d->ids || !next) {
        free(next);
        return weft__fail(WEFT_ENOMEM, "plan: %u counters", d->plain0[g->n_op]);
    }
    memcpy(next, d->joined0, g->n_op * sizeof *next);
    for (uint32_t i = 0; i < g->n_op; i++) {
        if (!g->ops[i].join) continue;
        for (uint32_t at = 0, in; (in = next_input(d, i, &at)) != WEFT_NONE;)
            d->joined[next[in]++] = i;
        forget_inputs(d, i);
    }
    free(next);
    return 0;
}

static void number_counters(dag *d)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < d->g->n_op; i++) {
        const weft__gop *o = &d->g->ops[i];
        for (uint64_t m = d->plain[i]; m; m &= m - 1)
            d->ids[at++] = (uint32_t)d->p->counters[__builtin_ctzll(m)]++;
        if (o->join && o->n_in) d->join_id[i] = (uint32_t)d->p->counters[o->device]++;
    }
}

static uint32_t plain_id(const dag *d, uint32_t op, uint32_t device)
{
    return d->ids[d->plain0[op] + (uint32_t)__builtin_popcountll(d->plain[op] & ((1ull << device) - 1))];
}

/* ---------------------------------------------------------------------------------------------------------- order */

static void rank_breadth(dag *d)
{
    for (uint32_t i = 0; i < d->g->n_op; i++) {
        const weft__gop *o = &d->g->ops[i];
        for (uint32_t j = 0; j < o->n_in; j++) {
            const uint64_t level = d->rank[d->g->inputs[o->in + j]] + 1;
            if (d->rank[i] < level) d->rank[i] = level;
        }
    }
}

static void rank_critical(dag *d)
{
    for (uint32_t i = d->g->n_op; i-- > 0;) {
        const weft__gop *o = &d->g->ops[i];
        const uint64_t waves = weft_div_up(o->n_tile, d->p->opt->workers[o->device]);
        d->rank[i] += o->cost_ns * waves + 1; /* it holds the longest way of its readers so far */
        for (uint32_t j = 0; j < o->n_in; j++) {
            uint64_t *r = &d->rank[d->g->inputs[o->in + j]];
            if (*r < d->rank[i]) *r = d->rank[i];
        }
    }
    for (uint32_t i = 0; i < d->g->n_op; i++)
        d->rank[i] = ~d->rank[i];
}

static void rank_grouped(dag *d) /* right after its last input */
{
    for (uint32_t i = 0; i < d->g->n_op; i++) {
        const weft__gop *o = &d->g->ops[i];
        for (uint32_t j = 0; j < o->n_in; j++) {
            const uint64_t last = (uint64_t)d->g->inputs[o->in + j] + 1;
            if (d->rank[i] < last) d->rank[i] = last;
        }
    }
}

static int by_rank(const void *a, const void *b)
{
    const weft__unit *x = a, *y = b;
    if (x->key[0] != y->key[0]) return x->key[0] < y->key[0] ? -1 : 1;
    return x->pop < y->pop ? -1 : x->pop > y->pop;
}

static void order_ops(dag *d)
{
    weft__plan_state *p = d->p;
    if (p->opt->order == WEFT__CRITICAL)
        rank_critical(d);
    else if (p->opt->order == WEFT__GROUPED)
        rank_grouped(d);
    else
        rank_breadth(d);
    p->n_unit = d->g->n_op;
    for (uint32_t i = 0; i < p->n_unit; i++)
        p->units[i] = (weft__unit){.key = {d->rank[i], 0}, .pop = i};
    qsort(p->units, p->n_unit, sizeof *p->units, by_rank);
}

/* -------------------------------------------------------------------------------------------------------- writing */

static uint64_t value_devices(const dag *d, uint32_t i) { return d->readers[i] | 1; }

static uint32_t beyond2(uint32_t n) { return n > 2 ? n - 2 : 0; }

static uint32_t count_waits(dag *d, uint32_t i)
{
    uint32_t n = 0;
    if (d->g->ops[i].join) return d->g->ops[i].n_in > 0;
    for (uint32_t at = 0; next_input(d, i, &at) != WEFT_NONE;)
        n++;
    forget_inputs(d, i);
    return n;
}

static uint32_t count_signals(const dag *d, uint32_t i)
{
    return d->plain0[i + 1] - d->plain0[i] + d->joined0[i + 1] - d->joined0[i];
}

static int count(dag *d, weft__image_counts *n)
{
    for (uint32_t i = 0; i < d->g->n_op; i++) {
        const weft__gop *o = &d->g->ops[i];
        const uint32_t waits = count_waits(d, i), signals = count_signals(d, i);
        if (waits > UINT16_MAX || signals > UINT16_MAX) {
            return weft__fail(WEFT_EUSAGE, "plan: op %u has %u inputs and %u readers, at most 65535 fit", i, waits,
                              signals);
        }
        d->tasks[o->device] += o->n_tile;
        d->deps[o->device] += (uint64_t)waits * o->n_tile;
        d->sides[o->device] += (uint64_t)(beyond2(waits) + beyond2(signals)) * o->n_tile;
        if (o->kind == WEFT__GOP_MIX) {
            d->args[o->device] += 3u + o->n_in + 2u * (uint32_t)__builtin_popcountll(value_devices(d, i));
        }
    }
    for (uint32_t e = 0; e < d->p->opt->n_device; e++) {
        n->tasks += d->tasks[e];
        n->side += d->sides[e];
        n->deps += d->deps[e];
        n->args += d->args[e];
        n->counters += d->p->counters[e];
    }
    n->order = n->tasks;
    return 0;
}

static void put_edge(uint64_t *side, uint32_t *next, void *inline2, uint32_t i, const void *edge)
{
    if (i < 2)
        memcpy((uint8_t *)inline2 + 8 * (size_t)i, edge, 8);
    else
        memcpy(&side[(*next)++], edge, 8);
}

static void put_waits(dag *d, uint32_t i, weft_task *t, uint64_t *side, uint32_t *next)
{
    const weft__gop *o = &d->g->ops[i];
    weft_wait w = {0};
    if (o->join && o->n_in) {
        w.counter = d->join_id[i];
        put_edge(side, next, t->wait, t->n_wait++, &w);
        return;
    }
    for (uint32_t at = 0, in; (in = next_input(d, i, &at)) != WEFT_NONE;) {
        w.counter = plain_id(d, in, o->device);
        put_edge(side, next, t->wait, t->n_wait++, &w);
    }
    forget_inputs(d, i);
}

static void put_signals(dag *d, uint32_t i, weft_task *t, uint64_t *side, uint32_t *next)
{
    for (uint64_t m = d->plain[i]; m; m &= m - 1) {
        const uint32_t e = (uint32_t)__builtin_ctzll(m);
        const weft_signal s = {.counter = plain_id(d, i, e), .device = (uint16_t)e};
        put_edge(side, next, t->signal, t->n_signal++, &s);
    }
    for (uint32_t j = d->joined0[i]; j < d->joined0[i + 1]; j++) {
        const uint32_t reader = d->joined[j];
        const weft_signal s = {.counter = d->join_id[reader], .device = (uint16_t)d->g->ops[reader].device};
        put_edge(side, next, t->signal, t->n_signal++, &s);
    }
}

static void put_args(dag *d, weft__image_writer *w, uint32_t i, weft_task *t)
{
    const weft__gop *o = &d->g->ops[i];
    uint32_t *a = w->args + w->queues[o->device].arg + d->arg[o->device], n = 0;
    a[n++] = o->constant;
    a[n++] = o->n_in;
    for (uint32_t j = 0; j < o->n_in; j++)
        a[n++] = d->g->inputs[o->in + j];
    a[n++] = (uint32_t)__builtin_popcountll(value_devices(d, i));
    for (uint64_t m = value_devices(d, i); m; m &= m - 1) {
        a[n++] = (uint32_t)__builtin_ctzll(m);
        a[n++] = i;
    }
    t->tile[0] = d->arg[o->device];
    t->tile[1] = n;
    d->arg[o->device] += n;
}

/* The device that may steal an op's tasks: the next one, if it can run it; 0xff: none. */
static uint32_t alternate(const dag *d, const weft__gop *o)
{
    const uint32_t n = d->p->opt->n_device, next = (o->device + 1) % n;
    return d->p->opt->alternates && n > 1 && weft__given_cost(d->g, o, next) != WEFT_NONE ? next : 0xff;
}

static void put_op_tasks(dag *d, weft__image_writer *w, uint32_t i)
{
    const weft__gop *o = &d->g->ops[i];
    const weft_image_queue *q = &w->queues[o->device];
    for (uint32_t tile = 0; tile < o->n_tile; tile++) {
        weft_task *t = &w->tasks[q->task + d->task[o->device]++];
        const int mix = o->kind == WEFT__GOP_MIX;
        *t = (weft_task){.kind = mix ? WEFT_KIND_MIX : WEFT_KIND_NOP,
                         .alt_device = (uint8_t)alternate(d, o),
                         .op = mix ? 0 : 1,
                         .cost_ns = o->cost_ns,
                         .extra = d->side[o->device]};
        put_waits(d, i, t, w->side + q->side, &d->side[o->device]);
        put_signals(d, i, t, w->side + q->side, &d->side[o->device]);
        if (mix) put_args(d, w, i, t);
    }
}

/* Of every device: its tensor of values and its two ops (0: MIX, 1: NOP). */
static void put_devices(dag *d, weft__image_writer *w, uint32_t out_name)
{
    const weft__plan_state *p = d->p;
    uint64_t task = 0, side = 0, dep = 0, counter = 0, arg = 0;
    for (uint32_t e = 0; e < p->opt->n_device; e++) {
        weft_tensor *t = &w->tensors[e];
        *t = (weft_tensor){.name = out_name,
                           .device = (uint16_t)e,
                           .dtype = WEFT_U32,
                           .layout = WEFT_LAYOUT_ROW,
                           .role = e ? WEFT_ROLE_ACT : WEFT_ROLE_OUTPUT,
                           .rows = 1,
                           .cols = d->g->n_op,
                           .weight = WEFT_NONE,
                           .splits = 1,
                           .bytes = 4ull * d->g->n_op};
        w->devices[e] = (weft_image_device){
            .workers = p->opt->workers[e], .op = 2 * e, .n_op = 2, .work_bytes = weft_round_up64(t->bytes, 1024)};
        weft_op op = {.name = WEFT_NONE,
                      .device = (uint16_t)e,
                      .kind = WEFT_KIND_MIX,
                      .dtype = WEFT_U32,
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
        w->ops[2 * e] = op;
        op.kind = WEFT_KIND_NOP;
        w->ops[2 * e + 1] = op;
        w->queues[e] = (weft_image_queue){.task = (uint32_t)task,
                                          .n_task = (uint32_t)d->tasks[e],
                                          .order = (uint32_t)task,
                                          .side = (uint32_t)side,
                                          .n_side = (uint32_t)d->sides[e],
                                          .counter = (uint32_t)counter,
                                          .n_counter = (uint32_t)p->counters[e],
                                          .dep = (uint32_t)dep,
                                          .n_dep = (uint32_t)d->deps[e],
                                          .arg = (uint32_t)arg,
                                          .n_arg = (uint32_t)d->args[e]};
        task += d->tasks[e];
        side += d->sides[e];
        dep += d->deps[e];
        counter += p->counters[e];
        arg += d->args[e];
    }
}

static int dag_build(dag *d, weft__image_writer *w)
{
    weft__plan_state *p = d->p;
    uint32_t out_name;
    int rc = dag_alloc(d);
    if (!rc) rc = find_readers(d);
    if (!rc) rc = weft__plan_string(p, "out", &out_name);
    if (rc) return rc;
    number_counters(d);
    order_ops(d);
    weft__image_counts n = {.devices = p->opt->n_device,
                            .queues = p->opt->n_device,
                            .tensors = p->opt->n_device,
                            .ops = 2ull * p->opt->n_device,
                            .strings = p->n_string};
    rc = count(d, &n);
    if (!rc) rc = weft__image_writer_init(w, &n, p->opt->n_device, 1);
    if (rc) return rc;
    put_devices(d, w, out_name);
    memcpy(w->strings, p->strings, p->n_string);
    for (uint32_t u = 0; u < p->n_unit; u++)
        put_op_tasks(d, w, p->units[u].pop);
    return weft__finish(w);
}

int weft__dag_emit(weft__plan_state *p, weft__image_writer *w)
{
    dag d = {.p = p, .g = p->g};
    int rc = dag_build(&d, w);
    dag_free(&d);
    return rc;
}
