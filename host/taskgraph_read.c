/* taskgraph_read.c: which reader a graph needs. */
#include "taskgraph.h"

#include "error.h"
#include "graphgen.h"
#include "map.h"

#include <string.h>

static int ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

int weft__tg_read(const char *text, weft__taskgraph *g)
{
    weft__map map;
    weft__tg_init(g, 1);
    if (strncmp(text, "gen:", 4) == 0) return weft__graphgen(text, g);
    if (ends_in(text, ".dot") || ends_in(text, ".gv")) return weft__tg_read_dot(text, g);
    if (!ends_in(text, ".json")) return weft__tg_read_stg(text, g);
    int status = weft__map_open(text, &map);
    if (status) return status;
    const char *own = map.size ? memmem(map.bytes, map.size < 256 ? map.size : 256, "\"weft_graph\"", 12) : NULL;
    weft__map_close(&map);
    return own ? weft__tg_read_json(text, g) : weft__tg_read_wfformat(text, g);
}
