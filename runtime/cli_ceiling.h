/* cli_ceiling.h: what reading memory can reach at all, for comparison with what the engine does. Emulated devices: a plain sum;
 * a GPU: bulk copies into shared memory, as the kernel's loader does them. For `weft bench` and bench/ceiling.cu.        */
#ifndef WEFT_RUNTIME_CLI_CEILING_H
#define WEFT_RUNTIME_CLI_CEILING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums n words, all of which are 1, by `threads` threads, each its share; *us: from before their start to after their end.
 * WEFT_EMACHINE: no threads; WEFT_EWRONG: the sum is not n.                                                            */
int weft__plain_sum(const uint64_t *words, uint64_t n, uint32_t threads, double *us);

#ifdef WEFT_HAVE_CUDA

typedef struct weft__gpu_ceiling { /* a GPU with random data on it */
    char name[64];
    uint32_t workers; /* SMs; one CTA reads on each */
    int gpu;
    uint64_t bytes;
    void *data, *sums, *start, *stop; /* buffers, events */
} weft__gpu_ceiling;

/* bytes: the most that will be read, a multiple of 256 KB. Close *out also after a failure. */
int weft__gpu_ceiling_open(int gpu, uint64_t bytes, weft__gpu_ceiling *out);
/* Reads `bytes` once for each of us[0 .. n), after three times that don't count; from event to event around one launch.
 * in_flight: copies of 16 KB on their way, a CTA; 1 to 12. WEFT_EWRONG: something else arrived than lies there.       */
int weft__gpu_ceiling_read(weft__gpu_ceiling *c, uint64_t bytes, uint32_t in_flight, uint32_t n, double *us);
void weft__gpu_ceiling_close(weft__gpu_ceiling *c); /* legal on a zeroed struct, and twice */

#endif

#ifdef __cplusplus
}
#endif

#endif
