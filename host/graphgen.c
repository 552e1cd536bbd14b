/* graphgen.c: see graphgen.h. Enters: a text. Leaves: a finished graph. Tasks are made in a topological order. */
#include "graphgen.h"

#include "../tasks/seed.h"
#include "error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
    const char *spec;
    weft__taskgraph *g;
    double n, width, depth, degree, cost, bytes, spread, seed;
    uint32_t *grid; /* [tile]: its last task + 1; cholesky, lu */
    int status;
} maker;

static void add_task(maker *m, double weight, const char *name, uint32_t i, uint32_t j, uint32_t k)
{
    char text[64];
    if (m->status) return;
    snprintf(text, sizeof text, "%s_%u_%u_%u", name, i, j, k);
    const double u = weft_hash((uint64_t)m->seed, m->g->n_task, 0) / 4294967295.0;
    const double cost = m->cost * weight * (1 + m->spread * (2 * u - 1));
    m->status = weft__tg_task(m->g, text, &cost, 0);
}

/* From an earlier task to the one that was added last. */
static void add_edge(maker *m, uint32_t from)
{
    if (!m->status) m->status = weft__tg_edge(m->g, from, m->g->n_task - 1, WEFT__TG_NONE, m->bytes);
}

static void make_layered(maker *m)
{
    const uint32_t n = (uint32_t)m->n, width = (uint32_t)m->width,
                   degree = (uint32_t)(m->degree < width ? m->degree : width);
    for (uint32_t t = 0; t < n && !m->status; t++) {
        const uint32_t layer = t / width, before = (layer - 1) * width;
        add_task(m, 1, "t", layer, t % width, 0);
        if (!layer) continue;
        /* one draw in each of `degree` parts of the layer: no edge twice, all far apart */
        for (uint32_t k = 0; k < degree; k++) {
            const uint32_t low = (uint32_t)((uint64_t)k * width / degree),
                           high = (uint32_t)((uint64_t)(k + 1) * width / degree);
            add_edge(m, before + low + weft_hash((uint64_t)m->seed, t, k + 1) % (high - low));
        }
    }
}

static void make_forkjoin(maker *m)
{
    const uint32_t width = (uint32_t)m->width, depth = (uint32_t)m->depth;
    add_task(m, 1, "join", 0, 0, 0);
    for (uint32_t d = 0; d < depth && !m->status; d++) {
        const uint32_t fork = m->g->n_task - 1;
        for (uint32_t i = 0; i < width && !m->status; i++) {
            add_task(m, 1, "work", d, i, 0);
            add_edge(m, fork);
        }
        add_task(m, 1, "join", d + 1, 0, 0);
        for (uint32_t i = 0; i < width; i++)
            add_edge(m, fork + 1 + i);
    }
}

static void make_stencil(maker *m)
{
    const uint32_t width = (uint32_t)m->width, depth = (uint32_t)m->depth;
    for (uint32_t d = 0; d < depth; d++)
        for (uint32_t i = 0; i < width && !m->status; i++) {
            add_task(m, 1, "point", d, i, 0);
            for (uint32_t k = i ? i - 1 : 0; d && k <= i + 1 && k < width; k++)
                add_edge(m, (d - 1) * width + k);
        }
}

static void use_tile(maker *m, uint32_t i, uint32_t j)
{
    const uint32_t last = m->grid[(uint64_t)i * (uint32_t)m->n + j];
    if (last) add_edge(m, last - 1);
}

static void write_tile(maker *m, uint32_t i, uint32_t j) { m->grid[(uint64_t)i * (uint32_t)m->n + j] = m->g->n_task; }

/* Right-looking, by tiles: k eliminates, everything to the right and below is updated. */
static void make_cholesky(maker *m)
{
    const uint32_t n = (uint32_t)m->n;
    for (uint32_t k = 0; k < n && !m->status; k++) {
        add_task(m, 1.0 / 3, "potrf", k, k, k);
        use_tile(m, k, k);
        write_tile(m, k, k);
        for (uint32_t i = k + 1; i < n; i++) {
            add_task(m, 1, "trsm", k, i, k);
            use_tile(m, k, k);
            use_tile(m, i, k);
            write_tile(m, i, k);
        }
        for (uint32_t i = k + 1; i < n && !m->status; i++)
            for (uint32_t j = k + 1; j <= i; j++) {
                add_task(m, i == j ? 1 : 2, i == j ? "syrk" : "gemm", k, i, j);
                use_tile(m, i, k);
                if (i != j) use_tile(m, j, k);
                use_tile(m, i, j);
                write_tile(m, i, j);
            }
    }
}

static void make_lu(maker *m)
{
    const uint32_t n = (uint32_t)m->n;
    for (uint32_t k = 0; k < n && !m->status; k++) {
        add_task(m, 2.0 / 3, "getrf", k, k, k);
        use_tile(m, k, k);
        write_tile(m, k, k);
        for (uint32_t side = 0; side < 2; side++)
            for (uint32_t i = k + 1; i < n; i++) {
                add_task(m, 1, side ? "trsm_row" : "trsm_column", k, i, k);
                use_tile(m, k, k);
                use_tile(m, side ? k : i, side ? i : k);
                write_tile(m, side ? k : i, side ? i : k);
            }
        for (uint32_t i = k + 1; i < n && !m->status; i++)
            for (uint32_t j = k + 1; j < n; j++) {
                add_task(m, 2, "gemm", k, i, j);
                use_tile(m, i, k);
                use_tile(m, k, j);
                use_tile(m, i, j);
                write_tile(m, i, j);
            }
    }
}

