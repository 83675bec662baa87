/* Tests base/json_scan.h against jansson: which texts are valid, the value of a key, positions of errors, and
 * the bound of a tree's memory. */
#include "support/support.h"

#include "base/json_scan.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static struct ddl_json_scan scan_of(const char *text, size_t size)
{
    return (struct ddl_json_scan){ .text = text, .at = text, .end = text + size, .longest = size };
}

/* Both readers; numbers too large for jansson are valid here. */
static void compare(const char *text, size_t size)
{
    struct ddl_json_scan scan = scan_of(text, size);
    struct ddl_json_found found;
    json_error_t why;
    bool valid = ddl_json_find(&scan, "text", &found);
    json_t *root = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    bool overflow = !root && json_error_code(&why) == json_error_numeric_overflow;
    bool ends_in_nul = root && memchr(text, '\0', size); /* which jansson takes for the end */
    if (!overflow && !ends_in_nul && valid != (root != NULL))
        fail_msg("%.*s: %s, but jansson: %s", (int)size, text, valid ? "valid" : scan.why,
                 root ? "valid" : why.text);
    const json_t *value = json_object_get(root, "text");
    if (root && valid)
        assert_int_equal(found.type == DDL_JSON_STRING, json_is_string(value));
    if (valid && json_is_string(value)) {
        char *out = malloc(size);
        assert_int_equal(ddl_json_unescape(found.value, found.size, out), json_string_length(value));
        assert_memory_equal(out, json_string_value(value), json_string_length(value));
        free(out);
    }
    json_decref(root);
}

static const char *const texts[] = {
    "",
    " ",
    "{}",
    "[]",
    "\"\"",
    "0",
    "-0",
    "-",
    "01",
    "1.",
    ".5",
    "1.5e3",
    "1e",
    "1E+5",
    "1e-05",
    "--1",
    "+1",
    "true",
    "tru",
    "truex",
    "false",
    "null",
    "nul",
    "{",
    "}",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":1 \"b\":2}",
    "{a:1}",
    "{\"a\" : [1, {\"b\":null}] }",
    "{\"text\":\"one\"}",
    "{\"text\":\"one\",\"text\":\"two\"}",
    "{\"text\":\"one\",\"text\":2}",
    "{\"t\\u0065xt\":\"\\u00e9\\ud83d\\ude00\\n\\/\\\"\\\\\\b\\f\\r\\t\\u0000.\"}",
    "{\"text\":{\"text\":\"in\"}}",
    "{\"text\":\"\\ud83d\"}",
    "{\"text\":\"\\ude00\"}",
    "{\"text\":\"\\ud83d\\u0041\"}",
    "{\"text\":\"\\u12\"}",
    "{\"text\":\"\\x\"}",
    "{\"text\":\"\\",
    "{\"text\":\"a\nb\"}",
    "{\"text\":\"caf\xc3\xa9\"}",
    "{\"text\":\"\xc3\"}",
    "{\"text\":\"\xed\xa0\x80\"}",
    "{\"a\\u0000b\":1}",
    "[\"\x7f\"]",
    "{} x",
    "{}{}",
    "[1e999]",
    "[123456789012345678901234567890]",
    "\xef\xbb\xbf{}",
    "{\"text\":\"\xf4\x90\x80\x80\"}",
};

static void same_as_jansson(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        compare(texts[i], strlen(texts[i]));
    /* Each text with one byte replaced, and cut off at each byte. */
    static const char bytes[] = "\"\\{}[],:0e.-tu \n\x01\xc3\xff";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        char copy[128];
        for (size_t at = 0; at < n; at++) {
            compare(texts[i], at);
            memcpy(copy, texts[i], n);
            for (size_t b = 0; b < sizeof bytes; b++) {
                copy[at] = bytes[b]; /* also NUL */
                compare(copy, n);
            }
        }
    }
}

static void depth(void **state)
{
    (void)state;
    char text[2 * DDL_JSON_DEPTH + 4];
    for (size_t n = DDL_JSON_DEPTH - 1; n <= DDL_JSON_DEPTH + 1; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        compare(text, 2 * n);
        text[n] = '1';
        memset(text + n + 1, ']', n);
        compare(text, 2 * n + 1);
    }
}

