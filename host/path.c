/* path.c: the longest chain of tasks, by their estimated costs: no number of workers makes a step shorter.
 *
 * Enters: an image whose waits have no cycle and whose lists are right (validate.c). Tasks are taken as they become
 * ready; a counter is complete when its last producer ends. */
#include "map.h"
#include "plan_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const weft__image *img;
    const weft_image_queue *queues;
    uint64_t *complete; /* [counter]: when its last producer so far ends */
    uint32_t *arrive;   /* [counter]: arrivals still missing */
    uint32_t *left;     /* [task]: waits not yet satisfied */
    uint32_t *ready;    /* stack of tasks */
    uint16_t *device;   /* of the tasks on the stack */
    uint32_t n_ready;
    uint64_t longest;
} walk;

static void push(walk *w, uint32_t device, uint32_t task)
{
    w->device[w->n_ready] = (uint16_t)device;
    w->ready[w->n_ready++] = task;
}

static void take(walk *w)
{
    const uint32_t d = w->device[--w->n_ready];
    const weft_image_queue *q = &w->queues[d];
    const weft_task *t = &w->img->tasks[w->queues[0].task + w->ready[w->n_ready]];
    const uint64_t *side = w->img->side + q->side;
    uint64_t end = 0;
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const uint64_t c = w->complete[q->counter - w->queues[0].counter + weft__task_wait(t, side, i).counter];
        if (end < c) end = c;
    }
    end += t->cost_ns;
    if (w->longest < end) w->longest = end;
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        const weft_image_queue *to = &w->queues[s.device];
        const uint32_t c = to->counter - w->queues[0].counter + s.counter;
        if (w->complete[c] < end) w->complete[c] = end;
        if (--w->arrive[c]) continue;
        const weft_counter *counter = &w->img->counters[to->counter + s.counter];
        for (uint32_t k = 0; k < counter->n_dep; k++) {
            const uint32_t next = to->task - w->queues[0].task + w->img->deps[to->dep + counter->dep + k];
            if (!--w->left[next]) push(w, s.device, next);
        }
    }
}

uint64_t weft__critical_ns(const weft__image *img, uint32_t variant)
{
    const weft_image_queue *q = weft__image_queue_of(img, variant, 0), *last = q + img->n_device - 1;
    const uint32_t n_task = last->task + last->n_task - q->task,
                   n_counter = last->counter + last->n_counter - q->counter;
    walk w = {.img = img, .queues = q};
    w.complete = weft__table_zero(n_counter + 1u, sizeof *w.complete);
    w.arrive = weft__table(n_counter + 1u, sizeof *w.arrive);
    w.left = weft__table(n_task + 1u, sizeof *w.left);
    w.ready = weft__table(n_task + 1u, sizeof *w.ready);
    w.device = weft__table(n_task + 1u, sizeof *w.device);
    if (w.complete && w.arrive && w.left && w.ready && w.device) {
        for (uint32_t i = 0; i < n_counter; i++)
            w.arrive[i] = img->counters[q->counter + i].arrivals;
        for (uint32_t d = 0; d < img->n_device; d++) {
            for (uint32_t i = 0; i < q[d].n_task; i++) {
                const uint32_t t = q[d].task - q->task + i;
                w.left[t] = img->tasks[q->task + t].n_wait;
                if (!w.left[t]) push(&w, d, t);
            }
        }
        while (w.n_ready)
            take(&w);
    }
    free(w.complete);
    free(w.arrive);
    free(w.left);
    free(w.ready);
    free(w.device);
    return w.longest;
}