static void make_fft(maker *m)
{
    const uint32_t n = (uint32_t)m->n;
    for (uint32_t half = 0; half <= n / 2 && !m->status; half = half ? 2 * half : 1) {
        const uint32_t layer = m->g->n_task / n;
        for (uint32_t i = 0; i < n && !m->status; i++) {
            add_task(m, 1, "butterfly", layer, i, 0);
            if (!half) continue;
            add_edge(m, (layer - 1) * n + i);
            add_edge(m, (layer - 1) * n + (i ^ half));
        }
    }
}

static void make_mapreduce(maker *m)
{
    const uint32_t width = (uint32_t)m->width, degree = (uint32_t)m->degree;
    for (uint32_t d = 0; d < (uint32_t)m->depth; d++) {
        const uint32_t first = m->g->n_task;
        for (uint32_t i = 0; i < width && !m->status; i++) {
            add_task(m, 1, "map", d, i, 0);
            if (d) add_edge(m, first - degree + i % degree);
        }
        for (uint32_t r = 0; r < degree && !m->status; r++) {
            add_task(m, 1, "reduce", d, r, 0);
            for (uint32_t i = 0; i < width; i++)
                add_edge(m, first + i);
        }
    }
}

static const struct {
    const char *name;
    void (*make)(maker *m);
    double n, width, depth, degree;
} families[] = {
    {"layered", make_layered, 1000, 32, 0, 3},
    {"forkjoin", make_forkjoin, 0, 32, 10, 0},
    {"stencil", make_stencil, 0, 32, 32, 0},
    {"cholesky", make_cholesky, 8, 0, 0, 0},
    {"lu", make_lu, 8, 0, 0, 0},
    {"fft", make_fft, 64, 0, 0, 0},
    {"mapreduce", make_mapreduce, 0, 32, 1, 8},
};

static int read_keys(maker *m, const char *at)
{
    const struct {
        const char *name;
        double *out, min, max;
    } keys[] = {{"n", &m->n, 1, WEFT__TG_MAX_TASKS},
                {"width", &m->width, 1, WEFT__TG_MAX_TASKS},
                {"depth", &m->depth, 1, WEFT__TG_MAX_TASKS},
                {"degree", &m->degree, 1, WEFT__TG_MAX_TASKS},
                {"cost", &m->cost, 0, 1e15},
                {"bytes", &m->bytes, 0, 1e15},
                {"spread", &m->spread, 0, 1},
                {"seed", &m->seed, 0, 9007199254740992.0}};
    uint32_t given = 0;
    while (*at == ',') {
        const char *name = ++at, *equals = strchr(name, '=');
        uint32_t i = 0;
        while (i < 8 && !(equals && strlen(keys[i].name) == (size_t)(equals - name) &&
                          !memcmp(keys[i].name, name, (size_t)(equals - name))))
            i++;
        if (i == 8 || !keys[i].out || (i < 4 && *keys[i].out == 0))
            return weft__fail(WEFT_EUSAGE, "%s: no such key of this family at '%s'", m->spec, name);
        if (given >> i & 1) return weft__fail(WEFT_EUSAGE, "%s: %s is given twice", m->spec, keys[i].name);
        given |= 1u << i;
        char *end;
        const double v = strtod(equals + 1, &end);
        if (end == equals + 1 || (*end && *end != ',') || !(v >= keys[i].min && v <= keys[i].max) ||
            ((i < 4 || i == 7) && v != floor(v)))
            return weft__fail(WEFT_EUSAGE, "%s: %s: expected a number from %g to %g", m->spec, keys[i].name,
                              keys[i].min, keys[i].max);
        *keys[i].out = v;
        at = end;
    }
    return *at ? weft__fail(WEFT_EUSAGE, "%s: expected ',KEY=NUMBER' at '%s'", m->spec, at) : 0;
}

int weft__graphgen(const char *spec, weft__taskgraph *g)
{
    maker m = {.spec = spec, .g = g, .cost = 10000, .bytes = 65536, .spread = 0.5, .seed = 1};
    const char *name = strncmp(spec, "gen:", 4) ? spec : spec + 4;
    const size_t length = strcspn(name, ",");
    weft__tg_init(g, 1);
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        if (strlen(families[f].name) != length || memcmp(families[f].name, name, length)) continue;
        m.n = families[f].n;
        m.width = families[f].width;
        m.depth = families[f].depth;
        m.degree = families[f].degree;
        int status = read_keys(&m, name + length);
        const int tiles = families[f].make == make_cholesky || families[f].make == make_lu;
        if (!status && families[f].make == make_fft && ((uint32_t)m.n & ((uint32_t)m.n - 1)))
            status = weft__fail(WEFT_EUSAGE, "%s: n is not a power of two", spec);
        if (!status && tiles && m.n > 512) status = weft__fail(WEFT_EUSAGE, "%s: n: at most 512 tiles", spec);
        if (!status && tiles && !(m.grid = calloc((size_t)(m.n * m.n), sizeof *m.grid)))
            status = weft__fail(WEFT_ENOMEM, "%s", spec);
        if (!status) families[f].make(&m);
        free(m.grid);
        if (!status) status = m.status;
        return status ? status : weft__tg_finish(g, spec);
    }
    return weft__fail(WEFT_EUSAGE, "%s: expected gen:layered, forkjoin, stencil, cholesky, lu, fft or mapreduce", spec);
}