static void positions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        size_t line, column;
    } cases[] = {
        { "{\"a\": x}", "invalid token", 1, 7 },
        { "{\"\xc3\xa9\": x}", "invalid token", 1, 7 },
        { "{\n \"a\": 1\n \"b\": 2}", "expected ',' or '}'", 3, 2 },
        { "[\"a\\q\"]", "invalid escape sequence", 1, 4 },
        { "[\"a\xff\"]", "a byte that is not UTF-8", 1, 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_json_scan scan = scan_of(cases[i].text, strlen(cases[i].text));
        struct ddl_json_found found;
        size_t line, column;
        assert_false(ddl_json_find(&scan, "text", &found));
        assert_string_equal(scan.why, cases[i].why);
        ddl_json_scan_position(&scan, &line, &column);
        assert_int_equal(line, cases[i].line);
        assert_int_equal(column, cases[i].column);
        assert_int_equal(ddl_json_scan_next(&scan), DDL_JSON_ERROR);
    }
}

static void sizes_and_limits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
        size_t value;
    } cases[] = { { "0", true, 0 },
                  { "9223372036854775807", true, INT64_MAX },
                  { "9223372036854775808", false, 0 },
                  { "-1", false, 0 },
                  { "1.0", false, 0 },
                  { "1e2", false, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_json_scan scan = scan_of(cases[i].text, strlen(cases[i].text));
        size_t value = 0;
        assert_int_equal(ddl_json_scan_next(&scan), DDL_JSON_NUMBER);
        assert_int_equal(ddl_json_scan_size(&scan, &value), cases[i].valid);
        assert_int_equal(value, cases[i].value);
    }
    static const char *const longer[] = { "[\"abcde\"]", "{\"abcde\":1}", "[12345]", "[     1]" };
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
        struct ddl_json_scan scan = scan_of(longer[i], strlen(longer[i]));
        struct ddl_json_found found;
        scan.longest = 5;
        assert_true(ddl_json_find(&scan, "text", &found));
        scan = scan_of(longer[i], strlen(longer[i]));
        scan.longest = 4;
        assert_false(ddl_json_find(&scan, "text", &found));
    }
}

/* ---- memory of jansson's trees ---- */

static size_t used, most;

static void *count_malloc(size_t size)
{
    void *block = malloc(size);
    used += malloc_usable_size(block) + 16;
    most = used > most ? used : most;
    return block;
}

static void count_free(void *block)
{
    if (block)
        used -= malloc_usable_size(block) + 16;
    free(block);
}

static void tree_bound(void **state)
{
    (void)state;
    static const char *const units[] = { "{}",
                                         "[]",
                                         "1",
                                         "1.5",
                                         "\"\"",
                                         "\"abc\"",
                                         "[1]",
                                         "{\"a\":1}",
                                         "true",
                                         "{\"abcdef\":[{},{}]}",
                                         "[[],[],[],[],[],[],[],[],[]]" };
    json_malloc_t malloc_before;
    json_free_t free_before;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(count_malloc, count_free);
    for (size_t i = 0; i < 2 * sizeof units / sizeof *units;
         i++) { /* elements of a list, then of an object */
        enum { N = 5000 };
        const char *unit = units[i / 2];
        char *text = malloc(N * 64), *at = text;
        *at++ = i % 2 ? '{' : '[';
        for (int k = 0; k < N; k++)
            at += i % 2 ? sprintf(at, "%s\"%d\":%s", k ? "," : "", k, unit)
                        : sprintf(at, "%s%s", k ? "," : "", unit);
        *at++ = i % 2 ? '}' : ']';
        size_t bound = ddl_json_tree_bytes(text, (size_t)(at - text), SIZE_MAX);
        most = used = 0;
        json_t *root = json_loadb(text, (size_t)(at - text), 0, NULL);
        assert_non_null(root);
        json_decref(root);
        free(text);
        assert_int_equal(used, 0);
        if (most > bound)
            fail_msg("%s in %s: expected at most %zu bytes, found %zu", unit, i % 2 ? "an object" : "a list",
                     bound, most);
    }
    json_set_alloc_funcs(malloc_before, free_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_as_jansson), cmocka_unit_test(depth),
                                        cmocka_unit_test(positions), cmocka_unit_test(sizes_and_limits),
                                        cmocka_unit_test(tree_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
