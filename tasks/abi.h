/* abi.h: what the planner writes and what every worker reads.
 *
 * Enters: nothing. Leaves: the structs that an image consists of, the structs that a running engine keeps in device
 * memory, and the numbers that both sides must agree on. Compiled by C11, C++ and nvcc; every struct exists once, has
 * fixed widths and no pointers (addresses of a running engine are uint64_t), and its size is asserted.
 *
 *   image file                                   device memory of a running engine
 *   weft_image_header                            weft_dev        root: where everything is
 *   weft_image_device[n_device]                  weft_ctl        step ring, gate, done, abort, queue head and tail
 *   weft_image_queue[n_queue]   one per          weft_task[]     as in the image
 *     (variant, device)                          weft_op_rt[]    ops with their addresses
 *   weft_tensor[] weft_weight[] weft_op[]        weft_line[]     one readiness counter a line
 *   weft_task[]   order[]  side[]                lists, deps, pending words, ring
 *   weft_counter[] deps[]  args[]  costs[]       arenas: weights, work
 *   strings
 *
 * Change anything here and WEFT_ABI_VERSION goes up: images of another version are refused.                          */
#ifndef WEFT_TASKS_ABI_H
#define WEFT_TASKS_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define WEFT_ALIGNAS(n) alignas(n)
#define WEFT_STATIC_ASSERT static_assert
#else
#include <assert.h>
#include <stdalign.h>
#define WEFT_ALIGNAS(n) alignas(n)
#define WEFT_STATIC_ASSERT _Static_assert
#endif

#define WEFT_ABI_VERSION 3u
#define WEFT_IMAGE_MAGIC 0x474d495446455721ull /* "!WEFTIMG" read as a little-endian 64-bit word */
#define WEFT_NONE 0xffffffffu                  /* no tensor, no weight, no name */
#define WEFT_MAX_DEVICES 64u                   /* logical devices in one image; size of the tables that list peers */
#define WEFT_LINE_BYTES 128u                   /* one counter a line: no two words that differ in writer share one */

/* ------------------------------------------------------------------------------------------------ enumerations */

enum weft_kind {
#define WEFT_KIND(ID, name, text) WEFT_KIND_##ID,
#include "tasks.def"
#undef WEFT_KIND
    WEFT_KIND_COUNT
};

enum weft_dtype { /* element types; FP8 and INT8 carry a scale tensor (weft_op.scale) */
    WEFT_BF16 = 0,
    WEFT_FP16 = 1,
    WEFT_FP32 = 2,
    WEFT_U32 = 3,
    WEFT_FP8_E4M3 = 4,
    WEFT_INT8 = 5
};

/* How a matrix of `rows` x `cols` elements lies in memory (offsets: layout.h). */
enum weft_layout {
    WEFT_LAYOUT_ROW = 0,     /* row-major, no padding */
    WEFT_LAYOUT_ATOM = 1,    /* weights: atoms of 16 rows x 64 columns, [rows/16][cols/64], 128-byte swizzle inside */
    WEFT_LAYOUT_PANEL = 2,   /* activations of wide GEMMs: the same atoms, [cols/64][rows/16] */
    WEFT_LAYOUT_FRAG = 3,    /* activations of streaming GEMMs: 8 x 64 in mma operand order, [cols/64][rows/8] */
    WEFT_LAYOUT_PACKET = 4,  /* 64-bit packets of two elements and a tag, for up to 8 rows */
    WEFT_LAYOUT_PARTIAL = 5, /* fp32 partial sums of a split-K GEMM: [split][rows of W /16][rows of x][16] */
    WEFT_LAYOUT_COUNT
};

enum weft_role {          /* what a tensor is for */
    WEFT_ROLE_WEIGHT = 0, /* lies in the weights arena, written once at load */
    WEFT_ROLE_ACT = 1,    /* lies in the work arena, like all that follow */
    WEFT_ROLE_INPUT = 2,  /* written by the host between steps */
    WEFT_ROLE_OUTPUT = 3, /* read by the host after a step */
    WEFT_ROLE_PACKET = 4,
    WEFT_ROLE_PARTIAL = 5,
    WEFT_ROLE_KV = 6,   /* rows of it that a step writes are data: it is written by (row of the step, head) */
    WEFT_ROLE_TABLE = 7 /* page tables, tokens fed back */
};

