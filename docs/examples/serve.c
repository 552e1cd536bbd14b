/* serve.c: several sequences at once over one model, with one prefix read once: docs/serving.md.
 *
 *     cc serve.c $(pkg-config --cflags --libs weft) -o serve
 *     ./serve DIR [DEVICES]                      # a model's directory; cpu:1, cuda ...
 *
 * Prompts are ids here: a common beginning, then one token that differs.                                           */
#include <stdio.h>
#include <stdlib.h>
#include <weft_decode.h>

enum {
    USERS = 4,
    PREFIX = 70,
    TOKENS = 16
};

static void check(int status)
{
    if (!status) return;
    fprintf(stderr, "serve: %s\n", weft_last_error());
    exit(weft_status_exit(status));
}

int main(int argc, char **argv)
{
    weft_decoder_config c = WEFT_DECODER_CONFIG_INIT;
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    weft_decoder_info info = {.size = sizeof info};
    weft_decoder *d;
    uint32_t prompt[PREFIX + 1], id[USERS], n, left = USERS;
    weft_token out[16];
    if (argc < 2) return 2;
    c.model = argv[1], c.devices = argc > 2 ? argv[2] : NULL, c.context = 128, c.slots = USERS + 1;
    check(weft_decoder_open(&c, &d));

    /* The prefix, read once: its own token is thrown away. */
    for (uint32_t i = 0; i < PREFIX; i++)
        prompt[i] = 1 + i;
    q.max_tokens = 1;
    check(weft_seq_add(d, prompt, NULL, PREFIX, &q, &id[0]));
    const uint32_t prefix = id[0];
    do
        check(weft_decoder_wait(d, -1, out, 16, &n));
    while (n);

    q.max_tokens = TOKENS;
    for (uint32_t u = 0; u < USERS; u++) {
        prompt[PREFIX] = 100 + u;
        check(weft_seq_add(d, prompt, NULL, PREFIX + 1, &q, &id[u])); /* shares the prefix's full pages */
    }
    check(weft_seq_free(d, prefix));
    while (left) {
        check(weft_decoder_wait(d, -1, out, 16, &n));
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t u = 0; u < USERS; u++)
                if (out[i].id == id[u]) printf("user %u: token %u (%.3f)\n", u, out[i].token, (double)out[i].logprob);
            if (!out[i].end) continue;
            left--;
            check(weft_seq_free(d, out[i].id));
        }
    }
    check(weft_decoder_get_info(d, &info));
    printf("%llu steps, %u of %u pages free\n", (unsigned long long)info.steps, info.pages_free, info.pages);
    weft_decoder_close(d);
    return 0;
}
