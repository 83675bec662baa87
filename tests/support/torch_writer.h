/* Writes files as torch.save does, byte by byte, without PyTorch. No test framework: fuzz targets use it too.
 */
#ifndef DDL_TEST_TORCH_WRITER_H
#define DDL_TEST_TORCH_WRITER_H

#include "tensor/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes in memory; at first all zero, then bytes_free. */
struct bytes {
    unsigned char *data;
    size_t n, capacity;
};
void bytes_add(struct bytes *b, const void *data, size_t n);
void bytes_text(struct bytes *b, const char *text);
/* A little-endian integer. */
void bytes_number(struct bytes *b, uint64_t value, unsigned bytes);
void bytes_free(struct bytes *b);

/* A zip file under way. `central` is its central directory. */
struct zip_writer {
    struct bytes file, central;
    size_t n;
    bool zip64;  /* sizes and places are in the records of zip64                      */
    bool no_crc; /* as after torch.serialization.set_crc32_options(False) */
};
/* Adds an entry; the bytes start at a multiple of 64, as in files of torch.save. */
void zip_add(struct zip_writer *z, const char *name, const void *data, size_t n);
/* Appends the central directory; the file is z->file. */
void zip_finish(struct zip_writer *z);
void zip_free(struct zip_writer *z);

/* Pickles of protocol 2: a key or string; the call that makes a tensor of the storage with this key, of
 * `numel` elements; strides NULL: contiguous. */
void pickle_text(struct bytes *b, const char *text);
void pickle_tensor(struct bytes *b, const struct ddl_tensor *t, const char *key, size_t numel, size_t offset,
                   const size_t *strides);
/* A whole file: a state dict of n tensors, each with its own storage. under: the key of the dict that has it,
 * or NULL. The result is z->file. */
void torch_file(struct zip_writer *z, const struct ddl_tensor *tensors, size_t n, const char *under);

#endif
