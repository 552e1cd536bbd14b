/* cli_planning.c: from a verb's flags to an image. Enters: a graph and flags. Leaves: image bytes (free()), statistics. */
#include "../host/error.h"
#include "../host/placer_plan.h"
#include "cli_work.h"
#include "weft.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "8x132": that many devices and workers, without opening any. */
static int parse_synthetic(const char *spec, weft__plan_options *opt)
{
    unsigned n, workers;
    char rest;
    if (sscanf(spec, "%ux%u%c", &n, &workers, &rest) != 2 || n < 1 || n > WEFT_MAX_DEVICES || workers < 1 ||
        workers > 65535)
        return weft__fail(WEFT_EUSAGE, "--devices %s: expected DEVICESxWORKERS, up to %u devices", spec,
                          WEFT_MAX_DEVICES);
    opt->n_device = n;
    for (uint32_t d = 0; d < n; d++)
        opt->workers[d] = workers;
    return 0;
}

static int read_devices(const char *spec, weft__plan_options *opt)
{
    if (spec && spec[0] >= '0' && spec[0] <= '9') return parse_synthetic(spec, opt);
    weft_device_info devices[WEFT_MAX_DEVICES];
    uint32_t n = 0;
    int status = weft_devices(spec, devices, WEFT_MAX_DEVICES, &n);
    if (status) return status;
    if (n > WEFT_MAX_DEVICES) return weft__fail(WEFT_EUSAGE, "--devices %s: over %u devices", spec, WEFT_MAX_DEVICES);
    opt->n_device = n;
    for (uint32_t d = 0; d < n; d++)
        opt->workers[d] = devices[d].workers;
    return 0;
}

static int read_wide(const char *text, int32_t *out)
{
    if (strcmp(text, "auto") == 0)
        *out = WEFT__AUTO;
    else if (strcmp(text, "on") == 0)
        *out = WEFT__ON;
    else if (strcmp(text, "off") == 0)
        *out = WEFT__OFF;
    else
        return weft__fail(WEFT_EUSAGE, "--wide %s: expected auto, on or off", text);
    return 0;
}

/* A number below `limit`, of digits alone; *at moves past it. 0: there is none. */
static int take_number(const char **at, uint32_t limit, uint32_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return 0;
    const unsigned long long v = strtoull(*at, &end, 10);
    *at = end;
    *out = (uint32_t)v;
    return v < limit;
}

/* "LAYER:DEVICE:NS" or "FIRST-LAST:DEVICE:none"; what no entry names is left to the cost model. */
static int read_cost(const char **at, uint32_t n_layer, uint32_t n_device, uint32_t layers[2], uint32_t *device,
                     uint32_t *ns)
{
    const char *p = *at;
    int ok = take_number(&p, n_layer, &layers[0]);
    layers[1] = layers[0];
    if (ok && *p == '-') {
        p++;
        ok = take_number(&p, n_layer, &layers[1]) && layers[0] <= layers[1];
    }
    ok = ok && *p++ == ':' && take_number(&p, n_device, device) && *p++ == ':';
    if (ok && strncmp(p, "none", 4) == 0) {
        *ns = WEFT_NONE;
        p += 4;
    } else {
        ok = ok && take_number(&p, WEFT_NONE, ns) && *ns;
    }
    if (!ok || (*p && *p != ','))
        return weft__fail(WEFT_EUSAGE,
                          "--costs %s: expected LAYER:DEVICE:NS or FIRST-LAST:DEVICE:none, layers below %u, devices "
                          "below %u, NS from 1",
                          *at, n_layer, n_device);
    *at = p + (*p == ',');
    return 0;
}

/* Every op of the work gets a row: zero, but for what the entries say. The work's graph has costs from then on. */
static int give_costs(const weft__work *w, const char *text, uint32_t n_device)
{
    weft__graph *g = w->graph;
    uint32_t *ns = calloc((size_t)g->n_op * n_device, sizeof *ns);
    int status = ns ? 0 : weft__fail(WEFT_ENOMEM, "costs of %u ops", g->n_op);
    uint32_t n_layer = 0;
    for (uint32_t i = 0; i < g->n_op; i++)
        if (g->ops[i].layer >= n_layer) n_layer = g->ops[i].layer + 1;
    while (!status && *text) {
        uint32_t layers[2] = {0}, device = 0, cost = 0;
        status = read_cost(&text, n_layer, n_device, layers, &device, &cost);
        for (uint32_t i = 0; i < g->n_op && !status; i++)
            if (g->ops[i].layer >= layers[0] && g->ops[i].layer <= layers[1]) ns[(size_t)i * n_device + device] = cost;
    }
    for (uint32_t i = 0; i < g->n_op && !status; i++)
        if (g->ops[i].cost == WEFT_NONE) status = weft__graph_costs(g, i, ns + (size_t)i * n_device, n_device);
    free(ns);
    return status;
}

static int dump_ops(const weft__graph *g, const weft__plan_options *opt, const char *path)
{
    weft__taskgraph tasks;
    int status = weft__tg_of_ops(g, opt, &tasks);
    if (!status) status = weft__tg_write_json(&tasks, path);
    weft__tg_free(&tasks);
    return status;
}

int weft__work_plan(const weft__work *w, const weft__plan_flags *flags, void **image, uint64_t *bytes,
                    weft__plan_stats *stats)
{
    weft__plan_options opt = weft__plan_defaults();
    int strategy = weft__strategy_parse(flags->strategy), order = weft__order_parse(flags->order);
    if (strategy < 0)
        return weft__fail(WEFT_EUSAGE, "--strategy %s: expected single, cta, microbatch, tp or cta-tp",
                          flags->strategy);
    if (order < 0)
        return weft__fail(WEFT_EUSAGE, "--order %s: expected auto, breadth, critical or grouped", flags->order);
    int status = read_devices(flags->devices, &opt);
    if (!status) status = read_wide(flags->wide, &opt.wide);
    if (status) return status;
    opt.strategy = (uint32_t)strategy;
    opt.order = (uint32_t)order;
    opt.seed = w->options.seed;
    if (flags->chunks) opt.chunks = flags->chunks;
    if (flags->tp) opt.tp = flags->tp;
    if (flags->tile_groups) opt.tile_groups = flags->tile_groups;
    if (flags->m_tile) opt.m_tile = flags->m_tile;
    if (flags->split_k) opt.split_k = flags->split_k;
    if (flags->k_panels) opt.k_panels = flags->k_panels;
    if (flags->costs) status = give_costs(w, flags->costs, opt.n_device);
    if (status) return status;
    opt.copies = flags->copies;
    opt.alternates = flags->alternates;
    if (flags->packet_rows != WEFT_NONE) opt.packet_max_rows = flags->packet_rows;
    uint32_t *device = NULL;
    if (flags->dump) status = dump_ops(w->graph, &opt, flags->dump);
    if (!status && flags->place) status = weft__place_ops(w->graph, &opt, flags->place, &device);
    opt.place = device;
    if (!status) status = weft__plan(w->graph, &opt, image, bytes, stats);
    free(device);
    return status;
}
