/* error.h: the one way in which a call of the library fails. */
#ifndef WEFT_HOST_ERROR_H
#define WEFT_HOST_ERROR_H

#include "../tasks/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Records the message (which value, where) for this thread and returns `code`, so that a caller writes
 * `return weft__fail(WEFT_EFILE, "%s: tensor %s: ...", ...)`.                                           */
__attribute__((format(printf, 2, 3))) int weft__fail(int code, const char *fmt, ...);

/* This thread's last message; "" if none. Valid until the next failure in this thread. */
const char *weft__error(void);

#ifdef __cplusplus
}
#endif

#endif
