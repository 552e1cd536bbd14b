// cuda.cu: the backend of GPUs and of logical devices (slices of one GPU's SMs).
//
// Enters: "cuda", "cuda:0,1", "cuda:0/4", "cuda:0/2,1/2". Leaves: a machine whose addresses are unified virtual addresses;
// with several GPUs, every one can reach every other's memory, or open refuses and names the pair.
// One launch a GPU serves all its logical devices: one CTA an SM, so a worker is an SM. Copies go through a stream of
// their own and use copy engines only: while the kernel is resident no other kernel, memset included, finds room.
#include "backend.h"

#include "../host/error.h"
#include "../host/image.h"
#include "../megakernel/kernel.cuh"
#include "../tasks/layout.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <vector>

namespace
{

struct gpu {
    int ordinal;
    cudaStream_t kernel, copy;
    weft__launch launch;
    uint32_t blocks;
};

struct machine : weft__machine {
    std::vector<gpu> gpus;
    uint32_t gpu_of[WEFT_MAX_DEVICES]; // index in gpus
    bool running;
};

// The calling thread's device is the caller's: whoever needs another one gives it back.
struct device_scope {
    int before = -1;
    explicit device_scope(int ordinal)
    {
        if (cudaGetDevice(&before) != cudaSuccess) before = -1;
        if (before != ordinal) cudaSetDevice(ordinal);
    }
    device_scope(const device_scope &) = delete;
    ~device_scope()
    {
        if (before >= 0) cudaSetDevice(before);
    }
};

machine *self(weft__machine *m) { return static_cast<machine *>(m); }

int cuda_status(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return 0;
    cudaGetLastError();
    int code = e == cudaErrorMemoryAllocation ? WEFT_ENOMEM : WEFT_ECUDA;
    return weft__fail(code, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int try_status = cuda_status(call, #call);                                                                     \
        if (try_status) return try_status;                                                                             \
    } while (0)

// "0", "0/2", separated by commas -> (ordinal, slices). False: not of that form.
bool parse(const char *p, int count, std::vector<std::pair<int, int>> &out)
{
    if (strcmp(p, "cuda") == 0) {
        for (int i = 0; i < count; i++)
            out.push_back({i, 1});
        return true;
    }
    if (strncmp(p, "cuda:", 5) != 0) return false;
    for (p += 5;;) {
        char *end;
        if (*p < '0' || *p > '9') return false;
        long gpu = strtol(p, &end, 10), slices = 1;
        if (*end == '/') {
            if (end[1] < '1' || end[1] > '9') return false;
            slices = strtol(end + 1, &end, 10);
        }
        if (gpu > 1000 || slices > (long)WEFT_MAX_DEVICES) return false;
        out.push_back({(int)gpu, (int)slices});
        if (*end == 0) return true;
        if (*end != ',') return false;
        p = end + 1;
    }
}

int add_gpu(machine *m, int ordinal, int slices)
{
    cudaDeviceProp prop;
    TRY(cudaGetDeviceProperties(&prop, ordinal));
    if (prop.major != 9)
        return weft__fail(WEFT_EMACHINE, "cuda:%d (%s) has compute capability %d.%d; the kernel is built for 9.0",
                          ordinal, prop.name, prop.major, prop.minor);
    device_scope here(ordinal);
    for (bool rings : {false, true})
        TRY(cudaFuncSetAttribute(weft__kernel(rings), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)weft__kernel_smem()));
    int per_sm = 0;
    TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, weft__kernel(true), (int)weft__kernel_threads(),
                                                      weft__kernel_smem()));
    if (per_sm < 1)
        return weft__fail(WEFT_EMACHINE, "cuda:%d (%s): a worker of %u bytes of shared memory does not fit an SM",
                          ordinal, prop.name, weft__kernel_smem());
    uint32_t sms = (uint32_t)prop.multiProcessorCount, each = slices == 1 ? sms : sms / slices / 8 * 8;
    if (each == 0 || m->n_device + slices > WEFT_MAX_DEVICES)
        return weft__fail(WEFT_EMACHINE, "cuda:%d/%d: %u SMs can't be cut into %d devices of a multiple of 8", ordinal,
                          slices, sms, slices);
    gpu g = {};
    g.ordinal = ordinal;
    TRY(cudaStreamCreateWithFlags(&g.kernel, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&g.copy, cudaStreamNonBlocking));
    for (int i = 0; i < slices; i++) {
        uint32_t d = m->n_device++;
        m->workers[d] = each;
        m->gpu_of[d] = m->clock_of[d] = (uint32_t)m->gpus.size();
        if (slices == 1)
            snprintf(m->names[d], sizeof m->names[d], "cuda:%d %.40s", ordinal, prop.name);
        else
            snprintf(m->names[d], sizeof m->names[d], "cuda:%d/%d#%d %.20s", ordinal, slices, i, prop.name);
        g.launch.first[g.launch.n_device++] = g.blocks;
        g.blocks += each;
    }
    g.launch.first[g.launch.n_device] = g.blocks;
    m->gpus.push_back(g);
    return 0;
}

