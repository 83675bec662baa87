#include "ddl/option.h"

#include "base/locale.h"
#include "base/option_names.h"
#include "ddl/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 128 }; /* longer names are never options */

/* '-' and '_' are one character. */
static char plain(char c)
{
    return c == '-' ? '_' : c;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && plain(*a) == plain(*b); a++, b++)
        continue;
    return *a == '\0' && *b == '\0';
}

const struct ddl_option *ddl_option_find(const struct ddl_option *table, const char *name)
{
    char own[MAX_NAME];
    for (; table && table->name; table++) {
        for (size_t i = 0; ddl_option_name(table, i, own, sizeof own); i++) {
            if (same_name(own, name))
                return table;
        }
        for (const struct ddl_other_name *other = table->others; other && other->name; other++) {
            if (other->kind == DDL_OTHER_SAME && same_name(other->name, name))
                return table;
        }
    }
    return NULL;
}

const struct ddl_option *ddl_option_nearest(const struct ddl_option *table, const char *name)
{
    struct ddl_suggestion suggestion;
    ddl_suggest(table, NULL, name, false, &suggestion);
    return suggestion.n ? suggestion.rows[0] : NULL;
}

/* ---- values ---- */

bool ddl_option_is_path(const struct ddl_option *option)
{
    return option->type == DDL_OPTION_PATH || option->type == DDL_OPTION_PATHS;
}

bool ddl_option_is_text(const struct ddl_option *option)
{
    return option->type == DDL_OPTION_STRING || option->type == DDL_OPTION_STRINGS ||
           ddl_option_is_path(option);
}

static void *field_of(const struct ddl_option *option, void *object)
{
    return (char *)object + option->offset;
}

static const void *const_field_of(const struct ddl_option *option, const void *object)
{
    return (const char *)object + option->offset;
}

static bool has_range(const struct ddl_option *option)
{
    return option->min != 0 || option->max != 0;
}

/* The shortest of the usual forms that reads back as the same number: 0.1, not 0.100000001. */
static void format_float(float value, char *out, size_t size)
{
    for (int digits = FLT_DIG; digits <= FLT_DECIMAL_DIG; digits++) {
        ddl_format_double(out, size, digits, 'g', (double)value);
        if (ddl_parse_float(out, NULL) == value)
            return;
    }
}

static void format_double(double value, char *out, size_t size)
{
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        ddl_format_double(out, size, digits, 'g', value);
        if (ddl_parse_double(out, NULL) == value)
            return;
    }
}

void ddl_option_range(const struct ddl_option *option, char *out, size_t size)
{
    char min[64], max[64];
    format_double(option->min, min, sizeof min);
    format_double(option->max, max, sizeof max);
    if (has_range(option))
        snprintf(out, size, "%s to %s", min, max);
    else
        snprintf(out, size, "%s", "");
}

static ddl_status out_of_range(const struct ddl_option *option, const char *text, const char *where,
                               struct ddl_error *err)
{
    char range[160];
    ddl_option_range(option, range, sizeof range);
    if (!*range && (option->type == DDL_OPTION_U64 || option->type == DDL_OPTION_SIZE))
        snprintf(range, sizeof range, "0 to %llu", ULLONG_MAX);
    return ddl_error_set(err, DDL_E_USAGE, "%s: %.80s is out of range%s%s%s", where, text, *range ? " (" : "",
                         range, *range ? ")" : "");
}

static bool in_range(const struct ddl_option *option, double value)
{
    return !has_range(option) || (value >= option->min && value <= option->max);
}

static ddl_status set_bool(const struct ddl_option *option, void *field, const char *text, const char *where,
                           struct ddl_error *err)
{
    static const char *const words[] = { "false", "true", "no", "yes", "off", "on", "0", "1" };
    (void)option;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i]) == 0) {
            *(bool *)field = i % 2 == 1;
            return DDL_OK;
        }
    }
    return ddl_error_set(err, DDL_E_USAGE, "%s: '%.80s' is not true or false", where, text);
}

