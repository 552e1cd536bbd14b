/* queue_spec.c: see queue_spec.h. Enters: text. Leaves: numbers, and perhaps a module that is loaded. */
#include "queue_spec.h"

#include "../host/error.h"
#include "weft_policy_abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CAPACITY = 1 << 24,
    MOST_BUCKETS = 64,
    MOST_BACKOFF_NS = 1000000
};

extern const weft__policy_module weft__policy_builtin;
static const char *const policy_names[WEFT_POLICY_COUNT] = {"static", "fifo", "push", "steal", "priority"};

typedef struct parameter {
    const char *name;
    const char *const *words; /* NULL-ended: the n-th one means n; NULL: a number */
    uint32_t min, max;
    uint32_t *out;
} parameter;

static int bad_parameter(const char *text, const parameter *p)
{
    char want[128] = "";
    for (uint32_t i = 0; p->words && p->words[i]; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%s", i ? ", " : "", p->words[i]);
    if (!p->words) snprintf(want, sizeof want, "a number from %u to %u", p->min, p->max);
    return weft__fail(WEFT_EUSAGE, "queue '%s': %s: expected %s", text, p->name, want);
}

static int set_parameter(const char *text, const parameter *p, const char *value, size_t n)
{
    char word[32];
    if (n >= sizeof word) return bad_parameter(text, p);
    memcpy(word, value, n);
    word[n] = 0;
    for (uint32_t i = 0; p->words && p->words[i]; i++)
        if (strcmp(word, p->words[i]) == 0) {
            *p->out = i;
            return 0;
        }
    char *end;
    errno = 0;
    const unsigned long v = strtoul(word, &end, 10);
    if (p->words || word[0] < '0' || word[0] > '9' || *end || errno || v < p->min || v > p->max)
        return bad_parameter(text, p);
    *p->out = (uint32_t)v;
    return 0;
}

static int unknown_parameter(const char *text, const char *name, size_t n, const parameter *p)
{
    char known[256] = "";
    for (; p->name; p++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "", p->name);
    return weft__fail(WEFT_EUSAGE, "queue '%s': no parameter '%.*s'; it has %s", text, (int)n, name,
                      *known ? known : "none");
}

/* at: behind the colon, or NULL. Sets what is given. */
static int set_parameters(const char *text, const char *at, const parameter *table)
{
    while (at) {
        const char *comma = strchr(at, ','), *end = comma ? comma : at + strlen(at),
                   *equals = memchr(at, '=', (size_t)(end - at));
        const size_t n = (size_t)((equals ? equals : end) - at);
        const parameter *p = table;
        while (p->name && (strlen(p->name) != n || memcmp(p->name, at, n)))
            p++;
        if (!p->name) return unknown_parameter(text, at, n, table);
        if (!equals) return weft__fail(WEFT_EUSAGE, "queue '%s': %s needs a value", text, p->name);
        const int status = set_parameter(text, p, equals + 1, (size_t)(end - equals - 1));
        if (status) return status;
        at = comma ? comma + 1 : NULL;
    }
    return 0;
}

static void echo_parameters(weft__queue_spec *q, const char *name, size_t n, const parameter *p)
{
    size_t used = (size_t)snprintf(q->text, sizeof q->text, "%.*s", (int)n, name);
    for (char mark = ':'; p->name && used < sizeof q->text; p++, mark = ',') {
        if (p->words)
            used += (size_t)snprintf(q->text + used, sizeof q->text - used, "%c%s=%s", mark, p->name,
                                     p->words[*p->out]);
        else
            used += (size_t)snprintf(q->text + used, sizeof q->text - used, "%c%s=%u", mark, p->name, *p->out);
    }
}

/* ---------------------------------------------------------------------------------------------------------- modules */

static int load_module(weft__queue_spec *q, const char *text, size_t n)
{
    char path[512];
    if (n >= sizeof path) return weft__fail(WEFT_EUSAGE, "queue: a path of %zu characters", n);
    memcpy(path, text, n);
    path[n] = 0;
    q->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!q->handle) return weft__fail(WEFT_EFILE, "queue '%s': %s", path, dlerror());
    const weft__policy_module *m = dlsym(q->handle, WEFT_POLICY_SYMBOL);
    if (!m || m->magic != WEFT_POLICY_MAGIC)
        return weft__fail(WEFT_EFILE, "queue '%s': not a policy made with weft_add_policy", path);
    if (m->abi != WEFT_POLICY_ABI)
        return weft__fail(WEFT_EFILE,
                          "queue '%s': made from sources with hash %016llx, this library from %016llx; build it again "
                          "against this library's installation",
                          path, (unsigned long long)m->abi, (unsigned long long)WEFT_POLICY_ABI);
    q->module = m;
    return 0;
}

