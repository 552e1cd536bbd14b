/* tok_pre.c: text between added tokens: normalised, cut into words, each word into tokens.
 *
 * Enters: UTF-8. Leaves: ids, appended. Steps work on one piece at a time and hand each piece that they make to the next; so
 * memory is that of a few copies of the text.                                                                           */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

static int replace(const weft__step_tok *s, const char *text, size_t n, weft__text *out)
{
    weft__spans spans = {0};
    out->n = 0;
    int status = weft__pattern_spans(s->pattern, text, n, &spans);
    for (size_t i = 0; i < spans.n && !status; i++)
        status = spans.at[i].match ? weft__text_put(out, s->text, strlen(s->text))
                                   : weft__text_put(out, text + spans.at[i].begin, spans.at[i].end - spans.at[i].begin);
    free(spans.at);
    return status;
}

static int one_normalizer(const weft__step_tok *s, const char *text, size_t n, weft__text *out)
{
    if (s->kind == WEFT__STEP_REPLACE) return replace(s, text, n, out);
    if (s->kind != WEFT__STEP_PREPEND) return weft__normal_form(s->kind, text, n, out);
    out->n = 0;
    int status = n ? weft__text_put(out, s->text, strlen(s->text)) : 0;
    return status ? status : weft__text_put(out, text, n);
}

int weft__tok_normalize(const weft__tok *t, const char *text, size_t n, weft__text *out)
{
    weft__text next = {0};
    out->n = 0;
    int status = weft__text_put(out, text, n);
    for (uint32_t i = 0; i < t->n_norm && !status; i++) {
        status = one_normalizer(&t->norm[i], out->at, out->n, &next);
        if (!status) status = weft__text_put(&next, NULL, 0);
        weft__text swap = *out;
        *out = next;
        next = swap;
    }
    free(next.at);
    return status;
}

/* Which spans stay together, as the behaviours say; spans are rewritten in place, `match` 1: dropped. */
static void apply_behavior(const weft__step_tok *s, weft__spans *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        v->at[i].match ^= s->invert;
    if (s->behavior == WEFT__SPLIT_NEXT) { /* from the end: a match joins what follows it, unless that is a match */
        n = v->n;
        int was_match = 0;
        for (size_t i = v->n; i-- > 0;) {
            weft__span at = v->at[i];
            if (at.match && !was_match && n < v->n)
                v->at[n].begin = at.begin;
            else
                v->at[--n] = (weft__span){at.begin, at.end, 0};
            was_match = (int)at.match;
        }
        memmove(v->at, v->at + n, (v->n - n) * sizeof *v->at);
        v->n -= n;
        return;
    }
    uint32_t was_match = 0;
    for (size_t i = 0; i < v->n; i++) {
        weft__span at = v->at[i];
        int join = n && ((s->behavior == WEFT__SPLIT_PREVIOUS && at.match && !was_match) ||
                         (s->behavior == WEFT__SPLIT_CONTIGUOUS && at.match == was_match));
        was_match = at.match;
        if (join)
            v->at[n - 1].end = at.end;
        else
            v->at[n++] = (weft__span){at.begin, at.end, s->behavior == WEFT__SPLIT_REMOVED && at.match};
    }
    v->n = n;
}

static int run(const weft__tok *t, uint32_t i, const char *text, size_t n, int first, weft__tokens *out);

static int run_split(const weft__tok *t, uint32_t i, const char *text, size_t n, int first, weft__tokens *out)
{
    weft__spans spans = {0};
    int status = weft__pattern_spans(t->pre[i].pattern, text, n, &spans);
    if (!status) apply_behavior(&t->pre[i], &spans);
    for (size_t k = 0; k < spans.n && !status; k++)
        if (!spans.at[k].match)
            status = run(t, i + 1, text + spans.at[k].begin, spans.at[k].end - spans.at[k].begin,
                         first && !spans.at[k].begin, out);
    free(spans.at);
    return status;
}

/* Each byte as its character. */
static int map_bytes(const char *text, size_t n, weft__text *out)
{
    int status = 0;
    for (size_t k = 0; k < n && !status; k++) {
        uint32_t c = weft__byte_char((unsigned char)text[k]);
        char b[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))};
        char ascii = (char)c;
        status = c < 0x80 ? weft__text_put(out, &ascii, 1) : weft__text_put(out, b, 2);
    }
    return status;
}

static int run_bytes(const weft__tok *t, uint32_t i, const char *text, size_t n, int first, weft__tokens *out)
{
    const weft__step_tok *s = &t->pre[i];
    weft__text all = {0}, mapped = {0};
    weft__spans spans = {0};
    weft__span whole;
    int status = s->prepend && text[0] != ' ' ? weft__text_put(&all, " ", 1) : 0;
    if (!status) status = weft__text_put(&all, text, n);
    if (!status && s->split) status = weft__pattern_spans(s->pattern, all.at, all.n, &spans);
    whole = (weft__span){0, all.n, 0};
    size_t count = s->split ? spans.n : 1;
    for (size_t k = 0; k < count && !status; k++) {
        weft__span at = s->split ? spans.at[k] : whole;
        mapped.n = 0;
        status = map_bytes(all.at + at.begin, at.end - at.begin, &mapped);
        if (!status) status = run(t, i + 1, mapped.at, mapped.n, first && !at.begin, out);
    }
    free(all.at);
    free(mapped.at);
    free(spans.at);
    return status;
}

static int run_meta(const weft__tok *t, uint32_t i, const char *text, size_t n, int first, weft__tokens *out)
{
    const weft__step_tok *s = &t->pre[i];
    size_t length = strlen(s->text);
    weft__text all = {0};
    weft__spans spans = {0};
    int prepend = s->prepend == WEFT__PREPEND_ALWAYS || (s->prepend == WEFT__PREPEND_FIRST && first);
    int marked = text[0] == ' ' || (n >= length && memcmp(text, s->text, length) == 0);
    int status = prepend && !marked ? weft__text_put(&all, s->text, length) : 0;
    for (size_t k = 0; k < n && !status; k++)
        status = text[k] == ' ' ? weft__text_put(&all, s->text, length) : weft__text_put(&all, text + k, 1);
    if (!status && !s->split) status = run(t, i + 1, all.at, all.n, first, out);
    if (!status && s->split) status = weft__pattern_spans(s->pattern, all.at, all.n, &spans);
    if (!status && s->split) {
        weft__step_tok next = *s;
        next.behavior = WEFT__SPLIT_NEXT;
        apply_behavior(&next, &spans);
    }
    for (size_t k = 0; k < spans.n && !status; k++)
        status = run(t, i + 1, all.at + spans.at[k].begin, spans.at[k].end - spans.at[k].begin,
                     first && !spans.at[k].begin, out);
    free(all.at);
    free(spans.at);
    return status;
}

static int run(const weft__tok *t, uint32_t i, const char *text, size_t n, int first, weft__tokens *out)
{
    if (!n) return 0;
    if (i == t->n_pre) return weft__tok_bpe(t, text, n, out);
    switch (t->pre[i].kind) {
    case WEFT__STEP_SPLIT: return run_split(t, i, text, n, first, out);
    case WEFT__STEP_BYTES: return run_bytes(t, i, text, n, first, out);
    default: return run_meta(t, i, text, n, first, out);
    }
}

int weft__tok_pretokenize(const weft__tok *t, const char *text, size_t n, int first, weft__tokens *out)
{
    return run(t, 0, text, n, first, out);
}
