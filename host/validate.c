/* validate.c: does every task of an image get to run?
 *
 * Enters: an opened image. Leaves: the policies that are proven, or WEFT_EREFUSED.
 *   arrivals  each counter is signalled exactly as often a step as it expects
 *   lists     a counter's list names just the tasks that wait for it
 *   push, steal, priority: tasks and counters have no cycle; the last arrival finds all who wait; a ring holds all
 * tasks
 *   static, fifo: besides, the queue orders of all devices embed in one topological order. Then the first unfinished
 * task in
 *             that order is at the head of some worker's list, or has been taken, and all that it waits for is
 * finished:
 *             whatever the number of workers, and also when a worker starts a task before its later waits hold.
 * Memory is races.c's part. All passes are linear in tasks, waits and signals. */
#include "map.h"
#include "validate_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DYNAMIC (1u << WEFT_POLICY_PUSH | 1u << WEFT_POLICY_STEAL | 1u << WEFT_POLICY_PRIORITY)
#define LISTED (1u << WEFT_POLICY_STATIC | 1u << WEFT_POLICY_FIFO)

weft__task_name weft__name_task(const weft__proof *p, uint32_t task)
{
    weft__task_name n;
    const uint32_t d = weft__proof_device(p, task);
    const weft_op *op = weft__image_op(p->img, d, &p->tasks[task]);
    static const char *const kinds[] = {
#define WEFT_KIND(ID, name, text) #name,
#include "../tasks/tasks.def"
#undef WEFT_KIND
    };
    const char *name = op->name == WEFT_NONE ? kinds[op->kind] : weft__image_string(p->img, op->name);
    snprintf(n.text, sizeof n.text, "task %u of device %u (%.48s)", task - weft__proof_task(p, d, 0), d, name);
    return n;
}

/* --------------------------------------------------------------------------------------------- arrivals and lists */

static int same_name(const weft__image *img, uint32_t a, uint32_t b)
{
    if (a == WEFT_NONE || b == WEFT_NONE) return a == b;
    return !strcmp(weft__image_string(img, a), weft__image_string(img, b));
}

/* Two tensors of weights with the same contents, or the same tensor. */
static int same_values(const weft__image *img, uint32_t a, uint32_t b)
{
    if (a == b) return 1;
    if (a == WEFT_NONE || b == WEFT_NONE) return 0;
    const weft_tensor *x = &img->tensors[a], *y = &img->tensors[b];
    if (x->role != WEFT_ROLE_WEIGHT || y->role != WEFT_ROLE_WEIGHT) return 0;
    if (x->dtype != y->dtype || x->layout != y->layout || x->rows != y->rows || x->cols != y->cols) return 0;
    const weft_weight *v = &img->weights[x->weight], *w = &img->weights[y->weight];
    return v->fill == w->fill && v->seed == w->seed && v->scale == w->scale && v->row0 == w->row0 &&
           v->col0 == w->col0 && same_name(img, v->a, w->a) && same_name(img, v->b, w->b) &&
           same_name(img, v->gain, w->gain);
}

/* Does the alternate's entry of a task's op do the same, but for where its weights lie? */
static int same_op(const weft__image *img, uint32_t device, const weft_task *t)
{
    if (t->kind == WEFT_KIND_NOP || t->kind == WEFT_KIND_MIX) return 1;
    const weft_op *op = weft__image_op(img, device, t);
    weft_op there = img->ops[img->devices[t->alt_device].op + op->alt];
    if (!same_values(img, op->w, there.w) || !same_values(img, op->aux, there.aux)) return 0;
    there.device = op->device;
    there.flags &= ~(uint32_t)WEFT_OP_ALTERNATE;
    there.alt = op->alt;
    there.w = op->w;
    there.aux = op->aux;
    return !memcmp(&there, op, sizeof there);
}

