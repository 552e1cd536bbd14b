/* reference.c: see reference.h.
 *
 * Every value is a double; rows are padded with zeros to a multiple of 8, so that the inner loop has no remainder. Weights
 * are read 16 rows at a time and never kept, activations only until their last reader is done.                           */
#include "reference.h"

#include "../tasks/layout.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 16u /* rows of W at a time; a gated group is 8 gate rows, 8 up rows */
#define LANES 8u

/* ifunc resolvers run before the sanitizers are ready, and clang 14 has no target_clones worth having */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define CLONES
#endif

typedef double lanes __attribute__((vector_size(64), aligned(8)));

typedef struct reference {
    const weft__graph *g;
    const weft__weight_reader *reader;
    uint32_t n;
    weft__observed *observed; /* [tensor], or NULL */
    double **values;          /* [tensor]: n rows of stride(cols), or NULL */
    uint32_t *last_use;       /* [tensor]: the last op that reads it */
} reference;

static uint64_t stride(uint32_t cols) { return weft_round_up64(cols, LANES); }

double weft__round_to(uint32_t dtype, double v)
{
    if (dtype == WEFT_FP32) return (float)v;
    double least = dtype == WEFT_FP16 ? 0x1p-14 : 0x1p-126, largest = dtype == WEFT_FP16 ? 65504.0 : 0x1.fep127;
    if (!isfinite(v)) return v;
    if (fabs(v) < least) { /* subnormal: the last place is fixed */
        double place = dtype == WEFT_FP16 ? 0x1p-24 : 0x1p-133;
        return nearbyint(v / place) * place;
    }
    uint64_t bits, cut = dtype == WEFT_FP16 ? 42 : 45;
    memcpy(&bits, &v, sizeof bits);
    bits += (1ull << (cut - 1)) - 1 + (bits >> cut & 1);
    bits &= ~0ull << cut;
    memcpy(&v, &bits, sizeof v);
    return fabs(v) > largest ? copysign(INFINITY, v) : v;
}

double weft__relative_error(const float *got, const double *want, uint64_t n)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = got[i] - want[i];
        difference += d * d;
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static double sum_lanes(const lanes *v)
{
    double s = 0;
    for (uint32_t i = 0; i < LANES; i++)
        s += (*v)[i];
    return s;
}

/* acc[n][GROUP] = x[n][k] times w[GROUP][k], transposed; k is a multiple of LANES. Four rows of x share each row of w. */
CLONES static void multiply(const double *x, const double *w, uint64_t k, uint32_t n, double *acc)
{
    for (uint32_t m = 0; m < n; m += 4) {
        const double *row[4];
        for (uint32_t i = 0; i < 4; i++)
            row[i] = x + (m + i < n ? m + i : m) * k;
        for (uint32_t r = 0; r < GROUP; r += 2) {
            lanes s[4][2] = {{{0}}};
            const double *w0 = w + r * k, *w1 = w0 + k;
            for (uint64_t c = 0; c < k; c += LANES) {
                lanes a = *(const lanes *)(w0 + c), b = *(const lanes *)(w1 + c);
                for (uint32_t i = 0; i < 4; i++) {
                    lanes v = *(const lanes *)(row[i] + c);
                    s[i][0] += v * a;
                    s[i][1] += v * b;
                }
            }
            for (uint32_t i = 0; i < 4 && m + i < n; i++) {
                acc[(m + i) * GROUP + r] = sum_lanes(&s[i][0]);
                acc[(m + i) * GROUP + r + 1] = sum_lanes(&s[i][1]);
            }
        }
    }
}

/* factor[n]: 1 / sqrt(mean(x^2) + eps) of each row, or 1. */
static void row_factors(const weft__gop *op, const double *x, uint32_t k, uint32_t n, double *factor)
{
    const int norm = op->norm || op->kind == WEFT__GOP_RMSNORM;
    for (uint32_t m = 0; m < n; m++) {
        double sum = 0;
        for (uint32_t c = 0; norm && c < k; c++)
            sum += x[m * stride(k) + c] * x[m * stride(k) + c];
        factor[m] = norm ? 1 / sqrt(sum / k + (double)op->eps) : 1;
    }
}

static double silu(double v) { return v / (1 + exp(-v)); }

static double activate(uint32_t epilogue, double v)
{
    if (epilogue == WEFT_EPI_SILU) return silu(v);
    if (epilogue == WEFT_EPI_GELU) return 0.5 * v * (1 + erf(v * M_SQRT1_2));
    return v;
}

typedef struct gemm { /* one op with all that its inner loops need */
    const weft__gop *op;
    const weft__gtensor *out;
    const double *x, *aux; /* aux: n rows of the residual, or one row of the bias, or NULL */
    uint64_t aux_stride;   /* 0: every row of the batch has the same */
    double *y, *factor;    /* out's values; a factor a row */
    weft__weight w;
    float *scratch, *rows;
    double *group, *acc;
} gemm;

