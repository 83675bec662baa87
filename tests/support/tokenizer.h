/* A tokenizer for the tests of a program that need one: set up and torn down with the group. */
#ifndef DDL_TEST_TOKENIZER_H
#define DDL_TEST_TOKENIZER_H

#include "support/support.h"

#include "ddl/tokenizer.h"

extern ddl_tokenizer *tokenizer;
extern char tokenizer_path[1024]; /* where `tokenizer` is stored */
int load_tokenizer(void **state); /* the one that ships: data/tokenizer */
/* A small one, which is read a hundred times as fast: at most 400 tokens, among them the words of its source;
 * <|endoftext|> is 0. */
int learn_tokenizer(void **state);
int unload_tokenizer(void **state);

#endif
