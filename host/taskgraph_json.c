/* taskgraph_json.c: weft's own graph files: all that a task graph says, exactly.
 *
 *   {"weft_graph": 1, "devices": D, "tasks": [{"id": "a", "cost": 5.0 | [5.0, null], "memory": 0}, ..],
 *    "edges": [{"from": "a", "to": "b", "bytes": 8.0, "file": 0}, ..]}
 *
 * Costs are nanoseconds, one for all devices or (where `devices` is there) one a device, null: can't run there. memory, bytes and
 * file may be left out. Unknown keys are refused, as are keys that stand twice (jansson).                              */
#include "taskgraph.h"

#include "error.h"
#include "taskgraph_names.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *path;
    weft__taskgraph *g;
    weft__tg_names names;
    double *cost;
} reader;

static int check_keys(const reader *r, const char *what, size_t i, const json_t *o, const char *const *known)
{
    const char *key;
    json_t *v;
    if (!json_is_object(o)) return weft__fail(WEFT_EFILE, "%s: %s[%zu] is not an object", r->path, what, i);
    json_object_foreach((json_t *)o, key, v)
    {
        size_t k = 0;
        while (known[k] && strcmp(known[k], key))
            k++;
        if (!known[k]) return weft__fail(WEFT_EFILE, "%s: %s[%zu]: unknown key '%s'", r->path, what, i, key);
    }
    return 0;
}

/* A number of 0 or more; `otherwise` where there is none. */
static int read_number(const reader *r, const char *what, size_t i, const json_t *o, const char *key, double otherwise,
                       double max, double *out)
{
    const json_t *v = json_object_get(o, key);
    *out = otherwise;
    if (!v) return 0;
    *out = json_is_number(v) ? json_number_value(v) : -1;
    if (*out >= 0 && *out <= max) return 0;
    return weft__fail(WEFT_EFILE, "%s: %s[%zu]: %s is not a number of 0 to %g", r->path, what, i, key, max);
}

static int read_costs(const reader *r, size_t i, const json_t *v)
{
    const uint32_t n = r->g->n_column;
    for (uint32_t d = 0; d < n; d++) {
        const json_t *c = json_is_array(v) ? json_array_get(v, d) : v;
        r->cost[d] = json_is_number(c) ? json_number_value(c) : json_is_null(c) ? INFINITY : -1;
        if (!(r->cost[d] >= 0) || (json_is_array(v) && json_array_size(v) != n))
            return weft__fail(WEFT_EFILE, "%s: tasks[%zu]: cost: expected %u numbers of 0 or more, or null", r->path, i,
                              n);
    }
    return 0;
}

static int read_tasks(reader *r, const json_t *tasks)
{
    static const char *const known[] = {"id", "cost", "memory", NULL};
    size_t i;
    json_t *t;
    int status = weft__tg_names_init(&r->names, json_array_size(tasks));
    if (status) return status;
    json_array_foreach((json_t *)tasks, i, t)
    {
        double memory;
        const char *id = json_string_value(json_object_get(t, "id"));
        status = check_keys(r, "tasks", i, t, known);
        if (!status && !id) status = weft__fail(WEFT_EFILE, "%s: tasks[%zu]: no id", r->path, i);
        if (!status && weft__tg_names_find(&r->names, id, 0) != WEFT__TG_NONE)
            status = weft__fail(WEFT_EFILE, "%s: tasks[%zu]: task %s is there twice", r->path, i, id);
        if (!status) status = read_costs(r, i, json_object_get(t, "cost"));
        if (!status) status = read_number(r, "tasks", i, t, "memory", 0, 1e18, &memory);
        if (!status) status = weft__tg_task(r->g, id, r->cost, (uint64_t)memory);
        if (status) return status;
        weft__tg_names_find(&r->names, id, 1);
    }
    return 0;
}

static int read_end(reader *r, size_t i, const json_t *e, const char *key, uint32_t *out)
{
    const char *id = json_string_value(json_object_get(e, key));
    *out = id ? weft__tg_names_find(&r->names, id, 0) : WEFT__TG_NONE;
    if (*out != WEFT__TG_NONE) return 0;
    return weft__fail(WEFT_EFILE, "%s: edges[%zu]: %s: unknown id %s", r->path, i, key, id ? id : "(not a string)");
}

static int read_edges(reader *r, const json_t *edges)
{
    static const char *const known[] = {"from", "to", "bytes", "file", NULL};
    size_t i;
    json_t *e;
    json_array_foreach((json_t *)edges, i, e)
    {
        uint32_t from = 0, to = 0;
        double bytes = 0, file = 0;
        int status = check_keys(r, "edges", i, e, known);
        if (!status) status = read_end(r, i, e, "from", &from);
        if (!status) status = read_end(r, i, e, "to", &to);
        if (!status) status = read_number(r, "edges", i, e, "bytes", 0, 1e18, &bytes);
        if (!status) status = read_number(r, "edges", i, e, "file", WEFT__TG_NONE, WEFT__TG_NONE, &file);
        if (!status) status = weft__tg_edge(r->g, from, to, (uint32_t)file, bytes);
        if (status) return status;
    }
    return 0;
}