/* The results of W's rows first .. first + GROUP - 1, from acc to their columns of out. */
static void finish_group(const gemm *p, uint32_t n, uint32_t first)
{
    uint32_t gated = p->op->epilogue == WEFT_EPI_GATED_SILU, width = gated ? GROUP / 2 : GROUP;
    uint32_t c0 = gated ? first / 2 : first;
    for (uint32_t m = 0; m < n; m++) {
        const double *acc = p->acc + m * GROUP;
        for (uint32_t i = 0; i < width && c0 + i < p->out->cols; i++) {
            double v = acc[i] * p->factor[m];
            if (gated)
                v = silu(v) * (acc[i + 8] * p->factor[m]);
            else
                v = activate(p->op->epilogue, v);
            if (p->aux) v += p->aux[m * p->aux_stride + c0 + i];
            p->y[m * stride(p->out->cols) + c0 + i] = weft__round_to(p->out->dtype, v);
        }
    }
}

static int run_groups(const gemm *p, const reference *ref)
{
    uint64_t k = stride(p->w.cols);
    for (uint32_t first = 0; first < p->w.rows; first += GROUP) {
        uint32_t rows = p->w.rows - first < GROUP ? p->w.rows - first : GROUP;
        int status = weft__weight_rows(&p->w, ref->reader, first, rows, p->scratch, p->rows);
        if (status) return status;
        memset(p->group, 0, GROUP * k * sizeof *p->group);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < p->w.cols; c++)
                p->group[r * k + c] = p->rows[(uint64_t)r * p->w.cols + c];
        multiply(p->x, p->group, k, ref->n, p->acc);
        finish_group(p, ref->n, first);
    }
    return 0;
}

/* A bias or a gain as one row of doubles. */
static int read_vector(const reference *ref, uint32_t tensor, double **out)
{
    weft__weight w = weft__weight_of_graph(&ref->g->tensors[tensor]);
    float *scratch = malloc(weft__weight_scratch(&w) * sizeof *scratch), *row = malloc(w.cols * sizeof *row);
    double *bias = malloc(w.cols * sizeof *bias);
    int status = scratch && row && bias ? weft__weight_rows(&w, ref->reader, 0, 1, scratch, row)
                                        : weft__fail(WEFT_ENOMEM, "reference: a vector of %u values", w.cols);
    for (uint32_t c = 0; !status && c < w.cols; c++)
        bias[c] = row[c];
    free(scratch);
    free(row);
    if (status)
        free(bias);
    else
        *out = bias;
    return status;
}

static int check_shapes(const reference *ref, const weft__gop *op)
{
    const weft__gtensor *t = ref->g->tensors;
    const int norm = op->kind == WEFT__GOP_RMSNORM;
    if (op->kind != WEFT__GOP_GEMM && !norm)
        return weft__fail(WEFT_EUSAGE, "reference: op %s is neither a GEMM nor a norm", op->name);
    if (!ref->values[op->x])
        return weft__fail(WEFT_EUSAGE, "reference: op %s reads a tensor not yet written", op->name);
    if (!norm && t[op->w].cols != t[op->x].cols)
        return weft__fail(WEFT_EUSAGE, "reference: op %s: x has %u columns, W %u", op->name, t[op->x].cols,
                          t[op->w].cols);
    return 0;
}

static int run_gemm(reference *ref, uint32_t index)
{
    const weft__gop *op = &ref->g->ops[index];
    int status = check_shapes(ref, op);
    if (status) return status;
    gemm p = {.op = op, .out = &ref->g->tensors[op->out], .w = weft__weight_of_graph(&ref->g->tensors[op->w])};
    double *bias = NULL;
    p.x = ref->values[op->x];
    p.y = calloc((uint64_t)ref->n * stride(p.out->cols), sizeof *p.y);
    p.factor = malloc(ref->n * sizeof *p.factor);
    p.scratch = malloc(weft__weight_scratch(&p.w) * sizeof *p.scratch);
    p.rows = malloc((uint64_t)GROUP * p.w.cols * sizeof *p.rows);
    p.group = malloc(GROUP * stride(p.w.cols) * sizeof *p.group);
    p.acc = malloc((uint64_t)ref->n * GROUP * sizeof *p.acc);
    if (!p.y || !p.factor || !p.scratch || !p.rows || !p.group || !p.acc)
        status = weft__fail(WEFT_ENOMEM, "reference: buffers of op %s", op->name);
    if (!status && op->epilogue == WEFT_EPI_BIAS) status = read_vector(ref, op->aux, &bias);
    if (!status) {
        p.aux = bias ? bias : op->epilogue == WEFT_EPI_RESIDUAL ? ref->values[op->aux] : NULL;
        p.aux_stride = bias ? 0 : stride(p.out->cols);
        row_factors(op, p.x, p.w.cols, ref->n, p.factor);
        status = run_groups(&p, ref);
    }
    ref->values[op->out] = p.y;
    free(bias);
    free(p.factor);
    free(p.scratch);
    free(p.rows);
    free(p.group);
    free(p.acc);
    return status;
}

