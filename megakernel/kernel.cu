// kernel.cu: the resident kernel. One CTA an SM; the main loop is `consume`, its helpers are the roles (cta.cuh).
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "body_attn.cuh"
#include "body_decode.cuh"
#include "body_small.cuh"
#include "body_stream.cuh"
#include "body_wide.cuh"
#include "kernel.cuh"
#include "loader.cuh"
#include "roles.cuh"

// One row a kind, from the same table as the C bodies: a kind without a device body does not compile.
WEFT_DEV bool run_body(const cta &c, weft_slot &s, consumer &t)
{
    switch (__shfl_sync(~0u, s.task.kind, 0)) { // the same for the whole warp, and the compiler knows
#define WEFT_KIND(ID, name, text)                                                                                      \
    case WEFT_KIND_##ID:                                                                                               \
        return body_##name(c, s, t);
#include "../tasks/tasks.def"
#undef WEFT_KIND
    }
    return true;
}

// Consumers: slot after slot, wait, run, hand over to the signaler.
WEFT_DEV void consume(const cta &c)
{
    consumer t;
    t.warp = threadIdx.x / 32 - 4, t.lane = threadIdx.x % 32;
    for (uint32_t n = 0;; n++) {
        // Opaque: else the compiler computes every body's lane constants here, once, and spills them in all the others.
        asm volatile("" : "+r"(t.warp), "+r"(t.lane));
        weft_slot &s = smem()->slot[n % SLOTS];
        if (!await(&smem()->slot_full[n % SLOTS], slot_parity(n))) return consumer_leave();
        if (s.flags & SLOT_EXIT) return;
        bool first = t.warp == 0 && t.lane == 0, clock = smem()->trace && first;
        if (clock) s.t_start = clock_ticks();
        if (first) weft_st_relaxed_gpu(&smem()->running->value, s.flags & SLOT_EMPTY ? WEFT_NONE : s.id);
        bool ok = s.flags & SLOT_EMPTY ? await_all(s) : run_body(c, s, t);
        if (!ok) return consumer_leave();
        if (clock) s.t_end = clock_ticks();
        if (first && s.flags & SLOT_LAST) weft_st_relaxed_gpu(&smem()->running->value, WEFT_NONE);
        __syncwarp();
        if (t.lane == 0)
            mbar_arrive(&smem()->slot_done[n % SLOTS]); // what the warp stored happens before: signal_static
    }
}

WEFT_DEV void set_up(const cta &c, uint32_t worker)
{
    cta_smem *sm = smem();
    sm->device = c.dev->device, sm->worker = worker, sm->ctl = (weft_ctl *)c.dev->ctl[c.dev->device];
    sm->base = c.dev->base, sm->n_device = c.dev->n_device, sm->n_worker = c.dev->n_worker, sm->peers = c.dev->peers;
    for (uint32_t v = 0; v < c.dev->n_variant; v++)
        sm->queue[v] = c.dev->queue[v];
    sm->running = (weft_line *)c.dev->running + worker;
    sm->policy = c.dev->policy, sm->trace = c.dev->trace_cap != 0;
    for (uint32_t i = 0; i < PAGES; i++)
        mbar_init(&sm->full[i], 1), mbar_init(&sm->empty[i], CONSUMER_WARPS), sm->held[i] = sm->recent[i] = ~0u;
    for (uint32_t i = 0; i < SLOTS; i++)
        mbar_init(&sm->slot_full[i], 1), mbar_init(&sm->slot_done[i], CONSUMER_WARPS), mbar_init(&sm->slot_free[i], 3);
    for (uint32_t i = 0; i < STEPS; i++)
        sm->step[i] = {};
    sm->leave = 0;
    for (uint32_t i = 0; i < 3; i++)
        sm->stall[i] = 0;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (c.dev->trace_cap) {
        weft_trace_clock *k = (weft_trace_clock *)c.dev->trace_clock + smem()->worker;
        k->ticks0 = clock_ticks(), k->ns0 = clock_ns();
    }
    uint32_t before = weft_atom_add_acq_rel_sys(&smem()->ctl->checkin.value, 1);
    if (before + 1 == c.dev->n_worker) {
        weft_st_relaxed_gpu(&smem()->ctl->checkin.value, 0); // nobody else looks until the kernel is launched again
        weft_st_release_sys(&mailbox(c)->resident[smem()->device].value, c.dev->n_worker);
    }
}

template <bool RINGS>
__global__ void __launch_bounds__(CTA_THREADS, 1) weft_resident(const __grid_constant__ weft__launch launch)
{
    uint32_t i = 0;
    while (blockIdx.x >= launch.first[i + 1])
        i++;
    cta c;
    c.dev = (const weft_dev *)launch.root[i];
    if (threadIdx.x == 0) set_up(c, blockIdx.x - launch.first[i]);
    __syncthreads();
    if (threadIdx.x < 128) {
        regs_dec<56>();
        switch (threadIdx.x / 32) {
        case 0: fetch_loop<RINGS>(c); break;
        case 1: load_loop(c); break;
        case 2: wait_loop(c); break;
        default: signal_loop<RINGS>(c); break;
        }
    } else {
        regs_inc<224>();
        consume(c);
    }
}

__global__ void fill_seeded(uint16_t *dst, uint32_t rows, uint32_t cols, uint64_t seed, float scale)
{
    uint64_t n = weft_layout_bytes(WEFT_LAYOUT_ATOM, WEFT_BF16, rows, cols, 1) / 2, kbs = weft_div_up(cols, 64);
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t atom = i / 1024;
        uint32_t r = i % 1024 / 64, c = ((i % 64 / 8) ^ (r & 7)) * 8 + i % 8;
        uint32_t row = (uint32_t)(atom / kbs) * 16 + r, col = (uint32_t)(atom % kbs) * 64 + c;
        float v = row < rows && col < cols ? weft_seeded(seed, row, col, scale) : 0.0f;
        dst[i] = weft_bf16_bits(__float_as_uint(v));
    }
}

const void *weft__kernel(bool rings)
{
    return rings ? (const void *)weft_resident<true> : (const void *)weft_resident<false>;
}
unsigned weft__kernel_threads(void) { return CTA_THREADS; }
unsigned weft__kernel_smem(void) { return sizeof(cta_smem); }
void weft__kernel_fill_seeded(void *dst, uint32_t rows, uint32_t cols, uint64_t seed, float scale, void *stream)
{
    fill_seeded<<<1024, 256, 0, (cudaStream_t)stream>>>((uint16_t *)dst, rows, cols, seed, scale);
}
