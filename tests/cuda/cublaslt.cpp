/* A stand-in for cuBLASLt: a libcublasLt.so.13 on the simulated driver (driver.cpp). Products are computed in
 * the order of the stream, with sums in float32. Calls that the real one rejects fail, and mistakes that it
 * would not always show end in CUBLAS_STATUS_INVALID_VALUE with a message:
 *
 *   - an algorithm for other layouts, for pointers with more alignment, or for more workspace
 *   - matrices or a workspace outside of a block of device memory
 *   - TF32 for operands that are not float32
 *
 * The workspace is NaN after a product. An algorithm adds the two halves of K at the end, for every second
 * shape. With TF32 operands are rounded to a 10-bit mantissa. Environment: CUDA_SIM_NO_ALGORITHM (1:
 * there is none for any product), CUDA_SIM_EXACT_TF32 (1: TF32 has all bits of float32),
 * CUDA_SIM_ALIGNED_ROWS (1: a product of bfloat16 whose rows are not aligned to 16 bytes fails).
 */
#include "backend/cuda/cublaslt.h"
#include "driver.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define LIBRARY extern "C" __attribute__((visibility("default")))

struct cublasLtContext {
    bool is_open;
};

struct cublasLtMatmulDescOpaque_t {
    int compute;
    int32_t transposed[2]; /* of A and B */
};

/* By columns. */
struct cublasLtMatrixLayoutOpaque_t {
    int type;
    uint64_t rows, columns;
    int64_t ld;
};

struct cublasLtMatmulPreferenceOpaque_t {
    size_t workspace;
    uint32_t schemes, alignment[4];
};

/* What an algorithm was chosen for: the content of a cublasLtMatmulAlgo_t. */
struct algorithm {
    uint64_t workspace, shapes;
    uint32_t alignment[4];
    uint32_t split;
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm is too large");

/* Whether the environment variable is 1. */
static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text == '1';
}

static cublasStatus_t invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));
static cublasStatus_t invalid(const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "simulated CUDA device: cuBLASLt: %s\n", text);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- descriptors ---- */

LIBRARY cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext{ true };
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the requested functionality is not supported";
    default:
        return "an internal operation failed";
    }
}

