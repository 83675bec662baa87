/* cuBLASLt, as far as the backend uses it: types, and a table of the entry points of libcublasLt.so.13, which
 * is loaded when a device is opened. No header of the toolkit is needed. Names and numbers are those of
 * CUDA's cublasLt.h. */
#ifndef DDL_CUDA_CUBLASLT_H
#define DDL_CUDA_CUBLASLT_H

#include "backend/cuda/driver.h"

typedef int cublasStatus_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;

enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
};

enum { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 }; /* without and with TF32 */
enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum { CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4 };
enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

/* Member, exported name, type of the result, parameters. */
/* clang-format off */
#define CUDA_CUBLASLT(FN) \
    FN(create,             "cublasLtCreate",              cublasStatus_t, (cublasLtHandle_t *handle)) \
    FN(destroy,            "cublasLtDestroy",             cublasStatus_t, (cublasLtHandle_t handle)) \
    FN(status_text,        "cublasLtGetStatusString",     const char *,   (cublasStatus_t status)) \
    FN(desc_create,        "cublasLtMatmulDescCreate",    cublasStatus_t, (cublasLtMatmulDesc_t *desc, int compute, int scale)) \
    FN(desc_destroy,       "cublasLtMatmulDescDestroy",   cublasStatus_t, (cublasLtMatmulDesc_t desc)) \
    FN(desc_set,           "cublasLtMatmulDescSetAttribute", cublasStatus_t, (cublasLtMatmulDesc_t desc, int attribute, \
                                                                           const void *value, size_t bytes)) \
    FN(layout_create,      "cublasLtMatrixLayoutCreate",  cublasStatus_t, (cublasLtMatrixLayout_t *layout, int type, uint64_t rows, \
                                                                           uint64_t columns, int64_t ld)) \
    FN(layout_destroy,     "cublasLtMatrixLayoutDestroy", cublasStatus_t, (cublasLtMatrixLayout_t layout)) \
    FN(preference_create,  "cublasLtMatmulPreferenceCreate", cublasStatus_t, (cublasLtMatmulPreference_t *preference)) \
    FN(preference_destroy, "cublasLtMatmulPreferenceDestroy", cublasStatus_t, (cublasLtMatmulPreference_t preference)) \
    FN(preference_set,     "cublasLtMatmulPreferenceSetAttribute", cublasStatus_t, (cublasLtMatmulPreference_t preference, \
                                                                           int attribute, const void *value, size_t bytes)) \
    FN(heuristic,          "cublasLtMatmulAlgoGetHeuristic", cublasStatus_t, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, \
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, \
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, \
                                                           cublasLtMatmulPreference_t preference, int most, \
                                                           cublasLtMatmulHeuristicResult_t *results, int *found)) \
    FN(matmul,             "cublasLtMatmul",              cublasStatus_t, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, \
                                                           const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout, \
                                                           const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, \
                                                           const void *c, cublasLtMatrixLayout_t c_layout, void *d, \
                                                           cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, \
                                                           void *workspace, size_t workspace_bytes, CUstream stream))
/* clang-format on */

struct cuda_cublaslt {
/* Names, types and parameters take no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define CUDA_CUBLASLT_MEMBER(name, symbol, type, parameters) type(*name) parameters;
    CUDA_CUBLASLT(CUDA_CUBLASLT_MEMBER)
#undef CUDA_CUBLASLT_MEMBER
};

/* Loads the library at the first call: from the dynamic linker's folders, from the nvidia packages of the
 * Python installation that the plugin is in or that VIRTUAL_ENV names, or from /usr/local/cuda.
 * DDL_E_UNSUPPORTED, with the reason, if there is none. */
ddl_status cuda_cublaslt_load(const struct cuda_cublaslt **out, struct ddl_error *err);

#endif
