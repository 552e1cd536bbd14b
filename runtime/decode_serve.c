/* decode_serve.c: see weft_decode.h: an engine that runs a decoder's steps, and the sequences in them.
 *
 * Enters: calls of any thread, all under one lock. Leaves: steps submitted, results in order.
 * The bookkeeping is host/sequences.h; what this file adds is time: up to AHEAD steps under way, each kept until it is done.
 * A step that stores logits is the last one under way: the engine keeps one step's logits only.                         */
#include "weft_decode.h"

#include "../host/hfmodel.h"
#include "../host/plan.h"
#include "../host/sequences.h"
#include "../tasks/attn.h"
#include "engine_internal.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    AHEAD = 8
};

typedef struct under_way {
    weft__seq_step step;
    uint32_t seq;
} under_way;

struct weft_decoder {
    weft_decoder_config c; /* strings are copies */
    weft__hfmodel model;
    void *image;
    uint64_t image_bytes, weight_bytes, kv_bytes, work_bytes;
    uint64_t read_bytes, all_bytes; /* of the weights, so far */
    weft_weight_source source;      /* that progress wraps */
    weft_engine *e;
    weft__seqs *seqs;

    pthread_mutex_t lock;
    pthread_cond_t work; /* of the thread: a call may have made some */
    pthread_t thread;
    int threaded, quit, fd, told;
    under_way flight[AHEAD];
    uint32_t first, n_flight;
    uint64_t steps;
    int stopped; /* WEFT_EABORT and the like: only restart helps */
    char why[1024];
    weft_token *result; /* first_result .. n_result are to be handed out */
    uint32_t first_result, n_result, cap_result;
    float *logits; /* rows x vocab */
};

/* ----------------------------------------------------------------------------------------------------------------- opening */

static int source_shape(void *user, const char *name, uint32_t *rows, uint32_t *cols)
{
    const weft_decoder *d = user;
    if (d->c.weights && !strcmp(name, "@rope")) { /* config.json has it; the files' reader knows that */
        *rows = 1, *cols = d->model.config.head_dim / 2;
        return 0;
    }
    return d->source.shape(d->source.user, name, rows, cols);
}

static int source_rows(void *user, const char *name, uint32_t row, uint32_t n, float *dst)
{
    weft_decoder *d = user;
    uint32_t rows, cols;
    if (d->c.weights && !strcmp(name, "@rope")) {
        weft__config_rope(&d->model.config, dst);
        return 0;
    }
    int rc = d->source.shape(d->source.user, name, &rows, &cols);
    if (!rc) rc = d->source.rows(d->source.user, name, row, n, dst);
    if (rc || !d->c.progress) return rc;
    d->read_bytes += (uint64_t)n * cols * 2;
    if (d->read_bytes > d->all_bytes) d->read_bytes = d->all_bytes;
    if (d->c.progress(d->c.user, d->read_bytes, d->all_bytes)) return weft__fail(WEFT_EABORT, "opening was given up");
    return 0;
}

static int start(weft_decoder *d)
{
    const weft_weight_source s = {d, source_shape, source_rows};
    weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
    c.devices = d->c.devices, c.queue = d->c.queue, c.deadline_us = d->c.deadline_us, c.weights = &s;
    d->read_bytes = 0;
    return weft_engine_create(d->image, d->image_bytes, &c, &d->e);
}

static int plan_pages(weft_decoder *d, uint32_t pages)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    weft__plan_options o = weft__plan_defaults();
    weft__plan_stats stats;
    weft__graph *g = NULL;
    const int strategy = weft__strategy_parse(d->c.strategy);
    if (strategy < 0) return strategy;
    const weft__decode m = {.config = &d->model.config,
                            .named = !d->c.seeded,
                            .prefix = d->model.prefix,
                            .dtype = WEFT_BF16,
                            .rows = d->c.rows,
                            .slots = d->c.slots,
                            .pages = pages,
                            .context = d->c.context};
    int rc = weft_devices(d->c.devices, info, WEFT_MAX_DEVICES, &o.n_device);
    if (rc) return rc;
    o.strategy = (uint32_t)strategy;
    for (uint32_t i = 0; i < o.n_device; i++)
        o.workers[i] = info[i].workers;
    free(d->image);
    d->image = NULL;
    rc = weft__graph_decode(&m, &g);
    if (!rc) rc = weft__plan(g, &o, &d->image, &d->image_bytes, &stats);
    weft__graph_free(g);
    if (rc) return rc;
    d->weight_bytes = d->work_bytes = 0;
    for (uint32_t i = 0; i < o.n_device; i++)
        d->weight_bytes += stats.weight_bytes[i], d->work_bytes += stats.work_bytes[i];
    const weft__config *c = &d->model.config;
    d->kv_bytes = pages * (uint64_t)c->layers * c->kv_heads * 2 * weft_attn_page_bytes(c->head_dim);
    d->work_bytes = d->work_bytes > d->kv_bytes ? d->work_bytes - d->kv_bytes : 0;
    d->all_bytes = d->weight_bytes;
    return 0;
}

