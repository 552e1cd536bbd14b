/* cli_plan.c: `weft plan`: make an image, or read, check and print one. Enters: argv, perhaps an image file. Leaves: an
 * image file, a text or one JSON line. Needs no GPU: --devices 8x132 plans for devices that this machine lacks.          */
#include "../host/error.h"
#include "../host/image.h"
#include "../host/validate.h"
#include "../megakernel/clock.h"
#include "../tasks/kinds.h"
#include "cli_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_run {
    weft__work_options work;
    weft__plan_flags flags;
    const char *out, *check;
    bool json, tasks;
    double seconds; /* planning and validating; 0: an image that was read */
} plan_run;

static const char *policy_names(uint32_t policies, char *out, size_t room)
{
    static const char *const names[WEFT_POLICY_COUNT] = {"static", "fifo", "push", "steal", "priority"};
    out[0] = 0;
    for (uint32_t p = 0; p < WEFT_POLICY_COUNT; p++)
        if (policies >> p & 1) snprintf(out + strlen(out), room - strlen(out), "%s%s", out[0] ? ", " : "", names[p]);
    return out;
}

typedef struct edge { /* from one device to another, a step */
    uint64_t bytes, signals;
} edge;

/* edges[from * n_device + to], of variant 0; free() it. */
static edge *find_edges(const weft__image *img)
{
    const uint32_t n = img->n_device;
    edge *edges = calloc((size_t)n * n, sizeof *edges);
    for (uint32_t i = 0, to; edges && i < img->n_op; i++) {
        const uint64_t bytes = weft__op_remote_bytes(img, &img->ops[i], &to);
        if (to != WEFT_NONE) edges[img->ops[i].device * n + to].bytes += bytes;
    }
    for (uint32_t d = 0; edges && d < n; d++) {
        const weft_image_queue *q = weft__image_queue_of(img, 0, d);
        for (uint32_t i = 0; i < q->n_task; i++) {
            const weft_task *t = &img->tasks[q->task + i];
            for (uint32_t s = 0; s < t->n_signal; s++)
                edges[d * n + weft__task_signal(t, img->side + q->side, s).device].signals++;
        }
    }
    return edges;
}

static void print_edges(const weft__image *img)
{
    const uint32_t n = img->n_device;
    edge *edges = find_edges(img);
    int told = 0;
    for (uint32_t i = 0; edges && i < n * n; i++) {
        if (i / n == i % n || !(edges[i].bytes || edges[i].signals)) continue;
        if (!told++) printf("\nedge      KB a step   signals\n");
        printf("%2u -> %2u  %10.1f  %8llu\n", i / n, i % n, (double)edges[i].bytes / 1024,
               (unsigned long long)edges[i].signals);
    }
    free(edges);
}

static json_t *edges_json(const weft__image *img)
{
    const uint32_t n = img->n_device;
    edge *edges = find_edges(img);
    json_t *all = json_array();
    for (uint32_t i = 0; edges && i < n * n; i++) {
        if (i / n == i % n || !(edges[i].bytes || edges[i].signals)) continue;
        json_array_append_new(all, json_pack("{s:i,s:i,s:I,s:I}", "from", (int)(i / n), "to", (int)(i % n), "bytes",
                                             (json_int_t)edges[i].bytes, "signals", (json_int_t)edges[i].signals));
    }
    free(edges);
    return all;
}

static void print_text(const weft__image *img, const weft__plan_stats *s, const plan_run *r)
{
    char policies[64];
    printf("plan       %s, hash %016llx, %.1f KB\n", weft__image_string(img, img->header->strategy),
           (unsigned long long)img->header->hash, (double)img->size / 1024);
    printf("proven for %s\n", policy_names(img->header->policies, policies, sizeof policies));
    printf("a step     %llu tasks, %llu counters, %llu waits, %llu signals (%llu remote), %.1f KB to peers\n",
           (unsigned long long)s->tasks, (unsigned long long)s->counters, (unsigned long long)s->waits,
           (unsigned long long)s->signals, (unsigned long long)s->remote_signals, (double)s->remote_bytes / 1024);
    if (s->critical_ns)
        printf("cost model %.1f us on the longest path, %.1f us in all\n", (double)s->critical_ns / 1e3,
               (double)s->total_ns / 1e3);
    if (s->chunks > 1) printf("chunks     %u\n", s->chunks);
    if (r->seconds > 0) printf("planned in %.3f s with %.1f MB of memory\n", r->seconds, (double)s->peak_bytes / 1e6);
    printf("\ndevice  workers  ops  tasks  counters   weights MB   work MB\n");
    for (uint32_t d = 0; d < img->n_device; d++) {
        const weft_image_queue *q = weft__image_queue_of(img, 0, d);
        printf("%6u  %7u  %3u  %5u  %8u  %11.2f  %8.2f\n", d, img->devices[d].workers, img->devices[d].n_op, q->n_task,
               q->n_counter, (double)img->devices[d].weight_bytes / 1e6, (double)img->devices[d].work_bytes / 1e6);
    }
    print_edges(img);
}

