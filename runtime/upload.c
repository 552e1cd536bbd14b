/* upload.c: from an image to the memory of its devices.
 *
 *   one device                 three allocations
 *   weights arena              tensors of role WEIGHT, packed
 *   work arena                 all other tensors, zero
 *   tables                     weft_dev | weft_ctl | counters of each variant | tasks, lists, rings of each variant | ops |
 *                              trace
 *
 * Tables are laid out on the host first, as bytes in which every struct knows its offset; then all devices' memory is
 * allocated; then the roots, which hold addresses of all devices, are filled in and everything is written.            */
#include "engine_internal.h"

#include "../host/pack.h"
#include "../host/validate.h"
#include "../tasks/layout.h"
#include "lists.h"

#include <stdlib.h>
#include <string.h>

enum {
    PACK_BYTES = 4 << 20
};

typedef struct tables { /* of one device, in the making */
    uint8_t *bytes;
    uint64_t size, cap;
    int failed; /* out of memory; size stays right */
} tables;

typedef struct queue_offsets { /* in the tables of its device */
    uint64_t tasks, list, list_first, side, counters, deps, pending, ring, args, ready0, words, heads, ring_of;
    uint32_t n_ready0, ring_mask, n_ring;
} queue_offsets;

typedef struct device_offsets {
    uint64_t root, ctl, ops, maps, trace, trace_n, trace_clock, running;
    queue_offsets queue[WEFT_MAX_VARIANTS];
} device_offsets;

/* `bytes` zeroed bytes on a line of their own; a pointer that holds until the next call, or NULL. */
static void *reserve(tables *t, uint64_t bytes, uint64_t *offset)
{
    *offset = t->size;
    t->size += weft_round_up64(bytes, WEFT_LINE_BYTES);
    if (t->failed) return NULL;
    if (t->size > t->cap) {
        uint64_t cap = t->size + t->size / 2;
        uint8_t *grown = realloc(t->bytes, cap);
        t->failed = !grown;
        if (!grown) return NULL;
        t->bytes = grown;
        t->cap = cap;
    }
    memset(t->bytes + *offset, 0, t->size - *offset);
    return t->bytes + *offset;
}

static void append(tables *t, const void *src, uint64_t bytes, uint64_t *offset)
{
    void *to = reserve(t, bytes, offset);
    if (to && bytes) memcpy(to, src, bytes);
}

/* A row of lines, each with the same first value. */
static void append_lines(tables *t, uint64_t n, uint32_t value, uint64_t *offset)
{
    weft_line *to = reserve(t, n * sizeof *to, offset);
    for (uint64_t i = 0; to && i < n; i++)
        to[i].value = value;
}

/* ----------------------------------------------------------------------------------------------------- static lists */

typedef struct cutter { /* of one queue */
    const weft__image *img;
    const weft_image_queue *q;
    uint32_t workers;
    uint64_t *load, *share; /* by worker: cost so far; of it, in the present run */
    struct run_task {
        uint32_t cost, place, id;
    } * run; /* the present one */
} cutter;

static const weft_task *task_at(const cutter *c, uint32_t id) { return &c->img->tasks[c->q->task + id]; }

/* Kinds whose tasks of one op don't depend on each other, while what comes after them usually waits for them all. */
static int goes_together(uint32_t kind)
{
    return weft__is_gemm(kind) || kind == WEFT_KIND_ATTN || kind == WEFT_KIND_ATTN_COMBINE || kind == WEFT_KIND_ROPE ||
           kind == WEFT_KIND_SURVEY || kind == WEFT_KIND_SAMPLE;
}

/* Tasks of one such op that stand together in the order. From place `i`; their number. */
static uint32_t take_run(const cutter *c, uint32_t i)
{
    const uint32_t *order = c->img->order + c->q->order;
    const weft_task *first = task_at(c, order[i]);
    uint32_t n = 0;
    do {
        c->run[n] = (struct run_task){task_at(c, order[i + n])->cost_ns, n, order[i + n]};
        n++;
    } while (i + n < c->q->n_task && goes_together(first->kind) && task_at(c, order[i + n])->op == first->op &&
             task_at(c, order[i + n])->kind == first->kind);
    return n;
}

