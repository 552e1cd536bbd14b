/* baseline.cu: cuBLASLt at its best on what weft does: chains of GEMMs, one after another, in one CUDA graph.
 *
 * For every GEMM shape the 16 heuristics are timed (in a graph, weights rotating so that none sits in L2) and the
 * fastest is taken. Then all layers h -> f -> h, each with weights of its own, are captured in one graph and its
 * replays timed. bf16 in and out, fp32 accumulation, weights as [out][in] rows, activations as [M][K] rows.
 *
 * Enters: --m 1,8,32,.. --shapes 2048/8192,.. (or none) --layers 0 (0: >= 2 GB of weights) --square 4096 (0: none)
 *         --reps 15 --workspace 128 (MiB)
 * Leaves: one JSON line a result; rel_error is that of the first layer's two GEMMs against float64 (first 16 rows).
 * Build: nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a baseline.cu -o baseline -lcublasLt */
#include "measure.cuh"

#include <cublasLt.h>

#define CHECK_LT(call)                                                                                                 \
    do {                                                                                                               \
        cublasStatus_t check_status = (call);                                                                          \
        if (check_status != CUBLAS_STATUS_SUCCESS) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cublasLtGetStatusString(check_status));      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

constexpr int kHeuristics = 16;
constexpr size_t kBeyondCache = 256u << 20; /* rotate at least this much: several times the L2 */

struct Context {
    cublasLtHandle_t lt;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    int reps;
};

/* out [m][n] = x [m][k] * w [n][k]^T, all rows contiguous. In cuBLAS's columns: D (n x m) = W^T X. */
struct Gemm {
    int m, n, k;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w, x, out;
    std::vector<cublasLtMatmulHeuristicResult_t> algos;
    int best;
};

/* What one call of a rotation reads and writes. */
struct Operands {
    const bf16 *w, *x;
    bf16 *out;
};

static Gemm make_gemm(const Context &c, int m, int n, int k)
{
    Gemm g = {m, n, k, nullptr, nullptr, nullptr, nullptr, {}, 0};
    cublasOperation_t transpose = CUBLAS_OP_T;
    cublasLtMatmulPreference_t pref;
    int found = 0;
    CHECK_LT(cublasLtMatmulDescCreate(&g.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK_LT(cublasLtMatmulDescSetAttribute(g.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)));
    CHECK_LT(cublasLtMatrixLayoutCreate(&g.w, CUDA_R_16BF, k, n, k));
    CHECK_LT(cublasLtMatrixLayoutCreate(&g.x, CUDA_R_16BF, k, m, k));
    CHECK_LT(cublasLtMatrixLayoutCreate(&g.out, CUDA_R_16BF, n, m, n));
    CHECK_LT(cublasLtMatmulPreferenceCreate(&pref));
    CHECK_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &c.workspace_bytes,
                                                  sizeof(c.workspace_bytes)));
    g.algos.resize(kHeuristics);
    CHECK_LT(cublasLtMatmulAlgoGetHeuristic(c.lt, g.desc, g.w, g.x, g.out, g.out, pref, kHeuristics, g.algos.data(),
                                            &found));
    CHECK_LT(cublasLtMatmulPreferenceDestroy(pref));
    g.algos.resize(found);
    if (found == 0) {
        fprintf(stderr, "cuBLASLt knows no algorithm for %d x %d x %d\n", m, n, k);
        exit(1);
    }
    return g;
}

static void destroy_gemm(Gemm &g)
{
    CHECK_LT(cublasLtMatmulDescDestroy(g.desc));
    CHECK_LT(cublasLtMatrixLayoutDestroy(g.w));
    CHECK_LT(cublasLtMatrixLayoutDestroy(g.x));
    CHECK_LT(cublasLtMatrixLayoutDestroy(g.out));
}

static cublasStatus_t enqueue(const Context &c, const Gemm &g, int algo, const Operands &o)
{
    float one = 1, zero = 0;
    return cublasLtMatmul(c.lt, g.desc, &one, o.w, g.w, o.x, g.x, &zero, o.out, g.out, o.out, g.out,
                          &g.algos[algo].algo, c.workspace, c.workspace_bytes, c.stream);
}

/* Median us of one replay of a graph of what `work` enqueues. */
template <class Work> static double time_graph(const Context &c, int warm, int reps, Work work)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal));
    work();
    CHECK_CUDA(cudaStreamEndCapture(c.stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphUpload(exec, c.stream));
    CHECK_CUDA(cudaStreamSynchronize(c.stream));
    double us = time_us(
        c.stream, warm, reps, [] {}, [&] { CHECK_CUDA(cudaGraphLaunch(exec, c.stream)); });
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return us;
}

