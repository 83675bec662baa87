/* The learning of merges: pair counts kept up to date merge by merge, the most frequent pair found by a heap.
 */
#ifndef DDL_TEXT_LEARN_H
#define DDL_TEXT_LEARN_H

#include "text/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two ids in one number, whose order is the order of equal counts: the lower first. */
#define DDL_PAIR(left, right) ((uint64_t)(uint32_t)(left) << 32 | (uint32_t)(right))

struct ddl_learner;

/* Starts from `words`, whose bytes become ids by byte_id; they are copied. NULL for want of memory. */
struct ddl_learner *ddl_learner_new(const struct ddl_words *words, const int32_t byte_id[256]);
void ddl_learner_free(struct ddl_learner *learner); /* NULL is allowed */

/* Takes the most frequent pair; false if none occurs at all. It must be merged, or learning be over. */
bool ddl_learner_best(struct ddl_learner *learner, uint64_t *pair, uint64_t *count);
/* Replaces that pair by the token `id` in all words. False for want of memory. */
bool ddl_learner_merge(struct ddl_learner *learner, int32_t id);

#endif
