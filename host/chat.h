/* chat.h: one turn of a user as the text that a chat model was trained on. The template is told from the tokenizer's special
 * tokens: ChatML (SmolLM2, Qwen), Llama 3, and [INST] (Llama 2, Mistral).                                               */
#ifndef WEFT_HOST_CHAT_H
#define WEFT_HOST_CHAT_H

#include "tok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the ids of the prompt; `system` may be NULL: what the family has without one. *stop: the token that ends the answer.
 * WEFT_EUNSUPPORTED: none of the three templates. Special tokens that are spelled out in the texts are recognised.      */
int weft__chat_encode(const weft__tok *t, const char *model_type, const char *system, const char *user,
                      weft__tokens *out, uint32_t *stop);

#ifdef __cplusplus
}
#endif

#endif
