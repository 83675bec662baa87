/* Tests tensor/safetensors.c: every kind of invalid header, golden files, folders with an index. */
#include "support/memory.h"
#include "support/support.h"

#include "base/file.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes length, header and `data_size` bytes 0, 1, 2, ... */
static const char *make(const char *name, uint64_t length, const char *header, size_t data_size)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&length, 1, 8, f);
    fputs(header, f);
    for (size_t i = 0; i < data_size; i++)
        fputc((int)(i & 255), f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void put(const char *name, const char *text)
{
    struct ddl_error err;
    assert_ok(ddl_file_replace(scratch_path(name), text, strlen(text), &err), err);
}

#define ONE(dtype, shape, offsets)                                                                           \
    "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                                   \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "},"                                    \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

static void broken_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *message;
        size_t data;
    } cases[] = {
        { "", "header is not valid JSON", 0 },
        { "nonsense", "header is not valid JSON", 0 },
        { "[1]", "header is not a JSON object", 0 },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
          "duplicate tensor a", 0 },
        { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "duplicate object key", 0 },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", "duplicate object key", 0 },
        { "{\"__metadata__\":{\"b\":\"\",\"a\":\"\",\"b\":\"x\"}}",
          "__metadata__: duplicate object key \"b\"", 0 },
        { "{\"a\\u0000\":{}}", "header is not valid JSON: NUL byte in a key", 0 },
        { "{\"a\":7}", "a: no dtype in the header", 0 },
        { "{\"a\":{\"shape\":[1]}}", "a: no dtype in the header", 0 },
        { ONE("7", "[1]", "[0,4]"), "a: no dtype in the header", 4 },
        { ONE("\"F31\"", "[1]", "[0,4]"), "a: unknown dtype 'F31'", 4 },
        { ONE("\"F32\"", "4", "[0,4]"), "a: no shape list in the header", 4 },
        { ONE("\"F32\"", "[-1]", "[0,4]"), "a: dimension 0 of the shape is not a nonnegative integer", 4 },
        { ONE("\"F32\"", "[1, 1.0]", "[0,4]"), "a: dimension 1 of the shape is not a nonnegative integer",
          4 },
        { ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "a: 9 dimensions exceed the limit of 8", 4 },
        { ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "a: the shape is too large", 0 },
        { ONE("\"F32\"", "[4611686018427387904]", "[0,0]"), "a: the shape is too large", 0 },
        { ONE("\"F32\"", "[99999999999999999999]", "[0,0]"),
          "a: dimension 0 of the shape is not a nonnegative integer", 0 },
        { ONE("\"F32\"", "[1]", "[0]"), "a: data_offsets: expected two nonnegative integers", 4 },
        { ONE("\"F32\"", "[1]", "[0,4,8]"), "a: data_offsets: expected two nonnegative integers", 8 },
        { ONE("\"F32\"", "[1]", "[-4,0]"), "a: data_offsets: expected two nonnegative integers", 4 },
        { ONE("\"F32\"", "[1]", "\"x\""), "a: data_offsets: expected two nonnegative integers", 4 },
        { ONE("\"F32\"", "[1]", "[4,0]"), "a: data_offsets: the end is before the begin: 4 to 0", 4 },
        { ONE("\"F32\"", "[2]", "[0,8]"), "truncated: expected 70 bytes, found 66", 4 },
        { ONE("\"F32\"", "[3]", "[0,8]"), "a: expected 12 bytes (shape (3), dtype F32), found 8", 8 },
        { ONE("\"F32\"", "[1]", "[0,4]"), "3 bytes after the last tensor belong to no tensor", 7 },
        { ONE("\"F32\"", "[1]", "[4,8]"), "4 bytes before a belong to no tensor", 8 },
        { "{}", "2 bytes after the last tensor belong to no tensor", 2 },
        { TWO("[0,4]", "[2,6]"), "b overlaps a", 6 },
        { TWO("[0,4]", "[0,4]"), "overlaps", 4 },
        { TWO("[0,4]", "[6,10]"), "2 bytes before b belong to no tensor", 10 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path =
            make("broken.safetensors", strlen(cases[i].header), cases[i].header, cases[i].data);
        ddl_safetensors *st;
        struct ddl_error err;
        assert_int_equal(ddl_safetensors_open(&st, path, &err), DDL_E_FORMAT);
        assert_null(st);
        if (!strstr(err.text, cases[i].message) || strncmp(err.text, path, strlen(path)) != 0)
            fail_msg("case %zu: expected '%s', found '%s'", i, cases[i].message, err.text);
    }
}

