/* Output of a matched width of the MLP. */
#ifndef DDL_CLI_MATCH_PRINT_H
#define DDL_CLI_MATCH_PRINT_H

#include "ddl/config.h"
#include "ddl/json.h"

#include <stdio.h>

/* "MLP width 57: 12345 parameters, ddl-1 has 12420 (-0.604 %)" and a newline. */
void print_match(FILE *out, const struct ddl_match *match);
/* The object "match". */
void print_match_json(struct ddl_json *json, const struct ddl_match *match);

#endif