static int larger_first(const void *pa, const void *pb)
{
    const struct run_task *a = pa, *b = pb;
    if (a->cost != b->cost) return a->cost > b->cost ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static uint32_t least_loaded(const cutter *c)
{
    uint32_t least = 0;
    for (uint32_t w = 1; w < c->workers; w++)
        if (c->share[w] < c->share[least] || (c->share[w] == c->share[least] && c->load[w] < c->load[least])) least = w;
    return least;
}

/* Gives each task of a run, largest first, to the worker with the least of that run so far, then with the least of all, then
 * the first (Graham 1969, LPT). Lists keep the queue's order. */
static void deal(const cutter *c, uint16_t *worker_of, uint32_t *first)
{
    for (uint32_t i = 0, n; i < c->q->n_task; i += n) {
        n = take_run(c, i);
        qsort(c->run, n, sizeof *c->run, larger_first);
        memset(c->share, 0, c->workers * sizeof *c->share);
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t cost = c->run[j].cost ? c->run[j].cost : 1, w = least_loaded(c);
            c->share[w] += cost;
            c->load[w] += cost;
            worker_of[c->run[j].id] = (uint16_t)w;
            first[w + 1]++;
        }
    }
}

int weft__cut_lists(const weft__image *img, const weft_image_queue *q, uint32_t workers, uint32_t *list,
                    uint32_t *first, uint16_t *worker_of)
{
    cutter c = {
        img, q, workers, calloc(workers, 8), calloc(workers, 8), malloc((q->n_task + 1ull) * sizeof(struct run_task))};
    const int ok = c.load && c.share && c.run;
    if (ok) {
        deal(&c, worker_of, first);
        for (uint32_t w = 0; w < workers; w++) {
            first[w + 1] += first[w];
            c.load[w] = first[w];
        }
        for (uint32_t i = 0; i < q->n_task; i++) {
            uint32_t id = img->order[q->order + i];
            list[c.load[worker_of[id]]++] = id;
        }
    }
    free(c.load);
    free(c.share);
    free(c.run);
    return ok ? 0 : weft__fail(WEFT_ENOMEM, "static lists of %u workers", workers);
}

typedef struct lists {
    uint32_t *list, *first;
    uint16_t *ring_of;
} lists;

static void free_lists(lists *l)
{
    free(l->list);
    free(l->first);
    free(l->ring_of);
}

