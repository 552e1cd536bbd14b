// validate_attn: attention shares its partials between tasks by a rule over the step's data; what is proven of it.
#include "../tasks/attn.h"
#include "plans.h"

namespace
{

enum Tensors {
    Q,
    KV,
    TABLE,
    PARTIAL,
    OUT,
    N_TENSOR
};

// `shares` ATTN tasks, one counter, and ATTN_COMBINE tasks of the given sizes.
struct Attention {
    const uint32_t m = 3, heads = 8, kv_heads = 4, dim = 64, blocks = 2, pages = 16;
    weft__image_writer w = {};
    Attention(uint32_t shares, const std::vector<uint32_t> &pairs)
    {
        const uint32_t n = shares + (uint32_t)pairs.size();
        weft__image_counts c = {};
        c.devices = c.queues = c.counters = 1;
        c.tensors = N_TENSOR;
        c.ops = 2;
        c.tasks = c.order = n;
        c.deps = pairs.size();
        c.strings = 1;
        EXPECT_EQ(weft__image_writer_init(&w, &c, 1, 1), 0);
        w.header->strategy = WEFT_NONE;
        tensor(Q, WEFT_BF16, WEFT_ROLE_INPUT, m, heads * dim);
        tensor(KV, WEFT_BF16, WEFT_ROLE_KV, 20 * kv_heads * 2, dim * WEFT_ATTN_PAGE);
        tensor(TABLE, WEFT_U32, WEFT_ROLE_TABLE, m, pages);
        tensor(PARTIAL, WEFT_FP32, WEFT_ROLE_PARTIAL, m * kv_heads * blocks, heads / kv_heads * (dim + 2));
        tensor(OUT, WEFT_BF16, WEFT_ROLE_OUTPUT, m, heads * dim);
        ops();
        w.queues[0].n_task = n;
        w.queues[0].n_counter = 1;
        w.queues[0].n_dep = (uint32_t)pairs.size();
        w.counters[0].arrivals = shares;
        w.counters[0].n_dep = (uint32_t)pairs.size();
        for (uint32_t i = 0, first = 0; i < n; i++) {
            weft_task &t = w.tasks[i];
            const bool attn = i < shares;
            t.kind = attn ? WEFT_KIND_ATTN : WEFT_KIND_ATTN_COMBINE;
            t.alt_device = 0xff;
            t.op = !attn;
            t.n_signal = attn;
            t.n_wait = !attn;
            t.wait[0].arrivals = (uint16_t)shares;
            t.tile[0] = attn ? i : first;
            t.tile[1] = attn ? shares : pairs[i - shares];
            if (!attn) first += pairs[i - shares], w.deps[i - shares] = i;
            w.order[i] = i;
        }
    }
    ~Attention() { free(w.bytes); }
    void tensor(uint32_t id, uint32_t dtype, uint32_t role, uint32_t rows, uint32_t cols)
    {
        weft_tensor &t = w.tensors[id];
        t.name = t.weight = WEFT_NONE;
        t.dtype = (uint8_t)dtype;
        t.role = (uint8_t)role;
        t.rows = rows;
        t.cols = cols;
        t.splits = 1;
        t.offset = w.devices[0].work_bytes;
        t.bytes = weft_layout_bytes(WEFT_LAYOUT_ROW, dtype, rows, cols, 1);
        w.devices[0].work_bytes = weft_round_up64(t.offset + t.bytes, 1024);
    }
    void ops()
    {
        weft_op op = {};
        op.name = op.x = op.w = op.out = op.aux = op.scale = op.pk_x = op.pk_out = op.pk_aux = WEFT_NONE;
        op.squares = op.cost = WEFT_NONE;
        op.m = m;
        op.n = heads * dim;
        op.partial = PARTIAL;
        const uint32_t param[6] = {heads, kv_heads, dim, WEFT_ATTN_BLOCK, blocks, pages};
        memcpy(op.param, param, sizeof param);
        w.devices[0].workers = 1;
        w.devices[0].n_op = 2;
        w.ops[0] = w.ops[1] = op;
        w.ops[0].kind = WEFT_KIND_ATTN;
        w.ops[0].x = Q;
        w.ops[0].w = KV;
        w.ops[0].aux = TABLE;
        w.ops[1].kind = WEFT_KIND_ATTN_COMBINE;
        w.ops[1].out = OUT;
    }
    int check(uint32_t *proven = nullptr)
    {
        weft__image_seal(w.bytes, w.size);
        weft__image img;
        int rc = weft__image_open(w.bytes, w.size, "attention", &img);
        return rc ? rc : weft__validate(&img, proven);
    }
};

TEST(ValidateAttn, AnyDivisionIsProven)
{
    for (uint32_t shares : {1u, 2u, 132u}) {
        for (const std::vector<uint32_t> &pairs : std::vector<std::vector<uint32_t>>{
                 {12}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 7, 2}, {5, 7}, {4, 8}, {2, 10}}) {
            uint32_t proven = 0;
            Attention a(shares, pairs);
            EXPECT_EQ(a.check(&proven), 0) << weft__error();
            EXPECT_EQ(proven, (1u << WEFT_POLICY_COUNT) - 1);
        }
    }
}

