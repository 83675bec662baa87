/* Tiny models, tokenizers and shards for tests of what runs them. */
#ifndef DDL_TEST_RUNS_H
#define DDL_TEST_RUNS_H

#include "support/files.h"

#include "ddl/model.h"
#include "ddl/tokenizer.h"

/* Odd sizes, three layers, a context of 16. */
struct ddl_config tiny_config(const char *preset, size_t vocab_size);
/* With initial values from the seed; lent backend. */
ddl_model *tiny_model(const char *preset, size_t vocab_size, uint64_t seed, ddl_backend *backend);

enum { TINY_VOCAB = 300 };
/* A tokenizer of TINY_VOCAB tokens or a few less, learnt from a text of the repository. */
ddl_tokenizer *tiny_tokenizer(void);
/* A model folder of the scratch folder with that tokenizer; returns its path. */
const char *tiny_folder(const char *name, const char *preset);

/* A shard of n tokens, each below `vocab`, that follow a simple rule with some chance in it. */
void write_random_shard(const char *path, uint64_t seed, size_t vocab, size_t n);

/* "folder/name"; each call returns one of a few rotating static buffers. */
char *file_in(const char *folder, const char *name);
/* metrics.jsonl of a run without what depends on the clock: each line up to "tokens_per_s". Free with free.
 */
char *repeatable_metrics(const char *folder);
void assert_same_metrics(const char *a, const char *b);

#endif
