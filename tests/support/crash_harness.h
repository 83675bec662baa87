/* Small runs of the program that tests disturb, and what they leave when nothing does. */
#ifndef DDL_TEST_DISTURBED_H
#define DDL_TEST_DISTURBED_H

#include "support/runs.h"

#include <sys/types.h>

enum { SAID = 1 << 14 };

/* Scratch: inputs/ (shards, a tokenizer, a text), run/ (where the program works; nothing else does), whole/
 * (the same folder as an undisturbed program left it). */
const char *run_folder(void);

/* The arguments of ddl train for a run into run/r. Rows of a table; flags change it. */
struct small_run {
    const char *name, *flags;
};
/* Makes the inputs. */
void make_inputs(void);
/* "train --... --out scratch/run/r --quiet" in a static buffer. */
const char *train_arguments(const struct small_run *run);

/* Runs "env <environment> ddl <arguments>"; both streams into said[SAID]. The exit status, 128 + the signal's
 * number; 99: a sanitizer complained. */
int run_ddl(const char *environment, const char *arguments, char *said);
/* The environment that preloads the shim with these settings of its own ("DDL_SHIM_AT=3 ..."); it watches
 * run/. A static buffer. */
const char *shim(const char *settings);
/* Starts ddl without waiting for it; its streams go to the file. As below, fsync only counts: a process that
 * dies takes nothing from the system's cache, and thousands of them on a busy disk take minutes. */
pid_t start_ddl(const char *arguments, const char *streams);
/* The exit status as run_ddl tells it. */
int wait_for(pid_t pid);

/* Empties run/ and runs undisturbed; then run/ becomes whole/. */
void run_undisturbed(const char *arguments);
/* Goes on with what stands in run/r, as a user would: --resume where there is a run, else the first command
 * again. */
void resume_undisturbed(const struct small_run *run);
/* Every checkpoint in run/r is whole. Returns the newest step, 0: there is none. */
unsigned long long assert_checkpoints_whole(void);
/* run/ holds the files that whole/ holds, byte for byte; in metrics.jsonl and state.json all but the clock.
 */
void assert_like_undisturbed(void);

#endif
