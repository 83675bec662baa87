/* Tests data/build.c with parts, the folder of a build and the merge: the shards have the same bytes for any
 * number of processes, in any order, killed at any time and continued, and for any size of the parts; what
 * does not fit to the finished parts is reported. */
#define _POSIX_C_SOURCE 200809L
#include "data/pack.h"
#include "support/tokenizer.h"

#include "base/rng.h"
#include "data/build_folder.h"
#include "data/reader.h"
#include "ddl/data.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the inputs: files of each kind and of very different sizes ---- */

static const char *const inputs[] = { "in/a.jsonl",    "in/b.txt",        "in/c.jsonl.zst",
                                      "in/d.txt.gz",   "in/empty.txt",    "in/one.txt",
                                      "in/small1.txt", "in/small2.jsonl", "in/z.jsonl" };
enum { INPUTS = sizeof inputs / sizeof *inputs };
static char paths[INPUTS][4096];
static const char *const *all_inputs(void)
{
    static const char *list[INPUTS];
    for (size_t i = 0; i < INPUTS; i++) {
        snprintf(paths[i], sizeof paths[i], "%s", scratch_path(inputs[i]));
        list[i] = paths[i];
    }
    return list;
}

/* Words that differ from document to document. */
static size_t words(char *out, uint64_t document, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += (size_t)sprintf(out + size, "w%llu ", (unsigned long long)ddl_rng_below(document, i, 5000));
    return size;
}

static size_t json_lines(char *out, size_t n, uint64_t stream)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        static const char *const ends[] = { "\"}\n", "\"}\r\n", "\"}\n\n", "\"}\n \t\n" };
        size_t length = i % 37 == 5 ? 3000 : i % 11 == 3 ? 0 : (size_t)ddl_rng_below(stream, i, 60);
        size += (size_t)sprintf(out + size, "{\"text\": \"");
        size += words(out + size, 1000 * stream + i, length);
        size += (size_t)sprintf(out + size, "%s", ends[i % 4]);
    }
    return size;
}

static size_t text_documents(char *out, size_t n, uint64_t stream)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t line = 0; line < ddl_rng_below(stream, i, 9); line++) {
            size += words(out + size, 1000 * stream + 10 * i + line, 12);
            out[size++] = '\n';
        }
        size += (size_t)sprintf(out + size, i % 5 ? "<|endoftext|>\n" : "<|endoftext|>\r\n");
    }
    return size;
}

static void write_packed(const char *name, pack_fn *pack, const char *text, size_t size)
{
    size_t packed;
    unsigned char *bytes = pack(text, size, &packed);
    write_file(scratch_path(name), bytes, packed);
    free(bytes);
}

static void write_inputs(void)
{
    static char text[1 << 20];
    struct ddl_error err;
    remove_scratch("in");
    assert_ok(ddl_file_make_dir(scratch_path("in"), &err), err);
    write_file(scratch_path("in/a.jsonl"), text, json_lines(text, 150, 1));
    write_file(scratch_path("in/b.txt"), text, text_documents(text, 120, 2));
    write_packed("in/c.jsonl.zst", pack_zstd, text, json_lines(text, 60, 3));
    write_packed("in/d.txt.gz", pack_gzip, text, text_documents(text, 40, 4));
    write_file(scratch_path("in/empty.txt"), "", 0);
    write_file(scratch_path("in/one.txt"), text, words(text, 5, 5000)); /* one document, one line */
    write_file(scratch_path("in/small1.txt"), "a few words", 11);
    write_file(scratch_path("in/small2.jsonl"), "{\"text\": \"a few more\"}", 22);
    write_file(scratch_path("in/z.jsonl"), text, json_lines(text, 30, 6));
}

/* ---- builds ---- */

static struct ddl_build_config config_for(const char *out)
{
    struct ddl_build_config c = ddl_build_defaults();
    snprintf(c.tokenizer, sizeof c.tokenizer, "%s", tokenizer_path);
    snprintf(c.out, sizeof c.out, "%s", scratch_path(out));
    c.val_fraction = 0.2;
    c.shard_tokens = 9001;
    c.threads = 2;
    c.part_bytes = 25000;
    return c;
}

