/* clock.h: the one clock of the host side: workers of emulated devices, the engine, the benches. Defined in cpu_spin.c. */
#ifndef WEFT_MEGAKERNEL_CLOCK_H
#define WEFT_MEGAKERNEL_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds, monotonic. */
uint64_t weft__now_ns(void);

#ifdef __cplusplus
}
#endif

#endif
