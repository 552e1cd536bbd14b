/* sequences.c: see sequences.h. */
#include "sequences.h"

#include "../tasks/attn.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

struct weft__seq {
    uint32_t used, generation, end;
    uint32_t known, sent, cap, limit; /* limit: tokens that it may have */
    uint32_t *token, *want;           /* [cap] */
    uint32_t *page;                   /* [context / 64] */
    uint32_t n_page, n_table;         /* held; of those, in the device's table */
    uint64_t epoch;                   /* rows of another epoch are stale */
    uint64_t last_step;               /* that had a row of it, and which */
    uint32_t last_row;
    weft__seq_options o;
};

struct weft__seqs {
    uint32_t slots, pages, context, vocab, rows, prefill, max_pages;
    weft__seq *seq;
    uint32_t *pool, *free, *refs; /* all sequences' page[]; free pages; references by page */
    uint32_t n_free, turn;
    uint64_t epoch, step;
};

/* ------------------------------------------------------------------------------------------------------------- pages */

static uint32_t pages_of(uint32_t tokens) { return weft_div_up(tokens, WEFT_ATTN_PAGE); }

static void release_from(weft__seqs *s, weft__seq *q, uint32_t first)
{
    while (q->n_page > first) {
        const uint32_t page = q->page[--q->n_page];
        if (!--s->refs[page]) s->free[s->n_free++] = page;
    }
    if (q->n_table > q->n_page) q->n_table = q->n_page;
}

static int take_page(weft__seqs *s, weft__seq *q)
{
    if (!s->n_free) return 0;
    const uint32_t page = s->free[--s->n_free];
    s->refs[page] = 1;
    q->page[q->n_page++] = page;
    return 1;
}

static int no_room(const weft__seqs *s, uint32_t need)
{
    return weft__fail(WEFT_ENOMEM, "KV cache: %u pages of %u tokens are needed, %u of %u are free", need,
                      WEFT_ATTN_PAGE, s->n_free, s->pages);
}

/* First page to give up where positions from `sent` on are to be written again. */
static uint32_t keep_pages(const weft__seqs *s, const weft__seq *q, uint32_t sent)
{
    const uint32_t at = sent / WEFT_ATTN_PAGE;
    if (at < q->n_page && s->refs[q->page[at]] > 1) return at;
    return pages_of(q->known);
}

/* Drops what was sent from `sent` on; a page of others isn't written: its tokens are run again in one of its own. */
static void rewind_to(weft__seqs *s, weft__seq *q, uint32_t sent)
{
    if (q->sent > sent) {
        q->sent = sent;
        q->epoch = ++s->epoch;
    }
    const uint32_t keep = keep_pages(s, q, q->sent);
    if (q->sent > keep * WEFT_ATTN_PAGE) q->sent = keep * WEFT_ATTN_PAGE;
    release_from(s, q, keep);
}

/* ---------------------------------------------------------------------------------------------------------- sequences */

static uint32_t id_of(const weft__seqs *s, const weft__seq *q) { return q->generation << 16 | (uint32_t)(q - s->seq); }

static weft__seq *find(const weft__seqs *s, uint32_t id)
{
    weft__seq *q = (id & 0xffff) < s->slots ? &s->seq[id & 0xffff] : NULL;
    if (q && q->used && id_of(s, q) == id) return q;
    weft__fail(WEFT_EUSAGE, "sequence %u: there is none", id);
    return NULL;
}

