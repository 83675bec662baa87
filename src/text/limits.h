/* Limits of the text layer. */
#ifndef DDL_TEXT_LIMITS_H
#define DDL_TEXT_LIMITS_H

/* Upper bound on the number of ids: limits the memory that a corrupted file can request. */
enum { DDL_MAX_VOCAB = 1 << 22 };

#endif
