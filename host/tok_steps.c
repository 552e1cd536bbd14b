/* tok_steps.c: normalizer, pre_tokenizer, post_processor, decoder and added_tokens of tokenizer.json.
 *
 * Enters: the values of those fields (small: at most 4 MB, see tok.c). Leaves: steps in the order in which they run. What weft
 * doesn't have is refused by field and type.                                                                            */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    weft__tok *t;
    const char *name, *field; /* file, top-level field */
} reader;

static int bad(const reader *r, const char *what)
{
    return weft__fail(WEFT_EFILE, "%s: %s: %s", r->name, r->field, what);
}

static int unknown(const reader *r, const char *type)
{
    return weft__fail(WEFT_EUNSUPPORTED, "%s: %s: \"%s\" is a kind that weft doesn't have", r->name, r->field, type);
}

static const char *text_of(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    return s ? s : "";
}

static int flag_of(const json_t *v, const char *key, int otherwise)
{
    const json_t *f = json_object_get(v, key);
    return json_is_boolean(f) ? json_is_true(f) : otherwise;
}

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static int keep(const reader *r, char **out, const char *text)
{
    *out = strdup(text);
    return *out ? 0 : weft__fail(WEFT_ENOMEM, "%s", r->name);
}

void weft__tok_steps_free(weft__step_tok *step, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        weft__pattern_free(step[i].pattern);
        free(step[i].text);
    }
}

/* {"Regex": "..."} or {"String": "..."}. */
static int read_pattern(const reader *r, const json_t *v, weft__step_tok *s)
{
    const json_t *p = json_object_get(v, "pattern");
    const char *regex = json_string_value(json_object_get(p, "Regex")), *literal = text_of(p, "String");
    if (regex && *regex) return weft__pattern_regex(regex, r->name, &s->pattern);
    return *literal ? weft__pattern_literal(literal, &s->pattern) : bad(r, "pattern: neither Regex nor String");
}

/* Calls one(r, element) for each element of `list`, or for v itself if it isn't of type Sequence. */
static int each(reader *r, const json_t *v, const char *list, int (*one)(reader *, const json_t *))
{
    if (json_is_null(v)) return 0;
    if (!json_is_object(v)) return bad(r, "neither an object nor null");
    if (!is(text_of(v, "type"), "Sequence")) return one(r, v);
    const json_t *steps = json_object_get(v, list);
    if (!json_is_array(steps)) return bad(r, "a Sequence without its list");
    int status = 0;
    for (size_t i = 0; i < json_array_size(steps) && !status; i++)
        status = one(r, json_array_get(steps, i));
    return status;
}

/* NULL, with WEFT_EFILE as the failure: there are too many. */
static weft__step_tok *new_step(const reader *r, weft__step_tok *list, uint32_t *n)
{
    if (*n < WEFT__TOK_STEPS) return &list[(*n)++];
    bad(r, "more than 16 steps");
    return NULL;
}

static int one_normalizer(reader *r, const json_t *v)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    static const uint32_t kinds[] = {WEFT__STEP_NFC, WEFT__STEP_NFD, WEFT__STEP_NFKC, WEFT__STEP_NFKD};
    const char *type = text_of(v, "type");
    weft__step_tok *s = new_step(r, r->t->norm, &r->t->n_norm);
    if (!s) return WEFT_EFILE;
    for (int i = 0; i < 4; i++)
        if (is(type, forms[i])) {
            s->kind = kinds[i];
            return 0;
        }
    if (is(type, "Prepend")) {
        s->kind = WEFT__STEP_PREPEND;
        return keep(r, &s->text, text_of(v, "prepend"));
    }
    if (!is(type, "Replace")) return unknown(r, type);
    s->kind = WEFT__STEP_REPLACE;
    int status = read_pattern(r, v, s);
    return status ? status : keep(r, &s->text, text_of(v, "content"));
}

int weft__tok_normalizer(weft__tok *t, const json_t *v, const char *name)
{
    reader r = {t, name, "normalizer"};
    return each(&r, v, "normalizers", one_normalizer);
}

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int byte_level(reader *r, const json_t *v)
{
    weft__step_tok *s = new_step(r, r->t->pre, &r->t->n_pre);
    if (!s) return WEFT_EFILE;
    s->kind = WEFT__STEP_BYTES;
    s->prepend = flag_of(v, "add_prefix_space", 1) ? WEFT__PREPEND_ALWAYS : WEFT__PREPEND_NEVER;
    s->split = (uint32_t)flag_of(v, "use_regex", 1);
    return s->split ? weft__pattern_regex(GPT2, r->name, &s->pattern) : 0;
}

