/* cli_topo.c: `weft topo`. Enters: the machine, or a synthetic description of one. Leaves: a text or one JSON line. */
#include "cli.h"

#include "../host/error.h"

#include <hwloc.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct topo {
    unsigned packages, numa, cores, threads;
    unsigned long long l2_bytes, l3_bytes, memory_bytes; /* one L2, one L3, all memory */
} topo;

static unsigned count(hwloc_topology_t t, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(t, type);
    return n < 0 ? 0 : (unsigned)n;
}

static unsigned long long cache_bytes(hwloc_topology_t t, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(t, type, 0);
    return cache ? cache->attr->cache.size : 0;
}

static int read_topology(const char *synthetic, topo *out)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t)) return weft__fail(WEFT_EMACHINE, "hwloc: no topology");
    if (synthetic && hwloc_topology_set_synthetic(t, synthetic)) {
        hwloc_topology_destroy(t);
        return weft__fail(WEFT_EUSAGE, "--synthetic '%s': hwloc doesn't understand it", synthetic);
    }
    if (hwloc_topology_load(t)) {
        hwloc_topology_destroy(t);
        return weft__fail(WEFT_EMACHINE, "hwloc: the topology can't be loaded");
    }
    out->packages = count(t, HWLOC_OBJ_PACKAGE);
    out->numa = count(t, HWLOC_OBJ_NUMANODE);
    out->cores = count(t, HWLOC_OBJ_CORE);
    out->threads = count(t, HWLOC_OBJ_PU);
    out->l2_bytes = cache_bytes(t, HWLOC_OBJ_L2CACHE);
    out->l3_bytes = cache_bytes(t, HWLOC_OBJ_L3CACHE);
    out->memory_bytes = hwloc_get_root_obj(t)->total_memory;
    hwloc_topology_destroy(t);
    return 0;
}

static void print_json(const topo *t)
{
    json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I}", "schema", WEFT_RESULT_SCHEMA, "packages",
                          (int)t->packages, "numa_nodes", (int)t->numa, "cores", (int)t->cores, "threads",
                          (int)t->threads, "l2_bytes", (json_int_t)t->l2_bytes, "l3_bytes", (json_int_t)t->l3_bytes,
                          "memory_bytes", (json_int_t)t->memory_bytes);
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

static void print_text(const topo *t)
{
    printf("processor   %u package%s, %u NUMA node%s, %u cores, %u hardware threads\n", t->packages,
           t->packages == 1 ? "" : "s", t->numa, t->numa == 1 ? "" : "s", t->cores, t->threads);
    printf("caches      L2 %.1f MB a core, L3 %.1f MB\n", (double)t->l2_bytes / 1048576, (double)t->l3_bytes / 1048576);
    printf("memory      %.1f GB\n", (double)t->memory_bytes / 1e9);
    unsigned half = t->threads > 1 ? t->threads / 2 : 1;
    printf("\nspecs to try: --devices cpu:1x%u   (one emulated device, a worker a hardware thread)\n"
           "              --devices cpu:2x%u   (two emulated devices)\n",
           t->threads ? t->threads : 1, half);
}

int weft__cli_topo(int argc, char **argv)
{
    bool json = false;
    const char *synthetic = NULL;
    const weft__option table[] = {
        {"--synthetic", "TEXT", "describe this machine instead (hwloc's notation)", WEFT_OPT_TEXT, &synthetic, 0, 0},
        {"--json", NULL, "one JSON object", WEFT_OPT_FLAG, &json, 0, 0},
        {0},
    };
    int status = weft__options(argc, argv, table, "weft topo [options]", "Shows what this machine offers to weft.",
                               NULL, NULL);
    if (status == -1) return 0;
    topo t = {0};
    if (!status) status = read_topology(synthetic, &t);
    if (status) return weft__exit("topo", status);
    if (json)
        print_json(&t);
    else
        print_text(&t);
    return 0;
}