/* What is wrong with one task's waits and signals by themselves; NULL if nothing is. */
static const char *bad_edges(const weft__proof *p, uint32_t device, const weft_task *t)
{
    const uint64_t *side = p->img->side + p->queues[device].side;
    const uint32_t chunks = weft__is_gemm(t->kind) ? weft_div_up(t->tile[3] >> 16, WEFT_K_CHUNK / 64) : 1;
    if (t->alt_device != 0xff && !same_op(p->img, device, t)) return "has an alternate that does something else";
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const weft_wait w = weft__task_wait(t, side, i);
        if (w.lag) return "waits with lag: not proven by this version";
        if (w.due >= chunks) return "has a wait that is due after the last of its input";
        if (t->alt_device != 0xff && p->counters[weft__proof_counter(p, device, w.counter)].scope != WEFT_SCOPE_SYS)
            return "may be stolen, but waits with scope gpu";
    }
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        if (t->alt_device != 0xff && s.scope != WEFT_SCOPE_SYS) return "may be stolen, but signals with scope gpu";
        if (s.device != device && s.scope != WEFT_SCOPE_SYS) return "signals another device with scope gpu";
    }
    return NULL;
}

static int count_edges(const weft__proof *p, uint32_t *signals, uint32_t *waits)
{
    for (uint32_t d = 0; d < p->img->n_device; d++) {
        const weft_image_queue *q = &p->queues[d];
        const uint64_t *side = p->img->side + q->side;
        for (uint32_t i = 0; i < q->n_task; i++) {
            const weft_task *t = &p->tasks[weft__proof_task(p, d, i)];
            const char *bad = bad_edges(p, d, t);
            if (bad) {
                return weft__fail(WEFT_EREFUSED, "%s %s", weft__name_task(p, weft__proof_task(p, d, i)).text, bad);
            }
            for (uint32_t s = 0; s < t->n_signal; s++) {
                const weft_signal sig = weft__task_signal(t, side, s);
                signals[weft__proof_counter(p, sig.device, sig.counter)]++;
            }
            for (uint32_t s = 0; s < t->n_wait; s++) {
                waits[weft__proof_counter(p, d, weft__task_wait(t, side, s).counter)]++;
            }
        }
    }
    return 0;
}

static int waits_for(const weft__proof *p, uint32_t device, const weft_task *t, uint32_t counter)
{
    for (uint32_t s = 0; s < t->n_wait; s++) {
        if (weft__task_wait(t, p->img->side + p->queues[device].side, s).counter == counter) return 1;
    }
    return 0;
}

static int check_counter(const weft__proof *p, uint32_t device, uint32_t id, uint32_t signals, uint32_t waits)
{
    const weft_counter *c = &p->counters[weft__proof_counter(p, device, id)];
    const uint32_t *deps = p->img->deps + p->queues[device].dep + c->dep;
    if (signals != c->arrivals) {
        const char *who = "nobody waits for it";
        weft__task_name n;
        if (c->n_dep) {
            n = weft__name_task(p, weft__proof_task(p, device, deps[0]));
            who = n.text;
        }
        return weft__fail(WEFT_EREFUSED,
                          "counter %u of device %u gets %u signals a step but expects %u arrivals; waiting: %s", id,
                          device, signals, c->arrivals, who);
    }
    for (uint32_t i = 0; i < c->n_dep; i++) {
        const uint32_t t = weft__proof_task(p, device, deps[i]);
        if ((i && deps[i] <= deps[i - 1]) || !waits_for(p, device, &p->tasks[t], id)) {
            return weft__fail(WEFT_EREFUSED, "counter %u of device %u lists %s, %s", id, device,
                              weft__name_task(p, t).text,
                              i && deps[i] <= deps[i - 1] ? "out of order or twice" : "which does not wait for it");
        }
    }
    if (c->n_dep == waits) return 0;
    return weft__fail(WEFT_EREFUSED, "counter %u of device %u lists %u tasks, but tasks wait for it %u times", id,
                      device, c->n_dep, waits);
}

