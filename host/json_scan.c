/* json_scan.c: see json_scan.h. Recursion is bounded by WEFT__JSON_DEPTH; every read is bounded by `end`. */
#include "json_scan.h"

#include "error.h"

#include <string.h>

int weft__json_error(const weft__json *j, const char *expected)
{
    return weft__fail(WEFT_EFILE, "%s: JSON byte %llu: expected %s", j->name, (unsigned long long)(j->at - j->start),
                      expected);
}

char weft__json_peek(weft__json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
    return j->at < j->end ? *j->at : 0;
}

int weft__json_expect(weft__json *j, char c)
{
    const char text[] = {'\'', c, '\'', 0};
    if (weft__json_peek(j) != c) return weft__json_error(j, text);
    j->at++;
    return 0;
}

int weft__json_next(weft__json *j, char close, uint64_t count, int *more)
{
    if (weft__json_peek(j) == close) {
        j->at++;
        *more = 0;
        return 0;
    }
    *more = 1;
    return count ? weft__json_expect(j, ',') : 0;
}

int weft__json_string(weft__json *j, weft__slice *out)
{
    int status = weft__json_expect(j, '"');
    if (status) return status;
    const char *first = j->at;
    uint32_t escaped = 0;
    for (; j->at < j->end && *j->at != '"'; j->at++) {
        if ((unsigned char)*j->at < 0x20) return weft__json_error(j, "no control character in a string");
        if (*j->at != '\\') continue;
        escaped = 1;
        if (++j->at == j->end) break;
    }
    if (j->at >= j->end) return weft__json_error(j, "the end of a string");
    if (j->at - first > INT32_MAX) return weft__json_error(j, "a shorter string");
    *out = (weft__slice){first, (uint32_t)(j->at - first), escaped};
    j->at++;
    return 0;
}

int weft__json_u64(weft__json *j, uint64_t *out)
{
    char c = weft__json_peek(j);
    if (c < '0' || c > '9') return weft__json_error(j, "a whole number");
    uint64_t v = 0;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
        uint64_t digit = (uint64_t)(*j->at - '0');
        if (v > (UINT64_MAX - digit) / 10) return weft__json_error(j, "a number below 2^64");
        v = v * 10 + digit;
    }
    if (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E'))
        return weft__json_error(j, "a whole number");
    *out = v;
    return 0;
}

static int skip_word(weft__json *j)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(j->end - j->at) >= length && memcmp(j->at, words[i], length) == 0) {
            j->at += length;
            return 0;
        }
    }
    const char *first = j->at;
    while (j->at < j->end && *j->at && strchr("+-.eE0123456789", *j->at))
        j->at++;
    return j->at == first ? weft__json_error(j, "a value") : 0;
}

static int skip_nested(weft__json *j, uint32_t depth)
{
    char c = weft__json_peek(j);
    weft__slice s;
    if (c == '"') return weft__json_string(j, &s);
    if (c != '{' && c != '[') return skip_word(j);
    if (depth == WEFT__JSON_DEPTH) return weft__json_error(j, "less nesting");
    j->at++;
    for (uint64_t n = 0;; n++) {
        int more, status = weft__json_next(j, c == '{' ? '}' : ']', n, &more);
        if (status || !more) return status;
        if (c == '{' && ((status = weft__json_string(j, &s)) || (status = weft__json_expect(j, ':')))) return status;
        status = skip_nested(j, depth + 1);
        if (status) return status;
    }
}

int weft__json_skip(weft__json *j) { return skip_nested(j, 0); }

int weft__json_finish(weft__json *j)
{
    weft__json_peek(j);
    return j->at == j->end ? 0 : weft__json_error(j, "the end of the file");
}
