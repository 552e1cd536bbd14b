/* plan_api.c: weft_plan.h on the planner in host/: names instead of numbers, sizes of structs, nothing else. */
#include "weft_plan.h"

#include "../host/error.h"
#include "../host/plan.h"
#include "../host/validate.h"

#include <stdlib.h>
#include <string.h>

static int index_of(const char *what, const char *name, const char *const *names, int n)
{
    for (int i = 0; name && i < n; i++) {
        if (names[i] && !strcmp(names[i], name)) return i;
    }
    return weft__fail(WEFT_EUSAGE, "unknown %s \"%s\"", what, name ? name : "(null)");
}

static int dtype_of(const char *name)
{
    static const char *const names[] = {[WEFT_BF16] = "bf16", [WEFT_FP16] = "fp16", [WEFT_FP32] = "fp32"};
    return index_of("dtype", name, names, 3);
}

static int role_of(const char *name)
{
    static const char *const names[] = {
        [WEFT_ROLE_ACT] = "activation", [WEFT_ROLE_INPUT] = "input", [WEFT_ROLE_OUTPUT] = "output"};
    return index_of("role", name, names, WEFT_ROLE_OUTPUT + 1);
}

static int epilogue_of(const char *name)
{
    static const char *const names[] = {[WEFT_EPI_NONE] = "none",         [WEFT_EPI_GATED_SILU] = "gated_silu",
                                        [WEFT_EPI_RESIDUAL] = "residual", [WEFT_EPI_BIAS] = "bias",
                                        [WEFT_EPI_SILU] = "silu",         [WEFT_EPI_GELU] = "gelu"};
    return index_of("epilogue", name, names, WEFT_EPI_GELU + 1);
}

/* Later versions append fields: what this one doesn't know must be zero, what the caller doesn't have has its
 * default. */
static int take_config(void *dst, size_t known, const void *src, size_t given, const char *what)
{
    const uint8_t *bytes = src;
    for (size_t i = known; i < given; i++) {
        if (bytes[i]) return weft__fail(WEFT_EUSAGE, "%s: a field that this version of weft doesn't have is set", what);
    }
    if (given < sizeof(size_t)) return weft__fail(WEFT_EUSAGE, "%s: size is %zu: use its initializer", what, given);
    memcpy(dst, src, given < known ? given : known);
    return 0;
}

int weft_graph_create(weft_graph **out) { return weft__graph_new(out); }
void weft_graph_destroy(weft_graph *g) { weft__graph_free(g); }

int weft_graph_tensor(weft_graph *g, const char *role, const char *name, const char *dtype, uint32_t rows,
                      uint32_t cols, uint32_t *tensor)
{
    const int r = role_of(role), t = r < 0 ? r : dtype_of(dtype);
    return t < 0 ? t : weft__graph_tensor(g, name, (uint32_t)r, (uint32_t)t, rows, cols, tensor);
}

int weft_graph_weight(weft_graph *g, const char *a, const char *b, const char *gain, const char *dtype, uint32_t n,
                      uint32_t k, uint32_t *tensor)
{
    const weft__source s = {.fill = WEFT_FILL_MODEL, .a = a, .b = b, .gain = gain, .rows_a = 8, .rows_b = 8};
    const int t = dtype_of(dtype);
    return t < 0 ? t : weft__graph_weight(g, a, (uint32_t)t, n, k, &s, tensor);
}

int weft_graph_seeded(weft_graph *g, const char *name, const char *dtype, uint32_t n, uint32_t k, uint64_t seed,
                      float scale, uint32_t *tensor)
{
    const weft__source s = {.fill = WEFT_FILL_SEED, .seed = seed, .scale = scale};
    const int t = dtype_of(dtype);
    return t < 0 ? t : weft__graph_weight(g, name, (uint32_t)t, n, k, &s, tensor);
}

