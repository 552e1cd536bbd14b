/* image_ops.c: are the ops of an image such that their tasks' bodies need not look? Called by image_check.c, which has
 * checked devices, tensors and weights. */
#include "image_internal.h"

#include "../tasks/attn.h"

#include <math.h>

enum {
    ANYWHERE = 1,
    REQUIRED = 2
};

/* A tensor field of an op: in range, on the op's device unless ANYWHERE, of `rows` x `cols` in `layout` (COUNT:
 * any). */
static int op_tensor(const weft__image *img, weft__image_place p, const weft_op *op, const char *field, uint32_t id,
                     int flags, uint32_t layout, uint32_t dtype, uint32_t rows, uint32_t cols)
{
    if (id == WEFT_NONE) return flags & REQUIRED ? weft__image_bad(p, field, id, "missing") : 0;
    int rc = weft__image_below(p, field, id, img->n_tensor);
    if (rc) return rc;
    const weft_tensor *t = &img->tensors[id];
    const int away = flags & ANYWHERE || (op->flags & WEFT_OP_ALTERNATE && t->role != WEFT_ROLE_WEIGHT);
    if (!away && t->device != op->device) return weft__image_bad(p, field, id, "tensor lies on another device");
    if (layout != WEFT_LAYOUT_COUNT && t->layout != layout)
        return weft__image_bad(p, field, id, "tensor has the wrong layout");
    if (t->dtype != dtype) return weft__image_bad(p, field, id, "tensor has the wrong dtype");
    if (t->rows != rows) return weft__image_bad(p, field, id, "tensor has the wrong number of rows");
    if (t->cols != cols) return weft__image_bad(p, field, id, "tensor has the wrong number of columns");
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

static int check_linear_out(const weft__image *img, weft__image_place p, const weft_op *op)
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
        rc = weft__image_bad(p, "aux", op->aux, "the epilogue has no second input");
    }
    if (rc) return rc;
    rc = op_tensor(img, p, op, "pk_out", op->pk_out, ANYWHERE | (packet_out ? REQUIRED : 0), WEFT_LAYOUT_PACKET,
                   op->dtype, op->m, cols);
    if (rc) return rc;
    if (packet_aux && op->epilogue != WEFT_EPI_RESIDUAL)
        return weft__image_bad(p, "flags", op->flags, "packets of an aux it lacks");
    return op_tensor(img, p, op, "pk_aux", op->pk_aux, packet_aux ? REQUIRED : 0, WEFT_LAYOUT_PACKET, op->dtype, op->m,
                     cols);
}

/* The sums of squares that go with a partial, where the op has them. */
static int check_squares(const weft__image *img, weft__image_place p, const weft_op *op, int flags)
{
    const int has = (op->flags & WEFT_OP_NORM) != 0;
    int rc = op_tensor(img, p, op, "squares", op->squares, has ? REQUIRED | flags : flags, WEFT_LAYOUT_PARTIAL,
                       WEFT_FP32, op->m, weft_div_up(op->n, 16));
    if (rc || op->squares == WEFT_NONE) return rc;
    if (!has) return weft__image_bad(p, "squares", op->squares, "the op does not normalise");
    if (img->tensors[op->squares].splits != op->n_split)
        return weft__image_bad(p, "squares", op->squares, "wrong number of splits");
    return 0;
}

