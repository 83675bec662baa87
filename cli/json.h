/* Text into JSON output. */
#ifndef DDL_CLI_JSON_H
#define DDL_CLI_JSON_H

#include <stddef.h>
#include <stdio.h>

/* A JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD. */
void print_json_string(FILE *out, const char *text, size_t size);

#endif
