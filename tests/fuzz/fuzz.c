#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include "base/file.h"
#include "base/mem.h"
#include "tensor/tensor.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAME = 40, MAX_FILES = 16, MAX_NUMBERS = 1 << 17 };

void fuzz_check(bool kept, const char *condition, const char *file, int line)
{
    if (kept)
        return;
    fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
    abort();
}

bool fuzz_ok(ddl_status status, const struct ddl_error *err)
{
    if (!status)
        return true;
    FUZZ_CHECK(err->status == status);
    FUZZ_CHECK(err->text[0] != '\0' && memchr(err->text, '\0', sizeof err->text));
    FUZZ_CHECK(!strpbrk(err->text, "\n\r\033"));
    return false;
}

/* ---- numbers ---- */

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Returns the offset of the number with index `wanted`, or size; *n is how many numbers the text has. */
static size_t find_number(const uint8_t *data, size_t size, size_t wanted, size_t *n)
{
    size_t found = size;
    *n = 0;
    for (size_t i = 0; i < size; i++) {
        if (!is_digit(data[i]) || (i && is_digit(data[i - 1])))
            continue;
        if ((*n)++ == wanted)
            found = i;
    }
    return found;
}

/* Picks a boundary value or a neighbor of the old value. */
static int choose_number(char *text, size_t size, unsigned long long old, unsigned int seed)
{
    static const char *const edges[] = { "0",
                                         "1",
                                         "-1",
                                         "4",
                                         "64",
                                         "65",
                                         "512",
                                         "4096",
                                         "65535",
                                         "65536",
                                         "1048576",
                                         "16777217",
                                         "2147483647",
                                         "2147483648",
                                         "4294967295",
                                         "4294967296",
                                         "1e400",
                                         "0.5",
                                         "1e-30",
                                         "4611686018427387904",
                                         "1000000007",
                                         "33554432",
                                         "9007199254740993",
                                         "9223372036854775807",
                                         "18446744073709551615",
                                         "99999999999999999999" };
    enum { EDGES = sizeof edges / sizeof *edges };
    const unsigned long long near[] = { old + 1, old - 1, 2 * old, 2 * old + 1, 10 * old, old / 2 };
    enum { NEAR = sizeof near / sizeof *near };
    unsigned int choice = seed % (EDGES + 3 * NEAR);
    if (choice < EDGES)
        return snprintf(text, size, "%s", edges[choice]);
    return snprintf(text, size, "%llu", near[choice % NEAR]);
}

size_t fuzz_mutate_number(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    size_t n;
    char text[32];
    (void)find_number(data, size, SIZE_MAX, &n);
    if (seed % 2 || n == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    unsigned int random = seed * 2654435761u;
    size_t at = find_number(data, size, random % n, &n), end = at;
    unsigned long long old = 0;
    for (; end < size && is_digit(data[end]); end++)
        old = 10 * old + (unsigned)(data[end] - '0');
    size_t length = (size_t)choose_number(text, sizeof text, old, random >> 8);
    if (size - (end - at) + length > max_size)
        return size;
    memmove(data + at + length, data + end, size - end);
    memcpy(data + at, text, length);
    return size - (end - at) + length;
}

/* ---- files ---- */

static char folder[256];

static void empty_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        fuzz_remove(entry->d_name);
    if (dir)
        closedir(dir);
}

void fuzz_remove(const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return;
    const char *path = fuzz_path(name);
    DIR *dir = ddl_file_is_dir(path) ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    (void)remove(path);
}

static void remove_folder(void)
{
    empty_folder();
    (void)rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (*folder)
        return folder;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/ddl-fuzz-XXXXXX", parent && *parent ? parent : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    FUZZ_CHECK(atexit(remove_folder) == 0);
    return folder;
}

const char *fuzz_path(const char *name)
{
    static char paths[8][512];
    static size_t next;
    char *path = paths[next++ % (sizeof paths / sizeof *paths)];
    FUZZ_CHECK(ddl_path_join(path, sizeof *paths, fuzz_folder(), name));
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    const char *path = fuzz_path(name);
    FILE *out = fopen(path, "wb");
    FUZZ_CHECK(out != NULL);
    FUZZ_CHECK(size == 0 || fwrite(data, 1, size, out) == size);
    FUZZ_CHECK(fclose(out) == 0);
    return path;
}

/* ---- safetensors with a textual header ---- */

static bool measure(const json_t *entry, struct ddl_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    *t = (struct ddl_tensor){ .ndim = json_array_size(shape) };
    if (!dtype || !ddl_dtype_parse(dtype, &t->dtype) || !json_is_array(shape) || t->ndim > DDL_MAX_DIMS)
        return false;
    for (size_t i = 0; i < t->ndim; i++)
        t->shape[i] = (size_t)json_integer_value(json_array_get(shape, i));
    return ddl_tensor_measure(t);
}

/* Moderate values with period 17: floats around zero, integers from 0 to 2. */
static void put_number(enum ddl_dtype dtype, size_t i, unsigned char *to)
{
    const float f = (float)((int)(i * 7 % 17) - 8) / 16;
    const double g = (double)f;
    const int64_t whole = (int64_t)(i % 3);
    size_t size = ddl_dtype_size(dtype);
    if (dtype == DDL_F32)
        memcpy(to, &f, size);
    else if (dtype == DDL_F64)
        memcpy(to, &g, size);
    else
        memcpy(to, &whole, size);
}

