/* The library that multiplies large matrices. One file of this folder implements it, chosen when the project
 * is configured (DDL_GEMM): onednn.c, or cblas.c for any BLAS with C bindings. No other file uses a library.
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

enum library_outcome {
    LIBRARY_DONE,
    LIBRARY_NOT_TAKEN, /* not computed: C is unchanged, or beta is 0 */
    LIBRARY_LOST,      /* out of memory, perhaps in one thread only: C may be partly accumulated */
};

/* C = alpha op(A) op(B) + beta C on the threads that OpenMP allows now. */
enum library_outcome library_matmul(const struct matmul_args *a);

/* Bytes that it comes to hold: pages of its code, what it compiles, and copies of operands packed for
 * products of `rows` rows of about `width` numbers on `threads` threads. An estimate. */
size_t library_memory(size_t threads, size_t rows, size_t width, bool bf16);

/* Whether this processor multiplies bfloat16 faster than float32 by this library. */
bool library_has_bf16(void);
/* library_matmul with operands in bfloat16. One thread at a time may call it, not always the same one. */
enum library_outcome library_matmul_bf16(struct library *library, const struct matmul_bf16_args *a);

#endif
