/* json_scan.h: reads JSON in place, one value after another, without a tree and without allocating.
 *
 * Enters: bytes that need not end in NUL. Leaves: slices of those bytes. Errors: WEFT_EFILE with file, byte and what was
 * expected. For headers that may be large and come from strangers; small files go through jansson (config.c).            */
#ifndef WEFT_HOST_JSON_SCAN_H
#define WEFT_HOST_JSON_SCAN_H

#include <stdint.h>

#define WEFT__JSON_DEPTH 64u /* deeper nesting is refused */

typedef struct weft__json {
    const char *name; /* of the file, for messages */
    const char *start, *at, *end;
} weft__json;

typedef struct weft__slice { /* a string as it stands between its quotes */
    const char *text;
    uint32_t length;
    uint32_t escaped; /* it holds a backslash */
} weft__slice;

int weft__json_error(const weft__json *j, const char *expected);

/* The next byte that is no white space; 0 at the end. Does not consume it. */
char weft__json_peek(weft__json *j);

int weft__json_expect(weft__json *j, char c);

/* After an opening bracket: *more = 0 and the closing one consumed, or *more = 1 before the next element. `count` is how
 * many elements were read so far.                                                                                      */
int weft__json_next(weft__json *j, char close, uint64_t count, int *more);

int weft__json_string(weft__json *j, weft__slice *out);
int weft__json_u64(weft__json *j, uint64_t *out); /* plain digits only */
int weft__json_skip(weft__json *j);               /* any value */
int weft__json_finish(weft__json *j);             /* nothing but white space may follow */

#endif
