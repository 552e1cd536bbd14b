// cta.cuh: one worker on a GPU: its shared memory, its roles' hand-overs, and how any wait in it ends.
//
// A CTA has twelve warps. Warps 0..3 (few registers) are the roles; warps 4..11 compute (two warpgroups).
//
//   fetcher (0) --slot_full--> loader (1) --full[page]--> consumers (4..11) --slot_done--> signaler (3)
//                         \--> waiter (2) --ready, x----/
//   pages come back by empty[page] (consumers -> loader), slots by slot_free (loader, waiter, signaler -> fetcher).
//
//   The waiter also loads x of streaming GEMMs, into pages that the loader has passed over: only it knows when x may be read.
//
//   shared memory   page[0..11]   12 x 16 KB   the ring: weights and x (GEMMs), K and V (attention)
//                   scratch       20 KB        partial sums of the consumer warps on their way to one result
//                   slot[0..7]                 descriptors, ops and times of the next eight tasks
//                   step[0..15]                heads of the steps that those tasks belong to
//                   barriers
//
// Every wait of a role is bounded: mbarrier waits look at `leave`, polls of global words look at ctl.abort, the host's
// abort word and the deadline. The first who gives up writes the report; then all roles of all workers leave.
#ifndef WEFT_CTA_CUH
#define WEFT_CTA_CUH

#include "../tasks/abi.h"
#include "../tasks/layout.h"
#include "../tasks/seed.h"
#include "ptx.cuh"

constexpr uint32_t PAGES = 12;
constexpr uint32_t SLOTS = 8;
constexpr uint32_t STEPS = 16;
constexpr uint32_t CONSUMER_WARPS = 8;
constexpr uint32_t CONSUMERS = CONSUMER_WARPS * 32;
constexpr uint32_t CTA_THREADS = 128 + CONSUMERS;
constexpr uint32_t SCRATCH_BYTES = 20480;
constexpr uint32_t READY_ALL = 0xffffffffu;
constexpr uint32_t NO_PAGE = 0xffffffffu;
constexpr uint32_t SEQUENCE_CUT = 4 * PAGES
                                  << 20; // places in the sequence of pages are cut back by this, long before they wrap

enum slot_flag : uint32_t {
    SLOT_FIRST = 1, // first of a step on this worker: the waiter passes the step gate
    SLOT_LAST = 2,  // last of a step on this worker: the signaler reports it done
    SLOT_EXIT = 4,  // leave
    SLOT_EMPTY = 8  // no task
};

struct weft_slot {
    weft_task task;
    weft_op_rt op;
    uint32_t id, flags, step;                // step: index in cta_smem.step
    uint32_t ready;                          // READY_ALL: every wait has held
    uint32_t first_page;                     // streaming with x in pages: where its sequence of pages starts
    uint32_t *wait_word[2], *signal_word[2]; // of the inline waits and signals, found ahead of time
    uint32_t wait_sys;                       // bit i: wait i is of scope sys
    uint64_t t_pop, t_ready, t_start, t_end;
};

struct cta_smem {
    alignas(1024) uint8_t page[PAGES][WEFT_PAGE_BYTES];
    alignas(1024) uint8_t scratch[SCRATCH_BYTES];
    alignas(16) weft_slot slot[SLOTS];
    weft_step_head step[STEPS];
    uint64_t full[PAGES], empty[PAGES];
    uint64_t slot_full[SLOTS], slot_done[SLOTS], slot_free[SLOTS];
    uint32_t ticket[WEFT_MAX_VARIANTS]; // push: the fetcher's, next in each variant's ring
    uint32_t leave;
    uint32_t held[PAGES];   // by page: which use of it was claimed last; before the first: -1
    uint32_t recent[PAGES]; // the loader's: its last loads, page | use << 4; before the first: -1
    uint32_t stall[3]; // packet index, expected, seen: what a consumer that polls packets waits for; for the report
    uint32_t device, worker, policy, trace, base, n_device, n_worker;
    uint64_t peers;
    weft_ctl *ctl;                          // of this device
    weft_line *running;                     // of this worker
    weft_queue_rt queue[WEFT_MAX_VARIANTS]; // a copy: the acquires of other roles empty L1, again and again
};
static_assert(sizeof(cta_smem) <= 232448 - 1024, "what an SM has, less what the system takes");

