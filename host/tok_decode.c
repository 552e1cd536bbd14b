/* tok_decode.c: tokens into text, piece by piece.
 *
 * Enters: ids. Leaves: whole characters only; up to four bytes are held back. Byte-level tokens are bytes: what isn't UTF-8
 * becomes U+FFFD as in Rust's from_utf8_lossy (one for each maximal part of a character). Byte tokens of SentencePiece give
 * one U+FFFD for each byte that fits nowhere.                                                                           */
#include "tok_internal.h"

#include <string.h>

static int put_unknown(weft__text *out) { return weft__text_put(out, "\xef\xbf\xbd", 3); }

/* Given up: held bytes that will never be a character. */
static int give_up(weft__tok_stream *s, uint32_t n, weft__text *out)
{
    int status = 0;
    for (uint32_t i = 0; i < (s->fallback ? n : 1) && !status; i++)
        status = put_unknown(out);
    s->n_held = 0;
    return status;
}

/* May `b`, the byte at index n of a character that begins with h[0], stand there? */
static int fits(const unsigned char *h, uint32_t n, unsigned char b)
{
    if (n == 0) return b >= 0xc2 && b < 0xf5;
    if ((b & 0xc0) != 0x80) return 0;
    if (n > 1) return 1;
    return !((h[0] == 0xe0 && b < 0xa0) || (h[0] == 0xed && b > 0x9f) || (h[0] == 0xf0 && b < 0x90) ||
             (h[0] == 0xf4 && b > 0x8f));
}

static int put_byte(weft__tok_stream *s, unsigned char b, weft__text *out)
{
    int status = 0;
    if (s->n_held && !fits(s->held, s->n_held, b)) status = give_up(s, s->n_held, out);
    if (status) return status;
    if (!s->n_held && b < 0x80) return weft__text_put(out, (const char *)&b, 1);
    if (!s->n_held && !fits(s->held, 0, b)) return put_unknown(out);
    s->held[s->n_held++] = b;
    if (s->n_held < weft__utf8_length(s->held[0])) return 0;
    s->n_held = 0;
    return weft__text_put(out, (const char *)s->held, weft__utf8_length(s->held[0]));
}

/* Byte-level: each character stands for a byte, unless one of them doesn't: then the token is text. */
static int put_byte_level(weft__tok_stream *s, const unsigned char *at, size_t n, weft__text *out)
{
    int bytes = 1, status = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n && !status;) {
            uint32_t length = weft__utf8_length(at[i]);
            uint32_t c = length == 1 ? at[i] : length == 2 ? (at[i] & 31u) << 6 | (at[i + 1] & 63u) : 0xffff;
            int b = weft__char_byte(c);
            if (!pass)
                bytes &= b >= 0;
            else if (bytes)
                status = put_byte(s, (unsigned char)b, out);
            else
                for (uint32_t k = 0; k < length && !status; k++)
                    status = put_byte(s, at[i + k], out);
            i += length;
        }
    return status;
}

static int byte_of(const char *at, size_t n)
{
    if (n != 6 || memcmp(at, "<0x", 3) != 0 || at[5] != '>') return -1;
    static const char digit[] = "0123456789ABCDEF";
    const char *hi = memchr(digit, at[3], 16), *lo = memchr(digit, at[4], 16);
    return hi && lo ? (int)(hi - digit) * 16 + (int)(lo - digit) : -1;
}

/* A token as text, marks as spaces; the first spaces of the whole text are taken away as the decoder says. */
static int put_piece(const weft__tok *t, weft__tok_stream *s, const char *at, size_t n, weft__text *out)
{
    size_t mark = strlen(t->mark);
    uint32_t strip = t->metaspace ? (uint32_t)n : t->strip;
    int status = 0;
    for (size_t i = 0; i < n && !status;) {
        int space = mark && n - i >= mark && memcmp(at + i, t->mark, mark) == 0;
        size_t length = space ? mark : 1;
        const char *c = space ? " " : at + i;
        if (t->metaspace && !s->started && space) { /* its first token's marks stand for nothing */
            i += length;
            continue;
        }
        if (!t->metaspace && s->started < strip && *c == ' ') {
            s->started++;
            i += length;
            continue;
        }
        if (!t->metaspace) s->started = (uint8_t)strip;
        status = weft__text_put(out, c, 1);
        i += length;
    }
    if (t->metaspace) s->started = 1;
    return status;
}

int weft__tok_put(const weft__tok *t, weft__tok_stream *s, uint32_t id, int skip, weft__text *out)
{
    if (id >= t->n_token || !t->token[id])
        return weft__fail(WEFT_EUSAGE, "token %u: the vocabulary has no such id", id);
    int status = weft__text_put(out, NULL, 0);
    if (status || (skip && weft__tok_special(t, id))) return status;
    const char *at = t->text + t->token[id] - 1;
    size_t n = t->length[id];
    if (t->decoder == WEFT__DECODE_BYTE_LEVEL) return put_byte_level(s, (const unsigned char *)at, n, out);
    int byte = t->decode_bytes ? byte_of(at, n) : -1;
    if (byte >= 0) {
        s->fallback = 1;
        if (byte == ' ' && s->started < t->strip) {
            s->started++;
            return 0;
        }
        s->started = t->metaspace ? 1 : (uint8_t)t->strip;
        return put_byte(s, (unsigned char)byte, out);
    }
    if (s->n_held) status = give_up(s, s->n_held, out);
    return status ? status : put_piece(t, s, at, n, out);
}

int weft__tok_flush(const weft__tok *t, weft__tok_stream *s, weft__text *out)
{
    (void)t;
    int status = weft__text_put(out, NULL, 0);
    return status || !s->n_held ? status : give_up(s, s->n_held, out);
}
