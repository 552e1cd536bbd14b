/* lists.h: how the engine deals a queue's tasks to its workers (static: their lists; steal: their rings). upload.c has it. */
#ifndef WEFT_RUNTIME_LISTS_H
#define WEFT_RUNTIME_LISTS_H

#include "../host/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* worker_of[n_task]; list[n_task] by worker; first[workers + 1], zeroed by the caller. WEFT_ENOMEM. */
int weft__cut_lists(const weft__image *img, const weft_image_queue *q, uint32_t workers, uint32_t *list,
                    uint32_t *first, uint16_t *worker_of);

#ifdef __cplusplus
}
#endif

#endif
