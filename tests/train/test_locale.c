/* A host program has called setlocale() and its decimal point is a comma (or two bytes long): options, model
 * folders, runs and their files are the same as in the C locale. */
#include "support/locale.h"
#include "support/runs.h"

#include "ddl/compare.h"
#include "ddl/verify.h"

#include "base/json.h"

#include <math.h>

enum { V = 31 };

static const char *const points[] = { ",", "\xd9\xab" };
enum { N_POINTS = sizeof points / sizeof *points };

static void options(void **state)
{
    (void)state;
    static const char recipe[] = "lr: 2.5e-3\nbeta2: 0.95\nrope_ratio: 0.7\nhead_dim: 10\nclip: 0.5\n";
    write_file(scratch_path("recipe.yaml"), recipe, sizeof recipe - 1);
    for (size_t i = 0; i < N_POINTS; i++) {
        struct ddl_error err;
        struct ddl_train_config t;
        char *argv[] = { "x", "--weight-decay=0.25", NULL };
        int n;
        if (!set_decimal_point(points[i]))
            skip();
        assert_ok(ddl_train_configure(&t, scratch_path("recipe.yaml"), 2, argv, NULL, NULL, &n, &err), err);
        assert_true(t.lr == 2.5e-3 && t.beta2 == 0.95f && t.clip == 0.5f && t.weight_decay == 0.25f);
        /* 0.7 times 10 in decimal; the rotated dimensions come in pairs */
        assert_int_equal(ddl_config_rope_dims(&t.config), 6);
        char text[64];
        ddl_option_format(ddl_option_find(ddl_train_options(), "lr"), &t, text, sizeof text);
        assert_string_equal(text, "0.0025");
        ddl_option_range(ddl_option_find(ddl_train_options(), "beta1"), text, sizeof text);
        assert_string_equal(text, "0 to 0.9999999");
        assert_int_equal(ddl_option_set(ddl_option_find(ddl_train_options(), "lr"), &t, "0,5", "x", &err),
                         DDL_E_USAGE);
        ddl_error_set(&err, DDL_OK, "%g", 0.5);
        assert_string_equal(err.text, "0.5");
        reset_locale();
    }
}

static void run(const char *out, bool resumed)
{
    struct ddl_error err;
    struct ddl_train_config t = tiny_run("ddl-cc-ec", V, test_backend(0), out);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("train.bin"));
    t.val_every = 4;
    t.val_tokens = 100;
    t.lr = 0.0125;
    t.warmup = 3;
    t.config.rope_ratio = 0.5f;
    t.spike_z = 3.5;
    t.checkpoint_every = 10;
    if (resumed) {
        assert_int_equal(run_until(&t, 13, NULL, &err), DDL_E_INTERRUPTED);
        t.resume = true;
    }
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

/* Trained, stopped and resumed; every line of metrics.jsonl is JSON. */
static void runs(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 1, V, 3000);
    run("c", false);
    for (size_t i = 0; i < N_POINTS; i++) {
        if (!set_decimal_point(points[i]))
            skip();
        run("comma", true);
        reset_locale();
        const char *c = scratch_path("c"), *comma = scratch_path("comma");
        assert_same_metrics(c, comma);
        assert_same_checkpoint(c, comma, "checkpoint-20");
        assert_same_file(file_in(c, "config.json"), file_in(comma, "config.json"));
        char *text = read_file(file_in(comma, "metrics.jsonl"), NULL);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            json_t *object = json_loads(line, 0, NULL);
            assert_true(json_is_real(json_object_get(object, "seconds")) || json_object_get(object, "kind"));
            json_decref(object);
        }
        free(text);
    }
}

static void note_case(void *user, const struct ddl_verify_case *c)
{
    *(int *)user = c->outcome;
}

/* Everything that reads numbers from JSON. */
static void readers(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_POINTS; i++) {
        struct ddl_error err;
        struct ddl_verify_config v = ddl_verify_defaults();
        struct ddl_verify_totals totals;
        struct ddl_run_log log;
        const char *path = source_path("tests/golden/ddl-1-rope-half");
        int outcome = DDL_VERIFY_FAIL;
        snprintf(v.backend, sizeof v.backend, "ref");
        if (!set_decimal_point(points[i]))
            skip();
        assert_ok(ddl_run_log_read(&log, scratch_path("c"), &err), err);
        assert_int_equal(log.n, 21); /* with step 0 */
        assert_true(log.points[4].val_loss > 0 && isfinite(log.points[4].val_loss));
        ddl_run_log_free(&log);
        assert_ok(ddl_verify_run(&v, &path, 1, note_case, &outcome, &totals, &err), err);
        assert_int_equal(outcome, DDL_VERIFY_PASS);
        reset_locale();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(options), cmocka_unit_test(runs),
                                        cmocka_unit_test(readers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
