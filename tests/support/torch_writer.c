#include "support/torch_writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- bytes ---- */

void bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->data = realloc(b->data, b->capacity);
        if (!b->data)
            abort();
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

void bytes_text(struct bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

void bytes_number(struct bytes *b, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++, value >>= 8) {
        const unsigned char byte = (unsigned char)value;
        bytes_add(b, &byte, 1);
    }
}

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){ 0 };
}

/* ---- zip ---- */

/* Version, flags, method, time and date; checksum and sizes. */
static void add_common(const struct zip_writer *z, struct bytes *b, uint32_t crc, size_t n)
{
    bytes_number(b, 0, 2);
    bytes_number(b, 0x808, 2);
    bytes_number(b, 0, 6);
    bytes_number(b, z->no_crc ? 0 : crc, 4);
    bytes_number(b, z->zip64 ? 0xffffffff : n, 4);
    bytes_number(b, z->zip64 ? 0xffffffff : n, 4);
}

void zip_add(struct zip_writer *z, const char *name, const void *data, size_t n)
{
    size_t at = z->file.n, length = strlen(name), pad = (64 - (at + 30 + length + 4) % 64) % 64;
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)n);
    bytes_number(&z->file, 0x04034b50, 4);
    add_common(z, &z->file, crc, n);
    bytes_number(&z->file, length, 2);
    bytes_number(&z->file, pad + 4, 2);
    bytes_text(&z->file, name);
    bytes_text(&z->file, "FB");
    bytes_number(&z->file, pad, 2);
    for (size_t i = 0; i < pad; i++)
        bytes_text(&z->file, "Z");
    bytes_add(&z->file, data, n);

    bytes_number(&z->central, 0x02014b50, 4);
    bytes_number(&z->central, 0, 2);
    add_common(z, &z->central, crc, n);
    bytes_number(&z->central, length, 2);
    bytes_number(&z->central, z->zip64 ? 28 : 0, 2);
    bytes_number(&z->central, 0, 2 + 2 + 2 + 4);
    bytes_number(&z->central, z->zip64 ? 0xffffffff : at, 4);
    bytes_text(&z->central, name);
    if (z->zip64) {
        bytes_number(&z->central, 1, 2);
        bytes_number(&z->central, 24, 2);
        bytes_number(&z->central, n, 8);
        bytes_number(&z->central, n, 8);
        bytes_number(&z->central, at, 8);
    }
    z->n++;
}

void zip_finish(struct zip_writer *z)
{
    size_t at = z->file.n, end = at + z->central.n;
    bytes_add(&z->file, z->central.data, z->central.n);
    if (z->zip64) {
        bytes_number(&z->file, 0x06064b50, 4);
        bytes_number(&z->file, 44, 8);
        bytes_number(&z->file, 0, 2 + 2 + 4);
        bytes_number(&z->file, 0, 4);
        bytes_number(&z->file, z->n, 8);
        bytes_number(&z->file, z->n, 8);
        bytes_number(&z->file, z->central.n, 8);
        bytes_number(&z->file, at, 8);
        bytes_number(&z->file, 0x07064b50, 4);
        bytes_number(&z->file, 0, 4);
        bytes_number(&z->file, end, 8);
        bytes_number(&z->file, 1, 4);
    }
    bytes_number(&z->file, 0x06054b50, 4);
    bytes_number(&z->file, 0, 4);
    bytes_number(&z->file, z->zip64 ? 0xffff : z->n, 2);
    bytes_number(&z->file, z->zip64 ? 0xffff : z->n, 2);
    bytes_number(&z->file, z->zip64 ? 0xffffffff : z->central.n, 4);
    bytes_number(&z->file, z->zip64 ? 0xffffffff : at, 4);
    bytes_number(&z->file, 0, 2);
}

void zip_free(struct zip_writer *z)
{
    bytes_free(&z->file);
    bytes_free(&z->central);
    *z = (struct zip_writer){ 0 };
}

/* ---- pickles ---- */

void pickle_text(struct bytes *b, const char *text)
{
    bytes_text(b, "X");
    bytes_number(b, strlen(text), 4);
    bytes_text(b, text);
}

static void pickle_size(struct bytes *b, size_t value)
{
    bytes_number(b, 0x8a, 1);
    bytes_number(b, 8, 1);
    bytes_number(b, value, 8);
}

static void pickle_sizes(struct bytes *b, const size_t *values, size_t n)
{
    bytes_text(b, "(");
    for (size_t i = 0; i < n; i++)
        pickle_size(b, values[i]);
    bytes_text(b, "t");
}

static const char *storage_of(enum ddl_dtype dtype)
{
    switch (dtype) {
    case DDL_F64:
        return "DoubleStorage";
    case DDL_F16:
        return "HalfStorage";
    case DDL_BF16:
        return "BFloat16Storage";
    case DDL_I64:
        return "LongStorage";
    case DDL_U8:
        return "ByteStorage";
    default:
        return "FloatStorage";
    }
}

void pickle_tensor(struct bytes *b, const struct ddl_tensor *t, const char *key, size_t numel, size_t offset,
                   const size_t *strides)
{
    size_t contiguous[DDL_MAX_DIMS], step = 1;
    for (size_t i = t->ndim; i-- > 0; step *= t->shape[i])
        contiguous[i] = step;
    bytes_text(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle_text(b, "storage");
    bytes_text(b, "ctorch\n");
    bytes_text(b, storage_of(t->dtype));
    bytes_text(b, "\n");
    pickle_text(b, key);
    pickle_text(b, "cpu");
    pickle_size(b, numel);
    bytes_text(b, "tQ");
    pickle_size(b, offset);
    pickle_sizes(b, t->shape, t->ndim);
    pickle_sizes(b, strides ? strides : contiguous, t->ndim);
    bytes_number(b, 0x89, 1);
    bytes_text(b, "ccollections\nOrderedDict\n)RtR");
}

void torch_file(struct zip_writer *z, const struct ddl_tensor *tensors, size_t n, const char *under)
{
    struct bytes pickle = { 0 };
    char key[32], name[64];
    bytes_number(&pickle, 0x80, 1);
    bytes_number(&pickle, 2, 1);
    if (under) {
        bytes_text(&pickle, "}");
        pickle_text(&pickle, under);
    }
    bytes_text(&pickle, "ccollections\nOrderedDict\n)R(");
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%zu", i);
        pickle_text(&pickle, tensors[i].name);
        pickle_tensor(&pickle, &tensors[i], key, tensors[i].count, 0, NULL);
    }
    bytes_text(&pickle, under ? "us." : "u.");
    zip_add(z, "archive/data.pkl", pickle.data, pickle.n);
    bytes_free(&pickle);
    zip_add(z, "archive/byteorder", "little", 6);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "archive/data/%zu", i);
        zip_add(z, name, tensors[i].data, tensors[i].bytes);
    }
    zip_add(z, "archive/version", "3\n", 2);
    zip_finish(z);
}
