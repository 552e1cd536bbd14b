/* json_field.h: reads small JSON files whose fields are known: every value has a place in messages, what is not known is
 * refused. Enters: a file. Leaves: values in range, or WEFT_EFILE with file, line or field.                              */
#ifndef WEFT_HOST_JSON_FIELD_H
#define WEFT_HOST_JSON_FIELD_H

#include <jansson.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__field { /* a value and where it stands */
    const char *path;
    const json_t *value;
    char at[160]; /* "devices[3].workers" */
} weft__field;

/* The whole of a file; *root goes to json_decref. A key that stands twice is refused. */
int weft__field_load(const char *path, json_t **root, weft__field *out);

int weft__field_fail(const weft__field *f, const char *expected);
/* Refuses keys of an object that are none of names[] (NULL-ended); and what is no object. */
int weft__field_known(const weft__field *f, const char *const *names);

/* Member `name`. 1: there, 0: not there (and not `required`), or an error. */
int weft__field_of(const weft__field *f, const char *name, int required, weft__field *out);
/* Element i of an array; f->value is one. */
void weft__field_at(const weft__field *f, uint32_t i, weft__field *out);

/* Member `name` into *out, which keeps its value where the member is missing and not required. */
int weft__field_number(const weft__field *f, const char *name, int required, double min, double max, double *out);
int weft__field_count(const weft__field *f, const char *name, int required, uint32_t min, uint32_t max, uint32_t *out);
int weft__field_text(const weft__field *f, const char *name, int required, char *out, size_t room);

#ifdef __cplusplus
}
#endif

#endif
