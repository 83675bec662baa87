/* What long commands show: on terminals of several widths and kinds, in a file, after Ctrl-C, with --quiet.
 */
#define _DEFAULT_SOURCE
#include "support/program.h"
#include "support/pty.h"
#include "support/runs.h"

#include "cli/output/terminal.h"
#include "cli/train/train_display.h"

#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char run_flags[] =
    "--vocab-size 300 --num-hidden-layers 2 --num-attention-heads 2 --hidden-size 16 --head-dim 8 "
    "--block-size 16 --batch 2 --warmup 2 --threads 1";

/* Every line that was visible at some time, including those that were overwritten, has at most `columns`
 * columns. */
static void assert_columns(const char *text, size_t columns)
{
    size_t used = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '\033') { /* a control sequence ends with a letter */
            while (c[1] && !((*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z')))
                c++;
            continue;
        }
        used = *c == '\r' || *c == '\n' ? 0 : used + 1;
        if (used > columns)
            fail_msg("more than %zu columns at: %.200s", columns, c + 1 - used);
    }
}

/* Starts "ddl <arguments>" on a terminal of the kind `term` (TERM=...). */
static void DDL_PRINTF(3, 4) start(const char *term, const char *no_color, const char *arguments, ...)
{
    static char text[8192], command[16384];
    const char *const environment[] = { term, no_color, NULL };
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    va_list args;
    va_start(args, arguments);
    vsnprintf(text, sizeof text, arguments, args);
    va_end(args);
    snprintf(command, sizeof command, "exec '%s' %s", ddl_program(), text);
    pty_start(argv, environment);
}

static const char *a_shard(size_t tokens)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s", scratch_path("s.bin"));
    write_random_shard(path, 1, 260, tokens);
    return path;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- lines ---- */

/* What `show` writes to standard error, which is a file meanwhile. Free with free. */
static char *shown_in_a_file(const struct ddl_train_progress *p, uint64_t done)
{
    char path[4096];
    struct train_display display = train_display_on_stderr(false, stdout);
    struct ddl_train_callbacks callbacks = train_display_callbacks(&display);
    snprintf(path, sizeof path, "%s", scratch_path("shown.txt"));
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && freopen(path, "w", stderr));
    display.line.shown = 0; /* due */
    display.timed = true;
    if (done)
        assert_int_equal(callbacks.validation(&display, p, done, 100), 0);
    else
        callbacks.progress(&display, p);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    return read_file(path, NULL);
}

/* The longest numbers that a run has fit 80 columns; what does not fit is left out, the least important
 * first. */
