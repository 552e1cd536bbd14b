/* cli_trace.c: `weft trace`: a few steps with the trace on. Enters: argv. Leaves: a file that ui.perfetto.dev opens, a text
 * summary on stdout, and the raw records as CSV, if they are asked for. Times of traced steps are not results: `weft run`
 * measures without a trace.                                                                                             */
#include "../host/error.h"
#include "cli_case.h"

#include <stdio.h>

int weft__cli_trace(int argc, char **argv)
{
    weft__work_options work = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__case_options options = weft__case_defaults();
    const char *out = "weft.trace.json", *csv = NULL;
    options.steps = 3;
    options.warmup = 0;
    options.trace_records = 1 << 16;
    weft__option table[WEFT_OPTIONS_MAX] = {0}, *row = table;
    row = weft__work_rows(&work, row);
    row = weft__plan_rows(&flags, row);
    row = weft__case_rows(&options, row);
    *row++ = (weft__option){"--out", "FILE", "the trace (default weft.trace.json)", WEFT_OPT_TEXT, &out, 0, 0};
    *row++ = (weft__option){
        "--csv", "FILE", "also the raw records, a row a task, after # lines on clocks", WEFT_OPT_TEXT, &csv, 0, 0};
    *row++ = (weft__option){
        "--records", "N", "records kept a worker (default 65536)", WEFT_OPT_U32, &options.trace_records, 1, 1 << 24};
    int status = weft__options(
        argc, argv, table, "weft trace (--chain W,W,.. | --model DIR | --mlp H,F) [options]",
        "Runs a few steps (default 3) with the trace on; writes a file for ui.perfetto.dev and a summary.", NULL, NULL);
    if (status == -1) return 0;
    weft__work w = {0};
    weft__case c = {0};
    if (!status) status = weft__work_open(&work, &w);
    if (!status) status = weft__case_run(&w, &flags, &options, &c);
    if (!status) status = weft_trace_write(c.engine, out);
    if (!status && csv) status = weft_trace_csv(c.engine, csv);
    if (!status) status = weft_trace_summary(c.engine, "-");
    if (!status) printf("\ntrace in %s: open it at https://ui.perfetto.dev\n", out);
    if (!status && csv) printf("raw records in %s\n", csv);
    weft__case_close(&c);
    weft__work_close(&w);
    return weft__exit("trace", status);
}
