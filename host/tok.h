/* tok.h: the BPE tokenizers of Hugging Face's tokenizer.json: byte-level (Llama 3, SmolLM2, Qwen) and SentencePiece-style
 * (Llama 2, Mistral), with the ids that the reference implementation gives.
 *
 * Enters: tokenizer.json; text in UTF-8. Leaves: token ids; text again. A tokenizer never changes once it is read: any
 * number of threads may use it at once. What a file holds and weft can't do is refused by the field's name. Built without
 * PCRE2 and utf8proc, weft__tok_parse refuses all (WEFT_EUNSUPPORTED).                                                  */
#ifndef WEFT_HOST_TOK_H
#define WEFT_HOST_TOK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__tok weft__tok;

#define WEFT__TOK_TEXT_BYTES (16u << 20) /* longest text that is encoded at once */
#define WEFT__TOK_FILE_BYTES (64u << 20) /* longest tokenizer.json */

/* WEFT_EFILE: not JSON, or a field missing, of another type or out of range; WEFT_EUNSUPPORTED: a kind of tokenizer that weft
 * doesn't have. Messages name `name` and the field.                                                                     */
int weft__tok_parse(const char *json, size_t length, const char *name, weft__tok **out);
int weft__tok_read(const char *path, weft__tok **out);
void weft__tok_free(weft__tok *t); /* NULL is legal */

typedef struct weft__tokens { /* begin with zeroes; free(id) */
    uint32_t *id;
    size_t n, cap;
} weft__tokens;

/* Appends the ids of `text`. `specials`: with what the post-processor adds (<s> ...). Special tokens that are spelled out
 * in the text are recognised, as the reference does. WEFT_EUSAGE: not UTF-8, or too long.                                */
int weft__tok_encode(const weft__tok *t, const char *text, size_t bytes, int specials, weft__tokens *out);

/* Id of a token by its content, or WEFT__NO_TOKEN. */
#define WEFT__NO_TOKEN 0xffffffffu
uint32_t weft__tok_id(const weft__tok *t, const char *content);
uint32_t weft__tok_size(const weft__tok *t); /* one more than the largest id */
int weft__tok_special(const weft__tok *t, uint32_t id);

/* Text as tokens arrive. Bytes that may still become a character are held back, so every piece is UTF-8. All pieces together
 * are the text of all tokens; where byte tokens (<0xE2>) don't make up UTF-8, U+FFFD stands for each of them.            */
typedef struct weft__tok_stream {
    unsigned char held[4];
    uint8_t n_held;
    uint8_t fallback; /* what is held came from byte tokens */
    uint8_t started;  /* some text was there */
} weft__tok_stream;   /* begin with zeroes */

typedef struct weft__text { /* begin with zeroes; free(at). at[n] is 0 once anything was added */
    char *at;
    size_t n, cap;
} weft__text;

/* Appends what `token` completes. `skip`: special tokens give nothing. WEFT_EUSAGE: no such token. */
int weft__tok_put(const weft__tok *t, weft__tok_stream *s, uint32_t token, int skip, weft__text *out);
int weft__tok_flush(const weft__tok *t, weft__tok_stream *s, weft__text *out); /* at the end: what is held, as U+FFFD */

#ifdef __cplusplus
}
#endif

#endif