static void broken_lengths(void **state)
{
    (void)state;
    ddl_safetensors *st;
    struct ddl_error err;
    put("short.safetensors", "1234567");
    assert_int_equal(ddl_safetensors_open(&st, scratch_path("short.safetensors"), &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "truncated: expected at least 8 bytes, found 7"));
    put("empty.safetensors", "");
    assert_int_equal(ddl_safetensors_open(&st, scratch_path("empty.safetensors"), &err), DDL_E_FORMAT);
    assert_int_equal(ddl_safetensors_open(&st, make("long.safetensors", 3, "{}", 0), &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "truncated: expected at least 11 bytes, found 10"));
    assert_int_equal(ddl_safetensors_open(&st, make("huge.safetensors", UINT64_MAX, "{}", 0), &err),
                     DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "header of 18446744073709551615 bytes exceeds the limit of 100000000"));
    assert_int_equal(ddl_safetensors_open(&st, scratch_path("absent.safetensors"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "cannot open"));
    ddl_safetensors_close(NULL);
}

/* Every proper prefix of a valid file is rejected with a message that starts with the file name. */
static void truncation(void **state)
{
    (void)state;
    char *whole;
    size_t size;
    struct ddl_error err;
    assert_ok(ddl_file_read(source_path("tests/golden/block/elementwise.safetensors"), 1 << 20, &whole, &size,
                            &err),
              err);
    for (size_t cut = 0; cut < size; cut += cut < 200 ? 1 : 97) {
        ddl_safetensors *st;
        assert_ok(ddl_file_replace(scratch_path("cut.safetensors"), whole, cut, &err), err);
        assert_int_equal(ddl_safetensors_open(&st, scratch_path("cut.safetensors"), &err), DDL_E_FORMAT);
        assert_non_null(strstr(err.text, "cut.safetensors: "));
    }
    free(whole);
}

static void unusual_but_valid(void **state)
{
    (void)state;
    ddl_safetensors *st;
    struct ddl_error err;
    /* Padding after the header, metadata, entries out of order, an empty tensor, a scalar, an unaligned
     * float. */
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"late\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[3,7]},"
                         "\"none\":{\"dtype\":\"F64\",\"shape\":[0,5],\"data_offsets\":[3,3]},"
                         "\"first\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}    ";
    assert_ok(ddl_safetensors_open(&st, make("odd.safetensors", strlen(header), header, 7), &err), err);
    assert_int_equal(ddl_safetensors_count(st), 3);
    assert_string_equal(ddl_safetensors_at(st, 0)->name, "first");
    assert_string_equal(ddl_safetensors_at(st, 1)->name, "none");
    assert_string_equal(ddl_safetensors_at(st, 2)->name, "late");
    const struct ddl_tensor *late = ddl_safetensors_find(st, "late");
    assert_ptr_equal(late, ddl_safetensors_at(st, 2));
    assert_int_equal(late->ndim, 0);
    assert_int_equal(late->count, 1);
    assert_int_equal(late->data[0], 3);
    float value, expected;
    assert_ok(ddl_tensor_read_f32(late, 0, 1, &value, &err), err);
    memcpy(&expected, (unsigned char[]){ 3, 4, 5, 6 }, 4);
    assert_true(value == expected);
    assert_null(ddl_safetensors_find(st, "__metadata__"));
    assert_string_equal(ddl_safetensors_metadata(st, "format"), "pt");
    assert_null(ddl_safetensors_metadata(st, "forma"));
    assert_null(ddl_safetensors_find(st, "lat"));
    ddl_safetensors_close(st);
    assert_ok(ddl_safetensors_open(&st, make("none.safetensors", 2, "{}", 0), &err), err);
    assert_int_equal(ddl_safetensors_count(st), 0);
    assert_null(ddl_safetensors_find(st, "a"));
    assert_null(ddl_safetensors_metadata(st, "format"));
    ddl_safetensors_close(st);
    /* Keys of an entry in another order; metadata last, with values that are not strings. */
    const char *reordered =
        "{ \"a\" : { \"data_offsets\":[0,2],\"x\":null,\"shape\":[1],\"dtype\":\"BF16\"},\n"
        "\"__metadata__\":{\"n\":7,\"who\":\"us\"}}";
    assert_ok(ddl_safetensors_open(&st, make("reordered.safetensors", strlen(reordered), reordered, 2), &err),
              err);
    assert_int_equal(ddl_safetensors_find(st, "a")->dtype, DDL_BF16);
    assert_null(ddl_safetensors_metadata(st, "n"));
    assert_string_equal(ddl_safetensors_metadata(st, "who"), "us");
    ddl_safetensors_close(st);
}

