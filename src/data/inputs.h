/* The inputs of `ddl data build` and `ddl tokenizer train`: files classified by extension, folders walked in
 * name order. */
#ifndef DDL_DATA_INPUTS_H
#define DDL_DATA_INPUTS_H

#include "data/source.h"
#include "ddl/option.h"
#include "ddl/tokenizer.h"

#include <stddef.h>

/* Option rows of the member `input` of a configuration. */
#define DDL_INPUT_ROWS(config)                                                                               \
    { "text_key", DDL_INPUT_TEXT(config, text_key), "KEY", "key of a document's text in .jsonl files" },     \
        { "separator", DDL_INPUT_TEXT(config, separator), "LINE",                                            \
          "line of a text file that starts a new document (empty: one document per file)" },                 \
        { "stdin_format",                                                                                    \
          DDL_OPTION_CHOICE,                                                                                 \
          offsetof(config, input.stdin_format),                                                              \
          0,                                                                                                 \
          0,                                                                                                 \
          0,                                                                                                 \
          ddl_text_format_names,                                                                             \
          "NAME",                                                                                            \
          "format of standard input" },                                                                      \
        { "prompt_key", DDL_INPUT_TEXT(config, prompt_key), "KEY",                                           \
          "key of a prompt in .jsonl files, with --response-key: documents are prompts and responses" },     \
    {                                                                                                        \
        "response_key", DDL_INPUT_TEXT(config, response_key), "KEY", "key of the response to the prompt"     \
    }
#define DDL_INPUT_TEXT(config, field)                                                                        \
    DDL_OPTION_STRING, offsetof(config, input.field), sizeof((config *)0)->input.field, 0, 0, NULL

extern const char *const ddl_text_format_names[];
struct ddl_text_input ddl_text_input_defaults(void);
ddl_status ddl_text_input_check(const struct ddl_text_input *input, struct ddl_error *err);

struct ddl_input {
    char *path;
    bool json; /* .jsonl; else text */
    enum ddl_packing packing;
    uint64_t size; /* file size in bytes; 0 for standard input */
};

struct ddl_inputs {
    struct ddl_input *items;
    size_t n, capacity;
    uint64_t bytes; /* total size; 0 if standard input is among them */
};

/* Collects the inputs. Zero-initialize `inputs`; free it even after a failure. A file in `names` must have a
 * known extension (.txt, .jsonl, each also with .gz or .zst). In folders, other files and hidden files are
 * ignored; a folder without any matching file is an error. "-" is standard input, allowed once, in the given
 * format (enum ddl_text_format). */
ddl_status ddl_inputs_list(struct ddl_inputs *inputs, const char *const *names, size_t n, int stdin_format,
                           struct ddl_error *err);
void ddl_inputs_free(struct ddl_inputs *inputs);

#endif
