/* Tests text/split.h: compares the scanner with PCRE2 running GPT-2's full pattern, on random texts of
 * difficult characters. */
#include "support/support.h"

#include "base/rng.h"
#include "text/split.h"
#include "base/utf8.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static struct ddl_char_classes classes;
static pcre2_code *pattern;
static pcre2_match_data *match;

static int set_up(void **state)
{
    (void)state;
    int number;
    PCRE2_SIZE offset;
    struct ddl_error err;
    pattern = pcre2_compile(
        (PCRE2_SPTR) "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &offset, NULL);
    match = pattern ? pcre2_match_data_create_from_pattern(pattern, NULL) : NULL;
    return !match || ddl_char_classes_init(&classes, &err);
}

static int tear_down(void **state)
{
    (void)state;
    pcre2_match_data_free(match);
    pcre2_code_free(pattern);
    ddl_char_classes_free(&classes);
    return 0;
}

/* Returns where the pieces of the text end, by PCRE2. Each byte that is not part of a character is replaced
 * by U+FFFD, a symbol. */
static size_t ends_by_pattern(const char *text, size_t size, size_t *ends)
{
    char valid[2048];
    size_t from[2049], n = 0, count = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t length = ddl_utf8_decode((const unsigned char *)text + at, size - at, &code);
        size_t wide = ddl_utf8_encode(length ? code : 0xFFFD, valid + n);
        for (size_t i = 0; i < wide; i++)
            from[n + i] = at;
        n += wide;
        at += length ? length : 1;
    }
    from[n] = size;
    for (size_t at = 0; at < n;) {
        int found = pcre2_match(pattern, (PCRE2_SPTR)valid, n, at, PCRE2_ANCHORED, match, NULL);
        assert_int_equal(found, 1);
        at = pcre2_get_ovector_pointer(match)[1];
        ends[count++] = from[at];
    }
    return count;
}

static void compare(const char *text, size_t size)
{
    size_t ends[2048], count = ends_by_pattern(text, size, ends), at = 0;
    for (size_t i = 0; i < count; i++) {
        /* Copy only the rest of the text, so that a sanitizer detects reads past the end. */
        char *rest = test_malloc(size - at);
        memcpy(rest, text + at, size - at);
        at += ddl_split_next(&classes, rest, size - at);
        test_free(rest);
        if (at != ends[i])
            fail_msg("piece %zu of '%.*s' ends at %zu, not %zu", i, (int)size, text, at, ends[i]);
    }
    assert_int_equal(at, size);
}

static void random_texts(void **state)
{
    (void)state;
    static const char *const bits[] = {
        "a",
        "Z",
        "q",
        "the",
        "0",
        "7",
        "42",
        "'",
        "'s",
        "'t",
        "'S",
        "'ll",
        "'LL",
        "'ve",
        "'re",
        "'r",
        "'d",
        "'m",
        "'v",
        " ",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\v",
        "\f",
        "\x1C",
        "\x1F",
        "\x7F",
        "!",
        "...",
        "-",
        "_",
        "=",
        "<|",
        "\xC2\xA0", /* no-break space */
        "\xC2\x85",
        /* next line */ "\xE3\x80\x80",
        "\xE2\x80\xA8",
        "\xE2\x80\x89",
        "\xE2\x80\x8B",
        "\xE2\x80\x8D",
        "\xC3\xA9",
        "e\xCC\x81",
        "\xC3\x9F",
        "\xD0\x96",
        "\xE4\xBD\xA0",
        "\xF0\xA0\x80\x80",
        "\xED\x95\x9C",
        "\xD9\xA3",
        "\xC2\xB2",
        "\xE2\x85\xB7",
        "\xC2\xBC",
        "\xE2\x80\x99",
        "\xF0\x9F\x98\x80",
        "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD",
        "\xEF\xBF\xBD",
        "\xC2\xAA",
        "\x80",
        "\xFF",
        "\xC0",
        "\xE2\x82",
        "\xF0\x9F",
        "\xED\xA0\x80",
        "\xF4\x90\x80\x80",
        "\xC3",
    };
    uint64_t key = ddl_rng_key(6, "split"), draw = 0;
    for (int round = 0; round < 60000; round++) {
        char text[512] = "";
        size_t size = 0, n = 1 + ddl_rng_below(key, draw++, 24);
        for (size_t i = 0; i < n; i++) {
            const char *bit = bits[ddl_rng_below(key, draw++, sizeof bits / sizeof *bits)];
            memcpy(text + size, bit, strlen(bit));
            size += strlen(bit);
        }
        if (round % 7 == 0)
            text[ddl_rng_below(key, draw++, size)] = '\0';
        compare(text, size);
    }
}

static void random_characters(void **state)
{
    (void)state;
    uint64_t key = ddl_rng_key(7, "split"), draw = 0;
    for (int round = 0; round < 20000; round++) {
        char text[256];
        size_t size = 0;
        while (size < 60) {
            uint32_t code = (uint32_t)ddl_rng_below(key, draw, draw % 3 ? 0x3000 : 0x110000);
            draw++;
            if ((code < 0xD800 || code > 0xDFFF) && code != 0x180E)
                size += ddl_utf8_encode(code, text + size);
        }
        compare(text, size);
    }
}

static void random_bytes(void **state)
{
    (void)state;
    uint64_t key = ddl_rng_key(8, "split"), draw = 0;
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t size = 1 + ddl_rng_below(key, draw++, sizeof text);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)ddl_rng_below(key, draw++, 256);
        compare(text, size);
    }
}

/* White space is Unicode's White_Space, without U+180E, which PCRE2's \s keeps from older versions. */
static void mongolian_vowel_separator(void **state)
{
    (void)state;
    assert_int_equal(ddl_split_next(&classes, " \xE1\xA0\x8E.", 5), 5);
    assert_int_equal(classes.of[0x180E], DDL_CHAR_SYMBOL);
    static const uint32_t spaces[] = { 9,      0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,
                                       0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000 };
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        assert_int_equal(classes.of[spaces[i]], DDL_CHAR_SPACE);
    size_t n = 0;
    for (size_t code = 0; code < 0x110000; code++)
        n += classes.of[code] == DDL_CHAR_SPACE;
    assert_int_equal(n, 25); /* the number of White_Space characters in PropList.txt */
}

/* The classes of planes 4 to 16 are not computed. */
static void high_planes_are_symbols(void **state)
{
    (void)state;
    enum { PLANE = 0x10000 };
    static char text[4 * PLANE];
    int number;
    PCRE2_SIZE offset;
    pcre2_code *any = pcre2_compile((PCRE2_SPTR) "[\\p{L}\\p{N}\\p{Z}]", PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_UCP, &number, &offset, NULL);
    assert_non_null(any);
    for (uint32_t plane = 4; plane <= 16; plane++) {
        size_t size = 0;
        for (uint32_t code = plane * PLANE; code < (plane + 1) * PLANE; code++) {
            assert_int_equal(classes.of[code], DDL_CHAR_SYMBOL);
            size += ddl_utf8_encode(code, text + size);
        }
        assert_int_equal(pcre2_match(any, (PCRE2_SPTR)text, size, 0, 0, match, NULL), PCRE2_ERROR_NOMATCH);
    }
    pcre2_code_free(any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_texts),
        cmocka_unit_test(random_characters),
        cmocka_unit_test(random_bytes),
        cmocka_unit_test(mongolian_vowel_separator),
        cmocka_unit_test(high_planes_are_symbols),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
