/* cli_sum.c: the plain sum of cli_ceiling.h. */
#include "../host/error.h"
#include "../megakernel/clock.h"
#include "cli_ceiling.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct summer {
    pthread_t id;
    const uint64_t *words;
    uint64_t n, sum;
} summer;

static void *sum_words(void *arg)
{
    summer *s = arg;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < s->n; i++)
        sum += s->words[i];
    s->sum = sum;
    return NULL;
}

int weft__plain_sum(const uint64_t *words, uint64_t n, uint32_t threads, double *us)
{
    summer *parts = calloc(threads, sizeof *parts);
    if (!parts) return weft__fail(WEFT_ENOMEM, "%u threads", threads);
    uint64_t check = 0, start = weft__now_ns();
    uint32_t started = 0;
    for (; started < threads; started++) {
        uint64_t first = n * started / threads;
        parts[started] = (summer){.words = words + first, .n = n * (started + 1) / threads - first};
        if (pthread_create(&parts[started].id, NULL, sum_words, &parts[started])) break;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(parts[i].id, NULL);
        check += parts[i].sum;
    }
    *us = (double)(weft__now_ns() - start) * 1e-3;
    free(parts);
    if (started < threads) return weft__fail(WEFT_EMACHINE, "no thread for the plain sum");
    return check == n ? 0 : weft__fail(WEFT_EWRONG, "the plain sum is wrong");
}
