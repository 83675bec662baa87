/* Writes the configuration of a run as a recipe. */
#include "train/config/recipe_writer.h"

#include "base/file.h"
#include "base/path.h"
#include "base/utf8.h"
#include "train/config/configure.h"
#include "train/config/train_config.h"

#include <stdio.h>
#include <string.h>

/* Whether YAML accepts the character unescaped within quotes: no control, line break or byte order mark. */
static bool needs_no_escape(uint32_t code)
{
    return code >= 0x20 && code != '"' && code != '\\' && !(code >= 0x7f && code <= 0x9f) && code != 0x2028 &&
           code != 0x2029 && code != 0xfeff && code != 0xfffe && code != 0xffff;
}

/* A double-quoted YAML scalar of a text that is UTF-8. */
static void write_quoted(FILE *out, const char *text)
{
    putc('"', out);
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        uint32_t code;
        n = ddl_utf8_decode((const unsigned char *)text, left, &code);
        if (needs_no_escape(code))
            fwrite(text, 1, n, out);
        else
            fprintf(out, "\\u%04lx", (unsigned long)code);
    }
    putc('"', out);
}

/* The line with the keys whose values are computed, if there are any. */
static void write_computed(FILE *out, const struct ddl_train_config *t)
{
    const char *before = "";
    for (const struct ddl_option *row = ddl_train_options(); row->name; row++) {
        bool computed = ddl_train_is_computed(row, t);
        if (computed && !*before)
            fprintf(out,
                    "# Computed values, computed again for another number of steps:\n%s: ", ddl_computed_key);
        if (computed)
            fprintf(out, "%s%s", before, row->name);
        before = computed ? "," : before;
    }
    if (*before)
        putc('\n', out);
}

/* Paths are bytes, YAML is not: what is not valid UTF-8 is left out. */
static void write_row(FILE *out, const struct ddl_option *row, const void *object)
{
    char value[DDL_RECIPE_VALUE];
    ddl_option_format(row, object, value, sizeof value);
    if (!ddl_utf8_is_valid(value, strlen(value))) {
        fprintf(out, "# %s is not valid UTF-8: left out\n", row->name);
        return;
    }
    fprintf(out, "%s: ", row->name);
    if (ddl_option_is_text(row))
        write_quoted(out, value);
    else
        fputs(value, out);
    putc('\n', out);
}

ddl_status ddl_train_save_recipe(const struct ddl_train_config *config, const char *path,
                                 struct ddl_error *err)
{
    struct ddl_config named;
    struct ddl_file_writer w;
    struct ddl_train_config stored = *config;
    char folder[DDL_PATHS_SIZE];
    if (!ddl_path_folder(path, folder, sizeof folder))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    ddl_status status = ddl_train_named_config(config, &named, err);
    if (!status)
        status = ddl_train_store_paths(ddl_train_options(), &stored, folder, err);
    if (!status)
        status = ddl_file_writer_begin(&w, path, err);
    if (status)
        return status;
    fprintf(w.stream, "# Relative paths are relative to the folder of this file.\n%s: %s\n",
            ddl_relative_to_key, ddl_relative_to_names[DDL_RELATIVE_TO_RECIPE]);
    write_computed(w.stream, config);
    for (const struct ddl_option *row = ddl_train_options(); row->name; row++)
        write_row(w.stream, row, &stored);
    /* Read again, hidden_size or num_attention_heads alone would change head_dim. */
    bool heads = config->config.d_model != named.d_model || config->config.n_heads != named.n_heads;
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char value[64], implied[64];
        ddl_option_format(row, &config->config, value, sizeof value);
        ddl_option_format(row, &named, implied, sizeof implied);
        if (strcmp(value, implied) != 0 || strcmp(row->name, "vocab_size") == 0 ||
            (heads && strcmp(row->name, "head_dim") == 0))
            write_row(w.stream, row, &config->config);
    }
    return ddl_file_writer_commit(&w, err);
}
