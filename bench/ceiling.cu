/* ceiling.cu: what one GPU allows: read bandwidth by bulk copies into shared memory, the grid barrier, a flag
 * between two SMs, the host's doorbell.
 *
 * Enters: --mib 235,2048,4096 (sizes read), --inflight 12,3 (16 KB copies in flight a CTA), --reps 11.
 * Leaves: one JSON line a result. Times are from event to event around one launch, launch included.
 * Invariants: the buffer is random; one word of each page that arrived is summed and compared with a plain kernel's
 * sum.
 * Build: nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a ceiling.cu -o ceiling */
#include "measure.cuh"

constexpr int kPage = 16384, kStages = 12;
constexpr uint64_t kLimitNs = 2000000000ull;

struct ReadSmem {
    alignas(1024) char page[kStages][kPage];
    alignas(8) uint64_t full[kStages];
};

/* CTA b reads pages b, b + grid, ...; one thread does everything. sum: += first word of every page. */
__global__ void __launch_bounds__(32, 1)
    read_pages(const char *data, uint32_t pages, uint32_t depth, unsigned long long *sum, uint32_t *abort_word)
{
    extern __shared__ __align__(1024) char raw[];
    ReadSmem &sm = *reinterpret_cast<ReadSmem *>(raw);
    if (threadIdx.x != 0) {
        return;
    }
    Watch watch(abort_word, kLimitNs);
    for (uint32_t s = 0; s < depth; s++) {
        mbar_init(&sm.full[s], 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    uint32_t mine = blockIdx.x < pages ? (pages - blockIdx.x - 1) / gridDim.x + 1 : 0;
    auto issue = [&](uint32_t i, uint32_t s) {
        mbar_arrive_expect(&sm.full[s], kPage);
        bulk_load(sm.page[s], data + (size_t)(blockIdx.x + (size_t)i * gridDim.x) * kPage, kPage, &sm.full[s]);
    };
    for (uint32_t i = 0; i < min(depth, mine); i++) {
        issue(i, i);
    }
    unsigned long long total = 0;
    for (uint32_t i = 0, s = 0, parity = 0; i < mine; i++) {
        mbar_wait(&sm.full[s], parity, watch, 1);
        if (watch.dead) {
            break;
        }
        total += *reinterpret_cast<const uint32_t *>(sm.page[s]);
        if (i + depth < mine) {
            issue(i + depth, s);
        }
        if (++s == depth) {
            s = 0, parity ^= 1;
        }
    }
    atomicAdd(sum, total);
}

__global__ void sum_pages(const char *data, uint32_t pages, unsigned long long *sum)
{
    unsigned long long total = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pages; i += gridDim.x * blockDim.x) {
        total += *reinterpret_cast<const uint32_t *>(data + (size_t)i * kPage);
    }
    atomicAdd(sum, total);
}

/* n barriers: one red.release a CTA, one poller a CTA (acquire). */
__global__ void grid_barriers(uint32_t *counter, uint32_t n, uint32_t *abort_word)
{
    Watch watch(abort_word, kLimitNs);
    for (uint32_t i = 1; i <= n; i++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            red_release_gpu(counter, 1);
            counter_wait(counter, i * gridDim.x, watch, 2);
        }
        __syncthreads();
    }
}

/* Two CTAs answer each other n times; a line each. */
__global__ void ping_pong(uint32_t *flags, uint32_t n, uint32_t *abort_word)
{
    Watch watch(abort_word, kLimitNs);
    uint32_t *own = flags + blockIdx.x * 64, *other = flags + (blockIdx.x ^ 1) * 64;
    for (uint32_t i = 1; i <= n; i++) {
        if (blockIdx.x == 1) {
            counter_wait(other, i, watch, 3);
        }
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(own), "r"(i) : "memory");
        if (blockIdx.x == 0) {
            counter_wait(other, i, watch, 3);
        }
    }
}

/* Answers each value 1..n of *bell in *reply; both in pinned host memory. */
__global__ void doorbell(const uint32_t *bell, uint32_t *reply, uint32_t n, uint32_t *abort_word)
{
    Watch watch(abort_word, kLimitNs);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t seen;
        for (uint32_t spin = 1;; spin++) {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(bell) : "memory");
            if (seen >= i || (spin % 64 == 0 && watch.give_up(4))) {
                break;
            }
        }
        if (watch.dead) {
            return;
        }
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(reply), "r"(i) : "memory");
    }
}