int enable_peers(machine *m)
{
    for (gpu &a : m->gpus)
        for (gpu &b : m->gpus) {
            if (a.ordinal == b.ordinal) continue;
            int can = 0;
            TRY(cudaDeviceCanAccessPeer(&can, a.ordinal, b.ordinal));
            if (!can) return weft__fail(WEFT_EMACHINE, "cuda:%d has no peer access to cuda:%d", a.ordinal, b.ordinal);
            device_scope here(a.ordinal);
            cudaError_t e = cudaDeviceEnablePeerAccess(b.ordinal, 0);
            if (e == cudaErrorPeerAccessAlreadyEnabled)
                cudaGetLastError();
            else
                TRY(e);
        }
    return 0;
}

void cuda_close(weft__machine *base)
{
    machine *m = self(base);
    if (!m) return;
    for (gpu &g : m->gpus) {
        device_scope here(g.ordinal);
        if (g.kernel) cudaStreamDestroy(g.kernel);
        if (g.copy) cudaStreamDestroy(g.copy);
    }
    delete m;
}

int open_gpus(machine *m, const char *spec)
{
    int count = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return weft__fail(WEFT_EMACHINE, "devices '%s': no GPU can be used: %s", spec, cudaGetErrorString(e));
    }
    std::vector<std::pair<int, int>> wanted;
    if (!parse(spec, count, wanted))
        return weft__fail(WEFT_EUSAGE, "devices '%s': expected cuda, cuda:0,1 or cuda:0/4", spec);
    if (wanted.empty()) return weft__fail(WEFT_EMACHINE, "devices '%s': there is no GPU", spec);
    for (size_t i = 0; i < wanted.size(); i++) {
        if (wanted[i].first >= count)
            return weft__fail(WEFT_EMACHINE, "devices '%s': there is no cuda:%d (%d found)", spec, wanted[i].first,
                              count);
        for (size_t j = 0; j < i; j++)
            if (wanted[i].first == wanted[j].first)
                return weft__fail(WEFT_EUSAGE, "devices '%s': cuda:%d stands twice", spec, wanted[i].first);
        int status = add_gpu(m, wanted[i].first, wanted[i].second);
        if (status) return status;
    }
    TRY(cudaDriverGetVersion(&driver));
    snprintf(m->driver, sizeof m->driver, "CUDA driver %d.%d", driver / 1000, driver % 1000 / 10);
    return enable_peers(m);
}

int cuda_open(const char *spec, weft__machine **out)
{
    machine *m = new (std::nothrow) machine();
    if (!m) return weft__fail(WEFT_ENOMEM, "devices '%s'", spec);
    m->ops = &weft__backend_cuda;
    m->clock = "clock64 of each SM, and the GPU's globaltimer";
    int status = open_gpus(m, spec);
    if (status) {
        cuda_close(m);
        return status;
    }
    *out = m;
    return 0;
}

gpu &gpu_at(weft__machine *m, uint32_t device) { return self(m)->gpus[self(m)->gpu_of[device]]; }

int cuda_alloc(weft__machine *m, uint32_t device, uint64_t bytes, uint64_t *addr)
{
    device_scope here(gpu_at(m, device).ordinal);
    void *p;
    cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        size_t free_bytes = 0, total = 0;
        cudaMemGetInfo(&free_bytes, &total);
        return weft__fail(WEFT_ENOMEM, "%s: %llu bytes wanted, %zu of %zu free", m->names[device],
                          (unsigned long long)bytes, free_bytes, total);
    }
    TRY(e);
    *addr = (uint64_t)p;
    return 0;
}

