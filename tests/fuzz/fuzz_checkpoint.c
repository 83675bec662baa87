/* Fuzzes an archive of a checkpoint folder, or of a run folder with checkpoints. If state.json has "crc32":
 * "fix", the checksums are recomputed to match the files: corruption with valid checksums must be handled as
 * safely as any other. */
#include "fuzz.h"

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "train/run/resume.h"
#include "checkpoint/state.h"
#include "model/files/sums.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct ddl_train_config config;
    ddl_model *model;
    struct ddl_optim *optim;
} run;

/* Creates the run that the seeds were made from. */
static void make_run(void)
{
    struct ddl_error err = { 0 };
    struct ddl_optim_config optim = ddl_optim_defaults();
    run.config = ddl_train_defaults();
    struct ddl_config *k = &run.config.config;
    FUZZ_CHECK(ddl_config_set_preset(k, "ddl-1", &err) == DDL_OK);
    k->n_layers = k->n_heads = 1;
    k->d_model = k->vocab_size = 4;
    k->head_dim = 2;
    k->block_size = 8;
    FUZZ_CHECK(ddl_model_create(&run.model, k, fuzz_backend(), &err) == DDL_OK);
    FUZZ_CHECK(ddl_model_enable_grad(run.model, &err) == DDL_OK);
    FUZZ_CHECK(ddl_optim_create(&run.optim, run.model, &optim, &err) == DDL_OK);
}

static void fix_sums(const char *folder)
{
    struct ddl_error err = { 0 };
    char path[512];
    FUZZ_CHECK(ddl_path_join(path, sizeof path, folder, "state.json"));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *sums;
    const char *files = json_string_value(json_object_get(root, "files"));
    if (files && strcmp(files, "fix") == 0 && ddl_state_take_sums(folder, &sums, &err) == DDL_OK) {
        json_object_set_new(root, "files", sums);
        char *text = ddl_sums_seal(root);
        FUZZ_CHECK(text != NULL);
        FUZZ_CHECK(ddl_file_replace(path, text, strlen(text), &err) == DDL_OK);
        free(text);
    }
    json_decref(root);
}

static void note(void *user, const char *message)
{
    (void)user;
    FUZZ_CHECK(*message != '\0');
}

static void read_checkpoint(const char *path)
{
    struct ddl_error err = { 0 };
    struct ddl_run_state state = { 0 };
    struct ddl_train_config config = run.config;
    fix_sums(path);
    if (fuzz_ok(ddl_run_open(path, &config, &state, note, NULL, &err), &err))
        fuzz_ok(ddl_run_read_weights(path, run.model, run.optim, &state, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    uint64_t step = UINT64_MAX;
    if (!run.model)
        make_run();
    fuzz_unpack(data, size);
    read_checkpoint(fuzz_folder());
    while (ddl_checkpoint_newest(fuzz_folder(), step, &step, path, sizeof path))
        read_checkpoint(path);
    struct ddl_error err = { 0 };
    fuzz_ok(ddl_checkpoint_remove_all(fuzz_folder(), &err), &err);
    FUZZ_CHECK(err.status || !ddl_checkpoint_newest(fuzz_folder(), UINT64_MAX, &step, path, sizeof path));
    return 0;
}

FUZZ_MUTATE_NUMBERS
