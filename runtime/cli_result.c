/* cli_result.c: results as one JSON object a line. Fields keep their meaning within a schema version (cli.h). */
#include "../host/error.h"
#include "cli_case.h"
#include "weft_commit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

json_t *weft__result_new(const char *verb)
{
    return json_pack("{s:i, s:s, s:s, s:s}", "schema", WEFT_RESULT_SCHEMA, "verb", verb, "version", WEFT_VERSION,
                     "commit", WEFT_COMMIT);
}

int weft__result_print(json_t *result)
{
    int bad = !result || json_dumpf(result, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(result);
    putchar('\n');
    return bad || fflush(stdout) ? weft__fail(WEFT_EIO, "the result can't be written: %s", strerror(errno)) : 0;
}

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void add_times(json_t *r, const weft__case *c)
{
    json_object_set_new(r, "steps", json_integer((json_int_t)c->us.n));
    json_object_set_new(r, "warmup", json_integer(c->warmup));
    json_object_set_new(r, "min_us", number(c->us.min));
    json_object_set_new(r, "median_us", number(c->us.p50));
    json_object_set_new(r, "median_low_us", number(c->us.low));
    json_object_set_new(r, "median_high_us", number(c->us.high));
    json_object_set_new(r, "p90_us", number(c->us.p90));
    json_object_set_new(r, "p99_us", number(c->us.p99));
    json_object_set_new(r, "rel_error", number(c->rel_error));
    json_object_set_new(r, "checked_tensors", json_integer(c->error.tensors));
    json_object_set_new(r, "worst_tensor", c->error.tensors ? json_string(c->error.worst) : json_null());
    json_object_set_new(r, "load_s", number(c->load_s));
}

int weft__case_print_json(const weft__work *w, const weft__plan_flags *flags, const weft__case_options *o,
                          const weft__case *c)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->info.plan_hash);
    json_t *r = weft__result_new("run");
    json_object_set_new(r, "work", json_string(w->text));
    json_object_set_new(r, "batch", json_integer(w->rows));
    json_object_set_new(r, "strategy", o->image ? json_null() : json_string(flags->strategy));
    json_object_set_new(r, "queue", json_string(o->queue));
    json_object_set_new(r, "queue_spec", json_string(c->queue));
    json_object_set_new(r, "devices", json_integer(c->info.n_device));
    json_object_set_new(r, "device", json_string(c->devices));
    json_object_set_new(r, "workers", json_integer(c->info.n_worker));
    json_object_set_new(r, "tasks", json_integer(c->info.tasks));
    json_object_set_new(r, "remote_signals", json_integer(c->info.remote_signals));
    json_object_set_new(r, "plan_hash", json_string(hash));
    json_object_set_new(r, "seed", json_integer((json_int_t)w->options.seed));
    json_object_set_new(r, "weight_bytes", json_integer((json_int_t)c->info.weight_bytes));
    json_object_set_new(r, "driver", json_string(c->driver));
    json_object_set_new(r, "clocks", c->clocks.why[0] ? json_null() : json_string(c->clocks.text));
    if (c->clocks.why[0]) json_object_set_new(r, "clocks_why", json_string(c->clocks.why));
    json_object_set_new(r, "rounds", c->rounds ? json_integer(c->rounds) : json_null());
    add_times(r, c);
    return weft__result_print(r);
}

int weft__case_write_samples(const weft__case *c, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return weft__fail(WEFT_EIO, "%s: %s", path, strerror(errno));
    for (uint64_t i = 0; i < c->us.n; i++)
        fprintf(f, "%.3f\n", c->samples[i]);
    int bad = ferror(f);
    return fclose(f) || bad ? weft__fail(WEFT_EIO, "%s: can't be written", path) : 0;
}