/* Assigns the entry's offsets after `used` bytes of data and fills in its values; returns the new `used`. */
static size_t place(json_t *entry, unsigned char *data, size_t used)
{
    struct ddl_tensor t;
    if (json_object_get(entry, "data_offsets") || !measure(entry, &t) || t.bytes > MAX_NUMBERS - used)
        return used;
    for (size_t i = 0; i < t.count; i++)
        put_number(t.dtype, i, data + used + i * ddl_dtype_size(t.dtype));
    size_t end = used + t.bytes;
    json_object_set_new(entry, "data_offsets", json_pack("[I, I]", (json_int_t)used, (json_int_t)end));
    return end;
}

static void write_spelled(const char *name, const char *text, size_t size)
{
    static unsigned char data[MAX_NUMBERS];
    size_t used = 0;
    json_t *header = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) used = place(entry, data, used);
    char *spelled = header ? json_dumps(header, JSON_COMPACT) : NULL;
    uint64_t length = spelled ? strlen(spelled) : size;
    FILE *out = fopen(fuzz_path(name), "wb");
    FUZZ_CHECK(out != NULL);
    fwrite(&length, 1, sizeof length, out);
    fwrite(spelled ? spelled : text, 1, (size_t)length, out);
    fwrite(data, 1, used, out);
    FUZZ_CHECK(fclose(out) == 0);
    free(spelled);
    json_decref(header);
}

/* ---- archives ---- */

static const char mark[] = "@@@ ";

/* Returns the next mark at the start of a line, or the end. */
static const char *next_mark(const char *at, const char *begin, const char *end)
{
    for (; at < end; at++) {
        if ((size_t)(end - at) > sizeof mark - 1 && memcmp(at, mark, sizeof mark - 1) == 0 &&
            (at == begin || at[-1] == '\n'))
            return at;
    }
    return end;
}

static bool is_name(const char *text, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return size > 0 && *text != '.' && strspn(text, letters) == size;
}

/* Parses "NAME" or "FOLDER/NAME" and creates the folder. */
static bool copy_name(char name[MAX_NAME + 1], const char *text, size_t size)
{
    struct ddl_error err;
    if (size > MAX_NAME || memchr(text, '\0', size))
        return false;
    memcpy(name, text, size);
    name[size] = '\0';
    char *slash = strchr(name, '/');
    if (!slash)
        return is_name(name, size);
    if (!is_name(name, (size_t)(slash - name)) || !is_name(slash + 1, strlen(slash + 1)))
        return false;
    *slash = '\0';
    bool made = !ddl_file_exists(fuzz_path(name)) && ddl_file_make_dir(fuzz_path(name), &err) == DDL_OK;
    bool usable = made || ddl_file_is_dir(fuzz_path(name));
    *slash = '/';
    return usable;
}

static void write_member(const char *name, const char *text, size_t size)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(name);
    bool tensors = length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0;
    if (tensors && size && *text == '{')
        write_spelled(name, text, size);
    else
        fuzz_file(name, text, size);
}

bool fuzz_is_archive(const uint8_t *data, size_t size)
{
    return size > sizeof mark && memcmp(data, mark, sizeof mark - 1) == 0;
}

void fuzz_unpack(const uint8_t *data, size_t size)
{
    const char *begin = (const char *)data, *end = begin + size;
    (void)fuzz_folder();
    empty_folder();
    const char *at = next_mark(begin, begin, end);
    for (size_t n = 0; at < end && n < MAX_FILES; n++) {
        char name[MAX_NAME + 1];
        const char *text = at + sizeof mark - 1, *line = memchr(text, '\n', (size_t)(end - text));
        if (!line)
            return;
        at = next_mark(line + 1, begin, end);
        /* The line break before a mark is not part of the file; the last file has no mark after it. */
        const char *stop = at < end && at > line + 1 ? at - 1 : at;
        if (copy_name(name, text, (size_t)(line - text)) && !ddl_file_is_dir(fuzz_path(name)))
            write_member(name, line + 1, (size_t)(stop - line - 1));
    }
}

/* ---- shared objects, created once ---- */

ddl_backend *fuzz_backend(void)
{
    static ddl_backend *backend;
    struct ddl_error err;
    if (!backend)
        FUZZ_CHECK(ddl_backend_create(&backend, "ref", 1, &err) == DDL_OK);
    return backend;
}

const ddl_tokenizer *fuzz_tokenizer(void)
{
    static ddl_tokenizer *tokenizer;
    static const char text[] = "the cat and the dog, the end; there then";
    struct ddl_error err;
    if (tokenizer)
        return tokenizer;
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = 270;
    config.min_frequency = 1;
    const char *files[] = { fuzz_file("learn.txt", text, sizeof text - 1) };
    FUZZ_CHECK(ddl_tokenizer_train(&tokenizer, &config, files, 1, NULL, NULL, &err) == DDL_OK);
    fuzz_remove("learn.txt");
    return tokenizer;
}
