#include "json.h"

/* Bytes of the UTF-8 character at text, 0 if it is none. */
static size_t character(const unsigned char *text, size_t size)
{
    unsigned char c = text[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xc2 && c < 0xe0 ? 2
               : c >= 0xe0 && c < 0xf0 ? 3
               : c >= 0xf0 && c < 0xf5 ? 4
                                       : 0;
    if (n == 0 || n > size)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Overlong forms, surrogates, beyond U+10FFFF. */
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] >= 0xa0) || (c == 0xf0 && text[1] < 0x90) ||
        (c == 0xf4 && text[1] >= 0x90))
        return 0;
    return n;
}

void print_json_string(FILE *out, const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    putc('"', out);
    for (size_t i = 0; i < size;) {
        size_t n = character(bytes + i, size - i);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (bytes[i] == '"' || bytes[i] == '\\')
            fprintf(out, "\\%c", bytes[i]);
        else if (bytes[i] < 0x20 || bytes[i] == 0x7f)
            fprintf(out, "\\u%04x", bytes[i]);
        else
            fwrite(bytes + i, 1, n, out);
        i += n ? n : 1;
    }
    putc('"', out);
}
