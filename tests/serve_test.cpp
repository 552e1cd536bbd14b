// serve: sequences over a real engine on emulated devices say what the same steps made by hand say.
#include "decode.h"

#include "../runtime/weft_decode.h"

#include <poll.h>

#include <map>
#include <set>

namespace
{

struct Served {
    Folder dir;
    weft__hfmodel plain = {};
    weft_decoder *d = nullptr;
    weft_decoder_config c = WEFT_DECODER_CONFIG_INIT;

    explicit Served(const Family &f = families[0])
    {
        EXPECT_EQ(write_tiny_model(dir, config_of(f)), 0) << weft_last_error();
        c.model = dir.path.c_str(), c.devices = "cpu:1x2", c.queue = "push";
        c.rows = 6, c.slots = 6, c.context = 300, c.pages = 20, c.deadline_us = 20000000;
    }
    ~Served()
    {
        weft_decoder_close(d);
        weft__hfmodel_close(&plain);
    }
    void open() { ASSERT_EQ(weft_decoder_open(&c, &d), 0) << weft_last_error(); }
    std::map<uint32_t, std::vector<weft_token>> run()
    {
        std::map<uint32_t, std::vector<weft_token>> all;
        weft_token out[7];
        uint32_t n = 0;
        int rc;
        while (!(rc = weft_decoder_wait(d, 30000, out, 7, &n)) && n)
            for (uint32_t i = 0; i < n; i++)
                all[out[i].id].push_back(out[i]);
        EXPECT_EQ(rc, 0) << weft_last_error();
        return all;
    }
    std::vector<uint32_t> tokens(uint32_t id)
    {
        std::vector<uint32_t> t(c.context);
        uint32_t n = 0;
        EXPECT_EQ(weft_seq_tokens(d, id, t.data(), (uint32_t)t.size(), &n, nullptr), 0);
        t.resize(n);
        return t;
    }
};

std::vector<uint32_t> some(uint32_t seed, size_t n)
{
    std::mt19937 random(seed);
    std::vector<uint32_t> t(n);
    for (auto &x : t)
        x = random() % 150;
    return t;
}

// Logits of every token, by the plain decoder, tell whether each chosen one was the largest but for rounding.
void expect_greedy(const std::string &dir, const std::vector<uint32_t> &t, size_t prompt)
{
    weft__hfmodel m = {};
    ASSERT_EQ(weft__hfmodel_open(dir.c_str(), &m), 0) << weft_last_error();
    weft__decoder *plain = nullptr;
    ASSERT_EQ(weft__decoder_open(&m, (uint32_t)t.size(), &plain), 0);
    std::vector<float> logits(m.config.vocab);
    for (size_t i = 0; i + 1 < t.size(); i++) {
        ASSERT_EQ(weft__decoder_step(plain, t[i], logits.data()), 0);
        if (i + 1 < prompt) continue;
        float top = logits[argmax(logits.data(), logits.size())], norm = 0;
        for (float v : logits)
            norm += v * v / (float)logits.size();
        EXPECT_GE(logits[t[i + 1]], top - 0.2f * std::sqrt(norm)) << "token " << i + 1;
    }
    weft__decoder_close(plain);
    weft__hfmodel_close(&m);
}

TEST(Serve, SeveralSequencesAndAFork)
{
    Served s;
    s.open();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    q.max_tokens = 30;
    uint32_t id[4];
    std::vector<uint32_t> first = some(1, 100);
    for (uint32_t i = 0; i < 3; i++) {
        std::vector<uint32_t> t = some(i + 1, 100 - 40 * i);
        ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, (uint32_t)t.size(), &q, &id[i]), 0) << weft_last_error();
    }
    auto all = s.run();
    for (uint32_t i = 0; i < 3; i++) {
        ASSERT_EQ(all[id[i]].size(), 30u);
        EXPECT_EQ(all[id[i]].back().end, (uint32_t)WEFT_SEQ_LENGTH);
        expect_greedy(s.dir.path, s.tokens(id[i]), 100 - 40 * i);
    }
    ASSERT_EQ(weft_seq_truncate(s.d, id[0], 100), 0);
    EXPECT_EQ(s.tokens(id[0]), first);
    ASSERT_EQ(weft_seq_fork(s.d, id[0], nullptr, &id[3]), 0);
    s.run();
    expect_greedy(s.dir.path, s.tokens(id[3]), 100);
    for (uint32_t i : id)
        EXPECT_EQ(weft_seq_free(s.d, i), 0);
    weft_decoder_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(weft_decoder_get_info(s.d, &info), 0);
    EXPECT_EQ(info.pages_free, 20u);
    EXPECT_EQ(info.kv_bytes, 20ull * 3 * 2 * 2 * 64 * 64 * 2); // pages, layers, KV heads, K and V, tokens, head, bf16
}

