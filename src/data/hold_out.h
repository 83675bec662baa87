/* Holds out the end of a text: for a build in which the selection of documents leaves the training or the
 * validation set empty, as it does for a single document. */
#ifndef DDL_DATA_HOLD_OUT_H
#define DDL_DATA_HOLD_OUT_H

#include "data/shard_set.h"
#include "ddl/tokenizer.h"

struct ddl_hold_out {
    struct ddl_shard_set *set; /* with tokens in one split only */
    const ddl_tokenizer *tokenizer;
    int32_t end_of_text;
    double share; /* of the tokens to hold out, in (0, 1) */
    /* Called for every 65536 tokens; an error ends the work. */
    ddl_status (*check)(void *user, struct ddl_error *err);
    void *user;
    /* results */
    const char *at; /* what the held-out text begins with: "document", "line", "word" or "character" */
    uint64_t documents, bytes; /* held out; a document that is divided counts in both splits */
    bool divided;              /* a document is divided */
};

/* Moves the last tokens of the set to the validation shards, the others to the training shards. The cut is
 * near the requested share: at the nearest start of a document or line, else of a word, within 1024 tokens
 * and half of the smaller part; else at the nearest start of any kind within 1024 tokens. <|endoftext|>
 * precedes the rest of a divided document. Depends on the tokens only. DDL_E_FORMAT if there are fewer than
 * two tokens of text. */
ddl_status ddl_hold_out_end(struct ddl_hold_out *h, struct ddl_error *err);

#endif