static ddl_status set_integer(const struct ddl_option *option, void *field, const char *text,
                              const char *where, struct ddl_error *err)
{
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (option->automatic && strcmp(text, "auto") == 0) {
        *(uint64_t *)field = DDL_OPTION_AUTO;
        return DDL_OK;
    }
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return ddl_error_set(err, DDL_E_USAGE, "%s: '%.80s' is not a whole number", where, text);
    errno = 0;
    unsigned long long value = strtoull(digits, NULL, 10);
    uint64_t most = option->type == DDL_OPTION_SIZE ? SIZE_MAX : UINT64_MAX;
    bool fits = errno == 0 && value <= most && !(*text == '-' && value != 0);
    if (!fits || !in_range(option, (double)value))
        return out_of_range(option, text, where, err);
    if (option->type == DDL_OPTION_SIZE)
        *(size_t *)field = (size_t)value;
    else
        *(uint64_t *)field = value;
    return DDL_OK;
}

static ddl_status set_real(const struct ddl_option *option, void *field, const char *text, const char *where,
                           struct ddl_error *err)
{
    /* Decimal numbers only: strtod alone would also take leading space, hexadecimal, "inf" and "nan". */
    char *end = NULL;
    double value = 0;
    bool decimal = *text && text[strspn(text, "0123456789+-.eE")] == '\0';
    if (decimal)
        value = ddl_parse_double(text, &end);
    if (!decimal || end == text || *end != '\0')
        return ddl_error_set(err, DDL_E_USAGE, "%s: '%.80s' is not a number", where, text);
    bool is_float = option->type == DDL_OPTION_FLOAT;
    float narrow = is_float ? ddl_parse_float(text, NULL) : 0;
    if (!isfinite(value) || !isfinite(narrow) || !in_range(option, value))
        return out_of_range(option, text, where, err);
    if (is_float)
        *(float *)field = narrow;
    else
        *(double *)field = value;
    return DDL_OK;
}

static ddl_status set_string(const struct ddl_option *option, void *field, const char *text,
                             const char *where, struct ddl_error *err)
{
    size_t length = strlen(text);
    if (length >= option->size)
        return ddl_error_set(err, DDL_E_USAGE, "%s: '%.40s...' has %zu bytes, at most %zu fit", where, text,
                             length, option->size - 1);
    memcpy(field, text, length + 1);
    return DDL_OK;
}

/* Appends the text, after a newline if it is not the first. */
static ddl_status append_string(const struct ddl_option *option, void *field, const char *text,
                                const char *where, struct ddl_error *err)
{
    char *values = field;
    size_t used = strlen(values), length = strlen(text);
    if (used + (used > 0) + length >= option->size)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected values of at most %zu bytes together, found %zu",
                             where, option->size - 1, used + (used > 0) + length);
    if (used > 0)
        values[used++] = '\n';
    memcpy(values + used, text, length + 1);
    return DDL_OK;
}

static ddl_status set_choice(const struct ddl_option *option, void *field, const char *text,
                             const char *where, struct ddl_error *err)
{
    char list[512] = "";
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *(int *)field = i;
            return DDL_OK;
        }
        ddl_text_append(list, sizeof list, ", ", option->choices[i]);
    }
    return ddl_error_set(err, DDL_E_USAGE, "%s: '%.80s' is none of %s", where, text, list);
}

ddl_status ddl_option_set(const struct ddl_option *option, void *object, const char *text, const char *where,
                          struct ddl_error *err)
{
    static ddl_status (*const setters[])(const struct ddl_option *, void *, const char *, const char *,
                                         struct ddl_error *) = {
        [DDL_OPTION_BOOL] = set_bool,     [DDL_OPTION_SIZE] = set_integer,
        [DDL_OPTION_U64] = set_integer,   [DDL_OPTION_FLOAT] = set_real,
        [DDL_OPTION_DOUBLE] = set_real,   [DDL_OPTION_STRING] = set_string,
        [DDL_OPTION_CHOICE] = set_choice, [DDL_OPTION_PATH] = set_string,
        [DDL_OPTION_PATHS] = set_string,  [DDL_OPTION_STRINGS] = append_string,
    };
    assert((unsigned)option->type < sizeof setters / sizeof *setters);
    return setters[option->type](option, field_of(option, object), text, where, err);
}

