#define _POSIX_C_SOURCE 200809L
#include "train/run/run_state.h"

#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- moments ---- */

/* Tensor 2i is the first moment of parameter i, 2i + 1 the second. */
static ddl_status fill_moments(void *user, size_t i, size_t offset, size_t bytes, void *to,
                               struct ddl_error *err)
{
    return ddl_moments_read(user, i / 2, (int)(i % 2), offset / sizeof(float), bytes / sizeof(float), to,
                            err);
}

static void take_moments(void *user, size_t i, size_t start, size_t n, const float *numbers)
{
    ddl_optim_write(user, i / 2, start, n, i % 2 ? NULL : numbers, i % 2 ? numbers : NULL);
}

/* Names and shapes of the moments' tensors, in one malloc'ed block. */
static struct ddl_tensor *moments_plan(const ddl_model *model)
{
    enum { NAME = 112 };
    size_t n = 2 * ddl_model_n_params(model);
    struct ddl_tensor *plan = calloc(n, sizeof *plan + NAME);
    if (!plan)
        return NULL;
    char *names = (char *)(plan + n);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_param *param = ddl_model_param(model, i / 2);
        char *name = names + i * NAME;
        snprintf(name, NAME, "%s.%s", i % 2 ? "v" : "m", param->name);
        plan[i] = (struct ddl_tensor){ .name = name, .dtype = DDL_F32, .ndim = param->ndim };
        memcpy(plan[i].shape, param->shape, sizeof param->shape);
    }
    return plan;
}

/* ---- writing ---- */

/* Every key of the recipe with its value as text; paths as in a recipe in the run's folder. NULL without
 * memory. */
