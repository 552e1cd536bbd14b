/* taskgraph_dot.c: Graphviz DOT: directed graphs whose nodes have a cost and whose edges may carry bytes.
 *
 *   digraph g { node [cost=100]; a [cost="5,none,7"]; b [weight=3, memory=64]; a -> b -> c [bytes=8]; }
 *
 * Node attributes: cost or weight, in ns (a list: one a device, none: can't run there); memory, in bytes. Edge attributes: bytes or
 * weight. Others are skipped. Defaults (node [..], edge [..]) count for what follows, also in subgraphs, which are otherwise
 * transparent. A node that no statement declares needs a default cost. Refused, with the line: undirected graphs, ports, HTML,
 * edges to subgraphs, an attribute or a declaration that is there twice.                                               */
#include "taskgraph.h"

#include "error.h"
#include "map.h"
#include "taskgraph_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 64

typedef struct values { /* of an attribute list; NULL: not there */
    const char *cost, *memory, *bytes;
} values;

typedef struct point {
    values v;
    uint32_t line; /* first named here */
    int declared;
} point;

typedef struct dot {
    const char *path, *at, *end;
    weft__taskgraph *g;
    char *token;   /* the text of the last one: in `text`, ended by NUL */
    char kind;     /* 'i' an ID, '>' an arrow, 0 the end, else the character itself */
    int quoted;    /* the ID is no keyword */
    uint32_t line; /* of the token */
    uint32_t now;
    char *text, *text_end; /* all IDs, one after another: as many bytes as the file and its NULs at most */
    weft__tg_names names;
    point *points; /* [name] */
    uint32_t room_point;
    values node, edge;
    int depth;
} dot;

static int bad(const dot *d, const char *what) { return weft__fail(WEFT_EFILE, "%s:%u: %s", d->path, d->line, what); }

static int is_word(int c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '.' || c >= 128;
}

static int skip_blanks(dot *d)
{
    for (; d->at < d->end; d->at++) {
        if (*d->at == '\n') {
            d->now++;
        } else if (*d->at == '#' && (d->now == 1 || d->at[-1] == '\n')) {
            while (d->at + 1 < d->end && d->at[1] != '\n')
                d->at++;
        } else if (*d->at == '/' && d->at + 1 < d->end && d->at[1] == '/') {
            while (d->at + 1 < d->end && d->at[1] != '\n')
                d->at++;
        } else if (*d->at == '/' && d->at + 1 < d->end && d->at[1] == '*') {
            d->line = d->now;
            const char *close = memmem(d->at + 2, (size_t)(d->end - d->at - 2), "*/", 2);
            if (!close) return bad(d, "a comment without an end");
            for (; d->at < close + 1; d->at++)
                d->now += *d->at == '\n';
        } else if (*d->at != ' ' && *d->at != '\t' && *d->at != '\r') {
            break;
        }
    }
    d->line = d->now;
    return 0;
}

static int read_quoted(dot *d)
{
    for (d->at++; d->at < d->end && *d->at != '"'; d->at++) {
        if (*d->at == '\\' && d->at + 1 < d->end && (d->at[1] == '"' || d->at[1] == '\\')) d->at++;
        if (*d->at == 0) return bad(d, "a NUL byte");
        d->now += *d->at == '\n';
        *d->text_end++ = *d->at;
    }
    if (d->at == d->end) return bad(d, "a string without an end");
    d->at++;
    d->quoted = 1;
    return 0;
}

/* The next token. IDs stay where they are: names of tasks point to them. */
static int next(dot *d)
{
    int status = skip_blanks(d);
    if (status) return status;
    d->kind = d->at == d->end ? 0 : *d->at;
    d->quoted = 0;
    if (!d->kind) return d->at == d->end ? 0 : bad(d, "a NUL byte");
    const int minus = *d->at == '-' && d->at + 1 < d->end;
    if (minus && (d->at[1] == '>' || d->at[1] == '-')) {
        d->kind = d->at[1] == '>' ? '>' : '-';
        d->at += 2;
        return d->kind == '>' ? 0 : bad(d, "an undirected edge");
    }
    if (strchr("{}[]=;,:", d->kind)) {
        d->at++;
        return 0;
    }
    d->token = d->text_end;
    if (d->kind == '"') {
        status = read_quoted(d);
    } else if (is_word((unsigned char)*d->at) || (minus && is_word((unsigned char)d->at[1]))) {
        do
            *d->text_end++ = *d->at++;
        while (d->at < d->end && is_word((unsigned char)*d->at));
    } else {
        return bad(d, d->kind == '<' ? "HTML is not read" : "an unexpected character");
    }
    d->kind = 'i';
    *d->text_end++ = 0;
    return status;
}

