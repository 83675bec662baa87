/* Sums of an evaluation by group. Ranks send what they know of each token, and all of them add it up in the
 * order of the tokens: answers may begin in the batch of one rank and end in that of another. */
#ifndef DDL_INFER_EVAL_GROUPS_H
#define DDL_INFER_EVAL_GROUPS_H

#include "ddl/eval.h"

#include <stdbool.h>

/* A token of a window. */
struct ddl_eval_mark {
    float loss;    /* in nats, of a counted token */
    int16_t group; /* 0: ignored; DDL_EVAL_NO_TOKEN: scored by another window, or beyond the end */
    bool correct;  /* greedy decoding chooses the token */
};
enum { DDL_EVAL_NO_TOKEN = -1 };

/* The sums, and the answer that is open: zero but for `groups`. */
struct ddl_eval_sums {
    struct ddl_eval_group *groups; /* (DDL_MASK_GROUPS), zero at first */
    int open;                      /* group of the answer, 0: none */
    bool exact;                    /* all of its tokens so far are correct */
};

void ddl_eval_sums_add(struct ddl_eval_sums *sums, const struct ddl_eval_mark *marks, size_t n);
/* Ends the last answer. */
void ddl_eval_sums_end(struct ddl_eval_sums *sums);

#endif