enum weft_epilogue {
    WEFT_EPI_NONE = 0,
    WEFT_EPI_GATED_SILU = 1, /* W holds 8 gate rows beside 8 up rows; out = silu(gate) * up, half as many columns */
    WEFT_EPI_RESIDUAL = 2,   /* out = aux + x W^T */
    WEFT_EPI_BIAS = 3,       /* out = x W^T + aux (aux: n fp32 values) */
    WEFT_EPI_SILU = 4,
    WEFT_EPI_GELU = 5 /* 0.5 v (1 + erf(v / sqrt 2)) */
};

enum weft_policy {
    WEFT_POLICY_STATIC = 0,
    WEFT_POLICY_FIFO = 1,
    WEFT_POLICY_PUSH = 2,
    WEFT_POLICY_STEAL = 3,
    WEFT_POLICY_PRIORITY = 4,
    WEFT_POLICY_COUNT
};

enum weft_scope {
    WEFT_SCOPE_GPU = 0,
    WEFT_SCOPE_SYS = 1
}; /* .sys if any party of the counter is on another device */

enum weft_op_flag {
    WEFT_OP_NORM = 1u << 0, /* rows of x are divided by sqrt(mean(x^2) + eps); the gain is folded into W at load. With
                               PARTIAL: each split stores its sum of squares, and the REDUCE op, NORM too, divides */
    WEFT_OP_X_PACKET = 1u << 1,   /* x is read from its packets (weft_op.pk_x) */
    WEFT_OP_OUT_PACKET = 1u << 2, /* out is written as packets too (weft_op.pk_out) */
    WEFT_OP_AUX_PACKET = 1u << 3, /* the residual is read from packets (weft_op.pk_aux) */
    WEFT_OP_PARTIAL = 1u << 4,    /* out is a PARTIAL tensor; a REDUCE op applies norm and epilogue */
    WEFT_OP_X_SYS = 1u << 5,      /* set by the engine: another device writes pk_x */
    WEFT_OP_OUT_SYS = 1u << 6,    /* set by the engine: pk_out lies with another device */
    WEFT_OP_ALTERNATE = 1u << 7 /* what tasks of another device use here when this one steals them: reads over there */
};

/* --------------------------------------------------------------------------------------------------- the image */

/* One wait: all `arrivals` producers of the counter have arrived in this step (lag 0) or in the step before (lag 1).
 * Target = base + (uses - lag) * arrivals, compared by modular difference. `due` is the first K chunk (512 columns) of
 * the task that needs the wait: 0 gates its start. Chunks past 255 count as 255, which is early, so safe.              */
typedef struct weft_wait {
    uint32_t counter; /* in the waiting device's table of this variant */
    uint16_t arrivals;
    uint8_t lag;
    uint8_t due;
} weft_wait;
WEFT_STATIC_ASSERT(sizeof(weft_wait) == 8, "two waits are one 16-byte load");

/* One increment of one counter, in the memory of the device that waits for it. */
typedef struct weft_signal {
    uint32_t counter; /* in the table of `device`, same variant */
    uint16_t device;
    uint16_t scope; /* enum weft_scope */
} weft_signal;
WEFT_STATIC_ASSERT(sizeof(weft_signal) == 8, "two signals are one 16-byte load");

