/* engine.c: an engine's life. Enters: an image and a config. Leaves: resident workers, and nothing behind at the end.
 *
 * Order of creation: image (opened, validated), devices, memory (upload.c), workers. Destruction runs backwards, and frees
 * nothing that a worker may still touch.                                                                               */
#include "weft.h" /* first: its own list of statuses is checked against status.h below */

#include "engine_internal.h"

#include "../host/validate.h"
#include "../megakernel/order_c11.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CHECKIN_MS = 10000,
    LEAVE_MS = 10000,
    LEAVE_ABORTED_MS = 2000
};

#define WEFT_STATUS(name, code, exit, text) WEFT_STATIC_ASSERT(name == (code), "weft.h has the list of status.h");
WEFT_STATUS_LIST(WEFT_STATUS)
#undef WEFT_STATUS

static const struct {
    int code, exit;
    const char *text;
} statuses[] = {
#define WEFT_STATUS(name, code, exit, text) {code, exit, text},
    WEFT_STATUS_LIST(WEFT_STATUS)
#undef WEFT_STATUS
};
enum {
    N_STATUS = sizeof statuses / sizeof statuses[0]
};

const char *weft_last_error(void) { return weft__error(); }
const char *weft_version(void) { return WEFT_VERSION; }

const char *weft_status_text(int status)
{
    for (int i = 0; i < N_STATUS; i++)
        if (statuses[i].code == status) return statuses[i].text;
    return "unknown status";
}

int weft_status_exit(int status)
{
    for (int i = 0; i < N_STATUS; i++)
        if (statuses[i].code == status) return statuses[i].exit;
    return 3;
}

/* ----------------------------------------------------------------------------------------------------------- helpers */

