/* placer.c: see placer.h: the table of policies, options, shared objects, from placements to schedules and scores. */
#include "placer.h"

#include "error.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name, about, keys, fn)                                                                                     \
    {                                                                                                                  \
        WEFT_PLACER_ABI, WEFT_PLACER_BYTES, name, about, keys, fn                                                      \
    }
static const weft_placer policies[] = {
    ROW("single", "all on the device that runs all soonest", "", weft__place_single),
    ROW("round-robin", "task after task, device after device", "", weft__place_round_robin),
    ROW("blocks", "levels of the graph in blocks of equal work", "", weft__place_blocks),
    ROW("list", "by the critical path of costs alone, where it ends soonest (HLFET)", "", weft__place_list),
    ROW("heft", "by the critical path with communication, where it ends soonest", "", weft__place_heft),
    ROW("peft", "the same with a table of optimistic costs to the end", "", weft__place_peft),
    ROW("cpop", "the critical path on one device", "", weft__place_cpop),
    ROW("ldg", "one pass: where most of the inputs are, unless it is full (slack=0.1)", "slack ", weft__place_ldg),
    ROW("sa", "simulated annealing (start=heft, moves=N)", "start moves ", weft__place_sa),
    ROW("scotch", "Scotch's static mapping (optional)", "imbalance ", weft__place_scotch),
    ROW("milp", "the optimum of small graphs, by CBC (limit=60 s; optional)", "limit ", weft__place_milp),
};
enum {
    N_POLICY = sizeof policies / sizeof policies[0]
};

const weft_placer *weft__policy_at(uint32_t i) { return i < N_POLICY ? &policies[i] : NULL; }

static int load_policy(weft__policy *p)
{
    p->handle = dlopen(p->text, RTLD_NOW | RTLD_LOCAL);
    if (!p->handle) return weft__fail(WEFT_EFILE, "policy '%s': %s", p->text, dlerror());
    p->placer = dlsym(p->handle, WEFT_PLACER_SYMBOL);
    if (!p->placer) return weft__fail(WEFT_EFILE, "policy '%s': it has no " WEFT_PLACER_SYMBOL, p->text);
    if (p->placer->abi != WEFT_PLACER_ABI || p->placer->bytes != WEFT_PLACER_BYTES)
        return weft__fail(WEFT_EFILE, "policy '%s': made with other headers than this weft's (version %u, %u expected)",
                          p->text, p->placer->abi, WEFT_PLACER_ABI);
    return 0;
}

/* Every KEY= must be one of the policy's. */
static int check_keys(const weft__policy *p)
{
    const char *keys = p->placer->keys;
    for (const char *at = p->options; *at && keys; at += strcspn(at, ",")) {
        at += *at == ',';
        const size_t n = strcspn(at, "=,");
        int known = 0;
        for (const char *k = keys; *k && at[n] == '='; k += strcspn(k, " ") + 1)
            known |= strcspn(k, " ") == n && memcmp(k, at, n) == 0;
        if (!known)
            return weft__fail(WEFT_EUSAGE, "policy '%s': no option '%.*s'; it takes %s", p->text, (int)strcspn(at, ","),
                              at, *keys ? keys : "none");
    }
    return 0;
}

int weft__policy_open(const char *spec, weft__policy *out)
{
    const char *slash = strrchr(spec, '/'), *colon = strchr(slash ? slash : spec, ':');
    const size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    *out = (weft__policy){.options = colon ? colon + 1 : ""};
    if (n >= sizeof out->text) return weft__fail(WEFT_EUSAGE, "policy: a name of %zu characters", n);
    memcpy(out->text, spec, n);
    if (slash) {
        int status = load_policy(out);
        return status ? status : check_keys(out);
    }
    for (uint32_t i = 0; i < N_POLICY && !out->placer; i++)
        if (strcmp(policies[i].name, out->text) == 0) out->placer = &policies[i];
    if (out->placer) return check_keys(out);
    return weft__fail(
        WEFT_EUSAGE,
        "policy '%s': expected single, round-robin, blocks, list, heft, peft, cpop, ldg, sa, scotch, milp or "
        "the path of a shared object (with a /)",
        out->text);
}

void weft__policy_close(weft__policy *p)
{
    if (p->handle) dlclose(p->handle);
    p->handle = NULL;
}

/* ---------------------------------------------------------------------------------------------------------- options */

