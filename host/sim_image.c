/* sim_image.c: a variant of an image as the simulator sees it: its tasks priced by the profiles of their devices.
 *
 * Task i of device d is number first[d] + i, counter c of device d likewise. Bytes for another device leave when a body has
 * ended; all signals to that device come after them. A task whose kind has no points in the profile, or whose op's cost was
 * given with the graph, takes what the image says.                                                                      */
#include "sim.h"

#include "../tasks/layout.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 8,
    DUE_COLUMNS = 512
};

typedef struct maker {
    const weft__image *img;
    const weft__topology *topo;
    uint32_t variant, policy;
    uint32_t counter0[WEFT_MAX_DEVICES + 1]; /* first counter of a device */
    weft__sim_plan *p;
    uint32_t n_wait, n_signal, n_transfer;
} maker;

static uint32_t rows_of(const weft_op *op, const weft_task *t)
{
    if (t->kind == WEFT_KIND_GEMM_STREAM || t->kind == WEFT_KIND_GEMM_WIDE)
        return op->m - t->tile[0] < op->m_tile ? op->m - t->tile[0] : op->m_tile;
    return t->tile[3]; /* REDUCE, RMSNORM, COPY */
}

static int is_gemm(const weft_task *t) { return t->kind == WEFT_KIND_GEMM_STREAM || t->kind == WEFT_KIND_GEMM_WIDE; }

/* Bytes of x, partial sums, rows: what doesn't come from weights. */
static double activation_bytes(const weft_op *op, const weft_task *t)
{
    const double rows = rows_of(op, t), groups = t->tile[2];
    if (is_gemm(t)) return rows * 128.0 * (t->tile[3] >> 16);
    if (t->kind == WEFT_KIND_REDUCE) return rows * groups * 64.0 * op->n_split;
    return rows * groups * 64.0; /* two bytes in, two out */
}

static double blocks_of(const weft_op *op, const weft_task *t)
{
    if (is_gemm(t)) return (double)t->tile[2] * (t->tile[3] >> 16);
    return t->kind == WEFT_KIND_REDUCE ? (double)t->tile[2] * op->n_split : (double)t->tile[2];
}

int weft__sim_shape(const weft__image *img, uint32_t device, const weft_task *t, uint32_t *rows, double *blocks)
{
    if (!is_gemm(t) && t->kind != WEFT_KIND_REDUCE && t->kind != WEFT_KIND_RMSNORM && t->kind != WEFT_KIND_COPY)
        return 0;
    const weft_op *op = weft__image_op(img, device, t);
    *rows = rows_of(op, t);
    *blocks = blocks_of(op, t);
    return 1;
}

static int cost_given(const weft__image *img, const weft_op *op)
{
    return op->cost != WEFT_NONE && img->costs[(uint64_t)op->cost * img->n_device + op->device] != 0;
}

static void price(const maker *m, uint32_t d, const weft_image_queue *q, const weft_task *t, weft__sim_task *out)
{
    const weft__profile *p = weft__topo_profile(m->topo, d);
    const weft__kind_cost *k = &p->kind[t->kind];
    const weft_op *op = weft__image_op(m->img, d, t);
    out->solo_ns = t->cost_ns;
    out->tail_ns = (float)k->task_ns;
    if (t->kind == WEFT_KIND_NOP) {
        out->timed = 1;
    } else if (t->kind == WEFT_KIND_MIX) {
        const uint32_t *args = m->img->args + q->arg + t->tile[0];
        out->solo_ns = weft__profile_block_ns(k, 1) * (args[1] + args[2 + args[1]]);
    } else if (k->n_point && !cost_given(m->img, op)) {
        out->solo_ns = blocks_of(op, t) * weft__profile_block_ns(k, rows_of(op, t));
        /* panels of rows after the first find weights in a cache, where what they take is in the blocks' time */
        const double panels = is_gemm(t) ? (op->m + op->m_tile - 1) / op->m_tile : 1;
        const double weights = is_gemm(t) ? blocks_of(op, t) * WEFT_ATOM_BYTES / panels : 0;
        out->ahead = (float)(weights < p->ahead_bytes ? weights : p->ahead_bytes);
        out->bytes = (float)(weights - (double)out->ahead + p->activation * activation_bytes(op, t) / panels);
    } else {
        out->tail_ns = 0; /* the image's cost is of the whole task */
    }
}