static int check_gemm(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const int wide = op->kind == WEFT_KIND_GEMM_WIDE, packet_x = op->flags & WEFT_OP_X_PACKET;
    int rc = op_tensor(img, p, op, "w", op->w, REQUIRED, WEFT_LAYOUT_ATOM, op->dtype, op->n, op->k);
    if (rc) return rc;
    if (img->tensors[op->w].role != WEFT_ROLE_WEIGHT)
        return weft__image_bad(p, "w", op->w, "the tensor is not a weight");
    rc = op_tensor(img, p, op, "x", op->x, REQUIRED, wide ? WEFT_LAYOUT_PANEL : WEFT_LAYOUT_FRAG, op->dtype, op->m,
                   op->k);
    if (rc) return rc;
    if (wide && packet_x) return weft__image_bad(p, "flags", op->flags, "a wide GEMM reads no packets");
    rc = op_tensor(img, p, op, "pk_x", op->pk_x, packet_x ? REQUIRED : 0, WEFT_LAYOUT_PACKET, op->dtype, op->m, op->k);
    if (rc) return rc;
    if (op->k > 65535u * 64) return weft__image_bad(p, "k", op->k, "more than 65535 blocks of 64");
    if (wide ? op->m_tile != 128 : (op->m_tile % 8 || op->m_tile < 8 || op->m_tile > 64)) {
        return weft__image_bad(p, "m_tile", op->m_tile, wide ? "not 128" : "not a multiple of 8 up to 64");
    }
    if (!op->split_kb || op->n_split != weft_div_up(weft_div_up(op->k, 64), op->split_kb)) {
        return weft__image_bad(p, "n_split", op->n_split, "not the K blocks by split_kb");
    }
    if (!(op->flags & WEFT_OP_PARTIAL)) {
        return op->n_split == 1 ? check_linear_out(img, p, op)
                                : weft__image_bad(p, "n_split", op->n_split, "splits need PARTIAL");
    }
    rc = op_tensor(img, p, op, "partial", op->partial, ANYWHERE | REQUIRED, WEFT_LAYOUT_PARTIAL, WEFT_FP32, op->m,
                   op->n);
    if (!rc && img->tensors[op->partial].splits != op->n_split)
        rc = weft__image_bad(p, "partial", op->partial, "wrong number of splits");
    return rc ? rc : check_squares(img, p, op, ANYWHERE);
}

static int check_reduce(const weft__image *img, weft__image_place p, const weft_op *op)
{
    int rc = op_tensor(img, p, op, "partial", op->partial, REQUIRED, WEFT_LAYOUT_PARTIAL, WEFT_FP32, op->m, op->n);
    if (rc) return rc;
    if (op->n_split != img->tensors[op->partial].splits)
        return weft__image_bad(p, "n_split", op->n_split, "not those of its partial");
    if (op->flags & (WEFT_OP_PARTIAL | WEFT_OP_X_PACKET))
        return weft__image_bad(p, "flags", op->flags, "not of a REDUCE");
    if (!op->m_tile) return weft__image_bad(p, "m_tile", 0, "must not be 0");
    if (op->flags & WEFT_OP_NORM && !op->k) return weft__image_bad(p, "k", 0, "must not be 0");
    rc = check_squares(img, p, op, 0);
    return rc ? rc : check_linear_out(img, p, op);
}

/* RMSNORM and COPY: x, perhaps a gain, out of the same shape. Copies move whole blocks of one layout. */
static int check_rows(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const int norm = op->kind == WEFT_KIND_RMSNORM;
    int rc = op_tensor(img, p, op, "x", op->x, REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->n);
    if (rc) return rc;
    const uint32_t layout = img->tensors[op->x].layout;
    if (op->k != op->n) return weft__image_bad(p, "k", op->k, "not n");
    if (layout != WEFT_LAYOUT_FRAG && layout != WEFT_LAYOUT_PANEL)
        return weft__image_bad(p, "x", op->x, "neither FRAG nor PANEL");
    if (op->flags & ~(uint32_t)(WEFT_OP_OUT_PACKET | WEFT_OP_ALTERNATE))
        return weft__image_bad(p, "flags", op->flags, "not of such an op");
    if (op->epilogue != WEFT_EPI_NONE) return weft__image_bad(p, "epilogue", op->epilogue, "such an op has none");
    if (!op->m_tile) return weft__image_bad(p, "m_tile", 0, "must not be 0");
    rc = op_tensor(img, p, op, "w", op->w, 0, WEFT_LAYOUT_ROW, WEFT_FP32, 1, op->n);
    if (!rc && !norm && op->w != WEFT_NONE) rc = weft__image_bad(p, "w", op->w, "a copy has no gain");
    if (!rc) rc = check_linear_out(img, p, op);
    if (!rc && !norm && img->tensors[op->out].layout != layout)
        rc = weft__image_bad(p, "out", op->out, "not in the layout of x");
    return rc;
}

/* The KV cache and the page table of ATTN and ROPE. */
static int check_cache(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const uint32_t row = WEFT_LAYOUT_ROW, kv_heads = op->param[WEFT_ATTN_KV_HEADS];
    if (op->aux == WEFT_NONE || op->w == WEFT_NONE)
        return weft__image_bad(p, op->w == WEFT_NONE ? "w" : "aux", WEFT_NONE, "missing");
    const weft_tensor *table = &img->tensors[op->aux], *cache = &img->tensors[op->w];
    int rc = op_tensor(img, p, op, "aux", op->aux, REQUIRED, row, WEFT_U32, table->rows,
                       op->param[WEFT_ATTN_MAX_PAGES]);
    if (!rc)
        rc = op_tensor(img, p, op, "w", op->w, REQUIRED, row, op->dtype, cache->rows,
                       op->param[WEFT_ATTN_HEAD_DIM] * WEFT_ATTN_PAGE);
    if (rc) return rc;
    if (table->role != WEFT_ROLE_TABLE) return weft__image_bad(p, "aux", op->aux, "the tensor is no page table");
    if (cache->role != WEFT_ROLE_KV) return weft__image_bad(p, "w", op->w, "the tensor is no KV cache");
    return cache->rows % (2 * kv_heads) ? weft__image_bad(p, "w", op->w, "not whole pages of all KV heads") : 0;
}

