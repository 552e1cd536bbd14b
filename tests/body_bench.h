/* body_bench.h: a task body on its own, without engine or worker: buffers for one GEMM-like op, filled at random, and its
 * result in float64. Used by the bodies' tests, on the portable bodies.                                                */
#ifndef WEFT_TESTS_BODY_BENCH_H
#define WEFT_TESTS_BODY_BENCH_H

#include "../tasks/half.h"
#include "../tasks/kinds.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

struct GemmCase {
    uint32_t m, n, k;
    uint32_t dtype = WEFT_BF16, x_layout = WEFT_LAYOUT_FRAG, out_layout = WEFT_LAYOUT_FRAG;
    uint32_t epilogue = WEFT_EPI_NONE, flags = 0;
    uint32_t splits = 1, m_tile = 64, groups = 8; /* groups of 16 output rows a task */
    uint32_t rows = 0;                            /* of the step; 0: m */
    uint64_t seed = 1;
};

/* Memory as a device would have it: aligned, and with an end that sanitizers know. */
struct Buffer {
    uint8_t *p;
    uint64_t bytes;
    explicit Buffer(uint64_t n, uint8_t fill = 0xff)
        : p((uint8_t *)aligned_alloc(4096, (n + 4096) / 4096 * 4096)), bytes(n)
    {
        memset(p, fill, (n + 4096) / 4096 * 4096);
    }
    Buffer(const Buffer &) = delete;
    ~Buffer() { free(p); }
    uint64_t addr() const { return (uint64_t)(uintptr_t)p; }
};

struct BodyBench {
    GemmCase c;
    uint32_t out_cols;
    Buffer x, w, out, aux, bias, pk_x, pk_out, pk_aux, partial, scratch;
    weft_op_rt op{};
    weft_step_head step{};
    std::vector<double> xv, wv, auxv; /* as stored */
    static constexpr uint32_t TAG = 77;

    static uint64_t bytes16(uint32_t layout, uint32_t rows, uint32_t cols)
    {
        return weft_layout_bytes(layout, WEFT_BF16, rows, cols, 1);
    }
    static uint64_t packet_bytes(uint32_t rows, uint32_t cols)
    {
        return rows <= 8 ? weft_layout_bytes(WEFT_LAYOUT_PACKET, WEFT_BF16, rows, cols, 1) : 0;
    }
    static uint32_t padded_n(const GemmCase &c) { return (c.n + 15) / 16 * 16; }

    explicit BodyBench(const GemmCase &gc)
        : c(gc), out_cols(gc.epilogue == WEFT_EPI_GATED_SILU ? gc.n / 2 : gc.n), x(bytes16(gc.x_layout, gc.m, gc.k)),
          w(bytes16(WEFT_LAYOUT_ATOM, gc.n, gc.k), 0), out(bytes16(gc.out_layout, gc.m, out_cols)),
          aux(bytes16(gc.out_layout, gc.m, out_cols)), bias(padded_n(gc) * 4), pk_x(packet_bytes(gc.m, gc.k), 0),
          pk_out(packet_bytes(gc.m, out_cols), 0), pk_aux(packet_bytes(gc.m, out_cols), 0),
          partial((uint64_t)gc.splits * padded_n(gc) * gc.m * 4), scratch(WEFT_SCRATCH_BYTES)
    {
        uint32_t kb = weft_div_up(c.k, 64), split_kb = weft_div_up(kb, c.splits);
        op.x = x.addr(), op.w = w.addr(), op.out = out.addr(), op.pk_x = pk_x.addr(), op.pk_out = pk_out.addr();
        op.pk_aux = pk_aux.addr(), op.partial = partial.addr();
        op.aux = c.epilogue == WEFT_EPI_BIAS ? bias.addr() : aux.addr();
        op.m = c.m, op.n = c.n, op.k = c.k, op.m_tile = c.m_tile, op.split_kb = split_kb;
        op.n_split = weft_div_up(kb, split_kb), op.flags = c.flags, op.dtype = (uint8_t)c.dtype;
        op.epilogue = (uint8_t)c.epilogue, op.x_layout = (uint8_t)c.x_layout, op.out_layout = (uint8_t)c.out_layout;
        op.aux_layout = (uint8_t)c.out_layout, op.out_rows = c.m, op.out_cols = out_cols, op.eps = 1e-5f;
        step.seq = TAG, step.rows = c.rows ? c.rows : c.m;
        fill();
    }

