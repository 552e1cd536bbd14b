/* image_check.c: is every number in an image one that a worker may use without looking?
 *
 * Enters: untrusted bytes. Leaves: 0 and a view, or WEFT_EFILE with section, index and field. Order matters: nothing is
 * followed before it is checked. Linear in the image's size; allocates one bit a task. */
#include "image_internal.h"

#include "../tasks/attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARENA (1ull << 46)

int weft__image_bad(weft__image_place p, const char *field, uint64_t value, const char *why)
{
    return weft__fail(WEFT_EFILE, "%s: %s[%llu].%s is %llu: %s", p.file, p.section, (unsigned long long)p.index, field,
                      (unsigned long long)value, why);
}

int weft__image_below(weft__image_place p, const char *field, uint64_t value, uint64_t limit)
{
    if (value < limit) return 0;
    return weft__fail(WEFT_EFILE, "%s: %s[%llu].%s is %llu: must be below %llu", p.file, p.section,
                      (unsigned long long)p.index, field, (unsigned long long)value, (unsigned long long)limit);
}

int weft__image_none_or_below(weft__image_place p, const char *field, uint32_t value, uint64_t limit)
{
    return value == WEFT_NONE ? 0 : weft__image_below(p, field, value, limit);
}

/* [first, first + n) lies within `limit` and begins where the range before it ended. */
static int follows(weft__image_place p, const char *field, uint64_t first, uint64_t n, uint64_t *end, uint64_t limit)
{
    if (first != *end) return weft__image_bad(p, field, first, "does not begin where the one before it ends");
    if (n > limit - first) return weft__image_bad(p, field, first, "its range ends past the section");
    *end = first + n;
    return 0;
}

static int header_bad(const char *file, const char *field, uint64_t value, const char *why)
{
    return weft__fail(WEFT_EFILE, "%s: header.%s is %llu: %s", file, field, (unsigned long long)value, why);
}

static int check_header(const char *file, const weft_image_header *h, uint64_t size)
{
    if (h->magic != WEFT_IMAGE_MAGIC) return header_bad(file, "magic", h->magic, "not a weft image");
    if (h->version != WEFT_ABI_VERSION)
        return header_bad(file, "version", h->version, "made by another version of weft");
    if (h->header_bytes != sizeof *h) return header_bad(file, "header_bytes", h->header_bytes, "not this version's");
    if (h->bytes != size) return header_bad(file, "bytes", h->bytes, "not the file's size");
    if (h->n_device < 1 || h->n_device > WEFT_MAX_DEVICES)
        return header_bad(file, "n_device", h->n_device, "not 1..64");
    if (h->n_variant < 1 || h->n_variant > WEFT_MAX_VARIANTS) {
        return header_bad(file, "n_variant", h->n_variant, "not 1..16");
    }
    if (h->policies >> WEFT_POLICY_COUNT) return header_bad(file, "policies", h->policies, "unknown policy");
    return 0;
}

static int check_sections(const char *file, const weft_image_header *h, uint64_t size)
{
    uint64_t end = weft_round_up64(sizeof *h, 16);
    for (uint32_t i = 0; i < WEFT__SECTION_COUNT; i++) {
        const weft__section_info *info = &weft__sections[i];
        weft_section s;
        memcpy(&s, (const uint8_t *)h + info->field, sizeof s);
        if (s.offset != end) return header_bad(file, info->name, s.offset, "offset does not follow the section before");
        if (s.offset > size || s.count > (size - s.offset) / info->size || s.count >= WEFT_NONE) {
            return header_bad(file, info->name, s.count, "count reaches past the end of the file");
        }
        end = weft_round_up64(s.offset + s.count * info->size, 16);
    }
    if (end != size) return header_bad(file, "bytes", size, "the sections end elsewhere");
    if (h->devices.count != h->n_device) return header_bad(file, "devices", h->devices.count, "count is not n_device");
    if (h->queues.count != (uint64_t)h->n_variant * h->n_device) {
        return header_bad(file, "queues", h->queues.count, "count is not n_variant * n_device");
    }
    if (h->costs.count % h->n_device) return header_bad(file, "costs", h->costs.count, "not a multiple of n_device");
    return 0;
}

