/* weft.h: the public face of libweft. This header is the manual.
 *
 * weft runs a plan on devices: GPUs, slices of one GPU, or emulated devices (groups of CPU threads). A plan is an *image*: bytes
 * made by the planner (`weft plan`, or the planner's calls). An *engine* is an image loaded onto devices, with its
 * workers resident: they are started once and then wait for *steps*. A step is one execution of the plan.
 *
 *     weft_engine_config c = WEFT_ENGINE_CONFIG_INIT;
 *     c.devices = "cpu:2";
 *     weft_engine *e;
 *     if (weft_engine_create(image, image_bytes, &c, &e)) die(weft_last_error());
 *     weft_tensor_write_f32(e, "x", x, n);                  // input
 *     weft_step s = WEFT_STEP_INIT;
 *     uint32_t seq;
 *     if (weft_step_submit(e, &s, &seq) || weft_step_wait(e, seq)) die(weft_last_error());
 *     weft_tensor_read_f32(e, "out", out, m);
 *     weft_engine_destroy(e);
 *
 * Errors     A call returns 0 or a negative weft_status; results go through pointers, which are written on success only
 *            (unless said otherwise). weft_last_error() says which value, where.
 * Ownership  What you pass in stays yours, and may be freed when the call returns, unless said otherwise. Handles come from a
 *            create call and go to the destroy call of the same name; destroy(NULL) is legal.
 * Threading  Different engines may be used from different threads at once. Calls on one engine must not overlap, except
 *            weft_engine_stop, _park and _resume, which may be called from any thread at any time between create and
 *            destroy. An engine that parks itself when idle has a thread of its own for that; it blocks all signals.
 * Units      Times are in the unit that the name ends in (us, ns); sizes in bytes unless the name says otherwise.
 * Structs    A struct that you fill starts with its size and has an initializer; new fields are added at its end, and an
 *            engine that is older than a field which is not zero refuses it.                                            */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef WEFT_API
#define WEFT_API __attribute__((visibility("default")))
#endif

/* ---------------------------------------------------------------------------------------------- status and version */

#ifndef WEFT_STATUS_ENUM /* the library's own sources have the same list from tasks/status.h; engine.c asserts it */
#define WEFT_STATUS_ENUM
enum weft_status {
    WEFT_OK = 0,
    WEFT_EWRONG = -1,       /* wrong result */
    WEFT_EUSAGE = -2,       /* invalid argument */
    WEFT_EMACHINE = -3,     /* not possible on this machine */
    WEFT_EABORT = -4,       /* stopped by the watchdog, or by weft_engine_stop */
    WEFT_EFILE = -5,        /* bad input file */
    WEFT_ENOMEM = -6,       /* out of memory */
    WEFT_EIO = -7,          /* input/output error */
    WEFT_EREFUSED = -8,     /* the validator can't prove the plan */
    WEFT_ETIME = -9,        /* timed out */
    WEFT_EBUSY = -10,       /* in use */
    WEFT_ECUDA = -11,       /* CUDA error */
    WEFT_EUNSUPPORTED = -12 /* not supported */
};
#endif

/* This thread's last failure in words; "" before the first. Valid until the next failure in this thread. */
WEFT_API const char *weft_last_error(void);

/* "wrong result" for WEFT_EWRONG and so on; "unknown status" for a number that is none. Static storage. */
WEFT_API const char *weft_status_text(int status);

/* The exit code that the command `weft` gives for a status: 0 ok, 1 wrong result, 2 usage, 3 machine, 4 watchdog, 5 file. */
WEFT_API int weft_status_exit(int status);

/* "0.1.0". Static storage. */
WEFT_API const char *weft_version(void);

/* --------------------------------------------------------------------------------------------------------- devices */

