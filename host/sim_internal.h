/* sim_internal.h: what the simulator's files share: the clock of next events, shared resources, the state of a run. */
#ifndef WEFT_HOST_SIM_INTERNAL_H
#define WEFT_HOST_SIM_INTERNAL_H

#include "sim.h"

#include <math.h>

#define WEFT__SIM_NONE UINT32_MAX

/* ------------------------------------------------------------------------------------------------------ sim_share.c
 * The clock: one next event for each of a fixed number of parties, INFINITY for none; a tree of winners finds the first, the
 * lowest party among equals.                                                                                            */
typedef struct weft__sim_clock {
    double *t;    /* [leaves] */
    uint32_t *up; /* [leaves]: up[1] is the winner of all, up[i] that of up[2i] and up[2i + 1] */
    uint32_t leaves;
} weft__sim_clock;
int weft__sim_clock_init(weft__sim_clock *c, uint32_t n);
void weft__sim_clock_free(weft__sim_clock *c);
void weft__sim_clock_set(weft__sim_clock *c, uint32_t party, double t);
static inline uint32_t weft__sim_clock_first(const weft__sim_clock *c) { return c->up[1]; }

/* A shared resource: n streams in it, each gets rate = min(capacity / n, each). `served` is what any stream that was here all
 * the time has got, so a stream that joins leaves once `served` has grown by its amount.                               */
typedef struct weft__sim_stream {
    double until;
    uint32_t owner;
} weft__sim_stream;
enum {
    WEFT__SIM_MEMORY,
    WEFT__SIM_CORES,
    WEFT__SIM_PORT
};
typedef struct weft__sim_share {
    uint32_t kind;         /* what its streams' owners are: workers, workers, moves */
    double capacity, each; /* units a ns */
    double served, t, rate;
    double busy_ns, amount; /* so far: time with anything in it, what has joined */
    uint32_t n, room;
    weft__sim_stream *heap;
} weft__sim_share;
int weft__sim_share_join(weft__sim_share *s, double now, double amount, uint32_t owner);
double weft__sim_share_next(const weft__sim_share *s); /* when the first stream leaves; INFINITY */
/* At that very time: 1 and the owner of one stream that leaves, 0 if there is none any more. First call: first = 1. */
int weft__sim_share_leave(weft__sim_share *s, double now, int first, uint32_t *owner);

/* Tasks that become ready at a time: a heap by time, then turn. */
typedef struct weft__sim_push {
    double t;
    uint32_t turn, task;
} weft__sim_push;
typedef struct weft__sim_pushes {
    weft__sim_push *heap;
    uint32_t n, room, turn;
} weft__sim_pushes;
int weft__sim_push_add(weft__sim_pushes *p, double t, uint32_t task);
weft__sim_push weft__sim_push_take(weft__sim_pushes *p);

/* ------------------------------------------------------------------------------------------------------------ sim.c */

enum {                   /* what the present task still lacks */
    WEFT__SIM_OWN = 1,   /* its own work */
    WEFT__SIM_AHEAD = 2, /* weights that were sent for before it started */
    WEFT__SIM_REST = 4,  /* the other bytes */
    WEFT__SIM_LATE = 8   /* waits that may end after the start */
};
enum { /* what a worker's next event is */
    WEFT__SIM_IDLE,
    WEFT__SIM_START,
    WEFT__SIM_WORK, /* own work done */
    WEFT__SIM_END
};

typedef struct weft__sim_state {
    double fetch, start;     /* of the present task */
    double last;             /* the latest of its late waits */
    double free_at;          /* idle since */
    uint32_t task, next;     /* present; fetched ahead */
    uint32_t at;             /* next wait to look at */
    uint32_t chain;          /* next worker that is held up by the same counter */
    uint32_t list, list_end; /* static: what is left of its list */
    uint16_t device;
    uint8_t event, lacks;
    uint8_t started;
    uint8_t next_ahead; /* of the task fetched ahead: 0 not sent for, 1 on its way, 2 there */
    uint8_t held_late;  /* the wait that holds it up is a late one */
    uint8_t is_idle;
    uint32_t idle_next, idle_prev;
} weft__sim_state;

typedef struct weft__sim_device {
    const weft__profile *p;
    uint32_t worker, n_worker; /* first, and how many */
    uint32_t memory;           /* resource, or NONE */
    uint32_t cores;            /* resource, or NONE */
    uint32_t head, end;        /* fifo: what is left of its queue */
    uint32_t ring, n_ring;     /* push family: first ring, and how many */
    uint32_t idle_first, idle_last;
    uint64_t *full;                                                            /* bit r: ring r holds a task */
    uint64_t victims;                                                          /* devices whose tasks name this one */
    double fetch_ns, signal_ns, push_ns, hop_ns[WEFT__HOP_COUNT], ready_ns[2]; /* all 0 in the textbooks' model */
} weft__sim_device;

typedef struct weft__sim_counter {
    double t; /* last arrival so far */
    uint32_t left;
    uint32_t held; /* static, fifo: first worker that waits for it */
} weft__sim_counter;

typedef struct weft__sim_move { /* a transfer on its way */
    uint32_t task, transfer;    /* transfer: in transfers[] */
    uint32_t left;              /* ports that it is still in */
    uint32_t next_free;
} weft__sim_move;

typedef struct weft__sim {
    const weft__sim_plan *p;
    const weft__topology *topo;
    weft__sim_options o;
    weft__sim_row *rows;
    weft__sim_result *r;
    weft__sim_clock clock; /* workers, then shares */
    weft__sim_pushes pushes;
    weft__sim_share *share;
    uint32_t n_share, n_worker;
    uint32_t *port_share; /* [port] */
    weft__sim_device device[WEFT_MAX_DEVICES];
    weft__sim_state *w;
    weft__sim_counter *counter;
    uint32_t *list; /* static: tasks by worker */
    /* push family */
    uint32_t *dep0, *dep;                        /* [counter + 1]; tasks that wait for it */
    uint32_t *pending;                           /* [task]: waits to come */
    double *ready;                               /* [task] */
    uint32_t *ring_head, *ring_tail, *ring_next; /* [ring], [ring], [task] */
    weft__sim_move *moves;
    uint32_t n_move, room_move, free_move;
    uint32_t done; /* tasks */
    int failed;    /* out of memory */
    double last_end;
} weft__sim;

/* sim_init.c */
int weft__sim_check(const weft__sim_plan *plan, const weft__topology *topo, const weft__sim_options *options);
int weft__sim_init(weft__sim *s);
void weft__sim_free(weft__sim *s);

/* sim_queue.c */
int weft__sim_queues_init(weft__sim *s);
void weft__sim_queues_free(weft__sim *s);
/* The next task of worker w now, WEFT__SIM_NONE if there is none yet (push family: it is then on the list of idle workers). */
uint32_t weft__sim_fetch(weft__sim *s, uint32_t w);
/* A task has become ready: *w is the idle worker that takes it, or WEFT__SIM_NONE: it waits in its ring. */
void weft__sim_ready(weft__sim *s, uint32_t task, uint32_t *w);

#endif
