/* cli_bench_calibrate.c: `weft bench calibrate`: what work and waiting cost on devices that are here, as a profile for weft sim.
 * Enters: argv. Leaves: the profile; with --check, predictions beside measurements, and exit code 1 over the bar.        */
#include "../host/error.h"
#include "cli_calibrate.h"
#include "cli_case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MEDIAN_ERROR 0.15 /* of predictions, on emulated devices */

static int write_profile(const weft__profile *p, const char *path)
{
    char *text = weft__profile_text(p);
    FILE *f = text ? fopen(path, "w") : NULL;
    int status = !text ? weft__fail(WEFT_ENOMEM, "a profile")
                 : !f  ? weft__fail(WEFT_EIO, "%s: %s", path, strerror(errno))
                       : 0;
    const int bad = f && (fprintf(f, "%s\n", text) < 0 || ferror(f));
    if (f && (fclose(f) || bad)) status = weft__fail(WEFT_EIO, "%s: can't be written", path);
    free(text);
    return status;
}

static int check(const weft__profile *p, const char *devices, uint32_t steps, bool json)
{
    double median, worst;
    int status = weft__calibrate_check(p, devices, steps, json, &median, &worst);
    if (status) return status;
    if (json) {
        json_t *r = weft__result_new("bench calibrate");
        json_object_set_new(r, "devices", json_string(devices));
        json_object_set_new(r, "median_error", json_real(median));
        json_object_set_new(r, "worst_error", json_real(worst));
        status = weft__result_print(r);
    } else {
        printf("error: median %.1f %% (the bar: %.0f %%), worst %.1f %%\n", 100 * median, 100 * MAX_MEDIAN_ERROR,
               100 * worst);
    }
    if (!status && median > MAX_MEDIAN_ERROR) status = weft__fail(WEFT_EWRONG, "a bar was missed");
    return status;
}

int weft__cli_bench_calibrate(int argc, char **argv)
{
    const char *devices = "cpu:2x1", *out = NULL, *use = NULL;
    uint32_t steps = 40;
    bool json = false, checked = false;
    weft__profile p;
    const weft__option table[] = {
        {"--devices", "SPEC", "as in weft run (default cpu:2x1); alike", WEFT_OPT_TEXT, &devices, 0, 0},
        {"--out", "FILE", "where the profile goes (default: standard output, unless --check)", WEFT_OPT_TEXT, &out, 0,
         0},
        {"--steps", "N", "of each probe (default 40)", WEFT_OPT_U32, &steps, 3, 10000},
        {"--use", "FILE", "check this profile instead of measuring one", WEFT_OPT_TEXT, &use, 0, 0},
        {"--check", NULL, "predict 16 other plans and run them; exit code 1 if the median error is over 15 %",
         WEFT_OPT_FLAG, &checked, 0, 0},
        {"--json", NULL, "--check: one JSON object a plan", WEFT_OPT_FLAG, &json, 0, 0},
        {0},
    };
    int status = weft__options(
        argc, argv, table, "weft bench calibrate [options]",
        "Measures bodies, the workers' loop and hand-offs on devices that are here, by traces, and\n"
        "writes a profile that weft sim --profile takes (docs/simulator.md).",
        NULL, NULL);
    if (status == -1) return 0;
    if (!status) status = use ? weft__profile_read(use, &p) : weft__calibrate(devices, steps, &p);
    if (!status && (out || (!checked && !use))) status = write_profile(&p, out ? out : "/dev/stdout");
    if (!status && checked) status = check(&p, devices, 5 * steps, json);
    return weft__exit("bench calibrate", status);
}
