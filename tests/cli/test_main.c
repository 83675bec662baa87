/* cli/main.c and cli/help.c, by running the program. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/version.h"
#include "support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void says(const char *arguments, int status, const char *output, const char *error)
{
    const char *const wanted[] = { [STANDARD_OUTPUT] = output, [STANDARD_ERROR] = error };
    for (enum stream stream = STANDARD_OUTPUT; stream <= STANDARD_ERROR; stream++) {
        assert_int_equal(ddl_stream(stream, "%s", arguments), status);
        if (!strstr(printed, wanted[stream]) || (!*wanted[stream] && *printed))
            fail_msg("ddl %s: standard %s is '%s', wanted '%s'", arguments,
                     stream == STANDARD_OUTPUT ? "output" : "error", printed, wanted[stream]);
    }
}

static void version(void **state)
{
    (void)state;
    char line[64];
    snprintf(line, sizeof line, "ddl %s\n", ddl_version());
    says("--version", 0, line, "");
    snprintf(line, sizeof line, "ddl %s\nbackend: cpu (", ddl_version());
    says("--version --verbose", 0, line, "");
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "--version --verbose"), 0);
    assert_printed("\nMPI: ");
}

static void help(void **state)
{
    (void)state;
    says("help", 0, "usage: ddl COMMAND", "");
    says("--help", 0, "usage: ddl COMMAND", "");
    says("-h", 0, "usage: ddl COMMAND", "");
    says("help help", 0, "usage: ddl help [COMMAND [ACTION]]", "");
    says("help --help", 0, "usage: ddl help [COMMAND [ACTION]]", "");
}

static void usage(void **state)
{
    (void)state;
    says("", 2, "", "usage: ddl COMMAND");
    says("hepl", 2, "", "ddl: unknown command 'hepl', did you mean 'help'?\n");
    says("help hlep", 2, "", "ddl: unknown command 'hlep', did you mean 'help'?\n");
    says("frobnicate", 2, "", "ddl: unknown command 'frobnicate'; 'ddl help' lists the commands\n");
    says("--frobnicate", 2, "", "ddl: unknown command '--frobnicate'; 'ddl help' lists the commands\n");
}

/* Each command that `ddl help` lists has a help of its own. */
static void every_command_helps(void **state)
{
    (void)state;
    static char overview[sizeof printed];
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "help"), 0);
    strcpy(overview, printed);
    char *line = strstr(overview, "commands:\n");
    assert_non_null(line);
    int n = 0;
    for (line = strchr(line, '\n') + 1; strncmp(line, "  ", 2) == 0; line = strchr(line, '\n') + 1) {
        char wanted[64];
        int length = (int)strcspn(line + 2, " ");
        snprintf(wanted, sizeof wanted, "usage: ddl %.*s", length, line + 2);
        assert_int_equal(ddl_stream(STANDARD_OUTPUT, "help %.*s", length, line + 2), 0);
        assert_printed(wanted);
        n++;
    }
    assert_true(n > 0);
}

/* Defaults of options, from the tables that the commands parse into. */
static void defaults(void **state)
{
    (void)state;
    says("help train", 0, "peak learning rate (also --learning-rate, --max-lr) [default: 0.001]\n", "");
    says("help train", 0, "value channels c of the state [default: 1]\n", "");
    says("help generate", 0, "sampling temperature (0: greedy) [default: 1]\n", "");
    says("help generate", 0,
         "format of the weights in products (tf32: only with backend cuda) [default: f32]\n", "");
    says("help bench decode", 0,
         "sequences decoded together (one sequence is timed first) (also --batch-size, --micro-batch-size) "
         "[default: 8]\n",
         "");
    says("help bench step", 0, "also measure the peak rates of the machine [default: on]\n", "");
    says("help compare", 0, "horizontal axis of the chart and of --svg [default: tokens]\n", "");
    says("help eval", 0, "ignore tensors that are not parameters\n", "");
    says("help --man ddl-train", 0, "[default: 0.001]\n", "");
}

