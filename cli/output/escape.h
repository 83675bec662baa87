/* Text in one line of output. */
#ifndef DDL_CLI_ESCAPE_H
#define DDL_CLI_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* `text`, from a file, a folder or an argument, for printf: as it is, or with the escapes of ddl_text_escape
 * if a terminal would take part of it for a command. Then it is in one of 16 buffers that are used in turn,
 * and cut off after 8 KB. Every text that is not the program's own is printed through it; NULL is "". */
const char *printable(const char *text);
/* The same for `n` bytes. */
const char *printable_bytes(const char *text, size_t n);

/* Whether the bytes are whole UTF-8 characters. */
bool is_utf8(const char *bytes, size_t size);

/* Prints text that a model has generated, or ids have: unchanged, but on a terminal with the escapes of
 * `printable` except for newlines and tabs. */
void print_generated(FILE *file, const char *text, size_t n);

/* Prints the bytes with escapes for what would not stay in a field of one line: \t, \n, \r, \\, and \xHH for
 * each byte of another control character or that is not UTF-8. */
void print_field_text(const char *bytes, size_t size);

/* Prints a CSV field as `printable`, quoted where RFC 4180 requires it. */
void print_csv_field(const char *text);

/* Writes text with the characters escaped that XML and HTML reserve; bytes that are not UTF-8 and control
 * characters become "?". */
void put_xml_text(FILE *out, const char *text);

/* Prints text in Markdown, on one line: |, ` and \\ are escaped, & < > become entities. */
void print_markdown_text(const char *text);

/* Prints a name as `printable` or, in Markdown, as print_markdown_text. */
void print_foreign_name(const char *text, bool markdown);

#endif
