/* gemm_dot.h: the inner loops of gemm.c, which includes this once an instruction set: DOT(name) names the functions,
 * DOT_TARGET is the attribute that they carry. A compiler lowers vectors by the target of the function in which they and
 * their types are written, before it clones or inlines: so each set has its own text, and the types stand inside.       */
#define DOT_INLINE DOT_TARGET static inline __attribute__((always_inline))

/* acc[row] += w . x[row] over one block of 64, for one row of W (chunk c of it at w + 16 * (c ^ swizzle)). */
DOT_INLINE void DOT(dot_block)(uint32_t dtype, const uint8_t *w, uint32_t swizzle, const float *x, uint32_t x_stride,
                               sum8 *acc, uint32_t rows)
{
    typedef float v8f __attribute__((vector_size(32)));
    typedef float v8f_at __attribute__((vector_size(32), aligned(4), may_alias)); /* in memory, aligned as floats are */
    typedef uint32_t v8u __attribute__((vector_size(32)));
    typedef uint16_t v8h __attribute__((vector_size(16)));
    typedef uint16_t v8h_at __attribute__((vector_size(16), may_alias));
    v8f v[8];
#pragma GCC unroll 8
    for (uint32_t c = 0; c < 8; c++) {
        v8h h = *(const v8h_at *)(w + ((c ^ swizzle) * 16));
        v8u u = __builtin_convertvector(h, v8u);
        if (dtype == WEFT_FP16) { /* as weft_fp16_to_f32, eight at a time */
            v8u m = (u & 0x7fff) << 13, special = (v8u)(m >= 0x0f800000u), scaled = (v8u)((v8f)m * 0x1p112f);
            v[c] = (v8f)(((u & 0x8000) << 16) | (special & (m | 0x7f800000u)) | (~special & scaled));
        } else {
            v[c] = (v8f)(u << 16);
        }
    }
    for (uint32_t row = 0; row < rows; row++, x += x_stride) {
        const v8f_at *xv = (const v8f_at *)x;
        v8f low = (v[0] * xv[0] + v[1] * xv[1]) + (v[2] * xv[2] + v[3] * xv[3]);
        v8f high = (v[4] * xv[4] + v[5] * xv[5]) + (v[6] * xv[6] + v[7] * xv[7]);
        *(v8f_at *)acc[row].lane += low + high;
    }
}

DOT_INLINE void DOT(dot_atoms)(uint32_t dtype, const uint8_t *w, uint32_t n, const float *x, uint32_t x_stride,
                               sum8 (*acc)[ROW_BLOCK], uint32_t rows)
{
    for (uint32_t b = 0; b < n; b++, w += WEFT_ATOM_BYTES, x += 64)
        for (uint32_t r = 0; r < 16; r++)
            DOT(dot_block)(dtype, w + r * 128, r & 7, x, x_stride, acc[r], rows);
}

/* One group of 16 rows of W, a run of n atoms at w, against `rows` rows of x. */
DOT_TARGET static void DOT(dot_run)(uint32_t dtype, const uint8_t *w, uint32_t n, const float *x, uint32_t x_stride,
                                    sum8 (*acc)[ROW_BLOCK], uint32_t rows)
{
    if (dtype == WEFT_FP16)
        DOT(dot_atoms)(WEFT_FP16, w, n, x, x_stride, acc, rows);
    else if (rows == 1)
        DOT(dot_atoms)(WEFT_BF16, w, n, x, x_stride, acc, 1);
    else
        DOT(dot_atoms)(WEFT_BF16, w, n, x, x_stride, acc, rows);
}

#undef DOT
#undef DOT_TARGET
#undef DOT_INLINE
