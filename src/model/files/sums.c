#define _POSIX_C_SOURCE 200809L
#include "model/files/sums.h"

#include "model/files/model_io.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    PATH_SIZE = 1280,
    SEAL_SIZE = sizeof ",\n  \"crc32\": \"01234567\"\n}\n",
    VERSION = 1,
    MAX_SUMS = 4 << 20
};

static uint32_t add_crc32(uint32_t sum, const void *data, size_t size)
{
    return (uint32_t)crc32_z(sum, data, size);
}

static const struct {
    const char *key, *name;
    ddl_sum_fn *add;
} kinds[] = {
    [DDL_SUM_CRC32] = { "crc32", "CRC-32", add_crc32 },
    [DDL_SUM_CRC32C] = { "crc32c", "CRC-32C", ddl_crc32c_add },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- any files ---- */

static ddl_status path_of(char *path, const char *folder, const char *name, struct ddl_error *err)
{
    if (ddl_path_join(path, PATH_SIZE, folder, name))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
}

static ddl_status put(json_t *sums, const char *folder, const char *name, enum ddl_sum_kind kind,
                      uint64_t size, uint32_t sum, struct ddl_error *err)
{
    json_t *entry = json_pack("{s:I, s:I}", "size", (json_int_t)size, kinds[kind].key, (json_int_t)sum);
    if (json_object_set_new(sums, name, entry) == 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its checksums", folder);
}

ddl_status ddl_sums_take(json_t *sums, const char *folder, const char *name, enum ddl_sum_kind kind,
                         struct ddl_error *err)
{
    char path[PATH_SIZE];
    uint64_t size;
    uint32_t sum;
    ddl_status status = path_of(path, folder, name, err);
    if (status || !ddl_file_exists(path))
        return status;
    status = ddl_file_sum(path, kinds[kind].add, &size, &sum, err);
    return status ? status : put(sums, folder, name, kind, size, sum, err);
}

/* The kind whose key is in an entry; N_KINDS without one. */
static size_t kind_of(const json_t *wanted)
{
    size_t kind = 0;
    while (kind < N_KINDS && !json_is_integer(json_object_get(wanted, kinds[kind].key)))
        kind++;
    return kind;
}

static ddl_status check_file(const char *folder, const char *from, const char *name, const json_t *wanted,
                             struct ddl_error *err)
{
    char path[PATH_SIZE];
    uint64_t size;
    uint32_t sum;
    const size_t kind = kind_of(wanted);
    const json_t *wanted_size = json_object_get(wanted, "size");
    if (strchr(name, '/') || !json_is_integer(wanted_size) || kind == N_KINDS)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s/%s: files: '%.80s' is not a file with a size and a checksum", folder, from,
                             name);
    const long long expected_size = (long long)json_integer_value(wanted_size);
    const unsigned long long expected =
        (unsigned long long)json_integer_value(json_object_get(wanted, kinds[kind].key));
    ddl_status status = path_of(path, folder, name, err);
    if (!status)
        status = ddl_file_sum(path, kinds[kind].add, &size, &sum, err);
    if (status)
        return status;
    if ((long long)size != expected_size)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s: expected %lld bytes, found %llu", path,
                             (long long)size < expected_size ? "truncated" : "corrupted", expected_size,
                             (unsigned long long)size);
    if (sum != expected)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: corrupted: expected checksum (%s) %08llx, found %08lx",
                             path, kinds[kind].name, expected, (unsigned long)sum);
    return DDL_OK;
}

ddl_status ddl_sums_check(const char *folder, const char *from, const json_t *sums, const char *only,
                          struct ddl_error *err)
{
    const char *name;
    json_t *wanted;
    if (!json_is_object(sums))
        return ddl_error_set(err, DDL_E_FORMAT, "%s/%s: the key files is missing", folder, from);
    json_object_foreach((json_t *)(uintptr_t)sums, name, wanted)
    {
        ddl_status status =
            only && strcmp(only, name) != 0 ? DDL_OK : check_file(folder, from, name, wanted, err);
        if (status)
            return status;
    }
    return DDL_OK;
}

/* ---- the last line ---- */

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

/* ---- checksums.json of a model folder ---- */

static const char sums_file[] = "checksums.json", files_key[] = "files", previous_key[] = "previous";

const char *const ddl_companion_files[] = {
    "tokenizer.json",
    "vocab.bpe",
    "encoder.json",
    "merges.txt",
    "vocab.json",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "generation_config.json",
    NULL,
};

