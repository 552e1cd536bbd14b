/* races.c: no byte has two writers, and every read has its writer ordered before it.
 *
 * Enters: an image whose arrivals are right. Leaves: 0, or WEFT_EREFUSED naming both tasks.
 *
 * Within a step: writes are collected by region and sorted into bands (rows of one split); in a band they must be
 * disjoint. Neighbours that signal the same counters merge to runs, so that a reader of a whole row checks a run,
 * not its tiles. A writer is ordered before a reader if the reader waits for a counter that the writer signals (one
 * hop), or that a task which waited for such a counter signals (two, three hops): a counter means that all of its
 * producers have arrived. Tasks of an op that takes packets do not wait under static, so no order goes through them;
 * what they read must come in packets, whose writers they must wait for under push.
 *
 * From step to step the gate orders: a device opens a step only when it and all devices that it writes to have
 * finished the one before. As each byte has one writer, and is read only where it lies, that covers a read of step s
 * against the write of s + 1 (the writer's device waits for the reader's) and a write against itself. With several
 * variants, the devices that write a region must gate each other.
 *
 * Linear in tasks and edges, but for sorting. */
#include "map.h"
#include "access.h"
#include "regions.h"
#include "validate_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct write {
    uint32_t task, split, r0, r1, c0, c1; /* in the coordinates of the region's base */
} write;

typedef struct band { /* writes of the same rows and split: a range of runs */
    uint32_t split, r0, r1;
    uint32_t run, n_run;
} band;

typedef struct run { /* columns whose writers signal the same counters; one of them */
    uint32_t c0, c1, task;
} run;

typedef struct fact { /* whoever waits for one counter knows that another is complete */
    uint32_t counter, next;
    uint32_t memory; /* it sees their writes too; 0: it only knows that they run first */
} fact;
enum {
    MAX_FACTS = 32
}; /* of one counter; more are not needed by any plan, and forgetting is safe */

typedef struct mark { /* of a counter: the task under proof that waits for it (plus 1), and when */
    uint32_t task, due;
} mark;

typedef struct races {
    const weft__proof *p;
    weft__regions regions;
    write *writes;
    uint64_t *first; /* [region + 1]: in writes */
    band *bands;
    uint32_t *band0; /* [region + 1]: in bands */
    run *runs;
    uint32_t n_band, n_run;
    fact *facts;
    uint32_t *facts_of; /* [counter]: list */
    uint8_t *n_fact;    /* [counter] */
    uint32_t n_facts, cap_facts;
    mark *marks;     /* [counter] */
    uint8_t *shared; /* [region]: shares write it, and each read of it is of all of them */
} races;

static const uint64_t *side_of(const weft__proof *p, uint32_t device) { return p->img->side + p->queues[device].side; }

/* ------------------------------------------------------------------------------------------------------- writes */

static int refuse_kind(const weft__proof *p, uint32_t task)
{
    return weft__fail(WEFT_EREFUSED, "%s: the validator does not know what its kind touches",
                      weft__name_task(p, task).text);
}

typedef int write_fn(races *r, uint32_t region, const write *w, void *arg);