int weft__seqs_new(uint32_t slots, uint32_t pages, uint32_t context, uint32_t vocab, uint32_t rows, uint32_t prefill,
                   weft__seqs **out)
{
    *out = NULL;
    if (!slots || slots > 65536 || !pages || !context || !rows || rows > WEFT_MAX_ROWS)
        return weft__fail(WEFT_EUSAGE, "sequences: %u slots, %u pages, a context of %u, %u rows", slots, pages, context,
                          rows);
    weft__seqs *s = calloc(1, sizeof *s);
    if (!s) return weft__fail(WEFT_ENOMEM, "sequences");
    s->slots = slots, s->pages = pages, s->context = context, s->vocab = vocab, s->rows = rows;
    s->prefill = prefill ? prefill : rows;
    s->max_pages = pages_of(context);
    s->seq = calloc(slots, sizeof *s->seq);
    s->pool = calloc((size_t)slots * s->max_pages, sizeof *s->pool);
    s->free = calloc(pages, sizeof *s->free);
    s->refs = calloc(pages, sizeof *s->refs);
    if (!s->seq || !s->pool || !s->free || !s->refs) {
        weft__seqs_free(s);
        return weft__fail(WEFT_ENOMEM, "%u sequences over %u pages", slots, pages);
    }
    for (uint32_t i = 0; i < slots; i++)
        s->seq[i].page = s->pool + (size_t)i * s->max_pages;
    for (s->n_free = 0; s->n_free < pages; s->n_free++)
        s->free[s->n_free] = pages - 1 - s->n_free;
    *out = s;
    return 0;
}

void weft__seqs_free(weft__seqs *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->seq && i < s->slots; i++) {
        free(s->seq[i].token);
        free(s->seq[i].want);
    }
    free(s->seq);
    free(s->pool);
    free(s->free);
    free(s->refs);
    free(s);
}

static int grow(weft__seq *q, uint32_t n)
{
    if (n <= q->cap) return 0;
    const uint32_t cap = n + n / 2 + 64;
    uint32_t *token = realloc(q->token, cap * sizeof *token);
    if (token) q->token = token;
    uint32_t *want = token ? realloc(q->want, cap * sizeof *want) : NULL;
    if (!want) return weft__fail(WEFT_ENOMEM, "a sequence of %u tokens", n);
    q->want = want;
    q->cap = cap;
    return 0;
}

static int check_tokens(const weft__seqs *s, const uint32_t *token, uint32_t before, uint32_t n)
{
    if (!n) return weft__fail(WEFT_EUSAGE, "no tokens");
    if (n > s->context || before > s->context - n)
        return weft__fail(WEFT_EUSAGE, "a sequence of %llu tokens; the context has %u", (unsigned long long)before + n,
                          s->context);
    for (uint32_t i = 0; i < n; i++)
        if (token[i] >= s->vocab)
            return weft__fail(WEFT_EUSAGE, "token %u is %u; the vocabulary has %u", i, token[i], s->vocab);
    return 0;
}

static int check_options(const weft__seq_options *o)
{
    if (o->n_stop > WEFT__SEQ_MAX_STOPS)
        return weft__fail(WEFT_EUSAGE, "%u stop tokens, at most %u", o->n_stop, WEFT__SEQ_MAX_STOPS);
    if (!o->max_ahead) return weft__fail(WEFT_EUSAGE, "max_ahead is 0");
    if (!(o->temperature >= 0 && o->top_p >= 0 && o->top_p <= 1 && o->min_p >= 0 && o->min_p <= 1 && o->penalty > 0))
        return weft__fail(WEFT_EUSAGE, "temperature %g, top_p %g, min_p %g, penalty %g", (double)o->temperature,
                          (double)o->top_p, (double)o->min_p, (double)o->penalty);
    return 0;
}

static void put_tokens(weft__seqs *s, weft__seq *q, const uint32_t *token, const uint32_t *want, uint32_t n)
{
    memcpy(q->token + q->known, token, n * sizeof *token);
    for (uint32_t i = 0; i < n; i++)
        q->want[q->known + i] = want ? want[i] & (WEFT_ROW_SAMPLE | WEFT_ROW_LOGITS) : 0;
    q->known += n;
    const uint32_t left = s->context - q->known;
    q->limit = q->o.max_tokens && q->o.max_tokens < left ? q->known + q->o.max_tokens : s->context;
    q->end = WEFT__SEQ_RUNS;
    while (q->n_page < pages_of(q->known) && take_page(s, q)) {
    }
}

