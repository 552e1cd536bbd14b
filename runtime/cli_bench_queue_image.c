/* cli_bench_queue_image.c: a graph of the bench as an image. See cli_bench_queue_dag.c. */
#include "../host/error.h"
#include "../host/validate.h"
#include "../tasks/layout.h"
#include "cli_bench_queue.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------- planning NOPs */

typedef struct groups { /* tasks that become one op: neighbours on a device with the same inputs and the same readers */
    uint32_t *op;       /* [task] */
    uint32_t *first;    /* [op]: task */
    uint32_t *reader0, *read; /* [n + 1]; readers of each task, in order */
    uint32_t n;
} groups;

static void free_groups(groups *s)
{
    free(s->op);
    free(s->first);
    free(s->reader0);
    free(s->read);
}

static void find_readers(const weft__qdag *g, groups *s)
{
    for (uint32_t i = 0; i < g->n_input; i++)
        s->reader0[g->inputs[i] + 1]++;
    for (uint32_t i = 0; i < g->n; i++)
        s->reader0[i + 1] += s->reader0[i];
    memcpy(s->first, s->reader0, g->n * sizeof *s->first); /* next, for now */
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = 0; k < g->tasks[i].n_in; k++)
            s->read[s->first[g->inputs[g->tasks[i].in + k]]++] = i;
}

static bool are_alike(const weft__qdag *g, const groups *s, uint32_t a, uint32_t b)
{
    const weft__qtask *x = &g->tasks[a], *y = &g->tasks[b];
    const uint32_t n = s->reader0[a + 1] - s->reader0[a];
    return x->device == y->device && x->n_in == y->n_in && n == s->reader0[b + 1] - s->reader0[b] &&
           !memcmp(g->inputs + x->in, g->inputs + y->in, x->n_in * sizeof *g->inputs) &&
           !memcmp(s->read + s->reader0[a], s->read + s->reader0[b], n * sizeof *s->read);
}

static int find_groups(const weft__qdag *g, bool shared, groups *s)
{
    *s = (groups){malloc((g->n + 1u) * 4ul), malloc((g->n + 1u) * 4ul), calloc(g->n + 2u, 4),
                  malloc((g->n_input + 1u) * 4ul), 0};
    if (!s->op || !s->first || !s->reader0 || !s->read) return weft__fail(WEFT_ENOMEM, "a graph of %u tasks", g->n);
    find_readers(g, s);
    for (uint32_t i = 0; i < g->n; i++) {
        if (!i || !shared || !are_alike(g, s, i - 1, i)) s->first[s->n++] = i;
        s->op[i] = s->n - 1;
    }
    return 0;
}

/* A task's estimate holds the number of its op: so the image tells which is which. */
static int plan_numbers(const weft__queue_case *c, const weft__qdag *g, const groups *s, uint32_t mode, void **bytes,
                        uint64_t *size)
{
    weft__plan_options opt = weft__plan_defaults();
    weft__graph *graph;
    uint32_t *in = malloc((g->n_input + 1u) * sizeof *in);
    int status = in ? weft__graph_new(&graph) : weft__fail(WEFT_ENOMEM, "a graph of %u tasks", g->n);
    if (status) {
        free(in);
        return status;
    }
    opt.n_device = g->n_device;
    memcpy(opt.workers, g->workers, sizeof opt.workers);
    opt.order = WEFT__BREADTH;
    opt.alternates = c->alternates;
    opt.seed = c->seed;
    for (uint32_t i = 0; i < s->n && !status; i++) {
        const weft__qtask *t = &g->tasks[s->first[i]];
        const uint32_t end = i + 1 < s->n ? s->first[i + 1] : g->n;
        uint32_t n = 0;
        for (uint32_t k = 0; k < t->n_in && mode != WEFT__QDAG_FREE; k++) { /* a reader of one reads the whole group */
            const uint32_t from = g->inputs[t->in + k];
            if (s->first[s->op[from]] == from) in[n++] = s->op[from];
        }
        status = weft__graph_nop(graph, t->device, end - s->first[i], i, in, n, !strcmp(c->counters, "consumer"), NULL);
    }
    if (!status) status = weft__plan(graph, &opt, bytes, size, NULL);
    weft__graph_free(graph);
    free(in);
    return status;
}

/* An op's tasks stand in the image one after another. */
static int find_tasks(weft__qdag *g, const groups *s, const weft__image *img)
{
    uint32_t *seen = calloc(s->n + 1u, sizeof *seen);
    if (!seen) return weft__fail(WEFT_ENOMEM, "a graph of %u tasks", g->n);
    int status = 0;
    for (uint32_t d = 0; d < g->n_device && !status; d++) {
        const weft_image_queue *q = weft__image_queue_of(img, 0, d);
        free(g->task_of[d]);
        g->task_of[d] = malloc(q->n_task * sizeof **g->task_of + 4);
        if (!g->task_of[d]) status = weft__fail(WEFT_ENOMEM, "a graph of %u tasks", g->n);
        for (uint32_t i = 0; i < q->n_task && !status; i++) {
            const uint32_t op = img->tasks[q->task + i].cost_ns;
            g->task_of[d][i] = s->first[op] + seen[op]++;
        }
    }
    free(seen);
    return status;
}

