/* cli_bench.c: `weft bench WHAT`: measurements that need no GPU. Most of those of the kernels are in bench/. */
#include "../host/error.h"
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} benches[] = {
    {"plan", weft__cli_bench_plan, "time and memory of planning, 10^4 to 10^6 tasks"},
    {"place", weft__cli_bench_place, "time of placement policies, 10^4 to 10^6 tasks"},
    {"gemm", weft__cli_bench_gemm, "a chain of GEMMs at M = 1 against a plain sum over as many bytes"},
    {"ceiling", weft__cli_bench_ceiling, "how fast a device's memory can be read at all"},
    {"queue", weft__cli_bench_queue, "queue policies compared on graphs of tasks: makespan, dispatch, waits, steals"},
    {"calibrate", weft__cli_bench_calibrate, "what work costs on devices that are here, as a profile for weft sim"},
    {"sim", weft__cli_bench_sim, "tasks simulated a second, 10^4 to 10^6 tasks"},
};
static const int n_benches = sizeof benches / sizeof benches[0];

int weft__cli_bench(int argc, char **argv)
{
    int help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    for (int i = 0; i < n_benches && argc > 1; i++)
        if (strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
    if (!help && argc > 1) return weft__exit("bench", weft__fail(WEFT_EUSAGE, "unknown bench '%s'", argv[1]));
    if (!help) return weft__exit("bench", weft__fail(WEFT_EUSAGE, "which bench?"));
    printf("usage: weft bench WHAT [options]\n\nwhat (weft bench WHAT --help lists the options of each):\n");
    for (int i = 0; i < n_benches; i++)
        printf("  %-9s %s\n", benches[i].name, benches[i].text);
    return 0;
}
