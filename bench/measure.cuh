/* measure.cuh: what the stand-alone GPU measurements in this folder share: error checks, random data, medians, flags,
 * a float64 reference, and spins that end.
 *
 * Enters: nothing but the CUDA runtime. Leaves: one JSON line a result on stdout (printed by each program).
 * Invariants: data is never zero; a spin looks at an abort word and a deadline, and nothing traps: a kernel that gives
 * up sets the word, runs to its end on garbage and returns, and the host reports it. */
#ifndef WEFT_BENCH_MEASURE_CUH
#define WEFT_BENCH_MEASURE_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#define CHECK_CUDA(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t check_error = (call);                                                                              \
        if (check_error != cudaSuccess) {                                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error));            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef __nv_bfloat16 bf16;

/* ---- random data ---------------------------------------------------------------------------------------------- */

__host__ __device__ inline uint32_t hash32(uint64_t i, uint32_t seed)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) * 0x9e3779b1u ^ seed * 0x85ebca6bu;
    h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
    return h;
}

/* Uniform in [-scale, scale). scale = sqrt(3 / K) keeps the size of activations through a GEMM of depth K. */
__global__ void fill_random(bf16 *p, size_t n, float scale, uint32_t seed)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, stride = (size_t)gridDim.x * blockDim.x;
    for (; i < n; i += stride) {
        p[i] = __float2bfloat16((hash32(i, seed) * (1.0f / 2147483648.0f) - 1.0f) * scale);
    }
}

inline void fill(bf16 *p, size_t n, float scale, uint32_t seed)
{
    fill_random<<<1024, 256>>>(p, n, scale, seed);
    CHECK_CUDA(cudaGetLastError());
}

/* ---- reference: out[m][n] = bf16(sum in float64), one warp an element ----------------------------------------- */

/* x: [m][k] floats; weight(n, k) -> float; out: [m][n] floats that are bf16 values. */
template <class Weight> __global__ void reference_gemm(const float *x, Weight weight, float *out, int m, int n, int k)
{
    int64_t item = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (item >= (int64_t)m * n) {
        return;
    }
    int row = (int)(item / n), col = (int)(item % n);
    double sum = 0;
    for (int i = lane; i < k; i += 32) {
        sum += (double)x[(size_t)row * k + i] * weight(col, i);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    if (lane == 0) {
        out[item] = __bfloat162float(__double2bfloat16(sum));
    }
}

template <class Weight> void reference(const float *x, Weight weight, float *out, int m, int n, int k)
{
    int64_t blocks = ((int64_t)m * n + 7) / 8;
    reference_gemm<<<(unsigned)blocks, 256>>>(x, weight, out, m, n, k);
    CHECK_CUDA(cudaGetLastError());
}

/* ||out - ref|| / ||ref||; NaN in out gives NaN, which passes no comparison. */
inline double relative_error(const std::vector<float> &out, const std::vector<float> &ref)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < ref.size(); i++) {
        diff += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
        norm += (double)ref[i] * ref[i];
    }
    return sqrt(diff / norm);
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

inline double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v.size() % 2 ? v[v.size() / 2] : 0.5 * (v[v.size() / 2 - 1] + v[v.size() / 2]);
}

/* Median us of `work`, which enqueues on stream; `before` (not timed) is enqueued in front of each. */
template <class Before, class Work>
double time_us(cudaStream_t stream, int warm, int reps, Before before, Work work, double *min_us = nullptr)
{
    cudaEvent_t start, stop;
    std::vector<double> us;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&stop));
    for (int i = 0; i < warm + reps; i++) {
        float ms = 0;
        before();
        CHECK_CUDA(cudaEventRecord(start, stream));
        work();
        CHECK_CUDA(cudaEventRecord(stop, stream));
        CHECK_CUDA(cudaEventSynchronize(stop));
        CHECK_CUDA(cudaEventElapsedTime(&ms, start, stop));
        if (i >= warm) {
            us.push_back(ms * 1e3);
        }
    }
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(stop));
    if (min_us) {
        *min_us = *std::min_element(us.begin(), us.end());
    }
    return median(us);
}

