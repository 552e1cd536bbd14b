/* taskgraph_names.c: see taskgraph_names.h. */
#include "taskgraph_names.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

int weft__tg_names_init(weft__tg_names *n, uint64_t room)
{
    uint64_t slots = 16;
    while (slots < 2 * room)
        slots *= 2;
    *n = (weft__tg_names){.room = room, .mask = (uint32_t)(slots - 1)};
    n->text = calloc(room + 1, sizeof *n->text);
    n->slot = calloc(slots, sizeof *n->slot);
    return n->text && n->slot ? 0 : weft__fail(WEFT_ENOMEM, "%llu names", (unsigned long long)room);
}

void weft__tg_names_free(weft__tg_names *n)
{
    free(n->text);
    free(n->slot);
    *n = (weft__tg_names){0};
}

uint32_t weft__tg_names_find(weft__tg_names *n, const char *text, int add)
{
    uint32_t h = 2166136261u;
    for (const char *c = text; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    for (h &= n->mask; n->slot[h]; h = (h + 1) & n->mask)
        if (strcmp(n->text[n->slot[h] - 1], text) == 0) return n->slot[h] - 1;
    if (!add || n->n == n->room) return WEFT__TG_NONE;
    n->text[n->n] = text;
    n->slot[h] = n->n + 1;
    return n->n++;
}

int weft__tg_names_of(const weft__taskgraph *g, weft__tg_names *out)
{
    int status = weft__tg_names_init(out, g->n_task);
    for (uint32_t t = 0; t < g->n_task && !status; t++) {
        if (weft__tg_names_find(out, weft__tg_name(g, t), 0) != WEFT__TG_NONE)
            status = weft__fail(WEFT_EFILE, "two tasks are called %s", weft__tg_name(g, t));
        weft__tg_names_find(out, weft__tg_name(g, t), 1);
    }
    return status;
}