/* Actions have a help of their own, and their command tells which there are. */
static void actions(void **state)
{
    (void)state;
    says("help data build", 0, "usage: ddl data build INPUT", "");
    says("data build --help", 0, "usage: ddl data build INPUT", "");
    says("data --help", 0, "  ddl data build INPUT", "");
    says("help data bild", 2, "", "ddl: data: unknown action 'bild', did you mean 'build'?\n");
    says("help info bild", 2, "", "ddl: help: info has no action 'bild'\n");
    says("help data build it", 2, "", "ddl: help: data build has no action 'it'\n");
    says("data bild", 2, "", "ddl: data: unknown action 'bild', did you mean 'build'?\n");
    says("tokenizer", 2, "", "ddl: tokenizer: missing argument: expected encode, decode, info or train");
    says("bench", 2, "",
         "ddl: bench: missing argument: expected op, step, decode, tokenizer or comm ('ddl help bench')\n");
    says("bench step now", 2, "", "ddl: bench step takes options only, found 'now'\n");
}

static void manual(void **state)
{
    (void)state;
    says("help --pages", 0, "ddl.1\nddl-ablate.1\n", "");
    says("help --pages", 0, "\nddl-verify.1\nddl-recipe.5\n", "");
    says("help --man ddl-eval.1", 0, ".TH DDL\\-EVAL 1 ", "");
    says("help --man ddl-eval", 0, ".TH DDL\\-EVAL 1 ", "");
    says("help --man ddl-recipe", 0, ".TH DDL\\-RECIPE 5 ", "");
    says("help --man eval", 2, "", "ddl: --man: there is no page 'eval'; 'ddl help --pages' lists them\n");
    says("completion bash", 0, "\ncomplete -F _ddl ddl\n", "");
}

/* Runs process `rank` of two that a launcher started. */
static void launched(const char *rank, const char *arguments, int status, const char *expected)
{
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=%s '%s' %s 2>&1", scratch_path("."),
             rank, ddl_program(), arguments);
    assert_int_equal(run_command(command, printed, sizeof printed), status);
    if (*expected)
        assert_printed(expected);
    else
        assert_string_equal(printed, "");
}

/* Commands of one process fail, with one message; help is printed once; the others use the ranks. */
static void several_processes(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "ablate",          "bench decode", "bench op",         "bench step",     "bench tokenizer",
        "compare",         "data info",    "data synthetic",   "export",         "generate",
        "graft",           "info",         "inspect",          "logprobs",       "report",
        "serve",           "verify",       "tokenizer decode", "tokenizer info", "tokenizer encode",
        "tokenizer train",
    };
    static const char *const once[] = { "--version",    "--help",         "help",
                                        "help eval",    "data --help",    "data build --help",
                                        "train --help", "completion bash" };
    static const char *const divided[] = { "train", "eval x", "sweep x", "data build x", "bench comm" };
    static const char *const others[] = { "completion", "help",       "train",      "eval",
                                          "sweep",      "data build", "bench comm", NULL };
    assert_commands_listed(refused, sizeof refused / sizeof *refused, others);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char message[256];
        snprintf(message, sizeof message,
                 "ddl: %s: does not divide its work between processes: expected one, found those that Open "
                 "MPI's mpirun started (OMPI_COMM_WORLD_SIZE=2); set DDL_COMM=none to run them",
                 refused[i]);
        launched("0", refused[i], 2, message);
        launched("1", refused[i], 0, "");
    }
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
        launched("0", once[i], 0, "ddl");
        launched("1", once[i], 0, "");
    }
    launched("0", "data", 2, "ddl: data: missing argument");
    launched("1", "data", 0, "");
    launched("1", "frobnicate", 0, "");
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++) {
        setenv("DDL_COMM_PLUGIN", scratch_path("none.so"), 1);
        launched("1", divided[i], 1, "none.so: cannot load the MPI plugin: ");
        unsetenv("DDL_COMM_PLUGIN");
    }
    setenv("DDL_COMM", "none", 1);
    launched("1", "generate", 2, "ddl: generate: missing argument");
    unsetenv("DDL_COMM");
}

static void full_disk(void **state)
{
    (void)state;
    char command[4096];
    snprintf(command, sizeof command, "test -w /dev/full || exit 77; '%s' help 2>&1 >/dev/full",
             ddl_program());
    int status = run_command(command, printed, sizeof printed);
    if (status == 77)
        skip();
    assert_int_equal(status, 1);
    assert_printed("cannot write standard output");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version),
        cmocka_unit_test(help),
        cmocka_unit_test(usage),
        cmocka_unit_test(every_command_helps),
        cmocka_unit_test(defaults),
        cmocka_unit_test(actions),
        cmocka_unit_test(manual),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(several_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
