// kernel.cuh: how the host starts the resident kernel. Included by the CUDA backend.
#ifndef WEFT_KERNEL_CUH
#define WEFT_KERNEL_CUH

#include "../tasks/abi.h"

struct weft__launch { // one launch serves all logical devices of a GPU: device i has CTAs first[i] .. first[i + 1] - 1
    uint64_t root[WEFT_MAX_DEVICES];
    uint32_t first[WEFT_MAX_DEVICES + 1];
    uint32_t n_device;
};

// For cudaFuncGetAttributes and cudaLaunchKernel; one argument: weft__launch. rings: for the push family. Two kernels, because
// code that a list needs not still costs it: 2 % of a chain's time (docs/notebook.md).
const void *weft__kernel(bool rings);
unsigned weft__kernel_threads(void); // a CTA
unsigned weft__kernel_smem(void);    // dynamic shared memory of a CTA, bytes
void weft__kernel_fill_seeded(void *dst, uint32_t rows, uint32_t cols, uint64_t seed, float scale, void *stream);

#endif
