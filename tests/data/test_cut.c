/* Tests data/cut.c: the pieces encode to the ids of the whole, for texts of all elements that the
 * pre-tokenizer distinguishes. */
#include "support/files.h"
#include "support/tokenizer.h"

#include "base/rng.h"
#include "data/cut.h"
#include "ddl/tokenizer.h"

static void encode(const char *text, size_t size, struct ddl_ids *ids)
{
    struct ddl_error err;
    assert_ok(ddl_tokenizer_encode(tokenizer, text, size, false, ids, &err), err);
}

/* What the pre-tokenizer distinguishes: kinds of white space, contractions, character classes, bytes that are
 * not UTF-8. */
static const char *const atoms[] = {
    " ",
    " ",
    "\n",
    "\n",
    "\t",
    "\r",
    "\v",
    "'",
    "'s",
    "'ll",
    "s",
    "re",
    "word",
    "Z",
    "7",
    "42",
    "!",
    "...",
    "\xc3",
    "\xa9",
    "\xff",
    "\x01",
    "\x1c",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "\xe1\xa0\x8e",
    "\xc3\xa9",
    "\xe4\xb8\xad",
    "\xd9\xa3",
    "\xf0\x9f\x98\x80",
    "\xe2\x80\x89",
    "\xc2\x85",
    "\x7f",
    "\xed\xa0\x80",
    "\xf0\x9f\x98",
    "_",
};
enum { N_ATOMS = sizeof atoms / sizeof *atoms };

static size_t random_text(char *out, uint64_t stream)
{
    uint64_t key = ddl_rng_key(stream, "cut");
    size_t n = 2 + (size_t)ddl_rng_below(key, 0, 12), size = 0;
    for (size_t i = 1; i <= n; i++) {
        const char *atom = atoms[ddl_rng_below(key, i, N_ATOMS)];
        memcpy(out + size, atom, strlen(atom));
        size += strlen(atom);
    }
    return size;
}

static void pieces_encode_like_the_whole(void **state)
{
    (void)state;
    struct ddl_ids whole = { 0 }, pieces = { 0 };
    size_t cuts = 0;
    for (uint64_t stream = 0; stream < 40000; stream++) {
        char text[128];
        size_t size = random_text(text, stream), last = 0;
        whole.n = 0;
        encode(text, size, &whole);
        /* Only the first `seen` bytes are known when the cut is chosen. */
        for (size_t seen = 0; seen <= size; seen++) {
            for (int at_space = 0; at_space < 2; at_space++) {
                size_t cut = ddl_cut_find(text, seen, at_space);
                assert_true(cut == 0 || cut < seen);
                assert_true(!at_space || cut == 0 || text[cut] == ' ');
                if (cut == 0 || cut == last)
                    continue;
                last = cut;
                cuts++;
                pieces.n = 0;
                encode(text, cut, &pieces);
                encode(text + cut, size - cut, &pieces);
                assert_int_equal(pieces.n, whole.n);
                assert_memory_equal(pieces.ids, whole.ids, whole.n * sizeof *whole.ids);
            }
        }
    }
    assert_true(cuts > 40000); /* the test must actually have cut */
    ddl_ids_free(&whole);
    ddl_ids_free(&pieces);
}

static void positions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t cut;
    } cases[] = {
        { "", 0 },           { "a", 0 },
        { "aaaa", 0 },       { "    ", 0 },
        { "\n\nab", 0 },     { "ab cd ef", 5 },
        { "ab\ncd ef", 2 },  { "ab\n\n\ncd", 2 },
        { "it's", 2 },       { "'s", 0 },
        { "12ab", 2 },       { "(ab", 1 },
        { "'12", 0 },        { "\xe4\xb8\xad\n", 3 },
        { "\xc2\xa0\n", 0 }, { "\xb8\xad\n", 0 },
        { "\xff ", 0 },      { "\xe4\xb8\xad\xe4\xb8\xad", 0 },
        { ". a", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ddl_cut_find(cases[i].text, strlen(cases[i].text), false), cases[i].cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions),
        cmocka_unit_test(pieces_encode_like_the_whole),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, unload_tokenizer);
}
