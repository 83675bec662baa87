/* ddl info: what a model folder, or a named model, is made of. */
#include "cli/cli.h"
#include "cli/commands/info_backends.h"
#include "ddl/json.h"
#include "ddl/model.h"
#include "ddl/train.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"
#include "cli/output/match_print.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    char model[64], size[64], which[32], match_parameters[64], match_flops[64];
    size_t seq;
    bool tensors, backends, json, verify;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "model", DDL_OPTION_STRING, AT(model), 64, 0, 0, NULL, "NAME", "named model instead of a folder" },
    { "size", DDL_OPTION_STRING, AT(size), 64, 0, 0, NULL, "NAME", "named size" },
    { "match_parameters", DDL_OPTION_STRING, AT(match_parameters), 64, 0, 0, NULL, "NAME",
      "choose mlp_size so that the model has as many parameters as this named model" },
    { "match_flops", DDL_OPTION_STRING, AT(match_flops), 64, 0, 0, NULL, "NAME",
      "choose mlp_size so that a token costs as many FLOPs in training as with this named model" },
    WHICH_ROW(flags),
    { "seq", DDL_OPTION_SIZE, AT(seq), 0, 0, 2147483647, NULL, "N",
      "sequence length for the FLOPs (0: the context)", DDL_SEQ_ALIASES },
    { "tensors", DDL_OPTION_BOOL, AT(tensors), 0, 0, 0, NULL, NULL, "list every parameter with its shape" },
    { "backends", DDL_OPTION_BOOL, AT(backends), 0, 0, 0, NULL, NULL,
      "list the backends and devices instead, and why others can't be used" },
    { "json", DDL_OPTION_BOOL, AT(json), 0, 0, 0, NULL, NULL, "print as JSON" },
    VERIFY_ROW_OF(struct flags, verify),
    { 0 },
};

static const struct flags initial = { .which = "last", .verify = true };
static const void *defaults(void)
{
    return &initial;
}

/* Formats of the weights: those of tf32 are f32. */
static const enum ddl_precision formats[] = { DDL_PRECISION_F32, DDL_PRECISION_BF16, DDL_PRECISION_INT8 };
enum { FORMATS = sizeof formats / sizeof *formats };

struct facts {
    struct ddl_run_model found; /* of a folder */
    struct ddl_config config;
    struct ddl_param *params;
    size_t n, groups[DDL_GROUPS], total;
    size_t weights[FORMATS]; /* bytes for inference, by format */
    double flops[2];         /* forward; forward and backward */
    struct ddl_checkpoint *checkpoints;
    size_t n_checkpoints;
    struct ddl_match match; /* mlp_size 0: nothing is matched */
};

/* A batch without counted targets has the loss 0. */
static bool has_loss(const struct ddl_checkpoint *c)
{
    return c->readable && c->loss != 0;
}

