/* queue_counts.c: how often workers looked for tasks, from the words that they leave in their trace lines. */
#include "engine_internal.h"

#include "../megakernel/cpu_worker.h"

#include <string.h>

int weft_engine_queue_counts(weft_engine *e, uint32_t device, uint32_t worker, weft_queue_counts *counts)
{
    int status = weft__check_size(counts, counts->size, counts->size, "weft_queue_counts");
    if (status) return status;
    if (device >= e->m->n_device || worker >= e->m->workers[device])
        return weft__fail(WEFT_EUSAGE, "worker %u of device %u: there is none", worker, device);
    weft__counts c;
    const uint64_t line = e->mem[device].trace_n + worker * sizeof(weft_line);
    status = e->b->read(e->m, device, &c, line + 4 * WEFT__COUNTS, sizeof c);
    if (status) return status;
    const weft_queue_counts out = {counts->size, c.pops, c.empty, c.steals, c.failed, c.abroad, 0};
    memcpy(counts, &out, counts->size < sizeof out ? counts->size : sizeof out);
    return 0;
}
