/* cpu.c: the backend of emulated devices: groups of CPU threads that share one address space.
 *
 * Enters: "cpu:N[xW]", N devices of W threads (default: the cores that this process may use, shared out; at least one).
 * Leaves: a machine whose addresses are pointers. Threads are pinned, a core each, where there are enough cores.
 * read copies by words, as atomics: it may look at words that workers write (trace, running tasks).                     */
#include "backend.h"

#include "../host/error.h"
#include "../megakernel/cpu_worker.h"
#include "../tasks/layout.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_WORKERS = 1024,
    ALIGN = 4096
};

typedef struct thread {
    pthread_t id;
    const weft_dev *root;
    const weft__loop *loop;
    uint32_t worker, busy_spins;
    int core; /* to be pinned to; -1: none */
    int started;
    void *scratch;
} thread;

typedef struct machine {
    weft__machine base;
    thread *threads;
    uint32_t n_thread;
} machine;

/* ------------------------------------------------------------------------------------------------------------ cores */

static pthread_once_t topology_once = PTHREAD_ONCE_INIT;
static hwloc_topology_t topology; /* what this process may use of this machine, loaded once; NULL: can't be */

static void load_topology(void)
{
    if (hwloc_topology_init(&topology)) {
        topology = NULL;
    } else if (hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                                      HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING) ||
               hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        topology = NULL;
    }
}

static uint32_t usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (uint32_t)n : 1;
}

/* Cores proper, which may have several hardware threads; 0: not known, so nothing is pinned. */
static uint32_t cores_to_pin(void)
{
    pthread_once(&topology_once, load_topology);
    int n = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
    return n > 0 ? (uint32_t)n : 0;
}

static void pin_self(int core)
{
    hwloc_obj_t o = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)core);
    if (o) hwloc_set_cpubind(topology, o->cpuset, HWLOC_CPUBIND_THREAD); /* a wish: where it fails, it fails */
}

/* ------------------------------------------------------------------------------------------------------------- spec */

static int parse_number(const char **p, uint32_t max, uint32_t *out)
{
    char *end;
    if (**p < '0' || **p > '9') return 1;
    unsigned long v = strtoul(*p, &end, 10);
    if (v == 0 || v > max) return 1;
    *p = end;
    *out = (uint32_t)v;
    return 0;
}

static int parse_spec(const char *spec, uint32_t *devices, uint32_t *workers)
{
    *devices = 1;
    *workers = 0;
    if (strncmp(spec, "cpu", 3) != 0 || (spec[3] != 0 && spec[3] != ':'))
        return weft__fail(WEFT_EUSAGE, "devices '%s': not a spec of emulated devices", spec);
    const char *p = spec + 3;
    if (*p == ':') {
        p++;
        if (parse_number(&p, WEFT_MAX_DEVICES, devices) ||
            (*p == 'x' && (p++, parse_number(&p, MAX_WORKERS, workers))) || *p)
            return weft__fail(WEFT_EUSAGE, "devices '%s': expected cpu:N or cpu:NxW, N up to %u, W up to %u", spec,
                              WEFT_MAX_DEVICES, MAX_WORKERS);
    }
    if (*workers == 0) *workers = usable_cores() / *devices;
    if (*workers == 0) *workers = 1;
    return 0;
}

static int cpu_open(const char *spec, weft__machine **out)
{
    uint32_t devices, workers;
    int status = parse_spec(spec, &devices, &workers);
    if (status) return status;
    machine *m = calloc(1, sizeof *m);
    if (!m) return weft__fail(WEFT_ENOMEM, "devices '%s'", spec);
    m->base.ops = &weft__backend_cpu;
    m->base.n_device = devices;
    m->base.tick_ns = 1.0;
    m->base.clock = "CLOCK_MONOTONIC";
    for (uint32_t d = 0; d < devices; d++) {
        m->base.workers[d] = workers;
        snprintf(m->base.names[d], sizeof m->base.names[d], "cpu:%u", d);
    }
    *out = &m->base;
    return 0;
}