/* The part of 256 that a task can do before a wait with `due` must hold. */
static uint8_t late_part(const maker *m, uint32_t d, const weft_task *t, const weft_wait *w)
{
    if (!w->due || m->policy >= WEFT_POLICY_PUSH || !(weft__topo_profile(m->topo, d)->ahead_bytes > 0)) return 0;
    const double chunks = is_gemm(t) ? (t->tile[3] >> 16) * 64.0 / DUE_COLUMNS : 0;
    if (!(chunks > w->due)) return 0;
    const int part = (int)(256.0 * w->due / chunks);
    return (uint8_t)(part < 255 ? part : 255);
}

static void put_waits(maker *m, uint32_t d, const weft_image_queue *q, const weft_task *t)
{
    const uint64_t *side = m->img->side + q->side;
    const int packets = t->kind == WEFT_KIND_GEMM_STREAM && m->policy < WEFT_POLICY_PUSH &&
                        weft__image_op(m->img, d, t)->flags & WEFT_OP_X_PACKET;
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const weft_wait w = weft__task_wait(t, side, i);
        const int sys = m->img->counters[q->counter + w.counter].scope == WEFT_SCOPE_SYS;
        if (w.lag) continue; /* the step before is over */
        m->p->waits[m->n_wait++] = (weft__sim_wait){.counter = m->counter0[d] + w.counter,
                                                    .hop = packets ? WEFT__HOP_PACKET
                                                           : sys   ? WEFT__HOP_SYS
                                                                   : WEFT__HOP_GPU,
                                                    .late = packets ? 0 : late_part(m, d, t, &w)};
    }
}

/* Bytes into one tensor that lies on another device. */
static void put_transfer(maker *m, uint32_t d, uint32_t tensor, double bytes, uint32_t first)
{
    if (tensor == WEFT_NONE || m->img->tensors[tensor].device == d) return;
    const uint32_t to = m->img->tensors[tensor].device;
    for (uint32_t i = first; i < m->n_transfer; i++)
        if (m->p->transfers[i].to == to) {
            m->p->transfers[i].bytes += bytes;
            return;
        }
    m->p->transfers[m->n_transfer++] = (weft__sim_transfer){bytes, to, 0};
}

static void put_transfers(maker *m, uint32_t d, const weft_image_queue *q, const weft_task *t)
{
    const weft_op *op = weft__image_op(m->img, d, t);
    const uint32_t first = m->n_transfer;
    if (t->kind == WEFT_KIND_MIX) {
        const uint32_t *a = m->img->args + q->arg + t->tile[0] + 1;
        a += 1 + a[0];
        for (uint32_t n = a[0], *out = (uint32_t *)(uintptr_t)(a + 1); n > 0; n--, out += 2)
            if (out[0] != d && m->n_transfer - first < 2)
                m->p->transfers[m->n_transfer++] = (weft__sim_transfer){4, out[0], 0};
        return;
    }
    if (t->kind == WEFT_KIND_NOP || op->flags & WEFT_OP_ALTERNATE) return;
    const double rows = t->kind >= WEFT_KIND_ATTN && t->kind <= WEFT_KIND_ATTN_COMBINE ? 0 : rows_of(op, t);
    const double columns = t->tile[2] * (op->epilogue == WEFT_EPI_GATED_SILU ? 8.0 : 16.0);
    if (op->flags & WEFT_OP_PARTIAL) {
        put_transfer(m, d, op->partial, rows * t->tile[2] * 64.0, first);
        return;
    }
    put_transfer(m, d, op->out, rows * columns * 2, first);
    if (op->flags & WEFT_OP_OUT_PACKET) put_transfer(m, d, op->pk_out, rows * columns * 4, first);
}

static void put_signals(maker *m, const weft_image_queue *q, const weft_task *t, uint32_t d, uint32_t transfer)
{
    const uint64_t *side = m->img->side + q->side;
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        weft__sim_signal *out = &m->p->signals[m->n_signal++];
        *out = (weft__sim_signal){m->counter0[s.device] + s.counter, s.device, WEFT__SIM_ANY};
        for (uint32_t x = transfer; x < m->n_transfer && s.device != d; x++)
            if (m->p->transfers[x].to == s.device) out->transfer = (uint16_t)(x - transfer);
    }
}

