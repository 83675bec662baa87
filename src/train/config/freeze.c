#define _POSIX_C_SOURCE 200809L
#include "train/config/freeze.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest pattern: longer than any parameter's name. */
enum { PATTERN_SIZE = 256 };

/* Copies the pattern at `at` of a comma-separated list to `pattern`; returns the next one, NULL past the
 * last. */
static const char *next_pattern(const char *at, char pattern[PATTERN_SIZE])
{
    size_t length = strcspn(at, ",");
    snprintf(pattern, PATTERN_SIZE, "%.*s", (int)(length < PATTERN_SIZE ? length : PATTERN_SIZE - 1), at);
    return at[length] ? at + length + 1 : NULL;
}

static bool matches(const char *list, const char *name)
{
    char pattern[PATTERN_SIZE];
    for (const char *at = *list ? list : NULL; at;) {
        at = next_pattern(at, pattern);
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    }
    return false;
}

bool ddl_freeze_has(const struct ddl_train_config *config, const char *name)
{
    return (*config->train_only && !matches(config->train_only, name)) || matches(config->freeze, name);
}

static ddl_status check_list(const char *key, const char *list, const struct ddl_param *params, size_t n,
                             struct ddl_error *err)
{
    char pattern[PATTERN_SIZE];
    for (const char *at = *list ? list : NULL; at;) {
        size_t i = 0;
        at = next_pattern(at, pattern);
        while (i < n && fnmatch(pattern, params[i].name, 0) != 0)
            i++;
        if (i == n)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s: no parameter matches: expected patterns of names such as %s, found "
                                 "'%s' ('ddl info --tensors' lists the names)",
                                 key, params[0].name, pattern);
    }
    return DDL_OK;
}

ddl_status ddl_freeze_check(const struct ddl_train_config *config, struct ddl_error *err)
{
    struct ddl_param *params;
    size_t n, trained = 0;
    if (!*config->train_only && !*config->freeze)
        return DDL_OK;
    ddl_status status = ddl_params_plan(&config->config, &params, &n, err);
    if (status)
        return status;
    status = check_list("train_only", config->train_only, params, n, err);
    if (!status)
        status = check_list("freeze", config->freeze, params, n, err);
    for (size_t i = 0; i < n; i++)
        trained += params[i].active && !ddl_freeze_has(config, params[i].name);
    free(params);
    if (!status && !trained)
        status = ddl_error_set(err, DDL_E_USAGE, "%s: expected at least one parameter to train, found none",
                               *config->freeze ? "freeze" : "train_only");
    return status;
}
