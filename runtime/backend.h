/* backend.h: what the engine needs from a kind of device. Two exist: emulated devices (cpu.c) and CUDA (cuda.cu).
 *
 * Memory is addressed by uint64_t, as the devices see it. Everything above this interface (upload, steps, reports,
 * traces) is the same for both: see engine.c. Calls return 0 or a negative status with weft__fail's message.
 * write, read and fill work while workers are resident; none of them waits for a resident kernel.                    */
#ifndef WEFT_RUNTIME_BACKEND_H
#define WEFT_RUNTIME_BACKEND_H

#include "../tasks/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft__backend weft__backend;

typedef struct weft__machine { /* opened devices; a backend extends it */
    const weft__backend *ops;
    uint32_t n_device;
    uint32_t workers[WEFT_MAX_DEVICES];  /* per device */
    char names[WEFT_MAX_DEVICES][64];    /* "cpu:0", "cuda:0 NVIDIA H200", "cuda:0/2#1 NVIDIA H200" */
    char driver[64];                     /* "" where there is none */
    double tick_ns;                      /* one tick of the trace clock; 0: from weft_trace_clock */
    const char *clock;                   /* what the trace's times are read from, in words */
    uint32_t clock_of[WEFT_MAX_DEVICES]; /* devices with the same number share that clock; below n_device */
    const struct weft__loop *loop;       /* set by the engine before launch; what emulated workers run (cpu_worker.h) */
} weft__machine;

struct weft__image;

struct weft__backend {
    const char *name; /* "cpu", "cuda" */

    /* Opens the devices that `spec` names ("cpu:3x2", "cuda:0/2"). WEFT_EUSAGE: not a spec of this backend. */
    int (*open)(const char *spec, weft__machine **out);
    void (*close)(weft__machine *m); /* NULL is legal; workers must have been joined */

    /* Device memory that every device of the machine can reach; 256-byte aligned, contents undefined. */
    int (*alloc)(weft__machine *m, uint32_t device, uint64_t bytes, uint64_t *addr);
    void (*free)(weft__machine *m, uint32_t device, uint64_t addr);
    /* Zeroed host memory that host and devices share. *host and *addr name the same bytes. */
    int (*alloc_shared)(weft__machine *m, uint64_t bytes, void **host, uint64_t *addr);
    void (*free_shared)(weft__machine *m, void *host);

    int (*write)(weft__machine *m, uint32_t device, uint64_t addr, const void *src, uint64_t bytes);
    int (*read)(weft__machine *m, uint32_t device, void *dst, uint64_t addr, uint64_t bytes);
    int (*fill)(weft__machine *m, uint32_t device, uint64_t addr, uint8_t byte, uint64_t bytes);
    /* A seeded 16-bit weight in ATOM layout, made where it lies: element (i, j) = weft_seeded(seed, i, j, scale), padding
     * zero. NULL: the engine makes it on the host and calls write.                                                     */
    int (*fill_seeded)(weft__machine *m, uint32_t device, uint64_t addr, uint32_t dtype, uint32_t rows, uint32_t cols,
                       uint64_t seed, float scale);

    /* WEFT_EUNSUPPORTED, naming op and reason, if this kind of device can't run the image under `policy`. NULL: it can. */
    int (*check)(const struct weft__image *img, uint32_t policy);
    /* Writes the 128 bytes of weft_dev.maps for weights at `w` (ATOM, rows x cols). NULL: the kernel needs none. */
    int (*tensor_map)(weft__machine *m, uint64_t w, uint32_t rows, uint32_t cols, void *map);

    /* Starts the resident workers of all devices; roots[d] is the address of device d's weft_dev. Again after a join: with
     * the same roots. Memory keeps what the workers left in it.                                                         */
    int (*launch)(weft__machine *m, const uint64_t *roots);
    /* Waits until all workers have left; WEFT_ETIME after timeout_ms. */
    int (*join)(weft__machine *m, uint32_t timeout_ms);
};

extern const weft__backend weft__backend_cpu;
#ifdef WEFT_HAVE_CUDA
extern const weft__backend weft__backend_cuda;
#endif

#ifdef __cplusplus
}
#endif

#endif