static int over_budget(const weft_decoder *d)
{
    return weft__fail(WEFT_ENOMEM,
                      "%llu bytes of weights, %llu of KV cache (%u pages), %llu of work: over the %llu given",
                      (unsigned long long)d->weight_bytes, (unsigned long long)d->kv_bytes, d->c.pages,
                      (unsigned long long)d->work_bytes, (unsigned long long)d->c.budget);
}

static uint64_t bytes_of(const weft_decoder *d) { return d->weight_bytes + d->kv_bytes + d->work_bytes; }

/* The image, with as many pages as there is room for: what a page takes is what one plan takes beyond another. */
static int plan_image(weft_decoder *d)
{
    const uint32_t one = weft_div_up(d->c.context, WEFT_ATTN_PAGE);
    const uint64_t most = (uint64_t)one * d->c.slots;
    const uint32_t all = most < WEFT_NONE / 1024 ? (uint32_t)most : WEFT_NONE / 1024;
    int rc;
    if (d->c.pages || !d->c.budget) {
        if (!d->c.pages) d->c.pages = all;
        rc = plan_pages(d, d->c.pages);
        return rc || !d->c.budget || bytes_of(d) <= d->c.budget ? rc : over_budget(d);
    }
    d->c.pages = one;
    if ((rc = plan_pages(d, one))) return rc;
    const uint64_t with_one = bytes_of(d);
    if (with_one > d->c.budget) return over_budget(d);
    if ((rc = plan_pages(d, one * 2))) return rc;
    const uint64_t page = (bytes_of(d) - with_one) / one + 1, room = (d->c.budget - with_one) / page;
    d->c.pages = one + room < all ? one + (uint32_t)room : all;
    for (; !(rc = plan_pages(d, d->c.pages)) && bytes_of(d) > d->c.budget; d->c.pages--) /* what is rounded up */
        if (d->c.pages == one) return over_budget(d);
    return rc;
}

static int open_files(weft_decoder *d)
{
    char path[4096];
    if (!d->c.seeded && !d->c.weights) {
        int rc = weft__hfmodel_open(d->c.model, &d->model);
        const weft__weight_reader r = weft__hfmodel_reader(&d->model);
        d->source = (weft_weight_source){r.user, r.shape, r.rows};
        return rc;
    }
    if (d->c.weights) d->source = *d->c.weights;
    snprintf(path, sizeof path, "%s/config.json", d->c.model);
    return weft__config_read(path, &d->model.config);
}

static char *copy_text(const char *text) { return text ? strdup(text) : NULL; }

int weft_decoder_open(const weft_decoder_config *config, weft_decoder **out)
{
    *out = NULL;
    int rc = weft__check_size(config, config->size, sizeof *config, "weft_decoder_config");
    weft_decoder *d = rc ? NULL : calloc(1, sizeof *d);
    if (rc) return rc;
    if (!d) return weft__fail(WEFT_ENOMEM, "a decoder");
    d->c = (weft_decoder_config)WEFT_DECODER_CONFIG_INIT;
    memcpy(&d->c, config, config->size < sizeof d->c ? config->size : sizeof d->c);
    d->c.model = copy_text(d->c.model), d->c.devices = copy_text(d->c.devices);
    d->c.queue = copy_text(d->c.queue), d->c.strategy = copy_text(d->c.strategy);
    d->fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    if (!d->c.model || !d->c.strategy || !d->c.queue)
        rc = weft__fail(WEFT_EUSAGE, "model, strategy or queue is missing");
    if (!rc) rc = open_files(d);
    if (!rc && !d->c.context) d->c.context = d->model.config.max_positions;
    if (!rc) rc = plan_image(d);
    if (!rc)
        rc = weft__seqs_new(d->c.slots, d->c.pages, d->c.context, d->model.config.vocab, d->c.rows,
                            d->c.max_step_tokens, &d->seqs);
    if (!rc && !(d->logits = malloc((size_t)d->c.rows * d->model.config.vocab * sizeof *d->logits)))
        rc = weft__fail(WEFT_ENOMEM, "logits of %u rows", d->c.rows);
    if (!rc) rc = start(d);
    if (rc)
        weft_decoder_close(d);
    else
        *out = d;
    return rc;
}

