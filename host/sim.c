/* sim.c: see sim.h. One event a task where nothing is shared: the end of its body.
 *
 * A wait is looked at when its task has been fetched. Is its counter complete, then the time of the last arrival is known,
 * even if it lies ahead; if not, the worker hangs on the counter until the last arrival is known. So arrivals are no events,
 * and no worker polls. What changes the order of things (ends, shared resources, tasks that become ready) happens in order of
 * time, and among equals by number: same input, same output.                                                            */
#include "sim_internal.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

static const weft__sim_task *task_of(const weft__sim *s, uint32_t w) { return &s->p->tasks[s->w[w].task]; }

static int in_turn(const weft__sim *s) { return s->o.policy < WEFT_POLICY_PUSH; } /* static, fifo: a task waits */

static void set_event(weft__sim *s, uint32_t w, uint8_t event, double t)
{
    s->w[w].event = event;
    weft__sim_clock_set(&s->clock, w, t);
}

static void join(weft__sim *s, uint32_t share, double now, double amount, uint32_t owner)
{
    if (weft__sim_share_join(&s->share[share], now, amount, owner)) s->failed = 1;
    weft__sim_clock_set(&s->clock, s->n_worker + share, weft__sim_share_next(&s->share[share]));
}

/* ------------------------------------------------------------------------------------------------------------- bodies */

static int loads_ahead(const weft__sim *s, const weft__sim_device *d)
{
    return in_turn(s) && d->memory != WEFT__SIM_NONE && d->p->ahead_bytes > 0;
}

static double rest_of(const weft__sim *s, const weft__sim_device *d, const weft__sim_task *t)
{
    if (d->memory == WEFT__SIM_NONE) return 0;
    return loads_ahead(s, d) ? (double)t->bytes : (double)t->bytes + t->ahead;
}

static void load(weft__sim *s, uint32_t w, double now, double bytes)
{
    s->r->memory_bytes[s->w[w].device] += bytes;
    join(s, s->device[s->w[w].device].memory, now, bytes, w);
}

/* The loader is done with the present task, which has started: it goes on to the next one. */
static void load_next(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    if (!loads_ahead(s, &s->device[st->device]) || st->next != WEFT__SIM_NONE) return;
    st->next = weft__sim_fetch(s, w);
    st->next_ahead = 0;
    if (st->next == WEFT__SIM_NONE || !(s->p->tasks[st->next].ahead > 0)) return;
    st->next_ahead = 1;
    load(s, w, now, s->p->tasks[st->next].ahead);
}

static void end_if_complete(weft__sim *s, uint32_t w, double now)
{
    const weft__sim_state *st = &s->w[w];
    if (st->lacks) return;
    set_event(s, w, WEFT__SIM_END, (now > st->last ? now : st->last) + (double)task_of(s, w)->tail_ns);
}

static void part_done(weft__sim *s, uint32_t w, uint8_t part, double now)
{
    weft__sim_state *st = &s->w[w];
    st->lacks &= (uint8_t)~part;
    if (part == WEFT__SIM_AHEAD && st->lacks & WEFT__SIM_REST)
        load(s, w, now, rest_of(s, &s->device[st->device], task_of(s, w)));
    else if (part != WEFT__SIM_OWN && st->started && !(st->lacks & (WEFT__SIM_AHEAD | WEFT__SIM_REST)))
        load_next(s, w, now);
    if (st->started) end_if_complete(s, w, now);
}

/* Waits that gate only a later part of the body: it can't end before what comes after them has run. */
static void look_late(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    const weft__sim_task *t = task_of(s, w);
    const weft__sim_device *d = &s->device[st->device];
    const double slow = d->memory == WEFT__SIM_NONE ? 0 : ((double)t->bytes + t->ahead) / s->share[d->memory].each,
                 length = t->solo_ns > slow ? t->solo_ns : slow;
    for (; st->at < t[1].wait; st->at++) {
        const weft__sim_wait *wait = &s->p->waits[st->at];
        weft__sim_counter *c = &s->counter[wait->counter];
        if (!wait->late) continue;
        if (c->left) {
            st->held_late = 1;
            st->chain = c->held;
            c->held = w;
            return;
        }
        const double ready = c->t + d->hop_ns[wait->hop] + length * (256 - wait->late) / 256;
        if (ready > st->last) st->last = ready;
    }
    st->lacks &= (uint8_t)~WEFT__SIM_LATE;
    end_if_complete(s, w, now);
}

