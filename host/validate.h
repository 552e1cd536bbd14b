/* validate.h: proves that an image can be run, or refuses it and says which two tasks, which counter, which cycle.
 *
 * Near-linear and conservative: what it can't prove, it refuses. Two tasks are *ordered* if a path of at most three
 * hops over counters leads from one to the other, or by the step gate. */
#ifndef WEFT_HOST_VALIDATE_H
#define WEFT_HOST_VALIDATE_H

#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks all variants. *proven (may be NULL): bit p set for each enum weft_policy p that makes progress with any
 * number of workers. 0, or WEFT_EREFUSED; also refused: an image whose header claims a policy that is not proven. */
int weft__validate(const weft__image *img, uint32_t *proven);

/* Proves static lists as cut for a device's workers: list[first[w] .. first[w + 1]) are the task ids of worker w.
 * Each task of the queue occurs once, and each list runs forward in the queue's order, so all lists embed in the
 * image's global topological order. */
int weft__validate_lists(const weft__image *img, uint32_t variant, uint32_t device, const uint32_t *list,
                         const uint32_t *first, uint32_t workers);

#ifdef __cplusplus
}
#endif

#endif
