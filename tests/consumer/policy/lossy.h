/* lossy.h: a policy that is wrong: it loses the last task of the plan's order, for which nobody waits. The engine must stop and
 * say so.                                                                                                             */
#define policy_pop lanes_pop
#include "lanes.h"
#undef policy_pop

WEFT_POLICY_FN int policy_pop(const weft_policy_queue *q, uint32_t worker, uint32_t *task)
{
    return lanes_pop(q, worker, task) && q->place[*task] + 1 < q->n_task;
}
