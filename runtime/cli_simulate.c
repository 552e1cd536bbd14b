/* cli_simulate.c: see cli_sim.h. Lists are cut as the engine cuts them. */
#include "cli_sim.h"

#include "../host/error.h"
#include "lists.h"
#include "queue_spec.h"
#include "weft.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cut_device(const weft__image *img, uint32_t d, uint32_t workers, uint16_t **worker_of)
{
    const weft_image_queue *q = weft__image_queue_of(img, 0, d);
    uint32_t *list = malloc(q->n_task * 4ull + 4), *first = calloc(workers + 1ull, 4);
    *worker_of = malloc(q->n_task * 2ull + 2);
    int status = list && first && *worker_of ? weft__cut_lists(img, q, workers, list, first, *worker_of)
                                             : weft__fail(WEFT_ENOMEM, "lists of %u tasks", q->n_task);
    free(list);
    free(first);
    return status;
}

static int make_plan(const weft__image *img, const weft__topology *topo, uint32_t policy, weft__sim_plan *plan)
{
    uint16_t *worker_of[WEFT_MAX_DEVICES] = {0};
    const uint16_t *given[WEFT_MAX_DEVICES];
    int status = 0;
    *plan = (weft__sim_plan){0};
    if (img->n_device > topo->n_device)
        return weft__fail(WEFT_EUSAGE, "the plan has %u devices, topology '%s' %u", img->n_device, topo->text,
                          topo->n_device);
    for (uint32_t d = 0; d < img->n_device && !status; d++) {
        status = cut_device(img, d, topo->device[d].workers, &worker_of[d]);
        given[d] = worker_of[d];
    }
    if (!status) status = weft__sim_of_image(img, 0, topo, given, policy, plan);
    for (uint32_t d = 0; d < img->n_device; d++)
        free(worker_of[d]);
    return status;
}

static int read_policy(const weft__image *img, const char *queue, uint32_t *policy)
{
    weft__queue_spec spec;
    int status = weft__queue_parse(queue, &spec);
    *policy = spec.policy;
    if (!status && spec.handle)
        status = weft__fail(WEFT_EUNSUPPORTED, "queue '%s': a module's policy can't be simulated", queue);
    if (!status && !(img->header->policies >> spec.policy & 1))
        status = weft__fail(WEFT_EREFUSED, "the plan is not proven for queue '%s'", queue);
    weft__queue_close(&spec);
    return status;
}

static void sum_up(const weft__image *img, const weft__sim_plan *plan, const weft__topology *topo,
                   const weft__sim_result *r, const weft__sim_bound *b, weft__simulated *out)
{
    double busy = 0;
    *out = (weft__simulated){.devices = img->n_device,
                             .workers = r->first_worker[r->n_device],
                             .tasks = plan->n_task,
                             .plan_hash = img->header->hash,
                             .stolen = r->stolen,
                             .step_us = r->step_ns * 1e-3,
                             .makespan_us = r->makespan_ns * 1e-3,
                             .bound_us = b->bound_ns * 1e-3,
                             .path_us = b->path_ns * 1e-3,
                             .work_us = b->work_ns * 1e-3,
                             .memory_us = b->memory_ns * 1e-3};
    for (uint32_t w = 0; w < out->workers; w++)
        busy += r->worker[w].busy_ns;
    if (r->makespan_ns > 0) out->utilisation = busy / (r->makespan_ns * out->workers);
    for (uint32_t i = 0; i < r->n_device * r->n_device; i++) {
        out->remote_signals += r->link[i].signals;
        out->remote_bytes += r->link[i].bytes;
    }
    for (uint32_t i = 0; i < topo->n_port && r->makespan_ns > 0; i++)
        if (r->port_busy_ns[i] / r->makespan_ns > out->busiest_port)
            out->busiest_port = r->port_busy_ns[i] / r->makespan_ns;
}

int weft__simulate(const weft__image *img, const weft__topology *topo, const char *queue, int contention_free,
                   weft__sim_row **rows, weft__simulated *out)
{
    weft__sim_plan plan = {0};
    weft__sim_result result = {0};
    weft__sim_bound bound;
    weft__sim_options options = {.contention_free = contention_free};
    int status = read_policy(img, queue, &options.policy);
    if (!status) status = make_plan(img, topo, options.policy, &plan);
    if (!status && rows && !(*rows = malloc((plan.n_task + 1ull) * sizeof **rows)))
        status = weft__fail(WEFT_ENOMEM, "rows of %u tasks", plan.n_task);
    if (!status) status = weft__sim_run(&plan, topo, &options, rows ? *rows : NULL, &result);
    if (!status) status = weft__sim_bound_of(&plan, topo, &bound);
    if (!status) sum_up(img, &plan, topo, &result, &bound, out);
    weft__sim_result_free(&result);
    weft__sim_plan_free(&plan);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- topologies */

/* The built-in profile of a device that was found, by its name. */
static const weft__profile *profile_of(const weft_device_info *device)
{
    static const struct {
        const char *text, *profile;
    } names[] = {{"H200", "h200"}, {"H100", "h100"}, {"B200", "b200"}, {"cpu", "cpu"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(device->name, names[i].text)) return weft__profile_builtin(names[i].profile);
    return NULL;
}

static int found(const char *devices, weft__topology **out)
{
    weft_device_info info[WEFT_MAX_DEVICES];
    uint32_t n = 0, ids[WEFT_MAX_DEVICES], profile = 0;
    int status = weft_devices(devices, info, WEFT_MAX_DEVICES, &n);
    if (!status) status = weft__topo_new(devices ? devices : "found", out);
    for (uint32_t d = 0; d < n && !status; d++) {
        const weft__profile *known = profile_of(&info[d]);
        if (!known)
            return weft__fail(WEFT_EMACHINE,
                              "no built-in profile for '%s': weft bench calibrate makes one, --topology takes it",
                              info[d].name);
        weft__profile costs = *known;
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        if (costs.cores > 0) costs.cores = (double)(cores > 0 ? cores : 1);
        status = weft__topo_add_profile(*out, &costs, &profile);
        if (!status) status = weft__topo_add_device(*out, info[d].name, 0, info[d].workers, profile, &ids[d]);
    }
    if (!status)
        status = weft__topo_add_switch(*out, "link", ids, n, (*out)->profile[0].link_bpns, (*out)->profile[0].link_ns);
    return status;
}

static int open_any(const char *topology, const char *devices, weft__topology **out)
{
    char text[64];
    unsigned n, workers;
    if (topology && strcmp(topology, "found") != 0) return weft__topo_open(topology, out);
    if (topology || !devices || !isdigit((unsigned char)devices[0])) return found(devices, out);
    if (sscanf(devices, "%ux%u", &n, &workers) != 2)
        return weft__fail(WEFT_EUSAGE, "--devices %s: expected DEVICESxWORKERS", devices);
    snprintf(text, sizeof text, "h200:%u sm:%u", n, workers);
    return weft__topo_parse(text, out);
}

int weft__sim_topology(const char *topology, const char *devices, const char *profile, weft__topology **out)
{
    weft__profile costs;
    *out = NULL;
    int status = open_any(topology, devices, out);
    if (!status && profile) {
        const weft__profile *built_in = weft__profile_builtin(profile);
        if (built_in)
            costs = *built_in;
        else
            status = weft__profile_read(profile, &costs);
        for (uint32_t i = 0; i < (*out)->n_profile && !status; i++)
            (*out)->profile[i] = costs;
    }
    if (!status) return 0;
    weft__topo_free(*out);
    *out = NULL;
    return status;
}
