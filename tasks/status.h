/* status.h: every status code, its exit code and its text, from one list. Calls return 0 or a negative code. */
#ifndef WEFT_TASKS_STATUS_H
#define WEFT_TASKS_STATUS_H

/* clang-format off */
/*          name          code  exit  text */
#define WEFT_STATUS_LIST(X)                                                             \
    X(WEFT_OK,               0,   0,  "ok")                                             \
    X(WEFT_EWRONG,          -1,   1,  "wrong result")                                   \
    X(WEFT_EUSAGE,          -2,   2,  "invalid argument")                               \
    X(WEFT_EMACHINE,        -3,   3,  "not possible on this machine")                   \
    X(WEFT_EABORT,          -4,   4,  "stopped by the watchdog")                        \
    X(WEFT_EFILE,           -5,   5,  "bad input file")                                 \
    X(WEFT_ENOMEM,          -6,   3,  "out of memory")                                  \
    X(WEFT_EIO,             -7,   5,  "input/output error")                             \
    X(WEFT_EREFUSED,        -8,   5,  "the validator can't prove the plan")             \
    X(WEFT_ETIME,           -9,   4,  "timed out")                                      \
    X(WEFT_EBUSY,          -10,   3,  "in use")                                         \
    X(WEFT_ECUDA,          -11,   3,  "CUDA error")                                     \
    X(WEFT_EUNSUPPORTED,   -12,   5,  "not supported")
/* clang-format on */

#ifndef WEFT_STATUS_ENUM /* weft.h, which stands alone when installed, has the same enum */
#define WEFT_STATUS_ENUM
enum weft_status {
#define WEFT_STATUS(name, code, exit, text) name = code,
    WEFT_STATUS_LIST(WEFT_STATUS)
#undef WEFT_STATUS
};
#endif

#endif