static struct ddl_build_result build(const struct ddl_build_config *c)
{
    struct ddl_error err;
    struct ddl_build_result result;
    assert_ok(ddl_data_build(c, all_inputs(), INPUTS, NULL, NULL, &result, &err), err);
    return result;
}

static void assert_fails(const struct ddl_build_config *c, ddl_status status, const char *gist)
{
    struct ddl_error err;
    assert_int_equal(ddl_data_build(c, all_inputs(), INPUTS, NULL, NULL, NULL, &err), status);
    assert_says(&err, gist);
}

static struct ddl_build_result build_shard(struct ddl_build_config c, size_t i, size_t n)
{
    snprintf(c.shard, sizeof c.shard, "%zu/%zu", i, n);
    return build(&c);
}

/* The folder has the files of "whole", a build by one process, and no others. */
static void assert_same_as_whole(const char *out)
{
    char command[10000], found[8192];
    snprintf(command, sizeof command, "diff -r '%s' '%s' 2>&1", scratch_path("whole"), scratch_path(out));
    if (run_command(command, found, sizeof found) != 0)
        fail_msg("%s", found);
    assert_false(ddl_file_exists(scratch_path("out/.build")));
}

static int set_up(void **state)
{
    write_inputs();
    all_inputs();
    learn_tokenizer(state);
    remove_scratch("whole");
    struct ddl_build_config c = config_for("whole");
    c.part_bytes = ddl_build_defaults().part_bytes;
    struct ddl_build_result r = build(&c);
    assert_true(r.complete);
    assert_int_equal(r.parts, 1);
    assert_true(r.shards[0] > 5 && r.shards[1] > 1 && r.skipped > 20);
    return 0;
}

/* 1 to 4 processes, from the last to the first, with parts of various sizes. */
static void any_number_of_processes(void **state)
{
    (void)state;
    static const size_t part_bytes[] = { 5000, 25000, 100000, 10000000 };
    for (size_t n = 1; n <= 4; n++) {
        struct ddl_build_config c = config_for("out");
        c.part_bytes = part_bytes[n - 1];
        remove_scratch("out");
        for (size_t i = n; i-- > 0;) {
            struct ddl_build_result r = build_shard(c, i, n);
            assert_int_equal(r.complete, i == 0);
            assert_int_equal(r.parts_kept, 0);
            assert_true(i == 0 ? r.parts_finished == r.parts : r.parts_finished <= r.parts);
            if (part_bytes[n - 1] < 100000)
                assert_true(r.parts > 6 && r.parts_encoded >= r.parts / (2 * n));
        }
        assert_same_as_whole("out");
    }
}

/* Parts finished as those of four processes are used by one, and by three. */
static void another_number_of_processes(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    remove_scratch("out");
    size_t first = build_shard(c, 3, 4).parts_encoded;
    struct ddl_build_result r = build_shard(c, 1, 3);
    assert_false(r.complete);
    size_t second = r.parts_encoded;
    r = build(&c);
    assert_true(r.complete);
    assert_int_equal(r.parts_kept, first + second);
    assert_int_equal(r.parts_encoded, r.parts - first - second);
    assert_same_as_whole("out");
}

/* ---- processes ---- */