/* The body begins now. */
static void run(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    const weft__sim_task *t = task_of(s, w);
    const weft__sim_device *d = &s->device[st->device];
    const double rest = rest_of(s, d, t);
    st->started = 1;
    if (rest > 0) st->lacks |= WEFT__SIM_REST;
    if (rest > 0 && !(st->lacks & WEFT__SIM_AHEAD)) load(s, w, now, rest);
    if (!(st->lacks & (WEFT__SIM_AHEAD | WEFT__SIM_REST))) load_next(s, w, now);
    if (d->cores != WEFT__SIM_NONE && !t->timed && t->solo_ns > 0)
        join(s, d->cores, now, t->solo_ns, w);
    else
        set_event(s, w, WEFT__SIM_WORK, now + t->solo_ns);
    if (!(st->lacks & WEFT__SIM_LATE)) return;
    st->at = t->wait;
    look_late(s, w, now);
}

/* All that gates the start is known: it lies ahead, or is now. */
static void start(weft__sim *s, uint32_t w)
{
    weft__sim_state *st = &s->w[w];
    const weft__sim_task *t = task_of(s, w);
    const weft__sim_device *d = &s->device[st->device];
    if (d->memory == WEFT__SIM_NONE && (d->cores == WEFT__SIM_NONE || t->timed) && !(st->lacks & WEFT__SIM_LATE)) {
        st->started = 1;
        st->lacks = 0;
        set_event(s, w, WEFT__SIM_END, st->start + t->solo_ns + (double)t->tail_ns);
    } else {
        set_event(s, w, WEFT__SIM_START, st->start);
    }
}

static void look(weft__sim *s, uint32_t w)
{
    weft__sim_state *st = &s->w[w];
    const uint32_t end = task_of(s, w)[1].wait;
    const double *hop_ns = s->device[st->device].hop_ns;
    for (; st->at < end; st->at++) {
        const weft__sim_wait *wait = &s->p->waits[st->at];
        weft__sim_counter *c = &s->counter[wait->counter];
        if (wait->late) {
            st->lacks |= WEFT__SIM_LATE;
            continue;
        }
        if (c->left) {
            st->held_late = 0;
            st->chain = c->held;
            c->held = w;
            return;
        }
        const double ready = c->t + hop_ns[wait->hop];
        if (ready > st->start) st->start = ready;
    }
    start(s, w);
}

/* Worker w has st->task from `now` on. */
static void begin(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    const weft__sim_device *d = &s->device[st->device];
    s->r->worker[w].idle_ns += now - st->free_at;
    st->fetch = st->start = now + d->fetch_ns;
    st->last = 0;
    st->started = 0;
    st->lacks = WEFT__SIM_OWN;
    if (!in_turn(s)) {
        start(s, w);
        return;
    }
    const weft__sim_task *t = task_of(s, w);
    st->at = t->wait;
    if (loads_ahead(s, d) && t->ahead > 0 && st->next_ahead != 2) {
        st->lacks |= WEFT__SIM_AHEAD;
        if (st->next_ahead == 0) load(s, w, now, t->ahead);
    }
    st->next_ahead = 0;
    look(s, w);
}

/* Worker w is free. */
static void take(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    st->free_at = now;
    if (st->next != WEFT__SIM_NONE) {
        st->task = st->next;
        st->next = WEFT__SIM_NONE;
    } else {
        st->task = weft__sim_fetch(s, w);
        st->next_ahead = 0;
    }
    set_event(s, w, WEFT__SIM_IDLE, INFINITY);
    if (st->task != WEFT__SIM_NONE) begin(s, w, now);
}

/* ----------------------------------------------------------------------------------------------------------- arrivals */

/* The counter is complete. Returns how many tasks the last arriver pushes. */
static uint32_t complete(weft__sim *s, weft__sim_counter *c, uint32_t id, double latency, double now)
{
    if (in_turn(s)) {
        uint32_t next;
        for (uint32_t w = c->held; w != WEFT__SIM_NONE; w = next) {
            next = s->w[w].chain;
            if (s->w[w].held_late)
                look_late(s, w, now);
            else
                look(s, w);
        }
        c->held = WEFT__SIM_NONE;
        return 0;
    }
    uint32_t pushed = 0;
    for (uint32_t i = s->dep0[id]; i < s->dep0[id + 1]; i++) {
        const uint32_t task = s->dep[i];
        const double ready = c->t + 2 * latency + s->device[s->p->tasks[task].device].ready_ns[latency > 0];
        if (ready > s->ready[task]) s->ready[task] = ready;
        if (--s->pending[task]) continue;
        if (weft__sim_push_add(&s->pushes, s->ready[task], task)) s->failed = 1;
        pushed++;
    }
    return pushed;
}

static uint32_t deliver(weft__sim *s, uint32_t from, const weft__sim_signal *signal, double t, double now)
{
    weft__sim_counter *c = &s->counter[signal->counter];
    double latency = 0;
    if (from != signal->device) {
        latency = s->topo->route[from][signal->device].latency_ns;
        s->r->link[from * s->p->n_device + signal->device].signals++;
    }
    if (t + latency > c->t) c->t = t + latency;
    if (t + latency > s->last_end) s->last_end = t + latency;
    return --c->left ? 0 : complete(s, c, signal->counter, s->o.contention_free ? 0 : latency, now);
}

