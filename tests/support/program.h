/* The `ddl` program as a user meets it: through a shell, from the folder of the sources. */
#ifndef DDL_TEST_PROGRAM_H
#define DDL_TEST_PROGRAM_H

#include "support/support.h"

#include <jansson.h>

/* What the last call printed, NUL-terminated, truncated. */
extern char printed[1 << 17];

/* "ddl <arguments>": the exit status; standard output and standard error into `printed`. */
int ddl(const char *arguments, ...) DDL_PRINTF(1, 2);
/* The same with one of the two streams. */
enum stream { STANDARD_OUTPUT, STANDARD_ERROR };
int ddl_stream(enum stream stream, const char *arguments, ...) DDL_PRINTF(2, 3);
/* `printed` as JSON, which it must be; the caller's reference. */
json_t *printed_json(void);
/* The JSON that "ddl <arguments>" prints on standard output; it must succeed. */
json_t *ddl_json(const char *arguments, ...) DDL_PRINTF(1, 2);
/* The number that an object has under a key; it must have one. */
double number_of(const json_t *object, const char *key);
/* `printed` contains the gist. */
void assert_printed(const char *gist);

/* Each command that `ddl help` lists, and each action ("data build") of one that has actions, is the
 * beginning of one of the n lines, or one of the `without`, which end with NULL. */
void assert_commands_listed(const char *const *lines, size_t n, const char *const *without);
/* The commands that do not read the weights of a saved model. Ends with NULL. */
extern const char *const commands_without_model[];

/* Command lines that are refused: each prints one line, which begins with "ddl: " and contains `says`, and
 * nothing else. */
struct refusal {
    const char *arguments;
    int status;
    const char *says;
};
void assert_refused(const struct refusal *list, size_t n);

#endif