static int metaspace_prepend(const reader *r, const json_t *v, uint32_t *out)
{
    const char *scheme = text_of(v, "prepend_scheme");
    *out = is(scheme, "never") ? WEFT__PREPEND_NEVER : is(scheme, "first") ? WEFT__PREPEND_FIRST : WEFT__PREPEND_ALWAYS;
    if (!*scheme && !flag_of(v, "add_prefix_space", 1)) *out = WEFT__PREPEND_NEVER;
    return *scheme && *out == WEFT__PREPEND_ALWAYS && !is(scheme, "always") ? bad(r, "prepend_scheme is none known")
                                                                            : 0;
}

static int metaspace(reader *r, const json_t *v)
{
    weft__step_tok *s = new_step(r, r->t->pre, &r->t->n_pre);
    if (!s) return WEFT_EFILE;
    s->kind = WEFT__STEP_META;
    s->split = (uint32_t)flag_of(v, "split", 1);
    if (!*text_of(v, "replacement")) return bad(r, "Metaspace without replacement");
    int status = metaspace_prepend(r, v, &s->prepend);
    if (!status) status = keep(r, &s->text, text_of(v, "replacement"));
    return status ? status : weft__pattern_literal(s->text, &s->pattern);
}

static int split(reader *r, const json_t *v)
{
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                            "Contiguous"};
    weft__step_tok *s = new_step(r, r->t->pre, &r->t->n_pre);
    if (!s) return WEFT_EFILE;
    s->kind = WEFT__STEP_SPLIT;
    s->invert = (uint32_t)flag_of(v, "invert", 0);
    while (s->behavior < 5 && !is(text_of(v, "behavior"), behaviors[s->behavior]))
        s->behavior++;
    return s->behavior == 5 ? bad(r, "behavior is none known") : read_pattern(r, v, s);
}

static int one_pretokenizer(reader *r, const json_t *v)
{
    const char *type = text_of(v, "type");
    if (is(type, "ByteLevel")) return byte_level(r, v);
    if (is(type, "Metaspace")) return metaspace(r, v);
    if (is(type, "Split")) return split(r, v);
    if (!is(type, "Digits")) return unknown(r, type);
    weft__step_tok *s = new_step(r, r->t->pre, &r->t->n_pre);
    if (!s) return WEFT_EFILE;
    s->kind = WEFT__STEP_SPLIT;
    s->behavior = WEFT__SPLIT_ISOLATED;
    return weft__pattern_regex(flag_of(v, "individual_digits", 0) ? "\\p{N}" : "\\p{N}+", r->name, &s->pattern);
}

int weft__tok_pretokenizer(weft__tok *t, const json_t *v, const char *name)
{
    reader r = {t, name, "pre_tokenizer"};
    return each(&r, v, "pretokenizers", one_pretokenizer);
}

static int template_ids(const reader *r, const json_t *v, const char *content, uint32_t *list, uint32_t *n)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(v, "special_tokens"), content), "ids");
    if (!json_array_size(ids)) return bad(r, "a special token of the template has no ids");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id >= (json_int_t)r->t->n_token || !r->t->token[id])
            return bad(r, "an id of the template is no token");
        if (*n == WEFT__TOK_TEMPLATE) return bad(r, "the template adds more than 16 tokens");
        list[(*n)++] = (uint32_t)id;
    }
    return 0;
}

static int one_postprocessor(reader *r, const json_t *v)
{
    const char *type = text_of(v, "type");
    if (is(type, "ByteLevel")) return 0; /* moves offsets only */
    if (!is(type, "TemplateProcessing")) return unknown(r, type);
    const json_t *single = json_object_get(v, "single");
    int status = 0, sequences = 0;
    for (size_t i = 0; i < json_array_size(single) && !status; i++) {
        const json_t *piece = json_array_get(single, i), *special = json_object_get(piece, "SpecialToken");
        sequences += json_is_object(json_object_get(piece, "Sequence"));
        if (special)
            status = sequences ? template_ids(r, v, text_of(special, "id"), r->t->after, &r->t->n_after)
                               : template_ids(r, v, text_of(special, "id"), r->t->before, &r->t->n_before);
    }
    return status ? status : sequences == 1 ? 0 : bad(r, "the template for one text doesn't hold it once");
}

