/* profile_builtin.c: profiles of machines that may not be there. Each figure says where it comes from.
 *
 *   [m]  measured by this project on one H200 (132 SMs, driver 580.159.04): docs/design.md, docs/notebook.md,
 *        bench/results/2026-12-01-h200-*.json
 *   [p]  published: NVIDIA's data sheets of H100 SXM, H200 SXM, DGX B200; papers named in docs/simulator.md
 *   [d]  derived from [m] by the ratio of published figures; nobody has run weft there
 *   [g]  a guess                                                                                                     */
#include "profile.h"

#include <string.h>

/* A streaming task is bound by memory up to some 32 rows; its own work is in ns for an atom of 16 x 64 of W. A wide task
 * works at a tensor core's rate.                                                                                      */
#define STREAM_POINTS .n_point = 5, .rows = {1, 8, 16, 32, 64}, .block_ns = {20, 24, 30, 50, 110}

static const weft__profile profiles[] = {
    {.name = "h200",
     .source = "one H200 measured by this project; links: NVIDIA H200 data sheet and published measurements of H100",
     .workers = 132,
     .memory_bpns = 4562, /* [m] ceiling of bulk copies */
     .stream_bpns = 48,   /* [m] 48 KB in flight a worker, about 1 us */
     .activation = 0.35,  /* [m] design.md: x is read through L2 */
     .ahead_bytes = 196608,
     .fetch_ns = {100, 300, 350, 350, 350},
     .hop_ns = {1900, 2200, 700},
     .ready_ns = {2000, 2600},
     .open_ns = 3400,
     .close_ns = 3400,
     .link_bpns = 450,
     .link_ns = 1800,
     .kind = {[WEFT_KIND_NOP] = {.task_ns = 0},
              [WEFT_KIND_GEMM_STREAM] = {.task_ns = 600, STREAM_POINTS},
              [WEFT_KIND_GEMM_WIDE] = {.task_ns = 1500, .n_point = 1, .rows = {128}, .block_ns = {55}}}},
    {.name = "cpu",
     .source = "rough figures of emulated devices; weft bench calibrate measures this machine's",
     .cores = 2,
     .fetch_ns = {150, 200, 300, 300, 300},
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
