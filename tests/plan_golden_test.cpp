// plan_golden: small plans, written out task by task, are what they were. A change that is meant: look at the diff after
// WEFT_UPDATE_GOLDEN=1 build/tests/plan_golden_test, and commit it.
#include "files.h"
#include "plans.h"

namespace
{

std::string number(uint64_t v) { return std::to_string(v); }

std::string dump_tensors(const weft__image &img)
{
    static const char *const layouts[] = {"row", "atom", "panel", "frag", "packet", "partial"};
    static const char *const roles[] = {"weight", "act", "input", "output", "packet", "partial", "kv", "table"};
    std::string s;
    for (uint32_t i = 0; i < img.n_tensor; i++) {
        const weft_tensor &t = img.tensors[i];
        s += "tensor " + number(i) + " d" + number(t.device) + " " + roles[t.role] + " " + layouts[t.layout] + " " +
             number(t.rows) + "x" + number(t.cols) + " splits " + number(t.splits) + " at " + number(t.offset) + "+" +
             number(t.bytes) + " " + weft__image_string(&img, t.name);
        if (t.role == WEFT_ROLE_WEIGHT) {
            s += " row0 " + number(img.weights[t.weight].row0) + " col0 " + number(img.weights[t.weight].col0);
        }
        s += "\n";
    }
    return s;
}

std::string field(const char *name, uint32_t id)
{
    return id == WEFT_NONE ? "" : std::string(" ") + name + " " + number(id);
}

std::string dump_ops(const weft__image &img)
{
    std::string s;
    for (uint32_t i = 0; i < img.n_op; i++) {
        const weft_op &o = img.ops[i];
        s += "op " + number(i) + " d" + number(o.device) + " kind " + number(o.kind) + " " +
             weft__image_string(&img, o.name) + " " + number(o.m) + "x" + number(o.n) + "x" + number(o.k) +
             " epilogue " + number(o.epilogue) + " flags " + number(o.flags) + " splits " + number(o.n_split) +
             field("x", o.x) + field("w", o.w) + field("aux", o.aux) + field("out", o.out) +
             field("partial", o.partial) + field("pk_x", o.pk_x) + field("pk_aux", o.pk_aux) +
             field("pk_out", o.pk_out) + "\n";
    }
    return s;
}

std::string dump_tasks(const weft__image &img, uint32_t d)
{
    const weft_image_queue &q = *weft__image_queue_of(&img, 0, d);
    const uint64_t *side = img.side + q.side;
    std::string s;
    for (uint32_t i = 0; i < q.n_task; i++) {
        const weft_task &t = img.tasks[q.task + img.order[q.order + i]];
        s += "d" + number(d) + " task " + number(img.order[q.order + i]) + " op " + number(t.op) + " tile " +
             number(t.tile[0]) + " " + number(t.tile[1]) + " " + number(t.tile[2]) + " " + number(t.tile[3]);
        for (uint32_t k = 0; k < t.n_wait; k++) {
            const weft_wait w = weft__task_wait(&t, side, k);
            s += " wait " + number(w.counter) + "x" + number(w.arrivals) + "@" + number(w.due);
        }
        for (uint32_t k = 0; k < t.n_signal; k++) {
            const weft_signal w = weft__task_signal(&t, side, k);
            s += " signal d" + number(w.device) + ":" + number(w.counter) + (w.scope ? " sys" : "");
        }
        s += "\n";
    }
    return s;
}

void expect_golden(const char *name, const Plan &p)
{
    ASSERT_EQ(p.rc, 0) << weft__error();
    std::string text = dump_tensors(p.img) + dump_ops(p.img);
    for (uint32_t d = 0; d < p.img.n_device; d++)
        text += dump_tasks(p.img, d);
    const std::string path = std::string(WEFT_SOURCE_DIR) + "/tests/golden/" + name + ".txt";
    if (getenv("WEFT_UPDATE_GOLDEN")) std::ofstream(path) << text;
    EXPECT_EQ(text, read_file(path)) << path;
}

TEST(PlanGolden, ChainOverTwoDevices)
{
    Work w;
    w.chain = {100, 200, 100};
    w.m = 8;
    w.layers = 1;
    expect_golden("chain_cta", Plan(w, on(2, WEFT__CTA)));
}

TEST(PlanGolden, MlpOfOneRowWithPackets)
{
    Work w;
    w.mlp = true;
    w.chain = {64, 96};
    expect_golden("mlp_packets", Plan(w, on(1)));
}

TEST(PlanGolden, MlpSplitOverTwoDevices)
{
    Work w;
    w.mlp = true;
    w.chain = {128, 128};
    w.m = 16;
    expect_golden("mlp_tp", Plan(w, on(2, WEFT__TP)));
}

TEST(PlanGolden, SplitKAndPanels)
{
    Work w;
    w.chain = {64, 600, 64};
    w.m = 72;
    w.layers = 1;
    weft__plan_options o = on(1);
    o.split_k = 2;
    o.k_panels = 2;
    o.tile_groups = 2;
    expect_golden("split_k_panels", Plan(w, o));
}

TEST(PlanGolden, MicroBatches)
{
    Work w;
    w.chain = {64, 64, 64};
    w.m = 48;
    w.layers = 1;
    weft__plan_options o = on(2, WEFT__MICROBATCH);
    o.chunks = 3;
    expect_golden("microbatch", Plan(w, o));
}

TEST(PlanGolden, IntegerDag)
{
    weft__graph *g;
    ASSERT_EQ(weft__graph_new(&g), 0);
    uint32_t id[5];
    ASSERT_EQ(weft__graph_mix(g, 0, 1, nullptr, 0, 0, &id[0]), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 2, nullptr, 0, 0, &id[1]), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 3, id, 2, 1, &id[2]), 0);
    ASSERT_EQ(weft__graph_mix(g, 0, 4, id, 3, 0, &id[3]), 0);
    ASSERT_EQ(weft__graph_mix(g, 1, 5, id, 4, 1, &id[4]), 0);
    expect_golden("dag", Plan(g, on(2)));
    weft__graph_free(g);
}

} // namespace