static json_t *config_object(const struct ddl_train_config *config)
{
    json_t *object = json_pack("{s:s}", ddl_relative_to_key, ddl_relative_to_names[DDL_RELATIVE_TO_RECIPE]);
    for (const struct ddl_option *row = ddl_train_options(); object && row->name; row++) {
        char value[8192];
        ddl_option_format(row, config, value, sizeof value);
        /* Paths are bytes; those that are not UTF-8 are left out and not compared. */
        bool left_out = ddl_option_is_text(row) && !ddl_utf8_is_valid(value, strlen(value));
        if (!left_out && json_object_set_new(object, row->name, json_string(value)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static json_t *spike_object(const struct ddl_spike_state *spike)
{
    json_t *norms = json_array();
    for (size_t i = 0; norms && i < spike->n; i++) {
        if (json_array_append_new(norms, json_real(spike->norms[i])) != 0) {
            json_decref(norms);
            norms = NULL;
        }
    }
    return json_pack("{s:I, s:I, s:o}", "skipped", (json_int_t)spike->skipped, "in_a_row",
                     (json_int_t)spike->in_a_row, "norms", norms);
}

/* Adds `value` (stolen) to the object, which becomes NULL without memory. */
static void add(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

static json_t *tokenizer_object(const struct ddl_tokenizer_identity *id)
{
    const char *name =
        ddl_utf8_is_valid(id->name, strlen(id->name)) ? id->name : ""; /* JSON has no other text */
    return *id->sha256 ? json_pack("{s:s, s:I, s:s}", "name", name, "vocab_size", (json_int_t)id->vocab_size,
                                   "sha256", id->sha256)
                       : json_null();
}

static void add_data(json_t **object, const char *key, const struct ddl_data_identity *id)
{
    char sample[16];
    snprintf(sample, sizeof sample, "%08lx", (unsigned long)id->sample);
    if (id->tokens)
        add(object, key, json_pack("{s:I, s:s}", "tokens", (json_int_t)id->tokens, "sample", sample));
}

/* NULL without memory; of a configuration whose paths are those of a recipe in the run's folder. */
static json_t *state_object(const struct ddl_train_config *config, const struct ddl_run_state *state)
{
    const struct ddl_pending *pending = &state->pending;
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "step", (json_int_t)state->step, "position",
        (json_int_t)state->position, "tokens", (json_int_t)state->tokens, "logged", (json_int_t)state->logged,
        "flops", state->flops, "seconds", state->seconds, "train_seconds", state->train_seconds, "loss",
        state->loss, "val_loss", state->has_val ? json_real(state->val_loss) : json_null());
    if (pending->validation)
        add(&object, "pending",
            json_pack("{s:f, s:f, s:b}", "lr", pending->lr, "grad_norm", pending->grad_norm, "skipped",
                      pending->skipped));
    if (state->by_time)
        add(&object, "by_time", json_true());
    add(&object, "spike", spike_object(&state->spike));
    add(&object, "tokenizer", tokenizer_object(&state->tokenizer));
    add_data(&object, "train_data", &state->train);
    add_data(&object, "val_data", &state->val);
    add(&object, "config", config_object(config));
    return object;
}

ddl_status ddl_run_save(const struct ddl_train_config *config, const ddl_model *model,
                        const struct ddl_moments *own, const ddl_tokenizer *tokenizer,
                        const struct ddl_run_state *state, char *path, size_t size, struct ddl_error *err)
{
    struct ddl_train_config stored = ddl_train_resolved(config);
    ddl_status status = ddl_train_store_paths(ddl_train_options(), &stored, config->out, err);
    if (status)
        return status;
    struct ddl_tensor *plan = moments_plan(model);
    json_t *object = state_object(&stored, state);
    const struct ddl_checkpoint_tensors moments = { .tensor = plan,
                                                    .n = 2 * ddl_model_n_params(model),
                                                    .fill = fill_moments,
                                                    .user = (void *)(uintptr_t)own };
    const struct ddl_checkpoint_content content = {
        .model = model, .tokenizer = tokenizer, .tensors = &moments, .state = object
    };
    status = plan && object
                 ? ddl_checkpoint_save(config->out, state->step, &content, path, size, err)
                 : ddl_error_set(err, DDL_E_MEMORY, "%.200s: out of memory for a checkpoint", config->out);
    json_decref(object);
    free(plan);
    return status;
}

/* ---- reading ---- */

struct reader {
    char path[1280]; /* of state.json */
    const json_t *root;
    struct ddl_error *err;
};

static ddl_status read_count(const struct reader *r, const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s is missing or not a whole number", r->path, key);
    *out = (uint64_t)json_integer_value(value);
    return DDL_OK;
}

static ddl_status read_number(const struct reader *r, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_number_value(value);
    if (!json_is_number(value) || !isfinite(*out) || *out < 0)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s is missing or not a number", r->path, key);
    return DDL_OK;
}

static ddl_status read_norms(const struct reader *r, const json_t *norms, struct ddl_spike_state *out)
{
    out->n = json_array_size(norms);
    if (!json_is_array(norms) || out->n > DDL_SPIKE_WINDOW)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: norms is missing or has more than %d numbers",
                             r->path, DDL_SPIKE_WINDOW);
    for (size_t i = 0; i < out->n; i++) {
        const json_t *norm = json_array_get(norms, i);
        out->norms[i] = json_number_value(norm);
        if (!json_is_number(norm) || !isfinite(out->norms[i]) || out->norms[i] < 0)
            return ddl_error_set(r->err, DDL_E_FORMAT, "%s: norm %zu: expected a finite number of at least 0",
                                 r->path, i);
    }
    return DDL_OK;
}

static ddl_status read_spike(const struct reader *r, uint64_t step, struct ddl_spike_state *out)
{
    const json_t *object = json_object_get(r->root, "spike");
    uint64_t in_a_row = 0;
    *out = (struct ddl_spike_state){ 0 };
    ddl_status status = read_count(r, object, "skipped", &out->skipped);
    if (!status)
        status = read_count(r, object, "in_a_row", &in_a_row);
    if (!status && (in_a_row > out->skipped || out->skipped > step))
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: of %llu steps %llu were skipped, %llu in a row",
                             r->path, (unsigned long long)step, (unsigned long long)out->skipped,
                             (unsigned long long)in_a_row);
    out->in_a_row = (size_t)in_a_row;
    return status ? status : read_norms(r, json_object_get(object, "norms"), out);
}

/* Absent unless a validation was interrupted. */
static ddl_status read_pending(const struct reader *r, struct ddl_pending *out)
{
    const json_t *object = json_object_get(r->root, "pending");
    *out = (struct ddl_pending){ .validation = object != NULL };
    if (!object)
        return DDL_OK;
    out->skipped = json_is_true(json_object_get(object, "skipped"));
    ddl_status status = read_number(r, object, "lr", &out->lr);
    return status ? status : read_number(r, object, "grad_norm", &out->grad_norm);
}

/* Absent in checkpoints of earlier versions, null without a known tokenizer. */
static ddl_status read_tokenizer(const struct reader *r, struct ddl_tokenizer_identity *out)
{
    const json_t *object = json_object_get(r->root, "tokenizer");
    *out = (struct ddl_tokenizer_identity){ 0 };
    if (!object || json_is_null(object))
        return DDL_OK;
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *sha256 = json_string_value(json_object_get(object, "sha256"));
    uint64_t size = 0;
    if (!name || !sha256 || strlen(sha256) != 64)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: tokenizer: expected name, vocab_size and sha256",
                             r->path);
    ddl_status status = read_count(r, object, "vocab_size", &size);
    out->vocab_size = (size_t)size;
    snprintf(out->name, sizeof out->name, "%s", name);
    memcpy(out->sha256, sha256, sizeof out->sha256);
    return status;
}

/* Absent in checkpoints of earlier versions, and without such data. */
static ddl_status read_data(const struct reader *r, const char *key, struct ddl_data_identity *out)
{
    const json_t *object = json_object_get(r->root, key);
    const char *sample = json_string_value(json_object_get(object, "sample"));
    *out = (struct ddl_data_identity){ 0 };
    if (!object)
        return DDL_OK;
    if (!sample || strlen(sample) != 8 || strspn(sample, "0123456789abcdef") != 8)
        return ddl_error_set(r->err, DDL_E_FORMAT, "%s: %s: expected tokens and sample", r->path, key);
    out->sample = (uint32_t)strtoul(sample, NULL, 16);
    return read_count(r, object, "tokens", &out->tokens);
}

ddl_status ddl_run_parse_state(const char *path, const json_t *root, struct ddl_run_state *state,
                               struct ddl_error *err)
{
    struct reader reader = { .root = root, .err = err };
    const struct reader *r = &reader;
    snprintf(reader.path, sizeof reader.path, "%s/%s", path, ddl_run_file_name(DDL_FILE_STATE));
    const struct {
        const char *key;
        uint64_t *to;
    } counts[] = { { "step", &state->step },
                   { "position", &state->position },
                   { "tokens", &state->tokens },
                   { "logged", &state->logged } };
    const struct {
        const char *key;
        double *to;
    } numbers[] = { { "flops", &state->flops },
                    { "seconds", &state->seconds },
                    { "loss", &state->loss },
                    { "val_loss", &state->val_loss } };
    ddl_status status = DDL_OK;
    state->has_val = !json_is_null(json_object_get(r->root, "val_loss"));
    state->val_loss = 0;
    state->by_time = json_is_true(json_object_get(r->root, "by_time"));
    for (size_t i = 0; i < COUNT(counts) && !status; i++)
        status = read_count(r, r->root, counts[i].key, counts[i].to);
    for (size_t i = 0; i < COUNT(numbers) - !state->has_val && !status; i++) /* the last one may be null */
        status = read_number(r, r->root, numbers[i].key, numbers[i].to);
    /* Earlier versions counted the steps' time only, and called it seconds. */
    state->train_seconds = state->seconds;
    if (!status && json_object_get(r->root, "train_seconds"))
        status = read_number(r, r->root, "train_seconds", &state->train_seconds);
    if (!status)
        status = read_pending(r, &state->pending);
    if (!status)
        status = read_spike(r, state->step, &state->spike);
    if (!status)
        status = read_tokenizer(r, &state->tokenizer);
    if (!status)
        status = read_data(r, "train_data", &state->train);
    if (!status)
        status = read_data(r, "val_data", &state->val);
    if (!status && !json_is_object(json_object_get(r->root, "config")))
        status = ddl_error_set(r->err, DDL_E_FORMAT, "%s: config is missing", r->path);
    return status;
}

ddl_status ddl_run_read_state(const char *path, struct ddl_run_state *state, struct ddl_error *err)
{
    json_t *root;
    ddl_status status = ddl_checkpoint_read_state(path, &root, err);
    if (status)
        return status;
    status = ddl_run_parse_state(path, root, state, err);
    json_decref(root);
    return status;
}

ddl_status ddl_run_read_weights(const char *path, ddl_model *model, struct ddl_optim *optim,
                                const struct ddl_run_state *state, struct ddl_error *err)
{
    struct ddl_tensor *plan = moments_plan(model);
    if (!plan)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read the moments", path);
    const struct ddl_checkpoint_tensors moments = {
        .tensor = plan, .n = 2 * ddl_model_n_params(model), .take = take_moments, .user = optim
    };
    ddl_status status = ddl_checkpoint_read_weights(path, model, &moments, err);
    if (!status)
        ddl_optim_set_steps(optim, state->step - state->spike.skipped);
    free(plan);
    return status;
}
