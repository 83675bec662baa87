/* Text in one line of output. */
#ifndef DDL_CLI_ESCAPE_H
#define DDL_CLI_ESCAPE_H

#include <stddef.h>

/* Prints the bytes with escapes for what would not stay in a field of one line: \t, \n, \r, \\, and \xHH for
 * each byte of another control character or that is not UTF-8. */
void print_field_text(const char *bytes, size_t size);

#endif
