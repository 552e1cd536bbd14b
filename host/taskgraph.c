/* taskgraph.c: see taskgraph.h. Edges are sorted by counting (reader, then producer), so a million take no log n. */
#include "taskgraph.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void weft__tg_init(weft__taskgraph *g, uint32_t n_column) { *g = (weft__taskgraph){.n_column = n_column}; }

void weft__tg_free(weft__taskgraph *g)
{
    free(g->cost);
    free(g->memory);
    free(g->name);
    free(g->names);
    free(g->edges);
    free(g->out0);
    free(g->in0);
    free(g->in);
    free(g->order);
    *g = (weft__taskgraph){0};
}

static int grow(void *at, uint64_t count, uint64_t bytes)
{
    void *p = realloc(*(void **)at, count * bytes);
    if (!p) return weft__fail(WEFT_ENOMEM, "task graph: %llu bytes", (unsigned long long)(count * bytes));
    *(void **)at = p;
    return 0;
}

static int room_for_task(weft__taskgraph *g, uint64_t name_bytes)
{
    int status = 0;
    if (g->n_task == g->room_task) {
        const uint64_t room = g->room_task ? 2 * g->room_task : 64;
        status = grow(&g->cost, room * g->n_column, sizeof *g->cost);
        if (!status) status = grow(&g->memory, room, sizeof *g->memory);
        if (!status) status = grow(&g->name, room, sizeof *g->name);
        if (!status) g->room_task = room;
    }
    if (!status && g->n_names + name_bytes > g->room_names) {
        const uint64_t room = 2 * (g->room_names + name_bytes);
        status = grow(&g->names, room, 1);
        if (!status) g->room_names = room;
    }
    return status;
}

int weft__tg_task(weft__taskgraph *g, const char *name, const double *cost, uint64_t memory)
{
    const uint64_t bytes = strlen(name) + 1;
    if (g->n_task == WEFT__TG_MAX_TASKS)
        return weft__fail(WEFT_EFILE, "task %s: more than %u tasks", name, WEFT__TG_MAX_TASKS);
    for (uint32_t d = 0; d < g->n_column; d++)
        if (!(cost[d] >= 0)) return weft__fail(WEFT_EFILE, "task %s: cost %g on device %u", name, cost[d], d);
    int status = room_for_task(g, bytes);
    if (status) return status;
    memcpy(g->cost + (uint64_t)g->n_task * g->n_column, cost, g->n_column * sizeof *cost);
    g->memory[g->n_task] = memory;
    g->name[g->n_task] = g->n_names;
    memcpy(g->names + g->n_names, name, bytes);
    g->n_names += bytes;
    g->n_task++;
    return 0;
}

int weft__tg_edge(weft__taskgraph *g, uint32_t from, uint32_t to, uint32_t file, double bytes)
{
    if (g->n_edge == WEFT__TG_MAX_EDGES) return weft__fail(WEFT_EFILE, "more than %u edges", WEFT__TG_MAX_EDGES);
    if (!(bytes >= 0) || isinf(bytes)) return weft__fail(WEFT_EFILE, "edge %u -> %u: %g bytes", from, to, bytes);
    if (g->n_edge == g->room_edge) {
        const uint64_t room = g->room_edge ? 2 * g->room_edge : 64;
        int status = grow(&g->edges, room, sizeof *g->edges);
        if (status) return status;
        g->room_edge = room;
    }
    g->edges[g->n_edge++] = (weft__tg_edge_row){.bytes = bytes, .from = from, .to = to, .file = file};
    return 0;
}

static int check_rows(weft__taskgraph *g, const char *where)
{
    for (uint32_t t = 0; t < g->n_task; t++) {
        int runs = 0, zero = 1;
        for (uint32_t d = 0; d < g->n_column; d++) {
            runs |= !isinf(g->cost[(uint64_t)t * g->n_column + d]);
            zero &= g->cost[(uint64_t)t * g->n_column + d] == 0;
        }
        if (!runs) return weft__fail(WEFT_EFILE, "%s: task %s can run on no device", where, weft__tg_name(g, t));
        g->zero_costs += (uint32_t)zero;
    }
    for (uint32_t e = 0; e < g->n_edge; e++) {
        const weft__tg_edge_row *r = &g->edges[e];
        if (r->from >= g->n_task || r->to >= g->n_task)
            return weft__fail(WEFT_EFILE, "%s: edge %u: %u -> %u, but there are %u tasks", where, e, r->from, r->to,
                              g->n_task);
        if (r->from == r->to)
            return weft__fail(WEFT_EFILE, "%s: task %s waits for itself", where, weft__tg_name(g, r->from));
        g->zero_bytes += r->bytes == 0;
    }
    return 0;
}

