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

typedef struct place { /* what a message names */
    const char *file, *section;
    uint64_t index;
} place;

static int bad(place p, const char *field, uint64_t value, const char *why)
{
    return weft__fail(WEFT_EFILE, "%s: %s[%llu].%s is %llu: %s", p.file, p.section, (unsigned long long)p.index, field,
                      (unsigned long long)value, why);
}

static int below(place p, const char *field, uint64_t value, uint64_t limit)
{
    if (value < limit) return 0;
    return weft__fail(WEFT_EFILE, "%s: %s[%llu].%s is %llu: must be below %llu", p.file, p.section,
                      (unsigned long long)p.index, field, (unsigned long long)value, (unsigned long long)limit);
}

static int none_or_below(place p, const char *field, uint32_t value, uint64_t limit)
{
    return value == WEFT_NONE ? 0 : below(p, field, value, limit);
}

/* [first, first + n) lies within `limit` and begins where the range before it ended. */
static int follows(place p, const char *field, uint64_t first, uint64_t n, uint64_t *end, uint64_t limit)
{
    if (first != *end) return bad(p, field, first, "does not begin where the one before it ends");
    if (n > limit - first) return bad(p, field, first, "its range ends past the section");
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
        place p = {file, "devices", d};
        if (dev->workers < 1 || dev->workers > UINT16_MAX) return bad(p, "workers", dev->workers, "not 1..65535");
        if (dev->n_op > 65536) return bad(p, "n_op", dev->n_op, "more than a task can name");
        if (dev->weight_bytes > MAX_ARENA) return bad(p, "weight_bytes", dev->weight_bytes, "over 64 TB");
        if (dev->work_bytes > MAX_ARENA) return bad(p, "work_bytes", dev->work_bytes, "over 64 TB");
        int rc = follows(p, "op", dev->op, dev->n_op, &end, img->n_op);
        if (rc) return rc;
    }
    return end == img->n_op ? 0 : header_bad(file, "ops", img->n_op, "some ops belong to no device");
}

static int check_tensor_bytes(const weft__image *img, place p, const weft_tensor *t)
{
    const weft_image_device *dev = &img->devices[t->device];
    const uint64_t arena = t->role == WEFT_ROLE_WEIGHT ? dev->weight_bytes : dev->work_bytes;
    const uint64_t align = t->role == WEFT_ROLE_PARTIAL ? 64 : t->role == WEFT_ROLE_PACKET ? 256 : 1024;
    if (!t->rows || !t->cols || (uint64_t)t->rows * t->cols > 1ull << 40) {
        return bad(p, "rows", t->rows, "rows x cols is not 1..2^40");
    }
    if (t->splits < 1 || t->splits > UINT16_MAX) return bad(p, "splits", t->splits, "not 1..65535");
    const uint64_t need = weft_layout_bytes(t->layout, t->dtype, t->rows, t->cols, t->splits);
    if (!need) return bad(p, "layout", t->layout, "does not go with dtype and rows");
    if (t->bytes != need) return bad(p, "bytes", t->bytes, "not what layout, rows and cols make");
    if (t->offset % align) return bad(p, "offset", t->offset, "not aligned");
    if (t->offset > arena || t->bytes > arena - t->offset) return bad(p, "offset", t->offset, "ends past its arena");
    return 0;
}

