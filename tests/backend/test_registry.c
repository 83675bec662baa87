/* backend/registry.c: names of backends, with and without the index of a device. */
#include "support/support.h"

#include "ddl/backend.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

static void names_are_one_list(void **state)
{
    (void)state;
    size_t n = 0;
    for (; ddl_backend_names[n]; n++)
        assert_string_equal(ddl_backend_list(n), ddl_backend_names[n]);
    assert_null(ddl_backend_list(n));
    assert_true(n >= 2);
}

static void every_name_opens(void **state)
{
    (void)state;
    char with_index[64];
    for (size_t i = 0; ddl_backend_names[i]; i++) {
        snprintf(with_index, sizeof with_index, "%s:0", ddl_backend_names[i]);
        const char *spellings[] = { ddl_backend_names[i], with_index };
        for (size_t s = 0; s < 2; s++) {
            ddl_backend *backend;
            struct ddl_error err;
            assert_ok(ddl_backend_create(&backend, spellings[s], 1, &err), err);
            assert_string_equal(ddl_backend_name(backend), ddl_backend_names[i]);
            assert_true(backend->ops->memory_capacity(backend->ctx) > 1 << 20);
            backend->ops->synchronize(backend->ctx);
            ddl_backend_free(backend);
        }
    }
    ddl_backend *backend;
    assert_int_equal(ddl_backend_create(&backend, NULL, 1, NULL), DDL_OK);
    assert_string_equal(ddl_backend_name(backend), ddl_backend_names[0]);
    ddl_backend_free(backend);
}

static void other_names_are_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *name, *gist;
    } cases[] = {
        { "cpu:1", "backend cpu:1: the only device of cpu is cpu:0" },
        { "ref:9999", "backend ref:9999: the only device of ref is ref:0" },
        { "cuda", "unknown backend 'cuda': expected one of: cpu ref (this build has these; both run on the "
                  "processor)" },
        { "cp", "unknown backend 'cp'" },
        { "cpu0", "unknown backend 'cpu0'" },
        { "", "unknown backend ''" },
        { ":0", "unknown backend ':0'" },
        { "cpu:", "backend 'cpu:': expected a device index" },
        { "cpu:-1", "expected a device index after ':', found '-1'" },
        { "cpu:0x", "expected a device index" },
        { "cpu:0:0", "expected a device index" },
        { "cpu:99999999999999999999", "expected a device index" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err = { 0 };
        ddl_backend *backend;
        assert_int_equal(ddl_backend_create(&backend, cases[i].name, 1, &err), DDL_E_USAGE);
        assert_null(backend);
        if (!strstr(err.text, cases[i].gist))
            fail_msg("'%s': '%s' does not contain '%s'", cases[i].name, err.text, cases[i].gist);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_one_list),
        cmocka_unit_test(every_name_opens),
        cmocka_unit_test(other_names_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
