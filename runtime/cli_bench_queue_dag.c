/* cli_bench_queue_dag.c: graphs of tasks for `weft bench queue`, their lower bound and their images.
 *
 * A NOP graph is planned like any other (dag.c); then the image is made anew with the bench's order, and with COPY instead of
 * NOP where a task moves bytes: blocks of 1 KB (8 rows by 64 columns, FRAG) from an input of its device to a tensor of its own or
 * of another device, no block read or written by two tasks.                                                            */
#include "../host/error.h"
#include "../host/validate.h"
#include "../tasks/layout.h"
#include "../tasks/seed.h"
#include "cli_bench_queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TASKS = 1 << 20,
    MOST_EDGES = 1 << 24,
    MOST_DEGREE = 1024
};

/* ------------------------------------------------------------------------------------------------------------ nodes */

typedef struct nodes {
    uint32_t *first, *in; /* [n + 1]; inputs of each, before it */
    uint32_t *column;     /* [n]: 0 .. width - 1 */
    uint32_t *level;
    uint32_t n, n_in, cap, cap_in;
} nodes;

static int grow(void **p, uint32_t n, uint32_t *cap, size_t bytes)
{
    if (n < *cap) return 0;
    const uint32_t more = *cap ? *cap * 2 : 1024;
    void *grown = realloc(*p, more * bytes);
    if (!grown) return weft__fail(WEFT_ENOMEM, "a graph of %u", more);
    *p = grown;
    *cap = more;
    return 0;
}

static bool has_edge(const nodes *g, uint32_t from)
{
    for (uint32_t i = g->first[g->n]; i < g->n_in; i++)
        if (g->in[i] == from) return true;
    return false;
}

static int add_edge(nodes *g, uint32_t from)
{
    if (g->n_in == MOST_EDGES)
        return weft__fail(WEFT_EUSAGE, "--width, --depth, --degree: more than %d edges", MOST_EDGES);
    int status = grow((void **)&g->in, g->n_in, &g->cap_in, sizeof *g->in);
    if (!status) g->in[g->n_in++] = from;
    return status;
}

/* The edges added since the last node are this one's. */
static int add_node(nodes *g, uint32_t level, uint32_t column)
{
    if (g->n == MOST_TASKS) return weft__fail(WEFT_EUSAGE, "--width, --depth: more than %d nodes", MOST_TASKS);
    g->level[g->n] = level;
    g->column[g->n++] = column;
    g->first[g->n] = g->n_in;
    return 0;
}

/* Levels of `width` nodes, each waiting for `degree` of the level before: all, the nearest, or drawn ones. */
static int make_rows(nodes *g, const weft__queue_case *c, char how)
{
    int status = 0;
    for (uint32_t l = 0; l < c->depth && !status; l++)
        for (uint32_t i = 0; i < c->width && !status; i++) {
            const uint32_t before = (l - 1) * c->width, n = how == 'a' || c->degree > c->width ? c->width : c->degree;
            uint32_t from = i > n / 2 ? i - n / 2 : 0;
            if (from > c->width - n) from = c->width - n;
            for (uint32_t k = 0; l && k < n && !status; k++) {
                const uint32_t pick = how == 'r' ? weft_hash(c->seed, g->n, k) % c->width : how == 'a' ? k : from + k;
                if (how != 'r' || !has_edge(g, before + pick)) status = add_edge(g, before + pick);
            }
            if (!status) status = add_node(g, l, i);
        }
    return status;
}

static int make_chains(nodes *g, const weft__queue_case *c)
{
    int status = 0;
    for (uint32_t l = 0; l < c->depth && !status; l++)
        for (uint32_t i = 0; i < c->width && !status; i++) {
            if (l) status = add_edge(g, (l - 1) * c->width + i);
            if (!status) status = add_node(g, l, i);
        }
    return status;
}

/* A source, width x depth nodes that wait for it, a sink that waits for them all. */
static int make_wide(nodes *g, const weft__queue_case *c)
{
    int status = add_node(g, 0, 0);
    for (uint32_t i = 0; i < c->width * c->depth && !status; i++) {
        status = add_edge(g, 0);
        if (!status) status = add_node(g, 1, i % c->width);
    }
    for (uint32_t i = 0; i < c->width * c->depth && !status; i++)
        status = add_edge(g, i + 1);
    return status ? status : add_node(g, 2, 0);
}