static void fill_view(weft__image *img, const void *bytes, uint64_t size)
{
    const weft_image_header *h = bytes;
    memset(img, 0, sizeof *img);
    img->header = h;
    img->bytes = bytes;
    img->size = size;
#define WEFT__SECTION(field, type) img->field = (const type *)((const uint8_t *)bytes + h->field.offset);
    WEFT__SECTION_LIST(WEFT__SECTION)
#undef WEFT__SECTION
    img->n_device = h->n_device;
    img->n_variant = h->n_variant;
    img->n_tensor = (uint32_t)h->tensors.count;
    img->n_weight = (uint32_t)h->weights.count;
    img->n_op = (uint32_t)h->ops.count;
    img->n_task = (uint32_t)h->tasks.count;
}

static int check_devices(const char *file, const weft__image *img)
{
    uint64_t end = 0;
    for (uint32_t d = 0; d < img->n_device; d++) {
        const weft_image_device *dev = &img->devices[d];
        weft__image_place p = {file, "devices", d};
        if (dev->workers < 1 || dev->workers > UINT16_MAX)
            return weft__image_bad(p, "workers", dev->workers, "not 1..65535");
        if (dev->n_op > 65536) return weft__image_bad(p, "n_op", dev->n_op, "more than a task can name");
        if (dev->weight_bytes > MAX_ARENA) return weft__image_bad(p, "weight_bytes", dev->weight_bytes, "over 64 TB");
        if (dev->work_bytes > MAX_ARENA) return weft__image_bad(p, "work_bytes", dev->work_bytes, "over 64 TB");
        int rc = follows(p, "op", dev->op, dev->n_op, &end, img->n_op);
        if (rc) return rc;
    }
    return end == img->n_op ? 0 : header_bad(file, "ops", img->n_op, "some ops belong to no device");
}

static int check_tensor_bytes(const weft__image *img, weft__image_place p, const weft_tensor *t)
{
    const weft_image_device *dev = &img->devices[t->device];
    const uint64_t arena = t->role == WEFT_ROLE_WEIGHT ? dev->weight_bytes : dev->work_bytes;
    const uint64_t align = t->role == WEFT_ROLE_PARTIAL ? 64 : t->role == WEFT_ROLE_PACKET ? 256 : 1024;
    if (!t->rows || !t->cols || (uint64_t)t->rows * t->cols > 1ull << 40) {
        return weft__image_bad(p, "rows", t->rows, "rows x cols is not 1..2^40");
    }
    if (t->splits < 1 || t->splits > UINT16_MAX) return weft__image_bad(p, "splits", t->splits, "not 1..65535");
    const uint64_t need = weft_layout_bytes(t->layout, t->dtype, t->rows, t->cols, t->splits);
    if (!need) return weft__image_bad(p, "layout", t->layout, "does not go with dtype and rows");
    if (t->bytes != need) return weft__image_bad(p, "bytes", t->bytes, "not what layout, rows and cols make");
    if (t->offset % align) return weft__image_bad(p, "offset", t->offset, "not aligned");
    if (t->offset > arena || t->bytes > arena - t->offset)
        return weft__image_bad(p, "offset", t->offset, "ends past its arena");
    return 0;
}

static int check_tensors(const char *file, const weft__image *img)
{
    const uint64_t n_string = img->header->strings.count;
    int rc = 0;
    for (uint32_t i = 0; i < img->n_tensor && !rc; i++) {
        const weft_tensor *t = &img->tensors[i];
        weft__image_place p = {file, "tensors", i};
        if ((rc = weft__image_none_or_below(p, "name", t->name, n_string))) break;
        if ((rc = weft__image_below(p, "device", t->device, img->n_device))) break;
        if ((rc = weft__image_below(p, "dtype", t->dtype, WEFT_INT8 + 1))) break;
        if ((rc = weft__image_below(p, "layout", t->layout, WEFT_LAYOUT_COUNT))) break;
        if ((rc = weft__image_below(p, "role", t->role, WEFT_ROLE_TABLE + 1))) break;
        if (t->role == WEFT_ROLE_WEIGHT)
            rc = weft__image_below(p, "weight", t->weight, img->n_weight);
        else if (t->weight != WEFT_NONE)
            rc = weft__image_bad(p, "weight", t->weight, "the tensor is not a weight");
        if (!rc) rc = check_tensor_bytes(img, p, t);
    }
    return rc;
}

