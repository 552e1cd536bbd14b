/* cpu_spin.c: waiting. Enters: an unsuccessful poll. Leaves: time, or the reason to leave. */
#include "cpu_worker.h"

#include <sched.h>
#include <time.h>

enum {
    LOOK_EVERY = 16,     /* yields between looks at the clock and at the host's request */
    IDLE_YIELDS = 20000, /* a worker that has waited for a step for so long sleeps between polls */
    IDLE_SLEEP_NS = 50000,
    LONG_YIELDS =
        64, /* a wait that is longer sleeps too: where others want the core, a yield costs its caller its share of */
    LONG_SLEEP_NS =
        20000 /* the core for milliseconds (EEVDF), and a worker that yields for long may then starve for seconds */
};

uint64_t weft__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void weft__abort(weft__worker *w, const weft__blame *b, uint64_t waited_ns)
{
    weft_ctl *first = (weft_ctl *)(uintptr_t)w->dev->ctl[0];
    if (!weft_abort_win(&first->abort.value, b->cause)) return;
    w->mailbox->report = (weft_report){.cause = b->cause,
                                       .device = w->dev->device,
                                       .worker = w->index,
                                       .step = w->step.seq,
                                       .task = b->task,
                                       .counter = b->counter,
                                       .expected = b->expected,
                                       .seen = b->seen,
                                       .waited_ns = waited_ns};
    weft_st_release_sys(&w->mailbox->abort.value,
                        b->cause); /* acquired by the host (doorbell.c), which reads the report */
    for (uint32_t d = 1; d < w->dev->n_device; d++)
        weft_st_release_sys(&((weft_ctl *)(uintptr_t)w->dev->ctl[d])->abort.value, b->cause);
}

/* The clock and the host's wish, which cost more than a poll. */
static int look(weft__worker *w, weft__spin_state *s, const weft__blame *b)
{
    uint32_t request = weft_ld_relaxed_sys(&w->mailbox->abort_request.value);
    uint64_t now = weft__now_ns();
    if (s->start_ns == 0) s->start_ns = now;
    if (request) {
        weft__blame host = *b;
        host.cause = request;
        weft__abort(w, &host, now - s->start_ns);
        return 1;
    }
    if (w->deadline_ns == 0 || (int64_t)(now - w->deadline_ns) < 0) return 0;
    weft__abort(w, b, now - s->start_ns);
    return 1;
}

int weft__spin(weft__worker *w, weft__spin_state *s, const weft__blame *b)
{
    w->attempts++;
    if (weft_ld_relaxed_gpu(&w->ctl->abort.value)) return 1;
    uint32_t n = s->polls++;
    if (n < w->busy_spins) {
        pause_core();
        return 0;
    }
    n -= w->busy_spins;
    int idle = n > IDLE_YIELDS && b->cause == WEFT_ABORT_HOST;
    int asleep = n > LONG_YIELDS;
    if ((asleep || n % LOOK_EVERY == 0) && look(w, s, b)) return 1;
    if (asleep)
        nanosleep(&(struct timespec){0, idle ? IDLE_SLEEP_NS : LONG_SLEEP_NS}, NULL);
    else
        sched_yield();
    return 0;
}
