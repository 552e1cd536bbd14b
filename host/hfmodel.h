/* hfmodel.h: a Hugging Face model directory (config.json and safetensors) as the planner and the packing want it. */
#ifndef WEFT_HOST_HFMODEL_H
#define WEFT_HOST_HFMODEL_H

#include "config.h"
#include "graph.h"
#include "pack.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__hfmodel {
    weft__config config;
    weft__safetensors files;
    const char *prefix; /* of its tensors' names: "model." or "" */
} weft__hfmodel;

int weft__hfmodel_open(const char *dir, weft__hfmodel *out);
void weft__hfmodel_close(weft__hfmodel *m); /* legal on a zeroed struct */

/* The shapes for weft__graph_mlp, weights by name. `layers` 0: all that the model has. Checks that every tensor of those
 * layers' MLP blocks is there with its shape and a type that can be read. out->prefix points into *m.                    */
int weft__hfmodel_mlp(const weft__hfmodel *m, uint32_t layers, weft__model *out);

/* Its tensors by name; valid as long as *m. Safe to use from several threads. */
weft__weight_reader weft__hfmodel_reader(const weft__hfmodel *m);

#ifdef __cplusplus
}
#endif

#endif
