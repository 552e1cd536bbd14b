/* pairs.cu: a chain of decode GEMMs (h -> f -> h a layer) in one persistent kernel, with x shared by pairs of CTAs.
 *
 * The question: does it pay to bring x into both CTAs of a cluster of two by multicast (each fetches half of a
 * chunk), so that the reads of x through L2 halve? The same program runs the same kernel without clusters (solo), so
 * that the two are compared in one run, and checks both against a float64 reference.
 *
 * Weights: ATOM (tasks/layout.h). One page = 16 rows x 512 columns = 8 atoms = 16 KB. Row groups (16 rows) go round
 * over the CTAs: round r gives group r * grid + cta. A *pass* is `gpp` rounds: within it K is the outer loop, a CTA's
 * groups the inner one, accumulators in registers, and x streams through shared memory once a pass.
 * x: FRAG, so that 512 columns of all rows are one run; bf16; rows padded to 8.
 * Hand-off: a counter a pass. All CTAs add 1 (release) when their outputs of the pass are stored; the x loader of the
 * next stage waits (acquire) for the pass that made the chunk it wants, then fences the proxies, then copies.
 *
 * Warps: 0..7 multiply (warp w owns atom w of every page and block w of every chunk of x), 8 loads weights (at most
 * `cap` pages in flight), 9 loads x, 10 and 11 only fill up the warpgroup that gives its registers to the others.
 * Shared memory: struct Smem.
 *
 * Why nothing is overwritten early:
 *  - page of weights, slot of x: freed by 8 warps (x in a pair: 16, since a copy lands in both CTAs) before the
 *    next copy.
 *  - partial sums lie in the slots of x: all warps have taken the last chunk of the pass (named barrier) before
 *    they are written, and no x of a later pass is fetched until both CTAs' warps have read them (xidle).
 *  - activations ping-pong between two buffers: a stage's first store follows its last chunk of x, hence every
 *    arrival of the stage before, hence every read of the buffer that it overwrites.
 *
 * Enters: --shapes h/f,.. --m 1,8,32 --gpp 8,1 --cap 3,12 --layers 0 (0: >= 2 GB of weights) --reps 15
 *         --ceiling 4570 (GB/s, for the ratio). Leaves: one JSON line a result.
 * Build: nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a pairs.cu -o pairs */
#include "../tasks/layout.h"
#include "measure.cuh"

constexpr int kPage = WEFT_PAGE_BYTES, kChunk = WEFT_K_CHUNK;
constexpr int kWarps = 8, kConsumers = kWarps * 32, kThreads = kConsumers + 128;
constexpr int kMaxGroups = 8;   /* groups a CTA holds in registers at once */
constexpr int kMaxPasses = 8;   /* counters a stage */
constexpr int kCounterGap = 32; /* words: a line of 128 bytes each */
constexpr uint64_t kLimitNs = 2000000000ull;
constexpr int kTileFloats = 8 * 20; /* partial sums of 8 rows x 16 outputs, rows 20 apart: no bank conflicts */

/* TILES: x has 8 * TILES rows. W_SLOTS pages of weights and X_SLOTS chunks of x must fit in 227 KB. */
template <int TILES> struct Shape;
template <> struct Shape<1> {
    static constexpr int kWSlots = 11, kXSlots = 6;
};
template <> struct Shape<4> {
    static constexpr int kWSlots = 8, kXSlots = 3;
};

template <int TILES> struct Smem {
    static constexpr int kWSlots = Shape<TILES>::kWSlots, kXSlots = Shape<TILES>::kXSlots;
    static constexpr int kXBytes = kChunk * 8 * TILES * 2;
    static constexpr int kGroupFloats = kWarps * TILES * kTileFloats;
    static constexpr int kPartialGroups = kXSlots * kXBytes / (kGroupFloats * 4);

    alignas(1024) char w[kWSlots][kPage];
    alignas(1024) char x[kXSlots][kXBytes]; /* also float partial[group][warp][tile][8 rows][20] */
    alignas(8) uint64_t wfull[kWSlots], wempty[kWSlots], xfull[kXSlots], xempty[kXSlots], xidle;
};

