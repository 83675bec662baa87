/* Trains a tokenizer on texts that a function provides. */
#ifndef DDL_TEXT_TRAIN_H
#define DDL_TEXT_TRAIN_H

#include "ddl/tokenizer.h"

/* A text, valid until the next call. size may be 0: nothing is available yet, or the text is empty. */
struct ddl_text_chunk {
    const char *text;
    size_t size;
    uint64_t bytes_in; /* of the inputs read so far */
    bool end;          /* there is no further text; text and size are ignored */
};
struct ddl_text_source {
    /* Returns the next text within 0.2 seconds; a text is split into pieces independently of the others. */
    ddl_status (*next)(void *user, struct ddl_text_chunk *chunk, struct ddl_error *err);
    void *user;
    uint64_t bytes_total; /* 0: unknown */
};

/* As ddl_tokenizer_train, whose configuration is already checked. */
ddl_status ddl_tokenizer_train_texts(ddl_tokenizer **out, const struct ddl_tokenizer_train_config *config,
                                     const struct ddl_text_source *source,
                                     ddl_tokenizer_train_progress_fn *progress, void *user,
                                     struct ddl_error *err);

#endif