static int check_counters(const char *name)
{
    if (!strcmp(name, "shared") || !strcmp(name, "producer") || !strcmp(name, "consumer")) return 0;
    return weft__fail(WEFT_EUSAGE, "--counters %s: expected shared, producer or consumer", name);
}

/* ------------------------------------------------------------------------------------------------------------ order */

typedef struct ranked {
    uint64_t rank;
    uint32_t task, id;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* breadth: how many tasks lie before it on the longest way; critical: the longest way to the end first. */
static int rank_tasks(const weft__queue_case *c, const weft__qdag *g, uint64_t *rank)
{
    const bool critical = !strcmp(c->order, "critical");
    if (!critical && strcmp(c->order, "breadth"))
        return weft__fail(WEFT_EUSAGE, "--order %s: expected critical or breadth", c->order);
    for (uint32_t i = 0; i < g->n && !critical; i++)
        for (uint32_t k = 0; k < g->tasks[i].n_in; k++) {
            const uint64_t level = rank[g->inputs[g->tasks[i].in + k]] + 1;
            if (rank[i] < level) rank[i] = level;
        }
    for (uint32_t i = g->n; i-- > 0 && critical;) { /* it holds the longest way of its readers so far */
        rank[i] += g->tasks[i].cost_ns + 10ull * g->tasks[i].blocks + 1;
        for (uint32_t k = 0; k < g->tasks[i].n_in; k++) {
            uint64_t *r = &rank[g->inputs[g->tasks[i].in + k]];
            if (*r < rank[i]) *r = rank[i];
        }
    }
    for (uint32_t i = 0; i < g->n && critical; i++)
        rank[i] = ~rank[i];
    return 0;
}

static int put_order(const weft__queue_case *c, const weft__qdag *g, weft__image_writer *w)
{
    uint64_t *rank = calloc(g->n + 1u, sizeof *rank);
    ranked *r = malloc((g->n + 1u) * sizeof *r);
    int status = rank && r ? rank_tasks(c, g, rank) : weft__fail(WEFT_ENOMEM, "an order of %u tasks", g->n);
    for (uint32_t d = 0; d < g->n_device && !status; d++) {
        const weft_image_queue *q = &w->queues[d];
        for (uint32_t i = 0; i < q->n_task; i++)
            r[i] = (ranked){rank[g->task_of[d][i]], g->task_of[d][i], i};
        qsort(r, q->n_task, sizeof *r, by_rank);
        for (uint32_t i = 0; i < q->n_task; i++)
            w->order[q->order + i] = r[i].id;
    }
    free(rank);
    free(r);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------ bytes */

typedef struct buffers { /* of one device: streams (to itself) first, then edges to each device */
    uint32_t blocks[WEFT_MAX_DEVICES + 1];
    uint32_t op[WEFT_MAX_DEVICES + 1]; /* in the device's table */
} buffers;

static uint32_t slot_of(const weft__qtask *t) { return t->kind == WEFT__QTASK_EDGE ? t->to + 1 : 0; }

static uint32_t count_buffers(const weft__qdag *g, buffers *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->tasks[i].blocks) b[g->tasks[i].device].blocks[slot_of(&g->tasks[i])] += g->tasks[i].blocks;
    for (uint32_t d = 0; d < g->n_device; d++)
        for (uint32_t s = 0; s <= g->n_device; s++)
            n += b[d].blocks[s] != 0;
    return n;
}

static uint32_t add_tensor(weft__image_writer *w, uint32_t *n, uint32_t device, uint32_t role, uint32_t blocks)
{
    weft_image_device *d = &w->devices[device];
    w->tensors[*n] = (weft_tensor){.name = WEFT_NONE,
                                   .device = (uint16_t)device,
                                   .dtype = WEFT_BF16,
                                   .layout = WEFT_LAYOUT_FRAG,
                                   .role = (uint8_t)role,
                                   .rows = 8,
                                   .cols = 64 * blocks,
                                   .weight = WEFT_NONE,
                                   .splits = 1,
                                   .offset = weft_round_up64(d->work_bytes, 1024),
                                   .bytes = (uint64_t)WEFT_FRAG_BYTES * blocks};
    d->work_bytes = w->tensors[*n].offset + w->tensors[*n].bytes;
    return (*n)++;
}

static weft_op copy_op(const weft_op *nop, uint32_t blocks, uint32_t x, uint32_t out)
{
    weft_op op = *nop;
    op.kind = WEFT_KIND_COPY;
    op.dtype = WEFT_BF16;
    op.m = op.m_tile = 8;
    op.n = op.k = 64 * blocks;
    op.x = x;
    op.out = out;
    return op;
}

/* The two ops that every device has, then its copies. */
static void put_ops(const weft__qdag *g, const weft__image *from, buffers *b, weft__image_writer *w)
{
    uint32_t n_tensor = from->n_tensor, n_op = 0;
    for (uint32_t d = 0; d < g->n_device; d++) {
        const weft_op *old = from->ops + from->devices[d].op;
        w->devices[d].op = n_op;
        w->ops[n_op++] = old[0];
        w->ops[n_op++] = old[1];
        for (uint32_t s = 0; s <= g->n_device; s++) {
            if (!b[d].blocks[s]) continue;
            const uint32_t x = add_tensor(w, &n_tensor, d, WEFT_ROLE_INPUT, b[d].blocks[s]);
            const uint32_t out = add_tensor(w, &n_tensor, s ? s - 1 : d, WEFT_ROLE_ACT, b[d].blocks[s]);
            b[d].op[s] = n_op - w->devices[d].op;
            w->ops[n_op++] = copy_op(&old[1], b[d].blocks[s], x, out);
        }
        w->devices[d].n_op = n_op - w->devices[d].op;
    }
}

static void put_tasks(const weft__qdag *g, const buffers *b, uint32_t mode, weft__image_writer *w)
{
    for (uint32_t d = 0; d < g->n_device; d++)
        for (uint32_t i = 0; i < w->queues[d].n_task; i++) {
            const weft__qtask *t = &g->tasks[g->task_of[d][i]];
            weft_task *task = &w->tasks[w->queues[d].task + i];
            task->cost_ns = mode == WEFT__QDAG_EMPTY ? 0 : t->cost_ns;
            if (mode == WEFT__QDAG_EMPTY || !t->blocks) continue;
            task->kind = WEFT_KIND_COPY;
            task->op = (uint16_t)b[d].op[slot_of(t)];
            task->alt_device = 0xff;
            task->tile[1] = 4 * t->block;
            task->tile[2] = 4 * t->blocks;
            task->tile[3] = 8;
        }
}

/* ----------------------------------------------------------------------------------------------------------- images */

static void copy_sections(const weft__image *from, weft__image_writer *w)
{
    const weft_image_header *h = from->header;
    memcpy(w->devices, from->devices, h->devices.count * sizeof *w->devices);
    memcpy(w->queues, from->queues, h->queues.count * sizeof *w->queues);
    memcpy(w->tensors, from->tensors, h->tensors.count * sizeof *w->tensors);
    memcpy(w->tasks, from->tasks, h->tasks.count * sizeof *w->tasks);
    memcpy(w->side, from->side, h->side.count * sizeof *w->side);
    memcpy(w->counters, from->counters, h->counters.count * sizeof *w->counters);
    memcpy(w->deps, from->deps, h->deps.count * sizeof *w->deps);
    memcpy(w->args, from->args, h->args.count * sizeof *w->args);
    memcpy(w->strings, from->strings, h->strings.count);
    w->header->strategy = h->strategy;
    w->header->seed = h->seed;
}

static int write_image(const weft__queue_case *c, const weft__qdag *g, const weft__image *from, uint32_t mode,
                       weft__image_writer *w)
{
    const weft_image_header *h = from->header;
    buffers *b = calloc(WEFT_MAX_DEVICES, sizeof *b);
    if (!b) return weft__fail(WEFT_ENOMEM, "buffers");
    const uint32_t n = mode == WEFT__QDAG_EMPTY ? 0 : count_buffers(g, b);
    const weft__image_counts counts = {h->devices.count,
                                       h->queues.count,
                                       h->tensors.count + 2 * n,
                                       0,
                                       h->ops.count + n,
                                       h->tasks.count,
                                       h->order.count,
                                       h->side.count,
                                       h->counters.count,
                                       h->deps.count,
                                       h->args.count,
                                       0,
                                       h->strings.count};
    int status = weft__image_writer_init(w, &counts, h->n_device, 1);
    if (!status) {
        copy_sections(from, w);
        put_ops(g, from, b, w);
        put_tasks(g, b, mode, w);
        status = put_order(c, g, w);
    }
    free(b);
    return status;
}

static int prove(weft__image_writer *w)
{
    weft__image img;
    uint32_t proven;
    weft__image_seal(w->bytes, w->size);
    int status = weft__image_open(w->bytes, w->size, "bench", &img);
    if (!status) status = weft__validate(&img, &proven);
    if (status) return status;
    w->header->policies = proven;
    weft__image_seal(w->bytes, w->size);
    return 0;
}

int weft__qdag_image(const weft__queue_case *c, weft__qdag *g, uint32_t mode, void **bytes, uint64_t *size)
{
    void *numbers = NULL;
    uint64_t numbers_size;
    weft__image img;
    weft__image_writer w = {0};
    groups s = {0};
    int status = check_counters(c->counters);
    if (!status) status = find_groups(g, !strcmp(c->counters, "shared"), &s);
    if (!status) status = plan_numbers(c, g, &s, mode, &numbers, &numbers_size);
    if (!status) status = weft__image_open(numbers, numbers_size, "bench", &img);
    if (!status) status = find_tasks(g, &s, &img);
    if (!status) status = write_image(c, g, &img, mode, &w);
    if (!status) status = prove(&w);
    free(numbers);
    free_groups(&s);
    if (status) {
        free(w.bytes);
        return status;
    }
    *bytes = w.bytes;
    *size = w.size;
    return 0;
}
