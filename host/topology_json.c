/* topology_json.c: topologies as JSON (docs/simulator.md has the schema).
 *
 *   {"weft_topology": 1,
 *    "devices":  [{"name", "count", "node", "workers", "profile", "memory"}],
 *    "links":    [{"from", "to", "GBps", "latency_us", "both"}],          a cable of its own
 *    "switches": [{"name", "node" or "devices", "GBps", "latency_us"}]}   ports out of and into each device
 *
 * Links win over switches, earlier switches over later ones. A device of count N > 1 is N devices, name0 .. name(N-1).    */
#include "topology.h"

#include "error.h"
#include "json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1e9

static int find_device(const weft__topology *t, const weft__field *f, const char *name, uint32_t *id)
{
    for (*id = 0; *id < t->n_device; ++*id)
        if (strcmp(t->device[*id].name, name) == 0) return 0;
    return weft__fail(WEFT_EFILE, "%s: %s: no device %s", f->path, f->at, name);
}

/* A built-in profile, or a file beside the topology's. */
static int read_costs(const weft__field *f, weft__profile *out)
{
    char name[192] = "h200", path[1024];
    int status = weft__field_text(f, "profile", 0, name, sizeof name);
    if (status) return status;
    const weft__profile *built_in = weft__profile_builtin(name);
    if (built_in) {
        *out = *built_in;
        return 0;
    }
    const char *slash = strrchr(f->path, '/');
    if (strlen(name) < 6 || strcmp(name + strlen(name) - 5, ".json"))
        return weft__fail(WEFT_EFILE, "%s: %s.profile: no profile %s", f->path, f->at, name);
    snprintf(path, sizeof path, "%.*s%s", slash && name[0] != '/' ? (int)(slash - f->path + 1) : 0, f->path, name);
    return weft__profile_read(path, out);
}

static int read_device(const weft__field *f, weft__topology *t)
{
    static const char *const known[] = {"name", "count", "node", "workers", "profile", "memory", NULL};
    char name[24] = "", memory[24] = "";
    uint32_t count = 1, node = 0, workers, profile, id;
    weft__profile costs;
    int status = weft__field_known(f, known);
    if (!status) status = weft__field_text(f, "name", 1, name, sizeof name);
    if (!status) status = weft__field_text(f, "memory", 0, memory, sizeof memory);
    if (!status) status = weft__field_count(f, "count", 0, 1, WEFT_MAX_DEVICES - t->n_device, &count);
    if (!status) status = weft__field_count(f, "node", 0, 0, WEFT_MAX_DEVICES, &node);
    if (!status) status = read_costs(f, &costs);
    if (status) return status;
    workers = costs.workers;
    status = weft__field_count(f, "workers", costs.workers == 0, 1, 65534, &workers);
    if (!status) status = weft__topo_add_profile(t, &costs, &profile);
    for (uint32_t i = 0, other; i < count && !status; i++) {
        char one[32];
        snprintf(one, sizeof one, count > 1 ? "%s%u" : "%s", name, i);
        for (uint32_t d = 0; d < t->n_device; d++)
            if (strcmp(t->device[d].name, one) == 0)
                return weft__fail(WEFT_EFILE, "%s: %s: device %s is there twice", f->path, f->at, one);
        status = weft__topo_add_device(t, one, node, workers, profile, &id);
        if (status || !memory[0]) continue;
        status = find_device(t, f, memory, &other);
        if (!status) t->device[id].memory = t->device[other].memory;
    }
    return status;
}

static int read_way(const weft__field *f, double *bpns, double *ns)
{
    int status = weft__field_number(f, "GBps", 1, 0, MOST, bpns);
    if (!status) status = weft__field_number(f, "latency_us", 1, 0, MOST, ns);
    *ns *= 1e3;
    return status;
}

