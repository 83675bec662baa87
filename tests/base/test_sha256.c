/* base/sha256.h: the examples of FIPS 180-4 and its lengths around a block, whole and in pieces. */
#include "support/support.h"

#include "base/sha256.h"

#include <string.h>

static void hash_in_pieces(const char *data, size_t size, size_t piece, char hex[65])
{
    struct ddl_sha256 s;
    ddl_sha256_begin(&s);
    for (size_t at = 0; at < size; at += piece)
        ddl_sha256_add(&s, data + at, size - at < piece ? size - at : piece);
    ddl_sha256_end_hex(&s, hex);
}

static void standard_examples(void **state)
{
    (void)state;
    static const struct {
        const char *text, *digest;
    } rows[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmn"
          "opqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char hex[65];
        hash_in_pieces(rows[i].text, strlen(rows[i].text), 1000, hex);
        assert_string_equal(hex, rows[i].digest);
    }
}

static void a_million(void **state)
{
    (void)state;
    static char text[1000000];
    memset(text, 'a', sizeof text);
    static const size_t pieces[] = { 1, 7, 63, 64, 65, 1000, 1000000 };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char hex[65];
        hash_in_pieces(text, sizeof text, pieces[i], hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* Digests of 0x61 repeated n times, n around where the padding needs a block of its own (made with another
 * implementation). */
static void lengths_around_a_block(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        const char *digest;
    } rows[] = {
        { 1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" },
        { 54, "a3f01b6939256127582ac8ae9fb47a382a244680806a3f613a118851c1ca1d47" },
        { 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
        { 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
        { 57, "f13b2d724659eb3bf47f2dd6af1accc87b81f09f59f2b75e5c0bed6589dfe8c6" },
        { 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34" },
        { 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
        { 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0" },
        { 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb" },
        { 120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c" },
        { 128, "6836cf13bac400e9105071cd6af47084dfacad4e5e302c94bfed24e013afb73e" },
    };
    char text[200];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char hex[65];
        hash_in_pieces(text, rows[i].n, 13, hex);
        assert_string_equal(hex, rows[i].digest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standard_examples),
        cmocka_unit_test(a_million),
        cmocka_unit_test(lengths_around_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
