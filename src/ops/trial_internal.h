/* Shared by the files of ops/trial.h: contents of operands, their numbers, the check. */
#ifndef DDL_OPS_TRIAL_INTERNAL_H
#define DDL_OPS_TRIAL_INTERNAL_H

#include "ops/trial.h"

/* Whether a list such as ",k16,v16," (or NULL) has the name. */
bool trial_lists(const char *list, const char *name);
/* The ragged batch among the arguments; NULL if there is none. */
const struct ddl_ragged *trial_ragged(const struct ddl_trial *t);
bool trial_is_integer(const struct ddl_operand *o);
/* n random numbers of operand `which`, contiguous. */
void trial_draw(const struct ddl_trial *t, const struct ddl_trial_plan *plan, size_t which, void *to,
                size_t n);

ddl_status trial_out_of_memory(const struct ddl_trial *t, struct ddl_error *err);
size_t trial_count(const struct ddl_operand *o); /* its numbers, without gaps */
/* The block of operand i on the host, guards included; NULL: no memory. Free with ddl_mem_free. */
unsigned char *trial_fetch(const struct ddl_trial *t, size_t i);
/* Number i of an operand in such a block. */
const unsigned char *trial_element(const struct ddl_operand *o, const unsigned char *raw, size_t i);
/* Operand i as doubles; an 8-bit matrix dequantized. NULL: no memory. Free with ddl_mem_free. */
double *trial_numbers(const struct ddl_trial *t, size_t i);
/* Whether the op left what it may not write: all of an operand that is only read, what lies around and
 * between the rows of another. `before` is the same operand of a trial that was not called. */
ddl_status trial_check_untouched(const struct ddl_trial *t, const struct ddl_trial *before, size_t i,
                                 struct ddl_error *err);

#endif
