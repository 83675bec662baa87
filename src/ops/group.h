/* Collectives between the devices of several processes without host memory: the table that a backend with a
 * library for them has as the member `group` of struct ddl_ops. A group is the devices of all ranks of a job.
 *
 * Calls on a group return before they are complete. Arrays are processed in the order of the calls, and all
 * ranks make the same calls with the same sizes. An array x (n) consists of one piece per rank: rank r owns
 * [cut(n, size, r), cut(n, size, r + 1)). Ops may neither read nor write it until the call is complete. */
#ifndef DDL_OPS_GROUP_H
#define DDL_OPS_GROUP_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_GROUP_ID = 128, DDL_GROUP_DEVICE = 64 };

/* What the ranks of a group have in common, and the place of one. */
struct ddl_group_config {
    unsigned char id[DDL_GROUP_ID]; /* of make_id on one rank */
    size_t rank, size;
    size_t capacity; /* floats of an array at most */
    bool bf16;       /* summands are rounded to bfloat16; sums are float32 */
    size_t (*cut)(size_t n, size_t size, size_t rank);
};

struct ddl_group_ops {
    /* Loads the library. `device` receives a text that names the host and its GPU, of which several devices
     * may be slices, `text` the library's name and version. DDL_E_UNSUPPORTED if there is none. */
    ddl_status (*load)(void *ctx, char device[DDL_GROUP_DEVICE], char *text, size_t text_size,
                       struct ddl_error *err);
    ddl_status (*make_id)(void *ctx, unsigned char id[DDL_GROUP_ID], struct ddl_error *err);
    /* Connects the ranks, which all call it. Returns before they are connected: the first `poll` that is
     * complete reports it. ctx is the backend's state, which is borrowed. */
    ddl_status (*open)(void **group, void *ctx, const struct ddl_group_config *config, struct ddl_error *err);
    /* The piece of x (n) that this rank owns = its sum over all ranks; the others are undefined. x is
     * complete at the event `ready` of the backend. */
    void (*reduce_scatter)(void *group, float *x, size_t n, uint64_t ready);
    /* Each piece of x (n) = that piece of the rank that owns it. */
    void (*all_gather)(void *group, float *x, size_t n, uint64_t ready);
    /* Whether the ranks are connected and all calls are complete; does not wait. Ops that are submitted
     * afterwards see the results. DDL_E_DEVICE if a rank is lost or the library failed: then the group can
     * only be aborted. */
    ddl_status (*poll)(void *group, bool *is_complete, struct ddl_error *err);
    /* Releases a group after an error; calls in flight end. */
    void (*abort)(void *group);
    /* Releases a group of which all calls are complete. */
    void (*close)(void *group);
    /* Device memory in bytes that the library allocates for a group of `size` ranks. May be called on a
     * backend that only plans. */
    size_t (*memory_estimate)(void *ctx, size_t size, bool bf16);
};

#endif
