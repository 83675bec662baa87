#include "ddl/graft.h"

#include "model/config/config.h"
#include "model/files/folder_writer.h"
#include "model/params/params.h"
#include "model/residual/table.h"
#include "model/files/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the configuration ---- */

bool ddl_graft_may_set(const struct ddl_option *row)
{
    return ddl_config_row_rules(row) != 0 || ddl_config_row_is_separate(row);
}

static size_t count_layers(const struct ddl_graft *graft)
{
    size_t n = 0;
    for (size_t l = 0; l < DDL_MAX_LAYERS; l++)
        n += graft->layer[l];
    return n;
}

bool ddl_graft_is_option(const struct ddl_option *row)
{
    return ddl_config_row_is_separate(row);
}

const struct ddl_option *ddl_graft_changed_option(const struct ddl_config *source,
                                                  const struct ddl_graft *graft)
{
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char was[64], now[64];
        ddl_option_format(row, source, was, sizeof was);
        ddl_option_format(row, &graft->keys, now, sizeof now);
        if (ddl_config_row_is_separate(row) && strcmp(was, now) != 0)
            return row;
    }
    return NULL;
}

static ddl_status check_layers(const struct ddl_config *source, const struct ddl_graft *graft,
                               struct ddl_error *err)
{
    for (size_t l = 0; l < DDL_MAX_LAYERS; l++) {
        if (!graft->layer[l])
            continue;
        if (l >= source->n_layers)
            return ddl_error_set(err, DDL_E_USAGE, "layers: expected layers 0 to %zu, found %zu",
                                 source->n_layers - 1, l);
        if (ddl_config_residual(source, l) == graft->rule)
            return ddl_error_set(err, DDL_E_USAGE, "layers: layer %zu has the rule %s already", l,
                                 residual_rule_names[graft->rule]);
    }
    if (count_layers(graft) || ddl_graft_changed_option(source, graft))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "layers: expected at least one layer, found none");
}

/* A key that has another value than in the source. */
static ddl_status check_key(const struct ddl_option *row, const char *was, const char *now,
                            const struct ddl_config *source, const struct ddl_graft *graft,
                            struct ddl_error *err)
{
    unsigned rules = ddl_config_row_rules(row);
    if (ddl_config_row_is_separate(row))
        return DDL_OK;
    if (!rules)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%s: expected %s, as in the source, found %s: only keys of a residual rule change", row->name,
            was, now);
    if (!(rules >> graft->rule & 1))
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected a key of the rule %s, found a key of others",
                             row->name, residual_rule_names[graft->rule]);
    for (size_t l = 0; l < source->n_layers && !ddl_config_row_is_initial(row); l++) {
        if (!graft->layer[l] && rules >> ddl_config_residual(source, l) & 1)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s: expected %s, because layer %zu keeps the rule %s, found %s", row->name,
                                 was, l, ddl_config_residual_name(source, l), now);
    }
    return DDL_OK;
}

static ddl_status check_keys(const struct ddl_config *source, const struct ddl_graft *graft,
                             struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (const struct ddl_option *row = ddl_config_options(); row->name && !status; row++) {
        char was[64], now[64];
        ddl_option_format(row, source, was, sizeof was);
        ddl_option_format(row, &graft->keys, now, sizeof now);
        if (strcmp(was, now) != 0)
            status = check_key(row, was, now, source, graft, err);
    }
    return status;
}

/* Layers with different rules cannot have one whose state all layers share. */
static ddl_status check_state(const struct ddl_config *config, const struct ddl_graft *graft,
                              struct ddl_error *err)
{
    for (size_t l = 0; l < config->n_layers && config->by_layer; l++) {
        const int rule = config->residual_by_layer[l];
        if (residual_rule_at(rule)->state)
            return ddl_error_set(
                err, DDL_E_USAGE,
                "layers: expected all %zu layers, which share the state of the rule %s, found %zu",
                config->n_layers, residual_rule_names[rule], count_layers(graft));
    }
    return DDL_OK;
}