void ddl_option_format(const struct ddl_option *option, const void *object, char *out, size_t size)
{
    const void *field = const_field_of(option, object);
    char number[64];
    switch (option->type) {
    case DDL_OPTION_BOOL:
        snprintf(out, size, "%s", *(const bool *)field ? "true" : "false");
        break;
    case DDL_OPTION_SIZE:
        snprintf(out, size, "%zu", *(const size_t *)field);
        break;
    case DDL_OPTION_U64:
        if (option->automatic && *(const uint64_t *)field == DDL_OPTION_AUTO)
            snprintf(out, size, "auto");
        else
            snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case DDL_OPTION_FLOAT:
        format_float(*(const float *)field, number, sizeof number);
        snprintf(out, size, "%s", number);
        break;
    case DDL_OPTION_DOUBLE:
        format_double(*(const double *)field, number, sizeof number);
        snprintf(out, size, "%s", number);
        break;
    case DDL_OPTION_STRING:
    case DDL_OPTION_PATH:
    case DDL_OPTION_PATHS:
    case DDL_OPTION_STRINGS:
        snprintf(out, size, "%s", (const char *)field);
        break;
    case DDL_OPTION_CHOICE:
        snprintf(out, size, "%s", option->choices[*(const int *)field]);
        break;
    }
}

ddl_status ddl_choice_check(const char *name, const char *const *choices, int value, struct ddl_error *err)
{
    int n = 0;
    while (choices[n])
        n++;
    if (value < 0 || value >= n)
        return ddl_error_set(err, DDL_E_USAGE, "%s: %d is out of range (0 to %d)", name, value, n - 1);
    return DDL_OK;
}

/* A field of any type but STRING and PATHS, with the row that describes it. */
struct lone_field {
    union {
        bool flag;
        size_t size;
        uint64_t u64;
        float single;
        double real;
        int choice;
    } value;
    struct ddl_option row;
};

static ddl_status set_lone(struct lone_field *field, const struct ddl_option *option, const char *text,
                           struct ddl_error *err)
{
    *field = (struct lone_field){ .row = *option };
    field->row.offset = 0;
    return ddl_option_set(&field->row, &field->value, text, option->name, err);
}

bool ddl_option_normalize(const struct ddl_option *option, const char *text, char *out, size_t size)
{
    struct lone_field field;
    if (set_lone(&field, option, text, NULL))
        return false;
    ddl_option_format(&field.row, &field.value, out, size);
    return true;
}

bool ddl_option_same(const struct ddl_option *option, const char *a, const char *b)
{
    char text[2][128];
    if (ddl_option_is_text(option))
        return strcmp(a, b) == 0;
    return ddl_option_normalize(option, a, text[0], sizeof text[0]) &&
           ddl_option_normalize(option, b, text[1], sizeof text[1]) && strcmp(text[0], text[1]) == 0;
}

/* The check of ddl_option_set, on a copy of the field. */
static ddl_status check_number(const struct ddl_option *option, const void *object, struct ddl_error *err)
{
    struct lone_field copy;
    char text[64];
    ddl_option_format(option, object, text, sizeof text);
    return set_lone(&copy, option, text, err);
}

ddl_status ddl_option_check(const struct ddl_option *table, const void *object, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (const struct ddl_option *row = table; !status && row->name; row++) {
        if (row->type == DDL_OPTION_CHOICE)
            status =
                ddl_choice_check(row->name, row->choices, *(const int *)const_field_of(row, object), err);
        else if (!ddl_option_is_text(row))
            status = check_number(row, object, err);
    }
    return status;
}

ddl_status ddl_option_unknown(const struct ddl_option *table, const char *where, const char *kind,
                              const char *name, struct ddl_error *err)
{
    const char *colon = where && *where ? ": " : "";
    struct ddl_suggestion suggestion;
    char text[512];
    ddl_suggest(table, NULL, name, true, &suggestion);
    ddl_suggestion_text(&suggestion, "", text, sizeof text);
    ddl_error_set(err, DDL_E_USAGE, "%s%sunknown %s '%.80s'%s", where ? where : "", colon, kind, name, text);
    if (err)
        err->has_no_hint = suggestion.n == 0;
    return DDL_E_USAGE;
}

