#include "checkpoint/files.h"

#include <stdlib.h>
#include <string.h>

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
    [DDL_FILE_CHECKSUMS] = { "checksums.json", DDL_IN_RUN | DDL_IS_RESULT },
    [DDL_FILE_TENSORBOARD] = { "tensorboard", DDL_IN_RUN },
    [DDL_FILE_STATE] = { "state.json", DDL_IN_CHECKPOINT },
    [DDL_FILE_DIVERGED] = { "diverged.json", DDL_IN_RUN },
};

const char *ddl_run_file_name(enum ddl_run_file file)
{
    return files[file].name;
}

bool ddl_run_file_is(enum ddl_run_file file, unsigned places)
{
    return (files[file].places & places) == places;
}

uint64_t ddl_checkpoint_step(const char *path)
{
    static const char prefix[] = DDL_CHECKPOINT_PREFIX;
    enum { PREFIX = sizeof prefix - 1, MAX_DIGITS = 19 };
    size_t end = strlen(path), begin;
    while (end > 0 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    if (end - begin <= PREFIX || strncmp(path + begin, prefix, PREFIX) != 0)
        return UINT64_MAX;
    const char *digits = path + begin + PREFIX;
    size_t n = strspn(digits, "0123456789");
    return n == end - begin - PREFIX && n <= MAX_DIGITS ? strtoull(digits, NULL, 10) : UINT64_MAX;
}