/* A header of many values that are no tensors is refused after a few of them: a tree of all would take
 * gigabytes. */
static void large_headers(void **state)
{
    (void)state;
    enum { SIZE = 24 << 20, LIMIT = 12 << 20 };
    static const struct {
        const char *before, *unit, *after, *message;
    } cases[] = {
        { "", "{},", "", "header is not valid JSON" },
        { "[", "{},", "0]", "header is not a JSON object" },
        { "{\"a\":[", "{},", "0]}", "a: the entry in the header exceeds the limit of 4096 bytes" },
        { "{\"a\":{\"x\":[", "{},", "0]}}", "a: the entry in the header exceeds the limit of 4096 bytes" },
        { "{\"a\":{\"x\":\"", "abc", "\"}}", "a: the entry in the header exceeds the limit of 4096 bytes" },
        { "{\"a\":{\"shape\":[", "1,", "1]}}", "a: the entry in the header exceeds the limit of 4096 bytes" },
        { "{\"__metadata__\":{\"x\":[", "{},", "0]}}", "__metadata__ exceeds the limit of 4 MiB" },
        { "{\"__metadata__\":{\"x\":\"", "abc", "\"}}", "__metadata__ exceeds the limit of 4 MiB" },
        { "{\"", "abc", "\":{}}", "a key or string is too long" },
        { "{", "    ", "}", "too much white space" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path("large.safetensors"), *unit = cases[i].unit;
        uint64_t length = 0;
        char block[3 << 12];
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fwrite(&length, 1, 8, f);
        fputs(cases[i].before, f);
        for (size_t k = 0; k < sizeof block; k++)
            block[k] = unit[k % strlen(unit)];
        for (; length < SIZE; length += sizeof block)
            fwrite(block, 1, sizeof block, f);
        fputs(cases[i].after, f);
        length = (uint64_t)ftell(f) - 8;
        rewind(f);
        fwrite(&length, 1, 8, f);
        assert_int_equal(fclose(f), 0);
        ddl_safetensors *st;
        struct ddl_error err;
        size_t before = peak_memory();
        assert_int_equal(ddl_safetensors_open(&st, path, &err), DDL_E_FORMAT);
        if (!strstr(err.text, cases[i].message))
            fail_msg("case %zu: expected '%s', found '%s'", i, cases[i].message, err.text);
        assert_in_range(peak_memory() - before, 0, LIMIT);
    }
}

static void golden_files(void **state)
{
    (void)state;
    ddl_safetensors *st;
    struct ddl_error err;
    const char *folder = source_path("tests/golden/ddl-cc-ec");
    assert_true(ddl_safetensors_in_folder(folder));
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    const struct ddl_tensor *t = ddl_safetensors_find(st, "input_embed.conv.weight");
    assert_non_null(t);
    assert_true(ddl_tensor_has_shape(t, 3, (const size_t[]){ 96, 1, 4 }));
    assert_int_equal(t->dtype, DDL_F32);
    float before[384], after[384]; /* released pages are read from the file again */
    assert_ok(ddl_tensor_read_f32(t, 0, 384, before, &err), err);
    for (size_t start = 0; start < 384; start += 128)
        ddl_safetensors_release(st, t, start, 128);
    assert_ok(ddl_tensor_read_f32(t, 0, 384, after, &err), err);
    assert_memory_equal(before, after, sizeof before);
    ddl_safetensors_close(st);
    assert_ok(ddl_safetensors_open(&st, source_path("tests/golden/ddl-cc-ec/expect.safetensors"), &err), err);
    t = ddl_safetensors_find(st, "tokens");
    assert_true(t && t->count == 22);
    int64_t tokens[22];
    assert_ok(ddl_tensor_read_i64(t, tokens, &err), err);
    for (int i = 0; i < 22; i++)
        assert_true(tokens[i] >= 0 && tokens[i] < 97);
    ddl_safetensors_close(st);
    /* X' = X + k (beta (v - k^T X)) for d = c = 1 and k close to 1: checks values, not only bytes. */
    assert_ok(ddl_safetensors_open(&st, source_path("tests/golden/operator/d1-c1.safetensors"), &err), err);
    static const char *const names[] = { "X", "Xp", "beta", "q", "v" };
    double n[5][6];
    for (int i = 0; i < 5; i++) {
        t = ddl_safetensors_find(st, names[i]);
        assert_true(t && t->count == 6 && t->dtype == DDL_F64);
        assert_ok(ddl_tensor_read_f64(t, n[i], &err), err);
    }
    for (int r = 0; r < 6; r++) {
        double kk = n[3][r] * n[3][r], k = n[3][r] / sqrt(kk + 1e-10);
        double expected = n[0][r] + k * n[2][r] * (n[4][r] - k * n[0][r]);
        assert_true(fabs(n[1][r] - expected) < 1e-12);
    }
    ddl_safetensors_close(st);
}

static void make_part(const char *name, const char *tensor)
{
    char header[200];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
             tensor);
    make(name, strlen(header), header, 2);
}

