/* safetensors_dir.c: the files of a model directory. Enters: a directory. Leaves: its files, checked and mapped.
 * Invariant with an index: every tensor that weight_map names stands in the file that it names, and files are named once. */
#include "safetensors.h"

#include "error.h"
#include "json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SHARDS 4096u

static int add_file(weft__safetensors *st, const char *path)
{
    weft__map map;
    weft__st_file file;
    int status = weft__map_open(path, &map);
    if (status) return status;
    status = weft__st_parse(map.bytes, map.size, path, &file);
    if (status) {
        weft__map_close(&map);
        return status;
    }
    file.map = map;
    weft__st_file *grown = realloc(st->files, (st->n_file + 1) * sizeof *grown);
    if (!grown) {
        weft__st_file_close(&file);
        return weft__fail(WEFT_ENOMEM, "table of %u files", st->n_file + 1);
    }
    st->files = grown;
    st->files[st->n_file++] = file;
    return 0;
}

typedef struct shard_names { /* slices of the index file; number i is st->files[i] */
    weft__slice *names;
    uint32_t n;
} shard_names;

static int same(const weft__slice *a, const weft__slice *b)
{
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* The number of the shard called `name`; opens it if it is new. Names of other folders are refused. */
static int shard_of(weft__safetensors *st, shard_names *known, const char *dir, const weft__json *j,
                    const weft__slice *name, uint32_t *number)
{
    /* Indexes list a shard's tensors in runs, so the last one is the likely one. */
    for (uint32_t i = known->n; i-- > 0;) {
        if (!same(&known->names[i], name)) continue;
        *number = i;
        return 0;
    }
    if (name->escaped || name->length == 0 || name->length > 255 || memchr(name->text, '/', name->length))
        return weft__fail(WEFT_EFILE, "%s: weight_map: '%.*s' is no name of a file in this directory", j->name,
                          (int)(name->length < 200 ? name->length : 200), name->text);
    if (known->n == MAX_SHARDS)
        return weft__fail(WEFT_EFILE, "%s: weight_map names over %u files", j->name, MAX_SHARDS);
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%.*s", dir, (int)name->length, name->text);
    if (length < 0 || length >= (int)sizeof path) return weft__fail(WEFT_EFILE, "%s: the path is too long", dir);
    int status = add_file(st, path);
    if (status) return status;
    weft__slice *grown = realloc(known->names, (known->n + 1) * sizeof *grown);
    if (!grown) return weft__fail(WEFT_ENOMEM, "table of %u files", known->n + 1);
    known->names = grown;
    known->names[known->n] = *name;
    *number = known->n++;
    return 0;
}

static int read_map(weft__safetensors *st, shard_names *known, const char *dir, weft__json *j)
{
    int more, status = weft__json_expect(j, '{');
    for (uint64_t n = 0; !status; n++) {
        weft__slice tensor, file;
        uint32_t number = 0;
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        if ((status = weft__json_string(j, &tensor)) || (status = weft__json_expect(j, ':'))) break;
        if ((status = weft__json_string(j, &file))) break;
        if ((status = shard_of(st, known, dir, j, &file, &number))) break;
        char name[512];
        snprintf(name, sizeof name, "%.*s", (int)(tensor.length < 511 ? tensor.length : 511), tensor.text);
        weft__safetensors one = {&st->files[number], 1};
        if (tensor.length > 511 || !weft__st_find(&one, name))
            return weft__fail(WEFT_EFILE, "%s: weight_map: tensor %s is not in %.*s", j->name, name, (int)file.length,
                              file.text);
    }
    return status;
}

static int read_index(weft__safetensors *st, shard_names *known, const char *dir, weft__json *j)
{
    int more, maps = 0, status = weft__json_expect(j, '{');
    for (uint64_t n = 0; !status; n++) {
        weft__slice key;
        if ((status = weft__json_next(j, '}', n, &more)) || !more) break;
        if ((status = weft__json_string(j, &key)) || (status = weft__json_expect(j, ':'))) break;
        if (key.length != 10 || memcmp(key.text, "weight_map", 10) != 0) {
            status = weft__json_skip(j);
            continue;
        }
        if (maps++) return weft__fail(WEFT_EFILE, "%s: weight_map is there twice", j->name);
        status = read_map(st, known, dir, j);
    }
    if (!status) status = weft__json_finish(j);
    if (!status && !maps) status = weft__fail(WEFT_EFILE, "%s: weight_map is missing", j->name);
    return status;
}

/* One name in two shards would make which one is meant a matter of luck. */
static int check_unique(const weft__safetensors *st, const char *dir)
{
    for (uint32_t f = 1; f < st->n_file; f++) {
        weft__safetensors before = {st->files, f};
        for (uint32_t i = 0; i < st->files[f].n_tensor; i++) {
            const weft__st_tensor *t = &st->files[f].tensors[i];
            char name[512];
            snprintf(name, sizeof name, "%.*s", (int)(t->name_length < 511 ? t->name_length : 511), t->name);
            if (weft__st_find(&before, name))
                return weft__fail(WEFT_EFILE, "%s: tensor %s is in two shards", dir, name);
        }
    }
    return 0;
}

static int open_sharded(const char *dir, const char *path, weft__safetensors *out)
{
    weft__map map;
    shard_names known = {0};
    int status = weft__map_open(path, &map);
    if (status) return status;
    const char *text = (const char *)map.bytes;
    weft__json j = {path, text, text, text + map.size};
    status = read_index(out, &known, dir, &j);
    if (!status) status = check_unique(out, dir);
    free(known.names);
    weft__map_close(&map);
    return status;
}

int weft__safetensors_open(const char *dir, weft__safetensors *out)
{
    char path[4096];
    *out = (weft__safetensors){0};
    if (strlen(dir) > sizeof path - 300) return weft__fail(WEFT_EFILE, "%s: the path is too long", dir);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    int status;
    if (access(path, F_OK) == 0) {
        status = open_sharded(dir, path, out);
    } else {
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        status = add_file(out, path);
    }
    if (status) weft__safetensors_close(out);
    return status;
}

void weft__safetensors_close(weft__safetensors *st)
{
    for (uint32_t i = 0; i < st->n_file; i++)
        weft__st_file_close(&st->files[i]);
    free(st->files);
    *st = (weft__safetensors){0};
}
