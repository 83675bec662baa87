/* Tests text/bpe.h: both merge implementations agree on random merges and pieces; order of ranks; growth of
 * id lists. */
#include "support/support.h"

#include "base/rng.h"
#include "text/bpe.h"

#include <string.h>

/* Bytes are their own ids; each random merge creates a new id from two existing ones, out of few letters. */
static void random_bpe(struct ddl_bpe *bpe, uint64_t seed)
{
    struct ddl_merge merges[60];
    uint64_t key = ddl_rng_key(seed, "bpe"), draw = 0;
    size_t n = 0;
    for (int tries = 0; n < 60 && tries < 1000; tries++) {
        int32_t id[2];
        for (int k = 0; k < 2; k++) {
            uint64_t pick = ddl_rng_below(key, draw++, 3 + n);
            id[k] = pick < 3 ? (int32_t)('a' + pick) : (int32_t)(256 + pick - 3);
        }
        size_t same = 0;
        for (size_t i = 0; i < n; i++)
            same += merges[i].left == id[0] && merges[i].right == id[1];
        if (!same) {
            merges[n] = (struct ddl_merge){ id[0], id[1], (int32_t)(256 + n) };
            n++;
        }
    }
    size_t duplicate;
    struct ddl_error err;
    assert_ok(ddl_bpe_init(bpe, merges, n, &duplicate, &err), err);
    for (int b = 0; b < 256; b++)
        bpe->byte_id[b] = b;
}

static void scan_and_heap_agree(void **state)
{
    (void)state;
    struct ddl_error err;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct ddl_bpe bpe;
        random_bpe(&bpe, seed);
        uint64_t key = ddl_rng_key(seed, "piece"), draw = 0;
        for (int round = 0; round < 200; round++) {
            char piece[DDL_BPE_SCAN];
            int32_t short_way[DDL_BPE_SCAN];
            size_t size = 1 + ddl_rng_below(key, draw++, sizeof piece);
            for (size_t i = 0; i < size; i++)
                piece[i] = (char)('a' + ddl_rng_below(key, draw++, 3));
            struct ddl_ids long_way = { 0 };
            size_t n = ddl_bpe_scan(&bpe, piece, size, short_way);
            assert_ok(ddl_bpe_heap(&bpe, piece, size, &long_way, &err), err);
            assert_int_equal(long_way.n, n);
            assert_memory_equal(long_way.ids, short_way, n * sizeof *short_way);
            ddl_ids_free(&long_way);
        }
        ddl_bpe_free(&bpe);
    }
}

static void order_of_merges(void **state)
{
    (void)state;
    static const struct ddl_merge merges[] = {
        { 'b', 'c', 300 }, { 'a', 'b', 301 }, { 'a', 300, 302 }, { 'a', 'a', 303 }
    };
    static const struct {
        const char *piece;
        size_t n;
        int32_t ids[4];
    } rows[] = {
        { "abc", 1, { 302 } },      { "ab", 1, { 301 } },        { "abb", 2, { 301, 'b' } },
        { "aaa", 2, { 303, 'a' } }, { "aabc", 2, { 'a', 302 } }, { "x", 1, { 'x' } },
    };
    struct ddl_bpe bpe;
    struct ddl_error err;
    size_t duplicate;
    assert_ok(ddl_bpe_init(&bpe, merges, 4, &duplicate, &err), err);
    for (int b = 0; b < 256; b++)
        bpe.byte_id[b] = b;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddl_ids ids = { 0 };
        assert_ok(ddl_bpe_encode(&bpe, rows[i].piece, strlen(rows[i].piece), &ids, &err), err);
        assert_int_equal(ids.n, rows[i].n);
        assert_memory_equal(ids.ids, rows[i].ids, ids.n * sizeof *ids.ids);
        ddl_ids_free(&ids);
    }
    ddl_bpe_free(&bpe);
}

static void duplicate_merge(void **state)
{
    (void)state;
    static const struct ddl_merge merges[] = { { 1, 2, 3 }, { 2, 1, 4 }, { 1, 2, 5 } };
    struct ddl_bpe bpe = { 0 };
    struct ddl_error err;
    size_t duplicate = 0;
    assert_int_equal(ddl_bpe_init(&bpe, merges, 3, &duplicate, &err), DDL_E_FORMAT);
    assert_int_equal(duplicate, 2);
    ddl_bpe_free(&bpe);
}

static void reserve_overflow(void **state)
{
    (void)state;
    struct ddl_ids ids = { 0 };
    struct ddl_error err;
    assert_ok(ddl_ids_reserve(&ids, 10, &err), err);
    ids.n = 10;
    assert_int_equal(ddl_ids_reserve(&ids, SIZE_MAX - 5, &err), DDL_E_MEMORY);
    assert_int_equal(ids.n, 10);
    ddl_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_and_heap_agree),
        cmocka_unit_test(order_of_merges),
        cmocka_unit_test(duplicate_merge),
        cmocka_unit_test(reserve_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