    double put(Buffer &b, uint32_t layout, uint32_t rows, uint32_t cols, uint32_t r, uint32_t col, float v)
    {
        uint16_t h = weft_f32_to_half(c.dtype, v);
        memcpy(b.p + weft_offset16(layout, rows, cols, r, col), &h, 2);
        return weft_half_to_f32(c.dtype, h);
    }

    void put_packet_value(Buffer &b, uint32_t rows, uint32_t r, uint32_t col, double v)
    {
        uint64_t *p = (uint64_t *)b.p + weft_packet_index(weft_packet_rows(rows), r, col);
        uint32_t h = weft_f32_to_half(c.dtype, (float)v), shift = col % 2 * 16;
        *p = (*p & ~(0xffffull << shift) & 0xffffffffull) | (uint64_t)h << shift | (uint64_t)TAG << 32;
    }

    void fill()
    {
        for (uint32_t r = 0; r < c.m; r++)
            for (uint32_t i = 0; i < c.k; i++)
                xv.push_back(put(x, c.x_layout, c.m, c.k, r, i, weft_seeded(c.seed, r, i, 1.0f)));
        for (uint32_t r = 0; r < c.n; r++)
            for (uint32_t i = 0; i < c.k; i++)
                wv.push_back(
                    put(w, WEFT_LAYOUT_ATOM, c.n, c.k, r, i, weft_seeded(c.seed + 1, r, i, sqrtf(3.0f / (float)c.k))));
        for (uint32_t r = 0; r < c.m; r++)
            for (uint32_t i = 0; i < out_cols; i++)
                auxv.push_back(put(aux, c.out_layout, c.m, out_cols, r, i, weft_seeded(c.seed + 2, r, i, 1.0f)));
        for (uint32_t i = 0; i < c.n; i++)
            ((float *)bias.p)[i] = weft_seeded(c.seed + 3, 0, i, 1.0f);
        for (uint32_t r = 0; r < c.m && c.m <= 8; r++) {
            for (uint32_t i = 0; i < c.k; i++)
                put_packet_value(pk_x, c.m, r, i, xv[(size_t)r * c.k + i]);
            for (uint32_t i = 0; i < out_cols; i++)
                put_packet_value(pk_aux, c.m, r, i, auxv[(size_t)r * out_cols + i]);
        }
        /* What comes as packets must not be read from memory. */
        if (c.flags & WEFT_OP_X_PACKET) memset(x.p, 0xff, x.bytes);
        if (c.flags & WEFT_OP_AUX_PACKET) memset(aux.p, 0xff, aux.bytes);
    }

    double sum(uint32_t r, uint32_t row) const
    {
        double s = 0;
        for (uint32_t i = 0; i < c.k; i++)
            s += xv[(size_t)r * c.k + i] * wv[(size_t)row * c.k + i];
        if (!(c.flags & WEFT_OP_NORM)) return s;
        double squares = 0;
        for (uint32_t i = 0; i < c.k; i++)
            squares += xv[(size_t)r * c.k + i] * xv[(size_t)r * c.k + i];
        return s / std::sqrt(squares / c.k + (double)op.eps);
    }

