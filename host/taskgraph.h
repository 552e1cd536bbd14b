/* taskgraph.h: a task graph for placement: tasks with a cost for each device, edges that carry bytes, names.
 *
 * Built with weft__tg_task() and weft__tg_edge(), then closed once by weft__tg_finish(), which proves that there is no
 * cycle and makes the lists. Times are nanoseconds. An edge that names a file shares it with all edges of its producer
 * that name it too: the file crosses to a device once, however many tasks read it there.                             */
#ifndef WEFT_HOST_TASKGRAPH_H
#define WEFT_HOST_TASKGRAPH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT__TG_NONE UINT32_MAX
#define WEFT__TG_MAX_TASKS 16000000u
#define WEFT__TG_MAX_EDGES 64000000u

typedef struct weft__tg_edge_row {
    double bytes;
    uint32_t from, to;
    uint32_t file; /* WEFT__TG_NONE: nobody else reads these bytes */
} weft__tg_edge_row;

typedef struct weft__taskgraph {
    uint32_t n_task, n_edge, n_column;
    double *cost;     /* [task * n_column + device]; INFINITY: can't run there. One column: the same on every device */
    uint64_t *memory; /* [task]: bytes that stay on its device */
    uint64_t *name;   /* [task]: offset into names */
    char *names;
    weft__tg_edge_row *edges; /* by from, then to, once finished */
    uint32_t *out0;           /* [task + 1]: first edge of a task */
    uint32_t *in0, *in;       /* [task + 1], edge ids by reader */
    uint32_t *order;          /* a topological order; the lowest id first among equals in depth */
    uint64_t n_names;         /* bytes used */
    uint64_t room_task, room_edge, room_names;
    uint32_t zero_costs, zero_bytes; /* tasks and edges that carry none: counted by weft__tg_finish */
} weft__taskgraph;

void weft__tg_init(weft__taskgraph *g, uint32_t n_column);
void weft__tg_free(weft__taskgraph *g);

/* A task of n_column costs (negative or NaN is refused: WEFT_EFILE). Its id is the number of tasks before it. */
int weft__tg_task(weft__taskgraph *g, const char *name, const double *cost, uint64_t memory);
int weft__tg_edge(weft__taskgraph *g, uint32_t from, uint32_t to, uint32_t file, double bytes);

/* WEFT_EFILE, with the names of the tasks: unknown ends, an edge to itself, one given twice, a cycle, a task that no
 * device can run. `where` is the file, for the message.                                                              */
int weft__tg_finish(weft__taskgraph *g, const char *where);

static inline double weft__tg_cost(const weft__taskgraph *g, uint32_t task, uint32_t device)
{
    return g->cost[(uint64_t)task * g->n_column + (g->n_column == 1 ? 0 : device)];
}
static inline const char *weft__tg_name(const weft__taskgraph *g, uint32_t task) { return g->names + g->name[task]; }

/* Readers: a finished graph, or WEFT_EFILE with the line or the field. g is freed by the caller also after failure. */
int weft__tg_read_stg(const char *path, weft__taskgraph *g);      /* Standard Task Graph; a unit of time is 1 us */
int weft__tg_read_wfformat(const char *path, weft__taskgraph *g); /* WfCommons WfFormat JSON 1.5 */

int weft__tg_read_json(const char *path, weft__taskgraph *g); /* weft's own (docs/placement.md); exact */
int weft__tg_read_dot(const char *path, weft__taskgraph *g);  /* Graphviz DOT with costs and bytes */

/* By what it says it is: gen:... (graphgen.h), a name in .dot or .gv, in .json (what is inside decides), else STG. */
int weft__tg_read(const char *text, weft__taskgraph *g);

/* Writers, of a finished graph. WEFT_EIO. Where `device` (one a task) is not NULL, DOT colours tasks by it. */
int weft__tg_write_json(const weft__taskgraph *g, const char *path);
int weft__tg_write_dot(const weft__taskgraph *g, const uint32_t *device, const char *path);

/* taskgraph_ops.c, of finished graphs; zeros are counted anew. WEFT_EUSAGE: numbers that make none.
 * Costs times `time`, bytes times `bytes`. Zeros: refused (WEFT_EFILE, the first of them), or set to the median of the others,
 * how many in *costs and *bytes. Ratio: bytes for edges that carry none, seeded, so that on average moving what an edge carries
 * takes `ratio` times as long as a task.                                                                              */
int weft__tg_scale(weft__taskgraph *g, double time, double bytes);
int weft__tg_reject_zeros(const weft__taskgraph *g, const char *where);
int weft__tg_impute_zeros(weft__taskgraph *g, uint32_t *costs, uint32_t *bytes);
int weft__tg_ccr(weft__taskgraph *g, double ratio, double ns_per_byte, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
