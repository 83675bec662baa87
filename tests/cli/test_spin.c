/* cli/spin.c, which is linked into this program too: libgomp sees GOMP_SPINCOUNT, however the program is
 * started, and the environment is otherwise unchanged. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "cli/cli.h"

extern char **environ;

static char text[1 << 16];

/* What libgomp read at its start: OMP_DISPLAY_ENV has it print its settings. */
static void assert_spin_count(const char *before, const char *program, const char *count)
{
    char command[4096], wanted[64];
    snprintf(command, sizeof command,
             "env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose %s %s --version 2>&1", before,
             program);
    assert_int_equal(run_command(command, text, sizeof text), 0);
    assert_non_null(strstr(text, "ddl "));
    if (!strstr(text, "GOMP_SPINCOUNT")) {
        print_message("skipped: this program does not use libgomp\n");
        skip();
    }
    snprintf(wanted, sizeof wanted, "GOMP_SPINCOUNT = '%s'", count);
    if (!strstr(text, wanted))
        fail_msg("%s: %s", command, text);
}

static void is_set(void **state)
{
    (void)state;
    assert_spin_count("", ddl_program(), "3000");
    assert_spin_count("env -i PATH=/bin OMP_DISPLAY_ENV=verbose", ddl_program(), "3000");
}

static void the_user_s_setting_wins(void **state)
{
    (void)state;
    assert_spin_count("GOMP_SPINCOUNT=77", ddl_program(), "77");
    assert_spin_count("OMP_WAIT_POLICY=passive", ddl_program(), "0");
}

/* The dynamic loader as the command: the program is its argument. */
static void under_the_loader(void **state)
{
    (void)state;
    char command[4096], loader[1024];
    snprintf(command, sizeof command, "ldd %s | sed -n 's/^[ \\t]*\\(\\/[^ ]*ld-linux[^ ]*\\) .*/\\1/p'",
             ddl_program());
    if (run_command(command, loader, sizeof loader) != 0 || *loader != '/') {
        print_message("skipped: no dynamic loader found\n");
        skip();
    }
    loader[strcspn(loader, "\n")] = '\0';
    assert_spin_count(loader, ddl_program(), "3000");
}

/* Replaces what `ddl` was before: valgrind would have seen only the restart. */
static void under_valgrind(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    const bool sanitized = true; /* valgrind cannot run such a program */
#else
    const bool sanitized = false;
#endif
    if (sanitized || run_command("command -v valgrind", text, sizeof text) != 0 || getenv("DDL_EMULATED")) {
        print_message("skipped: no valgrind for this program\n");
        skip();
    }
    assert_spin_count("DDL_ISA=baseline valgrind", ddl_program(), "3000");
    assert_non_null(strstr(text, "ERROR SUMMARY: 0 errors"));
}

/* This program, which prints its environment. */
static void the_environment_is_kept(void **state)
{
    char command[4096];
    snprintf(command, sizeof command, "env -i A=1 PATH=/bin _=x B=2 %s show", (const char *)*state);
    assert_int_equal(run_command(command, text, sizeof text), 0);
    assert_non_null(strstr(text, "A=1\n"));
    assert_non_null(strstr(text, "B=2\n"));
    assert_non_null(strstr(text, "PATH=/bin\n"));
    assert_non_null(strstr(text, "_="));
    assert_non_null(strstr(text, "GOMP_SPINCOUNT=3000\n"));
    snprintf(command, sizeof command, "env -i %s show", (const char *)*state);
    assert_int_equal(run_command(command, text, sizeof text), 0);
    assert_string_equal(text, "");
    snprintf(command, sizeof command, "env -i PATH=/bin OMP_WAIT_POLICY=active %s show",
             (const char *)*state);
    assert_int_equal(run_command(command, text, sizeof text), 0);
    assert_string_equal(text, "PATH=/bin\nOMP_WAIT_POLICY=active\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_set),
        cmocka_unit_test(the_user_s_setting_wins),
        cmocka_unit_test(under_the_loader),
        cmocka_unit_test(under_valgrind),
        cmocka_unit_test_prestate(the_environment_is_kept, argv[0]),
    };
    restore_environment();
    for (char **entry = environ; argc > 1 && *entry; entry++)
        puts(*entry);
    return argc > 1 ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
