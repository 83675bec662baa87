/* verify/dump.c: the dump of a run whose numbers ended is replayed on every backend, passes where it
 * happens again, and fails where it does not or the dump is broken. */
#include "support/models.h"
#include "support/runs.h"

#include "ddl/train.h"
#include "ddl/verify.h"

#include <math.h>

enum { V = 31 };

struct reported {
    struct ddl_verify_totals totals;
    struct ddl_verify_case cases[4]; /* their pointers are invalid */
    char backends[4][8];
    size_t n;
};

static void note(void *user, const struct ddl_verify_case *r)
{
    struct reported *reported = user;
    assert_true(reported->n < 4);
    snprintf(reported->backends[reported->n], sizeof reported->backends[0], "%s",
             r->backend ? r->backend : "");
    if (r->outcome != DDL_VERIFY_SKIP)
        assert_string_equal(r->kind, "trouble");
    reported->cases[reported->n++] = *r;
}

static struct reported verify(const char *path)
{
    struct ddl_verify_config config = ddl_verify_defaults();
    struct reported reported = { 0 };
    struct ddl_error err;
    assert_ok(ddl_verify_run(&config, &path, 1, note, &reported, &reported.totals, &err), err);
    return reported;
}

/* A model folder whose parameter has one bad number, or `factor` times its own. */
static const char *start_folder(const char *name, const char *parameter, float factor, float bad)
{
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    ddl_model *model = tiny_model("ddl-tc", V, 3, backend);
    size_t row = param_row(model, parameter), middle = ddl_model_param(model, row)->count / 2;
    change_param(model, row, 0, SIZE_MAX, factor, 0);
    if (bad != 0)
        change_param(model, row, middle, middle + 1, 0, bad);
    const char *folder = scratch_path(name);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return folder;
}

/* Trains until step 1 has a non-finite value; returns the dump's folder. */
static const char *dump_of(const char *start, const char *backend, int recompute)
{
    struct ddl_error err;
    struct ddl_train_config t = tiny_run("ddl-tc", V, backend, "run");
    write_random_shard(t.train_data, 1, V, 3000);
    snprintf(t.init_from, sizeof t.init_from, "%s", start);
    t.steps = 3;
    t.warmup = 0;
    t.accumulate = 2;
    t.recompute = recompute;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    return scratch_path("run/trouble-1");
}

static void happens_again_on_every_backend(void **state)
{
    (void)state;
    static const struct {
        const char *parameter;
        float factor, bad;
        const char *says;
    } cases[] = {
        { "transformer.h.2.attn.k_rms.weight", 1, NAN,
          "step 1: first in layer 2, attn: kn, sequence 0, token 0 (96 NaN and 0 infinite of 576 numbers, "
          "the largest "
          "other " },
        { "transformer.h.1.ddl_mlp.v_proj.weight", 1, INFINITY,
          "step 1: first in layer 1, mlp, backward: dx_in" }, /* sigmoid is finite */
        { "transformer.h.0.mlp.c_fc1.weight", 1e38f, 0, "step 1: first in layer 0, mlp: " },
        { "readout.shortconv.weight", 1, -INFINITY, "step 1: first in head: x_in, sequence 0, token " },
    };
    static const char *const backends[] = { "cpu", "ref" };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases;
         i++) { /* each choice of recompute meets each backend */
        const char *start =
            start_folder("start", cases[i / 2].parameter, cases[i / 2].factor, cases[i / 2].bad);
        struct reported reported = verify(dump_of(start, backends[i % 2], (int)(i % DDL_RECOMPUTES)));
        assert_int_equal(reported.totals.passed, 2);
        assert_int_equal(reported.totals.failed + reported.totals.skipped, 0);
        for (size_t k = 0; k < 2; k++) {
            bool own = strcmp(reported.backends[k], backends[i % 2]) == 0;
            if (strncmp(reported.cases[k].message, cases[i / 2].says, strlen(cases[i / 2].says)) != 0)
                fail_msg("%s of %s: %s", reported.backends[k], backends[i % 2], reported.cases[k].message);
            if (own)
                assert_non_null(strstr(reported.cases[k].message, "; as in the run"));
            if (cases[i / 2].bad != 0)
                assert_non_null(
                    strstr(reported.cases[k].message, isnan(cases[i / 2].bad)
                                                          ? "was not finite before the step (1 NaN and 0"
                                                          : "was not finite before the step (0 NaN and 1"));
        }
    }
}

