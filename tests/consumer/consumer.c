/* consumer.c: a whole program on libweft: two GEMMs over two emulated devices, planned, run, read back. */
#include <weft.h>
#include <weft_plan.h>

#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_last_error());
    return 1;
}

int main(void)
{
    const uint32_t widths[] = {64, 128, 64}, workers[] = {1, 1};
    float x[64], out[64], sum = 0;
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i % 7) - 3;

    weft_graph *g;
    void *image;
    size_t bytes;
    weft_plan_config plan = WEFT_PLAN_CONFIG_INIT;
    plan.n_device = 2;
    plan.workers = workers;
    plan.strategy = "cta";
    if (weft_graph_chain(widths, 3, 1, 1, "bf16", 7, &g)) return fail("graph");
    if (weft_plan(g, &plan, &image, &bytes)) return fail("plan");
    weft_graph_destroy(g);

    weft_engine *e;
    weft_engine_config config = WEFT_ENGINE_CONFIG_INIT;
    weft_step step = WEFT_STEP_INIT;
    uint32_t seq;
    config.devices = "cpu:2x1";
    config.deadline_us = 10000000;
    if (weft_engine_create(image, bytes, &config, &e)) return fail("engine");
    weft_image_free(image);
    if (weft_tensor_write_f32(e, "x", x, 64)) return fail("write");
    if (weft_step_submit(e, &step, &seq) || weft_step_wait(e, seq)) return fail("step");
    if (weft_tensor_read_f32(e, "out", out, 64)) return fail("read");
    weft_engine_destroy(e);
    for (int i = 0; i < 64; i++)
        sum += out[i] * out[i];
    printf("weft %s: 2 devices, sum of squares %.4f\n", weft_version(), sum);
    return sum > 0 ? 0 : 1;
}
