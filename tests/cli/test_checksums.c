/* checksums.json: every command refuses a model with a changed file, goes on with --no-verify, and accepts a
 * folder without checksums. */
#define _POSIX_C_SOURCE 200809L
#include "support/program.h"
#include "support/runs.h"

#include "model/files/sums.h"

#include <stdlib.h>

static char shard[4200];

static const char *const files[] = { "model.safetensors", "config.json", "tokenizer.json", "checksums.json" };
enum { FILES = sizeof files / sizeof *files };

/* A finished run of two steps. Returns its folder, which is a static buffer. */
static const char *finished_run(const char *name, double lr)
{
    static char run[4200];
    struct ddl_error err;
    write_random_shard(scratch_path("train.bin"), 1, 260, 3000);
    struct ddl_train_config t = tiny_run("baseline", TINY_VOCAB, "ref", name);
    snprintf(run, sizeof run, "%s", t.out);
    snprintf(shard, sizeof shard, "%s", t.train_data);
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", tiny_folder("tok", "baseline"));
    t.steps = t.checkpoint_every = 2;
    t.warmup = 0;
    t.lr = lr;
    t.overwrite = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    return run;
}

/* Replaces the byte in the middle of a file of the folder "copy", or appends a line break. */
static void change(const char *file, bool append)
{
    char path[4096];
    size_t size;
    snprintf(path, sizeof path, "%s/%s", scratch_path("copy"), file);
    if (!append) {
        corrupt_file(path, 0);
        return;
    }
    char *bytes = read_file(path, &size);
    bytes[size] = '\n'; /* instead of the NUL */
    write_file(path, bytes, size + 1);
    free(bytes);
}

