/* json_field.c: see json_field.h. */
#include "json_field.h"

#include "error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int weft__field_load(const char *path, json_t **root, weft__field *out)
{
    json_error_t e;
    *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    *out = (weft__field){.path = path, .value = *root};
    if (*root) return 0;
    if (e.line < 0) return weft__fail(WEFT_EFILE, "%s: %s", path, e.text);
    return weft__fail(WEFT_EFILE, "%s: line %d, column %d: %s", path, e.line, e.column, e.text);
}

int weft__field_fail(const weft__field *f, const char *expected)
{
    return weft__fail(WEFT_EFILE, "%s: %s: expected %s", f->path, f->at[0] ? f->at : "the file", expected);
}

int weft__field_known(const weft__field *f, const char *const *names)
{
    const char *key;
    json_t *value;
    if (!json_is_object(f->value)) return weft__field_fail(f, "an object");
    json_object_foreach((json_t *)f->value, key, value)
    {
        int known = 0;
        for (int i = 0; names[i] && !known; i++)
            known = strcmp(names[i], key) == 0;
        if (!known)
            return weft__fail(WEFT_EFILE, "%s: %s%s%.64s: no such field", f->path, f->at, f->at[0] ? "." : "", key);
    }
    return 0;
}

int weft__field_of(const weft__field *f, const char *name, int required, weft__field *out)
{
    *out = (weft__field){.path = f->path, .value = json_object_get(f->value, name)};
    snprintf(out->at, sizeof out->at, "%.90s%s%.64s", f->at, f->at[0] ? "." : "", name);
    if (out->value) return 1;
    return required ? weft__fail(WEFT_EFILE, "%s: %s is missing", f->path, out->at) : 0;
}

void weft__field_at(const weft__field *f, uint32_t i, weft__field *out)
{
    *out = (weft__field){.path = f->path, .value = json_array_get(f->value, i)};
    snprintf(out->at, sizeof out->at, "%.140s[%u]", f->at, i);
}

int weft__field_number(const weft__field *f, const char *name, int required, double min, double max, double *out)
{
    weft__field v;
    char text[96];
    const int there = weft__field_of(f, name, required, &v);
    if (there <= 0) return there;
    const double number = json_number_value(v.value);
    if (json_is_number(v.value) && number >= min && number <= max) {
        *out = number;
        return 0;
    }
    snprintf(text, sizeof text, "a number from %g to %g", min, max);
    return weft__field_fail(&v, text);
}

int weft__field_count(const weft__field *f, const char *name, int required, uint32_t min, uint32_t max, uint32_t *out)
{
    weft__field v;
    char text[96];
    const int there = weft__field_of(f, name, required, &v);
    if (there <= 0) return there;
    const json_int_t number = json_integer_value(v.value);
    if (json_is_integer(v.value) && number >= (json_int_t)min && number <= (json_int_t)max) {
        *out = (uint32_t)number;
        return 0;
    }
    snprintf(text, sizeof text, "a whole number from %u to %u", min, max);
    return weft__field_fail(&v, text);
}

int weft__field_text(const weft__field *f, const char *name, int required, char *out, size_t room)
{
    weft__field v;
    const int there = weft__field_of(f, name, required, &v);
    if (there <= 0) return there;
    if (!json_is_string(v.value) || json_string_length(v.value) >= room) return weft__field_fail(&v, "a shorter text");
    memcpy(out, json_string_value(v.value), json_string_length(v.value) + 1);
    return 0;
}
