/* The same machine and thread count give the same bits: whole training runs, again and again, while other
 * threads take the processor away. That every op gives the same bits twice, in one to three threads, is part
 * of compare_outputs (tests/support/backends.c). */
#include "support/runs.h"
#include "support/stress.h"

#include "ddl/data.h"
#include "ddl/train.h"

enum { V = 500 };

/* Large enough for every op to be split over threads. */
static struct ddl_train_config run_config(const char *preset, size_t threads)
{
    struct ddl_train_config t = ddl_train_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&t.config, preset, &err), err);
    t.config.vocab_size = V;
    t.config.n_layers = 2;
    t.config.n_heads = 3;
    t.config.d_model = 96;
    t.config.head_dim = 32;
    t.config.block_size = 80;
    snprintf(t.backend, sizeof t.backend, "cpu");
    snprintf(t.train_data, sizeof t.train_data, "%s", scratch_path("train.bin"));
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    snprintf(t.out, sizeof t.out, "%s", scratch_path("run"));
    t.steps = 3;
    t.batch = 3;
    t.accumulate = 2;
    t.seq = 80;
    t.warmup = 1;
    t.seed = 3;
    t.val_every = 3;
    t.val_tokens = 400;
    t.threads = threads;
    t.overwrite = true;
    return t;
}

static void training_repeats(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec", "ddl-mix" };
    write_random_shard(scratch_path("train.bin"), 1, V, 4000);
    write_random_shard(scratch_path("val.bin"), 2, V, 900);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        for (size_t threads = 1; threads <= 3; threads++) {
            struct ddl_train_config t = run_config(presets[i], threads);
            struct ddl_train_progress first = { 0 };
            for (int run = 0; run < (test_sample_sanitized() ? 2 : 4); run++) {
                struct ddl_train_progress last;
                struct ddl_error err;
                if (run)
                    stress_begin();
                ddl_status status = ddl_train_run(&t, &(struct ddl_train_callbacks){ 0 }, &last, &err);
                if (run)
                    stress_end();
                assert_ok(status, err);
                if (run == 0) {
                    first = last;
                    size_t size;
                    char *bytes = read_file(scratch_path("run/model.safetensors"), &size);
                    write_file(scratch_path("first.safetensors"), bytes, size);
                    free(bytes);
                }
                assert_same_file(scratch_path("run/model.safetensors"), scratch_path("first.safetensors"));
                assert_memory_equal(&last.loss, &first.loss, sizeof first.loss);
                assert_memory_equal(&last.val_loss, &first.val_loss, sizeof first.val_loss);
                assert_memory_equal(&last.grad_norm, &first.grad_norm, sizeof first.grad_norm);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(training_repeats) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