static int each_write_of(races *r, uint32_t device, uint32_t task, write_fn *fn, void *arg)
{
    const weft__proof *p = r->p;
    weft__accesses a;
    int rc = 0;
    if (weft__task_accesses(p->img, &p->queues[device], device, &p->tasks[task], &a)) return refuse_kind(p, task);
    for (uint32_t i = 0; i < a.n && !rc; i++) {
        const weft__access *x = &a.part[i];
        if (x->what != WEFT__WRITE) continue;
        const weft__place *at = &r->regions.place[x->tensor];
        const write w = {task, at->split0 + x->s0, x->r0, x->r1, at->col0 + x->c0, at->col0 + x->c1};
        if (at->region == WEFT_NONE)
            return weft__fail(WEFT_EREFUSED, "%s writes a weight", weft__name_task(p, task).text);
        if (x->shares) r->shared[at->region] = 1;
        rc = fn(r, at->region, &w, arg);
    }
    if (!a.words) return rc;
    const uint32_t *out = a.words + 2 + a.words[1];
    for (uint32_t i = 0; i < out[0] && !rc; i++) {
        const uint32_t region = weft__region_of_word(p->img, &r->regions, out[1 + 2 * i], out[2 + 2 * i]);
        if (region == WEFT_NONE) {
            return weft__fail(WEFT_EREFUSED, "%s writes word %u of device %u, which is in no tensor",
                              weft__name_task(p, task).text, out[2 + 2 * i], out[1 + 2 * i]);
        }
        const uint32_t c = out[2 + 2 * i] - (uint32_t)(p->img->tensors[r->regions.base[region]].offset / 4);
        const write w = {task, 0, 0, 1, c, c + 1};
        rc = fn(r, region, &w, arg);
    }
    return rc;
}

static int each_write(races *r, write_fn *fn, void *arg)
{
    for (uint32_t d = 0; d < r->p->img->n_device; d++) {
        for (uint32_t i = 0; i < r->p->queues[d].n_task; i++) {
            int rc = each_write_of(r, d, weft__proof_task(r->p, d, i), fn, arg);
            if (rc) return rc;
        }
    }
    return 0;
}

/* The host writes it, between steps: inputs, and caches and tables that no task writes. */
static int is_host_written(const races *r, uint32_t region)
{
    const uint32_t role = r->p->img->tensors[r->regions.base[region]].role;
    if (role == WEFT_ROLE_KV || role == WEFT_ROLE_TABLE) return r->first[region + 1] == r->first[region];
    return role == WEFT_ROLE_INPUT;
}

/* What lies in caches and tables is data: only the kinds that keep to rows of their own may write there. */
static int may_write(uint32_t role, uint32_t kind)
{
    if (role == WEFT_ROLE_KV) return kind == WEFT_KIND_ROPE || kind == WEFT_KIND_SAMPLE;
    if (role == WEFT_ROLE_TABLE) return kind == WEFT_KIND_PAGES || kind == WEFT_KIND_SAMPLE;
    return role != WEFT_ROLE_INPUT;
}

static int count_write(races *r, uint32_t region, const write *w, void *arg)
{
    const weft_tensor *t = &r->p->img->tensors[r->regions.base[region]];
    (void)arg;
    if (!may_write(t->role, r->p->tasks[w->task].kind)) {
        return weft__fail(WEFT_EREFUSED, "%s writes an input", weft__name_task(r->p, w->task).text);
    }
    r->first[region + 1]++;
    return 0;
}

static int keep_write(races *r, uint32_t region, const write *w, void *arg)
{
    uint64_t *next = arg;
    r->writes[next[region]++] = *w;
    return 0;
}

static int before(const write *a, const write *b)
{
    if (a->split != b->split) return a->split < b->split;
    if (a->r0 != b->r0) return a->r0 < b->r0;
    return a->c0 < b->c0;
}

static int by_rectangle(const void *a, const void *b) { return before(a, b) ? -1 : before(b, a) ? 1 : 0; }

static int collect_writes(races *r)
{
    const uint32_t n = r->regions.n;
    r->first = weft__table_zero(n + 2u, 8);
    r->shared = weft__table_zero(n + 1u, 1);
    uint64_t *next = weft__table(n + 1u, 8ul);
    int rc = r->first && r->shared && next ? 0 : weft__fail(WEFT_ENOMEM, "validator: %u regions", n);
    if (!rc) rc = each_write(r, count_write, NULL);
    for (uint32_t i = 0; i < n && !rc; i++)
        r->first[i + 1] += r->first[i];
    if (!rc && !(r->writes = weft__table(r->first[n] + 1, sizeof *r->writes))) {
        rc = weft__fail(WEFT_ENOMEM, "validator: %llu writes", (unsigned long long)r->first[n]);
    }
    if (!rc) {
        memcpy(next, r->first, n * 8ul);
        rc = each_write(r, keep_write, next);
    }
    free(next);
    for (uint32_t i = 0; i < n && !rc; i++) {
        write *w = r->writes + r->first[i];
        const uint64_t count = r->first[i + 1] - r->first[i];
        uint64_t sorted = 1;
        while (sorted < count && !before(&w[sorted], &w[sorted - 1]))
            sorted++;
        if (sorted < count) qsort(w, count, sizeof *w, by_rectangle); /* planners write in order mostly */
    }
    return rc;
}