static void long_runs_fit(void **state)
{
    (void)state;
    static const struct {
        struct ddl_train_progress p;
        uint64_t validated;
        const char *line;
    } cases[] = {
        { { .step = 300,
            .steps = 3000,
            .loss = 4.3547,
            .lr = 1e-3,
            .grad_norm = 0.523,
            .tokens_per_s = 21990,
            .seconds_left = 151 },
          0,
          "step 300/3000  loss 4.3547  lr 1.00e-03  norm 0.523  21990 tok/s  2:31 left\n" },
        { { .step = 1000000,
            .steps = 1000000,
            .loss = 10.82345,
            .lr = 1e-4,
            .grad_norm = 123.456,
            .has_val = true,
            .val_loss = 10.91234,
            .tokens_per_s = 1234567 },
          0,
          "step 1000000/1000000  loss 10.8234  val 10.9123  lr 1.00e-04  1.23M tok/s\n" },
        { { .step = 999999,
            .steps = 1000000,
            .loss = 10.82345,
            .lr = 1e-4,
            .grad_norm = 123.456,
            .has_val = true,
            .val_loss = 10.91234,
            .tokens_per_s = 1234567,
            .seconds_left = 172799 },
          0,
          "step 999999/1000000  loss 10.8234  val 10.9123  1.23M tok/s  47:59:59 left\n" },
        { { .step = 999999, .steps = 1000000, .loss = 10.82345 },
          7,
          "step 999999/1000000  loss 10.8234  validation   7%\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = shown_in_a_file(&cases[i].p, cases[i].validated);
        assert_string_equal(text, cases[i].line);
        assert_columns(text, 79);
        free(text);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *count, *time;
    } cases[] = { { 0, "0", "0:00" },
                  { 59.6, "60", "1:00" },
                  { 9999, "9999", "2:46:39" },
                  { 99999, "99999", "27:46:39" },
                  { 100000, "100k", "27:46:40" },
                  { 1234567, "1.23M", "14.3 days" },
                  { 99.95e6, "100M", "1156.8 days" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        format_count(cases[i].number, text, sizeof text);
        assert_string_equal(text, cases[i].count);
        format_seconds(cases[i].number, text, sizeof text);
        assert_string_equal(text, cases[i].time);
    }
}

/* ---- terminals ---- */

static void fits_every_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *term, *no_color;
        unsigned short columns;
        bool control, color;
    } cases[] = {
        { "TERM=xterm", "NO_COLOR=", 80, true, true },     { "TERM=xterm", "NO_COLOR=", 44, true, true },
        { "TERM=screen", "NO_COLOR=1", 132, true, false }, { "TERM=dumb", "NO_COLOR=", 80, false, false },
        { "TERM=", "NO_COLOR=", 80, false, false },        { "TERM=xterm", "NO_COLOR=", 0, true, true },
    };
    const char *shard = a_shard(3000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_scratch("r");
        pty_set_columns(cases[i].columns);
        start(cases[i].term, cases[i].no_color,
              "train %s --steps 100 --checkpoint-every 0 --train-data %s --val-data %s --val-every 50 "
              "--val-tokens 20000 --out %s",
              run_flags, shard, shard, scratch_path("r"));
        if (pty_finish() != 0)
            fail_msg("%s", pty_output());
        const char *text = pty_output(), *steps = strstr(text, "step "),
                   *result = strstr(text, "/r: 100 steps");
        assert_true(steps && result);
        while (*result != '\n') /* the result, on standard output, begins with the folder's path */
            result--;
        char *lines = strndup(steps, (size_t)(result - steps));
        assert_columns(lines, cases[i].columns ? cases[i].columns - 1 : 79);
        free(lines);
        assert_int_equal(strstr(text, "\033[K") != NULL, cases[i].control);
        assert_int_equal(strstr(text, "\033[2m") != NULL, cases[i].color);
        assert_int_equal(strchr(text, '\033') != NULL, cases[i].control);
        assert_int_equal(strstr(text, "\rstep ") != NULL, cases[i].control);
        assert_non_null(strstr(text, "step 50/100  loss "));
        assert_non_null(strstr(text, "  val "));
        assert_int_equal(strstr(text, "  norm ") != NULL, cases[i].columns != 44);
    }
    pty_set_columns(0);
}

/* ---- header ---- */

static void a_run_begins_with_a_header(void **state)
{
    (void)state;
    const char *shard = a_shard(3000);
    remove_scratch("h");
    assert_int_equal(ddl_stream(STANDARD_ERROR,
                                "train %s --model ddl-cc --steps 30 --checkpoint-every 0 --val-every 0 "
                                "--train-data %s --out %s",
                                run_flags, shard, scratch_path("h")),
                     0);
    static const char *const rows[] = { "model     ddl-cc, ",
                                        "shape     2 layers, width 16, 2 heads x 8, MLP width 42\n",
                                        "\nbackend   cpu (",
                                        "1 thread,",
                                        ", dtype f32\n",
                                        "\ndata      3000 tokens, of which the run reads 960 (0.32 epochs)",
                                        "\nmemory    ",
                                        " MiB predicted, ",
                                        "\nfolder    ",
                                        "\ntime      about 0:0",
                                        ", measured over 3 steps\n" };
    const char *at = printed;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        at = strstr(at, rows[i]);
        if (!at)
            fail_msg("'%s' is missing, or too early, in: %s", rows[i], printed);
    }
    assert_memory_equal(printed, "model ", 6);
    assert_int_equal(
        ddl("train %s --model ddl-cc --steps 40 --checkpoint-every 0 --val-every 0 --train-data %s "
            "--out %s --overwrite --quiet",
            run_flags, shard, scratch_path("h")),
        0);
    assert_string_equal(printed, "");
}

