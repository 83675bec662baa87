#define _POSIX_C_SOURCE 200809L
#include "checkpoint/sums.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PATH_SIZE = 1280, SEAL_SIZE = sizeof ",\n  \"crc32\": \"01234567\"\n}\n" };

/* ---- the other files ---- */

ddl_status ddl_sums_take(const char *folder, json_t **sums, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    *sums = json_object();
    for (enum ddl_run_file i = 0; i < DDL_RUN_FILES && !status; i++) {
        const char *name = ddl_run_file_name(i);
        char path[PATH_SIZE];
        uint64_t size;
        uint32_t crc;
        if (!ddl_run_file_is(i, DDL_IS_SUMMED))
            continue;
        if (!ddl_path_join(path, sizeof path, folder, name))
            status = ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
        else if (!ddl_file_exists(path)) /* a run may have no tokenizer */
            continue;
        else
            status = ddl_file_sum(path, &size, &crc, err);
        if (!status && json_object_set_new(
                           *sums, name,
                           json_pack("{s:I, s:I}", "size", (json_int_t)size, "crc32", (json_int_t)crc)) != 0)
            status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its checksums", folder);
    }
    if (status) {
        json_decref(*sums);
        *sums = NULL;
    }
    return status;
}

static ddl_status check_file(const char *folder, const char *name, const json_t *wanted,
                             struct ddl_error *err)
{
    char path[PATH_SIZE];
    uint64_t size;
    uint32_t crc;
    const json_t *wanted_size = json_object_get(wanted, "size"),
                 *wanted_crc = json_object_get(wanted, "crc32");
    if (strchr(name, '/') || !json_is_integer(wanted_size) || !json_is_integer(wanted_crc))
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s/state.json: files: '%.80s' is not a file with a size and a crc32", folder,
                             name);
    if (!ddl_path_join(path, sizeof path, folder, name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    ddl_status status = ddl_file_sum(path, &size, &crc, err);
    if (status)
        return status;
    if ((json_int_t)size != json_integer_value(wanted_size))
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s: expected %lld bytes, found %llu", path,
                             (json_int_t)size < json_integer_value(wanted_size) ? "truncated" : "corrupted",
                             (long long)json_integer_value(wanted_size), (unsigned long long)size);
    if ((json_int_t)crc != json_integer_value(wanted_crc))
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: corrupted: expected checksum (CRC-32) %08llx, found %08lx", path,
                             (unsigned long long)json_integer_value(wanted_crc), (unsigned long)crc);
    return DDL_OK;
}

ddl_status ddl_sums_check(const char *folder, const json_t *sums, struct ddl_error *err)
{
    const char *name;
    json_t *wanted;
    if (!json_is_object(sums))
        return ddl_error_set(err, DDL_E_FORMAT, "%s/state.json: the key files is missing", folder);
    json_object_foreach((json_t *)(uintptr_t)sums, name, wanted)
    {
        ddl_status status = check_file(folder, name, wanted, err);
        if (status)
            return status;
    }
    return DDL_OK;
}

/* ---- state.json itself ---- */

/* The last line of a text that begins with these bytes; returns its length. */
static size_t seal_of(const char *text, size_t size, char *seal)
{
    unsigned long crc = (unsigned long)crc32_z(0, (const unsigned char *)text, size);
    return (size_t)snprintf(seal, SEAL_SIZE, ",\n  \"crc32\": \"%08lx\"\n}\n", crc);
}

char *ddl_sums_seal(const json_t *object)
{
    char *text = ddl_json_dumps(object, JSON_INDENT(2)); /* ends in "\n}", which the seal replaces */
    size_t size = text ? strlen(text) - 2 : 0;
    char *sealed = text ? realloc(text, size + SEAL_SIZE) : NULL;
    if (sealed)
        seal_of(sealed, size, sealed + size);
    else
        free(text);
    return sealed;
}

ddl_status ddl_sums_check_seal(const char *path, const char *text, size_t size, struct ddl_error *err)
{
    char seal[SEAL_SIZE];
    size_t length = SEAL_SIZE - 1;
    /* Byte for byte, since JSON has many spellings of the same number. */
    if (size > length && seal_of(text, size - length, seal) == length &&
        memcmp(seal, text + size - length, length) == 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_FORMAT,
                         "%s: corrupted: its last line is not the checksum (CRC-32) of the text before it",
                         path);
}