/* What a device spec opens, without an image: "cpu:N[xW]" N emulated devices of W threads (default: the cores, shared out),
 * "cuda" all GPUs, "cuda:0,1" chosen ones, "cuda:0/4" one GPU in four slices. NULL or "": "cuda" where there is a GPU,
 * else "cpu:1".                                                                                                        */
typedef struct weft_device_info {
    char name[64];    /* "cpu:0", "cuda:0 NVIDIA H200" */
    uint32_t workers; /* that an engine would start there */
    uint32_t pad;
} weft_device_info;

/* Writes up to `cap` devices of `spec` to out[] and their number (it may exceed cap) to *n. out may be NULL if cap is 0. */
WEFT_API int weft_devices(const char *spec, weft_device_info *out, uint32_t cap, uint32_t *n);

/* --------------------------------------------------------------------------------------------------------- engines */

typedef struct weft_engine weft_engine;

/* Where weights come from that the image names by tensor (a model's files). Rows and columns are those of the named tensor;
 * a vector has one row. Both are called by weft_engine_create only, from its thread.                                     */
typedef struct weft_weight_source {
    void *user;
    /* Shape of tensor `name`. Not 0 if there is none: create then fails with WEFT_EFILE. */
    int (*shape)(void *user, const char *name, uint32_t *rows, uint32_t *cols);
    /* Writes rows row .. row+n-1 as fp32, row-major, n * cols values. */
    int (*rows)(void *user, const char *name, uint32_t row, uint32_t n, float *dst);
} weft_weight_source;

typedef struct weft_engine_config {
    size_t size;         /* sizeof(weft_engine_config) */
    const char *devices; /* see weft_devices; must open as many devices as the image has */
    const char *queue; /* "static", "fifo", "push", "steal" or "priority", with parameters as `weft bench queue --help`
                               lists them ("steal:victim=near,amount=half"), or a module ("./mine.so"): docs/policies.md.
                               The image must be proven for it (a module: for push) */
    uint32_t deadline_us;   /* of a step, from its start; 0: none. A step that takes longer stops the engine */
    uint32_t trace_records; /* per worker; the first ones are kept. 0: no trace */
    uint32_t counter_base;  /* first value of all counters; anything is right (tests start just below the wrap) */
    uint32_t in_flight;     /* weight pages in flight a worker (CUDA); 0: chosen */
    uint32_t oneshot;       /* 1..16: workers start when so many steps are submitted, run them and leave. 0: resident */
    uint32_t unchecked;     /* tests only: load without the validator, whatever policies the image claims */
    const weft_weight_source *weights; /* NULL: the image may hold seeded weights only */
    uint32_t idle_ms; /* park after so long without a step in flight (seen within twice that time); 0: never */
} weft_engine_config;
#define WEFT_ENGINE_CONFIG_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(weft_engine_config), NULL, "static", 0, 0, 0, 0, 0, 0, NULL, 1000                                       \
    }

/* Checks the image, validates it, opens the devices, uploads everything and starts the workers; returns when all have
 * checked in. Work memory is zero. Takes as long as reading the weights takes. The image's bytes are copied.
 * WEFT_EFILE: image, model or policy's module; WEFT_EREFUSED: the validator, or the policy; WEFT_EMACHINE: devices, or not all workers became
 * resident (something else holds the GPU); WEFT_EUSAGE; WEFT_ENOMEM.                                                     */
WEFT_API int weft_engine_create(const void *image, size_t bytes, const weft_engine_config *config, weft_engine **out);

/* Stops the workers, after the steps in flight, waits for them and frees everything. If a task's body never returns (up to
 * 10 s are given), the workers and their memory are left behind rather than freed under their feet.                      */
WEFT_API void weft_engine_destroy(weft_engine *e);

/* Asks all workers to leave now; steps in flight are lost. Every later submit and wait gives WEFT_EABORT. Any thread. */
WEFT_API void weft_engine_stop(weft_engine *e);

