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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(standard_examples) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
