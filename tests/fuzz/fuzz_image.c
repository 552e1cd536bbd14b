/* fuzz_image.c: any bytes as an image. The hash is made right first, or nothing would get past it; what opens is
 * validated, and what the validator accepts is summed up and its strings are read.                                      */
#include "../../host/image.h"
#include "../../host/plan.h"
#include "../../host/validate.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft__image img = {0};
    uint8_t *copy = malloc(size ? size : 1); /* of its own, so that a read past the end is seen */
    if (!copy) return 0;
    memcpy(copy, data, size);
    if (size >= sizeof(weft_image_header)) weft__image_seal(copy, size);
    if (weft__image_open(copy, size, "fuzz", &img) == 0 && weft__validate(&img, NULL) == 0) {
        weft__plan_stats stats;
        weft__plan_stats_of(&img, &stats);
        for (uint32_t t = 0; t < img.n_tensor; t++)
            if (strlen(weft__image_string(&img, img.tensors[t].name)) > size) abort();
    }
    weft__image_close(&img);
    free(copy);
    return 0;
}
