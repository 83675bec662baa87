/* Everything that is read, with every request for memory failing in turn: model folders, tokenizers, recipes,
 * configurations, shards, metrics. */
#include "oom/sweep.h"
#include "support/runs.h"

#include "ddl/compare.h"
#include "ddl/data.h"
#include "ddl/train.h"
#include "model/files/model_io.h"
#include "tensor/safetensors.h"

#include <jansson.h>

static char model_folder[4096], parts_folder[4096];

static ddl_status load_with(const char *folder, enum ddl_precision precision, uint64_t *digest,
                            struct ddl_error *err)
{
    const struct ddl_load_options options = { .precision = precision };
    ddl_backend *backend = NULL;
    ddl_model *model = NULL;
    ddl_status status = ddl_backend_create(&backend, "cpu", 2, err);
    if (!status)
        status = ddl_model_load_with(&model, folder, backend, &options, err);
    for (size_t i = 0; !status && i < ddl_model_n_params(model); i++) {
        float values[1 << 13];
        assert_true(ddl_model_param(model, i)->count <= sizeof values / sizeof *values);
        ddl_model_read_param(model, i, values);
        *digest = digest_add(*digest, values, ddl_model_param(model, i)->count * sizeof *values);
    }
    ddl_model_free(model);
    ddl_backend_free(backend);
    return status;
}

static ddl_status load_model(void *user, uint64_t *digest, struct ddl_error *err)
{
    return load_with(user, DDL_PRECISION_F32, digest, err);
}

static ddl_status load_reduced(void *user, uint64_t *digest, struct ddl_error *err)
{
    return load_with(user, DDL_PRECISION_INT8, digest, err);
}

static void model_folders(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "model, one file", .run = load_model, .user = model_folder });
    sweep(&(struct sweep){ .name = "model, int8", .run = load_reduced, .user = model_folder });
    sweep(&(struct sweep){ .name = "model, several files", .run = load_model, .user = parts_folder });
}

static ddl_status load_config(void *user, uint64_t *digest, struct ddl_error *err)
{
    struct ddl_config config = ddl_config_defaults();
    ddl_status status = ddl_config_load(&config, user, NULL, NULL, err);
    for (const struct ddl_option *row = ddl_config_options(); !status && row->name; row++) {
        char text[8192];
        ddl_option_format(row, &config, text, sizeof text);
        *digest = digest_add(*digest, text, strlen(text));
    }
    return status;
}

static void configurations(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "config.json", .run = load_config, .user = model_folder });
}

static ddl_status load_tokenizer(void *user, uint64_t *digest, struct ddl_error *err)
{
    static const char text[] = "People who copy software, in \"all\" its parts, 1234 times.\n";
    ddl_tokenizer *tokenizer = NULL;
    struct ddl_ids ids = { 0 };
    ddl_status status = ddl_tokenizer_load(&tokenizer, user, err);
    if (!status)
        status = ddl_tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, err);
    if (!status)
        *digest = digest_add(0, ids.ids, ids.n * sizeof *ids.ids);
    ddl_ids_free(&ids);
    ddl_tokenizer_free(tokenizer);
    return status;
}

/* tokenizer.json as GPT-2's two files. */
static void write_gpt2_files(const char *folder)
{
    enum { SIZE = 1 << 20 };
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    struct ddl_error err;
    char path[8192];
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, folder, &err), err);
    ddl_tokenizer_free(tokenizer);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why), *model = json_object_get(root, "model");
    assert_non_null(root);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "%s/encoder.json", folder);
    assert_int_equal(json_dump_file(json_object_get(model, "vocab"), path, 0), 0);
    char *text = malloc(SIZE);
    size_t n = (size_t)snprintf(text, SIZE, "#version: 0.2\n"), i;
    json_t *merge;
    json_array_foreach(json_object_get(model, "merges"), i, merge)
    {
        const char *pair = json_string_value(merge);
        n += pair ? (size_t)snprintf(text + n, SIZE - n, "%s\n", pair)
                  : (size_t)snprintf(text + n, SIZE - n, "%s %s\n",
                                     json_string_value(json_array_get(merge, 0)),
                                     json_string_value(json_array_get(merge, 1)));
    }
    json_decref(root);
    snprintf(path, sizeof path, "%s/vocab.bpe", folder);
    write_file(path, text, n);
    free(text);
}

static void tokenizers(void **state)
{
    (void)state;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", scratch_path("gpt2"));
    write_gpt2_files(folder);
    sweep(&(struct sweep){ .name = "tokenizer.json", .run = load_tokenizer, .user = model_folder });
    sweep(&(struct sweep){ .name = "encoder.json and vocab.bpe", .run = load_tokenizer, .user = folder });
}

static ddl_status load_recipe(void *user, uint64_t *digest, struct ddl_error *err)
{
    struct ddl_train_config t;
    char program[] = "train", flag[] = "--lr", value[] = "0.01";
    char *argv[] = { program, flag, value, NULL };
    int n = 0;
    ddl_status status = ddl_train_configure(&t, user, 3, argv, NULL, NULL, &n, err);
    for (const struct ddl_option *row = ddl_train_options(); !status && row->name; row++) {
        char text[8192];
        ddl_option_format(row, &t, text, sizeof text);
        *digest = digest_add(*digest, text, strlen(text));
    }
    return status;
}

