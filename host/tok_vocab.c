/* tok_vocab.c: the "model" of tokenizer.json: the vocabulary and the merges, as two hash tables.
 *
 * Enters: the file's bytes, read in place (a tree of 128,000 tokens and 280,000 merges would take hundreds of MB). Leaves:
 * content -> id, id -> content, (id, id) -> (rank, id). Invariants: ids are below WEFT__TOK_MAX_ID and stand once; both ids
 * of a merge and what they make are in the vocabulary.                                                                  */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3ull;
    return h ^ (h >> 29);
}

static uint64_t hash_pair(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15ull;
    return pair ^ (pair >> 32);
}

static int same(const weft__tok *t, uint32_t id, const char *s, size_t n)
{
    return t->length[id] == n && memcmp(t->text + t->token[id] - 1, s, n) == 0;
}

uint32_t weft__tok_find(const weft__tok *t, const char *s, size_t n)
{
    if (!t->slot) return WEFT__NO_TOKEN;
    for (uint64_t i = hash_bytes(s, n) & t->slot_mask; t->slot[i]; i = (i + 1) & t->slot_mask)
        if (same(t, t->slot[i] - 1, s, n)) return t->slot[i] - 1;
    return WEFT__NO_TOKEN;
}

static int grow_ids(weft__tok *t, uint32_t id)
{
    if (id < t->token_cap) return 0;
    uint32_t cap = t->token_cap ? t->token_cap : 1024;
    while (cap <= id)
        cap *= 2;
    uint64_t *token = realloc(t->token, cap * sizeof *token);
    if (token) t->token = token;
    uint32_t *length = realloc(t->length, cap * sizeof *length);
    if (length) t->length = length;
    if (!token || !length) return weft__fail(WEFT_ENOMEM, "%u tokens", cap);
    memset(token + t->token_cap, 0, (cap - t->token_cap) * sizeof *token);
    memset(length + t->token_cap, 0, (cap - t->token_cap) * sizeof *length);
    t->token_cap = cap;
    return 0;
}

static void put_slot(weft__tok *t, uint32_t id)
{
    uint64_t i = hash_bytes(t->text + t->token[id] - 1, t->length[id]) & t->slot_mask;
    while (t->slot[i])
        i = (i + 1) & t->slot_mask;
    t->slot[i] = id + 1;
}

static int grow_slots(weft__tok *t)
{
    if (t->slot && 2 * (t->n_used + 1) <= t->slot_mask) return 0;
    uint32_t cap = t->slot ? 2 * (t->slot_mask + 1) : 4096;
    uint32_t *slot = calloc(cap, sizeof *slot);
    if (!slot) return weft__fail(WEFT_ENOMEM, "a table of %u tokens", cap);
    free(t->slot);
    t->slot = slot;
    t->slot_mask = cap - 1;
    for (uint32_t id = 0; id < t->n_token; id++)
        if (t->token[id]) put_slot(t, id);
    return 0;
}

static int keep_text(weft__tok *t, const char *s, size_t n)
{
    if (t->text_bytes + n + 1 > t->text_cap) {
        size_t cap = 2 * (t->text_bytes + n) + 4096;
        char *text = realloc(t->text, cap);
        if (!text) return weft__fail(WEFT_ENOMEM, "tokens of %zu bytes", cap);
        t->text = text;
        t->text_cap = cap;
    }
    memcpy(t->text + t->text_bytes, s, n);
    t->text[t->text_bytes + n] = 0;
    t->text_bytes += n + 1;
    return 0;
}

