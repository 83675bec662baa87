/* Folders from a stranger, in which a name is a symbolic link: no command writes through it. The link is
 * replaced, or the command is refused with a message that names it. What a user names as a place of output
 * works as before: a device, a pipe, standard output. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"
#include "support/program.h"

#include <sys/stat.h>
#include <unistd.h>

static const struct small_run run = {
    "links",
    "--model ddl-1 --backend ref --steps 2 --checkpoint-every 1 --keep-last 2 --val-every 1 --threads 1 "
    "--sample-every 1 --sample-tokens 2 --sample-prompt a --tensorboard"
};

static char arguments[1 << 14], said[SAID];

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Makes `name` in the folder a link to run/victim, which gets what was at the name: a file or a folder, or a
 * file if there was nothing. A copy of the victim is run/before. */
static void make_link(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    shell("rm -rf '%s/victim' '%s/before'", run_folder(), run_folder());
    if (ddl_file_exists(path))
        shell("mv '%s' '%s/victim'", path, run_folder());
    else
        shell("echo precious >'%s/victim'", run_folder());
    shell("mkdir -p '%s' && ln -s '%s/victim' '%s' && cp -r '%s/victim' '%s/before'", folder, run_folder(),
          path, run_folder(), run_folder());
}

/* Runs the command; the victim must be as before. */
static void assert_victim_unchanged(const char *command, const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int status = run_ddl("DDL=1", command, said);
    shell("diff -r '%s/victim' '%s/before' >/dev/null || { echo '%s' is changed; exit 1; }", run_folder(),
          run_folder(), path);
    if (status != 0 && (status != 1 || !strstr(said, name)))
        fail_msg("%s: status %d: %s", path, status, said);
}

static void in_a_run(void **state)
{
    (void)state;
    static const char *const names[] = { "metrics.jsonl",     "samples.jsonl",     "recipe.yaml",
                                         "config.json",       "tokenizer.json",    "tensorboard",
                                         "model.safetensors", ".checkpoint-3",     "checkpoint-1",
                                         "checkpoint-3",      ".checkpoint-1.old", ".lock" };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/r", run_folder());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            remove_scratch("run/r");
            copy_scratch("stopped", "run/r");
            make_link(folder, names[i]);
            snprintf(arguments, sizeof arguments, "%s --steps 4 %s", train_arguments(&run),
                     overwrite ? "--overwrite" : "--resume");
            assert_victim_unchanged(arguments, folder, names[i]);
        }
    }
}

static void in_a_report(void **state)
{
    (void)state;
    char folder[4096], page[4200];
    snprintf(folder, sizeof folder, "%s/r", run_folder());
    snprintf(page, sizeof page, "%s/report.html", folder);
    remove_scratch("run/r");
    copy_scratch("stopped", "run/r");
    make_link(folder, "report.html");
    snprintf(arguments, sizeof arguments, "report '%s'", folder);
    if (run_ddl("DDL=1", arguments, said) != 0) {
        assert_non_null(strstr(said, "built without Chart.js"));
        return;
    }
    shell("cmp '%s/victim' '%s/before'", run_folder(), run_folder());
    assert_false(is_link(page));
    shell("grep -q '<html' '%s'", page);
}

static void in_a_build(void **state)
{
    (void)state;
    static const char *const names[] = { "train_000000.bin", "build.json",         ".build",
                                         ".build/shards",    ".build/ready",       ".build/plan.json",
                                         ".build/merge",     ".build/shard-0-of-1" };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/s", run_folder());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        remove_scratch("run");
        shell("mkdir '%s'", run_folder());
        copy_scratch("built", "run/s");
        if (strncmp(names[i], ".build/", 7) == 0)
            shell("mkdir -p '%s/.build'", folder);
        make_link(folder, names[i]);
        if (strcmp(names[i], ".build/ready") == 0) /* shards that would be moved */
            shell("cd '%s' && rm -r victim before && cp -r ../built victim && cp -r victim before",
                  run_folder());
        const char *slash = strrchr(names[i], '/');
        assert_victim_unchanged(data_arguments(""), folder, slash ? slash + 1 : names[i]);
    }
}

static void places_of_output(void **state)
{
    (void)state;
    char svg[4096];
    remove_scratch("run");
    shell("mkdir '%s'", run_folder());
    copy_scratch("stopped", "run/r");
    snprintf(svg, sizeof svg, "%s/c.svg", run_folder());
    const char *ddl = ddl_program();
    shell("'%s' compare '%s/r' --svg '%s' >/dev/null && grep -q '</svg>' '%s'", ddl, run_folder(), svg, svg);
    shell("'%s' compare '%s/r' --svg /dev/stdout | grep -q '</svg>'", ddl, run_folder());
    shell("'%s' compare '%s/r' --svg /dev/stdout >'%s' && grep -q '</svg>' '%s'", ddl, run_folder(), svg,
          svg);
    shell("'%s' compare '%s/r' --svg /dev/null >/dev/null && test -c /dev/null", ddl, run_folder());
    shell("cd '%s' && mkfifo p && { cat p >from-pipe & } && '%s' compare r --svg p >/dev/null && wait && "
          "grep -q '</svg>' from-pipe && test -p p",
          run_folder(), ddl);
    shell("cd '%s' && echo precious >victim && ln -s victim link.svg && '%s' compare r --svg link.svg "
          ">/dev/null && "
          "grep -qx precious victim && grep -q '</svg>' link.svg && ! test -L link.svg && ! ls | grep tmp-",
          run_folder(), ddl);
    snprintf(arguments, sizeof arguments, "compare '%s/r' --svg /dev/full", run_folder());
    assert_int_equal(run_ddl("DDL=1", arguments, said), 1);
    assert_non_null(strstr(said, "/dev/full: cannot write: No space left on device"));
    snprintf(arguments, sizeof arguments, "compare '%s/r' --svg '%s/none/c.svg'", run_folder(), run_folder());
    assert_int_equal(run_ddl("DDL=1", arguments, said), 1);
    assert_non_null(strstr(said, "/none/c.svg: cannot create: No such file"));
}

/* Files are created and opened for writing in few places: the writer of files, the lock, event files (with
 * O_EXCL), and the two that append to a file that the user names. Names are not made of process ids. */
static void few_openers(void **state)
{
    (void)state;
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && grep -rlE --include=*.c '(fopen\\([^)]*\"[wa]|O_CREAT|mkstemp|\\bcreat\\(|tmp-%%)' "
             "src cli "
             "| grep -vxE "
             "'src/base/(file_writer|lock)\\.c|src/train/log/event_file\\.c|"
             "cli/(bench/cmd_bench|eval/task_items)\\.c'",
             source_path("."));
    (void)run_command(command, said, sizeof said);
    assert_string_equal(said, "");
}

static int prepare(void **state)
{
    (void)state;
    make_inputs();
    make_documents();
    run_uninterrupted(train_arguments(&run));
    remove_scratch("stopped");
    copy_scratch("whole/r", "stopped");
    run_uninterrupted(data_arguments(""));
    remove_scratch("built");
    copy_scratch("whole/s", "built");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_run),         cmocka_unit_test(in_a_report), cmocka_unit_test(in_a_build),
        cmocka_unit_test(places_of_output), cmocka_unit_test(few_openers),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
