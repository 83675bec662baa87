/* Tests text/bytes_table.h: hits, misses, growth, and keys shorter and longer than a word. */
#include "support/support.h"

#include "base/rng.h"
#include "text/bytes_table.h"

#include <stdio.h>
#include <string.h>

enum { N = 5000, SIZE = 24 };
static char keys[N][SIZE];
static size_t sizes[N];

static const char *key_of(const void *user, int32_t value)
{
    (void)user;
    return keys[value];
}

static void find_and_miss(void **state)
{
    (void)state;
    struct ddl_bytes_table table;
    assert_true(ddl_bytes_table_init(&table, 1));
    table.key = key_of;
    for (int32_t i = 0; i < N; i++) {
        /* The index first, so that all keys differ; then bytes, including zeros, up to any size from 4 to
         * 20. */
        memcpy(keys[i], &i, sizeof i);
        sizes[i] = 4 + (size_t)i % 17;
        assert_int_equal(ddl_bytes_table_find(&table, keys[i], sizes[i], SIZE), -1);
        assert_true(ddl_bytes_table_add(&table, keys[i], sizes[i], i));
    }
    for (int32_t i = 0; i < N; i++) {
        char copy[SIZE + 1];
        memcpy(copy, keys[i], sizes[i]);
        assert_int_equal(ddl_bytes_table_find(&table, copy, sizes[i], sizes[i]), i);
        memset(copy + sizes[i], 'x', sizeof copy - sizes[i]); /* bytes after the key must not matter */
        assert_int_equal(ddl_bytes_table_find(&table, copy, sizes[i], SIZE), i);
        assert_int_equal(ddl_bytes_table_find(&table, copy, sizes[i] + 1, SIZE), -1);
        copy[sizes[i] - 1] ^= 0x40;
        assert_int_equal(ddl_bytes_table_find(&table, copy, sizes[i], SIZE), -1);
    }
    ddl_bytes_table_free(&table);
    ddl_bytes_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(find_and_miss) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
