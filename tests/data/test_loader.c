/* Tests data/loader.c: the order of sequences is a function of (seed, position). */
#include "support/files.h"

#include "ddl/data.h"

static ddl_shards *open_range(uint32_t n)
{
    struct ddl_error err;
    ddl_shards *shards;
    write_shard(scratch_path("range.bin"), 2, 0, n);
    assert_ok(ddl_shards_open(&shards, scratch_path("range.bin"), &err), err);
    return shards;
}

/* Sequence n is the T + 1 tokens starting at n T, modulo the number of tokens; here token i is i. */
static void sequential_is_one_after_the_other(void **state)
{
    (void)state;
    static const struct {
        uint32_t tokens;
        size_t T, B;
    } cases[] = { { 100, 7, 3 }, { 64, 64, 1 }, { 65, 64, 2 }, { 10, 63, 5 }, { 1, 3, 2 }, { 1000, 1, 100 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t tokens = cases[i].tokens;
        size_t T = cases[i].T, B = cases[i].B;
        ddl_shards *shards = open_range(cases[i].tokens);
        struct ddl_loader loader = { .shards = shards, .order = DDL_ORDER_SEQUENTIAL, .T = T };
        int32_t x[512], y[512];
        assert_true(B * T <= 512);
        for (uint64_t step = 0; step < 20; step++) {
            ddl_loader_next(&loader, B, x, y);
            for (size_t b = 0; b < B; b++) {
                uint64_t n = step * B + b;
                for (size_t t = 0; t < T; t++) {
                    assert_int_equal(x[b * T + t], (n * T + t) % tokens);
                    assert_int_equal(y[b * T + t], (n * T + t + 1) % tokens);
                }
            }
        }
        assert_int_equal(loader.position, 20 * B);
        ddl_shards_close(shards);
    }
}

static void far_positions_do_not_overflow(void **state)
{
    (void)state;
    ddl_shards *shards = open_range(1000);
    struct ddl_loader loader = {
        .shards = shards, .order = DDL_ORDER_SEQUENTIAL, .T = 10, .position = UINT64_MAX / 2
    };
    int32_t x[10], y[10];
    ddl_loader_next(&loader, 1, x, y);
    /* (2^63 - 1) * 10 = 92233720368547758070 */
    assert_int_equal(x[0], 70);
    assert_int_equal(y[9], 80);
    ddl_shards_close(shards);
}

/* The sequences do not depend on the batch size, and a saved position resumes them. */
static void any_order_resumes(void **state)
{
    (void)state;
    enum { T = 7, N = 60 };
    for (int order = DDL_ORDER_RANDOM; order <= DDL_ORDER_ALIGNED; order++) {
        ddl_shards *shards = open_range(500);
        int32_t x[N * T], y[N * T], x2[N * T], y2[N * T];
        struct ddl_loader loader = { .shards = shards, .order = order, .seed = 5, .T = T };
        ddl_loader_next(&loader, N, x, y);
        struct ddl_loader again = { .shards = shards, .order = order, .seed = 5, .T = T };
        for (size_t n = 0; n < N;) {
            size_t B = 1 + n % 7 < N - n ? 1 + n % 7 : N - n;
            struct ddl_loader resumed = again; /* the position is the entire state */
            ddl_loader_next(&resumed, B, x2 + n * T, y2 + n * T);
            again.position = resumed.position;
            n += B;
        }
        assert_memory_equal(x, x2, sizeof x);
        assert_memory_equal(y, y2, sizeof y);
        ddl_shards_close(shards);
    }
}

static void random_crops(void **state)
{
    (void)state;
    enum { T = 7, N = 20000, TOKENS = 20 };
    ddl_shards *shards = open_range(TOKENS);
    struct ddl_loader a = { .shards = shards, .order = DDL_ORDER_RANDOM, .seed = 1, .T = T }, b = a;
    b.seed = 2;
    size_t seen[TOKENS] = { 0 }, same = 0;
    for (size_t n = 0; n < N; n++) {
        int32_t x[T], y[T], x2[T], y2[T];
        ddl_loader_next(&a, 1, x, y);
        ddl_loader_next(&b, 1, x2, y2);
        for (int t = 0; t < T; t++) {
            assert_int_equal(x[t], x[0] + t); /* within the set: no wrapping */
            assert_int_equal(y[t], x[t] + 1);
        }
        assert_true(y[T - 1] < TOKENS);
        seen[x[0]]++;
        same += x[0] == x2[0];
    }
    /* 13 starts, each about N / 13 = 1538 times (standard deviation 38); different seeds agree as often as
     * chance. */
    for (size_t i = 0; i < TOKENS; i++)
        assert_true(i < TOKENS - T ? seen[i] > 1340 && seen[i] < 1740 : seen[i] == 0);
    assert_true(same > 1340 && same < 1740);
    ddl_shards_close(shards);
}

/* Each sequence that begins at a multiple of T, about equally often; the rest of 20 tokens is never read but
 * as the target after the last sequence. */
static void aligned_sequences(void **state)
{
    (void)state;
    enum { T = 6, N = 3000, TOKENS = 20 };
    ddl_shards *shards = open_range(TOKENS);
    struct ddl_loader a = { .shards = shards, .order = DDL_ORDER_ALIGNED, .seed = 1, .T = T };
    size_t seen[TOKENS] = { 0 };
    for (size_t n = 0; n < N; n++) {
        int32_t x[T], y[T];
        ddl_loader_next(&a, 1, x, y);
        assert_int_equal(y[T - 1], x[0] + T);
        seen[x[0]]++;
    }
    for (size_t i = 0; i < TOKENS; i++)
        assert_true(i % T == 0 && i < 18 ? seen[i] > 850 && seen[i] < 1150 : seen[i] == 0);
    ddl_shards_close(shards);
}

static void small_sets_wrap(void **state)
{
    (void)state;
    enum { T = 5 };
    for (uint32_t tokens = 1; tokens <= T + 1; tokens++) {
        ddl_shards *shards = open_range(tokens);
        struct ddl_loader loader = { .shards = shards, .order = DDL_ORDER_RANDOM, .seed = 3, .T = T };
        for (int n = 0; n < 50; n++) {
            int32_t x[T], y[T];
            ddl_loader_next(&loader, 1, x, y);
            for (int t = 0; t < T; t++) {
                assert_int_equal(x[t], (x[0] + t) % (int)tokens);
                assert_int_equal(y[t], (x[0] + t + 1) % (int)tokens);
            }
            if (tokens == T + 1)
                assert_int_equal(x[0], 0);
        }
        ddl_shards_close(shards);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_is_one_after_the_other),
        cmocka_unit_test(far_positions_do_not_overflow),
        cmocka_unit_test(any_order_resumes),
        cmocka_unit_test(random_crops),
        cmocka_unit_test(aligned_sequences),
        cmocka_unit_test(small_sets_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