static int check_tensors(const char *file, const weft__image *img)
{
    const uint64_t n_string = img->header->strings.count;
    int rc = 0;
    for (uint32_t i = 0; i < img->n_tensor && !rc; i++) {
        const weft_tensor *t = &img->tensors[i];
        place p = {file, "tensors", i};
        if ((rc = none_or_below(p, "name", t->name, n_string))) break;
        if ((rc = below(p, "device", t->device, img->n_device))) break;
        if ((rc = below(p, "dtype", t->dtype, WEFT_INT8 + 1))) break;
        if ((rc = below(p, "layout", t->layout, WEFT_LAYOUT_COUNT))) break;
        if ((rc = below(p, "role", t->role, WEFT_ROLE_TABLE + 1))) break;
        if (t->role == WEFT_ROLE_WEIGHT)
            rc = below(p, "weight", t->weight, img->n_weight);
        else if (t->weight != WEFT_NONE)
            rc = bad(p, "weight", t->weight, "the tensor is not a weight");
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
        place p = {file, "weights", i};
        if ((rc = below(p, "fill", w->fill, WEFT_FILL_SEED + 1))) break;
        if ((rc = none_or_below(p, "a", w->a, n_string))) break;
        if ((rc = none_or_below(p, "b", w->b, n_string))) break;
        if ((rc = none_or_below(p, "gain", w->gain, n_string))) break;
        if (w->fill == WEFT_FILL_MODEL && w->a == WEFT_NONE)
            rc = bad(p, "a", w->a, "a weight of the model needs a name");
        else if (!isfinite(w->scale))
            rc = bad(p, "scale", 0, "not finite");
        else if (w->row0 % 16)
            rc = bad(p, "row0", w->row0, "not a multiple of 16");
        else if (w->col0 % 64)
            rc = bad(p, "col0", w->col0, "not a multiple of 64");
    }
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- ops */

enum {
    ANYWHERE = 1,
    REQUIRED = 2
};

/* A tensor field of an op: in range, on the op's device unless ANYWHERE, of `rows` x `cols` in `layout` (COUNT:
 * any). */
static int op_tensor(const weft__image *img, place p, const weft_op *op, const char *field, uint32_t id, int flags,
                     uint32_t layout, uint32_t dtype, uint32_t rows, uint32_t cols)
{
    if (id == WEFT_NONE) return flags & REQUIRED ? bad(p, field, id, "missing") : 0;
    int rc = below(p, field, id, img->n_tensor);
    if (rc) return rc;
    const weft_tensor *t = &img->tensors[id];
    const int away = flags & ANYWHERE || (op->flags & WEFT_OP_ALTERNATE && t->role != WEFT_ROLE_WEIGHT);
    if (!away && t->device != op->device) return bad(p, field, id, "tensor lies on another device");
    if (layout != WEFT_LAYOUT_COUNT && t->layout != layout) return bad(p, field, id, "tensor has the wrong layout");
    if (t->dtype != dtype) return bad(p, field, id, "tensor has the wrong dtype");
    if (t->rows != rows) return bad(p, field, id, "tensor has the wrong number of rows");
    if (t->cols != cols) return bad(p, field, id, "tensor has the wrong number of columns");
    return 0;
}

/* Columns of out: n, or, gated, what n / 2 was before it was padded to eights. */
static uint32_t out_cols(const weft__image *img, const weft_op *op)
{
    if (op->epilogue != WEFT_EPI_GATED_SILU) return op->n;
    if (op->out >= img->n_tensor) return op->n / 2;
    const uint32_t cols = img->tensors[op->out].cols;
    return weft_round_up64(cols, 8) == op->n / 2 ? cols : op->n / 2;
}

static int check_linear_out(const weft__image *img, place p, const weft_op *op)
{
    const uint32_t cols = out_cols(img, op), any = WEFT_LAYOUT_COUNT;
    const int packet_out = op->flags & WEFT_OP_OUT_PACKET, packet_aux = op->flags & WEFT_OP_AUX_PACKET;
    int rc = op_tensor(img, p, op, "out", op->out, ANYWHERE | REQUIRED, any, op->dtype, op->m, cols);
    if (rc) return rc;
    if (op->epilogue == WEFT_EPI_RESIDUAL) {
        rc = op_tensor(img, p, op, "aux", op->aux, REQUIRED, any, op->dtype, op->m, cols);
    } else if (op->epilogue == WEFT_EPI_BIAS) {
        rc = op_tensor(img, p, op, "aux", op->aux, REQUIRED, WEFT_LAYOUT_ROW, WEFT_FP32, 1, cols);
    } else if (op->aux != WEFT_NONE) {
        rc = bad(p, "aux", op->aux, "the epilogue has no second input");
    }
    if (rc) return rc;
    rc = op_tensor(img, p, op, "pk_out", op->pk_out, ANYWHERE | (packet_out ? REQUIRED : 0), WEFT_LAYOUT_PACKET,
                   op->dtype, op->m, cols);
    if (rc) return rc;
    if (packet_aux && op->epilogue != WEFT_EPI_RESIDUAL)
        return bad(p, "flags", op->flags, "packets of an aux it lacks");
    return op_tensor(img, p, op, "pk_aux", op->pk_aux, packet_aux ? REQUIRED : 0, WEFT_LAYOUT_PACKET, op->dtype, op->m,
                     cols);
}

/* The sums of squares that go with a partial, where the op has them. */
static int check_squares(const weft__image *img, place p, const weft_op *op, int flags)
{
    const int has = (op->flags & WEFT_OP_NORM) != 0;
    int rc = op_tensor(img, p, op, "squares", op->squares, has ? REQUIRED | flags : flags, WEFT_LAYOUT_PARTIAL,
                       WEFT_FP32, op->m, weft_div_up(op->n, 16));
    if (rc || op->squares == WEFT_NONE) return rc;
    if (!has) return bad(p, "squares", op->squares, "the op does not normalise");
    if (img->tensors[op->squares].splits != op->n_split)
        return bad(p, "squares", op->squares, "wrong number of splits");
    return 0;
}

static int check_gemm(const weft__image *img, place p, const weft_op *op)
{
    const int wide = op->kind == WEFT_KIND_GEMM_WIDE, packet_x = op->flags & WEFT_OP_X_PACKET;
    int rc = op_tensor(img, p, op, "w", op->w, REQUIRED, WEFT_LAYOUT_ATOM, op->dtype, op->n, op->k);
    if (rc) return rc;
    if (img->tensors[op->w].role != WEFT_ROLE_WEIGHT) return bad(p, "w", op->w, "the tensor is not a weight");
    rc = op_tensor(img, p, op, "x", op->x, REQUIRED, wide ? WEFT_LAYOUT_PANEL : WEFT_LAYOUT_FRAG, op->dtype, op->m,
                   op->k);
    if (rc) return rc;
    if (wide && packet_x) return bad(p, "flags", op->flags, "a wide GEMM reads no packets");
    rc = op_tensor(img, p, op, "pk_x", op->pk_x, packet_x ? REQUIRED : 0, WEFT_LAYOUT_PACKET, op->dtype, op->m, op->k);
    if (rc) return rc;
    if (op->k > 65535u * 64) return bad(p, "k", op->k, "more than 65535 blocks of 64");
    if (wide ? op->m_tile != 128 : (op->m_tile % 8 || op->m_tile < 8 || op->m_tile > 64)) {
        return bad(p, "m_tile", op->m_tile, wide ? "not 128" : "not a multiple of 8 up to 64");
    }
    if (!op->split_kb || op->n_split != weft_div_up(weft_div_up(op->k, 64), op->split_kb)) {
        return bad(p, "n_split", op->n_split, "not the K blocks by split_kb");
    }
    if (!(op->flags & WEFT_OP_PARTIAL)) {
        return op->n_split == 1 ? check_linear_out(img, p, op) : bad(p, "n_split", op->n_split, "splits need PARTIAL");
    }
    rc = op_tensor(img, p, op, "partial", op->partial, ANYWHERE | REQUIRED, WEFT_LAYOUT_PARTIAL, WEFT_FP32, op->m,
                   op->n);
    if (!rc && img->tensors[op->partial].splits != op->n_split)
        rc = bad(p, "partial", op->partial, "wrong number of splits");
    return rc ? rc : check_squares(img, p, op, ANYWHERE);
}

static int check_reduce(const weft__image *img, place p, const weft_op *op)
{
    int rc = op_tensor(img, p, op, "partial", op->partial, REQUIRED, WEFT_LAYOUT_PARTIAL, WEFT_FP32, op->m, op->n);
    if (rc) return rc;
    if (op->n_split != img->tensors[op->partial].splits)
        return bad(p, "n_split", op->n_split, "not those of its partial");
    if (op->flags & (WEFT_OP_PARTIAL | WEFT_OP_X_PACKET)) return bad(p, "flags", op->flags, "not of a REDUCE");
    if (!op->m_tile) return bad(p, "m_tile", 0, "must not be 0");
    if (op->flags & WEFT_OP_NORM && !op->k) return bad(p, "k", 0, "must not be 0");
    rc = check_squares(img, p, op, 0);
    return rc ? rc : check_linear_out(img, p, op);
}

/* RMSNORM and COPY: x, perhaps a gain, out of the same shape. Copies move whole blocks of one layout. */
static int check_rows(const weft__image *img, place p, const weft_op *op)
{
    const int norm = op->kind == WEFT_KIND_RMSNORM;
    int rc = op_tensor(img, p, op, "x", op->x, REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->n);
    if (rc) return rc;
    const uint32_t layout = img->tensors[op->x].layout;
    if (op->k != op->n) return bad(p, "k", op->k, "not n");
    if (layout != WEFT_LAYOUT_FRAG && layout != WEFT_LAYOUT_PANEL) return bad(p, "x", op->x, "neither FRAG nor PANEL");
    if (op->flags & ~(uint32_t)(WEFT_OP_OUT_PACKET | WEFT_OP_ALTERNATE))
        return bad(p, "flags", op->flags, "not of such an op");
    if (op->epilogue != WEFT_EPI_NONE) return bad(p, "epilogue", op->epilogue, "such an op has none");
    if (!op->m_tile) return bad(p, "m_tile", 0, "must not be 0");
    rc = op_tensor(img, p, op, "w", op->w, 0, WEFT_LAYOUT_ROW, WEFT_FP32, 1, op->n);
    if (!rc && !norm && op->w != WEFT_NONE) rc = bad(p, "w", op->w, "a copy has no gain");
    if (!rc) rc = check_linear_out(img, p, op);
    if (!rc && !norm && img->tensors[op->out].layout != layout) rc = bad(p, "out", op->out, "not in the layout of x");
    return rc;
}

static int check_attn(const weft__image *img, place p, const weft_op *op)
{
    const uint32_t heads = op->param[WEFT_ATTN_HEADS], kv_heads = op->param[WEFT_ATTN_KV_HEADS],
                   dim = op->param[WEFT_ATTN_HEAD_DIM], blocks = op->param[WEFT_ATTN_MAX_BLOCKS],
                   pages = op->param[WEFT_ATTN_MAX_PAGES], row = WEFT_LAYOUT_ROW;
    if (op->m > 64) return bad(p, "m", op->m, "more sequences than a step record names");
    if (!kv_heads || !heads || heads % kv_heads || heads > 65536)
        return bad(p, "param[1]", kv_heads, "does not divide heads");
    if (!dim || dim % 64 || dim > 512) return bad(p, "param[2]", dim, "head_dim is not a multiple of 64 up to 512");
    if (op->param[WEFT_ATTN_PAGE_TOKENS] != WEFT_ATTN_PAGE)
        return bad(p, "param[3]", op->param[3], "pages hold 64 tokens");
    if (!blocks || blocks > 1u << 16) return bad(p, "param[4]", blocks, "max_blocks is not 1..65536");
    if (op->n != heads * dim) return bad(p, "n", op->n, "not heads x head_dim");
    const uint32_t units = op->m * kv_heads * blocks, floats = (uint32_t)weft_attn_unit_floats(heads / kv_heads, dim);
    if ((uint64_t)op->m * kv_heads * blocks != units) return bad(p, "param[4]", blocks, "too many units");
    int rc = op_tensor(img, p, op, "partial", op->partial, REQUIRED, row, WEFT_FP32, units, floats);
    if (rc) return rc;
    if (op->kind == WEFT_KIND_ATTN_COMBINE) {
        return op_tensor(img, p, op, "out", op->out, ANYWHERE | REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->n);
    }
    rc = op_tensor(img, p, op, "x", op->x, REQUIRED, row, op->dtype, op->m, op->n);
    if (!rc) rc = op_tensor(img, p, op, "aux", op->aux, REQUIRED, row, WEFT_U32, op->m, pages);
    if (!rc && op->w == WEFT_NONE) rc = bad(p, "w", op->w, "missing");
    if (!rc)
        rc = op_tensor(img, p, op, "w", op->w, REQUIRED, row, op->dtype, img->tensors[op->w].rows,
                       dim * WEFT_ATTN_PAGE);
    if (!rc && img->tensors[op->w].role != WEFT_ROLE_KV) rc = bad(p, "w", op->w, "the tensor is no KV cache");
    return rc;
}

static int check_op(const weft__image *img, place p, const weft_op *op)
{
    int rc = none_or_below(p, "name", op->name, img->header->strings.count);
    if (!rc) rc = below(p, "kind", op->kind, WEFT_KIND_COUNT);
    if (!rc) rc = below(p, "dtype", op->dtype, WEFT_INT8 + 1);
    if (!rc) rc = below(p, "epilogue", op->epilogue, WEFT_EPI_GELU + 1);
    if (!rc) rc = below(p, "flags", op->flags & ~(uint32_t)WEFT_OP_ALTERNATE, WEFT_OP_PARTIAL * 2);
    if (!rc && !isfinite(op->eps)) rc = bad(p, "eps", 0, "not finite");
    const uint32_t ids[] = {op->x,    op->w,      op->out,    op->aux,     op->scale,
                            op->pk_x, op->pk_out, op->pk_aux, op->partial, op->squares};
    static const char *const names[] = {"x",    "w",      "out",    "aux",     "scale",
                                        "pk_x", "pk_out", "pk_aux", "partial", "squares"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids && !rc; i++)
        rc = none_or_below(p, names[i], ids[i], img->n_tensor);
    if (!rc) rc = none_or_below(p, "cost", op->cost, img->header->costs.count / img->n_device);
    if (rc) return rc;
    if (op->kind == WEFT_KIND_NOP || op->kind == WEFT_KIND_MIX) return 0;
    if (!op->m || !op->n) return bad(p, op->m ? "n" : "m", 0, "must not be 0");
    if (op->dtype != WEFT_BF16 && op->dtype != WEFT_FP16) return bad(p, "dtype", op->dtype, "neither bf16 nor fp16");
    if (op->epilogue == WEFT_EPI_GATED_SILU && op->n % 16) return bad(p, "n", op->n, "gated, but not a multiple of 16");
    if (op->kind == WEFT_KIND_ATTN || op->kind == WEFT_KIND_ATTN_COMBINE) return check_attn(img, p, op);
    if (op->kind == WEFT_KIND_REDUCE) return check_reduce(img, p, op);
    if (op->kind == WEFT_KIND_RMSNORM || op->kind == WEFT_KIND_COPY) return check_rows(img, p, op);
    return op->k ? check_gemm(img, p, op) : bad(p, "k", 0, "must not be 0");
}

static int check_ops(const char *file, const weft__image *img)
{
    int rc = 0;
    for (uint32_t d = 0; d < img->n_device; d++) {
        for (uint32_t i = 0; i < img->devices[d].n_op && !rc; i++) {
            const uint32_t id = img->devices[d].op + i;
            place p = {file, "ops", id};
            if (img->ops[id].device != d)
                return bad(p, "device", img->ops[id].device, "not the device it is listed with");
            rc = check_op(img, p, &img->ops[id]);
        }
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
        place p = {file, "queues", i};
        if ((rc = follows(p, "task", q->task, q->n_task, &task, h->tasks.count))) break;
        if (q->order != q->task) return bad(p, "order", q->order, "does not begin where its tasks do");
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

static int check_gemm_tile(place p, const weft_op *op, const weft_task *t)
{
    const int wide = t->kind == WEFT_KIND_GEMM_WIDE;
    const uint32_t groups = weft_div_up(op->n, 16), blocks = weft_div_up(op->k, 64);
    const uint32_t m0 = t->tile[0], g0 = t->tile[1], ng = t->tile[2], kb0 = t->tile[3] & 0xffff, nkb = t->tile[3] >> 16;
    if (m0 >= op->m || m0 % (wide ? 128 : 8)) return bad(p, "tile[0]", m0, "m0 past the op's rows or not aligned");
    const uint32_t rows = op->m < op->m_tile ? op->m : op->m_tile, most = wide ? 16 : weft_stream_groups(rows);
    if (ng < 1 || ng > most) return bad(p, "tile[2]", ng, "more groups than a task may take, or none");
    if (g0 >= groups || ng > groups - g0) return bad(p, "tile[1]", g0, "groups past the rows of W");
    if (!nkb || nkb > op->split_kb || kb0 >= blocks || nkb > blocks - kb0 || kb0 % op->split_kb) {
        return bad(p, "tile[3]", t->tile[3], "K range is not a split of the op");
    }
    if (nkb != op->split_kb && kb0 + nkb != blocks)
        return bad(p, "tile[3]", t->tile[3], "K range is not a whole split");
    return 0;
}

static int check_mix_args(const weft__image *img, place p, const weft_image_queue *q, uint32_t device,
                          const weft_task *t)
{
    const uint32_t first = t->tile[0], n = t->tile[1];
    if (n < 3 || first > q->n_arg || n > q->n_arg - first)
        return bad(p, "tile[0]", first, "its args end past its queue's");
    const uint32_t *a = &img->args[q->arg + first], n_in = a[1];
    if (n_in > n - 3) return bad(p, "args.n_in", n_in, "more than its args hold");
    const uint32_t n_out = a[2 + n_in], left = n - 3 - n_in;
    if (n_out != left / 2 || left % 2) return bad(p, "args.n_out", n_out, "not what its args hold");
    for (uint32_t i = 0; i < n_in; i++) {
        int rc = below(p, "args.in", a[2 + i], img->devices[device].work_bytes / 4);
        if (rc) return rc;
    }
    const uint32_t *out = a + 3 + n_in;
    for (uint32_t i = 0; i < n_out; i++) {
        int rc = below(p, "args.device", out[2 * i], img->n_device);
        if (!rc) rc = below(p, "args.out", out[2 * i + 1], img->devices[out[2 * i]].work_bytes / 4);
        if (rc) return rc;
    }
    return 0;
}

/* REDUCE, RMSNORM, COPY: a rectangle of rows and groups. */
static int check_rectangle(const weft__image *img, place p, const weft_op *op, const weft_task *t)
{
    const uint32_t groups = weft_div_up(op->n, 16);
    if (t->tile[0] >= op->m || !t->tile[3] || t->tile[3] > op->m - t->tile[0]) {
        return bad(p, "tile[0]", t->tile[0], "rows past the op's");
    }
    if (t->tile[1] >= groups || !t->tile[2] || t->tile[2] > groups - t->tile[1]) {
        return bad(p, "tile[1]", t->tile[1], "groups past the op's");
    }
    if (op->kind == WEFT_KIND_RMSNORM && t->tile[2] != groups) return bad(p, "tile[2]", t->tile[2], "not whole rows");
    if (op->kind != WEFT_KIND_COPY) return 0;
    const uint32_t rows = img->tensors[op->x].layout == WEFT_LAYOUT_FRAG ? 8 : 16, end = t->tile[0] + t->tile[3];
    if (t->tile[0] % rows || (end % rows && end != op->m)) return bad(p, "tile[0]", t->tile[0], "not whole blocks");
    if (t->tile[1] % 4 || (t->tile[2] % 4 && t->tile[1] + t->tile[2] != groups)) {
        return bad(p, "tile[1]", t->tile[1], "not whole blocks");
    }
    return 0;
}

static int check_tile(const weft__image *img, place p, const weft_image_queue *q, uint32_t device, const weft_task *t)
{
    const weft_op *op = weft__image_op(img, device, t);
    switch (t->kind) {
    case WEFT_KIND_MIX: return check_mix_args(img, p, q, device, t);
    case WEFT_KIND_GEMM_STREAM:
    case WEFT_KIND_GEMM_WIDE: return check_gemm_tile(p, op, t);
    case WEFT_KIND_REDUCE:
    case WEFT_KIND_RMSNORM:
    case WEFT_KIND_COPY: return check_rectangle(img, p, op, t);
    case WEFT_KIND_ATTN: return t->tile[0] < t->tile[1] ? 0 : bad(p, "tile[0]", t->tile[0], "not a share of tile[1]");
    case WEFT_KIND_ATTN_COMBINE: {
        const uint32_t pairs = op->m * op->param[WEFT_ATTN_KV_HEADS];
        if (t->tile[0] < pairs && t->tile[1] && t->tile[1] <= pairs - t->tile[0]) return 0;
        return bad(p, "tile[0]", t->tile[0], "pairs past the op's");
    }
    default: return 0;
    }
}

/* The alternate device has an entry for the op of the same kind. */
static int check_alternate(const weft__image *img, place p, uint32_t device, const weft_task *t)
{
    int rc = below(p, "alt_device", t->alt_device, img->n_device);
    if (rc) return rc;
    if (t->alt_device == device) return bad(p, "alt_device", device, "the task's own");
    if (t->kind == WEFT_KIND_NOP || t->kind == WEFT_KIND_MIX) return 0;
    const weft_op *op = weft__image_op(img, device, t);
    const weft_image_device *alt = &img->devices[t->alt_device];
    if ((rc = below(p, "op.alt", op->alt, alt->n_op))) return rc;
    const weft_op *there = &img->ops[alt->op + op->alt];
    if (there->kind != op->kind || !(there->flags & WEFT_OP_ALTERNATE)) {
        return bad(p, "op.alt", op->alt, "not an alternate of its kind");
    }
    return 0;
}

static int check_task(const weft__image *img, place p, uint32_t variant, uint32_t device, const weft_task *t)
{
    const weft_image_queue *q = weft__image_queue_of(img, variant, device);
    const uint64_t *side = img->side + q->side;
    int rc = below(p, "kind", t->kind, WEFT_KIND_COUNT);
    if (!rc) rc = below(p, "op", t->op, img->devices[device].n_op);
    if (rc) return rc;
    if (weft__image_op(img, device, t)->kind != t->kind) return bad(p, "kind", t->kind, "not its op's");
    if (weft__image_op(img, device, t)->flags & WEFT_OP_ALTERNATE)
        return bad(p, "op", t->op, "another device's tasks use it");
    if (t->alt_device != 0xff && (rc = check_alternate(img, p, device, t))) return rc;
    const uint64_t n_side = weft__task_side_waits(t) + (t->n_signal > 2 ? t->n_signal - 2u : 0);
    if (n_side && (t->extra > q->n_side || n_side > q->n_side - t->extra)) {
        return bad(p, "extra", t->extra, "its waits and signals end past its queue's side table");
    }
    for (uint32_t i = 0; i < t->n_wait; i++) {
        const weft_wait w = weft__task_wait(t, side, i);
        if ((rc = below(p, "wait.counter", w.counter, q->n_counter))) return rc;
        if (w.lag > 1) return bad(p, "wait.lag", w.lag, "neither 0 nor 1");
        if (w.arrivals != img->counters[q->counter + w.counter].arrivals) {
            return bad(p, "wait.arrivals", w.arrivals, "not the counter's");
        }
    }
    for (uint32_t i = 0; i < t->n_signal; i++) {
        const weft_signal s = weft__task_signal(t, side, i);
        if ((rc = below(p, "signal.device", s.device, img->n_device))) return rc;
        const weft_image_queue *to = weft__image_queue_of(img, variant, s.device);
        if ((rc = below(p, "signal.counter", s.counter, to->n_counter))) return rc;
        if (s.scope != img->counters[to->counter + s.counter].scope)
            return bad(p, "signal.scope", s.scope, "not the counter's");
    }
    return check_tile(img, p, q, device, t);
}

static int check_queue_lists(const char *file, const weft__image *img, const weft_image_queue *q)
{
    for (uint32_t i = 0; i < q->n_counter; i++) {
        const weft_counter *c = &img->counters[q->counter + i];
        place p = {file, "counters", q->counter + i};
        if (c->arrivals < 1 || c->arrivals > UINT16_MAX) return bad(p, "arrivals", c->arrivals, "not 1..65535");
        if (c->scope > WEFT_SCOPE_SYS) return bad(p, "scope", c->scope, "unknown");
        if (c->dep > q->n_dep || c->n_dep > q->n_dep - c->dep) return bad(p, "dep", c->dep, "ends past its queue's");
    }
    for (uint32_t i = 0; i < q->n_dep; i++) {
        place p = {file, "deps", q->dep + i};
        int rc = below(p, "task", img->deps[q->dep + i], q->n_task);
        if (rc) return rc;
    }
    uint8_t *seen = calloc(q->n_task / 8 + 1, 1);
    if (!seen) return weft__fail(WEFT_ENOMEM, "%s: order of %u tasks", file, q->n_task);
    int rc = 0;
    for (uint32_t i = 0; i < q->n_task && !rc; i++) {
        const uint32_t t = img->order[q->order + i];
        place p = {file, "order", q->order + i};
        rc = below(p, "task", t, q->n_task);
        if (!rc && seen[t / 8] >> t % 8 & 1) rc = bad(p, "task", t, "listed twice");
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
                place p = {file, "tasks", q->task + i};
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
    if (!rc) rc = check_ops(name, &img);
    if (!rc) rc = check_queues(name, &img);
    if (!rc) rc = check_tasks(name, &img);
    if (!rc) *out = img;
    return rc;
}
