/* placer_milp.c: the shortest schedule, by mixed-integer programming with CBC. Optional (docs/dependencies.md).
 *
 *   x[t,w] = 1: task t runs on worker w    s[t] >= 0: its start    y[i,j] = 1: i is before j, for pairs without a way between
 *   minimise C, where d[t] = sum of cost[t,w] x[t,w]:
 *     sum over w of x[t,w] = 1             C >= s[t] + d[t]        C >= all least costs over all workers
 *     s[j] >= s[i] + d[i] + move[i,j,a,b] (X[i,a] + X[j,b] - 1)    an edge, devices a != b; X: x summed over a device's workers
 *     s[j] >= s[i] + d[i] - M (3 - x[i,w] - x[j,w] - y[i,j])       a pair on one worker, and the same for (j,i) with 1 - y
 *     sum of memory[t] X[t,a] <= memory[a]
 *
 * M and the start are from HEFT. What CBC says is only the workers and their order: times are made again from those, exactly. */
#include "placer.h"

#include "error.h"

#ifdef WEFT_HAVE_CBC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coin/Cbc_C_Interface.h>

enum {
    MOST_TASKS = 40,
    MOST_WORKERS = 16
};

typedef struct milp {
    weft_placing *p;
    const weft__taskgraph *g;
    const weft__machine *m;
    Cbc_Model *model;
    uint32_t n_worker, device[MOST_WORKERS];
    uint8_t way[MOST_TASKS][MOST_TASKS]; /* from, to */
    double most;                         /* M: HEFT's makespan */
    int y[MOST_TASKS][MOST_TASKS], n_column;
    int index[MOST_TASKS * MOST_WORKERS + 8]; /* the row that is being made */
    double value[MOST_TASKS * MOST_WORKERS + 8];
    int n;
} milp;

static int x_of(const milp *p, uint32_t t, uint32_t w) { return 1 + (int)(p->g->n_task + t * p->n_worker + w); }
static int s_of(uint32_t t) { return 1 + (int)t; } /* column 0 is C */

static void put(milp *p, int column, double value)
{
    for (int i = 0; i < p->n; i++)
        if (p->index[i] == column) {
            p->value[i] += value;
            return;
        }
    p->index[p->n] = column;
    p->value[p->n++] = value;
}

static void put_duration(milp *p, uint32_t t, double times)
{
    for (uint32_t w = 0; w < p->n_worker; w++)
        if (!isinf(weft__tg_cost(p->g, t, p->device[w])))
            put(p, x_of(p, t, w), times * weft__tg_cost(p->g, t, p->device[w]));
}

static void put_device(milp *p, uint32_t t, uint32_t d, double times)
{
    for (uint32_t w = 0; w < p->n_worker; w++)
        if (p->device[w] == d) put(p, x_of(p, t, w), times);
}

static void end_row(milp *p, char sense, double side)
{
    Cbc_addRow(p->model, "", p->n, p->index, p->value, sense, side);
    p->n = 0;
}

/* s[j] - s[i] - d[i]: what is left of j's start behind i's end. */
static void begin_order(milp *p, uint32_t i, uint32_t j)
{
    put(p, s_of(j), 1);
    put(p, s_of(i), -1);
    put_duration(p, i, -1);
}

static void add_columns(milp *p)
{
    const uint32_t n = p->g->n_task;
    Cbc_addCol(p->model, "", 0, p->most, 1, 0, 0, NULL, NULL);
    for (uint32_t t = 0; t < n; t++)
        Cbc_addCol(p->model, "", 0, p->most, 0, 0, 0, NULL, NULL);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t w = 0; w < p->n_worker; w++) {
            const int runs = !isinf(weft__tg_cost(p->g, t, p->device[w]));
            Cbc_addCol(p->model, "", 0, runs, 0, 1, 0, NULL, NULL);
        }
    p->n_column = 1 + (int)(n + n * p->n_worker);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j++) {
            if (p->way[i][j] || p->way[j][i]) continue;
            p->y[i][j] = p->n_column++;
            Cbc_addCol(p->model, "", 0, 1, 0, 1, 0, NULL, NULL);
        }
}

