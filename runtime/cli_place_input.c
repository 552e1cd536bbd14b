/* cli_place_input.c: see cli_place.h. Enters: options. Leaves: a graph, a machine, placements of the one on the other. */
#include "../host/error.h"
#include "../host/topology.h"
#include "../megakernel/clock.h"
#include "cli_place.h"
#include "weft.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

weft__place_options weft__place_defaults(void)
{
    return (weft__place_options){.devices = "1x8",
                                 .zero = "keep",
                                 .model = "contention-free",
                                 .bandwidth = 450,
                                 .latency = 1.8,
                                 .time_scale = 1,
                                 .byte_scale = 1,
                                 .seed = 1};
}

weft__option *weft__place_rows(weft__place_options *o, weft__option *row)
{
    const weft__option rows[] = {
        {"--bandwidth", "GB/S", "of each link between two devices (default 450; topologies have their own)",
         WEFT_OPT_F64, &o->bandwidth, 1e-9, 1e9},
        {"--latency", "US", "of each link, in microseconds (default 1.8)", WEFT_OPT_F64, &o->latency, 0, 1e9},
        {"--memory", "GB", "of each device, for what tasks leave there (default: no limit)", WEFT_OPT_F64, &o->memory,
         1e-9, 1e9},
        {"--ccr", "X",
         "bytes for edges that carry none, seeded: moving them takes X times as long as a task, on average",
         WEFT_OPT_F64, &o->ccr, 1e-9, 1e9},
        {"--time-scale", "X", "costs of tasks times X", WEFT_OPT_F64, &o->time_scale, 1e-12, 1e12},
        {"--byte-scale", "X", "bytes of edges times X", WEFT_OPT_F64, &o->byte_scale, 1e-12, 1e12},
        {"--zero", "Z", "costs and bytes of 0: keep (default), reject, impute (the median of the others)",
         WEFT_OPT_TEXT, &o->zero, 0, 0},
    };
    memcpy(row, rows, sizeof rows);
    return row + sizeof rows / sizeof rows[0];
}

static void join_devices(const weft__place_options *o, weft__machine *m)
{
    for (uint32_t a = 0; a < m->n_device; a++)
        for (uint32_t b = 0; b < m->n_device; b++) {
            m->latency_ns[a][b] = a == b ? 0 : o->latency * 1e3;
            m->ns_per_byte[a][b] = a == b ? 0 : 1 / o->bandwidth;
        }
}

/* What the runtime opens: its workers, and links as the options say. */
static int describe_devices(const char *spec, weft__machine *m)
{
    weft_device_info devices[WEFT__SCHED_MAX_DEVICES];
    uint32_t n = 0;
    int status = weft_devices(spec, devices, WEFT__SCHED_MAX_DEVICES, &n);
    if (!status && (!n || n > WEFT__SCHED_MAX_DEVICES))
        status = weft__fail(WEFT_EUSAGE, "--devices %s: %u devices", spec, n);
    m->n_device = status ? 0 : n;
    for (uint32_t d = 0; d < m->n_device; d++)
        m->workers[d] = devices[d].workers;
    return status;
}

/* NxW: alike devices, alike links. Or a topology, which has its own. */
static int describe_machine(const weft__place_options *o, weft__machine *m)
{
    unsigned n, workers;
    char rest;
    *m = (weft__machine){0};
    if (strncmp(o->devices, "cpu", 3) == 0 || strncmp(o->devices, "cuda", 4) == 0) {
        int status = describe_devices(o->devices, m);
        join_devices(o, m);
        return status;
    }
    if (o->devices[0] < '0' || o->devices[0] > '9') {
        weft__topology *topology = NULL;
        int status = weft__topo_open(o->devices, &topology);
        if (!status) status = weft__topo_machine(topology, m);
        weft__topo_free(topology);
        return status;
    }
    if (sscanf(o->devices, "%ux%u%c", &n, &workers, &rest) != 2 || n < 1 || n > WEFT__SCHED_MAX_DEVICES ||
        workers < 1 || workers > 65535)
        return weft__fail(WEFT_EUSAGE, "--devices %s: expected DEVICESxWORKERS, up to %u devices, or a topology",
                          o->devices, WEFT__SCHED_MAX_DEVICES);
    m->n_device = n;
    for (uint32_t d = 0; d < n; d++)
        m->workers[d] = workers;
    join_devices(o, m);
    return 0;
}