ddl_status ddl_option_missing(const char *where, const char *expected, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_USAGE, "%s: missing argument: expected %s", where, expected);
}

/* ---- the command line ---- */

struct pair {
    const struct ddl_option *table[2];
    void *object[2];
};

/* One argument that starts with "--", taken apart. */
struct flag {
    char name[MAX_NAME];
    const char *value;        /* what follows '=', or NULL */
    const char *const *paths; /* PATHS: the n_paths arguments of its value */
    size_t n_paths;
    const struct ddl_option *option;
    void *object;
    bool negated;
};

static bool look_up(const struct pair *pair, const char *name, struct flag *flag)
{
    for (int i = 0; i < 2; i++) {
        flag->option = ddl_option_find(pair->table[i], name);
        flag->object = pair->object[i];
        if (flag->option)
            return true;
    }
    return false;
}

static ddl_status unknown_flag(const struct pair *pair, const char *argument, const char *name,
                               struct ddl_error *err)
{
    struct ddl_suggestion suggestion;
    char text[512], alone[MAX_NAME + 1];
    int length = (int)strcspn(argument, "=");
    snprintf(alone, sizeof alone, "%.*s", (int)strcspn(name, "="), name);
    bool negated = strncmp(alone, "no-", 3) == 0 || strncmp(alone, "no_", 3) == 0;
    ddl_suggest(pair->table[0], pair->table[1], alone + (negated ? 3 : 0), !negated, &suggestion);
    if (negated && suggestion.n && suggestion.rows[0]->type != DDL_OPTION_BOOL)
        suggestion.n = 0;
    ddl_suggestion_text(&suggestion, negated ? "--no-" : "--", text, sizeof text);
    ddl_error_set(err, DDL_E_USAGE, "unknown option '%.*s'%s", length < 80 ? length : 80, argument, text);
    if (err)
        err->has_no_hint = suggestion.n == 0;
    return DDL_E_USAGE;
}

static ddl_status read_flag(const struct pair *pair, const char *argument, struct flag *flag,
                            struct ddl_error *err)
{
    *flag = (struct flag){ 0 };
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    if (name[length] == '=')
        flag->value = name + length + 1;
    if (length >= sizeof flag->name)
        return unknown_flag(pair, argument, name, err);
    memcpy(flag->name, name, length);
    if (look_up(pair, flag->name, flag))
        return DDL_OK;
    bool no = strncmp(flag->name, "no-", 3) == 0 || strncmp(flag->name, "no_", 3) == 0;
    if (!no || !look_up(pair, flag->name + 3, flag) || flag->option->type != DDL_OPTION_BOOL)
        return unknown_flag(pair, argument, flag->name, err);
    flag->negated = true;
    return DDL_OK;
}

static const char *extension_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    return dot ? dot : "";
}

/* How many arguments argv[i], the value of a PATHS flag, and those after it belong together. */
static size_t count_paths(int argc, char **argv, int i)
{
    const char *extension = extension_of(argv[i]);
    size_t n = 1;
    while (*extension && i + (int)n < argc && strcmp(extension_of(argv[i + (int)n]), extension) == 0 &&
           strncmp(argv[i + (int)n], "--", 2) != 0)
        n++;
    return n;
}

/* The value of a BOOL flag: what follows '=', the next argument if it is one, or what the flag says. */
static ddl_status take_bool(struct flag *flag, const char *next, int *i, const char *where,
                            struct ddl_error *err)
{
    if (flag->negated && flag->value)
        return ddl_error_set(err, DDL_E_USAGE, "%s: takes no value, found '%.80s'", where, flag->value);
    if (flag->value)
        return DDL_OK;
    if (!flag->negated && next && ddl_option_same(flag->option, next, next)) {
        flag->value = next;
        ++*i;
    } else {
        flag->value = flag->negated ? "false" : "true";
    }
    return DDL_OK;
}