ddl_status ddl_graft_config(struct ddl_config *out, const struct ddl_config *source,
                            const struct ddl_graft *graft, struct ddl_error *err)
{
    ddl_status status = ddl_choice_check("rule", residual_rule_names, graft->rule, err);
    if (!status)
        status = check_layers(source, graft, err);
    if (!status && source->channels > 1 && count_layers(graft))
        status = ddl_error_set(err, DDL_E_USAGE,
                               "ddl_value_channels: expected 1, found %zu: a model with more has one rule in "
                               "all layers, and its tensors fit no other rule",
                               source->channels);
    if (!status)
        status = check_keys(source, graft, err);
    if (status)
        return status;
    struct ddl_config config = graft->keys;
    bool same = true;
    for (size_t l = 0; l < config.n_layers; l++) {
        int rule = graft->layer[l] ? graft->rule : ddl_config_residual(source, l);
        config.residual_by_layer[l] = (unsigned char)rule;
        same = same && rule == config.residual_by_layer[0];
    }
    config.by_layer = !same;
    config.residual = same ? config.residual_by_layer[0] : DDL_RESIDUAL_ADD;
    if (same)
        memset(config.residual_by_layer, 0, sizeof config.residual_by_layer);
    *out = ddl_config_without_idle(&config);
    status = check_state(&config, graft, err);
    return status ? status : ddl_config_check(out, err);
}

/* ---- the tensors ---- */

/* One graft under way. Tensor i of the plan has the bytes of source[i], or the initial values of row i of
 * params where that is NULL. The rows that a tensor has beyond those of its source (F's output projection
 * with more steps) have initial values too, and rows of the source beyond its own are left out. */
struct job {
    const struct ddl_graft *graft;
    struct ddl_weights w;
    struct params params; /* of the new configuration */
    struct ddl_tensor *plan;
    const struct ddl_tensor **source;
    size_t n;
};

/* Whether `name` is a parameter of the residual rule of a chosen layer, where the rules are those of
 * `config`. */
static bool is_of_graft(const struct ddl_graft *graft, const struct ddl_config *config, const char *name)
{
    size_t layer;
    int length = 0;
    char prefix[16];
    if (sscanf(name, "transformer.h.%zu.%n", &layer, &length) != 1 || !length || !graft->layer[layer])
        return false;
    const struct residual_rule *rule = residual_rule_of(config, layer);
    if (!rule->params)
        return false;
    snprintf(prefix, sizeof prefix, "%s_", rule->prefix);
    return strncmp(name + length, prefix, strlen(prefix)) == 0;
}

/* The weights of sums between blocks are kept if there are as many. */
static const char sums_prefix[] = "transformer.dwa.";

static bool is_of_sum(const char *name)
{
    return strncmp(name, sums_prefix, sizeof sums_prefix - 1) == 0;
}

/* The source's tensor of a parameter; NULL if the parameter is new. */
static const struct ddl_tensor *kept_tensor(const struct job *job, const struct ddl_param *param)
{
    for (size_t i = 0; i < job->w.n; i++) {
        if (strcmp(job->w.row[i].name, param->name) == 0)
            return is_of_sum(param->name) && job->w.row[i].count != param->count ? NULL : job->w.tensor[i];
    }
    return NULL;
}

static bool has_new_rows(const struct ddl_param *param, const struct ddl_tensor *source)
{
    return source && source->count < param->count;
}

static struct ddl_tensor tensor_of(const struct ddl_param *param, const char *name,
                                   const struct ddl_tensor *source)
{
    bool keeps_dtype = source && !has_new_rows(param, source);
    struct ddl_tensor t = { .name = name,
                            .dtype = keeps_dtype ? source->dtype : DDL_F32,
                            .ndim = param->ndim };
    memcpy(t.shape, param->shape, sizeof param->shape);
    (void)ddl_tensor_measure(&t); /* fits: params_plan has checked the counts */
    return t;
}

