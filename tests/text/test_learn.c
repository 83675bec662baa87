/* Tests text/learn.h against a naive implementation that recounts all pairs before each merge. */
#include "support/support.h"

#include "base/rng.h"
#include "text/learn.h"

#include <string.h>

enum { LETTERS = 3, N_WORDS = 40, LENGTH = 12, MERGES = 60, IDS = 256 + MERGES };

struct naive {
    int32_t symbols[N_WORDS][LENGTH];
    size_t n[N_WORDS], n_words;
    uint64_t count[N_WORDS];
};

/* Returns the count of the most frequent adjacent pair, lowest ids on ties; 0 if there is none. Overlapping
 * occurrences count ("aaa" has two). */
static uint64_t naive_best(const struct naive *x, uint64_t *pair)
{
    static uint64_t counts[IDS][IDS];
    memset(counts, 0, sizeof counts);
    for (size_t w = 0; w < x->n_words; w++) {
        for (size_t i = 0; i + 1 < x->n[w]; i++)
            counts[x->symbols[w][i]][x->symbols[w][i + 1]] += x->count[w];
    }
    uint64_t best = 0;
    for (int32_t l = 0; l < IDS; l++) {
        for (int32_t r = 0; r < IDS; r++) {
            if (counts[l][r] > best) {
                best = counts[l][r];
                *pair = DDL_PAIR(l, r);
            }
        }
    }
    return best;
}

static void naive_merge(struct naive *x, uint64_t pair, int32_t id)
{
    for (size_t w = 0; w < x->n_words; w++) {
        int32_t *s = x->symbols[w];
        size_t n = 0;
        for (size_t i = 0; i < x->n[w]; n++) {
            bool here = i + 1 < x->n[w] && DDL_PAIR(s[i], s[i + 1]) == pair;
            s[n] = here ? id : s[i];
            i += here ? 2 : 1;
        }
        x->n[w] = n;
    }
}

static void compare(uint64_t seed)
{
    uint64_t key = ddl_rng_key(seed, "learn"), draw = 0;
    struct ddl_words words;
    struct naive x = { 0 };
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++)
        byte_id[b] = b;
    assert_true(ddl_words_init(&words, 10000));
    for (size_t w = 0; w < N_WORDS; w++) {
        char text[LENGTH];
        size_t n = 1 + ddl_rng_below(key, draw++, LENGTH), times = 1 + ddl_rng_below(key, draw++, 5);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + ddl_rng_below(key, draw++, LETTERS));
        for (size_t k = 0; k < times; k++)
            assert_true(ddl_words_add(&words, text, n, n));
    }
    x.n_words = words.n;
    for (size_t w = 0; w < words.n; w++) {
        x.n[w] = words.words[w].size;
        x.count[w] = words.words[w].count;
        for (size_t i = 0; i < x.n[w]; i++)
            x.symbols[w][i] = words.pool[words.words[w].offset + i];
    }
    struct ddl_learner *learner = ddl_learner_new(&words, byte_id);
    assert_non_null(learner);
    ddl_words_free(&words);
    for (int32_t id = 256; id < IDS; id++) {
        uint64_t pair = 0, count = 0, wanted_pair = 0, wanted = naive_best(&x, &wanted_pair);
        assert_int_equal(ddl_learner_best(learner, &pair, &count), wanted > 0);
        if (!wanted)
            break;
        assert_int_equal(count, wanted);
        assert_int_equal(pair, wanted_pair);
        assert_true(ddl_learner_merge(learner, id));
        naive_merge(&x, pair, id);
    }
    ddl_learner_free(learner);
}

static void agrees_with_naive(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++)
        compare(seed);
}

static void no_pairs(void **state)
{
    (void)state;
    struct ddl_words words;
    int32_t byte_id[256] = { 0 };
    uint64_t pair, count;
    assert_true(ddl_words_init(&words, 10000));
    struct ddl_learner *learner = ddl_learner_new(&words, byte_id);
    assert_non_null(learner);
    assert_false(ddl_learner_best(learner, &pair, &count));
    ddl_learner_free(learner);
    assert_true(ddl_words_add(&words, "a", 1, 1));
    learner = ddl_learner_new(&words, byte_id);
    assert_non_null(learner);
    assert_false(ddl_learner_best(learner, &pair, &count));
    ddl_learner_free(learner);
    ddl_learner_free(NULL);
    ddl_words_free(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_naive),
        cmocka_unit_test(no_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
