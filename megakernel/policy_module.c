/* policy_module.c: see policy_module.h. In libweft it describes the built-in push (weft__policy_builtin), in a module the
 * policy that the module was made for.                                                                                 */
#include "policy_module.h"

#ifdef WEFT_POLICY_HEADER
#include WEFT_POLICY_HEADER
#include "weft_policy_abi.h"
#else
#include "policy_push.h"
#define WEFT_POLICY_ABI 0
#define WEFT_POLICY_NAME "push"
#endif

#ifdef POLICY_PARAMS
static const weft_policy_param policy_parameters[] = {POLICY_PARAMS};
enum {
    N_POLICY_PARAMETER = sizeof policy_parameters / sizeof policy_parameters[0]
};
WEFT_STATIC_ASSERT(N_POLICY_PARAMETER <= WEFT_POLICY_PARAMS, "a policy has at most WEFT_POLICY_PARAMS parameters");
#else
static const weft_policy_param *const policy_parameters = NULL;
enum {
    N_POLICY_PARAMETER = 0
};
#endif

static uint64_t words_of(const weft_policy_queue *q) { return policy_words(q); }
static void init_words(const weft_policy_queue *q) { policy_init(q); }

#ifdef WEFT_POLICY_HEADER
#define weft__policy_builtin weft_policy_module
__attribute__((visibility("default")))
#endif
extern const weft__policy_module weft__policy_builtin;
const weft__policy_module weft__policy_builtin = {.magic = WEFT_POLICY_MAGIC,
                                                  .abi = WEFT_POLICY_ABI,
                                                  .name = WEFT_POLICY_NAME,
                                                  .params = N_POLICY_PARAMETER ? policy_parameters : NULL,
                                                  .n_param = N_POLICY_PARAMETER,
                                                  .words = words_of,
                                                  .init = init_words,
                                                  .run = weft__worker_run};