/* Full pages that a sequence of these tokens may share with q; its last token is always run. */
static uint32_t common_pages(const weft__seq *q, const uint32_t *token, uint32_t n)
{
    uint32_t most = n - 1, i = 0;
    if (q->end == WEFT__SEQ_NAN) return 0; /* its keys may be no numbers */
    if (most > q->sent) most = q->sent;
    if (most > q->known) most = q->known;
    while (i < most && q->token[i] == token[i])
        i++;
    return i / WEFT_ATTN_PAGE;
}

int weft__seqs_add(weft__seqs *s, const uint32_t *token, const uint32_t *want, uint32_t n, const weft__seq_options *o,
                   uint32_t *id)
{
    weft__seq *q = NULL, *like = NULL;
    uint32_t common = 0, shared = n;
    int rc = check_tokens(s, token, 0, n);
    if (!rc) rc = check_options(o);
    if (rc) return rc;
    for (uint32_t i = 0; want && i < n; i++) /* a row that tells something is run */
        if (want[i] && shared > i) shared = i;
    for (uint32_t i = 0; i < s->slots; i++) {
        if (!s->seq[i].used) {
            if (!q) q = &s->seq[i];
            continue;
        }
        uint32_t c = common_pages(&s->seq[i], token, n);
        if (c > shared / WEFT_ATTN_PAGE) c = shared / WEFT_ATTN_PAGE;
        if (c > common) common = c, like = &s->seq[i];
    }
    if (!q) return weft__fail(WEFT_ENOMEM, "all %u slots hold sequences", s->slots);
    if (pages_of(n) - common > s->n_free) return no_room(s, pages_of(n) - common);
    if ((rc = grow(q, n))) return rc;
    q->used = 1, q->generation = (q->generation + 1) & 0xffff, q->o = *o, q->epoch = ++s->epoch;
    q->known = q->n_table = q->last_row = 0, q->last_step = 0;
    for (q->n_page = 0; q->n_page < common; q->n_page++)
        s->refs[q->page[q->n_page] = like->page[q->n_page]]++;
    q->sent = common * WEFT_ATTN_PAGE;
    put_tokens(s, q, token, want, n);
    *id = id_of(s, q);
    return 0;
}

int weft__seqs_fork(weft__seqs *s, uint32_t id, const weft__seq_options *o, uint32_t *out)
{
    const weft__seq *q = find(s, id);
    return q ? weft__seqs_add(s, q->token, NULL, q->known, o ? o : &q->o, out) : WEFT_EUSAGE;
}

int weft__seqs_append(weft__seqs *s, uint32_t id, const uint32_t *token, const uint32_t *want, uint32_t n)
{
    weft__seq *q = find(s, id);
    if (!q) return WEFT_EUSAGE;
    int rc = check_tokens(s, token, q->known, n);
    const uint32_t need = pages_of(q->known + n), held = q->n_page;
    if (!rc && need > held && need - held > s->n_free) rc = no_room(s, need - held);
    if (!rc) rc = grow(q, q->known + n);
    if (rc) return rc;
    if (q->sent > q->known) rewind_to(s, q, q->known);
    put_tokens(s, q, token, want, n);
    return 0;
}

int weft__seqs_truncate(weft__seqs *s, uint32_t id, uint32_t n)
{
    weft__seq *q = find(s, id);
    if (!q) return WEFT_EUSAGE;
    if (!n || n > q->known) return weft__fail(WEFT_EUSAGE, "truncate to %u of %u tokens", n, q->known);
    q->known = n;
    rewind_to(s, q, n - 1);
    return 0;
}

static void finish_seq(weft__seqs *s, weft__seq *q, uint32_t end)
{
    q->end = end;
    q->epoch = ++s->epoch;
    rewind_to(s, q, q->known);
}

int weft__seqs_cancel(weft__seqs *s, uint32_t id)
{
    weft__seq *q = find(s, id);
    if (!q) return WEFT_EUSAGE;
    if (!q->end) finish_seq(s, q, WEFT__SEQ_CANCELLED);
    return 0;
}