static ddl_status plan_tensors(struct job *job, const char *to, struct ddl_graft_result *result,
                               struct ddl_error *err)
{
    const struct ddl_tensor *head = ddl_safetensors_find(job->w.st, ddl_head_name);
    const struct params *params = &job->params;
    job->plan = calloc(params->n + 1, sizeof *job->plan);
    job->source = calloc(params->n + 1, sizeof *job->source);
    if (!job->plan || !job->source)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its table of tensors", to);
    for (size_t i = 0; i < params->n; i++) {
        const struct ddl_param *param = &params->row[i];
        if (!is_of_graft(job->graft, &result->config, param->name))
            job->source[i] = kept_tensor(job, param);
        job->plan[i] = tensor_of(param, param->name, job->source[i]);
        result->n_copied += job->source[i] != NULL;
        result->n_new += !job->source[i];
        if (!job->source[i])
            result->new_numbers += param->count;
        else if (has_new_rows(param, job->source[i]))
            result->new_numbers += param->count - job->source[i]->count;
    }
    job->n = params->n;
    if (head) { /* a copy of the embedding, as the source has it */
        job->source[job->n] = head;
        job->plan[job->n++] = tensor_of(&params->row[params->model.wte], ddl_head_name, head);
        result->n_copied++;
    }
    result->n_dropped = job->w.n + (head != NULL) - result->n_copied;
    return DDL_OK;
}

/* New parameters of an option start so that the option has no effect: attention reads its own values. Returns
 * whether `name` is such a parameter; *value gets its value i. */
static bool without_effect(const char *name, size_t i, float *value)
{
    static const char ending[] = ".attn.v_mix";
    size_t length = strlen(name), n = sizeof ending - 1;
    if (length < n || strcmp(name + length - n, ending) != 0)
        return false;
    *value = i == 0 ? 1 : 0;
    return true;
}

static void fill_new(const struct job *job, size_t i, size_t start, size_t n, float *to)
{
    params_initial(&job->params, job->graft->seed, i, start, n, to);
    for (size_t j = 0; j < n && without_effect(job->plan[i].name, start + j, &to[j]); j++)
        ;
}

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    const struct job *job = user;
    const struct ddl_tensor *source = job->source[i];
    size_t size = ddl_dtype_size(job->plan[i].dtype), start = offset / size, n = bytes / size, kept = 0;
    ddl_status status = DDL_OK;
    if (source && source->count >= job->plan[i].count) {
        memcpy(to, source->data + offset, bytes);
        ddl_safetensors_release(job->w.st, source, start, n);
        return DDL_OK;
    }
    if (source && start < source->count) {
        kept = source->count - start < n ? source->count - start : n;
        status = ddl_tensor_read_f32(source, start, kept, to, err);
    }
    if (!status)
        fill_new(job, i, start + kept, n - kept, (float *)to + kept);
    return status;
}

/* ---- patterns of the new parameters' names ---- */

/* Whether every layer with the prefix of the new rule is one of the graft. */
static bool has_prefix_alone(const struct ddl_graft *graft, const struct ddl_config *config)
{
    const char *prefix = residual_rule_at(graft->rule)->prefix;
    for (size_t l = 0; l < config->n_layers; l++) {
        const struct residual_rule *rule = residual_rule_of(config, l);
        if (!graft->layer[l] && rule->params && strcmp(rule->prefix, prefix) == 0)
            return false;
    }
    return true;
}

/* Appends ",transformer.h.LAYER.NAME" at `used`. Returns the bytes used then, size or more if it does not
 * fit. */
static size_t append_name(char *out, size_t size, size_t used, size_t layer, const char *name)
{
    if (used >= size)
        return used;
    return used +
           (size_t)snprintf(out + used, size - used, "%stransformer.h.%zu.%s", used ? "," : "", layer, name);
}