struct Args {
    const char *weights; /* [2 * layers] matrices of h * f, ATOM */
    char *x[2];          /* stage j reads x[j & 1], writes the other */
    uint32_t *counters;  /* [stage][kMaxPasses], kCounterGap apart, zero at launch */
    uint32_t *abort_word;
    int h, f, layers;
    int gpp; /* groups (rounds) a pass, <= kMaxGroups */
    int cap; /* pages of weights in flight a CTA */
};

/* One GEMM of the chain: x [rows][k] -> out [rows][n]. */
struct Stage {
    int k, groups, chunks, passes;
    __device__ __forceinline__ Stage(const Args &a, int j)
        : k(j & 1 ? a.f : a.h), groups((j & 1 ? a.h : a.f) / 16), chunks(k / kChunk)
    {
        int per_pass = (int)gridDim.x * a.gpp;
        passes = (groups + per_pass - 1) / per_pass;
    }
    /* Groups of this CTA in a pass; the first is first_group. Never more than those of a CTA before it. */
    __device__ __forceinline__ int count(const Args &a, int pass, int cta) const
    {
        int left = groups - cta - pass * a.gpp * (int)gridDim.x;
        return left <= 0 ? 0 : min(a.gpp, (left - 1) / (int)gridDim.x + 1);
    }
    __device__ __forceinline__ int first_group(const Args &a, int pass, int cta) const
    {
        return pass * a.gpp * (int)gridDim.x + cta;
    }
};

/* Slot and parity of a ring that is walked forever. */
template <int SLOTS> struct Ring {
    uint32_t slot = 0, round = 0;
    __device__ __forceinline__ void next()
    {
        if (++slot == SLOTS) {
            slot = 0, round++;
        }
    }
    __device__ __forceinline__ uint32_t full_parity() const { return round & 1; }
    __device__ __forceinline__ uint32_t empty_parity() const
    {
        return (round & 1) ^ 1;
    } /* first round: passes at once */
};

/* ---- the pair ------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

/* Arrives on the same barrier of the CTA `rank` of this cluster: "I have read", nothing is published. (.release.cluster
 * would be a MEMBAR of the whole GPU for each warp and chunk; reads of shared memory are issued in order before it.) */
__device__ __forceinline__ void mbar_arrive_remote(uint64_t *bar, uint32_t rank)
{
    asm volatile("{\n\t.reg .b32 remote;\n\t"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(smem_addr(bar)),
                 "r"(rank)
                 : "memory");
}

/* Bulk copy into the same place of both CTAs; completes on the same barrier of each. */
__device__ __forceinline__ void bulk_load_pair(void *dst, const void *src, uint32_t bytes, uint64_t *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(smem_addr(dst)),
                 "l"(src), "r"(bytes), "r"(smem_addr(bar)), "h"((uint16_t)3)
                 : "memory");
}

template <bool PAIR> __device__ __forceinline__ void arrive_both(uint64_t *bar, uint32_t rank)
{
    mbar_arrive(bar);
    if (PAIR) {
        mbar_arrive_remote(bar, rank ^ 1);
    }
}

template <bool PAIR> __device__ __forceinline__ void sync_pair()
{
    if (PAIR) {
        asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
    } else {
        __syncthreads();
    }
}

/* ---- loaders: one thread each --------------------------------------------------------------------------------- */

