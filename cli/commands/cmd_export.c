/* ddl export: a model folder in another dtype, for PyTorch or to be copied elsewhere. */
#include "cli/cli.h"
#include "ddl/export.h"
#include "cli/output/escape.h"
#include "cli/model/folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flags {
    char out[1024], which[32], max_shard_size[32], license[64];
    int dtype;
    bool lm_head, ignore_extra, verify, hf;
};

#define AT(field) offsetof(struct flags, field)
static const struct ddl_option rows[] = {
    { "out", DDL_OPTION_PATH, AT(out), 1024, 0, 0, NULL, "DIR", "output folder" },
    WHICH_ROW(flags),
    { "dtype", DDL_OPTION_CHOICE, AT(dtype), 0, 0, 0, ddl_export_dtype_names, NULL, "dtype of every tensor",
      "precision" },
    { "max_shard_size", DDL_OPTION_STRING, AT(max_shard_size), 32, 0, 0, NULL, "SIZE",
      "split into files of at most this size, with an index: 500MB, 2GB, 1GiB (empty: one file)" },
    { "lm_head", DDL_OPTION_BOOL, AT(lm_head), 0, 0, 0, NULL, NULL,
      "write lm_head.weight, a copy of the embedding that some loaders need" },
    { "hf", DDL_OPTION_BOOL, AT(hf), 0, 0, 0, NULL, NULL,
      "a folder for Hugging Face's transformers and Hub: keys of its config.json, tokenizer.json, model "
      "card" },
    { "license", DDL_OPTION_STRING, AT(license), 64, 0, 0, NULL, "ID",
      "with --hf: the model's license in the model card, such as apache-2.0" },
    { "ignore_extra", DDL_OPTION_BOOL, AT(ignore_extra), 0, 0, 0, NULL, NULL,
      "ignore tensors that are not parameters" },
    VERIFY_ROW_OF(struct flags, verify),
    { 0 },
};

static const struct flags initial = {
    .which = "last", .dtype = DDL_EXPORT_F32, .lm_head = true, .verify = true
};
static const void *defaults(void)
{
    return &initial;
}

/* "500MB": a number and a unit, decimal or (with an i) binary; bytes alone too. "" is 0. */
static ddl_status parse_size(const char *text, uint64_t *out, struct ddl_error *err)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "KB", 1e3 },
        { "MB", 1e6 },
        { "GB", 1e9 },
        { "TB", 1e12 },
        { "KiB", 1024.0 },
        { "MiB", 1048576.0 },
        { "GiB", 1073741824.0 },
        { "TiB", 1099511627776.0 },
    };
    char *end;
    *out = 0;
    if (!*text)
        return DDL_OK;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (end == text || strcmp(end, units[i].unit) != 0 || !(number * units[i].bytes >= 1) ||
            number * units[i].bytes > 9e15)
            continue;
        *out = (uint64_t)(number * units[i].bytes);
        return DDL_OK;
    }
    return ddl_error_set(err, DDL_E_USAGE, "--max-shard-size: '%s' is not a size such as 500MB, 2GB or 1GiB",
                         text);
}

static void print_result(const char *out, int dtype, const struct ddl_export_result *r)
{
    const char *why, *module, *file = ddl_config_release_file(&r->config, &why);
    printf("%s: %zu tensors, %s, %.1f MB in %zu file%s\n", printable(out), r->n_tensors,
           ddl_export_dtype_names[dtype], (double)r->bytes / 1e6, r->n_files, r->n_files == 1 ? "" : "s");
    module = ddl_config_release_module(&r->config);
    if (file && module)
        printf("loads in the authors' release as %s (model/%s.py), and in python/ddl_torch.py\n", file,
               module);
    else if (file)
        printf("loads in the authors' release as %s, whose class GPTBase is abstract: derive a class from it "
               "with "
               "attention_cls = CausalSelfAttention and config_class = GPTConfig of "
               "model/DDL-gpt-mha-rope-CC.py, and load with that; and in python/ddl_torch.py\n",
               file);
    else
        printf("the authors' release has no such model (%s) and would compute another one from these "
               "tensors; ddl and "
               "python/ddl_torch.py recognize it by the __metadata__ of the tensors' file\n",
               why);
}

