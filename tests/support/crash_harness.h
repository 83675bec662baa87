/* Small runs of the program that tests interrupt, compared with uninterrupted ones. */
#ifndef DDL_TEST_CRASH_HARNESS_H
#define DDL_TEST_CRASH_HARNESS_H

#include "support/runs.h"

#include <sys/types.h>

enum { SAID = 1 << 14 };

/* Scratch folders: inputs/ (shards, a tokenizer, a text), run/ (written by the program only), whole/ (the
 * same after an uninterrupted run). */
const char *run_folder(void);

/* Runs a command of the shell, which must succeed. */
void shell(const char *format, ...) DDL_PRINTF(1, 2);

/* Makes inputs/first.jsonl and inputs/second.jsonl, of some parts each. */
void make_documents(void);
/* "data build ... --out scratch/run/s --overwrite --quiet" of the documents, with additional flags; a static
 * buffer. */
const char *data_arguments(const char *flags);

/* A run of ddl train into run/r, with additional flags. */
struct small_run {
    const char *name, *flags;
};
/* Makes the inputs. */
void make_inputs(void);
/* "train --... --out scratch/run/r --quiet"; a static buffer. */
const char *train_arguments(const struct small_run *run);

/* Runs "env <environment> ddl <arguments>" with both streams in said[SAID]. Returns the exit status, or 128 +
 * a signal's number; 99: a sanitizer's report. */
int run_ddl(const char *environment, const char *arguments, char *said);
/* The environment that preloads the shim with settings ("DDL_SHIM_AT=3 ..."), for files below run/. A static
 * buffer. */
const char *shim(const char *settings);
/* Starts ddl without waiting; its streams go to the file. fsync is counted but not done: a killed process
 * loses nothing in the page cache, and thousands of fsyncs on a busy disk take minutes. */
pid_t start_ddl(const char *arguments, const char *streams);
/* The exit status as of run_ddl. */
int wait_for(pid_t pid);

/* Empties run/, runs without interruption, and renames run/ to whole/. */
void run_uninterrupted(const char *arguments);
/* Continues in run/r as a user would: with --resume if there is a run, else the first command again. */
void resume_uninterrupted(const struct small_run *run);
/* Every checkpoint in run/r is valid. Returns the newest step, or 0 if there is none. */
unsigned long long assert_checkpoints_whole(void);
/* run/ has the same files as whole/, byte for byte, except for times in metrics.jsonl and state.json. */
void assert_same_as_uninterrupted(void);

/* Every how many calls are tried: 3; `sampled` under sanitizers and in a sample; 1 with DDL_FAULTS=all. */
size_t stride_of_calls(size_t sampled);

#endif