/* Edge ids by one end: counts become the ends of runs, filled from the back, so equal ones keep their order. */
static void bucket(uint32_t n_task, uint32_t n_edge, const uint32_t *key, const uint32_t *ids, uint32_t *first,
                   uint32_t *out)
{
    memset(first, 0, (n_task + 1ull) * sizeof *first);
    for (uint32_t i = 0; i < n_edge; i++)
        first[key[i]]++;
    for (uint32_t t = 0, sum = 0; t <= n_task; t++) {
        sum += first[t];
        first[t] = sum;
    }
    for (uint32_t i = n_edge; i-- > 0;) {
        const uint32_t id = ids ? ids[i] : i;
        out[--first[key[id]]] = id;
    }
}

static int sort_edges(weft__taskgraph *g)
{
    const uint64_t m = g->n_edge + 1ull;
    weft__tg_edge_row *rows = malloc(m * sizeof *rows);
    uint32_t *key = malloc(m * sizeof *key), *by_to = malloc(m * sizeof *by_to);
    g->out0 = malloc((g->n_task + 1ull) * sizeof *g->out0);
    g->in0 = malloc((g->n_task + 1ull) * sizeof *g->in0);
    g->in = malloc(m * sizeof *g->in);
    int status = rows && key && by_to && g->out0 && g->in0 && g->in
                     ? 0
                     : weft__fail(WEFT_ENOMEM, "task graph: %u edges", g->n_edge);
    if (!status) {
        for (uint32_t e = 0; e < g->n_edge; e++)
            key[e] = g->edges[e].to;
        bucket(g->n_task, g->n_edge, key, NULL, g->in0, by_to);
        for (uint32_t e = 0; e < g->n_edge; e++)
            key[e] = g->edges[e].from;
        bucket(g->n_task, g->n_edge, key, by_to, g->out0, g->in);
        for (uint32_t e = 0; e < g->n_edge; e++)
            rows[e] = g->edges[g->in[e]];
        for (uint32_t e = 0; e < g->n_edge; e++)
            key[e] = rows[e].to;
        bucket(g->n_task, g->n_edge, key, NULL, g->in0, g->in);
        if (g->n_edge) memcpy(g->edges, rows, g->n_edge * sizeof *rows);
    }
    free(rows);
    free(key);
    free(by_to);
    return status;
}

/* Rows of one pair lie side by side: they must name different files. */
static int check_twice(const weft__taskgraph *g, const char *where)
{
    for (uint32_t e = 0; e < g->n_edge; e++)
        for (uint32_t f = e + 1; f < g->n_edge && g->edges[f].from == g->edges[e].from; f++) {
            if (g->edges[f].to != g->edges[e].to) break;
            if (g->edges[f].file == g->edges[e].file)
                return weft__fail(WEFT_EFILE, "%s: edge %s -> %s is given twice", where,
                                  weft__tg_name(g, g->edges[e].from), weft__tg_name(g, g->edges[e].to));
        }
    return 0;
}

/* Whoever is left waits for someone who is left: going back over such tasks must meet one again. */
static int report_cycle(const weft__taskgraph *g, const uint32_t *waits, const char *where)
{
    uint32_t t = 0;
    while (!waits[t])
        t++;
    for (uint32_t steps = 0; steps < g->n_task; steps++) /* from here on, t is on a cycle */
        for (uint32_t i = g->in0[t]; i < g->in0[t + 1]; i++) {
            const uint32_t from = g->edges[g->in[i]].from;
            if (!waits[from]) continue;
            t = from;
            break;
        }
    return weft__fail(WEFT_EFILE, "%s: task %s waits for itself over a cycle", where, weft__tg_name(g, t));
}

static int sort_tasks(weft__taskgraph *g, const char *where)
{
    uint32_t *waits = calloc(g->n_task + 1ull, sizeof *waits), head = 0, tail = 0;
    g->order = malloc((g->n_task + 1ull) * sizeof *g->order);
    if (!waits || !g->order) {
        free(waits);
        return weft__fail(WEFT_ENOMEM, "task graph: %u tasks", g->n_task);
    }
    for (uint32_t t = 0; t < g->n_task; t++) {
        waits[t] = g->in0[t + 1] - g->in0[t];
        if (!waits[t]) g->order[tail++] = t;
    }
    while (head < tail) {
        const uint32_t t = g->order[head++];
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++)
            if (--waits[g->edges[e].to] == 0) g->order[tail++] = g->edges[e].to;
    }
    int status = tail == g->n_task ? 0 : report_cycle(g, waits, where);
    free(waits);
    return status;
}

int weft__tg_finish(weft__taskgraph *g, const char *where)
{
    if (!g->n_task) return weft__fail(WEFT_EFILE, "%s: no tasks", where);
    int status = check_rows(g, where);
    if (!status) status = sort_edges(g);
    if (!status) status = check_twice(g, where);
    if (!status) status = sort_tasks(g, where);
    return status;
}