static void print_hf_result(const char *out, const struct ddl_export_hf *hf)
{
    printf("%s: loads in transformers after 'import deep_delta.hf' (docs/python.md); README.md is its model "
           "card\n",
           printable(out));
    if (!hf->has_tokenizer)
        printf("there is no tokenizer in it: the model's folder has none\n");
}

static int cmd_export(int argc, char **argv)
{
    struct ddl_error err = { 0 };
    struct flags flags = initial;
    struct ddl_export_config config = { 0 };
    struct ddl_export_result result;
    struct ddl_export_hf hf = { 0 };
    struct ddl_run_model from;
    int n = 0;
    ddl_status status = ddl_option_parse(rows, &flags, NULL, NULL, argc, argv, &n, &err);
    if (!status)
        status = check_arguments("export", n, argv, 1, 1, "a model folder (DIR)", &err);
    if (!status && !*flags.out)
        status = ddl_option_missing("export", "--out DIR", &err);
    if (!status)
        status = parse_size(flags.max_shard_size, &config.max_shard_size, &err);
    if (!status && *flags.license && !flags.hf)
        status = ddl_error_set(&err, DDL_E_USAGE, "--license: requires --hf");
    if (!status)
        status = ddl_export_check_license(flags.license, "--license", &err);
    config.dtype = flags.dtype;
    config.no_lm_head = !flags.lm_head || flags.hf;
    config.ignore_extra = flags.ignore_extra;
    config.no_verify = true; /* folder_find does */
    if (!status)
        status = folder_find(&from, argv[1], flags.which, flags.verify, false, &err);
    if (!status && flags.hf) {
        hf = (struct ddl_export_hf){ .name = flags.out,
                                     .run = *from.name ? argv[1] : NULL,
                                     .has_step = from.has_step,
                                     .step = from.step,
                                     .license = flags.license,
                                     .dtype = flags.dtype };
        config.extra = ddl_export_hf_files;
        config.extra_user = &hf;
    }
    if (!status)
        status = ddl_export(from.path, flags.out, &config, print_warning, NULL, &result, &err);
    if (status)
        return report_error(&err);
    print_result(flags.out, flags.dtype, &result);
    if (flags.hf)
        print_hf_result(flags.out, &hf);
    return EXIT_OK;
}

const struct command export_command = {
    .name = "export",
    .usage = "DIR --out DIR [--which last|best|final|STEP] [--dtype f32|bf16|f16] [--max-shard-size SIZE]"
             " [--hf] [--license ID]",
    .about = "convert a model folder to another dtype",
    .text =
        (const char *const[]){
            "DIR is a run, a checkpoint, a model, or a folder of the authors' release. The new folder has",
            "config.json with the release's keys, the tensors (safetensors), and copies of the tokenizer's",
            "files. It is created atomically. Numbers are rounded to nearest, ties to even; a number outside",
            "the range of the dtype is an error.",
            "With --hf, config.json also has the keys that transformers needs, there is a tokenizer.json,",
            "and README.md is a model card with the run's recipe, without paths, and metrics.",
            "lm_head.weight is left out: the embedding is tied.", NULL },
    .options = { { .rows = rows, .defaults = defaults } },
    .examples = (const struct note[]){ { "ddl export my/run --dtype bf16 --out my/shipped",
                                         "a folder of half the size, in bfloat16" },
                                       { "ddl export my/run --hf --license apache-2.0 --out my/upload",
                                         "a folder for transformers and the Hub" },
                                       { 0 } },
    .run = cmd_export,
};