typedef struct weft_engine_info {
    size_t size; /* sizeof(weft_engine_info), filled in by the caller */
    uint32_t n_device, n_variant;
    uint32_t n_worker;       /* all devices */
    uint32_t tasks;          /* a step of variant 0, all devices */
    uint32_t remote_signals; /* of those tasks, to other devices */
    uint32_t pad;
    uint64_t plan_hash;
    uint64_t weight_bytes, work_bytes; /* all devices */
    const char *driver;                /* "" where there is none; lives as long as the engine */
    const char *queue;                 /* with all its parameters; the same */
    uint32_t resident;                 /* 1: the workers are there; 0: parked, or a oneshot that has not begun */
    uint32_t parks;                    /* how often the engine was parked, by call or by itself */
} weft_engine_info;
WEFT_API int weft_engine_get_info(const weft_engine *e, weft_engine_info *info);

/* Device d as the engine uses it. WEFT_EUSAGE if there is none. */
WEFT_API int weft_engine_device(const weft_engine *e, uint32_t d, weft_device_info *info);

/* ------------------------------------------------------------------------------------ living in someone's process */

/* Resident workers hold what they run on: the cores of an emulated device, every SM of a GPU (of a sliced GPU: the SMs of the
 * slices) with all its shared memory. While they are there, on a GPU of the engine:
 *
 *   safe       copies between host and device (cudaMemcpyAsync on a stream of one's own); streams and events: made, recorded,
 *              queried, and waited for if all that stands before them is safe; cudaGetDevice, cudaSetDevice,
 *              cudaMemGetInfo, cudaPointerGetAttributes and other questions
 *   waits      every kernel, and so memsets, copies within the device, libraries such as cuBLAS: what was launched stays queued
 *              until the workers leave, then runs. Calls that wait for the whole device: cudaDeviceSynchronize, cudaFree,
 *              cudaFreeHost; CUDA allows it of cudaMalloc, cudaHostAlloc, cudaStreamDestroy, of the first launch of a
 *              kernel (lazy loading) and so of making a library's handle, too
 *   deadlocks  to wait for such work while the workers can't leave: with idle_ms = 0 and no call to weft_engine_park. With
 *              idle_ms it ends once the steps in flight are done and that time has passed
 *   never      cudaDeviceReset on a GPU of an engine; fork() and then CUDA in the child
 *
 * Other GPUs of the process are not concerned. Calls leave the calling thread's current device as they find it.
 * So a process that has work of its own for the GPU parks the engine before that work, or lets idle_ms do it. Weights, work
 * memory, KV caches, counters and step numbers stay on the devices; a step after a park computes the same bits.      */

/* Waits for the steps in flight, as weft_step_wait does, then lets the workers leave and waits for that. 0 also if they had
 * left. A step without a deadline that hangs is waited for (weft_engine_stop ends it); so is a thread that keeps submitting.
 * WEFT_EABORT: the engine has stopped; WEFT_EUSAGE: a oneshot engine; WEFT_ETIME: they did not leave within 10 s, and the
 * engine is stopped.                                                                                                   */
WEFT_API int weft_engine_park(weft_engine *e);

/* Starts the workers again and waits until all have checked in; 0 also if they are there. weft_step_submit does it by itself.
 * WEFT_EMACHINE: not all became resident within 10 s (another kernel holds the GPU); the engine is then stopped.       */
WEFT_API int weft_engine_resume(weft_engine *e);

/* --------------------------------------------------------------------------------------------------------- tensors */

/* Tensors that the host writes and reads between steps, by the names that the plan gives them ("x", "out"). Values are in
 * plain row-major order, whatever the layout on the device. A name that stands on several devices is one tensor: writes
 * go to all of them, reads come from the one that the plan marks as output, else from the first.
 * Don't write what a step in flight reads, nor read what it writes: wait first. The calls copy; they take no part in
 * the steps' order.                                                                                                    */
