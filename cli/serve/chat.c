#define _GNU_SOURCE /* memmem */
#include "cli/serve/chat.h"

#include "cli/model/input.h"
#include "cli/serve/json_text.h"

#include "ddl/file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[ROLES] = { "system", "user", "assistant" };

bool chat_role_find(enum chat_role *role, const char *name)
{
    for (int i = 0; i < ROLES; i++) {
        if (strcmp(name, role_names[i]) == 0 || (i == ROLE_SYSTEM && strcmp(name, "developer") == 0)) {
            *role = (enum chat_role)i;
            return true;
        }
    }
    return false;
}

/* ---- the template of a folder ---- */

enum { MAX_TEMPLATE = 1 << 20 }; /* bytes */

/* A copy of a string member of `object`; NULL, with *ok false, where it is not a string without NUL. */
static char *copy_member(const json_t *object, const char *key, bool required, bool *ok)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    if (!value && !required)
        return NULL;
    char *copy = text ? strdup(text) : NULL;
    *ok = *ok && copy;
    return copy;
}

static bool read_members(struct chat_template *t, const json_t *root)
{
    static const char *const known[] = { "begin", "stop", "system", "user", "assistant", NULL };
    bool ok = json_is_object(root);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        ok = ok && known[i];
    }
    t->begin = copy_member(root, "begin", false, &ok);
    t->stop = copy_member(root, "stop", false, &ok);
    for (int i = 0; i < ROLES; i++) {
        const json_t *role = json_object_get(root, role_names[i]);
        t->before[i] = copy_member(role, "before", true, &ok);
        t->after[i] = copy_member(role, "after", true, &ok);
    }
    return ok && (!t->stop || *t->stop);
}

static bool set_plain(struct chat_template *t)
{
    static const char *const plain[ROLES] = { "", "User: ", "Assistant: " };
    bool ok = true;
    for (int i = 0; i < ROLES; i++) {
        t->before[i] = strdup(plain[i]);
        t->after[i] = strdup("\n\n");
        ok = ok && t->before[i] && t->after[i];
    }
    t->stop = strdup("\n\nUser:");
    return ok && t->stop;
}

ddl_status chat_template_load(struct chat_template *t, const char *dir, struct ddl_error *err)
{
    char path[4096], *text;
    size_t size;
    json_error_t why;
    *t = (struct chat_template){ 0 };
    snprintf(path, sizeof path, "%s/chat_template.json", dir);
    if (!ddl_file_exists(path))
        return set_plain(t) ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    ddl_status status = read_input(path, MAX_TEMPLATE, &text, &size, err);
    if (status)
        return status;
    json_t *root;
    status = json_parse(&root, text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (status)
        return ddl_error_set(err, status, "%.400s:%d:%d: not valid JSON: %s", path, why.line, why.column,
                             why.text);
    bool ok = read_members(t, root);
    json_decref(root);
    return ok ? DDL_OK
              : ddl_error_set(
                    err, DDL_E_FORMAT,
                    "%.400s: expected an object with system, user and assistant, each with the texts "
                    "before and after, and optionally the texts begin and stop",
                    path);
}

void chat_template_free(struct chat_template *t)
{
    free(t->begin);
    free(t->stop);
    for (int i = 0; i < ROLES; i++) {
        free(t->before[i]);
        free(t->after[i]);
    }
    *t = (struct chat_template){ 0 };
}

/* ---- encoding ---- */

/* Text whose tokens are joined until the kind of text changes: one call of the tokenizer for each stretch. */
struct stretch {
    const ddl_tokenizer *tokenizer;
    struct buffer text;
    bool special;     /* texts of special tokens are such tokens */
    size_t n_content; /* bytes up to the last that a client sent */
    struct ddl_ids *out;
};

static ddl_status flush(struct stretch *s, struct ddl_error *err)
{
    ddl_status status =
        s->text.n ? ddl_tokenizer_encode(s->tokenizer, s->text.bytes, s->text.n, s->special, s->out, err)
                  : DDL_OK;
    s->text.n = s->n_content = 0;
    return status;
}

/* Whether the text contains the text of a special token. */
static bool has_special(const ddl_tokenizer *tokenizer, const char *text, size_t size)
{
    const char *special;
    size_t length;
    int32_t id;
    for (size_t i = 0; (special = ddl_tokenizer_special(tokenizer, i, &id, &length)) != NULL; i++) {
        if (length && length <= size && memmem(text, size, special, length))
            return true;
    }
    return false;
}

/* Whether the text of a special token begins in the first `end` bytes of the stretch and ends in `text`. */
static bool joins_special(const struct stretch *s, size_t end, const char *text, size_t size)
{
    const char *special;
    size_t length;
    int32_t id;
    for (size_t i = 0; (special = ddl_tokenizer_special(s->tokenizer, i, &id, &length)) != NULL; i++) {
        for (size_t at = s->text.n + 1 > length ? s->text.n + 1 - length : 0; at < end; at++) {
            size_t n = s->text.n - at;
            if (length - n <= size && memcmp(s->text.bytes + at, special, n) == 0 &&
                memcmp(text, special + n, length - n) == 0)
                return true;
        }
    }
    return false;
}

/* Template and content are encoded apart where a content has the text of a special token, or a part that the
 * text next to it completes: it stays text. Else together, as a tokenizer sees the whole text. `end`: see
 * joins_special. */
static ddl_status add(struct stretch *s, const char *text, size_t size, bool special, size_t end,
                      struct ddl_error *err)
{
    bool apart = s->special != special || (special && joins_special(s, end, text, size));
    ddl_status status = apart ? flush(s, err) : DDL_OK;
    s->special = special;
    if (!status && !buffer_add(&s->text, text, size))
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the messages");
    return status;
}

static ddl_status add_template(struct stretch *s, const char *text, struct ddl_error *err)
{
    return text ? add(s, text, strlen(text), true, s->n_content, err) : DDL_OK;
}

static ddl_status add_content(struct stretch *s, const struct message *m, struct ddl_error *err)
{
    bool special = !has_special(s->tokenizer, m->content, m->size);
    ddl_status status = add(s, m->content, m->size, special, s->text.n, err);
    s->n_content = s->text.n;
    return status;
}

/* `before` of a role, without a space at its end where the text after it has its own. */
static ddl_status add_before(struct stretch *s, const char *before, bool has_space, struct ddl_error *err)
{
    size_t size = strlen(before);
    return add(s, before, size - (has_space && size && before[size - 1] == ' '), true, s->n_content, err);
}

ddl_status chat_encode(const struct chat_template *t, const ddl_tokenizer *tokenizer,
                       const struct message *messages, size_t n, struct ddl_ids *out, struct ddl_error *err)
{
    struct stretch s = { .tokenizer = tokenizer, .special = true, .out = out };
    ddl_status status = add_template(&s, t->begin, err);
    for (size_t i = 0; !status && i < n; i++) {
        const struct message *m = &messages[i];
        bool is_answer = m->role == ROLE_ASSISTANT && m->size && m->content[0] == ' ';
        status = add_before(&s, t->before[m->role], is_answer, err);
        if (!status)
            status = add_content(&s, m, err);
        if (!status)
            status = add_template(&s, t->after[m->role], err);
    }
    if (!status) /* the answer's first token has a space */
        status = add_before(&s, t->before[ROLE_ASSISTANT], true, err);
    if (!status)
        status = flush(&s, err);
    buffer_free(&s.text);
    return status;
}
