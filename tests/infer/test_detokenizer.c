/* infer/detokenizer.c: characters are given out whole, and what could become a stop string is held back. */
#include "support/runs.h"

#include "infer/detokenizer.h"

static ddl_tokenizer *tokenizer;
static int32_t id_of_byte[256];

struct heard {
    char text[512];
    size_t n, pieces;
    int answer;
};

static int hear(void *user, size_t sequence, const char *text, size_t size)
{
    struct heard *h = user;
    assert_int_equal(sequence, 3);
    assert_true(size > 0 && h->n + size < sizeof h->text);
    memcpy(h->text + h->n, text, size);
    h->n += size;
    h->text[h->n] = '\0';
    h->pieces++;
    return h->answer;
}

/* One id a byte. */
static int find_bytes(void **state)
{
    (void)state;
    tokenizer = tiny_tokenizer();
    for (size_t id = 0; id < ddl_tokenizer_vocab_size(tokenizer); id++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, (int32_t)id, &size);
        if (bytes && size == 1)
            id_of_byte[(unsigned char)*bytes] = (int32_t)id;
    }
    return 0;
}

static int free_tokenizer(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    return 0;
}

/* Pushes bytes one id each; after each, `after` (if not NULL) says how many bytes must be out. Returns
 * whether it stopped. */
static bool push_all(struct ddl_detokenizer *e, const struct heard *h, const char *text, const int *after)
{
    bool stopped = false;
    for (size_t i = 0; text[i] && !stopped; i++) {
        ddl_detokenizer_push(e, id_of_byte[(unsigned char)text[i]], &stopped);
        if (after)
            assert_int_equal(h->n, after[i]);
    }
    return stopped;
}

static struct ddl_detokenizer start(struct heard *h, const char *const *stop, size_t n_stop)
{
    struct ddl_detokenizer e;
    struct ddl_error err;
    *h = (struct heard){ 0 };
    assert_ok(ddl_detokenizer_init(&e, tokenizer, stop, n_stop, &err), err);
    e.text = hear;
    e.user = h;
    e.sequence = 3;
    return e;
}

static void characters_are_whole(void **state)
{
    (void)state;
    struct heard h;
    struct ddl_detokenizer e = start(&h, NULL, 0);
    static const int after[] = { 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10, 10 };
    assert_false(push_all(&e, &h, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x82", after));
    assert_int_equal(ddl_detokenizer_flush(&e), 0);
    assert_string_equal(h.text, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x82"); /* the rest, whole or not */
    ddl_detokenizer_free(&e);
}

static void stop_strings(void **state)
{
    (void)state;
    static const char *const stops[] = { "END", "ENDER", "\n\n", "\xe2\x82\xac" };
    static const struct {
        const char *said, *out;
        bool stopped;
    } cases[] = {
        { "one END two", "one ", true },
        { "EN", "EN", false },
        { "ENEND", "EN", true },
        { "a\nb\n\nc", "a\nb", true },
        { "EEEND", "EE", true },
        { "ENXEND", "ENX", true },
        { "END", "", true },
        { "price 5\xe2\x82\xac more", "price 5", true },
        { "no stop here\n", "no stop here\n", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct heard h;
        struct ddl_detokenizer e = start(&h, stops, 4);
        assert_int_equal(push_all(&e, &h, cases[i].said, NULL), cases[i].stopped);
        if (!cases[i].stopped)
            ddl_detokenizer_flush(&e);
        assert_string_equal(h.text, cases[i].out);
        ddl_detokenizer_free(&e);
    }
}

static void held_only_while_it_may_match(void **state)
{
    (void)state;
    static const char *const stops[] = { "abcd", "bx" };
    static const int after[] = { 0, 0, 0, 3, 3, 3, 5 };
    struct heard h;
    struct ddl_detokenizer e = start(&h, stops, 2);
    assert_false(push_all(&e, &h, "abcaaby", NULL));
    ddl_detokenizer_free(&e);
    e = start(&h, stops, 2);
    /* "abc" is held; "abca" lets "abc" go and holds the new "a". */
    assert_false(push_all(&e, &h, "abca", after));
    ddl_detokenizer_free(&e);
    e = start(&h, stops, 2);
    assert_true(push_all(&e, &h, "abx", NULL)); /* the shorter one begins inside the longer */
    assert_string_equal(h.text, "a");
    ddl_detokenizer_free(&e);
}

/* The text ends at the first stop string that is complete, whether or not a longer one could follow. */
static void the_first_complete_one_stops(void **state)
{
    (void)state;
    static const char *const stops[] = { "abcd", "b", "xyz", "yz" };
    struct heard h;
    struct ddl_detokenizer e = start(&h, stops, 4);
    assert_true(push_all(&e, &h, "ab", NULL));
    assert_string_equal(h.text, "a");
    ddl_detokenizer_free(&e);
    e = start(&h, stops, 4);
    assert_true(push_all(&e, &h, "a-xyz", NULL)); /* of two that end together the longer one */
    assert_string_equal(h.text, "a-");
    ddl_detokenizer_free(&e);
    e = start(&h, stops, 4);
    assert_false(push_all(&e, &h, "a-xy", NULL));
    ddl_detokenizer_flush(&e);
    assert_string_equal(h.text, "a-xy");
    ddl_detokenizer_free(&e);
}

static void the_answer_comes_back(void **state)
{
    (void)state;
    struct heard h;
    struct ddl_detokenizer e = start(&h, NULL, 0);
    bool stopped;
    h.answer = 5;
    assert_int_equal(ddl_detokenizer_push(&e, id_of_byte['x'], &stopped), 5);
    ddl_detokenizer_free(&e);
}

/* A token that contains the stop string. */
static void stops_inside_a_token(void **state)
{
    (void)state;
    for (size_t id = 0; id < ddl_tokenizer_vocab_size(tokenizer); id++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, (int32_t)id, &size);
        if (!bytes || size < 3 || (int32_t)id == ddl_tokenizer_end_of_text(tokenizer) || bytes[0] == bytes[1])
            continue;
        char stop[2] = { bytes[1], '\0' };
        const char *stops[] = { stop };
        struct heard h;
        bool stopped;
        struct ddl_detokenizer e = start(&h, stops, 1);
        ddl_detokenizer_push(&e, (int32_t)id, &stopped);
        assert_true(stopped && h.n == 1 && h.text[0] == bytes[0]);
        ddl_detokenizer_free(&e);
        return;
    }
    fail_msg("the tokenizer has no token of three bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_whole),         cmocka_unit_test(stop_strings),
        cmocka_unit_test(held_only_while_it_may_match), cmocka_unit_test(the_answer_comes_back),
        cmocka_unit_test(stops_inside_a_token),         cmocka_unit_test(the_first_complete_one_stops),
    };
    return cmocka_run_group_tests(tests, find_bytes, free_tokenizer);
}