typedef struct weft_tensor_info {
    size_t size; /* sizeof(weft_tensor_info), filled in by the caller */
    uint32_t rows, cols;
    uint32_t element_bytes; /* of its own type: 2 (bf16, fp16), 4 (fp32, u32) */
    uint32_t copies;        /* devices that it stands on */
    const char *type;       /* "bf16", "fp16", "fp32", "u32" */
} weft_tensor_info;
WEFT_API int weft_tensor_get_info(const weft_engine *e, const char *name, weft_tensor_info *info);

/* `count` must be rows * cols. Values are rounded to the tensor's type, to nearest even. WEFT_EUSAGE: no such tensor, or
 * another count. u32 tensors: use the calls below.                                                                     */
WEFT_API int weft_tensor_write_f32(weft_engine *e, const char *name, const float *src, size_t count);
WEFT_API int weft_tensor_read_f32(weft_engine *e, const char *name, float *dst, size_t count);

/* The same in the tensor's own type; `bytes` must be rows * cols * element_bytes. */
WEFT_API int weft_tensor_write(weft_engine *e, const char *name, const void *src, size_t bytes);
WEFT_API int weft_tensor_read(weft_engine *e, const char *name, void *dst, size_t bytes);

/* Fills all work memory, inputs and KV caches too, with one byte: 0xff makes every float a NaN, so that what a step failed
 * to write shows. Packets are spared (a tag from the future stops the engine), and so are page tables. No step may be in
 * flight.                                                                                                              */
WEFT_API int weft_engine_poison(weft_engine *e, uint8_t byte);

/* ----------------------------------------------------------------------------------------------------------- steps */

#define WEFT_MAX_STEPS_IN_FLIGHT 16u

typedef struct weft_step {
    size_t size;            /* sizeof(weft_step) */
    uint32_t variant;       /* of the image */
    uint32_t rows;          /* rows of the batch that count; 0: all that the variant has */
    uint32_t deadline_us;   /* instead of the engine's; 0: the engine's */
    uint32_t payload_bytes; /* at most 3968 */
    const void *payload;    /* what the plan's ops expect (attention: sequence lengths); NULL if payload_bytes is 0 */
} weft_step;
#define WEFT_STEP_INIT                                                                                                 \
    {                                                                                                                  \
        sizeof(weft_step), 0, 0, 0, 0, NULL                                                                            \
    }

/* Rings the doorbell and returns. Steps run in the order of submission; *seq (may be NULL) names this one in poll and wait;
 * numbers grow, but leave out one at each park. The workers of a parked engine are started first (weft_engine_resume).
 * WEFT_EBUSY: 16 are in flight; poll or wait first. WEFT_EABORT: the engine has stopped.                                 */
WEFT_API int weft_step_submit(weft_engine *e, const weft_step *step, uint32_t *seq);

/* *done: 1 if the step has finished on every device (its outputs may be read), else 0. Never blocks. WEFT_EABORT if the
 * engine stopped before this step was done.                                                                            */
WEFT_API int weft_step_poll(weft_engine *e, uint32_t seq, int *done);

/* Waits for the step, spinning at first. Returns within 1.1 x the deadline of a step that hangs, with WEFT_EABORT and the
 * report's text as last error. Without a deadline a hang is waited for.                                                */
WEFT_API int weft_step_wait(weft_engine *e, uint32_t seq);

/* What a decoder's step chose for rows 0 .. n of the batch (those that were to be sampled): token, or 0xffffffff where a logit was
 * not a number, and its log-probability; either may be NULL. The step must be done, and at most 15 steps may have been submitted
 * since. WEFT_EUSAGE otherwise.                                                                                          */
WEFT_API int weft_step_tokens(const weft_engine *e, uint32_t seq, uint32_t n, uint32_t *token, float *logprob);

/* ---------------------------------------------------------------------------------------------------- when it stops */

