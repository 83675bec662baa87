#include "data/shard_layout.h"

#include "data/shard_format.h"
#include "ddl/data.h"
#include "ddl/tokenizer.h"

#include <string.h>

/* Headers of 256 int32: magic, version, number of tokens. */
enum { GPT2_END_OF_TEXT = 50256, LLAMA3_BEGIN_OF_TEXT = 128000 };
static const struct {
    int32_t magic, version;
    int width;
    int32_t end_of_text;
} headers[] = {
    { DDL_SHARD_MAGIC, 1, 2, GPT2_END_OF_TEXT }, /* llm.c, GPT-2 */
    { DDL_SHARD_MAGIC, 2, 4, GPT2_END_OF_TEXT }, /* ddl, vocabularies above 65536 tokens */
    { 20240801, 7, 4, LLAMA3_BEGIN_OF_TEXT },    /* llm.c, Llama 3 */
};
enum { HEADERS = sizeof headers / sizeof *headers };

const char *const ddl_shards_format_names[] = { "auto", "llm.c", "nanogpt", NULL };

static int32_t header_word(const unsigned char *data, size_t i)
{
    const unsigned char *p = data + 4 * i;
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static bool known_magic(const unsigned char *data, size_t size)
{
    bool known = false;
    for (size_t i = 0; i < HEADERS && size >= 4; i++)
        known = known || header_word(data, 0) == headers[i].magic;
    return known;
}

/* nanoGPT's files have these names, and an even size. A file that is zero where a header is zero is more
 * likely a shard with a corrupted magic number. */
static bool may_be_nanogpt(const char *path, const unsigned char *data, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t at = 12, end = size < DDL_SHARD_HEADER ? size : DDL_SHARD_HEADER;
    while (at < end && data[at] == 0)
        at++;
    return size % 2 == 0 && at < end && (strcmp(name, "train.bin") == 0 || strcmp(name, "val.bin") == 0);
}

static ddl_status headerless(struct ddl_shard_layout *out, const char *path, size_t size,
                             struct ddl_error *err)
{
    if (size % 2 != 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: %zu bytes: expected uint16 tokens, an even number of bytes: truncated",
                             path, size);
    *out = (struct ddl_shard_layout){ .width = 2, .tokens = size / 2, .end_of_text = GPT2_END_OF_TEXT };
    return DDL_OK;
}

/* Whether the first bytes, 16 at least, are UTF-8 without U+0000. */
static bool is_text(const unsigned char *data, size_t size)
{
    size_t end = size < DDL_SHARD_HEADER ? size : DDL_SHARD_HEADER, at = 0, length;
    while (at < end && data[at] && (length = ddl_utf8_length((const char *)data + at, size - at)))
        at += length;
    return size >= 16 && at >= end;
}

static ddl_status check_magic(const char *path, const unsigned char *data, size_t size, struct ddl_error *err)
{
    if (is_text(data, size))
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: not a shard but text: ddl data build makes shards of text", path);
    if (size < DDL_SHARD_HEADER)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %zu bytes, less than the shard header of %d bytes", path,
                             size, DDL_SHARD_HEADER);
    if (known_magic(data, size))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_FORMAT,
                         "%s: not a shard: expected magic number %d or 20240801, found %ld; --format nanogpt "
                         "reads uint16 tokens without a header",
                         path, DDL_SHARD_MAGIC, (long)header_word(data, 0));
}

static ddl_status read_header(struct ddl_shard_layout *out, const char *path, const unsigned char *data,
                              size_t size, struct ddl_error *err)
{
    ddl_status status = check_magic(path, data, size, err);
    if (status)
        return status;
    int32_t magic = header_word(data, 0), version = header_word(data, 1), count = header_word(data, 2);
    for (size_t i = 0; i < HEADERS; i++) {
        if (headers[i].magic != magic || headers[i].version != version)
            continue;
        out->width = headers[i].width;
        out->end_of_text = headers[i].end_of_text;
    }
    if (out->width == 0)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: shard version: expected %s, found %ld", path,
                             magic == DDL_SHARD_MAGIC ? "1 (uint16) or 2 (uint32)" : "7 (uint32)",
                             (long)version);
    if (count < 0)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: invalid token count %ld in the header", path,
                             (long)count);
    out->offset = DDL_SHARD_HEADER;
    out->tokens = (uint64_t)count;
    uint64_t expected = DDL_SHARD_HEADER + out->tokens * (uint64_t)out->width;
    if (size != expected)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: expected %llu bytes for %ld tokens of uint%d, found %zu: %s", path,
                             (unsigned long long)expected, (long)count, 8 * out->width, size,
                             size < expected ? "truncated" : "extra bytes");
    return DDL_OK;
}

ddl_status ddl_shard_layout_find(struct ddl_shard_layout *out, const char *path, const unsigned char *data,
                                 size_t size, int format, struct ddl_error *err)
{
    *out = (struct ddl_shard_layout){ 0 };
    bool assumed = format == DDL_SHARDS_AUTO && !known_magic(data, size) && may_be_nanogpt(path, data, size);
    if (format != DDL_SHARDS_NANOGPT && !assumed)
        return read_header(out, path, data, size, err);
    ddl_status status = headerless(out, path, size, err);
    out->assumed = assumed;
    return status;
}
