/* cli_bench_gemm.c: `weft bench gemm`: how close reading weights through the whole engine comes to reading memory at all.
 *
 * The two sides are a step of a chain of square GEMMs at M = 1, and a plain sum over as many bytes by as many threads.
 * They take turns in random order, each side's engine or threads gone while the other runs: resident workers spin.       */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "cli_case.h"
#include "cli_ceiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIN_SHARE 0.5 /* of the plain sum's bandwidth: the bar of this bench */

enum {
    MAX_THREADS = 256
};

typedef struct gemm_bench {
    uint32_t width, layers, rounds, steps, batch;
    const char *devices, *dtype;
    uint64_t seed;
    bool json, check;
    uint64_t bytes;   /* of weights; the sum reads as many */
    uint32_t workers; /* of the engine; the sum has as many threads */
    double error;
    double *gemm_us, *sum_us; /* rounds * steps samples each */
    uint64_t n_gemm, n_sum;
} gemm_bench;

static int sum_round(gemm_bench *b)
{
    uint64_t *words = malloc(b->bytes), n = b->bytes / 8;
    if (!words) return weft__fail(WEFT_ENOMEM, "%llu bytes", (unsigned long long)b->bytes);
    for (uint64_t i = 0; i < n; i++)
        words[i] = 1;
    double ignored;
    int status = weft__plain_sum(words, n, b->workers, &ignored);
    for (uint32_t i = 0; i < b->steps && !status; i++)
        status = weft__plain_sum(words, n, b->workers, &b->sum_us[b->n_sum++]);
    free(words);
    return status;
}

static int gemm_round(gemm_bench *b)
{
    char chain[32];
    weft__work w;
    weft__case c;
    weft__work_options work = weft__work_defaults();
    weft__plan_flags flags = weft__plan_flag_defaults();
    weft__case_options options = weft__case_defaults();
    snprintf(chain, sizeof chain, "%u,%u", b->width, b->width);
    work.chain = chain;
    work.layers = b->layers;
    work.batch = b->batch;
    work.dtype = b->dtype;
    work.seed = b->seed;
    flags.devices = b->devices;
    options.steps = b->steps;
    options.warmup = 1;
    options.check = b->n_gemm == 0;
    int status = weft__work_open(&work, &w);
    if (status) return status;
    status = weft__case_run(&w, &flags, &options, &c);
    if (!status) {
        memcpy(b->gemm_us + b->n_gemm, c.samples, c.us.n * sizeof *c.samples);
        b->n_gemm += c.us.n;
        b->workers = c.info.n_worker;
        b->bytes = c.info.weight_bytes / 8 * 8;
        if (options.check) b->error = c.rel_error;
    }
    weft__case_close(&c);
    weft__work_close(&w);
    if (b->workers > MAX_THREADS) return weft__fail(WEFT_EUSAGE, "over %d workers", MAX_THREADS);
    return status;
}

static int print_result(const gemm_bench *b, const weft__stats *gemm, const weft__stats *sum)
{
    double gemm_gbs = (double)b->bytes / gemm->p50 * 1e-3, sum_gbs = (double)b->bytes / sum->p50 * 1e-3;
    if (!b->json) {
        printf("%u GEMMs of %u x %u, batch %u, %s, %u workers: %.1f MB of weights a step\n", b->layers, b->width,
               b->width, b->batch, b->dtype, b->workers, (double)b->bytes / 1e6);
        printf("a step      median %10.1f us (%.1f to %.1f)  %6.2f GB/s  relative error %.1e\n", gemm->p50, gemm->low,
               gemm->high, gemm_gbs, b->error);
        printf("plain sum   median %10.1f us (%.1f to %.1f)  %6.2f GB/s\n", sum->p50, sum->low, sum->high, sum_gbs);
        printf("share       %.2f (the bar: %.2f); %llu samples a side\n", gemm_gbs / sum_gbs, MIN_SHARE,
               (unsigned long long)gemm->n);
        return 0;
    }
    json_t *r = weft__result_new("bench gemm");
    json_object_set_new(r, "width", json_integer(b->width));
    json_object_set_new(r, "layers", json_integer(b->layers));
    json_object_set_new(r, "batch", json_integer(b->batch));
    json_object_set_new(r, "dtype", json_string(b->dtype));
    json_object_set_new(r, "workers", json_integer(b->workers));
    json_object_set_new(r, "seed", json_integer((json_int_t)b->seed));
    json_object_set_new(r, "bytes", json_integer((json_int_t)b->bytes));
    json_object_set_new(r, "steps", json_integer((json_int_t)gemm->n));
    json_object_set_new(r, "median_us", json_real(gemm->p50));
    json_object_set_new(r, "median_low_us", json_real(gemm->low));
    json_object_set_new(r, "median_high_us", json_real(gemm->high));
    json_object_set_new(r, "sum_median_us", json_real(sum->p50));
    json_object_set_new(r, "gb_per_s", json_real(gemm_gbs));
    json_object_set_new(r, "sum_gb_per_s", json_real(sum_gbs));
    json_object_set_new(r, "share", json_real(gemm_gbs / sum_gbs));
    json_object_set_new(r, "rel_error", json_real(b->error));
    return weft__result_print(r);
}