static int read_root(reader *r, const json_t *root)
{
    const json_t *tasks = json_object_get(root, "tasks"), *edges = json_object_get(root, "edges"),
                 *devices = json_object_get(root, "devices");
    if (json_integer_value(json_object_get(root, "weft_graph")) != 1)
        return weft__fail(WEFT_EFILE, "%s: weft_graph: only version 1 is read", r->path);
    if (devices && (!json_is_integer(devices) || json_integer_value(devices) < 1 || json_integer_value(devices) > 64))
        return weft__fail(WEFT_EFILE, "%s: devices: expected 1 to 64", r->path);
    if (!json_is_array(tasks) || (edges && !json_is_array(edges)))
        return weft__fail(WEFT_EFILE, "%s: tasks or edges is not an array", r->path);
    r->g->n_column = devices ? (uint32_t)json_integer_value(devices) : 1;
    r->cost = malloc(r->g->n_column * sizeof *r->cost);
    int status = r->cost ? 0 : weft__fail(WEFT_ENOMEM, "%s", r->path);
    if (!status) status = read_tasks(r, tasks);
    if (!status) status = read_edges(r, edges);
    return status ? status : weft__tg_finish(r->g, r->path);
}

int weft__tg_read_json(const char *path, weft__taskgraph *g)
{
    json_error_t error;
    reader r = {.path = path, .g = g};
    weft__tg_init(g, 1);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) return weft__fail(WEFT_EFILE, "%s:%d: %s", path, error.line, error.text);
    int status = read_root(&r, root);
    json_decref(root);
    weft__tg_names_free(&r.names);
    free(r.cost);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

static int put_string(FILE *f, const char *text)
{
    json_t *s = json_string(text); /* NULL: not UTF-8 */
    const int bad = !s || json_dumpf(s, f, JSON_ENCODE_ANY);
    json_decref(s);
    return bad ? weft__fail(WEFT_EIO, "task %s can't be written as JSON", text) : 0;
}

static void put_cost(FILE *f, double cost)
{
    if (isinf(cost))
        fputs("null", f);
    else
        fprintf(f, "%.17g", cost);
}

static int put_tasks(FILE *f, const weft__taskgraph *g)
{
    int status = 0;
    for (uint32_t t = 0; t < g->n_task && !status; t++) {
        fputs(t ? ",\n  {\"id\": " : "\n  {\"id\": ", f);
        status = put_string(f, weft__tg_name(g, t));
        fputs(g->n_column == 1 ? ", \"cost\": " : ", \"cost\": [", f);
        for (uint32_t d = 0; d < g->n_column; d++) {
            if (d) fputs(", ", f);
            put_cost(f, g->cost[(uint64_t)t * g->n_column + d]);
        }
        if (g->n_column > 1) fputc(']', f);
        if (g->memory[t]) fprintf(f, ", \"memory\": %llu", (unsigned long long)g->memory[t]);
        fputc('}', f);
    }
    return status;
}

static int put_edges(FILE *f, const weft__taskgraph *g)
{
    int status = 0;
    for (uint32_t e = 0; e < g->n_edge && !status; e++) {
        const weft__tg_edge_row *r = &g->edges[e];
        fputs(e ? ",\n  {\"from\": " : "\n  {\"from\": ", f);
        status = put_string(f, weft__tg_name(g, r->from));
        fputs(", \"to\": ", f);
        if (!status) status = put_string(f, weft__tg_name(g, r->to));
        if (r->bytes != 0) fprintf(f, ", \"bytes\": %.17g", r->bytes);
        if (r->file != WEFT__TG_NONE) fprintf(f, ", \"file\": %u", r->file);
        fputc('}', f);
    }
    return status;
}

int weft__tg_write_json(const weft__taskgraph *g, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return weft__fail(WEFT_EIO, "%s: can't be written", path);
    fprintf(f, "{\"weft_graph\": 1,");
    if (g->n_column > 1) fprintf(f, " \"devices\": %u,", g->n_column);
    fprintf(f, "\n \"tasks\": [");
    int status = put_tasks(f, g);
    fprintf(f, "],\n \"edges\": [");
    if (!status) status = put_edges(f, g);
    fprintf(f, "]}\n");
    const int bad = ferror(f) | fclose(f);
    return !status && bad ? weft__fail(WEFT_EIO, "%s: writing failed", path) : status;
}