/* One tile of one op. Meaning of tile[] by kind:
 *   NOP           -                    runs for cost_ns
 *   MIX           args, n_args, -, -   args[]: constant, n_in, in..., n_out, (device, out)...; in and out are offsets
 *                                      in 32-bit words into work arenas; out = mix(constant, in...) (mix.h)
 *   GEMM_STREAM   m0, g0, ng, k        rows from m0 (multiple of 8), output rows 16*g0 .. 16*(g0+ng) of W, ng <= 8;
 *                                      k = kb0 | nkb << 16: K range in blocks of 64; split number is kb0 / op.split_kb
 *   GEMM_WIDE     m0, g0, ng, k        the same with ng <= 16, m0 a multiple of 128
 *   REDUCE        m0, g0, ng, rows     groups of 16 output rows, `rows` rows from m0
 *   RMSNORM       m0, 0, ng, rows      whole rows: `ng` is all groups of 16 columns
 *   COPY          m0, g0, ng, rows     groups of 16 columns from g0 (a multiple of 4), `rows` rows from m0 (a multiple of
 *                                      what a block of the layout has: whole blocks are copied)
 *   ATTN          share, n_shares, -, -  this task's share of the step's units
 *   ATTN_COMBINE  first, count, -, -   (row * kv heads + kv head) from first
 *   PAGES         -                    all page writes of the step
 *   EMBED         m0, 0, ng, rows      whole rows, as RMSNORM
 *   ROPE          m0, h0, nh, rows     KV heads h0 .. +nh, and the query heads that go with them
 *   SURVEY        m0, part, n_parts, rows
 *   SAMPLE        m0, -, -, rows                                                                                    */
typedef struct weft_task {
    WEFT_ALIGNAS(16) uint8_t kind;
    uint8_t alt_device; /* may be stolen by this device once ready; 0xff: by none */
    uint16_t op;        /* in the device's op table */
    uint16_t n_wait;
    uint16_t n_signal;
    uint32_t tile[4];
    uint32_t cost_ns; /* estimate; the length of a NOP */
    uint32_t extra;   /* in side[]: waits 2.., then signals 2.. (8 bytes each) */
    weft_wait wait[2];
    weft_signal signal[2];
} weft_task;
WEFT_STATIC_ASSERT(sizeof(weft_task) == 64, "a descriptor is half a line");
WEFT_STATIC_ASSERT(offsetof(weft_task, wait) == 32 && offsetof(weft_task, signal) == 48,
                   "loaded as four 16-byte words");

typedef struct weft_counter {
    uint32_t arrivals; /* signals a step */
    uint16_t scope;    /* enum weft_scope */
    uint16_t pad;
    uint32_t dep; /* in deps[] of its queue: the tasks that wait for it with lag 0, for the push family */
    uint32_t n_dep;
} weft_counter;
WEFT_STATIC_ASSERT(sizeof(weft_counter) == 16, "one 16-byte load");

typedef struct weft_tensor {
    uint32_t name; /* offset in strings, or WEFT_NONE */
    uint16_t device;
    uint8_t dtype, layout, role, pad0;
    uint16_t pad1;
    /* logical: x is m x k, W is n x k, PACKET m x k, PARTIAL splits*m x n, KV and TABLE: see attn */
    uint32_t rows, cols;
    uint32_t weight; /* in weights[], for ROLE_WEIGHT; else WEFT_NONE */
    uint32_t splits; /* PARTIAL: number of splits, else 1 */
    uint64_t offset; /* in its arena, multiple of 1024 (PARTIAL: of 64, PACKET: of 256: slices of a buffer) */
    uint64_t bytes;  /* as laid out, padding included */
} weft_tensor;
WEFT_STATIC_ASSERT(sizeof(weft_tensor) == 48, "no padding");

enum weft_fill {
    WEFT_FILL_MODEL = 0,
    WEFT_FILL_SEED = 1
};
/* Where a weight comes from: names in the model's files, or seeded values (seed.h). Rows are rows_a of a, then rows_b of b,
 * then rows_c of c, over and over (gate, up: 8, 8; a KV head's queries, keys, values); rows past a tensor's end are zero.
 * The columns are multiplied by the gain where one is given. A vector of fp32 counts its columns as such rows.           */
typedef struct weft_weight {
    uint32_t fill;                   /* enum weft_fill */
    uint32_t a, b, c, gain;          /* names: offsets in strings, or WEFT_NONE */
    uint32_t rows_a, rows_b, rows_c; /* 0 where there is no such name; with a alone they don't matter */
    uint64_t seed;
    float scale; /* seeded values are uniform in [-scale, scale) */
    /* the tensor is a slice: its (0, 0) is (row0, col0) of the whole packed matrix; multiples of 16, 64 */
    uint32_t row0, col0;
    uint32_t pad;
} weft_weight;
WEFT_STATIC_ASSERT(sizeof(weft_weight) == 56, "no padding");

