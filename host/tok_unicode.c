/* tok_unicode.c: regular expressions (PCRE2) and Unicode (utf8proc) for tokenizers. Built without the two, all fail.
 *
 * Patterns are written for Oniguruma; they differ from PCRE2 in what \s is: PCRE2 counts U+180E, the reference doesn't. So \s and
 * \S are spelled out before a pattern is compiled.                                                                      */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef WEFT_HAVE_UNICODE
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

struct weft__pattern {
    pcre2_code *code;
    char *literal;
};

int weft__unicode_ready(const char *name)
{
    (void)name;
    return 0;
}

#define SPACES "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* A bracket expression that holds \S keeps it: only the complement of white space could be written there. */
static int spell_spaces(const char *regex, weft__text *out)
{
    int status = 0, in_class = 0;
    for (const char *c = regex; *c && !status; c++) {
        if (*c == '\\' && c[1] == 's') {
            status = weft__text_put(out, in_class ? SPACES : "[" SPACES "]", strlen(SPACES) + (in_class ? 0 : 2));
            c++;
        } else if (*c == '\\' && c[1] == 'S' && !in_class) {
            status = weft__text_put(out, "[^" SPACES "]", strlen(SPACES) + 3);
            c++;
        } else if (*c == '\\' && c[1]) {
            status = weft__text_put(out, c++, 2);
        } else {
            if (*c == '[') in_class = 1;
            if (*c == ']') in_class = 0;
            status = weft__text_put(out, c, 1);
        }
    }
    return status;
}

int weft__pattern_regex(const char *regex, const char *name, weft__pattern **out)
{
    weft__text spelled = {0};
    weft__pattern *p = calloc(1, sizeof *p);
    int status = p ? spell_spaces(regex, &spelled) : weft__fail(WEFT_ENOMEM, "a pattern");
    int error;
    PCRE2_SIZE at;
    if (!status) {
        p->code = pcre2_compile((PCRE2_SPTR)(spelled.at ? spelled.at : ""), spelled.n, PCRE2_UTF | PCRE2_UCP, &error,
                                &at, NULL);
        if (!p->code) {
            char text[128] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
            status = weft__fail(WEFT_EFILE, "%s: regular expression \"%s\": %s", name, regex, text);
        }
    }
    free(spelled.at);
    if (status)
        weft__pattern_free(p);
    else
        *out = p;
    return status;
}

int weft__pattern_literal(const char *text, weft__pattern **out)
{
    weft__pattern *p = calloc(1, sizeof *p);
    if (p) p->literal = strdup(text);
    if (!p || !p->literal) {
        free(p);
        return weft__fail(WEFT_ENOMEM, "a pattern");
    }
    *out = p;
    return 0;
}

void weft__pattern_free(weft__pattern *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    free(p->literal);
    free(p);
}

static int push_span(weft__spans *v, size_t begin, size_t end, uint32_t match)
{
    if (begin == end) return 0;
    if (v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 64;
        weft__span *at = realloc(v->at, cap * sizeof *at);
        if (!at) return weft__fail(WEFT_ENOMEM, "%zu pieces of text", cap);
        v->at = at;
        v->cap = cap;
    }
    v->at[v->n++] = (weft__span){begin, end, match};
    return 0;
}

static int literal_spans(const char *literal, const char *text, size_t n, weft__spans *out)
{
    size_t length = strlen(literal), done = 0;
    int status = 0;
    for (size_t i = 0; i + length <= n && !status;) {
        if (memcmp(text + i, literal, length) != 0) {
            i++;
            continue;
        }
        status = push_span(out, done, i, 0);
        if (!status) status = push_span(out, i, i + length, 1);
        done = i += length;
    }
    return status ? status : push_span(out, done, n, 0);
}

int weft__pattern_spans(const weft__pattern *p, const char *text, size_t n, weft__spans *out)
{
    out->n = 0;
    if (p->literal) return literal_spans(p->literal, text, n, out);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (!data) return weft__fail(WEFT_ENOMEM, "a match");
    size_t done = 0, at = 0;
    int status = 0;
    while (!status && at <= n) {
        int found = pcre2_match(p->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, data, NULL);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
            status = weft__fail(WEFT_EUSAGE, "text: the tokenizer's pattern can't be matched (PCRE2 error %d)", found);
            break;
        }
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
        size_t begin = v[0], end = v[1];
        status = push_span(out, done, begin, 0);
        if (!status) status = push_span(out, begin, end, 1);
        done = end;
        at = end > begin ? end : end + (end < n ? weft__utf8_length((unsigned char)text[end]) : 1);
    }
    pcre2_match_data_free(data);
    return status ? status : push_span(out, done, n, 0);
}

int weft__normal_form(uint32_t kind, const char *text, size_t n, weft__text *out)
{
    static const int form[] = {
        [WEFT__STEP_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [WEFT__STEP_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [WEFT__STEP_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [WEFT__STEP_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t got = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &made,
                                        (utf8proc_option_t)form[kind]);
    if (got < 0) return weft__fail(WEFT_EUSAGE, "text: %s", utf8proc_errmsg(got));
    out->n = 0;
    int status = weft__text_put(out, (const char *)made, (size_t)got);
    free(made);
    return status;
}

static int32_t character(const char *text, size_t n, int at_end, size_t *length)
{
    size_t at = 0;
    if (at_end)
        for (at = n - 1; at && ((unsigned char)text[at] & 0xc0) == 0x80;)
            at--;
    utf8proc_int32_t c = -1;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
    *length = got > 0 ? (size_t)got : 1;
    return c;
}

int weft__is_word(const char *text, size_t n, int at_end)
{
    size_t length;
    if (!n) return 0;
    int32_t c = character(text, n, at_end, &length);
    if (c == 0x200c || c == 0x200d) return 1;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return 1;
    default: return 0;
    }
}

static int is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t weft__spaces(const char *text, size_t n, int at_end)
{
    size_t bytes = 0, length;
    while (bytes < n && is_space(character(at_end ? text : text + bytes, n - bytes, at_end, &length)))
        bytes += length;
    return bytes;
}

#else /* without PCRE2 and utf8proc: weft__unicode_ready refuses every tokenizer, so nothing else is reached */

int weft__unicode_ready(const char *name)
{
    return weft__fail(WEFT_EUNSUPPORTED,
                      "%s: this weft was built without PCRE2 and utf8proc, which tokenizers need "
                      "(docs/dependencies.md)",
                      name);
}
int weft__pattern_regex(const char *regex, const char *name, weft__pattern **out)
{
    (void)regex, (void)out;
    return weft__unicode_ready(name);
}
int weft__pattern_literal(const char *text, weft__pattern **out) { return weft__pattern_regex(text, "tokenizer", out); }
void weft__pattern_free(weft__pattern *p) { (void)p; }
int weft__pattern_spans(const weft__pattern *p, const char *text, size_t n, weft__spans *out)
{
    (void)p, (void)text, (void)n, (void)out;
    return weft__unicode_ready("tokenizer");
}
int weft__normal_form(uint32_t kind, const char *text, size_t n, weft__text *out)
{
    (void)kind, (void)text, (void)n, (void)out;
    return weft__unicode_ready("tokenizer");
}
int weft__is_word(const char *text, size_t n, int at_end)
{
    (void)text, (void)n, (void)at_end;
    return 0;
}
size_t weft__spaces(const char *text, size_t n, int at_end)
{
    (void)text, (void)n, (void)at_end;
    return 0;
}
#endif
