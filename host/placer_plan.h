/* placer_plan.h: placements of weft's own work: its ops as tasks, out to a file and back in. */
#ifndef WEFT_HOST_PLACER_PLAN_H
#define WEFT_HOST_PLACER_PLAN_H

#include "placer.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A task an op, by its name: what the planner thinks that all of it costs on each device (ns), its weights as memory; an edge for
 * each tensor that one writes and another reads. WEFT_EUNSUPPORTED: an op that is neither a GEMM nor a norm.          */
int weft__tg_of_ops(const weft__graph *g, const weft__plan_options *opt, weft__taskgraph *out);

/* Reads a placement of those tasks: *device (free() it) is for weft__plan_options.place. Worker and start, where the file has
 * them, are checked (transfers take no time here) and not used.                                                       */
int weft__place_ops(const weft__graph *g, const weft__plan_options *opt, const char *path, uint32_t **device);

#ifdef __cplusplus
}
#endif

#endif
