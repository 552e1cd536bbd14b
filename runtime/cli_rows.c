/* cli_rows.c: the options that several verbs share: what is computed, and how it is planned. */
#include "cli_work.h"

#include <string.h>

weft__work_options weft__work_defaults(void)
{
    return (weft__work_options){
        .block = "mlp", .dtype = "bf16", .epilogue = "none", .norm = "fused", .batch = 1, .seed = 1};
}

weft__option *weft__work_rows(weft__work_options *o, weft__option *row)
{
    const weft__option rows[] = {
        {"--chain", "W,W,..", "GEMMs of these widths, seeded weights", WEFT_OPT_TEXT, &o->chain, 0, 0},
        {"--model", "DIR", "a Hugging Face model directory", WEFT_OPT_TEXT, &o->model, 0, 0},
        {"--block", "NAME", "which blocks of the model: mlp (default)", WEFT_OPT_TEXT, &o->block, 0, 0},
        {"--mlp", "H,F", "MLP blocks of these widths, seeded weights", WEFT_OPT_TEXT, &o->mlp, 0, 0},
        {"--layers", "L", "blocks, or times the chain is repeated (default: all, or 1)", WEFT_OPT_U32, &o->layers, 1,
         65536},
        {"--batch", "M", "rows of the input (default 1)", WEFT_OPT_U32, &o->batch, 1, 1 << 20},
        {"--dtype", "T", "bf16 (default) or fp16", WEFT_OPT_TEXT, &o->dtype, 0, 0},
        {"--epilogue", "E", "of a chain's GEMMs: none (default), bias, silu or gelu", WEFT_OPT_TEXT, &o->epilogue, 0,
         0},
        {"--norm", "N", "of MLP blocks: fused (default; the GEMM after it applies it) or separate (an op of its own)",
         WEFT_OPT_TEXT, &o->norm, 0, 0},
        {"--seed", "N", "of weights and inputs (default 1)", WEFT_OPT_U64, &o->seed, 0, 0},
    };
    memcpy(row, rows, sizeof rows);
    return row + sizeof rows / sizeof rows[0];
}

weft__plan_flags weft__plan_flag_defaults(void)
{
    return (weft__plan_flags){.strategy = "single", .order = "auto", .wide = "auto", .packet_rows = WEFT_NONE};
}

weft__option *weft__plan_rows(weft__plan_flags *f, weft__option *row)
{
    const weft__option rows[] = {
        {"--devices", "SPEC", "cpu:N[xW], cuda, cuda:0,1, cuda:0/4 (default: a GPU if there is one)", WEFT_OPT_TEXT,
         &f->devices, 0, 0},
        {"--strategy", "S", "single (default), cta, microbatch, tp, cta-tp", WEFT_OPT_TEXT, &f->strategy, 0, 0},
        {"--order", "O", "auto (default), breadth, critical, grouped", WEFT_OPT_TEXT, &f->order, 0, 0},
        {"--chunks", "N", "microbatch: chunks of the batch (default: chosen)", WEFT_OPT_U32, &f->chunks, 1, 65536},
        {"--tp", "N", "cta-tp: devices a group", WEFT_OPT_U32, &f->tp, 1, 64},
        {"--tile-groups", "N", "groups of 16 output rows a task takes", WEFT_OPT_U32, &f->tile_groups, 1, 16},
        {"--m-tile", "N", "rows of the batch a task takes", WEFT_OPT_U32, &f->m_tile, 1, 1 << 20},
        {"--split-k", "N", "K splits of every GEMM", WEFT_OPT_U32, &f->split_k, 1, 65536},
        {"--k-panels", "N", "counters a row panel is cut into", WEFT_OPT_U32, &f->k_panels, 1, 255},
        {"--packets", "ROWS", "edges of up to ROWS rows carry packets too (0: none)", WEFT_OPT_U32, &f->packet_rows, 0,
         8},
        {"--copies", NULL, "results stay at home; copy tasks take them to readers on other devices", WEFT_OPT_FLAG,
         &f->copies, 0, 0},
        {"--alternates", NULL, "queue steal: the next device has a device's weights too, and may take its tasks",
         WEFT_OPT_FLAG, &f->alternates, 0, 0},
        {"--costs", "L:D:NS,..",
         "layer (or layers A-B), device, and what an op of it costs there: ns, or none: it can't", WEFT_OPT_TEXT,
         &f->costs, 0, 0},
        {"--place", "FILE",
         "with --strategy cta, which device runs each op (or task of --graph): CSV with task,device[,worker,start]",
         WEFT_OPT_TEXT, &f->place, 0, 0},
        {"--wide", "B", "wide GEMM tiles: auto (default), on, off", WEFT_OPT_TEXT, &f->wide, 0, 0},
    };
    memcpy(row, rows, sizeof rows);
    return row + sizeof rows / sizeof rows[0];
}
