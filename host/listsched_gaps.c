/* listsched_gaps.c: see listsched_gaps.h. Gaps are ordered by start, then by worker, the lower one last: it is found first. */
#include "listsched_gaps.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>

static uint32_t scramble(uint32_t x) /* a bijection: no two nodes are of one priority */
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static void sum_up(weft__gap *node, uint32_t i)
{
    weft__gap *n = &node[i];
    n->latest = n->end;
    n->longest = n->end - n->start;
    const uint32_t child[2] = {n->left, n->right};
    for (int k = 0; k < 2; k++) {
        if (child[k] == WEFT__GAP_NONE) continue;
        const weft__gap *c = &node[child[k]];
        if (c->latest > n->latest) n->latest = c->latest;
        if (c->longest > n->longest) n->longest = c->longest;
    }
}

static int before(const weft__gap *a, const weft__gap *b)
{
    return a->start != b->start ? a->start < b->start : a->worker > b->worker;
}

/* Of the tree at `at`: what comes before `key`, and the rest. */
static void split(weft__gap *node, uint32_t at, const weft__gap *key, uint32_t *low, uint32_t *high)
{
    if (at == WEFT__GAP_NONE) {
        *low = *high = WEFT__GAP_NONE;
        return;
    }
    if (before(&node[at], key)) {
        split(node, node[at].right, key, &node[at].right, high);
        *low = at;
    } else {
        split(node, node[at].left, key, low, &node[at].left);
        *high = at;
    }
    sum_up(node, at);
}

static uint32_t join(weft__gap *node, uint32_t low, uint32_t high)
{
    if (low == WEFT__GAP_NONE) return high;
    if (high == WEFT__GAP_NONE) return low;
    uint32_t top = low;
    if (node[low].priority > node[high].priority) {
        node[low].right = join(node, node[low].right, high);
    } else {
        node[high].left = join(node, low, node[high].left);
        top = high;
    }
    sum_up(node, top);
    return top;
}

static uint32_t insert(weft__gap *node, uint32_t at, uint32_t fresh)
{
    if (at == WEFT__GAP_NONE) return fresh;
    if (node[fresh].priority > node[at].priority) {
        split(node, at, &node[fresh], &node[fresh].left, &node[fresh].right);
        sum_up(node, fresh);
        return fresh;
    }
    if (before(&node[fresh], &node[at]))
        node[at].left = insert(node, node[at].left, fresh);
    else
        node[at].right = insert(node, node[at].right, fresh);
    sum_up(node, at);
    return at;
}

/* To the gap `id`, whose end has changed or (erase) which leaves; all nodes on the way are summed up anew. */
static uint32_t touch(weft__gap *node, uint32_t at, uint32_t id, int erase)
{
    if (at == id && erase) return join(node, node[at].left, node[at].right);
    if (at != id) {
        if (before(&node[id], &node[at]))
            node[at].left = touch(node, node[at].left, id, erase);
        else
            node[at].right = touch(node, node[at].right, id, erase);
    }
    sum_up(node, at);
    return at;
}

static int add(weft__gaps *g, uint32_t device, double start, double end, uint32_t worker)
{
    uint32_t id = g->unused;
    if (id != WEFT__GAP_NONE) {
        g->unused = g->node[id].left;
    } else {
        if (g->n == g->room) {
            weft__gap *node = realloc(g->node, 2ull * g->room * sizeof *node);
            if (!node) return weft__fail(WEFT_ENOMEM, "schedule: %u gaps", 2 * g->room);
            g->node = node;
            g->room *= 2;
        }
        id = g->n++;
    }
    g->node[id] = (weft__gap){start, end, end, end - start, worker, WEFT__GAP_NONE, WEFT__GAP_NONE, scramble(id)};
    g->root[device] = insert(g->node, g->root[device], id);
    return 0;
}

int weft__gaps_init(weft__gaps *g, uint32_t n_device, const uint32_t *workers)
{
    int status = 0;
    *g = (weft__gaps){.unused = WEFT__GAP_NONE, .room = 1024};
    g->node = malloc(g->room * sizeof *g->node);
    g->root = malloc(n_device * sizeof *g->root);
    if (!g->node || !g->root) return weft__fail(WEFT_ENOMEM, "schedule: gaps of %u devices", n_device);
    for (uint32_t d = 0; d < n_device; d++) {
        g->root[d] = WEFT__GAP_NONE;
        for (uint32_t w = 0; w < workers[d] && !status; w++)
            status = add(g, d, 0, INFINITY, w);
    }
    return status;
}

void weft__gaps_free(weft__gaps *g)
{
    free(g->node);
    free(g->root);
    *g = (weft__gaps){0};
}

/* The last gap that starts at or before `ready` and ends at or after `end`. */
static uint32_t find_open(const weft__gap *node, uint32_t at, double ready, double end)
{
    while (at != WEFT__GAP_NONE && node[at].latest >= end) {
        if (node[at].start <= ready) {
            const uint32_t right = find_open(node, node[at].right, ready, end);
            if (right != WEFT__GAP_NONE) return right;
            if (node[at].end >= end) return at;
        }
        at = node[at].left;
    }
    return WEFT__GAP_NONE;
}

/* The first gap that starts after `ready` and has room for `cost`. */
static uint32_t find_later(const weft__gap *node, uint32_t at, double ready, double cost)
{
    while (at != WEFT__GAP_NONE && node[at].longest >= cost) {
        if (node[at].start > ready) {
            const uint32_t left = find_later(node, node[at].left, ready, cost);
            if (left != WEFT__GAP_NONE) return left;
            if (node[at].start + cost <= node[at].end) return at;
        }
        at = node[at].right;
    }
    return WEFT__GAP_NONE;
}

uint32_t weft__gaps_find(const weft__gaps *g, uint32_t device, double ready, double cost, double *start)
{
    uint32_t id = find_open(g->node, g->root[device], ready, ready + cost);
    *start = ready;
    if (id != WEFT__GAP_NONE) return id;
    id = find_later(g->node, g->root[device], ready, cost);
    *start = g->node[id].start;
    return id;
}

int weft__gaps_take(weft__gaps *g, uint32_t device, uint32_t gap, double start, double end)
{
    const weft__gap old = g->node[gap];
    const int empty = start == old.start;
    g->node[gap].end = start;
    g->root[device] = touch(g->node, g->root[device], gap, empty);
    if (empty) {
        g->node[gap].left = g->unused;
        g->unused = gap;
    }
    return end < old.end ? add(g, device, end, old.end, old.worker) : 0;
}
