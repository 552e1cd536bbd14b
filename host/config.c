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
    const char *name, *within; /* the file; the object that the fields are in, with its dot */
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
    if (!r->status) r->status = weft__fail(WEFT_EFILE, "%s: field %s%s %s", r->name, r->within, field, problem);
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

/* `missing` where the field is absent, NAN: then it must be there. */
static double number_field(reader *r, const char *field, double min, double max, double missing)
{
    const json_t *v = get(r, field);
    if (!v) {
        if (isnan(missing)) fail(r, field, "is missing");
        return missing;
    }
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

static void refuse(reader *r, const char *field, const char *what)
{
    if (!r->status) r->status = weft__fail(WEFT_EUNSUPPORTED, "%s: field %s%s: %s", r->name, r->within, field, what);
}

static void refuse_unsupported(reader *r)
{
    char activation[32] = "silu", text[64];
    text_field(r, "hidden_act", activation, sizeof activation);
    snprintf(text, sizeof text, "'%s' (only silu)", activation);
    if (strcmp(activation, "silu") != 0) refuse(r, "hidden_act", text);
    if (flag_field(r, "mlp_bias")) refuse(r, "mlp_bias", "biases of the MLP");
    if (flag_field(r, "attention_bias")) refuse(r, "attention_bias", "biases of the attention's output");
    if (get(r, "quantization_config")) refuse(r, "quantization_config", "quantised weights");
    if (number_field(r, "partial_rotary_factor", 0, 1, 1) != 1)
        refuse(r, "partial_rotary_factor", "RoPE on part of a head");
}

static void read_family(reader *r, weft__config *c)
{
    static const struct {
        const char *name;
        uint32_t qkv_bias, qk_norm;
    } families[] = {{"llama", 0, 0}, {"mistral", 0, 0}, {"qwen2", 1, 0}, {"qwen3", 0, 1}};
    char text[96];
    text_field(r, "model_type", c->model_type, sizeof c->model_type);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(c->model_type, families[i].name) != 0) continue;
        c->qkv_bias = families[i].qkv_bias;
        c->qk_norm = families[i].qk_norm;
        return;
    }
    snprintf(text, sizeof text, "'%s' (only llama, mistral, qwen2, qwen3)", c->model_type);
    refuse(r, "model_type", text);
}

static void read_scaling(reader *r, weft__config *c)
{
    char type[32] = "default", text[64];
    text_field(r, "type", type, sizeof type); /* its name before rope_type */
    text_field(r, "rope_type", type, sizeof type);
    if (strcmp(type, "default") == 0) return;
    if (strcmp(type, "linear") == 0) {
        c->rope = WEFT__ROPE_LINEAR;
        c->rope_factor = number_field(r, "factor", 1, 1e6, NAN);
    } else if (strcmp(type, "llama3") == 0) {
        c->rope = WEFT__ROPE_LLAMA3;
        c->rope_factor = number_field(r, "factor", 1, 1e6, NAN);
        c->rope_low = number_field(r, "low_freq_factor", 1e-3, 1e6, NAN);
        c->rope_high = number_field(r, "high_freq_factor", 1e-3, 1e6, NAN);
        c->rope_original = count_field(r, "original_max_position_embeddings", 1u << 28, 0);
        if (c->rope_high <= c->rope_low) fail(r, "high_freq_factor", "is not above low_freq_factor");
    } else {
        snprintf(text, sizeof text, "'%s' (only default, linear, llama3)", type);
        refuse(r, "rope_type", text);
    }
}

