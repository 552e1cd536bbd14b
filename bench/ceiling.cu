/* ceiling.cu: what one GPU allows: read bandwidth by bulk copies into shared memory, the grid barrier, a flag
 * between two SMs, the host's doorbell.
 *
 * Enters: --mib 235,2048,4096 (sizes read), --inflight 12,3 (16 KB copies in flight a CTA), --reps 11.
 * Leaves: one JSON line a result. Times are from event to event around one launch, launch included.
 * Reads are those of `weft bench ceiling` (runtime/cli_ceiling.cu). */
#include "../host/error.h"
#include "../runtime/cli_ceiling.h"
#include "measure.cuh"

constexpr uint64_t kLimitNs = 2000000000ull;

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

static void measure_reads(int argc, char **argv)
{
    std::vector<int> sizes = int_list(flag(argc, argv, "--mib", "235,2048,4096"));
    std::vector<int> depths = int_list(flag(argc, argv, "--inflight", "12,6,3"));
    int reps = atoi(flag(argc, argv, "--reps", "11"));
    std::vector<double> us((size_t)std::max(reps, 1));
    weft__gpu_ceiling ceiling;
    int status = weft__gpu_ceiling_open(0, (uint64_t)*std::max_element(sizes.begin(), sizes.end()) << 20, &ceiling);
    for (int mib : sizes)
        for (int depth : depths) {
            uint64_t bytes = (uint64_t)mib << 20;
            if (!status)
                status = weft__gpu_ceiling_read(&ceiling, bytes, (uint32_t)depth, (uint32_t)us.size(), us.data());
            if (status) {
                fprintf(stderr, "%s\n", weft__error());
                exit(status == WEFT_EUSAGE ? 2 : 1);
            }
            printf("{\"bench\":\"read_ceiling\",\"mib\":%d,\"inflight\":%d,\"ctas\":%u,\"median_us\":%.2f,"
                   "\"min_us\":%.2f,\"gb_s\":%.0f,\"ok\":true,\"abort\":0}\n",
                   mib, depth, ceiling.workers, median(us), *std::min_element(us.begin(), us.end()),
                   (double)bytes / median(us) / 1e3);
            fflush(stdout);
        }
    weft__gpu_ceiling_close(&ceiling);
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
    measure_reads(argc, argv);
    measure_flags(prop.multiProcessorCount, abort_word);
    measure_doorbell(abort_word);
    CHECK_CUDA(cudaFree(abort_word));
    return 0;
}