/* An op: everything that its tasks share. RMSNORM: x, w (the gain: one row of fp32, or WEFT_NONE), out, eps; COPY: x, out;
 * both with n = k. What decoders have beside: attn.h (PAGES, ROPE, ATTN, ATTN_COMBINE), sample.h (EMBED, SURVEY, SAMPLE). Tensor
 * fields are indices into tensors[], or WEFT_NONE. */
typedef struct weft_op {
    uint32_t name; /* offset in strings, or WEFT_NONE */
    uint16_t device;
    uint8_t kind, dtype;
    uint8_t epilogue, pad0;
    uint16_t alt;      /* where tasks have an alternate device: the ALTERNATE op to use there, in that device's table */
    uint32_t flags;    /* enum weft_op_flag */
    uint32_t m, n, k;  /* x: m x k, W: n x k; out: m x n, or m x n/2 if gated */
    uint32_t m_tile;   /* rows a task takes (the last may have fewer) */
    uint32_t split_kb; /* K blocks of 64 a split takes; all of them if K is not split */
    uint32_t n_split;
    uint32_t x, w, out, aux;
    uint32_t scale; /* of FP8 and INT8 weights; ROPE: its vector of fp32; SAMPLE: what SURVEY found */
    uint32_t pk_x, pk_out, pk_aux, partial;
    /* ATTN, ATTN_COMBINE: heads, kv_heads, head_dim, block_tokens, max_blocks, max_pages of a sequence */
    uint32_t param[6];
    float eps;
    /* PARTIAL of a GEMM and REDUCE, with NORM: PARTIAL tensor of m x groups of W; [split][group][row] is the sum of squares
       of the row's K range, stored by each task for its groups; else WEFT_NONE */
    uint32_t squares;
    /* row of costs[]: ns of the whole op on each device; 0: as the cost model has it; WEFT_NONE: it can't run there. Or
       WEFT_NONE: all as the cost model has it */
    uint32_t cost;
} weft_op;
WEFT_STATIC_ASSERT(sizeof(weft_op) == 112, "no padding");

typedef struct weft_image_device {
    uint32_t workers;  /* planned; static lists are cut again if the engine has another number */
    uint32_t op, n_op; /* range of ops[]; weft_task.op counts from `op` */
    uint32_t pad;
    uint64_t weight_bytes, work_bytes; /* size of the two arenas */
} weft_image_device;
WEFT_STATIC_ASSERT(sizeof(weft_image_device) == 32, "no padding");

/* What one device does in one variant. Ranges index the image's global arrays. */
typedef struct weft_image_queue {
    uint32_t task, n_task;       /* tasks[]; a task's id is its index in this range */
    uint32_t order;              /* order[order .. order + n_task): task ids in queue order */
    uint32_t side, n_side;       /* side[] */
    uint32_t counter, n_counter; /* counters[] */
    uint32_t dep, n_dep;         /* deps[]: task ids */
    uint32_t arg, n_arg;         /* args[] */
    uint32_t pad;
} weft_image_queue;
WEFT_STATIC_ASSERT(sizeof(weft_image_queue) == 48, "no padding");

typedef struct weft_section { /* an array in the image file */
    uint64_t offset;          /* from the start of the file, multiple of 16 */
    uint64_t count;           /* elements */
} weft_section;

typedef struct weft_image_header {
    uint64_t magic;
    uint32_t version, header_bytes;
    uint64_t bytes; /* of the file */
    uint64_t hash;  /* XXH3-64 of the file with this field zero: the plan hash */
    uint32_t n_variant, n_device;
    uint32_t policies; /* bit p: proven for enum weft_policy p */
    uint32_t strategy; /* offset in strings: the strategy's name */
    uint64_t seed;
    weft_section devices, queues, tensors, weights, ops, tasks, order, side, counters, deps, args, costs, strings;
} weft_image_header;
WEFT_STATIC_ASSERT(sizeof(weft_image_header) == 264, "no padding");
/* queues[variant * n_device + device]; side[]: uint64_t; order[], deps[], args[]: uint32_t; strings[]: bytes, NUL-ended;
 * costs[row * n_device + device]: uint32_t */

/* ------------------------------------------------------------------------------------------- the running engine */