static int parse_module(weft__queue_spec *q, const char *text, size_t n, const char *at)
{
    parameter table[WEFT_POLICY_PARAMS + 2] = {{0}};
    int status = load_module(q, text, n);
    if (status) return status;
    const weft__policy_module *m = q->module;
    for (uint32_t i = 0; i < m->n_param; i++) {
        q->loop.param[i] = m->params[i].otherwise;
        table[i] = (parameter){m->params[i].name, NULL, m->params[i].min, m->params[i].max, &q->loop.param[i]};
    }
    table[m->n_param] = (parameter){"capacity", NULL, 0, MOST_CAPACITY, &q->capacity};
    q->policy = WEFT_POLICY_PUSH;
    q->loop.run = m->run;
    q->loop.foreign = 1;
    status = set_parameters(text, at, table);
    if (!status) echo_parameters(q, text, n, table);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- all */

static int parse_builtin(weft__queue_spec *q, const char *text, size_t n, const char *at)
{
    static const char *const victims[] = {"ring", "random", "near", NULL}, *const amounts[] = {"1", "half", NULL},
                             *const ends[] = {"fifo", "lifo", NULL};
    const parameter capacity = {"capacity", NULL, 0, MOST_CAPACITY, &q->capacity};
    const parameter none[] = {{0}}, push[] = {capacity, {0}},
                    steal[] = {{"victim", victims, 0, 0, &q->loop.victim},
                               {"amount", amounts, 0, 0, &q->loop.half},
                               {"end", ends, 0, 0, &q->loop.lifo},
                               {"backoff", NULL, 0, MOST_BACKOFF_NS, &q->loop.backoff_ns},
                               capacity,
                               {0}},
                    priority[] = {{"buckets", NULL, 1, MOST_BUCKETS, &q->buckets}, capacity, {0}};
    const parameter *const tables[WEFT_POLICY_COUNT] = {none, none, push, steal, priority};
    for (uint32_t i = 0; i < WEFT_POLICY_COUNT; i++) {
        if (strlen(policy_names[i]) != n || memcmp(policy_names[i], text, n)) continue;
        q->policy = i;
        const int status = set_parameters(text, at, tables[i]);
        if (!status) echo_parameters(q, text, n, tables[i]);
        return status;
    }
    return weft__fail(WEFT_EUSAGE,
                      "queue '%s': expected static, fifo, push, steal or priority, or the path of a module (with a /)",
                      text);
}

int weft__queue_parse(const char *text, weft__queue_spec *q)
{
    *q = (weft__queue_spec){.buckets = 8, .module = &weft__policy_builtin};
    q->loop.run = weft__worker_run;
    q->loop.kinds = weft__kinds;
    if (!text) text = "static";
    const char *slash = strrchr(text, '/'), *colon = strchr(slash ? slash : text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    int status = slash ? parse_module(q, text, n, colon ? colon + 1 : NULL)
                       : parse_builtin(q, text, n, colon ? colon + 1 : NULL);
    if (status || !q->capacity || !(q->capacity & (q->capacity - 1))) return status;
    return weft__fail(WEFT_EUSAGE, "queue '%s': capacity %u is not a power of two", text, q->capacity);
}

void weft__queue_close(weft__queue_spec *q)
{
    if (q->handle) dlclose(q->handle);
    q->handle = NULL;
}

int weft__queue_check_plain(const weft__queue_spec *q)
{
    const weft__loop *l = &q->loop;
    if (!q->handle && !l->victim && !l->half && !l->lifo && !l->backoff_ns) return 0;
    return weft__fail(WEFT_EUNSUPPORTED, "queue '%s': so far on emulated devices only", q->text);
}

/* The comma behind a spec, or NULL: one that NAME= follows belongs to a spec with parameters. */
static const char *end_of_spec(const char *at)
{
    const char *colon = strchr(at, ':'), *comma = strchr(at, ',');
    for (; comma; comma = strchr(comma + 1, ',')) {
        const char *word = comma + 1;
        if (!colon || colon > comma || word[strcspn(word, "=,:/")] != '=') break;
    }
    return comma;
}

int weft__queue_is_list(const char *text) { return end_of_spec(text) != NULL; }

int weft__queue_split(char *list, const char **specs, uint32_t most, uint32_t *n)
{
    for (char *at = list, *next; at; at = next) {
        if (*n == most) return weft__fail(WEFT_EUSAGE, "--queue: more than %u", most);
        specs[(*n)++] = at;
        next = (char *)(uintptr_t)end_of_spec(at);
        if (next) *next++ = 0;
    }
    return 0;
}
