/* A simulated device: the ops of another backend behind the memory and the timing of a GPU. */
#ifndef DDL_TEST_SIMULATED_DEVICE_H
#define DDL_TEST_SIMULATED_DEVICE_H

#include "ops/ops.h"

/* Wraps an open backend whose memory is host memory; ddl_backend_free frees both.
 *
 * - Pointers that alloc returns are addresses of pages without access rights (PROT_NONE), so that any access
 *   by the host raises SIGSEGV. The numbers are elsewhere: they end where a page without access rights
 *   begins, and are NaN at first.
 * - Ops, zero, free and transfers are queued, and a thread executes them in order: not before the host waits
 *   for an event, downloads or synchronizes, or the queue is full. Ops then see the arguments of the call.
 * - upload_async reads its source when it is executed. The destination of download_async is filled with NaN
 *   by the call, and written when its event is waited for.
 * - Errors of ops are reported once they were waited for.
 *
 * Aborts with a message where a call gets a pointer that is not memory of the device (or, for asynchronous
 * transfers and free_host, of alloc_host), where an operand of an op (ops/operands.h) is not within one
 * block, where free_host precedes the end of a transfer, and where memory is left at the end.
 *
 * Programs linked with --wrap=ddl_backend_create and support/wrap_backend.c get every backend wrapped. */
void simulated_device_wrap(struct ddl_backend *backend);

#endif