static uint32_t take_abort(uint32_t *abort_word)
{
    uint32_t code = 0;
    CHECK_CUDA(cudaMemcpy(&code, abort_word, 4, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemset(abort_word, 0, 4));
    return code;
}

static void measure_reads(int argc, char **argv, int sms, uint32_t *abort_word)
{
    std::vector<int> sizes = int_list(flag(argc, argv, "--mib", "235,2048,4096"));
    std::vector<int> depths = int_list(flag(argc, argv, "--inflight", "12,6,3"));
    int reps = atoi(flag(argc, argv, "--reps", "11"));
    size_t bytes = (size_t)*std::max_element(sizes.begin(), sizes.end()) << 20;
    char *data;
    unsigned long long *sums, got[2];
    CHECK_CUDA(cudaMalloc(&data, bytes));
    CHECK_CUDA(cudaMalloc(&sums, 16));
    fill((bf16 *)data, bytes / 2, 1.0f, 7);
    CHECK_CUDA(cudaFuncSetAttribute(read_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(ReadSmem)));
    for (int mib : sizes) {
        uint32_t pages = (uint32_t)(((size_t)mib << 20) / kPage);
        for (int depth : depths) {
            if (depth < 1 || depth > kStages) {
                fprintf(stderr, "--inflight %d is not in 1..%d\n", depth, kStages);
                exit(2);
            }
            double least;
            double us = time_us(
                0, 3, reps, [&] { CHECK_CUDA(cudaMemsetAsync(sums, 0, 16)); },
                [&] {
                    read_pages<<<sms, 32, sizeof(ReadSmem)>>>(data, pages, (uint32_t)depth, sums, abort_word);
                    CHECK_CUDA(cudaGetLastError());
                },
                &least);
            sum_pages<<<64, 256>>>(data, pages, sums + 1);
            CHECK_CUDA(cudaGetLastError());
            CHECK_CUDA(cudaMemcpy(got, sums, 16, cudaMemcpyDeviceToHost));
            uint32_t code = take_abort(abort_word);
            printf(
                "{\"bench\":\"read_ceiling\",\"mib\":%d,\"inflight\":%d,\"ctas\":%d,\"median_us\":%.2f,\"min_us\":%.2f,"
                "\"gb_s\":%.0f,\"ok\":%s,\"abort\":%u}\n",
                mib, depth, sms, us, least, (double)pages * kPage / us / 1e3,
                code == 0 && got[0] == got[1] ? "true" : "false", code);
            fflush(stdout);
        }
    }
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaFree(sums));
}

/* us a round of a kernel that does n rounds: (time of n) - (time of one), over n - 1. */
template <class Launch> static double per_round_us(uint32_t *words, uint32_t n, Launch launch)
{
    auto clear = [&] { CHECK_CUDA(cudaMemsetAsync(words, 0, 1024)); };
    double one = time_us(0, 2, 9, clear, [&] { launch(1u); });
    double all = time_us(0, 2, 9, clear, [&] { launch(n); });
    CHECK_CUDA(cudaGetLastError());
    return (all - one) / (n - 1);
}

static void measure_flags(int sms, uint32_t *abort_word)
{
    uint32_t *words;
    CHECK_CUDA(cudaMalloc(&words, 1024));
    double barrier = per_round_us(words, 1000, [&](uint32_t n) { grid_barriers<<<sms, 256>>>(words, n, abort_word); });
    uint32_t code = take_abort(abort_word);
    printf("{\"bench\":\"grid_barrier\",\"ctas\":%d,\"us\":%.3f,\"abort\":%u}\n", sms, barrier, code);
    double trip = per_round_us(words, 1000, [&](uint32_t n) { ping_pong<<<2, 1>>>(words, n, abort_word); });
    code = take_abort(abort_word);
    printf("{\"bench\":\"flag_one_way\",\"scope\":\"gpu\",\"us\":%.3f,\"abort\":%u}\n", trip / 2, code);
    CHECK_CUDA(cudaFree(words));
}

static void measure_doorbell(uint32_t *abort_word)
{
    constexpr uint32_t n = 2000;
    uint32_t *pinned;
    std::vector<double> us;
    CHECK_CUDA(cudaHostAlloc(&pinned, 4096, cudaHostAllocMapped));
    memset(pinned, 0, 4096);
    uint32_t *bell = pinned, *reply = pinned + 64;
    doorbell<<<1, 1>>>(bell, reply, n, abort_word);
    CHECK_CUDA(cudaGetLastError());
    auto begin = std::chrono::steady_clock::now();
    bool late = false;
    for (uint32_t i = 1; i <= n && !late; i++) {
        auto start = std::chrono::steady_clock::now(), now = start;
        __atomic_store_n(bell, i, __ATOMIC_RELEASE);
        do {
            now = std::chrono::steady_clock::now();
            late = now - begin > std::chrono::seconds(3);
        } while (__atomic_load_n(reply, __ATOMIC_ACQUIRE) < i && !late);
        us.push_back(std::chrono::duration<double, std::micro>(now - start).count());
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    uint32_t code = take_abort(abort_word);
    printf("{\"bench\":\"doorbell_round_trip\",\"median_us\":%.2f,\"abort\":%u}\n", median(us), code);
    CHECK_CUDA(cudaFreeHost(pinned));
}

int main(int argc, char **argv)
{
    cudaDeviceProp prop;
    uint32_t *abort_word;
    CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
    CHECK_CUDA(cudaMalloc(&abort_word, 4));
    CHECK_CUDA(cudaMemset(abort_word, 0, 4));
    printf("{\"bench\":\"device\",\"name\":\"%s\",\"sms\":%d,\"l2_mib\":%d}\n", prop.name, prop.multiProcessorCount,
           prop.l2CacheSize >> 20);
    measure_reads(argc, argv, prop.multiProcessorCount, abort_word);
    measure_flags(prop.multiProcessorCount, abort_word);
    measure_doorbell(abort_word);
    CHECK_CUDA(cudaFree(abort_word));
    return 0;
}
