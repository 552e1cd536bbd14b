/* cli.h: what the verbs of the command `weft` share. Nothing here is part of the library.
 *
 * A verb takes its own arguments (argv[0] is the verb) and returns an exit code of design.md: 0 ok, 1 wrong result,
 * 2 usage, 3 not possible on this machine, 4 stopped by the watchdog, 5 bad input file.                              */
#ifndef WEFT_RUNTIME_CLI_H
#define WEFT_RUNTIME_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_RESULT_SCHEMA 1 /* version of the JSON result lines; goes up when a field changes its meaning */

typedef struct weft__option { /* one row of a verb's option table */
    const char *name;         /* "--batch" */
    const char *value;        /* what its value is called in the help text; NULL: a flag */
    const char *help;
    enum {
        WEFT_OPT_FLAG,
        WEFT_OPT_TEXT,
        WEFT_OPT_U32,
        WEFT_OPT_U64,
        WEFT_OPT_F64
    } type;
    void *out;       /* bool, const char *, uint32_t, uint64_t, double */
    double min, max; /* bounds of numbers, both included; no bound where max is 0 */
} weft__option;

/* Reads argv[1..] into the table's targets. Returns 0 to go on, -1 after --help was printed, else WEFT_EUSAGE with a
 * message. At most *n_rest words that are no options are left in rest[]; with rest == NULL there must be none.          */
int weft__options(int argc, char **argv, const weft__option *table, const char *synopsis, const char *about,
                  const char **rest, int *n_rest);

/* The exit code that belongs to a status, after printing "weft VERB: status: message" where it is a failure. */
int weft__exit(const char *verb, int status);

/* Says on stderr what is being done, if a person is looking; the next call overwrites it, NULL removes it. */
void weft__progress(const char *text);

int weft__cli_topo(int argc, char **argv);
int weft__cli_plan(int argc, char **argv);
int weft__cli_run(int argc, char **argv);
int weft__cli_sim(int argc, char **argv);
int weft__cli_generate(int argc, char **argv);
int weft__cli_trace(int argc, char **argv);
int weft__cli_bench(int argc, char **argv);
int weft__cli_bench_place(int argc, char **argv);
int weft__cli_bench_plan(int argc, char **argv);
int weft__cli_bench_ceiling(int argc, char **argv);
int weft__cli_bench_gemm(int argc, char **argv);
int weft__cli_bench_calibrate(int argc, char **argv);
int weft__cli_bench_sim(int argc, char **argv);
int weft__cli_bench_queue(int argc, char **argv);
int weft__cli_place(int argc, char **argv);
int weft__cli_tour(int argc, char **argv);

#endif
