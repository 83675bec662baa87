/* The answers to a job: one JSON object, or a stream of server-sent events. */
#ifndef DDL_CLI_SERVE_ANSWERS_H
#define DDL_CLI_SERVE_ANSWERS_H

#include "cli/serve/job.h"

#include <stdbool.h>

/* Appends the whole answer of a job whose choices have ended. False without memory, here and below. */
bool answer_write(struct job *job, struct buffer *out);
/* Appends an event with what a choice has that was not sent, if there is something; with the finish reason if
 * it has ended. */
bool answer_stream_choice(struct choice *choice, struct buffer *out);
/* Appends the events that end a stream: usage where it was requested, an error where the job failed, [DONE].
 */
bool answer_stream_end(struct job *job, struct buffer *out);

#endif
