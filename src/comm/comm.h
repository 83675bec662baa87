/* Collectives between the ranks of a job: sums, exchanges of pieces, messages. See ddl/comm.h for opening a
 * communicator.
 *
 * Rules for all calls:
 * - A communicator NULL is a single process: every call is valid and does nothing, because the result of a
 *   collective over one rank is its input.
 * - All ranks make the same calls in the same order with the same sizes, except send and receive, which are
 *   calls of two ranks.
 * - They have no status. If a rank fails or does not take part within the time limit
 *   (ddl_comm_set_time_limit), nothing can continue: all ranks end with a message that names it.
 * - Buffers are host memory of the caller.
 * - Sums are taken in the order of the ranks: ((x_0 + x_1) + x_2) + ... The result has the same bits on every
 *   rank and in every run with as many ranks.
 * - After the communicator and the exchanges are created, nothing is allocated. */
#ifndef DDL_COMM_COMM_H
#define DDL_COMM_COMM_H

#include "ddl/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_comm_transport;

/* A communicator over a transport, which it owns from now on. All ranks call it: the names of the hosts are
 * exchanged. `limit_instead` replaces any time limit but 0, in seconds; negative: none does. If memory is
 * missing, all ranks end. */
ddl_comm *ddl_comm_create(const struct ddl_comm_transport *transport, double limit_instead);

/* Names what the following calls do, as printf: "the gradients of step 120". Error messages contain it: "rank
 * 3 of 4 (host b) did not reach the gradients of step 120 within 600 s". Truncated to 95 bytes. */
void ddl_comm_describe(ddl_comm *comm, const char *format, ...) DDL_PRINTF(2, 3);

/* Blocking collectives. For amounts of data that are small: a rank sends its data to every other. */

/* Returns when all ranks have called it. */
void ddl_comm_barrier(ddl_comm *comm);
/* x (n) = the sum, or the maximum, over all ranks of their x. */
void ddl_comm_sum_f64(ddl_comm *comm, size_t n, double *x);
void ddl_comm_sum_u64(ddl_comm *comm, size_t n, uint64_t *x);
void ddl_comm_max_u64(ddl_comm *comm, size_t n, uint64_t *x);
/* The `bytes` at data of rank `root` are copied to the other ranks. */
void ddl_comm_broadcast(ddl_comm *comm, size_t root, size_t bytes, void *data);
/* A message from one rank to another; they may not be the same. Both give the same size. Messages between two
 * ranks arrive in the order in which they are sent. A send may wait for the receive. */
void ddl_comm_send(ddl_comm *comm, size_t to, size_t bytes, const void *data);
void ddl_comm_receive(ddl_comm *comm, size_t from, size_t bytes, void *data);

/* Waits until is_complete(user), what depends on other ranks, without messages of this communicator. The time
 * limit and its error message are those of a collective. */
void ddl_comm_wait_until(ddl_comm *comm, bool (*is_complete)(void *user), void *user);

/* ddl_comm_abort with the message and the name of what this rank was doing (ddl_comm_describe). */
void ddl_comm_abort_call(ddl_comm *comm, const char *message) DDL_NORETURN;

/* While rank 0 does what can take longer than the time limit of a call, the others wait for it: rank 0 calls
 * still_working from time to time and done_working at the end; the others call wait_for_root. */
void ddl_comm_still_working(ddl_comm *comm);
void ddl_comm_done_working(ddl_comm *comm);
void ddl_comm_wait_for_root(ddl_comm *comm);

/* Nonblocking collectives on arrays of floats, which are cut into one piece per rank: rank r owns [cut(n,
 * size, r), cut(n, size, r + 1)). Cuts are multiples of 16 floats (64 bytes), except the last, and pieces are
 * equal within 16. A piece may be empty. */
size_t ddl_comm_cut(size_t n, size_t size, size_t rank);

/* Format of the floats in a message. With BF16 the summands of a sum are rounded to nearest, ties to even,
 * those of the owner too, so that a sum does not depend on who owns it; they are summed in float32. */
enum ddl_comm_dtype { DDL_COMM_F32, DDL_COMM_BF16 };

/* One nonblocking collective at a time, with the buffers that it needs. Several exchanges may be in flight;
 * all ranks start them in the same order. */
struct ddl_comm_exchange;

/* For arrays of at most `capacity` floats. DDL_E_MEMORY. Free before the communicator is closed, and not
 * between start and finish. With comm NULL *out is NULL, which all calls below accept. */
ddl_status ddl_comm_exchange_create(struct ddl_comm_exchange **out, ddl_comm *comm, size_t capacity,
                                    enum ddl_comm_dtype dtype, struct ddl_error *err);
void ddl_comm_exchange_free(struct ddl_comm_exchange *exchange);
/* Memory of an exchange of `size` ranks in bytes, without the small structs. */
size_t ddl_comm_exchange_bytes(size_t capacity, size_t size, enum ddl_comm_dtype dtype);
/* Bytes that one rank sends, at most, in a reduce-scatter of n floats; all_gather sends as many as a
 * reduce-scatter in F32. */
size_t ddl_comm_exchange_traffic(size_t n, size_t size, enum ddl_comm_dtype dtype);

/* Own piece of x (n) = the sum of that piece over all ranks; the rest of x keeps its values. x may be neither
 * read nor written before the finish. */
void ddl_comm_reduce_scatter_start(struct ddl_comm_exchange *exchange, size_t n, float *x);
/* Each piece of x (n) = that piece of the rank that owns it, always in float32. As above. */
void ddl_comm_all_gather_start(struct ddl_comm_exchange *exchange, size_t n, float *x);
/* Waits until the collective is complete. Does nothing if none was started. */
void ddl_comm_finish(struct ddl_comm_exchange *exchange);

/* Moves messages of all exchanges in flight; does not wait. Messages move only inside calls of this layer: to
 * be called several times per bucket while computing. */
void ddl_comm_progress(ddl_comm *comm);

#endif