static int run_rounds(gemm_bench *b)
{
    weft__stats gemm, sum;
    uint64_t coin = weft__now_ns() / 1000;
    int status = 0;
    for (uint32_t i = 0; i < b->rounds && !status; i++) {
        int sum_first = i > 0 && (coin >> i % 20 & 1); /* the first engine tells how many bytes and threads */
        if (sum_first) status = sum_round(b);
        if (!status) status = gemm_round(b);
        if (!status && !sum_first) status = sum_round(b);
    }
    if (!status) status = weft__stats_of(b->gemm_us, b->n_gemm, &gemm);
    if (!status) status = weft__stats_of(b->sum_us, b->n_sum, &sum);
    if (!status) status = print_result(b, &gemm, &sum);
    if (!status && b->check && sum.p50 / gemm.p50 < MIN_SHARE)
        status = weft__fail(WEFT_EWRONG, "%.2f of the plain sum's bandwidth, the bar is %.2f", sum.p50 / gemm.p50,
                            MIN_SHARE);
    return status;
}

int weft__cli_bench_gemm(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    char devices[32];
    snprintf(devices, sizeof devices, "cpu:1x%ld", cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : cores);
    gemm_bench b = {.width = 4096,
                    .layers = 8,
                    .rounds = 3,
                    .steps = 10,
                    .batch = 1,
                    .devices = devices,
                    .dtype = "bf16",
                    .seed = 1};
    const weft__option table[] = {
        {"--width", "W", "of the square GEMMs (default 4096)", WEFT_OPT_U32, &b.width, 64, 1 << 16},
        {"--layers", "L", "GEMMs in a chain (default 8)", WEFT_OPT_U32, &b.layers, 1, 4096},
        {"--batch", "M", "rows (default 1)", WEFT_OPT_U32, &b.batch, 1, 4096},
        {"--dtype", "T", "bf16 (default) or fp16", WEFT_OPT_TEXT, &b.dtype, 0, 0},
        {"--devices", "SPEC", "default: one emulated device with a worker a core", WEFT_OPT_TEXT, &b.devices, 0, 0},
        {"--rounds", "N", "turns of each side (default 3)", WEFT_OPT_U32, &b.rounds, 1, 1000},
        {"--steps", "N", "samples a turn (default 10)", WEFT_OPT_U32, &b.steps, 1, 100000},
        {"--seed", "N", "of weights and input (default 1)", WEFT_OPT_U64, &b.seed, 0, 0},
        {"--check", NULL, "exit code 1 below half of the plain sum's bandwidth", WEFT_OPT_FLAG, &b.check, 0, 0},
        {"--json", NULL, "one JSON object", WEFT_OPT_FLAG, &b.json, 0, 0},
        {0},
    };
    int status = weft__options(argc, argv, table, "weft bench gemm [options]",
                               "Times a chain of GEMMs against a plain sum over as many bytes by as many threads.",
                               NULL, NULL);
    if (status == -1) return 0;
    if (!status) {
        b.gemm_us = malloc((size_t)b.rounds * b.steps * sizeof *b.gemm_us);
        b.sum_us = malloc((size_t)b.rounds * b.steps * sizeof *b.sum_us);
        status = b.gemm_us && b.sum_us ? run_rounds(&b) : weft__fail(WEFT_ENOMEM, "samples");
    }
    free(b.gemm_us);
    free(b.sum_us);
    return weft__exit("bench gemm", status);
}
