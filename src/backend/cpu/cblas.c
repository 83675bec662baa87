/* Products by a BLAS with C bindings, for systems without oneDNN. */
#include "backend/cpu/library.h"

#include <cblas.h>
#include <stdio.h>

ddl_status library_open(struct library **out, struct ddl_error *err)
{
    (void)err;
    *out = NULL; /* a BLAS prepares nothing */
    return DDL_OK;
}

void library_close(struct library *library)
{
    (void)library;
}

void library_describe(char *text, size_t size)
{
    snprintf(text, size, "CBLAS");
}

enum library_outcome library_matmul(const struct matmul_args *a)
{
    cblas_sgemm(CblasRowMajor, a->trans_a ? CblasTrans : CblasNoTrans, a->trans_b ? CblasTrans : CblasNoTrans,
                (int)a->M, (int)a->N, (int)a->K, a->alpha, a->A, (int)a->lda, a->B, (int)a->ldb, a->beta,
                a->C, (int)a->ldc);
    return LIBRARY_DONE;
}

/* BLAS libraries differ; this is a share of what OpenBLAS sets aside for each thread. */
size_t library_memory(size_t threads, size_t rows, size_t width, bool bf16)
{
    enum { CODE = 4000000, BUFFER = 4000000 };
    (void)rows;
    (void)width;
    (void)bf16;
    return CODE + threads * BUFFER;
}

bool library_has_bf16(void)
{
    return false;
}

enum library_outcome library_matmul_bf16(struct library *library, const struct matmul_bf16_args *a)
{
    (void)library;
    (void)a;
    return LIBRARY_NOT_TAKEN;
}
