#include "base/utf8.h"

#include <stdbool.h>

/* What may follow a lead byte: the total length, and the range of the second byte. Later bytes are 80 to
 * BF. */
struct lead {
    size_t size;
    unsigned char low, high;
};

static struct lead lead_of(unsigned char byte)
{
    if (byte < 0x80)
        return (struct lead){ 1, 0, 0 };
    if (byte < 0xC2 || byte > 0xF4)
        return (struct lead){ 0, 0, 0 };
    size_t size = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    unsigned char low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    unsigned char high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    return (struct lead){ size, low, high };
}

/* True if s[1..n-1], at most size - 1 bytes, may follow the lead byte. */
static bool continues(struct lead lead, const unsigned char *s, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
        if (s[i] < low || s[i] > high)
            return false;
    }
    return true;
}

size_t ddl_utf8_decode(const unsigned char *s, size_t n, uint32_t *code)
{
    struct lead lead = lead_of(s[0]);
    if (lead.size == 0 || lead.size > n || !continues(lead, s, lead.size))
        return 0;
    static const unsigned char mask[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    *code = s[0] & mask[lead.size];
    for (size_t i = 1; i < lead.size; i++)
        *code = *code << 6 | (s[i] & 0x3Fu);
    return lead.size;
}

bool ddl_utf8_is_valid(const char *text, size_t size)
{
    uint32_t code;
    for (size_t i = 0, n; i < size; i += n) {
        n = ddl_utf8_decode((const unsigned char *)text + i, size - i, &code);
        if (n == 0)
            return false;
    }
    return true;
}

size_t ddl_utf8_encode(uint32_t code, char out[4])
{
    static const unsigned char first[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(first[size] | code);
    return size;
}

bool ddl_utf8_is_hidden(uint32_t c)
{
    return (c >= 0x80 && c <= 0x9F) || c == 0x61C || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

size_t ddl_utf8_incomplete_tail(const unsigned char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        struct lead lead = lead_of(s[n - back]);
        if (lead.size > back && continues(lead, s + n - back, back))
            return back;
        if (lead.size)
            return 0;
    }
    return 0;
}
