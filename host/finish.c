/* finish.c: what follows from tasks, waits and signals: arrivals and scope of counters, arrivals of waits, the lists
 * of tasks that a counter releases (ascending, in queue order), and the order, which is that of the tasks. */
#include "plan_internal.h"

#include <string.h>

static weft_wait *wait_at(weft_task *t, uint64_t *side, uint32_t i)
{
    return i < 2 ? &t->wait[i] : (weft_wait *)&side[t->extra + i - 2];
}

static weft_signal *signal_at(weft_task *t, uint64_t *side, uint32_t i)
{
    return i < 2 ? &t->signal[i] : (weft_signal *)&side[t->extra + weft__task_side_waits(t) + i - 2];
}

/* Counts signals into the counters that they go to. */
static void arrive(weft__image_writer *w, uint32_t device)
{
    const weft_image_queue *q = &w->queues[device];
    for (uint32_t i = 0; i < q->n_task; i++) {
        weft_task *t = &w->tasks[q->task + i];
        for (uint32_t s = 0; s < t->n_signal; s++) {
            const weft_signal *sig = signal_at(t, w->side + q->side, s);
            weft_counter *c = &w->counters[w->queues[sig->device].counter + sig->counter];
            c->arrivals++;
            if (sig->device != device || t->alt_device != 0xff) c->scope = WEFT_SCOPE_SYS;
        }
        for (uint32_t s = 0; t->alt_device != 0xff && s < t->n_wait; s++)
            w->counters[q->counter + wait_at(t, w->side + q->side, s)->counter].scope = WEFT_SCOPE_SYS;
    }
}

static void copy_back(weft__image_writer *w, uint32_t device)
{
    const weft_image_queue *q = &w->queues[device];
    for (uint32_t i = 0; i < q->n_task; i++) {
        weft_task *t = &w->tasks[q->task + i];
        for (uint32_t s = 0; s < t->n_signal; s++) {
            weft_signal *sig = signal_at(t, w->side + q->side, s);
            sig->scope = w->counters[w->queues[sig->device].counter + sig->counter].scope;
        }
        for (uint32_t s = 0; s < t->n_wait; s++) {
            weft_wait *wait = wait_at(t, w->side + q->side, s);
            weft_counter *c = &w->counters[q->counter + wait->counter];
            wait->arrivals = (uint16_t)c->arrivals;
            c->n_dep++;
        }
        w->order[q->order + i] = i;
    }
}

static void list_deps(weft__image_writer *w, uint32_t device)
{
    const weft_image_queue *q = &w->queues[device];
    uint32_t at = 0;
    for (uint32_t c = 0; c < q->n_counter; c++) {
        weft_counter *counter = &w->counters[q->counter + c];
        counter->dep = at;
        at += counter->n_dep;
        counter->n_dep = 0;
    }
    for (uint32_t i = 0; i < q->n_task; i++) {
        weft_task *t = &w->tasks[q->task + i];
        for (uint32_t s = 0; s < t->n_wait; s++) {
            weft_counter *c = &w->counters[q->counter + wait_at(t, w->side + q->side, s)->counter];
            w->deps[q->dep + c->dep + c->n_dep++] = i;
        }
    }
}

int weft__finish(weft__image_writer *w)
{
    const uint32_t n = w->header->n_device;
    for (uint32_t d = 0; d < n; d++)
        arrive(w, d);
    for (uint64_t i = 0; i < w->header->counters.count; i++) {
        if (w->counters[i].arrivals > UINT16_MAX) {
            return weft__fail(WEFT_EUSAGE,
                              "plan: %u tasks signal counter %llu, at most 65535 can: take larger tiles or "
                              "k_panels",
                              w->counters[i].arrivals, (unsigned long long)i);
        }
    }
    for (uint32_t d = 0; d < n; d++)
        copy_back(w, d);
    for (uint32_t d = 0; d < n; d++)
        list_deps(w, d);
    return 0;
}