int weft__tok_add(weft__tok *t, const char *s, size_t n, uint32_t id, const char *name)
{
    if (id >= WEFT__TOK_MAX_ID)
        return weft__fail(WEFT_EFILE, "%s: token id %u: at least %u", name, id, WEFT__TOK_MAX_ID);
    if (id < t->n_token && t->token[id])
        return weft__fail(WEFT_EFILE, "%s: token id %u stands twice: \"%s\" and \"%.*s\"", name, id,
                          t->text + t->token[id] - 1, (int)n, s);
    if (weft__tok_find(t, s, n) != WEFT__NO_TOKEN)
        return weft__fail(WEFT_EFILE, "%s: token \"%.*s\" stands twice", name, (int)n, s);
    size_t at = t->text_bytes;
    int status = grow_ids(t, id);
    if (!status) status = grow_slots(t);
    if (!status) status = keep_text(t, s, n);
    if (status) return status;
    t->token[id] = at + 1;
    t->length[id] = (uint32_t)n;
    if (id >= t->n_token) t->n_token = id + 1;
    t->n_used++;
    put_slot(t, id);
    return 0;
}

static int hex4(const char *s, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        uint32_t d = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a') + 10;
        if (d > 15 || (d >= 10 && !strchr("abcdefABCDEF", c))) return 0;
        *out = *out * 16 + d;
    }
    return 1;
}

static void put_utf8(weft__text *v, uint32_t c)
{
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        b[i] = (char)(0x80 | (c & 63));
    b[0] = (char)(lead[n] | c);
    weft__text_put(v, b, n);
}

/* A string of the file without its escapes. *v has room for all: no escape is shorter than what it stands for. */
static int unescape(weft__json *j, const weft__slice *s, weft__text *v)
{
    v->n = 0;
    int status = weft__text_put(v, NULL, 0);
    for (const char *at = s->text, *end = at + s->length; at < end && !status; at++) {
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        uint32_t c, low;
        if (*at != '\\') {
            status = weft__text_put(v, at, 1);
        } else if (at[1] != 'u') {
            const char *known = at[1] ? strchr(from, at[1]) : NULL;
            if (!known) return weft__json_error(j, "no escape that JSON doesn't have");
            status = weft__text_put(v, to + (known - from), 1);
            at++;
        } else {
            if (end - at < 6 || !hex4(at + 2, &c)) return weft__json_error(j, "four hexadecimal digits after \\u");
            at += 5;
            if (c >= 0xd800 && c < 0xdc00 && end - at > 6 && at[1] == '\\' && at[2] == 'u' && hex4(at + 3, &low) &&
                low >= 0xdc00 && low < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                at += 6;
            }
            if (c >= 0xd800 && c < 0xe000) return weft__json_error(j, "surrogates in pairs");
            put_utf8(v, c);
        }
    }
    size_t bad;
    if (!status && !weft__utf8_check((const unsigned char *)v->at, v->n, &bad)) return weft__json_error(j, "UTF-8");
    return status;
}

static int read_string(weft__json *j, weft__text *v)
{
    weft__slice s;
    int status = weft__json_string(j, &s);
    return status ? status : unescape(j, &s, v);
}

static int read_vocab(weft__tok *t, weft__json *j, weft__text *v)
{
    int status = weft__json_expect(j, '{'), more;
    for (uint64_t n = 0; !status; n++) {
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        uint64_t id = 0;
        if (!(status = read_string(j, v)) && !(status = weft__json_expect(j, ':'))) status = weft__json_u64(j, &id);
        if (!status && id >= WEFT__TOK_MAX_ID) status = weft__json_error(j, "a token id below 4194304");
        if (!status) status = weft__tok_add(t, v->at, v->n, (uint32_t)id, j->name);
    }
    return status;
}

const weft__merge *weft__tok_merge(const weft__tok *t, uint32_t left, uint32_t right)
{
    if (!t->merge) return NULL;
    uint64_t pair = (uint64_t)left << 32 | right;
    for (uint64_t i = hash_pair(pair) & t->merge_mask; t->merge[i].pair != UINT64_MAX; i = (i + 1) & t->merge_mask)
        if (t->merge[i].pair == pair) return &t->merge[i];
    return NULL;
}

