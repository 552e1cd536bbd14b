/* placer_scotch.c: static mapping by Scotch (Pellegrini, Roman, HPCN 1996): tasks of as much work on each device as its workers are
 * a part of all, few bytes between them. Directions and time are no part of that model. Optional (docs/dependencies.md).  */
#include "placer.h"

#include "error.h"

#ifdef WEFT_HAVE_SCOTCH
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <scotch/scotch.h>

typedef struct arcs {
    SCOTCH_Num *first, *size, *to, *weight, *part, *workers; /* both directions of each edge */
    SCOTCH_Num n;
} arcs;

static void free_arcs(arcs *a)
{
    free(a->first);
    free(a->size);
    free(a->to);
    free(a->weight);
    free(a->part);
    free(a->workers);
}

/* 1 to 1000, so that sums fit into 32 bits. */
static SCOTCH_Num scaled(double v, double most) { return most > 0 ? 1 + (SCOTCH_Num)(999 * v / most) : 1; }

static double work_of(const weft_placing *p, uint32_t t)
{
    double least = INFINITY;
    for (uint32_t d = 0; d < p->machine->n_device; d++)
        least = fmin(least, weft__tg_cost(p->graph, t, d));
    return least;
}

/* Rows of one pair lie side by side: they become one arc. */
static int make_arcs(const weft_placing *p, arcs *a)
{
    const weft__taskgraph *g = p->graph;
    const uint32_t n = g->n_task;
    double most_work = 0, most_bytes = 0;
    a->first = calloc(n + 2ull, sizeof *a->first);
    a->size = malloc(n * sizeof *a->size);
    a->to = malloc((2ull * g->n_edge + 1) * sizeof *a->to);
    a->weight = malloc((2ull * g->n_edge + 1) * sizeof *a->weight);
    a->part = calloc(n, sizeof *a->part);
    a->workers = malloc(p->machine->n_device * sizeof *a->workers);
    if (!a->first || !a->size || !a->to || !a->weight || !a->part || !a->workers)
        return weft__fail(WEFT_ENOMEM, "policy scotch: %u tasks", n);
    for (uint32_t t = 0; t < n; t++)
        most_work = fmax(most_work, work_of(p, t));
    for (uint32_t e = 0; e < g->n_edge; e++)
        most_bytes = fmax(most_bytes, g->edges[e].bytes);
    for (uint32_t t = 0; t < n; t++)
        a->size[t] = scaled(work_of(p, t), most_work);
    for (uint32_t d = 0; d < p->machine->n_device; d++)
        a->workers[d] = (SCOTCH_Num)p->machine->workers[d];
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t e = 0; e < g->n_edge; e++) {
            const weft__tg_edge_row *r = &g->edges[e];
            if (e && r[-1].from == r->from && r[-1].to == r->to) continue;
            if (!pass) {
                a->first[r->from + 2]++;
                a->first[r->to + 2]++;
                continue;
            }
            const SCOTCH_Num w = scaled(r->bytes, most_bytes), i = a->first[r->from + 1]++, k = a->first[r->to + 1]++;
            a->to[i] = (SCOTCH_Num)r->to;
            a->to[k] = (SCOTCH_Num)r->from;
            a->weight[i] = a->weight[k] = w;
        }
        for (uint32_t t = 0; t < n && !pass; t++)
            a->first[t + 2] += a->first[t + 1];
    }
    a->n = a->first[n];
    return 0;
}

static int map_arcs(weft_placing *p, arcs *a, double imbalance)
{
    SCOTCH_Graph graph;
    SCOTCH_Arch arch;
    SCOTCH_Strat strat;
    SCOTCH_randomSeed((SCOTCH_Num)(p->seed & 0x7fffffff));
    SCOTCH_randomReset();
    if (SCOTCH_graphInit(&graph) || SCOTCH_archInit(&arch) || SCOTCH_stratInit(&strat))
        return weft__fail(WEFT_ENOMEM, "policy scotch");
    int bad = SCOTCH_graphBuild(&graph, 0, (SCOTCH_Num)p->graph->n_task, a->first, NULL, a->size, NULL, a->n, a->to,
                                a->weight);
    bad = bad || SCOTCH_archCmpltw(&arch, (SCOTCH_Num)p->machine->n_device, a->workers);
    bad = bad || SCOTCH_stratGraphMapBuild(&strat, SCOTCH_STRATQUALITY, (SCOTCH_Num)p->machine->n_device, imbalance);
    bad = bad || SCOTCH_graphMap(&graph, &arch, &strat, a->part);
    SCOTCH_stratExit(&strat);
    SCOTCH_archExit(&arch);
    SCOTCH_graphExit(&graph);
    return bad ? weft__fail(WEFT_EUSAGE, "policy scotch: the library refused this graph") : 0;
}

int weft__place_scotch(weft_placing *p)
{
    arcs a = {0};
    double imbalance = 0.05;
    int status = weft__placing_number(p, "imbalance", 0, 1, &imbalance);
    if (!status && p->graph->n_task > 2000000)
        status = weft__fail(WEFT_EUSAGE, "policy scotch: %u tasks, at most 2000000", p->graph->n_task);
    if (!status) status = make_arcs(p, &a);
    if (!status && p->machine->n_device > 1) status = map_arcs(p, &a, imbalance);
    for (uint32_t t = 0; t < p->graph->n_task && !status; t++) {
        uint32_t d = (uint32_t)a.part[t];
        while (isinf(weft__tg_cost(p->graph, t, d))) /* devices that can't run it are no part of the model either */
            d = (d + 1) % p->machine->n_device;
        p->device[t] = d;
    }
    free_arcs(&a);
    return status;
}
#else
int weft__place_scotch(weft_placing *p)
{
    (void)p;
    return weft__fail(WEFT_EUNSUPPORTED, "policy scotch: this weft was built without Scotch (Debian: libscotch-dev)");
}
#endif
