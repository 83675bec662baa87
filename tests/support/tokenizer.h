/* The tokenizer that ships, for the tests of a program that need it: set up and torn down with the group. */
#ifndef DDL_TEST_TOKENIZER_H
#define DDL_TEST_TOKENIZER_H

#include "support/support.h"

#include "ddl/tokenizer.h"

extern ddl_tokenizer *tokenizer; /* data/tokenizer, between the two */
int load_tokenizer(void **state);
int unload_tokenizer(void **state);

#endif