static void put_merge(weft__tok *t, weft__merge m)
{
    uint64_t i = hash_pair(m.pair) & t->merge_mask;
    while (t->merge[i].pair != UINT64_MAX && t->merge[i].pair != m.pair)
        i = (i + 1) & t->merge_mask;
    t->merge[i] = m; /* a pair that stands twice has its last rank, as in the reference */
}

static int grow_merges(weft__tok *t)
{
    if (t->merge && 2 * (t->n_merge + 1) <= t->merge_mask) return 0;
    uint64_t old_n = t->merge ? t->merge_mask + 1 : 0, cap = old_n ? 2 * old_n : 4096;
    weft__merge *old = t->merge, *merge = malloc(cap * sizeof *merge);
    if (!merge) return weft__fail(WEFT_ENOMEM, "a table of %llu merges", (unsigned long long)cap);
    for (uint64_t i = 0; i < cap; i++)
        merge[i] = (weft__merge){UINT64_MAX, 0, 0};
    t->merge = merge;
    t->merge_mask = cap - 1;
    for (uint64_t i = 0; i < old_n; i++)
        if (old[i].pair != UINT64_MAX) put_merge(t, old[i]);
    free(old);
    return 0;
}

/* `left right`, `rank`th of the list; `v` is left, from `cut` on right. */
static int add_merge(weft__tok *t, weft__json *j, const weft__text *v, size_t cut, uint64_t rank)
{
    uint32_t left = weft__tok_find(t, v->at, cut), right = weft__tok_find(t, v->at + cut, v->n - cut);
    uint32_t id = weft__tok_find(t, v->at, v->n);
    if (left == WEFT__NO_TOKEN || right == WEFT__NO_TOKEN || id == WEFT__NO_TOKEN)
        return weft__fail(WEFT_EFILE,
                          "%s: model.merges: number %llu: \"%.*s\" and \"%s\", or what they make, is no token", j->name,
                          (unsigned long long)rank, (int)cut, v->at, v->at + cut);
    int status = grow_merges(t);
    if (status) return status;
    put_merge(t, (weft__merge){(uint64_t)left << 32 | right, (uint32_t)rank, id});
    t->n_merge++;
    return 0;
}

/* "left right", or ["left", "right"]. */
static int read_merge(weft__tok *t, weft__json *j, weft__text *v, weft__text *w, uint64_t rank)
{
    int status, pair = weft__json_peek(j) == '[';
    if (pair) {
        if ((status = weft__json_expect(j, '[')) || (status = read_string(j, v)) ||
            (status = weft__json_expect(j, ',')) || (status = read_string(j, w)) ||
            (status = weft__json_expect(j, ']')))
            return status;
        size_t cut = v->n;
        status = weft__text_put(v, w->at, w->n);
        return status ? status : add_merge(t, j, v, cut, rank);
    }
    if ((status = read_string(j, v))) return status;
    char *space = memchr(v->at, ' ', v->n);
    if (!space || memchr(space + 1, ' ', v->n - (size_t)(space + 1 - v->at)))
        return weft__json_error(j, "a merge of two tokens with one space between them");
    size_t cut = (size_t)(space - v->at);
    memmove(space, space + 1, v->n - cut);
    v->n--;
    return add_merge(t, j, v, cut, rank);
}

static int read_merges(weft__tok *t, weft__json *j, weft__text *v)
{
    weft__text w = {0};
    int status = weft__json_expect(j, '['), more;
    for (uint64_t n = 0; !status; n++) {
        if ((status = weft__json_next(j, ']', n, &more)) || !more) break;
        status = n > UINT32_MAX - 1 ? weft__json_error(j, "fewer merges") : read_merge(t, j, v, &w, n);
    }
    free(w.at);
    return status;
}

static int word(weft__json *j, const char *text)
{
    size_t n = strlen(text);
    weft__json_peek(j);
    if ((size_t)(j->end - j->at) < n || memcmp(j->at, text, n) != 0) return 0;
    if (j->at + n < j->end && strchr(".0123456789eE", j->at[n])) return 0; /* a longer number */
    j->at += n;
    return 1;
}

