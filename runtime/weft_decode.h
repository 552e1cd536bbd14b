/* weft_decode.h: serving a language model: sequences over whole decode steps in the resident kernel. docs/serving.md.
 *
 *     weft_decoder_config c = WEFT_DECODER_CONFIG_INIT;
 *     c.model = "SmolLM2-135M-Instruct";                        // config.json, safetensors
 *     weft_decoder *d;
 *     if (weft_decoder_open(&c, &d)) die(weft_last_error());
 *     weft_seq_config s = WEFT_SEQ_CONFIG_INIT;
 *     uint32_t id, n;
 *     weft_seq_add(d, tokens, NULL, n_token, &s, &id);          // it is read, then goes on by itself
 *     weft_token out[64];
 *     while (!weft_decoder_wait(d, -1, out, 64, &n) && n) ...           // out[i].id, .token, .end
 *     weft_seq_free(d, id);
 *     weft_decoder_close(d);
 *
 * Conventions of weft.h, but for threads: every call but open and close may be made from any thread at any time; calls on one
 * decoder take turns. Only weft_decoder_wait blocks, and lets others in meanwhile.
 * The device works ahead: steps are put together and submitted inside weft_decoder_poll and weft_decoder_wait (and in the background once
 * weft_decoder_fd was called), up to 8 at a time, and so that no row waits for a page table entry or a token of the host.   */
#ifndef WEFT_DECODE_H
#define WEFT_DECODE_H

#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_decoder weft_decoder;

/* ---------------------------------------------------------------------------------------------------------- the model */

typedef struct weft_decoder_config {
    size_t size;              /* sizeof(weft_decoder_config) */
    const char *model;        /* Hugging Face directory of the Llama family */
    const char *devices;      /* as in weft_engine_config */
    const char *queue;        /* the same */
    const char *strategy;     /* "single", "cta", "tp" */
    uint32_t rows;            /* tokens a step takes, 1..64, of all sequences */
    uint32_t slots;           /* sequences at a time, 1..65536 */
    uint32_t context;         /* tokens of a sequence at most; 0: as the model has */
    uint32_t pages;           /* of 64 tokens, for all sequences; 0: what the budget allows, or else a context a slot */
    uint32_t max_step_tokens; /* of a step's rows, those that read prompts at most; 0: all */
    uint32_t deadline_us;     /* of a step; 0: none */
    uint32_t seeded; /* 1: only config.json is read, weights are made up (0: from safetensors); for measurements */
    uint64_t budget; /* bytes of weights, KV cache and work memory on all devices; 0: no limit */
    /* Where weights come from instead of safetensors (names as in the files, prefix "model."); NULL: the files. Must live
     * until close. */
    const weft_weight_source *weights;
    /* Called now and then while weights are read, with about how many of their bytes were; not 0: give up, and open fails
     * with WEFT_EABORT. NULL: none. */
    int (*progress)(void *user, uint64_t bytes, uint64_t all);
    void *user;
} weft_decoder_config;
#define WEFT_DECODER_CONFIG_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(weft_decoder_config), NULL, NULL, "static", "single", 16, 16, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL        \
    }

/* Reads, plans, uploads, starts. WEFT_EFILE, WEFT_EUNSUPPORTED: the model; WEFT_ENOMEM: over the budget, all numbers told;
 * else as weft_engine_create. */
WEFT_API int weft_decoder_open(const weft_decoder_config *config, weft_decoder **out);
WEFT_API void weft_decoder_close(weft_decoder *d); /* no call may be under way */

typedef struct weft_decoder_info {
    size_t size; /* sizeof(weft_decoder_info), filled in by the caller */
    uint32_t vocab, context, rows, slots;
    uint32_t pages, pages_free;                  /* of 64 tokens */
    uint64_t weight_bytes, kv_bytes, work_bytes; /* all devices; work: without the KV cache */
    uint64_t steps;                              /* submitted */
} weft_decoder_info;
WEFT_API int weft_decoder_get_info(weft_decoder *d, weft_decoder_info *info);

/* After WEFT_EABORT: a new engine. Weights are read again; sequences stay, and their tokens are run again. Any call on a
 * stopped decoder but this one, free and close keeps giving WEFT_EABORT where it needs the engine. */
WEFT_API int weft_decoder_restart(weft_decoder *d);

/* ---------------------------------------------------------------------------------------------------------- sequences */

enum weft_seq_end {
    WEFT_SEQ_RUNS = 0,
    WEFT_SEQ_STOP = 1,      /* a stop token */
    WEFT_SEQ_LENGTH = 2,    /* max_tokens */
    WEFT_SEQ_CONTEXT = 3,   /* the context is full */
    WEFT_SEQ_NAN = 4,       /* a logit was not a number */
    WEFT_SEQ_CANCELLED = 5, /* weft_seq_cancel */
    WEFT_SEQ_NO_MEMORY = 6  /* of the host, for one more token */
};

