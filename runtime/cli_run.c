/* cli_run.c: `weft run`: plan, load, check, time. Enters: argv. Leaves: a text or one JSON line; exit code 1 where the
 * output is wrong (the line is printed all the same).                                                                  */
#include "../host/error.h"
#include "cli_case.h"

#include <math.h>
#include <stdio.h>

static void print_text(const weft__work *w, const weft__plan_flags *flags, const weft__case_options *o,
                       const weft__case *c)
{
    printf("work       %s, batch %u\n", w->text, w->rows);
    printf("devices    %s; %u workers\n", c->devices, c->info.n_worker);
    printf("plan       %s, %u tasks, %u remote signals a step, hash %016llx\n", o->image ? o->image : flags->strategy,
           c->info.tasks, c->info.remote_signals, (unsigned long long)c->info.plan_hash);
    printf("queue      %s\n", o->queue);
    printf("a step     median %.1f us (95 %% interval %.1f to %.1f), min %.1f, p90 %.1f", c->us.p50, c->us.low,
           c->us.high, c->us.min, c->us.p90);
    if (isfinite(c->us.p99)) printf(", p99 %.1f", c->us.p99);
    printf("; %llu steps after %u warm-up\n", (unsigned long long)c->us.n, c->warmup);
    if (o->check)
        printf(
            "check      %u tensors against float64, op by op: largest relative error %.2e in %s (%s, at most %.0e)\n",
            c->error.tensors, c->rel_error, c->error.worst, c->rel_error <= WEFT_MAX_REL_ERROR ? "ok" : "WRONG",
            WEFT_MAX_REL_ERROR);
}

int weft__cli_run(int argc, char **argv)
{
    weft__work_options work = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__case_options options = weft__case_defaults();
    const char *samples = NULL;
    bool json = false;
    weft__option table[WEFT_OPTIONS_MAX] = {0}, *row = table;
    row = weft__work_rows(&work, row);
    row = weft__plan_rows(&flags, row);
    row = weft__case_rows(&options, row);
    *row++ = (weft__option){"--samples", "FILE", "write the time of each step, in us", WEFT_OPT_TEXT, &samples, 0, 0};
    *row++ = (weft__option){"--json", NULL, "one JSON object", WEFT_OPT_FLAG, &json, 0, 0};
    int status = weft__options(argc, argv, table, "weft run (--chain W,W,.. | --model DIR | --mlp H,F) [options]",
                               "Plans the work, runs it with resident workers, and reports how long a step takes.\n"
                               "example: weft run --chain 576,1536,576 --batch 7 --layers 3 --devices cpu:3x2 "
                               "--strategy cta --check",
                               NULL, NULL);
    if (status == -1) return 0;
    weft__work w = {0};
    weft__case c = {0};
    if (!status) status = weft__work_open(&work, &w);
    if (!status) status = weft__case_run(&w, &flags, &options, &c);
    int result = weft__exit("run", status);
    if (c.engine) {
        if (json)
            status = weft__case_print_json(&w, &flags, &options, &c);
        else
            print_text(&w, &flags, &options, &c);
        if (json && status && !result) result = weft__exit("run", status);
        if (samples && (status = weft__case_write_samples(&c, samples)) && !result) result = weft__exit("run", status);
    }
    weft__case_close(&c);
    weft__work_close(&w);
    return result;
}
