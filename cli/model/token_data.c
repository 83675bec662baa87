#include "cli/model/token_data.h"
#include "cli/output/escape.h"

#include "cli/model/force.h"
#include "cli/model/input.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

ddl_status token_flags_check(const struct token_flags *flags, const char *command, struct ddl_error *err)
{
    if (!*flags->val_data && !*flags->text)
        return ddl_option_missing(command, "--val-data PATH or --text FILE", err);
    if (*flags->val_data && *flags->text)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected one of --val-data and --text, found both",
                             command);
    return DDL_OK;
}

ddl_status token_data_open(struct token_data *data, const struct token_flags *flags, bool quiet,
                           struct ddl_error *err)
{
    const struct ddl_shards_options options = { .split = DDL_SHARDS_VAL, .format = flags->format };
    *data = (struct token_data){ .flags = flags };
    if (*flags->text)
        return read_input(flags->text, SIZE_MAX, &data->text, &data->size, err);
    struct ddl_tokenizer_identity identity;
    ddl_status status = ddl_shards_open_with(&data->shards, flags->val_data, &options, err);
    if (!status)
        status = ddl_shards_identity(data->shards, &identity, err);
    if (status)
        return status;
    data->is_recorded = *identity.sha256 != '\0';
    if (quiet)
        return DDL_OK;
    report_assumed(data->shards);
    size_t n = ddl_shards_n_files(data->shards), left_out = ddl_shards_n_left_out(data->shards, false);
    if (left_out > 0)
        fprintf(stderr, "ddl: %s: evaluating the %zu validation shard%s of %zu files\n",
                printable(flags->val_data), n, n == 1 ? "" : "s", n + left_out);
    return DDL_OK;
}

void token_data_close(struct token_data *data)
{
    ddl_shards_close(data->shards);
    free(data->text);
}

static ddl_status check_vocabulary(const struct token_data *data, const struct folder *folder,
                                   const struct model_flags *model, struct ddl_error *err)
{
    const struct ddl_vocabulary vocabulary = { .vocab_size = ddl_model_config(folder->model)->vocab_size,
                                               .tokenizer = folder->tokenizer,
                                               .tokenizer_path =
                                                   *model->tokenizer ? model->tokenizer : folder->found.path,
                                               .val = data->shards };
    return data->shards ? ddl_vocabulary_check(&vocabulary, NULL, NULL, NULL, err) : DDL_OK;
}

/* An error in the tokens, with the name of what they come from. */
static ddl_status named(const struct token_data *data, ddl_status status, struct ddl_error *err)
{
    const char *name = data->shards ? data->flags->val_data : input_name(data->flags->text);
    return status == DDL_E_FORMAT ? ddl_error_prefix(err, status, name) : status;
}

ddl_status token_data_eval(const struct token_data *data, const struct folder *folder,
                           const struct model_flags *model, const struct ddl_eval_config *config,
                           struct ddl_eval_result *out, struct ddl_error *err)
{
    ddl_status status = ddl_comm_agree(config->comm, check_vocabulary(data, folder, model, err), err);
    if (status)
        return status;
    if (data->shards)
        status = ddl_eval_shards(folder->model, data->is_recorded ? folder->tokenizer : NULL, data->shards,
                                 config, out, err);
    else
        status = ddl_eval_text(folder->model, folder->tokenizer, data->text, data->size, config, out, err);
    return named(data, status, err);
}

ddl_status token_data_inspect(const struct token_data *data, const struct folder *folder,
                              const struct model_flags *model, const struct ddl_inspect_config *config,
                              ddl_inspection **out, struct ddl_error *err)
{
    *out = NULL;
    ddl_status status = check_vocabulary(data, folder, model, err);
    if (status)
        return status;
    if (data->shards)
        status = ddl_inspect_shards(out, folder->model, data->shards, config, err);
    else
        status = ddl_inspect_text(out, folder->model, folder->tokenizer, data->text, data->size, config, err);
    return named(data, status, err);
}

static ddl_status measure_means(const struct token_data *data, const struct folder *folder,
                                const struct model_flags *model, const struct ddl_eval_config *windows,
                                ddl_inspection **out, struct ddl_error *err)
{
    if (!data)
        return ddl_error_set(err, DDL_E_USAGE, "--force: beta=mean: expected with --val-data or --text");
    const struct ddl_inspect_config config = { .seq = windows->seq,
                                               .max_tokens = windows->max_tokens,
                                               .progress = windows->progress,
                                               .user = windows->user };
    return token_data_inspect(data, folder, model, &config, out, err);
}

ddl_status token_data_force(const char *specs, const struct token_data *data, const struct folder *folder,
                            const struct model_flags *model, const struct ddl_eval_config *windows,
                            struct ddl_error *err)
{
    struct force_plan plan;
    ddl_inspection *means = NULL;
    if (!*specs)
        return DDL_OK;
    ddl_status status = force_plan_make(&plan, "--force", specs, ddl_model_config(folder->model), err);
    if (!status && plan.needs_means)
        status = measure_means(data, folder, model, windows, &means, err);
    if (!status)
        status = force_plan_apply(&plan, folder->model, means, err);
    ddl_inspect_free(means);
    force_plan_free(&plan);
    return status;
}