static int run_norm(reference *ref, uint32_t index)
{
    const weft__gop *op = &ref->g->ops[index];
    int status = check_shapes(ref, op);
    if (status) return status;
    const weft__gtensor *out = &ref->g->tensors[op->out];
    const uint64_t wide = stride(out->cols);
    const double *x = ref->values[op->x];
    double *gain = NULL, *factor = malloc(ref->n * sizeof *factor), *y = calloc(ref->n * wide, sizeof *y);
    if (!factor || !y) status = weft__fail(WEFT_ENOMEM, "reference: buffers of op %s", op->name);
    if (!status && op->w != WEFT_NONE) status = read_vector(ref, op->w, &gain);
    if (!status) row_factors(op, x, out->cols, ref->n, factor);
    for (uint32_t m = 0; m < ref->n && !status; m++)
        for (uint32_t c = 0; c < out->cols; c++)
            y[m * wide + c] = weft__round_to(out->dtype, x[m * wide + c] * factor[m] * (gain ? gain[c] : 1));
    ref->values[op->out] = y;
    free(gain);
    free(factor);
    return status;
}

/* Compares what the op should have stored with what was, and goes on from the latter. */
static void take_observed(reference *ref, uint32_t tensor)
{
    weft__observed *o = ref->observed ? &ref->observed[tensor] : NULL;
    uint32_t cols = ref->g->tensors[tensor].cols;
    if (!o || !o->got) return;
    o->difference = o->norm = 0;
    for (uint32_t m = 0; m < ref->n; m++)
        for (uint32_t c = 0; c < cols; c++) {
            double *want = &ref->values[tensor][m * stride(cols) + c], got = o->got[(uint64_t)m * cols + c];
            o->difference += (got - *want) * (got - *want);
            o->norm += *want * *want;
            *want = got;
        }
}

static void drop_unused(reference *ref, uint32_t op)
{
    for (uint32_t t = 0; t < ref->g->n_tensor; t++) {
        if (!ref->values[t] || ref->last_use[t] > op) continue;
        free(ref->values[t]);
        ref->values[t] = NULL;
    }
}

/* Where the input is and where the output; when each tensor is read for the last time (the output: never). */
static int survey(reference *ref, uint32_t *input, uint32_t *output)
{
    uint32_t inputs = 0, outputs = 0;
    for (uint32_t t = 0; t < ref->g->n_tensor; t++) {
        uint32_t role = ref->g->tensors[t].role;
        if (role == WEFT_ROLE_INPUT && inputs++ == 0) *input = t;
        if (role == WEFT_ROLE_OUTPUT && outputs++ == 0) *output = t;
    }
    if (inputs != 1 || outputs != 1)
        return weft__fail(WEFT_EUSAGE, "reference: %u inputs and %u outputs, one of each is supported", inputs,
                          outputs);
    for (uint32_t o = 0; o < ref->g->n_op; o++) {
        const weft__gop *op = &ref->g->ops[o];
        if (op->x != WEFT_NONE) ref->last_use[op->x] = o;
        if (op->aux != WEFT_NONE) ref->last_use[op->aux] = o;
    }
    ref->last_use[*output] = UINT32_MAX;
    return 0;
}

static int load_input(reference *ref, uint32_t input, const float *x)
{
    const weft__gtensor *t = &ref->g->tensors[input];
    double *v = calloc((uint64_t)ref->n * stride(t->cols), sizeof *v);
    if (!v) return weft__fail(WEFT_ENOMEM, "reference: input of %u rows", ref->n);
    for (uint32_t m = 0; m < ref->n; m++)
        for (uint32_t c = 0; c < t->cols; c++)
            v[m * stride(t->cols) + c] = weft__round_to(t->dtype, x[(uint64_t)m * t->cols + c]);
    ref->values[input] = v;
    return 0;
}

static int run(reference *ref, const float *x, double *out)
{
    uint32_t input = 0, output = 0;
    int status = survey(ref, &input, &output);
    if (!status) status = load_input(ref, input, x);
    for (uint32_t o = 0; o < ref->g->n_op && !status; o++) {
        status = ref->g->ops[o].kind == WEFT__GOP_RMSNORM ? run_norm(ref, o) : run_gemm(ref, o);
        if (!status) take_observed(ref, ref->g->ops[o].out);
        drop_unused(ref, o);
    }
    if (status || !out) return status;
    uint32_t cols = ref->g->tensors[output].cols;
    for (uint32_t m = 0; m < ref->n; m++)
        memcpy(out + (uint64_t)m * cols, ref->values[output] + m * stride(cols), cols * sizeof *out);
    return 0;
}

int weft__reference_rows(const weft__graph *g, const weft__weight_reader *reader, const float *x, uint32_t n,
                         weft__observed *observed, double *out)
{
    reference ref = {.g = g, .reader = reader, .n = n, .observed = observed};
    ref.values = calloc(g->n_tensor ? g->n_tensor : 1, sizeof *ref.values);
    ref.last_use = calloc(g->n_tensor ? g->n_tensor : 1, sizeof *ref.last_use);
    int status = ref.values && ref.last_use ? run(&ref, x, out) : weft__fail(WEFT_ENOMEM, "reference: tables");
    for (uint32_t t = 0; ref.values && t < g->n_tensor; t++)
        free(ref.values[t]);
    free(ref.values);
    free(ref.last_use);
    return status;
}
