/* base/status.c: an error message is one line, whatever it quotes. */
#include "support/support.h"

#include "ddl/text.h"

#include <string.h>

static void messages_are_plain(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_int_equal(ddl_error_set(&err, DDL_E_FORMAT, "a\nb\r\tc\033[31m\x7f\xc3\xa9"), DDL_E_FORMAT);
    assert_string_equal(err.text, "a b  c\\x1b[31m\\x7f\xc3\xa9");
    assert_int_equal(err.status, DDL_E_FORMAT);
    assert_int_equal(ddl_error_prefix(&err, DDL_E_IO, "file"), DDL_E_IO);
    assert_string_equal(err.text, "file: a b  c\\x1b[31m\\x7f\xc3\xa9");
    assert_int_equal(ddl_error_set(&err, DDL_E_FORMAT,
                                   "a\xc2\x9b"
                                   "2J\xc2\xa0\xc2"),
                     DDL_E_FORMAT);
    assert_string_equal(err.text, "a\\u{009b}2J\xc2\xa0\\xc2");
    assert_int_equal(ddl_error_set(NULL, DDL_E_IO, "no message"), DDL_E_IO);
}

/* Of a long message the middle is left out, not the reason at its end. */
static void long_messages(void **state)
{
    (void)state;
    static const char *const fillers[] = { "a", "\033", "\xc3\xa9", "\xe2\x80\xae", "\xff" };
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++) {
        for (size_t n = 200; n < 4200; n += n < 1100 ? 1 : 1000) {
            char path[4 * 4200] = "";
            for (size_t k = 0, length = strlen(fillers[i]); k < n; k++)
                memcpy(path + k * length, fillers[i], length + 1);
            struct ddl_error err;
            ddl_error_set(&err, DDL_E_IO, "/%s/x: cannot open: No such file or directory", path);
            assert_true(strlen(err.text) < sizeof err.text);
            assert_true(err.text[0] == '/');
            assert_non_null(strstr(err.text, "/x: cannot open: No such file or directory"));
            assert_null(strchr(err.text, '\033'));
            ddl_error_prefix(&err, DDL_E_IO, "run");
            assert_non_null(strstr(err.text, "/x: cannot open: No such file or directory"));
        }
    }
}

static void escaped_text(void **state)
{
    (void)state;
    static const char text[] = "a\0\n\033\xc2\x9b\xe2\x80\xae\xe2\x81\xa9\xff\\\xc3\xa9\xf0\x9f\x98\x80";
    static const char expected[] =
        "a\\x00\\x0a\\x1b\\u{009b}\\u{202e}\\u{2069}\\xff\\\xc3\xa9\xf0\x9f\x98\x80";
    char out[128];
    assert_int_equal(ddl_text_escape(out, sizeof out, text, sizeof text - 1), strlen(expected));
    assert_string_equal(out, expected);
    for (size_t size = 1; size < sizeof out; size++) {
        assert_int_equal(ddl_text_escape(out, size, text, sizeof text - 1), strlen(expected));
        assert_true(strlen(out) < size);
        assert_memory_equal(out, expected, strlen(out));
    }
    assert_int_equal(ddl_text_escape(NULL, 0, "\033", 1), 4);
}

static void statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(ddl_status_name(DDL_OK), "ok");
    assert_string_equal(ddl_status_name(DDL_E_NUMERIC), "numeric");
    assert_string_equal(ddl_status_name(DDL_E_DEVICE), "device");
    assert_string_equal(ddl_status_name((ddl_status)99), "unknown");
}

/* A list for a message; what does not fit is cut off. */
static void names_are_appended(void **state)
{
    (void)state;
    char list[16] = "";
    ddl_text_append(list, sizeof list, ", ", "add");
    ddl_text_append(list, sizeof list, ", ", "delta");
    assert_string_equal(list, "add, delta");
    ddl_text_append(list, sizeof list, " and ", "gated");
    assert_string_equal(list, "add, delta and ");
    ddl_text_append(list, sizeof list, ", ", "scale");
    assert_string_equal(list, "add, delta and ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_plain), cmocka_unit_test(long_messages),
        cmocka_unit_test(escaped_text),       cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(names_are_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