/* The run's folder as a whole: its checkpoints are no cases, its dump is. */
static void is_found_in_the_folder_of_its_run(void **state)
{
    (void)state;
    dump_of(start_folder("start", "transformer.h.0.mlp.c_fc1.weight", 1e38f, 0), "cpu",
            DDL_RECOMPUTE_ELEMENTWISE);
    struct reported reported = verify(scratch_path("run"));
    assert_int_equal(reported.totals.passed, 2);
    assert_int_equal(reported.totals.skipped, 1); /* checkpoint-0 */
}

static void fails_where_all_is_finite(void **state)
{
    (void)state;
    char dump[2048], command[8192];
    snprintf(dump, sizeof dump, "%s",
             dump_of(start_folder("start", "transformer.h.2.attn.k_rms.weight", 1, NAN), "cpu",
                     DDL_RECOMPUTE_NONE));
    const char *healthy = start_folder("healthy", "transformer.h.2.attn.k_rms.weight", 1, 0);
    snprintf(command, sizeof command, "cp '%s/model.safetensors' '%s/checksums.json' '%s/'", healthy, healthy,
             dump);
    assert_int_equal(run_command(command, command, 1), 0);
    struct reported reported = verify(dump);
    assert_int_equal(reported.totals.failed, 2);
    for (size_t k = 0; k < 2; k++)
        assert_non_null(
            strstr(reported.cases[k].message,
                   "step 1: everything is finite here; the run, on cpu: first in layer 2, attn: kn"));
    /* Bad elsewhere: on the backend of the run that is not what happened, on another it may be. */
    const char *other = start_folder("other", "transformer.h.0.ln_1.weight", 1, NAN);
    snprintf(command, sizeof command, "cp '%s/model.safetensors' '%s/checksums.json' '%s/'", other, other,
             dump);
    assert_int_equal(run_command(command, command, 1), 0);
    reported = verify(dump);
    for (size_t k = 0; k < 2; k++) {
        assert_int_equal(reported.cases[k].outcome == DDL_VERIFY_FAIL,
                         strcmp(reported.backends[k], "cpu") == 0);
        assert_non_null(strstr(reported.cases[k].message, "step 1: first in layer 0, attn: ctx"));
        assert_non_null(strstr(reported.cases[k].message, "; the run, on cpu: first in layer 2, attn: kn"));
    }
}

/* A file that is missing, truncated, or of another model: a failed case with an error message. */
static void broken_dumps_fail(void **state)
{
    (void)state;
    static const struct {
        const char *file, *says;
    } cases[] = {
        { "batch.safetensors", "batch.safetensors" },
        { "model.safetensors", "model.safetensors" },
        { "config.json", "config.json" },
        { "trouble.json", "trouble.json" },
    };
    char start[2048];
    snprintf(start, sizeof start, "%s", start_folder("start", "transformer.h.2.attn.k_rms.weight", 1, NAN));
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char path[4096];
        size_t size;
        char dump[2048];
        snprintf(dump, sizeof dump, "%s", dump_of(start, "cpu", DDL_RECOMPUTE_BLOCK));
        snprintf(path, sizeof path, "%s/%s", dump, cases[i / 2].file);
        char *bytes = read_file(path, &size);
        assert_int_equal(remove(path), 0);
        write_file(path, bytes, i % 2 ? size / 2 : 0);
        free(bytes);
        struct reported reported = verify(dump);
        assert_int_equal(reported.totals.failed, 2);
        assert_non_null(strstr(reported.cases[0].message, cases[i / 2].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(happens_again_on_every_backend),
        cmocka_unit_test(is_found_in_the_folder_of_its_run),
        cmocka_unit_test(fails_where_all_is_finite),
        cmocka_unit_test(broken_dumps_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