/* Starts `ddl data build` of the inputs with --shard i/n and the sizes. */
static pid_t start_sized(size_t i, size_t n, const char *part_bytes, const char *shard_tokens)
{
    static char out[4096], shard[64], streams[4096];
    snprintf(out, sizeof out, "%s", scratch_path("out"));
    snprintf(shard, sizeof shard, "%zu/%zu", i, n);
    snprintf(streams, sizeof streams, "%s", scratch_path("streams.txt"));
    const char *arguments[INPUTS + 24] = {
        "ddl",          "data",           "build",    "--out",     out,  "--tokenizer",
        tokenizer_path, "--val-fraction", "0.2",      "--threads", "1",  "--shard-tokens",
        shard_tokens,   "--part-bytes",   part_bytes, "--shard",   shard
    };
    for (size_t k = 0; k < INPUTS; k++)
        arguments[17 + k] = all_inputs()[k];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen(streams, "ab", stderr) && freopen(streams, "ab", stdout))
            execv(ddl_program(), (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    return child;
}

static pid_t start(size_t i, size_t n)
{
    return start_sized(i, n, "25000", "9001");
}

static int end_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void at_the_same_time(void **state)
{
    (void)state;
    for (int repeat = 0; repeat < (test_sample_sanitized() ? 1 : 5); repeat++) {
        pid_t children[4];
        remove_scratch("out");
        for (size_t i = 0; i < 4; i++)
            children[i] = start(i, 4);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(end_of(children[i]), 0);
        assert_same_as_whole("out");
    }
}

static void fail_with_streams(void)
{
    size_t size;
    fail_msg("%s", read_file(scratch_path("streams.txt"), &size));
}

/* One process has the only part, and moves hundreds of shards into place; others start at any moment before,
 * during and after that. */
static void started_while_shards_are_written(void **state)
{
    (void)state;
    const char *shard_tokens = test_sample_sanitized() ? "300" : "30";
    size_t started = 0;
    remove_scratch("out");
    (void)unlink(scratch_path("streams.txt"));
    const pid_t first = start_sized(0, 3, "10000000", shard_tokens);
    pid_t others[2] = { 0, 0 };
    bool ended = false;
    for (int after = 0; after < 3; after += ended) {
        int status = 0;
        ended = ended || waitpid(first, &status, WNOHANG) == first;
        if (status != 0)
            fail_with_streams();
        for (size_t i = 0; i < 2; i++) {
            if (others[i] != 0 && end_of(others[i]) != 0)
                fail_with_streams();
            others[i] = start_sized(i + 1, 3, "10000000", shard_tokens);
            started++;
        }
    }
    for (size_t i = 0; i < 2; i++) {
        if (end_of(others[i]) != 0)
            fail_with_streams();
    }
    print_message("%zu processes\n", started);
    assert_true(ddl_file_exists(scratch_path("out/shards.json")));
    assert_true(ddl_file_exists(scratch_path("out/train_000100.bin")));
    assert_false(ddl_file_exists(scratch_path("out/.build")));
    remove_scratch("out");
}

/* A process with finished parts that starts while another one copies the parts into shards: it changes
 * nothing and succeeds. */
static int start_another(void *user, const struct ddl_build_progress *p)
{
    bool *started = user;
    if (p->merging && !*started) {
        *started = true;
        struct ddl_build_result r = build_shard(config_for("out"), 1, 2);
        assert_false(r.complete);
        assert_int_equal(r.parts_encoded, 0);
        assert_int_equal(r.parts_finished, r.parts);
    }
    return 0;
}

static void started_while_parts_are_copied(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    struct ddl_build_result r;
    struct ddl_error err;
    bool started = false;
    remove_scratch("out");
    assert_false(build_shard(c, 1, 2).complete);
    strcpy(c.shard, "0/2");
    assert_ok(ddl_data_build(&c, all_inputs(), INPUTS, start_another, &started, &r, &err), err);
    assert_true(started && r.complete);
    assert_same_as_whole("out");
}

/* All parts are finished while a process that was started again checks its own: that process writes the
 * shards, because it is the last one. */
static int run_other(void *user, const struct ddl_build_progress *p)
{
    bool *started = user;
    (void)p;
    if (!*started) {
        *started = true;
        struct ddl_build_result r = build_shard(config_for("out"), 0, 2);
        assert_false(r.complete);
        assert_int_equal(r.parts_finished, r.parts);
    }
    return 0;
}

static void last_to_end_writes(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    struct ddl_build_result r;
    struct ddl_error err;
    bool started = false;
    remove_scratch("out");
    assert_false(build_shard(c, 1, 2).complete);
    strcpy(c.shard, "1/2");
    assert_ok(ddl_data_build(&c, all_inputs(), INPUTS, run_other, &started, &r, &err), err);
    assert_true(started && r.complete);
    assert_int_equal(r.parts_encoded, 0);
    assert_same_as_whole("out");
}

/* Starts n processes that share a build, and kills each at a random time. */
static void kill_builders(size_t n, size_t *kills, size_t *draw)
{
    pid_t children[4];
    for (size_t i = 0; i < n; i++)
        children[i] = start(i, n);
    for (size_t i = 0; i < n; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = (long)ddl_rng_below(12, (*draw)++, 60000000) }, NULL);
        kill(children[i], SIGKILL);
        *kills += end_of(children[i]) == 128 + SIGKILL;
    }
    if (ddl_file_exists(scratch_path("out/shards.json"))) {
        /* A process may have been killed after another one had completed the build. The next one removes what
         * it has left. */
        const int status = end_of(start(0, n));
        assert_true(status == 0 || n == 1); /* one process refuses to replace shards */
        assert_same_as_whole("out");
        remove_scratch("out");
    }
}

