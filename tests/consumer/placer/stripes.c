/* stripes.c: a placement policy of one's own: tasks in stripes of `stripe` (8), in topological order, over the devices.
 *
 *     cc -shared -fPIC -I PREFIX/include stripes.c -o stripes.so
 *     weft place gen:stencil --devices 4x8 --policy heft,./stripes.so,./stripes.so:stripe=32                             */
#include <weft/placer.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int place_stripes(weft_placing *p)
{
    const weft__taskgraph *g = p->graph;
    unsigned stripe = 8;
    if (*p->options && sscanf(p->options, "stripe=%u", &stripe) != 1) {
        snprintf(p->error, sizeof p->error, "expected stripe=N, not '%s'", p->options);
        return -2; /* WEFT_EUSAGE */
    }
    for (uint32_t i = 0; i < g->n_task && stripe; i++) {
        const uint32_t t = g->order[i];
        uint32_t d = i / stripe % p->machine->n_device;
        while (isinf(weft__tg_cost(g, t, d))) /* it can't run there */
            d = (d + 1) % p->machine->n_device;
        p->device[t] = d;
    }
    return 0;
}

WEFT_PLACER("stripes", "stripes of tasks over the devices", place_stripes);
