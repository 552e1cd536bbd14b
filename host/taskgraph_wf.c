/* taskgraph_wf.c: reads WfCommons WfFormat JSON 1.5: specification (tasks, parents, children, files), execution (runtimes).
 *
 * An edge is what a task's parents or a task's children say; the files that the one writes and the other reads are its
 * bytes, a row each, so that a file which several tasks read is one file. A parent that shares no file gives 0 bytes.
 * Files that no parent writes come from outside and cost nothing here. A key that stands twice is refused (jansson).   */
#include "taskgraph.h"

#include "error.h"
#include "taskgraph_names.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct wf {
    const char *path;
    weft__taskgraph *g;
    json_t *tasks; /* specification.tasks */
    weft__tg_names task, file;
    double *bytes, *runtime; /* [file], [task]; negative: not given */
    uint64_t *memory;
    uint32_t *parent_mark, *file_mark; /* [task], [file]: reader + 1 */
} wf;

static const char *task_id(const json_t *task) { return json_string_value(json_object_get(task, "id")); }

static int read_files(wf *w, const json_t *files)
{
    size_t i;
    json_t *f;
    int status = weft__tg_names_init(&w->file, json_array_size(files));
    w->bytes = calloc(json_array_size(files) + 1, sizeof *w->bytes);
    w->file_mark = calloc(json_array_size(files) + 1, sizeof *w->file_mark);
    if (!status && (!w->bytes || !w->file_mark)) status = weft__fail(WEFT_ENOMEM, "%s: files", w->path);
    if (status) return status;
    json_array_foreach(files, i, f)
    {
        const char *id = task_id(f);
        const json_t *size = json_object_get(f, "sizeInBytes");
        if (!id) return weft__fail(WEFT_EFILE, "%s: specification.files[%zu]: no id", w->path, i);
        if (weft__tg_names_find(&w->file, id, 0) != WEFT__TG_NONE)
            return weft__fail(WEFT_EFILE, "%s: specification.files[%zu]: file %s is there twice", w->path, i, id);
        if (!json_is_number(size) || json_number_value(size) < 0)
            return weft__fail(WEFT_EFILE, "%s: file %s: sizeInBytes is not a number of 0 or more", w->path, id);
        w->bytes[weft__tg_names_find(&w->file, id, 1)] = json_number_value(size);
    }
    return 0;
}

static int read_ids(wf *w)
{
    size_t i;
    json_t *t;
    const size_t n = json_array_size(w->tasks);
    int status = weft__tg_names_init(&w->task, n);
    w->runtime = malloc((n + 1) * sizeof *w->runtime);
    w->memory = calloc(n + 1, sizeof *w->memory);
    w->parent_mark = calloc(n + 1, sizeof *w->parent_mark);
    if (!status && (!w->runtime || !w->memory || !w->parent_mark))
        status = weft__fail(WEFT_ENOMEM, "%s: tasks", w->path);
    if (status) return status;
    json_array_foreach(w->tasks, i, t)
    {
        if (!task_id(t)) return weft__fail(WEFT_EFILE, "%s: specification.tasks[%zu]: no id", w->path, i);
        if (weft__tg_names_find(&w->task, task_id(t), 0) != WEFT__TG_NONE)
            return weft__fail(WEFT_EFILE, "%s: specification.tasks[%zu]: task %s is there twice", w->path, i,
                              task_id(t));
        w->runtime[weft__tg_names_find(&w->task, task_id(t), 1)] = -1;
    }
    return 0;
}

static int read_runtimes(wf *w, const json_t *executed)
{
    size_t i;
    json_t *t;
    json_array_foreach(executed, i, t)
    {
        const char *id = task_id(t);
        const uint32_t n = id ? weft__tg_names_find(&w->task, id, 0) : WEFT__TG_NONE;
        const json_t *run = json_object_get(t, "runtimeInSeconds"), *memory = json_object_get(t, "memoryInBytes");
        if (n == WEFT__TG_NONE)
            return weft__fail(WEFT_EFILE, "%s: execution.tasks[%zu]: unknown id %s", w->path, i, id ? id : "(none)");
        if (w->runtime[n] >= 0) return weft__fail(WEFT_EFILE, "%s: execution: task %s is there twice", w->path, id);
        if (!json_is_number(run) || !(json_number_value(run) >= 0))
            return weft__fail(WEFT_EFILE, "%s: task %s: runtimeInSeconds is not a number of 0 or more", w->path, id);
        if (memory && !(json_number_value(memory) >= 0 && json_number_value(memory) < 1e18))
            return weft__fail(WEFT_EFILE, "%s: task %s: memoryInBytes is negative or too large", w->path, id);
        w->runtime[n] = json_number_value(run);
        w->memory[n] = (uint64_t)json_number_value(memory);
    }
    for (uint32_t n = 0; n < w->task.n; n++)
        if (w->runtime[n] < 0)
            return weft__fail(WEFT_EFILE, "%s: task %s has no runtime in execution", w->path, w->task.text[n]);
    return 0;
}