static int check_weights(const char *file, const weft__image *img)
{
    const uint64_t n_string = img->header->strings.count;
    int rc = 0;
    for (uint32_t i = 0; i < img->n_weight && !rc; i++) {
        const weft_weight *w = &img->weights[i];
        weft__image_place p = {file, "weights", i};
        if ((rc = weft__image_below(p, "fill", w->fill, WEFT_FILL_SEED + 1))) break;
        if ((rc = weft__image_none_or_below(p, "a", w->a, n_string))) break;
        if ((rc = weft__image_none_or_below(p, "b", w->b, n_string))) break;
        if ((rc = weft__image_none_or_below(p, "c", w->c, n_string))) break;
        if ((rc = weft__image_none_or_below(p, "gain", w->gain, n_string))) break;
        if (w->fill == WEFT_FILL_MODEL && w->a == WEFT_NONE)
            rc = weft__image_bad(p, "a", w->a, "a weight of the model needs a name");
        else if (w->b == WEFT_NONE ? w->c != WEFT_NONE : !w->rows_a || !w->rows_b || (!w->rows_c && w->c != WEFT_NONE))
            rc = weft__image_bad(p, "rows_a", w->rows_a, "not one number of rows a name");
        else if (w->rows_a > 1u << 24 || w->rows_b > 1u << 24 || w->rows_c > 1u << 24)
            rc = weft__image_bad(p, "rows_a", w->rows_a, "more rows a turn than 2^24");
        else if (!isfinite(w->scale))
            rc = weft__image_bad(p, "scale", 0, "not finite");
        else if (w->row0 % 16)
            rc = weft__image_bad(p, "row0", w->row0, "not a multiple of 16");
        else if (w->col0 % 64)
            rc = weft__image_bad(p, "col0", w->col0, "not a multiple of 64");
    }
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- queues */

static int check_queues(const char *file, const weft__image *img)
{
    const weft_image_header *h = img->header;
    uint64_t task = 0, side = 0, counter = 0, dep = 0, arg = 0;
    int rc = 0;
    for (uint32_t i = 0; i < h->queues.count && !rc; i++) {
        const weft_image_queue *q = &img->queues[i];
        weft__image_place p = {file, "queues", i};
        if ((rc = follows(p, "task", q->task, q->n_task, &task, h->tasks.count))) break;
        if (q->order != q->task) return weft__image_bad(p, "order", q->order, "does not begin where its tasks do");
        if ((rc = follows(p, "side", q->side, q->n_side, &side, h->side.count))) break;
        if ((rc = follows(p, "counter", q->counter, q->n_counter, &counter, h->counters.count))) break;
        if ((rc = follows(p, "dep", q->dep, q->n_dep, &dep, h->deps.count))) break;
        rc = follows(p, "arg", q->arg, q->n_arg, &arg, h->args.count);
    }
    if (rc) return rc;
    if (h->order.count != h->tasks.count)
        return header_bad(file, "order", h->order.count, "count is not that of tasks");
    if (task != h->tasks.count) return header_bad(file, "tasks", h->tasks.count, "some belong to no queue");
    if (side != h->side.count) return header_bad(file, "side", h->side.count, "some belong to no queue");
    if (counter != h->counters.count) return header_bad(file, "counters", h->counters.count, "some belong to no queue");
    if (dep != h->deps.count) return header_bad(file, "deps", h->deps.count, "some belong to no queue");
    return arg == h->args.count ? 0 : header_bad(file, "args", h->args.count, "some belong to no queue");
}

static int check_gemm_tile(weft__image_place p, const weft_op *op, const weft_task *t)
{
    const int wide = t->kind == WEFT_KIND_GEMM_WIDE;
    const uint32_t groups = weft_div_up(op->n, 16), blocks = weft_div_up(op->k, 64);
    const uint32_t m0 = t->tile[0], g0 = t->tile[1], ng = t->tile[2], kb0 = t->tile[3] & 0xffff, nkb = t->tile[3] >> 16;
    if (m0 >= op->m || m0 % (wide ? 128 : 8))
        return weft__image_bad(p, "tile[0]", m0, "m0 past the op's rows or not aligned");
    const uint32_t rows = op->m < op->m_tile ? op->m : op->m_tile, most = wide ? 16 : weft_stream_groups(rows);
    if (ng < 1 || ng > most) return weft__image_bad(p, "tile[2]", ng, "more groups than a task may take, or none");
    if (g0 >= groups || ng > groups - g0) return weft__image_bad(p, "tile[1]", g0, "groups past the rows of W");
    if (!nkb || nkb > op->split_kb || kb0 >= blocks || nkb > blocks - kb0 || kb0 % op->split_kb) {
        return weft__image_bad(p, "tile[3]", t->tile[3], "K range is not a split of the op");
    }
    if (nkb != op->split_kb && kb0 + nkb != blocks)
        return weft__image_bad(p, "tile[3]", t->tile[3], "K range is not a whole split");
    return 0;
}

static int check_mix_args(const weft__image *img, weft__image_place p, const weft_image_queue *q, uint32_t device,
                          const weft_task *t)
{
    const uint32_t first = t->tile[0], n = t->tile[1];
    if (n < 3 || first > q->n_arg || n > q->n_arg - first)
        return weft__image_bad(p, "tile[0]", first, "its args end past its queue's");
    const uint32_t *a = &img->args[q->arg + first], n_in = a[1];
    if (n_in > n - 3) return weft__image_bad(p, "args.n_in", n_in, "more than its args hold");
    const uint32_t n_out = a[2 + n_in], left = n - 3 - n_in;
    if (n_out != left / 2 || left % 2) return weft__image_bad(p, "args.n_out", n_out, "not what its args hold");
    for (uint32_t i = 0; i < n_in; i++) {
        int rc = weft__image_below(p, "args.in", a[2 + i], img->devices[device].work_bytes / 4);
        if (rc) return rc;
    }
    const uint32_t *out = a + 3 + n_in;
    for (uint32_t i = 0; i < n_out; i++) {
        int rc = weft__image_below(p, "args.device", out[2 * i], img->n_device);
        if (!rc) rc = weft__image_below(p, "args.out", out[2 * i + 1], img->devices[out[2 * i]].work_bytes / 4);
        if (rc) return rc;
    }
    return 0;
}

/* REDUCE, RMSNORM, COPY: a rectangle of rows and groups. */
static int check_rectangle(const weft__image *img, weft__image_place p, const weft_op *op, const weft_task *t)
{
    const uint32_t groups = weft_div_up(op->n, 16);
    if (t->tile[0] >= op->m || !t->tile[3] || t->tile[3] > op->m - t->tile[0]) {
        return weft__image_bad(p, "tile[0]", t->tile[0], "rows past the op's");
    }
    if (t->tile[1] >= groups || !t->tile[2] || t->tile[2] > groups - t->tile[1]) {
        return weft__image_bad(p, "tile[1]", t->tile[1], "groups past the op's");
    }
    if (op->kind == WEFT_KIND_RMSNORM && t->tile[2] != groups)
        return weft__image_bad(p, "tile[2]", t->tile[2], "not whole rows");
    if (op->kind != WEFT_KIND_COPY) return 0;
    const uint32_t rows = img->tensors[op->x].layout == WEFT_LAYOUT_FRAG ? 8 : 16, end = t->tile[0] + t->tile[3];
    if (t->tile[0] % rows || (end % rows && end != op->m))
        return weft__image_bad(p, "tile[0]", t->tile[0], "not whole blocks");
    if (t->tile[1] % 4 || (t->tile[2] % 4 && t->tile[1] + t->tile[2] != groups)) {
        return weft__image_bad(p, "tile[1]", t->tile[1], "not whole blocks");
    }
    return 0;
}

static int check_tile(const weft__image *img, weft__image_place p, const weft_image_queue *q, uint32_t device,
                      const weft_task *t)
{
    const weft_op *op = weft__image_op(img, device, t);
    switch (t->kind) {
    case WEFT_KIND_MIX: return check_mix_args(img, p, q, device, t);
    case WEFT_KIND_GEMM_STREAM:
    case WEFT_KIND_GEMM_WIDE: return check_gemm_tile(p, op, t);
    case WEFT_KIND_REDUCE:
    case WEFT_KIND_RMSNORM:
    case WEFT_KIND_COPY: return check_rectangle(img, p, op, t);
    case WEFT_KIND_SURVEY:
        if (t->tile[2] != op->param[1] || t->tile[1] >= t->tile[2])
            return weft__image_bad(p, "tile[1]", t->tile[1], "not a part of param[1]");
        /* fall through */
    case WEFT_KIND_EMBED:
    case WEFT_KIND_SAMPLE:
        if (t->tile[0] < op->m && t->tile[3] && t->tile[3] <= op->m - t->tile[0]) return 0;
        return weft__image_bad(p, "tile[0]", t->tile[0], "rows past the op's");
    case WEFT_KIND_ROPE: {
        const uint32_t heads = op->param[WEFT_ATTN_KV_HEADS];
        if (t->tile[0] >= op->m || !t->tile[3] || t->tile[3] > op->m - t->tile[0])
            return weft__image_bad(p, "tile[0]", t->tile[0], "rows past the op's");
        if (t->tile[1] < heads && t->tile[2] && t->tile[2] <= heads - t->tile[1]) return 0;
        return weft__image_bad(p, "tile[1]", t->tile[1], "heads past the op's");
    }
    case WEFT_KIND_ATTN:
        return t->tile[0] < t->tile[1] ? 0 : weft__image_bad(p, "tile[0]", t->tile[0], "not a share of tile[1]");
    case WEFT_KIND_ATTN_COMBINE: {
        const uint32_t pairs = op->m * op->param[WEFT_ATTN_KV_HEADS];
        if (t->tile[0] < pairs && t->tile[1] && t->tile[1] <= pairs - t->tile[0]) return 0;
        return weft__image_bad(p, "tile[0]", t->tile[0], "pairs past the op's");
    }
    default: return 0;
    }
}

/* The alternate device has an entry for the op of the same kind. */
static int check_alternate(const weft__image *img, weft__image_place p, uint32_t device, const weft_task *t)
{
    int rc = weft__image_below(p, "alt_device", t->alt_device, img->n_device);
    if (rc) return rc;
    if (t->alt_device == device) return weft__image_bad(p, "alt_device", device, "the task's own");
    if (t->kind == WEFT_KIND_NOP || t->kind == WEFT_KIND_MIX) return 0;
    const weft_op *op = weft__image_op(img, device, t);
    const weft_image_device *alt = &img->devices[t->alt_device];
    if ((rc = weft__image_below(p, "op.alt", op->alt, alt->n_op))) return rc;
    const weft_op *there = &img->ops[alt->op + op->alt];
    if (there->kind != op->kind || !(there->flags & WEFT_OP_ALTERNATE)) {
        return weft__image_bad(p, "op.alt", op->alt, "not an alternate of its kind");
    }
    return 0;
}

static int check_task(const weft__image *img, weft__image_place p, uint32_t variant, uint32_t device,
                      const weft_task *t)
{
    const weft_image_queue *q = weft__image_queue_of(img, variant, device);
    const uint64_t *side = img->side + q->side;
    int rc = weft__image_below(p, "kind", t->kind, WEFT_KIND_COUNT);
    if (!rc) rc = weft__image_below(p, "op", t->op, img->devices[device].n_op);
    if (rc) return rc;
    if (weft__image_op(img, device, t)->kind != t->kind) return weft__image_bad(p, "kind", t->kind, "not its op's");
    if (weft__image_op(img, device, t)->flags & WEFT_OP_ALTERNATE)
        return weft__image_bad(p, "op", t->op, "another device's tasks use it");
    if (t->alt_device != 0xff && (rc = check_alternate(img, p, device, t))) return rc;
    const uint64_t n_side = weft__task_side_waits(t) + (t->n_signal > 2 ? t->n_signal - 2u : 0);
    if (n_side && (t->extra > q->n_side || n_side > q->n_side - t->extra)) {
        return weft__image_bad(p, "extra", t->extra, "its waits and signals end past its queue's side table");
    }
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const weft_wait w = weft__task_wait(t, side, i);
        if ((rc = weft__image_below(p, "wait.counter", w.counter, q->n_counter))) return rc;
        if (w.lag > 1) return weft__image_bad(p, "wait.lag", w.lag, "neither 0 nor 1");
        if (w.arrivals != img->counters[q->counter + w.counter].arrivals) {
            return weft__image_bad(p, "wait.arrivals", w.arrivals, "not the counter's");
        }
    }
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        if ((rc = weft__image_below(p, "signal.device", s.device, img->n_device))) return rc;
        const weft_image_queue *to = weft__image_queue_of(img, variant, s.device);
        if ((rc = weft__image_below(p, "signal.counter", s.counter, to->n_counter))) return rc;
        if (s.scope != img->counters[to->counter + s.counter].scope)
            return weft__image_bad(p, "signal.scope", s.scope, "not the counter's");
    }
    return check_tile(img, p, q, device, t);
}