/* --quiet leaves neither results nor warnings: here that the vocabulary is not reached, and that there is
 * no data for a validation that is requested. */
static void quiet_commands(void **state)
{
    (void)state;
    assert_int_equal(ddl("tokenizer train tests/golden/tokenizer-train/runs.txt --overwrite --out %s --quiet",
                         scratch_path("q.json")),
                     0);
    assert_string_equal(printed, "");
    assert_int_equal(ddl("tokenizer train tests/golden/tokenizer-train/runs.txt --overwrite --out %s",
                         scratch_path("q.json")),
                     0);
    assert_printed("of 8192 tokens: no pair is left");
    static const char warning[] =
        "warning: val_every is 5, but there is no validation data: expected val_data\n";
    static const struct {
        const char *flags;
        bool warns;
    } cases[] = { { "--val-every 5", true },
                  { "--val-every 5 --quiet", false },
                  { "--val-every 0", false },
                  { "", false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl("train %s --steps 3 --train-data %s --out %s --overwrite %s", run_flags,
                             a_shard(3000), scratch_path("w"), cases[i].flags),
                         0);
        assert_int_equal(strstr(printed, warning) != NULL, cases[i].warns);
    }
    /* The run's recipe has the number that was computed. */
    assert_int_equal(ddl("train %s/recipe.yaml --steps 5 --resume", scratch_path("w")), 0);
    assert_null(strstr(printed, "there is no validation data"));
}

/* A dry run prints the header, the plan and the time, and writes nothing; an input that is in error is
 * reported after the plan. */
static void a_dry_run_reports(void **state)
{
    (void)state;
    const char *shard = a_shard(3000);
    remove_scratch("dry");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "train %s --steps 30 --train-data %s --out %s --dry-run",
                                run_flags, shard, scratch_path("dry")),
                     0);
    assert_printed("\ndata      3000 tokens");
    assert_printed("\ntime      about 0:0");
    assert_printed("from a micro-batch of 32 tokens and 2 layers\n");
    assert_printed("\nmemory, MiB\n");
    json_t *root = ddl_json("train %s --steps 30 --train-data %s --out %s --dry-run --json", run_flags, shard,
                            scratch_path("dry"));
    assert_true(json_is_real(json_object_get(root, "seconds")));
    assert_int_equal(json_integer_value(json_object_get(root, "train_tokens")), 3000);
    assert_int_equal(json_integer_value(json_object_get(root, "measured_tokens")), 32);
    json_decref(root);
    assert_int_equal(ddl("train %s --vocab-size 200 --steps 30 --train-data %s --out %s --dry-run", run_flags,
                         shard, scratch_path("dry")),
                     1);
    assert_printed("\nmemory, MiB\n");
    assert_printed("not measured: see the error\n");
    assert_printed("exceeds the vocabulary of 200 tokens\n");
    assert_int_equal(ddl("train %s --steps 30 --train-data '' --dry-run", run_flags), 0);
    assert_printed("not measured: train_data is not set\n");
    assert_false(ddl_file_exists(scratch_path("dry")));
}

/* ---- Ctrl-C ---- */

static const char ctrl_c[] = "\003";

/* A second on an idle machine. That the program has stopped early is seen from its exit status and output:
 * what it does would take minutes. */
static void print_stopped(double since)
{
    print_message("stopped after %.2f s\n", now() - since);
}

/* Validations that would take minutes: of the initial parameters, when there is nothing to save, and of a
 * step. */
static void a_validation_stops(void **state)
{
    (void)state;
    static const char *const flags[] = { "--steps 6", "--steps 6 --resume" };
    static const char *const messages[] = { "stopped before the first step", "stopped after step 4 of 6" };
    const char *shard = a_shard(3000000);
    for (int i = 0; i < 2; i++) {
        remove_scratch("v");
        if (i == 1)
            assert_int_equal(ddl("train %s --steps 2 --checkpoint-every 2 --train-data %s --out %s",
                                 run_flags, shard, scratch_path("v")),
                             0);
        start("TERM=xterm", "NO_COLOR=",
              "train %s %s --checkpoint-every 0 --train-data %s --val-data %s --val-every 4 "
              "--val-tokens 100000000 --out %s",
              run_flags, flags[i], shard, shard, scratch_path("v"));
        (void)pty_expect("validation ");
        double since = now();
        pty_send(ctrl_c);
        assert_int_equal(pty_finish(), 3);
        print_stopped(since);
        if (!strstr(pty_output(), messages[i]))
            fail_msg("'%s' is not in: %s", messages[i], pty_output());
        assert_int_equal(ddl_file_exists(scratch_path("v/checkpoint-4/state.json")), i);
    }
}

