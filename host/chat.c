/* chat.c: see chat.h. The texts are those of the chat_template of the families' public tokenizer_config.json. */
#include "chat.h"

#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int encode_text(const weft__tok *t, weft__tokens *out, int specials, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return weft__fail(WEFT_ENOMEM, "a prompt");
    const int rc = weft__tok_encode(t, text, (size_t)n, specials, out);
    free(text);
    return rc;
}

static const char *default_system(const char *model_type)
{
    if (!strcmp(model_type, "qwen2")) return "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
    if (!strcmp(model_type, "llama")) return "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    return NULL;
}

static int chatml(const weft__tok *t, const char *model_type, const char *system, const char *user, weft__tokens *out)
{
    if (!system) system = default_system(model_type);
    int rc = system ? encode_text(t, out, 0, "<|im_start|>system\n%s<|im_end|>\n", system) : 0;
    return rc ? rc : encode_text(t, out, 0, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", user);
}

static int llama3(const weft__tok *t, const char *system, const char *user, weft__tokens *out)
{
    int rc = encode_text(t, out, 0, "<|begin_of_text|>");
    if (!rc && system) {
        rc = encode_text(t, out, 0, "<|start_header_id|>system<|end_header_id|>\n\n%s<|eot_id|>", system);
    }
    if (!rc) rc = encode_text(t, out, 0, "<|start_header_id|>user<|end_header_id|>\n\n%s<|eot_id|>", user);
    return rc ? rc : encode_text(t, out, 0, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static int inst(const weft__tok *t, const char *system, const char *user, weft__tokens *out)
{
    if (system) return encode_text(t, out, 1, "[INST] <<SYS>>\n%s\n<</SYS>>\n\n%s [/INST]", system, user);
    return encode_text(t, out, 1, "[INST] %s [/INST]", user);
}

int weft__chat_encode(const weft__tok *t, const char *model_type, const char *system, const char *user,
                      weft__tokens *out, uint32_t *stop)
{
    const uint32_t none = WEFT__NO_TOKEN;
    if (weft__tok_id(t, "<|im_start|>") != none && (*stop = weft__tok_id(t, "<|im_end|>")) != none) {
        return chatml(t, model_type, system, user, out);
    }
    if (weft__tok_id(t, "<|start_header_id|>") != none && (*stop = weft__tok_id(t, "<|eot_id|>")) != none) {
        return llama3(t, system, user, out);
    }
    if ((!strcmp(model_type, "mistral") || !strcmp(model_type, "llama")) && (*stop = weft__tok_id(t, "</s>")) != none) {
        return inst(t, system, user, out);
    }
    return weft__fail(
        WEFT_EUNSUPPORTED,
        "the tokenizer has the special tokens of no chat template that weft knows (ChatML, Llama 3, [INST])");
}
