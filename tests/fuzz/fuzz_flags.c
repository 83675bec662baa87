/* Fuzzes command lines: each line of the input is one argument. A valid configuration must be writable as a
 * recipe. */
#include "fuzz.h"

#include "ddl/data.h"
#include "ddl/generate.h"
#include "ddl/train.h"
#include "ddl/verify.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 64 };

static void parse(const struct ddl_option *table, void *object, int argc, char *const *given)
{
    char *argv[MAX_ARGUMENTS + 1];
    struct ddl_error err = { 0 };
    int n_positional = -1;
    memcpy(argv, given, ((size_t)argc + 1) * sizeof *argv);
    if (fuzz_ok(ddl_option_parse(table, object, NULL, NULL, argc, argv, &n_positional, &err), &err))
        FUZZ_CHECK(n_positional >= 0 && n_positional < argc);
    for (const struct ddl_option *row = table; row->name; row++) {
        char value[8192];
        ddl_option_format(row, object, value, sizeof value);
        FUZZ_CHECK(ddl_option_set(row, object, value, row->name, &err) == DDL_OK || err.text[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ddl_train_config train;
    struct ddl_build_config build = ddl_build_defaults();
    struct ddl_generate_config generate = ddl_generate_defaults();
    struct ddl_verify_config verify = ddl_verify_defaults();
    char program[] = "ddl", *argv[MAX_ARGUMENTS + 1] = { program };
    char *text = calloc(size + 1, 1);
    FUZZ_CHECK(text != NULL);
    if (size)
        memcpy(text, data, size);
    int argc = 1, n_positional;
    for (char *at = text; *at && argc < MAX_ARGUMENTS; argc++) {
        argv[argc] = at;
        at += strcspn(at, "\n");
        if (*at)
            *at++ = '\0';
    }
    argv[argc] = NULL;
    parse(ddl_build_options(), &build, argc, argv);
    parse(ddl_generate_options(), &generate, argc, argv);
    parse(ddl_verify_options(), &verify, argc, argv);
    struct ddl_error err = { 0 };
    if (fuzz_ok(ddl_train_configure(&train, NULL, argc, argv, NULL, NULL, &n_positional, &err), &err)) {
        const char *path = fuzz_path("written.yaml");
        FUZZ_CHECK(ddl_train_save_recipe(&train, path, &err) == DDL_OK);
        ddl_status again = ddl_train_configure(&train, path, 1, argv, NULL, NULL, &n_positional, &err);
        FUZZ_CHECK(!again ||
                   train.sample_every); /* samples need a tokenizer, whose path may not be valid UTF-8 */
    }
    free(text);
    return 0;
}

FUZZ_MUTATE_NUMBERS