static int read_flag(weft__json *j, uint32_t *out)
{
    *out = 0;
    if (word(j, "true")) {
        *out = 1;
        return 0;
    }
    return word(j, "false") || word(j, "null") ? 0 : weft__json_error(j, "true or false");
}

static int key_is(const weft__slice *key, const char *text)
{
    return key->length == strlen(text) && memcmp(key->text, text, key->length) == 0;
}

typedef struct parts { /* of "model"; merges are read last, since they name tokens */
    const char *vocab, *merges;
    int unk;
    weft__text unk_token;
} parts;

/* What weft can't do must be null, false, "" or 0. */
static int must_be_off(weft__json *j, const char *field)
{
    if (word(j, "null") || word(j, "false") || word(j, "\"\"") || word(j, "0.0") || word(j, "0")) return 0;
    return weft__fail(WEFT_EUNSUPPORTED, "%s: model.%s: weft doesn't have it", j->name, field);
}

static int model_field(weft__tok *t, weft__json *j, const weft__slice *key, parts *p, weft__text *v)
{
    static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 3; i++)
        if (key_is(key, off[i])) return must_be_off(j, off[i]);
    if (key_is(key, "type")) {
        int status = read_string(j, v);
        if (!status && strcmp(v->at, "BPE") != 0)
            return weft__fail(WEFT_EUNSUPPORTED, "%s: model.type: \"%s\": only BPE is known", j->name, v->at);
        return status;
    }
    if (key_is(key, "fuse_unk")) return read_flag(j, &t->fuse_unk);
    if (key_is(key, "byte_fallback")) return read_flag(j, &t->byte_fallback);
    if (key_is(key, "ignore_merges")) return read_flag(j, &t->ignore_merges);
    if (key_is(key, "unk_token")) {
        p->unk = 0;
        if (word(j, "null")) return 0;
        p->unk = 1;
        return read_string(j, &p->unk_token);
    }
    weft__json_peek(j);
    if (key_is(key, "vocab")) p->vocab = j->at;
    if (key_is(key, "merges")) p->merges = j->at;
    return weft__json_skip(j);
}

static int read_parts(weft__tok *t, weft__json *j, parts *p, weft__text *v)
{
    if (!p->vocab) return weft__fail(WEFT_EFILE, "%s: model.vocab is missing", j->name);
    if (!p->merges) return weft__fail(WEFT_EFILE, "%s: model.merges is missing", j->name);
    weft__json at = *j;
    at.at = p->vocab;
    int status = read_vocab(t, &at, v);
    at.at = p->merges;
    if (!status) status = read_merges(t, &at, v);
    if (status || !p->unk) return status;
    t->unk = weft__tok_find(t, p->unk_token.at, p->unk_token.n);
    if (t->unk == WEFT__NO_TOKEN)
        return weft__fail(WEFT_EFILE, "%s: model.unk_token: \"%s\" is not in the vocabulary", j->name, p->unk_token.at);
    return 0;
}

int weft__tok_model(weft__tok *t, weft__json *j)
{
    parts p = {0};
    weft__text v = {0};
    t->unk = WEFT__NO_TOKEN;
    int status = weft__json_expect(j, '{'), more;
    for (uint64_t n = 0; !status; n++) {
        weft__slice key;
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        if (!(status = weft__json_string(j, &key)) && !(status = weft__json_expect(j, ':')))
            status = model_field(t, j, &key, &p, &v);
    }
    if (!status) status = read_parts(t, j, &p, &v);
    for (uint32_t b = 0; b < 256; b++) {
        static const char digit[] = "0123456789ABCDEF";
        const char name[] = {'<', '0', 'x', digit[b >> 4], digit[b & 15], '>'};
        t->byte_id[b] = weft__tok_find(t, name, sizeof name);
    }
    free(p.unk_token.at);
    free(v.at);
    return status;
}