/* The bytes of transfer number `i` of a task are there at t. */
static void arrive(weft__sim *s, uint32_t task, uint32_t i, double t, double now)
{
    const weft__sim_task *at = &s->p->tasks[task];
    for (uint32_t n = at->signal; n < at[1].signal; n++)
        if (s->p->signals[n].transfer == i - at->transfer) deliver(s, at->device, &s->p->signals[n], t, now);
}

static uint32_t new_move(weft__sim *s)
{
    if (s->free_move != WEFT__SIM_NONE) {
        const uint32_t id = s->free_move;
        s->free_move = s->moves[id].next_free;
        return id;
    }
    if (s->n_move == s->room_move) {
        const uint32_t room = s->room_move ? 2 * s->room_move : 64;
        weft__sim_move *moves = realloc(s->moves, room * sizeof *moves);
        if (!moves) return WEFT__SIM_NONE;
        s->moves = moves;
        s->room_move = room;
    }
    return s->n_move++;
}

static void send(weft__sim *s, uint32_t task, uint32_t i, double now)
{
    const weft__sim_transfer *x = &s->p->transfers[i];
    const uint32_t from = s->p->tasks[task].device;
    const weft__topo_route *route = &s->topo->route[from][x->to];
    weft__sim_link *link = &s->r->link[from * s->p->n_device + x->to];
    double alone = 0;
    uint32_t id = WEFT__SIM_NONE;
    link->bytes += x->bytes;
    link->transfers++;
    for (int n = 0; n < 2; n++) {
        const uint32_t port = route->port[n];
        if (port == WEFT__TOPO_NONE || !(x->bytes > 0)) continue;
        if (s->o.contention_free) {
            alone = fmax(alone, x->bytes / s->topo->port[port].bpns);
            continue;
        }
        if (id == WEFT__SIM_NONE) {
            id = new_move(s);
            if (id == WEFT__SIM_NONE) {
                s->failed = 1;
                return;
            }
            s->moves[id] = (weft__sim_move){.task = task, .transfer = i};
        }
        s->moves[id].left++;
        join(s, s->port_share[port], now, x->bytes, id);
    }
    if (id == WEFT__SIM_NONE) arrive(s, task, i, now + alone, now);
}

/* A transfer has passed one of its ports. */
static void passed(weft__sim *s, uint32_t id, double now)
{
    weft__sim_move *m = &s->moves[id];
    if (--m->left) return;
    const uint32_t task = m->task, transfer = m->transfer;
    m->next_free = s->free_move;
    s->free_move = id;
    arrive(s, task, transfer, now, now);
}

/* The body has ended: bytes leave, signals are sent, and the worker looks for its next task. */
static void finish(weft__sim *s, uint32_t w, double now)
{
    weft__sim_state *st = &s->w[w];
    weft__sim_worker *stats = &s->r->worker[w];
    const weft__sim_device *d = &s->device[st->device];
    const weft__sim_task *t = task_of(s, w);
    const uint32_t task = st->task;
    double at = now;
    uint32_t pushed = 0;
    stats->tasks++;
    stats->busy_ns += now - st->start;
    stats->wait_ns += st->start - st->fetch;
    stats->stolen += t->device != st->device;
    if (s->rows)
        s->rows[task] = (weft__sim_row){st->fetch, st->start, now, st->device, w - s->device[st->device].worker};
    set_event(s, w, WEFT__SIM_IDLE, INFINITY);
    for (uint32_t i = t->transfer; i < t[1].transfer; i++)
        send(s, task, i, now);
    for (uint32_t i = t->signal; i < t[1].signal; i++) {
        at += d->signal_ns;
        if (s->p->signals[i].transfer == WEFT__SIM_ANY) pushed += deliver(s, t->device, &s->p->signals[i], at, now);
    }
    at += pushed * d->push_ns;
    if (at > s->last_end) s->last_end = at;
    s->done++;
    if (in_turn(s) && at == now)
        take(s, w, now);
    else /* in its turn, and behind what it has pushed */
        set_event(s, w, WEFT__SIM_IDLE, at);
}

/* ------------------------------------------------------------------------------------------------------------ the loop */

static void worker_event(weft__sim *s, uint32_t w, double now)
{
    const uint8_t event = s->w[w].event;
    if (event == WEFT__SIM_END) {
        finish(s, w, now);
    } else if (event == WEFT__SIM_IDLE) {
        take(s, w, now);
    } else {
        weft__sim_clock_set(&s->clock, w, INFINITY);
        if (event == WEFT__SIM_START)
            run(s, w, now);
        else
            part_done(s, w, WEFT__SIM_OWN, now);
    }
}

