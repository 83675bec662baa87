/* The library that multiplies large matrices. One file of this folder implements it, chosen when the project
 * is configured (DDL_GEMM): onednn.c, or cblas.c for any BLAS with C bindings. Nothing else knows a library.
 */
#ifndef DDL_BACKEND_CPU_LIBRARY_H
#define DDL_BACKEND_CPU_LIBRARY_H

#include "ops/ops.h"

/* Its state: what it prepared for shapes that it has seen. */
struct library;

ddl_status library_open(struct library **out, struct ddl_error *err);
void library_close(struct library *library); /* NULL is allowed */

/* "oneDNN 2.6" */
void library_describe(char *text, size_t size);

/* C = alpha op(A) op(B) + beta C on the threads that OpenMP allows now. False: there was no memory for it,
 * perhaps in one of its threads only, so that C may be half done. Any thread may call. */
bool library_matmul(const struct matmul_args *a);

/* Whether this processor multiplies bfloat16 faster than float32 by this library. */
bool library_has_bf16(void);
/* The same for bfloat16; one thread at a time. */
bool library_matmul16(struct library *library, const struct matmul16_args *a);

#endif
