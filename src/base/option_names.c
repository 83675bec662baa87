#include "base/option_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Longer names resemble nothing. */
enum { MAX_NAME = 128, MAX_WORDS = 16, MAX_HELP_WORDS = 160 };

/* ---- names ---- */

bool ddl_option_name(const struct ddl_option *option, size_t i, char *out, size_t size)
{
    const char *from = i ? option->aliases : option->name;
    for (; from && i > 1; i--) {
        from = strchr(from, ' ');
        from = from ? from + 1 : NULL;
    }
    if (from)
        snprintf(out, size, "%.*s", (int)strcspn(from, " "), from);
    return from != NULL;
}

/* Lower case, and '_' for '-': what is compared. False if the name is too long. */
static bool normalize(const char *name, char out[MAX_NAME])
{
    size_t n = strlen(name);
    if (n >= MAX_NAME)
        return false;
    for (size_t i = 0; i <= n; i++)
        out[i] = (char)(name[i] == '-' ? '_' : tolower((unsigned char)name[i]));
    return true;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbors that turn a (n bytes) into b (m bytes); both
 * shorter than MAX_NAME. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][MAX_NAME + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min_size(replace, 1 + min_size(last[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

/* The most edits that still are a typo, in the shorter of two names. Two letters may be swapped. */
static size_t most_edits(size_t n, size_t m)
{
    size_t shorter = min_size(n, m);
    if (shorter <= 2)
        return n == 2 && m == 2;
    return shorter <= 5 ? 1 : shorter <= 11 ? 2 : 3;
}

/* Whether b has the letters of a in another order: a swap, where the distance is 1. */
static bool is_permutation(const char *a, const char *b)
{
    int counts[256] = { 0 };
    for (; *a && *b; a++, b++) {
        counts[(unsigned char)*a]++;
        counts[(unsigned char)*b]--;
    }
    for (size_t i = 0; i < 256; i++) {
        if (counts[i])
            return false;
    }
    return *a == *b;
}

/* In two names of at most three letters a replaced letter makes another name. */
static bool is_typo(const char *a, size_t n, const char *b, size_t m, size_t distance)
{
    return distance <= most_edits(n, m) && (n != m || n > 3 || is_permutation(a, b));
}

/* ---- words ---- */

struct words {
    struct word {
        const char *text; /* in the name, not terminated */
        size_t n;
    } word[MAX_HELP_WORDS];
    size_t n;
};

/* Splits at everything that is no letter or digit; the first `most` words. */
static void split(const char *text, size_t most, struct words *out)
{
    out->n = 0;
    while (*text && out->n < most) {
        size_t n = 0;
        while (isalnum((unsigned char)text[n]))
            n++;
        if (n)
            out->word[out->n++] = (struct word){ text, n };
        text += n + (text[n] != '\0');
    }
}

/* Words that say little about what an option is. */
static bool is_generic(const struct word *w)
{
    static const char *const generic[] = { "a",   "an",   "and",    "as",   "at",   "by",   "for",   "from",
                                           "in",  "is",   "max",    "min",  "n",    "no",   "num",   "of",
                                           "on",  "or",   "per",    "size", "the",  "to",   "use",   "set",
                                           "get", "with", "number", "name", "file", "path", "value", "dir" };
    for (size_t i = 0; i < sizeof generic / sizeof *generic; i++) {
        if (strlen(generic[i]) == w->n && memcmp(generic[i], w->text, w->n) == 0)
            return true;
    }
    return false;
}

/* How far two words are from being equal: 0, 1 (a plural, or an abbreviation of at least three letters), or 2
 * (others). */
static int word_difference(const struct word *a, const struct word *b)
{
    const struct word *shorter = a->n < b->n ? a : b, *longer = a->n < b->n ? b : a;
    if (memcmp(shorter->text, longer->text, shorter->n) != 0)
        return 2;
    if (a->n == b->n)
        return 0;
    bool plural = shorter->n >= 2 && longer->n == shorter->n + 1 && longer->text[shorter->n] == 's';
    return plural || shorter->n >= 3 ? 1 : 2;
}

/* The words of `some` that `all` has too, in the same order; *inexact counts those that are not equal. The
 * generic words of `some` may be missing; *missing counts the others. */
static size_t common_words(const struct words *some, const struct words *all, size_t *inexact,
                           size_t *missing)
{
    size_t found = 0, next = 0;
    *inexact = *missing = 0;
    for (size_t i = 0; i < some->n; i++) {
        size_t j = next;
        while (j < all->n && word_difference(&some->word[i], &all->word[j]) == 2)
            j++;
        if (j < all->n) {
            *inexact += (size_t)word_difference(&some->word[i], &all->word[j]);
            found += some->word[i].n > 1 && !is_generic(&some->word[i]);
            next = j + 1;
        } else {
            *missing += !is_generic(&some->word[i]);
        }
    }
    return found;
}

static size_t count_specific(const struct words *words)
{
    size_t n = 0;
    for (size_t i = 0; i < words->n; i++)
        n += !is_generic(&words->word[i]);
    return n;
}

/* ---- the distance of a name ---- */

/* Kinds of resemblance, the strongest first. Within one, a smaller number is better. */
enum { SAME = 0, ONE_EDIT = 1, PREFIX = 2, WORDS = 100, EDITS = 200, LONGER = 300, NONE = 1000 };

/* How far `name` is from `own`, a name of an option; both normalized. */
static size_t distance_of(const char *name, const char *own)
{
    size_t n = strlen(name), m = strlen(own), inexact, missing;
    size_t edits = edit_distance(name, n, own, m);
    bool typo = is_typo(name, n, own, m, edits);
    struct words words, own_words;
    if (edits == 0)
        return SAME;
    if (typo && edits == 1)
        return ONE_EDIT;
    if (n >= 3 && n < m && memcmp(name, own, n) == 0)
        return PREFIX + min_size(m - n, WORDS - PREFIX - 1);
    split(name, MAX_WORDS, &words);
    split(own, MAX_WORDS, &own_words);
    size_t found = common_words(&words, &own_words, &inexact, &missing);
    if (found && !missing)
        return WORDS + min_size(4 * (count_specific(&own_words) - found) + inexact, EDITS - WORDS - 1);
    if (typo)
        return EDITS + edits;
    /* All words of the option, and at most one more. */
    found = common_words(&own_words, &words, &inexact, &missing);
    if (found && !missing && !inexact && count_specific(&words) <= found + 1)
        return LONGER + count_specific(&words) - found;
    return NONE;
}

static size_t distance_of_row(const struct ddl_option *row, const char *name)
{
    size_t least = NONE;
    char own[MAX_NAME], plain[MAX_NAME];
    for (size_t i = 0; ddl_option_name(row, i, own, sizeof own); i++) {
        if (normalize(own, plain))
            least = min_size(least, distance_of(name, plain));
    }
    return least;
}

/* Whether all specific words of the name, of four letters or more, are words of the help text. */
static bool help_has(const struct ddl_option *row, const char *name)
{
    char text[1024];
    struct words words, help;
    size_t found = 0, n = 0;
    for (; row->help && row->help[n] && n + 1 < sizeof text; n++)
        text[n] = (char)tolower((unsigned char)row->help[n]);
    text[n] = '\0';
    split(name, MAX_WORDS, &words);
    split(text, MAX_HELP_WORDS, &help);
    for (size_t i = 0; i < words.n; i++) {
        const struct word *w = &words.word[i];
        bool has = false;
        if (is_generic(w))
            continue;
        for (size_t j = 0; j < help.n && !has; j++)
            has = w->n >= 4 && help.word[j].n + 1 >= w->n && w->n + 1 >= help.word[j].n &&
                  word_difference(w, &help.word[j]) < 2;
        if (!has)
            return false;
        found++;
    }
    return found > 0;
}

/* ---- the search ---- */

/* `name` may be the letter of an option "-x" of another program. */
static const struct ddl_other_name *other_of(const struct ddl_option *row, const char *name)
{
    char plain[MAX_NAME];
    for (const struct ddl_other_name *other = row->others; other && other->name; other++) {
        if (other->kind != DDL_OTHER_SAME && normalize(other->name + (*other->name == '-'), plain) &&
            strcmp(plain, name) == 0)
            return other;
    }
    return NULL;
}

static bool find_other(const struct ddl_option *table, const char *name, struct ddl_suggestion *out)
{
    for (; table && table->name; table++) {
        const struct ddl_other_name *other = other_of(table, name);
        if (other) {
            *out = (struct ddl_suggestion){ { table }, 1, other, false };
            return true;
        }
    }
    return false;
}

/* Adds the rows whose distance is *least, and restarts with each that is nearer. */
static void add_nearest(const struct ddl_option *table, const char *name, size_t *least, size_t *all,
                        struct ddl_suggestion *out)
{
    for (; table && table->name; table++) {
        size_t distance = distance_of_row(table, name);
        if (distance >= NONE || distance > *least)
            continue;
        if (distance < *least)
            *all = out->n = 0;
        *least = distance;
        ++*all;
        if (out->n < DDL_SUGGESTIONS)
            out->rows[out->n++] = table;
    }
}

static void add_by_help(const struct ddl_option *table, const char *name, size_t *all,
                        struct ddl_suggestion *out)
{
    for (; table && table->name; table++) {
        if (!help_has(table, name))
            continue;
        ++*all;
        if (out->n < DDL_SUGGESTIONS)
            out->rows[out->n++] = table;
    }
}

void ddl_suggest(const struct ddl_option *table, const struct ddl_option *table2, const char *name, bool help,
                 struct ddl_suggestion *out)
{
    char plain[MAX_NAME];
    size_t least = NONE, all = 0;
    *out = (struct ddl_suggestion){ .n = 0 };
    if (!normalize(name, plain) || find_other(table, plain, out) || find_other(table2, plain, out))
        return;
    add_nearest(table, plain, &least, &all, out);
    add_nearest(table2, plain, &least, &all, out);
    /* A resemblance to many names, or a vague one to several, says nothing. */
    if (all > DDL_SUGGESTIONS || (least >= LONGER && all > 1))
        out->n = 0;
    if (out->n || !help)
        return;
    all = 0;
    add_by_help(table, plain, &all, out);
    add_by_help(table2, plain, &all, out);
    out->by_help = out->n > 0;
    if (all > DDL_SUGGESTIONS)
        *out = (struct ddl_suggestion){ .n = 0 };
}

static size_t write_name(const char *name, const char *prefix, char *out, size_t size)
{
    int n = snprintf(out, size, "'%s%s'", prefix, name);
    for (char *c = out; *prefix && *c; c++)
        *c = *c == '_' ? '-' : *c;
    return min_size((size_t)n, size - 1);
}

void ddl_suggestion_text(const struct ddl_suggestion *suggestion, const char *prefix, char *out, size_t size)
{
    const struct ddl_other_name *other = suggestion->other;
    size_t used = 0;
    *out = '\0';
    if (suggestion->n == 0)
        return;
    if (other && other->kind == DDL_OTHER_NONE) {
        snprintf(out, size, ": %s", other->advice);
        return;
    }
    used += (size_t)snprintf(out, size, suggestion->by_help ? ", see " : ", did you mean ");
    for (size_t i = 0; i < suggestion->n; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s",
                                 i == 0                  ? ""
                                 : i + 1 < suggestion->n ? ", "
                                                         : " or ");
        used += write_name(suggestion->rows[i]->name, prefix, out + used, size - used);
    }
    if (suggestion->by_help && suggestion->n == 1)
        snprintf(out + used, size - used, ": %s", suggestion->rows[0]->help);
    else if (!suggestion->by_help)
        snprintf(out + used, size - used, other && other->advice ? "? %s" : "?",
                 other && other->advice ? other->advice : "");
}