static int treat_graph(const weft__place_options *o, weft__place_input *in)
{
    int status = 0;
    if (o->time_scale != 1 || o->byte_scale != 1) status = weft__tg_scale(&in->g, o->time_scale, o->byte_scale);
    if (!status && o->ccr > 0) status = weft__tg_ccr(&in->g, o->ccr, 1 / o->bandwidth, o->seed);
    if (!status && strcmp(o->zero, "reject") == 0) return weft__tg_reject_zeros(&in->g, in->text);
    if (!status && strcmp(o->zero, "impute") == 0)
        return weft__tg_impute_zeros(&in->g, &in->imputed_costs, &in->imputed_bytes);
    if (!status && strcmp(o->zero, "keep"))
        return weft__fail(WEFT_EUSAGE, "--zero %s: expected keep, reject or impute", o->zero);
    return status;
}

int weft__place_open(const weft__place_options *o, const char *graph, weft__place_input *out)
{
    *out = (weft__place_input){.text = graph};
    if (strcmp(o->model, "contention-free"))
        return weft__fail(WEFT_EUSAGE, "--model %s: expected contention-free", o->model);
    int status = describe_machine(o, &out->m);
    for (uint32_t d = 0; d < out->m.n_device && o->memory > 0; d++)
        out->m.memory[d] = (uint64_t)(o->memory * 1e9);
    if (!status) status = weft__tg_read(graph, &out->g);
    if (!status) status = treat_graph(o, out);
    return status ? status : weft__machine_check(&out->g, &out->m);
}

void weft__place_close(weft__place_input *in) { weft__tg_free(&in->g); }

static int run_policy(const weft__place_input *in, const char *spec, uint64_t seed, weft__place_result *out)
{
    weft__policy policy;
    weft_placing placing = {0};
    snprintf(out->name, sizeof out->name, "%s", spec);
    int status = weft__policy_open(spec, &policy);
    if (!status) status = weft__placing_new(&in->g, &in->m, seed, &placing);
    const uint64_t start = weft__now_ns();
    if (!status) status = weft__policy_run(&policy, &placing);
    const uint64_t decided = weft__now_ns();
    if (!status) status = weft__placing_schedule(&placing, &out->s);
    out->policy_s = (double)(decided - start) * 1e-9;
    out->schedule_s = (double)(weft__now_ns() - decided) * 1e-9;
    out->proven = placing.bound;
    weft__placing_free(&placing);
    weft__policy_close(&policy);
    return status;
}

int weft__place_one(const weft__place_input *in, const char *spec, const char *file, uint64_t seed,
                    weft__place_result *out)
{
    int status;
    *out = (weft__place_result){0};
    if (file) {
        snprintf(out->name, sizeof out->name, "%s", file);
        status = weft__placement_read(file, &in->g, &in->m, &out->s);
    } else {
        status = run_policy(in, spec, seed, out);
    }
    return status ? status : weft__placement_score_of(&in->g, &in->m, &out->s, &out->score);
}

void weft__place_free(weft__place_result *r) { weft__schedule_free(&r->s); }

void weft__place_json(const weft__place_options *o, const weft__place_input *in, json_t *to)
{
    json_object_set_new(to, "graph", json_string(in->text));
    json_object_set_new(to, "tasks", json_integer(in->g.n_task));
    json_object_set_new(to, "edges", json_integer(in->g.n_edge));
    json_object_set_new(to, "zero", json_string(o->zero));
    json_object_set_new(to, "zero_costs", json_integer(in->g.zero_costs));
    json_object_set_new(to, "zero_bytes", json_integer(in->g.zero_bytes));
    json_object_set_new(to, "imputed_costs", json_integer(in->imputed_costs));
    json_object_set_new(to, "imputed_bytes", json_integer(in->imputed_bytes));
    json_object_set_new(to, "ccr", o->ccr > 0 ? json_real(o->ccr) : json_null());
    json_object_set_new(to, "time_scale", json_real(o->time_scale));
    json_object_set_new(to, "byte_scale", json_real(o->byte_scale));
    json_object_set_new(to, "devices", json_string(o->devices));
    json_object_set_new(to, "bandwidth_gbs", json_real(o->bandwidth));
    json_object_set_new(to, "latency_us", json_real(o->latency));
    json_object_set_new(to, "memory_gb", o->memory > 0 ? json_real(o->memory) : json_null());
    json_object_set_new(to, "model", json_string(o->model));
    json_object_set_new(to, "seed", json_integer((json_int_t)o->seed));
}
