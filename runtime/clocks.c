/* clocks.c: see clocks.h. Enters: names of devices. Leaves: a text, or why there is none; nothing is kept open. */
#include "clocks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note(double mhz, double *low, double *high)
{
    if (mhz <= 0) return;
    if (*low == 0 || mhz < *low) *low = mhz;
    if (mhz > *high) *high = mhz;
}

static void read_cpufreq(double *low, double *high)
{
    for (int cpu = 0; cpu < 4096; cpu++) {
        char path[96];
        double khz = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu);
        FILE *f = fopen(path, "r");
        if (!f) return;
        if (fscanf(f, "%lf", &khz) == 1) note(khz / 1000, low, high);
        fclose(f);
    }
}

static void read_cpuinfo(double *low, double *high)
{
    char line[512];
    double mhz;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "cpu MHz : %lf", &mhz) == 1) note(mhz, low, high);
    if (f) fclose(f);
}

static void read_cpu(weft__clocks *out)
{
    double low = 0, high = 0;
    read_cpufreq(&low, &high);
    if (high == 0) read_cpuinfo(&low, &high);
    if (high == 0)
        snprintf(out->why, sizeof out->why, "neither cpufreq nor /proc/cpuinfo tells");
    else
        snprintf(out->text, sizeof out->text, "cpu %.0f-%.0f MHz", low, high);
}

/* The part of NVML that is used, by its stable ABI. */
typedef struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*handle)(unsigned index, void **device);
    int (*clock)(void *device, int type, unsigned *mhz);
} nvml;
enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2
};

static int load(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof p); /* ISO C has no conversion from objects to functions */
    return p != NULL;
}

static void read_nvml(const nvml *n, unsigned index, weft__clocks *out)
{
    void *device;
    unsigned sm = 0, memory = 0;
    if (n->handle(index, &device) || n->clock(device, NVML_CLOCK_SM, &sm) || n->clock(device, NVML_CLOCK_MEM, &memory))
        snprintf(out->why, sizeof out->why, "NVML does not tell the clocks of GPU %u", index);
    else
        snprintf(out->text, sizeof out->text, "gpu %u: SM %u MHz, memory %u MHz", index, sm, memory);
}

static void read_gpu(unsigned index, weft__clocks *out)
{
    nvml n;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(out->why, sizeof out->why, "libnvidia-ml.so.1 is not there");
        return;
    }
    if (!load(lib, "nvmlInit_v2", &n.init) || !load(lib, "nvmlShutdown", &n.shutdown) ||
        !load(lib, "nvmlDeviceGetHandleByIndex_v2", &n.handle) || !load(lib, "nvmlDeviceGetClockInfo", &n.clock) ||
        n.init()) {
        snprintf(out->why, sizeof out->why, "NVML does not start");
    } else {
        read_nvml(&n, index, out);
        n.shutdown();
    }
    dlclose(lib);
}

void weft__clocks_read(const char *devices, weft__clocks *out)
{
    unsigned index = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(devices, "cuda:%u", &index) != 1)
        read_cpu(out);
    else if (getenv("CUDA_VISIBLE_DEVICES"))
        snprintf(out->why, sizeof out->why, "CUDA_VISIBLE_DEVICES gives GPUs other numbers than NVML");
    else
        read_gpu(index, out);
}
