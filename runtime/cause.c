/* cause.c: where a hang began. The worker that gives up first may stand far downstream of what went wrong.
 *
 * Enters: a stopped engine's counters. Leaves: a counter that is short although no producer of it waits for anyone: one was
 * not run, has not returned, or did not signal (or the image has too few). A counter whose producers still wait is only a
 * consequence.                                                                                                         */
#include "engine_internal.h"

#include "../megakernel/order_c11.h"

#include <stdlib.h>

typedef struct counter_state {
    uint32_t arrived, producers;
    uint32_t waiting;                  /* producers whose own waits are not over */
    uint32_t ready_task, ready_device; /* one whose are */
} counter_state;

typedef struct picture { /* all counters of a variant; device d's begin at first[d] */
    counter_state *counters;
    uint64_t first[WEFT_MAX_DEVICES + 1];
    uint32_t variant;
} picture;

static int read_counters(weft_engine *e, picture *p, uint32_t uses)
{
    for (uint32_t d = 0; d < e->img.n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(&e->img, p->variant, d);
        for (uint32_t c = 0; c < q->n_counter; c++) {
            uint32_t value, before = e->config.counter_base + (uses - 1) * e->img.counters[q->counter + c].arrivals;
            if (e->b->read(e->m, d, &value, e->words[p->variant][d] + c * sizeof(weft_line), sizeof value)) return 1;
            p->counters[p->first[d] + c].arrived = weft_reached(value, before) ? value - before : 0;
        }
    }
    return 0;
}

static int has_inputs(const picture *p, uint32_t d, const weft_task *t, const uint64_t *side)
{
    for (uint32_t i = 0; i < t->n_wait; i++) {
        weft_wait w = weft__task_wait(t, side, i);
        if (w.lag == 0 && p->counters[p->first[d] + w.counter].arrived < w.arrivals) return 0;
    }
    return 1;
}

static void count_producers(const weft_engine *e, picture *p)
{
    for (uint32_t d = 0; d < e->img.n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(&e->img, p->variant, d);
        const uint64_t *side = e->img.side + q->side;
        for (uint32_t i = 0; i < q->n_task; i++) {
            const weft_task *t = &e->img.tasks[q->task + i];
            int ready = has_inputs(p, d, t, side);
            for (uint32_t s = 0; s < t->n_signal; s++) {
                weft_signal g = weft__task_signal(t, side, s);
                counter_state *c = &p->counters[p->first[g.device] + g.counter];
                c->producers++;
                c->waiting += !ready;
                if (!ready) continue;
                c->ready_task = i;
                c->ready_device = d;
            }
        }
    }
}

static int find_first(const weft_engine *e, const picture *p, weft__cause *out)
{
    for (uint32_t d = 0; d < e->img.n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(&e->img, p->variant, d);
        for (uint32_t c = 0; c < q->n_counter; c++) {
            const counter_state *s = &p->counters[p->first[d] + c];
            uint32_t arrivals = e->img.counters[q->counter + c].arrivals;
            if (s->arrived >= arrivals || s->waiting) continue;
            *out = (weft__cause){d, c, s->arrived, arrivals, s->producers, s->ready_device, s->ready_task};
            return 1;
        }
    }
    return 0;
}

int weft__find_cause(weft_engine *e, uint32_t variant, uint32_t uses, weft__cause *out)
{
    picture p = {.variant = variant};
    for (uint32_t d = 0; d < e->img.n_device; d++)
        p.first[d + 1] = p.first[d] + weft__image_queue_of(&e->img, variant, d)->n_counter;
    p.counters = calloc(p.first[e->img.n_device] + 1, sizeof *p.counters);
    if (!p.counters) return 0;
    int found = 0;
    if (read_counters(e, &p, uses) == 0) {
        count_producers(e, &p);
        found = find_first(e, &p, out);
    }
    free(p.counters);
    return found;
}
