#include "ddl/text.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

size_t ddl_text_escape(char *out, size_t size, const char *text, size_t n)
{
    size_t total = 0, used = 0;
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c = 0;
        char escape[16];
        const char *shown = text + at;
        length = ddl_utf8_decode((const unsigned char *)text + at, n - at, &c);
        size_t bytes = length;
        if (length == 0 || c < 0x20 || c == 0x7f) {
            length = 1;
            bytes = (size_t)snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)text[at]);
            shown = escape;
        } else if (ddl_utf8_is_hidden(c)) {
            bytes = (size_t)snprintf(escape, sizeof escape, "\\u{%04x}", (unsigned)c);
            shown = escape;
        }
        if (used == total && total + bytes < size) {
            memcpy(out + used, shown, bytes);
            used += bytes;
        }
        total += bytes;
    }
    if (size)
        out[used] = '\0';
    return total;
}

void ddl_text_append(char *out, size_t size, const char *separator, const char *name)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used ? separator : "", name);
}
