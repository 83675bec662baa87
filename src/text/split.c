#include "text/split.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Planes 4 to 16 have no letters, numbers or white space: unassigned, private, or tags and variation
 * selectors (tested in tests/text/test_split.c). */
enum { N_CODES = 0x110000, N_CLASSIFIED = 0x40000, BLOCK = 0x1000 };

/* White space is listed explicitly: PCRE2's \s includes U+180E, which Unicode's White_Space does not. */
static const char class_pattern[] = "(\\p{L}+)|(\\p{N}+)|([\\p{Z}\\t-\\r\\x{85}]+)";

struct matcher {
    pcre2_code *code;
    pcre2_match_data *match;
};

static ddl_status matcher_init(struct matcher *m, struct ddl_error *err)
{
    int number;
    PCRE2_SIZE offset;
    *m = (struct matcher){ 0 };
    m->code = pcre2_compile((PCRE2_SPTR)class_pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number,
                            &offset, NULL);
    if (!m->code && number == PCRE2_ERROR_HEAP_FAILED)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the Unicode character classes");
    if (!m->code)
        return ddl_error_set(err, DDL_E_UNSUPPORTED,
                             "PCRE2 rejects Unicode classes (error %d): it was built "
                             "without Unicode support",
                             number);
    /* Without the JIT (executable memory may be forbidden) PCRE2 interprets: slower, same result. */
    pcre2_jit_compile(m->code, PCRE2_JIT_COMPLETE);
    m->match = pcre2_match_data_create_from_pattern(m->code, NULL);
    return m->match ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory for a pattern match");
}

static void matcher_free(struct matcher *m)
{
    pcre2_match_data_free(m->match);
    pcre2_code_free(m->code);
}

/* Computes the classes of the characters first .. first + BLOCK - 1: concatenates them into a text, matches
 * runs, and decodes each run again to store the class of its characters. */
static ddl_status classify_block(const struct matcher *m, uint32_t first, unsigned char *of,
                                 struct ddl_error *err)
{
    char text[4 * BLOCK];
    size_t size = 0;
    for (uint32_t code = first; code < first + BLOCK; code++) {
        if (code < 0xD800 || code > 0xDFFF)
            size += ddl_utf8_encode(code, text + size);
    }
    for (size_t at = 0; at < size;) {
        int group = pcre2_match(m->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK, m->match, NULL);
        if (group == PCRE2_ERROR_NOMATCH)
            break;
        if (group < 0)
            return ddl_error_set(err, DDL_E_MEMORY, "PCRE2 cannot match Unicode classes: error %d", group);
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(m->match);
        for (at = range[0]; at < range[1];) {
            uint32_t code;
            at += ddl_utf8_decode((const unsigned char *)text + at, size - at, &code);
            /* The result is 1 + the highest group that matched; groups are in the order of the classes. */
            of[code] = (unsigned char)(group - 1);
        }
    }
    return DDL_OK;
}

ddl_status ddl_char_classes_init(struct ddl_char_classes *classes, struct ddl_error *err)
{
    struct matcher m;
    ddl_status status = matcher_init(&m, err);
    classes->of = status ? NULL : ddl_mem_zalloc(N_CODES);
    if (!status && !classes->of)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of character classes");
    for (uint32_t first = 0; !status && first < N_CLASSIFIED; first += BLOCK)
        status = classify_block(&m, first, classes->of, err);
    matcher_free(&m);
    if (status)
        ddl_char_classes_free(classes);
    return status;
}

void ddl_char_classes_free(struct ddl_char_classes *classes)
{
    ddl_mem_free(classes->of);
    classes->of = NULL;
}

struct character {
    size_t size;
    unsigned char class;
};

static struct character character_at(const unsigned char *of, const unsigned char *s, size_t size)
{
    uint32_t code = s[0];
    size_t n = code < 0x80 ? 1 : ddl_utf8_decode(s, size, &code);
    return n ? (struct character){ n, of[code] } : (struct character){ 1, DDL_CHAR_SYMBOL };
}

/* Returns the end of the run of characters of `class` that continues at `at`. */
static size_t run_end(const unsigned char *of, const unsigned char *s, size_t at, size_t size,
                      unsigned char class)
{
    for (;;) {
        while (at < size && s[at] < 0x80 && of[s[at]] == class)
            at++;
        if (at == size || s[at] < 0x80)
            return at;
        struct character c = character_at(of, s + at, size - at);
        if (c.class != class)
            return at;
        at += c.size;
    }
}

/* 's 't 'd 'm 'll 've 're, lower case only. Returns the length, or 0. */
static size_t contraction(const unsigned char *s, size_t size)
{
    if (size >= 2 && (s[1] == 's' || s[1] == 't' || s[1] == 'd' || s[1] == 'm'))
        return 2;
    if (size >= 3 &&
        ((s[1] == 'l' && s[2] == 'l') || (s[1] == 'v' && s[2] == 'e') || (s[1] == 'r' && s[2] == 'e')))
        return 3;
    return 0;
}

/* White space that does not precede a word: all of it at the end of the text, otherwise all but the last
 * character, which the next piece may start with. A single character is a piece of its own. */
static size_t space_piece(const unsigned char *of, const unsigned char *s, size_t size)
{
    size_t last = 0, at = 0;
    while (at < size) {
        struct character c = character_at(of, s + at, size - at);
        if (c.class != DDL_CHAR_SPACE)
            return last ? last : at;
        last = at;
        at += c.size;
    }
    return size;
}

size_t ddl_split_next(const struct ddl_char_classes *classes, const char *text, size_t size)
{
    const unsigned char *of = classes->of, *s = (const unsigned char *)text;
    size_t start = 0;
    if (s[0] == '\'') {
        size_t n = contraction(s, size);
        if (n)
            return n;
    } else if (s[0] == ' ' && size > 1) {
        start = 1;
    }
    struct character c = character_at(of, s + start, size - start);
    if (c.class == DDL_CHAR_SPACE)
        return space_piece(of, s, size);
    return run_end(of, s, start + c.size, size, c.class);
}
