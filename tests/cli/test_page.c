/* cli/output/page.c in a program that was built without Chart.js: its table of files, below, is empty. */
#include "support/files.h"

#include "cli/output/page.h"

const struct page_asset page_assets[] = { { 0 } };

static void refused(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    assert_int_equal(page_check("", &err), DDL_OK);
    assert_int_equal(page_check("page.html", &err), DDL_E_UNSUPPORTED);
    assert_says(&err, "--html: not available: this ddl was built without Chart.js (package libjs-chart.js)");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
