/* cli.c: the command `weft`. Enters: argv. Leaves: an exit code. One verb a file, cli_VERB.c. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} verbs[] = {
    {"tour", weft__cli_tour, "a model's MLP blocks under every strategy, checked, as a table"},
    {"generate", weft__cli_generate, "a model goes on from a prompt"},
    {"run", weft__cli_run, "plan, execute, verify, time"},
    {"sim", weft__cli_sim, "what a step would take on devices that may not be there"},
    {"plan", weft__cli_plan, "make, check or print an image"},
    {"place", weft__cli_place, "task graphs placed on devices by policies, compared"},
    {"trace", weft__cli_trace, "a few steps as a timeline for Perfetto, and a summary"},
    {"bench", weft__cli_bench, "planning, GEMMs, queues: measurements that need no GPU"},
    {"topo", weft__cli_topo, "what this machine offers"},
};
static const int n_verbs = sizeof verbs / sizeof verbs[0];

static void print_usage(FILE *to)
{
    fprintf(to, "usage: weft VERB [options]\n\n"
                "weft runs GEMM layers as tile tasks that cross GPUs; where there is no GPU, on emulated devices.\n\n"
                "verbs (weft VERB --help lists the options of each):\n");
    for (int i = 0; i < n_verbs; i++)
        fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].text);
    fprintf(to,
            "\nexit codes: 0 ok, 1 wrong result, 2 usage, 3 not possible on this machine, 4 stopped by the watchdog,\n"
            "            5 bad input file\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("weft %s\n", WEFT_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    for (int i = 0; i < n_verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 1, argv + 1);
    fprintf(stderr, "weft: unknown verb '%s'\n\n", argv[1]);
    print_usage(stderr);
    return 2;
}
