/* placer_csv.c: placements as text, a line a task (RFC 4180: a name with a comma or a quote stands in quotes). */
#include "error.h"
#include "map.h"
#include "placer.h"
#include "taskgraph_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TASK,
    DEVICE,
    WORKER,
    START,
    N_COLUMN,
    MOST_COLUMNS = 16
};
static const char *const columns[N_COLUMN] = {"task", "device", "worker", "start"};

static void put_field(FILE *f, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++)
        fprintf(f, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', f);
}

int weft__placement_write(const weft__taskgraph *g, const weft__schedule *s, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return weft__fail(WEFT_EIO, "%s: can't be written", path);
    fprintf(f, "task,device,worker,start\n");
    for (uint32_t t = 0; t < g->n_task; t++) {
        put_field(f, weft__tg_name(g, t));
        fprintf(f, ",%u,%u,%.17g\n", s->row[t].device, s->row[t].worker, s->row[t].start);
    }
    const int bad = ferror(f) | fclose(f);
    return bad ? weft__fail(WEFT_EIO, "%s: writing failed", path) : 0;
}

typedef struct csv {
    const char *path, *at, *end;
    char *room, *field[MOST_COLUMNS];
    uint32_t n, line;
    int column[N_COLUMN]; /* where each is; -1: nowhere */
    const weft__taskgraph *g;
    const weft__machine *m;
    weft__schedule *out;
    uint8_t *seen;
    weft__tg_names names;
} csv;

static int bad(const csv *c, const char *what) { return weft__fail(WEFT_EFILE, "%s:%u: %s", c->path, c->line, what); }

/* The next line that isn't empty, cut into fields; n = 0 at the end of the file. */
static int next_line(csv *c)
{
    char *to = c->room;
    for (c->n = 0; c->at < c->end && (*c->at == '\n' || *c->at == '\r'); c->at++)
        c->line += *c->at == '\n';
    while (c->at < c->end && *c->at != '\n') {
        if (c->n == MOST_COLUMNS) return bad(c, "too many columns");
        c->field[c->n++] = to;
        const int quoted = *c->at == '"';
        for (c->at += quoted; c->at < c->end && (quoted || (*c->at != ',' && *c->at != '\n')); c->at++) {
            if (*c->at == '"' && quoted && (c->at + 1 == c->end || *++c->at != '"')) break;
            *to++ = *c->at;
        }
        if (!quoted && to > c->field[c->n - 1] && to[-1] == '\r') to--;
        *to++ = 0;
        if (quoted && c->at < c->end && *c->at == '\r') c->at++;
        if (c->at < c->end && *c->at != ',' && *c->at != '\n') return bad(c, "something behind a quoted field");
        if (c->at < c->end && *c->at == ',') c->at++;
    }
    return 0;
}

static int read_head(csv *c)
{
    int status = next_line(c);
    for (int k = 0; k < N_COLUMN; k++)
        c->column[k] = -1;
    for (uint32_t i = 0; i < c->n && !status; i++)
        for (int k = 0; k < N_COLUMN; k++) {
            if (strcmp(c->field[i], columns[k])) continue;
            if (c->column[k] >= 0) return bad(c, "a column that is there twice");
            c->column[k] = (int)i;
        }
    if (!status && (c->column[TASK] < 0 || c->column[DEVICE] < 0))
        return bad(c, "expected a first line that names the columns: task,device[,worker,start]");
    if (!status && (c->column[WORKER] < 0) != (c->column[START] < 0)) return bad(c, "worker and start go together");
    return status;
}

static int read_number(const csv *c, int k, double max, double *out)
{
    const char *text = c->field[c->column[k]];
    char *end;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= max && (k == START || *out == floor(*out))) return 0;
    return weft__fail(WEFT_EFILE, "%s:%u: task %s: %s '%s' is no number from 0 to %g", c->path, c->line,
                      c->field[c->column[TASK]], columns[k], text, max);
}

