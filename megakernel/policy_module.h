/* policy_module.h: what the engine needs of a policy: the built-in push, or one from a loadable module.
 *
 * Enters: a policy's header, as WEFT_POLICY_HEADER, through policy_module.c. Leaves: weft_policy_module. A module is cpu_*.c and
 * policy_module.c, compiled around that header; it calls nothing of libweft, and gets the bodies through weft__loop.      */
#ifndef WEFT_MEGAKERNEL_POLICY_MODULE_H
#define WEFT_MEGAKERNEL_POLICY_MODULE_H

#include "cpu_worker.h"
#include "policy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_POLICY_MAGIC 0x59434c5054464557ull /* "WEFTPLCY" */
#define WEFT_POLICY_SYMBOL "weft_policy_module"

typedef struct weft__policy_module {
    uint64_t magic;
    uint64_t abi; /* hash of the sources that both sides were made from (weft_policy_abi.h) */
    const char *name;
    const weft_policy_param *params; /* [n_param] */
    uint32_t n_param, pad;
    uint64_t (*words)(const weft_policy_queue *q);
    void (*init)(const weft_policy_queue *q);
    weft__run_fn *run;
} weft__policy_module;

#ifdef __cplusplus
}
#endif

#endif
