#define _XOPEN_SOURCE 700
#include "support/files.h"

#include "base/file.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void write_file(const char *path, const void *data, size_t size)
{
    struct ddl_error err;
    assert_ok(ddl_file_replace(path, data, size, &err), err);
}

char *read_file(const char *path, size_t *size)
{
    struct ddl_error err;
    char *data = NULL;
    size_t n;
    assert_ok(ddl_file_read(path, (size_t)1 << 30, &data, size ? size : &n, &err), err);
    return data;
}

void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *x = read_file(a, &n), *y = read_file(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

ddl_safetensors *open_tensors(const char *folder)
{
    struct ddl_error err;
    ddl_safetensors *st;
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    return st;
}

void remove_scratch(const char *relative)
{
    const char *path = scratch_path(relative);
    struct stat st;
    if (lstat(path, &st) == 0)
        assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void copy_scratch(const char *from, const char *to)
{
    char command[8192], said[8];
    remove_scratch(to);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", scratch_path(from), scratch_path(to));
    assert_int_equal(run_command(command, said, sizeof said), 0);
}

void corrupt_file(const char *path, size_t how)
{
    size_t size;
    char *bytes = read_file(path, &size);
    bytes[size / 2] ^= 1;
    assert_int_equal(remove(path), 0);
    if (how < 2)
        write_file(path, bytes, how ? size / 2 : size);
    free(bytes);
}

void assert_says(const struct ddl_error *err, const char *gist)
{
    if (!strstr(err->text, gist))
        fail_msg("'%s' does not say '%s'", err->text, gist);
    assert_null(strchr(err->text, '\n'));
}

void write_shard(const char *path, int width, uint32_t first, uint32_t n)
{
    unsigned char *data = calloc(1, 1024 + (size_t)n * 4);
    assert_non_null(data);
    const uint32_t header[3] = { 20240520, width == 2 ? 1 : 2, n };
    for (size_t i = 0; i < sizeof header; i++)
        data[i] = (unsigned char)(header[i / 4] >> 8 * (i % 4));
    for (size_t i = 0; i < n; i++) {
        for (size_t b = 0; b < (size_t)width; b++)
            data[1024 + i * (size_t)width + b] = (unsigned char)((first + (uint32_t)i) >> 8 * b);
    }
    write_file(path, data, 1024 + (size_t)n * (size_t)width);
    free(data);
}
