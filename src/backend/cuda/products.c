/* Matrix products: by cuBLASLt, by the kernels for few rows, or by the plain kernel where cuBLASLt has no
 * algorithm. */
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cuda.h"
#include "backend/q8.h"

#include <stdlib.h>
#include <string.h>

enum { PRODUCTS = 512, MOST_PRODUCTS = PRODUCTS / 4 * 3, MOST_ALIGNMENT = 256 };

/* What cuBLASLt's choice depends on. Compared as bytes. */
struct shape {
    size_t M, N, K, lda, ldb, ldc;
    uint32_t trans_a, trans_b;
    uint32_t operands, result;                      /* cudaDataType */
    uint32_t compute;                               /* cublasComputeType_t */
    uint32_t a_alignment, b_alignment, c_alignment; /* bytes; at most MOST_ALIGNMENT */
    uint64_t is_used;                               /* of this size, there is no padding */
};

/* Matrices are stored by columns for cuBLASLt: it computes C^T = op(B)^T op(A)^T, so that its first operand
 * is our B. */
struct planned {
    struct shape shape;
    bool has_algorithm;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

/* A hash table with linear probing. */
struct cuda_products {
    const struct cuda_cublaslt *library;
    cublasLtHandle_t handle;
    size_t n;
    struct planned planned[PRODUCTS];
};

/* ---- cuBLASLt ---- */

static bool note(struct cuda_device *d, cublasStatus_t status, const char *at)
{
    if (status && !d->error) {
        d->error = CUDA_ERROR_UNKNOWN;
        d->error_at = at;
        d->error_text = d->products->library->status_text(status);
    }
    return status == CUBLAS_STATUS_SUCCESS;
}

static void forget(struct cuda_products *p)
{
    for (size_t i = 0; i < PRODUCTS; i++) {
        struct planned *each = &p->planned[i];
        if (each->desc)
            p->library->desc_destroy(each->desc);
        if (each->a)
            p->library->layout_destroy(each->a);
        if (each->b)
            p->library->layout_destroy(each->b);
        if (each->c)
            p->library->layout_destroy(each->c);
    }
    memset(p->planned, 0, sizeof p->planned);
    p->n = 0;
}

ddl_status cuda_products_open(struct cuda_device *d, struct ddl_error *err)
{
    struct cuda_products *p = calloc(1, sizeof *p);
    if (!p)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of memory");
    d->products = p;
    ddl_status status = cuda_cublaslt_load(&p->library, err);
    if (status)
        return status;
    cublasStatus_t created = p->library->create(&p->handle);
    if (created) {
        p->handle = NULL;
        return ddl_error_set(err, DDL_E_DEVICE, "backend cuda: cublasLtCreate: %s",
                             p->library->status_text(created));
    }
    return DDL_OK;
}

void cuda_products_close(struct cuda_device *d)
{
    struct cuda_products *p = d->products;
    if (p && p->handle) {
        forget(p);
        p->library->destroy(p->handle);
    }
    free(p);
}

static bool describe(struct cuda_device *d, struct planned *p)
{
    const struct cuda_cublaslt *library = d->products->library;
    const struct shape *s = &p->shape;
    const int32_t a = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    size_t a_rows = s->trans_a ? s->M : s->K, b_rows = s->trans_b ? s->K : s->N;
    return note(d, library->desc_create(&p->desc, (int)s->compute, CUDA_R_32F), "cublasLtMatmulDescCreate") &&
           note(d, library->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b),
                "cublasLtMatmulDescSetAttribute") &&
           note(d, library->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a),
                "cublasLtMatmulDescSetAttribute") &&
           note(d,
                library->layout_create(&p->a, (int)s->operands, a_rows, s->trans_a ? s->K : s->M,
                                       (int64_t)s->lda),
                "cublasLtMatrixLayoutCreate") &&
           note(d,
                library->layout_create(&p->b, (int)s->operands, b_rows, s->trans_b ? s->N : s->K,
                                       (int64_t)s->ldb),
                "cublasLtMatrixLayoutCreate") &&
           note(d, library->layout_create(&p->c, (int)s->result, s->N, s->M, (int64_t)s->ldc),
                "cublasLtMatrixLayoutCreate");
}