int weft__seqs_drop(weft__seqs *s, uint32_t id)
{
    weft__seq *q = find(s, id);
    if (!q) return WEFT_EUSAGE;
    release_from(s, q, 0);
    q->used = 0;
    q->epoch = ++s->epoch;
    return 0;
}

int weft__seqs_tokens(const weft__seqs *s, uint32_t id, const uint32_t **token, uint32_t *n, uint32_t *end)
{
    const weft__seq *q = find(s, id);
    if (!q) return WEFT_EUSAGE;
    *token = q->token, *n = q->known, *end = q->end;
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------- steps */

/* Whether position `sent` can go into this step. */
static int can_send(const weft__seqs *s, const weft__seq *q)
{
    if (!q->used || q->end) return 0;
    if (q->sent < q->known) return 1;
    return !q->o.host_feedback && q->sent - q->known + 1 < q->o.max_ahead && q->last_step + 1 == s->step &&
           q->sent + 1 < q->limit;
}

/* Page and table entry of position `sent`; 0: not in this step. */
static int make_room(weft__seqs *s, weft__seq *q, weft__seq_step *step, uint32_t *starved)
{
    const uint32_t at = q->sent / WEFT_ATTN_PAGE;
    while (q->n_page <= at)
        if (!take_page(s, q)) {
            *starved += at + 1 - q->n_page;
            return 0;
        }
    for (; q->n_table <= at; q->n_table++) {
        if (step->batch.n_write == WEFT_MAX_PAGE_WRITES) return 0;
        step->write[step->batch.n_write++] = (weft_page_write){(uint16_t)(q - s->seq), (uint16_t)q->n_table,
                                                               q->page[q->n_table]};
    }
    return 1;
}

static void put_row(weft__seqs *s, weft__seq *q, weft__seq_step *step)
{
    const uint32_t r = step->batch.n_row++, at = q->sent++;
    uint32_t flags = at < q->known ? q->want[at] : 0;
    if (at + 1 >= q->known) flags |= WEFT_ROW_SAMPLE | (q->o.want & WEFT_ROW_LOGITS);
    if (flags & WEFT_ROW_LOGITS) flags |= WEFT_ROW_SAMPLE;
    step->logits += (flags & WEFT_ROW_LOGITS) != 0;
    step->batch.row[r] = (weft_step_row){.kv_len = at + 1,
                                         .slot = (uint32_t)(q - s->seq),
                                         .token = at < q->known ? q->token[at] : WEFT_TOKEN_OF | q->last_row,
                                         .flags = flags,
                                         .temperature = q->o.temperature,
                                         .top_p = q->o.top_p,
                                         .min_p = q->o.min_p,
                                         .penalty = q->o.penalty,
                                         .top_k = q->o.top_k,
                                         .seed = q->o.seed};
    step->owner[r] = id_of(s, q);
    step->epoch[r] = q->epoch;
    q->last_row = r;
    q->last_step = s->step;
}

int weft__seqs_compose(weft__seqs *s, int idle, weft__seq_step *step, int *any)
{
    uint32_t starved = 0, prefill = s->prefill;
    memset(step, 0, sizeof *step);
    s->step++;
    /* A row each of those that decode; then prompts. Who is first takes turns. */
    for (int reads = 0; reads < 2; reads++)
        for (uint32_t i = 0; i < s->slots && step->batch.n_row < s->rows; i++) {
            weft__seq *q = &s->seq[(s->turn + i) % s->slots];
            const uint32_t left = q->known > q->sent ? q->known - q->sent : 1;
            if (!can_send(s, q) || q->last_step == s->step || (left > 1) != reads) continue;
            for (uint32_t n = 0; n < left && step->batch.n_row < s->rows && (!reads || prefill); n++) {
                if (!make_room(s, q, step, &starved)) break;
                put_row(s, q, step);
                prefill -= reads != 0;
            }
        }
    s->turn = (s->turn + 1) % s->slots;
    *any = step->batch.n_row || step->batch.n_write;
    if (*any && !step->batch.n_row) step->batch.n_row = 1; /* kv_len 0: it does nothing */
    if (!*any) s->step--;
    return !*any && idle && starved ? no_room(s, starved) : 0;
}

static void adopt(weft__seqs *s, weft__seq *q, weft__seq_event *e)
{
    const int full = q->known == s->context;
    uint32_t end = WEFT__SEQ_RUNS;
    if (e->token == WEFT_NONE || e->token >= s->vocab)
        end = WEFT__SEQ_NAN;
    else if (full)
        end = WEFT__SEQ_CONTEXT;
    else if (grow(q, q->known + 1))
        end = WEFT__SEQ_NO_MEMORY;
    else {
        q->want[q->known] = 0;
        q->token[q->known++] = e->token;
        if (q->known >= q->limit) end = q->limit == s->context ? WEFT__SEQ_CONTEXT : WEFT__SEQ_LENGTH;
        for (uint32_t i = 0; i < q->o.n_stop; i++)
            if (q->o.stop[i] == e->token) end = WEFT__SEQ_STOP;
    }
    if (end) finish_seq(s, q, end);
    e->end = end;
}

void weft__seqs_complete(weft__seqs *s, const weft__seq_step *step, const uint32_t *token, const float *logprob,
                         weft__seq_event *event, uint32_t *n)
{
    *n = 0;
    for (uint32_t r = 0; r < step->batch.n_row; r++) {
        const weft_step_row *row = &step->batch.row[r];
        weft__seq *q = &s->seq[step->owner[r] & 0xffff];
        if (!row->kv_len || !(row->flags & WEFT_ROW_SAMPLE) || !q->used || id_of(s, q) != step->owner[r] ||
            q->epoch != step->epoch[r])
            continue;
        weft__seq_event *e = &event[(*n)++];
        *e = (weft__seq_event){step->owner[r], row->kv_len - 1, token[r], logprob[r], WEFT__SEQ_RUNS, r};
        if (q->end || row->kv_len != q->known) continue;
        if (!q->o.host_feedback)
            adopt(s, q, e);
        else if (token[r] == WEFT_NONE)
            finish_seq(s, q, e->end = WEFT__SEQ_NAN);
    }
}

void weft__seqs_reset(weft__seqs *s)
{
    for (uint32_t i = 0; i < s->slots; i++) {
        weft__seq *q = &s->seq[i];
        if (!q->used) continue;
        release_from(s, q, 0);
        q->sent = 0;
        q->last_step = 0;
        q->epoch = ++s->epoch;
    }
    s->step++; /* no row of the step before is there */
}

uint32_t weft__seqs_pages_free(const weft__seqs *s) { return s->n_free; }

int weft__seqs_check(const weft__seqs *s)
{
    uint32_t held = 0;
    uint32_t *refs = calloc(s->pages, sizeof *refs);
    int rc = refs ? 0 : weft__fail(WEFT_ENOMEM, "check");
    for (uint32_t i = 0; i < s->slots && !rc; i++) {
        const weft__seq *q = &s->seq[i];
        for (uint32_t p = 0; q->used && p < q->n_page; p++) {
            refs[q->page[p]]++;
            if (p >= q->sent / WEFT_ATTN_PAGE && s->refs[q->page[p]] != 1)
                rc = weft__fail(WEFT_EWRONG, "slot %u: page %u is to be written and is shared", i, p);
        }
        if (q->used && (q->n_table > q->n_page || pages_of(q->sent) > q->n_page))
            rc = weft__fail(WEFT_EWRONG, "slot %u: %u of %u pages in the table, %u tokens sent", i, q->n_table,
                            q->n_page, q->sent);
    }
    for (uint32_t p = 0; p < s->pages && !rc; p++) {
        held += refs[p] != 0;
        if (refs[p] != s->refs[p])
            rc = weft__fail(WEFT_EWRONG, "page %u: %u references, %u holders", p, s->refs[p], refs[p]);
    }
    if (!rc && held + s->n_free != s->pages)
        rc = weft__fail(WEFT_EWRONG, "%u pages held, %u free, of %u", held, s->n_free, s->pages);
    free(refs);
    return rc;
}
