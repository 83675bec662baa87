/* Settings of sampling: rows, defaults, checks. */
#include "ddl/generation.h"

#include "infer/sampling_rows.h"

#include <math.h>
#include <string.h>

#define MAX_BIAS 1e6f /* a sum of many stays finite */

const struct ddl_other_name sampling_length_others[] = {
    { "-n", "In llama.cpp -n counts new tokens; --n is the number of texts", DDL_OTHER_DIFFERS },
    { "ctx_size", "the context is the model's block_size", DDL_OTHER_NONE },
    { "-c", "the context is the model's block_size", DDL_OTHER_NONE },
    { "max_length", "It counts new tokens, without the prompt", DDL_OTHER_DIFFERS },
    { 0 },
};
const struct ddl_other_name sampling_temperature_others[] = {
    { "temp", NULL, DDL_OTHER_SAME },
    { "do_sample", "0 is greedy decoding, as do_sample=False", DDL_OTHER_DIFFERS },
    { "num_beams", "there is no beam search; temperature 0 is greedy", DDL_OTHER_NONE },
    { 0 },
};
const struct ddl_other_name sampling_presence_others[] = {
    { "repeat_last_n", "all tokens count, for repeat_penalty also the prompt", DDL_OTHER_NONE },
    { 0 },
};

static const struct ddl_option rows[] = { SAMPLING_ROWS(struct ddl_sampling, ), { 0 } };

const struct ddl_option *ddl_sampling_options(void)
{
    return rows;
}

struct ddl_sampling ddl_sampling_defaults(void)
{
    return (struct ddl_sampling){ .max_tokens = 200, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
}

const char *ddl_finish_name(int finish)
{
    static const char *const names[] = { "length", "end", "stop", "context", "cancelled", "failed" };
    return finish >= 0 && finish <= DDL_FINISH_FAILED ? names[finish] : "unknown";
}

static ddl_status check_token(const char *what, size_t i, int32_t token, size_t n_tokens,
                              struct ddl_error *err)
{
    if (token >= 0 && (size_t)token < n_tokens)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%s %zu: expected a token from 0 to %zu, found %d", what, i,
                         n_tokens - 1, (int)token);
}

ddl_status ddl_sampling_check(const struct ddl_sampling *sampling, size_t n_tokens, struct ddl_error *err)
{
    ddl_status status = ddl_option_check(rows, sampling, err);
    if (!status && sampling->sequence > UINT32_MAX)
        return ddl_error_set(err, DDL_E_USAGE, "sequence: expected a number below 2^32, found %llu",
                             (unsigned long long)sampling->sequence);
    for (size_t i = 0; !status && i < sampling->n_stop; i++) {
        if (*sampling->stop[i] == '\0')
            status = ddl_error_set(err, DDL_E_USAGE, "stop %zu: an empty text stops nothing", i);
    }
    for (size_t i = 0; !status && i < sampling->n_stop_ids; i++)
        status = check_token("stop_id", i, sampling->stop_ids[i], n_tokens, err);
    for (size_t i = 0; !status && i < sampling->n_bias; i++) {
        float bias = sampling->bias[i].bias;
        status = check_token("logit_bias", i, sampling->bias[i].token, n_tokens, err);
        if (!status && !(fabsf(bias) <= MAX_BIAS) && bias != -INFINITY)
            status =
                ddl_error_set(err, DDL_E_USAGE,
                              "logit_bias %zu: expected a number from -1e6 to 1e6, or -infinity, found %g", i,
                              (double)bias);
    }
    return status;
}