static void print_checkpoints_json(struct ddl_json *json, const struct facts *f)
{
    size_t best = ddl_checkpoint_best(f->checkpoints, f->n_checkpoints);
    ddl_json_open(json, "checkpoints", '[');
    for (size_t i = 0; i < f->n_checkpoints; i++) {
        const struct ddl_checkpoint *c = &f->checkpoints[i];
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "step", c->step);
        ddl_json_bool(json, "damaged", !c->readable);
        if (has_loss(c))
            ddl_json_number(json, "loss", c->loss, 9);
        if (c->has_val) {
            ddl_json_number(json, "val_loss", c->val_loss, 9);
            ddl_json_bool(json, "best", i == best);
        }
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

static void print_checkpoints(const struct facts *f)
{
    size_t best = ddl_checkpoint_best(f->checkpoints, f->n_checkpoints);
    if (f->n_checkpoints)
        printf("checkpoints\n");
    for (size_t i = 0; i < f->n_checkpoints; i++) {
        const struct ddl_checkpoint *c = &f->checkpoints[i];
        printf("  checkpoint-%-10llu", (unsigned long long)c->step);
        if (has_loss(c))
            printf("  loss %.4f", c->loss);
        else if (!c->readable)
            printf("  corrupted");
        if (c->has_val)
            printf("  val %.4f%s", c->val_loss, i == best ? "  best" : "");
        printf("\n");
    }
}

static void print_tensors_json(struct ddl_json *json, const struct facts *f)
{
    ddl_json_open(json, "tensors", '[');
    for (size_t i = 0; i < f->n; i++) {
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "name", f->params[i].name);
        ddl_json_string(json, "group", ddl_param_group_name(f->params[i].group));
        ddl_json_bool(json, "active", f->params[i].active);
        ddl_json_open(json, "shape", '[');
        for (size_t k = 0; k < f->params[i].ndim; k++)
            ddl_json_count(json, NULL, f->params[i].shape[k]);
        ddl_json_close(json, ']');
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

static void print_rules_json(struct ddl_json *json, const struct ddl_config *config)
{
    ddl_json_open(json, "ddl_residual_by_layer", '[');
    for (size_t l = 0; l < config->n_layers; l++)
        ddl_json_string(json, NULL, ddl_config_residual_name(config, l));
    ddl_json_close(json, ']');
}

static void print_json(const struct facts *f, const struct flags *flags)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    print_saved_model_json(&json, &f->found);
    ddl_json_string(&json, "preset", ddl_config_preset_name(&f->config));
    if (f->match.mlp_size)
        print_match_json(&json, &f->match);
    ddl_json_open(&json, "parameters", '{');
    for (int group = 0; group < DDL_GROUPS; group++)
        ddl_json_count(&json, ddl_param_group_name(group), f->groups[group]);
    ddl_json_count(&json, "total", f->total);
    ddl_json_close(&json, '}');
    ddl_json_open(&json, "weight_bytes", '{');
    for (size_t i = 0; i < FORMATS; i++)
        ddl_json_count(&json, ddl_precision_names[formats[i]], f->weights[i]);
    ddl_json_close(&json, '}');
    ddl_json_open(&json, "flops_per_token", '{');
    ddl_json_number(&json, "forward", f->flops[0], 9);
    ddl_json_number(&json, "train", f->flops[1], 9);
    ddl_json_close(&json, '}');
    ddl_json_open(&json, "config", '{');
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++)
        ddl_json_option(&json, row, &f->config);
    if (f->config.by_layer)
        print_rules_json(&json, &f->config);
    ddl_json_close(&json, '}');
    if (flags->tensors)
        print_tensors_json(&json, f);
    if (f->n_checkpoints)
        print_checkpoints_json(&json, f);
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_tensor(const struct ddl_param *p)
{
    char shape[96] = "";
    size_t used = 0;
    for (size_t k = 0; k < p->ndim; k++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", k ? ", " : "", p->shape[k]);
    printf("  %-50s (%s)%s\n", printable(p->name), shape, p->active ? "" : "  not used");
}

static void print_text(const struct facts *f, const struct flags *flags)
{
    const char *preset = ddl_config_preset_name(&f->config);
    printf("model        %s\nparameters   %zu (%.1f M)\n", preset ? preset : "none of the named ones",
           f->total, (double)f->total / 1e6);
    if (f->match.mlp_size) {
        printf("match        ");
        print_match(stdout, &f->match);
    }
    for (int group = 0; group < DDL_GROUPS; group++)
        printf("  %-10s %zu\n", ddl_param_group_name(group), f->groups[group]);
    printf("weights     ");
    for (size_t i = 0; i < FORMATS; i++)
        printf("%s %.1f MB in %s", i ? "," : "", (double)f->weights[i] / 1e6,
               ddl_precision_names[formats[i]]);
    printf("\nFLOPs/token  %.4g forward, %.4g in training\nconfiguration\n", f->flops[0], f->flops[1]);
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char value[64];
        ddl_option_format(row, &f->config, value, sizeof value);
        printf("  %-36s %s\n", row->name, printable(value));
    }
    char rules[DDL_MAX_LAYERS * 16];
    ddl_config_get_by_layer(&f->config, rules, sizeof rules);
    if (*rules)
        printf("  %-36s %s\n", "ddl_residual_by_layer", rules);
    if (flags->tensors)
        printf("tensors\n");
    for (size_t i = 0; flags->tensors && i < f->n; i++)
        print_tensor(&f->params[i]);
    print_checkpoints(f);
}

static void print_names(void)
{
    const char *about, *name;
    printf("models\n");
    for (size_t i = 0; (name = ddl_config_preset_list(i, &about)); i++)
        printf("  %-12s %s\n", name, about);
    printf("controls of delta models, suffixes of their names (ddl-1-write)\n");
    for (size_t i = 0; (name = ddl_config_control_list(i, &about)); i++)
        printf("  %-12s %s\n", name, about);
    printf("sizes\n");
    for (size_t i = 0; (name = ddl_config_size_list(i, &about)); i++)
        printf("  %-12s %s\n", name, about);
}

static void print_list_json(struct ddl_json *json, const char *key,
                            const char *(*list)(size_t i, const char **about))
{
    const char *about, *name;
    ddl_json_open(json, key, '[');
    for (size_t i = 0; (name = list(i, &about)); i++) {
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "name", name);
        ddl_json_string(json, "description", about);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

static void print_names_json(void)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    print_list_json(&json, "models", ddl_config_preset_list);
    print_list_json(&json, "controls", ddl_config_control_list);
    print_list_json(&json, "sizes", ddl_config_size_list);
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* Whether no option but --json is given; *json is set. */
static bool wants_names(int argc, char **argv, bool *json)
{
    static const struct ddl_option json_row[] = { { .name = "json", .type = DDL_OPTION_BOOL }, { 0 } };
    char *copy[3] = { NULL };
    int n = 0;
    *json = false;
    if (argc > 3) /* --json true */
        return false;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    return ddl_option_parse(json_row, json, NULL, NULL, argc, copy, &n, NULL) == DDL_OK && n == 0;
}

static ddl_status gather(struct facts *f, size_t seq, struct ddl_error *err)
{
    ddl_status status = ddl_params_plan(&f->config, &f->params, &f->n, err);
    for (size_t i = 0; i < f->n; i++) {
        f->groups[f->params[i].group] += f->params[i].count;
        f->total += f->params[i].count;
    }
    ddl_backend *backend = NULL;
    if (!status)
        status = ddl_backend_create(&backend, NULL, 1, err);
    for (size_t i = 0; !status && i < FORMATS; i++)
        f->weights[i] = ddl_config_weight_bytes(&f->config, formats[i], backend);
    ddl_backend_free(backend);
    for (int train = 0; train < 2; train++)
        f->flops[train] =
            ddl_config_flops_per_token(&f->config, seq ? seq : f->config.block_size, train == 1);
    return status;
}

/* The configuration of a folder, and the checkpoints of a run's. */
static ddl_status load_folder(const char *folder, const struct flags *flags, struct facts *f,
                              struct ddl_error *err)
{
    ddl_status status = ddl_checkpoint_list(folder, &f->checkpoints, &f->n_checkpoints, err);
    if (!status)
        status = folder_find(&f->found, folder, flags->which, flags->verify, flags->json, err);
    return status ? status : ddl_config_load(&f->config, f->found.path, print_warning, NULL, err);
}

/* Applies the options --match-parameters and --match-flops as ddl train does. */
static ddl_status match(struct facts *f, const struct flags *flags, int n, struct ddl_error *err)
{
    struct ddl_train_config t = ddl_train_defaults();
    if (n == 1 && (*flags->match_parameters || *flags->match_flops))
        return ddl_error_set(err, DDL_E_USAGE,
                             "info: --match-parameters and --match-flops: expected --model "
                             "and --size, found a folder");
    t.config = f->config;
    t.seq = flags->seq;
    snprintf(t.match_parameters, sizeof t.match_parameters, "%s", flags->match_parameters);
    snprintf(t.match_flops, sizeof t.match_flops, "%s", flags->match_flops);
    ddl_status status = ddl_train_match(&t, &f->match, err);
    f->config = t.config;
    return status;
}

/* Computes head_dim as ddl train does. */
static ddl_status set_head_dim(struct facts *f, const struct ddl_config *given, struct ddl_error *err)
{
    size_t named = f->config.head_dim;
    char message[256];
    ddl_status status = ddl_config_set_head_dim(&f->config, given, err);
    bool computed = (given->d_model || given->n_heads) && !given->head_dim;
    if (!status && computed && ddl_config_head_dim_note(&f->config, named, message, sizeof message))
        print_warning(NULL, message);
    return status;
}

/* The configuration of a folder, or of the names and keys among the flags. */
static ddl_status configure(int argc, char **argv, struct facts *f, struct flags *flags, int *n,
                            struct ddl_error *err)
{
    /* Flags are read twice, the second time over what the names have set; so from a copy. */
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    struct ddl_config given = { 0 };
    ddl_status status = ddl_option_parse(rows, flags, ddl_config_options(), &given, argc, copy, n, err);
    f->config = ddl_config_defaults();
    if (!status)
        status = check_arguments("info", *n, copy, 0, 1, "a model folder (DIR)", err);
    if (!status && *n == 1 && (*flags->model || *flags->size))
        status = ddl_error_set(err, DDL_E_USAGE, "info: a folder or --model and --size, not both");
    if (!status && *n == 1)
        status = load_folder(copy[1], flags, f, err);
    if (!status && *flags->size)
        status = ddl_config_set_size(&f->config, flags->size, err);
    if (!status && *flags->model)
        status = ddl_config_set_preset(&f->config, flags->model, err);
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    if (!status)
        status = ddl_option_parse(rows, flags, ddl_config_options(), &f->config, argc, copy, n, err);
    free(copy);
    if (!status && *n == 0)
        status = set_head_dim(f, &given, err);
    return status ? status : match(f, flags, *n, err);
}

static int cmd_info(int argc, char **argv)
{
    bool json;
    if (wants_names(argc, argv, &json)) {
        json ? print_names_json() : print_names();
        return EXIT_OK;
    }
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    struct facts facts = { .config = ddl_config_defaults() };
    int n = 0;
    ddl_status status = configure(argc, argv, &facts, &flags, &n, &err);
    if (!status && flags.backends && n == 1)
        status = ddl_error_set(&err, DDL_E_USAGE, "info: a folder or --backends, not both");
    if (!status && !flags.backends)
        status = gather(&facts, flags.seq, &err);
    if (!status && flags.backends)
        print_backends(flags.json);
    else if (!status && flags.json)
        print_json(&facts, &flags);
    else if (!status)
        print_text(&facts, &flags);
    free(facts.params);
    free(facts.checkpoints);
    return status ? report_error(&err) : EXIT_OK;
}

static const void *model_defaults(void)
{
    static struct ddl_config defaults;
    defaults = ddl_config_defaults();
    return &defaults;
}

const struct command info_command = {
    .name = "info",
    .usage =
        "[DIR [--which last|best|final|STEP] | --model NAME --size NAME | --backends] [--tensors] [--json]",
    .about = "print parameters, shapes and configuration of a model",
    .text =
        (const char *const[]){
            "ddl info DIR describes a model folder, and for a run folder also its checkpoints and the best "
            "one.",
            "ddl info --model NAME --size NAME describes a named model. ddl info lists the names.",
            "ddl info --backends lists the backends and devices of this machine.", NULL },
    .options = { { .rows = rows, .defaults = defaults },
                 { .title = "keys of the model", .table = ddl_config_options, .defaults = model_defaults } },
    .examples = (const struct note[]){ { "ddl info my/run --tensors", "parameters and tensors of a folder" },
                                       { "ddl info --model ddl-cc-ec --size small --ddl-value-channels 8",
                                         "the cost of a configuration" },
                                       { 0 } },
    .run = cmd_info,
};
