/* From ids to text given out piece by piece, up to a stop string. */
#ifndef DDL_RUN_EMITTER_H
#define DDL_RUN_EMITTER_H

#include "ddl/generate.h"

#include <stdbool.h>

struct ddl_detokenizer {
    const ddl_tokenizer *tokenizer; /* borrowed, as are the stop strings */
    const char *const *stop;
    size_t n_stop;
    ddl_text_fn *text; /* NULL: nobody listens */
    void *user;
    size_t sequence;
    struct ddl_decode_stream stream;
    char *held; /* text that is not yet given out */
    size_t n_held, capacity;
};

/* Finds all the room that push and flush need. `text`, `user` and `sequence` are the caller's to set. */
ddl_status ddl_detokenizer_init(struct ddl_detokenizer *e, const ddl_tokenizer *tokenizer,
                                const char *const *stop, size_t n_stop, struct ddl_error *err);
void ddl_detokenizer_free(struct ddl_detokenizer *e); /* zeroed is allowed */

/* Takes an id. *stopped: a stop string is complete; the text before it has been given out. Returns what
 * `text` returned, 0 if it was not called. */
int ddl_detokenizer_push(struct ddl_detokenizer *e, int32_t id, bool *stopped);
/* Gives out what is still held. */
int ddl_detokenizer_flush(struct ddl_detokenizer *e);

#endif
