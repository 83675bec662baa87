/* The central directory of a zip file whose entries are stored without compression, as torch.save writes it.
 */
#ifndef DDL_TENSOR_ZIP_H
#define DDL_TENSOR_ZIP_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_zip_entry {
    const char *name; /* name_size bytes in the file, no NUL after them */
    size_t name_size;
    const unsigned char *header, *data; /* its local header and its bytes, in the file */
    size_t size;
    uint32_t crc; /* CRC-32 of the bytes; 0 where the writer did not compute it */
};

/* Sorted by name. */
struct ddl_zip {
    struct ddl_zip_entry *entries;
    size_t n;
};

/* True if the bytes begin as a zip file does. */
bool ddl_zip_begins(const unsigned char *data, size_t size);
/* Reads the central directory of a whole file; `path` is for messages. DDL_E_FORMAT if an entry is
 * compressed, encrypted, outside of the file, has the name of another or overlaps it. The entries point into
 * `data`. Close after a success. */
ddl_status ddl_zip_open(struct ddl_zip *out, const unsigned char *data, size_t size, const char *path,
                        struct ddl_error *err);
void ddl_zip_close(struct ddl_zip *zip);
/* Returns NULL if there is no entry of that name. */
const struct ddl_zip_entry *ddl_zip_find(const struct ddl_zip *zip, const char *name, size_t name_size);
/* The CRC-32 of zip files, of more bytes after those that gave `crc` (at first 0). */
uint32_t ddl_zip_crc(uint32_t crc, const unsigned char *data, size_t size);

#endif
