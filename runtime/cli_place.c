/* cli_place.c: `weft place GRAPH`: policies compared on one graph and one machine, both of which need not be here. Enters: argv, a
 * graph, perhaps a placement. Leaves: a table or JSON lines; a placement, a graph as files.                            */
#include "cli_place.h"

#include "../host/error.h"
#include "cli_case.h"
#include "queue_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_POLICIES = 32
};

typedef struct place_run {
    weft__place_options options;
    const char *policy, *file, *out, *format;
    bool json;
} place_run;

static void print_head(const place_run *r, const weft__place_input *in)
{
    printf("graph    %s: %u tasks (%u of no cost), %u edges (%u of no bytes)\n", in->text, in->g.n_task,
           in->g.zero_costs, in->g.n_edge, in->g.zero_bytes);
    if (in->imputed_costs || in->imputed_bytes)
        printf("imputed  %u costs, %u sizes\n", in->imputed_costs, in->imputed_bytes);
    printf("machine  %s: %u devices, no contention\n\n", r->options.devices, in->m.n_device);
    printf("%-20s %14s %14s %8s %9s %10s %11s %8s %8s %9s\n", "policy", "makespan us", "bound us", "slr", "speed-up",
           "efficiency", "cut MB", "files", "balance", "policy s");
}

static void print_row(const weft__place_result *p)
{
    const double bound = p->proven > p->score.bound ? p->proven : p->score.bound;
    printf("%-20s %14.3f %14.3f %8.4f %9.3f %10.4f %11.3f %8llu %8.3f %9.4f", p->name, p->s.makespan / 1e3, bound / 1e3,
           bound > 0 ? p->s.makespan / bound : 0, p->score.speedup, p->score.efficiency, p->s.cut_bytes / 1e6,
           (unsigned long long)p->s.cut_files, p->score.balance, p->policy_s);
    if (p->proven > 0 && p->s.makespan > 0)
        printf("  %s, gap %.2f %%", p->proven >= p->s.makespan ? "optimal" : "stopped",
               100 * (p->s.makespan - p->proven) / p->s.makespan);
    putchar('\n');
    fflush(stdout);
}

static int print_line(const place_run *r, const weft__place_input *in, const weft__place_result *p)
{
    json_t *o = weft__result_new("place");
    weft__place_json(&r->options, in, o);
    json_object_set_new(o, "policy", json_string(p->name));
    json_object_set_new(o, "makespan_us", json_real(p->s.makespan / 1e3));
    json_object_set_new(o, "bound_us", json_real(p->score.bound / 1e3));
    json_object_set_new(o, "proven_us", p->proven > 0 ? json_real(p->proven / 1e3) : json_null());
    json_object_set_new(o, "gap",
                        p->proven > 0 && p->s.makespan > 0 ? json_real((p->s.makespan - p->proven) / p->s.makespan)
                                                           : json_null());
    json_object_set_new(o, "slr", p->score.bound > 0 ? json_real(p->score.slr) : json_null());
    json_object_set_new(o, "speedup", p->score.speedup > 0 ? json_real(p->score.speedup) : json_null());
    json_object_set_new(o, "efficiency", p->score.speedup > 0 ? json_real(p->score.efficiency) : json_null());
    json_object_set_new(o, "cut_bytes", json_real(p->s.cut_bytes));
    json_object_set_new(o, "cut_files", json_integer((json_int_t)p->s.cut_files));
    json_object_set_new(o, "balance", json_real(p->score.balance));
    json_object_set_new(o, "policy_s", json_real(p->policy_s));
    json_object_set_new(o, "schedule_s", json_real(p->schedule_s));
    return weft__result_print(o);
}

static int export_graph(const place_run *r, const char *file, const weft__place_input *in, const weft__schedule *s)
{
    if (strcmp(r->format, "json") == 0) return weft__tg_write_json(&in->g, file);
    uint32_t *device = malloc(in->g.n_task * sizeof *device);
    if (!device) return weft__fail(WEFT_ENOMEM, "%s: %u tasks", file, in->g.n_task);
    for (uint32_t t = 0; t < in->g.n_task; t++)
        device[t] = s->row[t].device;
    int status = weft__tg_write_dot(&in->g, device, file);
    free(device);
    return status;
}