int weft__tok_postprocessor(weft__tok *t, const json_t *v, const char *name)
{
    reader r = {t, name, "post_processor"};
    return each(&r, v, "processors", one_postprocessor);
}

static int keep_mark(const reader *r, const char *mark)
{
    if (!*mark || strlen(mark) >= sizeof r->t->mark) return bad(r, "the mark of a space is empty or too long");
    strcpy(r->t->mark, mark);
    return 0;
}

static int one_decoder(reader *r, const json_t *v)
{
    const char *type = text_of(v, "type");
    if (is(type, "Fuse")) return 0; /* pieces are joined anyway */
    if (is(type, "ByteLevel")) {
        r->t->decoder = WEFT__DECODE_BYTE_LEVEL;
        return 0;
    }
    if (is(type, "ByteFallback")) {
        r->t->decode_bytes = 1;
        return 0;
    }
    if (is(type, "Metaspace")) {
        uint32_t prepend;
        int status = metaspace_prepend(r, v, &prepend);
        r->t->metaspace = prepend != WEFT__PREPEND_NEVER;
        return status ? status : keep_mark(r, text_of(v, "replacement"));
    }
    if (is(type, "Replace")) {
        if (!is(text_of(v, "content"), " ")) return bad(r, "Replace by something else than a space");
        return keep_mark(r, text_of(json_object_get(v, "pattern"), "String"));
    }
    if (!is(type, "Strip")) return unknown(r, type);
    json_int_t start = json_integer_value(json_object_get(v, "start"));
    if (!is(text_of(v, "content"), " ") || json_integer_value(json_object_get(v, "stop")) || start < 0 || start > 16)
        return bad(r, "Strip of something else than up to 16 spaces at the beginning");
    r->t->strip = (uint32_t)start;
    return 0;
}

int weft__tok_decoder(weft__tok *t, const json_t *v, const char *name)
{
    reader r = {t, name, "decoder"};
    t->decoder = WEFT__DECODE_PIECES;
    if (!v || json_is_null(v)) return bad(&r, "missing");
    return each(&r, v, "decoders", one_decoder);
}

static int one_added(reader *r, const json_t *v, weft__added *a)
{
    const char *content = text_of(v, "content");
    const json_t *id = json_object_get(v, "id");
    if (!*content) return bad(r, "a token without content");
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= WEFT__TOK_MAX_ID)
        return bad(r, "an id is no number below 4194304");
    a->id = (uint32_t)json_integer_value(id);
    a->single_word = (uint8_t)flag_of(v, "single_word", 0);
    a->lstrip = (uint8_t)flag_of(v, "lstrip", 0);
    a->rstrip = (uint8_t)flag_of(v, "rstrip", 0);
    a->special = (uint8_t)flag_of(v, "special", 0);
    int status = keep(r, &a->content, content);
    if (status) return status;
    uint32_t known = weft__tok_find(r->t, content, strlen(content));
    if (known == WEFT__NO_TOKEN)
        status = weft__tok_add(r->t, content, strlen(content), a->id, r->name);
    else if (known != a->id)
        status = bad(r, "a token has another id than in the vocabulary");
    if (status || !flag_of(v, "normalized", !a->special)) return status;
    weft__text text = {0};
    status = weft__tok_normalize(r->t, content, strlen(content), &text);
    a->normalized = text.at;
    return status || text.n ? status : bad(r, "a token is nothing once it is normalised");
}

int weft__tok_added(weft__tok *t, const json_t *v, const char *name)
{
    reader r = {t, name, "added_tokens"};
    if (!v || json_is_null(v)) return 0;
    if (!json_is_array(v)) return bad(&r, "no array");
    t->added = calloc(json_array_size(v) + 1, sizeof *t->added);
    if (!t->added) return weft__fail(WEFT_ENOMEM, "%s: added_tokens", name);
    int status = 0;
    for (size_t i = 0; i < json_array_size(v) && !status; i++)
        status = one_added(&r, json_array_get(v, i), &t->added[t->n_added++]);
    return status;
}