/* --------------------------------------------------------------------------------------------------- bands and runs */

/* Do two writers signal the same counters? */
static int same_signals(const weft__proof *p, uint32_t a, uint32_t b)
{
    const weft_task *x = &p->tasks[a], *y = &p->tasks[b];
    if (x->n_signal != y->n_signal) return 0;
    if (x->n_signal <= 2) return !memcmp(x->signal, y->signal, x->n_signal * sizeof *x->signal);
    const uint64_t *sx = side_of(p, weft__proof_device(p, a)), *sy = side_of(p, weft__proof_device(p, b));
    for (uint32_t i = 0; i < x->n_signal; i++) {
        const weft_signal s = weft__task_signal(x, sx, i), t = weft__task_signal(y, sy, i);
        if (s.counter != t.counter || s.device != t.device) return 0;
    }
    return 1;
}

static int refuse_pair(const weft__proof *p, uint32_t region_tensor, const write *a, const write *b)
{
    const weft_tensor *t = &p->img->tensors[region_tensor];
    return weft__fail(WEFT_EREFUSED, "%s and %s both write rows %u.. columns %u.. of tensor %u (%s) on device %u",
                      weft__name_task(p, a->task).text, weft__name_task(p, b->task).text, b->r0, b->c0, region_tensor,
                      t->name == WEFT_NONE ? "-" : weft__image_string(p->img, t->name), t->device);
}

/* Are they shares of different divisions? Then a unit may have two owners. */
static int other_shares(const weft__proof *p, uint32_t a, uint32_t b)
{
    const int x = p->tasks[a].kind == WEFT_KIND_ATTN, y = p->tasks[b].kind == WEFT_KIND_ATTN;
    return x != y || (x && p->tasks[a].tile[1] != p->tasks[b].tile[1]);
}