/* A row for each file that `from` writes and `to` reads (file_mark), or one of 0 bytes. */
static int add_edge(wf *w, uint32_t from, uint32_t to)
{
    size_t i;
    json_t *f;
    int status = 0, shared = 0;
    const json_t *written = json_object_get(json_array_get(w->tasks, from), "outputFiles");
    json_array_foreach(written, i, f)
    {
        const uint32_t n = json_is_string(f) ? weft__tg_names_find(&w->file, json_string_value(f), 0) : WEFT__TG_NONE;
        if (n == WEFT__TG_NONE)
            return weft__fail(WEFT_EFILE, "%s: task %s: outputFiles[%zu] is not in specification.files", w->path,
                              w->task.text[from], i);
        if (w->file_mark[n] != to + 1) continue;
        shared = 1;
        if (!status) status = weft__tg_edge(w->g, from, to, n, w->bytes[n]);
    }
    return shared || status ? status : weft__tg_edge(w->g, from, to, WEFT__TG_NONE, 0);
}

static int find_task(const wf *w, const json_t *name, const char *field, uint32_t of, uint32_t *out)
{
    *out = json_is_string(name) ? weft__tg_names_find((weft__tg_names *)&w->task, json_string_value(name), 0)
                                : WEFT__TG_NONE;
    if (*out != WEFT__TG_NONE) return 0;
    return weft__fail(WEFT_EFILE, "%s: task %s: %s: unknown id %s", w->path, w->task.text[of], field,
                      json_is_string(name) ? json_string_value(name) : "(not a string)");
}

/* `extra`: the tasks that name t among their children, whether or not t names them too; may be NULL. */
static int add_parents(wf *w, uint32_t t, const json_t *extra)
{
    size_t i;
    json_t *v;
    int status = 0;
    const json_t *task = json_array_get(w->tasks, t), *lists[2] = {json_object_get(task, "parents"), extra};
    json_array_foreach(json_object_get(task, "inputFiles"), i, v)
    {
        const uint32_t n = json_is_string(v) ? weft__tg_names_find(&w->file, json_string_value(v), 0) : WEFT__TG_NONE;
        if (n == WEFT__TG_NONE)
            return weft__fail(WEFT_EFILE, "%s: task %s: inputFiles[%zu] is not in specification.files", w->path,
                              w->task.text[t], i);
        w->file_mark[n] = t + 1;
    }
    for (int l = 0; l < 2; l++)
        json_array_foreach(lists[l], i, v)
        {
            uint32_t from = (uint32_t)json_integer_value(v);
            if (!status && l == 0) status = find_task(w, v, "parents", t, &from);
            if (status) return status;
            if (w->parent_mark[from] == t + 1) continue;
            w->parent_mark[from] = t + 1;
            status = add_edge(w, from, t);
        }
    return status;
}

static int add_edges(wf *w)
{
    size_t i;
    json_t *t, *child, **extra = calloc(w->task.n + 1ull, sizeof(json_t *));
    int status = extra ? 0 : weft__fail(WEFT_ENOMEM, "%s: edges", w->path);
    for (uint32_t n = 0; n < w->task.n && !status; n++) {
        t = json_array_get(w->tasks, n);
        json_array_foreach(json_object_get(t, "children"), i, child)
        {
            uint32_t to;
            status = find_task(w, child, "children", n, &to);
            if (!status && !extra[to] && !(extra[to] = json_array())) status = weft__fail(WEFT_ENOMEM, "%s", w->path);
            if (!status && json_array_append_new(extra[to], json_integer(n)))
                status = weft__fail(WEFT_ENOMEM, "%s", w->path);
            if (status) break;
        }
    }
    for (uint32_t n = 0; n < w->task.n && !status; n++)
        status = add_parents(w, n, extra[n]);
    for (uint32_t n = 0; extra && n < w->task.n; n++)
        json_decref(extra[n]);
    free(extra);
    return status;
}

static int read_root(wf *w, const json_t *root)
{
    const json_t *workflow = json_object_get(root, "workflow");
    const json_t *specification = json_object_get(workflow, "specification");
    const char *version = json_string_value(json_object_get(root, "schemaVersion"));
    if (!version || strcmp(version, "1.5") != 0)
        return weft__fail(WEFT_EFILE, "%s: schemaVersion %s, only 1.5 is read", w->path, version ? version : "(none)");
    w->tasks = json_object_get(specification, "tasks");
    if (!json_is_array(w->tasks) || json_array_size(w->tasks) > WEFT__TG_MAX_TASKS)
        return weft__fail(WEFT_EFILE, "%s: workflow.specification.tasks is missing or too long", w->path);
    int status = read_files(w, json_object_get(specification, "files"));
    if (!status) status = read_ids(w);
    if (!status) status = read_runtimes(w, json_object_get(json_object_get(workflow, "execution"), "tasks"));
    for (uint32_t n = 0; n < w->task.n && !status; n++)
        status = weft__tg_task(w->g, w->task.text[n], &(double){w->runtime[n] * 1e9}, w->memory[n]);
    if (!status) status = add_edges(w);
    return status ? status : weft__tg_finish(w->g, w->path);
}

int weft__tg_read_wfformat(const char *path, weft__taskgraph *g)
{
    wf w = {.path = path, .g = g};
    json_error_t error;
    weft__tg_init(g, 1);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) return weft__fail(WEFT_EFILE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    int status = read_root(&w, root);
    weft__tg_names_free(&w.task);
    weft__tg_names_free(&w.file);
    free(w.bytes);
    free(w.runtime);
    free(w.memory);
    free(w.parent_mark);
    free(w.file_mark);
    json_decref(root);
    return status;
}
