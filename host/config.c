/* config.c: see config.h. jansson's tree takes up to 80 bytes for each byte of JSON: hence the limit on the file. */
#include "config.h"

#include "error.h"
#include "map.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_BYTES (512u << 10)

typedef struct reader {
    const char *name;
    const json_t *root;
    int status; /* of the first field that failed */
} reader;

static const json_t *get(reader *r, const char *field)
{
    const json_t *v = json_object_get(r->root, field);
    return json_is_null(v) ? NULL : v;
}

static void fail(reader *r, const char *field, const char *problem)
{
    if (!r->status) r->status = weft__fail(WEFT_EFILE, "%s: field %s %s", r->name, field, problem);
}

/* A whole number in 1 .. max; `missing` where the field is absent, 0: then it must be there. */
static uint32_t count_field(reader *r, const char *field, uint32_t max, uint32_t missing)
{
    const json_t *v = get(r, field);
    char text[64];
    if (!v) {
        if (!missing) fail(r, field, "is missing");
        return missing;
    }
    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= (json_int_t)max)
        return (uint32_t)json_integer_value(v);
    snprintf(text, sizeof text, "is not a whole number from 1 to %u", max);
    fail(r, field, text);
    return 0;
}

static double number_field(reader *r, const char *field, double min, double max, double missing)
{
    const json_t *v = get(r, field);
    if (!v) return missing;
    double x = json_number_value(v);
    if (json_is_number(v) && x >= min && x <= max) return x;
    fail(r, field, "is not a number in its range");
    return missing;
}

static uint32_t flag_field(reader *r, const char *field)
{
    const json_t *v = get(r, field);
    if (v && !json_is_boolean(v)) fail(r, field, "is not true or false");
    return v && json_is_true(v);
}

static void text_field(reader *r, const char *field, char *out, size_t room)
{
    const json_t *v = get(r, field);
    if (!v) return;
    if (!json_is_string(v) || json_string_length(v) >= room)
        fail(r, field, "is not a short text");
    else
        memcpy(out, json_string_value(v), json_string_length(v) + 1);
}

static void refuse_unsupported(reader *r, const char *activation)
{
    if (r->status) return;
    if (strcmp(activation, "silu") != 0)
        r->status = weft__fail(WEFT_EUNSUPPORTED, "%s: field hidden_act: '%s' (only silu)", r->name, activation);
    else if (flag_field(r, "mlp_bias"))
        r->status = weft__fail(WEFT_EUNSUPPORTED, "%s: field mlp_bias: biases of the MLP", r->name);
    else if (flag_field(r, "attention_bias"))
        r->status = weft__fail(WEFT_EUNSUPPORTED, "%s: field attention_bias: biases of the attention", r->name);
}

static int read_fields(reader *r, weft__config *out)
{
    char activation[32] = "silu";
    weft__config c = {.model_type = "llama"};
    text_field(r, "model_type", c.model_type, sizeof c.model_type);
    text_field(r, "hidden_act", activation, sizeof activation);
    c.hidden = count_field(r, "hidden_size", 1u << 20, 0);
    c.intermediate = count_field(r, "intermediate_size", 1u << 22, 0);
    c.layers = count_field(r, "num_hidden_layers", 4096, 0);
    c.heads = count_field(r, "num_attention_heads", 4096, 0);
    c.kv_heads = count_field(r, "num_key_value_heads", 4096, c.heads ? c.heads : 1);
    c.head_dim = count_field(r, "head_dim", 1u << 16, c.heads && c.hidden >= c.heads ? c.hidden / c.heads : 1);
    c.vocab = count_field(r, "vocab_size", 1u << 24, 0);
    c.max_positions = count_field(r, "max_position_embeddings", 1u << 28, 2048);
    c.norm_eps = number_field(r, "rms_norm_eps", 0, 1, 1e-6);
    c.rope_theta = number_field(r, "rope_theta", 1, 1e12, 10000);
    c.tied_embeddings = flag_field(r, "tie_word_embeddings");
    if (c.kv_heads && c.heads % c.kv_heads) fail(r, "num_key_value_heads", "does not divide num_attention_heads");
    refuse_unsupported(r, activation);
    if (!r->status) *out = c;
    return r->status;
}

int weft__config_parse(const char *text, size_t length, const char *name, weft__config *out)
{
    json_error_t error;
    if (length > MAX_BYTES) return weft__fail(WEFT_EFILE, "%s: larger than %u KB", name, MAX_BYTES >> 10);
    json_t *root = json_loadb(length ? text : "", length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return weft__fail(WEFT_EFILE, "%s: line %d: %s", name, error.line, error.text);
    reader r = {name, root, 0};
    int status = json_is_object(root) ? read_fields(&r, out) : weft__fail(WEFT_EFILE, "%s: not a JSON object", name);
    json_decref(root);
    return status;
}

int weft__config_read(const char *path, weft__config *out)
{
    weft__map map;
    int status = weft__map_open(path, &map);
    if (status) return status;
    status = weft__config_parse((const char *)map.bytes, map.size, path, out);
    weft__map_close(&map);
    return status;
}