static int check_counters(const weft__proof *p)
{
    uint32_t *signals = weft__table_zero(p->n_counter + 1u, 4), *waits = weft__table_zero(p->n_counter + 1u, 4);
    int rc = signals && waits ? 0 : weft__fail(WEFT_ENOMEM, "validator: %u counters", p->n_counter);
    if (!rc) rc = count_edges(p, signals, waits);
    for (uint32_t d = 0; d < p->img->n_device && !rc; d++) {
        for (uint32_t c = 0; c < p->queues[d].n_counter && !rc; c++) {
            const uint32_t id = weft__proof_counter(p, d, c);
            rc = check_counter(p, d, c, signals[id], waits[id]);
        }
    }
    free(signals);
    free(waits);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- progress */

typedef struct run {
    uint32_t *left;   /* [task]: waits (and, if listed, the task before it in its queue) not yet satisfied */
    uint32_t *arrive; /* [counter]: arrivals still missing */
    uint32_t *after;  /* [task]: next in its queue's order, WEFT_NONE at the end */
    uint32_t *ready;  /* stack */
    uint32_t n_ready, done;
} run;

static void run_free(run *r)
{
    free(r->left);
    free(r->arrive);
    free(r->after);
    free(r->ready);
}

static int run_init(const weft__proof *p, run *r)
{
    *r = (run){.left = weft__table(p->n_task + 1u, 4ul),
               .arrive = weft__table(p->n_counter + 1u, 4ul),
               .after = weft__table(p->n_task + 1u, 4ul),
               .ready = weft__table(p->n_task + 1u, 4ul)};
    if (!r->left || !r->arrive || !r->after || !r->ready)
        return weft__fail(WEFT_ENOMEM, "validator: %u tasks", p->n_task);
    for (uint32_t d = 0; d < p->img->n_device; d++) {
        const weft_image_queue *q = &p->queues[d];
        const uint32_t *order = p->img->order + q->order;
        for (uint32_t i = 0; i < q->n_task; i++) {
            r->after[weft__proof_task(p, d, order[i])] = i + 1 < q->n_task ? weft__proof_task(p, d, order[i + 1])
                                                                           : WEFT_NONE;
        }
    }
    return 0;
}

static void arrived(const weft__proof *p, run *r, uint32_t device, uint32_t counter)
{
    const weft_counter *c = &p->counters[weft__proof_counter(p, device, counter)];
    const uint32_t *deps = p->img->deps + p->queues[device].dep + c->dep;
    for (uint32_t i = 0; i < c->n_dep; i++) {
        const uint32_t t = weft__proof_task(p, device, deps[i]);
        if (!--r->left[t]) r->ready[r->n_ready++] = t;
    }
}

static void finish_task(const weft__proof *p, run *r, uint32_t task, int listed)
{
    const weft_task *t = &p->tasks[task];
    const uint64_t *side = t->n_signal > 2 ? p->img->side + p->queues[weft__proof_device(p, task)].side : NULL;
    for (uint32_t s = 0; s < t->n_signal; s++) {
        const weft_signal sig = weft__task_signal(t, side, s);
        if (!--r->arrive[weft__proof_counter(p, sig.device, sig.counter)]) arrived(p, r, sig.device, sig.counter);
    }
    const uint32_t after = r->after[task];
    if (listed && after != WEFT_NONE && !--r->left[after]) r->ready[r->n_ready++] = after;
    r->done++;
}

/* Executes the plan in the abstract. listed: a task also waits for the one before it in its queue. */
static void execute(const weft__proof *p, run *r, int listed)
{
    r->n_ready = r->done = 0;
    for (uint32_t i = 0; i < p->n_counter; i++)
        r->arrive[i] = p->counters[i].arrivals;
    for (uint32_t i = 0; i < p->n_task; i++)
        r->left[i] = p->tasks[i].n_wait;
    if (listed) {
        for (uint32_t i = 0; i < p->n_task; i++) {
            if (r->after[i] != WEFT_NONE) r->left[r->after[i]]++;
        }
    }
    for (uint32_t i = 0; i < p->n_task; i++) {
        if (!r->left[i]) r->ready[r->n_ready++] = i;
    }
    while (r->n_ready)
        finish_task(p, r, r->ready[--r->n_ready], listed);
}

/* before[t]: for each task that did not finish, one that did not finish either and that it is waiting for. */
static void find_blockers(const weft__proof *p, const run *r, int listed, uint32_t *before)
{
    memset(before, 0xff, p->n_task * 4ul);
    for (uint32_t t = 0; t < p->n_task; t++) {
        if (!r->left[t]) continue;
        const uint32_t d = weft__proof_device(p, t);
        if (listed && r->after[t] != WEFT_NONE) before[r->after[t]] = t;
        for (uint32_t s = 0; s < p->tasks[t].n_signal; s++) {
            const weft_signal sig = weft__task_signal(&p->tasks[t], p->img->side + p->queues[d].side, s);
            const weft_counter *c = &p->counters[weft__proof_counter(p, sig.device, sig.counter)];
            const uint32_t *deps = p->img->deps + p->queues[sig.device].dep + c->dep;
            for (uint32_t i = 0; i < c->n_dep; i++)
                before[weft__proof_task(p, sig.device, deps[i])] = t;
        }
    }
}

static int refuse_cycle(const weft__proof *p, const run *r, int listed)
{
    uint32_t *before = weft__table(p->n_task + 1u, 4ul), at = 0;
    uint8_t *seen = weft__table_zero(p->n_task + 1u, 1);
    char text[800] = "";
    size_t n = 0;
    if (!before || !seen) {
        free(before);
        free(seen);
        return weft__fail(WEFT_ENOMEM, "validator: %u tasks", p->n_task);
    }
    find_blockers(p, r, listed, before);
    while (at < p->n_task && !r->left[at])
        at++;
    while (!seen[at]) {
        seen[at] = 1;
        at = before[at];
    }
    const uint32_t start = at;
    uint32_t steps = 0;
    do {
        if (steps < 6) n += (size_t)snprintf(text + n, sizeof text - n, "%s <- ", weft__name_task(p, at).text);
        at = before[at];
        steps++;
    } while (at != start);
    const char *what = listed ? "by waits and queue order" : "by waits";
    int rc = weft__fail(WEFT_EREFUSED, "cycle of %u tasks %s: %s%s%s", steps, what, text, steps > 6 ? "... <- " : "",
                        weft__name_task(p, start).text);
    free(before);
    free(seen);
    return rc;
}

int weft__prove_progress(const weft__proof *p, uint32_t *proven)
{
    run r;
    int rc = check_counters(p);
    if (rc) return rc;
    *proven = 0;
    rc = run_init(p, &r);
    if (!rc) {
        execute(p, &r, 1);
        if (r.done == p->n_task) {
            *proven = LISTED | DYNAMIC;
        } else if (p->img->header->policies & LISTED) {
            rc = refuse_cycle(p, &r, 1);
        } else {
            execute(p, &r, 0);
            if (r.done == p->n_task)
                *proven = DYNAMIC;
            else
                rc = refuse_cycle(p, &r, 0);
        }
    }
    run_free(&r);
    return rc;
}

/* Variants share buffers and alternate step by step: devices that write to one device must wait for each other's
 * steps. */
static int check_variants(const weft__image *img)
{
    uint64_t peers[WEFT_MAX_DEVICES];
    if (img->n_variant == 1) return 0;
    for (uint32_t d = 0; d < img->n_device; d++)
        peers[d] = weft__image_peers(img, d);
    for (uint32_t a = 0; a < img->n_device; a++) {
        for (uint32_t b = 0; b < img->n_device; b++) {
            if (a == b || !(peers[a] & peers[b]) || (peers[a] >> b & 1)) continue;
            return weft__fail(WEFT_EREFUSED,
                              "devices %u and %u both write to device %d, but %u does not wait for %u between "
                              "steps of different variants",
                              a, b, __builtin_ctzll(peers[a] & peers[b]), a, b);
        }
    }
    return 0;
}

/* No op lies with a device on which it can't run. */
static int check_costs(const weft__image *img)
{
    for (uint32_t i = 0; i < img->n_op; i++) {
        const weft_op *op = &img->ops[i];
        if (op->cost == WEFT_NONE || img->costs[(uint64_t)op->cost * img->n_device + op->device] != WEFT_NONE) continue;
        return weft__fail(WEFT_EREFUSED, "op %u (%s) lies with device %u, on which its costs say that it can't run", i,
                          op->name == WEFT_NONE ? "-" : weft__image_string(img, op->name), op->device);
    }
    return 0;
}

int weft__validate(const weft__image *img, uint32_t *proven)
{
    uint32_t all = (1u << WEFT_POLICY_COUNT) - 1;
    int refused = check_variants(img);
    if (!refused) refused = check_costs(img);
    if (refused) return refused;
    for (uint32_t v = 0; v < img->n_variant; v++) {
        const weft_image_queue *q = weft__image_queue_of(img, v, 0),
                               *last = weft__image_queue_of(img, v, img->n_device - 1);
        const weft__proof p = {.img = img,
                               .variant = v,
                               .n_task = last->task + last->n_task - q->task,
                               .n_counter = last->counter + last->n_counter - q->counter,
                               .queues = q,
                               .tasks = img->tasks + q->task,
                               .counters = img->counters + q->counter};
        uint32_t here;
        int rc = weft__prove_progress(&p, &here);
        if (!rc) rc = weft__prove_memory(&p);
        if (rc) return rc;
        all &= here;
    }
    if (proven) *proven = all;
    if (!(img->header->policies & ~all)) return 0;
    return weft__fail(WEFT_EREFUSED, "the image claims policies 0x%x, of which 0x%x are proven", img->header->policies,
                      all);
}

int weft__validate_lists(const weft__image *img, uint32_t variant, uint32_t device, const uint32_t *list,
                         const uint32_t *first, uint32_t workers)
{
    const weft_image_queue *q = weft__image_queue_of(img, variant, device);
    uint32_t *place = weft__table(q->n_task + 1u, 4ul);
    uint8_t *seen = weft__table_zero(q->n_task + 1u, 1);
    int rc = place && seen ? 0 : weft__fail(WEFT_ENOMEM, "validator: %u tasks", q->n_task);
    for (uint32_t i = 0; i < q->n_task && !rc; i++)
        place[img->order[q->order + i]] = i;
    for (uint32_t w = 0; w < workers && !rc; w++) {
        if (first[w] > first[w + 1]) {
            rc = weft__fail(WEFT_EREFUSED, "device %u: list of worker %u ends before it begins", device, w);
        }
    }
    if (!rc && (first[0] != 0 || first[workers] != q->n_task)) {
        rc = weft__fail(WEFT_EREFUSED, "device %u: lists of %u workers hold %u of %u tasks", device, workers,
                        first[workers], q->n_task);
    }
    for (uint32_t w = 0; w < workers && !rc; w++) {
        for (uint32_t i = first[w]; i < first[w + 1] && !rc; i++) {
            const uint32_t t = list[i];
            if (t >= q->n_task || seen[t]) {
                rc = weft__fail(WEFT_EREFUSED, "device %u: worker %u has task %u, which is unknown or listed twice",
                                device, w, t);
            } else if (i > first[w] && place[t] < place[list[i - 1]]) {
                rc = weft__fail(WEFT_EREFUSED,
                                "device %u: worker %u has task %u after task %u, against the queue's order", device, w,
                                t, list[i - 1]);
            } else {
                seen[t] = 1;
            }
        }
    }
    free(place);
    free(seen);
    return rc;
}
