/* cli_sim.h: an image simulated on a topology, as `weft sim`, `weft tour` and the benches want it. */
#ifndef WEFT_RUNTIME_CLI_SIM_H
#define WEFT_RUNTIME_CLI_SIM_H

#include "../host/sim.h"
#include "cli_work.h"

typedef struct weft__simulated {
    uint32_t devices, workers, tasks;
    uint64_t remote_signals, plan_hash, stolen;
    double step_us;                               /* host to host: what `weft run` times */
    double makespan_us;                           /* of the devices alone */
    double bound_us, path_us, work_us, memory_us; /* no policy beats the first, the largest of the others */
    double utilisation;                           /* workers' time in bodies, of the makespan */
    double remote_bytes;                          /* over the ways between devices */
    double busiest_port; /* part of the makespan in which the fullest port had anything in it */
} weft__simulated;

/* rows: NULL, or where a row a task goes (free() it). `queue` as in --queue; a module's policy can't be simulated:
 * WEFT_EUNSUPPORTED. Otherwise weft__sim_run's errors.                                                                   */
int weft__simulate(const weft__image *img, const weft__topology *topo, const char *queue, int contention_free,
                   weft__sim_row **rows, weft__simulated *out);

/* One JSON line on stdout, marked as simulated. strategy: NULL for an image from a file. */
int weft__simulated_print(const weft__work *w, const weft__topology *topo, const char *strategy, const char *queue,
                          int contention_free, const weft__simulated *s);

/* The topology of devices that are found, or of a shape "NxW" (H200s), with the costs of `profile` (a file, a built-in name;
 * NULL: those of the devices' kind).                                                                                     */
int weft__sim_topology(const char *topology, const char *devices, const char *profile, weft__topology **out);

#endif