static int allocate(maker *m)
{
    uint64_t waits = 0, signals = 0, counters = 0, tasks = 0;
    weft__sim_plan *p = m->p;
    for (uint32_t d = 0; d < m->img->n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(m->img, m->variant, d);
        p->first[d] = (uint32_t)tasks;
        m->counter0[d] = (uint32_t)counters;
        tasks += q->n_task;
        counters += q->n_counter;
        for (uint32_t i = 0; i < q->n_task; i++) {
            waits += m->img->tasks[q->task + i].n_wait;
            signals += m->img->tasks[q->task + i].n_signal;
        }
    }
    if (waits >= WEFT_NONE || signals >= WEFT_NONE) return weft__fail(WEFT_EUSAGE, "simulation: more than 2^32 waits");
    p->first[m->img->n_device] = p->n_task = (uint32_t)tasks;
    p->n_counter = (uint32_t)counters;
    p->tasks = calloc(tasks + 1, sizeof *p->tasks);
    p->waits = malloc((waits + 1) * sizeof *p->waits);
    p->signals = malloc((signals + 1) * sizeof *p->signals);
    p->transfers = malloc((2 * tasks + 1) * sizeof *p->transfers);
    p->arrivals = malloc((counters + 1) * sizeof *p->arrivals);
    p->order = malloc((tasks + 1) * sizeof *p->order);
    if (p->tasks && p->waits && p->signals && p->transfers && p->arrivals && p->order) return 0;
    return weft__fail(WEFT_ENOMEM, "simulation: %llu tasks", (unsigned long long)tasks);
}

static void put_device(maker *m, uint32_t d, const uint16_t *worker_of)
{
    const weft_image_queue *q = weft__image_queue_of(m->img, m->variant, d);
    weft__sim_plan *p = m->p;
    const uint32_t first = p->first[d];
    for (uint32_t i = 0; i < q->n_task; i++) {
        const weft_task *t = &m->img->tasks[q->task + i];
        weft__sim_task *out = &p->tasks[first + i];
        *out = (weft__sim_task){.wait = m->n_wait,
                                .signal = m->n_signal,
                                .transfer = m->n_transfer,
                                .device = (uint16_t)d,
                                .worker = worker_of ? worker_of[i] : WEFT__SIM_ANY,
                                .alt = t->alt_device};
        price(m, d, q, t, out);
        put_waits(m, d, q, t);
        put_transfers(m, d, q, t);
        put_signals(m, q, t, d, out->transfer);
    }
    for (uint32_t i = 0; i < q->n_task; i++) {
        const uint32_t id = first + m->img->order[q->order + i];
        p->order[first + i] = id;
        p->tasks[id].ring = (uint16_t)((uint64_t)i * RANKS / q->n_task);
    }
    for (uint32_t c = 0; c < q->n_counter; c++)
        p->arrivals[m->counter0[d] + c] = m->img->counters[q->counter + c].arrivals;
}

int weft__sim_of_image(const weft__image *img, uint32_t variant, const weft__topology *topo,
                       const uint16_t *const *worker_of, uint32_t policy, weft__sim_plan *out)
{
    maker m = {.img = img, .topo = topo, .variant = variant, .policy = policy, .p = out};
    *out = (weft__sim_plan){.n_device = img->n_device};
    if (img->n_device > topo->n_device)
        return weft__fail(WEFT_EUSAGE, "the plan has %u devices, topology %s %u", img->n_device, topo->text,
                          topo->n_device);
    if (variant >= img->n_variant) return weft__fail(WEFT_EUSAGE, "the image has no variant %u", variant);
    for (uint32_t d = 0; d < img->n_device; d++)
        out->workers[d] = topo->device[d].workers;
    int status = allocate(&m);
    if (status) return status;
    for (uint32_t d = 0; d < img->n_device; d++)
        put_device(&m, d, worker_of ? worker_of[d] : NULL);
    out->tasks[out->n_task] = (weft__sim_task){.wait = m.n_wait, .signal = m.n_signal, .transfer = m.n_transfer};
    return 0;
}
