/* Finds positions at which a text can be split without changing its token ids. GPT-2's pre-tokenizer splits
 * a text by
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * and BPE never merges across two matches. Matching proceeds from left to right without backtracking over
 * earlier matches, so the text after a boundary is matched independently of the text before it. The text
 * before a boundary is matched independently of the text after it if its last match could neither have been
 * extended nor used lookahead. No alternative contains white space after another character, or characters of
 * two of the classes letter, digit and sign (except for the apostrophe of contractions), and only runs of
 * white space use lookahead. So a text may be cut
 *
 *   - between a character that is not white space and white space;
 *   - between a letter or a digit and a character of another of the three classes;
 *   - between a sign other than the apostrophe and a letter or a digit;
 *
 * and never after white space. Only ASCII characters are classified here. Of the others, a well-formed
 * character that is not white space may precede a cut before a space or a line break. */
#include "data/cut.h"

#include <stdint.h>

enum kind { UNKNOWN, SPACE, LETTER, DIGIT, SIGN };

static enum kind kind_of(unsigned char c)
{
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t')
        return SPACE;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return LETTER;
    if (c >= '0' && c <= '9')
        return DIGIT;
    return c > ' ' && c < 0x7f ? SIGN : UNKNOWN;
}

/* True for code points that any version of Unicode, or any library, treats as white space. */
static bool may_be_space(uint32_t c)
{
    return c < 0xa1 || c == 0x1680 || c == 0x180e || (c >= 0x2000 && c < 0x2070) || c == 0x3000 ||
           c == 0xfeff;
}

/* True if a well-formed character of two or more bytes that is not white space ends at text[end - 1]. */
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
    enum kind before = kind_of(text[p - 1]), after = kind_of(text[p]);
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
        if (t[p] == '\n' && kind_of(t[p - 1]) == LETTER)
            return p;
        if (!any && may_cut(t, p))
            any = p;
        /* Prefer a line break, but do not search all of a long line for one. */
        if (any && any - p > 4096)
            break;
    }
    return any;
}
