/* Tiny models, tokenizers and shards for tests of what runs them. */
#ifndef DDL_TEST_RUNS_H
#define DDL_TEST_RUNS_H

#include "support/files.h"

#include "ddl/model.h"
#include "ddl/tokenizer.h"
#include "ddl/train.h"

/* Odd sizes, three layers, a context of 16. */
struct ddl_config tiny_config(const char *preset, size_t vocab_size);
/* With initial values from the seed; the backend is borrowed. */
ddl_model *tiny_model(const char *preset, size_t vocab_size, uint64_t seed, ddl_backend *backend);

enum { TINY_VOCAB = 300 };
/* A tokenizer of TINY_VOCAB tokens or a few less, learnt from a text of the repository. */
ddl_tokenizer *tiny_tokenizer(void);
/* What the tests of a group share, from its setup function to its teardown: that tokenizer, and
 * open_test_backend(2), or ref. */
extern ddl_tokenizer *shared_tokenizer;
extern ddl_backend *shared_backend;
int share_backend(void **state);
int share_ref(void **state);
int unshare(void **state);
/* A model folder of the scratch folder with that tokenizer; returns its path. */
const char *tiny_folder(const char *name, const char *preset);

/* Writes the first `size` bytes of the repository's LICENSE to the file `name` of the scratch folder; returns
 * its path. */
const char *tiny_text(const char *name, size_t size);

/* A shard of n tokens, each below `vocab`, that follow a simple rule with some chance in it. */
void write_random_shard(const char *path, uint64_t seed, size_t vocab, size_t n);

/* Twenty steps of tiny_config on the scratch folder's train.bin, which is yours to write, by two threads,
 * without validation or checkpoints, into its folder `out`, which is removed. */
struct ddl_train_config tiny_run(const char *preset, size_t vocab_size, const char *backend, const char *out);
/* Sets t to `base` with a change, and asserts that its run is refused with this status and text before
 * anything is written. */
#define ASSERT_REFUSED(t, base, change, status, gist)                                                        \
    do {                                                                                                     \
        struct ddl_error refusal;                                                                            \
        (t) = (base);                                                                                        \
        change;                                                                                              \
        assert_int_equal(ddl_train_run(&(t), NULL, NULL, &refusal), status);                                 \
        assert_says(&refusal, gist);                                                                         \
        assert_false(ddl_file_exists((base).out));                                                           \
    } while (0)
/* ddl_train_run, stopped after so many steps (0: not). In `notes`, which may be NULL: the number of its
 * notes.
 */
ddl_status run_until(const struct ddl_train_config *t, int steps, int *notes, struct ddl_error *err);

/* A validation callback's `user`: stops the run during the validation of a step, when `done` of its tokens
 * are evaluated. Set by the calls: `done` and `total` of the last one, and their number. */
struct validation_stop {
    uint64_t step, done;
    uint64_t last, total;
    size_t calls;
};
int stop_validation(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total);

/* "folder/name"; each call returns one of a few rotating static buffers. */
char *file_in(const char *folder, const char *name);
/* metrics.jsonl of a run without what depends on the clock: each line up to its rate or time. Free with free.
 */
char *repeatable_metrics(const char *folder);
void assert_same_metrics(const char *a, const char *b);
/* Parameters and the optimiser's moments of a checkpoint of two runs. */
void assert_same_checkpoint(const char *a, const char *b, const char *checkpoint);

#endif
