/* base/crc32c.h: the examples of RFC 3720, B.4, and the check value of the algorithm. */
#include "support/support.h"

#include "base/crc32c.h"

#include <string.h>

static void standard_examples(void **state)
{
    (void)state;
    unsigned char up[32], down[32], zeros[32] = { 0 }, ones[32];
    memset(ones, 0xff, sizeof ones);
    for (unsigned i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    assert_int_equal(ddl_crc32c("", 0), 0);
    assert_true(ddl_crc32c("123456789", 9) == 0xe3069283u);
    assert_true(ddl_crc32c(zeros, sizeof zeros) == 0x8a9136aau);
    assert_true(ddl_crc32c(ones, sizeof ones) == 0x62a8ab43u);
    assert_true(ddl_crc32c(up, sizeof up) == 0x46dd794eu);
    assert_true(ddl_crc32c(down, sizeof down) == 0x113fdb5cu);
}

/* In pieces of any length, with and without the processor's instructions. */
static void pieces(void **state)
{
    (void)state;
    enum { SIZE = 40000 };
    unsigned char bytes[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    uint32_t whole = ddl_crc32c(bytes, SIZE);
    assert_true(ddl_crc32c_add_portable(0, bytes, SIZE) == whole);
    for (size_t length = 1; length < 20000; length += 1 + length / 3) {
        uint32_t fast = 0, portable = 0;
        for (size_t at = 0; at < SIZE; at += length) {
            size_t n = SIZE - at < length ? SIZE - at : length;
            fast = ddl_crc32c_add(fast, bytes + at, n);
            portable = ddl_crc32c_add_portable(portable, bytes + at, n);
        }
        assert_true(fast == whole && portable == whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(standard_examples), cmocka_unit_test(pieces) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
