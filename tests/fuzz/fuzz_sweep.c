/* Fuzzes sweep files (YAML): plans the runs, whose folders are different and below `out`. */
#include "fuzz.h"

#include "ddl/sweep.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_sweep sweep;
    struct ddl_error err = { 0 };
    if (!fuzz_ok(ddl_sweep_open(&sweep, fuzz_file("sweep.yaml", data, size), &err), &err))
        return 0;
    FUZZ_CHECK(sweep.n_runs > 0 && sweep.n_settings > 0);
    for (size_t i = 0; i < sweep.n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep.runs[i];
        FUZZ_CHECK(ddl_train_check(run->config, &err) == DDL_OK);
        FUZZ_CHECK(run->setting < sweep.n_settings && strcmp(run->config->out, run->folder) == 0);
        FUZZ_CHECK(strncmp(run->folder, sweep.out, strlen(sweep.out)) == 0 && !strstr(run->name, "/.."));
        for (size_t k = 0; k < i && k < 64; k++)
            FUZZ_CHECK(strcmp(run->name, sweep.runs[k].name) != 0);
    }
    ddl_sweep_close(&sweep);
    return 0;
}

FUZZ_MUTATE_NUMBERS
