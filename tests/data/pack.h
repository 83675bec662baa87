/* Compressed files, created by the reference libraries of the formats. */
#ifndef DDL_TESTS_DATA_PACK_H
#define DDL_TESTS_DATA_PACK_H

#include "support/files.h"

#include <zlib.h>
#include <zstd.h>

/* Return one gzip member or zstd frame, allocated with malloc. */
static inline unsigned char *pack_gzip(const void *data, size_t size, size_t *packed)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t capacity = deflateBound(&z, size) + 64;
    unsigned char *out = malloc(capacity);
    assert_non_null(out);
    z.next_in = (unsigned char *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *packed = capacity - z.avail_out;
    deflateEnd(&z);
    return out;
}

static inline unsigned char *pack_zstd(const void *data, size_t size, size_t *packed)
{
    size_t capacity = ZSTD_compressBound(size);
    unsigned char *out = malloc(capacity);
    assert_non_null(out);
    *packed = ZSTD_compress(out, capacity, data, size, 3);
    assert_false(ZSTD_isError(*packed));
    return out;
}

typedef unsigned char *pack_fn(const void *data, size_t size, size_t *packed);

#endif
