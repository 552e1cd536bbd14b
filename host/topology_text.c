/* topology_text.c: topologies as synthetic text, in the manner of hwloc.
 *
 *   groups    words joined by " + "; devices of all groups are numbered through
 *   node:N    nodes (default 1)
 *   gpu:N     devices a node, with the costs of an H200; h100:N, h200:N, b200:N, cpu:N: with those of that profile;
 *             FILE.json:N: with those of a profile file
 *   sm:N      workers a device (default: the profile's); worker:N is the same
 *   nvlink:BW,LAT   switch inside a node: bandwidth out of and into each device, latency (default: the profile's)
 *   net:BW,LAT      network between nodes and groups: bandwidth out of and into each device, latency
 *   mem:BW    memory of a device (default: the profile's)
 *
 * BW: "450GB/s", "4.57TB/s", "900MB/s"; LAT: "1.8us", "500ns", "0". Example: "node:2 gpu:8 sm:132 nvlink:450GB/s,1.8us".  */
#include "topology.h"

#include "error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_WORD = 256
};

typedef struct group {
    uint32_t nodes, devices, workers;
    weft__profile profile;
    int has_link;
    double link_bpns, link_ns, memory_bpns;
} group;

typedef struct parser {
    weft__topology *t;
    uint32_t node; /* of the next group */
    double net_bpns, net_ns;
    int has_net;
    const char *text;
} parser;

static int refuse(const parser *p, const char *word, const char *why)
{
    return weft__fail(WEFT_EUSAGE, "topology '%s': '%s': %s", p->text, word, why);
}

/* A number with one of the units (ratios to ns or bytes a ns); the rest of the text in *end. */
static int read_quantity(const char *at, const char *const *units, const double *ratio, double *out, const char **end)
{
    char *unit;
    const double v = strtod(at, &unit);
    if (unit == at || !(v >= 0) || isinf(v)) return -1;
    for (int i = 0; units[i]; i++) {
        const size_t n = strlen(units[i]);
        if (strncmp(unit, units[i], n)) continue;
        *out = v * ratio[i];
        *end = unit + n;
        return 0;
    }
    *out = 0;
    *end = unit;
    return v == 0 ? 0 : -1;
}

static int read_bandwidth(const char *at, double *bpns, const char **end)
{
    static const char *const units[] = {"TB/s", "GB/s", "MB/s", NULL};
    static const double ratio[] = {1e3, 1, 1e-3};
    return read_quantity(at, units, ratio, bpns, end);
}

static int read_way(const parser *p, const char *word, const char *at, double *bpns, double *ns)
{
    static const char *const units[] = {"us", "ns", "ms", NULL};
    static const double ratio[] = {1e3, 1, 1e6};
    const char *end;
    if (read_bandwidth(at, bpns, &end) || *end != ',' || read_quantity(end + 1, units, ratio, ns, &end) || *end)
        return refuse(p, word, "expected a bandwidth and a latency, as 450GB/s,1.8us");
    return 0;
}

static int read_count(const parser *p, const char *word, const char *at, uint32_t max, uint32_t *out)
{
    char *end;
    const unsigned long v = strtoul(at, &end, 10);
    if (*at < '0' || *at > '9' || *end || v < 1 || v > max) return refuse(p, word, "this is no count");
    *out = (uint32_t)v;
    return 0;
}

static int read_devices(const parser *p, group *g, const char *word, const char *name, const char *count)
{
    if (g->devices) return refuse(p, word, "a group has one kind of devices; join groups with +");
    const size_t n = strlen(name);
    int status = read_count(p, word, count, WEFT_MAX_DEVICES, &g->devices);
    if (status) return status;
    if (n > 5 && strcmp(name + n - 5, ".json") == 0) return weft__profile_read(name, &g->profile);
    const weft__profile *built_in = weft__profile_builtin(strcmp(name, "gpu") == 0 ? "h200" : name);
    if (!built_in) return refuse(p, word, "no such profile or property");
    g->profile = *built_in;
    return 0;
}