/* ---- flags: --name value -------------------------------------------------------------------------------------- */

inline const char *flag(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return otherwise;
}

/* "1,8,32" */
inline std::vector<int> int_list(const char *text)
{
    std::vector<int> list;
    for (const char *p = text; *p;) {
        char *end;
        list.push_back((int)strtol(p, &end, 10));
        if (end == p) {
            fprintf(stderr, "not a list of numbers: %s\n", text);
            exit(2);
        }
        p = *end ? end + 1 : end;
    }
    return list;
}

/* "2048/8192,4096/14336": hidden and inner width of a layer */
inline std::vector<std::pair<int, int>> shape_list(const char *text)
{
    std::vector<std::pair<int, int>> list;
    std::string s(text);
    std::replace(s.begin(), s.end(), '/', ',');
    std::vector<int> n = int_list(s.c_str());
    if (n.size() % 2) {
        fprintf(stderr, "not a list of h/f: %s\n", text);
        exit(2);
    }
    for (size_t i = 0; i < n.size(); i += 2) {
        list.push_back({n[i], n[i + 1]});
    }
    return list;
}

/* ---- device side: spins that end ------------------------------------------------------------------------------ */

__device__ __forceinline__ uint64_t global_ns()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ uint32_t smem_addr(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ uint32_t ld_relaxed_gpu(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t ld_acquire_gpu(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ void red_release_gpu(uint32_t *p, uint32_t v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* Kept out of line so that the spins stay short. */
static __device__ __noinline__ bool watch_expired(uint32_t *abort_word, uint64_t deadline, uint32_t code)
{
    if (ld_relaxed_gpu(abort_word) == 0) {
        if (global_ns() < deadline) {
            return false;
        }
        atomicCAS(abort_word, 0u, code);
    }
    return true;
}

/* One per thread. Once dead, every wait returns at once, so that barriers stay matched on the way out. */
struct Watch {
    uint32_t *abort_word; /* global; nonzero: give up. The code says which wait gave up first. */
    uint64_t deadline;    /* globaltimer, ns */
    bool dead;

    __device__ __forceinline__ Watch(uint32_t *word, uint64_t limit_ns)
        : abort_word(word), deadline(global_ns() + limit_ns), dead(false)
    {
    }
    __device__ __forceinline__ bool give_up(uint32_t code)
    {
        dead = watch_expired(abort_word, deadline, code);
        return dead;
    }
};

__device__ __forceinline__ void mbar_init(uint64_t *bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(bar)) : "memory");
}

__device__ __forceinline__ void mbar_arrive_expect(uint64_t *bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool mbar_try(uint64_t *bar, uint32_t parity)
{
    uint32_t ok;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(ok)
                 : "r"(smem_addr(bar)), "r"(parity)
                 : "memory");
    return ok != 0;
}

/* Waits for the phase of this parity to end. */
__device__ __forceinline__ void mbar_wait(uint64_t *bar, uint32_t parity, Watch &watch, uint32_t code)
{
    if (watch.dead) {
        return;
    }
    for (uint32_t spin = 1; !mbar_try(bar, parity); spin++) {
        if (spin % 16 == 0 && watch.give_up(code)) {
            return;
        }
    }
}

/* Polls until *p >= target. Every poll is an acquire: a relaxed poll and then an acquire would be a trip more. */
__device__ __forceinline__ void counter_wait(const uint32_t *p, uint32_t target, Watch &watch, uint32_t code)
{
    if (watch.dead) {
        return;
    }
    for (uint32_t spin = 1; ld_acquire_gpu(p) < target; spin++) {
        if (spin % 256 == 0 && watch.give_up(code)) {
            return;
        }
    }
}

/* Bulk copy of `bytes` from global to this CTA's shared memory; completes on bar. */
__device__ __forceinline__ void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_addr(dst)),
        "l"(src), "r"(bytes), "r"(smem_addr(bar))
        : "memory");
}

#endif