static int is_keyword(const dot *d, const char *word)
{
    return d->kind == 'i' && !d->quoted && strcasecmp(d->token, word) == 0;
}

static int set_value(dot *d, const char *name, const char *value, values *out, int edge)
{
    const char **to = NULL;
    if (!strcmp(name, "weight")) to = edge ? &out->bytes : &out->cost;
    if (!strcmp(name, "cost") && !edge) to = &out->cost;
    if (!strcmp(name, "memory") && !edge) to = &out->memory;
    if (!strcmp(name, "bytes") && edge) to = &out->bytes;
    if (to && *to) return bad(d, "an attribute (cost, bytes, weight or memory) that is there twice");
    if (to) *to = value;
    return 0;
}

/* [a=b, c=d; ..][..]: what is not given stays NULL. The token behind is read. */
static int read_list(dot *d, values *out, int edge)
{
    int status = 0;
    *out = (values){0};
    while (d->kind == '[' && !status) {
        status = next(d);
        while (!status && d->kind != ']') {
            const char *name = d->token;
            if (d->kind != 'i') return bad(d, "expected an attribute's name or ]");
            status = next(d);
            if (!status && d->kind != '=') return bad(d, "expected = behind an attribute's name");
            if (!status) status = next(d);
            if (!status && d->kind != 'i') return bad(d, "expected an attribute's value");
            if (!status) status = set_value(d, name, d->token, out, edge);
            if (!status) status = next(d);
            if (!status && (d->kind == ',' || d->kind == ';')) status = next(d);
        }
        if (!status) status = next(d);
    }
    return status;
}

static values merge(values a, values b)
{
    return (values){a.cost ? a.cost : b.cost, a.memory ? a.memory : b.memory, a.bytes ? a.bytes : b.bytes};
}

static int find_point(dot *d, const char *name, uint32_t *out)
{
    const uint32_t before = d->names.n;
    *out = weft__tg_names_find(&d->names, name, 1);
    if (*out == WEFT__TG_NONE) return bad(d, "too many tasks");
    if (*out < before) return 0;
    if (*out == d->room_point) {
        const uint32_t room = d->room_point ? 2 * d->room_point : 256;
        point *p = realloc(d->points, room * sizeof *p);
        if (!p) return weft__fail(WEFT_ENOMEM, "%s: %u tasks", d->path, room);
        d->points = p;
        d->room_point = room;
    }
    d->points[*out] = (point){.v = d->node, .line = d->line};
    return 0;
}

static int read_number(const dot *d, const char *text, uint32_t line, const char *what, double max, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= max) return 0;
    return weft__fail(WEFT_EFILE, "%s:%u: %s '%s' is not a number from 0 to %g", d->path, line, what, text, max);
}

static int read_edge(dot *d, uint32_t from, uint32_t *to)
{
    int status = next(d);
    if (!status && d->kind != 'i') status = bad(d, "expected a task's name behind ->");
    if (!status && is_keyword(d, "subgraph")) status = bad(d, "an edge to a subgraph");
    if (!status) status = find_point(d, d->token, to);
    if (!status) status = weft__tg_edge(d->g, from, *to, WEFT__TG_NONE, 0);
    if (!status) status = next(d);
    return status;
}

