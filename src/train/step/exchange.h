/* The exchange of gradients and parameters between the ranks of a run (ZeRO stage 1).
 *
 * Every rank has all parameters and the gradients of its share of the batch. The gradients are summed bucket
 * by bucket (train/step/partition.h), from the end of the flat buffer to its beginning, which is the order in
 * which the backward pass completes them: a bucket's sum goes to the rank that owns each piece of it
 * (reduce-scatter). The rank updates what it owns, and the updated pieces are copied to all ranks
 * (all-gather). A rank sends and receives as many bytes as in an all-reduce of the gradients, and has 1/R of
 * the optimizer's moments.
 *
 * Several buckets are in flight at a time. Their number covers the largest set of gradients that a pass
 * completes at once, so that the pass does not wait for a free one unless the network is slower than the
 * computation. */
#ifndef DDL_TRAIN_EXCHANGE_H
#define DDL_TRAIN_EXCHANGE_H

#include "comm/comm.h"
#include "ddl/model.h"
#include "train/step/partition.h"

#include <stdbool.h>

struct ddl_exchange;

/* Borrows the communicator and the model, which has gradients enabled. `in_flight` buckets at a time, at
 * least 1. All ranks call it, and all functions below, in the same order. *out is NULL for one rank: the
 * functions accept it and do nothing. Free before the communicator is closed. */
ddl_status ddl_exchange_create(struct ddl_exchange **out, ddl_comm *comm, ddl_model *model,
                               const struct ddl_partition *partition, enum ddl_comm_dtype dtype,
                               size_t in_flight, struct ddl_error *err);
void ddl_exchange_free(struct ddl_exchange *exchange);
/* How the devices exchange and why, for the user; "" if there is no choice. Owned by the exchange. */
const char *ddl_exchange_note(const struct ddl_exchange *exchange);

/* The next backward pass in the workspace is the last one before ddl_exchange_gradients: its gradients are
 * exchanged while it runs. */
void ddl_exchange_overlap(struct ddl_exchange *exchange, ddl_workspace *ws);
/* Gradients that this rank owns = their sum over all ranks; the others are undefined. Ends the overlap. */
void ddl_exchange_gradients(struct ddl_exchange *exchange, ddl_workspace *ws);
/* Parameters = those of the ranks that own them. */
void ddl_exchange_parameters(struct ddl_exchange *exchange);

/* Buckets in flight for a model with these parameters (n of ddl_params_plan). */
size_t ddl_exchange_in_flight(const struct ddl_param *params, size_t n,
                              const struct ddl_partition *partition);
/* Memory in bytes; host_memory: of a backend whose memory is host memory. */
size_t ddl_exchange_bytes(const struct ddl_partition *partition, enum ddl_comm_dtype dtype, size_t in_flight,
                          bool host_memory);
/* Bytes that a rank sends in a step. */
size_t ddl_exchange_traffic(const struct ddl_partition *partition, enum ddl_comm_dtype dtype);

#endif