static void cpu_close(weft__machine *base)
{
    machine *m = (machine *)base;
    if (!m) return;
    for (uint32_t i = 0; i < m->n_thread; i++)
        free(m->threads[i].scratch);
    free(m->threads);
    free(m);
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static int cpu_alloc(weft__machine *m, uint32_t device, uint64_t bytes, uint64_t *addr)
{
    void *p = bytes <= SIZE_MAX - ALIGN ? aligned_alloc(ALIGN, weft_round_up64(bytes ? bytes : 1, ALIGN)) : NULL;
    if (!p) return weft__fail(WEFT_ENOMEM, "%s: %llu bytes", m->names[device], (unsigned long long)bytes);
    *addr = (uint64_t)(uintptr_t)p;
    return 0;
}

static void cpu_free(weft__machine *m, uint32_t device, uint64_t addr)
{
    (void)m, (void)device;
    free((void *)(uintptr_t)addr);
}

static int cpu_alloc_shared(weft__machine *m, uint64_t bytes, void **host, uint64_t *addr)
{
    int status = cpu_alloc(m, 0, bytes, addr);
    if (status) return status;
    *host = (void *)(uintptr_t)*addr;
    memset(*host, 0, bytes);
    return 0;
}

static void cpu_free_shared(weft__machine *m, void *host)
{
    (void)m;
    free(host);
}

static int cpu_write(weft__machine *m, uint32_t device, uint64_t addr, const void *src, uint64_t bytes)
{
    (void)m, (void)device;
    memcpy((void *)(uintptr_t)addr, src, bytes);
    return 0;
}

static int cpu_read(weft__machine *m, uint32_t device, void *dst, uint64_t addr, uint64_t bytes)
{
    (void)m, (void)device;
    uint8_t *to = dst;
    for (; bytes >= 4 && addr % 4 == 0; addr += 4, to += 4, bytes -= 4) {
        uint32_t word = weft_ld_relaxed_sys((const weft_w32 *)(uintptr_t)addr);
        memcpy(to, &word, 4);
    }
    memcpy(to, (const void *)(uintptr_t)addr, bytes);
    return 0;
}

static int cpu_fill(weft__machine *m, uint32_t device, uint64_t addr, uint8_t byte, uint64_t bytes)
{
    (void)m, (void)device;
    memset((void *)(uintptr_t)addr, byte, bytes);
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- workers */

static void *thread_main(void *arg)
{
    thread *t = arg;
    if (t->core >= 0) pin_self(t->core);
    t->loop->run(t->root, t->worker, t->scratch, t->busy_spins, t->loop);
    return NULL;
}

static int start_thread(machine *m, thread *t)
{
    if (!t->scratch) t->scratch = aligned_alloc(ALIGN, WEFT_SCRATCH_BYTES);
    if (!t->scratch) return weft__fail(WEFT_ENOMEM, "scratch of a worker");
    int error = pthread_create(&t->id, NULL, thread_main, t);
    if (error)
        return weft__fail(WEFT_EMACHINE, "thread %u of %u: %s", (unsigned)(t - m->threads), m->n_thread,
                          strerror(error));
    t->started = 1;
    return 0;
}

static int make_threads(machine *m, const uint64_t *roots)
{
    const weft__machine *base = &m->base;
    uint32_t cores = usable_cores(), n = 0;
    for (uint32_t d = 0; d < base->n_device; d++)
        m->n_thread += base->workers[d];
    m->threads = calloc(m->n_thread, sizeof *m->threads);
    if (!m->threads) return weft__fail(WEFT_ENOMEM, "%u threads", m->n_thread);
    for (uint32_t d = 0; d < base->n_device; d++) {
        for (uint32_t i = 0; i < base->workers[d]; i++, n++) {
            thread *t = &m->threads[n];
            t->root = (const weft_dev *)(uintptr_t)roots[d];
            t->loop = base->loop;
            t->worker = i;
            t->core = m->n_thread > 1 && m->n_thread <= cores && m->n_thread <= cores_to_pin() ? (int)n : -1;
            t->busy_spins = m->n_thread < cores ? 5000 : m->n_thread == cores ? 2000 : 4;
        }
    }
    return 0;
}

static int cpu_launch(weft__machine *base, const uint64_t *roots)
{
    machine *m = (machine *)base;
    int made = m->threads ? 0 : make_threads(m, roots);
    if (made) return made;
    for (uint32_t n = 0; n < m->n_thread; n++) {
        int status = start_thread(m, &m->threads[n]);
        if (status) return status;
    }
    return 0;
}

static int cpu_join(weft__machine *base, uint32_t timeout_ms)
{
    machine *m = (machine *)base;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    for (uint32_t i = 0; i < m->n_thread; i++) {
        thread *t = &m->threads[i];
        if (!t->started) continue;
        if (pthread_timedjoin_np(t->id, NULL, &until) == ETIMEDOUT)
            return weft__fail(WEFT_ETIME, "worker %u of %s has not left after %u ms", t->worker,
                              base->names[t->root->device], timeout_ms);
        t->started = 0;
    }
    return 0;
}

const weft__backend weft__backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_shared = cpu_alloc_shared,
    .free_shared = cpu_free_shared,
    .write = cpu_write,
    .read = cpu_read,
    .fill = cpu_fill,
    .fill_seeded = NULL, /* the engine's way is as good here */
    .launch = cpu_launch,
    .join = cpu_join,
};