static int read_row(csv *c)
{
    double v[N_COLUMN] = {0};
    for (int k = 0; k < N_COLUMN; k++)
        if (c->column[k] >= (int)c->n) return bad(c, "fewer columns than the first line");
    const char *name = c->field[c->column[TASK]];
    const uint32_t t = weft__tg_names_find(&c->names, name, 0);
    if (t == WEFT__TG_NONE) return weft__fail(WEFT_EFILE, "%s:%u: the graph has no task %s", c->path, c->line, name);
    if (c->seen[t]) return weft__fail(WEFT_EFILE, "%s:%u: task %s is there twice", c->path, c->line, name);
    c->seen[t] = 1;
    int status = read_number(c, DEVICE, c->m->n_device - 1, &v[DEVICE]);
    const uint32_t d = (uint32_t)v[DEVICE];
    if (!status && c->column[WORKER] >= 0) status = read_number(c, WORKER, c->m->workers[d] - 1, &v[WORKER]);
    if (!status && c->column[START] >= 0) status = read_number(c, START, 1e300, &v[START]);
    if (status) return status;
    const double cost = weft__tg_cost(c->g, t, d);
    if (isinf(cost)) return weft__fail(WEFT_EFILE, "%s:%u: task %s can't run on device %u", c->path, c->line, name, d);
    c->out->row[t] = (weft__schedule_row){v[START], v[START] + cost, d, (uint32_t)v[WORKER]};
    if (v[START] + cost > c->out->makespan) c->out->makespan = v[START] + cost;
    return 0;
}

static int read_rows(csv *c)
{
    int status = read_head(c);
    while (!status) {
        status = next_line(c);
        if (!status && !c->n) break;
        if (!status) status = read_row(c);
    }
    for (uint32_t t = 0; t < c->g->n_task && !status; t++)
        if (!c->seen[t]) status = weft__fail(WEFT_EFILE, "%s: task %s is not placed", c->path, weft__tg_name(c->g, t));
    return status;
}

/* Devices alone: the rest is made; all: it must hold. */
static int complete(csv *c)
{
    int status = 0;
    if (c->column[START] >= 0) {
        status = weft__schedule_check(c->g, c->m, c->out);
        if (status == WEFT_EWRONG) {
            char why[256];
            snprintf(why, sizeof why, "%s", weft__error());
            status = weft__fail(WEFT_EFILE, "%s: %s", c->path, why);
        }
        return status ? status : weft__schedule_cut(c->g, c->out);
    }
    uint32_t *device = malloc(c->g->n_task * sizeof *device);
    if (!device) return weft__fail(WEFT_ENOMEM, "%s: %u tasks", c->path, c->g->n_task);
    for (uint32_t t = 0; t < c->g->n_task; t++)
        device[t] = c->out->row[t].device;
    weft__schedule_free(c->out);
    status = weft__listsched_fixed(c->g, c->m, device, c->out);
    free(device);
    return status;
}

int weft__placement_read(const char *path, const weft__taskgraph *g, const weft__machine *m, weft__schedule *out)
{
    weft__map map;
    *out = (weft__schedule){0};
    int status = weft__machine_check(g, m);
    if (!status) status = weft__map_open(path, &map);
    if (status) return status;
    csv c = {.path = path, .at = (const char *)map.bytes, .line = 1, .g = g, .m = m, .out = out};
    c.end = map.size ? c.at + map.size : c.at;
    c.room = malloc(map.size + MOST_COLUMNS);
    c.seen = calloc(g->n_task, 1);
    out->row = calloc(g->n_task, sizeof *out->row);
    status = weft__tg_names_of(g, &c.names);
    if (!status && (!c.room || !c.seen || !out->row)) status = weft__fail(WEFT_ENOMEM, "%s: %u tasks", path, g->n_task);
    if (!status) status = read_rows(&c);
    if (!status) status = complete(&c);
    weft__tg_names_free(&c.names);
    free(c.room);
    free(c.seen);
    weft__map_close(&map);
    return status;
}
