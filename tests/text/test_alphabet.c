/* Tests text/alphabet.h: GPT-2's byte alphabet is a bijection onto the expected characters. */
#include "support/support.h"

#include "text/alphabet.h"

#include <string.h>

static void known_places(void **state)
{
    (void)state;
    struct ddl_alphabet a = ddl_alphabet_make();
    static const struct {
        unsigned char byte;
        uint16_t code;
    } rows[] = { { 0, 0x100 },    { '\n', 0x10A }, { ' ', 0x120 },  { '!', '!' },
                 { '~', '~' },    { 0x7F, 0x121 }, { 0xA0, 0x142 }, { 0xA1, 0xA1 },
                 { 0xAD, 0x143 }, { 0xAE, 0xAE },  { 0xFF, 0xFF } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(a.code[rows[i].byte], rows[i].code);
    /* GPT-2's vocabulary starts with the bytes in this order. */
    assert_int_equal(a.order[0], '!');
    assert_int_equal(a.order[188], 0);
    assert_int_equal(a.order[220], ' ');
    assert_int_equal(a.order[255], 0xAD);
}

static void there_and_back(void **state)
{
    (void)state;
    struct ddl_alphabet a = ddl_alphabet_make();
    char bytes[256], text[512], back[512];
    for (size_t i = 0; i < 256; i++)
        bytes[i] = (char)a.order[i];
    size_t n = ddl_alphabet_encode(&a, bytes, 256, text), m;
    assert_true(ddl_alphabet_decode(&a, text, n, back, &m));
    assert_int_equal(m, 256);
    assert_memory_equal(bytes, back, 256);
}

static void refused(void **state)
{
    (void)state;
    struct ddl_alphabet a = ddl_alphabet_make();
    static const char *const rows[] = { "a b",      "\n",           "\xC2\xA0", "\xC2\xAD",
                                        "\xC5\x84", "\xE4\xBD\xA0", "\xFF",     "\xC4" };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[8];
        size_t n;
        assert_false(ddl_alphabet_decode(&a, rows[i], strlen(rows[i]), out, &n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_places),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