void weft_decoder_close(weft_decoder *d)
{
    if (!d) return;
    if (d->threaded) {
        pthread_mutex_lock(&d->lock);
        d->quit = 1;
        pthread_cond_signal(&d->work);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    if (d->fd >= 0) close(d->fd);
    weft_engine_destroy(d->e);
    weft__seqs_free(d->seqs);
    if (!d->c.seeded && !d->c.weights) weft__hfmodel_close(&d->model);
    for (uint32_t i = d->first_result; i < d->n_result; i++)
        free(d->result[i].logits);
    free(d->result);
    free(d->logits);
    free(d->image);
    free((char *)d->c.model);
    free((char *)d->c.devices);
    free((char *)d->c.queue);
    free((char *)d->c.strategy);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ------------------------------------------------------------------------------------------------------------------- steps */

/* The image's variant for a step of n rows: it has one. */
static uint32_t variant_for(const weft_decoder *d, uint32_t n)
{
    (void)d, (void)n;
    return 0;
}

static int reserve_results(weft_decoder *d)
{
    if (d->first_result) {
        memmove(d->result, d->result + d->first_result, (d->n_result - d->first_result) * sizeof *d->result);
        d->n_result -= d->first_result;
        d->first_result = 0;
    }
    if (d->n_result + WEFT_MAX_ROWS <= d->cap_result) return 0;
    const uint32_t cap = d->cap_result * 2 + WEFT_MAX_ROWS;
    weft_token *grown = realloc(d->result, cap * sizeof *grown);
    if (!grown) return weft__fail(WEFT_ENOMEM, "%u results", cap);
    d->result = grown;
    d->cap_result = cap;
    return 0;
}

/* The oldest step is done: its results. Nothing is lost on failure. */
static int collect(weft_decoder *d)
{
    const under_way *w = &d->flight[d->first];
    const uint32_t vocab = d->model.config.vocab;
    uint32_t token[WEFT_MAX_ROWS], n;
    float logprob[WEFT_MAX_ROWS], *copy[WEFT_MAX_ROWS] = {NULL};
    weft__seq_event event[WEFT_MAX_ROWS];
    int rc = reserve_results(d);
    if (!rc) rc = weft_step_tokens(d->e, w->seq, w->step.batch.n_row, token, logprob);
    if (!rc && w->step.logits) rc = weft_tensor_read_f32(d->e, "logits", d->logits, (size_t)d->c.rows * vocab);
    for (uint32_t r = 0; r < w->step.batch.n_row && !rc; r++)
        if (w->step.batch.row[r].flags & WEFT_ROW_LOGITS) {
            if (!(copy[r] = malloc(vocab * sizeof(float))))
                rc = weft__fail(WEFT_ENOMEM, "logits");
            else
                memcpy(copy[r], d->logits + (size_t)r * vocab, vocab * sizeof(float));
        }
    n = 0;
    if (!rc) weft__seqs_complete(d->seqs, &w->step, token, logprob, event, &n);
    for (uint32_t i = 0; i < n; i++) {
        const weft__seq_event *v = &event[i];
        d->result[d->n_result++] = (weft_token){v->id, v->position, v->token, v->logprob, v->end, 0, copy[v->row]};
        copy[v->row] = NULL;
    }
    for (uint32_t r = 0; r < WEFT_MAX_ROWS; r++) /* of rows that nobody waits for any more */
        free(copy[r]);
    if (rc) return rc;
    d->first = (d->first + 1) % AHEAD;
    d->n_flight--;
    return 0;
}

static int submit_step(weft_decoder *d, int *any)
{
    under_way *w = &d->flight[(d->first + d->n_flight) % AHEAD];
    uint8_t payload[WEFT_STEP_PAYLOAD_BYTES];
    int rc = weft__seqs_compose(d->seqs, !d->n_flight, &w->step, any);
    if (rc || !*any) return rc;
    const weft_step_batch *b = &w->step.batch;
    memcpy(payload, b, WEFT_BATCH_BYTES(b->n_row, 0));
    memcpy(payload + WEFT_BATCH_BYTES(b->n_row, 0), w->step.write, b->n_write * sizeof w->step.write[0]);
    weft_step s = WEFT_STEP_INIT;
    s.variant = variant_for(d, b->n_row);
    s.rows = b->n_row;
    s.payload = payload;
    s.payload_bytes = WEFT_BATCH_BYTES(b->n_row, b->n_write);
    rc = weft_step_submit(d->e, &s, &w->seq);
    d->n_flight += !rc;
    d->steps += !rc;
    return rc;
}

static int under_way_has_logits(const weft_decoder *d)
{
    return d->n_flight && d->flight[(d->first + d->n_flight - 1) % AHEAD].step.logits;
}

/* Takes what is done, submits what can be. WEFT_ENOMEM loses nothing; all else stops the decoder. */
static int pump(weft_decoder *d)
{
    int rc = 0, done = 1, any = 1;
    if (d->stopped) return weft__fail(d->stopped, "%s", d->why);
    while (d->n_flight && !rc) {
        rc = weft_step_poll(d->e, d->flight[d->first].seq, &done);
        if (rc || !done) break;
        rc = collect(d);
    }
    while (!rc && any && d->n_flight < AHEAD && !under_way_has_logits(d))
        rc = submit_step(d, &any);
    if (rc && rc != WEFT_ENOMEM) {
        d->stopped = rc;
        snprintf(d->why, sizeof d->why, "%s", weft__error());
    }
    return rc;
}

int weft_decoder_restart(weft_decoder *d)
{
    pthread_mutex_lock(&d->lock);
    weft_engine_destroy(d->e);
    d->e = NULL;
    d->n_flight = 0;
    weft__seqs_reset(d->seqs);
    int rc = start(d);
    d->stopped = rc;
    snprintf(d->why, sizeof d->why, "%s", rc ? weft__error() : "");
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------------- results */

/* The eventfd can be read while there is something to tell. */
static void tell(weft_decoder *d, int rc)
{
    const int want = rc || d->first_result < d->n_result;
    uint64_t v = 1;
    if (d->fd < 0 || want == d->told) return;
    const ssize_t n = want ? write(d->fd, &v, sizeof v) : read(d->fd, &v, sizeof v);
    if (n == (ssize_t)sizeof v) d->told = want;
}

static int poll_results(weft_decoder *d, weft_token *out, uint32_t cap, uint32_t *n)
{
    const int rc = pump(d);
    *n = 0;
    while (*n < cap && d->first_result < d->n_result)
        out[(*n)++] = d->result[d->first_result++];
    tell(d, rc);
    return *n ? 0 : rc; /* it will be said again */
}

int weft_decoder_poll(weft_decoder *d, weft_token *out, uint32_t cap, uint32_t *n)
{
    pthread_mutex_lock(&d->lock);
    int rc = poll_results(d, out, cap, n);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

int weft_decoder_wait(weft_decoder *d, int timeout_ms, weft_token *out, uint32_t cap, uint32_t *n)
{
    const uint64_t until = weft__now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    if (!cap) return weft__fail(WEFT_EUSAGE, "room for no results");
    for (uint32_t i = 0;; i++) {
        pthread_mutex_lock(&d->lock);
        const int rc = poll_results(d, out, cap, n), idle = !d->n_flight;
        const uint32_t spins = d->e && d->e->b == &weft__backend_cpu ? 128 : 4096; /* emulated workers want the core */
        pthread_mutex_unlock(&d->lock);
        if (rc || *n || idle) return rc;
        if (i >= spins)
            usleep(50);
        else if (i >= 64)
            sched_yield();
        if (timeout_ms >= 0 && weft__now_ns() >= until)
            return weft__fail(WEFT_ETIME, "no token within %d ms", timeout_ms);
    }
}

static void *run_thread(void *user)
{
    weft_decoder *d = user;
    pthread_mutex_lock(&d->lock);
    while (!d->quit) {
        const int rc = pump(d);
        tell(d, rc);
        if (rc || !d->n_flight) {
            pthread_cond_wait(&d->work, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        usleep(20);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

int weft_decoder_fd(weft_decoder *d, int *fd)
{
    sigset_t all, before;
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    if (!d->threaded) {
        sigfillset(&all);
        if (d->fd < 0) d->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (d->fd < 0 || pthread_create(&d->thread, NULL, run_thread, d))
            rc = weft__fail(WEFT_EIO, "no eventfd, or no thread");
        else
            d->threaded = 1;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!rc) *fd = d->fd;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

int weft_decoder_get_info(weft_decoder *d, weft_decoder_info *info)
{
    int rc = weft__check_size(info, info->size, sizeof *info, "weft_decoder_info");
    if (rc) return rc;
    pthread_mutex_lock(&d->lock);
    const weft_decoder_info all = {
        info->size, d->model.config.vocab,          d->c.context,    d->c.rows,   d->c.slots,
        d->c.pages, weft__seqs_pages_free(d->seqs), d->weight_bytes, d->kv_bytes, d->work_bytes,
        d->steps};
    memcpy(info, &all, info->size < sizeof all ? info->size : sizeof all);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- sequences */

static int options_of(const weft_seq_config *config, weft__seq_options *o)
{
    weft_seq_config c = WEFT_SEQ_CONFIG_INIT;
    int rc = weft__check_size(config, config->size, sizeof c, "weft_seq_config");
    if (rc) return rc;
    memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    *o = (weft__seq_options){.host_feedback = c.host_feedback,
                             .max_ahead = c.max_ahead,
                             .max_tokens = c.max_tokens,
                             .want = c.logits ? WEFT_ROW_LOGITS : 0,
                             .n_stop = c.n_stop,
                             .temperature = c.temperature,
                             .top_p = c.top_p,
                             .min_p = c.min_p,
                             .penalty = c.penalty,
                             .top_k = c.top_k,
                             .seed = c.seed};
    memcpy(o->stop, c.stop, sizeof o->stop);
    return 0;
}

static int unlock_after(weft_decoder *d, int rc)
{
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

int weft_seq_add(weft_decoder *d, const uint32_t *token, const uint32_t *want, uint32_t n,
                 const weft_seq_config *config, uint32_t *id)
{
    weft__seq_options o;
    int rc = options_of(config, &o);
    if (rc) return rc;
    pthread_mutex_lock(&d->lock);
    return unlock_after(d, weft__seqs_add(d->seqs, token, want, n, &o, id));
}

int weft_seq_append(weft_decoder *d, uint32_t id, const uint32_t *token, const uint32_t *want, uint32_t n)
{
    pthread_mutex_lock(&d->lock);
    return unlock_after(d, weft__seqs_append(d->seqs, id, token, want, n));
}

int weft_seq_fork(weft_decoder *d, uint32_t id, const weft_seq_config *config, uint32_t *out)
{
    weft__seq_options o;
    int rc = config ? options_of(config, &o) : 0;
    if (rc) return rc;
    pthread_mutex_lock(&d->lock);
    return unlock_after(d, weft__seqs_fork(d->seqs, id, config ? &o : NULL, out));
}

int weft_seq_truncate(weft_decoder *d, uint32_t id, uint32_t n)
{
    pthread_mutex_lock(&d->lock);
    return unlock_after(d, weft__seqs_truncate(d->seqs, id, n));
}

/* Its results that were not handed out. */
static void forget_results(weft_decoder *d, uint32_t id)
{
    uint32_t to = d->first_result;
    for (uint32_t i = d->first_result; i < d->n_result; i++) {
        if (d->result[i].id == id)
            free(d->result[i].logits);
        else
            d->result[to++] = d->result[i];
    }
    d->n_result = to;
    tell(d, 0);
}

int weft_seq_cancel(weft_decoder *d, uint32_t id)
{
    pthread_mutex_lock(&d->lock);
    const int rc = weft__seqs_cancel(d->seqs, id);
    if (!rc) forget_results(d, id);
    return unlock_after(d, rc);
}

int weft_seq_free(weft_decoder *d, uint32_t id)
{
    pthread_mutex_lock(&d->lock);
    const int rc = weft__seqs_drop(d->seqs, id);
    if (!rc) forget_results(d, id);
    return unlock_after(d, rc);
}

int weft_seq_tokens(weft_decoder *d, uint32_t id, uint32_t *token, uint32_t cap, uint32_t *n, uint32_t *end)
{
    const uint32_t *t;
    uint32_t all, ended;
    pthread_mutex_lock(&d->lock);
    const int rc = weft__seqs_tokens(d->seqs, id, &t, &all, &ended);
    if (!rc) {
        if (cap) memcpy(token, t, (all < cap ? all : cap) * sizeof *t);
        *n = all;
        if (end) *end = ended;
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}
