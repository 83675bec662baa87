/* Streaming detokenizer: token ids to text in whole UTF-8 characters, up to a stop string. */
#ifndef DDL_INFER_DETOKENIZER_H
#define DDL_INFER_DETOKENIZER_H

#include "ddl/generation.h"

#include <stdbool.h>

struct ddl_detokenizer {
    const ddl_tokenizer *tokenizer; /* borrowed, as are the stop strings */
    const char *const *stop;
    size_t n_stop;
    ddl_text_fn *text; /* receives the text; may be NULL */
    void *user;
    size_t sequence;
    struct ddl_decode_stream stream;
    char *held; /* text not yet passed on: it could become a stop string */
    size_t n_held, capacity;
};

/* Allocates the buffer that push and flush need. The caller sets `text`, `user` and `sequence`. */
ddl_status ddl_detokenizer_init(struct ddl_detokenizer *d, const ddl_tokenizer *tokenizer,
                                const char *const *stop, size_t n_stop, struct ddl_error *err);
void ddl_detokenizer_free(struct ddl_detokenizer *d); /* a zeroed struct is allowed */

/* Appends a token. *stopped is set if it completes a stop string, also inside of what could become a longer
 * one; the text before that has been passed on. Returns the result of `text`, or 0 if it was not called. */
int ddl_detokenizer_push(struct ddl_detokenizer *d, int32_t id, bool *stopped);
/* Passes on the text that is still held. */
int ddl_detokenizer_flush(struct ddl_detokenizer *d);

#endif
