/* park.c: workers that leave while nobody needs them, and come back where they were.
 *
 * Enters: calls, and a clock. Leaves: an engine without workers (a GPU, or cores, free for others), or with them.
 * Invariants: workers leave by a record in the ring, which counts as a step, so counters, tickets and the step's number stay in
 * device memory as the next ones need them; nothing is uploaded again. Whatever looks at or moves steps holds e->lock:
 * besides the caller there is one thread of the engine's own, which parks it when it has been idle for long enough.   */
#include "engine_internal.h"

#include "../megakernel/order_c11.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    LEAVE_MS = 10000
};

void weft__lock(const weft_engine *e) { pthread_mutex_lock((pthread_mutex_t *)&e->lock); }
void weft__unlock(const weft_engine *e) { pthread_mutex_unlock((pthread_mutex_t *)&e->lock); }

/* No step is in flight. An engine whose workers don't leave is stopped: they may still touch its memory. */
static int send_home(weft_engine *e)
{
    int status = weft__post_stop(e);
    if (!status) status = e->b->join(e->m, LEAVE_MS);
    if (!status) status = weft__steps_refresh(e); /* counts the stop's own number; or they left because of an abort */
    if (!status && weft__steps_in_flight(e)) status = weft__fail(WEFT_EABORT, "workers left in step %u", e->submitted);
    if (!status) status = weft__trace_settle(e);
    if (status) {
        weft_engine_stop(e);
        return status;
    }
    e->launched = 0;
    e->parks++;
    return 0;
}

static int is_asked_to_stop(const weft_engine *e)
{
    return e->stopped || weft_ld_relaxed_sys(&e->mailbox->abort_request.value) != 0;
}

int weft__bring_back(weft_engine *e)
{
    if (e->launched || e->config.oneshot) return 0;
    for (uint32_t d = 0; d < e->m->n_device; d++)
        weft_st_relaxed_sys(&e->mailbox->resident[d].value, 0);
    int status = weft__engine_launch(e); /* where it fails, it has asked all workers to leave */
    e->active_ns = weft__now_ns();
    pthread_cond_signal(&e->wake);
    return status;
}

static int check_resident(const weft_engine *e, const char *what)
{
    if (e->config.oneshot) return weft__fail(WEFT_EUSAGE, "%s: workers of a oneshot engine leave by themselves", what);
    if (is_asked_to_stop(e)) return weft__fail(WEFT_EABORT, "%s: the engine was asked to stop", what);
    return 0;
}

int weft_engine_park(weft_engine *e)
{
    for (uint32_t n = 0;; n++) {
        weft__lock(e);
        int status = weft__steps_refresh(e), quiet = status || !weft__steps_in_flight(e);
        if (!status && quiet) status = check_resident(e, "park");
        if (!status && quiet && e->launched) status = send_home(e);
        weft__unlock(e);
        if (quiet) return status;
        weft__host_pause(e, n);
    }
}

int weft_engine_resume(weft_engine *e)
{
    weft__lock(e);
    int status = weft__steps_refresh(e);
    if (!status) status = check_resident(e, "resume");
    if (!status) status = weft__bring_back(e);
    weft__unlock(e);
    return status;
}

/* ------------------------------------------------------------------------------------------------------ the idle watch */

/* Parks the engine if its time has come; when to look again. */
static uint64_t look(weft_engine *e)
{
    const uint64_t idle_ns = e->config.idle_ms * 1000000ull;
    if (!is_asked_to_stop(e)) weft__steps_look(e); /* may move active_ns: the time is read afterwards */
    const uint64_t now = weft__now_ns();
    if (is_asked_to_stop(e) || weft__steps_in_flight(e)) return now + idle_ns;
    if (now - e->active_ns < idle_ns) return e->active_ns + idle_ns;
    send_home(e);
    return now + idle_ns;
}

static void *watch(void *arg)
{
    weft_engine *e = arg;
    weft__lock(e);
    while (!e->quit) {
        if (!e->launched) {
            pthread_cond_wait(&e->wake, &e->lock);
            continue;
        }
        uint64_t until = look(e);
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        if (e->launched && !e->quit) pthread_cond_timedwait(&e->wake, &e->lock, &t);
    }
    weft__unlock(e);
    return NULL;
}

int weft__parking_init(weft_engine *e)
{
    pthread_condattr_t monotonic;
    int error = pthread_mutex_init(&e->lock, NULL);
    if (!error) error = pthread_condattr_init(&monotonic);
    if (!error) error = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (!error) error = pthread_cond_init(&e->wake, &monotonic);
    return error ? weft__fail(WEFT_ENOMEM, "lock of an engine: %s", strerror(error)) : 0;
}

/* The process's signals are not for this thread. */
int weft__watch_start(weft_engine *e)
{
    if (e->config.idle_ms == 0 || e->config.oneshot) return 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    e->active_ns = weft__now_ns();
    int error = pthread_create(&e->watcher, NULL, watch, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    e->watching = !error;
    return error ? weft__fail(WEFT_EMACHINE, "thread that watches for idle time: %s", strerror(error)) : 0;
}

void weft__watch_end(weft_engine *e)
{
    if (!e->watching) return;
    weft__lock(e);
    e->quit = 1;
    pthread_cond_signal(&e->wake);
    weft__unlock(e);
    pthread_join(e->watcher, NULL);
    e->watching = 0;
}
