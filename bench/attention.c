/* attention.c: attention over a mixed batch with a fixed number of tasks: how fast does it read the KV cache?
 *
 * One ATTN task a worker, a counter, then the ATTN_COMBINE tasks. Sequences of seeded, spread lengths over shuffled pages of
 * 64 tokens (tasks/attn.h). The image is made here, by hand: the planner has no attention yet. The
 * validator proves it like any other.
 * Two times: host to host (submit to wait), and back to back with 16 steps in flight, whose mean is the device's time of a
 * step with its gate; GB/s are given for both, of the bytes of K and V of all tokens. The default cache has over four
 * times the 60 MB of an H200's L2.
 * Before the first step all work memory is poisoned; the output is compared with float64, and again after the timing.  */
#include "bench.h"

#include "../tasks/attn.h"
#include "../tasks/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft__bench b;
static uint32_t n_seq = 16, shortest = 100, longest = 8000, kv_heads = 8, hpk = 4, repeats = 20;
static double ceiling_gbs;
enum {
    DIM = 128,
    PAGE_ELEMENTS = DIM * WEFT_ATTN_PAGE,
    L2_BYTES = 60000000
};

typedef struct batch { /* what is computed, and the answer */
    uint32_t max_blocks, max_pages, n_page;
    uint64_t tokens;
    weft_step_batch attn; /* the step's payload */
    uint32_t *table;      /* [n_seq][max_pages] */
    uint16_t *kv;         /* as it lies on the device */
    uint16_t *q, *out;    /* [n_seq][heads * DIM] */
    double *want;
} batch;

static uint32_t heads(void) { return kv_heads * hpk; }
static uint64_t out_values(void) { return (uint64_t)n_seq * heads() * DIM; }
static uint64_t kv_values(const batch *a) { return (uint64_t)a->n_page * kv_heads * 2 * PAGE_ELEMENTS; }
static uint64_t kv_bytes(const batch *a) { return a->tokens * kv_heads * DIM * 2 * 2; }

/* ------------------------------------------------------------------------------------------------------------- batch */

static void shuffle(uint32_t *v, uint32_t n, uint32_t stream)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = weft_hash(b.seed, stream, i) % i, swap = v[i - 1];
        v[i - 1] = v[j];
        v[j] = swap;
    }
}

/* Evenly spread over [shortest, longest], each moved a little, in random order. */
static void choose_lengths(batch *a)
{
    const uint32_t gap = n_seq > 1 ? (longest - shortest) / (n_seq - 1) : 0;
    uint32_t lengths[WEFT_MAX_ROWS];
    a->attn.n_row = n_seq;
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t len = n_seq > 1 ? shortest + (uint32_t)((uint64_t)(longest - shortest) * i / (n_seq - 1)) : longest;
        if (i && i + 1 < n_seq && gap > 1) len -= weft_hash(b.seed, 1, i) % gap;
        lengths[i] = len;
        a->tokens += len;
        a->n_page += weft_div_up(len, WEFT_ATTN_PAGE);
    }
    shuffle(lengths, n_seq, 2);
    for (uint32_t i = 0; i < n_seq; i++)
        a->attn.row[i] = (weft_step_row){.kv_len = lengths[i], .slot = i};
    a->max_blocks = weft_div_up(longest, WEFT_ATTN_BLOCK);
    a->max_pages = weft_div_up(longest, WEFT_ATTN_PAGE);
}

static int make_batch(batch *a)
{
    choose_lengths(a);
    uint32_t *pages = malloc(a->n_page * 4ull), at = 0;
    a->table = calloc((uint64_t)n_seq * a->max_pages, 4);
    a->kv = malloc(kv_values(a) * 2);
    a->q = malloc(out_values() * 2);
    a->out = malloc(out_values() * 2);
    a->want = malloc(out_values() * sizeof *a->want);
    int status = pages && a->table && a->kv && a->q && a->out && a->want
                     ? 0
                     : weft__fail(WEFT_ENOMEM, "a batch of %u pages", a->n_page);
    if (!status) {
        for (uint32_t i = 0; i < a->n_page; i++)
            pages[i] = i;
        shuffle(pages, a->n_page, 3);
        for (uint32_t s = 0; s < n_seq; s++)
            for (uint32_t i = 0; i < weft_div_up(a->attn.row[s].kv_len, WEFT_ATTN_PAGE); i++)
                a->table[s * a->max_pages + i] = pages[at++];
        for (uint64_t i = 0; i < kv_values(a); i++)
            a->kv[i] = weft_f32_to_half(
                WEFT_BF16, weft_seeded(b.seed + 4, (uint32_t)(i / PAGE_ELEMENTS), (uint32_t)(i % PAGE_ELEMENTS), 1));
        for (uint64_t i = 0; i < out_values(); i++) /* scores of a few units: some tokens matter more than others */
            a->q[i] = weft_f32_to_half(WEFT_BF16, weft_seeded(b.seed + 5, (uint32_t)i, 0, 4));
    }
    free(pages);
    return status;
}

