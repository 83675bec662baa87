/* Text to tokenizers and shards, with every request for memory (and every thread) failing in turn. */
#include "oom/allocator.h"
#include "oom/sweep.h"
#include "support/runs.h"

#include "data/pack.h"
#include "ddl/data.h"

static char out_folder[1000], parts_folder[1010];
static long tokenizer_requests; /* that it takes to load it */

static ddl_status learn(void *user, uint64_t *digest, struct ddl_error *err)
{
    (void)user;
    const char *files[] = { scratch_path("text.txt") };
    struct ddl_tokenizer_train_config k = ddl_tokenizer_train_defaults();
    ddl_tokenizer *tokenizer = NULL;
    k.vocab_size = 280;
    *digest = 0;
    ddl_status status = ddl_tokenizer_train(&tokenizer, &k, files, 1, NULL, NULL, err);
    if (!status)
        status = ddl_tokenizer_save(tokenizer, out_folder, err);
    ddl_tokenizer_free(tokenizer);
    return status;
}

static void learning(void **state)
{
    (void)state;
    sweep(&(struct sweep){ .name = "tokenizer train", .run = learn, .folder = out_folder, .all = 300 });
}

static ddl_status build(void *user, uint64_t *digest, struct ddl_error *err)
{
    const char *const input = user;
    struct ddl_build_config k = ddl_build_defaults();
    struct ddl_build_result result;
    snprintf(k.out, sizeof k.out, "%s", out_folder);
    snprintf(k.tokenizer, sizeof k.tokenizer, "%s", scratch_path("tokenizer"));
    k.val_fraction = 0.3;
    k.shard_tokens = 300;
    k.threads = 2;
    ddl_status status = ddl_data_build(&k, &input, 1, NULL, NULL, &result, err);
    if (!status)
        *digest = digest_add(0, result.tokens, sizeof result.tokens);
    assert_true(status || !ddl_file_exists(parts_folder));
    return status;
}

/* After an error, finished parts are left, or complete shards that are not all in place: the same call would
 * use them. */
static void remove_parts(void *user)
{
    char ready[4200];
    (void)user;
    snprintf(ready, sizeof ready, "%s/ready", parts_folder);
    if (ddl_file_exists(ready))
        (void)ddl_file_remove_dir(ready, NULL);
    if (ddl_file_exists(parts_folder))
        (void)ddl_file_remove_dir(parts_folder, NULL);
}

static void building(void **state)
{
    (void)state;
    static const char *const names[] = { "text.txt", "lines.jsonl", "lines.jsonl.gz", "lines.jsonl.zst" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s", scratch_path(names[i]));
        sweep(&(struct sweep){ .name = names[i],
                               .run = build,
                               .user = path,
                               .check = remove_parts,
                               .folder = out_folder,
                               .first = tokenizer_requests,
                               .all = 300 });
    }
}

static int set_up(void **state)
{
    (void)state;
    char lines[1 << 14];
    unsigned char *packed;
    size_t n = 0, size;
    for (int i = 0; i < 12; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n,
                              "{\"text\":\"Document %d of the Software, with \\u00e9 and more\",\"n\":%d}\n",
                              i, i);
    write_file(scratch_path("lines.jsonl"), lines, n);
    packed = pack_gzip(lines, n, &size);
    write_file(scratch_path("lines.jsonl.gz"), packed, size);
    free(packed);
    packed = pack_zstd(lines, n, &size);
    write_file(scratch_path("lines.jsonl.zst"), packed, size);
    free(packed);
    char *text = read_file(source_path("LICENSE"), &size);
    write_file(scratch_path("text.txt"), text, size);
    free(text);
    tokenizer_requests = make_tokenizer();
    snprintf(out_folder, sizeof out_folder, "%s", scratch_path("out"));
    snprintf(parts_folder, sizeof parts_folder, "%s/.build", out_folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(learning), cmocka_unit_test(building) };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
