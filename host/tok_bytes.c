/* tok_bytes.c: growing arrays, UTF-8, and byte-level's alphabet: each byte as a printable character. */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

int weft__tokens_push(weft__tokens *v, uint32_t id)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 64;
        uint32_t *at = realloc(v->id, cap * sizeof *at);
        if (!at) return weft__fail(WEFT_ENOMEM, "%zu tokens", cap);
        v->id = at;
        v->cap = cap;
    }
    v->id[v->n++] = id;
    return 0;
}

int weft__text_put(weft__text *v, const char *at, size_t n)
{
    if (v->n + n + 1 > v->cap) {
        size_t cap = 2 * (v->n + n) + 64;
        char *grown = realloc(v->at, cap);
        if (!grown) return weft__fail(WEFT_ENOMEM, "text of %zu bytes", cap);
        v->at = grown;
        v->cap = cap;
    }
    if (n) memcpy(v->at + v->n, at, n);
    v->n += n;
    v->at[v->n] = 0;
    return 0;
}

uint32_t weft__utf8_length(unsigned char first) { return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

int weft__utf8_check(const unsigned char *text, size_t n, size_t *bad)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = text[i];
        size_t more = c < 0x80 ? 0 : c < 0xc2 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : 9;
        *bad = i;
        if (more == 9 || more >= n - i) return 0;
        for (size_t k = 1; k <= more; k++)
            if ((text[i + k] & 0xc0) != 0x80) return 0;
        unsigned char d = more ? text[i + 1] : 0;
        if ((c == 0xe0 && d < 0xa0) || (c == 0xed && d > 0x9f) || (c == 0xf0 && d < 0x90) || (c == 0xf4 && d > 0x8f))
            return 0;
        i += more + 1;
    }
    return 1;
}

static int printable(uint32_t b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae; }

/* Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up, in order. */
uint32_t weft__byte_char(unsigned char byte)
{
    if (printable(byte)) return byte;
    uint32_t n = 0;
    for (uint32_t b = 0; b < byte; b++)
        n += !printable(b);
    return 256 + n;
}

int weft__char_byte(uint32_t c)
{
    if (c < 256) return printable(c) ? (int)c : -1;
    uint32_t n = 256;
    for (uint32_t b = 0; b < 256; b++)
        if (!printable(b) && n++ == c) return (int)b;
    return -1;
}