static void free_batch(batch *a)
{
    free(a->table);
    free(a->kv);
    free(a->q);
    free(a->out);
    free(a->want);
}

/* --------------------------------------------------------------------------------------------------------- reference */

static void load_row(const batch *a, uint32_t s, uint32_t h, uint32_t t, uint32_t v, double *row)
{
    const uint32_t page = a->table[s * a->max_pages + t / WEFT_ATTN_PAGE];
    const uint8_t *bytes = (const uint8_t *)a->kv + weft_attn_page_offset(kv_heads, DIM, page, h, v);
    for (uint32_t d = 0; d < DIM; d++) {
        uint16_t half;
        memcpy(&half, bytes + weft_attn_element(t % WEFT_ATTN_PAGE, d), 2);
        row[d] = weft_half_to_f32(WEFT_BF16, half);
    }
}

static double dot(const double *x, const double *y)
{
    double lane[8] = {0}, sum = 0;
    for (uint32_t d = 0; d < DIM; d += 8)
        for (uint32_t i = 0; i < 8; i++)
            lane[i] += x[d + i] * y[d + i];
    for (uint32_t i = 0; i < 8; i++)
        sum += lane[i];
    return sum;
}

/* The query heads of one KV head: softmax in two passes over all tokens. score: room for hpk * longest. */
static void reference_head(const batch *a, uint32_t s, uint32_t h, double *score)
{
    const uint32_t len = a->attn.row[s].kv_len;
    double q[DIM], row[DIM];
    for (uint32_t t = 0; t < len; t++) {
        load_row(a, s, h, t, 0, row);
        for (uint32_t j = 0; j < hpk; j++) {
            const uint16_t *half = a->q + ((uint64_t)s * heads() + h * hpk + j) * DIM;
            for (uint32_t d = 0; d < DIM; d++)
                q[d] = weft_half_to_f32(WEFT_BF16, half[d]);
            score[(uint64_t)j * longest + t] = dot(q, row) / sqrt(DIM);
        }
    }
    for (uint32_t j = 0; j < hpk; j++) {
        double max = -INFINITY, sum = 0, *p = score + (uint64_t)j * longest;
        for (uint32_t t = 0; t < len; t++)
            max = p[t] > max ? p[t] : max;
        for (uint32_t t = 0; t < len; t++)
            sum += p[t] = exp(p[t] - max);
        for (uint32_t t = 0; t < len; t++)
            p[t] /= sum;
    }
    double *out = a->want + ((uint64_t)s * heads() + h * hpk) * DIM;
    memset(out, 0, (size_t)hpk * DIM * sizeof *out);
    for (uint32_t t = 0; t < len; t++) {
        load_row(a, s, h, t, 1, row);
        for (uint32_t j = 0; j < hpk; j++)
            for (uint32_t d = 0; d < DIM; d++)
                out[j * DIM + d] += score[(uint64_t)j * longest + t] * row[d];
    }
}

