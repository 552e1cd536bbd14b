/* graphgen.h: families of task graphs, made from a text and a seed; the same on every machine.
 *
 *   gen:FAMILY[,KEY=N..]     n: size   width, depth, degree   cost: mean ns of a task   bytes: of an edge   spread: 0 to 1
 *
 *   layered     n tasks (1000) in layers of `width` (32), each after `degree` (3) drawn ones of the layer before
 *   forkjoin    `depth` (10) times: a task, `width` (32) after it, and so on; a last one joins
 *   stencil     `depth` (32) steps of `width` (32) points, each after itself and its two neighbours
 *   cholesky    of n x n (8) tiles: potrf, trsm, syrk, gemm; costs as their operations (1/3, 1, 1, 2)
 *   lu          of n x n (8) tiles without pivoting: getrf, trsm, gemm (2/3, 1, 2)
 *   fft         n (64, a power of two) points: log n butterfly layers
 *   mapreduce   `depth` (1) times: `width` (32) maps, `degree` (8) reductions of all of them
 *
 * Costs are drawn uniformly from cost * weight * (1 - spread .. 1 + spread); cost 10000, bytes 65536, spread 0.5, seed 1.     */
#ifndef WEFT_HOST_GRAPHGEN_H
#define WEFT_HOST_GRAPHGEN_H

#include "taskgraph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* WEFT_EUSAGE: names the family or key that is none, or what makes too large a graph. g is freed by the caller, also then. */
int weft__graphgen(const char *spec, weft__taskgraph *g);

#ifdef __cplusplus
}
#endif

#endif
