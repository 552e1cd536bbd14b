/* profile_builtin.c: profiles of machines that may not be there. Each figure says where it comes from.
 *
 *   [m]  measured by this project on one H200 (132 SMs, driver 580.159.04), or fitted to it: docs/design.md, docs/notebook.md,
 *        bench/results/2026-12-01-h200-*.json
 *   [p]  published: NVIDIA's data sheets of H100 SXM, H200 SXM, DGX B200; papers named in docs/simulator.md
 *   [d]  derived from [m] by the ratio of published figures; nobody has run weft there
 *   [g]  a guess                                                                                                     */
#include "profile.h"

#include <string.h>

/* Of kernels of one worker. Memory apart, a streaming task's own work is in ns for an atom of 16 x 64 of W: [g], near what
 * chains at M = 1 to 64 take (docs/simulator.md compares). A wide task: [m] 4096 x 4096 x 4096 at 649 TFLOP/s
 * (docs/design.md, point 6). `math` scales both: h100 is 1 [p: the same SM], b200 h200's dense bf16 rate an SM over its own. */
#define GPU_KINDS(math)                                                                                                \
    .kind = {                                                                                                          \
        [WEFT_KIND_NOP] = {.task_ns = 0},                                                                              \
        [WEFT_KIND_GEMM_STREAM] = {.task_ns = 600,                                                                     \
                                   .n_point = 5,                                                                       \
                                   .rows = {1, 8, 16, 32, 64},                                                         \
                                   .block_ns = {20 * (math), 24 * (math), 30 * (math), 50 * (math), 110 * (math)}},    \
        [WEFT_KIND_GEMM_WIDE] = {.task_ns = 1500, .n_point = 1, .rows = {128}, .block_ns = {50 * (math)}}}
/* The loop's own figures: [m] docs/design.md, points 4 and 5, and hand-offs in bench/results; hop "packet" [m] handoff. */
#define GPU_LOOP                                                                                                       \
    .activation = 0.35,        /* [m] fitted: x comes through L2 */                                                    \
        .ahead_bytes = 196608, /* the ring of 12 pages of 16 KB (megakernel/) */                                       \
        .fetch_ns = {100, 300, 350, 350, 350}, .hop_ns = {1900, 2200, 700}, .ready_ns = {2000, 2600}, .open_ns = 3400, \
    .close_ns = 3400

static const weft__profile profiles[] = {
    {.name = "h200",
     .source =
         "one H200 measured by this project (bench/results); link 450 GB/s each way: NVIDIA H200 data sheet (900 GB/s "
         "both ways); its latency: middle of 1.2 to 2.3 us published for H100",
     .workers = 132,
     .memory_bpns = 4562, /* [m] ceiling of bulk copies; [p] 4.8 TB/s */
     .stream_bpns = 48,   /* [m] 48 KB in flight a worker, about 1 us */
     GPU_LOOP,
     .link_bpns = 450, /* [p] */
     .link_ns = 1800,  /* [p] */
     GPU_KINDS(1)},
    {.name = "h100",
     .source = "derived, not measured: h200 with 3.35 of 4.8 TB/s (NVIDIA data sheets of H100 SXM and H200)",
     .workers = 132,      /* [p] */
     .memory_bpns = 3184, /* [d] 4562 x 3.35 / 4.8 */
     .stream_bpns = 48,   /* [d] as h200 */
     GPU_LOOP,            /* [d] as h200 */
     .link_bpns = 450,    /* [p] */
     .link_ns = 1800,     /* [p] */
     GPU_KINDS(1)},       /* [d] the same SM and clock */
    {.name = "b200",
     .source = "derived, not measured: h200 with 8 of 4.8 TB/s, 2.25 of 0.989 PFLOP/s over 148 of 132 SMs, NVLink 1.8 "
               "TB/s both "
               "ways (NVIDIA data sheets of H200 and DGX B200); SMs: a guess from published device listings",
     .workers = 148,      /* [g] */
     .memory_bpns = 7603, /* [d] 4562 x 8 / 4.8 */
     .stream_bpns = 72,   /* [d] 48 x 8 / 4.8 x 132 / 148 */
     GPU_LOOP,            /* [g] as h200 */
     .link_bpns = 900,    /* [p] */
     .link_ns = 1800,     /* [g] as h200 */
     GPU_KINDS(0.49)},    /* [d] 0.989 / 132 over 2.25 / 148 */
    {.name = "cpu",
     .source = "rough figures of emulated devices; weft bench calibrate measures this machine's",
     .cores = 2,                            /* the command sets what it finds */
     .fetch_ns = {150, 200, 300, 300, 300}, /* [g], and all below */
     .signal_ns = 50,
     .push_ns = 100,
     .hop_ns = {300, 300, 300},
     .ready_ns = {100, 100},
     .open_ns = 3000,
     .close_ns = 3000},
};

const weft__profile *weft__profile_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (strcmp(profiles[i].name, name) == 0) return &profiles[i];
    return NULL;
}

const char *weft__profile_builtin_name(uint32_t n)
{
    return n < sizeof profiles / sizeof profiles[0] ? profiles[n].name : NULL;
}