/* Who stopped the engine, where, waiting for what. Numbers that don't apply are 0xffffffff. */
typedef struct weft_stop_report {
    size_t size;       /* sizeof(weft_stop_report), filled in by the caller */
    const char *cause; /* "counter", "packet", "future", "gate", "queue", "checkin", "body", "host", "internal" */
    uint32_t device, worker, step, variant, task, counter, expected, seen;
    uint64_t waited_ns;
    const char *op;   /* name of the task's op, or "" */
    const char *text; /* one sentence with all of this, and what every other worker was doing */
} weft_stop_report;   /* strings live as long as the engine */

/* WEFT_EUSAGE if the engine hasn't stopped. */
WEFT_API int weft_engine_report(weft_engine *e, weft_stop_report *report);

/* ------------------------------------------------------------------------------------------------------------ queues */

/* How often, from the engine's start to its last finished step (emulated devices; on CUDA all are 0). Modulo 2^32. */
typedef struct weft_queue_counts {
    size_t size;     /* sizeof(weft_queue_counts), filled in by the caller */
    uint32_t pops;   /* tasks taken */
    uint32_t empty;  /* looks for a task that found none: one queue, or all rings that the worker may take from */
    uint32_t steals; /* tasks (amount=half: bundles) taken out of another worker's ring, of this device or another */
    uint32_t failed; /* looks into such a ring that got none */
    uint32_t abroad; /* of the steals: from other devices */
    uint32_t pad;
} weft_queue_counts;

/* Of one worker. WEFT_EUSAGE if there is none. */
WEFT_API int weft_engine_queue_counts(weft_engine *e, uint32_t device, uint32_t worker, weft_queue_counts *counts);

/* ----------------------------------------------------------------------------------------------------------- trace */

/* One task as it ran. Times in ns on one clock for all workers of the engine, from its first event. */
typedef struct weft_event {
    uint32_t step, device, worker, task;
    const char *kind, *op;     /* live as long as the engine */
    uint64_t pop_ns;           /* taken from the queue */
    uint64_t ready_ns;         /* its inputs were there */
    uint64_t start_ns, end_ns; /* of the body */
    uint64_t signal_ns;        /* all its signals were sent */
    uint32_t counter;          /* that it waited for last; 0xffffffff: none, or unknown */
    uint32_t home;             /* the device whose task it is: `device`, unless that one has stolen it */
} weft_event;

/* Events recorded so far, ordered by device, worker, time. Writes up to `cap` of them and their number (it may exceed cap) to
 * *n. No step may be in flight.                                                                                         */
WEFT_API int weft_trace_read(weft_engine *e, weft_event *out, size_t cap, size_t *n);

/* Writes the trace as JSON that ui.perfetto.dev opens: a process a device, a thread a worker. */
WEFT_API int weft_trace_write(weft_engine *e, const char *path);

/* Writes the records as they are to `path` ("-": standard output), as CSV with a row a task:
 *
 *     step,task,kind,device,worker,t_ready,t_pop,t_start,t_end,t_signal,attempts,stolen_from,dropped
 *
 * Times are whole ns from the first t_pop, each on the clock of its device. Lines in front that begin with # say which clock
 * that is, its resolution, how far it is off device 0's and off the host's CLOCK_MONOTONIC, and the error of both: devices
 * of one clock (emulated ones; slices of a GPU) are off by 0; others are bounded by what must come before what (a step's
 * submission, its tasks, the host's notice of its end). stolen_from is empty where a task ran where it belongs. attempts:
 * failed polls for the task or its inputs, at most 255; 0 on GPUs, which don't count. dropped: tasks of that worker for
 * which trace_records had no room, the same on each of its rows. No step may be in flight.                             */
WEFT_API int weft_trace_csv(weft_engine *e, const char *path);

/* Writes a text summary to `path` ("-": standard output): time computing, waiting and idle per worker, time per op, and
 * which dependency was waited for most.                                                                                */
WEFT_API int weft_trace_summary(weft_engine *e, const char *path);

#ifdef __cplusplus
}
#endif

#endif