template <int TILES> __device__ void load_weights(const Args &a, Smem<TILES> &sm, Watch &watch)
{
    constexpr int kSlots = Smem<TILES>::kWSlots;
    Ring<kSlots> ring, landed; /* landed: `cap` pages behind */
    int flying = 0;
    size_t matrix = (size_t)a.h * a.f * 2;
    for (int j = 0; j < 2 * a.layers; j++) {
        Stage st(a, j);
        const char *base = a.weights + j * matrix;
        for (int pass = 0; pass < st.passes; pass++) {
            int count = st.count(a, pass, blockIdx.x), first = st.first_group(a, pass, blockIdx.x);
            for (int page = 0; page < count * st.chunks; page++) {
                int chunk = page / count, group = first + (page % count) * (int)gridDim.x;
                mbar_wait(&sm.wempty[ring.slot], ring.empty_parity(), watch, 10);
                if (flying == a.cap) {
                    mbar_wait(&sm.wfull[landed.slot], landed.full_parity(), watch, 11);
                    landed.next();
                    flying--;
                }
                if (watch.dead) {
                    return;
                }
                mbar_arrive_expect(&sm.wfull[ring.slot], kPage);
                bulk_load(sm.w[ring.slot], base + ((size_t)group * st.chunks + chunk) * kPage, kPage,
                          &sm.wfull[ring.slot]);
                flying++;
                ring.next();
            }
        }
    }
}

template <int TILES, bool PAIR> __device__ void load_x(const Args &a, Smem<TILES> &sm, uint32_t rank, Watch &watch)
{
    constexpr uint32_t kBytes = Smem<TILES>::kXBytes, kPart = PAIR ? kBytes / 2 : kBytes;
    Ring<Smem<TILES>::kXSlots> ring;
    uint32_t busy_passes = 0;
    uint32_t first_cta = PAIR ? blockIdx.x & ~1u : blockIdx.x;
    for (int j = 0; j < 2 * a.layers; j++) {
        Stage st(a, j);
        int ready = j ? -1 : kMaxPasses; /* last pass of the stage before that is known to have arrived */
        const uint32_t *counter = a.counters + (j ? j - 1 : 0) * kMaxPasses * kCounterGap;
        for (int pass = 0; pass < st.passes; pass++) {
            if (st.count(a, pass, (int)first_cta) == 0) {
                continue;
            }
            if (busy_passes > 0) {
                mbar_wait(&sm.xidle, (busy_passes - 1) & 1, watch, 12);
            }
            busy_passes++;
            for (int chunk = 0; chunk < st.chunks; chunk++) {
                int need = (chunk * (kChunk / 16) + kChunk / 16 - 1) / ((int)gridDim.x * a.gpp);
                if (ready < need) {
                    while (ready < need) {
                        counter_wait(counter + ++ready * kCounterGap, gridDim.x, watch, 13);
                    }
                    /* acquires red_release_gpu of multiply(); the copy reads through the other proxy */
                    asm volatile("fence.proxy.async.global;" ::: "memory");
                }
                mbar_wait(&sm.xempty[ring.slot], ring.empty_parity(), watch, 14);
                if (watch.dead) {
                    return;
                }
                /* Both halves count here. The other CTA's half may land before this line; its bytes wait for us. */
                mbar_arrive_expect(&sm.xfull[ring.slot], kBytes);
                const char *src = a.x[j & 1] + (size_t)chunk * kBytes + (PAIR ? rank * kPart : 0);
                char *dst = sm.x[ring.slot] + (PAIR ? rank * kPart : 0);
                if (PAIR) {
                    bulk_load_pair(dst, src, kPart, &sm.xfull[ring.slot]);
                } else {
                    bulk_load(dst, src, kPart, &sm.xfull[ring.slot]);
                }
                ring.next();
            }
        }
    }
}

/* ---- consumers ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void sync_consumers() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

/* acc += atom (16 outputs x 64 columns) * x (64 columns x 8 * TILES rows) */
template <int TILES>
__device__ __forceinline__ void multiply_atom(float (&acc)[TILES][4], uint32_t atom, const uint4 (&x)[TILES][2],
                                              int lane)
{
    uint32_t r = lane & 15, hi = lane >> 4;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t w[4];
        ldmatrix_x4(w, atom + r * 128 + (((q * 2 + hi) ^ (r & 7)) << 4));
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const uint4 &v = x[t][q / 2];
            mma_16816(acc[t], w, q % 2 ? v.z : v.x, q % 2 ? v.w : v.y);
        }
    }
}

