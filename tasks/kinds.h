/* kinds.h: the portable bodies of the task kinds, one a kind, and the table of them.
 *
 * Enters: a task with everything that it may read (weft_task_ctx). Leaves: its outputs, written; signals are the worker's.
 * Invariants: a body touches only memory that its op or its args name; it holds no lock, allocates nothing and returns;
 * its result depends on the task alone, bit for bit, never on the worker, the policy or the time.
 * The body of kind `name` is weft__body_name, declared from tasks.def below: a kind without one does not link.       */
#ifndef WEFT_TASKS_KINDS_H
#define WEFT_TASKS_KINDS_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch of one worker: the largest that a body needs (bodies assert theirs at compile time). 64-byte aligned. */
#define WEFT_SCRATCH_BYTES (2u << 20)

/* What the worker does for a body: the accesses to words that several threads share, which only it may order. */
typedef struct weft_worker_calls {
    /* Reads packets first .. first+7 of the buffer at `buffer`, of those in `mask` (bit i: packet first + i), waiting for
     * this step's tag on each; words[i] gets the data. Not 0: the engine is stopping, return at once.                */
    int (*packets)(void *worker, uint64_t buffer, uint64_t first, uint32_t mask, uint32_t words[8]);
    /* Writes one packet with this step's tag. */
    void (*put_packet)(void *worker, uint64_t buffer, uint64_t index, uint32_t word);
    /* Adds 1 to the word at `word`, which lies with this device and which only such calls touch; 1: it was the n-th to do so, and
     * sees what the others had written before theirs; the word is 0 again. */
    int (*arrive)(void *worker, uint64_t word, uint32_t n);
    /* Nanoseconds of a monotonic clock. */
    uint64_t (*now_ns)(void *worker);
} weft_worker_calls;

typedef struct weft_task_ctx {
    const weft_dev *dev;
    const weft_queue_rt *q;
    const weft_task *t;
    const weft_op_rt *op; /* NULL where the task's kind has none: NOP, MIX */
    const weft_step_head *step;
    const uint8_t *payload; /* step->payload_bytes bytes, 16-byte aligned */
    void *scratch;          /* WEFT_SCRATCH_BYTES, this worker's alone, contents undefined */
    void *worker;           /* first argument of calls */
    const weft_worker_calls *calls;
} weft_task_ctx;

/* 0, or not 0 if the engine is stopping: then the outputs are undefined and nothing may be signalled. */
typedef int weft_body(const weft_task_ctx *ctx);

#define WEFT_KIND(ID, name, text) weft_body weft__body_##name;
#include "tasks.def"
#undef WEFT_KIND

typedef struct weft_kind_row {
    const char *name, *text;
    weft_body *body;
} weft_kind_row;

/* Indexed by enum weft_kind. */
extern const weft_kind_row weft__kinds[WEFT_KIND_COUNT];

/* Rows of x that a task of `op` from row m0 has to do in this step: 0 if all lie beyond the batch. A step with fewer rows
 * than its variant leaves the rest alone; ops on a chunk of the batch (m < the variant's rows) may do more than counts. */
static inline uint32_t weft_rows_of(const weft_op_rt *op, const weft_step_head *step, uint32_t m0, uint32_t tile)
{
    uint32_t m = step->rows < op->m ? step->rows : op->m;
    uint32_t left = m > m0 ? m - m0 : 0;
    return left < tile ? left : tile;
}

#ifdef __cplusplus
}
#endif

#endif