/* Completes the build of n processes. */
static void complete(size_t n)
{
    for (size_t i = 0; i < n && !ddl_file_exists(scratch_path("out/shards.json")); i++)
        assert_int_equal(end_of(start(i, n)), 0);
    assert_same_as_whole("out");
}

/* Rounds of up to four processes, of which some are killed after a random time; without a kill in the last.
 */
static void killed_at_random_times(void **state)
{
    (void)state;
    size_t kills = 0, draw = 0;
    for (size_t n = 1; n <= 4; n++) {
        remove_scratch("out");
        for (size_t round = 0; round < (test_sample_sanitized() ? 4 : 12); round++)
            kill_builders(n, &kills, &draw);
        complete(n);
    }
    /* How many processes end before they are killed depends on the machine. */
    for (size_t round = 0; kills <= 8 && round < 1000; round++) {
        remove_scratch("out");
        kill_builders(4, &kills, &draw);
        complete(4);
    }
    print_message("%zu kills\n", kills);
    assert_true(kills > 8);
}

static void same_shard_twice(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    struct ddl_build_folder folder;
    struct ddl_error err;
    remove_scratch("out");
    assert_ok(ddl_build_folder_open(&folder, c.out, 1, 4, &err), err);
    ddl_build_folder_unlock(&folder);
    strcpy(c.shard, "1/4");
    assert_fails(&c, DDL_E_IO, ".build/shard-1-of-4: in use by process ");
    /* Another number of processes, which would divide the work otherwise. */
    strcpy(c.shard, "0/2");
    assert_fails(&c, DDL_E_IO, ".build/shard-1-of-4: in use by process ");
    c.shard[0] = '\0';
    assert_fails(&c, DDL_E_IO, ".build/shard-1-of-4: in use by process ");
    /* Another shard is not hindered. */
    assert_true(build_shard(c, 0, 4).parts_encoded > 0);
    ddl_build_folder_close(&folder);
    assert_true(build(&c).complete);
    assert_same_as_whole("out");
}

/* ---- what is kept, and what is found to differ ---- */

static int stop_after_parts(void *user, const struct ddl_build_progress *p)
{
    return p->tokens > *(uint64_t *)user;
}

static void interrupted(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    struct ddl_error err;
    uint64_t tokens = 0;
    remove_scratch("out");
    for (int i = 0; i < 100; i++) {
        ddl_status status = ddl_data_build(&c, all_inputs(), INPUTS, stop_after_parts, &tokens, NULL, &err);
        tokens += 3000;
        if (!status)
            break;
        assert_int_equal(status, DDL_E_INTERRUPTED);
        if (strstr(err.text, "nothing was written"))
            assert_false(ddl_file_exists(scratch_path("out")));
        else
            assert_says(&err, "parts are finished: run this again to continue");
    }
    assert_same_as_whole("out");
}