TEST(Serve, TheHostChoosesFromLogits)
{
    Served s(families[1]);
    s.open();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    q.host_feedback = 1, q.logits = 1;
    std::vector<uint32_t> t = some(5, 9), want(9, WEFT_WANT_LOGITS);
    uint32_t id;
    ASSERT_EQ(weft_seq_add(s.d, t.data(), want.data(), 9, &q, &id), 0);
    for (uint32_t i = 0; i < 12; i++) {
        auto all = s.run()[id];
        ASSERT_EQ(all.size(), i ? 1u : 9u);
        for (const weft_token &v : all) {
            ASSERT_NE(v.logits, nullptr);
            EXPECT_EQ(v.token, argmax(v.logits, 150));
        }
        float *logits = all.back().logits;
        logits[all.back().token] = -INFINITY; // a mask: never the most likely one
        t.push_back(argmax(logits, 150));
        ASSERT_EQ(weft_seq_append(s.d, id, &t.back(), nullptr, 1), 0);
        for (const weft_token &v : all)
            free(v.logits);
    }
    const std::vector<weft_token> last = s.run()[id];
    for (const weft_token &v : last)
        free(v.logits);
    EXPECT_EQ(s.tokens(id), t);
}

TEST(Serve, AnEventfdTellsOfTokens)
{
    Served s;
    s.open();
    int fd = -1;
    ASSERT_EQ(weft_decoder_fd(s.d, &fd), 0) << weft_last_error();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    q.max_tokens = 20;
    const std::vector<uint32_t> t = some(8, 70);
    uint32_t id, got = 0, end = 0;
    ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, 70, &q, &id), 0);
    while (!end) {
        struct pollfd p = {fd, POLLIN, 0};
        ASSERT_EQ(::poll(&p, 1, 30000), 1);
        weft_token out[3];
        uint32_t n = 0;
        ASSERT_EQ(weft_decoder_poll(s.d, out, 3, &n), 0) << weft_last_error();
        for (uint32_t i = 0; i < n; i++, got++)
            end = out[i].end;
    }
    EXPECT_EQ(got, 20u);
    EXPECT_EQ(weft_seq_cancel(s.d, id), 0);
}

// With the thread alone at work: a caller that looks only when told learns of a full cache, and goes on once there is room.
TEST(Serve, AnEventfdTellsOfAFullCache)
{
    Served s;
    s.c.pages = 5;
    s.open();
    int fd = -1, rc = 0;
    ASSERT_EQ(weft_decoder_fd(s.d, &fd), 0) << weft_last_error();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    const std::vector<uint32_t> t = some(14, 120), u = some(15, 120);
    uint32_t a, b, end = 0;
    ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, 120, &q, &a), 0);
    ASSERT_EQ(weft_seq_add(s.d, u.data(), nullptr, 120, &q, &b), 0);
    for (int full = 0; !end || !full;) {
        struct pollfd p = {fd, POLLIN, 0};
        ASSERT_EQ(::poll(&p, 1, 30000), 1) << "full " << full;
        weft_token out[16];
        uint32_t n = 0;
        rc = weft_decoder_poll(s.d, out, 16, &n);
        if (rc) {
            ASSERT_EQ(rc, WEFT_ENOMEM) << weft_last_error();
            ASSERT_EQ(weft_seq_free(s.d, b), 0) << "a second time";
            full = 1;
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            if (out[i].id == a) end = out[i].end;
    }
    EXPECT_EQ(end, (uint32_t)WEFT_SEQ_CONTEXT);
    EXPECT_EQ(s.tokens(a).size(), 300u);
}

