/* A simulated device: the ops of another backend behind the memory and the timing of a GPU. */
#ifndef DDL_TEST_SIMULATED_DEVICE_H
#define DDL_TEST_SIMULATED_DEVICE_H

#include "ops/ops.h"

struct simulated_device_options {
    size_t memory; /* bytes of the device's memory; 0: as much as the machine has */
    uint64_t
        fail_at; /* number of the op, from 1 in the order of execution, at which the device fails; 0: none */
};

/* A device that computes with the open backend `real`, whose memory is host memory and which close closes.
 * NULL if there is no memory. Its table is simulated_device_table(real->ops), with no `devices` and `open`.
 *
 * - Pointers that alloc returns are addresses of pages without access rights (PROT_NONE), so that any access
 *   by the host raises SIGSEGV. The numbers are elsewhere: they end where a page without access rights
 *   begins, and are NaN at first.
 * - Ops, zero, free and transfers are queued, and a thread executes them in order: not before the host waits
 *   for an event, downloads or synchronizes, or the queue is full. Ops then see the arguments of the call.
 * - upload_async reads its source when it is executed. The destination of download_async is filled with NaN
 *   by the call, and written when its event is waited for.
 * - Errors of ops are reported once they were waited for. A device that failed reports that from then on;
 *   downloads get NaN.
 *
 * Aborts with a message where a call gets a pointer that is not memory of the device (or, for asynchronous
 * transfers and free_host, of alloc_host), where an operand of an op (ops/operands.h) is not within one
 * block, where free_host precedes the end of a transfer, and where memory is left at the end. */
void *simulated_device_create(const struct ddl_backend *real, const struct simulated_device_options *options);
struct ddl_ops simulated_device_table(const struct ddl_ops *real);

/* Makes an open backend such a device; ddl_backend_free frees both. Programs linked with
 * --wrap=ddl_backend_create and support/wrap_backend.c get every backend wrapped. The plugin backend/sim.c
 * gives one to whole programs. */
void simulated_device_wrap(struct ddl_backend *backend);

#endif