static int read_link(const weft__field *f, weft__topology *t)
{
    static const char *const known[] = {"from", "to", "GBps", "latency_us", "both", NULL};
    char name[2][32];
    uint32_t end[2], port = WEFT__TOPO_NONE, both = 1;
    double bpns, ns;
    int status = weft__field_known(f, known);
    if (!status) status = weft__field_text(f, "from", 1, name[0], sizeof name[0]);
    if (!status) status = weft__field_text(f, "to", 1, name[1], sizeof name[1]);
    if (!status) status = weft__field_count(f, "both", 0, 0, 1, &both);
    if (!status) status = read_way(f, &bpns, &ns);
    for (int i = 0; i < 2 && !status; i++)
        status = find_device(t, f, name[i], &end[i]);
    if (status) return status;
    if (end[0] == end[1]) return weft__field_fail(f, "two devices");
    for (uint32_t way = 0; way <= both && !status; way++) {
        char label[48];
        weft__topo_route *r = &t->route[end[way]][end[!way]];
        if (r->there) return weft__fail(WEFT_EFILE, "%s: %s: this link is there twice", f->path, f->at);
        snprintf(label, sizeof label, "%.20s to %.20s", name[way], name[!way]);
        if (bpns > 0) status = weft__topo_add_port(t, label, bpns, &port);
        *r = (weft__topo_route){.latency_ns = ns, .port = {port, WEFT__TOPO_NONE}, .there = 1};
    }
    return status;
}

static int switch_devices(const weft__field *f, const weft__topology *t, uint32_t *ids, uint32_t *n)
{
    weft__field list;
    uint32_t node = WEFT__TOPO_NONE;
    int status = weft__field_count(f, "node", 0, 0, WEFT_MAX_DEVICES, &node);
    if (status) return status;
    status = weft__field_of(f, "devices", 0, &list);
    *n = 0;
    if (status < 0) return status;
    if (status == 0) {
        for (uint32_t d = 0; d < t->n_device; d++)
            if (node == WEFT__TOPO_NONE || t->device[d].node == node) ids[(*n)++] = d;
        return 0;
    }
    const size_t count = json_array_size(list.value);
    if (!json_is_array(list.value) || count > t->n_device) return weft__field_fail(&list, "a list of devices");
    for (uint32_t i = 0; i < count; i++) {
        weft__field one;
        weft__field_at(&list, i, &one);
        if (!json_is_string(one.value)) return weft__field_fail(&one, "the name of a device");
        status = find_device(t, &one, json_string_value(one.value), &ids[(*n)++]);
        if (status) return status;
    }
    return 0;
}

static int read_switch(const weft__field *f, weft__topology *t)
{
    static const char *const known[] = {"name", "node", "devices", "GBps", "latency_us", NULL};
    char name[24] = "switch";
    uint32_t ids[WEFT_MAX_DEVICES], n;
    double bpns, ns;
    int status = weft__field_known(f, known);
    if (!status) status = weft__field_text(f, "name", 0, name, sizeof name);
    if (!status) status = switch_devices(f, t, ids, &n);
    if (!status) status = read_way(f, &bpns, &ns);
    return status ? status : weft__topo_add_switch(t, name, ids, n, bpns, ns);
}

static int read_list(const weft__field *f, const char *name, int required, weft__topology *t,
                     int read(const weft__field *, weft__topology *))
{
    weft__field list, one;
    int status = weft__field_of(f, name, required, &list);
    if (status <= 0) return status;
    if (!json_is_array(list.value) || (required && !json_array_size(list.value)))
        return weft__field_fail(&list, "a list that is not empty");
    status = 0;
    for (uint32_t i = 0; i < json_array_size(list.value) && !status; i++) {
        weft__field_at(&list, i, &one);
        status = read(&one, t);
    }
    return status;
}

int weft__topo_read(const char *path, weft__topology **out)
{
    static const char *const known[] = {"weft_topology", "devices", "links", "switches", NULL};
    json_t *root;
    weft__field f;
    uint32_t schema;
    *out = NULL;
    int status = weft__field_load(path, &root, &f);
    if (!status) status = weft__topo_new(path, out);
    if (!status) status = weft__field_known(&f, known);
    if (!status) status = weft__field_count(&f, "weft_topology", 1, 1, WEFT__TOPO_SCHEMA, &schema);
    if (!status) status = read_list(&f, "devices", 1, *out, read_device);
    if (!status) status = read_list(&f, "links", 0, *out, read_link);
    if (!status) status = read_list(&f, "switches", 0, *out, read_switch);
    json_decref(root);
    if (!status) return 0;
    weft__topo_free(*out);
    *out = NULL;
    return status;
}
