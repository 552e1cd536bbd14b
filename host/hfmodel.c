/* hfmodel.c: see hfmodel.h. */
#include "hfmodel.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

int weft__hfmodel_open(const char *dir, weft__hfmodel *out)
{
    char path[4096];
    *out = (weft__hfmodel){0};
    if (strlen(dir) > sizeof path - 300) return weft__fail(WEFT_EFILE, "%s: the path is too long", dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    int status = weft__config_read(path, &out->config);
    if (!status) status = weft__safetensors_open(dir, &out->files);
    out->prefix = weft__st_find(&out->files, "layers.0.post_attention_layernorm.weight") ? "" : "model.";
    return status;
}

void weft__hfmodel_close(weft__hfmodel *m)
{
    weft__safetensors_close(&m->files);
    *m = (weft__hfmodel){0};
}

static int find_matrix(const weft__hfmodel *m, const char *name, const weft__st_tensor **out)
{
    const weft__st_tensor *t = weft__st_find(&m->files, name);
    if (!t) return weft__fail(WEFT_EFILE, "the model has no tensor %s", name);
    if (t->n_dim > 2 || t->rows > UINT32_MAX || t->cols > UINT32_MAX)
        return weft__fail(WEFT_EFILE, "tensor %s: not a matrix or a vector", name);
    if (t->dtype != WEFT__ST_F32 && t->dtype != WEFT__ST_F16 && t->dtype != WEFT__ST_BF16)
        return weft__fail(WEFT_EUNSUPPORTED, "tensor %s: only F32, F16 and BF16 can be read", name);
    *out = t;
    return 0;
}

static int check_tensor(const weft__hfmodel *m, uint32_t layer, const char *part, uint32_t rows, uint32_t cols)
{
    char name[160];
    const weft__st_tensor *t = NULL;
    snprintf(name, sizeof name, "%slayers.%u.%s.weight", m->prefix, layer, part);
    int status = find_matrix(m, name, &t);
    if (!status && (t->rows != rows || t->cols != cols))
        status = weft__fail(WEFT_EFILE, "tensor %s: shape %llu x %llu, but config.json says %u x %u", name,
                            (unsigned long long)t->rows, (unsigned long long)t->cols, rows, cols);
    return status;
}

int weft__hfmodel_mlp(const weft__hfmodel *m, uint32_t layers, weft__model *out)
{
    const weft__config *c = &m->config;
    uint32_t n = layers ? layers : c->layers;
    if (n > c->layers) return weft__fail(WEFT_EUSAGE, "%u layers wanted, the model has %u", n, c->layers);
    int status = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        status = check_tensor(m, i, "mlp.gate_proj", c->intermediate, c->hidden);
        if (!status) status = check_tensor(m, i, "mlp.up_proj", c->intermediate, c->hidden);
        if (!status) status = check_tensor(m, i, "mlp.down_proj", c->hidden, c->intermediate);
        if (!status) status = check_tensor(m, i, "post_attention_layernorm", 1, c->hidden);
    }
    if (status) return status;
    *out = (weft__model){.hidden = c->hidden,
                         .intermediate = c->intermediate,
                         .layers = n,
                         .eps = (float)c->norm_eps,
                         .named = 1,
                         .prefix = m->prefix,
                         .dtype = WEFT_BF16};
    return 0;
}

/* "@rope": the frequencies that config.json gives, as if they were a tensor. */
static int is_rope(const char *name) { return !strcmp(name, "@rope"); }

static int shape_of(void *user, const char *name, uint32_t *rows, uint32_t *cols)
{
    const weft__hfmodel *m = user;
    const weft__st_tensor *t = NULL;
    if (is_rope(name)) {
        *rows = 1;
        *cols = m->config.head_dim / 2;
        return 0;
    }
    int status = find_matrix(user, name, &t);
    if (status) return status;
    *rows = (uint32_t)t->rows;
    *cols = (uint32_t)t->cols;
    return 0;
}

static int rows_of(void *user, const char *name, uint32_t row, uint32_t n, float *dst)
{
    if (is_rope(name)) {
        if (n) weft__config_rope(&((const weft__hfmodel *)user)->config, dst);
        return 0;
    }
    const weft__st_tensor *t = NULL;
    int status = find_matrix(user, name, &t);
    return status ? status : weft__st_read(t, row * t->cols, n * t->cols, dst);
}

weft__weight_reader weft__hfmodel_reader(const weft__hfmodel *m)
{
    return (weft__weight_reader){(void *)(uintptr_t)m, shape_of, rows_of};
}
