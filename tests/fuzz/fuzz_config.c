/* Fuzzes an archive with config.json, and tensors for settings derived from their shapes; any other input is
 * a config.json. A configuration that is accepted must be plannable, writable and readable again. */
#include "fuzz.h"

#include "ddl/model.h"

#include <stdlib.h>
#include <string.h>

static void warn(void *user, const char *message)
{
    ++*(size_t *)user;
    FUZZ_CHECK(*message && !strpbrk(message, "\n\r\033"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_config config, again;
    struct ddl_error err = { 0 };
    struct ddl_param *rows;
    size_t warnings = 0, n;
    if (fuzz_is_archive(data, size)) {
        fuzz_unpack(data, size);
    } else {
        fuzz_unpack((const uint8_t *)"", 0);
        fuzz_file("config.json", data, size);
    }
    if (!fuzz_ok(ddl_config_load(&config, fuzz_folder(), warn, &warnings, &err), &err))
        return 0;
    FUZZ_CHECK(ddl_config_check(&config, &err) == DDL_OK);
    if (fuzz_ok(ddl_params_plan(&config, &rows, &n, &err), &err))
        free(rows);
    (void)ddl_config_preset_name(&config);
    (void)ddl_workspace_bytes(&config, DDL_PRECISION_F32,
                              &(struct ddl_workspace_options){ .batch = 3, .tokens = 5, .train = true },
                              NULL);
    FUZZ_CHECK(ddl_config_save(&config, fuzz_path("config.json"), &err) == DDL_OK);
    /* Settings not in config.json come from the tensors, which may belong to another model here. */
    if (fuzz_ok(ddl_config_load(&again, fuzz_folder(), warn, &warnings, &err), &err))
        FUZZ_CHECK(again.n_layers == config.n_layers && again.d_model == config.d_model);
    return 0;
}

FUZZ_MUTATE_NUMBERS