void cuda_free(weft__machine *m, uint32_t device, uint64_t addr)
{
    device_scope here(gpu_at(m, device).ordinal);
    cudaFree((void *)addr);
}

int cuda_alloc_shared(weft__machine *m, uint64_t bytes, void **host, uint64_t *addr)
{
    device_scope here(gpu_at(m, 0).ordinal);
    TRY(cudaHostAlloc(host, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    memset(*host, 0, bytes);
    *addr = (uint64_t)*host; // unified addressing: the same on every device
    return 0;
}

void cuda_free_shared(weft__machine *m, void *host)
{
    device_scope here(gpu_at(m, 0).ordinal);
    cudaFreeHost(host);
}

int cuda_write(weft__machine *m, uint32_t device, uint64_t addr, const void *src, uint64_t bytes)
{
    gpu &g = gpu_at(m, device);
    device_scope here(g.ordinal);
    TRY(cudaMemcpyAsync((void *)addr, src, bytes, cudaMemcpyHostToDevice, g.copy));
    TRY(cudaStreamSynchronize(g.copy));
    return 0;
}

int cuda_read(weft__machine *m, uint32_t device, void *dst, uint64_t addr, uint64_t bytes)
{
    gpu &g = gpu_at(m, device);
    device_scope here(g.ordinal);
    TRY(cudaMemcpyAsync(dst, (const void *)addr, bytes, cudaMemcpyDeviceToHost, g.copy));
    TRY(cudaStreamSynchronize(g.copy));
    return 0;
}

int cuda_fill(weft__machine *m, uint32_t device, uint64_t addr, uint8_t byte, uint64_t bytes)
{
    gpu &g = gpu_at(m, device);
    device_scope here(g.ordinal);
    if (!self(m)->running) {
        TRY(cudaMemsetAsync((void *)addr, byte, bytes, g.copy));
        TRY(cudaStreamSynchronize(g.copy));
        return 0;
    }
    std::vector<uint8_t> chunk((size_t)std::min<uint64_t>(bytes, 1 << 20),
                               byte); // a memset is a kernel: it would wait for ours
    for (uint64_t at = 0; at < bytes; at += chunk.size()) {
        int status = cuda_write(m, device, addr + at, chunk.data(), std::min<uint64_t>(bytes - at, chunk.size()));
        if (status) return status;
    }
    return 0;
}

int cuda_fill_seeded(weft__machine *m, uint32_t device, uint64_t addr, uint32_t dtype, uint32_t rows, uint32_t cols,
                     uint64_t seed, float scale)
{
    if (dtype != WEFT_BF16)
        return weft__fail(WEFT_EUNSUPPORTED, "%s: seeded weights of type %u; the CUDA kernel takes bf16",
                          m->names[device], dtype);
    gpu &g = gpu_at(m, device);
    device_scope here(g.ordinal);
    weft__kernel_fill_seeded((void *)addr, rows, cols, seed, scale, g.copy);
    TRY(cudaGetLastError());
    TRY(cudaStreamSynchronize(g.copy));
    return 0;
}

// What the kernel is built for: bf16, tasks whose sums fit its registers. It runs all policies, but doesn't steal from other
// devices, where a plan would allow it.
int cuda_check(const weft__image *img, uint32_t policy)
{
    (void)policy;
    for (uint32_t i = 0; i < img->n_op; i++) {
        const weft_op *op = &img->ops[i];
        bool typed = op->kind != WEFT_KIND_NOP && op->kind != WEFT_KIND_MIX,
             attn = op->kind == WEFT_KIND_ATTN || op->kind == WEFT_KIND_ATTN_COMBINE || op->kind == WEFT_KIND_ROPE;
        if (typed && op->dtype != WEFT_BF16)
            return weft__fail(WEFT_EUNSUPPORTED, "op %u (%s): the CUDA kernel takes bf16", i,
                              weft__image_string(img, op->name));
        if (attn && ((op->param[2] != 64 && op->param[2] != 128) || op->param[0] / op->param[1] > 8))
            return weft__fail(
                WEFT_EUNSUPPORTED,
                "op %u (%s): heads of %u, %u queries a KV head; the CUDA kernel has attention with heads of "
                "64 and 128, and up to 8 queries a KV head",
                i, weft__image_string(img, op->name), op->param[2], op->param[0] / op->param[1]);
    }
    for (uint32_t v = 0; v < img->header->n_variant; v++)
        for (uint32_t d = 0; d < img->header->n_device; d++) {
            const weft_image_queue *q = &img->queues[v * img->header->n_device + d];
            for (uint32_t i = 0; i < q->n_task; i++) {
                const weft_task *t = &img->tasks[q->task + i];
                if (t->kind != WEFT_KIND_GEMM_STREAM) continue;
                const weft_op *op = &img->ops[img->devices[d].op + t->op];
                uint32_t most = weft_stream_groups(std::min(op->m_tile, op->m));
                if (t->tile[2] > most)
                    return weft__fail(WEFT_EUNSUPPORTED,
                                      "task %u of device %u (%s): %u groups of 16 rows; at most %u with %u rows of x",
                                      i, d, weft__image_string(img, op->name), t->tile[2], most, op->m_tile);
            }
        }
    return 0;
}

// W in atoms is a tensor of [n/16][k/64][16][64] elements; a box of it is 256 rows by 64 columns. Rows past the end read as 0.
int cuda_tensor_map(weft__machine *m, uint64_t w, uint32_t rows, uint32_t cols, void *map)
{
    device_scope here(gpu_at(m, 0).ordinal);
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (!entry) return weft__fail(WEFT_ECUDA, "the driver has no cuTensorMapEncodeTiled");
    cuuint64_t blocks = weft_div_up(cols, 64), dims[4] = {64, 16, blocks, weft_div_up(rows, 16)};
    cuuint64_t strides[3] = {128, WEFT_ATOM_BYTES, blocks * WEFT_ATOM_BYTES};
    cuuint32_t box[4] = {64, 16, 1, 16}, steps[4] = {1, 1, 1, 1};
    alignas(64) CUtensorMap made;
    CUresult r = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)w, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        return weft__fail(WEFT_ECUDA, "cuTensorMapEncodeTiled of %u x %u weights: error %d", rows, cols, (int)r);
    memcpy(map, &made, sizeof made);
    return 0;
}

int cuda_launch(weft__machine *base, const uint64_t *roots)
{
    machine *m = self(base);
    uint32_t d = 0, policy;
    int status = cuda_read(base, 0, &policy, roots[0] + offsetof(weft_dev, policy), sizeof policy);
    if (status) return status;
    for (gpu &g : m->gpus) {
        device_scope here(g.ordinal);
        for (uint32_t i = 0; i < g.launch.n_device; i++)
            g.launch.root[i] = roots[d++];
        void *args[] = {&g.launch};
        TRY(cudaLaunchCooperativeKernel(weft__kernel(policy >= WEFT_POLICY_PUSH), dim3(g.blocks),
                                        dim3(weft__kernel_threads()), args, weft__kernel_smem(), g.kernel));
    }
    m->running = true;
    return 0;
}

int cuda_join(weft__machine *base, uint32_t timeout_ms)
{
    machine *m = self(base);
    timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000, until.tv_nsec += timeout_ms % 1000 * 1000000L;
    for (gpu &g : m->gpus) {
        device_scope here(g.ordinal);
        for (;;) {
            cudaError_t e = cudaStreamQuery(g.kernel);
            if (e == cudaSuccess) break;
            if (e != cudaErrorNotReady) return cuda_status(e, "resident kernel");
            clock_gettime(CLOCK_MONOTONIC, &now);
            if ((now.tv_sec - until.tv_sec) * 1000000000L + now.tv_nsec - until.tv_nsec > 0)
                return weft__fail(WEFT_ETIME, "cuda:%d: the kernel has not ended after %u ms", g.ordinal, timeout_ms);
            timespec nap = {0, 50000};
            nanosleep(&nap, nullptr);
        }
    }
    m->running = false;
    return 0;
}

} // namespace

extern "C" const weft__backend weft__backend_cuda = {
    "cuda",           cuda_open,   cuda_close, cuda_alloc, cuda_free,        cuda_alloc_shared,
    cuda_free_shared, cuda_write,  cuda_read,  cuda_fill,  cuda_fill_seeded, cuda_check,
    cuda_tensor_map,  cuda_launch, cuda_join,
};