/* A tensor whose number of rows is its own business; -1 columns: and that of columns too. */
static int any_rows(const weft__image *img, weft__image_place p, const weft_op *op, const char *field, uint32_t id,
                    int flags, uint32_t dtype, uint32_t cols, uint32_t role)
{
    if (id == WEFT_NONE) return flags & REQUIRED ? weft__image_bad(p, field, id, "missing") : 0;
    const weft_tensor *t = &img->tensors[id]; /* ids are in range */
    int rc = op_tensor(img, p, op, field, id, flags, WEFT_LAYOUT_ROW, dtype, t->rows,
                       cols == WEFT_NONE ? t->cols : cols);
    return rc || t->role == role ? rc : weft__image_bad(p, field, id, "the tensor has the wrong role");
}

static int check_pages(const weft__image *img, weft__image_place p, const weft_op *op)
{
    return any_rows(img, p, op, "out", op->out, REQUIRED, WEFT_U32, WEFT_NONE, WEFT_ROLE_TABLE);
}

/* Tokens fed back. */
static int check_fed(const weft__image *img, weft__image_place p, const weft_op *op, const char *field, uint32_t id,
                     int flags)
{
    int rc = any_rows(img, p, op, field, id, flags | REQUIRED, WEFT_U32, WEFT_MAX_ROWS, WEFT_ROLE_TABLE);
    return rc || img->tensors[id].rows == 2 ? rc : weft__image_bad(p, field, id, "not of two rows");
}

static int check_embed(const weft__image *img, weft__image_place p, const weft_op *op)
{
    if (op->m > WEFT_MAX_ROWS) return weft__image_bad(p, "m", op->m, "more rows than a step record names");
    if (!op->k || !op->m_tile) return weft__image_bad(p, "k", op->k, "nothing to embed");
    int rc = check_fed(img, p, op, "x", op->x, 0);
    if (!rc) rc = op_tensor(img, p, op, "w", op->w, REQUIRED, WEFT_LAYOUT_ATOM, op->dtype, op->n, op->k);
    if (!rc)
        rc = op_tensor(img, p, op, "out", op->out, ANYWHERE | REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->k);
    if (rc) return rc;
    return op_tensor(img, p, op, "pk_out", op->pk_out, ANYWHERE | (op->flags & WEFT_OP_OUT_PACKET ? REQUIRED : 0),
                     WEFT_LAYOUT_PACKET, op->dtype, op->m, op->k);
}

static int check_rope(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const uint32_t heads = op->param[WEFT_ATTN_HEADS], kv_heads = op->param[WEFT_ATTN_KV_HEADS],
                   dim = op->param[WEFT_ATTN_HEAD_DIM], turn = op->flags & WEFT_OP_NORM ? dim / 2 + 2 * dim : dim / 2;
    if (op->k != (heads + 2 * kv_heads) * dim) return weft__image_bad(p, "k", op->k, "not queries, keys and values");
    if (!op->m_tile) return weft__image_bad(p, "m_tile", 0, "must not be 0");
    int rc = op_tensor(img, p, op, "x", op->x, REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->k);
    if (!rc) rc = op_tensor(img, p, op, "out", op->out, REQUIRED, WEFT_LAYOUT_ROW, op->dtype, op->m, op->n);
    if (!rc) rc = op_tensor(img, p, op, "scale", op->scale, REQUIRED, WEFT_LAYOUT_ROW, WEFT_FP32, 1, turn);
    return rc ? rc : check_cache(img, p, op);
}

