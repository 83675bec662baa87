#include "checkpoint/files.h"

enum { MODEL_FILE = DDL_IN_RUN | DDL_IN_CHECKPOINT | DDL_IS_SUMMED | DDL_IS_RESULT };

static const struct {
    const char *name;
    unsigned places;
} files[DDL_RUN_FILES] = {
    [DDL_FILE_RECIPE] = { "recipe.yaml", DDL_IN_RUN },
    [DDL_FILE_METRICS] = { "metrics.jsonl", DDL_IN_RUN },
    [DDL_FILE_SAMPLES] = { "samples.jsonl", DDL_IN_RUN },
    [DDL_FILE_MODEL] = { "model.safetensors", MODEL_FILE },
    [DDL_FILE_CONFIG] = { "config.json", MODEL_FILE },
    [DDL_FILE_OPTIMIZER] = { "optimizer.safetensors", DDL_IN_CHECKPOINT | DDL_IS_SUMMED },
    [DDL_FILE_TOKENIZER] = { "tokenizer.json", MODEL_FILE },
    [DDL_FILE_TENSORBOARD] = { "tensorboard", DDL_IN_RUN },
    [DDL_FILE_STATE] = { "state.json", DDL_IN_CHECKPOINT },
};

const char *ddl_run_file_name(enum ddl_run_file file)
{
    return files[file].name;
}

bool ddl_run_file_is(enum ddl_run_file file, unsigned places)
{
    return (files[file].places & places) == places;
}