static int make_bands(races *r)
{
    const uint32_t n = r->regions.n;
    const uint64_t total = r->first[n];
    uint64_t n_band = 0;
    for (uint64_t i = 0; i < total; i++) {
        const write *w = &r->writes[i], *v = i ? w - 1 : NULL;
        n_band += !v || v->split != w->split || v->r0 != w->r0 || w->c0 < v->c1;
    }
    r->runs = weft__table(total + 1, sizeof *r->runs);
    r->bands = weft__table(n_band + n + 1, sizeof *r->bands);
    r->band0 = weft__table(n + 1u, 4ul);
    if (!r->runs || !r->bands || !r->band0)
        return weft__fail(WEFT_ENOMEM, "validator: %llu writes", (unsigned long long)total);
    for (uint32_t g = 0; g < n; g++) {
        r->band0[g] = r->n_band;
        for (uint64_t i = r->first[g]; i < r->first[g + 1]; i++) {
            const write *w = &r->writes[i], *v = i > r->first[g] ? w - 1 : NULL;
            band *b = v ? &r->bands[r->n_band - 1] : NULL;
            if (b && b->split == w->split && w->r0 < b->r1 && (w->r0 != b->r0 || w->r1 != b->r1)) {
                return refuse_pair(r->p, r->regions.base[g], v,
                                   w); /* rows that overlap in part: not told apart further */
            }
            if (b && b->split == w->split && b->r0 == w->r0) {
                if (w->c0 < v->c1 || other_shares(r->p, v->task, w->task)) {
                    return refuse_pair(r->p, r->regions.base[g], v, w);
                }
                run *last = &r->runs[r->n_run - 1];
                if (w->c0 == v->c1 && same_signals(r->p, last->task, w->task)) {
                    last->c1 = w->c1;
                    continue;
                }
            } else {
                r->bands[r->n_band++] = (band){w->split, w->r0, w->r1, r->n_run, 0};
                b = &r->bands[r->n_band - 1];
            }
            r->runs[r->n_run++] = (run){w->c0, w->c1, w->task};
            b->n_run++;
        }
    }
    r->band0[n] = r->n_band;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- order */

static int add_fact(races *r, uint32_t counter, uint32_t known, uint32_t memory)
{
    for (uint32_t f = r->facts_of[counter]; f != WEFT_NONE; f = r->facts[f].next) {
        if (r->facts[f].counter != known) continue;
        r->facts[f].memory |= memory;
        return 0;
    }
    if (r->n_fact[counter] >= MAX_FACTS) return 0;
    if (r->n_facts == r->cap_facts) {
        const uint32_t cap = r->cap_facts ? r->cap_facts * 2 : 1024;
        fact *f = realloc(r->facts, cap * sizeof *f);
        if (!f) return weft__fail(WEFT_ENOMEM, "validator: %u facts", cap);
        r->facts = f;
        r->cap_facts = cap;
    }
    r->facts[r->n_facts] = (fact){known, r->facts_of[counter], memory};
    r->facts_of[counter] = r->n_facts++;
    r->n_fact[counter]++;
    return 0;
}

static int packets_only(const weft__proof *p, uint32_t device, const weft_task *t)
{
    return t->kind == WEFT_KIND_GEMM_STREAM && (weft__image_op(p->img, device, t)->flags & WEFT_OP_X_PACKET);
}

/* What a counter's completion tells: every producer has waited for all of its own waits. */
static int collect_facts(races *r)
{
    const weft__proof *p = r->p;
    r->facts_of = weft__table(p->n_counter + 1u, 4ul);
    r->n_fact = weft__table_zero(p->n_counter + 1u, 1);
    r->marks = weft__table_zero(p->n_counter + 1u, sizeof *r->marks);
    if (!r->facts_of || !r->n_fact || !r->marks) return weft__fail(WEFT_ENOMEM, "validator: %u counters", p->n_counter);
    memset(r->facts_of, 0xff, (p->n_counter + 1u) * 4ul);
    for (uint32_t d = 0; d < p->img->n_device; d++) {
        for (uint32_t i = 0; i < p->queues[d].n_task; i++) {
            const weft_task *t = &p->tasks[weft__proof_task(p, d, i)];
            const uint32_t memory = !packets_only(p, d, t);
            if (t->kind == WEFT_KIND_MIX || t->kind == WEFT_KIND_NOP) continue; /* they wait for what they read */
            for (uint32_t s = 0; s < t->n_signal; s++) {
                const weft_signal sig = weft__task_signal(t, side_of(p, d), s);
                const uint32_t to = weft__proof_counter(p, sig.device, sig.counter);
                for (uint32_t w = 0; w < t->n_wait; w++) {
                    int rc = add_fact(r, to, weft__proof_counter(p, d, weft__task_wait(t, side_of(p, d), w).counter),
                                      memory);
                    if (rc) return rc;
                }
            }
        }
    }
    return 0;
}

static int signals(const weft__proof *p, uint32_t task, uint32_t counter)
{
    const weft_task *t = &p->tasks[task];
    const uint64_t *side = t->n_signal > 2 ? side_of(p, weft__proof_device(p, task)) : NULL;
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        if (weft__proof_counter(p, s.device, s.counter) == counter) return 1;
    }
    return 0;
}

static int implies(const races *r, uint32_t counter, uint32_t writer, int memory, uint32_t hops)
{
    if (signals(r->p, writer, counter)) return 1;
    if (hops == 1) return 0;
    for (uint32_t f = r->facts_of[counter]; f != WEFT_NONE; f = r->facts[f].next) {
        if (memory && !r->facts[f].memory) continue;
        if (implies(r, r->facts[f].counter, writer, memory, hops - 1)) return 1;
    }
    return 0;
}

