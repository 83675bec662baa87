/* How many numbers of a tensor are not finite. */
#ifndef DDL_TRAIN_VALUES_H
#define DDL_TRAIN_VALUES_H

#include "ddl/backend.h"

#include <stdbool.h>
#include <stddef.h>

struct ddl_values {
    size_t n, nan, inf;
    size_t first;   /* index of the first that is not finite; n if all are finite */
    double largest; /* magnitude, of those that are finite                 */
};

/* Of n numbers in the backend's memory. Allocates nothing. */
struct ddl_values ddl_values_of(ddl_backend *backend, const float *x, size_t n);
bool ddl_values_finite(const struct ddl_values *values);
/* "1 NaN and 3 infinite of 640 numbers, the largest other 2.5" */
void ddl_values_text(const struct ddl_values *values, char *out, size_t size);

#endif
