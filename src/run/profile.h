/* Where the time of a pass goes: a backend that hands every op on to another and notes how long it took. */
#ifndef DDL_RUN_PROFILE_H
#define DDL_RUN_PROFILE_H

#include "ops/ops.h"

struct ddl_profile_row {
    const char *name; /* the op's */
    double seconds;
    size_t calls;
};

struct ddl_profile {
    struct ddl_backend backend; /* give this to a model; its memory is the real one's */
    struct ddl_ops ops;
    struct ddl_backend *real;
    struct ddl_profile_row *rows; /* ended by a row without a name */
    struct ddl_profile_row store[64];
};

/* Fills *profile around a backend that must outlive it. Do not free profile->backend. */
void ddl_profile_init(struct ddl_profile *profile, struct ddl_backend *real);
/* Back to no calls. */
void ddl_profile_reset(struct ddl_profile *profile);

#endif