/* `depth` trees of `width` leaves each; an inner node has up to `degree` below it. From the leaves (fan-in) or the root. */
static int make_trees(nodes *g, const weft__queue_case *c, bool out)
{
    uint32_t size[32], levels = 0, degree = c->degree < 2 ? 2 : c->degree;
    for (uint32_t n = c->width;; n = weft_div_up(n, degree)) {
        size[levels++] = n;
        if (n == 1) break;
    }
    int status = 0;
    for (uint32_t tree = 0; tree < c->depth; tree++)
        for (uint32_t l = 0, before = 0; l < levels; l++) {
            const uint32_t n = out ? size[levels - 1 - l] : size[l], start = g->n;
            for (uint32_t i = 0; i < n && !status; i++) {
                if (l && out) status = add_edge(g, before + i / degree);
                for (uint32_t k = i * degree; l && !out && k < (i + 1) * degree && k < size[l - 1] && !status; k++)
                    status = add_edge(g, before + k);
                if (!status) status = add_node(g, l, (uint32_t)((uint64_t)i * c->width / n));
            }
            if (status) return status;
            before = start;
        }
    return 0;
}

static int make_nodes(nodes *g, const weft__queue_case *c)
{
    if ((uint64_t)c->width * c->depth > MOST_TASKS / 2 || c->degree > MOST_DEGREE)
        return weft__fail(WEFT_EUSAGE, "--width %u, --depth %u, --degree %u: at most %d nodes, degree at most %d",
                          c->width, c->depth, c->degree, MOST_TASKS / 2, MOST_DEGREE);
    g->first = calloc(MOST_TASKS + 1, 4);
    g->column = malloc(MOST_TASKS * sizeof *g->column);
    g->level = malloc(MOST_TASKS * sizeof *g->level);
    if (!g->first || !g->column || !g->level) return weft__fail(WEFT_ENOMEM, "a graph");
    if (!strcmp(c->graph, "layers")) return make_rows(g, c, 'a');
    if (!strcmp(c->graph, "stencil")) return make_rows(g, c, 's');
    if (!strcmp(c->graph, "random")) return make_rows(g, c, 'r');
    if (!strcmp(c->graph, "deep")) return make_chains(g, c);
    if (!strcmp(c->graph, "wide")) return make_wide(g, c);
    if (!strcmp(c->graph, "fan-in")) return make_trees(g, c, false);
    if (!strcmp(c->graph, "fan-out")) return make_trees(g, c, true);
    return weft__fail(WEFT_EUSAGE, "--graph %s: expected layers, wide, deep, fan-in, fan-out, stencil or random",
                      c->graph);
}

/* -------------------------------------------------------------------------------------------------------- durations */

static double draw_unit(uint64_t seed, uint32_t node, uint32_t k) /* in (0, 1) */
{
    return (weft_hash(seed, node, k + 1000000) + 0.5) / 4294967296.0;
}

