/* SHA-256 (FIPS 180-4): a stream of bytes to 32. */
#ifndef DDL_BASE_SHA256_H
#define DDL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct ddl_sha256 {
    uint32_t h[8];
    uint64_t bytes; /* hashed so far */
    unsigned char block[64];
};
void ddl_sha256_begin(struct ddl_sha256 *s);
void ddl_sha256_add(struct ddl_sha256 *s, const void *data, size_t size);
/* The digest as 64 lower-case hexadecimal digits and a NUL; `s` must be initialized again before its next
 * use. */
void ddl_sha256_end_hex(struct ddl_sha256 *s, char hex[65]);

#endif
