/* Profiler: a backend that forwards every op to another one and measures its time, until it is complete. */
#ifndef DDL_OPS_PROFILE_H
#define DDL_OPS_PROFILE_H

#include "ops/operands.h"

/* A row for each op, at its number (enum ddl_op), and one for zero. */
enum { DDL_PROFILE_ZERO = DDL_OP_COUNT, DDL_PROFILE_ROWS };

struct ddl_profile_row {
    const char *name; /* the op's */
    double seconds;
    size_t calls;
    double flops, bytes; /* of all calls: operations, and traffic of memory (ddl_op_use) */
};

struct ddl_profile {
    struct ddl_backend backend; /* give this to a model; its memory is the real one's */
    struct ddl_ops ops;
    struct ddl_backend *real;
    /* Called before and after every op of DDL_OPS with its number (enum ddl_op) and arguments; may be NULL.
     */
    void (*watch)(void *user, int op, const void *args);
    void (*after)(void *user, int op, const void *args);
    void *watch_user;             /* of both */
    struct ddl_profile_row *rows; /* ended by a row without a name */
    struct ddl_profile_row store[DDL_PROFILE_ROWS + 1];
};

/* Fills *profile around a backend that must outlive it. Do not free profile->backend. */
void ddl_profile_init(struct ddl_profile *profile, struct ddl_backend *real);
/* Sets times and calls to 0. */
void ddl_profile_reset(struct ddl_profile *profile);

#endif
