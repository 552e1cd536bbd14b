#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

int weft__fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return code;
}

const char *weft__error(void) { return message; }