WEFT_DEV cta_smem *smem(void)
{
    extern __shared__ __align__(1024) uint8_t raw[];
    return (cta_smem *)raw;
}

struct cta { // what every thread of a worker knows; the rest is in shared memory
    const weft_dev *dev;
};

WEFT_DEV weft_ctl *peer_ctl(const cta &c, uint32_t d) { return (weft_ctl *)c.dev->ctl[d]; }
WEFT_DEV weft_mailbox *mailbox(const cta &c) { return (weft_mailbox *)c.dev->mailbox; }
WEFT_DEV uint32_t *counter_word(const weft_queue_rt &q, uint32_t device, uint32_t counter)
{
    return &((weft_line *)q.words[device])[counter].value;
}
WEFT_DEV const weft_step_head &step_of(const weft_slot &s) { return smem()->step[s.step]; }
WEFT_DEV const weft_queue_rt &queue_of(const weft_slot &s) { return smem()->queue[step_of(s).variant]; }

// ----------------------------------------------------------------------------------------------- how a wait ends

struct stall { // what a wait would report
    uint32_t cause, task, counter, expected, seen;
};

// Sets the abort words of all devices; the first of all callers also writes the report. Off the fast path: by value, so
// that no caller's state has to live in memory.
WEFT_DEV void give_up(cta c, uint32_t step, stall w, uint64_t waited_ns)
{
    sts_relaxed(&smem()->leave, 1);
    if (weft_atom_cas_acq_rel_sys(&peer_ctl(c, 0)->abort.value, 0, w.cause) == 0) {
        weft_report *r = &mailbox(c)->report;
        r->cause = w.cause, r->device = smem()->device, r->worker = smem()->worker, r->step = step;
        r->task = w.task, r->counter = w.counter, r->expected = w.expected, r->seen = w.seen;
        r->waited_ns = waited_ns;
        weft_st_release_sys(&mailbox(c)->abort.value,
                            w.cause); // host: acquires in the engine before it reads the report
    }
    for (uint32_t d = 0; d < c.dev->n_device; d++)
        weft_st_relaxed_sys(&peer_ctl(c, d)->abort.value, w.cause);
}

// Looks at everything that may end a wait: returns when it began (ns; first call: now), or 0 to leave.
WEFT_DEV uint64_t poll_slow(cta c, uint64_t since, bool ask_host, uint32_t seq, uint32_t deadline_us, stall w)
{
    if (lds_relaxed(&smem()->leave)) return 0;
    if (weft_ld_relaxed_sys(&smem()->ctl->abort.value) != 0) {
        sts_relaxed(&smem()->leave, 1);
        return 0;
    }
    uint64_t now = clock_ns();
    if (since == 0) since = now;
    if (ask_host && weft_ld_relaxed_sys(&mailbox(c)->abort_request.value) != 0) {
        w.cause = WEFT_ABORT_HOST;
        give_up(c, seq, w, now - since);
        return 0;
    }
    if (deadline_us != 0 && now - since > (uint64_t)deadline_us * 1000) {
        give_up(c, seq, w, now - since);
        return 0;
    }
    return since;
}

// A poll of a global word that has failed. Call keep_polling after each failure; false: leave at once.
struct poll {
    uint64_t since = 0;
    uint32_t n = 0;
};

WEFT_DEV bool keep_polling_for(const cta &c, poll &p, uint32_t seq, uint32_t deadline_us, const stall &w)
{
    if (++p.n % 64 != 0) return true;
    return (p.since = poll_slow(c, p.since, p.n % 4096 == 0, seq, deadline_us, w)) != 0;
}
WEFT_DEV bool keep_polling(const cta &c, poll &p, const weft_step_head &step, const stall &w)
{
    return keep_polling_for(c, p, step.seq, step.deadline_us, w);
}