static int make_lists(const weft_engine *e, uint32_t v, uint32_t d, lists *l)
{
    const weft_image_queue *q = weft__image_queue_of(&e->img, v, d);
    uint32_t workers = e->m->workers[d];
    *l = (lists){malloc(q->n_task * 4ull + 4), calloc(workers + 1ull, 4), malloc(q->n_task * 2ull + 2)};
    if (!l->list || !l->first || !l->ring_of) return weft__fail(WEFT_ENOMEM, "lists of %u tasks", q->n_task);
    int status = weft__cut_lists(&e->img, q, workers, l->list, l->first, l->ring_of);
    if (!status && e->policy == WEFT_POLICY_STATIC && !e->config.unchecked)
        status = weft__validate_lists(&e->img, v, d, l->list, l->first, workers);
    if (status) return status;
    if (e->policy == WEFT_POLICY_FIFO) memcpy(l->list, e->img.order + q->order, q->n_task * 4ull);
    if (e->policy == WEFT_POLICY_PRIORITY)
        for (uint32_t i = 0; i < q->n_task; i++)
            l->ring_of[e->img.order[q->order + i]] = (uint16_t)((uint64_t)i * e->queue.buckets / q->n_task);
    for (uint32_t i = 0; i < q->n_task && e->policy == WEFT_POLICY_PUSH; i++)
        l->list[e->img.order[q->order + i]] = i; /* weft_policy_queue.place */
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ queues */

static int waits_for_nothing(const weft_task *t, const uint64_t *side)
{
    for (uint32_t i = 0; i < t->n_wait; i++)
        if (weft__task_wait(t, side, i).lag == 0) return 0;
    return 1;
}

/* A ring holds all tasks of its device. */
static int find_capacity(const weft_engine *e, const weft_image_queue *q, uint32_t d, queue_offsets *o)
{
    uint32_t capacity = e->queue.capacity ? e->queue.capacity : 1;
    if (e->queue.capacity && capacity < q->n_task)
        return weft__fail(WEFT_EUSAGE, "queue '%s': capacity %u: device %u has %u tasks, and a ring holds them all",
                          e->queue.text, capacity, d, q->n_task);
    while (capacity < q->n_task)
        capacity *= 2;
    o->ring_mask = capacity - 1;
    return 0;
}

/* The words of push, or of a module's policy. CUDA's push finds the same head, tail and ring in them. */
static void append_policy(const weft_engine *e, tables *t, const weft_image_queue *q, uint32_t d, queue_offsets *o)
{
    weft_policy_queue p = {.n_task = q->n_task,
                           .n_worker = e->m->workers[d],
                           .capacity = o->ring_mask + 1,
                           .base = e->config.counter_base};
    memcpy(p.param, e->queue.loop.param, sizeof p.param);
    p.words = reserve(t, 8 * e->queue.module->words(&p), &o->heads);
    if (!p.words) return;
    p.tasks = (const weft_task *)(t->bytes + o->tasks);
    p.place = (const uint32_t *)(t->bytes + o->list);
    p.home = (const uint16_t *)(t->bytes + o->ring_of);
    e->queue.module->init(&p);
    o->n_ring = 1;
    o->ring = o->heads + 8ull * WEFT_POLICY_LINE * (2 + p.n_worker); /* policy_push.h */
}

/* What steal and priority need. A slot's first content is a ticket that it never holds. */
static void append_rings(const weft_engine *e, tables *t, uint32_t d, queue_offsets *o)
{
    const uint32_t capacity = o->ring_mask + 1;
    o->n_ring = e->policy == WEFT_POLICY_STEAL ? e->m->workers[d] : e->queue.buckets;
    append_lines(t, 2ull * o->n_ring, e->config.counter_base, &o->heads);
    uint64_t *ring = reserve(t, 8ull * capacity * o->n_ring, &o->ring);
    for (uint32_t r = 0; ring && r < o->n_ring; r++, ring += capacity)
        for (uint32_t i = 0; i < capacity; i++) {
            uint32_t ticket = e->config.counter_base + i;
            ring[ticket & o->ring_mask] = (uint64_t)(ticket - capacity) << 32;
        }
}

/* What all of the push family need beside. */
static int append_push_family(const weft_engine *e, tables *t, const weft_image_queue *q, uint32_t d, const lists *l,
                              queue_offsets *o)
{
    int status = find_capacity(e, q, d, o);
    if (status) return status;
    append(t, l->ring_of, q->n_task * 2ull, &o->ring_of);
    if (e->policy == WEFT_POLICY_PUSH)
        append_policy(e, t, q, d, o);
    else
        append_rings(e, t, d, o);
    reserve(t, q->n_task * 4ull, &o->pending);
    uint32_t *ready0 = reserve(t, q->n_task * 4ull, &o->ready0);
    for (uint32_t i = 0; ready0 && i < q->n_task; i++) {
        uint32_t id = e->img.order[q->order + i];
        if (waits_for_nothing(&e->img.tasks[q->task + id], e->img.side + q->side)) ready0[o->n_ready0++] = id;
    }
    return 0;
}

static int append_queue(const weft_engine *e, tables *t, uint32_t v, uint32_t d, queue_offsets *o)
{
    const weft__image *img = &e->img;
    const weft_image_queue *q = weft__image_queue_of(img, v, d);
    lists l;
    int status = make_lists(e, v, d, &l);
    if (!status) {
        append(t, img->tasks + q->task, q->n_task * sizeof(weft_task), &o->tasks);
        append(t, img->side + q->side, q->n_side * 8ull, &o->side);
        append(t, img->counters + q->counter, q->n_counter * sizeof(weft_counter), &o->counters);
        append(t, img->deps + q->dep, q->n_dep * 4ull, &o->deps);
        append(t, img->args + q->arg, q->n_arg * 4ull, &o->args);
        append(t, l.list, q->n_task * 4ull, &o->list);
        append(t, l.first, (e->m->workers[d] + 1) * 4ull, &o->list_first);
        append_lines(t, q->n_counter, e->config.counter_base, &o->words);
        if (e->policy >= WEFT_POLICY_PUSH)
            status = append_push_family(e, t, q, d, &l, o);
        else
            append_lines(t, 2, e->config.counter_base, &o->heads);
    }
    free_lists(&l);
    return status;
}

/* Everything but the contents of the root and of the ops, which hold addresses. */
static int lay_out(const weft_engine *e, uint32_t d, tables *t, device_offsets *o)
{
    uint64_t workers = e->m->workers[d], cap = e->config.trace_records;
    reserve(t, sizeof(weft_dev), &o->root);
    weft_ctl *ctl = reserve(t, sizeof *ctl, &o->ctl);
    if (ctl) ctl->done.value = ctl->head.value = ctl->tail.value = e->config.counter_base;
    reserve(t, e->img.devices[d].n_op * sizeof(weft_op_rt), &o->ops);
    reserve(t, e->b->tensor_map ? e->img.devices[d].n_op * 128ull : 0, &o->maps);
    for (uint32_t v = 0; v < e->img.n_variant; v++) {
        int status = append_queue(e, t, v, d, &o->queue[v]);
        if (status) return status;
    }
    reserve(t, workers * cap * sizeof(weft_trace_record), &o->trace);
    append_lines(t, workers, 0, &o->trace_n);
    reserve(t, workers * sizeof(weft_trace_clock), &o->trace_clock);
    append_lines(t, workers, WEFT_NONE, &o->running);
    return t->failed ? weft__fail(WEFT_ENOMEM, "tables of device %u: %llu bytes", d, (unsigned long long)t->size) : 0;
}

/* ------------------------------------------------------------------------------------------------- roots, with addresses */

static uint64_t tensor_address(const weft_engine *e, uint32_t tensor)
{
    if (tensor == WEFT_NONE) return 0;
    const weft_tensor *t = &e->img.tensors[tensor];
    return (t->role == WEFT_ROLE_WEIGHT ? e->mem[t->device].weights : e->mem[t->device].work) + t->offset;
}

static uint8_t layout_of(const weft_engine *e, uint32_t tensor)
{
    return tensor == WEFT_NONE ? WEFT_LAYOUT_ROW : e->img.tensors[tensor].layout;
}

/* Does a device other than its own write this packet buffer? */
static int is_written_remotely(const weft_engine *e, uint32_t tensor)
{
    if (tensor == WEFT_NONE || e->img.header->n_device == 1) return 0;
    for (uint32_t i = 0; i < e->img.n_op; i++)
        if (e->img.ops[i].pk_out == tensor && e->img.ops[i].device != e->img.tensors[tensor].device) return 1;
    return 0;
}

static uint32_t scope_flags(const weft_engine *e, const weft_op *op)
{
    int out = op->pk_out != WEFT_NONE && e->img.tensors[op->pk_out].device != op->device;
    return (is_written_remotely(e, op->pk_x) ? WEFT_OP_X_SYS : 0u) | (out ? WEFT_OP_OUT_SYS : 0u);
}

static weft_op_rt resolve(const weft_engine *e, const weft_op *op)
{
    uint32_t out = op->out != WEFT_NONE ? op->out : op->pk_out;
    weft_op_rt r = {
        .x = tensor_address(e, op->x),
        .w = tensor_address(e, op->w),
        .out = tensor_address(e, op->out),
        .aux = tensor_address(e, op->aux),
        .pk_x = tensor_address(e, op->pk_x),
        .pk_out = tensor_address(e, op->pk_out),
        .pk_aux = tensor_address(e, op->pk_aux),
        .partial = tensor_address(e, op->partial),
        .squares = tensor_address(e, op->squares),
        .scale = tensor_address(e, op->scale),
        .m = op->m,
        .n = op->n,
        .k = op->k,
        .m_tile = op->m_tile,
        .split_kb = op->split_kb,
        .n_split = op->n_split,
        .flags = op->flags | scope_flags(e, op),
        .dtype = op->dtype,
        .epilogue = op->epilogue,
        .x_layout = layout_of(e, op->x),
        .out_layout = layout_of(e, op->out),
        .aux_layout = layout_of(e, op->aux),
        .alt = op->alt,
        .eps = op->eps,
    };
    if (out != WEFT_NONE) {
        r.out_rows = e->img.tensors[out].rows;
        r.out_cols = e->img.tensors[out].cols;
    }
    memcpy(r.param, op->param, sizeof r.param);
    return r;
}

static weft_queue_rt queue_root(const weft_engine *e, uint32_t v, uint32_t d, const device_offsets *o)
{
    const weft_image_queue *q = weft__image_queue_of(&e->img, v, d);
    const queue_offsets *at = &o[d].queue[v];
    uint64_t base = e->mem[d].tables;
    weft_queue_rt r = {
        .tasks = base + at->tasks,
        .list = base + at->list,
        .list_first = base + at->list_first,
        .side = base + at->side,
        .counters = base + at->counters,
        .deps = base + at->deps,
        .args = base + at->args,
        .heads = base + at->heads,
        .n_task = q->n_task,
        .n_counter = q->n_counter,
        .n_ready0 = at->n_ready0,
        .ring_mask = at->ring_mask,
        .n_ring = at->n_ring,
    };
    if (at->n_ring) {
        r.ring = base + at->ring;
        r.pending = base + at->pending;
        r.ready0 = base + at->ready0;
        r.ring_of = base + at->ring_of;
    }
    for (uint32_t p = 0; p < e->img.n_device; p++)
        r.words[p] = e->words[v][p];
    return r;
}

static int fill_root(const weft_engine *e, uint32_t d, const device_offsets *o, tables *t)
{
    const weft_image_device *device = &e->img.devices[d];
    weft_dev *root = (weft_dev *)(t->bytes + o[d].root);
    *root = (weft_dev){
        .device = d,
        .n_device = e->img.n_device,
        .n_worker = e->m->workers[d],
        .policy = e->policy,
        .base = e->config.counter_base,
        .n_variant = e->img.n_variant,
        .in_flight = e->config.in_flight,
        .trace_cap = e->config.trace_records,
        .ops = e->mem[d].tables + o[d].ops,
        .maps = e->mem[d].tables + o[d].maps,
        .peers = weft__image_peers(&e->img, d) | 1ull << d,
        .victims = weft__image_victims(&e->img, d),
        .mailbox = e->mailbox_addr,
        .trace = e->mem[d].trace,
        .trace_n = e->mem[d].trace_n,
        .trace_clock = e->mem[d].trace_clock,
        .max_steps = e->config.oneshot,
        .running = e->mem[d].running,
    };
    for (uint32_t p = 0; p < e->img.n_device; p++) {
        root->roots[p] = e->mem[p].root;
        root->ctl[p] = e->mem[p].ctl;
        root->work[p] = e->mem[p].work;
    }
    for (uint32_t v = 0; v < e->img.n_variant; v++)
        root->queue[v] = queue_root(e, v, d, o);
    weft_op_rt *ops = (weft_op_rt *)(t->bytes + o[d].ops);
    for (uint32_t i = 0; i < device->n_op; i++) {
        const weft_op *op = &e->img.ops[device->op + i];
        ops[i] = resolve(e, op);
        if (op->kind != WEFT_KIND_GEMM_WIDE || !e->b->tensor_map) continue;
        int status = e->b->tensor_map(e->m, ops[i].w, op->n, op->k, t->bytes + o[d].maps + 128ull * i);
        if (status) return status;
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- weights */

static int upload_rows(weft_engine *e, uint32_t tensor, const weft__weight_reader *reader)
{
    const weft_tensor *t = &e->img.tensors[tensor];
    void *packed = malloc(t->bytes);
    if (!packed) return weft__fail(WEFT_ENOMEM, "weight %s", weft__image_string(&e->img, t->name));
    int status = weft__pack_tensor(&e->img, tensor, reader, packed);
    if (!status) status = e->b->write(e->m, t->device, tensor_address(e, tensor), packed, t->bytes);
    free(packed);
    return status;
}

/* A few groups of 16 rows at a time, so that the host never holds a whole weight. */
static int upload_atoms(weft_engine *e, uint32_t tensor, const weft__weight_reader *reader)
{
    const weft_tensor *t = &e->img.tensors[tensor];
    weft__weight w = weft__weight_of_image(&e->img, tensor);
    uint64_t group_bytes = (uint64_t)weft_div_up(t->cols, 64) * WEFT_ATOM_BYTES, addr = tensor_address(e, tensor);
    if (w.source.fill == WEFT_FILL_SEED && !w.source.gain && w.row0 == 0 && w.col0 == 0 && e->b->fill_seeded)
        return e->b->fill_seeded(e->m, t->device, addr, t->dtype, t->rows, t->cols, w.source.seed, w.source.scale);
    uint32_t groups = weft_div_up(t->rows, 16), batch = (uint32_t)(PACK_BYTES / group_bytes);
    if (batch == 0) batch = 1;
    if (batch > groups) batch = groups;
    void *packed = malloc(batch * group_bytes);
    int status = packed ? 0 : weft__fail(WEFT_ENOMEM, "weight %s", w.name);
    for (uint32_t g = 0; g < groups && !status; g += batch) {
        uint32_t n = groups - g < batch ? groups - g : batch;
        status = weft__pack_atoms(&w, reader, g, n, packed);
        if (!status) status = e->b->write(e->m, t->device, addr + g * group_bytes, packed, n * group_bytes);
    }
    free(packed);
    return status;
}

static int upload_weights(weft_engine *e, const weft_weight_source *source)
{
    weft__weight_reader reader;
    if (source) reader = (weft__weight_reader){source->user, source->shape, source->rows};
    for (uint32_t i = 0; i < e->img.n_tensor; i++) {
        const weft_tensor *t = &e->img.tensors[i];
        if (t->role != WEFT_ROLE_WEIGHT || t->weight == WEFT_NONE) continue;
        int status = t->layout == WEFT_LAYOUT_ATOM ? upload_atoms(e, i, source ? &reader : NULL)
                                                   : upload_rows(e, i, source ? &reader : NULL);
        if (status) return status;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- all */

static int allocate(weft_engine *e, uint32_t d, const tables *t, const device_offsets *o)
{
    const weft_image_device *device = &e->img.devices[d];
    weft__device_memory *m = &e->mem[d];
    int status = weft__engine_alloc(e, d, device->weight_bytes, &m->weights);
    if (!status) status = weft__engine_alloc(e, d, device->work_bytes, &m->work);
    if (!status) status = weft__engine_alloc(e, d, t->size, &m->tables);
    if (!status) status = e->b->fill(e->m, d, m->work, 0, device->work_bytes);
    if (status) return status;
    m->root = m->tables + o->root;
    m->ctl = m->tables + o->ctl;
    m->trace = m->tables + o->trace;
    m->trace_n = m->tables + o->trace_n;
    m->trace_clock = m->tables + o->trace_clock;
    m->running = m->tables + o->running;
    for (uint32_t v = 0; v < e->img.n_variant; v++)
        e->words[v][d] = m->tables + o->queue[v].words;
    return 0;
}

static int build(weft_engine *e, tables *t, device_offsets *o)
{
    int status = 0;
    for (uint32_t d = 0; d < e->img.n_device && !status; d++)
        status = lay_out(e, d, &t[d], &o[d]);
    for (uint32_t d = 0; d < e->img.n_device && !status; d++)
        status = allocate(e, d, &t[d], &o[d]);
    for (uint32_t d = 0; d < e->img.n_device && !status; d++) {
        status = fill_root(e, d, o, &t[d]);
        if (!status) status = e->b->write(e->m, d, e->mem[d].tables, t[d].bytes, t[d].size);
    }
    return status;
}

int weft__upload(weft_engine *e, const weft_weight_source *source)
{
    uint32_t n = e->img.n_device;
    tables *t = calloc(n, sizeof *t);
    device_offsets *o = calloc(n, sizeof *o);
    int status = t && o ? build(e, t, o) : weft__fail(WEFT_ENOMEM, "tables of %u devices", n);
    for (uint32_t d = 0; t && d < n; d++)
        free(t[d].bytes);
    free(t);
    free(o);
    return status ? status : upload_weights(e, source);
}