static void add_tasks(milp *p, double bound)
{
    for (uint32_t t = 0; t < p->g->n_task; t++) {
        for (uint32_t w = 0; w < p->n_worker; w++)
            put(p, x_of(p, t, w), 1);
        end_row(p, 'E', 1);
        put(p, 0, 1);
        put(p, s_of(t), -1);
        put_duration(p, t, -1);
        end_row(p, 'G', 0);
    }
    put(p, 0, 1);
    end_row(p, 'G', bound);
    for (uint32_t w = 0; w < p->n_worker; w++) { /* a worker's work fits into C */
        put(p, 0, 1);
        for (uint32_t t = 0; t < p->g->n_task; t++)
            if (!isinf(weft__tg_cost(p->g, t, p->device[w])))
                put(p, x_of(p, t, w), -weft__tg_cost(p->g, t, p->device[w]));
        end_row(p, 'G', 0);
    }
    for (uint32_t d = 0; d < p->m->n_device; d++) {
        if (!p->m->memory[d]) continue;
        for (uint32_t w = 0; w < p->n_worker; w++)
            for (uint32_t t = 0; t < p->g->n_task && p->device[w] == d; t++)
                put(p, x_of(p, t, w), (double)p->g->memory[t]);
        end_row(p, 'L', (double)p->m->memory[d]);
    }
}

static void add_edges(milp *p)
{
    for (uint32_t e = 0; e < p->g->n_edge; e++) {
        const weft__tg_edge_row *r = &p->g->edges[e];
        begin_order(p, r->from, r->to);
        end_row(p, 'G', 0);
        for (uint32_t a = 0; a < p->m->n_device; a++)
            for (uint32_t b = 0; b < p->m->n_device; b++) {
                const double move = weft__arrival(p->m, 0, r->bytes, a, b);
                if (move <= 0) continue;
                begin_order(p, r->from, r->to);
                put_device(p, r->from, a, -move);
                put_device(p, r->to, b, -move);
                end_row(p, 'G', -move);
            }
    }
}

static void add_pairs(milp *p)
{
    for (uint32_t i = 0; i < p->g->n_task; i++)
        for (uint32_t j = i + 1; j < p->g->n_task; j++) {
            if (p->way[i][j] || p->way[j][i]) continue;
            for (uint32_t w = 0; w < p->n_worker; w++)
                for (int first = 0; first < 2; first++) { /* M is enough: s[i] + d[i] <= C <= M */
                    begin_order(p, first ? j : i, first ? i : j);
                    put(p, x_of(p, i, w), -p->most);
                    put(p, x_of(p, j, w), -p->most);
                    put(p, p->y[i][j], first ? p->most : -p->most);
                    end_row(p, 'G', first ? -2 * p->most : -3 * p->most);
                }
        }
}

static void find_ways(milp *p)
{
    for (uint32_t i = p->g->n_task; i-- > 0;) {
        const uint32_t t = p->g->order[i];
        for (uint32_t e = p->g->out0[t]; e < p->g->out0[t + 1]; e++) {
            const uint32_t to = p->g->edges[e].to;
            p->way[t][to] = 1;
            for (uint32_t k = 0; k < p->g->n_task; k++)
                p->way[t][k] |= p->way[to][k];
        }
    }
}

/* Tasks in the order of their starts, each as soon as its worker and its inputs are there. */
static void make_times(milp *p, const double *start, const uint32_t *worker)
{
    double free_at[MOST_WORKERS] = {0};
    uint8_t done[MOST_TASKS] = {0};
    for (uint32_t round = 0; round < p->g->n_task; round++) {
        uint32_t t = WEFT__TG_NONE;
        for (uint32_t k = 0; k < p->g->n_task; k++) {
            int ready = !done[k];
            for (uint32_t i = p->g->in0[k]; i < p->g->in0[k + 1]; i++)
                ready &= done[p->g->edges[p->g->in[i]].from];
            if (ready && (t == WEFT__TG_NONE || start[k] < start[t])) t = k;
        }
        const uint32_t w = worker[t], d = p->device[w];
        double at = free_at[w];
        for (uint32_t i = p->g->in0[t]; i < p->g->in0[t + 1]; i++) {
            const weft__tg_edge_row *e = &p->g->edges[p->g->in[i]];
            const weft__schedule_row *from = &p->p->row[e->from];
            at = fmax(at, weft__arrival(p->m, from->end, e->bytes, from->device, d));
        }
        uint32_t first = w;
        while (first && p->device[first - 1] == d)
            first--;
        p->p->row[t] = (weft__schedule_row){at, at + weft__tg_cost(p->g, t, d), d, w - first};
        free_at[w] = p->p->row[t].end;
        done[t] = 1;
    }
}

