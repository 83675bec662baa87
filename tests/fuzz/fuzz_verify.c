/* Fuzzes an archive of a `ddl verify` case, on the reference backend. */
#include "fuzz.h"

#include "ddl/verify.h"

#include <string.h>

static void each(void *user, const struct ddl_verify_case *result)
{
    (void)user;
    FUZZ_CHECK(result->path && result->kind && result->n_measures <= DDL_VERIFY_MEASURES);
    FUZZ_CHECK(memchr(result->message, '\0', sizeof result->message));
    FUZZ_CHECK(result->outcome != DDL_VERIFY_SKIP || result->message[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    struct ddl_verify_config config = ddl_verify_defaults();
    struct ddl_verify_totals totals;
    fuzz_unpack(data, size);
    const char *paths[] = { fuzz_folder() };
    strcpy(config.backend, "ref");
    config.threads = 1;
    /* A case may include the tokenizer for its lines, and the texts listed in its files.json. */
    strcpy(config.tokenizer, paths[0]);
    strcpy(config.data, paths[0]);
    fuzz_ok(ddl_verify_run(&config, paths, 1, each, NULL, &totals, &err), &err);
    return 0;
}

FUZZ_MUTATE_NUMBERS