/* rope_theta beside rope_scaling, or both in rope_parameters. */
static void read_rope(reader *r, weft__config *c)
{
    c->rope_factor = 1;
    c->rope_theta = number_field(r, "rope_theta", 1, 1e12, 10000);
    for (int i = 0; i < 2; i++) {
        const char *field = i ? "rope_parameters" : "rope_scaling";
        const json_t *v = get(r, field);
        if (!v) continue;
        if (!json_is_object(v)) {
            fail(r, field, "is not an object");
            continue;
        }
        reader inner = {r->name, i ? "rope_parameters." : "rope_scaling.", v, r->status};
        c->rope_theta = number_field(&inner, "rope_theta", 1, 1e12, c->rope_theta);
        if (number_field(&inner, "partial_rotary_factor", 0, 1, 1) != 1)
            refuse(&inner, "partial_rotary_factor", "RoPE on part of a head");
        read_scaling(&inner, c);
        r->status = inner.status;
    }
}

/* Within the window attention is full: so a model with one is right as long as no sequence is longer. */
static void read_positions(reader *r, weft__config *c)
{
    c->max_positions = count_field(r, "max_position_embeddings", 1u << 28, 2048);
    int qwen = strncmp(c->model_type, "qwen", 4) == 0;
    if (qwen ? !flag_field(r, "use_sliding_window") : strcmp(c->model_type, "mistral") != 0) return;
    uint32_t window = count_field(r, "sliding_window", 1u << 28, 1u << 28);
    if (window && window < c->max_positions) c->max_positions = window;
}

static uint32_t usual_head_dim(const weft__config *c)
{
    if (c->qk_norm) return 128; /* Qwen3: whatever the hidden size */
    return c->heads && c->hidden >= c->heads ? c->hidden / c->heads : 1;
}

static int read_fields(reader *r, weft__config *out)
{
    weft__config c = {.model_type = "llama"};
    read_family(r, &c);
    c.hidden = count_field(r, "hidden_size", 1u << 20, 0);
    c.intermediate = count_field(r, "intermediate_size", 1u << 22, 0);
    c.layers = count_field(r, "num_hidden_layers", 4096, 0);
    c.heads = count_field(r, "num_attention_heads", 4096, 0);
    c.kv_heads = count_field(r, "num_key_value_heads", 4096, c.heads ? c.heads : 1);
    c.head_dim = count_field(r, "head_dim", 1u << 16, usual_head_dim(&c));
    c.vocab = count_field(r, "vocab_size", 1u << 24, 0);
    c.norm_eps = number_field(r, "rms_norm_eps", 0, 1, 1e-6);
    read_positions(r, &c);
    read_rope(r, &c);
    c.tied_embeddings = flag_field(r, "tie_word_embeddings");
    if (c.kv_heads && c.heads % c.kv_heads) fail(r, "num_key_value_heads", "does not divide num_attention_heads");
    refuse_unsupported(r);
    if (!r->status) *out = c;
    return r->status;
}

int weft__config_parse(const char *text, size_t length, const char *name, weft__config *out)
{
    json_error_t error;
    if (length > MAX_BYTES) return weft__fail(WEFT_EFILE, "%s: larger than %u KB", name, MAX_BYTES >> 10);
    json_t *root = json_loadb(length ? text : "", length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return weft__fail(WEFT_EFILE, "%s: line %d: %s", name, error.line, error.text);
    reader r = {name, "", root, 0};
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

/* A frequency that turns less than `low` times within the original length is divided by the factor, one that turns more
 * than `high` times is kept.                                                                                            */
static double llama3_frequency(const weft__config *c, double f)
{
    const double tau = 6.283185307179586;
    double turns = c->rope_original * f / tau;
    double keep = fmin(fmax((turns - c->rope_low) / (c->rope_high - c->rope_low), 0), 1);
    return keep * f + (1 - keep) * f / c->rope_factor;
}

void weft__config_rope(const weft__config *c, float *out)
{
    for (uint32_t i = 0; i < c->head_dim / 2; i++) {
        double f = pow(c->rope_theta, -2.0 * i / c->head_dim);
        if (c->rope == WEFT__ROPE_LLAMA3) f = llama3_frequency(c, f);
        if (c->rope == WEFT__ROPE_LINEAR) f /= c->rope_factor;
        out[i] = (float)f;
    }
}