/* Reads the flag argv[*i] and its value; *i moves on if that is the next argument. */
static ddl_status take_flag(const struct pair *pair, int argc, char **argv, int *i, struct flag *flag,
                            struct ddl_error *err)
{
    char where[MAX_NAME + 2];
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    ddl_status status = read_flag(pair, argv[*i], flag, err);
    if (status)
        return status;
    snprintf(where, sizeof where, "--%s", flag->name);
    if (flag->option->type == DDL_OPTION_BOOL)
        return take_bool(flag, next, i, where, err);
    if (flag->value)
        return DDL_OK;
    if (!next || strncmp(next, "--", 2) == 0)
        return ddl_option_missing(where, flag->option->value ? flag->option->value : "VALUE", err);
    flag->value = next;
    ++*i;
    if (flag->option->type == DDL_OPTION_PATHS) {
        flag->paths = (const char *const *)argv + *i;
        flag->n_paths = count_paths(argc, argv, *i);
        *i += (int)flag->n_paths - 1;
    }
    return DDL_OK;
}

/* "--name" or "--name=value"; "--" alone ends the flags. */
static bool is_flag(const char *argument)
{
    return strncmp(argument, "--", 2) == 0 && argument[2] != '\0';
}

/* The flag's name without a leading "no-". */
static const char *spelling(const struct flag *flag)
{
    return flag->name + (flag->negated ? 3 : 0);
}

/* An earlier flag, before argv[end], may not name the same option otherwise and with another value. */
static ddl_status check_names(const struct pair *pair, const struct flag *flag, int argc, char **argv,
                              int end, struct ddl_error *err)
{
    for (int i = 1; i < end; i++) {
        struct flag earlier;
        if (!is_flag(argv[i]) || take_flag(pair, argc, argv, &i, &earlier, NULL))
            continue;
        if (earlier.option == flag->option && !same_name(spelling(&earlier), spelling(flag)) &&
            !ddl_option_same(flag->option, earlier.value, flag->value))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "--%s %.80s: the same option as --%s %.80s: expected one value",
                                 spelling(flag), flag->value, spelling(&earlier), earlier.value);
    }
    return DDL_OK;
}

static ddl_status apply_flag(const struct pair *pair, int argc, char **argv, int *i, struct ddl_error *err)
{
    struct flag flag;
    char where[MAX_NAME + 2];
    int at = *i;
    ddl_status status = take_flag(pair, argc, argv, i, &flag, err);
    if (!status && (flag.option->aliases || flag.option->others))
        status = check_names(pair, &flag, argc, argv, at, err);
    snprintf(where, sizeof where, "--%s", flag.name);
    if (status)
        return status;
    if (flag.n_paths > 1)
        return ddl_option_join_paths(flag.paths, flag.n_paths, where, field_of(flag.option, flag.object),
                                     flag.option->size, err);
    return ddl_option_set(flag.option, flag.object, flag.value, where, err);
}

ddl_status ddl_option_parse(const struct ddl_option *table, void *object, const struct ddl_option *table2,
                            void *object2, int argc, char **argv, int *n_positional, struct ddl_error *err)
{
    const struct pair pair = { { table, table2 }, { object, object2 } };
    int kept = 0, end = 1;
    *n_positional = 0;
    for (; end < argc && strcmp(argv[end], "--") != 0; end++) {
        ddl_status status = DDL_OK;
        if (is_flag(argv[end]))
            status = apply_flag(&pair, argc, argv, &end, err);
        else if (argv[end][0] == '-' && isalpha((unsigned char)argv[end][1]))
            status = unknown_flag(&pair, argv[end], argv[end] + 1, err);
        if (status)
            return status;
    }
    for (int i = 1; i < argc; i++) {
        struct flag flag;
        if (i < end && is_flag(argv[i]))
            (void)take_flag(&pair, argc, argv, &i, &flag, NULL);
        else if (i != end)
            argv[++kept] = argv[i];
    }
    *n_positional = kept;
    return DDL_OK;
}

void ddl_option_find_given(const struct ddl_option *table, const struct ddl_option *table2, int argc,
                           char **argv, bool *given)
{
    const struct pair pair = { { table, table2 }, { given, NULL } };
    for (size_t i = 0; table[i].name; i++)
        given[i] = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        struct flag flag;
        if (is_flag(argv[i]) && !take_flag(&pair, argc, argv, &i, &flag, NULL) && flag.object == given)
            given[flag.option - table] = true;
    }
}
