#include "escape.h"

#include "ddl/tokenizer.h"

#include <stdio.h>
#include <string.h>

void print_field_text(const char *bytes, size_t size)
{
    for (size_t at = 0, length; at < size; at += length) {
        unsigned char c = (unsigned char)bytes[at];
        length = ddl_utf8_length(bytes + at, size - at);
        if (c == '\t' || c == '\n' || c == '\r' || c == '\\')
            printf("\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : c == '\r' ? 'r' : '\\');
        else if (length == 0 || c < 0x20 || c == 0x7F)
            printf("\\x%02X", c);
        else
            fwrite(bytes + at, 1, length, stdout);
        length += length == 0;
    }
}

void print_csv_field(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

void print_markdown_text(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
}