/* Commands with nothing to save end at once. */
static void other_commands_stop(void **state)
{
    (void)state;
    char shard[4096], zeros[4096], command[16384];
    snprintf(shard, sizeof shard, "%s", a_shard(3000000));
    snprintf(zeros, sizeof zeros, "%s", scratch_path("zeros.bin"));
    /* 2^31 - 1 tokens, all zero, of which the disk has none */
    snprintf(command, sizeof command,
             "printf '\\210\\330\\064\\001\\001\\000\\000\\000\\377\\377\\377\\177' >%s; "
             "truncate -s 4294968318 %s",
             zeros, zeros);
    assert_int_equal(run_command(command, printed, sizeof printed), 0);
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", tiny_folder("m", "baseline"));
    remove_scratch("m/tokenizer.json"); /* not known to fit the shard: a message longer than the terminal */
    remove_scratch("m/checksums.json");
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            start("TERM=xterm", "NO_COLOR=", "data info %s", zeros);
        else
            start("TERM=xterm", "NO_COLOR=", "eval %s --shard %s --backend ref", folder, shard);
        (void)pty_expect(i == 0 ? "% of " : " left");
        double since = now();
        pty_send(ctrl_c);
        assert_int_equal(pty_finish(), 3);
        print_stopped(since);
        assert_columns(pty_output(), 79);
        assert_non_null(strstr(pty_output(), "\nddl: interrupted\r\n"));
    }
    assert_int_equal(unlink(zeros), 0);
}

/* Waits until the file has something in it; returns what. */
static char *wait_for_lines(const char *path)
{
    for (size_t size = 0;;) {
        char *text = access(path, F_OK) == 0 ? read_file(path, &size) : NULL;
        if (text && size)
            return text;
        free(text);
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
}

/* Evaluations that write lines end soon, within a batch too, after a whole line. */
static void evaluations_stop(void **state)
{
    (void)state;
    char out[4096];
    snprintf(out, sizeof out, "%s", scratch_path("lines"));
    for (int i = 0; i < 2; i++) {
        remove_scratch("lines");
        if (i == 0)
            start("TERM=xterm", "NO_COLOR=",
                  "eval tests/golden/tasks/model --tokenizer data/tokenizer --tasks piqa --data data/tasks "
                  "--backend ref --items %s",
                  out);
        else
            start("TERM=xterm", "NO_COLOR=", "logprobs %s data/text/tinyshakespeare.txt --backend ref >%s",
                  tiny_folder("m", "baseline"), out);
        free(wait_for_lines(out));
        double since = now();
        pty_send(ctrl_c);
        assert_int_equal(pty_finish(), 3);
        print_stopped(since);
        assert_columns(pty_output(), 79);
        if (!strstr(pty_output(), i ? "stopped after " : "task piqa: interrupted after "))
            fail_msg("%s", pty_output());
        size_t size;
        char *text = read_file(out, &size);
        assert_int_equal(text[size - 1], '\n');
        free(text);
    }
}

/* A signal is not lost that comes before the program says that it ends with the first one. */
static void a_signal_before_the_phase(void **state)
{
    (void)state;
    int ended;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        catch_interrupts();
        (void)kill(getpid(), SIGTERM);
        while (!interrupted())
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        exit_on_interrupt(true);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_runs_fit),       cmocka_unit_test(numbers),
        cmocka_unit_test(fits_every_terminal), cmocka_unit_test(a_run_begins_with_a_header),
        cmocka_unit_test(quiet_commands),      cmocka_unit_test(a_dry_run_reports),
        cmocka_unit_test(a_validation_stops),  cmocka_unit_test(other_commands_stop),
        cmocka_unit_test(evaluations_stop),    cmocka_unit_test(a_signal_before_the_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
