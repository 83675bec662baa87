/* Texts of tasks: UTF-8 with a length, and the string functions of Python that task definitions use. Results
 * are allocated from a pool and freed with it. */
#ifndef DDL_INFER_TASKS_TEXT_H
#define DDL_INFER_TASKS_TEXT_H

#include "ddl/tasks.h"

#include <stdbool.h>
#include <stddef.h>

/* Memory that is freed at once; zero-initialize. */
struct task_pool {
    struct task_block *last;
    bool failed; /* an allocation failed: results since then are empty or NULL */
};
void *task_pool_take(struct task_pool *pool, size_t count, size_t size); /* zeroed; NULL: out of memory */
void task_pool_free(struct task_pool *pool);

struct ddl_task_text task_literal(const char *text);
/* The n texts one after another. */
struct ddl_task_text task_join(struct task_pool *pool, size_t n, const struct ddl_task_text *texts);
/* JOIN(pool, a, b, ...) */
#define TASK_JOIN(pool, ...)                                                                                 \
    task_join(pool, sizeof((struct ddl_task_text[]){ __VA_ARGS__ }) / sizeof(struct ddl_task_text),          \
              (struct ddl_task_text[]){ __VA_ARGS__ })

bool task_text_equal(struct ddl_task_text a, struct ddl_task_text b);
size_t task_characters(struct ddl_task_text text); /* code points */
/* str.lstrip(), str.rstrip(), str.strip(): without the white space of Python's str.isspace. */
struct ddl_task_text task_lstrip(struct ddl_task_text text);
struct ddl_task_text task_rstrip(struct ddl_task_text text);
struct ddl_task_text task_strip(struct ddl_task_text text);
/* str.capitalize(): the first character in title case, all others in lower case. */
struct ddl_task_text task_capitalize(struct task_pool *pool, struct ddl_task_text text);
/* HellaSwag's preprocess(): strip; " [title]" becomes ". "; bracket groups are deleted; pairs of spaces
 * become one space. */
struct ddl_task_text task_clean(struct task_pool *pool, struct ddl_task_text text);

#endif
