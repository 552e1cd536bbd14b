/* cli_compare.c: several ways to run one work, measured in turns: see weft__compare in cli_case.h.
 *
 * One engine at a time, so that no side's idle workers disturb another's steps: a side gives its devices back after its turn
 * and loads anew for the next one. How many rounds there are depends on how long that takes.                           */
#include "../host/error.h"
#include "../tasks/seed.h"
#include "cli_case.h"

#include <stdio.h>
#include <string.h>

enum {
    MIN_ROUNDS = 2,
    MAX_ROUNDS = 10
};

static void settle(weft__side *s, int status)
{
    if (!status || s->status) return;
    s->status = status;
    snprintf(s->error, sizeof s->error, "%s", weft__error());
    if (status != WEFT_EWRONG) weft__case_close(&s->result);
}

/* A permutation of the sides for a round, by the seed. */
static void shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint32_t round)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        const uint32_t j = weft_hash(seed, round, i) % (i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* As many as loading so often takes no longer than timing. */
static uint32_t choose_rounds(const weft__side *s)
{
    const double fit = s->result.load_s > 0 ? s->options.budget_s / s->result.load_s : MAX_ROUNDS;
    return fit < MIN_ROUNDS ? MIN_ROUNDS : fit > MAX_ROUNDS ? MAX_ROUNDS : (uint32_t)fit;
}

/* One side's part of its steps in round `round` of *rounds, which the first side to start chooses. */
static void take_turn(weft__work *w, weft__side *s, uint32_t round, uint32_t *rounds)
{
    weft__case *c = &s->result;
    if (s->status) return;
    settle(s, round ? weft__case_resume(w, &s->flags, &s->options, c) : weft__case_open(w, &s->flags, &s->options, c));
    if (s->status) return;
    if (!*rounds) *rounds = choose_rounds(s);
    c->rounds = *rounds;
    const uint32_t until = (uint32_t)((uint64_t)c->steps * (round + 1) / *rounds);
    settle(s, weft__case_time(c, until - c->n_sample));
    if (!s->status && round + 1 == *rounds) settle(s, weft__case_finish(w, &s->options, c));
    weft__case_suspend(c);
}

void weft__compare(weft__work *w, weft__side *sides, uint32_t n, uint64_t seed)
{
    uint32_t order[WEFT_MAX_SIDES], rounds = 0;
    for (uint32_t i = 0; i < n; i++)
        sides[i].status = 0;
    for (uint32_t r = 0; r == 0 || r < rounds; r++) {
        shuffle(order, n, seed, r);
        for (uint32_t i = 0; i < n; i++)
            take_turn(w, &sides[order[i]], r, &rounds);
    }
    weft__progress(NULL);
}