/* Logits, and the norm that is left to whoever reads them. */
static int check_logits(const weft__image *img, weft__image_place p, const weft_op *op)
{
    if (op->m > WEFT_MAX_ROWS) return weft__image_bad(p, "m", op->m, "more rows than a step record names");
    if (!op->k || !op->m_tile) return weft__image_bad(p, "k", op->k, "must not be 0");
    if (op->n > 1u << 24) return weft__image_bad(p, "n", op->n, "more tokens than 2^24");
    int rc = op_tensor(img, p, op, "partial", op->partial, REQUIRED, WEFT_LAYOUT_PARTIAL, WEFT_FP32, op->m, op->n);
    if (!rc && (op->n_split != 1 || img->tensors[op->partial].splits != 1))
        rc = weft__image_bad(p, "n_split", op->n_split, "logits are not split");
    return rc ? rc : check_squares(img, p, op, 0);
}

static int check_survey(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const uint32_t parts = op->param[1];
    int rc = check_logits(img, p, op);
    if (!rc && (!parts || parts > 1024)) rc = weft__image_bad(p, "param[1]", parts, "not 1..1024 parts");
    return rc ? rc : op_tensor(img, p, op, "out", op->out, REQUIRED, WEFT_LAYOUT_ROW, WEFT_FP32, op->m, parts * 4);
}

static int check_sample(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const uint32_t parts = op->param[1];
    if ((op->x == WEFT_NONE) != (op->w == WEFT_NONE))
        return weft__image_bad(p, "w", op->w, "a page table and tokens go together");
    int rc = check_logits(img, p, op);
    if (!rc && (!parts || parts > 1024)) rc = weft__image_bad(p, "param[1]", parts, "not 1..1024 parts");
    if (!rc) rc = op_tensor(img, p, op, "scale", op->scale, REQUIRED, WEFT_LAYOUT_ROW, WEFT_FP32, op->m, parts * 4);
    if (!rc) rc = check_fed(img, p, op, "out", op->out, ANYWHERE);
    if (!rc) rc = op_tensor(img, p, op, "aux", op->aux, 0, WEFT_LAYOUT_ROW, WEFT_FP32, op->m, op->n);
    if (!rc && op->x != WEFT_NONE) rc = any_rows(img, p, op, "x", op->x, 0, WEFT_U32, op->param[0], WEFT_ROLE_TABLE);
    if (!rc && op->w != WEFT_NONE) rc = any_rows(img, p, op, "w", op->w, 0, WEFT_U32, 64, WEFT_ROLE_KV);
    return rc;
}

static int check_attn_out(const weft__image *img, weft__image_place p, const weft_op *op)
{
    int rc = op_tensor(img, p, op, "out", op->out, ANYWHERE | REQUIRED, WEFT_LAYOUT_COUNT, op->dtype, op->m, op->n);
    if (rc) return rc;
    return op_tensor(img, p, op, "pk_out", op->pk_out, ANYWHERE | (op->flags & WEFT_OP_OUT_PACKET ? REQUIRED : 0),
                     WEFT_LAYOUT_PACKET, op->dtype, op->m, op->n);
}

static int check_attn(const weft__image *img, weft__image_place p, const weft_op *op)
{
    const uint32_t heads = op->param[WEFT_ATTN_HEADS], kv_heads = op->param[WEFT_ATTN_KV_HEADS],
                   dim = op->param[WEFT_ATTN_HEAD_DIM], blocks = op->param[WEFT_ATTN_MAX_BLOCKS], row = WEFT_LAYOUT_ROW;
    if (op->m > WEFT_MAX_ROWS) return weft__image_bad(p, "m", op->m, "more rows than a step record names");
    if (!kv_heads || !heads || heads % kv_heads || heads > 65536)
        return weft__image_bad(p, "param[1]", kv_heads, "does not divide heads");
    if (!dim || dim % 64 || dim > 512)
        return weft__image_bad(p, "param[2]", dim, "head_dim is not a multiple of 64 up to 512");
    if (!op->param[3] || op->param[3] % WEFT_ATTN_PAGE || op->param[3] > WEFT_ATTN_BLOCK)
        return weft__image_bad(p, "param[3]", op->param[3], "blocks are not of whole pages of 64 tokens, up to 512");
    if (!blocks || blocks > 1u << 16) return weft__image_bad(p, "param[4]", blocks, "max_blocks is not 1..65536");
    if (op->n != heads * dim) return weft__image_bad(p, "n", op->n, "not heads x head_dim");
    if (op->kind == WEFT_KIND_ROPE) return check_rope(img, p, op);
    const uint32_t units = op->m * kv_heads * blocks, floats = (uint32_t)weft_attn_unit_floats(heads / kv_heads, dim);
    if ((uint64_t)op->m * kv_heads * blocks != units) return weft__image_bad(p, "param[4]", blocks, "too many units");
    int rc = op_tensor(img, p, op, "partial", op->partial, REQUIRED, row, WEFT_FP32, units, floats);
    if (rc) return rc;
    if (op->kind == WEFT_KIND_ATTN_COMBINE) return check_attn_out(img, p, op);
    rc = op_tensor(img, p, op, "x", op->x, REQUIRED, row, op->dtype, op->m, op->n);
    if (!rc) rc = check_cache(img, p, op);
    if (rc || op->out == WEFT_NONE)
        return rc || op->squares == WEFT_NONE ? rc : weft__image_bad(p, "squares", 0, "no out");
    rc = op_tensor(img, p, op, "squares", op->squares, REQUIRED, row, WEFT_U32, op->m, kv_heads);
    if (!rc && img->tensors[op->squares].role != WEFT_ROLE_TABLE)
        rc = weft__image_bad(p, "squares", op->squares, "the tensor has the wrong role");
    return rc ? rc : check_attn_out(img, p, op);
}

