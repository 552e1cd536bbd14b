/* taskgraph_stg.c: reads Standard Task Graph files. A first line with the number of tasks (dummies may come on top, a
 * processor count may stand beside it), then a line a task: id, time, number of predecessors, predecessors. A line that
 * begins with # ends the tasks. Ids may come in any order; a line may name predecessors that follow.                    */
#include "taskgraph.h"

#include "error.h"
#include "map.h"

#include <stdio.h>
#include <stdlib.h>

#define UNIT_NS 1000.0

typedef struct stg {
    const char *path;
    const char *at, *end; /* the rest of the file */
    uint32_t line;
    uint32_t *id_of; /* [id]: task + 1; 0: no such line */
    uint32_t n_ids;
} stg;

static int bad(const stg *s, const char *what) { return weft__fail(WEFT_EFILE, "%s:%u: %s", s->path, s->line, what); }

static void skip_blanks(stg *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

static int at_line_end(stg *s)
{
    skip_blanks(s);
    return s->at == s->end || *s->at == '\n';
}

static int number(stg *s, uint64_t *out, const char *what)
{
    uint64_t v = 0;
    skip_blanks(s);
    if (s->at == s->end || *s->at < '0' || *s->at > '9') return bad(s, what);
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        v = v * 10 + (uint64_t)(*s->at - '0');
        if (v > UINT32_MAX - 8) return bad(s, "a number is too large");
    }
    *out = v;
    return 0;
}

/* To the next line that holds something; 0 at the end of the tasks. */
static int next_line(stg *s)
{
    while (at_line_end(s)) {
        if (s->at == s->end) return 0;
        s->at++;
        s->line++;
    }
    return *s->at != '#';
}

static int read_task(stg *s, weft__taskgraph *g)
{
    uint64_t id, time, n, from;
    char name[24];
    int status = number(s, &id, "expected a task's number");
    if (!status && id >= s->n_ids) return bad(s, "this task's number is beyond the number of tasks");
    if (!status && s->id_of[id]) return bad(s, "a second line for this task");
    if (!status) status = number(s, &time, "expected a processing time, a whole number of 0 or more");
    if (!status) status = number(s, &n, "expected the number of predecessors");
    if (status) return status;
    snprintf(name, sizeof name, "%u", (unsigned)id);
    status = weft__tg_task(g, name, &(double){(double)time * UNIT_NS}, 0);
    s->id_of[id] = g->n_task;
    for (uint64_t i = 0; i < n && !status; i++) {
        status = number(s, &from, "fewer predecessors than this line says");
        if (!status && from >= s->n_ids) return bad(s, "a predecessor that is beyond the number of tasks");
        if (!status) status = weft__tg_edge(g, (uint32_t)from, g->n_task - 1, WEFT__TG_NONE, 0);
    }
    if (!status && !at_line_end(s)) status = bad(s, "more predecessors than this line says");
    return status;
}

/* Edges hold the file's numbers until all lines are read. */
static int resolve(const stg *s, weft__taskgraph *g)
{
    for (uint32_t e = 0; e < g->n_edge; e++) {
        const uint32_t id = g->edges[e].from;
        if (!s->id_of[id])
            return weft__fail(WEFT_EFILE, "%s: task %s: predecessor %u has no line", s->path,
                              weft__tg_name(g, g->edges[e].to), id);
        g->edges[e].from = s->id_of[id] - 1;
    }
    return 0;
}

static int read_all(stg *s, weft__taskgraph *g)
{
    uint64_t n, processors;
    if (!next_line(s)) return bad(s, "no number of tasks");
    int status = number(s, &n, "expected the number of tasks");
    if (!status && !at_line_end(s))
        status = number(s, &processors, "expected a processor count or the end of the line");
    if (!status && !at_line_end(s)) status = bad(s, "more than two numbers in the first line");
    if (!status && (n == 0 || n > WEFT__TG_MAX_TASKS - 2)) status = bad(s, "the number of tasks is 0 or too large");
    if (status) return status;
    s->n_ids = (uint32_t)n + 2;
    s->id_of = calloc(s->n_ids, sizeof *s->id_of);
    if (!s->id_of) return weft__fail(WEFT_ENOMEM, "%s: %u tasks", s->path, s->n_ids);
    while (!status && next_line(s))
        status = read_task(s, g);
    if (!status && g->n_task < n)
        status = weft__fail(WEFT_EFILE, "%s:%u: %u lines of tasks, %u expected", s->path, s->line, g->n_task,
                            (unsigned)n);
    if (!status) status = resolve(s, g);
    return status ? status : weft__tg_finish(g, s->path);
}

int weft__tg_read_stg(const char *path, weft__taskgraph *g)
{
    weft__map map;
    weft__tg_init(g, 1);
    int status = weft__map_open(path, &map);
    if (status) return status;
    stg s = {.path = path, .at = (const char *)map.bytes, .line = 1};
    s.end = map.size ? s.at + map.size : s.at;
    status = read_all(&s, g);
    free(s.id_of);
    weft__map_close(&map);
    return status;
}
