/* tok_internal.h: what the files tok*.c share. Data flows: text - added tokens (tok_added.c) - normalizers and pre-tokenizers
 * (tok_pre.c) - merges (tok_bpe.c) - ids.                                                                               */
#ifndef WEFT_HOST_TOK_INTERNAL_H
#define WEFT_HOST_TOK_INTERNAL_H

#include "error.h"
#include "json_scan.h"
#include "tok.h"

#include <jansson.h>

#define WEFT__TOK_MAX_ID (4u << 20)
#define WEFT__TOK_STEPS 16u    /* normalizers, pre-tokenizers, decoders: of each at most so many */
#define WEFT__TOK_TEMPLATE 16u /* ids that a post-processor adds on each side */

typedef struct weft__pattern weft__pattern; /* a compiled regular expression, or a literal */

enum weft__step_kind {
    WEFT__STEP_PREPEND, /* normalizers; text */
    WEFT__STEP_REPLACE, /* pattern by text */
    WEFT__STEP_NFC,
    WEFT__STEP_NFD,
    WEFT__STEP_NFKC,
    WEFT__STEP_NFKD,
    WEFT__STEP_SPLIT, /* pre-tokenizers; pattern, behavior, invert */
    WEFT__STEP_BYTES, /* prepend */
    WEFT__STEP_META   /* text, prepend, split */
};
enum weft__behavior {
    WEFT__SPLIT_ISOLATED,
    WEFT__SPLIT_REMOVED,
    WEFT__SPLIT_PREVIOUS,
    WEFT__SPLIT_NEXT,
    WEFT__SPLIT_CONTIGUOUS
};
enum weft__prepend {
    WEFT__PREPEND_NEVER,
    WEFT__PREPEND_FIRST,
    WEFT__PREPEND_ALWAYS
};

typedef struct weft__step_tok {
    uint32_t kind;
    weft__pattern *pattern;
    char *text; /* owned */
    uint32_t behavior, invert, prepend, split;
} weft__step_tok;

typedef struct weft__added {
    char *content;    /* as it stands in the text */
    char *normalized; /* what is looked for in normalised text; NULL: looked for in raw text */
    uint32_t id;
    uint8_t single_word, lstrip, rstrip, special;
} weft__added;

enum weft__decoder_kind {
    WEFT__DECODE_BYTE_LEVEL,
    WEFT__DECODE_PIECES
};

typedef struct weft__merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank, id;
} weft__merge;

struct weft__tok {
    char *text; /* all tokens, one after another, each with a NUL */
    size_t text_bytes, text_cap;
    uint64_t *token;  /* [id]: offset in text + 1; 0: no such id */
    uint32_t *length; /* [id] */
    uint32_t n_token, token_cap;
    uint32_t *slot; /* hash table of ids + 1 by content */
    uint32_t slot_mask, n_used;
    weft__merge *merge; /* hash table */
    uint64_t merge_mask, n_merge;
    uint32_t unk, fuse_unk, byte_fallback, ignore_merges;
    uint32_t byte_id[256]; /* of <0x00> ..; WEFT__NO_TOKEN where missing */

    weft__step_tok norm[WEFT__TOK_STEPS], pre[WEFT__TOK_STEPS];
    uint32_t n_norm, n_pre;
    weft__added *added;
    uint32_t n_added;
    uint32_t before[WEFT__TOK_TEMPLATE], after[WEFT__TOK_TEMPLATE], n_before, n_after;

    uint32_t decoder;      /* enum weft__decoder_kind */
    uint32_t decode_bytes; /* <0xE2> stands for a byte */
    uint32_t strip;        /* spaces taken from the beginning of the text */
    uint32_t metaspace;    /* the first token's mark stands for nothing */
    char mark[8];          /* what stands for a space in a token; "": nothing */
};

/* tok_vocab.c */
int weft__tok_add(weft__tok *t, const char *content, size_t length, uint32_t id, const char *name);
uint32_t weft__tok_find(const weft__tok *t, const char *content, size_t length);
int weft__tok_model(weft__tok *t, weft__json *j);
const weft__merge *weft__tok_merge(const weft__tok *t, uint32_t left, uint32_t right);

/* tok_steps.c: each takes one value of the file's top level. */
int weft__tok_normalizer(weft__tok *t, const json_t *v, const char *name);
int weft__tok_pretokenizer(weft__tok *t, const json_t *v, const char *name);
int weft__tok_postprocessor(weft__tok *t, const json_t *v, const char *name);
int weft__tok_decoder(weft__tok *t, const json_t *v, const char *name);
int weft__tok_added(weft__tok *t, const json_t *v, const char *name);
void weft__tok_steps_free(weft__step_tok *step, uint32_t n);

/* tok_unicode.c: all that needs PCRE2 or utf8proc. */
int weft__unicode_ready(const char *name); /* WEFT_EUNSUPPORTED where built without */
int weft__pattern_regex(const char *regex, const char *name, weft__pattern **out);
int weft__pattern_literal(const char *text, weft__pattern **out);
void weft__pattern_free(weft__pattern *p);
typedef struct weft__span {
    size_t begin, end;
    uint32_t match;
} weft__span;
typedef struct weft__spans {
    weft__span *at;
    size_t n, cap;
} weft__spans;
/* All of `text`, cut into matches and what lies between them. */
int weft__pattern_spans(const weft__pattern *p, const char *text, size_t n, weft__spans *out);
int weft__normal_form(uint32_t kind, const char *text, size_t n, weft__text *out); /* replaces *out */
int weft__is_word(const char *text, size_t n, int at_end);   /* the first (last) character is one of a word */
size_t weft__spaces(const char *text, size_t n, int at_end); /* bytes of white space at the beginning (end) */

/* tok_pre.c, tok_bpe.c, tok_bytes.c */
int weft__tok_normalize(const weft__tok *t, const char *text, size_t n, weft__text *out); /* replaces *out */
int weft__tok_pretokenize(const weft__tok *t, const char *text, size_t n, int first, weft__tokens *out);
int weft__tok_bpe(const weft__tok *t, const char *word, size_t n, weft__tokens *out);
int weft__tokens_push(weft__tokens *v, uint32_t id);
int weft__text_put(weft__text *v, const char *at, size_t n);
uint32_t weft__utf8_length(unsigned char first);                        /* of the character that begins so */
int weft__utf8_check(const unsigned char *text, size_t n, size_t *bad); /* 1: all of it is UTF-8 */
uint32_t weft__byte_char(unsigned char byte);                           /* byte-level's character of a byte */
int weft__char_byte(uint32_t c);                                        /* -1: none */

#endif