static int check_op(const weft__image *img, weft__image_place p, const weft_op *op)
{
    int rc = weft__image_none_or_below(p, "name", op->name, img->header->strings.count);
    if (!rc) rc = weft__image_below(p, "kind", op->kind, WEFT_KIND_COUNT);
    if (!rc) rc = weft__image_below(p, "dtype", op->dtype, WEFT_INT8 + 1);
    if (!rc) rc = weft__image_below(p, "epilogue", op->epilogue, WEFT_EPI_GELU + 1);
    if (!rc) rc = weft__image_below(p, "flags", op->flags & ~(uint32_t)WEFT_OP_ALTERNATE, WEFT_OP_PARTIAL * 2);
    if (!rc && !isfinite(op->eps)) rc = weft__image_bad(p, "eps", 0, "not finite");
    const uint32_t ids[] = {op->x,    op->w,      op->out,    op->aux,     op->scale,
                            op->pk_x, op->pk_out, op->pk_aux, op->partial, op->squares};
    static const char *const names[] = {"x",    "w",      "out",    "aux",     "scale",
                                        "pk_x", "pk_out", "pk_aux", "partial", "squares"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids && !rc; i++)
        rc = weft__image_none_or_below(p, names[i], ids[i], img->n_tensor);
    if (!rc) rc = weft__image_none_or_below(p, "cost", op->cost, img->header->costs.count / img->n_device);
    if (rc) return rc;
    if (op->kind == WEFT_KIND_NOP || op->kind == WEFT_KIND_MIX) return 0;
    if (!op->m || !op->n) return weft__image_bad(p, op->m ? "n" : "m", 0, "must not be 0");
    if (op->dtype != WEFT_BF16 && op->dtype != WEFT_FP16)
        return weft__image_bad(p, "dtype", op->dtype, "neither bf16 nor fp16");
    if (op->epilogue == WEFT_EPI_GATED_SILU && op->n % 16)
        return weft__image_bad(p, "n", op->n, "gated, but not a multiple of 16");
    switch (op->kind) {
    case WEFT_KIND_ATTN:
    case WEFT_KIND_ATTN_COMBINE:
    case WEFT_KIND_ROPE: return check_attn(img, p, op);
    case WEFT_KIND_PAGES: return check_pages(img, p, op);
    case WEFT_KIND_EMBED: return check_embed(img, p, op);
    case WEFT_KIND_SAMPLE: return check_sample(img, p, op);
    case WEFT_KIND_SURVEY: return check_survey(img, p, op);
    default: break;
    }
    if (op->kind == WEFT_KIND_REDUCE) return check_reduce(img, p, op);
    if (op->kind == WEFT_KIND_RMSNORM || op->kind == WEFT_KIND_COPY) return check_rows(img, p, op);
    return op->k ? check_gemm(img, p, op) : weft__image_bad(p, "k", 0, "must not be 0");
}

int weft__image_check_ops(const char *file, const weft__image *img)
{
    int rc = 0;
    for (uint32_t d = 0; d < img->n_device; d++) {
        for (uint32_t i = 0; i < img->devices[d].n_op && !rc; i++) {
            const uint32_t id = img->devices[d].op + i;
            weft__image_place p = {file, "ops", id};
            if (img->ops[id].device != d)
                return weft__image_bad(p, "device", img->ops[id].device, "not the device it is listed with");
            rc = check_op(img, p, &img->ops[id]);
        }
    }
    return rc;
}