static const char *find_option(const char *options, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = options; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, key, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

int weft__placing_number(weft_placing *p, const char *key, double min, double max, double *out)
{
    const char *at = find_option(p->options, key);
    if (!at) return 0;
    char *end;
    const double v = strtod(at, &end);
    if (end == at || (*end && *end != ',') || !(v >= min && v <= max))
        return weft__fail(WEFT_EUSAGE, "policy: %s: expected a number from %g to %g", key, min, max);
    *out = v;
    return 0;
}

const char *weft__placing_word(const weft_placing *p, const char *key, const char *otherwise, char *out, size_t room)
{
    const char *at = find_option(p->options, key);
    if (!at) return otherwise;
    snprintf(out, room, "%.*s", (int)strcspn(at, ","), at);
    return out;
}

/* ---------------------------------------------------------------------------------------------------------- running */

int weft__placing_new(const weft__taskgraph *g, const weft__machine *m, uint64_t seed, weft_placing *out)
{
    *out = (weft_placing){.graph = g, .machine = m, .options = "", .seed = seed};
    int status = weft__machine_check(g, m);
    if (status) return status;
    out->device = calloc(g->n_task, sizeof *out->device);
    out->row = calloc(g->n_task, sizeof *out->row);
    return out->device && out->row ? 0 : weft__fail(WEFT_ENOMEM, "placement of %u tasks", g->n_task);
}

void weft__placing_free(weft_placing *p)
{
    free(p->device);
    free(p->row);
    *p = (weft_placing){0};
}

int weft__policy_run(const weft__policy *p, weft_placing *placing)
{
    placing->options = p->options;
    placing->timed = 0;
    placing->bound = 0;
    const int status = p->placer->place(placing);
    placing->error[sizeof placing->error - 1] = 0;
    if (status && p->handle)
        return weft__fail(status < 0 ? status : WEFT_EUSAGE, "policy %s: %s", p->text,
                          placing->error[0] ? placing->error : "it failed");
    return status;
}

int weft__placing_schedule(const weft_placing *p, weft__schedule *out)
{
    const weft__taskgraph *g = p->graph;
    *out = (weft__schedule){0};
    for (uint32_t t = 0; t < g->n_task && !p->timed; t++) {
        const uint32_t d = p->device[t];
        if (d >= p->machine->n_device || isinf(weft__tg_cost(g, t, d)))
            return weft__fail(WEFT_EWRONG, "task %s was placed on device %u, which %s", weft__tg_name(g, t), d,
                              d >= p->machine->n_device ? "is none" : "can't run it");
    }
    if (!p->timed) return weft__listsched_fixed(g, p->machine, p->device, out);
    out->row = malloc(g->n_task * sizeof *out->row);
    if (!out->row) return weft__fail(WEFT_ENOMEM, "schedule of %u tasks", g->n_task);
    memcpy(out->row, p->row, g->n_task * sizeof *out->row);
    int status = weft__schedule_check(g, p->machine, out);
    for (uint32_t t = 0; t < g->n_task; t++)
        out->makespan = fmax(out->makespan, out->row[t].end);
    return status ? status : weft__schedule_cut(g, out);
}

/* ----------------------------------------------------------------------------------------------------------- scores */

int weft__placement_score_of(const weft__taskgraph *g, const weft__machine *m, const weft__schedule *s,
                             weft__placement_score *out)
{
    double *longest = calloc(g->n_task, sizeof *longest), all[WEFT__SCHED_MAX_DEVICES] = {0}, sum = 0,
           soonest = INFINITY;
    double busy[WEFT__SCHED_MAX_DEVICES] = {0}, busiest = 0, mean = 0;
    uint64_t workers = 0;
    *out = (weft__placement_score){0};
    if (!longest) return weft__fail(WEFT_ENOMEM, "score of %u tasks", g->n_task);
    for (uint32_t i = 0; i < g->n_task; i++) {
        const uint32_t t = g->order[i];
        double least = INFINITY;
        for (uint32_t d = 0; d < m->n_device; d++) {
            least = fmin(least, weft__tg_cost(g, t, d));
            all[d] += weft__tg_cost(g, t, d);
        }
        longest[t] += least;
        sum += least;
        out->bound = fmax(out->bound, longest[t]);
        for (uint32_t e = g->out0[t]; e < g->out0[t + 1]; e++)
            longest[g->edges[e].to] = fmax(longest[g->edges[e].to], longest[t]);
        busy[s->row[t].device] += s->row[t].end - s->row[t].start;
    }
    free(longest);
    for (uint32_t d = 0; d < m->n_device; d++) {
        workers += m->workers[d];
        soonest = fmin(soonest, all[d]);
        busiest = fmax(busiest, busy[d] / m->workers[d]);
        mean += busy[d];
    }
    out->bound = fmax(out->bound, sum / (double)workers);
    if (out->bound > 0) out->slr = s->makespan / out->bound;
    if (s->makespan > 0 && !isinf(soonest)) out->speedup = soonest / s->makespan;
    out->efficiency = out->speedup / (double)workers;
    out->balance = mean > 0 ? busiest * (double)workers / mean : 1;
    return 0;
}
