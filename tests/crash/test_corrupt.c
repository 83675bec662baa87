/* Corrupted checkpoints: any byte of any file changed, any file truncated at any length. The file is named,
 * and
 * --resume reports it and takes the checkpoint before. DDL_ALL_BITS=1: all eight bits of each byte (default:
 * one). Under sanitizers and with DDL_TEST_SAMPLE=1 every thirteenth byte. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"
#include "support/program.h"

#include "ddl/train.h"
#include "checkpoint/checkpoint.h"
#include "train/run/resume.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t stride_of_bytes(void)
{
    return test_sample_sanitized() ? 13 : 1;
}

static const char *const files[] = { "state.json", "config.json", "tokenizer.json", "model.safetensors",
                                     "optimizer.safetensors" };
enum { FILES = sizeof files / sizeof *files };

/* A run of four steps with checkpoints of the second and the fourth, by the library. */
static struct ddl_train_config run_by_library(void)
{
    struct ddl_error err;
    struct ddl_train_config t = ddl_train_defaults();
    make_inputs();
    remove_scratch("library");
    snprintf(t.train_data, sizeof t.train_data, "%s", scratch_path("inputs/train.bin"));
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path("inputs/tokenizer.json"));
    snprintf(t.out, sizeof t.out, "%s", scratch_path("library"));
    snprintf(t.backend, sizeof t.backend, "ref");
    t.config = tiny_config("ddl-1", TINY_VOCAB);
    t.config.n_layers = t.config.n_heads = 1;
    t.config.d_model = t.config.head_dim = 2;
    t.steps = 4;
    t.batch = 1;
    t.warmup = 1;
    t.checkpoint_every = 2;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    return t;
}

struct note {
    char text[2048];
};

static void keep_note(void *user, const char *message)
{
    struct note *note = user;
    snprintf(note->text, sizeof note->text, "%s", message);
}

/* The newest checkpoint is rejected with the name of the file, the one before is taken, with a note. */
static void assert_skipped(const struct ddl_train_config *t, const char *file, size_t at)
{
    struct ddl_error err = { 0 };
    struct ddl_run_state state;
    struct note note = { "" };
    char path[1280], named[128], cut[128];
    struct ddl_train_config copy = *t;
    ddl_status status = ddl_run_open_newest(&copy, &state, path, sizeof path, keep_note, &note, &err);
    snprintf(named, sizeof named, "checkpoint-4/%s: corrupted: ", file);
    snprintf(cut, sizeof cut, "checkpoint-4/%s: truncated: ", file);
    if (status || state.step != 2 || !(strstr(note.text, named) || strstr(note.text, cut)) ||
        !strstr(note.text, "; continuing from ") || !strstr(note.text, "checkpoint-2"))
        fail_msg("%s, byte %zu: step %llu; %s%s", file, at, (unsigned long long)state.step, note.text,
                 err.text);
}

