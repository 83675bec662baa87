/* ddl completion: the scripts in their shells, where these are installed. */
#include "support/files.h"
#include "support/program.h"
#include "support/pty.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the script to a file of the scratch folder; its path. */
static const char *script(const char *shell, const char *file)
{
    assert_int_equal(ddl("completion %s", shell), 0);
    write_file(scratch_path(file), printed, strlen(printed));
    return scratch_path(file);
}

static bool installed(const char *shell)
{
    char command[64], out[256];
    snprintf(command, sizeof command, "command -v %s", shell);
    return run_command(command, out, sizeof out) == 0;
}

/* A script in a shell: its output into `printed`. */
static void shell_prints(const char *command)
{
    assert_int_equal(run_command(command, printed, sizeof printed), 0);
}

/* Each command line, and the words that its last word is completed to. */
static const struct {
    const char *line, *words;
} cases[] = {
    { "ddl tra", "train" },
    { "ddl data bu", "build" },
    { "ddl train --checkpoint", "--checkpoint-every --checkpoint-seconds" },
    { "ddl train --learning", "--learning-rate" },
    { "ddl data build --no-over", "--no-overwrite" },
    { "ddl train --model ddl-cc", "ddl-cc ddl-cc-ec" },
    { "ddl train --ddl-map ", "k v" },
    { "ddl help ver", "verify" },
    { "ddl completion ", "bash fish zsh" },
    { "ddl help --man ddl-tr", "ddl-train.1" },
    { "ddl eval --dtype int", "int8" },
};
enum { CASES = sizeof cases / sizeof *cases };

static void bash_completes(void **state)
{
    (void)state;
    char command[8192];
    for (size_t i = 0; i < CASES; i++) {
        const char *last = strrchr(cases[i].line, ' ') + 1;
        snprintf(command, sizeof command,
                 "bash -c 'source \"$1\"; COMP_WORDS=(%s %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ddl; "
                 "printf \"%%s\\n\" \"${COMPREPLY[@]}\" | sort | xargs' bash '%s'",
                 cases[i].line, *last ? "" : "\"\"", script("bash", "bash"));
        shell_prints(command);
        printed[strcspn(printed, "\n")] = '\0';
        if (strcmp(printed, cases[i].words) != 0)
            fail_msg("'%s': '%s', expected '%s'", cases[i].line, printed, cases[i].words);
    }
}

static void fish_completes(void **state)
{
    (void)state;
    char command[8192];
    if (!installed("fish"))
        skip();
    for (size_t i = 0; i < CASES; i++) {
        snprintf(command, sizeof command,
                 "cd '%s' && HOME=. fish --no-config -c 'source %s; complete -C \"%s\"' 2>&1 | cut -f1 | "
                 "sort | xargs",
                 scratch_path("."), script("fish", "fish"), cases[i].line);
        shell_prints(command);
        printed[strcspn(printed, "\n")] = '\0';
        if (strcmp(printed, cases[i].words) != 0)
            fail_msg("'%s': '%s', expected '%s'", cases[i].line, printed, cases[i].words);
    }
}

/* Types lines whose completion is unique, in a zsh that was set up by `setup`. */
static void zsh_completes_after(const char *setup)
{
    static const char *const typed[][2] = { { "ddl verif\t", "verify" },
                                            { "ddl data bu\t", "build" },
                                            { "ddl train --checkpoint-e\t", "every" },
                                            { "ddl data build --no-over\t", "--no-overwrite" },
                                            { "ddl train --model=ddl-cc-e\t", "ddl-cc-ec" },
                                            { "ddl help --man ddl-tr\t", "ddl-train.1" },
                                            { "ddl completion fi\t", "fish" },
                                            { "ddl eval --dtype int\t", "int8" } };
    const char *const argv[] = { "/bin/sh", "-c", "exec zsh -f -i", NULL }, *const environment[] = {
        "TERM=dumb", "PS1=%% ", "HOME=/nonexistent", NULL
    };
    pty_start(argv, environment);
    pty_send(setup);
    pty_expect("ready");
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        pty_send(typed[i][0]);
        pty_expect(typed[i][1]);
        pty_send("\x15"); /* erases the line */
    }
    pty_send("exit\n");
    pty_finish();
}

static void zsh_completes(void **state)
{
    (void)state;
    char setup[4096];
    if (!installed("zsh"))
        skip();
    snprintf(setup, sizeof setup, "autoload -Uz compinit; compinit -u -D; source '%s'; echo rea''dy\n",
             script("zsh", "zsh"));
    zsh_completes_after(setup);
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("functions"), &err), err);
    script("zsh", "functions/_ddl");
    snprintf(setup, sizeof setup,
             "fpath=('%s' $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\n",
             scratch_path("functions"));
    zsh_completes_after(setup);
}

/* Where a shell is not installed: every command, option and value is there, and quotes are closed. */
static void scripts_have_everything(void **state)
{
    (void)state;
    static const char *const shells[] = { "bash", "zsh", "fish" }, *const contents[] = {
        "train", "verify", "ddl-cc-ec", "checkpoint-every", "no-overwrite"
    };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ddl_stream(STANDARD_OUTPUT, "completion %s", shells[i]), 0);
        for (size_t k = 0; k < sizeof contents / sizeof *contents; k++)
            assert_printed(contents[k]);
    }
    static const struct refusal list[] = {
        { "completion", 2, "completion: missing argument: expected bash, zsh or fish" },
        { "completion sh", 2, "completion: unknown shell: expected bash, zsh or fish, found 'sh'" },
        { "completion bash zsh", 2, "completion: too many arguments: expected at most 1, found 2: 'zsh'" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(fish_completes),
        cmocka_unit_test(zsh_completes),
        cmocka_unit_test(scripts_have_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
