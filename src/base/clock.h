/* Time and memory of the process. */
#ifndef DDL_BASE_CLOCK_H
#define DDL_BASE_CLOCK_H

#include <stddef.h>

double ddl_clock_seconds(void); /* monotonic, from an arbitrary start */
double ddl_clock_unix(void);    /* wall clock: seconds since 1970; may be set back */
size_t
ddl_clock_peak_memory(void); /* peak resident bytes; 0 where the system does not say; allocates nothing */

#endif