/* A factor with mean 1. */
static int draw_factor(const weft__queue_case *c, uint32_t node, double *out)
{
    const double u = draw_unit(c->seed, node, 0), v = draw_unit(c->seed, node, 1);
    if (!strcmp(c->dist, "constant")) {
        *out = 1;
    } else if (!strcmp(c->dist, "uniform")) {
        *out = 1 + c->spread * (2 * u - 1);
    } else if (!strcmp(c->dist, "lognormal")) { /* Box and Muller 1958 */
        *out = exp(c->sigma * sqrt(-2 * log(u)) * cos(2 * M_PI * v) - c->sigma * c->sigma / 2);
    } else if (!strcmp(c->dist, "bimodal")) {
        *out = (u < c->long_share ? c->long_factor : 1) / (1 - c->long_share + c->long_share * c->long_factor);
    } else {
        return weft__fail(WEFT_EUSAGE, "--dist %s: expected constant, uniform, lognormal or bimodal", c->dist);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ tasks */

static int add_input(weft__qdag *g, uint32_t from)
{
    int status = grow((void **)&g->inputs, g->n_input, &g->cap_input, sizeof *g->inputs);
    if (!status) g->inputs[g->n_input++] = from;
    return status;
}

/* The inputs added since the last task are this one's. */
static int add_task(weft__qdag *g, weft__qtask t)
{
    int status = grow((void **)&g->tasks, g->n, &g->cap, sizeof *g->tasks);
    if (status) return status;
    t.in = g->n ? g->tasks[g->n - 1].in + g->tasks[g->n - 1].n_in : 0;
    t.n_in = g->n_input - t.in;
    g->tasks[g->n++] = t;
    g->n_of[t.device]++;
    return 0;
}

typedef struct maker {
    const weft__queue_case *c;
    weft__qdag *g;
    nodes nodes;
    uint32_t *device;                                   /* [node] */
    uint64_t *reads;                                    /* [node]: devices with readers */
    uint32_t *last;                                     /* [node]: its last task */
    uint32_t *edge;                                     /* [node]: its first EDGE task; they go up by device */
    uint32_t blocks[WEFT_MAX_DEVICES];                  /* streamed */
    uint32_t edges[WEFT_MAX_DEVICES][WEFT_MAX_DEVICES]; /* blocks carried, from, to */
} maker;

static int place_nodes(maker *m)
{
    const weft__queue_case *c = m->c;
    const bool columns = !strcmp(c->place, "columns");
    if (!columns && strcmp(c->place, "levels"))
        return weft__fail(WEFT_EUSAGE, "--place %s: expected columns or levels", c->place);
    for (uint32_t i = 0; i < m->nodes.n; i++)
        m->device[i] = columns ? (uint32_t)((uint64_t)m->nodes.column[i] * m->g->n_device / c->width)
                               : m->nodes.level[i] % m->g->n_device;
    for (uint32_t i = 0; i < m->nodes.n; i++)
        for (uint32_t k = m->nodes.first[i]; k < m->nodes.first[i + 1]; k++) {
            const uint32_t from = m->nodes.in[k];
            m->reads[from] |= 1ull << m->device[i];
            m->g->edges++;
            m->g->remote_edges += m->device[from] != m->device[i];
        }
    return 0;
}

static uint32_t blocks_of(double bytes)
{
    const double n = ceil(bytes / WEFT_FRAG_BYTES);
    return n < 1 ? 1 : n > 1e9 ? 1000000000u : (uint32_t)n;
}

static int add_edges(maker *m, uint32_t node)
{
    int status = 0;
    m->edge[node] = m->g->n;
    for (uint64_t left = m->c->edge_bytes ? m->reads[node] : 0; left && !status; left &= left - 1) {
        const uint32_t d = m->device[node], to = (uint32_t)__builtin_ctzll(left);
        weft__qtask t = {
            .kind = WEFT__QTASK_EDGE, .device = d, .to = to, .blocks = blocks_of((double)m->c->edge_bytes)};
        t.block = m->edges[d][to];
        m->edges[d][to] += t.blocks;
        m->g->bytes += 2ull * WEFT_FRAG_BYTES * t.blocks;
        if (to != d) m->g->remote_bytes += (uint64_t)WEFT_FRAG_BYTES * t.blocks;
        status = add_input(m->g, m->last[node]);
        if (!status) status = add_task(m->g, t);
    }
    return status;
}

static int add_inputs(maker *m, uint32_t node)
{
    int status = 0;
    for (uint32_t k = m->nodes.first[node]; k < m->nodes.first[node + 1] && !status; k++) {
        const uint32_t from = m->nodes.in[k];
        const uint64_t below = m->reads[from] & ((1ull << m->device[node]) - 1);
        status = add_input(m->g,
                           m->c->edge_bytes ? m->edge[from] + (uint32_t)__builtin_popcountll(below) : m->last[from]);
    }
    return status;
}

static int add_node_tasks(maker *m, uint32_t node)
{
    const bool spin = strcmp(m->c->work, "stream"), stream = strcmp(m->c->work, "spin");
    weft__qtask t = {.device = m->device[node], .to = m->device[node]};
    double factor = 1;
    int status = draw_factor(m->c, node, &factor);
    if (!status) status = add_inputs(m, node);
    if (!status && spin) {
        const double ns = m->c->mean_us * 1e3 * factor;
        t.kind = WEFT__QTASK_SPIN;
        t.cost_ns = ns > 4e9 ? 4000000000u : (uint32_t)(ns + 0.5);
        status = add_task(m->g, t);
        if (!status && stream) status = add_input(m->g, m->g->n - 1);
    }
    if (!status && stream) {
        t.kind = WEFT__QTASK_STREAM;
        t.cost_ns = 0;
        t.blocks = blocks_of((double)m->c->bytes * factor);
        t.block = m->blocks[t.device];
        m->blocks[t.device] += t.blocks;
        m->g->bytes += 2ull * WEFT_FRAG_BYTES * t.blocks;
        status = add_task(m->g, t);
    }
    m->last[node] = m->g->n - 1;
    if (!status && m->g->bytes > 4ull << 30)
        status = weft__fail(WEFT_EUSAGE, "--bytes, --edge-bytes: over 4 GB a step");
    return status ? status : add_edges(m, node);
}

static int make_tasks(maker *m)
{
    const size_t n = m->nodes.n + 1u;
    m->device = calloc(n, 4);
    m->reads = calloc(n, 8);
    m->last = calloc(n, 4);
    m->edge = calloc(n, 4);
    int status = m->device && m->reads && m->last && m->edge ? place_nodes(m) : weft__fail(WEFT_ENOMEM, "a graph");
    if (!status && strcmp(m->c->work, "spin") && strcmp(m->c->work, "stream") && strcmp(m->c->work, "both"))
        status = weft__fail(WEFT_EUSAGE, "--work %s: expected spin, stream or both", m->c->work);
    for (uint32_t i = 0; i < m->nodes.n && !status; i++)
        status = add_node_tasks(m, i);
    m->g->n_node = m->nodes.n;
    return status;
}

static int open_devices(const weft__queue_case *c, weft__qdag *g)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    int status = weft_devices(c->devices, info, WEFT_MAX_DEVICES, &g->n_device);
    if (!status && g->n_device > WEFT_MAX_DEVICES)
        status = weft__fail(WEFT_EUSAGE, "over %u devices", WEFT_MAX_DEVICES);
    for (uint32_t d = 0; d < g->n_device && !status; d++)
        g->all_workers += g->workers[d] = info[d].workers;
    return status;
}

int weft__qdag_make(const weft__queue_case *c, weft__qdag *out)
{
    maker *m = calloc(1, sizeof *m);
    *out = (weft__qdag){0};
    if (!m) return weft__fail(WEFT_ENOMEM, "a graph");
    m->c = c;
    m->g = out;
    int status = open_devices(c, out);
    if (!status) status = make_nodes(&m->nodes, c);
    if (!status) status = make_tasks(m);
    free(m->nodes.first);
    free(m->nodes.in);
    free(m->nodes.column);
    free(m->nodes.level);
    free(m->device);
    free(m->reads);
    free(m->last);
    free(m->edge);
    free(m);
    return status;
}

void weft__qdag_free(weft__qdag *g)
{
    free(g->tasks);
    free(g->inputs);
    for (uint32_t d = 0; d < WEFT_MAX_DEVICES; d++)
        free(g->task_of[d]);
    *g = (weft__qdag){0};
}

int weft__qdag_bound(const weft__queue_case *c, const weft__qdag *g, const double *ns, weft__qbound *out)
{
    double *end = calloc(g->n + 1u, sizeof *end), of[WEFT_MAX_DEVICES] = {0};
    if (!end) return weft__fail(WEFT_ENOMEM, "a bound");
    *out = (weft__qbound){0};
    for (uint32_t i = 0; i < g->n; i++) {
        const weft__qtask *t = &g->tasks[i];
        for (uint32_t k = 0; k < t->n_in; k++)
            end[i] = fmax(end[i], end[g->inputs[t->in + k]]);
        end[i] += ns[i] * 1e-3;
        out->critical = fmax(out->critical, end[i]);
        out->work += ns[i] * 1e-3;
        of[t->device] += ns[i] * 1e-3;
    }
    free(end);
    out->share = out->work / g->all_workers;
    for (uint32_t d = 0; d < g->n_device; d++)
        out->fullest = fmax(out->fullest, of[d] / g->workers[d]);
    out->bound = fmax(out->critical, c->alternates ? out->share : out->fullest);
    return 0;
}