int weft_graph_gemm(weft_graph *g, const weft_gemm *desc)
{
    weft_gemm d = WEFT_GEMM_INIT;
    int rc = take_config(&d, sizeof d, desc, desc->size, "weft_gemm");
    const int e = rc ? rc : epilogue_of(d.epilogue);
    if (e < 0) return e;
    const weft__gemm gemm = {.name = d.name,
                             .layer = d.layer,
                             .x = d.x,
                             .w = d.w,
                             .aux = d.aux,
                             .out = d.out,
                             .epilogue = (uint32_t)e,
                             .norm = d.norm,
                             .eps = d.eps};
    return weft__graph_gemm(g, &gemm, NULL);
}

int weft_graph_rmsnorm(weft_graph *g, const weft_rmsnorm *desc)
{
    weft_rmsnorm d = WEFT_RMSNORM_INIT;
    int rc = take_config(&d, sizeof d, desc, desc->size, "weft_rmsnorm");
    if (rc) return rc;
    const weft__rmsnorm norm = {.name = d.name, .layer = d.layer, .x = d.x, .gain = d.gain, .out = d.out, .eps = d.eps};
    return weft__graph_rmsnorm(g, &norm, NULL);
}

int weft_graph_costs(weft_graph *g, const uint32_t *ns, uint32_t n_device)
{
    if (!g->n_op) return weft__fail(WEFT_EUSAGE, "weft_graph_costs: the graph has no op yet");
    return weft__graph_costs(g, g->n_op - 1, ns, n_device);
}

int weft_graph_chain(const uint32_t *widths, uint32_t n_width, uint32_t repeat, uint32_t m, const char *dtype,
                     uint64_t seed, weft_graph **out)
{
    const int t = dtype_of(dtype);
    const weft__chain c = {
        .widths = widths, .n_width = n_width, .repeat = repeat, .m = m, .dtype = (uint32_t)t, .seed = seed};
    return t < 0 ? t : weft__graph_chain(&c, out);
}

int weft_graph_mlp(uint32_t hidden, uint32_t intermediate, uint32_t layers, float eps, uint32_t m, const char *dtype,
                   int named, uint64_t seed, weft_graph **out)
{
    const int t = dtype_of(dtype);
    const weft__model model = {.hidden = hidden,
                               .intermediate = intermediate,
                               .layers = layers,
                               .eps = eps,
                               .named = named != 0,
                               .dtype = (uint32_t)t,
                               .seed = seed};
    return t < 0 ? t : weft__graph_mlp(&model, m, out);
}

int weft_plan(const weft_graph *g, const weft_plan_config *config, void **image, size_t *bytes)
{
    weft_plan_config c = WEFT_PLAN_CONFIG_INIT;
    weft__plan_options o = weft__plan_defaults();
    int rc = take_config(&c, sizeof c, config, config->size, "weft_plan_config");
    if (rc) return rc;
    const int strategy = weft__strategy_parse(c.strategy), order = strategy < 0 ? strategy : weft__order_parse(c.order);
    if (order < 0) return order;
    o.n_device = c.n_device;
    for (uint32_t d = 0; d < c.n_device && d < WEFT_MAX_DEVICES; d++)
        o.workers[d] = c.workers ? c.workers[d] : 132;
    o.strategy = (uint32_t)strategy;
    o.order = (uint32_t)order;
    o.chunks = c.chunks;
    o.tp = c.tp;
    o.tile_groups = c.tile_groups;
    o.m_tile = c.m_tile;
    o.split_k = c.split_k;
    o.k_panels = c.k_panels;
    o.packet_max_rows = c.packet_rows;
    o.copies = c.copies;
    o.alternates = c.alternates;
    o.seed = c.seed;
    uint64_t size;
    rc = weft__plan(g, &o, image, &size, NULL);
    if (!rc) *bytes = (size_t)size;
    return rc;
}

void weft_image_free(void *image) { free(image); }

int weft_image_check(const void *image, size_t bytes)
{
    weft__image img;
    int rc = weft__image_open(image, bytes, "image", &img);
    return rc ? rc : weft__validate(&img, NULL);
}
