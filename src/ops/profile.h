/* Profiler: a backend that forwards every op to another one and measures its time, until it is complete. */
#ifndef DDL_OPS_PROFILE_H
#define DDL_OPS_PROFILE_H

#include "ops/ops.h"

/* One row an op, in the order of the list. */
enum {
#define DDL_PROFILE_NUMBER(name, args) DDL_PROFILE_##name,
    DDL_OPS(DDL_PROFILE_NUMBER)
#undef DDL_PROFILE_NUMBER
        DDL_PROFILE_zero,
    DDL_PROFILE_ROWS
};

struct ddl_profile_row {
    const char *name; /* the op's */
    double seconds;
    size_t calls;
};

struct ddl_profile {
    struct ddl_backend backend; /* give this to a model; its memory is the real one's */
    struct ddl_ops ops;
    struct ddl_backend *real;
    /* Called before and after every op of DDL_OPS with its DDL_PROFILE_ number and arguments; may be NULL. */
    void (*watch)(void *user, int op, const void *args);
    void (*after)(void *user, int op, const void *args);
    void *watch_user;             /* of both */
    struct ddl_profile_row *rows; /* ended by a row without a name */
    struct ddl_profile_row store[96];
};

/* Fills *profile around a backend that must outlive it. Do not free profile->backend. */
void ddl_profile_init(struct ddl_profile *profile, struct ddl_backend *real);
/* Sets times and calls to 0. */
void ddl_profile_reset(struct ddl_profile *profile);

#endif