TEST(ValidateAttn, AMissingShareIsRefused)
{
    Attention a(4, {12});
    for (uint32_t i = 0; i < 4; i++)
        a.w.tasks[i].tile[1] = 5;
    EXPECT_EQ(a.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("which nobody writes")) << weft__error();
}

TEST(ValidateAttn, ADoubleShareIsRefused)
{
    Attention a(4, {12});
    a.w.tasks[2].tile[0] = 1;
    EXPECT_EQ(a.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("both write")) << weft__error();
}

TEST(ValidateAttn, SharesOfDifferentDivisionsAreRefused)
{
    Attention a(4, {12});
    a.w.tasks[2].tile[1] = 5;
    EXPECT_EQ(a.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("both write")) << weft__error();
}

TEST(ValidateAttn, CombiningTooEarlyIsRefused)
{
    Attention a(4, {6, 6});
    a.w.tasks[5].n_wait = 0;
    a.w.counters[0].n_dep = 1;
    EXPECT_EQ(a.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("does not wait")) << weft__error();
}

TEST(ValidateAttn, TwoCombinersOfOnePairAreRefused)
{
    Attention a(4, {7, 5});
    a.w.tasks[5].tile[0] = 6;
    a.w.tasks[5].tile[1] = 6;
    EXPECT_EQ(a.check(), WEFT_EREFUSED);
    EXPECT_TRUE(says("both write")) << weft__error();
}

TEST(ValidateAttn, ShapesAreChecked)
{
    const std::pair<const char *, std::function<void(Attention &)>> cases[] = {
        {"ops[0].param[1]", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_KV_HEADS] = 0; }},
        {"ops[0].param[2]", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_HEAD_DIM] = 65; }},
        {"ops[0].param[3]", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_BLOCK_TOKENS] = 96; }},
        {"ops[0].param[4]", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_MAX_BLOCKS] = 0; }},
        {"ops[0].partial", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_MAX_BLOCKS] = 9; }},
        {"ops[0].aux", [](Attention &a) { a.w.ops[0].param[WEFT_ATTN_MAX_PAGES] = 17; }},
        {"ops[0].w", [](Attention &a) { a.w.ops[0].w = WEFT_NONE; }},
        {"ops[0].w", [](Attention &a) { a.w.ops[0].w = Q; }},
        {"ops[0].m", [](Attention &a) { a.w.ops[0].m = 65; }},
        {"ops[1].out", [](Attention &a) { a.w.ops[1].out = WEFT_NONE; }},
        {"tasks[0].tile[0]", [](Attention &a) { a.w.tasks[0].tile[0] = 4; }},
        {"tasks[4].tile[0]", [](Attention &a) { a.w.tasks[4].tile[1] = 13; }},
    };
    for (const auto &[field, spoil] : cases) {
        Attention a(4, {12});
        spoil(a);
        EXPECT_EQ(a.check(), WEFT_EFILE) << field;
        EXPECT_TRUE(says(field)) << weft__error();
    }
}

} // namespace
