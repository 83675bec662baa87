/* BPE training: incremental pair counts and a heap that yields the most frequent pair. */
#ifndef DDL_TEXT_LEARN_H
#define DDL_TEXT_LEARN_H

#include "text/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two ids in one integer. Pairs of equal count are ordered by this key, lowest first. */
#define DDL_PAIR(left, right) ((uint64_t)(uint32_t)(left) << 32 | (uint32_t)(right))

struct ddl_learner;

/* Creates a learner from a copy of `words`, with bytes mapped to ids by byte_id. Returns NULL if out of
 * memory. */
struct ddl_learner *ddl_learner_new(const struct ddl_words *words, const int32_t byte_id[256]);
void ddl_learner_free(struct ddl_learner *learner); /* NULL is allowed */

/* Pops the most frequent pair; returns false if no pair occurs. The next call must be ddl_learner_merge or
 * ddl_learner_free. */
bool ddl_learner_best(struct ddl_learner *learner, uint64_t *pair, uint64_t *count);
/* Replaces that pair by the token `id` in all words. Returns false if out of memory. */
bool ddl_learner_merge(struct ddl_learner *learner, int32_t id);

#endif