/* Does the reader itself wait for a counter of the writer's, early enough? */
static int waits_for_writer(const races *r, uint32_t reader, uint32_t writer, uint32_t need)
{
    const weft_task *t = &r->p->tasks[writer];
    const uint64_t *side = t->n_signal > 2 ? side_of(r->p, weft__proof_device(r->p, writer)) : NULL;
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        const mark *m = &r->marks[weft__proof_counter(r->p, s.device, s.counter)];
        if (m->task == reader + 1 && m->due <= need) return 1;
    }
    return 0;
}

/* Is the writer ordered before the reader's read of columns from c0 on (in the reader's coordinates)? Packets bring
 * their own readiness; they only need a writer that runs first. */
static int ordered(const races *r, uint32_t device, uint32_t reader, const weft__access *x, uint32_t c0,
                   uint32_t writer)
{
    const weft__proof *p = r->p;
    const weft_task *t = &p->tasks[reader];
    const int memory = x->what == WEFT__READ;
    const uint32_t need = x->origin == WEFT_NONE ? 0 : (c0 - x->origin) / WEFT_K_CHUNK;
    if (waits_for_writer(r, reader, writer, need)) return 1;
    for (uint32_t hops = 2; hops <= 3; hops++) {
        for (uint32_t i = 0; i < t->n_wait; i++) {
            const weft_wait w = weft__task_wait(t, side_of(p, device), i);
            if (w.due > need) continue;
            if (implies(r, weft__proof_counter(p, device, w.counter), writer, memory, hops)) return 1;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- reads */

static int refuse_read(const races *r, uint32_t task, const weft__access *x, uint32_t col, uint32_t writer)
{
    const weft__proof *p = r->p;
    const weft_tensor *t = &p->img->tensors[x->tensor];
    const char *name = t->name == WEFT_NONE ? "-" : weft__image_string(p->img, t->name);
    if (writer == WEFT_NONE) {
        return weft__fail(WEFT_EREFUSED, "%s reads rows %u.. columns %u.. of tensor %u (%s), which nobody writes",
                          weft__name_task(p, task).text, x->r0, col, x->tensor, name);
    }
    return weft__fail(WEFT_EREFUSED,
                      "%s reads rows %u.. columns %u.. of tensor %u (%s), which %s writes, and does not wait "
                      "for it",
                      weft__name_task(p, task).text, x->r0, col, x->tensor, name, weft__name_task(p, writer).text);
}

/* All of columns c0 .. c1 (the base's) of a band must have ordered writers. */
static int check_band(const races *r, uint32_t device, uint32_t task, const weft__access *x, const band *b)
{
    const uint32_t col0 = r->regions.place[x->tensor].col0, c1 = col0 + x->c1;
    uint32_t at = col0 + x->c0, lo = b->run, hi = b->run + b->n_run;
    const weft_task *t = &r->p->tasks[task];
    while (lo < hi) { /* the first run that ends after `at` */
        const uint32_t mid = (lo + hi) / 2;
        if (r->runs[mid].c1 <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; at < c1; lo++) {
        if (lo == b->run + b->n_run || r->runs[lo].c0 > at) return refuse_read(r, task, x, at - col0, WEFT_NONE);
        const run *u = &r->runs[lo];
        if (x->what == WEFT__READ && packets_only(r->p, device, t)) return refuse_read(r, task, x, at - col0, u->task);
        if (!ordered(r, device, task, x, at - col0, u->task)) return refuse_read(r, task, x, at - col0, u->task);
        at = u->c1;
    }
    return 0;
}

/* All shares 0 .. n of an ATTN op, in order. */
static int check_shares(const races *r, uint32_t device, uint32_t task, const weft__access *x, uint32_t region)
{
    const uint32_t first = r->band0[region];
    if (r->band0[region + 1] == first) return refuse_read(r, task, x, 0, WEFT_NONE);
    const band *b = &r->bands[first];
    const uint32_t shares = r->p->tasks[r->runs[b->run].task].tile[1];
    weft__access all = *x;
    all.c1 = shares;
    return check_band(r, device, task, &all, b);
}

static int check_read(const races *r, uint32_t device, uint32_t task, const weft__access *x)
{
    const weft__place *place = &r->regions.place[x->tensor];
    if (place->region == WEFT_NONE) return 0; /* a weight */
    if (is_host_written(r, place->region)) return 0;
    if (x->shares || r->shared[place->region]) return check_shares(r, device, task, x, place->region);
    for (uint32_t s = x->s0; s < x->s1; s++) {
        uint32_t row = x->r0, lo = r->band0[place->region], hi = r->band0[place->region + 1];
        const uint32_t end = hi, split = place->split0 + s;
        while (lo < hi) { /* the first band that ends after (split, row) */
            const uint32_t mid = (lo + hi) / 2;
            const band *b = &r->bands[mid];
            if (b->split < split || (b->split == split && b->r1 <= row))
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; row < x->r1; lo++) {
            const band *b = &r->bands[lo];
            if (lo == end || b->split != split || b->r0 > row) return refuse_read(r, task, x, x->c0, WEFT_NONE);
            int rc = check_band(r, device, task, x, b);
            if (rc) return rc;
            row = b->r1;
        }
    }
    return 0;
}

static int check_words(const races *r, uint32_t device, uint32_t task, const uint32_t *args)
{
    for (uint32_t i = 0; i < args[1]; i++) {
        const uint32_t word = args[2 + i], region = weft__region_of_word(r->p->img, &r->regions, device, word);
        if (region == WEFT_NONE) {
            return weft__fail(WEFT_EREFUSED, "%s reads word %u, which is in no tensor",
                              weft__name_task(r->p, task).text, word);
        }
        const uint32_t t = r->regions.base[region], c = word - (uint32_t)(r->p->img->tensors[t].offset / 4);
        const weft__access x = {
            .tensor = t, .r1 = 1, .c0 = c, .c1 = c + 1, .s1 = 1, .origin = WEFT_NONE, .what = WEFT__READ};
        int rc = check_read(r, device, task, &x);
        if (rc) return rc;
    }
    return 0;
}

static void mark_waits(const races *r, uint32_t device, uint32_t task)
{
    const weft_task *t = &r->p->tasks[task];
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const weft_wait w = weft__task_wait(t, side_of(r->p, device), i);
        r->marks[weft__proof_counter(r->p, device, w.counter)] = (mark){task + 1, w.due};
    }
}

static int check_reads(const races *r)
{
    const weft__proof *p = r->p;
    weft__accesses a;
    int rc = 0;
    for (uint32_t d = 0; d < p->img->n_device; d++) {
        for (uint32_t i = 0; i < p->queues[d].n_task; i++) {
            const uint32_t task = weft__proof_task(p, d, i);
            weft__task_accesses(p->img, &p->queues[d], d, &p->tasks[task], &a);
            mark_waits(r, d, task);
            for (uint32_t n = 0; n < a.n && !rc; n++) {
                if (a.part[n].what != WEFT__WRITE) rc = check_read(r, d, task, &a.part[n]);
            }
            if (!rc && a.words) rc = check_words(r, d, task, a.words);
            if (rc) return rc;
        }
    }
    return 0;
}

int weft__prove_memory(const weft__proof *p)
{
    races r = {.p = p};
    int rc = weft__regions_init(p->img, &r.regions);
    if (!rc) rc = collect_writes(&r);
    if (!rc) rc = make_bands(&r);
    free(r.writes);
    if (!rc) rc = collect_facts(&r);
    if (!rc) rc = check_reads(&r);
    weft__regions_free(&r.regions);
    free(r.first);
    free(r.bands);
    free(r.band0);
    free(r.runs);
    free(r.facts);
    free(r.facts_of);
    free(r.n_fact);
    free(r.marks);
    free(r.shared);
    return rc;
}