static int take_solution(milp *p, double bound)
{
    const double *v = Cbc_getColSolution(p->model);
    double start[MOST_TASKS];
    uint32_t worker[MOST_TASKS];
    const int found = !Cbc_isProvenInfeasible(p->model) && Cbc_numberSavedSolutions(p->model) > 0 && v;
    for (uint32_t t = 0; t < p->g->n_task && found; t++) {
        start[t] = v[s_of(t)];
        worker[t] = 0;
        for (uint32_t w = 1; w < p->n_worker; w++)
            if (v[x_of(p, t, w)] > v[x_of(p, t, worker[t])]) worker[t] = w;
    }
    double end = 0;
    if (found) {
        weft__schedule_row *heft = malloc(p->g->n_task * sizeof *heft);
        if (!heft) return weft__fail(WEFT_ENOMEM, "policy milp");
        memcpy(heft, p->p->row, p->g->n_task * sizeof *heft);
        make_times(p, start, worker);
        for (uint32_t t = 0; t < p->g->n_task; t++)
            end = fmax(end, p->p->row[t].end);
        if (end > p->most) { /* stopped before it found anything better */
            memcpy(p->p->row, heft, p->g->n_task * sizeof *heft);
            end = p->most;
        }
        free(heft);
    } else {
        end = p->most;
    }
    p->p->timed = 1;
    p->p->bound = fmax(bound, Cbc_getBestPossibleObjValue(p->model));
    if (Cbc_isProvenOptimal(p->model) || p->p->bound > end) p->p->bound = end;
    return 0;
}

static int check_size(milp *p)
{
    for (uint32_t d = 0; d < p->m->n_device; d++)
        for (uint32_t w = 0; w < p->m->workers[d]; w++) {
            if (p->n_worker == MOST_WORKERS || p->g->n_task > MOST_TASKS)
                return weft__fail(WEFT_EUSAGE, "policy milp: %u tasks: at most %u, on at most %u workers", p->g->n_task,
                                  MOST_TASKS, MOST_WORKERS);
            p->device[p->n_worker++] = d;
        }
    return 0;
}

static int solve(milp *p, double limit)
{
    weft__schedule s = {.row = p->p->row, .makespan = p->most};
    weft__placement_score score;
    char text[32];
    int status = weft__placement_score_of(p->g, p->m, &s, &score);
    if (status) return status;
    p->model = Cbc_newModel();
    if (!p->model) return weft__fail(WEFT_ENOMEM, "policy milp");
    Cbc_setLogLevel(p->model, 0);
    Cbc_setObjSense(p->model, 1);
    find_ways(p);
    add_columns(p);
    add_tasks(p, score.bound);
    add_edges(p);
    add_pairs(p);
    snprintf(text, sizeof text, "%g", limit);
    Cbc_setParameter(p->model, "seconds", text);
    Cbc_setParameter(p->model, "timeMode", "elapsed");
    Cbc_setParameter(p->model, "log", "0");
    Cbc_solve(p->model);
    status = take_solution(p, score.bound);
    Cbc_deleteModel(p->model);
    return status;
}

int weft__place_milp(weft_placing *p)
{
    milp *problem = calloc(1, sizeof *problem);
    double limit = 60;
    if (!problem) return weft__fail(WEFT_ENOMEM, "policy milp");
    problem->p = p;
    problem->g = p->graph;
    problem->m = p->machine;
    int status = weft__placing_number(p, "limit", 0.01, 1e6, &limit);
    if (!status) status = check_size(problem);
    if (!status) status = weft__place_heft(p);
    for (uint32_t t = 0; t < p->graph->n_task && !status; t++)
        problem->most = fmax(problem->most, p->row[t].end);
    if (!status) status = solve(problem, limit);
    free(problem);
    return status;
}
#else
int weft__place_milp(weft_placing *p)
{
    (void)p;
    return weft__fail(WEFT_EUNSUPPORTED, "policy milp: this weft was built without CBC (Debian: coinor-libcbc-dev)");
}
#endif