typedef struct weft_line { /* a word that one party polls, alone on its line */
    WEFT_ALIGNAS(128) uint32_t value;
    uint32_t pad[31];
} weft_line;
WEFT_STATIC_ASSERT(sizeof(weft_line) == WEFT_LINE_BYTES, "one line");

/* An op with its addresses as its device sees them. Built by the engine at load, immutable while the kernel runs. */
typedef struct weft_op_rt {
    WEFT_ALIGNAS(16) uint64_t x;
    uint64_t w, out, aux;
    uint64_t pk_x, pk_out, pk_aux, partial;
    uint32_t m, n, k, m_tile;
    uint32_t split_kb, n_split, flags;
    uint8_t dtype, epilogue, x_layout, out_layout;
    uint32_t out_rows, out_cols; /* of the out tensor; out_rows also of aux */
    uint32_t param[6];
    uint8_t aux_layout, pad0;
    uint16_t alt; /* as in weft_op */
    float eps;
    uint64_t squares, scale;
    uint64_t pad1;
} weft_op_rt;
WEFT_STATIC_ASSERT(sizeof(weft_op_rt) == 160, "loaded as ten 16-byte words");

#define WEFT_STEP_RECORD_BYTES 4096u
#define WEFT_STEP_RING 16u /* steps in flight, a power of two */

/* What the host says about one step. The head travels as 16 packets (32 bits and the tag `seq`), so one load of a line
 * brings it; the payload follows in plain words, ordered by the head.                                               */
typedef struct weft_step_head {
    uint32_t seq; /* number of this step, from 1: the tag of its packets and of the packet edges */
    uint32_t variant;
    uint32_t uses;  /* steps of this variant so far, this one included */
    uint32_t rows;  /* rows of x that count, at most the variant's */
    uint32_t flags; /* enum weft_step_flag */
    uint32_t payload_bytes;
    uint32_t deadline_us; /* 0: none */
    uint32_t pad[9];
} weft_step_head;
WEFT_STATIC_ASSERT(sizeof(weft_step_head) == 64, "16 words, one packet each");
enum weft_step_flag {
    WEFT_STEP_STOP = 1u << 0 /* leave the kernel; nothing else in the record counts */
};

#define WEFT_STEP_PAYLOAD_BYTES (WEFT_STEP_RECORD_BYTES - 128u)
typedef struct weft_step_record {
    WEFT_ALIGNAS(128) uint64_t head[16]; /* packet i: word i of weft_step_head | (uint64_t)seq << 32 */
    uint8_t payload[WEFT_STEP_PAYLOAD_BYTES];
} weft_step_record;
WEFT_STATIC_ASSERT(sizeof(weft_step_record) == WEFT_STEP_RECORD_BYTES, "a record is a page");

/* Payload of a step of a decoder: the head, n_row rows, n_write page writes. Rows are tokens: one a sequence that
 * decodes, several of a sequence whose prompt is read. Rows of one sequence stand in the order of their positions.      */
#define WEFT_MAX_ROWS 64u
#define WEFT_TOKEN_OF 0x80000000u /* weft_step_row.token: what SAMPLE made of row (token & 63) in the step before */

enum weft_row_flag {
    WEFT_ROW_SAMPLE = 1u << 0, /* SAMPLE chooses the token after this one */
    WEFT_ROW_LOGITS = 1u << 1  /* and stores the row's logits */
};

typedef struct weft_step_row {
    uint32_t kv_len;    /* tokens that the row sees, itself included: its position is kv_len - 1; 0: nothing is done */
    uint32_t slot;      /* its sequence's row of the page table */
    uint32_t token;     /* id, or WEFT_TOKEN_OF | row */
    uint32_t flags;     /* enum weft_row_flag */
    float temperature;  /* 0: the most likely token */
    float top_p, min_p; /* 1, 0: off */
    float penalty;      /* of tokens that the sequence holds (Keskar et al. 2019); 1: off */
    uint32_t top_k;     /* 0: off */
    uint32_t seed;      /* the draw hashes it with the position */
    uint32_t pad[2];
} weft_step_row;
WEFT_STATIC_ASSERT(sizeof(weft_step_row) == 48, "three 16-byte words");