void weft__host_pause(const weft_engine *e, uint32_t n)
{
    if (n < 64) return;
    if (n < (e->b == &weft__backend_cpu ? 128 : 4096)) /* emulated workers want the core */
        sched_yield();
    else
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

int weft__check_size(const void *s, size_t size, size_t known, const char *name)
{
    if (size < sizeof(size_t)) return weft__fail(WEFT_EUSAGE, "%s: size is %zu; use the initializer", name, size);
    for (size_t i = known; i < size; i++)
        if (((const uint8_t *)s)[i]) return weft__fail(WEFT_EUSAGE, "%s: byte %zu is newer than this library", name, i);
    return 0;
}

int weft__engine_alloc(weft_engine *e, uint32_t device, uint64_t bytes, uint64_t *addr)
{
    if (e->n_alloc == e->cap_alloc) {
        uint32_t cap = e->cap_alloc ? 2 * e->cap_alloc : 16;
        weft__alloc *grown = realloc(e->allocs, cap * sizeof *grown);
        if (!grown) return weft__fail(WEFT_ENOMEM, "list of allocations");
        e->allocs = grown;
        e->cap_alloc = cap;
    }
    int status = e->b->alloc(e->m, device, bytes, addr);
    if (!status) e->allocs[e->n_alloc++] = (weft__alloc){device, *addr};
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- devices */

static const weft__backend *const backends[] = {
#ifdef WEFT_HAVE_CUDA
    &weft__backend_cuda,
#endif
    &weft__backend_cpu,
};
enum {
    N_BACKEND = sizeof backends / sizeof backends[0]
};

static int open_machine(const char *spec, weft__machine **out)
{
    if (!spec || !*spec) {
#ifdef WEFT_HAVE_CUDA
        if (weft__backend_cuda.open("cuda", out) == 0) return 0;
#endif
        return weft__backend_cpu.open("cpu:1", out);
    }
    for (int i = 0; i < N_BACKEND; i++)
        if (strncmp(spec, backends[i]->name, strlen(backends[i]->name)) == 0) return backends[i]->open(spec, out);
#ifndef WEFT_HAVE_CUDA
    if (strncmp(spec, "cuda", 4) == 0)
        return weft__fail(WEFT_EMACHINE, "devices '%s': this build of weft has no CUDA backend", spec);
#endif
    return weft__fail(WEFT_EUSAGE, "devices '%s': no such kind of device; see `weft topo`", spec);
}

static void describe(const weft__machine *m, uint32_t d, weft_device_info *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->name, m->names[d], sizeof out->name);
    out->workers = m->workers[d];
}

int weft_devices(const char *spec, weft_device_info *out, uint32_t cap, uint32_t *n)
{
    weft__machine *m;
    int status = open_machine(spec, &m);
    if (status) return status;
    *n = m->n_device;
    for (uint32_t d = 0; d < m->n_device && d < cap; d++)
        describe(m, d, &out[d]);
    m->ops->close(m);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ create */

static int read_config(weft_engine *e, const weft_engine_config *c)
{
    static const weft_engine_config defaults = WEFT_ENGINE_CONFIG_INIT;
    int status = weft__check_size(c, c->size, sizeof *c, "weft_engine_config");
    if (status) return status;
    e->config = defaults;
    memcpy(&e->config, c, c->size < sizeof *c ? c->size : sizeof *c);
    if (e->config.oneshot > WEFT_STEP_RING)
        return weft__fail(WEFT_EUSAGE, "oneshot %u: at most %u steps", e->config.oneshot, WEFT_STEP_RING);
    status = weft__queue_parse(e->config.queue, &e->queue);
    e->policy = e->queue.policy;
    return status;
}

static int check_ops(const weft__image *img)
{
    if (img->n_variant > WEFT_MAX_VARIANTS)
        return weft__fail(WEFT_EUNSUPPORTED, "image: %u variants; at most %u", img->n_variant, WEFT_MAX_VARIANTS);
    for (uint32_t i = 0; i < img->n_op; i++) {
        const weft_op *op = &img->ops[i];
        if (op->kind != WEFT_KIND_NOP && op->kind != WEFT_KIND_MIX && op->dtype != WEFT_BF16 && op->dtype != WEFT_FP16)
            return weft__fail(WEFT_EUNSUPPORTED, "op %u (%s): element type %u", i, weft__image_string(img, op->name),
                              op->dtype);
    }
    return 0;
}

static int load_image(weft_engine *e, const void *image, size_t bytes)
{
    e->image_bytes = malloc(bytes ? bytes : 1);
    if (!e->image_bytes) return weft__fail(WEFT_ENOMEM, "image of %zu bytes", bytes);
    memcpy(e->image_bytes, image, bytes);
    int status = weft__image_open(e->image_bytes, bytes, "image", &e->img);
    if (status) return status;
    status = check_ops(&e->img);
    if (status || e->config.unchecked) return status;
    uint32_t proven;
    status = weft__validate(&e->img, &proven);
    if (status) return status;
    if (!(e->img.header->policies >> e->policy & 1))
        return weft__fail(WEFT_EREFUSED, "queue '%s': the image is not proven for it", e->config.queue);
    return 0;
}

/* Rows of each variant: the most that any op of its tasks has. */
static void find_rows(weft_engine *e)
{
    for (uint32_t v = 0; v < e->img.n_variant; v++) {
        e->rows[v] = 1;
        for (uint32_t d = 0; d < e->img.n_device; d++) {
            const weft_image_queue *q = weft__image_queue_of(&e->img, v, d);
            for (uint32_t i = 0; i < q->n_task; i++) {
                const weft_task *t = &e->img.tasks[q->task + i];
                if (t->kind == WEFT_KIND_NOP || t->kind == WEFT_KIND_MIX) continue;
                const weft_op *op = weft__image_op(&e->img, d, t);
                if (op->m > e->rows[v]) e->rows[v] = op->m;
            }
        }
    }
}

static int open_devices(weft_engine *e)
{
    int status = open_machine(e->config.devices, &e->m);
    if (status) return status;
    e->b = e->m->ops;
    if (e->m->n_device != e->img.n_device)
        return weft__fail(WEFT_EUSAGE, "devices '%s': %u devices, but the image is for %u",
                          e->config.devices ? e->config.devices : "", e->m->n_device, e->img.n_device);
    void *host;
    e->m->loop = &e->queue.loop;
    status = e->b->check ? e->b->check(&e->img, e->policy) : 0;
    if (!status && e->b != &weft__backend_cpu) status = weft__queue_check_plain(&e->queue);
    if (status) return status;
    status = e->b->alloc_shared(e->m, sizeof(weft_mailbox), &host, &e->mailbox_addr);
    if (!status) e->mailbox = host;
    return status;
}

static int await_check_in(weft_engine *e)
{
    uint64_t until = weft__now_ns() + CHECKIN_MS * 1000000ull;
    for (uint32_t d = 0, n = 0; d < e->m->n_device; n++) {
        uint32_t here = weft_ld_acquire_sys(&e->mailbox->resident[d].value); /* released by the device's last worker */
        if (here == e->m->workers[d]) {
            d++;
            continue;
        }
        if (weft__now_ns() > until) {
            weft_st_release_sys(&e->mailbox->abort_request.value, WEFT_ABORT_CHECKIN);
            return weft__fail(WEFT_EMACHINE,
                              "%s: not all of its %u workers became resident within %d s; does something else "
                              "hold the device?",
                              e->m->names[d], e->m->workers[d], CHECKIN_MS / 1000);
        }
        weft__host_pause(e, n);
    }
    return 0;
}

int weft__engine_launch(weft_engine *e)
{
    uint64_t roots[WEFT_MAX_DEVICES];
    for (uint32_t d = 0; d < e->m->n_device; d++)
        roots[d] = e->mem[d].root;
    e->launched = 1; /* even a launch that fails half way may have started some */
    int status = e->b->launch(e->m, roots);
    if (status) {
        weft_st_release_sys(&e->mailbox->abort_request.value, WEFT_ABORT_HOST);
        return status;
    }
    return await_check_in(e);
}

static int create(weft_engine *e, const void *image, size_t bytes, const weft_engine_config *config)
{
    int status = read_config(e, config);
    if (!status) status = load_image(e, image, bytes);
    if (!status) status = open_devices(e);
    if (!status) status = weft__upload(e, e->config.weights);
    if (!status) find_rows(e);
    if (!status && e->config.oneshot == 0) status = weft__engine_launch(e);
    if (!status) status = weft__watch_start(e);
    e->config.devices = e->config.queue = NULL; /* the caller's; not needed any more */
    e->config.weights = NULL;
    return status;
}

int weft_engine_create(const void *image, size_t bytes, const weft_engine_config *config, weft_engine **out)
{
    weft_engine *e = calloc(1, sizeof *e);
    if (!e) return weft__fail(WEFT_ENOMEM, "engine");
    int status = weft__parking_init(e);
    if (status) {
        free(e);
        return status;
    }
    status = create(e, image, bytes, config);
    if (status) {
        e->stopped = 1; /* nobody waits for steps: destroy asks the workers to leave at once */
        weft_engine_destroy(e);
        return status;
    }
    *out = e;
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- destroy */

/* 0: every worker has left. */
static int dismiss_workers(weft_engine *e)
{
    uint64_t until = weft__now_ns() + LEAVE_MS * 1000000ull;
    int status = e->stopped ? 0 : WEFT_EBUSY;
    for (uint32_t n = 0; status == WEFT_EBUSY && weft__now_ns() < until; n++) {
        weft__host_pause(e, n);
        status = weft__post_stop(e);
    }
    if (e->stopped || status) weft_st_release_sys(&e->mailbox->abort_request.value, WEFT_ABORT_HOST);
    if (e->b->join(e->m, LEAVE_MS) == 0) return 0;
    weft_st_release_sys(&e->mailbox->abort_request.value, WEFT_ABORT_HOST);
    return e->b->join(e->m, LEAVE_ABORTED_MS);
}

static void free_host_side(weft_engine *e)
{
    weft__image_close(&e->img);
    free(e->image_bytes);
    free(e->allocs);
    free(e->traced);
    free(e->report_text);
    weft__queue_close(&e->queue);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void weft_engine_destroy(weft_engine *e)
{
    if (!e) return;
    weft__watch_end(e);
    if (e->launched && dismiss_workers(e)) return; /* they may still touch all of it */
    for (uint32_t i = 0; i < e->n_alloc; i++)
        e->b->free(e->m, e->allocs[i].device, e->allocs[i].addr);
    if (e->mailbox) e->b->free_shared(e->m, e->mailbox);
    if (e->m) e->m->ops->close(e->m);
    free_host_side(e);
}

void weft_engine_stop(weft_engine *e)
{
    weft_atom_cas_relaxed_sys(&e->mailbox->abort_request.value, 0, WEFT_ABORT_HOST);
}

/* -------------------------------------------------------------------------------------------------------------- info */

int weft_engine_get_info(const weft_engine *e, weft_engine_info *info)
{
    int status = weft__check_size(info, info->size, info->size, "weft_engine_info");
    if (status) return status;
    weft_engine_info i = {.size = info->size,
                          .n_device = e->img.n_device,
                          .n_variant = e->img.n_variant,
                          .plan_hash = e->img.header->hash,
                          .driver = e->m->driver,
                          .queue = e->queue.text};
    weft__lock(e);
    i.resident = (uint32_t)e->launched;
    i.parks = e->parks;
    weft__unlock(e);
    for (uint32_t d = 0; d < e->img.n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(&e->img, 0, d);
        i.n_worker += e->m->workers[d];
        i.tasks += q->n_task;
        i.weight_bytes += e->img.devices[d].weight_bytes;
        i.work_bytes += e->img.devices[d].work_bytes;
        for (uint32_t t = 0; t < q->n_task; t++) {
            const weft_task *task = &e->img.tasks[q->task + t];
            for (uint32_t s = 0; s < task->n_signal; s++)
                i.remote_signals += weft__task_signal(task, e->img.side + q->side, s).device != d;
        }
    }
    memcpy(info, &i, info->size < sizeof i ? info->size : sizeof i);
    return 0;
}

int weft_engine_device(const weft_engine *e, uint32_t d, weft_device_info *info)
{
    if (d >= e->m->n_device) return weft__fail(WEFT_EUSAGE, "device %u: there are %u", d, e->m->n_device);
    describe(e->m, d, info);
    return 0;
}
