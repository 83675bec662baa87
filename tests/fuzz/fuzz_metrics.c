/* Fuzzes metrics.jsonl: reads it as `ddl compare` does and truncates it as a resumed run does. */
#include "fuzz.h"

#include "ddl/compare.h"
#include "train/log/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    struct ddl_run_log log;
    struct ddl_metrics metrics;
    struct ddl_metrics_kept kept;
    const char *path = fuzz_file("metrics.jsonl", data, size);
    if (fuzz_ok(ddl_run_log_read(&log, fuzz_folder(), &err), &err)) {
        FUZZ_CHECK(log.n > 0 && !log.has_config);
        (void)ddl_run_log_final_val(&log);
        (void)ddl_run_log_final_train(&log);
        (void)ddl_run_log_speed(&log);
        ddl_run_log_free(&log);
    }
    FUZZ_CHECK(ddl_metrics_open(&metrics, path, 10, 10, &kept, &err) == DDL_OK);
    ddl_metrics_close(&metrics);
    return 0;
}

FUZZ_MUTATE_NUMBERS