typedef struct weft_page_write { /* table[slot][index] = page, before anything of the step reads the table */
    uint16_t slot, index;
    uint32_t page;
} weft_page_write;

typedef struct weft_step_batch {
    uint32_t n_row, n_write;
    uint32_t pad[2];
    weft_step_row row[WEFT_MAX_ROWS]; /* n_row of them; the writes follow the last one */
} weft_step_batch;
WEFT_STATIC_ASSERT(sizeof(weft_step_batch) == 16 + 48 * WEFT_MAX_ROWS, "no padding");

#define WEFT_BATCH_BYTES(n_row, n_write) (16u + 48u * (n_row) + 8u * (n_write))
#define WEFT_MAX_PAGE_WRITES 110u /* beside 64 rows: what is left of the payload */
WEFT_STATIC_ASSERT(WEFT_BATCH_BYTES(WEFT_MAX_ROWS, WEFT_MAX_PAGE_WRITES) <= WEFT_STEP_PAYLOAD_BYTES, "they fit");

/* Who stopped, where, waiting for what. Written once, by the worker that wins the abort word. */
enum weft_abort_cause {
    WEFT_ABORT_NONE = 0,
    WEFT_ABORT_HOST = 1,    /* the host asked */
    WEFT_ABORT_COUNTER = 2, /* a counter did not reach its target before the deadline */
    WEFT_ABORT_PACKET = 3,  /* a packet did not arrive before the deadline */
    WEFT_ABORT_FUTURE = 4,  /* a packet or counter from a step that has not begun: the image is wrong */
    WEFT_ABORT_GATE = 5,    /* a device did not finish the step before */
    WEFT_ABORT_QUEUE = 6,   /* no task became ready */
    WEFT_ABORT_CHECKIN = 7, /* not all workers are resident */
    WEFT_ABORT_BODY = 8,    /* a task's body did not return (seen by the host) */
    WEFT_ABORT_INTERNAL = 9 /* shared-memory hand-over inside a worker stalled */
};
typedef struct weft_report {
    uint32_t cause, device, worker, step;
    uint32_t task, counter, expected, seen; /* WEFT_NONE where it does not apply; PACKET: counter = packet index */
    uint64_t waited_ns;
    uint32_t pad[6];
} weft_report;
WEFT_STATIC_ASSERT(sizeof(weft_report) == 64, "half a line");

/* Device memory, one a device. Each line has one kind of writer. */
typedef struct weft_ctl {
    weft_line published; /* steps forwarded to this device; by the forwarder (CUDA polls the head's packets) */
    weft_line done;      /* worker completions, all steps; every worker adds 1 a step */
    weft_line finished[WEFT_MAX_DEVICES]; /* [d]: steps that device d has finished; written by d's last worker */
    weft_line abort;                      /* not 0: leave; enum weft_abort_cause */
    weft_line checkin;                    /* workers resident */
    weft_line head, tail;                 /* push: next ticket to take, next slot to fill */
    weft_step_record ring[WEFT_STEP_RING];
} weft_ctl;

/* What SAMPLE made of each row with WEFT_ROW_SAMPLE: complete when the step is. */
typedef struct weft_step_result {
    uint32_t token[WEFT_MAX_ROWS]; /* WEFT_NONE: a logit was not a number */
    float logprob[WEFT_MAX_ROWS];  /* of that token, natural logarithm, before temperature and cuts */
} weft_step_result;

/* Host memory that host and devices share (pinned), one an engine. */
typedef struct weft_mailbox {
    weft_step_record ring[WEFT_STEP_RING]; /* host writes, rank 0's device reads; slot seq % WEFT_STEP_RING */
    weft_line completed[WEFT_MAX_DEVICES]; /* [d]: last step that device d finished; device writes */
    weft_line abort_request;               /* host writes: enum weft_abort_cause */
    weft_line abort;                       /* device writes: not 0 once `report` is complete */
    WEFT_ALIGNAS(128) weft_report report;
    weft_line resident[WEFT_MAX_DEVICES]; /* [d]: workers of device d that have checked in; device writes */
    WEFT_ALIGNAS(128) weft_step_result result[WEFT_STEP_RING]; /* slot seq % WEFT_STEP_RING; device writes */
} weft_mailbox;

