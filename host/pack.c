/* pack.c: see pack.h. */
#include "pack.h"

#include "../tasks/half.h"
#include "../tasks/layout.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

weft__weight weft__weight_of_graph(const weft__gtensor *t)
{
    return (weft__weight){.name = t->name, .rows = t->rows, .cols = t->cols, .dtype = t->dtype, .source = t->source};
}

static const char *string_or_null(const weft__image *img, uint32_t offset)
{
    return offset == WEFT_NONE ? NULL : weft__image_string(img, offset);
}

weft__weight weft__weight_of_image(const weft__image *img, uint32_t tensor)
{
    const weft_tensor *t = &img->tensors[tensor];
    const weft_weight *w = &img->weights[t->weight];
    return (weft__weight){
        .name = weft__image_string(img, t->name),
        .rows = t->rows,
        .cols = t->cols,
        .row0 = w->row0,
        .col0 = w->col0,
        .dtype = t->dtype,
        .source = {w->fill, string_or_null(img, w->a), string_or_null(img, w->b), string_or_null(img, w->c),
                   string_or_null(img, w->gain), w->rows_a, w->rows_b, w->rows_c, w->seed, w->scale},
    };
}

static void round_row(uint32_t dtype, uint32_t n, float *v)
{
    if (dtype == WEFT_BF16) {
        for (uint32_t i = 0; i < n; i++)
            v[i] = weft_bf16_to_f32(weft_f32_to_bf16(v[i]));
    } else if (dtype == WEFT_FP16) {
        for (uint32_t i = 0; i < n; i++)
            v[i] = weft_fp16_to_f32(weft_f32_to_fp16(v[i]));
    }
}

/* Scratch: one row of the model's tensor, then the gain. */
uint64_t weft__weight_scratch(const weft__weight *w) { return ((uint64_t)w->col0 + w->cols) * 2; }

static int check_shape(const weft__weight *w, const weft__weight_reader *reader, const char *tensor, uint32_t *rows,
                       uint32_t *cols)
{
    if (!reader)
        return weft__fail(WEFT_EUSAGE, "weight %s: needs the model's tensor %s, but no model was given", w->name,
                          tensor);
    if (reader->shape(reader->user, tensor, rows, cols))
        return weft__fail(WEFT_EFILE, "weight %s: the model has no usable tensor %s", w->name, tensor);
    if ((uint64_t)w->col0 + w->cols > *cols)
        return weft__fail(WEFT_EFILE, "weight %s: tensor %s has %u columns, %u needed", w->name, tensor, *cols,
                          w->col0 + w->cols);
    return 0;
}

typedef struct parts { /* the tensors whose rows take turns */
    const char *name[3];
    uint32_t each[3];  /* rows of it a turn */
    uint32_t limit[3]; /* rows that it has; of vectors: columns */
    uint32_t n, turn, cols;
} parts;

/* Vectors of fp32 have their values where matrices have rows. */
static int is_joined_vector(const weft__weight *w) { return w->dtype == WEFT_FP32 && w->rows == 1 && w->source.b; }

static int find_parts(const weft__weight *w, const weft__weight_reader *reader, parts *p)
{
    const weft__source *s = &w->source;
    const int vector = is_joined_vector(w);
    *p = (parts){{s->a, s->b, s->c}, {s->rows_a, s->rows_b, s->rows_c}, {0}, 0, 0, 0};
    if (!s->a) return weft__fail(WEFT_EUSAGE, "weight %s: no tensor is named", w->name);
    for (; p->n < 3 && p->name[p->n]; p->n++) {
        uint32_t rows, cols;
        weft__weight whole = *w;
        if (vector) whole.cols = 1, whole.col0 = 0; /* as wide as it is */
        int status = check_shape(&whole, reader, p->name[p->n], &rows, &cols);
        if (status) return status;
        if (vector && rows != 1)
            return weft__fail(WEFT_EFILE, "weight %s: tensor %s has %u rows, not 1", w->name, p->name[p->n], rows);
        if (!vector && p->n && cols != p->cols)
            return weft__fail(WEFT_EFILE, "weight %s: tensors %s and %s differ in columns", w->name, s->a,
                              p->name[p->n]);
        p->limit[p->n] = vector ? cols : rows;
        p->cols = cols;
        p->turn += p->each[p->n];
    }
    for (uint32_t i = 0; i < p->n && p->n > 1; i++) {
        if (!p->each[i]) return weft__fail(WEFT_EUSAGE, "weight %s: no rows of %s a turn", w->name, p->name[i]);
        if (weft_div_up(p->limit[i], p->each[i]) != weft_div_up(p->limit[0], p->each[0]))
            return weft__fail(WEFT_EFILE, "weight %s: tensors %s and %s differ in shape", w->name, s->a, p->name[i]);
    }
    const uint64_t need = vector ? (uint64_t)w->col0 + w->cols : (uint64_t)w->row0 + w->rows,
                   have = p->n == 1 ? p->limit[0] : (uint64_t)weft_div_up(p->limit[0], p->each[0]) * p->turn;
    if (need > have)
        return weft__fail(WEFT_EFILE, "weight %s: tensor %s has %u rows, too few for %llu", w->name, s->a, p->limit[0],
                          (unsigned long long)need);
    return 0;
}

