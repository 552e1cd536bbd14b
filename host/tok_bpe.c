/* tok_bpe.c: one word into tokens: its characters, then merges, lowest rank first, leftmost of equals.
 *
 * Enters: a word in UTF-8. Leaves: ids, appended. A heap of possible merges keeps a word of n characters at O(n log n);
 * entries whose symbols have changed are skipped when they come up. Order and edge cases are the reference's.           */
#include "tok_internal.h"

#include <stdlib.h>
#include <string.h>

#define GONE (-2)

typedef struct symbol {
    uint32_t id;
    int32_t prev, next; /* -1: none; next GONE: merged into another */
} symbol;

typedef struct candidate {
    uint32_t rank, at, id;
} candidate;

typedef struct work {
    symbol *symbol;
    candidate *heap;
    uint32_t n, n_heap;
} work;

static int before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(work *w, candidate c)
{
    uint32_t i = w->n_heap++;
    for (; i && before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate heap_pop(work *w)
{
    candidate top = w->heap[0], last = w->heap[--w->n_heap];
    uint32_t i = 0, child;
    while ((child = 2 * i + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->n_heap) w->heap[i] = last;
    return top;
}

static void consider(const weft__tok *t, work *w, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) return;
    const weft__merge *m = weft__tok_merge(t, w->symbol[left].id, w->symbol[right].id);
    if (m) heap_push(w, (candidate){m->rank, (uint32_t)left, m->id});
}

static void merge_all(const weft__tok *t, work *w)
{
    for (uint32_t i = 0; i + 1 < w->n; i++)
        consider(t, w, (int32_t)i, (int32_t)i + 1);
    while (w->n_heap) {
        candidate c = heap_pop(w);
        symbol *s = &w->symbol[c.at];
        if (s->next < 0) continue;
        symbol *right = &w->symbol[s->next];
        const weft__merge *m = weft__tok_merge(t, s->id, right->id);
        if (!m || m->id != c.id) continue;
        s->id = c.id;
        s->next = right->next;
        right->next = GONE;
        if (s->next >= 0) w->symbol[s->next].prev = (int32_t)c.at;
        consider(t, w, s->prev, (int32_t)c.at);
        consider(t, w, (int32_t)c.at, s->next);
    }
}

static void add_symbol(work *w, uint32_t id)
{
    w->symbol[w->n] = (symbol){id, (int32_t)w->n - 1, (int32_t)w->n + 1};
    w->n++;
}

static int add_bytes(const weft__tok *t, work *w, const char *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (t->byte_id[(unsigned char)c[i]] == WEFT__NO_TOKEN) return 0;
    for (uint32_t i = 0; i < n; i++)
        add_symbol(w, t->byte_id[(unsigned char)c[i]]);
    return 1;
}

/* Characters that the vocabulary lacks: as bytes, else as the unknown token, else as nothing. */
static void add_characters(const weft__tok *t, work *w, const char *word, size_t n)
{
    int unknown = 0;
    for (size_t i = 0; i < n;) {
        uint32_t length = weft__utf8_length((unsigned char)word[i]);
        const char *c = word + i;
        uint32_t id = weft__tok_find(t, c, length);
        i += length;
        if (id != WEFT__NO_TOKEN) {
            if (unknown) add_symbol(w, t->unk);
            unknown = 0;
            add_symbol(w, id);
        } else if (!(t->byte_fallback && add_bytes(t, w, c, length)) && t->unk != WEFT__NO_TOKEN) {
            if (unknown && !t->fuse_unk) add_symbol(w, t->unk);
            unknown = 1;
        }
    }
    if (unknown) add_symbol(w, t->unk);
    if (w->n) w->symbol[w->n - 1].next = -1;
}

int weft__tok_bpe(const weft__tok *t, const char *word, size_t n, weft__tokens *out)
{
    if (t->ignore_merges) {
        uint32_t id = weft__tok_find(t, word, n);
        if (id != WEFT__NO_TOKEN) return weft__tokens_push(out, id);
    }
    work w = {malloc((n + 1) * sizeof(symbol)), malloc(3 * (n + 1) * sizeof(candidate)), 0, 0};
    int status = w.symbol && w.heap ? 0 : weft__fail(WEFT_ENOMEM, "a word of %zu bytes", n);
    if (!status) {
        add_characters(t, &w, word, n);
        merge_all(t, &w);
    }
    for (uint32_t i = 0; i < w.n && !status; i++)
        if (w.symbol[i].next != GONE) status = weft__tokens_push(out, w.symbol[i].id);
    free(w.symbol);
    free(w.heap);
    return status;
}