/* One task as it ran. Times in the clock of its worker (see weft_trace_clock). */
typedef struct weft_trace_record {
    uint32_t step, task;
    uint16_t device, worker;
    uint8_t kind, attempts;
    uint16_t stolen_from;                              /* device, or 0xffff */
    uint64_t t_pop, t_ready, t_start, t_end, t_signal; /* ticks */
    uint64_t settled; /* 0; 1: the host has turned the times into ns (the workers that wrote them have left) */
} weft_trace_record;
WEFT_STATIC_ASSERT(sizeof(weft_trace_record) == 64, "four 16-byte stores");

typedef struct weft_trace_clock { /* per worker: two readings of both clocks, to turn ticks into ns */
    uint64_t ticks0, ns0, ticks1, ns1;
} weft_trace_clock;

/* Root of one device: where everything is, as addresses that this device may use. Immutable while the kernel runs. */
typedef struct weft_queue_rt {
    uint64_t tasks;      /* weft_task[n_task] */
    uint64_t list;       /* static: uint32_t task ids, worker after worker; fifo: in order */
    uint64_t list_first; /* uint32_t[n_worker + 1] in list */
    uint64_t side;       /* uint64_t[] */
    uint64_t counters;   /* weft_counter[n_counter] */
    uint64_t deps;       /* uint32_t[] */
    uint64_t pending;    /* push: uint32_t[n_task], arrivals of completed counters */
    uint64_t ring;       /* push: uint64_t[ring_mask + 1], packets: task id, ticket */
    uint64_t args;       /* uint32_t[] */
    uint64_t ready0;     /* push: uint32_t[n_ready0], tasks that wait for nothing */
    uint32_t n_task, n_ready0, ring_mask, n_counter;
    uint64_t words[WEFT_MAX_DEVICES]; /* [d]: weft_line[] of device d's counters in this variant */
    uint64_t heads;                   /* weft_line[2 * n_ring]: head and tail of each of this variant's rings */
    uint64_t
        ring_of; /* steal (by worker), priority (by rank): uint16_t[n_task], the ring that a task goes to; push: 0 */
    uint32_t n_ring; /* rings of ring_mask + 1 packets each, one after another; push: 1 */
    uint32_t pad;
} weft_queue_rt;

#define WEFT_MAX_VARIANTS 16u
typedef struct weft_dev {
    WEFT_ALIGNAS(128) uint32_t device;
    uint32_t n_device, n_worker, policy;
    uint32_t base; /* first value of every counter, done word and ticket: tests start just below the wrap */
    uint32_t n_variant;
    uint32_t in_flight; /* weight pages in flight a worker, at most the ring's 12; 0: the backend's choice */
    uint32_t trace_cap; /* records a worker; 0: no trace */
    uint64_t ops;       /* weft_op_rt[] */
    uint64_t
        maps; /* 128 bytes an op: what the backend's copy engine needs to know of W (GEMM_WIDE on CUDA); 0: nothing */
    uint64_t roots[WEFT_MAX_DEVICES]; /* [d]: weft_dev of device d */
    uint64_t ctl[WEFT_MAX_DEVICES];   /* [d]: weft_ctl of device d */
    uint64_t work[WEFT_MAX_DEVICES];  /* [d]: work arena of device d */
    uint64_t peers;                   /* bit d: this device writes to d (itself included): they gate its steps */
    uint64_t victims;                 /* bit d: tasks of d name this device as their alternate (steal) */
    uint64_t mailbox;                 /* weft_mailbox */
    uint64_t trace;                   /* weft_trace_record[n_worker * trace_cap] */
    uint64_t trace_n;                 /* weft_line[n_worker]: records written, saturating */
    uint64_t trace_clock;             /* weft_trace_clock[n_worker] */
    uint64_t max_steps;               /* leave after this many steps (--oneshot); 0: until told */
    uint64_t
        running; /* weft_line[n_worker]: task whose body runs, WEFT_NONE between tasks; pad[0]: 0, or 1 + the device from
                         which it was stolen; for the host's report */
    weft_queue_rt queue[WEFT_MAX_VARIANTS];
} weft_dev;

#endif
