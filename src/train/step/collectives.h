/* Collectives on ranges of backend memory: the table that the exchange of gradients and parameters
 * (step/exchange.h) calls, as the model calls the table of ops. A way of moving the numbers is an
 * implementation: through host memory and the communicator (collectives_host.c), or from device to device
 * (collectives_device.c).
 *
 * Calls return before they are complete. Ranges are processed in the order of the calls, and all ranks make
 * the same calls in the same order. A range has at most as many floats as the implementation was created for,
 * and is divided among the ranks as by ddl_comm_cut. Ops may neither read nor write it until `finish`. */
#ifndef DDL_TRAIN_COLLECTIVES_H
#define DDL_TRAIN_COLLECTIVES_H

#include "comm/comm.h"
#include "ops/ops.h"

struct ddl_collectives_ops {
    /* The piece of x (n) that this rank owns = its sum over all ranks; the others are undefined. x is
     * complete at the event `ready`. */
    void (*reduce_scatter)(void *ctx, float *x, size_t n, ddl_event ready);
    /* Each piece of x (n) = that piece of the rank that owns it. */
    void (*all_gather)(void *ctx, float *x, size_t n, ddl_event ready);
    /* Moves what is in flight, without waiting: to be called now and then while computing. */
    void (*progress)(void *ctx);
    /* Ops that are submitted afterwards see all results. */
    void (*finish)(void *ctx);
    void (*free)(void *ctx);
};
struct ddl_collectives {
    const struct ddl_collectives_ops *ops; /* NULL: none */
    void *ctx;
    char note[320]; /* which implementation it is and why, for the user; "" if there is no other */
};

/* Over the communicator, which sends from host memory: `in_flight` ranges at a time of up to `capacity`
 * floats, gradients as `dtype`. A call waits for the one that was made `in_flight` calls earlier. Borrows the
 * communicator and the backend. */
ddl_status ddl_collectives_create_host(struct ddl_collectives *out, ddl_comm *comm,
                                       const ddl_backend *backend, size_t capacity, enum ddl_comm_dtype dtype,
                                       size_t in_flight, struct ddl_error *err);

/* Between the devices of the ranks, where every rank has a device of its own and the library for it.
 * out->ops is NULL, with DDL_OK, where that is not so on all ranks, or DDL_EXCHANGE is "host"; with "device"
 * it is an error. All ranks call it and get the same. Borrows the communicator and the backend. */
ddl_status ddl_collectives_create_device(struct ddl_collectives *out, ddl_comm *comm,
                                         const ddl_backend *backend, size_t capacity,
                                         enum ddl_comm_dtype dtype, struct ddl_error *err);
/* Device memory in bytes that its library allocates; 0 if the backend has none or DDL_EXCHANGE is "host".
 * That every rank has a device of its own and the library is assumed: it is known when the ranks are
 * connected. */
size_t ddl_collectives_device_bytes(const ddl_backend *backend, size_t ranks, enum ddl_comm_dtype dtype);

#endif