/* a -> b -> c [..], a [..], a = b; the first ID is read. */
static int read_task_or_edge(dot *d)
{
    uint32_t from, to = 0, first = d->g->n_edge, line = d->line;
    char *name = d->token;
    values v;
    int status = next(d);
    if (!status && d->kind == '=') { /* an attribute of the graph */
        status = next(d);
        if (!status && d->kind != 'i') status = bad(d, "expected a value behind =");
        return status ? status : next(d);
    }
    if (!status && d->kind == ':') status = bad(d, "ports are not read");
    if (!status) status = find_point(d, name, &from);
    const int edges = d->kind == '>';
    while (!status && d->kind == '>') {
        status = read_edge(d, from, &to);
        from = to;
    }
    if (!status) status = read_list(d, &v, edges);
    if (status) return status;
    const int says = v.cost || v.memory;
    v = merge(v, edges ? d->edge : d->node);
    double bytes = 0;
    if (edges && v.bytes) status = read_number(d, v.bytes, line, "bytes", 1e18, &bytes);
    for (uint32_t e = first; e < d->g->n_edge; e++)
        d->g->edges[e].bytes = bytes;
    if (edges || status) return status;
    point *p = &d->points[from];
    if (p->declared && !says) return 0; /* a name alone says nothing new */
    if (p->declared)
        return weft__fail(WEFT_EFILE, "%s:%u: task %s is declared twice (first in line %u)", d->path, line, name,
                          p->line);
    *p = (point){v, line, 1};
    return 0;
}

static int read_body(dot *d);

static int read_statement(dot *d)
{
    if (d->kind == ';' || d->kind == ',') return next(d);
    if (is_keyword(d, "subgraph") || d->kind == '{') {
        int status = d->kind == '{' ? 0 : next(d);
        if (!status && d->kind == 'i') status = next(d);
        if (!status && d->kind != '{') return bad(d, "expected {");
        if (!status) status = read_body(d);
        if (!status && d->kind == '>') status = bad(d, "an edge from a subgraph");
        return status;
    }
    if (d->kind != 'i') return bad(d, "expected a statement");
    const int node = is_keyword(d, "node"), edge = is_keyword(d, "edge");
    if (node || edge || is_keyword(d, "graph")) {
        values v;
        int status = next(d);
        if (!status && d->kind != '[') return bad(d, "expected [ behind node, edge or graph");
        if (!status) status = read_list(d, &v, edge);
        if (!status && node) d->node = merge(v, d->node);
        if (!status && edge) d->edge = merge(v, d->edge);
        return status;
    }
    return read_task_or_edge(d);
}

/* From { to what stands behind its }. */
static int read_body(dot *d)
{
    const values node = d->node, edge = d->edge;
    if (++d->depth > MOST_DEPTH) return bad(d, "too many subgraphs in each other");
    int status = next(d);
    while (!status && d->kind != '}') {
        if (!d->kind) return bad(d, "the file ends before }");
        status = read_statement(d);
    }
    d->depth--;
    d->node = node;
    d->edge = edge;
    return status ? status : next(d);
}

static int read_root(dot *d)
{
    int status = next(d);
    if (!status && is_keyword(d, "strict")) status = next(d);
    if (!status && !is_keyword(d, "digraph")) return bad(d, "expected digraph");
    if (!status) status = next(d);
    if (!status && d->kind == 'i') status = next(d);
    if (!status && d->kind != '{') return bad(d, "expected {");
    if (!status) status = read_body(d);
    if (!status && d->kind) return bad(d, "something behind the graph");
    return status;
}

/* ------------------------------------------------------------------------------------------------------------ tasks */

static uint32_t count_columns(const char *cost)
{
    uint32_t n = 1;
    for (; *cost; cost++)
        n += *cost == ',';
    return n;
}

static int put_task(dot *d, uint32_t i, char *room)
{
    const point *p = &d->points[i];
    double cost[64], memory = 0;
    const uint32_t n = count_columns(p->v.cost);
    if (n != 1 && n != d->g->n_column)
        return weft__fail(WEFT_EFILE, "%s:%u: task %s has %u costs, others %u", d->path, p->line, d->names.text[i], n,
                          d->g->n_column);
    strcpy(room, p->v.cost);
    char *at = room;
    for (uint32_t c = 0; c < d->g->n_column; c++) {
        char *part = n > 1 || !c ? strsep(&at, ",") : room;
        part += strspn(part, " ");
        cost[c] = INFINITY;
        int status = strcmp(part, "none") ? read_number(d, part, p->line, "cost", 1e300, &cost[c]) : 0;
        if (status) return status;
    }
    int status = p->v.memory ? read_number(d, p->v.memory, p->line, "memory", 1e18, &memory) : 0;
    return status ? status : weft__tg_task(d->g, d->names.text[i], cost, (uint64_t)memory);
}

