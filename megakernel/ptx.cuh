// ptx.cuh: one PTX instruction a wrapper: shared-memory barriers, bulk copies, matrix instructions, clocks.
#ifndef WEFT_PTX_CUH
#define WEFT_PTX_CUH

#include "order_ptx.cuh"

WEFT_DEV uint32_t smem_addr(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

WEFT_DEV uint64_t clock_ticks(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    return t;
}
WEFT_DEV uint64_t clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

// ------------------------------------------------------------------------------------- words in shared memory, .cta
WEFT_DEV uint32_t lds_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(smem_addr(p)) : "memory");
    return v;
}
WEFT_DEV void sts_release(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(smem_addr(p)), "r"(v) : "memory");
}
WEFT_DEV uint32_t lds_relaxed(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(smem_addr(p)) : "memory");
    return v;
}
WEFT_DEV void sts_relaxed(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(smem_addr(p)), "r"(v) : "memory");
}

// ------------------------------------------------------------------------------------------------------- mbarriers
WEFT_DEV void mbar_init(uint64_t *bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(count) : "memory");
}
WEFT_DEV void mbar_arrive(uint64_t *bar) // release.cta
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_addr(bar)) : "memory");
}
WEFT_DEV void mbar_arrive_expect(uint64_t *bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr(bar)), "r"(bytes) : "memory");
}
// Has the phase of this parity completed? Waits a while, the hardware's choice, before it says no. acquire.cta
// (With a time hint the compiler adds a NANOSLEEP behind the first miss, which overslept by microseconds.)
WEFT_DEV bool mbar_try_wait(uint64_t *bar, uint32_t parity)
{
    uint32_t ok;
    asm volatile("{.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(ok)
                 : "r"(smem_addr(bar)), "r"(parity)
                 : "memory");
    return ok != 0;
}

// ----------------------------------------------------------------------------------------------------- bulk copies
// Global to shared memory, `bytes` a multiple of 16, completing on `bar`.
WEFT_DEV void bulk_load(void *dst, const void *src, uint32_t bytes, uint64_t *bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem_addr(dst)),
        "l"(src), "r"(bytes), "r"(smem_addr(bar))
        : "memory");
}
// A box of a tensor of four dimensions, from coordinates (0, 0, c2, c3).
WEFT_DEV void bulk_load_box(void *dst, const void *map, uint32_t c2, uint32_t c3, uint64_t *bar)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, "
                 "%3, %4}], [%5];" ::"r"(smem_addr(dst)),
                 "l"(map), "r"(0), "r"(c2), "r"(c3), "r"(smem_addr(bar))
                 : "memory");
}
// Global memory that ordinary stores wrote is next read by a bulk copy of this thread.
WEFT_DEV void fence_proxy_async_global(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// 16 bytes past L1: data that other SMs write.
WEFT_DEV uint4 ld_cg(const void *p)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
WEFT_DEV uint32_t ld_cg32(const void *p)
{
    uint32_t v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// --------------------------------------------------------------------------------------------- matrix instructions
WEFT_DEV void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}
WEFT_DEV void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}
// d += a b: 16 x 8 x 16, bf16, fp32 accumulate
WEFT_DEV void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
WEFT_DEV void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WEFT_DEV void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> WEFT_DEV void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Descriptor of a K-major operand in atoms: rows of 128 bytes, 128-byte swizzle, 1024 bytes from eight rows to the next.
WEFT_DEV uint64_t wgmma_desc(uint32_t addr)
{
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

template <int REGS> WEFT_DEV void regs_dec(void) { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGS)); }
template <int REGS> WEFT_DEV void regs_inc(void) { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS)); }

// --------------------------------------------------------------------------------------------------------- numbers
WEFT_DEV float bf16_lo(uint32_t w) { return __uint_as_float(w << 16); }
WEFT_DEV float bf16_hi(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }
WEFT_DEV uint32_t pack_bf16(float lo, float hi) // round to nearest even
{
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}

#endif