static ddl_status read_sums(json_t **root, const char *path, struct ddl_error *err)
{
    char *text = NULL;
    size_t size;
    *root = NULL;
    ddl_status status = ddl_file_read(path, MAX_SUMS, &text, &size, err);
    if (!status)
        status = ddl_sums_check_seal(path, text, size, err);
    if (!status)
        status = ddl_json_parse_file(root, path, text, size, MAX_SUMS, err);
    free(text);
    const json_t *version = json_object_get(*root, "version");
    if (status || (json_is_integer(version) && json_integer_value(version) == VERSION))
        return status;
    json_decref(*root);
    *root = NULL;
    return ddl_error_set(err, DDL_E_FORMAT, "%s: expected version %d, found another", path, VERSION);
}

/* The set of checksums that the files have: of the model, or of the one that it replaces where a save was
 * interrupted. NULL, with the error of the former, if they have neither. */
static const json_t *matching(const char *folder, const json_t *root, const char *only, struct ddl_error *err)
{
    const json_t *files = json_object_get(root, files_key), *previous = json_object_get(root, previous_key);
    if (!ddl_sums_check(folder, sums_file, files, only, err))
        return files;
    return json_is_object(previous) && !ddl_sums_check(folder, sums_file, previous, only, NULL) ? previous
                                                                                                : NULL;
}

static ddl_status check_model(const char *folder, const char *only, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root;
    struct ddl_error why = { 0 };
    ddl_status status = path_of(path, folder, sums_file, err);
    if (status || !ddl_file_exists(path))
        return status;
    status = read_sums(&root, path, &why);
    if (!status && !matching(folder, root, only, &why))
        status = why.status;
    json_decref(root);
    if (status == DDL_E_FORMAT || status == DDL_E_IO)
        return ddl_error_set(err, status,
                             "%.700s; restore the file from a copy, or, if it was changed on purpose, remove "
                             "%.300s (--no-verify, where a command has it, skips the check)",
                             why.text, path);
    if (status && err)
        *err = why;
    return status;
}

ddl_status ddl_model_sums_check(const char *folder, struct ddl_error *err)
{
    ddl_status status = check_model(folder, NULL, err);
    return status ? status : ddl_safetensors_verify_folder(folder, err);
}

ddl_status ddl_model_sums_check_file(const char *folder, const char *name, struct ddl_error *err)
{
    return check_model(folder, name, err);
}

bool ddl_model_save_is_pending(const char *folder)
{
    char path[PATH_SIZE];
    json_t *root;
    if (path_of(path, folder, sums_file, NULL) || !ddl_file_exists(path) || read_sums(&root, path, NULL))
        return false;
    bool pending = json_object_get(root, previous_key) != NULL;
    json_decref(root);
    return pending;
}

ddl_status ddl_model_sums_begin(struct ddl_model_sums *sums, const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE];
    json_t *root = NULL;
    *sums = (struct ddl_model_sums){ .files = json_object() };
    ddl_status status = sums->files
                            ? path_of(path, folder, sums_file, err)
                            : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its checksums", folder);
    if (!status && ddl_file_exists(path) && !read_sums(&root, path, NULL))
        sums->previous = json_incref((json_t *)(uintptr_t)matching(folder, root, NULL, NULL));
    json_decref(root);
    for (size_t i = 0; ddl_companion_files[i] && !status; i++)
        status = ddl_model_sums_take(sums, folder, ddl_companion_files[i], err);
    return status;
}

void ddl_model_sums_end(struct ddl_model_sums *sums)
{
    json_decref(sums->files);
    json_decref(sums->previous);
    *sums = (struct ddl_model_sums){ 0 };
}

ddl_status ddl_model_sums_put(struct ddl_model_sums *sums, const char *name, uint64_t size, uint32_t crc32c,
                              struct ddl_error *err)
{
    return put(sums->files, name, name, DDL_SUM_CRC32C, size, crc32c, err);
}

ddl_status ddl_model_sums_take(struct ddl_model_sums *sums, const char *folder, const char *name,
                               struct ddl_error *err)
{
    return ddl_sums_take(sums->files, folder, name, DDL_SUM_CRC32C, err);
}

ddl_status ddl_model_sums_write(const struct ddl_model_sums *sums, const char *folder, bool previous,
                                struct ddl_error *err)
{
    char path[PATH_SIZE];
    ddl_status status = path_of(path, folder, sums_file, err);
    if (status)
        return status;
    json_t *root = json_pack("{s:i, s:O}", "version", VERSION, files_key, sums->files);
    bool whole =
        root && (!previous || !sums->previous || json_object_set(root, previous_key, sums->previous) == 0);
    char *text = whole ? ddl_sums_seal(root) : NULL;
    status = text ? ddl_file_replace(path, text, strlen(text), err)
                  : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    free(text);
    json_decref(root);
    return status;
}
