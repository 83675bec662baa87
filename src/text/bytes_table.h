/* Hash table from short byte strings to integers, optimized for keys of at most 8 bytes: those are compared
 * as one word. For longer keys the table stores a hash and obtains the bytes from the caller. */
#ifndef DDL_TEXT_BYTES_TABLE_H
#define DDL_TEXT_BYTES_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_bytes_slot {
    uint64_t word; /* the key itself, zero-padded, if size <= 8; else its hash */
    uint32_t size; /* 0: empty slot */
    int32_t value;
};

/* The caller owns the bytes of the keys: key(user, value) returns those of an entry. */
struct ddl_bytes_table {
    struct ddl_bytes_slot *slots;
    size_t n;
    unsigned bits;
    const char *(*key)(const void *user, int32_t value);
    const void *user;
};

/* Allocates the table for n entries; it grows as needed. Returns false if out of memory. */
bool ddl_bytes_table_init(struct ddl_bytes_table *table, size_t n);
void ddl_bytes_table_free(struct ddl_bytes_table *table); /* a zeroed struct is allowed */

/* Returns the value of bytes[0..size-1], 0 < size < 2^32, or -1. `readable`, at least size, is the number of
 * bytes that may be read at `bytes`. */
int32_t ddl_bytes_table_find(const struct ddl_bytes_table *table, const char *bytes, size_t size,
                             size_t readable);
/* Inserts a key that is not in the table; value >= 0. Returns false if out of memory. */
bool ddl_bytes_table_add(struct ddl_bytes_table *table, const char *bytes, size_t size, int32_t value);

#endif