/* All of K for `count` groups: acc[g][tile] holds this warp's share of it. */
template <int TILES, bool PAIR>
__device__ __forceinline__ void contract(float (&acc)[kMaxGroups][TILES][4], Smem<TILES> &sm, int chunks, int count,
                                         uint32_t rank, Ring<Smem<TILES>::kWSlots> &wring,
                                         Ring<Smem<TILES>::kXSlots> &xring, Watch &watch)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int chunk = 0; chunk < chunks; chunk++) {
        uint4 x[TILES][2];
        mbar_wait(&sm.xfull[xring.slot], xring.full_parity(), watch, 20);
        const char *block = sm.x[xring.slot] + warp * TILES * WEFT_FRAG_BYTES + lane * 16;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            x[t][0] = *reinterpret_cast<const uint4 *>(block + t * WEFT_FRAG_BYTES);
            x[t][1] = *reinterpret_cast<const uint4 *>(block + t * WEFT_FRAG_BYTES + 512);
        }
        __syncwarp();
        if (lane == 0) {
            arrive_both<PAIR>(&sm.xempty[xring.slot], rank);
        }
        xring.next();
#pragma unroll
        for (int g = 0; g < kMaxGroups; g++) {
            if (g < count) {
                mbar_wait(&sm.wfull[wring.slot], wring.full_parity(), watch, 21);
                __syncwarp();
                multiply_atom<TILES>(acc[g], smem_addr(sm.w[wring.slot]) + warp * WEFT_ATOM_BYTES, x, lane);
                __syncwarp();
                if (lane == 0) {
                    mbar_arrive(&sm.wempty[wring.slot]);
                }
                wring.next();
            }
        }
    }
}

/* Sums the eight warps' shares of groups g0 .. g0 + n - 1 in order of the warps, stores them as FRAG. */
template <int TILES>
__device__ __forceinline__ void store_groups(const float *partial, char *out, int n, int group, int stride)
{
    for (int item = threadIdx.x; item < n * TILES * 32; item += kConsumers) {
        int lane = item % 32, tile = item / 32 % TILES, g = item / 32 / TILES;
        const float *p = partial + (g * kWarps * TILES + tile) * kTileFloats + (lane / 4) * 20 + (lane % 4) * 2;
        float2 lo = {0, 0}, hi = {0, 0};
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
            float2 l = *reinterpret_cast<const float2 *>(p + w * TILES * kTileFloats);
            float2 h = *reinterpret_cast<const float2 *>(p + w * TILES * kTileFloats + 8);
            lo.x += l.x, lo.y += l.y, hi.x += h.x, hi.y += h.y;
        }
        __nv_bfloat162 pair[2] = {__floats2bfloat162_rn(lo.x, lo.y), __floats2bfloat162_rn(hi.x, hi.y)};
        uint32_t col = (uint32_t)(group + g * stride) * 16 + (lane % 4) * 2;
        uint64_t at = weft_frag_offset(TILES * 8, tile * 8 + lane / 4, col); /* columns col, +1, +8, +9 are one run */
        *reinterpret_cast<uint2 *>(out + at) = *reinterpret_cast<uint2 *>(pair);
    }
}

/* Adds up over the warps through shared memory (the slots of x, idle now) and stores. */
template <int TILES>
__device__ __forceinline__ void reduce_and_store(const float (&acc)[kMaxGroups][TILES][4], Smem<TILES> &sm, char *out,
                                                 int count, int group, int stride)
{
    constexpr int kHold = Smem<TILES>::kPartialGroups;
    static_assert(kHold >= 1, "slots of x hold no partial sums");
    float *partial = reinterpret_cast<float *>(sm.x[0]);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int g0 = 0; g0 < kMaxGroups; g0 += kHold) {
        if (g0 >= count) {
            break;
        }
        sync_consumers(); /* all have read what is there: x, or the sums before these */
#pragma unroll
        for (int g = g0; g < g0 + kHold && g < kMaxGroups; g++) {
            if (g < count) {
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    float *p = partial + (((g - g0) * kWarps + warp) * TILES + t) * kTileFloats + (lane % 4) * 40 +
                               lane / 4;
                    p[0] = acc[g][t][0], p[20] = acc[g][t][1], p[8] = acc[g][t][2], p[28] = acc[g][t][3];
                }
            }
        }
        sync_consumers();
        store_groups<TILES>(partial, out, min(count - g0, kHold), group + g0 * stride, stride);
    }
}

