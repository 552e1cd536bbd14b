/* topology.c: building topologies, and what list schedulers see of them. Texts: topology_text.c, JSON: topology_json.c. */
#include "topology.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int weft__topo_new(const char *text, weft__topology **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return weft__fail(WEFT_ENOMEM, "topology %s", text);
    snprintf((*out)->text, sizeof(*out)->text, "%s", text);
    return 0;
}

void weft__topo_free(weft__topology *t)
{
    if (t) free(t->port);
    free(t);
}

int weft__topo_open(const char *spec, weft__topology **out)
{
    const size_t n = strlen(spec);
    return n > 5 && strcmp(spec + n - 5, ".json") == 0 ? weft__topo_read(spec, out) : weft__topo_parse(spec, out);
}

int weft__topo_add_profile(weft__topology *t, const weft__profile *p, uint32_t *id)
{
    for (*id = 0; *id < t->n_profile; ++*id)
        if (strcmp(t->profile[*id].name, p->name) == 0) return 0;
    if (t->n_profile == WEFT__TOPO_MAX_PROFILES)
        return weft__fail(WEFT_EUSAGE, "topology: more than %u profiles", WEFT__TOPO_MAX_PROFILES);
    t->profile[t->n_profile++] = *p;
    return 0;
}

int weft__topo_add_device(weft__topology *t, const char *name, uint32_t node, uint32_t workers, uint32_t profile,
                          uint32_t *id)
{
    if (t->n_device == WEFT_MAX_DEVICES)
        return weft__fail(WEFT_EUSAGE, "topology: more than %u devices", WEFT_MAX_DEVICES);
    if (!workers || workers > UINT16_MAX - 1)
        return weft__fail(WEFT_EUSAGE, "topology: device %s has %u workers", name, workers);
    *id = t->n_device++;
    weft__topo_device *d = &t->device[*id];
    *d = (weft__topo_device){.node = node, .workers = workers, .profile = profile, .memory = t->n_memory++};
    snprintf(d->name, sizeof d->name, "%s", name);
    return 0;
}

int weft__topo_add_port(weft__topology *t, const char *name, double bpns, uint32_t *id)
{
    if (t->n_port == t->room_port) {
        const uint32_t room = t->room_port ? 2 * t->room_port : 32;
        weft__topo_port *port = realloc(t->port, room * sizeof *port);
        if (!port) return weft__fail(WEFT_ENOMEM, "topology: %u ports", room);
        t->port = port;
        t->room_port = room;
    }
    *id = t->n_port++;
    t->port[*id] = (weft__topo_port){.bpns = bpns};
    snprintf(t->port[*id].name, sizeof t->port[*id].name, "%s", name);
    return 0;
}

int weft__topo_add_switch(weft__topology *t, const char *name, const uint32_t *devices, uint32_t n, double bpns,
                          double latency_ns)
{
    uint32_t out[WEFT_MAX_DEVICES], in[WEFT_MAX_DEVICES];
    int status = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        char label[48];
        out[i] = in[i] = WEFT__TOPO_NONE;
        if (!(bpns > 0)) continue;
        snprintf(label, sizeof label, "%.20s out of %.16s", name, t->device[devices[i]].name);
        status = weft__topo_add_port(t, label, bpns, &out[i]);
        snprintf(label, sizeof label, "%.20s into %.16s", name, t->device[devices[i]].name);
        if (!status) status = weft__topo_add_port(t, label, bpns, &in[i]);
    }
    for (uint32_t i = 0; i < n && !status; i++)
        for (uint32_t j = 0; j < n; j++) {
            weft__topo_route *r = &t->route[devices[i]][devices[j]];
            if (i != j && !r->there)
                *r = (weft__topo_route){.latency_ns = latency_ns, .port = {out[i], in[j]}, .there = 1};
        }
    return status;
}

int weft__topo_machine(const weft__topology *t, weft__machine *out)
{
    *out = (weft__machine){.n_device = t->n_device};
    for (uint32_t a = 0; a < t->n_device; a++) {
        out->workers[a] = t->device[a].workers;
        for (uint32_t b = 0; b < t->n_device; b++) {
            const weft__topo_route *r = &t->route[a][b];
            if (a == b) continue;
            if (!r->there)
                return weft__fail(WEFT_EUSAGE, "topology %s: no way from %s to %s", t->text, t->device[a].name,
                                  t->device[b].name);
            out->latency_ns[a][b] = r->latency_ns;
            for (int n = 0; n < 2; n++) {
                const double ns = r->port[n] == WEFT__TOPO_NONE || !(t->port[r->port[n]].bpns > 0)
                                      ? 0
                                      : 1 / t->port[r->port[n]].bpns;
                if (ns > out->ns_per_byte[a][b]) out->ns_per_byte[a][b] = ns;
            }
        }
    }
    return 0;
}
