/* A hash table from short byte strings to numbers. Fast where most keys have at most 8 bytes: those are
 * compared as one word; of longer ones the table keeps a hash and where their bytes lie. */
#ifndef DDL_TEXT_BYTES_TABLE_H
#define DDL_TEXT_BYTES_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_bytes_slot {
    uint64_t word; /* the key itself, zero padded, if size <= 8; else its hash */
    uint32_t size; /* 0: an empty slot                                         */
    int32_t value;
};

/* The keys' bytes are the caller's: key(user, value) gives those of an entry. */
struct ddl_bytes_table {
    struct ddl_bytes_slot *slots;
    size_t n;
    unsigned bits;
    const char *(*key)(const void *user, int32_t value);
    const void *user;
};

/* Room for n entries to begin with; it grows by itself. False for want of memory. */
bool ddl_bytes_table_init(struct ddl_bytes_table *table, size_t n);
void ddl_bytes_table_free(struct ddl_bytes_table *table); /* a zeroed one is allowed */

/* The value of bytes[0..size-1], 0 < size < 2^32, or -1. `readable` is how many bytes may be read there, at
 * least size. */
int32_t ddl_bytes_table_find(const struct ddl_bytes_table *table, const char *bytes, size_t size,
                             size_t readable);
/* Enters a key that is not there yet, value >= 0. False for want of memory. */
bool ddl_bytes_table_add(struct ddl_bytes_table *table, const char *bytes, size_t size, int32_t value);

#endif
