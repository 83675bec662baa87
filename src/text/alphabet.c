#include "text/alphabet.h"

#include "base/utf8.h"

struct ddl_alphabet ddl_alphabet_make(void)
{
    struct ddl_alphabet a;
    for (size_t i = 0; i < sizeof a.byte / sizeof *a.byte; i++)
        a.byte[i] = -1;
    uint16_t next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        a.code[b] = printable ? (uint16_t)b : next++;
        a.byte[a.code[b]] = (int16_t)b;
    }
    size_t n = 0;
    for (size_t code = 0; code < sizeof a.byte / sizeof *a.byte; code++) {
        if (a.byte[code] >= 0)
            a.order[n++] = (unsigned char)a.byte[code];
    }
    return a;
}

bool ddl_alphabet_decode(const struct ddl_alphabet *alphabet, const char *text, size_t size, char *out,
                         size_t *n_out)
{
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t length = ddl_utf8_decode((const unsigned char *)text + at, size - at, &code);
        if (length == 0 || code >= sizeof alphabet->byte / sizeof *alphabet->byte || alphabet->byte[code] < 0)
            return false;
        out[n++] = (char)alphabet->byte[code];
        at += length;
    }
    *n_out = n;
    return true;
}

size_t ddl_alphabet_encode(const struct ddl_alphabet *alphabet, const char *bytes, size_t size, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ddl_utf8_encode(alphabet->code[(unsigned char)bytes[i]], out + n);
    return n;
}
