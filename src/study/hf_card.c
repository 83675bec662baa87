/* README.md of a folder for the Hugging Face Hub: a model card with the model's sizes, the recipe and the
 * metrics of its run. */
#define _POSIX_C_SOURCE 200809L
#include "study/hf.h"

#include "base/file.h"
#include "base/locale.h"
#include "ddl/compare.h"
#include "ddl/model.h"
#include "ddl/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1280, MAX_RECIPE = 1 << 20 };

/* The front matter, which the Hub reads, and how to use the model. */
static void write_head(FILE *out, const struct ddl_export_hf *hf)
{
    fputs("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- deep-delta-learning\n",
          out);
    if (hf->license && *hf->license)
        fprintf(out, "license: %s\n", hf->license);
    fputs("---\n\n# ", out);
    size_t end = strlen(hf->name), begin;
    while (end > 1 && hf->name[end - 1] == '/')
        end--;
    for (begin = end; begin && hf->name[begin - 1] != '/';)
        begin--;
    for (; begin < end; begin++)
        fputc((unsigned char)hf->name[begin] < ' ' ? ' ' : hf->name[begin], out);
    fputs("\n\nA language model of Deep Delta Learning, trained with `ddl`.\n\n```python\n"
          "# in a clone of ddl: pip install './python[transformers]'\nimport deep_delta.hf  # registers the "
          "model's classes\n",
          out);
    fputs(hf->has_tokenizer ? "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
                              "tokenizer = AutoTokenizer.from_pretrained(\"PATH\")\n"
                              "model = AutoModelForCausalLM.from_pretrained(\"PATH\")\n"
                              "inputs = tokenizer(\"The\", return_tensors=\"pt\")\n"
                              "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=40)[0]))\n"
                            : "from transformers import AutoModelForCausalLM\n\n"
                              "model = AutoModelForCausalLM.from_pretrained(\"PATH\")\n",
          out);
    fputs("```\n", out);
}

static ddl_status write_model(FILE *out, const struct ddl_config *config, struct ddl_error *err)
{
    struct ddl_param *rows;
    size_t n, numbers = 0;
    ddl_status status = ddl_params_plan(config, &rows, &n, err);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++)
        numbers += rows[i].count;
    free(rows);
    const char *preset = ddl_config_preset_name(config);
    fputs("\n## Model\n\n| | |\n|---|---|\n", out);
    if (preset)
        fprintf(out, "| model | %s |\n", preset);
    fprintf(out, "| parameters | %zu |\n| layers | %zu |\n| width | %zu |\n", numbers, config->n_layers,
            config->d_model);
    fprintf(out, "| attention heads | %zu |\n| context | %zu tokens |\n| vocabulary | %zu |\n",
            config->n_heads, config->block_size, config->vocab_size);
    fprintf(out, "| residual rule | %s |\n| channels of the state | %zu |\n",
            config->by_layer ? "by layer" : ddl_config_residual_name(config, 0),
            ddl_config_state_channels(config));
    return DDL_OK;
}

static void write_number(FILE *out, const char *what, double value, int digits, char conversion)
{
    char text[64];
    ddl_format_double(text, sizeof text, digits, conversion, value);
    if (isfinite(value))
        fprintf(out, "| %s | %s |\n", what, text);
}

/* Of a model after `step` steps. A step between two logged ones has no figures of its own. */
static void write_metrics(FILE *out, const struct ddl_run_log *log, uint64_t step)
{
    const struct ddl_run_point *last = &log->points[log->n - 1];
    double val = ddl_run_log_final_val(log);
    uint64_t val_step = step;
    char of_step[64] = "", what[160];
    for (size_t i = 0; i < log->n; i++)
        val_step = isnan(log->points[i].val_loss) ? val_step : log->points[i].step;
    if (val_step != step)
        snprintf(of_step, sizeof of_step, " after step %" PRIu64, val_step);
    fprintf(out, "\n## Training\n\n| | |\n|---|---|\n| steps | %" PRIu64 " |\n", step);
    if (last->step == step) {
        write_number(out, "tokens", last->tokens, 0, 'f');
        write_number(out, "floating-point operations", last->flops, 3, 'g');
        write_number(out, "training loss (nats a token)", last->loss, 4, 'f');
    }
    snprintf(what, sizeof what, "validation loss%s (nats a token)", of_step);
    write_number(out, what, val, 4, 'f');
    snprintf(what, sizeof what, "validation perplexity%s", of_step);
    write_number(out, what, exp(val), 2, 'f');
    for (size_t i = 0; i < log->n_scores; i++) {
        const struct ddl_run_score *score = &log->scores[i];
        snprintf(what, sizeof what, "%s (%s)", score->task, score->value_name);
        if (ddl_run_log_score(log, score->task) == score)
            write_number(out, what, score->value, 4, 'f');
    }
}

/* The lines of recipe.yaml, without those about paths on the machine that trained. */
static ddl_status write_recipe(FILE *out, const char *run, struct ddl_error *err)
{
    char path[PATH_SIZE], *text, key[64];
    size_t size;
    if (!ddl_path_join(path, sizeof path, run, "recipe.yaml"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", run);
    if (!ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = ddl_file_read(path, MAX_RECIPE, &text, &size, err);
    if (status)
        return status;
    fputs("\nRecipe of `ddl train`, without paths:\n\n```yaml\n", out);
    for (const char *line = text, *end; (end = memchr(line, '\n', size - (size_t)(line - text)));
         line = end + 1) {
        size_t length = strcspn(line, ":\n");
        snprintf(key, sizeof key, "%.*s", (int)(length < sizeof key ? length : 0), line);
        const struct ddl_option *row = *key ? ddl_option_find(ddl_train_options(), key) : NULL;
        if (row ? !ddl_option_is_path(row) : ddl_option_find(ddl_config_options(), key) != NULL)
            fprintf(out, "%.*s\n", (int)(end - line), line);
    }
    fputs("```\n", out);
    free(text);
    return DDL_OK;
}

static ddl_status write_run(FILE *out, const struct ddl_export_hf *hf, struct ddl_error *err)
{
    char path[PATH_SIZE];
    struct ddl_run_log log;
    if (!hf->run)
        return DDL_OK;
    if (ddl_path_join(path, sizeof path, hf->run, "metrics.jsonl") && ddl_file_exists(path)) {
        ddl_status status = ddl_run_log_read(&log, hf->run, err);
        if (!status && hf->has_step)
            status = ddl_run_log_truncate(&log, hf->step, hf->run, err);
        if (!status)
            write_metrics(out, &log, hf->has_step ? hf->step : log.points[log.n - 1].step);
        ddl_run_log_free(&log);
        if (status)
            return status;
    }
    return write_recipe(out, hf->run, err);
}

ddl_status ddl_hf_write_card(const struct ddl_export_hf *hf, const struct ddl_config *config,
                             const char *folder, struct ddl_error *err)
{
    char path[PATH_SIZE], *text = NULL;
    size_t size = 0;
    if (!ddl_path_join(path, sizeof path, folder, "README.md"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the folder's path is too long", folder);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    write_head(out, hf);
    ddl_status status = write_model(out, config, err);
    if (!status)
        status = write_run(out, hf, err);
    if (!hf->license || !*hf->license)
        fputs("\n## License\n\nNot stated. State a license before publishing: `ddl export --license ID`.\n",
              out);
    if ((ferror(out) | fclose(out)) != 0 && !status)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    if (!status)
        status = ddl_file_replace(path, text, size, err);
    free(text);
    return status;
}
