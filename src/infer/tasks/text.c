#include "infer/tasks/text.h"

#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>

/* ---- memory ---- */

struct task_block {
    struct task_block *before;
    max_align_t data[];
};

void *task_pool_take(struct task_pool *pool, size_t count, size_t size)
{
    struct task_block *block = NULL;
    if (count <= (SIZE_MAX - sizeof *block) / (size ? size : 1))
        block = calloc(1, sizeof *block + count * size);
    if (!block) {
        pool->failed = true;
        return NULL;
    }
    block->before = pool->last;
    pool->last = block;
    return block->data;
}

void task_pool_free(struct task_pool *pool)
{
    for (struct task_block *block = pool->last, *before; block; block = before) {
        before = block->before;
        free(block);
    }
    *pool = (struct task_pool){ 0 };
}

/* ---- texts ---- */

struct ddl_task_text task_literal(const char *text)
{
    return (struct ddl_task_text){ text, strlen(text) };
}

struct ddl_task_text task_join(struct task_pool *pool, size_t n, const struct ddl_task_text *texts)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        size += texts[i].size;
    char *data = task_pool_take(pool, size, 1);
    if (!data)
        return (struct ddl_task_text){ "", 0 };
    for (size_t i = 0; i < n; at += texts[i++].size)
        memcpy(data + at, texts[i].data, texts[i].size);
    return (struct ddl_task_text){ data, size };
}

bool task_text_equal(struct ddl_task_text a, struct ddl_task_text b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* Bytes of the first character of a text that is not empty. */
static size_t first_character(struct ddl_task_text text, uint32_t *code)
{
    size_t n = ddl_utf8_decode((const unsigned char *)text.data, text.size, code);
    return n ? n : 1;
}

size_t task_characters(struct ddl_task_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* ---- white space ---- */

static bool is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
           code == 0x202f || code == 0x205f || code == 0x3000;
}

struct ddl_task_text task_lstrip(struct ddl_task_text text)
{
    while (text.size > 0) {
        uint32_t code;
        size_t n = first_character(text, &code);
        if (!is_space(code))
            break;
        text.data += n, text.size -= n;
    }
    return text;
}

struct ddl_task_text task_rstrip(struct ddl_task_text text)
{
    while (text.size > 0) {
        size_t at = text.size - 1;
        uint32_t code;
        while (at > 0 && ((unsigned char)text.data[at] & 0xc0) == 0x80)
            at--;
        first_character((struct ddl_task_text){ text.data + at, text.size - at }, &code);
        if (!is_space(code))
            break;
        text.size = at;
    }
    return text;
}

struct ddl_task_text task_strip(struct ddl_task_text text)
{
    return task_rstrip(task_lstrip(text));
}

/* ---- case ---- */

/* Takes a malloc'ed result of libunistring over into the pool. */
static struct ddl_task_text take_cased(struct task_pool *pool, uint8_t *data, size_t size)
{
    struct ddl_task_text text = { (const char *)data, size };
    if (!data) {
        pool->failed = true;
        return (struct ddl_task_text){ "", 0 };
    }
    text = task_join(pool, 1, &text);
    free(data);
    return text;
}

struct ddl_task_text task_capitalize(struct task_pool *pool, struct ddl_task_text text)
{
    if (text.size == 0)
        return text;
    const uint8_t *data = (const uint8_t *)text.data;
    uint32_t code;
    size_t n = first_character(text, &code), size;
    uint8_t *title = u8_totitle(data, n, "", NULL, NULL, &size);
    struct ddl_task_text first = take_cased(pool, title, size);
    uint8_t *lower = u8_ct_tolower(data + n, text.size - n, u8_casing_prefix_context(data, n),
                                   unicase_empty_suffix_context, "", NULL, NULL, &size);
    return TASK_JOIN(pool, first, take_cased(pool, lower, size));
}

/* ---- HellaSwag ---- */

/* A copy of the text in the pool, to be edited in place: every edit shortens it. */
static char *editable(struct task_pool *pool, struct ddl_task_text text)
{
    char *data = task_pool_take(pool, text.size + 1, 1);
    if (data)
        memcpy(data, text.data, text.size);
    return data;
}

static size_t replace_titles(char *s, size_t n)
{
    static const char title[] = " [title]";
    const size_t length = sizeof title - 1;
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= length && memcmp(s + i, title, length) == 0) {
            s[to++] = '.', s[to++] = ' ';
            i += length;
        } else {
            s[to++] = s[i++];
        }
    }
    return to;
}

/* Deletes what the regular expression \[.*?\] matches: from a '[' to the next ']' of its line. */
static size_t delete_brackets(char *s, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (s[i] == '[' && end < n && s[end] != ']' && s[end] != '\n')
            end++;
        if (s[i] == '[' && end < n && s[end] == ']')
            i = end + 1;
        else
            s[to++] = s[i++];
    }
    return to;
}

static size_t halve_spaces(char *s, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        s[to++] = s[i];
        i += s[i] == ' ' && i + 1 < n && s[i + 1] == ' ';
    }
    return to;
}

struct ddl_task_text task_clean(struct task_pool *pool, struct ddl_task_text text)
{
    text = task_strip(text);
    char *s = editable(pool, text);
    if (!s)
        return (struct ddl_task_text){ "", 0 };
    size_t n = replace_titles(s, text.size);
    n = delete_brackets(s, n);
    return (struct ddl_task_text){ s, halve_spaces(s, n) };
}