static int print_json(const weft__image *img, const weft__plan_stats *s, const plan_run *r)
{
    char hash[20], policies[64];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)img->header->hash);
    json_t *o = weft__result_new("plan");
    json_object_set_new(o, "strategy", json_string(weft__image_string(img, img->header->strategy)));
    json_object_set_new(o, "policies", json_string(policy_names(img->header->policies, policies, sizeof policies)));
    json_object_set_new(o, "devices", json_integer(img->n_device));
    json_object_set_new(o, "variants", json_integer(img->n_variant));
    json_object_set_new(o, "tasks", json_integer((json_int_t)s->tasks));
    json_object_set_new(o, "counters", json_integer((json_int_t)s->counters));
    json_object_set_new(o, "waits", json_integer((json_int_t)s->waits));
    json_object_set_new(o, "signals", json_integer((json_int_t)s->signals));
    json_object_set_new(o, "remote_signals", json_integer((json_int_t)s->remote_signals));
    json_object_set_new(o, "remote_bytes", json_integer((json_int_t)s->remote_bytes));
    json_object_set_new(o, "edges", edges_json(img));
    json_object_set_new(o, "chunks", json_integer(s->chunks));
    json_object_set_new(o, "critical_us", s->critical_ns ? json_real((double)s->critical_ns / 1e3) : json_null());
    json_object_set_new(o, "total_us", json_real((double)s->total_ns / 1e3));
    json_object_set_new(o, "image_bytes", json_integer((json_int_t)img->size));
    json_object_set_new(o, "peak_bytes", json_integer((json_int_t)s->peak_bytes));
    json_object_set_new(o, "plan_s", r->seconds > 0 ? json_real(r->seconds) : json_null());
    json_object_set_new(o, "plan_hash", json_string(hash));
    json_object_set_new(o, "seed", json_integer((json_int_t)img->header->seed));
    return weft__result_print(o);
}

/* One line an op: where it is, what it sends, and what the graph said that it costs. */
static void print_ops(const weft__image *img)
{
    printf("\nops\n");
    for (uint32_t i = 0, to; i < img->n_op; i++) {
        const weft_op *op = &img->ops[i];
        const uint64_t bytes = weft__op_remote_bytes(img, op, &to);
        printf("  device %u op %u %s %s: %u x %u x %u", op->device, i - img->devices[op->device].op,
               weft__kinds[op->kind].name, op->name == WEFT_NONE ? "-" : weft__image_string(img, op->name), op->m,
               op->n, op->k);
        if (to != WEFT_NONE) printf(", %llu bytes to device %u", (unsigned long long)bytes, to);
        for (uint32_t d = 0; op->cost != WEFT_NONE && d < img->n_device; d++) {
            const uint32_t ns = img->costs[(uint64_t)op->cost * img->n_device + d];
            printf(d ? ", " : "; ns by device: ");
            if (ns == WEFT_NONE)
                printf("none");
            else if (ns)
                printf("%u", ns);
            else
                printf("-");
        }
        putchar('\n');
    }
}

