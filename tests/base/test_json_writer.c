/* ddl/json.h: what is written is JSON with the values that went in, whatever the bytes of a string. */
#include "support/files.h"

#include "ddl/json.h"
#include "ddl/train.h"

#include <jansson.h>
#include <math.h>

static char *written(void (*write)(struct ddl_json *json))
{
    FILE *out = fopen(scratch_path("out.json"), "wb");
    struct ddl_json json = { out, false };
    write(&json);
    fclose(out);
    return read_file(scratch_path("out.json"), NULL);
}

static void one_of_each(struct ddl_json *json)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_null(json, "null");
    ddl_json_bool(json, "yes", true);
    ddl_json_count(json, "most", UINT64_MAX);
    ddl_json_open(json, "numbers", '[');
    ddl_json_number(json, NULL, 0.1, 9);
    ddl_json_number(json, NULL, 123456789012.0, 9);
    ddl_json_fixed(json, NULL, 1.5, 0);
    ddl_json_fixed(json, NULL, -0.25, 6);
    ddl_json_number(json, NULL, (double)NAN, 9);
    ddl_json_fixed(json, NULL, (double)INFINITY, 1);
    ddl_json_close(json, ']');
    ddl_json_open(json, "empty", '[');
    ddl_json_close(json, ']');
    ddl_json_string(json, "none", NULL);
    ddl_json_close(json, '}');
}

static void values(void **state)
{
    (void)state;
    char *text = written(one_of_each);
    assert_string_equal(text, "{\"null\":null,\"yes\":true,\"most\":18446744073709551615,\"numbers\":[0.1,"
                              "1.23456789e+11,2,-0.250000,null,null],\"empty\":[],\"none\":null}");
    free(text);
}

static void largest(struct ddl_json *json)
{
    ddl_json_open(json, NULL, '[');
    ddl_json_fixed(json, NULL, 1.7e308, 6);
    ddl_json_close(json, ']');
}

static void a_long_number(void **state)
{
    (void)state;
    char *text = written(largest);
    json_t *root = json_loads(text, 0, NULL);
    assert_true(json_real_value(json_array_get(root, 0)) == 1.7e308);
    json_decref(root);
    free(text);
}

static void strings_of_all_bytes(struct ddl_json *json)
{
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    ddl_json_open(json, NULL, '[');
    ddl_json_text(json, NULL, all, sizeof all);
    ddl_json_string(json, NULL, "\xc3\xa9\xf0\x9f\x98\x80");
    ddl_json_string(json, NULL, "\xed\xa0\x80"); /* a surrogate */
    ddl_json_close(json, ']');
}

static void strings(void **state)
{
    (void)state;
    char *text = written(strings_of_all_bytes);
    json_t *root = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    const char *all = json_string_value(json_array_get(root, 0));
    for (int i = 0; i < 128; i++)
        assert_int_equal(all[i], i);
    assert_int_equal(json_string_length(json_array_get(root, 0)), 128 + 3 * 128);
    assert_string_equal(json_string_value(json_array_get(root, 1)), "\xc3\xa9\xf0\x9f\x98\x80");
    assert_string_equal(json_string_value(json_array_get(root, 2)), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(root);
    free(text);
}

static void every_option(struct ddl_json *json)
{
    struct ddl_train_config t = ddl_train_defaults();
    snprintf(t.out, sizeof t.out, "a \"quoted\" folder");
    ddl_json_open(json, NULL, '{');
    for (const struct ddl_option *row = ddl_train_options(); row->name; row++)
        ddl_json_option(json, row, &t);
    ddl_json_close(json, '}');
}

static void options(void **state)
{
    (void)state;
    char *text = written(every_option);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "out")), "a \"quoted\" folder");
    assert_int_equal(json_integer_value(json_object_get(root, "batch")), 8);
    assert_true(json_real_value(json_object_get(root, "lr")) == 1e-3);
    assert_string_equal(json_string_value(json_object_get(root, "order")), "random");
    assert_string_equal(json_string_value(json_object_get(root, "warmup")), "auto");
    assert_true(json_is_false(json_object_get(root, "ignore_extra")));
    json_decref(root);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(values), cmocka_unit_test(a_long_number),
                                        cmocka_unit_test(strings), cmocka_unit_test(options) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
