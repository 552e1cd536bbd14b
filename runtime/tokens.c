/* tokens.c: what a decoder's steps chose, as SAMPLE leaves it in the mailbox (tasks/sample.h). */
#include "engine_internal.h"

#include <string.h>

static int copy_result(const weft_engine *e, uint32_t seq, uint32_t n, uint32_t *token, float *logprob)
{
    if ((int32_t)(e->completed - seq) < 0) return weft__fail(WEFT_EUSAGE, "step %u is not known to be done", seq);
    if (e->submitted - seq >= WEFT_STEP_RING)
        return weft__fail(WEFT_EUSAGE, "step %u: its tokens have given way to those of step %u", seq,
                          seq + WEFT_STEP_RING);
    if (n > WEFT_MAX_ROWS) return weft__fail(WEFT_EUSAGE, "tokens of %u rows, at most %u", n, WEFT_MAX_ROWS);
    const weft_step_result *r = &e->mailbox->result[seq % WEFT_STEP_RING]; /* ordered by `completed` */
    if (token) memcpy(token, r->token, n * sizeof *token);
    if (logprob) memcpy(logprob, r->logprob, n * sizeof *logprob);
    return 0;
}

int weft_step_tokens(const weft_engine *e, uint32_t seq, uint32_t n, uint32_t *token, float *logprob)
{
    weft__lock(e); /* the watcher of an idle engine moves `completed` and `submitted`, too */
    const int rc = copy_result(e, seq, n, token, logprob);
    weft__unlock(e);
    return rc;
}