static int check_queue_lists(const char *file, const weft__image *img, const weft_image_queue *q)
{
    for (uint32_t i = 0; i < q->n_counter; i++) {
        const weft_counter *c = &img->counters[q->counter + i];
        weft__image_place p = {file, "counters", q->counter + i};
        if (c->arrivals < 1 || c->arrivals > UINT16_MAX)
            return weft__image_bad(p, "arrivals", c->arrivals, "not 1..65535");
        if (c->scope > WEFT_SCOPE_SYS) return weft__image_bad(p, "scope", c->scope, "unknown");
        if (c->dep > q->n_dep || c->n_dep > q->n_dep - c->dep)
            return weft__image_bad(p, "dep", c->dep, "ends past its queue's");
    }
    for (uint32_t i = 0; i < q->n_dep; i++) {
        weft__image_place p = {file, "deps", q->dep + i};
        int rc = weft__image_below(p, "task", img->deps[q->dep + i], q->n_task);
        if (rc) return rc;
    }
    uint8_t *seen = calloc(q->n_task / 8 + 1, 1);
    if (!seen) return weft__fail(WEFT_ENOMEM, "%s: order of %u tasks", file, q->n_task);
    int rc = 0;
    for (uint32_t i = 0; i < q->n_task && !rc; i++) {
        const uint32_t t = img->order[q->order + i];
        weft__image_place p = {file, "order", q->order + i};
        rc = weft__image_below(p, "task", t, q->n_task);
        if (!rc && seen[t / 8] >> t % 8 & 1) rc = weft__image_bad(p, "task", t, "listed twice");
        if (!rc) seen[t / 8] |= (uint8_t)(1u << t % 8);
    }
    free(seen);
    return rc;
}