static const char *const commands[] = {
    "eval '%s' --shard '%s' --backend ref %s",
    "generate '%s' --prompt a --max-tokens 2 --backend ref %.0s%s",
    "logprobs '%s' '%s' --backend ref %s",
    "inspect '%s' --shard '%s' --backend ref --tokens 32 %s",
    "ablate '%s' --shard '%s' --backend ref --max-tokens 32 %s",
    "info '%s' %.0s%s",
    "export '%s' --out OUT %.0s%s",
    "graft '%s' --layers 0 --rule delta --out OUT %.0s%s",
    ("train --init-from '%s' --train-data '%s' --val-data none --steps 1 --seq 8 --batch 1 --warmup 0 "
     "--backend ref --out OUT %s"),
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Runs command c; OUT is a scratch folder. */
static int run_on(size_t c, const char *folder, const char *flags)
{
    char line[8000], full[9000];
    remove_scratch("out");
    write_file(scratch_path("text"), "a b", 3);
    const char *data = strncmp(commands[c], "logprobs", 8) == 0 ? scratch_path("text") : shard;
    snprintf(line, sizeof line, commands[c], folder, data, flags);
    const char *out = strstr(line, "OUT");
    if (out)
        snprintf(full, sizeof full, "%.*s'%s'%s", (int)(out - line), line, scratch_path("out"), out + 3);
    return ddl("%s", out ? full : line);
}

static void every_command_checks(void **state)
{
    (void)state;
    char copy[4096], gist[2200];
    finished_run("run", 0.01);
    snprintf(copy, sizeof copy, "%s", scratch_path("copy"));
    for (size_t f = 0; f < FILES; f++) {
        remove_scratch("copy");
        copy_scratch("run", "copy");
        change(files[f], false);
        snprintf(gist, sizeof gist, "copy/%s: corrupted: ", files[f]);
        for (size_t c = 0; c < COMMANDS; c++) {
            if (run_on(c, copy, "") != 1)
                fail_msg("%s, %s: not refused: %s", commands[c], files[f], printed);
            assert_printed(gist);
            if (f + 1 < FILES)
                assert_printed("expected checksum (CRC-32C) ");
            assert_printed("restore the file from a copy, or, if it was changed on purpose, remove ");
        }
    }
}

/* Changed on purpose: the files remain readable. */
static void goes_on_without_checks(void **state)
{
    (void)state;
    finished_run("run", 0.01);
    for (size_t f = 0; f < FILES; f++) {
        remove_scratch("copy");
        copy_scratch("run", "copy");
        change(files[f], strstr(files[f], "json") && f + 1 < FILES);
        for (size_t c = 0; c < COMMANDS; c++) {
            if (run_on(c, scratch_path("copy"), "--no-verify") != 0)
                fail_msg("%s, %s: %s", commands[c], files[f], printed);
        }
        remove_scratch("copy/checksums.json");
        for (size_t c = 0; c < COMMANDS && f == 0; c++) {
            if (run_on(c, scratch_path("copy"), "") != 0)
                fail_msg("%s, %s, no checksums: %s", commands[c], files[f], printed);
        }
    }
}

/* Commands with a tokenizer of another folder. The words in capitals are variables. */
static const struct {
    const char *line;
    bool has_verify; /* the option --verify */
} tokenizer_commands[] = {
    { "tokenizer info \"$TOKENIZER\"", false },
    { "tokenizer info --tokenizer \"$TOKENIZER\"", false },
    { "tokenizer encode \"$TEXT\" --tokenizer \"$TOKENIZER\"", false },
    { "tokenizer decode \"$IDS\" --tokenizer \"$TOKENIZER\"", false },
    { "data build \"$TEXT\" --tokenizer \"$TOKENIZER\" --val-fraction 0 --out \"$OUT\"", false },
    { "data info \"$SHARD\" --tokenizer \"$TOKENIZER\"", false },
    { "bench tokenizer --tokenizer \"$TOKENIZER\" --text \"$TEXT\" --warmup 0 --steps 1", false },
    { "verify tests/golden/operator --tokenizer \"$TOKENIZER\"", false },
    { "eval \"$RUN\" --text \"$TEXT\" --tokenizer \"$TOKENIZER\" --backend ref", true },
    { "generate \"$RUN\" --prompt a --max-tokens 2 --tokenizer \"$TOKENIZER\" --backend ref", true },
    { "logprobs \"$RUN\" \"$TEXT\" --tokenizer \"$TOKENIZER\" --backend ref", true },
    { "inspect \"$RUN\" --prompt ab --tokenizer \"$TOKENIZER\" --backend ref", true },
    { "ablate \"$RUN\" --text \"$TEXT\" --tokenizer \"$TOKENIZER\" --backend ref", true },
    { "train --train-data \"$SHARD\" --val-data none --tokenizer \"$TOKENIZER\" --vocab-size 300 "
      "--size micro --steps 1 --seq 8 --batch 1 --warmup 0 --backend ref --out \"$OUT\"",
      true },
};
enum { TOKENIZER_COMMANDS = sizeof tokenizer_commands / sizeof *tokenizer_commands };

/* Runs command c with the tokenizer in the folder "copy". */
static void with_tokenizer(size_t c, const char *flags, int status, const char *gist)
{
    remove_scratch("out");
    int found = ddl("%s %s", tokenizer_commands[c].line, flags);
    if (found != status || !strstr(printed, gist))
        fail_msg("%s %s: status %d: %s", tokenizer_commands[c].line, flags, found, printed);
}

/* A tokenizer that --tokenizer names in a final model or a checkpoint. */
static void tokenizers_are_checked(void **state)
{
    (void)state;
    static const char *const folders[] = { "run", "run/checkpoint-2" };
    static const char gist[] = "copy/tokenizer.json: corrupted: expected ";
    char file[4200];
    setenv("RUN", finished_run("run", 0.01), 1);
    setenv("SHARD", shard, 1);
    setenv("OUT", scratch_path("out"), 1);
    setenv("TOKENIZER", scratch_path("copy"), 1);
    setenv("TEXT", tiny_text("text.txt", 200), 1);
    write_file(scratch_path("ids"), "1 2 3", 5);
    setenv("IDS", scratch_path("ids"), 1);
    for (size_t i = 0; i < 2; i++) {
        copy_scratch(folders[i], "copy");
        for (size_t c = 0; c < TOKENIZER_COMMANDS; c++)
            with_tokenizer(c, "", 0, "");
        change("tokenizer.json", true);
        for (size_t c = 0; c < TOKENIZER_COMMANDS; c++) {
            with_tokenizer(c, "", 1, gist);
            if (tokenizer_commands[c].has_verify)
                with_tokenizer(c, "--no-verify", 0, "");
        }
        snprintf(file, sizeof file, "%s/tokenizer.json", scratch_path("copy"));
        assert_int_equal(ddl("tokenizer info '%s'", file), 1);
        assert_printed(gist);
    }
}

/* What export and graft write has checksums, also in several files; weights of another run do not fit. */
static void written_folders(void **state)
{
    (void)state;
    char path[4096], one[4096];
    finished_run("other", 0.02);
    finished_run("run", 0.01);
    remove_scratch("copy");
    assert_int_equal(
        ddl("export '%s' --out '%s' --max-shard-size 20KB", scratch_path("run"), scratch_path("copy")), 0);
    assert_int_equal(ddl("info '%s'", scratch_path("copy")), 0);
    change("model.safetensors.index.json", true);
    assert_int_equal(ddl("info '%s'", scratch_path("copy")), 1);
    assert_printed("copy/model.safetensors.index.json: corrupted: expected ");
    remove_scratch("copy");
    assert_int_equal(
        ddl("graft '%s' --layers 0 --rule delta --out '%s'", scratch_path("run"), scratch_path("copy")), 0);
    assert_int_equal(ddl("info '%s'", scratch_path("copy")), 0);
    change("model.safetensors", false);
    assert_int_equal(ddl("info '%s'", scratch_path("copy")), 1);
    assert_printed("copy/model.safetensors: corrupted: expected checksum");
    size_t size;
    snprintf(one, sizeof one, "%s", scratch_path("other/model.safetensors"));
    snprintf(path, sizeof path, "%s", scratch_path("run/model.safetensors"));
    char *bytes = read_file(one, &size);
    write_file(path, bytes, size);
    free(bytes);
    assert_int_equal(ddl("info '%s'", scratch_path("run")), 1);
    assert_printed("run/model.safetensors: corrupted: expected checksum (CRC-32C)");
}

/* A model replaces an earlier one and the save stops in between: the folder is valid with either. */
static void interrupted_replacement(void **state)
{
    (void)state;
    static const char *const names[] = { "config.json", "model.safetensors" };
    struct ddl_error err;
    struct ddl_model_sums sums = { 0 };
    char old[4096], new[4096];
    finished_run("run", 0.01);
    finished_run("other", 0.02);
    /* checksums.json as it is after the first of three steps */
    assert_ok(ddl_model_sums_begin(&sums, scratch_path("run"), &err), err);
    assert_non_null(sums.previous);
    for (size_t i = 0; i < 2; i++)
        assert_ok(ddl_model_sums_take(&sums, scratch_path("other"), names[i], &err), err);
    assert_ok(ddl_model_sums_write(&sums, scratch_path("run"), true, &err), err);
    ddl_model_sums_end(&sums);
    assert_int_equal(ddl("info '%s'", scratch_path("run")), 0);
    for (size_t i = 0; i < 2; i++) {
        snprintf(new, sizeof new, "%s/%s", scratch_path("other"), names[i]);
        snprintf(old, sizeof old, "%s/%s", scratch_path("run"), names[i]);
        size_t size;
        char *bytes = read_file(new, &size);
        write_file(old, bytes, size);
        free(bytes);
        assert_int_equal(ddl("info '%s'", scratch_path("run")), 0);
    }
    /* The next save knows what is there. */
    assert_ok(ddl_model_sums_begin(&sums, scratch_path("run"), &err), err);
    assert_non_null(sums.previous);
    ddl_model_sums_end(&sums);
    corrupt_file(old, 0);
    assert_int_equal(ddl("info '%s'", scratch_path("run")), 1);
    assert_printed("run/model.safetensors: corrupted");
}

/* A library program that loads a folder checks it too, and saving into it again makes it valid. */
static void library_checks(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_model *model;
    ddl_backend *backend;
    const struct ddl_load_options unchecked = { .no_verify = true };
    finished_run("run", 0.01);
    corrupt_file(scratch_path("run/model.safetensors"), 0);
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    assert_int_equal(ddl_model_load(&model, scratch_path("run"), backend, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "run/model.safetensors: corrupted: expected checksum");
    assert_ok(ddl_model_load_with(&model, scratch_path("run"), backend, &unchecked, &err), err);
    assert_ok(ddl_model_save(model, scratch_path("run"), &err), err);
    ddl_model_free(model);
    assert_ok(ddl_model_load(&model, scratch_path("run"), backend, NULL, NULL, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_checks),    cmocka_unit_test(goes_on_without_checks),
        cmocka_unit_test(tokenizers_are_checked),  cmocka_unit_test(written_folders),
        cmocka_unit_test(interrupted_replacement), cmocka_unit_test(library_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