template <int TILES, bool PAIR> __device__ void multiply(const Args &a, Smem<TILES> &sm, uint32_t rank, Watch &watch)
{
    Ring<Smem<TILES>::kWSlots> wring;
    Ring<Smem<TILES>::kXSlots> xring;
    int lane = threadIdx.x % 32;
    int first_cta = (int)(PAIR ? blockIdx.x & ~1u : blockIdx.x);
    for (int j = 0; j < 2 * a.layers; j++) {
        Stage st(a, j);
        for (int pass = 0; pass < st.passes; pass++) {
            int count = st.count(a, pass, blockIdx.x);
            if (st.count(a, pass, first_cta) > 0) { /* else nobody in the pair walks x */
                float acc[kMaxGroups][TILES][4] = {};
                contract<TILES, PAIR>(acc, sm, st.chunks, count, rank, wring, xring, watch);
                reduce_and_store<TILES>(acc, sm, a.x[(j & 1) ^ 1], count, st.first_group(a, pass, blockIdx.x),
                                        gridDim.x);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* copies will overwrite the sums */
                __syncwarp();
                if (lane == 0) {
                    arrive_both<PAIR>(&sm.xidle, rank);
                }
            }
            sync_consumers();
            if (threadIdx.x == 0) { /* acquired by counter_wait in load_x */
                red_release_gpu(a.counters + ((size_t)j * kMaxPasses + pass) * kCounterGap, 1);
            }
        }
    }
}

template <int TILES, bool PAIR> __global__ void __launch_bounds__(kThreads, 1) chain(const __grid_constant__ Args a)
{
    extern __shared__ __align__(1024) char raw[];
    Smem<TILES> &sm = *reinterpret_cast<Smem<TILES> *>(raw);
    uint32_t rank = PAIR ? cluster_rank() : 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Watch watch(a.abort_word, kLimitNs);
    if (threadIdx.x == 0) {
        for (int s = 0; s < Smem<TILES>::kWSlots; s++) {
            mbar_init(&sm.wfull[s], 1);
            mbar_init(&sm.wempty[s], kWarps);
        }
        for (int s = 0; s < Smem<TILES>::kXSlots; s++) {
            mbar_init(&sm.xfull[s], 1);
            mbar_init(&sm.xempty[s], PAIR ? 2 * kWarps : kWarps);
        }
        mbar_init(&sm.xidle, PAIR ? 2 * kWarps : kWarps);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    sync_pair<PAIR>();
    if (warp <
        kWarps) { /* 384 threads start with 168 registers each: 224 + 224 + 56 = 3 * 168, more would never come */
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        multiply<TILES, PAIR>(a, sm, rank, watch);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (warp == kWarps && lane == 0) {
            load_weights<TILES>(a, sm, watch);
        } else if (warp == kWarps + 1 && lane == 0) {
            load_x<TILES, PAIR>(a, sm, rank, watch);
        }
    }
    if (watch.dead) { /* copies in flight still land in this shared memory */
        for (uint64_t until = global_ns() + 200000; global_ns() < until;) {
            __nanosleep(1000);
        }
    }
    __syncwarp();
    sync_pair<PAIR>(); /* the other CTA arrives on our barriers and copies into our slots */
}

/* ---- host ----------------------------------------------------------------------------------------------------- */

struct AtomWeights {
    const char *base;
    int k;
    __device__ float operator()(int n, int col) const
    {
        return __bfloat162float(*reinterpret_cast<const bf16 *>(base + weft_atom_offset(k, n, col)));
    }
};

struct Buffers {
    char *weights, *x[2], *input;
    size_t weight_bytes, x_bytes;
    uint32_t *counters, *abort_word;
    size_t counter_bytes;
};

typedef void (*Kernel)(Args);

struct Variant {
    const char *name;
    Kernel kernel;
    size_t smem;
    int cluster, grid;
};

template <int TILES, bool PAIR> static Variant make_variant(const char *name, int sms)
{
    Variant v = {name, (Kernel)chain<TILES, PAIR>, sizeof(Smem<TILES>), PAIR ? 2 : 1, sms};
    CHECK_CUDA(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)v.smem));
    if (PAIR) { /* all must be resident */
        cudaLaunchConfig_t config = {};
        cudaLaunchAttribute attr = {};
        int clusters = 0;
        attr.id = cudaLaunchAttributeClusterDimension;
        attr.val.clusterDim.x = 2, attr.val.clusterDim.y = 1, attr.val.clusterDim.z = 1;
        config.gridDim = dim3(sms / 2 * 2), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = v.smem;
        config.attrs = &attr, config.numAttrs = 1;
        CHECK_CUDA(cudaOccupancyMaxActiveClusters(&clusters, v.kernel, &config));
        v.grid = std::min(sms / 2, clusters) * 2;
    }
    return v;
}