/* Stops with the parts of one of two processes finished: of that which has part 0, or of the other one. */
static void begin_build(struct ddl_build_config *c, bool first)
{
    write_inputs();
    *c = config_for("out");
    for (size_t i = 0; i < 2; i++) {
        remove_scratch("out");
        assert_false(build_shard(*c, i, 2).complete);
        if (ddl_file_exists(scratch_path("out/.build/part-000000.json")) == first)
            return;
    }
    fail();
}

static void other_options(void **state)
{
    (void)state;
    struct ddl_build_config c, other;
    struct ddl_error err;
    begin_build(&c, true);
    other = c;
    other.val_fraction = 0.3;
    assert_fails(
        &other, DDL_E_USAGE,
        "out/.build: has an unfinished build with another --val_fraction: expected 0.2, found 0.3; run "
        "that build again, or remove the folder to start again");
    other = c;
    other.seed = 4;
    assert_fails(&other, DDL_E_USAGE, "another --seed: expected 0, found 4");
    other = c;
    other.shard_tokens = 7;
    assert_fails(&other, DDL_E_USAGE, "another --shard_tokens: expected 9001, found 7");
    other = c;
    other.part_bytes = 9;
    assert_fails(&other, DDL_E_USAGE, "another --part_bytes: expected 25000, found 9");
    other = c;
    strcpy(other.input.separator, "---");
    assert_fails(&other, DDL_E_USAGE, "another --separator: expected <|endoftext|>, found ---");
    other = c;
    snprintf(other.tokenizer, sizeof other.tokenizer, "%s", source_path("data/tokenizer"));
    assert_fails(&other, DDL_E_USAGE, "another tokenizer (SHA-256): expected ");
    const char *const *list = all_inputs();
    const char *swapped[INPUTS] = { list[1], list[0] };
    memcpy(swapped + 2, list + 2, (INPUTS - 2) * sizeof *list);
    assert_int_equal(ddl_data_build(&c, swapped, INPUTS, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "another input 1: expected ");
    assert_int_equal(ddl_data_build(&c, list, INPUTS - 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "another input 9: expected ");
    assert_says(&err, "found none");
    build(&c);
    assert_same_as_whole("out");
    /* Without a finished part, another build replaces it. */
    remove_scratch("out");
    assert_ok(ddl_file_make_dir(scratch_path("out/.build"), &err), err);
    write_file(scratch_path("out/.build/plan.json"), "{}", 2);
    build(&c);
    assert_same_as_whole("out");
}

static void set_time(const char *path, time_t seconds)
{
    const struct timespec times[2] = { { seconds, 0 }, { seconds, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Each input in turn, with the parts of one process and of the other one. */
static void inputs_of_other_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < INPUTS; i++) {
        size_t size, changed = 0;
        if (!test_takes(i, 4))
            continue;
        for (int first = 0; first < 2; first++) {
            struct ddl_build_config c;
            struct ddl_error err;
            begin_build(&c, first);
            char *text = read_file(all_inputs()[i], &size);
            write_file(all_inputs()[i], text, size > 1 ? size - 1 : size + 1);
            ddl_status status = ddl_data_build(&c, all_inputs(), INPUTS, NULL, NULL, NULL, &err);
            if (status && strstr(err.text, "changed since")) {
                assert_int_equal(status, DDL_E_FORMAT);
                assert_says(&err, inputs[i]);
                assert_says(&err, "a part of the build was made from it: expected a size of ");
                changed++;
            }
            write_file(all_inputs()[i], text, size);
            free(text);
            if (ddl_file_exists(scratch_path("out/.build"))) {
                build(&c);
                assert_same_as_whole("out");
            }
        }
        assert_true(changed > 0);
    }
}

static void changed_inputs(void **state)
{
    (void)state;
    struct ddl_build_config c;
    begin_build(&c, true);
    size_t size;
    char *text = read_file(scratch_path("in/a.jsonl"), &size), *word = strstr(text + 100, " w");
    word[1] = 'x';
    write_file(scratch_path("in/a.jsonl"), text, size);
    set_time(scratch_path("in/a.jsonl"), 1000000000);
    assert_fails(&c, DDL_E_FORMAT,
                 "in/a.jsonl: changed since a part of the build was made from it: expected CRC-32");
    word[1] = 'w';
    write_file(scratch_path("in/a.jsonl"), text, size);
    free(text);
    /* Of the same bytes, with other times. */
    for (size_t i = 0; i < INPUTS; i++)
        set_time(all_inputs()[i], 1000000000);
    build(&c);
    assert_same_as_whole("out");
}

/* The parts before a failure are kept; the build continues when its cause is removed. */
static void failures_keep_parts(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    remove_scratch("out");
    write_inputs();
    size_t size;
    char *text = read_file(scratch_path("in/z.jsonl"), &size);
    write_file(scratch_path("in/z.jsonl"), "{\"text\": 1}\n", 12);
    assert_fails(&c, DDL_E_FORMAT, "z.jsonl:1: \"text\": expected a string, found a number; ");
    assert_fails(&c, DDL_E_FORMAT, " parts are finished: run this again to continue");
    write_file(scratch_path("in/z.jsonl"), text, size);
    free(text);
    struct ddl_build_result r = build(&c);
    assert_true(r.parts_kept > 4 && r.parts_encoded < 4);
    assert_same_as_whole("out");
}

static void lines_in_messages(void **state)
{
    (void)state;
    char path[4096], text[2000] = "", gist[64];
    struct ddl_error err;
    const char *list[] = { path };
    struct ddl_build_config c = config_for("out");
    snprintf(path, sizeof path, "%s", scratch_path("bad.jsonl"));
    for (int bad = 1; bad < 40; bad += 4) {
        size_t n = 0;
        for (int i = 1; i <= 40; i++)
            n += (size_t)sprintf(text + n, i == bad ? "{\"tekst\": 1}\n" : "{\"text\": \"words\"}\n");
        write_file(path, text, n);
        remove_scratch("out");
        c.part_bytes = 100;
        assert_int_equal(ddl_data_build(&c, list, 1, NULL, NULL, NULL, &err), DDL_E_FORMAT);
        snprintf(gist, sizeof gist, "bad.jsonl:%d: the object has no key", bad);
        assert_says(&err, gist);
    }
    remove_scratch("out");
}

/* Every finished part is checked before it becomes part of a shard. */
static void corrupted_parts(void **state)
{
    (void)state;
    static const char *const files[] = { "part-000000.ids", "part-000000.docs", "part-000000.json" };
    for (size_t i = 0; i < 3; i++) {
        for (size_t how = 0; how < 3; how++) {
            struct ddl_build_config c;
            char path[2048];
            struct ddl_error err;
            begin_build(&c, true);
            snprintf(path, sizeof path, "%s/.build/%s", c.out, files[i]);
            corrupt_file(path, how);
            ddl_status status = ddl_data_build(&c, all_inputs(), INPUTS, NULL, NULL, NULL, &err);
            if (i < 2 ||
                how == 1) /* of a manifest: a bit may not matter; without it, the part is not finished */
                assert_int_not_equal(status, DDL_OK);
            if (status) {
                assert_says(&err, "part-000000.");
                assert_int_equal(unlink(scratch_path("out/.build/part-000000.json")), 0);
                build(&c);
            }
            assert_same_as_whole("out");
        }
    }
}

static void shard_is_checked(void **state)
{
    (void)state;
    static const char *const wrong[] = { "4/4", "1",   "/4",   "1/",    "-1/4",
                                         "1/0", "a/b", "1/4x", "1 / 4", "0/99999" };
    struct ddl_build_config c = config_for("none");
    struct ddl_error err;
    const char *standard_input[] = { "-" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char gist[96];
        strcpy(c.shard, wrong[i]);
        snprintf(gist, sizeof gist, "--shard: expected I/N with I from 0 to N - 1, such as 0/4, found %s",
                 wrong[i]);
        assert_fails(&c, DDL_E_USAGE, gist);
    }
    strcpy(c.shard, "0/2");
    assert_int_equal(ddl_data_build(&c, standard_input, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--shard: standard input cannot be divided");
    c.shard[0] = '\0';
    c.part_bytes = 0;
    assert_fails(&c, DDL_E_USAGE, "--part_bytes: expected at least 1, found 0");
    assert_false(ddl_file_exists(scratch_path("none")));
}

/* A build that replaces an earlier one keeps it until its own shards are complete. */
static void overwriting(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    remove_scratch("out");
    write_inputs();
    c.shard_tokens = 1234;
    build(&c);
    c.shard_tokens = 9001;
    assert_fails(&c, DDL_E_USAGE, "out: already has shards");
    assert_false(ddl_file_exists(scratch_path("out/.build")));
    c.overwrite = true;
    build_shard(c, 1, 2);
    assert_true(ddl_file_exists(scratch_path("out/train_000009.bin")));
    build_shard(c, 0, 2);
    assert_same_as_whole("out");
}

/* Processes without parts, and those that start after the others have completed the build. */
static void more_processes_than_parts(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("out");
    remove_scratch("out");
    write_inputs();
    c.part_bytes = 10000000;
    assert_false(build_shard(c, 2, 3).complete); /* has nothing to do */
    assert_false(ddl_file_exists(scratch_path("out")));
    assert_true(build_shard(c, 0, 3).complete);
    struct ddl_build_result r = build_shard(c, 1, 3);
    assert_true(r.complete && r.shards[0] > 5 && r.shards[1] > 1 && r.documents[0] > 100);
    assert_int_equal(r.parts_encoded, 0);
    assert_same_as_whole("out");
    /* Another build is refused. */
    c.seed = 8;
    strcpy(c.shard, "1/3");
    assert_fails(&c, DDL_E_USAGE, "out: already has shards");
    assert_same_as_whole("out");
}

/* ---- ranges ---- */

/* The documents of ranges that meet at each of the positions `cuts`, each after a separator byte. */
static size_t read_documents(const char *path, bool json, const uint64_t *cuts, size_t n, char *out)
{
    struct ddl_input item = { .path = (char *)(uintptr_t)path, .json = json };
    struct ddl_inputs list = { .items = &item, .n = 1 };
    struct ddl_pipeline pipeline;
    struct ddl_range ranges[8];
    struct ddl_reader reader = {
        .inputs = &list, .ranges = ranges, .n_ranges = n + 1, .pipeline = &pipeline, .separator = "--"
    };
    struct ddl_error err;
    size_t size = 0;
    bool end = false;
    for (size_t i = 0; i <= n; i++)
        ranges[i] = (struct ddl_range){ 0, i ? cuts[i - 1] : 0, i < n ? cuts[i] : UINT64_MAX };
    assert_ok(ddl_pipeline_init(&pipeline, 100, &err), err);
    ddl_reader_run(&reader); /* its batches fit */
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(&pipeline));) {
        ddl_pipeline_done(&pipeline, batch);
        assert_ptr_equal(ddl_pipeline_next(&pipeline, 1000, &end), batch);
        assert_ok(batch->status, batch->err);
        for (size_t i = 0; i < batch->n_segments; i++) {
            if (batch->segments[i].starts)
                out[size++] = '|';
            if (batch->segments[i].size > 0)
                memcpy(out + size, batch->text + batch->segments[i].offset, batch->segments[i].size);
            size += batch->segments[i].size;
        }
        ddl_pipeline_release(&pipeline);
    }
    ddl_pipeline_free(&pipeline);
    return size;
}

/* Two cuts at each pair of positions, of files with all kinds of lines. */
static void every_cut(void **state)
{
    (void)state;
    static const char *const texts[] = { "one\n--\ntwo\n--\n--\nthree\nlines\n--",
                                         "--\r\na\n -- \n--x\n--\n\n\n--\nend",
                                         "no separator at all, in one line",
                                         "\n\n\n",
                                         "--\n--\n--\n",
                                         "a\n--",
                                         "x" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const size_t size = strlen(texts[i]);
        char path[4096], whole[256], found[256];
        snprintf(path, sizeof path, "%s", scratch_path("cut.txt"));
        write_file(path, texts[i], size);
        for (int json = 0; json < 2; json++) {
            size_t n = read_documents(path, json, NULL, 0, whole);
            for (uint64_t a = 1; a <= size; a++) {
                for (uint64_t b = a; b <= size; b++) {
                    const uint64_t cuts[] = { a, b };
                    assert_int_equal(read_documents(path, json, cuts, 2, found), n);
                    assert_memory_equal(found, whole, n);
                }
            }
        }
    }
}

/* Parts of inputs of different sizes, and their processes. */
static void division(void **state)
{
    (void)state;
    struct ddl_input items[] = {
        { .path = (char *)(uintptr_t) "a.jsonl", .json = true, .size = 1000 },
        { .path = (char *)(uintptr_t) "b.jsonl", .json = true, .size = 10 },
        { .path = (char *)(uintptr_t) "c.txt", .size = 30 },
        { .path = (char *)(uintptr_t) "d.txt.gz", .packing = DDL_PACKING_GZIP, .size = 5000 },
        { .path = (char *)(uintptr_t) "e.txt", .size = 201 },
    };
    const struct ddl_inputs list = { .items = items, .n = 5 };
    static const uint64_t bytes[] = { 300, 300, 300, 100, 40, 5000, 201 };
    struct ddl_parts parts;
    struct ddl_error err;
    size_t owner[7], n = sizeof bytes / sizeof *bytes;
    assert_ok(ddl_parts_divide(&parts, &list, "--", 300, &err), err);
    assert_int_equal(parts.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ddl_parts_bytes(&parts, &list, i), bytes[i]);
    assert_ok(ddl_parts_assign(&parts, &list, 3, owner, &err), err);
    for (size_t i = 0; i < n; i++) /* the largest part is that of one process */
        assert_int_equal(owner[i] == owner[5], i == 5);
    ddl_parts_free(&parts);
    /* Without separator lines, a text file cannot be divided. */
    assert_ok(ddl_parts_divide(&parts, &list, "", 100, &err), err);
    assert_int_equal(parts.n, 10 + 1 + 1 + 1);
    ddl_parts_free(&parts);
    assert_ok(ddl_parts_divide(&parts, &list, "--", 0, &err), err);
    assert_int_equal(parts.n, 1);
    ddl_parts_free(&parts);
    items[0].size = UINT64_MAX / 2;
    assert_int_equal(ddl_parts_divide(&parts, &list, "--", 300, &err), DDL_E_USAGE);
    assert_says(&err, "--part_bytes: more than 1000000 parts of 300 bytes");
    ddl_parts_free(&parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut),
        cmocka_unit_test(division),
        cmocka_unit_test(any_number_of_processes),
        cmocka_unit_test(another_number_of_processes),
        cmocka_unit_test(at_the_same_time),
        cmocka_unit_test(started_while_shards_are_written),
        cmocka_unit_test(started_while_parts_are_copied),
        cmocka_unit_test(last_to_end_writes),
        cmocka_unit_test(killed_at_random_times),
        cmocka_unit_test(same_shard_twice),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(other_options),
        cmocka_unit_test(inputs_of_other_sizes),
        cmocka_unit_test(changed_inputs),
        cmocka_unit_test(failures_keep_parts),
        cmocka_unit_test(lines_in_messages),
        cmocka_unit_test(corrupted_parts),
        cmocka_unit_test(shard_is_checked),
        cmocka_unit_test(overwriting),
        cmocka_unit_test(more_processes_than_parts),
    };
    return cmocka_run_group_tests(tests, set_up, unload_tokenizer);
}
