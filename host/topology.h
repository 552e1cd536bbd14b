/* topology.h: the devices that a plan is simulated on: workers, memory, costs, and the ways between them.
 *
 * Enters: a name or synthetic text ("node:2 gpu:8 sm:132 nvlink:450GB/s,1.8us"), a JSON file, or what the runtime has found.
 * Leaves: plain data. A way from one device to another passes at most two ports (out of one, into the other; or a cable
 * between the two), each with a bandwidth that all who pass share. docs/simulator.md has both grammars.                  */
#ifndef WEFT_HOST_TOPOLOGY_H
#define WEFT_HOST_TOPOLOGY_H

#include "listsched.h"
#include "profile.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__TOPO_NONE UINT32_MAX
#define WEFT__TOPO_MAX_PROFILES 8u
#define WEFT__TOPO_SCHEMA 1

typedef struct weft__topo_device {
    char name[32];
    uint32_t node, workers;
    uint32_t profile; /* in profile[] */
    uint32_t memory;  /* devices of the same number share one memory (slices of a GPU) */
} weft__topo_device;

typedef struct weft__topo_port {
    char name[48];
    double bpns; /* bytes a ns, shared by all that pass */
} weft__topo_port;

typedef struct weft__topo_route {
    double latency_ns;
    uint32_t port[2]; /* WEFT__TOPO_NONE: nothing to share there */
    uint32_t there;   /* 0: these two devices can't reach each other */
} weft__topo_route;

typedef struct weft__topology {
    char text[256]; /* as it was asked for */
    uint32_t n_device, n_profile, n_port, n_memory;
    weft__topo_device device[WEFT_MAX_DEVICES];
    weft__profile profile[WEFT__TOPO_MAX_PROFILES];
    weft__topo_route route[WEFT_MAX_DEVICES][WEFT_MAX_DEVICES]; /* [from][to] */
    weft__topo_port *port;
    uint32_t room_port;
} weft__topology;

/* `spec`: a file if it ends in .json, else synthetic text. WEFT_EFILE with file and field, or WEFT_EUSAGE with the word. */
int weft__topo_open(const char *spec, weft__topology **out);
int weft__topo_parse(const char *text, weft__topology **out);
int weft__topo_read(const char *path, weft__topology **out);
void weft__topo_free(weft__topology *t); /* legal on NULL */

/* For those who build one: an empty topology; a profile (copied; found again by name), a device, a port; ways. */
int weft__topo_new(const char *text, weft__topology **out);
int weft__topo_add_profile(weft__topology *t, const weft__profile *p, uint32_t *id);
int weft__topo_add_device(weft__topology *t, const char *name, uint32_t node, uint32_t workers, uint32_t profile,
                          uint32_t *id);
int weft__topo_add_port(weft__topology *t, const char *name, double bpns, uint32_t *id);
/* Every device of devices[0..n) gets a port out and one in (bpns; 0: unlimited), and a way over them to all others of the
 * list that it has no way to yet.                                                                                      */
int weft__topo_add_switch(weft__topology *t, const char *name, const uint32_t *devices, uint32_t n, double bpns,
                          double latency_ns);

/* The first n_device devices as list schedulers see them: ways without sharing. WEFT_EUSAGE: two that can't reach each other. */
int weft__topo_machine(const weft__topology *t, weft__machine *out);

static inline const weft__profile *weft__topo_profile(const weft__topology *t, uint32_t device)
{
    return &t->profile[t->device[device].profile];
}

#ifdef __cplusplus
}
#endif

#endif
