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

void put_xml_text(FILE *out, const char *text)
{
    for (size_t length, left = strlen(text); left > 0; text += length, left -= length) {
        length = ddl_utf8_length(text, left);
        if (length == 0 || (unsigned char)*text < 0x20) {
            length = 1;
            putc('?', out);
        } else if (strchr("&<>\"", *text)) {
            fprintf(out, "&#%d;", *text);
        } else {
            fwrite(text, 1, length, out);
        }
    }
}

void print_markdown_text(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
}
