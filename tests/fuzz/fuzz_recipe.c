/* Fuzzes recipes (YAML): checks and plans the configuration, writes it, and reads it back unchanged. */
#include "fuzz.h"

#include "base/path.h"
#include "ddl/train.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <string.h>

static bool configure(struct ddl_train_config *config, const char *path)
{
    struct ddl_error err = { 0 };
    char program[] = "ddl", *argv[] = { program, NULL };
    int n_positional;
    return fuzz_ok(ddl_train_configure(config, path, 1, argv, NULL, NULL, &n_positional, &err), &err);
}

/* A stored recipe names its folder relative to itself: an absolute path is read back as a relative one. */
static bool is_same_path(const char *a, const char *b)
{
    char whole_a[DDL_PATHS_SIZE], whole_b[DDL_PATHS_SIZE];
    return strcmp(a, b) == 0 ||
           (ddl_path_canonical(a, whole_a, sizeof whole_a) &&
            ddl_path_canonical(b, whole_b, sizeof whole_b) && strcmp(whole_a, whole_b) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ddl_train_config config, again;
    struct ddl_error err = { 0 };
    struct ddl_train_plan plan;
    if (!configure(&config, fuzz_file("recipe.yaml", data, size)))
        return 0;
    FUZZ_CHECK(ddl_train_check(&config, &err) == DDL_OK);
    fuzz_ok(ddl_train_plan(&config, &plan, &err), &err);
    const char *path = fuzz_path("written.yaml");
    FUZZ_CHECK(ddl_train_save_recipe(&config, path, &err) == DDL_OK);
    FUZZ_CHECK(configure(&again, path));
    FUZZ_CHECK(is_same_path(config.out, again.out));
    FUZZ_CHECK(strcmp(config.sample_prompt, again.sample_prompt) == 0);
    FUZZ_CHECK(config.steps == again.steps && config.config.d_model == again.config.d_model);
    return 0;
}

FUZZ_MUTATE_NUMBERS
