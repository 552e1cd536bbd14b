/* sequences.h: the bookkeeping of a decoder that serves: sequences, the pages of their KV cache, and what goes into a step.
 *
 * Pure: no threads, no engine, no clock. Enters: tokens, and what finished steps chose. Leaves: steps (rows, page writes),
 * events.
 * Of a sequence, `known` tokens are on the host and `sent` positions went to the device; sent > known where it runs ahead.
 * Invariants: a page has as many references as sequences hold it; pages are shared as prefixes only; a page that a sequence has
 * still to write (index >= sent / 64) is its own. Devices run steps in order, so a page may change hands while steps that
 * use it are under way.                                                                                                 */
#ifndef WEFT_HOST_SEQUENCES_H
#define WEFT_HOST_SEQUENCES_H

#include "../tasks/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weft__seq_end {
    WEFT__SEQ_RUNS = 0,
    WEFT__SEQ_STOP = 1,      /* a stop token */
    WEFT__SEQ_LENGTH = 2,    /* max_tokens */
    WEFT__SEQ_CONTEXT = 3,   /* no position left */
    WEFT__SEQ_NAN = 4,       /* a logit was not a number */
    WEFT__SEQ_CANCELLED = 5, /* by the caller */
    WEFT__SEQ_NO_MEMORY = 6  /* no host memory for its next token */
};

#define WEFT__SEQ_MAX_STOPS 8u

typedef struct weft__seq_options {
    uint32_t host_feedback; /* 1: stops after each token; the caller appends the next one */
    uint32_t max_ahead;     /* tokens under way at most, 1 or more */
    uint32_t max_tokens;    /* to generate after an add or append; 0: as the context allows */
    uint32_t want;          /* WEFT_ROW_LOGITS: of every row that a token is chosen of */
    uint32_t n_stop, stop[WEFT__SEQ_MAX_STOPS];
    float temperature, top_p, min_p, penalty;
    uint32_t top_k, seed;
} weft__seq_options;

typedef struct weft__seq_event {
    uint32_t id, position; /* the row's */
    uint32_t token;        /* chosen for position + 1 */
    float logprob;
    uint32_t end; /* enum weft__seq_end: of the sequence, with this token */
    uint32_t row; /* of the step */
} weft__seq_event;

typedef struct weft__seq_step {
    weft_step_batch batch;
    weft_page_write write[WEFT_MAX_PAGE_WRITES];
    uint32_t owner[WEFT_MAX_ROWS]; /* id */
    uint64_t epoch[WEFT_MAX_ROWS];
    uint32_t logits; /* rows with WEFT_ROW_LOGITS */
} weft__seq_step;

typedef struct weft__seq weft__seq;
typedef struct weft__seqs weft__seqs;

/* rows 1 .. WEFT_MAX_ROWS a step, of which at most `prefill` (0: all) read prompts; slots <= 65536. */
int weft__seqs_new(uint32_t slots, uint32_t pages, uint32_t context, uint32_t vocab, uint32_t rows, uint32_t prefill,
                   weft__seqs **out);
void weft__seqs_free(weft__seqs *s); /* NULL is legal */

/* A sequence of n >= 1 tokens; want[i]: enum weft_row_flag of its row, or NULL. Full pages of the longest prefix that it
 * has in common with a sequence that is there are shared. WEFT_ENOMEM: not enough pages (both numbers are told), or no slot;
 * WEFT_EUSAGE: a token past the vocabulary, more tokens than the context has. Nothing changes then. */
int weft__seqs_add(weft__seqs *s, const uint32_t *token, const uint32_t *want, uint32_t n, const weft__seq_options *o,
                   uint32_t *id);
/* The same errors. What runs ahead is dropped. An ended sequence goes on. */
int weft__seqs_append(weft__seqs *s, uint32_t id, const uint32_t *token, const uint32_t *want, uint32_t n);
/* A new sequence of the same tokens; o NULL: the same options. */
int weft__seqs_fork(weft__seqs *s, uint32_t id, const weft__seq_options *o, uint32_t *out);
int weft__seqs_truncate(weft__seqs *s, uint32_t id, uint32_t n); /* to n >= 1 tokens; the last one is run again */
int weft__seqs_cancel(weft__seqs *s, uint32_t id);               /* ends it; its tokens and their KV stay */
int weft__seqs_drop(weft__seqs *s, uint32_t id);                 /* gives everything back; id is void */
/* Its tokens; valid until the next call that changes it. */
int weft__seqs_tokens(const weft__seqs *s, uint32_t id, const uint32_t **token, uint32_t *n, uint32_t *end);

/* The next step, whose number is one more than that of the last one composed. *any 0: there is nothing to do. Sequences
 * without a page to go on with stand still; if no other goes on either, and `idle` (no step is under way): WEFT_ENOMEM, with
 * the pages that are needed and free. */
int weft__seqs_compose(weft__seqs *s, int idle, weft__seq_step *step, int *any);
/* A step is done: token and logprob by row. Writes up to WEFT_MAX_ROWS events. */
void weft__seqs_complete(weft__seqs *s, const weft__seq_step *step, const uint32_t *token, const float *logprob,
                         weft__seq_event *event, uint32_t *n);
/* The device has lost everything: all is to be sent again. */
void weft__seqs_reset(weft__seqs *s);

uint32_t weft__seqs_pages_free(const weft__seqs *s);
/* 0, or WEFT_EWRONG with what is wrong: references, sharing, lists. For tests. */
int weft__seqs_check(const weft__seqs *s);

#ifdef __cplusplus
}
#endif

#endif
