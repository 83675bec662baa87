#include "base/json_scan.h"

#include "base/utf8.h"

#include <string.h>

/* What may come next. */
enum { VALUE, FIRST_VALUE, FIRST_KEY, KEY, REST, DONE, FAILED };

static enum ddl_json_token fail(struct ddl_json_scan *s, const char *why)
{
    s->why = why;
    s->state = FAILED;
    return DDL_JSON_ERROR;
}

static bool skip_space(struct ddl_json_scan *s)
{
    const char *start = s->at;
    while (s->at < s->end && (size_t)(s->at - start) <= s->longest &&
           (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
    return (size_t)(s->at - start) <= s->longest;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits of \uXXXX, of which `at` is the backslash; -1 if there are none. */
static int32_t unicode_escape(const char *at, const char *end)
{
    int32_t value = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The character of the escape sequence at *at, which is moved behind it; -1 if it is none. */
static int32_t read_escape(const char **at, const char *end)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = end - *at >= 2 && (*at)[1] != '\0' ? strchr(names, (*at)[1]) : NULL;
    if (name) {
        *at += 2;
        return values[name - names];
    }
    int32_t c = unicode_escape(*at, end);
    if (c < 0)
        return -1;
    *at += 6;
    if (c >= 0xdc00 && c <= 0xdfff)
        return -1;
    if (c < 0xd800 || c > 0xdbff)
        return c;
    int32_t low = unicode_escape(*at, end);
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    *at += 6;
    return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* Reads a key or string; at is its first quote. */
static bool read_string(struct ddl_json_scan *s, bool is_key)
{
    const char *at = s->at + 1;
    s->value = at;
    s->escaped = false;
    for (;;) {
        const char *stop = (size_t)(s->end - at) > s->longest ? at + s->longest + 1 : s->end;
        while (at < stop && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
               *at != '\\')
            at++;
        if (at < s->end && (size_t)(at - s->value) <= s->longest && *at == '"')
            break;
        s->at = at;
        if ((size_t)(at - s->value) > s->longest)
            return fail(s, "a key or string is too long"), false;
        if (at == s->end)
            return fail(s, "premature end of input: a string is not closed"), false;
        if (*at == '\\') {
            int32_t c = read_escape(&at, s->end);
            if (c < 0)
                return fail(s, "invalid escape sequence"), false;
            if (c == 0 && is_key)
                return fail(s, "NUL byte in a key"), false;
            s->escaped = true;
            continue;
        }
        uint32_t code;
        size_t n = ddl_utf8_decode((const unsigned char *)at, (size_t)(s->end - at), &code);
        if ((unsigned char)*at < 0x20)
            return fail(s, "control character in a string"), false;
        if (n == 0)
            return fail(s, "a byte that is not UTF-8"), false;
        at += n;
    }
    s->size = (size_t)(at - s->value);
    s->at = at + 1;
    return true;
}

size_t ddl_json_unescape(const char *value, size_t size, char *out)
{
    const char *at = value, *end = value + size;
    size_t n = 0;
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((escape ? escape : end) - at);
        memmove(out + n, at, plain);
        n += plain;
        at += plain;
        if (escape)
            n += ddl_utf8_encode((uint32_t)read_escape(&at, end), out + n);
    }
    return n;
}

size_t ddl_json_scan_decode(const struct ddl_json_scan *s, char *out)
{
    return ddl_json_unescape(s->value, s->size, out);
}

bool ddl_json_scan_is(const struct ddl_json_scan *s, const char *text)
{
    size_t left = strlen(text);
    if (!s->escaped)
        return s->size == left && memcmp(s->value, text, left) == 0;
    for (const char *at = s->value, *end = at + s->size; at < end;) {
        char one[4] = { *at };
        size_t n = 1;
        if (*at == '\\')
            n = ddl_utf8_encode((uint32_t)read_escape(&at, end), one);
        else
            at++;
        if (n > left || memcmp(one, text, n) != 0)
            return false;
        text += n;
        left -= n;
    }
    return left == 0;
}

/* ---- other values ---- */

static const char *digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static bool read_number(struct ddl_json_scan *s)
{
    const char *at = s->at + (*s->at == '-'), *first = at;
    s->value = s->at;
    at = digits(at, s->end);
    bool valid = at > first && (*first != '0' || at == first + 1);
    if (valid && at < s->end && *at == '.') {
        first = at + 1;
        at = digits(first, s->end);
        valid = at > first;
    }
    if (valid && at < s->end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < s->end && (*at == '+' || *at == '-'))
            at++;
        first = at;
        at = digits(first, s->end);
        valid = at > first;
    }
    s->at = at;
    s->size = (size_t)(at - s->value);
    if (!valid)
        return fail(s, "invalid number"), false;
    if (s->size > s->longest)
        return fail(s, "a number is too long"), false;
    return true;
}

bool ddl_json_scan_size(const struct ddl_json_scan *s, size_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < s->size; i++) {
        if (s->value[i] < '0' || s->value[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s->value[i] - '0');
        if (value > (INT64_MAX - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    *out = (size_t)value;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static enum ddl_json_token read_word(struct ddl_json_scan *s)
{
    static const struct {
        const char *text;
        enum ddl_json_token token;
    } words[] = { { "true", DDL_JSON_TRUE }, { "false", DDL_JSON_FALSE }, { "null", DDL_JSON_NULL } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].text);
        if ((size_t)(s->end - s->at) >= n && memcmp(s->at, words[i].text, n) == 0 &&
            (s->at + n == s->end || !is_letter(s->at[n]))) {
            s->at += n;
            return words[i].token;
        }
    }
    return fail(s, "invalid token");
}

/* ---- structure ---- */

static void value_ended(struct ddl_json_scan *s)
{
    s->state = s->depth ? REST : DONE;
}

static bool in_array(const struct ddl_json_scan *s)
{
    unsigned top = s->depth - 1;
    return s->is_array[top / 8] >> top % 8 & 1;
}

static enum ddl_json_token open_value(struct ddl_json_scan *s, bool array)
{
    unsigned char bit = (unsigned char)(1u << s->depth % 8), *byte = &s->is_array[s->depth / 8];
    *byte = (unsigned char)(array ? *byte | bit : *byte & ~bit);
    s->depth++;
    s->at++;
    s->state = array ? FIRST_VALUE : FIRST_KEY;
    return array ? DDL_JSON_ARRAY : DDL_JSON_OBJECT;
}

static enum ddl_json_token close_value(struct ddl_json_scan *s)
{
    bool array = in_array(s);
    s->depth--;
    s->at++;
    value_ended(s);
    return array ? DDL_JSON_ARRAY_END : DDL_JSON_OBJECT_END;
}

static enum ddl_json_token read_value(struct ddl_json_scan *s)
{
    char c = *s->at;
    if (s->depth == DDL_JSON_DEPTH)
        return fail(s, "values are nested too deeply");
    if (c == '{' || c == '[')
        return open_value(s, c == '[');
    enum ddl_json_token token;
    if (c == '"')
        token = read_string(s, false) ? DDL_JSON_STRING : DDL_JSON_ERROR;
    else if (c == '-' || (c >= '0' && c <= '9'))
        token = read_number(s) ? DDL_JSON_NUMBER : DDL_JSON_ERROR;
    else
        token = read_word(s);
    if (token != DDL_JSON_ERROR)
        value_ended(s);
    return token;
}

static enum ddl_json_token read_key(struct ddl_json_scan *s)
{
    if (*s->at != '"')
        return fail(s, "expected a key in quotes");
    if (!read_string(s, true))
        return DDL_JSON_ERROR;
    if (!skip_space(s) || s->at == s->end || *s->at != ':')
        return fail(s, "expected ':' after a key");
    s->at++;
    s->state = VALUE;
    return DDL_JSON_KEY;
}

enum ddl_json_token ddl_json_scan_next(struct ddl_json_scan *s)
{
    if (s->state == FAILED)
        return DDL_JSON_ERROR;
    if (!skip_space(s))
        return fail(s, "too much white space");
    if (s->state == DONE)
        return s->at == s->end ? DDL_JSON_END : fail(s, "expected the end of the text");
    if (s->state == REST && s->at < s->end && *s->at == ',') {
        s->at++;
        s->state = in_array(s) ? VALUE : KEY;
        if (!skip_space(s))
            return fail(s, "too much white space");
    } else if (s->state == REST && s->at < s->end && *s->at != (in_array(s) ? ']' : '}')) {
        return fail(s, in_array(s) ? "expected ',' or ']'" : "expected ',' or '}'");
    }
    if (s->at == s->end)
        return fail(s, "premature end of input");
    if (s->state == REST || (s->state == FIRST_VALUE && *s->at == ']') ||
        (s->state == FIRST_KEY && *s->at == '}'))
        return close_value(s);
    return s->state == KEY || s->state == FIRST_KEY ? read_key(s) : read_value(s);
}

bool ddl_json_scan_skip(struct ddl_json_scan *s, enum ddl_json_token first)
{
    if (first == DDL_JSON_ERROR)
        return false;
    if (first != DDL_JSON_OBJECT && first != DDL_JSON_ARRAY)
        return true;
    for (unsigned outer = s->depth - 1; s->depth > outer;) {
        if (ddl_json_scan_next(s) == DDL_JSON_ERROR)
            return false;
    }
    return true;
}

void ddl_json_scan_position(const struct ddl_json_scan *s, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (const char *at = s->text; at < s->at; at++) {
        if (*at == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*at & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

const char *ddl_json_token_name(enum ddl_json_token token)
{
    static const char *const names[] = {
        [DDL_JSON_ERROR] = "invalid JSON", [DDL_JSON_END] = "nothing",
        [DDL_JSON_OBJECT] = "an object",   [DDL_JSON_OBJECT_END] = "the end of an object",
        [DDL_JSON_ARRAY] = "an array",     [DDL_JSON_ARRAY_END] = "the end of an array",
        [DDL_JSON_KEY] = "a key",          [DDL_JSON_STRING] = "a string",
        [DDL_JSON_NUMBER] = "a number",    [DDL_JSON_TRUE] = "true",
        [DDL_JSON_FALSE] = "false",        [DDL_JSON_NULL] = "null",
    };
    return names[token];
}

/* ---- whole texts ---- */

bool ddl_json_find(struct ddl_json_scan *s, const char *key, struct ddl_json_found *out)
{
    enum ddl_json_token token = ddl_json_scan_next(s);
    *out = (struct ddl_json_found){ .root = token, .type = DDL_JSON_END };
    bool is_object = token == DDL_JSON_OBJECT;
    if (!is_object && !ddl_json_scan_skip(s, token))
        return false;
    while (is_object && ddl_json_scan_next(s) == DDL_JSON_KEY) {
        bool wanted = ddl_json_scan_is(s, key);
        token = ddl_json_scan_next(s);
        if (wanted) {
            out->type = token;
            out->value = s->value;
            out->size = s->size;
        }
        if (!ddl_json_scan_skip(s, token))
            return false;
    }
    return ddl_json_scan_next(s) == DDL_JSON_END;
}

/* Bytes of jansson 2.14's structures and of the blocks of malloc that they are in: of an empty one, and for
 * each key or element (in tables that double). */
enum { OF_OBJECT = 256, OF_KEY = 128, OF_ARRAY = 160, OF_STRING = 96, OF_ELEMENT = 24, OF_NUMBER = 32 };

size_t ddl_json_tree_bytes(const char *text, size_t size, size_t limit)
{
    struct ddl_json_scan s = { .text = text, .at = text, .end = text + size, .longest = size };
    size_t total = 0;
    enum ddl_json_token token;
    while (total <= limit && (token = ddl_json_scan_next(&s)) != DDL_JSON_ERROR && token != DDL_JSON_END) {
        total += token == DDL_JSON_KEY ? OF_KEY + s.size : OF_ELEMENT;
        if (token == DDL_JSON_OBJECT)
            total += OF_OBJECT;
        else if (token == DDL_JSON_ARRAY)
            total += OF_ARRAY;
        else if (token == DDL_JSON_STRING)
            total += OF_STRING + s.size;
        else if (token == DDL_JSON_NUMBER)
            total += OF_NUMBER;
    }
    return total;
}
