/* GPT-2's pre-tokeniser splits a text into
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * and BPE never joins two of its matches. Matching goes from left to right without looking back, so what
 * follows a boundary between matches does not depend on what precedes it; and the part before the boundary is
 * matched the same way without the rest if its last match neither could have gone on nor looked ahead into
 * it. No alternative holds white space after something else, or two of letters, digits and signs, the
 * apostrophe of the contractions aside, and only runs of white space look ahead. So a text may be cut
 *
 *   - between anything that is not white space and white space;
 *   - between a letter or a digit and one of another of the three classes;
 *   - between a sign other than the apostrophe and a letter or a digit;
 *
 * and never after white space. Classes are known here for ASCII alone; of what is not ASCII, a well-formed
 * character that is no white space may stand before a space or a line break. */
#include "data/cut.h"

#include <stdint.h>

enum class { UNKNOWN, SPACE, LETTER, DIGIT, SIGN };

static enum class class_of(unsigned char c) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return SPACE;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return LETTER;
    if (c >= '0' && c <= '9') return DIGIT;
    return c > ' ' && c < 0x7f ? SIGN : UNKNOWN;
}

/* Code points that some version of Unicode or some library calls white space. */
static bool may_be_space(uint32_t c)
{
    return c < 0xa1 || c == 0x1680 || c == 0x180e || (c >= 0x2000 && c < 0x2070) || c == 0x3000 ||
           c == 0xfeff;
}

/* Whether a well-formed character of two or more bytes, not white space, ends at text[end - 1]. */
static bool ends_in_character(const unsigned char *text, size_t end)
{
    size_t n = 1;
    while (n < 4 && n < end && (text[end - n] & 0xc0) == 0x80)
        n++;
    unsigned char lead = text[end - n];
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    if (lead > 0xf4 || wanted != n || n == 1)
        return false;
    uint32_t c = lead & (0xffu >> (n + 1));
    for (size_t i = end - n + 1; i < end; i++)
        c = c << 6 | (text[i] & 0x3fu);
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    return c >= least[n] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) && !may_be_space(c);
}

static bool may_cut(const unsigned char *text, size_t p)
{
    enum class before = class_of(text[p - 1]), after = class_of(text[p]);
    switch (before) {
    case LETTER:
    case DIGIT:
        return after != UNKNOWN && after != before;
    case SIGN:
        return after == SPACE || (text[p - 1] != '\'' && (after == LETTER || after == DIGIT));
    case UNKNOWN:
        return after == SPACE && text[p - 1] >= 0x80 && ends_in_character(text, p);
    default:
        return false;
    }
}

size_t ddl_cut_find(const char *text, size_t size, bool at_space)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t any = 0;
    for (size_t p = size; p-- > 1;) {
        if (at_space && t[p] != ' ')
            continue;
        if (t[p] == '\n' && class_of(t[p - 1]) == LETTER)
            return p;
        if (!any && may_cut(t, p))
            any = p;
        /* A line break is preferred, not looked for throughout a long line. */
        if (any && any - p > 4096)
            break;
    }
    return any;
}
