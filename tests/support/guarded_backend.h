/* A backend whose memory the host cannot access. */
#ifndef DDL_TEST_GUARDED_BACKEND_H
#define DDL_TEST_GUARDED_BACKEND_H

#include "ops/ops.h"

/* Wraps an open backend: its memory is PROT_NONE except inside ops, uploads, downloads and zero, so that any
 * other access raises SIGSEGV. New blocks hold NaN. Aborts where upload, download, zero or free get a pointer
 * that is not memory of the backend, and where an operand of an op (ops/operands.h) is not within one block.
 * ddl_backend_free frees both. Programs linked with
 * --wrap=ddl_backend_create and support/wrap_backend.c get every backend wrapped. */
void guarded_backend_wrap(struct ddl_backend *backend);

#endif
