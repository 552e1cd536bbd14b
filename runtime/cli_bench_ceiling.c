/* cli_bench_ceiling.c: `weft bench ceiling`: how fast the memory of a device can be read at all: what shares of other benches
 * are shares of. The emulated device's is a plain sum by as many threads as it has workers, the GPU's bulk copies.      */
#include "../host/error.h"
#include "cli_case.h"
#include "cli_ceiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 18 /* what sizes are rounded up to */
};

typedef struct ceiling_bench {
    const char *devices;
    uint32_t mb, steps, in_flight;
    bool json;
    weft_device_info info; /* of the one device */
    uint64_t bytes;
    double *us; /* steps of them */
} ceiling_bench;

static int measure_sum(ceiling_bench *b)
{
    uint64_t n = b->bytes / 8, *words = malloc(b->bytes);
    if (!words) return weft__fail(WEFT_ENOMEM, "%llu bytes", (unsigned long long)b->bytes);
    for (uint64_t i = 0; i < n; i++)
        words[i] = 1;
    int status = weft__plain_sum(words, n, b->info.workers, &b->us[0]); /* doesn't count */
    for (uint32_t i = 0; i < b->steps && !status; i++)
        status = weft__plain_sum(words, n, b->info.workers, &b->us[i]);
    free(words);
    return status;
}

static int measure_gpu(ceiling_bench *b)
{
#ifdef WEFT_HAVE_CUDA
    weft__gpu_ceiling c = {.workers = 0};
    int gpu = 0;
    if (sscanf(b->info.name, "cuda:%d", &gpu) != 1)
        return weft__fail(WEFT_EUSAGE, "devices '%s': not a GPU", b->info.name);
    int status = weft__gpu_ceiling_open(gpu, b->bytes, &c);
    if (!status) status = weft__gpu_ceiling_read(&c, b->bytes, b->in_flight, b->steps, b->us);
    weft__gpu_ceiling_close(&c);
    return status;
#else
    return weft__fail(WEFT_EMACHINE, "devices '%s': this build of weft has no CUDA backend", b->devices);
#endif
}

/* One whole device: the ceiling of a slice of a GPU is nobody's. */
static int find_device(ceiling_bench *b)
{
    uint32_t n;
    if (!b->devices) b->devices = weft_devices("cuda:0", &b->info, 1, &n) ? "cpu:1" : "cuda:0";
    int status = weft_devices(b->devices, &b->info, 1, &n);
    if (!status && (n != 1 || strchr(b->info.name, '#')))
        status = weft__fail(WEFT_EUSAGE, "devices '%s': %u devices; the ceiling is one whole device's", b->devices, n);
    return status;
}

static int print_ceiling(const ceiling_bench *b, const weft__stats *us, int gpu)
{
    const double gb_s = (double)b->bytes / us->p50 * 1e-3;
    if (!b->json) {
        printf("%s, %u %s: %.1f MB read in %.1f us (median of %llu, %.1f to %.1f; best %.1f): %.2f GB/s\n",
               b->info.name, b->info.workers, gpu ? "SMs" : "threads", (double)b->bytes / 1e6, us->p50,
               (unsigned long long)us->n, us->low, us->high, us->min, gb_s);
        return 0;
    }
    json_t *r = weft__result_new("bench ceiling");
    json_object_set_new(r, "device", json_string(b->info.name));
    json_object_set_new(r, "workers", json_integer(b->info.workers));
    json_object_set_new(r, "how", json_string(gpu ? "bulk copies" : "plain sum"));
    json_object_set_new(r, "in_flight", gpu ? json_integer(b->in_flight) : json_null());
    json_object_set_new(r, "bytes", json_integer((json_int_t)b->bytes));
    json_object_set_new(r, "steps", json_integer((json_int_t)us->n));
    json_object_set_new(r, "min_us", json_real(us->min));
    json_object_set_new(r, "median_us", json_real(us->p50));
    json_object_set_new(r, "median_low_us", json_real(us->low));
    json_object_set_new(r, "median_high_us", json_real(us->high));
    json_object_set_new(r, "gb_per_s", json_real(gb_s));
    return weft__result_print(r);
}

static int run_ceiling(ceiling_bench *b)
{
    weft__stats us;
    int status = find_device(b);
    if (status) return status;
    const int gpu = strncmp(b->info.name, "cuda", 4) == 0;
    const uint64_t mb = b->mb ? b->mb : gpu ? 4096 : 512;
    b->bytes = (mb * 1000000 + PIECE - 1) / PIECE * PIECE;
    b->us = malloc(b->steps * sizeof *b->us);
    if (!b->us) return weft__fail(WEFT_ENOMEM, "%u samples", b->steps);
    status = gpu ? measure_gpu(b) : measure_sum(b);
    if (!status) status = weft__stats_of(b->us, b->steps, &us);
    if (!status) status = print_ceiling(b, &us, gpu);
    free(b->us);
    return status;
}

int weft__cli_bench_ceiling(int argc, char **argv)
{
    ceiling_bench b = {.steps = 11, .in_flight = 12};
    const weft__option table[] = {
        {"--devices", "SPEC", "one device; default: cuda:0, else an emulated device with a worker a core",
         WEFT_OPT_TEXT, &b.devices, 0, 0},
        {"--mb", "N", "read at a time (default 4096 on a GPU, else 512)", WEFT_OPT_U32, &b.mb, 1, 1 << 20},
        {"--in-flight", "N", "copies of 16 KB on their way, an SM (GPU; default 12)", WEFT_OPT_U32, &b.in_flight, 1,
         12},
        {"--steps", "N", "times (default 11)", WEFT_OPT_U32, &b.steps, 1, 100000},
        {"--json", NULL, "one JSON object", WEFT_OPT_FLAG, &b.json, 0, 0},
        {0},
    };
    int status = weft__options(
        argc, argv, table, "weft bench ceiling [options]",
        "Times reading a device's memory and nothing else: a plain sum, or bulk copies into shared "
        "memory.",
        NULL, NULL);
    if (status == -1) return 0;
    if (!status) status = run_ceiling(&b);
    return weft__exit("bench ceiling", status);
}
