/* layout.h: where element (row, col) of a tensor lies. The one place that knows; C11, C++ and CUDA.
 *
 *   ATOM    2 KB atoms of 16 rows x 64 columns (bf16/fp16): row r of an atom is 128 bytes, its 16-byte chunk c stands at
 *           chunk c ^ (r & 7). Atoms run along the columns first: [rows/16][cols/64]. A streaming GEMM reads a run of
 *           them by one bulk copy, ldmatrix and wgmma read them without bank conflicts.
 *   PANEL   the same atoms, rows first: [cols/64][rows/16], so a tile of 128 rows x 64 columns is one run of 16 KB.
 *   FRAG    1 KB blocks of 8 rows x 64 columns, [cols/64][rows/8], in the order in which a warp feeds them to
 *           mma.m16n8k16 as B: lane 4*(row%8) + (col%8)/2 holds 8 words (word i: columns 16*(i/2) + 8*(i%2) + 2*(lane%4),
 *           + 1); words 0..3 of all lanes come first (512 bytes, 16 a lane), then words 4..7.
 *   PACKET  FRAG's words for `mp` rows (1, 2, 4 or 8), each as a 64-bit packet (two elements, tag):
 *           [cols/64][word/2][mp rows][4][2], so lane t of row n reads words 2i, 2i+1 as one 16-byte vector.
 *   PARTIAL fp32, [split][n/16][rows][16].
 * Rows are padded to 16 (ATOM, PANEL) or 8 (FRAG), columns to 64 (PARTIAL: 16). Padding of weights is zero.            */
#ifndef WEFT_TASKS_LAYOUT_H
#define WEFT_TASKS_LAYOUT_H

#include "abi.h"

#ifdef __CUDACC__
#define WEFT_HD static __host__ __device__ __forceinline__
#else
#define WEFT_HD static inline
#endif

#define WEFT_ATOM_BYTES 2048u
#define WEFT_FRAG_BYTES 1024u
#define WEFT_PAGE_BYTES 16384u /* 8 atoms: what one bulk copy brings; 16 rows x 512 columns */
#define WEFT_K_CHUNK 512u      /* unit of weft_wait.due */

WEFT_HD uint32_t weft_div_up(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }
WEFT_HD uint64_t weft_round_up64(uint64_t a, uint64_t b) { return (a + b - 1) / b * b; }

/* Most groups of 16 rows of W that a streaming task with so many rows of x may take: its sums lie in registers. */
WEFT_HD uint32_t weft_stream_groups(uint32_t rows) { return rows <= 32 ? 8 : 4; }

/* Rows a packet buffer holds for m rows: 1, 2, 4 or 8. */
WEFT_HD uint32_t weft_packet_rows(uint32_t m) { return m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8; }

/* Byte of element (r, c) in its atom. */
WEFT_HD uint32_t weft_atom_byte(uint32_t r, uint32_t c) { return r * 128 + (((c / 8) ^ (r & 7)) * 16) + (c % 8) * 2; }

WEFT_HD uint64_t weft_atom_offset(uint32_t cols, uint32_t row, uint32_t col)
{
    uint64_t atom = (uint64_t)(row / 16) * weft_div_up(cols, 64) + col / 64;
    return atom * WEFT_ATOM_BYTES + weft_atom_byte(row % 16, col % 64);
}

WEFT_HD uint64_t weft_panel_offset(uint32_t rows, uint32_t row, uint32_t col)
{
    uint64_t atom = (uint64_t)(col / 64) * weft_div_up(rows, 16) + row / 16;
    return atom * WEFT_ATOM_BYTES + weft_atom_byte(row % 16, col % 64);
}

/* Word (pair of elements) of column c in its block of 64: which of a lane's 8 words, and which of the row's 4 lanes. */
WEFT_HD uint32_t weft_frag_word(uint32_t c) { return (c / 16) * 2 + (c % 16) / 8; }
WEFT_HD uint32_t weft_frag_lane(uint32_t c) { return (c % 8) / 2; }

WEFT_HD uint64_t weft_frag_offset(uint32_t rows, uint32_t row, uint32_t col)
{
    uint64_t block = (uint64_t)(col / 64) * weft_div_up(rows, 8) + row / 8;
    uint32_t c = col % 64, word = weft_frag_word(c), lane = (row % 8) * 4 + weft_frag_lane(c);
    return block * WEFT_FRAG_BYTES + (word / 4) * 512 + lane * 16 + (word % 4) * 4 + (c % 2) * 2;
}

/* Index (in packets) of the pair that holds column col of row `row`. */
WEFT_HD uint64_t weft_packet_index(uint32_t mp, uint32_t row, uint32_t col)
{
    uint32_t c = col % 64, word = weft_frag_word(c);
    return (((uint64_t)(col / 64) * 4 + word / 2) * mp + row) * 8 + weft_frag_lane(c) * 2 + word % 2;
}

/* Index (in floats) of out[row][n] of split s. */
WEFT_HD uint64_t weft_partial_index(uint32_t rows, uint32_t n_total, uint32_t s, uint32_t row, uint32_t n)
{
    return (((uint64_t)s * weft_div_up(n_total, 16) + n / 16) * rows + row) * 16 + n % 16;
}

/* Byte offset of element (row, col) of a 16-bit tensor in any layout but PACKET and PARTIAL. */
WEFT_HD uint64_t weft_offset16(uint32_t layout, uint32_t rows, uint32_t cols, uint32_t row, uint32_t col)
{
    switch (layout) {
    case WEFT_LAYOUT_ATOM: return weft_atom_offset(cols, row, col);
    case WEFT_LAYOUT_PANEL: return weft_panel_offset(rows, row, col);
    case WEFT_LAYOUT_FRAG: return weft_frag_offset(rows, row, col);
    default: return ((uint64_t)row * cols + col) * 2;
    }
}

/* Bytes of a tensor, padding included; 0 if the layout doesn't go with the type. splits: PARTIAL only. */
WEFT_HD uint64_t weft_layout_bytes(uint32_t layout, uint32_t dtype, uint32_t rows, uint32_t cols, uint32_t splits)
{
    uint64_t elem = dtype == WEFT_FP32 || dtype == WEFT_U32 ? 4 : dtype == WEFT_FP8_E4M3 || dtype == WEFT_INT8 ? 1 : 2;
    switch (layout) {
    case WEFT_LAYOUT_ROW: return (uint64_t)rows * cols * elem;
    case WEFT_LAYOUT_ATOM:
    case WEFT_LAYOUT_PANEL:
        return elem != 2 ? 0 : (uint64_t)weft_div_up(rows, 16) * weft_div_up(cols, 64) * WEFT_ATOM_BYTES;
    case WEFT_LAYOUT_FRAG:
        return elem != 2 ? 0 : (uint64_t)weft_div_up(rows, 8) * weft_div_up(cols, 64) * WEFT_FRAG_BYTES;
    case WEFT_LAYOUT_PACKET:
        return elem != 2 || rows > 8 ? 0 : (uint64_t)weft_div_up(cols, 64) * 32 * 8 * weft_packet_rows(rows);
    case WEFT_LAYOUT_PARTIAL: return elem != 4 ? 0 : (uint64_t)splits * weft_div_up(cols, 16) * rows * 64;
    default: return 0;
    }
}

#endif