/* Fastest heuristic over the rotation; one that refuses to run is passed over. Returns us a GEMM. */
static double choose(const Context &c, Gemm &g, const std::vector<Operands> &rotation)
{
    double best_us = 0;
    g.best = -1;
    for (int i = 0; i < (int)g.algos.size(); i++) {
        if (g.algos[i].state != CUBLAS_STATUS_SUCCESS || enqueue(c, g, i, rotation[0]) != CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        CHECK_CUDA(cudaStreamSynchronize(c.stream));
        double us = time_graph(c, 1, 5, [&] {
            for (const Operands &o : rotation) {
                CHECK_LT(enqueue(c, g, i, o));
            }
        });
        if (g.best < 0 || us < best_us) {
            best_us = us, g.best = i;
        }
    }
    if (g.best < 0) {
        fprintf(stderr, "no algorithm runs for %d x %d x %d\n", g.m, g.n, g.k);
        exit(1);
    }
    return best_us / rotation.size();
}

/* ---- checks --------------------------------------------------------------------------------------------------- */

struct RowWeights {
    const bf16 *w; /* [n][k] */
    int k;
    __device__ float operator()(int n, int col) const { return __bfloat162float(w[(size_t)n * k + col]); }
};

static std::vector<float> to_floats(const bf16 *x, size_t n)
{
    std::vector<uint16_t> raw(n);
    std::vector<float> out(n);
    CHECK_CUDA(cudaMemcpy(raw.data(), x, n * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)raw[i] << 16;
        memcpy(&out[i], &bits, 4);
    }
    return out;
}

/* Relative error of the chain `gemms` (each feeding the next) for its first rows; outputs poisoned first. */
static double check_chain(const Context &c, const std::vector<const Gemm *> &gemms, const std::vector<Operands> &ops)
{
    int rows = std::min(gemms[0]->m, 16), widest = 0;
    float *x, *y;
    for (const Gemm *g : gemms) {
        widest = std::max(widest, std::max(g->n, g->k));
    }
    CHECK_CUDA(cudaMalloc(&x, (size_t)rows * widest * 4));
    CHECK_CUDA(cudaMalloc(&y, (size_t)rows * widest * 4));
    std::vector<float> input = to_floats(ops[0].x, (size_t)rows * gemms[0]->k);
    CHECK_CUDA(cudaMemcpy(x, input.data(), input.size() * 4, cudaMemcpyHostToDevice));
    for (size_t i = 0; i < gemms.size(); i++) {
        const Gemm &g = *gemms[i];
        CHECK_CUDA(cudaMemsetAsync(ops[i].out, 0xff, (size_t)g.m * g.n * 2, c.stream));
        CHECK_LT(enqueue(c, g, g.best, ops[i]));
        reference(x, RowWeights{ops[i].w, g.k}, y, rows, g.n, g.k);
        std::swap(x, y);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    size_t n = (size_t)rows * gemms.back()->n;
    std::vector<float> ref(n);
    CHECK_CUDA(cudaMemcpy(ref.data(), x, n * 4, cudaMemcpyDeviceToHost));
    double error = relative_error(to_floats(ops.back().out, n), ref);
    CHECK_CUDA(cudaFree(x));
    CHECK_CUDA(cudaFree(y));
    return error;
}

/* ---- a chain of layers ---------------------------------------------------------------------------------------- */

struct Chain {
    int h, f, layers;
    bf16 *weights;           /* [layer][2][h * f] */
    bf16 *input, *mid, *out; /* [max m][h], [max m][f], [max m][h] */
    const bf16 *matrix(int layer, int which) const { return weights + ((size_t)layer * 2 + which) * h * f; }
};

static Chain make_chain(int h, int f, int layers, int max_m)
{
    Chain ch = {h, f, layers, nullptr, nullptr, nullptr, nullptr};
    size_t matrix = (size_t)h * f;
    CHECK_CUDA(cudaMalloc(&ch.weights, matrix * 4 * layers));
    CHECK_CUDA(cudaMalloc(&ch.input, (size_t)max_m * h * 2));
    CHECK_CUDA(cudaMalloc(&ch.mid, (size_t)max_m * f * 2));
    CHECK_CUDA(cudaMalloc(&ch.out, (size_t)max_m * h * 2));
    for (int i = 0; i < 2 * layers; i++) {
        fill(ch.weights + i * matrix, matrix, sqrtf(3.0f / (i & 1 ? f : h)), 1000 + i);
    }
    fill(ch.input, (size_t)max_m * h, 1.7f, 5);
    CHECK_CUDA(cudaMemset(ch.mid, 0xff, (size_t)max_m * f * 2));
    fill(ch.out, (size_t)max_m * h, 1.7f, 6);
    CHECK_CUDA(cudaDeviceSynchronize());
    return ch;
}

static void free_chain(Chain &ch)
{
    for (bf16 *p : {ch.weights, ch.input, ch.mid, ch.out}) {
        CHECK_CUDA(cudaFree(p));
    }
}

/* The calls of all layers in order; `input` is read by the first only, so replays give the same. */
static std::vector<Operands> chain_calls(const Chain &ch)
{
    std::vector<Operands> calls;
    for (int i = 0; i < ch.layers; i++) {
        calls.push_back({ch.matrix(i, 0), i ? ch.out : ch.input, ch.mid});
        calls.push_back({ch.matrix(i, 1), ch.mid, ch.out});
    }
    return calls;
}

static bool measure_chain(const Context &c, const Chain &ch, int m)
{
    Gemm up = make_gemm(c, m, ch.f, ch.h), down = make_gemm(c, m, ch.h, ch.f);
    std::vector<Operands> calls = chain_calls(ch), ups, downs;
    size_t matrix_bytes = (size_t)ch.h * ch.f * 2;
    for (int i = 0; i < ch.layers && (size_t)i * matrix_bytes < kBeyondCache; i++) {
        ups.push_back({ch.matrix(i, 0), ch.input, ch.mid});
        downs.push_back({ch.matrix(i, 1), ch.mid, ch.out});
    }
    double up_us = choose(c, up, ups), down_us = choose(c, down, downs);
    double error = check_chain(c, {&up, &down}, {calls[0], calls[1]});
    double us = time_graph(c, 3, c.reps, [&] {
        for (size_t i = 0; i < calls.size(); i++) {
            const Gemm &g = i % 2 ? down : up;
            CHECK_LT(enqueue(c, g, g.best, calls[i]));
        }
    });
    double layer = us / ch.layers;
    bool ok = error < 1e-2;
    printf("{\"bench\":\"cublaslt_chain\",\"h\":%d,\"f\":%d,\"m\":%d,\"layers\":%d,\"us_layer\":%.2f,\"gb_s\":%.0f,"
           "\"tflop_s\":%.1f,\"tuned_up_us\":%.2f,\"tuned_down_us\":%.2f,\"algo_up\":%d,\"algo_down\":%d,\"algos\":%d,"
           "\"rel_error\":%.2e,\"ok\":%s}\n",
           ch.h, ch.f, m, ch.layers, layer, 2.0 * matrix_bytes / layer / 1e3, 4.0 * m * ch.h * ch.f / layer / 1e6,
           up_us, down_us, up.best, down.best, (int)up.algos.size(), error, ok ? "true" : "false");
    fflush(stdout);
    destroy_gemm(up);
    destroy_gemm(down);
    return ok;
}

/* ---- one square GEMM ------------------------------------------------------------------------------------------ */

static bool measure_square(const Context &c, int n)
{
    size_t matrix = (size_t)n * n;
    int sets = std::max(4, (int)(2 * kBeyondCache / (matrix * 4)));
    bf16 *data; /* [set][weights, input, output] */
    std::vector<Operands> rotation;
    CHECK_CUDA(cudaMalloc(&data, matrix * 2 * 3 * sets));
    for (int i = 0; i < sets; i++) {
        bf16 *w = data + matrix * 3 * i;
        fill(w, matrix, sqrtf(3.0f / n), 2000 + i);
        fill(w + matrix, matrix, 1.7f, 3000 + i);
        rotation.push_back({w, w + matrix, w + 2 * matrix});
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    Gemm g = make_gemm(c, n, n, n);
    choose(c, g, rotation);
    double error = check_chain(c, {&g}, {rotation[0]});
    double us = time_graph(c, 3, c.reps, [&] {
        for (const Operands &o : rotation) {
            CHECK_LT(enqueue(c, g, g.best, o));
        }
    });
    us /= sets;
    bool ok = error < 1e-2;
    printf("{\"bench\":\"cublaslt_square\",\"m\":%d,\"n\":%d,\"k\":%d,\"sets\":%d,\"us\":%.2f,\"tflop_s\":%.1f,"
           "\"algo\":%d,"
           "\"rel_error\":%.2e,\"ok\":%s}\n",
           n, n, n, sets, us, 2.0 * n * n * n / us / 1e6, g.best, error, ok ? "true" : "false");
    fflush(stdout);
    destroy_gemm(g);
    CHECK_CUDA(cudaFree(data));
    return ok;
}

int main(int argc, char **argv)
{
    Context c = {};
    bool ok = true;
    const char *shapes = flag(argc, argv, "--shapes", "2048/8192,4096/14336");
    std::vector<int> ms = int_list(flag(argc, argv, "--m", "1,8,32"));
    int square = atoi(flag(argc, argv, "--square", "4096"));
    c.reps = std::max(15, atoi(flag(argc, argv, "--reps", "15")));
    c.workspace_bytes = (size_t)std::max(64, atoi(flag(argc, argv, "--workspace", "128"))) << 20;
    CHECK_LT(cublasLtCreate(&c.lt));
    CHECK_CUDA(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc(&c.workspace, c.workspace_bytes));
    for (auto shape : strcmp(shapes, "none") ? shape_list(shapes) : shape_list("")) {
        int h = shape.first, f = shape.second, layers = atoi(flag(argc, argv, "--layers", "0"));
        layers = layers > 0 ? layers : std::max(4, (int)(2e9 / (4.0 * h * f)) + 1);
        Chain ch = make_chain(h, f, layers, *std::max_element(ms.begin(), ms.end()));
        for (int m : ms) {
            ok = measure_chain(c, ch, m) && ok;
        }
        free_chain(ch);
    }
    if (square > 0) {
        ok = measure_square(c, square) && ok;
    }
    CHECK_CUDA(cudaFree(c.workspace));
    CHECK_CUDA(cudaStreamDestroy(c.stream));
    CHECK_LT(cublasLtDestroy(c.lt));
    return ok ? 0 : 1;
}