/* Partial sums of an algorithm that splits K are added in float32, so that a result is rounded once. */
static void choose(struct cuda_device *d, struct planned *p)
{
    const struct cuda_cublaslt *library = d->products->library;
    const struct shape *s = &p->shape;
    const size_t workspace = CUDA_WORKSPACE;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } settings[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &s->b_alignment, sizeof s->b_alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &s->a_alignment, sizeof s->a_alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s->c_alignment, sizeof s->c_alignment },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s->c_alignment, sizeof s->c_alignment },
    };
    cublasLtMatmulPreference_t preference;
    if (!note(d, library->preference_create(&preference), "cublasLtMatmulPreferenceCreate"))
        return;
    bool done = true;
    for (size_t i = 0; done && i < sizeof settings / sizeof *settings; i++)
        done = note(
            d,
            library->preference_set(preference, settings[i].attribute, settings[i].value, settings[i].bytes),
            "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    if (done) {
        cublasStatus_t status = library->heuristic(d->products->handle, p->desc, p->b, p->a, p->c, p->c,
                                                   preference, 1, &result, &found);
        if (status != CUBLAS_STATUS_NOT_SUPPORTED)
            (void)note(d, status, "cublasLtMatmulAlgoGetHeuristic");
        p->has_algorithm = !status && found == 1 && !result.state && result.workspaceSize <= CUDA_WORKSPACE;
    }
    if (p->has_algorithm)
        p->algorithm = result.algo;
    library->preference_destroy(preference);
}

static uint32_t alignment_of(const void *block)
{
    uintptr_t address = (uintptr_t)block, lowest = address & (~address + 1);
    return lowest > MOST_ALIGNMENT ? MOST_ALIGNMENT : (uint32_t)lowest;
}