/* Which tensor holds packed row r, and at which of its rows. */
static uint32_t row_source(const parts *p, uint32_t r, uint32_t *row)
{
    *row = r;
    if (p->n == 1) return 0;
    uint32_t i = 0, at = r % p->turn;
    for (; at >= p->each[i]; i++)
        at -= p->each[i];
    *row = r / p->turn * p->each[i] + at;
    return i;
}

static int read_gain(const weft__weight *w, const weft__weight_reader *reader, uint32_t cols, float *gain, float *dst)
{
    uint32_t rows, gain_cols;
    int status = check_shape(w, reader, w->source.gain, &rows, &gain_cols);
    if (status) return status;
    if (rows != 1 || gain_cols != cols)
        return weft__fail(WEFT_EFILE, "weight %s: gain %s is %u x %u, expected 1 x %u", w->name, w->source.gain, rows,
                          gain_cols, cols);
    status = reader->rows(reader->user, w->source.gain, 0, 1, gain);
    if (!status) memcpy(dst, gain + w->col0, w->cols * sizeof *dst);
    return status;
}

/* Values col0 .. +cols of a vector whose parts take turns. */
static int joined_vector(const weft__weight *w, const weft__weight_reader *reader, const parts *p, float *dst)
{
    int status = 0;
    for (uint32_t i = 0; i < p->n && !status; i++) {
        float *all = malloc(p->limit[i] * sizeof *all);
        if (!all) return weft__fail(WEFT_ENOMEM, "weight %s: a row of %u values", w->name, p->limit[i]);
        status = reader->rows(reader->user, p->name[i], 0, 1, all);
        for (uint32_t c = 0, at; c < w->cols && !status; c++)
            if (row_source(p, w->col0 + c, &at) == i) dst[c] = at < p->limit[i] ? all[at] : 0.0f;
        free(all);
    }
    return status;
}

static int model_rows(const weft__weight *w, const weft__weight_reader *reader, uint32_t row, uint32_t n,
                      float *scratch, float *dst)
{
    uint32_t source_row;
    parts p;
    int status = find_parts(w, reader, &p);
    if (status) return status;
    if (is_joined_vector(w)) return n ? joined_vector(w, reader, &p, dst) : 0;
    /* Rows are read whole; a slice of columns (or a tensor wider than the weight) goes through a buffer of its own. */
    const uint32_t cols = p.cols;
    float *whole = cols == w->cols ? NULL : malloc((size_t)cols * sizeof *whole), *gain = scratch + w->col0 + w->cols;
    if (cols != w->cols && !whole) return weft__fail(WEFT_ENOMEM, "weight %s: a row of %u values", w->name, cols);
    if (w->source.gain) status = read_gain(w, reader, cols, whole ? whole : scratch, gain);
    for (uint32_t i = 0; i < n && !status; i++, dst += w->cols) {
        const uint32_t part = row_source(&p, w->row0 + row + i, &source_row);
        if (source_row >= p.limit[part]) {
            memset(dst, 0, w->cols * sizeof *dst);
            continue;
        }
        status = reader->rows(reader->user, p.name[part], source_row, 1, whole ? whole : dst);
        if (whole) memcpy(dst, whole + w->col0, w->cols * sizeof *dst);
        for (uint32_t c = 0; w->source.gain && c < w->cols; c++)
            dst[c] *= gain[c];
        round_row(w->dtype, w->cols, dst);
    }
    free(whole);
    return status;
}

