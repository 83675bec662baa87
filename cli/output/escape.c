#define _POSIX_C_SOURCE 200809L
#include "cli/output/escape.h"

#include "ddl/text.h"
#include "ddl/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *printable_bytes(const char *text, size_t n)
{
    static _Thread_local char buffers[16][8192];
    static _Thread_local unsigned next;
    char *out = buffers[next++ % 16];
    ddl_text_escape(out, sizeof buffers[0], text, n);
    return out;
}

const char *printable(const char *text)
{
    if (!text)
        return "";
    size_t n = strlen(text);
    return ddl_text_escape(NULL, 0, text, n) == n ? text : printable_bytes(text, n);
}

bool is_utf8(const char *bytes, size_t size)
{
    for (size_t at = 0, length; at < size; at += length) {
        length = ddl_utf8_length(bytes + at, size - at);
        if (length == 0)
            return false;
    }
    return true;
}

void print_generated(FILE *file, const char *text, size_t n)
{
    if (isatty(fileno(file)) != 1) {
        fwrite(text, 1, n, file);
        return;
    }
    for (size_t at = 0, length; at < n; at += length) {
        length = ddl_utf8_length(text + at, n - at);
        length += length == 0;
        if (text[at] == '\n' || text[at] == '\t')
            putc(text[at], file);
        else
            fputs(printable_bytes(text + at, length), file);
    }
}

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
            fputs(printable_bytes(bytes + at, length), stdout);
        length += length == 0;
    }
}

void print_csv_field(const char *text)
{
    text = printable(text);
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
        char escaped[16];
        if (length == 0 || ddl_text_escape(escaped, sizeof escaped, text, length) != length) {
            length += length == 0;
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
    for (text = printable(text); *text; text++) {
        if (strchr("|`\\", *text))
            printf("\\%c", *text);
        else if (strchr("&<>", *text))
            printf("&%s;", *text == '&' ? "amp" : *text == '<' ? "lt" : "gt");
        else
            putchar(*text);
    }
}

void print_foreign_name(const char *text, bool markdown)
{
    if (markdown)
        print_markdown_text(text);
    else
        fputs(printable(text), stdout);
}
