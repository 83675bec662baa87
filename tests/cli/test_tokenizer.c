/* `ddl tokenizer ...` from outside. */
#include "support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

/* Runs `INPUT | ddl tokenizer ARGUMENTS` in a shell, in the source folder; standard output, or errors, must
 * hold `wanted`. */
static void says(const char *input, const char *arguments, int status, bool errors, const char *wanted)
{
    char command[4096], out[16384];
    snprintf(command, sizeof command, "cd '%s' && printf %%b '%s' | '%s' tokenizer %s %s", source_path("."),
             input, ddl_program(), arguments, errors ? "2>&1 >/dev/null" : "2>/dev/null");
    int got = run_command(command, out, sizeof out);
    if (got != status || !strstr(out, wanted))
        fail_msg("ddl tokenizer %s: status %d, '%s', expected %d, '%s'", arguments, got, out, status, wanted);
}

static void encodes(void **state)
{
    (void)state;
    says("Hello world", "encode", 0, false, "15496 995\n");
    says("Hello world", "encode -", 0, false, "15496 995\n");
    says("Hello world", "encode --json", 0, false, "[15496, 995]\n");
    says("Hello world", "encode --count", 0, false, "2\n");
    says("", "encode --json", 0, false, "[]\n");
    says("a<|endoftext|>", "encode --special", 0, false, "64 50256\n");
    says("", "encode --count tests/golden/tokenizer-train/shakespeare.txt --tokenizer data/tokenizer", 0,
         false, "\n");
    says("", "encode none.txt", 1, true, "ddl: none.txt: cannot open: No such file");
    says("", "encode a b", 2, true,
         "ddl: tokenizer encode: too many arguments: expected at most 1, found 2: 'b'");
    says("", "encode --jsn", 2, true, "did you mean '--json'?");
    says("", "encode --tokenizer none", 1, true, "ddl: none: cannot open");
}

static void decodes(void **state)
{
    (void)state;
    says("15496 995", "decode", 0, false, "Hello world");
    says("[15496,\\n 995]\\n", "decode", 0, false, "Hello world");
    says("", "decode", 0, false, "");
    says("1 50257", "decode", 1, true,
         "ddl: standard input: id number 2 is 50257, not one of the vocabulary");
    says("-1", "decode", 1, true, "id number 1 is -1");
    says("99999999999999999999", "decode", 1, true, "id number 1 is 99999999999999999999, not");
    says("1 x", "decode", 1, true, "ddl: standard input: byte 2: 'x' is not a token id");
    says("12x", "decode", 1, true, "byte 0: '12x' is not a token id");
    says("1 50257", "decode", 1, false, "");
}

static void tells(void **state)
{
    (void)state;
    says("", "info", 0, false,
         "vocabulary      50257\nmerges          50000\nspecial token   50256  <|endoftext|>\n");
    says("", "info tests/golden/tokenizer-train/case2.json --json", 0, false, "\"vocab_size\": 351");
    says("", "info src", 1, true, "src: no tokenizer in this folder");
    says("", "--help", 0, false, "ddl tokenizer train --out PATH INPUT");
    says("", "encode --help", 0, false, "usage: ddl tokenizer encode [FILE]");
    says("", "train --help", 0, false, "--vocab-size N");
    says("", "encod", 2, true, "ddl: tokenizer: unknown action 'encod', did you mean 'encode'?");
    says("", "", 2, true, "tokenizer: missing argument: expected encode, decode, info or train");
}

static void trains(void **state)
{
    (void)state;
    char arguments[3000];
    const char *out = scratch_path("trained.json");
    snprintf(arguments, sizeof arguments,
             "train --overwrite --vocab-size 700 --out '%s' tests/golden/tokenizer-train/shakespeare.txt",
             out);
    says("", arguments, 0, false, "trained.json: vocabulary 700, merges 443\n");
    snprintf(arguments, sizeof arguments, "encode --tokenizer '%s' --special", out);
    says("<|endoftext|>First", arguments, 0, false, "0 ");
    snprintf(arguments, sizeof arguments,
             "train --overwrite --out '%s' tests/golden/tokenizer-train/runs.txt", out);
    says("", arguments, 0, true, "of 8192 tokens: no pair is left that occurs often enough");
    snprintf(arguments, sizeof arguments,
             "train --overwrite --vocab-size 300 --stdin-format jsonl --out '%s' -", out);
    says("{\"text\": \"aa bb aa bb\"}\\n", arguments, 0, false, "trained.json: vocabulary 260, merges 3\n");
    says("{\"text\": 1}\\n", arguments, 1, true,
         "standard input:1: \"text\": expected a string, found a number");
    says("", "train x.txt", 2, true, "tokenizer train: missing argument: expected --out PATH");
    says("", "train --overwrite --out x.json", 2, true,
         "missing argument: expected files, folders, or - for standard input");
    says("", "train --overwrite --out x.json --vocab-size 12 y.txt", 2, true,
         "--vocab-size: 12 is out of range");
    says("", "train --overwrite --out README.md/x.json tests/golden/tokenizer-train/runs.txt", 1, true,
         "README.md");
    says("", "train --overwrite --out x.json none.txt", 1, true, "none.txt: cannot open");
    says("", "train --overwrite --out README.md tests/cli/../../README.md", 2, true,
         "README.md: is an input: choose another path");
    assert_false(ddl_file_exists(source_path("x.json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes),
        cmocka_unit_test(decodes),
        cmocka_unit_test(tells),
        cmocka_unit_test(trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
