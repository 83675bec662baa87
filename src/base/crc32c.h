/* CRC-32C (Castagnoli), as in iSCSI and TFRecord files. */
#ifndef DDL_BASE_CRC32C_H
#define DDL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ddl_crc32c(const void *data, size_t size);

#endif