static void launch(const Variant &v, Args args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr = {};
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = 2, attr.val.clusterDim.y = 1, attr.val.clusterDim.z = 1;
    config.gridDim = dim3(v.grid), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = v.smem;
    config.attrs = &attr, config.numAttrs = v.cluster == 2 ? 1 : 0;
    CHECK_CUDA(cudaLaunchKernelEx(&config, v.kernel, args));
}

static uint32_t take_abort(const Buffers &b)
{
    uint32_t code = 0;
    CHECK_CUDA(cudaMemcpy(&code, b.abort_word, 4, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemset(b.abort_word, 0, 4));
    return code;
}

/* Input in place, everything that is to be written poisoned (NaN), counters zero. */
static void prepare(const Buffers &b)
{
    CHECK_CUDA(cudaMemcpyAsync(b.x[0], b.input, b.x_bytes, cudaMemcpyDeviceToDevice));
    CHECK_CUDA(cudaMemsetAsync(b.x[1], 0xff, b.x_bytes));
    CHECK_CUDA(cudaMemsetAsync(b.counters, 0, b.counter_bytes));
}

static float from_bf16(uint16_t u)
{
    uint32_t bits = (uint32_t)u << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* x [rows][cols] as row-major floats, from FRAG bytes on the device. */
static std::vector<float> read_frag(const char *x, int padded_rows, int rows, int cols)
{
    std::vector<char> bytes((size_t)padded_rows * cols * 2);
    std::vector<float> out((size_t)rows * cols);
    CHECK_CUDA(cudaMemcpy(bytes.data(), x, bytes.size(), cudaMemcpyDeviceToHost));
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            uint16_t u;
            memcpy(&u, &bytes[weft_frag_offset(padded_rows, r, c)], 2);
            out[(size_t)r * cols + c] = from_bf16(u);
        }
    }
    return out;
}

