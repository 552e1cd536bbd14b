/* tok.c: reads tokenizer.json, and encodes: added tokens are found first, what lies between them goes on to tok_pre.c.
 *
 * The file is scanned in place; the parts that a tree suits (all but "model") are small: more than 4 MB of one is refused.
 * Invariant: every id that leaves is in the vocabulary.                                                                 */
#include "tok_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES (4u << 20)

enum part {
    NORMALIZER,
    PRE_TOKENIZER,
    POST_PROCESSOR,
    DECODER,
    ADDED,
    MODEL,
    PARTS
};
static const char *const part_names[PARTS] = {"normalizer", "pre_tokenizer", "post_processor",
                                              "decoder",    "added_tokens",  "model"};

/* Where each part of the file begins. */
static int find_parts(weft__json *j, const char *at[PARTS], size_t length[PARTS])
{
    int status = weft__json_expect(j, '{'), more;
    for (uint64_t n = 0; !status; n++) {
        weft__slice key;
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        if ((status = weft__json_string(j, &key)) || (status = weft__json_expect(j, ':'))) break;
        weft__json_peek(j);
        const char *first = j->at;
        status = weft__json_skip(j);
        for (int i = 0; i < PARTS && !status; i++)
            if (key.length == strlen(part_names[i]) && memcmp(key.text, part_names[i], key.length) == 0) {
                if (at[i]) status = weft__fail(WEFT_EFILE, "%s: %s stands twice", j->name, part_names[i]);
                at[i] = first;
                length[i] = (size_t)(j->at - first);
            }
    }
    return status ? status : weft__json_finish(j);
}

static int read_part(weft__tok *t, const char *name, int part, const char *at, size_t length)
{
    static int (*const read[])(weft__tok *, const json_t *, const char *) = {
        weft__tok_normalizer, weft__tok_pretokenizer, weft__tok_postprocessor, weft__tok_decoder, weft__tok_added};
    if (length > PART_BYTES) return weft__fail(WEFT_EFILE, "%s: %s: longer than 4 MB", name, part_names[part]);
    json_error_t error;
    json_t *v = at ? json_loadb(at, length, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error) : json_null();
    if (!v) return weft__fail(WEFT_EFILE, "%s: %s: %s", name, part_names[part], error.text);
    int status = read[part](t, v, name);
    json_decref(v);
    return status;
}

int weft__tok_parse(const char *json, size_t length, const char *name, weft__tok **out)
{
    static const int order[] = {NORMALIZER, PRE_TOKENIZER, ADDED, POST_PROCESSOR, DECODER};
    const char *at[PARTS] = {0};
    size_t bytes[PARTS] = {0};
    weft__json j = {name, json, json, json + length};
    int status = weft__unicode_ready(name);
    if (!status && length > WEFT__TOK_FILE_BYTES) status = weft__fail(WEFT_EFILE, "%s: longer than 64 MB", name);
    if (!status) status = find_parts(&j, at, bytes);
    if (!status && !at[MODEL]) status = weft__fail(WEFT_EFILE, "%s: model is missing", name);
    if (status) return status;
    weft__tok *t = calloc(1, sizeof *t);
    if (!t) return weft__fail(WEFT_ENOMEM, "%s", name);
    j.at = at[MODEL];
    status = weft__tok_model(t, &j);
    for (size_t i = 0; i < sizeof order / sizeof *order && !status; i++)
        status = read_part(t, name, order[i], at[order[i]], bytes[order[i]]);
    if (status)
        weft__tok_free(t);
    else
        *out = t;
    return status;
}

int weft__tok_read(const char *path, weft__tok **out)
{
    FILE *f = fopen(path, "rb");
    if (!f) return weft__fail(WEFT_EFILE, "%s: can't be opened", path);
    weft__text text = {0};
    char *block = malloc(1 << 16);
    int status = block ? 0 : weft__fail(WEFT_ENOMEM, "%s", path);
    for (size_t got; !status && (got = fread(block, 1, 1 << 16, f)) > 0;)
        status = text.n > WEFT__TOK_FILE_BYTES ? weft__fail(WEFT_EFILE, "%s: longer than 64 MB", path)
                                               : weft__text_put(&text, block, got);
    if (!status && ferror(f)) status = weft__fail(WEFT_EIO, "%s: can't be read", path);
    if (!status) status = weft__tok_parse(text.at ? text.at : "", text.n, path, out);
    free(block);
    free(text.at);
    fclose(f);
    return status;
}

