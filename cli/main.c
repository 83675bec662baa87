#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cmd_help(const struct command *self, int argc, char **argv);

/* One row a command, in the order of the alphabet; a cmd_<name>.c each. */
const struct command commands[] = {
    { "bench", "step [--option value ...]", "how long a training step takes, op by op", cmd_bench },
    { "compare", "RUN [RUN ...] [--x AXIS] [--val] [--json]",
      "loss curves of runs on a chart, and a table of their costs", cmd_compare },
    { "data", "build | info ...", "text to shards of tokens, and what is in a shard", cmd_data },
    { "eval", "DIR (--shard PATH | --text FILE) [--seq N] [--stride N] [--json]",
      "loss, perplexity and bits per byte of a model", cmd_eval },
    { "export", "DIR --out DIR [--dtype f32|bf16|f16] [--max-shard-size SIZE]",
      "a model folder in another dtype, for PyTorch or to ship", cmd_export },
    { "generate", "DIR [--prompt TEXT] [--max-tokens N] [--temperature X] [--stop TEXT]...",
      "text that follows a prompt", cmd_generate },
    { "help", "[COMMAND]", "what the program or one of its commands does", cmd_help },
    { "info", "[DIR | --model NAME --size NAME] [--tensors] [--json]",
      "parameters, shapes and configuration of a model", cmd_info },
    { "tokenizer", "encode | decode | info | train ...", "text to ids and back; learn a vocabulary",
      cmd_tokenizer },
    { "train", "[RECIPE.yaml] [--key value ...] [--resume] [--dry-run]", "trains a model", cmd_train },
    { "verify", "DIR... [--option value ...]", "runs cases of vectors and says which pass", cmd_verify },
    { 0 },
};

enum { MAX_COMMANDS = 32 };

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

static int unknown_command(const char *name)
{
    struct ddl_option rows[MAX_COMMANDS + 1] = { 0 };
    for (size_t i = 0; commands[i].name && i < MAX_COMMANDS; i++)
        rows[i].name = commands[i].name;
    struct ddl_error err;
    ddl_option_unknown(rows, NULL, "command", name, &err);
    return report_error(&err);
}

static void print_overview(FILE *out)
{
    fprintf(out, "usage: ddl COMMAND [ARGUMENT ...]\n\n"
                 "Train, evaluate and sample Deep Delta language models.\n\ncommands:\n");
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->about);
    fprintf(out, "\n'ddl help COMMAND' tells the rest; 'ddl --version' says which program this is.\n");
}

static int cmd_help(const struct command *self, int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        print_help(self, NULL, NULL, NULL);
        return EXIT_OK;
    }
    if (argc < 2) {
        print_overview(stdout);
        return EXIT_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    char flag[] = "--help";
    char *arguments[] = { argv[1], flag, NULL };
    return command->run(command, 2, arguments);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ddl %s\n", ddl_version());
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout);
        return EXIT_OK;
    }
    const struct command *command = find_command(argv[1]);
    return command ? command->run(command, argc - 1, argv + 1) : unknown_command(argv[1]);
}

/* GCC's OpenMP lets a thread that waits for its team spin for milliseconds. Where another process has one of
 * the cores, that takes the core from the very thread that is waited for: five times slower, measured with
 * one busy neighbour (docs/performance.md). A short spin costs nothing on a quiet machine. The library reads
 * the setting before main, so the program starts itself once more with it; what the user has set stands. */
static void spin_briefly(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || setenv("GOMP_SPINCOUNT", "1000", 1) != 0)
        return;
    self[length] = '\0';
    execv(self, argv);
}

int main(int argc, char **argv)
{
    spin_briefly(argv);
    int status = run(argc, argv);
    /* A full disk behind a redirection shows only here. */
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0 || failed) {
        fprintf(stderr, "ddl: cannot write standard output: %s\n", strerror(errno));
        return status ? status : EXIT_FAILED;
    }
    return status;
}
