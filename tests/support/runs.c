#include "support/runs.h"

#include "base/rng.h"

struct ddl_config tiny_config(const char *preset, size_t vocab_size)
{
    struct ddl_config k = ddl_config_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&k, preset, &err), err);
    k.vocab_size = vocab_size;
    k.n_layers = 3;
    k.n_heads = 3;
    k.d_model = 21;
    k.head_dim = 6;
    k.block_size = 16;
    k.hidden_init_std_factor = 2; /* so that no sublayer is too quiet to notice */
    k.embedding_init_std = 0.5f;
    return k;
}

ddl_model *tiny_model(const char *preset, size_t vocab_size, uint64_t seed, ddl_backend *backend)
{
    struct ddl_error err;
    struct ddl_config config = tiny_config(preset, vocab_size);
    ddl_model *model;
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, seed, &err), err);
    return model;
}

ddl_tokenizer *tiny_tokenizer(void)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer;
    size_t size;
    char *text = read_file(source_path("LICENSE"), &size);
    const char *files[] = { scratch_path("license.txt") };
    write_file(files[0], text, size);
    free(text);
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = TINY_VOCAB;
    assert_ok(ddl_tokenizer_train(&tokenizer, &config, files, 1, NULL, NULL, &err), err);
    return tokenizer;
}

ddl_tokenizer *shared_tokenizer;
ddl_backend *shared_backend;

static int share(ddl_backend *backend)
{
    shared_backend = backend;
    shared_tokenizer = tiny_tokenizer();
    return 0;
}

int share_backend(void **state)
{
    (void)state;
    return share(open_test_backend(2));
}

int share_ref(void **state)
{
    (void)state;
    ddl_backend *ref;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&ref, "ref", 0, &err), err);
    return share(ref);
}

int unshare(void **state)
{
    (void)state;
    ddl_tokenizer_free(shared_tokenizer);
    ddl_backend_free(shared_backend);
    return 0;
}

const char *tiny_folder(const char *name, const char *preset)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    const char *path = scratch_path(name);
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *model = tiny_model(preset, TINY_VOCAB, 7, backend);
    assert_ok(ddl_file_make_dir(path, &err), err);
    assert_ok(ddl_model_save(model, path, &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, path, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    ddl_tokenizer_free(tokenizer);
    return path;
}

const char *tiny_text(const char *name, size_t size)
{
    const char *path = scratch_path(name);
    char *text = read_file(source_path("LICENSE"), NULL);
    write_file(path, text, size);
    free(text);
    return path;
}

void write_random_shard(const char *path, uint64_t seed, size_t vocab, size_t n)
{
    unsigned char *data = calloc(1, 1024 + 2 * n);
    assert_non_null(data);
    const uint32_t header[3] = { 20240520, 1, (uint32_t)n };
    for (size_t i = 0; i < sizeof header; i++)
        data[i] = (unsigned char)(header[i / 4] >> 8 * (i % 4));
    uint64_t key = ddl_rng_key(seed, "shard"), token = 1;
    for (size_t i = 0; i < n; i++) {
        token = ddl_rng_below(key, i, 4) ? (token * 5 + 3) % vocab : ddl_rng_below(key, i + n, vocab);
        data[1024 + 2 * i] = (unsigned char)token;
        data[1025 + 2 * i] = (unsigned char)(token >> 8);
    }
    write_file(path, data, 1024 + 2 * n);
    free(data);
}

struct ddl_train_config tiny_run(const char *preset, size_t vocab_size, const char *backend, const char *out)
{
    struct ddl_train_config t = ddl_train_defaults();
    snprintf(t.backend, sizeof t.backend, "%s", backend);
    snprintf(t.train_data, sizeof t.train_data, "%s", scratch_path("train.bin"));
    snprintf(t.out, sizeof t.out, "%s", scratch_path(out));
    t.config = tiny_config(preset, vocab_size);
    t.steps = 20;
    t.batch = 2;
    t.seed = 11;
    t.val_every = 0;
    t.checkpoint_every = 0;
    t.threads = 2;
    remove_scratch(out);
    return t;
}

struct stopper {
    int after, calls, notes;
};

static int stop_after(void *user)
{
    struct stopper *s = user;
    return ++s->calls == s->after;
}

static void count_note(void *user, const char *message)
{
    assert_true(strlen(message) > 0);
    ((struct stopper *)user)->notes++;
}

ddl_status run_until(const struct ddl_train_config *t, int steps, int *notes, struct ddl_error *err)
{
    struct stopper stopper = { .after = steps };
    struct ddl_train_callbacks callbacks = { .user = &stopper, .stop = stop_after, .note = count_note };
    ddl_status status = ddl_train_run(t, &callbacks, NULL, err);
    if (notes)
        *notes = stopper.notes;
    return status;
}

int stop_validation(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    struct validation_stop *s = user;
    s->calls++;
    s->last = done;
    s->total = total;
    return p->step == s->step && done >= s->done;
}

char *file_in(const char *folder, const char *name)
{
    static char path[4][4096];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

char *repeatable_metrics(const char *folder)
{
    char *text = read_file(file_in(folder, "metrics.jsonl"), NULL), *to = text;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *clock = strstr(line, ",\"tokens_per_s\"");
        if (!clock || clock > end) /* step 0 has no rate */
            clock = strstr(line, ",\"seconds\"");
        char *kind = strstr(line, ",\"kind\":");
        if (kind && kind < end) /* a telemetry record has no time */
            clock = end;
        assert_true(clock && clock <= end);
        memmove(to, line, (size_t)(clock - line));
        to += clock - line;
        *to++ = '\n';
    }
    *to = '\0';
    return text;
}

void assert_same_metrics(const char *a, const char *b)
{
    char *x = repeatable_metrics(a), *y = repeatable_metrics(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

void assert_same_checkpoint(const char *a, const char *b, const char *checkpoint)
{
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", checkpoint, files[i]);
        assert_same_file(file_in(a, name), file_in(b, name));
    }
}