void weft__tok_free(weft__tok *t)
{
    if (!t) return;
    for (uint32_t i = 0; i < t->n_added; i++) {
        free(t->added[i].content);
        free(t->added[i].normalized);
    }
    weft__tok_steps_free(t->norm, t->n_norm);
    weft__tok_steps_free(t->pre, t->n_pre);
    free(t->added);
    free(t->text);
    free(t->token);
    free(t->length);
    free(t->slot);
    free(t->merge);
    free(t);
}

uint32_t weft__tok_id(const weft__tok *t, const char *content) { return weft__tok_find(t, content, strlen(content)); }

uint32_t weft__tok_size(const weft__tok *t) { return t->n_token; }

int weft__tok_special(const weft__tok *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return t->added[i].special;
    return 0;
}

/* ----------------------------------------------------------------------------------------------------- added tokens */

/* The longest added token at text[at], in raw or in normalised text; NULL: none. */
static const weft__added *added_at(const weft__tok *t, const char *text, size_t n, size_t at, int normalized,
                                   size_t *length)
{
    const weft__added *best = NULL;
    *length = 0;
    for (uint32_t i = 0; i < t->n_added; i++) {
        const weft__added *a = &t->added[i];
        const char *what = normalized ? a->normalized : a->normalized ? NULL : a->content;
        if (!what || *what != text[at]) continue;
        size_t l = strlen(what);
        if (l > *length && l <= n - at && memcmp(what, text + at, l) == 0) {
            best = a;
            *length = l;
        }
    }
    return best;
}

typedef int between(const weft__tok *t, const char *text, size_t n, int first, weft__tokens *out);

/* Calls `rest` for what lies between added tokens, in order. */
static int cut(const weft__tok *t, const char *text, size_t n, int normalized, int first, between *rest,
               weft__tokens *out)
{
    unsigned char begins[256] = {0};
    for (uint32_t i = 0; i < t->n_added; i++) {
        const char *what = normalized ? t->added[i].normalized : t->added[i].normalized ? NULL : t->added[i].content;
        if (what) begins[(unsigned char)*what] = 1;
    }
    size_t done = 0;
    int status = 0;
    for (size_t at = 0; at < n && !status;) {
        size_t length = 0;
        const weft__added *a = begins[(unsigned char)text[at]] ? added_at(t, text, n, at, normalized, &length) : NULL;
        if (!a) {
            at++;
            continue;
        }
        size_t begin = at, end = at += length;
        if (a->single_word && (weft__is_word(text, begin, 1) || weft__is_word(text + end, n - end, 0))) continue;
        if (a->lstrip) begin -= weft__spaces(text, begin, 1);
        if (begin < done) begin = done;
        if (a->rstrip) end += weft__spaces(text + end, n - end, 0);
        if (done < begin) status = rest(t, text + done, begin - done, first && !done, out);
        if (!status) status = weft__tokens_push(out, a->id);
        done = end;
    }
    return status || done >= n ? status : rest(t, text + done, n - done, first && !done, out);
}

static int raw_piece(const weft__tok *t, const char *text, size_t n, int first, weft__tokens *out)
{
    weft__text normal = {0};
    int status = weft__tok_normalize(t, text, n, &normal);
    if (!status) status = cut(t, normal.at, normal.n, 1, first, weft__tok_pretokenize, out);
    free(normal.at);
    return status;
}

int weft__tok_encode(const weft__tok *t, const char *text, size_t bytes, int specials, weft__tokens *out)
{
    size_t bad;
    if (bytes > WEFT__TOK_TEXT_BYTES) return weft__fail(WEFT_EUSAGE, "text: longer than 16 MB");
    if (!weft__utf8_check((const unsigned char *)text, bytes, &bad))
        return weft__fail(WEFT_EUSAGE, "text: not UTF-8 at byte %zu", bad);
    int status = 0;
    for (uint32_t i = 0; specials && i < t->n_before && !status; i++)
        status = weft__tokens_push(out, t->before[i]);
    if (!status) status = cut(t, text, bytes, 0, 1, raw_piece, out);
    for (uint32_t i = 0; specials && i < t->n_after && !status; i++)
        status = weft__tokens_push(out, t->after[i]);
    return status;
}
