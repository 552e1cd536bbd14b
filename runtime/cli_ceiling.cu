// cli_ceiling.cu: how fast a GPU's memory can be read into shared memory, by the copies that the kernel's loader uses.
//
// Enters: sizes, copies in flight. Leaves: times, from event to event around one launch, launch included.
// Invariants: the data is random; one word of each page that arrived is summed and compared with a plain kernel's sum; the
// kernel ends on its own after two seconds, whatever happens.
#include "../host/error.h"
#include "../megakernel/kernel.cuh"
#include "../megakernel/ptx.cuh"
#include "cli_ceiling.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace
{

constexpr uint32_t CEILING_PAGE = 16384, CEILING_STAGES = 12, CEILING_COLS = CEILING_PAGE / 2;
constexpr uint64_t CEILING_LIMIT_NS = 2000000000;

struct ceiling_smem {
    alignas(1024) uint8_t page[CEILING_STAGES][CEILING_PAGE];
    uint64_t full[CEILING_STAGES];
};

// CTA b reads pages b, b + grid, ...; one thread does everything. *sum += first word of every page.
__global__ void __launch_bounds__(32, 1)
    read_pages(const uint8_t *data, uint32_t pages, uint32_t depth, unsigned long long *sum)
{
    extern __shared__ __align__(1024) uint8_t raw[];
    ceiling_smem &sm = *(ceiling_smem *)raw;
    if (threadIdx.x != 0) return;
    for (uint32_t s = 0; s < depth; s++)
        mbar_init(&sm.full[s], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    uint32_t mine = blockIdx.x < pages ? (pages - blockIdx.x - 1) / gridDim.x + 1 : 0;
    auto issue = [&](uint32_t i, uint32_t s) {
        mbar_arrive_expect(&sm.full[s], CEILING_PAGE);
        bulk_load(sm.page[s], data + (blockIdx.x + (uint64_t)i * gridDim.x) * CEILING_PAGE, CEILING_PAGE, &sm.full[s]);
    };
    for (uint32_t i = 0; i < min(depth, mine); i++)
        issue(i, i);
    unsigned long long total = 0;
    uint64_t begin = clock_ns();
    for (uint32_t i = 0, s = 0, parity = 0; i < mine; i++) {
        while (!mbar_try_wait(&sm.full[s], parity))
            if (clock_ns() - begin > CEILING_LIMIT_NS) return; // the sum is short, then
        total += *(const uint32_t *)sm.page[s];
        if (i + depth < mine) issue(i + depth, s);
        if (++s == depth) s = 0, parity ^= 1;
    }
    atomicAdd(sum, total);
}

__global__ void sum_pages(const uint8_t *data, uint32_t pages, unsigned long long *sum)
{
    unsigned long long total = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pages; i += gridDim.x * blockDim.x)
        total += *(const uint32_t *)(data + (uint64_t)i * CEILING_PAGE);
    atomicAdd(sum, total);
}

int check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return 0;
    cudaGetLastError();
    int code = e == cudaErrorMemoryAllocation ? WEFT_ENOMEM : WEFT_ECUDA;
    return weft__fail(code, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}
#define CEILING_TRY(call)                                                                                              \
    do {                                                                                                               \
        int ceiling_status = check(call, #call);                                                                       \
        if (ceiling_status) return ceiling_status;                                                                     \
    } while (0)

} // namespace

int weft__gpu_ceiling_open(int gpu, uint64_t bytes, weft__gpu_ceiling *out)
{
    cudaDeviceProp prop;
    cudaEvent_t start, stop;
    memset(out, 0, sizeof *out);
    out->gpu = gpu, out->bytes = bytes;
    cudaError_t e = cudaGetDeviceProperties(&prop, gpu);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return weft__fail(WEFT_EMACHINE, "cuda:%d can't be used: %s", gpu, cudaGetErrorString(e));
    }
    if (prop.major != 9)
        return weft__fail(WEFT_EMACHINE, "cuda:%d (%s) has compute capability %d.%d; the kernel is built for 9.0", gpu,
                          prop.name, prop.major, prop.minor);
    snprintf(out->name, sizeof out->name, "cuda:%d %.40s", gpu, prop.name);
    out->workers = (uint32_t)prop.multiProcessorCount;
    CEILING_TRY(cudaSetDevice(gpu));
    CEILING_TRY(cudaMalloc(&out->data, bytes));
    CEILING_TRY(cudaMalloc(&out->sums, 16));
    CEILING_TRY(cudaEventCreate(&start));
    out->start = start;
    CEILING_TRY(cudaEventCreate(&stop));
    out->stop = stop;
    CEILING_TRY(cudaFuncSetAttribute(read_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(ceiling_smem)));
    weft__kernel_fill_seeded(out->data, (uint32_t)(bytes / CEILING_PAGE), CEILING_COLS, 7, 1.0f, nullptr);
    CEILING_TRY(cudaGetLastError());
    CEILING_TRY(cudaDeviceSynchronize());
    return 0;
}

int weft__gpu_ceiling_read(weft__gpu_ceiling *c, uint64_t bytes, uint32_t in_flight, uint32_t n, double *us)
{
    if (bytes < CEILING_PAGE || bytes > c->bytes || in_flight < 1 || in_flight > CEILING_STAGES)
        return weft__fail(WEFT_EUSAGE, "%llu bytes of %llu, %u copies in flight of 1 to %u", (unsigned long long)bytes,
                          (unsigned long long)c->bytes, in_flight, CEILING_STAGES);
    const uint8_t *data = (const uint8_t *)c->data;
    unsigned long long *sums = (unsigned long long *)c->sums, got[2];
    cudaEvent_t start = (cudaEvent_t)c->start, stop = (cudaEvent_t)c->stop;
    uint32_t pages = (uint32_t)(bytes / CEILING_PAGE);
    CEILING_TRY(cudaMemset(sums, 0, 16));
    sum_pages<<<64, 256>>>(data, pages, sums + 1);
    CEILING_TRY(cudaGetLastError());
    for (uint32_t i = 0; i < n + 3; i++) {
        float ms = 0;
        CEILING_TRY(cudaMemsetAsync(sums, 0, 8));
        CEILING_TRY(cudaEventRecord(start));
        read_pages<<<c->workers, 32, sizeof(ceiling_smem)>>>(data, pages, in_flight, sums);
        CEILING_TRY(cudaEventRecord(stop));
        CEILING_TRY(cudaMemcpy(got, sums, 16, cudaMemcpyDeviceToHost));
        CEILING_TRY(cudaEventElapsedTime(&ms, start, stop));
        if (got[0] != got[1])
            return weft__fail(WEFT_EWRONG, "%s: the pages that arrived sum to %llu, not %llu", c->name, got[0], got[1]);
        if (i >= 3) us[i - 3] = ms * 1e3;
    }
    return 0;
}

void weft__gpu_ceiling_close(weft__gpu_ceiling *c)
{
    cudaFree(c->data);
    cudaFree(c->sums);
    if (c->start) cudaEventDestroy((cudaEvent_t)c->start);
    if (c->stop) cudaEventDestroy((cudaEvent_t)c->stop);
    memset(c, 0, sizeof *c);
}