static void folder_with_index(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    assert_ok(ddl_file_make_dir(scratch_path("parts"), &err), err);
    make_part("parts/one.safetensors", "a");
    make_part("parts/two.safetensors", "b");
    make_part("parts/same.safetensors", "a");
    make_part("outside.safetensors", "b");
#define INDEX "parts/model.safetensors.index.json"
    put(INDEX, "{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    assert_true(ddl_safetensors_in_folder(scratch_path("parts")));
    assert_ok(ddl_safetensors_open_folder(&st, scratch_path("parts"), &err), err);
    assert_int_equal(ddl_safetensors_count(st), 2);
    const struct ddl_tensor *b = ddl_safetensors_find(st, "b");
    assert_non_null(b);
    assert_non_null(strstr(ddl_safetensors_path(st, b), "parts/two.safetensors"));
    ddl_safetensors_close(st);

    static const struct {
        const char *index, *message;
        ddl_status status;
    } cases[] = {
        { "{", "not valid JSON", DDL_E_FORMAT },
        { "{}", "no weight_map", DDL_E_FORMAT },
        { "{\"weight_map\":{\"b\":\"../outside.safetensors\"}}",
          "b: '../outside.safetensors' is not the name of", DDL_E_FORMAT },
        { "{\"weight_map\":{\"b\":\"..\"}}", "is not the name of a file in the same folder", DDL_E_FORMAT },
        { "{\"weight_map\":{\"b\":\"\"}}", "is not the name of a file in the same folder", DDL_E_FORMAT },
        { "{\"weight_map\":{\"b\":7}}", "is not the name of a file in the same folder", DDL_E_FORMAT },
        { "{\"weight_map\":{\"b\":\"one.safetensors\"}}", "b is not in one.safetensors", DDL_E_FORMAT },
        { "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\",\"c\":\"two.safetensors\"}}",
          "b is not in one.safetensors", DDL_E_FORMAT },
        { "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"same.safetensors\"}}",
          "duplicate tensor a: also in", DDL_E_FORMAT },
        { "{\"weight_map\":{\"a\":\"absent.safetensors\"}}", "absent.safetensors: cannot open", DDL_E_IO },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(INDEX, cases[i].index);
        assert_int_equal(ddl_safetensors_open_folder(&st, scratch_path("parts"), &err), cases[i].status);
        assert_null(st);
        if (!strstr(err.text, cases[i].message))
            fail_msg("case %zu: expected '%s', found '%s'", i, cases[i].message, err.text);
    }
    assert_ok(ddl_file_make_dir(scratch_path("nothing"), &err), err);
    assert_false(ddl_safetensors_in_folder(scratch_path("nothing")));
    assert_int_equal(ddl_safetensors_open_folder(&st, scratch_path("nothing"), &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "nothing/model.safetensors: cannot open"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_headers),    cmocka_unit_test(broken_lengths), cmocka_unit_test(truncation),
        cmocka_unit_test(unusual_but_valid), cmocka_unit_test(large_headers),  cmocka_unit_test(golden_files),
        cmocka_unit_test(folder_with_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