int weft__weight_rows(const weft__weight *w, const weft__weight_reader *reader, uint32_t row, uint32_t n,
                      float *scratch, float *dst)
{
    if (row > w->rows || n > w->rows - row)
        return weft__fail(WEFT_EUSAGE, "weight %s: rows %u + %u of %u", w->name, row, n, w->rows);
    if (w->source.fill == WEFT_FILL_MODEL) return model_rows(w, reader, row, n, scratch, dst);
    for (uint32_t i = 0; i < n; i++, dst += w->cols) {
        for (uint32_t c = 0; c < w->cols; c++)
            dst[c] = weft_seeded(w->source.seed, w->row0 + row + i, w->col0 + c, w->source.scale);
        round_row(w->dtype, w->cols, dst);
    }
    return 0;
}

/* One row of values (already rounded) into its places in the atoms of its group. */
static void place_row(const float *v, uint32_t dtype, uint32_t cols, uint32_t r, uint8_t *group)
{
    for (uint32_t c = 0; c < cols; c += 8) {
        uint16_t chunk[8] = {0};
        uint32_t n = cols - c < 8 ? cols - c : 8;
        for (uint32_t i = 0; i < n; i++)
            chunk[i] = weft_f32_to_half(dtype, v[c + i]);
        memcpy(group + (uint64_t)(c / 64) * WEFT_ATOM_BYTES + weft_atom_byte(r, c % 64), chunk, sizeof chunk);
    }
}

int weft__pack_atoms(const weft__weight *w, const weft__weight_reader *reader, uint32_t group, uint32_t n, void *dst)
{
    uint64_t group_bytes = (uint64_t)weft_div_up(w->cols, 64) * WEFT_ATOM_BYTES, scratch = weft__weight_scratch(w);
    if (w->dtype != WEFT_BF16 && w->dtype != WEFT_FP16)
        return weft__fail(WEFT_EUNSUPPORTED, "weight %s: ATOM layout of element type %u", w->name, w->dtype);
    float *values = malloc((scratch + 16ull * w->cols) * sizeof *values);
    if (!values) return weft__fail(WEFT_ENOMEM, "weight %s: 16 rows of %u values", w->name, w->cols);
    memset(dst, 0, n * group_bytes);
    int status = 0;
    for (uint32_t g = group; g < group + n && !status; g++) {
        uint32_t rows = g * 16 >= w->rows ? 0 : w->rows - g * 16 < 16 ? w->rows - g * 16 : 16;
        status = weft__weight_rows(w, reader, g * 16, rows, values, values + scratch);
        for (uint32_t r = 0; r < rows && !status; r++)
            place_row(values + scratch + (uint64_t)r * w->cols, w->dtype, w->cols, r,
                      (uint8_t *)dst + (g - group) * group_bytes);
    }
    free(values);
    return status;
}

static int pack_plain(const weft__weight *w, const weft__weight_reader *reader, uint8_t *dst)
{
    uint64_t scratch = weft__weight_scratch(w);
    float *values = malloc((scratch + w->cols) * sizeof *values), *row = values + scratch;
    if (!values) return weft__fail(WEFT_ENOMEM, "weight %s: a row of %u values", w->name, w->cols);
    int status = 0;
    for (uint32_t r = 0; r < w->rows && !status; r++) {
        status = weft__weight_rows(w, reader, r, 1, values, row);
        if (w->dtype == WEFT_FP32) {
            memcpy(dst + (uint64_t)r * w->cols * 4, row, w->cols * 4ull);
            continue;
        }
        for (uint32_t c = 0; c < w->cols; c++) {
            uint16_t h = weft_f32_to_half(w->dtype, row[c]);
            memcpy(dst + ((uint64_t)r * w->cols + c) * 2, &h, 2);
        }
    }
    free(values);
    return status;
}

int weft__pack_tensor(const weft__image *img, uint32_t tensor, const weft__weight_reader *reader, void *dst)
{
    const weft_tensor *t = &img->tensors[tensor];
    weft__weight w = weft__weight_of_image(img, tensor);
    if (t->layout == WEFT_LAYOUT_ATOM) return weft__pack_atoms(&w, reader, 0, weft_div_up(t->rows, 16), dst);
    if (t->layout != WEFT_LAYOUT_ROW) return weft__fail(WEFT_EUNSUPPORTED, "weight %s: layout %u", w.name, t->layout);
    return pack_plain(&w, reader, dst);
}
