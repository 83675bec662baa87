/* base/json.c: what jansson reads from a buffer, however the text falls into pieces; its errors with their
 * places. What happens without memory is tested in tests/oom/. */
#include "support/files.h"

#include "base/json.h"

static void same_values(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "[0]",
        "[-1.5e-3,2E+5,17]",
        "{\"a1\":{\"b22\":[1,22,333,\"4e5 6\",null,true]},\"c\":1e9}",
        "[\"\\u00e9\\ud83d\\ude00 12 \xc3\xa9 34\"]",
        "[12345678901234567,0.1234567890123456789]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_error_t why;
        json_t *found, *expected = json_loads(texts[i], 0, &why);
        assert_int_equal(ddl_json_parse(&found, texts[i], strlen(texts[i]), 0, &why), DDL_OK);
        assert_true(json_equal(found, expected));
        json_decref(found);
        json_decref(expected);
    }
}

static void a_long_text(void **state)
{
    (void)state;
    enum { N = 20000 };
    char *text = malloc(16 * N), *at = text;
    *at++ = '[';
    for (int i = 0; i < N; i++)
        at += sprintf(at, "%s%d.25", i ? ", " : "", i);
    *at++ = ']';
    json_error_t why;
    json_t *found;
    assert_int_equal(ddl_json_parse(&found, text, (size_t)(at - text), 0, &why), DDL_OK);
    for (size_t i = 0; i < N; i++)
        assert_true(json_number_value(json_array_get(found, i)) == (double)i + 0.25);
    json_decref(found);
    free(text);
}

static void errors_with_their_places(void **state)
{
    (void)state;
    static const char *const texts[] = { "",     "[1,\n 22,\n 3 4]", "{\"a\":1,\"a\":2}", "[1]x", "[01]",
                                         "[1.]", "[\"a\n\"]" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_error_t why, expected;
        json_t *found;
        assert_null(json_loadb(texts[i], strlen(texts[i]), JSON_REJECT_DUPLICATES, &expected));
        assert_int_equal(ddl_json_parse(&found, texts[i], strlen(texts[i]), JSON_REJECT_DUPLICATES, &why),
                         DDL_E_FORMAT);
        assert_null(found);
        assert_string_equal(why.text, expected.text);
        assert_int_equal(why.line, expected.line);
        assert_int_equal(why.column, expected.column);
    }
}

static void files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *gist;
    } bad[] = { { "", "bad.json:1:0: not valid JSON: " },
                { "{\n \"a\": 1,\n \"a\": 2}", "bad.json:3:4: not valid JSON: duplicate object key" },
                { "{\"a\": 123456}", "bad.json: 13 bytes" } };
    const char *path = scratch_path("bad.json");
    struct ddl_error err;
    json_t *root;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(path, bad[i].text, strlen(bad[i].text));
        assert_int_equal(ddl_json_read(&root, path, i == 2 ? 12 : 100, &err), DDL_E_FORMAT);
        assert_says(&err, bad[i].gist);
        assert_null(root);
    }
    json_t *written = json_pack("{s:[i,f,b,n], s:{s:s}}", "list", 7, 0.1, 1, "inner", "text", "\xc3\xa9");
    path = scratch_path("good.json");
    assert_ok(ddl_json_write(path, written, &err), err);
    assert_ok(ddl_json_read(&root, path, 1000, &err), err);
    assert_true(json_equal(root, written));
    json_decref(root);
    json_decref(written);
    assert_int_equal(ddl_json_write(path, NULL, &err), DDL_E_MEMORY);
    assert_says(&err, "good.json: out of memory");
    assert_int_equal(ddl_json_read(&root, scratch_path("no/such.json"), 1000, &err), DDL_E_IO);
    assert_null(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_values), cmocka_unit_test(a_long_text),
                                        cmocka_unit_test(errors_with_their_places), cmocka_unit_test(files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
