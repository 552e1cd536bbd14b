// sequences: random adds, appends, forks, truncations, cancels and frees against a device that checks every row it gets.
#include "../host/error.h"
#include "../host/sequences.h"
#include "../tasks/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace
{

constexpr uint32_t VOCAB = 1000;

weft__seq_options options()
{
    weft__seq_options o = {};
    o.max_ahead = 3, o.top_p = o.penalty = 1;
    return o;
}

// The token after a prefix: any function of all of it.
uint32_t next_token(const std::vector<uint32_t> &prefix)
{
    uint32_t h = 17;
    for (uint32_t t : prefix)
        h = h * 31 + t;
    return h % VOCAB;
}

// Keeps what a device would: page table, and in each page the tokens whose keys were written there.
struct Device {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> table;
    std::vector<std::vector<uint32_t>> page;
    std::vector<uint32_t> fed = std::vector<uint32_t>(WEFT_MAX_ROWS, WEFT_NONE);
    explicit Device(uint32_t pages) : page(pages, std::vector<uint32_t>(64, WEFT_NONE)) {}

    void run(const weft__seq_step &s, uint32_t *token, float *logprob)
    {
        ASSERT_LE(s.batch.n_row, WEFT_MAX_ROWS);
        ASSERT_LE(s.batch.n_write, WEFT_MAX_PAGE_WRITES);
        for (uint32_t i = 0; i < s.batch.n_write; i++)
            table[{s.write[i].slot, s.write[i].index}] = s.write[i].page;
        for (uint32_t r = 0; r < s.batch.n_row; r++) {
            const weft_step_row &row = s.batch.row[r];
            if (!row.kv_len) continue;
            const uint32_t at = row.kv_len - 1;
            ASSERT_TRUE(table.count({row.slot, at / 64}));
            const uint32_t t = row.token & WEFT_TOKEN_OF ? fed[row.token & 63] : row.token;
            ASSERT_LT(t, VOCAB);
            page[table[{row.slot, at / 64}]][at % 64] = t;
        }
        std::vector<uint32_t> chosen(WEFT_MAX_ROWS, WEFT_NONE);
        for (uint32_t r = 0; r < s.batch.n_row; r++) {
            const weft_step_row &row = s.batch.row[r];
            token[r] = WEFT_NONE, logprob[r] = 0;
            if (!(row.flags & WEFT_ROW_SAMPLE)) continue;
            std::vector<uint32_t> prefix;
            for (uint32_t p = 0; p < row.kv_len; p++)
                prefix.push_back(page[table[{row.slot, p / 64}]][p % 64]);
            chosen[r] = token[r] = next_token(prefix);
        }
        fed = chosen;
    }
};

struct Bench {
    weft__seqs *s = nullptr;
    Device device;
    uint32_t pages, results = 0;
    struct Flight {
        weft__seq_step step;
        uint32_t token[WEFT_MAX_ROWS];
        float logprob[WEFT_MAX_ROWS];
    };
    std::deque<Flight> flight;
    Bench(uint32_t slots, uint32_t n_page, uint32_t context, uint32_t rows, uint32_t prefill)
        : device(n_page), pages(n_page)
    {
        EXPECT_EQ(weft__seqs_new(slots, n_page, context, VOCAB, rows, prefill, &s), 0) << weft__error();
    }
    ~Bench() { weft__seqs_free(s); }

    int submit(int *any)
    {
        Flight f;
        const int rc = weft__seqs_compose(s, flight.empty(), &f.step, any);
        if (rc || !*any) return rc;
        device.run(f.step, f.token, f.logprob);
        flight.push_back(f);
        return 0;
    }
    std::vector<weft__seq_event> complete()
    {
        std::vector<weft__seq_event> e(WEFT_MAX_ROWS);
        uint32_t n = 0;
        weft__seqs_complete(s, &flight.front().step, flight.front().token, flight.front().logprob, e.data(), &n);
        flight.pop_front();
        e.resize(n);
        results += n;
        return e;
    }
    int drain(std::vector<weft__seq_event> *all = nullptr)
    {
        for (int any;;) {
            const int rc = submit(&any);
            if (rc || ::testing::Test::HasFatalFailure()) return rc;
            if (any && flight.size() < 5) continue;
            if (flight.empty()) return 0;
            for (const auto &e : complete())
                if (all) all->push_back(e);
        }
    }
    std::vector<uint32_t> tokens(uint32_t id, uint32_t *end = nullptr)
    {
        const uint32_t *t;
        uint32_t n, ended;
        EXPECT_EQ(weft__seqs_tokens(s, id, &t, &n, end ? end : &ended), 0);
        return std::vector<uint32_t>(t, t + n);
    }
};

std::vector<uint32_t> grown(std::vector<uint32_t> t, size_t n)
{
    while (t.size() < n)
        t.push_back(next_token(t));
    return t;
}

TEST(Sequences, ManyAtOnceSayWhatEachSaysAlone)
{
    Bench b(8, 40, 300, 5, 3);
    std::map<uint32_t, std::vector<uint32_t>> want;
    std::mt19937 random(1);
    for (uint32_t i = 0; i < 8; i++) {
        std::vector<uint32_t> t(1 + random() % 130);
        for (auto &x : t)
            x = random() % VOCAB;
        weft__seq_options o = options();
        o.max_tokens = 1 + random() % 100, o.max_ahead = 1 + random() % 6;
        uint32_t id;
        ASSERT_EQ(weft__seqs_add(b.s, t.data(), nullptr, (uint32_t)t.size(), &o, &id), 0) << weft__error();
        want[id] = grown(t, t.size() + o.max_tokens);
    }
    ASSERT_EQ(b.drain(), 0) << weft__error();
    for (auto &[id, t] : want) {
        uint32_t end;
        EXPECT_EQ(b.tokens(id, &end), t);
        EXPECT_EQ(end, (uint32_t)WEFT__SEQ_LENGTH);
        EXPECT_EQ(weft__seqs_drop(b.s, id), 0);
    }
    EXPECT_EQ(weft__seqs_pages_free(b.s), 40u);
}

TEST(Sequences, ForksAndCommonPrefixesShareFullPages)
{
    Bench b(4, 20, 640, 16, 0);
    std::vector<uint32_t> t = grown({1}, 200);
    weft__seq_options o = options();
    o.max_tokens = 10;
    uint32_t a, c, d;
    ASSERT_EQ(weft__seqs_add(b.s, t.data(), nullptr, 200, &o, &a), 0);
    ASSERT_EQ(b.drain(), 0);
    EXPECT_EQ(weft__seqs_pages_free(b.s), 16u); // 200 + 10 tokens: 4 pages
    ASSERT_EQ(weft__seqs_fork(b.s, a, nullptr, &c), 0);
    EXPECT_EQ(weft__seqs_pages_free(b.s), 15u); // three shared, the partly filled one is its own
    t[190] = 5;
    ASSERT_EQ(weft__seqs_add(b.s, t.data(), nullptr, 200, &o, &d), 0);
    EXPECT_EQ(weft__seqs_pages_free(b.s), 13u); // two shared
    ASSERT_EQ(weft__seqs_check(b.s), 0) << weft__error();
    ASSERT_EQ(weft__seqs_truncate(b.s, a, 100), 0); // into a page that the fork reads
    ASSERT_EQ(weft__seqs_check(b.s), 0) << weft__error();
    const uint32_t other = 9;
    ASSERT_EQ(weft__seqs_append(b.s, a, &other, nullptr, 1), 0);
    ASSERT_EQ(b.drain(), 0);
    std::vector<uint32_t> left = grown({1}, 100);
    left.push_back(9);
    EXPECT_EQ(b.tokens(a), grown(left, 111));
    EXPECT_EQ(b.tokens(c), grown({1}, 220));
    EXPECT_EQ(b.tokens(d), grown(t, 210));
}

TEST(Sequences, AFullCacheSaysWhatItNeedsAndLosesNothing)
{
    Bench b(3, 4, 256, 8, 0);
    std::vector<uint32_t> t = grown({3}, 64), u = grown({4}, 128);
    weft__seq_options o = options();
    uint32_t a, c, none;
    ASSERT_EQ(weft__seqs_add(b.s, t.data(), nullptr, 64, &o, &a), 0);
    ASSERT_EQ(weft__seqs_add(b.s, u.data(), nullptr, 128, &o, &c), 0);
    std::vector<uint32_t> v = grown({5}, 129);
    EXPECT_EQ(weft__seqs_add(b.s, v.data(), nullptr, 129, &o, &none), WEFT_ENOMEM);
    EXPECT_STREQ(weft__error(), "KV cache: 3 pages of 64 tokens are needed, 1 of 4 are free");
    EXPECT_EQ(b.drain(), WEFT_ENOMEM);
    EXPECT_EQ(weft__seqs_check(b.s), 0) << weft__error();
    uint32_t end;
    EXPECT_EQ(b.tokens(c, &end), grown(u, b.tokens(c).size()));
    EXPECT_EQ(end, (uint32_t)WEFT__SEQ_RUNS);
    ASSERT_EQ(weft__seqs_drop(b.s, c), 0);
    ASSERT_EQ(b.drain(), 0) << weft__error();
    EXPECT_EQ(b.tokens(a, &end), grown(t, 256));
    EXPECT_EQ(end, (uint32_t)WEFT__SEQ_CONTEXT);
}

TEST(Sequences, StopTokensAndNanEndOneSequence)
{
    Bench b(2, 8, 256, 4, 0);
    std::vector<uint32_t> t = grown({6}, 5), all = grown(t, 40);
    weft__seq_options o = options();
    o.max_ahead = 8, o.n_stop = 1, o.stop[0] = all[20];
    uint32_t a, end;
    ASSERT_EQ(weft__seqs_add(b.s, t.data(), nullptr, 5, &o, &a), 0);
    ASSERT_EQ(b.drain(), 0);
    all.resize(std::find(all.begin() + 5, all.end(), all[20]) - all.begin() + 1);
    EXPECT_EQ(b.tokens(a, &end), all);
    EXPECT_EQ(end, (uint32_t)WEFT__SEQ_STOP);
    uint32_t c;
    o.n_stop = 0, o.max_tokens = 30;
    ASSERT_EQ(weft__seqs_fork(b.s, a, &o, &c), 0);
    int any;
    while (b.submit(&any), any)
        for (auto &x : b.flight.back().token)
            x = WEFT_NONE;
    std::vector<weft__seq_event> e = b.complete();
    while (e.empty())
        e = b.complete();
    EXPECT_EQ(e[0].end, (uint32_t)WEFT__SEQ_NAN);
    ASSERT_EQ(b.drain(), 0);
    EXPECT_EQ(b.tokens(c, &end), all);
}

TEST(Sequences, TheHostsOwnTokens)
{
    Bench b(1, 4, 256, 8, 0);
    weft__seq_options o = options();
    o.host_feedback = 1;
    std::vector<uint32_t> t = {1, 2, 3}, want = {WEFT_ROW_SAMPLE, 0, WEFT_ROW_LOGITS};
    uint32_t a;
    ASSERT_EQ(weft__seqs_add(b.s, t.data(), want.data(), 3, &o, &a), 0);
    for (uint32_t i = 0; i < 80; i++) {
        std::vector<weft__seq_event> e;
        ASSERT_EQ(b.drain(&e), 0);
        ASSERT_EQ(e.size(), i ? 1u : 2u);
        EXPECT_EQ(e.back().position, t.size() - 1);
        EXPECT_EQ(e.back().token, next_token(t));
        t.push_back((next_token(t) + 1) % VOCAB);
        ASSERT_EQ(weft__seqs_append(b.s, a, &t.back(), nullptr, 1), 0);
    }
    EXPECT_EQ(b.tokens(a), t);
    EXPECT_EQ(weft__seqs_append(b.s, a + 1, t.data(), nullptr, 1), WEFT_EUSAGE);
    const uint32_t past = VOCAB;
    EXPECT_EQ(weft__seqs_append(b.s, a, &past, nullptr, 1), WEFT_EUSAGE);
    EXPECT_EQ(weft__seqs_add(b.s, t.data(), nullptr, 1, &o, &a), WEFT_ENOMEM); // no slot
}

// Every row that is run is checked by the device's own memory: what a sequence says is a function of all that it holds.
TEST(Sequences, RandomLives)
{
    uint64_t results = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        Bench b(1 + random() % 9, 6 + random() % 40, 64 + random() % 500, 1 + random() % 64, random() % 20);
        std::map<uint32_t, std::vector<uint32_t>> base; // tokens of the host; what follows is generated
        for (int op = 0; op < 400; op++) {
            uint32_t id = base.empty() ? 0 : std::next(base.begin(), random() % base.size())->first, fresh, any_id;
            weft__seq_options o = options();
            o.max_ahead = 1 + random() % 6, o.max_tokens = random() % 60;
            const uint32_t what = random() % 12;
            if (what == 0) {
                std::vector<uint32_t> t = grown({uint32_t(random() % 2)}, 1 + random() % 200);
                for (uint32_t i = random() % 2 ? random() % (uint32_t)t.size() : (uint32_t)t.size(); i < t.size(); i++)
                    t[i] = random() % VOCAB;
                const int rc = weft__seqs_add(b.s, t.data(), nullptr, (uint32_t)t.size(), &o, &fresh);
                if (!rc) base[fresh] = t;
            } else if (id && what == 1 && !weft__seqs_fork(b.s, id, &o, &any_id)) {
                base[any_id] = b.tokens(id);
            } else if (id && what == 2) {
                std::vector<uint32_t> t = b.tokens(id), more(1 + random() % 70, uint32_t(random() % VOCAB));
                if (!weft__seqs_append(b.s, id, more.data(), nullptr, (uint32_t)more.size())) {
                    t.insert(t.end(), more.begin(), more.end());
                    base[id] = t;
                } else
                    EXPECT_EQ(b.tokens(id), t);
            } else if (id && what == 3) {
                std::vector<uint32_t> t = b.tokens(id);
                t.resize(1 + random() % t.size());
                ASSERT_EQ(weft__seqs_truncate(b.s, id, (uint32_t)t.size()), 0);
                base[id] = t;
            } else if (id && what == 4) {
                ASSERT_EQ(weft__seqs_cancel(b.s, id), 0);
            } else if (id && what == 5) {
                ASSERT_EQ(weft__seqs_drop(b.s, id), 0);
                base.erase(id);
            } else if (what < 10) {
                int any;
                if (b.flight.size() < 8) b.submit(&any);
            } else if (!b.flight.empty())
                b.complete();
            if (seed % 7 == 0 && op == 200) {
                b.flight.clear();
                weft__seqs_reset(b.s);
                b.device = Device(b.pages);
            }
            ASSERT_EQ(weft__seqs_check(b.s), 0) << weft__error() << ", operation " << op << " of kind " << what;
            if (HasFatalFailure()) return;
        }
        b.drain();
        for (auto &[id, t] : base) {
            EXPECT_EQ(b.tokens(id), grown(t, b.tokens(id).size()));
            EXPECT_EQ(weft__seqs_drop(b.s, id), 0);
        }
        EXPECT_EQ(weft__seqs_pages_free(b.s), b.pages);
        results += b.results;
    }
    EXPECT_GT(results, 3000u);
}

} // namespace
