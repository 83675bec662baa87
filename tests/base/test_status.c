/* base/status.c: an error message is one line, whatever it quotes. */
#include "support/support.h"

static void sentences_are_plain(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_int_equal(ddl_error_set(&err, DDL_E_FORMAT, "a\nb\r\tc\033[31m\x7f\xc3\xa9"), DDL_E_FORMAT);
    assert_string_equal(err.text, "a b  c?[31m?\xc3\xa9");
    assert_int_equal(err.status, DDL_E_FORMAT);
    assert_int_equal(ddl_error_prefix(&err, DDL_E_IO, "file"), DDL_E_IO);
    assert_string_equal(err.text, "file: a b  c?[31m?\xc3\xa9");
    assert_int_equal(ddl_error_set(&err, DDL_E_FORMAT,
                                   "a\xc2\x9b"
                                   "2J\xc2\xa0\xc2"),
                     DDL_E_FORMAT);
    assert_string_equal(err.text, "a??2J\xc2\xa0\xc2");
    assert_int_equal(ddl_error_set(NULL, DDL_E_IO, "no message"), DDL_E_IO);
}

static void statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(ddl_status_name(DDL_OK), "ok");
    assert_string_equal(ddl_status_name(DDL_E_NUMERIC), "numeric");
    assert_string_equal(ddl_status_name((ddl_status)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_are_plain),
        cmocka_unit_test(statuses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
