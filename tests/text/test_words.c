/* Tests text/words.h: counts, the length limit, and the limits on number and bytes. */
#include "support/support.h"

#include "base/rng.h"
#include "text/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t count_of(const struct ddl_words *words, const char *text)
{
    for (size_t i = 0; i < words->n; i++) {
        if (words->words[i].size == strlen(text) &&
            memcmp(words->pool + words->words[i].offset, text, strlen(text)) == 0)
            return words->words[i].count;
    }
    return 0;
}

static void counts(void **state)
{
    (void)state;
    struct ddl_words words;
    assert_true(ddl_words_init(&words, 10000));
    for (int i = 0; i < 3000; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%s%d", i % 2 ? " a long word " : "w", i % 100);
        assert_true(ddl_words_add(&words, text, (size_t)n, (size_t)n));
    }
    assert_int_equal(words.n, 100);
    assert_int_equal(count_of(&words, "w0"), 30);
    assert_int_equal(count_of(&words, " a long word 99"), 30);
    assert_int_equal(count_of(&words, "w1"), 0);
    ddl_words_free(&words);
}

static void long_pieces_are_ignored(void **state)
{
    (void)state;
    struct ddl_words words;
    char *text = calloc(1, DDL_WORD_BYTES + 1);
    assert_non_null(text);
    assert_true(ddl_words_init(&words, 10000));
    assert_true(ddl_words_add(&words, text, DDL_WORD_BYTES + 1, DDL_WORD_BYTES + 1));
    assert_int_equal(words.n, 0);
    assert_true(ddl_words_add(&words, text, DDL_WORD_BYTES, DDL_WORD_BYTES));
    assert_int_equal(words.n, 1);
    ddl_words_free(&words);
    free(text);
}

/* A stream of new words with some recurring ones: the recurring words keep their counts, the total is
 * bounded. */
static void bounded(void **state)
{
    (void)state;
    enum { LIMIT = 10000, ROUNDS = 100000 };
    struct ddl_words words;
    assert_true(ddl_words_init(&words, LIMIT));
    for (int i = 0; i < ROUNDS; i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "%d", i);
        assert_true(ddl_words_add(&words, text, (size_t)n, (size_t)n));
        n = snprintf(text, sizeof text, "frequent %d", i % 50);
        assert_true(ddl_words_add(&words, text, (size_t)n, (size_t)n));
        assert_true(words.n <= LIMIT);
    }
    for (int k = 0; k < 50; k++) {
        char text[32];
        snprintf(text, sizeof text, "frequent %d", k);
        assert_int_equal(count_of(&words, text), ROUNDS / 50);
    }
    ddl_words_free(&words);
}

/* The total size is bounded too: words of the maximum length. */
static void bounded_bytes(void **state)
{
    (void)state;
    struct ddl_words words;
    char *text = calloc(1, DDL_WORD_BYTES);
    assert_non_null(text);
    assert_true(ddl_words_init(&words, 10000));
    for (int i = 0; i < 40; i++) {
        memcpy(text, &i, sizeof i);
        assert_true(ddl_words_add(&words, text, DDL_WORD_BYTES, DDL_WORD_BYTES));
        assert_true(words.pool_size <= 640000);
    }
    assert_true(words.n > 0);
    ddl_words_free(&words);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(long_pieces_are_ignored),
        cmocka_unit_test(bounded),
        cmocka_unit_test(bounded_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
