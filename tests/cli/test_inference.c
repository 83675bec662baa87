/* The memory of inference: what the weights take in their precision, not what they take in the file. */
#include "support/memory.h"
#include "support/models.h"
#include "support/runs.h"

#include "ddl/config.h"

enum { MEBI = 1 << 20 };

/* A model of some size, mostly embedding: 124 MB in float32. It is freed: a child's peak
 * memory includes what its parent had at the fork. */
static struct ddl_config write_model(const char *folder)
{
    struct ddl_config config = tiny_config("ddl-cc-ec", 60000);
    ddl_model *model;
    struct ddl_error err;
    config.d_model = 512;
    config.n_layers = 1;
    ddl_backend *backend = open_test_backend(2);
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, 1, &err), err);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return config;
}

/* Above the weights: the program (its libraries, their tables), a tokenizer, the activations of 16 tokens and
 * their logits. (The sanitizers' memory is not the program's.) */
static void weights_are_in_memory_once(void **state)
{
    (void)state;
#ifdef DDL_SANITIZED
    skip();
#endif
    enum { ABOVE = 36 * MEBI };
    char folder[4096], shard[4096];
    snprintf(folder, sizeof folder, "%s", scratch_path("large"));
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    struct ddl_config config = write_model(folder);
    write_random_shard(shard, 1, 60000, 100);
    for (size_t k = 0; k < TEST_PRECISIONS; k++) {
        enum ddl_precision precision = test_precisions[k];
        const char *const arguments[] = { ddl_program(),
                                          "eval",
                                          folder,
                                          "--shard",
                                          shard,
                                          "--seq",
                                          "16",
                                          "--batch",
                                          "1",
                                          "--dtype",
                                          ddl_precision_names[precision],
                                          NULL };
        ddl_backend *backend;
        assert_int_equal(ddl_backend_create(&backend, "cpu", 1, NULL), DDL_OK);
        size_t weights = ddl_config_weight_bytes(&config, precision, backend);
        ddl_backend_free(backend);
        size_t used = peak_memory_of(ddl_program(), arguments);
        print_message("%s: %zu MiB of weights, %zu MiB of memory\n", ddl_precision_names[precision],
                      weights / MEBI, used / MEBI);
        assert_true(used > weights && used < weights + ABOVE);
    }
    remove_scratch("large");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(weights_are_in_memory_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