static size_t hash(const struct shape *s)
{
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static const struct planned *plan(struct cuda_device *d, const struct shape *shape)
{
    struct cuda_products *p = d->products;
    size_t i = hash(shape) % PRODUCTS;
    for (; p->planned[i].shape.is_used; i = (i + 1) % PRODUCTS) {
        if (memcmp(&p->planned[i].shape, shape, sizeof *shape) == 0)
            return &p->planned[i];
    }
    if (p->n == MOST_PRODUCTS) {
        forget(p);
        i = hash(shape) % PRODUCTS;
    }
    p->n++;
    p->planned[i].shape = *shape;
    cuda_enter(d);
    if (describe(d, &p->planned[i]))
        choose(d, &p->planned[i]);
    return &p->planned[i];
}

/* ---- ops ---- */

static void by_plain_kernel(struct cuda_device *d, const struct cuda_product *p)
{
    cuda_launch(d, CUDA_product, cuda_parts(p->M, CUDA_TILE) * cuda_parts(p->N, CUDA_TILE), 0, p);
}

/* A product that has an algorithm. */
struct call {
    struct shape shape;
    float alpha, beta;
    const void *A, *B;
    void *C;
};

static void call_library(struct cuda_device *d, const void *command)
{
    const struct call *c = command;
    const struct planned *planned = plan(d, &c->shape);
    cuda_enter(d);
    note(d,
         d->products->library->matmul(d->products->handle, planned->desc, &c->alpha, c->B, planned->b, c->A,
                                      planned->a, &c->beta, c->C, planned->c, c->C, planned->c,
                                      &planned->algorithm, d->workspace, CUDA_WORKSPACE, d->stream),
         "cublasLtMatmul");
}

/* Copies a bfloat16 operand of `rows` rows, `*stride` apart, whose rows are not aligned to 16 bytes, so that
 * they are: matrix units load aligned rows only, and the library is much slower without them. An operand that
 * is used for fewer than 512 rows or columns of the result, or a large one, is not copied. */
static const uint16_t *align_rows(struct cuda_device *d, const uint16_t *x, size_t rows, size_t width,
                                  size_t *stride, size_t reuse, size_t *used)
{
    enum { ALIGNED = 8, LEAST_REUSE = 512 };
    const size_t aligned = cuda_parts(width, ALIGNED) * ALIGNED,
                 bytes = cuda_parts(rows * aligned * sizeof *x, MOST_ALIGNMENT) * MOST_ALIGNMENT;
    if (!x || *stride % ALIGNED == 0 || reuse < LEAST_REUSE || rows > CUDA_REPACKED / 2 / aligned ||
        bytes > CUDA_REPACKED - *used)
        return x;
    uint16_t *copy = (uint16_t *)((char *)d->workspace + CUDA_WORKSPACE + *used);
    cuda_copy(d, &(struct copy_args){ .rows = rows,
                                      .width = width,
                                      .src16 = x,
                                      .src_stride = *stride,
                                      .dst16 = copy,
                                      .dst_stride = aligned });
    *stride = aligned;
    *used += bytes;
    return copy;
}

/* The product with aligned operands. */
static struct cuda_product align(struct cuda_device *d, const struct cuda_product *p, bool trans_a,
                                 bool trans_b)
{
    struct cuda_product q = *p;
    size_t used = 0;
    q.A16 = align_rows(d, p->A16, trans_a ? p->K : p->M, trans_a ? p->M : p->K, trans_a ? &q.ak : &q.am, p->N,
                       &used);
    q.B16 = align_rows(d, p->B16, trans_b ? p->N : p->K, trans_b ? p->K : p->N, trans_b ? &q.bn : &q.bk, p->M,
                       &used);
    return q;
}

static void by_library(struct cuda_device *d, const struct cuda_product *product, bool trans_a, bool trans_b,
                       uint32_t compute)
{
    const struct cuda_product aligned = align(d, product, trans_a, trans_b), *p = &aligned;
    const void *A = p->A16 ? (const void *)p->A16 : p->A, *B = p->B16 ? (const void *)p->B16 : p->B;
    void *C = p->C16 ? (void *)p->C16 : p->C;
    struct shape shape = { 0 };
    shape.M = p->M, shape.N = p->N, shape.K = p->K;
    shape.lda = trans_a ? p->ak : p->am, shape.ldb = trans_b ? p->bn : p->bk, shape.ldc = p->ldc;
    shape.trans_a = trans_a, shape.trans_b = trans_b;
    shape.operands = p->A16 ? CUDA_R_16BF : CUDA_R_32F;
    shape.result = p->C16 ? CUDA_R_16BF : CUDA_R_32F;
    shape.compute = compute;
    shape.a_alignment = alignment_of(A), shape.b_alignment = alignment_of(B);
    shape.c_alignment = alignment_of(C);
    shape.is_used = 1;
    if (!plan(d, &shape)->has_algorithm) {
        by_plain_kernel(d, p);
        return;
    }
    const struct call now = { shape, p->alpha, p->beta, A, B, C };
    struct call *later = cuda_record_command(d, call_library, sizeof now);
    if (later)
        *later = now;
    else
        call_library(d, &now);
}

static size_t blocks_of_few(size_t rows, size_t columns)
{
    return cuda_parts(rows, CUDA_FEW_ROWS) * cuda_parts(columns, CUDA_FEW_COLUMNS);
}

static void multiply(struct cuda_device *d, const struct cuda_product *p, bool trans_a, bool trans_b,
                     uint32_t compute)
{
    if (p->M == 0 || p->N == 0)
        return;
    if (!trans_a && trans_b && p->M <= CUDA_STEP_ROWS)
        cuda_launch(d, p->A16 ? CUDA_few_rows_bf16 : CUDA_few_rows_f32, blocks_of_few(p->M, p->N), 0, p);
    else if (p->K == 0)
        by_plain_kernel(d, p);
    else
        by_library(d, p, trans_a, trans_b, compute);
}

/* What both products of the op table have. */
#define PRODUCT_OF(a)                                                                                        \
    .M = (a)->M, .N = (a)->N, .K = (a)->K, .alpha = (a)->alpha, .am = (a)->trans_a ? 1 : (a)->lda,           \
    .ak = (a)->trans_a ? (a)->lda : 1, .bk = (a)->trans_b ? 1 : (a)->ldb, .bn = (a)->trans_b ? (a)->ldb : 1, \
    .ldc = (a)->ldc, .C = (a)->C

void cuda_matmul(void *ctx, const struct matmul_args *a)
{
    multiply(ctx, &(struct cuda_product){ PRODUCT_OF(a), .beta = a->beta, .A = a->A, .B = a->B }, a->trans_a,
             a->trans_b, a->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
}

void cuda_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    multiply(ctx,
             &(struct cuda_product){ PRODUCT_OF(a), .beta = a->C16 ? 0 : a->beta, .A16 = a->A, .B16 = a->B,
                                     .C16 = a->C16 },
             a->trans_a, a->trans_b, CUBLAS_COMPUTE_32F);
}

void cuda_matmul_q8(void *ctx, const struct matmul_q8_args *a)
{
    if (a->M && a->N)
        cuda_launch(ctx, CUDA_matmul_q8, blocks_of_few(a->M, a->first % CUDA_FEW_COLUMNS + a->N), 0, a);
}

/* ---- 8-bit matrices ---- */

enum { THREADS = 256 };

void cuda_quantize_q8(void *ctx, const struct quantize_q8_args *a)
{
    struct cuda_device *d = ctx;
    size_t groups = ddl_q8_groups(a->width);
    if (a->rows && groups)
        cuda_launch(d, CUDA_quantize_q8, cuda_blocks(d, a->rows * groups, THREADS / 8), 0, a);
}

void cuda_dequantize_q8(void *ctx, const struct dequantize_q8_args *a)
{
    struct cuda_device *d = ctx;
    if (a->rows && a->width)
        cuda_launch(d, CUDA_dequantize_q8, cuda_blocks(d, a->rows * a->width, 4 * THREADS), 0, a);
}

void cuda_gather_q8(void *ctx, const struct gather_q8_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N && a->width)
        cuda_launch(d, CUDA_gather_q8, cuda_blocks(d, a->N * a->width, 4 * THREADS), 0, a);
}