/* One line a task, in queue order. */
static void print_tasks(const weft__image *img)
{
    for (uint32_t v = 0; v < img->n_variant; v++)
        for (uint32_t d = 0; d < img->n_device; d++) {
            const weft_image_queue *q = weft__image_queue_of(img, v, d);
            const uint64_t *side = img->side + q->side;
            printf("\nvariant %u, device %u\n", v, d);
            for (uint32_t i = 0; i < q->n_task; i++) {
                uint32_t id = img->order[q->order + i];
                const weft_task *t = &img->tasks[q->task + id];
                printf("  task %u %s", id, weft__kinds[t->kind].name);
                if (t->op < img->devices[d].n_op)
                    printf(" %s", weft__image_string(img, weft__image_op(img, d, t)->name));
                printf(" tile %u %u %u %#x, %u ns;", t->tile[0], t->tile[1], t->tile[2], t->tile[3], t->cost_ns);
                for (uint32_t n = 0; n < t->n_wait; n++) {
                    weft_wait w = weft__task_wait(t, side, n);
                    printf(" wait c%u x%u%s", w.counter, w.arrivals, w.lag ? " (last step)" : "");
                }
                for (uint32_t n = 0; n < t->n_signal; n++) {
                    weft_signal s = weft__task_signal(t, side, n);
                    printf(" signal d%u.c%u%s", s.device, s.counter, s.scope == WEFT_SCOPE_SYS ? " sys" : "");
                }
                putchar('\n');
            }
        }
}

static int report(const weft__image *img, const weft__plan_stats *stats, const plan_run *r)
{
    int status = 0;
    if (r->json)
        status = print_json(img, stats, r);
    else
        print_text(img, stats, r);
    if (r->tasks) print_ops(img);
    if (r->tasks) print_tasks(img);
    return status;
}

static int make_image(plan_run *r)
{
    weft__work w;
    weft__plan_stats stats = {0};
    weft__image img;
    void *bytes = NULL;
    uint64_t size = 0;
    int status = weft__work_open(&r->work, &w);
    if (status) return status;
    uint64_t start = weft__now_ns();
    status = weft__work_plan(&w, &r->flags, &bytes, &size, &stats);
    r->seconds = (double)(weft__now_ns() - start) * 1e-9;
    weft__work_close(&w);
    if (!status) status = weft__image_open(bytes, size, "image", &img);
    if (!status) status = report(&img, &stats, r);
    if (!status && r->out) status = weft__image_write_file(bytes, size, r->out);
    free(bytes);
    return status;
}

static int check_image(const plan_run *r)
{
    weft__image img;
    weft__plan_stats stats = {0};
    int status = weft__image_read_file(r->check, &img);
    if (status) return status;
    status = weft__validate(&img, NULL);
    if (!status) weft__plan_stats_of(&img, &stats);
    if (!status) status = report(&img, &stats, r);
    weft__image_close(&img);
    return status;
}

int weft__cli_plan(int argc, char **argv)
{
    plan_run r = {.work = weft__work_defaults(), .flags = weft__plan_flag_defaults()};
    weft__option table[WEFT_OPTIONS_MAX] = {0}, *row = table;
    row = weft__work_rows(&r.work, row);
    row = weft__plan_rows(&r.flags, row);
    *row++ = (weft__option){"--out", "FILE", "write the image", WEFT_OPT_TEXT, &r.out, 0, 0};
    *row++ = (weft__option){
        "--check", "FILE", "read, validate and print an image instead of making one", WEFT_OPT_TEXT, &r.check, 0, 0};
    *row++ = (weft__option){"--dump",
                            "FILE",
                            "write ops, their costs on each device and their edges (JSON) for a placement",
                            WEFT_OPT_TEXT,
                            &r.flags.dump,
                            0,
                            0};
    *row++ = (weft__option){"--tasks", NULL, "print every op and task too", WEFT_OPT_FLAG, &r.tasks, 0, 0};
    *row++ = (weft__option){"--json", NULL, "one JSON object", WEFT_OPT_FLAG, &r.json, 0, 0};
    int status = weft__options(
        argc, argv, table, "weft plan (--chain W,W,.. | --model DIR | --mlp H,F | --check FILE) [options]",
        "Cuts the work into tasks, places and orders them, proves the result, writes it as an image.\n"
        "Needs no GPU; --devices may also be NxW (N devices of W workers), which opens nothing.\n"
        "example: weft plan --mlp 4096,14336 --layers 32 --devices 2x132 --strategy cta --out plan.weft",
        NULL, NULL);
    if (status == -1) return 0;
    if (!status && r.json && r.tasks) status = weft__fail(WEFT_EUSAGE, "--tasks and --json exclude each other");
    if (!status) status = r.check ? check_image(&r) : make_image(&r);
    return weft__exit("plan", status);
}