    double expected(uint32_t r, uint32_t col) const
    {
        double v;
        switch (c.epilogue) {
        case WEFT_EPI_GATED_SILU:
            v = sum(r, col / 8 * 16 + col % 8);
            return v / (1 + std::exp(-v)) * sum(r, col / 8 * 16 + 8 + col % 8);
        case WEFT_EPI_RESIDUAL: return sum(r, col) + auxv[(size_t)r * out_cols + col];
        case WEFT_EPI_BIAS: return sum(r, col) + ((const float *)bias.p)[col];
        case WEFT_EPI_SILU: v = sum(r, col); return v / (1 + std::exp(-v));
        case WEFT_EPI_GELU: v = sum(r, col); return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
        default: return sum(r, col);
        }
    }

    float got(uint32_t r, uint32_t col) const
    {
        uint16_t h;
        memcpy(&h, out.p + weft_offset16(c.out_layout, c.m, out_cols, r, col), 2);
        return weft_half_to_f32(c.dtype, h);
    }

    /* ||got - want|| / ||want|| over the rows of the step. */
    double error() const
    {
        double d = 0, n = 0;
        for (uint32_t r = 0; r < step.rows; r++)
            for (uint32_t i = 0; i < out_cols; i++) {
                double e = expected(r, i), g = got(r, i);
                d += (g - e) * (g - e);
                n += e * e;
            }
        return std::sqrt(d / (n > 0 ? n : 1));
    }

    /* Bytes of out that belong to no element of the step's rows and are not poison any more. */
    uint64_t stray_bytes() const
    {
        std::vector<uint8_t> mine(out.bytes, 0);
        for (uint32_t r = 0; r < step.rows; r++)
            for (uint32_t i = 0; i < out_cols; i++) {
                uint64_t at = weft_offset16(c.out_layout, c.m, out_cols, r, i);
                mine[at] = mine[at + 1] = 1;
            }
        uint64_t n = 0;
        for (uint64_t i = 0; i < out.bytes; i++)
            n += !mine[i] && out.p[i] != 0xff;
        return n;
    }

    static int read_packets(void *, uint64_t buffer, uint64_t first, uint32_t mask, uint32_t words[8])
    {
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t v = mask >> i & 1 ? ((const uint64_t *)(uintptr_t)buffer)[first + i] : (uint64_t)TAG << 32;
            if (v >> 32 != TAG) return 1;
            words[i] = (uint32_t)v;
        }
        return 0;
    }
    static void write_packet(void *, uint64_t buffer, uint64_t index, uint32_t word)
    {
        ((uint64_t *)(uintptr_t)buffer)[index] = word | (uint64_t)TAG << 32;
    }

    int run(weft_body *body, uint32_t a, uint32_t b, uint32_t d, uint32_t e)
    {
        static const weft_worker_calls calls = {read_packets, write_packet, nullptr, nullptr};
        weft_task t{};
        t.tile[0] = a, t.tile[1] = b, t.tile[2] = d, t.tile[3] = e;
        weft_task_ctx ctx{};
        ctx.t = &t, ctx.op = &op, ctx.step = &step, ctx.scratch = scratch.p, ctx.calls = &calls;
        return body(&ctx);
    }

    /* All tiles of the op, then the reduction if it is split. */
    int run_all(weft_body *gemm)
    {
        uint32_t kb = weft_div_up(c.k, 64), ng = weft_div_up(c.n, 16);
        for (uint32_t m0 = 0; m0 < c.m; m0 += c.m_tile)
            for (uint32_t g = 0; g < ng; g += c.groups)
                for (uint32_t k0 = 0; k0 < kb; k0 += op.split_kb) {
                    uint32_t nk = kb - k0 < op.split_kb ? kb - k0 : op.split_kb,
                             n = ng - g < c.groups ? ng - g : c.groups;
                    if (run(gemm, m0, g, n, k0 | nk << 16)) return 1;
                }
        if (!(c.flags & WEFT_OP_PARTIAL)) return 0;
        for (uint32_t m0 = 0; m0 < c.m; m0 += c.m_tile)
            for (uint32_t g = 0; g < ng; g += c.groups)
                if (run(weft__body_reduce, m0, g, ng - g < c.groups ? ng - g : c.groups, c.m_tile)) return 1;
        return 0;
    }
};

#endif
