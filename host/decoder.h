/* decoder.h: a whole decoder, one token at a time, in plain C: what every faster decode step is compared with.
 *
 * Enters: a model directory, tokens. Leaves: logits. Weights and activations are fp32, all sums are double. One sequence;
 * not for speed (SmolLM2-135M: some tokens a second).                                                                 */
#ifndef WEFT_HOST_DECODER_H
#define WEFT_HOST_DECODER_H

#include "hfmodel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__decoder weft__decoder;

/* Reads all weights. WEFT_EFILE: a tensor is missing or of another shape than config.json says. *m may be closed after. */
int weft__decoder_open(const weft__hfmodel *m, uint32_t max_tokens, weft__decoder **out);
void weft__decoder_close(weft__decoder *d); /* NULL is legal */

/* Appends `token`; logits[vocab] for the token after it, or NULL. WEFT_EUSAGE: no such token, or max_tokens reached. */
int weft__decoder_step(weft__decoder *d, uint32_t token, float *logits);

void weft__decoder_truncate(weft__decoder *d, uint32_t tokens); /* keeps the first `tokens` */

#ifdef __cplusplus
}
#endif

#endif