static void put_byte(int fd, size_t at, unsigned char byte)
{
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

static size_t flip_all(const struct ddl_train_config *t, const char *file, size_t bits)
{
    size_t size, flips = 0;
    char path[2048];
    snprintf(path, sizeof path, "%s/checkpoint-4/%s", t->out, file);
    unsigned char *bytes = (unsigned char *)read_file(path, &size);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (size_t at = 0; at < size; at += stride_of_bytes()) {
        for (size_t bit = 0; bit < bits; bit++, flips++) {
            put_byte(fd, at, (unsigned char)(bytes[at] ^ 1u << (at + bit) % 8));
            assert_skipped(t, file, at);
        }
        put_byte(fd, at, bytes[at]);
    }
    close(fd);
    free(bytes);
    return flips;
}

static void every_byte_flipped(void **state)
{
    (void)state;
    const char *all = getenv("DDL_ALL_BITS");
    const struct ddl_train_config t = run_by_library();
    size_t flips = 0;
    for (size_t i = 0; i < FILES; i++)
        flips += flip_all(&t, files[i], all && *all == '1' ? 8 : 1);
    print_message("%zu flips in %d files, each rejected by name\n", flips, FILES);
    struct ddl_error err;
    assert_ok(ddl_checkpoint_check(file_in(t.out, "checkpoint-4"), &err), err);
}

static void every_length_cut(void **state)
{
    (void)state;
    const struct ddl_train_config t = run_by_library();
    size_t cuts = 0;
    for (size_t i = 0; i < FILES; i++) {
        size_t size;
        char path[2048];
        snprintf(path, sizeof path, "%s/checkpoint-4/%s", t.out, files[i]);
        char *bytes = read_file(path, &size);
        for (size_t left = size; left-- > 0;) {
            if (left % stride_of_bytes() && left > 16)
                continue;
            assert_int_equal(truncate(path, (off_t)left), 0);
            assert_skipped(&t, files[i], left);
            cuts++;
        }
        /* One byte too many. */
        write_file(path, bytes, size);
        FILE *longer = fopen(path, "ab");
        assert_non_null(longer);
        fputc('\n', longer);
        fclose(longer);
        assert_skipped(&t, files[i], size);
        write_file(path, bytes, size);
        free(bytes);
    }
    print_message("%zu lengths of %d files, each rejected by name\n", cuts, FILES);
}

/* Missing files, and things that are not regular files. */
static void not_regular_files(void **state)
{
    (void)state;
    const struct ddl_train_config t = run_by_library();
    static const char *const wanted[] = { "cannot open", "not a regular file", "not a regular file" };
    for (size_t i = 0; i < 3 * FILES; i++) {
        struct ddl_error err = { 0 };
        char path[2048], kept[2048];
        snprintf(path, sizeof path, "%s/checkpoint-4/%s", t.out, files[i / 3]);
        snprintf(kept, sizeof kept, "%s", scratch_path("kept"));
        assert_int_equal(rename(path, kept), 0);
        if (i % 3 == 1)
            assert_int_equal(mkdir(path, 0777), 0);
        if (i % 3 == 2)
            assert_int_equal(mkfifo(path, 0666), 0);
        assert_int_equal(ddl_checkpoint_check(file_in(t.out, "checkpoint-4"), &err), DDL_E_IO);
        assert_says(&err, path);
        assert_says(&err, wanted[i % 3]);
        if (i % 3)
            assert_int_equal(remove(path), 0);
        assert_int_equal(rename(kept, path), 0);
    }
}

/* ---- through the program ---- */

static const struct small_run program_run = {
    "program", "--model ddl-cc-ec --backend ref --steps 6 --checkpoint-every 3 --val-every 3 --threads 1"
};

/* A run that ended after its last checkpoint, without a final model. */
static void the_program_resumes(void **state)
{
    (void)state;
    static char said[SAID];
    char arguments[1 << 14];
    make_inputs();
    static const char *const final_files[] = { "run/r/config.json", "run/r/checksums.json",
                                               "run/r/model.safetensors", "run/r/tokenizer.json" };
    run_uninterrupted(train_arguments(&program_run));
    snprintf(arguments, sizeof arguments, "%s --resume --no-quiet", train_arguments(&program_run));
    for (size_t i = 0; i < 3 * FILES; i++) {
        char path[2048];
        copy_scratch("whole", "run");
        for (size_t j = 0; j < sizeof final_files / sizeof *final_files; j++)
            remove_scratch(final_files[j]);
        snprintf(path, sizeof path, "%s/r/checkpoint-6/%s", run_folder(), files[i / 3]);
        corrupt_file(path, i % 3);
        assert_int_equal(run_ddl("", arguments, said), 0);
        assert_non_null(strstr(said, path));
        assert_non_null(strstr(said, "; continuing from "));
        assert_same_as_uninterrupted();
    }
}

/* Commands that read a model. The words in capitals are variables. */
static const char *const readers[] = {
    "eval \"$MODEL\" --shard \"$SHARD\"",
    "generate \"$MODEL\" --prompt a",
    "logprobs \"$MODEL\" \"$TEXT\"",
    "inspect \"$MODEL\" --shard \"$SHARD\"",
    "ablate \"$MODEL\" --shard \"$SHARD\"",
    "info \"$MODEL\"",
    "export \"$MODEL\" --out \"$OUT\"",
    "graft \"$MODEL\" --layers 0 --rule add --out \"$OUT\"",
    "serve \"$MODEL\" --port 0",
    "train --init-from \"$MODEL\" --train-data \"$SHARD\" --out \"$OUT\" --warmup 0",
};
enum { READERS = sizeof readers / sizeof *readers };

/* No command accepts a corrupted checkpoint as a model. */
static void no_command_accepts_it(void **state)
{
    (void)state;
    static char said[SAID];
    assert_commands_listed(readers, READERS, commands_without_model);
    make_inputs();
    run_uninterrupted(train_arguments(&program_run));
    setenv("MODEL", scratch_path("whole/r/checkpoint-6"), 1);
    setenv("SHARD", scratch_path("inputs/val.bin"), 1);
    setenv("TEXT", scratch_path("inputs/text.txt"), 1);
    setenv("OUT", scratch_path("never"), 1);
    corrupt_file(scratch_path("whole/r/checkpoint-6/model.safetensors"), 0);
    for (size_t i = 0; i < READERS; i++) {
        int status = run_ddl("", readers[i], said);
        if (status != 1 || !strstr(said, "checkpoint-6/model.safetensors: corrupted: expected checksum"))
            fail_msg("%s: status %d: %s", readers[i], status, said);
        assert_false(ddl_file_exists(scratch_path("never")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_flipped),    cmocka_unit_test(every_length_cut),
        cmocka_unit_test(not_regular_files),     cmocka_unit_test(the_program_resumes),
        cmocka_unit_test(no_command_accepts_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
