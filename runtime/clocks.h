/* clocks.h: how fast the machine's clocks run at this moment, for results. */
#ifndef WEFT_RUNTIME_CLOCKS_H
#define WEFT_RUNTIME_CLOCKS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__clocks {
    char text[96]; /* "cpu 2400-3100 MHz", "gpu 0: SM 1980 MHz, memory 2619 MHz" */
    char why[96];  /* why it isn't known; "": it is */
} weft__clocks;

/* devices: names of an engine's devices, separated by commas ("cpu:0, cpu:1", "cuda:0"). The kernel's cpufreq, else
 * /proc/cpuinfo; for GPUs NVML, if its library is there: the first GPU named.                                         */
void weft__clocks_read(const char *devices, weft__clocks *out);

#ifdef __cplusplus
}
#endif

#endif
