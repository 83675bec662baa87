/* Tests tensor/safetensors_writer.c: round trips, and failed writes that leave no file. */
#include "support/support.h"

#include "base/file.h"
#include "base/mem.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 };
static const struct ddl_tensor plan[N] = {
    { .name = "z.weight", .dtype = DDL_F32, .ndim = 2, .shape = { 700, 801 } }, /* more than one block */
    { .name = "a \"quoted\" \\ \xc3\xa9", .dtype = DDL_F64, .ndim = 1, .shape = { 3 } },
    { .name = "scalar", .dtype = DDL_I64 },
    { .name = "none", .dtype = DDL_F16, .ndim = 2, .shape = { 0, 4 } },
    { .name = "odd", .dtype = DDL_BF16, .ndim = 3, .shape = { 1, 3, 5 } },
    { .name = "bytes", .dtype = DDL_U8, .ndim = 1, .shape = { 7 } },
};

static unsigned char byte_at(size_t tensor, size_t offset)
{
    return (unsigned char)(offset * 31 + offset / 251 + tensor * 7);
}

struct source {
    size_t calls, fail_at, last, largest;
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    struct source *source = user;
    if (++source->calls == source->fail_at)
        return ddl_error_set(err, DDL_E_INTERRUPTED, "no more");
    assert_true(i >= source->last);
    assert_int_equal(offset % 64, 0);
    source->last = i;
    source->largest = bytes > source->largest ? bytes : source->largest;
    for (size_t b = 0; b < bytes; b++)
        ((unsigned char *)to)[b] = byte_at(i, offset + b);
    return DDL_OK;
}

static void round_trip(void **state)
{
    (void)state;
    struct ddl_error err;
    struct source source = { 0 };
    const char *path = scratch_path("round.safetensors");
    assert_ok(ddl_safetensors_write(path, plan, N, fill, &source, &err), err);
    assert_true(source.calls > N && source.largest <= 1 << 20);

    struct ddl_file_map map;
    assert_ok(ddl_file_map_open(&map, path, &err), err);
    uint64_t header;
    memcpy(&header, map.data, 8);
    assert_int_equal(header % 8, 0);
    static const char start[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"z.weight\":{\"dtype\":\"F32\",\"shape\":["
        "700,801],\"data_offsets\":[0,2242800]},";
    assert_memory_equal(map.data + 8, start, sizeof start - 1);
    ddl_file_map_close(&map);

    ddl_safetensors *st;
    assert_ok(ddl_safetensors_open(&st, path, &err), err);
    assert_int_equal(ddl_safetensors_count(st), N);
    for (size_t i = 0; i < N; i++) {
        const struct ddl_tensor *t = ddl_safetensors_find(st, plan[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, plan[i].dtype);
        assert_true(ddl_tensor_has_shape(t, plan[i].ndim, plan[i].shape));
        for (size_t b = 0; b < t->bytes; b++)
            assert_int_equal(t->data[b], byte_at(i, b));
    }
    ddl_safetensors_close(st);
}

static void metadata_entries(void **state)
{
    (void)state;
    static const struct ddl_safetensors_metadata entries[] = { { "who", "us" }, { "quote", "\"\\\n" } };
    struct ddl_error err;
    ddl_safetensors *st;
    const char *path = scratch_path("noted.safetensors");
    assert_ok(ddl_safetensors_write_with_metadata(
                  path, &(struct ddl_safetensors_content){ .entries = entries, .n_entries = 2 }, &err),
              err);
    assert_ok(ddl_safetensors_open(&st, path, &err), err);
    assert_string_equal(ddl_safetensors_metadata(st, "format"), "pt");
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(ddl_safetensors_metadata(st, entries[i].key), entries[i].value);
    ddl_safetensors_close(st);
    const struct ddl_safetensors_metadata bad = { "who", "\xff" };
    assert_int_equal(ddl_safetensors_write_with_metadata(
                         path, &(struct ddl_safetensors_content){ .entries = &bad, .n_entries = 1 }, &err),
                     DDL_E_MEMORY);
}

static void nothing_to_write(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    const char *path = scratch_path("nothing.safetensors");
    assert_ok(ddl_safetensors_write(path, NULL, 0, fill, NULL, &err), err);
    assert_ok(ddl_safetensors_open(&st, path, &err), err);
    assert_int_equal(ddl_safetensors_count(st), 0);
    ddl_safetensors_close(st);
}

static void failures_leave_the_old_file(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *path = scratch_path("kept.safetensors");
    assert_ok(ddl_file_replace(path, "old", 3, &err), err);
    for (size_t at = 1; at <= 5; at++) {
        struct source source = { .fail_at = at };
        assert_int_equal(ddl_safetensors_write(path, plan, N, fill, &source, &err), DDL_E_INTERRUPTED);
        assert_string_equal(err.text, "no more");
    }
    struct ddl_tensor twice[2] = { plan[2], plan[2] };
    struct source source = { 0 };
    assert_int_equal(ddl_safetensors_write(path, twice, 2, fill, &source, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "duplicate tensor scalar"));
    twice[1] = (struct ddl_tensor){ .name = "big", .dtype = DDL_F32, .ndim = 1, .shape = { SIZE_MAX } };
    assert_int_equal(ddl_safetensors_write(path, twice, 2, fill, &source, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "big: the shape is too large"));
    assert_int_equal(source.calls, 0);
    char *text;
    size_t size;
    assert_ok(ddl_file_read(path, 10, &text, &size, &err), err);
    assert_string_equal(text, "old");
    free(text);
    char command[2200], out[200];
    snprintf(command, sizeof command, "ls '%s' | grep -c tmp", scratch_path("."));
    run_command(command, out, sizeof out);
    assert_string_equal(out, "0\n");
    assert_int_equal(ddl_safetensors_write(scratch_path("no/such/folder"), plan, N, fill, &source, &err),
                     DDL_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(metadata_entries),
        cmocka_unit_test(nothing_to_write),
        cmocka_unit_test(failures_leave_the_old_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
