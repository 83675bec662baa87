/* Tests base/utf8.h: round trip of every character, rejected sequences, incomplete tails. */
#include "support/support.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static void every_character(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xD800 && code < 0xE000)
            continue;
        char text[4];
        uint32_t back;
        size_t n = ddl_utf8_encode(code, text);
        assert_int_equal(ddl_utf8_decode((unsigned char *)text, n, &back), n);
        assert_int_equal(back, code);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(ddl_utf8_decode((unsigned char *)text, cut, &back), 0);
            assert_int_equal(ddl_utf8_incomplete_tail((unsigned char *)text, cut), cut);
        }
        assert_int_equal(ddl_utf8_incomplete_tail((unsigned char *)text, n), 0);
    }
}

static void refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "\x80",         "\xBF",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF",         "\xC3(",        "\xE2\x82(",        "\xF0\x9F\x98("
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t code;
        size_t n = strlen(rows[i]);
        assert_int_equal(ddl_utf8_decode((const unsigned char *)rows[i], n, &code), 0);
        assert_int_equal(ddl_utf8_incomplete_tail((const unsigned char *)rows[i], n), 0);
    }
}

static void tails(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t hold;
    } rows[] = {
        { "a", 0 },
        { "a\xE2", 1 },
        { "a\xE2\x82", 2 },
        { "a\xE2\x82\xAC", 0 },
        { "\xF0\x9F\x98", 3 },
        { "x\xF0\x9F", 2 },
        { "\xE0\x80", 0 },
        { "\xF0\x80", 0 },
        { "\xED\xA0", 0 },
        { "\xF4\x90", 0 },
        { "\xE2\xE2", 1 },
        { "\x80\x80\x80", 0 },
        { "\xC2\x80\xC2", 1 },
        { "\xFF\xF0", 1 },
        { "\xE2(", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ddl_utf8_incomplete_tail((const unsigned char *)rows[i].text, strlen(rows[i].text)),
                         rows[i].hold);
    assert_int_equal(ddl_utf8_incomplete_tail((const unsigned char *)"", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character),
        cmocka_unit_test(refused),
        cmocka_unit_test(tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