static int read_word(parser *p, group *g, const char *word)
{
    char name[MAX_WORD];
    const char *colon = strrchr(word, ':'), *end;
    if (!colon) return refuse(p, word, "expected NAME:VALUE");
    snprintf(name, sizeof name, "%.*s", (int)(colon - word), word);
    colon++;
    if (strcmp(name, "node") == 0) return read_count(p, word, colon, WEFT_MAX_DEVICES, &g->nodes);
    if (strcmp(name, "sm") == 0 || strcmp(name, "worker") == 0) return read_count(p, word, colon, 65534, &g->workers);
    if (strcmp(name, "nvlink") == 0) {
        g->has_link = 1;
        return read_way(p, word, colon, &g->link_bpns, &g->link_ns);
    }
    if (strcmp(name, "net") == 0) {
        p->has_net = 1;
        return read_way(p, word, colon, &p->net_bpns, &p->net_ns);
    }
    if (strcmp(name, "mem") == 0)
        return read_bandwidth(colon, &g->memory_bpns, &end) || *end
                   ? refuse(p, word, "expected a bandwidth, as 4.57TB/s")
                   : 0;
    return read_devices(p, g, word, name, colon);
}

static int add_group(parser *p, group *g, const char *where)
{
    if (!g->devices) return refuse(p, where, "no devices: expected gpu:N, h200:N, ...");
    if (g->memory_bpns > 0 && g->memory_bpns != g->profile.memory_bpns) {
        char name[sizeof g->profile.name];
        snprintf(name, sizeof name, "%.24s mem %g", g->profile.name, g->memory_bpns);
        memcpy(g->profile.name, name, sizeof name);
        g->profile.memory_bpns = g->memory_bpns;
    }
    if (!g->workers) g->workers = g->profile.workers;
    if (!g->workers) return refuse(p, where, "how many workers? Give sm:N");
    uint32_t profile, ids[WEFT_MAX_DEVICES];
    int status = weft__topo_add_profile(p->t, &g->profile, &profile);
    for (uint32_t node = 0; node < g->nodes && !status; node++, p->node++) {
        for (uint32_t i = 0; i < g->devices && !status; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s:%u", g->profile.cores > 0 ? "cpu" : "gpu", p->t->n_device);
            status = weft__topo_add_device(p->t, name, p->node, g->workers, profile, &ids[i]);
        }
        if (!status && (g->has_link || g->profile.link_bpns > 0 || g->profile.cores > 0))
            status = weft__topo_add_switch(p->t, "link", ids, g->devices,
                                           g->has_link ? g->link_bpns : g->profile.link_bpns,
                                           g->has_link ? g->link_ns : g->profile.link_ns);
    }
    return status;
}

static int add_network(parser *p)
{
    uint32_t all[WEFT_MAX_DEVICES];
    for (uint32_t d = 0; d < p->t->n_device; d++)
        all[d] = d;
    return p->has_net ? weft__topo_add_switch(p->t, "net", all, p->t->n_device, p->net_bpns, p->net_ns) : 0;
}

static int parse_all(parser *p)
{
    group g = {.nodes = 1};
    const char *at = p->text;
    int status = 0;
    for (;;) {
        char word[MAX_WORD];
        at += strspn(at, " \t");
        const size_t n = strcspn(at, " \t");
        if (n >= sizeof word) return refuse(p, at, "this word is too long");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        at += n;
        if (n && strcmp(word, "+") != 0) {
            status = read_word(p, &g, word);
            if (status) return status;
            continue;
        }
        status = add_group(p, &g, n ? "+" : p->text);
        if (status || !n) return status ? status : add_network(p);
        g = (group){.nodes = 1};
    }
}

int weft__topo_parse(const char *text, weft__topology **out)
{
    parser p = {.text = text};
    int status = weft__topo_new(text, &p.t);
    if (!status) status = parse_all(&p);
    if (status) {
        weft__topo_free(p.t);
        p.t = NULL;
    }
    *out = p.t;
    return status;
}
