/* Repeats one operation; each of its allocations fails once alone, and once with all after it. */
#ifndef DDL_TEST_SWEEP_H
#define DDL_TEST_SWEEP_H

#include "support/files.h"

/* Does the work and gives all back; *digest becomes a function of the result. */
typedef ddl_status sweep_fn(void *user, uint64_t *digest, struct ddl_error *err);

struct sweep {
    const char *name;
    sweep_fn *run;
    void *user;
    const char *folder; /* what the work writes to, or NULL; emptied before each run        */
    const char *source; /* filled from this folder again, or NULL        */
    /* Where run leaves a figure of the result, or NULL. Without memory to pack a product oneDNN, and in its
     * stead our own kernel, adds in another order: such a run may differ in the last bits, the figure by 1e-5
     * of it. */
    const double *figure;
    long first; /* requests before this one belong to another sweep: every 50th is tried, in a sample every
                   150th */
    void (*check)(void *user); /* asserts more of what a run left; may be NULL */
    /* From `first` on the first `all` requests are tried (0: 1000; under sanitizers at most 300, in a
     * sample 30), of the rest `sampled` (0: 80; in a sample 10) at a fixed stride; with DDL_FAULTS=all all of
     * them, with DDL_FAULTS=N request N. */
    long all, sampled;
};

/* Fails unless every run either reports DDL_E_MEMORY with one message or gives the result of a run without a
 * fault, leaves nothing allocated, and leaves in `folder` only files that were there before or that the
 * whole run leaves, byte for byte (of metrics.jsonl whole lines; of checkpoints the names, which is why there
 * is `check`). */
void sweep(const struct sweep *s);

/* tiny_tokenizer in the scratch folder's "tokenizer"; returns how many requests loading it makes. */
long make_tokenizer(void);

/* FNV-1a over more bytes; begin with 0. */
uint64_t digest_add(uint64_t digest, const void *data, size_t size);

#endif
