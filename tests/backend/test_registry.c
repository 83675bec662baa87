/* backend/registry.c: names of backends, with and without the index of a device. */
#include "support/support.h"

#include "ddl/backend.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

static void every_name_opens(void **state)
{
    (void)state;
    static const char *const names[] = { "cpu", "ref" };
    char name[DDL_BACKEND_NAME_SIZE], with_index[64];
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(ddl_backend_list(i, name), names[i]);
        snprintf(with_index, sizeof with_index, "%s:0", name);
        const char *spellings[] = { name, with_index };
        for (size_t s = 0; s < 2; s++) {
            ddl_backend *backend;
            struct ddl_error err;
            assert_ok(ddl_backend_create(&backend, spellings[s], 1, &err), err);
            assert_string_equal(ddl_backend_name(backend), name);
            assert_true(backend->ops->memory_capacity(backend->ctx) > 1 << 20);
            backend->ops->synchronize(backend->ctx);
            ddl_backend_free(backend);
        }
    }
    ddl_backend *backend;
    assert_int_equal(ddl_backend_create(&backend, NULL, 1, NULL), DDL_OK);
    assert_string_equal(ddl_backend_name(backend), names[0]);
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
        { "cuda:1", "unknown backend 'cuda:1': expected one of: cpu ref" },
        { "cuda:1", "; the plugin libddl_cuda.so is not installed" },
        { "../cuda", "unknown backend '../cuda': expected one of: cpu ref" },
        { "a-name-that-is-longer-than-any-backend", "unknown backend 'a-name-that-is" },
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
        cmocka_unit_test(every_name_opens),
        cmocka_unit_test(other_names_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