// Consumers don't look at clocks or at the host: they look at `leave`, and the signaler, which waits for their task, watches
// over them (await_done).
WEFT_DEV bool leaving(void) { return lds_relaxed(&smem()->leave) != 0; }
WEFT_DEV void note_stall(uint32_t packet, uint32_t expected, uint32_t seen)
{
    if (threadIdx.x % 32 == 0)
        sts_relaxed(&smem()->stall[0], packet), sts_relaxed(&smem()->stall[1], expected),
            sts_relaxed(&smem()->stall[2], seen);
}

// Waits for a hand-over inside the CTA; false: leave. These waits end because the party that they wait for polls.
WEFT_DEV bool await(uint64_t *bar, uint32_t parity)
{
    while (!mbar_try_wait(bar, parity))
        if (leaving()) return false;
    return true;
}

// Use `n` (from 0) of a slot: parity as its waiter sees it, and waiting until it is free for that use.
WEFT_DEV uint32_t slot_parity(uint32_t n) { return (n / SLOTS) & 1; }
WEFT_DEV bool await_free_slot(uint32_t n)
{
    return n < SLOTS || await(&smem()->slot_free[n % SLOTS], (n / SLOTS - 1) & 1);
}

// Consumers and loader: every wait of the task has held.
WEFT_DEV bool await_all(weft_slot &s)
{
    while (lds_acquire(&s.ready) != READY_ALL) // released in wait_loop
        if (leaving()) return false;
    return true;
}

// Loaders: use `use` (from 0) of a page. Whoever claims it loads it, or arrives in its place. There are two loaders, and pages
// of x come back late, after the weights behind them. The loader of weights claims nearly every page, a chunk is shorter than the
// ring, and so it is never two uses ahead of the consumers: the parity of `empty` tells. The loader of x may be: it looks first
// who has the page.
WEFT_DEV bool claim_page(uint32_t page, uint32_t use)
{
    if (use > 0 && !await(&smem()->empty[page], (use - 1) & 1)) return false;
    sts_relaxed(&smem()->held[page], use);
    return true;
}
WEFT_DEV bool claim_x_page(uint32_t page, uint32_t use)
{
    while ((lds_relaxed(&smem()->held[page]) + 1 - use) & 3)
        if (leaving()) return false;
    return claim_page(page, use);
}

// Shared memory must outlive the copies that are on their way into it: what a loader does before it leaves.
WEFT_DEV void drain_pages(void)
{
    for (uint32_t p = 0; p < PAGES; p++)
        while (!mbar_try_wait(&smem()->full[p], lds_relaxed(&smem()->held[p]) & 1)) {
        }
}

// Streaming GEMMs of more than a few rows keep x in pages of the ring, before the weights of the same 512 columns: blocks of
// 8 rows x 64 columns, padded to a power of two of them.
WEFT_DEV uint32_t stream_rows(const weft_slot &s) { return min(s.op.m_tile, s.op.m - s.task.tile[0]); }
WEFT_DEV uint32_t x_blocks(uint32_t rows) { return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8; } // of 8 rows
WEFT_DEV constexpr uint32_t x_pages(uint32_t blocks) { return blocks < 4 ? 1 : blocks / 2; } // a chunk takes
WEFT_DEV bool x_in_pages(const weft_slot &s)
{
    return s.task.kind == WEFT_KIND_GEMM_STREAM && !(s.op.flags & WEFT_OP_X_PACKET);
}

// All consumer warps meet. False: leave. A warp that leaves arrives once more (consumer_leave), so that the others, which
// may stand at the barrier, get past it and see `leave` too.
WEFT_DEV bool consumer_sync(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
    return !leaving();
}
WEFT_DEV void consumer_leave(void) { asm volatile("bar.arrive 1, %0;" ::"n"(CONSUMERS) : "memory"); }

#endif
