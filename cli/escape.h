/* Text in one line of output. */
#ifndef DDL_CLI_ESCAPE_H
#define DDL_CLI_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/* Prints the bytes with escapes for what would not stay in a field of one line: \t, \n, \r, \\, and \xHH for
 * each byte of another control character or that is not UTF-8. */
void print_field_text(const char *bytes, size_t size);

/* Prints a CSV field, quoted where RFC 4180 requires it. */
void print_csv_field(const char *text);

/* Writes text with the characters escaped that XML and HTML reserve; bytes that are not UTF-8 and control
 * characters become "?". */
void put_xml_text(FILE *out, const char *text);

/* Prints the text of a cell of a Markdown table: each | is escaped. */
void print_markdown_text(const char *text);

#endif