static void share_event(weft__sim *s, uint32_t share, double now)
{
    uint32_t owner;
    for (int first = 1; weft__sim_share_leave(&s->share[share], now, first, &owner); first = 0) {
        if (s->share[share].kind == WEFT__SIM_CORES)
            part_done(s, owner, WEFT__SIM_OWN, now);
        else if (s->share[share].kind == WEFT__SIM_PORT)
            passed(s, owner, now);
        else if (s->w[owner].next_ahead == 1)
            s->w[owner].next_ahead = 2;
        else
            part_done(s, owner, s->w[owner].lacks & WEFT__SIM_AHEAD ? WEFT__SIM_AHEAD : WEFT__SIM_REST, now);
    }
    weft__sim_clock_set(&s->clock, s->n_worker + share, weft__sim_share_next(&s->share[share]));
}

static void push_event(weft__sim *s)
{
    const weft__sim_push p = weft__sim_push_take(&s->pushes);
    uint32_t w;
    weft__sim_ready(s, p.task, &w);
    if (w == WEFT__SIM_NONE) return;
    s->w[w].task = p.task;
    begin(s, w, p.t);
}

static int report_stuck(const weft__sim *s)
{
    for (uint32_t i = 0; i < s->p->n_task; i++) {
        const weft__sim_task *t = &s->p->tasks[i];
        for (uint32_t n = t->wait; n < t[1].wait; n++) {
            const weft__sim_counter *c = &s->counter[s->p->waits[n].counter];
            if (c->left)
                return weft__fail(WEFT_EREFUSED,
                                  "simulation: %u of %u tasks ran; task %u of device %u waits for counter %u, which "
                                  "lacks %u of its arrivals",
                                  s->done, s->p->n_task, i, t->device, s->p->waits[n].counter, c->left);
        }
    }
    return weft__fail(WEFT_EREFUSED, "simulation: only %u of %u tasks ran", s->done, s->p->n_task);
}

static int play(weft__sim *s)
{
    for (uint32_t w = 0; w < s->n_worker; w++)
        take(s, w, 0);
    while (s->done < s->p->n_task && !s->failed) {
        const uint32_t party = weft__sim_clock_first(&s->clock);
        const double now = s->clock.t[party];
        if (s->pushes.n && s->pushes.heap[0].t <= now)
            push_event(s);
        else if (isinf(now))
            return report_stuck(s);
        else if (party < s->n_worker)
            worker_event(s, party, now);
        else
            share_event(s, party - s->n_worker, now);
    }
    while (!s->failed) { /* what is still on its way */
        const uint32_t party = weft__sim_clock_first(&s->clock);
        if (party < s->n_worker || isinf(s->clock.t[party])) break;
        if (s->clock.t[party] > s->last_end) s->last_end = s->clock.t[party];
        share_event(s, party - s->n_worker, s->clock.t[party]);
    }
    return s->failed ? weft__fail(WEFT_ENOMEM, "simulation of %u tasks", s->p->n_task) : 0;
}

static void sum_up(weft__sim *s)
{
    weft__sim_result *r = s->r;
    const weft__profile *host = s->device[0].p;
    r->makespan_ns = s->last_end;
    r->step_ns = s->o.contention_free ? s->last_end : host->open_ns + s->last_end + host->close_ns;
    for (uint32_t w = 0; w < s->n_worker; w++) {
        const weft__sim_worker *one = &r->worker[w];
        if (s->w[w].task == WEFT__SIM_NONE && s->last_end > s->w[w].free_at)
            r->worker[w].idle_ns += s->last_end - s->w[w].free_at;
        r->stolen += one->stolen;
    }
    for (uint32_t i = 0; i < s->topo->n_port; i++)
        if (s->port_share[i] != WEFT__SIM_NONE) r->port_busy_ns[i] = s->share[s->port_share[i]].busy_ns;
}

int weft__sim_run(const weft__sim_plan *plan, const weft__topology *topo, const weft__sim_options *options,
                  weft__sim_row *rows, weft__sim_result *out)
{
    weft__sim s = {.p = plan, .topo = topo, .o = *options, .rows = rows, .r = out, .free_move = WEFT__SIM_NONE};
    *out = (weft__sim_result){0};
    int status = weft__sim_check(plan, topo, options);
    if (!status) status = weft__sim_init(&s);
    if (!status) status = play(&s);
    if (!status) sum_up(&s);
    weft__sim_free(&s);
    return status;
}

void weft__sim_result_free(weft__sim_result *r)
{
    free(r->worker);
    free(r->link);
    free(r->port_busy_ns);
    *r = (weft__sim_result){0};
}

void weft__sim_plan_free(weft__sim_plan *p)
{
    free(p->tasks);
    free(p->waits);
    free(p->signals);
    free(p->transfers);
    free(p->arrivals);
    free(p->order);
    *p = (weft__sim_plan){0};
}
