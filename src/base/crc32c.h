/* CRC-32C (Castagnoli), as in iSCSI and TFRecord files. */
#ifndef DDL_BASE_CRC32C_H
#define DDL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ddl_crc32c(const void *data, size_t size);
/* The checksum of a text and of `size` bytes after it; `crc` is that of the text, 0 if it is empty. Uses the
 * instructions of the processor where it has them. */
uint32_t ddl_crc32c_add(uint32_t crc, const void *data, size_t size);
/* The same without these instructions, for tests. */
uint32_t ddl_crc32c_add_portable(uint32_t crc, const void *data, size_t size);

#endif
