/* sim_share.c: the clock of next events, resources that are shared by equal parts, and the heap of pushes. */
#include "sim_internal.h"

#include "error.h"

#include <stdlib.h>

int weft__sim_clock_init(weft__sim_clock *c, uint32_t n)
{
    c->leaves = 1;
    while (c->leaves < n)
        c->leaves *= 2;
    if (c->leaves < 2) c->leaves = 2;
    c->t = malloc(c->leaves * sizeof *c->t);
    c->up = malloc(c->leaves * sizeof *c->up);
    if (!c->t || !c->up) return weft__fail(WEFT_ENOMEM, "simulation: %u parties", n);
    for (uint32_t i = 0; i < c->leaves; i++)
        c->t[i] = INFINITY;
    for (uint32_t i = c->leaves; i-- > 1;)
        c->up[i] = 2 * i >= c->leaves ? 2 * i - c->leaves : c->up[2 * i];
    return 0;
}

void weft__sim_clock_free(weft__sim_clock *c)
{
    free(c->t);
    free(c->up);
}

void weft__sim_clock_set(weft__sim_clock *c, uint32_t party, double t)
{
    const double *time = c->t;
    uint32_t i = (party + c->leaves) / 2, a = party & ~1u, b = a + 1;
    c->t[party] = t;
    for (;;) { /* equal times: a, which is the lower one */
        const uint32_t won = time[b] < time[a] ? b : a;
        c->up[i] = won;
        if (i == 1) return;
        const uint32_t other = c->up[i ^ 1];
        a = i & 1 ? other : won;
        b = i & 1 ? won : other;
        i /= 2;
    }
}

/* ------------------------------------------------------------------------------------------------- shared resources */

static void advance(weft__sim_share *s, double now)
{
    if (s->n) {
        s->served += (now - s->t) * s->rate;
        s->busy_ns += now - s->t;
    }
    s->t = now;
}

static void set_rate(weft__sim_share *s)
{
    const double part = s->capacity / (s->n ? s->n : 1);
    s->rate = part < s->each ? part : s->each;
}

int weft__sim_share_join(weft__sim_share *s, double now, double amount, uint32_t owner)
{
    if (s->n == s->room) {
        const uint32_t room = s->room ? 2 * s->room : 64;
        weft__sim_stream *heap = realloc(s->heap, room * sizeof *heap);
        if (!heap) return weft__fail(WEFT_ENOMEM, "simulation: %u streams", room);
        s->heap = heap;
        s->room = room;
    }
    advance(s, now);
    if (!s->n) s->served = 0; /* keeps its precision */
    s->amount += amount;
    const double until = s->served + amount;
    uint32_t i = s->n++;
    for (; i && until < s->heap[(i - 1) / 2].until; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = (weft__sim_stream){until, owner};
    set_rate(s);
    return 0;
}

double weft__sim_share_next(const weft__sim_share *s)
{
    if (!s->n) return INFINITY;
    const double left = s->heap[0].until - s->served;
    return s->t + (left > 0 ? left / s->rate : 0);
}

int weft__sim_share_leave(weft__sim_share *s, double now, int first, uint32_t *owner)
{
    if (first && s->n) { /* what rounding left over must not matter */
        advance(s, now);
        if (s->served < s->heap[0].until) s->served = s->heap[0].until;
    }
    if (!s->n || s->heap[0].until > s->served) return 0;
    *owner = s->heap[0].owner;
    const weft__sim_stream last = s->heap[--s->n];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < s->n; i = child) {
        if (child + 1 < s->n && s->heap[child + 1].until < s->heap[child].until) child++;
        if (last.until <= s->heap[child].until) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    set_rate(s);
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ pushes */

static int sooner(weft__sim_push a, weft__sim_push b) { return a.t != b.t ? a.t < b.t : a.turn < b.turn; }

int weft__sim_push_add(weft__sim_pushes *p, double t, uint32_t task)
{
    if (p->n == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 256;
        weft__sim_push *heap = realloc(p->heap, room * sizeof *heap);
        if (!heap) return weft__fail(WEFT_ENOMEM, "simulation: %u pushes", room);
        p->heap = heap;
        p->room = room;
    }
    const weft__sim_push one = {t, p->turn++, task};
    uint32_t i = p->n++;
    for (; i && sooner(one, p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = one;
    return 0;
}

weft__sim_push weft__sim_push_take(weft__sim_pushes *p)
{
    const weft__sim_push top = p->heap[0], last = p->heap[--p->n];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < p->n; i = child) {
        if (child + 1 < p->n && sooner(p->heap[child + 1], p->heap[child])) child++;
        if (!sooner(p->heap[child], last)) break;
        p->heap[i] = p->heap[child];
    }
    p->heap[i] = last;
    return top;
}