static void recipes(void **state)
{
    (void)state;
    char recipe[4096];
    snprintf(recipe, sizeof recipe, "%s", source_path("recipes/cpu.yaml"));
    sweep(&(struct sweep){ .name = "recipe", .run = load_recipe, .user = recipe });
}

static ddl_status load_shards(void *user, uint64_t *digest, struct ddl_error *err)
{
    ddl_shards *shards = NULL;
    ddl_status status = ddl_shards_open(&shards, user, err);
    if (!status)
        status = ddl_shards_check(shards, 300, NULL, NULL, err);
    int32_t tokens[200];
    if (!status) {
        ddl_shards_read(shards, 3, 200, tokens);
        *digest = digest_add(0, tokens, sizeof tokens);
    }
    ddl_shards_close(shards);
    return status;
}

static void shards(void **state)
{
    (void)state;
    char folder[4096], pattern[8192], path[8192];
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", scratch_path("shards"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    for (unsigned i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "%s/train_%06u.bin", folder, i);
        write_random_shard(path, i, 300, 64);
    }
    snprintf(pattern, sizeof pattern, "%s/train_*.bin", folder);
    sweep(&(struct sweep){ .name = "shards, a pattern", .run = load_shards, .user = pattern });
    sweep(&(struct sweep){ .name = "shards, a file", .run = load_shards, .user = path });
}

static ddl_status load_log(void *user, uint64_t *digest, struct ddl_error *err)
{
    struct ddl_run_log log = { 0 };
    ddl_status status = ddl_run_log_read(&log, user, err);
    if (!status) {
        const double figures[] = { ddl_run_log_final_val(&log), ddl_run_log_final_train(&log), (double)log.n,
                                   (double)log.has_config };
        *digest = digest_add(0, figures, sizeof figures);
    }
    ddl_run_log_free(&log);
    return status;
}

static void metrics(void **state)
{
    (void)state;
    static const char line[] = "{\"step\":%d,\"loss\":%d.5,\"val_loss\":5.25,\"tokens\":%d,\"flops\":1e9,"
                               "\"seconds\":1.5,\"tokens_per_s\":100,\"peak_memory\":1000,\"lr\":0.1,"
                               "\"grad_norm\":1.0}\n";
    char text[4096], path[8192];
    size_t n = 0;
    for (int i = 1; i <= 10; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, line, i, 20 - i, 100 * i);
    snprintf(path, sizeof path, "%s/metrics.jsonl", model_folder);
    write_file(path, text, n);
    sweep(&(struct sweep){ .name = "metrics.jsonl", .run = load_log, .user = model_folder });
}

/* The tensors of the one file in three, and an index. */
static ddl_status fill_from(void *user, size_t i, size_t offset, size_t bytes, void *to,
                            struct ddl_error *err)
{
    (void)err;
    const struct ddl_tensor *tensors = user;
    memcpy(to, (const char *)tensors[i].data + offset, bytes);
    return DDL_OK;
}

static void write_parts(void)
{
    enum { PARTS = 3 };
    char path[8192], index[1 << 15];
    struct ddl_error err;
    ddl_safetensors *st;
    assert_ok(ddl_file_make_dir(parts_folder, &err), err);
    snprintf(path, sizeof path, "%s/config.json", model_folder);
    size_t size, n = (size_t)snprintf(index, sizeof index, "{\"metadata\":{},\"weight_map\":{");
    char *config = read_file(path, &size);
    snprintf(path, sizeof path, "%s/config.json", parts_folder);
    write_file(path, config, size);
    free(config);
    snprintf(path, sizeof path, "%s/model.safetensors", model_folder);
    assert_ok(ddl_safetensors_open(&st, path, &err), err);
    size_t count = ddl_safetensors_count(st);
    for (size_t part = 0; part < PARTS; part++) {
        size_t lo = count * part / PARTS, hi = count * (part + 1) / PARTS;
        char name[64];
        snprintf(name, sizeof name, "model-%zu.safetensors", part);
        snprintf(path, sizeof path, "%s/%s", parts_folder, name);
        struct ddl_tensor tensors[256];
        assert_true(hi - lo <= 256);
        for (size_t i = lo; i < hi; i++) {
            tensors[i - lo] = *ddl_safetensors_at(st, i);
            n += (size_t)snprintf(index + n, sizeof index - n, "%s\"%s\":\"%s\"", i ? "," : "",
                                  tensors[i - lo].name, name);
        }
        assert_ok(ddl_safetensors_write(path, tensors, hi - lo, fill_from, tensors, &err), err);
    }
    n += (size_t)snprintf(index + n, sizeof index - n, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", parts_folder);
    write_file(path, index, n);
    ddl_safetensors_close(st);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(model_folder, sizeof model_folder, "%s", tiny_folder("model", "ddl-cc-ec"));
    snprintf(parts_folder, sizeof parts_folder, "%s", scratch_path("parts"));
    write_parts();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_folders), cmocka_unit_test(configurations), cmocka_unit_test(tokenizers),
        cmocka_unit_test(recipes),       cmocka_unit_test(shards),         cmocka_unit_test(metrics),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
