/* The tokens that a command evaluates a model on: validation shards, or a text. */
#ifndef DDL_CLI_TOKEN_DATA_H
#define DDL_CLI_TOKEN_DATA_H

#include "ddl/eval.h"
#include "ddl/inspect.h"
#include "cli/model/folder.h"
#include "cli/model/shards.h"

#include <stdbool.h>
#include <stddef.h>

struct token_flags {
    char val_data[4096], text[4096]; /* one of them is given */
    int format;                      /* enum ddl_shards_format */
};
/* The rows of the member `tokens`, a struct token_flags, of `type`. */
#define TOKEN_ROWS(type)                                                                                     \
    { "val_data",                                                                                            \
      DDL_OPTION_PATHS,                                                                                      \
      offsetof(type, tokens.val_data),                                                                       \
      4096,                                                                                                  \
      0,                                                                                                     \
      0,                                                                                                     \
      NULL,                                                                                                  \
      "PATH",                                                                                                \
      "shards to read: files, a folder, or a pattern; from a folder, its validation shards, if any",         \
      "shard data" },                                                                                        \
        { "text", DDL_OPTION_PATH, offsetof(type, tokens.text),       4096, 0, 0,                            \
          NULL,   "FILE",          "text to read (-: standard input)" },                                     \
        FORMAT_ROW_OF(type, tokens.format)

/* Open shards, or a text in memory. */
struct token_data {
    const struct token_flags *flags;
    ddl_shards *shards; /* or NULL */
    char *text;         /* or NULL */
    size_t size;        /* of the text, bytes */
    bool is_recorded;   /* which tokenizer built the shards */
};
/* DDL_E_USAGE, with the command's name, unless one of the two is given. */
ddl_status token_flags_check(const struct token_flags *flags, const char *command, struct ddl_error *err);
/* Opens what the flags name; close it after a failure too. */
ddl_status token_data_open(struct token_data *data, const struct token_flags *flags, bool quiet,
                           struct ddl_error *err);
void token_data_close(struct token_data *data);

/* ddl_eval_shards or ddl_eval_text of the folder's model, after the vocabularies are checked. Without a
 * record of the shards' tokenizer, bits per byte are NAN. */
ddl_status token_data_eval(const struct token_data *data, const struct folder *folder,
                           const struct model_flags *model, const struct ddl_eval_config *config,
                           struct ddl_eval_result *out, struct ddl_error *err);
/* ddl_inspect_shards or ddl_inspect_text, likewise. */
ddl_status token_data_inspect(const struct token_data *data, const struct folder *folder,
                              const struct model_flags *model, const struct ddl_inspect_config *config,
                              ddl_inspection **out, struct ddl_error *err);

/* Forces what `specs`, one a line, name in the folder's model; "": nothing. For beta=mean the gates of these
 * tokens are measured first, as many as `windows` evaluates and with its progress; DDL_E_USAGE for it without
 * tokens (NULL). */
ddl_status token_data_force(const char *specs, const struct token_data *data, const struct folder *folder,
                            const struct model_flags *model, const struct ddl_eval_config *windows,
                            struct ddl_error *err);

#endif
