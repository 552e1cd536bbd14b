/* config.h: the fields of a Llama-family config.json that weft needs, each checked for type and range: Llama 2 and 3.x,
 * SmolLM2, Mistral, Qwen2.5, Qwen3. What weft can't compute is refused by the field's name.                            */
#ifndef WEFT_HOST_CONFIG_H
#define WEFT_HOST_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum weft__rope {
    WEFT__ROPE_PLAIN = 0,
    WEFT__ROPE_LINEAR = 1, /* positions are divided by rope_factor */
    WEFT__ROPE_LLAMA3 = 2  /* slow frequencies are divided by rope_factor, fast ones are kept, a ramp between them */
};

typedef struct weft__config {
    char model_type[32];
    uint32_t hidden, intermediate, layers;
    uint32_t heads, kv_heads, head_dim;
    uint32_t vocab, max_positions; /* max_positions: at most the sliding window, within which all attention is full */
    double norm_eps, rope_theta;
    uint32_t rope;                           /* enum weft__rope */
    double rope_factor, rope_low, rope_high; /* low, high: turns within rope_original positions; LLAMA3 only */
    uint32_t rope_original;
    uint32_t tied_embeddings; /* the output projection is the embedding */
    uint32_t qkv_bias;        /* q, k and v have biases */
    uint32_t qk_norm;         /* q and k are normalised head by head, before RoPE */
} weft__config;

/* WEFT_EFILE: not JSON, larger than 512 KB, a field missing, of another type or out of range; WEFT_EUNSUPPORTED: a model
 * type, an activation, biases, a RoPE scaling or quantised weights that weft can't compute. Messages name `name` and the
 * field.                                                                                                              */
int weft__config_parse(const char *text, size_t length, const char *name, weft__config *out);
int weft__config_read(const char *path, weft__config *out);

/* out[i], i < head_dim / 2: radians that one position turns pair i of a head. */
void weft__config_rope(const weft__config *c, float *out);

#ifdef __cplusplus
}
#endif

#endif