static int put_tasks(dot *d)
{
    int status = 0;
    size_t longest = 0;
    for (uint32_t i = 0; i < d->names.n; i++) {
        const point *p = &d->points[i];
        if (!p->v.cost) return weft__fail(WEFT_EFILE, "%s:%u: task %s has no cost", d->path, p->line, d->names.text[i]);
        const uint32_t n = count_columns(p->v.cost);
        if (n > 64) return weft__fail(WEFT_EFILE, "%s:%u: %u costs of a task", d->path, p->line, n);
        if (n > d->g->n_column) d->g->n_column = n;
        if (strlen(p->v.cost) > longest) longest = strlen(p->v.cost);
    }
    char *room = malloc(longest + 1);
    if (!room) return weft__fail(WEFT_ENOMEM, "%s", d->path);
    for (uint32_t i = 0; i < d->names.n && !status; i++)
        status = put_task(d, i, room);
    free(room);
    return status ? status : weft__tg_finish(d->g, d->path);
}

int weft__tg_read_dot(const char *path, weft__taskgraph *g)
{
    weft__map map;
    weft__tg_init(g, 1);
    int status = weft__map_open(path, &map);
    if (status) return status;
    dot d = {.path = path, .g = g, .at = (const char *)map.bytes, .line = 1, .now = 1};
    d.end = map.size ? d.at + map.size : d.at;
    d.text = d.text_end = malloc(2 * map.size + 1); /* an ID of one letter has a NUL too */
    uint64_t most = map.size / 2 + 1;
    if (most > WEFT__TG_MAX_TASKS) most = WEFT__TG_MAX_TASKS;
    status = weft__tg_names_init(&d.names, most);
    if (!status && !d.text) status = weft__fail(WEFT_ENOMEM, "%s", path);
    if (!status) status = read_root(&d);
    if (!status) status = put_tasks(&d);
    weft__tg_names_free(&d.names);
    free(d.points);
    free(d.text);
    weft__map_close(&map);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

static void put_name(FILE *f, const char *name)
{
    fputc('"', f);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') fputc('\\', f);
        fputc(*name, f);
    }
    fputc('"', f);
}

int weft__tg_write_dot(const weft__taskgraph *g, const uint32_t *device, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return weft__fail(WEFT_EIO, "%s: can't be written", path);
    fprintf(f, "digraph weft {\n");
    for (uint32_t t = 0; t < g->n_task; t++) {
        fprintf(f, "  ");
        put_name(f, weft__tg_name(g, t));
        fprintf(f, " [cost=\"");
        for (uint32_t c = 0; c < g->n_column; c++) {
            const double cost = g->cost[(uint64_t)t * g->n_column + c];
            if (isinf(cost))
                fprintf(f, "%snone", c ? "," : "");
            else
                fprintf(f, "%s%.17g", c ? "," : "", cost);
        }
        fprintf(f, "\"");
        if (g->memory[t]) fprintf(f, ", memory=%llu", (unsigned long long)g->memory[t]);
        if (device) fprintf(f, ", colorscheme=set312, style=filled, fillcolor=%u", device[t] % 12 + 1);
        fprintf(f, "];\n");
    }
    for (uint32_t e = 0; e < g->n_edge; e++) {
        fprintf(f, "  ");
        put_name(f, weft__tg_name(g, g->edges[e].from));
        fprintf(f, " -> ");
        put_name(f, weft__tg_name(g, g->edges[e].to));
        fprintf(f, " [bytes=\"%.17g\"];\n", g->edges[e].bytes);
    }
    fprintf(f, "}\n");
    const int bad = ferror(f) | fclose(f);
    return bad ? weft__fail(WEFT_EIO, "%s: writing failed", path) : 0;
}
