#define _POSIX_C_SOURCE 200809L
#include "data/inputs.h"

#include "base/file.h"
#include "base/mem.h"
#include "ddl/option.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 64 }; /* of nested folders */

const char *const ddl_text_format_names[] = { "text", "jsonl", NULL };

struct ddl_text_input ddl_text_input_defaults(void)
{
    return (struct ddl_text_input){ .text_key = "text", .separator = DDL_END_OF_TEXT };
}

ddl_status ddl_text_input_check(const struct ddl_text_input *input, struct ddl_error *err)
{
    if (input->text_key[0] == '\0')
        return ddl_error_set(err, DDL_E_USAGE, "--text_key is empty");
    if (strpbrk(input->separator, "\r\n"))
        return ddl_error_set(err, DDL_E_USAGE, "--separator: contains a line break");
    if ((*input->prompt_key != '\0') != (*input->response_key != '\0'))
        return ddl_error_set(err, DDL_E_USAGE, "--%s_key: expected with --%s_key",
                             *input->prompt_key ? "prompt" : "response",
                             *input->prompt_key ? "response" : "prompt");
    if (*input->prompt_key && strcmp(input->prompt_key, input->response_key) == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "--response_key: expected another key than --prompt_key's '%s'",
                             input->prompt_key);
    if (*input->prompt_key && strcmp(input->text_key, ddl_text_input_defaults().text_key) != 0)
        return ddl_error_set(err, DDL_E_USAGE, "--text_key: expected without --prompt_key, found '%s'",
                             input->text_key);
    return ddl_choice_check("--stdin_format", ddl_text_format_names, input->stdin_format, err);
}

/* A folder being walked and the chain of its parents, used to detect symbolic link cycles. */
struct folder {
    dev_t device;
    ino_t inode;
    size_t depth;
    const struct folder *parent; /* parent; NULL: given by the user */
};

static const struct {
    const char *ending;
    bool json;
    enum ddl_packing packing;
} kinds[] = {
    { ".txt", false, DDL_PACKING_NONE },     { ".jsonl", true, DDL_PACKING_NONE },
    { ".txt.gz", false, DDL_PACKING_GZIP },  { ".jsonl.gz", true, DDL_PACKING_GZIP },
    { ".txt.zst", false, DDL_PACKING_ZSTD }, { ".jsonl.zst", true, DDL_PACKING_ZSTD },
};

static bool find_kind(const char *path, struct ddl_input *input)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].ending);
        if (length < n || strcmp(path + length - n, kinds[i].ending) != 0)
            continue;
        input->json = kinds[i].json;
        input->packing = kinds[i].packing;
        return true;
    }
    return false;
}

static ddl_status add(struct ddl_inputs *inputs, struct ddl_input input, const char *path,
                      struct ddl_error *err)
{
    if (inputs->n == inputs->capacity) {
        size_t capacity = inputs->capacity ? 2 * inputs->capacity : 16;
        struct ddl_input *items = realloc(inputs->items, capacity * sizeof *items);
        if (!items)
            return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
        inputs->items = items;
        inputs->capacity = capacity;
    }
    input.path = ddl_mem_strdup(path);
    if (!input.path)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    inputs->items[inputs->n++] = input;
    return DDL_OK;
}

static ddl_status add_path(struct ddl_inputs *inputs, const char *path, const struct folder *parent,
                           struct ddl_error *err);

static bool is_visible(void *user, const char *name)
{
    (void)user;
    return name[0] != '.';
}

static ddl_status check_folder(const char *folder, const struct folder *here, struct ddl_error *err)
{
    if (here->depth > MAX_DEPTH)
        return ddl_error_set(err, DDL_E_IO, "%.300s: folders nested more than %d levels deep", folder,
                             MAX_DEPTH);
    for (const struct folder *p = here->parent; p; p = p->parent) {
        if (p->inode == here->inode && p->device == here->device)
            return ddl_error_set(err, DDL_E_IO,
                                 "%.300s: symbolic link cycle: links to one of its parent folders", folder);
    }
    return DDL_OK;
}

/* An entry of a folder: an input, a folder, or anything else, which is ignored. */
static ddl_status add_entry(struct ddl_inputs *inputs, const char *folder, const char *name,
                            const struct folder *here, struct ddl_error *err)
{
    char path[4096];
    struct ddl_input unused;
    bool is_dir = false;
    if (!ddl_path_join(path, sizeof path, folder, name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: path too long", folder);
    ddl_status status = ddl_file_find_dir(path, &is_dir, err);
    return status || (!is_dir && !find_kind(path, &unused)) ? status : add_path(inputs, path, here, err);
}

static ddl_status add_folder(struct ddl_inputs *inputs, const char *folder, const struct folder *here,
                             struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = check_folder(folder, here, err);
    if (status)
        return status;
    status = ddl_file_list(&list, folder, is_visible, NULL, err);
    for (size_t i = 0; !status && i < list.n; i++)
        status = add_entry(inputs, folder, list.names[i], here, err);
    ddl_file_names_free(&list);
    return status;
}

static ddl_status add_path(struct ddl_inputs *inputs, const char *path, const struct folder *parent,
                           struct ddl_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return ddl_file_error(err, path, "open");
    if (S_ISDIR(st.st_mode)) {
        const struct folder here = { st.st_dev, st.st_ino, parent ? parent->depth + 1 : 0, parent };
        return add_folder(inputs, path, &here, err);
    }
    struct ddl_input input = { .size = (uint64_t)st.st_size };
    if (!find_kind(path, &input))
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%s: unknown file type: expected .txt, .jsonl, .txt.gz, .jsonl.gz, .txt.zst, .jsonl.zst", path);
    if (!S_ISREG(st.st_mode))
        return ddl_error_set(err, DDL_E_IO, "%s: not a regular file", path);
    return add(inputs, input, path, err);
}

ddl_status ddl_inputs_list(struct ddl_inputs *inputs, const char *const *names, size_t n, int stdin_format,
                           struct ddl_error *err)
{
    bool standard_input = false;
    if (n == 0)
        return ddl_option_missing("input", "files, folders, or - for standard input", err);
    for (size_t i = 0; i < n; i++) {
        ddl_status status;
        size_t before = inputs->n;
        if (strcmp(names[i], "-") == 0) {
            if (standard_input)
                return ddl_error_set(err, DDL_E_USAGE, "-: standard input is given twice");
            standard_input = true;
            status = add(inputs, (struct ddl_input){ .json = stdin_format == DDL_TEXT_JSONL }, "-", err);
        } else {
            status = add_path(inputs, names[i], NULL, err);
        }
        if (status)
            return status;
        if (inputs->n == before)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: no .txt or .jsonl file (or .gz, .zst of one) in this folder", names[i]);
    }
    for (size_t i = 0; i < inputs->n && !standard_input; i++)
        inputs->bytes += inputs->items[i].size;
    return DDL_OK;
}

void ddl_inputs_free(struct ddl_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++)
        free(inputs->items[i].path);
    free(inputs->items);
    *inputs = (struct ddl_inputs){ 0 };
}