static int place_with(const place_run *r, const weft__place_input *in, const char *spec, const char *export)
{
    weft__place_result result;
    weft__progress(spec);
    int status = weft__place_one(in, spec, r->file, r->options.seed, &result);
    weft__progress(NULL);
    if (!status && r->json)
        status = print_line(r, in, &result);
    else if (!status)
        print_row(&result);
    if (!status && r->out) status = weft__placement_write(&in->g, &result.s, r->out);
    if (!status && export) status = export_graph(r, export, in, &result.s);
    weft__place_free(&result);
    return status;
}

static int place_all(const place_run *r, const char *graph, const char *export)
{
    const char *specs[MOST_POLICIES] = {0};
    uint32_t n = 0;
    weft__place_input in = {0};
    char *list = strdup(r->policy);
    int status = list ? weft__queue_split(list, specs, MOST_POLICIES, &n) : weft__fail(WEFT_ENOMEM, "policies");
    if (!status && n > 1 && (r->out || export || r->file))
        status = weft__fail(WEFT_EUSAGE, "--out, --export and --place go with one policy");
    if (!status) status = weft__place_open(&r->options, graph, &in);
    if (!status && !r->json) print_head(r, &in);
    for (uint32_t i = 0; i < n && !status; i++)
        status = place_with(r, &in, specs[i], export);
    weft__place_close(&in);
    free(list);
    return status;
}

static void list_policies(void)
{
    printf("\npolicies:\n");
    for (uint32_t i = 0; weft__policy_at(i); i++)
        printf("  %-11s  %s\n", weft__policy_at(i)->name, weft__policy_at(i)->about);
    printf("  ./NAME.so    one of your own (docs/placement.md)\n");
}

int weft__cli_place(int argc, char **argv)
{
    place_run r = {.options = weft__place_defaults(), .policy = "heft"};
    const char *rest[2];
    int n_rest = 2;
    weft__option table[24] = {
        {"--devices", "NxW",
         "devices and workers of each (default 1x8), or a topology (\"gpu:8 sm:132 nvlink:450GB/s,1.8us\", FILE.json)",
         WEFT_OPT_TEXT, &r.options.devices, 0, 0},
        {"--policy", "P[,P..]", "see below (default heft)", WEFT_OPT_TEXT, &r.policy, 0, 0},
        {"--place", "FILE", "score this placement instead: CSV with task,device[,worker,start]", WEFT_OPT_TEXT, &r.file,
         0, 0},
        {"--out", "FILE", "write the placement: task,device,worker,start (ns)", WEFT_OPT_TEXT, &r.out, 0, 0},
        {"--export", "FORMAT", "write the graph as dot (coloured by device) or json, to the FILE behind GRAPH",
         WEFT_OPT_TEXT, &r.format, 0, 0},
        {"--seed", "N", "of --ccr and of policies that draw (default 1)", WEFT_OPT_U64, &r.options.seed, 0, 0},
    };
    weft__option *row = weft__place_rows(&r.options, table + 6);
    *row++ = (weft__option){"--model",
                            "M",
                            "contention-free (default): links carry any number of transfers at once",
                            WEFT_OPT_TEXT,
                            &r.options.model,
                            0,
                            0};
    *row++ = (weft__option){"--json", NULL, "one JSON object a policy", WEFT_OPT_FLAG, &r.json, 0, 0};
    int status = weft__options(
        argc, argv, table, "weft place GRAPH [FILE] [options]",
        "Places a task graph on devices that need not be here, and says what that is worth. GRAPH is a file (.stg, "
        ".dot, WfFormat or weft's .json) or gen:FAMILY[,KEY=N..]: layered, forkjoin, stencil, cholesky, lu, "
        "fft, mapreduce.\nexample: weft place gen:cholesky,n=12 --devices 4x8 --policy heft,peft,ldg",
        rest, &n_rest);
    if (status == -1) {
        list_policies();
        return 0;
    }
    if (!status && n_rest < 1) status = weft__fail(WEFT_EUSAGE, "which graph?");
    if (!status && (n_rest == 2) != (r.format != NULL))
        status = weft__fail(WEFT_EUSAGE, "--export dot or json goes with a FILE behind GRAPH");
    if (!status && r.format && strcmp(r.format, "dot") && strcmp(r.format, "json"))
        status = weft__fail(WEFT_EUSAGE, "--export %s: expected dot or json", r.format);
    if (!status) status = place_all(&r, rest[0], n_rest == 2 ? rest[1] : NULL);
    return weft__exit("place", status);
}