enum weft_want {
    WEFT_WANT_TOKEN = 1, /* what is chosen after this position, and its log-probability */
    WEFT_WANT_LOGITS = 2 /* and all logits. The step then is the last one submitted until it is done */
};

typedef struct weft_seq_config {
    size_t size; /* sizeof(weft_seq_config) */
    uint32_t
        host_feedback; /* 0: chosen tokens go back on the device, the sequence runs on. 1: it stops after each token, and
                               the caller appends the one that it wants (masks, biases, grammars: from the logits) */
    uint32_t max_ahead;  /* tokens under way at most (feedback on the device); what lies past a stop is dropped */
    uint32_t max_tokens; /* to generate after an add or append; 0: to the end of the context */
    uint32_t logits;     /* 1: with every token that is generated */
    uint32_t n_stop;
    uint32_t stop[8];
    float temperature, top_p, min_p, penalty; /* 0, 1, 0, 1: off; order as in tasks/sample.h */
    uint32_t top_k, seed;                     /* top_k 0: off */
} weft_seq_config;
#define WEFT_SEQ_CONFIG_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(weft_seq_config), 0, 4, 0, 0, 0, {0}, 0.0f, 1.0f, 0.0f, 1.0f, 0, 1                                      \
    }

/* A sequence of n >= 1 tokens. want: enum weft_want a token, or NULL (the last one is always wanted). Its pages are set aside at
 * once; full pages of a prefix in common with a sequence that is there are shared. WEFT_ENOMEM: pages, those needed and those
 * free are told, or slots; WEFT_EUSAGE: a token past the vocabulary, too many tokens, an option out of range. Nothing has
 * changed then. */
WEFT_API int weft_seq_add(weft_decoder *d, const uint32_t *token, const uint32_t *want, uint32_t n,
                          const weft_seq_config *config, uint32_t *id);
/* More tokens; an ended sequence goes on. Errors as add. What runs ahead is dropped. */
WEFT_API int weft_seq_append(weft_decoder *d, uint32_t id, const uint32_t *token, const uint32_t *want, uint32_t n);
/* A sequence with the same tokens, sharing pages; config NULL: that of the first. */
WEFT_API int weft_seq_fork(weft_decoder *d, uint32_t id, const weft_seq_config *config, uint32_t *out);
/* To the first n >= 1 tokens; the last of them is run again. */
WEFT_API int weft_seq_truncate(weft_decoder *d, uint32_t id, uint32_t n);
/* Ends it; what was handed out and its KV stay until free. Nothing more of it comes from poll. */
WEFT_API int weft_seq_cancel(weft_decoder *d, uint32_t id);
WEFT_API int weft_seq_free(weft_decoder *d, uint32_t id);
/* Copies up to cap of its tokens, and their number to *n; *end (may be NULL): enum weft_seq_end. */
WEFT_API int weft_seq_tokens(weft_decoder *d, uint32_t id, uint32_t *token, uint32_t cap, uint32_t *n, uint32_t *end);

/* ----------------------------------------------------------------------------------------------------------- results */

typedef struct weft_token {
    uint32_t id, position; /* sequence; position whose row it is: the token is for position + 1 */
    uint32_t token;        /* 0xffffffff: a logit was not a number */
    float logprob;         /* natural logarithm, before temperature and cuts */
    uint32_t end;          /* enum weft_seq_end */
    uint32_t pad;
    float *logits; /* vocab of them where wanted, yours to free(); else NULL */
} weft_token;

/* Up to cap results, in order, and their number to *n; 0: nothing yet. WEFT_ENOMEM: no sequence can go on for want of pages
 * (free, truncate, then call again); WEFT_EABORT: the engine has stopped. Never blocks. */
WEFT_API int weft_decoder_poll(weft_decoder *d, weft_token *out, uint32_t cap, uint32_t *n);
/* The same, but waits for the first one, up to timeout_ms (-1: for ever): WEFT_ETIME then. *n = 0 with status 0: no sequence
 * has anything to do. */
WEFT_API int weft_decoder_wait(weft_decoder *d, int timeout_ms, weft_token *out, uint32_t cap, uint32_t *n);
/* An eventfd that can be read while poll has something to tell (a result, an error); don't read it yourself. From this call on
 * a thread of the decoder (all signals blocked) keeps the devices busy. It is closed with the decoder. */
WEFT_API int weft_decoder_fd(weft_decoder *d, int *fd);

#ifdef __cplusplus
}
#endif

#endif