LIBRARY cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, int compute, int scale)
{
    if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) || scale != CUDA_R_32F)
        return invalid("compute type %d with scale type %d", compute, scale);
    *desc = new cublasLtMatmulDescOpaque_t{ compute, { CUBLAS_OP_N, CUBLAS_OP_N } };
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute,
                                                      const void *value, size_t bytes)
{
    if ((attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB) || bytes != 4)
        return invalid("attribute %d of a product with %zu bytes", attribute, bytes);
    memcpy(&desc->transposed[attribute - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, int type, uint64_t rows,
                                                  uint64_t columns, int64_t ld)
{
    if (type != CUDA_R_32F && type != CUDA_R_16BF)
        return invalid("a matrix of type %d", type);
    *layout = new cublasLtMatrixLayoutOpaque_t{ type, rows, columns, ld };
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cublasLtMatmulPreferenceOpaque_t{ 0, 7, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

LIBRARY cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                            int attribute, const void *value, size_t bytes)
{
    void *to = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
                   ? static_cast<void *>(&preference->workspace)
               : attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &preference->schemes
               : attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
                       attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
                   ? &preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES]
                   : nullptr;
    const size_t expected = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
    if (!to || bytes != expected)
        return invalid("attribute %d of a preference with %zu bytes", attribute, bytes);
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

static size_t number_size(int type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

struct sizes {
    uint64_t m, n, k;
};

/* The sizes of D = op(A) op(B) + C; false if the layouts do not fit. */
static bool fit(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, sizes *s)
{
    const bool ta = desc->transposed[0] == CUBLAS_OP_T, tb = desc->transposed[1] == CUBLAS_OP_T;
    *s = { ta ? a->columns : a->rows, tb ? b->rows : b->columns, ta ? a->rows : a->columns };
    bool all = s->m > 0 && s->n > 0 && s->k > 0 && (tb ? b->columns : b->rows) == s->k;
    for (cublasLtMatrixLayout_t each : { c, d })
        all = all && each->rows == s->m && each->columns == s->n;
    for (cublasLtMatrixLayout_t each : { a, b, c, d })
        all = all && each->ld >= static_cast<int64_t>(each->rows);
    return all && a->type == b->type && c->type == d->type &&
           (a->type == CUDA_R_16BF ? desc->compute == CUBLAS_COMPUTE_32F : c->type == CUDA_R_32F);
}

static uint64_t hash(cublasLtMatmulDesc_t desc, const std::vector<cublasLtMatrixLayout_t> &layouts)
{
    uint64_t h = static_cast<uint64_t>(4 * desc->compute + desc->transposed[0] + 2 * desc->transposed[1]);
    for (cublasLtMatrixLayout_t each : layouts)
        for (uint64_t x : { static_cast<uint64_t>(each->type), each->rows, each->columns,
                            static_cast<uint64_t>(each->ld) })
            h = h * 6364136223846793005u + x + 1;
    return h;
}

LIBRARY cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                      cublasLtMatmulPreference_t preference, int most,
                                                      cublasLtMatmulHeuristicResult_t *results, int *found)
{
    sizes s;
    *found = 0;
    if (!handle->is_open || most < 1 || !fit(desc, a, b, c, d, &s))
        return invalid("the layouts of a product do not fit");
    const bool none = is_set("CUDA_SIM_NO_ALGORITHM");
    for (uint32_t alignment : preference->alignment)
        if (none || alignment < number_size(a->type))
            return CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference->schemes & ~static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        return invalid("partial sums may be rounded to the type of the result");
    algorithm chosen = { 0, hash(desc, { a, b, c, d }), {}, 0 };
    const size_t partial = 2 * s.m * s.n * sizeof(float);
    chosen.split = s.k > 1 && chosen.shapes % 2 && partial <= preference->workspace;
    chosen.workspace = chosen.split ? partial : 0;
    memcpy(chosen.alignment, preference->alignment, sizeof chosen.alignment);
    results[0] = {};
    memcpy(&results[0].algo, &chosen, sizeof chosen);
    results[0].workspaceSize = chosen.workspace;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

struct operand {
    const void *x;
    int type;
    bool transposed, rounded; /* rounded: to TF32 */
    size_t ld;
};

struct command {
    sizes s;
    float alpha, beta;
    operand a, b;
    void *d;
    int d_type;
    size_t ldd;
    void *workspace;
    size_t workspace_bytes;
    bool split;
};

/* To the nearest, ties to even. */
static float rounded_to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (std::isfinite(x))
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float number(const operand &o, size_t row, size_t column)
{
    const size_t i = o.transposed ? row * o.ld + column : column * o.ld + row;
    if (o.type == CUDA_R_32F) {
        const float x = static_cast<const float *>(o.x)[i];
        return o.rounded ? rounded_to_tf32(x) : x;
    }
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t *>(o.x)[i]) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fff : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* sum += op(A) x over k in [begin, end), x column j of op(B) */
static void add_column(const command &c, const std::vector<float> &a, size_t j, size_t begin, size_t end,
                       float *sum)
{
    for (size_t k = begin; k < end; k++) {
        const float x = number(c.b, k, j);
        for (size_t i = 0; i < c.s.m; i++)
            sum[i] += a[k * c.s.m + i] * x;
    }
}

static void execute(const void *arguments)
{
    command c;
    memcpy(&c, arguments, sizeof c);
    std::vector<float> a(c.s.m * c.s.k), sum(c.s.m), later(c.s.m);
    for (size_t k = 0; k < c.s.k; k++)
        for (size_t i = 0; i < c.s.m; i++)
            a[k * c.s.m + i] = number(c.a, i, k);
    for (size_t j = 0; j < c.s.n; j++) {
        const size_t half = c.split ? c.s.k / 2 : c.s.k;
        std::fill(sum.begin(), sum.end(), 0.0f);
        std::fill(later.begin(), later.end(), 0.0f);
        add_column(c, a, j, 0, half, sum.data());
        add_column(c, a, j, half, c.s.k, later.data());
        for (size_t i = 0; i < c.s.m; i++) {
            const float y = c.alpha * (sum[i] + later[i]);
            if (c.d_type == CUDA_R_16BF) {
                static_cast<uint16_t *>(c.d)[j * c.ldd + i] = rounded(y);
            } else {
                float *to = static_cast<float *>(c.d) + j * c.ldd + i;
                *to = c.beta == 0 ? y : y + c.beta * *to;
            }
        }
    }
    if (c.workspace_bytes)
        memset(c.workspace, 0xff, c.workspace_bytes);
}

/* Matrix units load rows of bfloat16 by 16 bytes. */
static bool has_aligned_rows(const void *x, cublasLtMatrixLayout_t layout)
{
    return layout->type != CUDA_R_16BF || (reinterpret_cast<uintptr_t>(x) % 16 == 0 && layout->ld % 8 == 0);
}

/* Whether the matrix is in device memory, as aligned as the algorithm expects. */
static bool is_usable(const void *x, cublasLtMatrixLayout_t layout, uint32_t alignment)
{
    const size_t numbers = (layout->columns - 1) * static_cast<size_t>(layout->ld) + layout->rows;
    return reinterpret_cast<uintptr_t>(x) % alignment == 0 &&
           cuda_sim_in_block(x, numbers * number_size(layout->type));
}

LIBRARY cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                                      const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                      cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                      cublasLtMatrixLayout_t c_layout, void *d,
                                      cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                                      void *workspace, size_t workspace_bytes, CUstream stream)
{
    algorithm chosen;
    command by = {};
    memcpy(&chosen, algo, sizeof chosen);
    memcpy(&by.alpha, alpha, sizeof by.alpha);
    memcpy(&by.beta, beta, sizeof by.beta);
    if (!handle->is_open || !fit(desc, a_layout, b_layout, c_layout, d_layout, &by.s))
        return invalid("the layouts of a product do not fit");
    if (chosen.shapes != hash(desc, { a_layout, b_layout, c_layout, d_layout }))
        return invalid("the algorithm is for another product");
    if (c != d || (c_layout->type == CUDA_R_16BF && by.beta != 0))
        return invalid("this stand-in computes in place, and does not add to bfloat16");
    if (!is_usable(a, a_layout, chosen.alignment[0]) || !is_usable(b, b_layout, chosen.alignment[1]) ||
        !is_usable(c, c_layout, chosen.alignment[2]) || !is_usable(d, d_layout, chosen.alignment[3]))
        return invalid("a matrix is not in device memory, or not as aligned as the algorithm expects");
    if (chosen.workspace &&
        (workspace_bytes < chosen.workspace || reinterpret_cast<uintptr_t>(workspace) % 256 != 0 ||
         !cuda_sim_in_block(workspace, workspace_bytes)))
        return invalid("the workspace is too small, not in device memory or not aligned to 256 bytes");
    if (is_set("CUDA_SIM_ALIGNED_ROWS") &&
        !(has_aligned_rows(a, a_layout) && has_aligned_rows(b, b_layout) && has_aligned_rows(d, d_layout)))
        return invalid("rows of a bfloat16 matrix are not aligned to 16 bytes");
    const bool rounds = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !is_set("CUDA_SIM_EXACT_TF32");
    by.a = { a, a_layout->type, desc->transposed[0] == CUBLAS_OP_T, rounds,
             static_cast<size_t>(a_layout->ld) };
    by.b = { b, b_layout->type, desc->transposed[1] == CUBLAS_OP_T, rounds,
             static_cast<size_t>(b_layout->ld) };
    by.d = d;
    by.d_type = d_layout->type;
    by.ldd = static_cast<size_t>(d_layout->ld);
    by.workspace = workspace;
    by.workspace_bytes = chosen.workspace;
    by.split = chosen.split != 0;
    return cuda_sim_submit(stream, "cublasLtMatmul", execute, &by, sizeof by) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                              : CUBLAS_STATUS_SUCCESS;
}