/* The chain in float64, rounded to bf16 after every GEMM. */
static std::vector<float> reference_chain(const Buffers &b, const std::vector<float> &input, int m, int h, int f,
                                          int layers)
{
    float *x, *y;
    std::vector<float> out((size_t)m * h);
    CHECK_CUDA(cudaMalloc(&x, (size_t)m * std::max(h, f) * 4));
    CHECK_CUDA(cudaMalloc(&y, (size_t)m * std::max(h, f) * 4));
    CHECK_CUDA(cudaMemcpy(x, input.data(), input.size() * 4, cudaMemcpyHostToDevice));
    for (int j = 0; j < 2 * layers; j++) {
        int k = j & 1 ? f : h, n = j & 1 ? h : f;
        reference(x, AtomWeights{b.weights + (size_t)j * h * f * 2, k}, y, m, n, k);
        std::swap(x, y);
    }
    CHECK_CUDA(cudaMemcpy(out.data(), x, out.size() * 4, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(x));
    CHECK_CUDA(cudaFree(y));
    return out;
}

/* A digest of the padded result: the order of sums is fixed, so it is the same in every run and variant. */
static uint64_t digest(const char *x, size_t bytes)
{
    std::vector<uint8_t> v(bytes);
    uint64_t d = 1469598103934665603ull;
    CHECK_CUDA(cudaMemcpy(v.data(), x, bytes, cudaMemcpyDeviceToHost));
    for (uint8_t u : v) {
        d = (d ^ u) * 1099511628211ull;
    }
    return d;
}

struct Result {
    double us, error;
    bool stable;
    uint32_t abort_code;
    uint64_t digest;
};

static Result measure(const Variant &v, const Buffers &b, Args args, int m, int padded, const std::vector<float> &ref,
                      int reps)
{
    Result r = {};
    int layers = args.layers;
    size_t out_bytes = (size_t)padded * args.h * 2;
    args.layers = 2;
    prepare(b);
    launch(v, args);
    CHECK_CUDA(cudaDeviceSynchronize());
    r.error = relative_error(read_frag(b.x[0], padded, m, args.h), ref);
    r.abort_code = take_abort(b);
    if (r.abort_code != 0) {
        return r;
    }
    args.layers = layers;
    prepare(b);
    launch(v, args);
    CHECK_CUDA(cudaDeviceSynchronize());
    r.digest = digest(b.x[0], out_bytes);
    r.stable = true;
    r.us = time_us(
        0, 2, reps,
        [&] { /* runs after the one before has ended: look at what it left first */
              r.stable = r.stable && digest(b.x[0], out_bytes) == r.digest;
              prepare(b);
        },
        [&] { launch(v, args); });
    r.stable = r.stable && digest(b.x[0], out_bytes) == r.digest;
    r.abort_code = take_abort(b);
    return r;
}

static void report(const Variant &v, const Args &args, int m, const Result &r, double solo_us, double ceiling)
{
    double gb_s = r.us > 0 ? 4.0 * args.h * args.f * args.layers / r.us / 1e3 : 0;
    bool ok = r.abort_code == 0 && r.error < 1e-2 && r.stable;
    printf("{\"bench\":\"pairs\",\"variant\":\"%s\",\"h\":%d,\"f\":%d,\"m\":%d,\"layers\":%d,\"gpp\":%d,\"cap\":%d,"
           "\"ctas\":%d,"
           "\"us_layer\":%.2f,\"gb_s\":%.0f,\"of_ceiling\":%.3f,\"vs_solo\":%.3f,\"rel_error\":%.2e,\"stable\":%s,"
           "\"digest\":\"%016llx\",\"abort\":%u,\"ok\":%s}\n",
           v.name, args.h, args.f, m, args.layers, args.gpp, args.cap, v.grid, r.us / args.layers, gb_s, gb_s / ceiling,
           solo_us > 0 && r.us > 0 ? solo_us / r.us : 0.0, r.error, r.stable ? "true" : "false",
           (unsigned long long)r.digest, r.abort_code, ok ? "true" : "false");
    fflush(stdout);
}

/* Random bf16 input, padding rows included (their results are computed and not compared). */
static std::vector<float> make_input(const Buffers &b, int padded, int m, int h)
{
    fill((bf16 *)b.input, (size_t)padded * h, 1.7f, (uint32_t)(m * 131 + h));
    return read_frag(b.input, padded, m, h);
}

template <int TILES> static bool run_m(int argc, char **argv, const Buffers &b, Args args, int m, int sms)
{
    int reps = atoi(flag(argc, argv, "--reps", "15"));
    double ceiling = atof(flag(argc, argv, "--ceiling", "4570"));
    Variant variants[2] = {make_variant<TILES, false>("solo", sms), make_variant<TILES, true>("pair", sms)};
    std::vector<float> ref = reference_chain(b, make_input(b, TILES * 8, m, args.h), m, args.h, args.f, 2);
    bool ok = true;
    for (int gpp : int_list(flag(argc, argv, "--gpp", "8,1"))) {
        for (int cap : int_list(flag(argc, argv, "--cap", "3"))) {
            args.gpp = std::max(1, std::min(gpp, kMaxGroups));
            args.cap = std::max(1, std::min(cap, (int)Smem<TILES>::kWSlots));
            double solo_us = 0;
            for (const Variant &v : variants) {
                int rounds = (std::max(args.h, args.f) / 16 + v.grid - 1) / v.grid;
                if (v.grid == 0 || (rounds + args.gpp - 1) / args.gpp > kMaxPasses) {
                    fprintf(stderr, "skipped: %s, gpp %d, h %d, f %d: %d CTAs, more than %d passes\n", v.name, args.gpp,
                            args.h, args.f, v.grid, kMaxPasses);
                    continue;
                }
                Result r = measure(v, b, args, m, TILES * 8, ref, reps);
                report(v, args, m, r, v.cluster == 1 ? r.us : solo_us, ceiling);
                solo_us = v.cluster == 1 ? r.us : solo_us;
                ok = ok && r.abort_code == 0 && r.error < 1e-2 && r.stable;
            }
        }
    }
    return ok;
}

static Buffers make_buffers(int h, int f, int layers)
{
    Buffers b = {};
    size_t matrix = (size_t)h * f * 2;
    b.weight_bytes = matrix * 2 * layers;
    b.x_bytes = (size_t)std::max(h, f) * 32 * 2;
    b.counter_bytes = (size_t)2 * layers * kMaxPasses * kCounterGap * 4;
    CHECK_CUDA(cudaMalloc(&b.weights, b.weight_bytes));
    CHECK_CUDA(cudaMalloc(&b.x[0], b.x_bytes));
    CHECK_CUDA(cudaMalloc(&b.x[1], b.x_bytes));
    CHECK_CUDA(cudaMalloc(&b.input, b.x_bytes));
    CHECK_CUDA(cudaMalloc(&b.counters, b.counter_bytes));
    CHECK_CUDA(cudaMalloc(&b.abort_word, 4));
    CHECK_CUDA(cudaMemset(b.abort_word, 0, 4));
    CHECK_CUDA(cudaMemset(b.input, 0xff, b.x_bytes));
    for (int j = 0; j < 2 * layers; j++) {
        fill((bf16 *)(b.weights + j * matrix), matrix / 2, sqrtf(3.0f / (j & 1 ? f : h)), 1000 + j);
    }
    return b;
}

static void free_buffers(Buffers &b)
{
    for (void *p : {(void *)b.weights, (void *)b.x[0], (void *)b.x[1], (void *)b.input, (void *)b.counters,
                    (void *)b.abort_word}) {
        CHECK_CUDA(cudaFree(p));
    }
}

int main(int argc, char **argv)
{
    cudaDeviceProp prop;
    bool ok = true;
    CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
    for (auto shape : shape_list(flag(argc, argv, "--shapes", "2048/8192,4096/14336"))) {
        int h = shape.first, f = shape.second, layers = atoi(flag(argc, argv, "--layers", "0"));
        if (h <= 0 || f <= 0 || h % kChunk || f % kChunk) {
            fprintf(stderr, "%d/%d: widths must be multiples of %d\n", h, f, kChunk);
            return 2;
        }
        layers = layers >= 2 ? layers : std::max(2, (int)(2e9 / (4.0 * h * f)) + 1);
        Buffers b = make_buffers(h, f, layers);
        Args args = {b.weights, {b.x[0], b.x[1]}, b.counters, b.abort_word, h, f, layers, 0, 0};
        for (int m : int_list(flag(argc, argv, "--m", "1,8,32"))) {
            if (m < 1 || m > 32) {
                fprintf(stderr, "--m %d is not in 1..32\n", m);
                return 2;
            }
            ok = (m <= 8 ? run_m<1>(argc, argv, b, args, m, prop.multiProcessorCount)
                         : run_m<4>(argc, argv, b, args, m, prop.multiProcessorCount)) &&
                 ok;
        }
        free_buffers(b);
    }
    return ok ? 0 : 1;
}