/* The names of the parameters of the new rule, and of output projections with new rows. */
static size_t name_rule_params(const struct ddl_graft *graft, const struct ddl_graft_result *result,
                               char *out, size_t size)
{
    const struct ddl_config *config = &result->config;
    const struct residual_rule *rule = residual_rule_at(graft->rule);
    char name[16];
    size_t used = 0;
    if (!rule->params || !count_layers(graft))
        return 0;
    bool alone = has_prefix_alone(graft, config);
    snprintf(name, sizeof name, "%s_*", rule->prefix);
    if (alone)
        used = (size_t)snprintf(out, size, "transformer.h.*.%s", name);
    for (size_t l = 0; l < config->n_layers; l++) {
        if (!graft->layer[l])
            continue;
        if (!alone)
            used = append_name(out, size, used, l, name);
        if (ddl_config_residual_steps(config, l) > ddl_config_residual_steps(&result->source, l)) {
            used = append_name(out, size, used, l, "attn.c_proj.weight");
            used = append_name(out, size, used, l, "mlp.c_proj.weight");
        }
    }
    return used;
}

/* Those of the rule and of its readout, and of options that the source does not have. */
static void name_new_params(const struct job *job, const struct ddl_graft_result *result, char *out,
                            size_t size)
{
    static const char readout[] = "readout.";
    bool new_sum = false, new_readout = false;
    *out = '\0';
    size_t used = name_rule_params(job->graft, result, out, size);
    for (size_t i = 0; i < job->params.n && job->source; i++) {
        const char *name = job->params.row[i].name;
        new_sum |= !job->source[i] && is_of_sum(name);
        new_readout |= !job->source[i] && strncmp(name, readout, sizeof readout - 1) == 0;
    }
    if (new_readout && used < size)
        used += (size_t)snprintf(out + used, size - used, "%s%s*", used ? "," : "", readout);
    if (new_sum && used < size)
        used += (size_t)snprintf(out + used, size - used, "%s%s*", used ? "," : "", sums_prefix);
    if (result->config.value_residual && !result->source.value_residual && used < size)
        used += (size_t)snprintf(out + used, size - used, "%stransformer.h.*.attn.v_mix", used ? "," : "");
    if (used >= size)
        *out = '\0';
}

/* ---- the whole ---- */

ddl_status ddl_graft_write(const char *from, const char *to, const struct ddl_graft *graft,
                           const struct ddl_load_options *options, struct ddl_graft_result *result,
                           struct ddl_error *err)
{
    const struct ddl_load_options how = options ? *options : (struct ddl_load_options){ 0 };
    struct job job = { .graft = graft };
    size_t n_files;
    *result = (struct ddl_graft_result){ 0 };
    ddl_status status = ddl_folder_check_free(to, err);
    if (!status && !how.no_verify)
        status = ddl_checkpoint_check_model(from, err);
    if (!status)
        status = ddl_config_load(&result->source, from, how.warn, how.user, err);
    if (!status)
        status = ddl_graft_config(&result->config, &result->source, graft, err);
    if (status)
        return status;
    status = ddl_weights_open(&job.w, from, &result->source, &how, err);
    if (!status)
        status = params_plan(&job.params, &result->config, err);
    if (!status)
        status = plan_tensors(&job, to, result, err);
    if (!status) {
        const struct ddl_folder_content content = { .config = &result->config,
                                                    .tensors = job.plan,
                                                    .n = job.n,
                                                    .fill = fill,
                                                    .user = &job,
                                                    .from = from };
        status = ddl_folder_write(&content, to, &n_files, err);
    }
    name_new_params(&job, result, result->new_params, sizeof result->new_params);
    free(job.plan);
    free(job.source);
    params_free(&job.params);
    ddl_weights_close(&job.w);
    return status;
}
