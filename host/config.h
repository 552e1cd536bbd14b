/* config.h: the fields of a Llama-family config.json that weft needs, each checked for type and range. */
#ifndef WEFT_HOST_CONFIG_H
#define WEFT_HOST_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__config {
    char model_type[32];
    uint32_t hidden, intermediate, layers;
    uint32_t heads, kv_heads, head_dim;
    uint32_t vocab, max_positions;
    double norm_eps, rope_theta;
    uint32_t tied_embeddings; /* the output projection is the embedding */
} weft__config;

/* WEFT_EFILE: not JSON, larger than 512 KB, a field missing, of another type or out of range; WEFT_EUNSUPPORTED: an
 * activation or biases that weft can't compute. Messages name `name` and the field.                                    */
int weft__config_parse(const char *text, size_t length, const char *name, weft__config *out);
int weft__config_read(const char *path, weft__config *out);

#ifdef __cplusplus
}
#endif

#endif