TEST(Serve, AFullCacheAndABudget)
{
    Served s;
    s.c.pages = 5;
    s.open();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    const std::vector<uint32_t> t = some(9, 190), u = some(10, 100);
    uint32_t a, b;
    ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, 190, &q, &a), 0);
    EXPECT_EQ(weft_seq_add(s.d, some(11, 200).data(), nullptr, 200, &q, &b), WEFT_ENOMEM);
    EXPECT_NE(std::string(weft_last_error()).find("4 pages"), std::string::npos) << weft_last_error();
    ASSERT_EQ(weft_seq_add(s.d, u.data(), nullptr, 100, &q, &b), 0);
    weft_token out[8];
    uint32_t n;
    int rc;
    while (!(rc = weft_decoder_wait(s.d, 30000, out, 8, &n)) && n) {
    }
    EXPECT_EQ(rc, WEFT_ENOMEM);
    ASSERT_EQ(weft_seq_free(s.d, b), 0);
    s.run();
    EXPECT_EQ(s.tokens(a).size(), 300u);
    expect_greedy(s.dir.path, s.tokens(a), 190);

    weft_decoder_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(weft_decoder_get_info(s.d, &info), 0);
    Served limited;
    limited.c.pages = 0, limited.c.budget = info.weight_bytes + info.work_bytes + 8 * info.kv_bytes / 5;
    limited.open();
    ASSERT_EQ(weft_decoder_get_info(limited.d, &info), 0);
    EXPECT_LE(info.weight_bytes + info.work_bytes + info.kv_bytes, limited.c.budget);
    EXPECT_GE(info.pages, 7u);
    Served none;
    none.c.pages = 0, none.c.budget = 1000;
    EXPECT_EQ(weft_decoder_open(&none.c, &none.d), WEFT_ENOMEM);
}

TEST(Serve, OpeningCanBeGivenUpAndAnEngineReplaced)
{
    Served s;
    s.c.progress = [](void *, uint64_t bytes, uint64_t all) { return int(bytes > all / 2); };
    EXPECT_EQ(weft_decoder_open(&s.c, &s.d), WEFT_EABORT);
    s.c.progress = nullptr;
    s.open();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    q.max_tokens = 40;
    const std::vector<uint32_t> t = some(12, 20);
    uint32_t id, n;
    weft_token out[4];
    ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, 20, &q, &id), 0);
    ASSERT_EQ(weft_decoder_wait(s.d, 30000, out, 4, &n), 0);
    ASSERT_EQ(weft_decoder_restart(s.d), 0) << weft_last_error(); // steps under way are lost, tokens aren't
    s.run();
    EXPECT_EQ(s.tokens(id).size(), 60u);
    expect_greedy(s.dir.path, s.tokens(id), 20);
}

// No step can keep such a deadline: the watchdog stops the engine; a new one takes the sequence up (and is stopped, too).
TEST(Serve, AWatchdogStopKeepsTheSequences)
{
    Served s;
    s.c.deadline_us = 1;
    s.open();
    weft_seq_config q = WEFT_SEQ_CONFIG_INIT;
    const std::vector<uint32_t> t = some(16, 80);
    uint32_t id, n;
    weft_token out[4];
    ASSERT_EQ(weft_seq_add(s.d, t.data(), nullptr, 80, &q, &id), 0);
    for (int engine = 0; engine < 2; engine++) {
        EXPECT_EQ(weft_decoder_wait(s.d, 30000, out, 4, &n), WEFT_EABORT);
        EXPECT_EQ(weft_decoder_poll(s.d, out, 4, &n), WEFT_EABORT);
        EXPECT_NE(std::string(weft_last_error()), "");
        EXPECT_EQ(s.tokens(id), t);
        ASSERT_EQ(weft_decoder_restart(s.d), 0) << weft_last_error();
    }
}

TEST(Serve, TheExampleServesSeveral)
{
    Served s; // its directory
    Output out = run_command(WEFT_BINARY_DIR "/tests/serve_example " + s.dir.path + "/none");
    EXPECT_EQ(out.exit, 5) << out.text;
    out = run_command(WEFT_BINARY_DIR "/tests/serve_example " + s.dir.path + " cpu:1x2");
    EXPECT_EQ(out.exit, 0) << out.text;
    for (uint32_t u = 0; u < 4; u++) {
        size_t n = 0, at = 0;
        const std::string user = "user " + std::to_string(u) + ": token ";
        while ((at = out.text.find(user, at)) != std::string::npos)
            at++, n++;
        EXPECT_EQ(n, 16u) << out.text;
    }
    EXPECT_NE(out.text.find("10 of 10 pages free"), std::string::npos) << out.text;
}

} // namespace
