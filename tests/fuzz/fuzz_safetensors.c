/* fuzz_safetensors.c: any bytes as a .safetensors file; what is accepted can be read to its last value. */
#include "../../host/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft__st_file file;
    if (weft__st_parse(data, size, "fuzz", &file)) return 0;
    for (uint32_t i = 0; i < file.n_tensor; i++) {
        const weft__st_tensor *t = &file.tensors[i];
        uint64_t n = t->rows * t->cols;
        float *values = malloc((n ? n : 1) * sizeof *values);
        if (values) weft__st_read(t, 0, n, values);
        free(values);
    }
    weft__st_file_close(&file);
    return 0;
}
