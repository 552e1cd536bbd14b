/* profile_json.c: profiles as JSON (docs/simulator.md has the schema). One table of fields serves reading and writing. */
#include "profile.h"

#include "../tasks/kinds.h"
#include "error.h"
#include "json_field.h"

#include <stddef.h>
#include <string.h>

#define MOST 1e15

static const char *const policies[] = {"static", "fifo", "push", "steal", "priority", NULL};

static const struct {
    const char *name;
    size_t at;
} numbers[] = {
    {"memory_GBps", offsetof(weft__profile, memory_bpns)},
    {"stream_GBps", offsetof(weft__profile, stream_bpns)},
    {"activation", offsetof(weft__profile, activation)},
    {"ahead_bytes", offsetof(weft__profile, ahead_bytes)},
    {"cores", offsetof(weft__profile, cores)},
    {"signal_ns", offsetof(weft__profile, signal_ns)},
    {"push_ns", offsetof(weft__profile, push_ns)},
    {"open_ns", offsetof(weft__profile, open_ns)},
    {"close_ns", offsetof(weft__profile, close_ns)},
    {"link_GBps", offsetof(weft__profile, link_bpns)},
    {"link_ns", offsetof(weft__profile, link_ns)},
};
enum {
    N_NUMBERS = sizeof numbers / sizeof numbers[0]
};
static const char *const hops[] = {"gpu", "sys", "packet", NULL}, *const scopes[] = {"gpu", "sys", NULL};

static double *number_at(const weft__profile *p, size_t at) { return (double *)((char *)(uintptr_t)p + at); }

/* An object of numbers with these names; missing ones keep their value. */
static int read_row(const weft__field *f, const char *name, const char *const *names, double *out)
{
    weft__field row;
    int status = weft__field_of(f, name, 0, &row);
    if (status <= 0) return status;
    status = weft__field_known(&row, names);
    for (int i = 0; names[i] && !status; i++)
        status = weft__field_number(&row, names[i], 0, 0, MOST, &out[i]);
    return status;
}

static int read_points(const weft__field *f, weft__kind_cost *k)
{
    static const char *const known[] = {"rows", "block_ns", NULL};
    weft__field points, point;
    int status = weft__field_of(f, "points", 0, &points);
    if (status <= 0) return status;
    const size_t n = json_array_size(points.value);
    if (!json_is_array(points.value) || n > WEFT__PROFILE_POINTS) return weft__field_fail(&points, "up to 12 points");
    status = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        weft__field_at(&points, i, &point);
        status = weft__field_known(&point, known);
        if (!status) status = weft__field_count(&point, "rows", 1, i ? k->rows[i - 1] + 1 : 1, 1u << 20, &k->rows[i]);
        if (!status) status = weft__field_number(&point, "block_ns", 1, 0, MOST, &k->block_ns[i]);
    }
    k->n_point = (uint32_t)n;
    return status;
}

static int read_kinds(const weft__field *f, weft__profile *p)
{
    static const char *const known[] = {"task_ns", "points", NULL};
    const char *names[WEFT_KIND_COUNT + 1] = {0};
    weft__field kinds, kind;
    int status = weft__field_of(f, "kinds", 0, &kinds);
    if (status <= 0) return status;
    for (uint32_t i = 0; i < WEFT_KIND_COUNT; i++)
        names[i] = weft__kinds[i].name;
    status = weft__field_known(&kinds, names);
    for (uint32_t i = 0; i < WEFT_KIND_COUNT && !status; i++) {
        if (weft__field_of(&kinds, names[i], 0, &kind) <= 0) continue;
        status = weft__field_known(&kind, known);
        if (!status) status = weft__field_number(&kind, "task_ns", 0, 0, MOST, &p->kind[i].task_ns);
        if (!status) status = read_points(&kind, &p->kind[i]);
    }
    return status;
}

static int read_profile(const weft__field *f, weft__profile *p)
{
    static const char *const more[] = {"weft_profile", "name",   "source",   "workers",
                                       "fetch_ns",     "hop_ns", "ready_ns", "kinds"};
    const char *known[N_NUMBERS + 9] = {0};
    uint32_t schema;
    for (int i = 0; i < N_NUMBERS; i++)
        known[i] = numbers[i].name;
    memcpy(known + N_NUMBERS, more, sizeof more);
    int status = weft__field_known(f, known);
    if (!status) status = weft__field_count(f, "weft_profile", 1, 1, WEFT__PROFILE_SCHEMA, &schema);
    if (!status) status = weft__field_text(f, "name", 1, p->name, sizeof p->name);
    if (!status) status = weft__field_text(f, "source", 1, p->source, sizeof p->source);
    if (!status) status = weft__field_count(f, "workers", 0, 0, 65534, &p->workers);
    for (int i = 0; i < N_NUMBERS && !status; i++)
        status = weft__field_number(f, numbers[i].name, 0, 0, MOST, number_at(p, numbers[i].at));
    if (!status) status = read_row(f, "fetch_ns", policies, p->fetch_ns);
    if (!status) status = read_row(f, "hop_ns", hops, p->hop_ns);
    if (!status) status = read_row(f, "ready_ns", scopes, p->ready_ns);
    return status ? status : read_kinds(f, p);
}

int weft__profile_read(const char *path, weft__profile *out)
{
    json_t *root;
    weft__field f;
    *out = (weft__profile){0};
    int status = weft__field_load(path, &root, &f);
    if (!status) status = read_profile(&f, out);
    json_decref(root);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- writing */

static json_t *row_json(const double *values, const char *const *names)
{
    json_t *row = json_object();
    for (int i = 0; names[i]; i++)
        json_object_set_new(row, names[i], json_real(values[i]));
    return row;
}

static json_t *kinds_json(const weft__profile *p)
{
    json_t *kinds = json_object();
    for (uint32_t i = 0; i < WEFT_KIND_COUNT; i++) {
        const weft__kind_cost *k = &p->kind[i];
        if (!k->n_point && !(k->task_ns > 0)) continue;
        json_t *points = json_array();
        for (uint32_t n = 0; n < k->n_point; n++)
            json_array_append_new(points, json_pack("{s:i,s:f}", "rows", (int)k->rows[n], "block_ns", k->block_ns[n]));
        json_object_set_new(kinds, weft__kinds[i].name,
                            json_pack("{s:f,s:o}", "task_ns", k->task_ns, "points", points));
    }
    return kinds;
}

char *weft__profile_text(const weft__profile *p)
{
    json_t *o = json_pack("{s:i,s:s,s:s,s:i}", "weft_profile", WEFT__PROFILE_SCHEMA, "name", p->name, "source",
                          p->source, "workers", (int)p->workers);
    for (int i = 0; i < N_NUMBERS; i++)
        json_object_set_new(o, numbers[i].name, json_real(*number_at(p, numbers[i].at)));
    json_object_set_new(o, "fetch_ns", row_json(p->fetch_ns, policies));
    json_object_set_new(o, "hop_ns", row_json(p->hop_ns, hops));
    json_object_set_new(o, "ready_ns", row_json(p->ready_ns, scopes));
    json_object_set_new(o, "kinds", kinds_json(p));
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    json_decref(o);
    return text;
}
