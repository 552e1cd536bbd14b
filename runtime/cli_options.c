/* cli_options.c: option tables and exit codes. Enters: argv. Leaves: values in the tables' targets, or a message. */
#include "cli.h"

#include "../host/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_help(const weft__option *table, const char *synopsis, const char *about)
{
    printf("usage: %s\n\n%s\n\noptions:\n", synopsis, about);
    for (const weft__option *o = table; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-22s %s\n", left, o->help);
    }
    printf("  %-22s %s\n", "--help", "this text");
}

static int bad_value(const weft__option *o, const char *text)
{
    if (o->max > 0)
        return weft__fail(WEFT_EUSAGE, "%s %s: expected a number from %.15g to %.15g", o->name, text, o->min, o->max);
    return weft__fail(WEFT_EUSAGE, "%s %s: expected a number", o->name, text);
}

static int set_integer(const weft__option *o, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end || errno) return bad_value(o, text);
    if (o->type == WEFT_OPT_U32 && v > UINT32_MAX) return bad_value(o, text);
    if (o->max > 0 && ((double)v < o->min || (double)v > o->max)) return bad_value(o, text);
    if (o->type == WEFT_OPT_U32)
        *(uint32_t *)o->out = (uint32_t)v;
    else
        *(uint64_t *)o->out = v;
    return 0;
}

static int set_value(const weft__option *o, const char *text)
{
    char *end;
    switch (o->type) {
    case WEFT_OPT_FLAG: *(bool *)o->out = true; return 0;
    case WEFT_OPT_TEXT: *(const char **)o->out = text; return 0;
    case WEFT_OPT_U32:
    case WEFT_OPT_U64: return set_integer(o, text);
    case WEFT_OPT_F64: break;
    }
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v) || (o->max > 0 && (v < o->min || v > o->max))) return bad_value(o, text);
    *(double *)o->out = v;
    return 0;
}

/* "--name" or "--name=value": the row that it means, and its value if it is joined. */
static const weft__option *find_option(const weft__option *table, const char *word, const char **joined)
{
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    *joined = equals ? equals + 1 : NULL;
    for (; table->name; table++)
        if (strlen(table->name) == length && memcmp(table->name, word, length) == 0) return table;
    return NULL;
}

int weft__options(int argc, char **argv, const weft__option *table, const char *synopsis, const char *about,
                  const char **rest, int *n_rest)
{
    int room = rest ? *n_rest : 0, used = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(table, synopsis, about);
            return -1;
        }
        if (word[0] != '-' || !word[1]) {
            if (used == room) return weft__fail(WEFT_EUSAGE, "unexpected argument '%s'", word);
            rest[used++] = word;
            continue;
        }
        const weft__option *o = find_option(table, word, &value);
        if (!o) return weft__fail(WEFT_EUSAGE, "unknown option '%s'", word);
        if (o->type == WEFT_OPT_FLAG && value) return weft__fail(WEFT_EUSAGE, "%s takes no value", o->name);
        if (o->type != WEFT_OPT_FLAG && !value) {
            if (i + 1 == argc) return weft__fail(WEFT_EUSAGE, "%s needs a value (%s)", o->name, o->value);
            value = argv[++i];
        }
        int status = set_value(o, value);
        if (status) return status;
    }
    if (n_rest) *n_rest = used;
    return 0;
}

int weft__exit(const char *verb, int status)
{
    static const struct {
        int code, exit;
        const char *text;
    } list[] = {
#define WEFT_STATUS(name, code, exit, text) {code, exit, text},
        WEFT_STATUS_LIST(WEFT_STATUS)
#undef WEFT_STATUS
    };
    if (status == 0) return 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (list[i].code != status) continue;
        fprintf(stderr, "weft %s: %s: %s\n", verb, list[i].text, weft__error());
        if (list[i].exit == 2) fprintf(stderr, "`weft %s --help` lists the options\n", verb);
        return list[i].exit;
    }
    fprintf(stderr, "weft %s: status %d: %s\n", verb, status, weft__error());
    return 3;
}

void weft__progress(const char *text)
{
    static int person = -1;
    if (person < 0) person = isatty(STDERR_FILENO) == 1;
    if (!person) return;
    fprintf(stderr, "\r\033[K%s%s", text ? text : "", text ? " ..." : "");
    fflush(stderr);
}