static int check_tasks(const char *file, const weft__image *img)
{
    for (uint32_t v = 0; v < img->n_variant; v++) {
        for (uint32_t d = 0; d < img->n_device; d++) {
            int rc = check_queue_lists(file, img, weft__image_queue_of(img, v, d));
            if (rc) return rc;
        }
        for (uint32_t d = 0; d < img->n_device; d++) {
            const weft_image_queue *q = weft__image_queue_of(img, v, d);
            for (uint32_t i = 0; i < q->n_task; i++) {
                weft__image_place p = {file, "tasks", q->task + i};
                int rc = check_task(img, p, v, d, &img->tasks[q->task + i]);
                if (rc) return rc;
            }
        }
    }
    return 0;
}

int weft__image_open(const void *bytes, uint64_t size, const char *name, weft__image *out)
{
    memset(out, 0, sizeof *out);
    if ((uintptr_t)bytes % 16) return weft__fail(WEFT_EUSAGE, "%s: an image must lie at a multiple of 16", name);
    if (size < sizeof(weft_image_header)) {
        return weft__fail(WEFT_EFILE, "%s: header: %llu bytes, a header has %zu", name, (unsigned long long)size,
                          sizeof(weft_image_header));
    }
    const weft_image_header *h = bytes;
    int rc = check_header(name, h, size);
    if (!rc) rc = check_sections(name, h, size);
    if (rc) return rc;
    if (h->hash != weft__image_hash(bytes, size))
        return header_bad(name, "hash", h->hash, "the bytes have another hash");
    weft__image img;
    fill_view(&img, bytes, size);
    if (h->strings.count && img.strings[h->strings.count - 1]) {
        return header_bad(name, "strings", h->strings.count, "the last string has no end");
    }
    if (h->strategy != WEFT_NONE && h->strategy >= h->strings.count) {
        return header_bad(name, "strategy", h->strategy, "past the strings");
    }
    rc = check_devices(name, &img);
    if (!rc) rc = check_weights(name, &img);
    if (!rc) rc = check_tensors(name, &img);
    if (!rc) rc = weft__image_check_ops(name, &img);
    if (!rc) rc = check_queues(name, &img);
    if (!rc) rc = check_tasks(name, &img);
    if (!rc) *out = img;
    return rc;
}