static int reference(const batch *a)
{
    double *score = malloc((uint64_t)hpk * longest * sizeof *score);
    if (!score) return weft__fail(WEFT_ENOMEM, "scores of %u tokens", longest);
    for (uint32_t s = 0; s < n_seq; s++)
        for (uint32_t h = 0; h < kv_heads; h++)
            reference_head(a, s, h, score);
    free(score);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------- image */

static const char strings[] = "single\0q\0kv\0table\0partial\0out\0attn\0combine";

static uint32_t string_at(const char *s)
{
    uint32_t at = 0;
    while (strcmp(strings + at, s))
        at += (uint32_t)strlen(strings + at) + 1;
    return at;
}

enum {
    Q,
    KV,
    TABLE,
    PARTIAL,
    OUT,
    N_TENSOR
};

static void put_tensors(const batch *a, weft__image_writer *w)
{
    const struct {
        const char *name;
        uint32_t dtype, role;
        uint64_t rows, cols;
    } t[N_TENSOR] = {
        [Q] = {"q", WEFT_BF16, WEFT_ROLE_INPUT, n_seq, heads() * DIM},
        [KV] = {"kv", WEFT_BF16, WEFT_ROLE_KV, (uint64_t)a->n_page * kv_heads * 2, PAGE_ELEMENTS},
        [TABLE] = {"table", WEFT_U32, WEFT_ROLE_TABLE, n_seq, a->max_pages},
        [PARTIAL] = {"partial", WEFT_FP32, WEFT_ROLE_PARTIAL, (uint64_t)n_seq * kv_heads * a->max_blocks,
                     weft_attn_unit_floats(hpk, DIM)},
        [OUT] = {"out", WEFT_BF16, WEFT_ROLE_OUTPUT, n_seq, heads() * DIM},
    };
    for (uint32_t i = 0; i < N_TENSOR; i++) {
        weft_tensor *to = &w->tensors[i];
        *to = (weft_tensor){.name = string_at(t[i].name),
                            .dtype = (uint8_t)t[i].dtype,
                            .layout = WEFT_LAYOUT_ROW,
                            .role = (uint8_t)t[i].role,
                            .rows = (uint32_t)t[i].rows,
                            .cols = (uint32_t)t[i].cols,
                            .weight = WEFT_NONE,
                            .splits = 1,
                            .offset = w->devices[0].work_bytes};
        to->bytes = weft_layout_bytes(WEFT_LAYOUT_ROW, t[i].dtype, to->rows, to->cols, 1);
        w->devices[0].work_bytes = weft_round_up64(to->offset + to->bytes, 1024);
    }
}

static void put_ops(const batch *a, weft__image_writer *w)
{
    const weft_op op = {.dtype = WEFT_BF16,
                        .m = n_seq,
                        .n = heads() * DIM,
                        .x = WEFT_NONE,
                        .w = WEFT_NONE,
                        .out = WEFT_NONE,
                        .aux = WEFT_NONE,
                        .scale = WEFT_NONE,
                        .pk_x = WEFT_NONE,
                        .pk_out = WEFT_NONE,
                        .pk_aux = WEFT_NONE,
                        .partial = PARTIAL,
                        .squares = WEFT_NONE,
                        .cost = WEFT_NONE,
                        .m_tile = n_seq,
                        .n_split = 1,
                        .split_kb = 1,
                        .param = {heads(), kv_heads, DIM, WEFT_ATTN_BLOCK, a->max_blocks, a->max_pages}};
    w->ops[0] = w->ops[1] = op;
    w->ops[0].kind = WEFT_KIND_ATTN;
    w->ops[0].name = string_at("attn");
    w->ops[0].x = Q;
    w->ops[0].w = KV;
    w->ops[0].aux = TABLE;
    w->ops[1].kind = WEFT_KIND_ATTN_COMBINE;
    w->ops[1].name = string_at("combine");
    w->ops[1].out = OUT;
}

/* Tasks 0 .. workers: shares. Then combinations, each of its part of the (sequence, KV head) pairs, behind one counter. */
static void put_tasks(weft__image_writer *w, uint32_t workers, uint32_t combines)
{
    const uint32_t pairs = n_seq * kv_heads;
    for (uint32_t i = 0; i < workers; i++)
        w->tasks[i] = (weft_task){.kind = WEFT_KIND_ATTN,
                                  .alt_device = 0xff,
                                  .op = 0,
                                  .n_signal = 1,
                                  .tile = {i, workers},
                                  .cost_ns = 50000,
                                  .signal = {{.counter = 0, .device = 0, .scope = WEFT_SCOPE_GPU}}};
    for (uint32_t i = 0; i < combines; i++) {
        const uint32_t first = pairs * i / combines, end = pairs * (i + 1) / combines;
        w->tasks[workers + i] = (weft_task){.kind = WEFT_KIND_ATTN_COMBINE,
                                            .alt_device = 0xff,
                                            .op = 1,
                                            .n_wait = 1,
                                            .tile = {first, end - first},
                                            .cost_ns = 2000,
                                            .wait = {{.counter = 0, .arrivals = (uint16_t)workers}}};
        w->deps[i] = workers + i;
    }
    for (uint32_t i = 0; i < workers + combines; i++)
        w->order[i] = i;
    w->counters[0] = (weft_counter){.arrivals = workers, .scope = WEFT_SCOPE_GPU, .n_dep = combines};
}

static int make_image(const batch *a, uint32_t workers, void **image, uint64_t *bytes)
{
    const uint32_t pairs = n_seq * kv_heads, combines = workers < pairs ? workers : pairs, n = workers + combines;
    const weft__image_counts counts = {.devices = 1,
                                       .queues = 1,
                                       .tensors = N_TENSOR,
                                       .ops = 2,
                                       .tasks = n,
                                       .order = n,
                                       .counters = 1,
                                       .deps = combines,
                                       .strings = sizeof strings};
    weft__image_writer w;
    int status = weft__image_writer_init(&w, &counts, 1, 1);
    if (status) return status;
    w.header->policies = (1u << WEFT_POLICY_COUNT) - 1;
    w.header->strategy = string_at("single");
    w.header->seed = b.seed;
    memcpy(w.strings, strings, sizeof strings);
    w.devices[0] = (weft_image_device){.workers = workers, .n_op = 2};
    w.queues[0] = (weft_image_queue){.n_task = n, .n_counter = 1, .n_dep = combines};
    put_tensors(a, &w);
    put_ops(a, &w);
    put_tasks(&w, workers, combines);
    weft__image_seal(w.bytes, w.size);
    *image = w.bytes;
    *bytes = w.size;
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- run */

static weft_step step_of(const batch *a)
{
    weft_step step = WEFT_STEP_INIT;
    step.payload = &a->attn;
    step.payload_bytes = WEFT_BATCH_BYTES(n_seq, 0);
    return step;
}

static int start(const batch *a, weft_engine **e)
{
    weft__bench_devices d;
    void *image = NULL;
    uint64_t bytes = 0;
    int status = weft__bench_devices_of(&b, &d);
    if (!status && d.n != 1)
        status = weft__fail(WEFT_EUSAGE, "attention runs on one device; '%s' has %u", b.devices, d.n);
    if (!status) status = make_image(a, d.workers[0], &image, &bytes);
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    config.devices = b.devices;
    config.queue = b.queue;
    config.deadline_us = b.deadline_us;
    config.counter_base = b.base;
    if (!status) status = weft_engine_create(image, bytes, &config, e);
    free(image);
    if (!status) status = weft_engine_poison(*e, 0xff);
    if (!status) status = weft_tensor_write(*e, "kv", a->kv, kv_values(a) * 2);
    if (!status) status = weft_tensor_write(*e, "q", a->q, out_values() * 2);
    if (!status) status = weft_tensor_write(*e, "table", a->table, (uint64_t)n_seq * a->max_pages * 4);
    return status;
}

static int check(const batch *a, weft_engine *e, double *error)
{
    double difference = 0, norm = 0;
    int status = weft_tensor_read(e, "out", a->out, out_values() * 2);
    for (uint64_t i = 0; i < out_values(); i++) {
        const double off = weft_half_to_f32(WEFT_BF16, a->out[i]) - a->want[i];
        difference += off * off;
        norm += a->want[i] * a->want[i];
    }
    *error = sqrt(difference / norm);
    if (!status && !(*error <= 5e-3))
        status = weft__fail(WEFT_EWRONG, "relative error %.3g against float64, more than 5e-3", *error);
    return status;
}

static int time_flight(weft_engine *e, const weft_step *step, weft__stats *out)
{
    double *us = malloc(repeats * sizeof *us);
    int status = us ? 0 : weft__fail(WEFT_ENOMEM, "%u samples", repeats);
    for (uint32_t i = 0; i < repeats && !status; i++) {
        status = weft__bench_time_flight(e, step, b.steps, WEFT_MAX_STEPS_IN_FLIGHT, &us[i]);
        us[i] /= b.steps;
    }
    if (!status) status = weft__stats_of(us, repeats, out);
    free(us);
    return status;
}

static int report(const batch *a, weft_engine *e, const weft__stats *host, const weft__stats *device, double error)
{
    const double gbs = (double)kv_bytes(a) / device->p50 * 1e-3, host_gbs = (double)kv_bytes(a) / host->p50 * 1e-3;
    json_t *line = weft__bench_line(&b, "attention", e);
    weft__bench_count(line, "sequences", n_seq);
    weft__bench_count(line, "tokens", a->tokens);
    weft__bench_count(line, "kv_heads", kv_heads);
    weft__bench_count(line, "heads", heads());
    weft__bench_count(line, "kv_bytes", kv_bytes(a));
    json_object_set_new(line, "beyond_l2", json_boolean(kv_bytes(a) > 4ull * L2_BYTES));
    weft__bench_count(line, "host_n", host->n);
    weft__bench_set(line, "host_median_us", host->p50);
    weft__bench_set(line, "host_p99_us", host->p99);
    weft__bench_set(line, "host_gb_s", host_gbs);
    weft__bench_count(line, "steps", b.steps); /* back to back, of one sample */
    weft__bench_stats(line, "us", device);
    weft__bench_set(line, "gb_s", gbs);
    weft__bench_set(line, "ceiling_gb_s", ceiling_gbs > 0 ? ceiling_gbs : NAN);
    weft__bench_set(line, "of_ceiling", ceiling_gbs > 0 ? gbs / ceiling_gbs : NAN);
    weft__bench_set(line, "host_of_ceiling", ceiling_gbs > 0 ? host_gbs / ceiling_gbs : NAN);
    weft__bench_set(line, "rel_error", error);
    return weft__bench_print(line);
}

static int measure(const batch *a, weft_engine *e)
{
    const weft_step step = step_of(a);
    double error, us;
    weft__stats host, device;
    int status = weft__bench_time_steps(e, &step, 1, &us);
    if (!status) status = check(a, e, &error);
    if (!status) status = weft__bench_steps(&b, e, &step, &host);
    if (!status) status = time_flight(e, &step, &device);
    if (!status) status = check(a, e, &error);
    return status ? status : report(a, e, &host, &device, error);
}

static int body(void)
{
    batch a = {0};
    weft_engine *e = NULL;
    int status = longest >= shortest
                     ? 0
                     : weft__fail(WEFT_EUSAGE, "--longest %u is below --shortest %u", longest, shortest);
    if (!status) status = make_batch(&a);
    if (!status) status = reference(&a);
    if (!status) status = start(&a, &e);
    if (!status) status = measure(&a, e);
    weft_engine_destroy(e);
    free_batch(&a);
    return status;
}

int main(int argc, char **argv)
{
    weft__option rows[WEFT__BENCH_ROWS] = {{0}};
    b = weft__bench_defaults("attention");
    weft__option *row = weft__bench_rows(&b, rows);
    *row++ = (weft__option){"--sequences", "N", "in the batch (default 16)", WEFT_OPT_U32, &n_seq, 1, 64};
    *row++ = (weft__option){"--shortest", "N", "tokens (default 100)", WEFT_OPT_U32, &shortest, 1, 1e6};
    *row++ = (weft__option){"--longest", "N", "tokens (default 8000)", WEFT_OPT_U32, &longest, 1, 1e6};
    *row++ = (weft__option){"--kv-heads", "N", "of 128 dimensions (default 8)", WEFT_OPT_U32, &kv_heads, 1, 64};
    *row++ = (weft__option){"--queries", "N", "query heads of each KV head (default 4)", WEFT_OPT_U32, &hpk, 1, 8};
    *row++ = (weft__option){
        "--repeats", "N", "samples of --steps back-to-back steps each (default 20)", WEFT_OPT_U32, &repeats, 1, 1e5};
    *row++ = (weft__option){"--ceiling", "GB/S", "read bandwidth to compare with", WEFT_OPT_F64, &ceiling_gbs, 0, 1e6};
    return weft__bench_main(argc, argv, &b, rows,
                            "Attention over a mixed batch: KV bytes read a second. One JSON object a line.", body);
}
