/* base/option.c: values and error messages, conversion to text, suggestions, and the command line. */
#include "support/support.h"

#include "ddl/option.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct thing {
    bool flag;
    size_t count;
    uint64_t seed;
    float lr;
    double share;
    char out[8];
    int kind;
    float any;
    size_t free_count;
    uint64_t every;
    bool fused;
};

static const char *const kinds[] = { "token", "channel", "mix", NULL };
#define AT(field) offsetof(struct thing, field)
static const struct ddl_option table[] = {
    { "flag", DDL_OPTION_BOOL, AT(flag), 0, 0, 0, NULL, NULL, "a switch" },
    { "batch_count", DDL_OPTION_SIZE, AT(count), 0, 1, 1000, NULL, "N", "a count" },
    { "seed", DDL_OPTION_U64, AT(seed), 0, 0, 0, NULL, "N", "a seed" },
    { "lr", DDL_OPTION_FLOAT, AT(lr), 0, 0, 10, NULL, "X", "a rate" },
    { "share", DDL_OPTION_DOUBLE, AT(share), 0, -1, 1, NULL, "X", "a share" },
    { "out", DDL_OPTION_STRING, AT(out), sizeof((struct thing *)0)->out, 0, 0, NULL, "DIR", "a folder" },
    { "kind", DDL_OPTION_CHOICE, AT(kind), 0, 0, 0, kinds, "KIND", "a kind" },
    { 0 },
};
static const struct ddl_option table2[] = {
    { "any", DDL_OPTION_FLOAT, AT(any), 0, 0, 0, NULL, "X", "any number" },
    { "free_count", DDL_OPTION_SIZE, AT(free_count), 0, 0, 0, NULL, "N", "any count" },
    { "every", DDL_OPTION_U64, AT(every), 0, 1, 1000, NULL, "N", "an interval", "interval each_steps",
      "steps/20" },
    { "fused", DDL_OPTION_BOOL, AT(fused), 0, 0, 0, NULL, NULL, "another switch", "joined" },
    { 0 },
};

static const struct ddl_option *row(const char *name)
{
    const struct ddl_option *found = ddl_option_find(table, name);
    return found ? found : ddl_option_find(table2, name);
}

static void names(void **state)
{
    (void)state;
    assert_ptr_equal(ddl_option_find(table, "batch-count"), &table[1]);
    assert_ptr_equal(ddl_option_find(table, "batch_count"), &table[1]);
    assert_null(ddl_option_find(table, "batch"));
    assert_null(ddl_option_find(table, "batch_counts"));
    assert_null(ddl_option_find(table, ""));
    assert_ptr_equal(ddl_option_find(table2, "interval"), &table2[2]);
    assert_ptr_equal(ddl_option_find(table2, "each-steps"), &table2[2]);
    assert_null(ddl_option_find(table2, "interval each_steps"));
    assert_null(ddl_option_find(table2, "steps"));
    assert_null(ddl_option_find(NULL, "lr"));
}

static void nearest(void **state)
{
    (void)state;
    assert_string_equal(ddl_option_nearest(table, "batch-cuont")->name, "batch_count");
    assert_string_equal(ddl_option_nearest(table, "sed")->name, "seed");
    assert_string_equal(ddl_option_nearest(table, "rl")->name, "lr");
    assert_string_equal(ddl_option_nearest(table2, "intervals")->name, "every");
    assert_null(ddl_option_nearest(table, "temperature"));
    char long_name[400];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_null(ddl_option_nearest(table, long_name));

    struct ddl_error err;
    assert_int_equal(ddl_option_unknown(table, "recipe.yaml:7", "key", "shar", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "recipe.yaml:7: unknown key 'shar', did you mean 'share'?");
    ddl_option_unknown(table, NULL, "key", "temperature", &err);
    assert_string_equal(err.text, "unknown key 'temperature'");
}

static void good_values(void **state)
{
    (void)state;
    struct ddl_error err;
    struct thing t = { 0 };
#define SET(name, text) assert_ok(ddl_option_set(row(name), &t, text, "here", &err), err)
    const char *const yes[] = { "true", "yes", "on", "1" }, *const no[] = { "false", "no", "off", "0" };
    for (int i = 0; i < 4; i++) {
        SET("flag", yes[i]);
        assert_true(t.flag);
        SET("flag", no[i]);
        assert_false(t.flag);
    }
    SET("batch_count", "1000");
    assert_int_equal(t.count, 1000);
    SET("seed", "18446744073709551615");
    assert_true(t.seed == UINT64_MAX);
    SET("free_count", "0");
    SET("lr", "3e-4");
    assert_true(t.lr == 3e-4f);
    SET("lr", "10");
    SET("share", "-0.25");
    assert_true(t.share == -0.25);
    SET("any", "-3.4e38");
    assert_true(t.any == -3.4e38f);
    SET("out", "1234567");
    assert_string_equal(t.out, "1234567");
    SET("out", "");
    SET("kind", "mix");
    assert_int_equal(t.kind, 2);
#undef SET
}

/* An option that may be repeated keeps all values, a line each, while they fit. */
static void repeated_values(void **state)
{
    (void)state;
    struct lines {
        char force[12];
    } lines = { "" };
    static const struct ddl_option rows[] = {
        { .name = "force", .type = DDL_OPTION_STRINGS, .size = sizeof lines.force }, { 0 }
    };
    char *argv[] = { "ddl", "--force", "a=1", "x", "--force=b=2", "--force", "c=3", NULL };
    struct ddl_error err;
    char text[32];
    int n;
    assert_ok(ddl_option_parse(rows, &lines, NULL, NULL, 7, argv, &n, &err), err);
    assert_string_equal(lines.force, "a=1\nb=2\nc=3");
    ddl_option_format(rows, &lines, text, sizeof text);
    assert_string_equal(text, lines.force);
    assert_int_equal(n, 1);
    assert_int_equal(ddl_option_set(rows, &lines, "", "--force", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "--force: expected values of at most 11 bytes together, found 12");
}

/* "auto" is a value of the options that have a rule, and is none of the others. */
static void automatic_values(void **state)
{
    (void)state;
    struct ddl_error err;
    struct thing t = { .count = 1 };
    char text[32];
    assert_ok(ddl_option_set(row("every"), &t, "auto", "x", &err), err);
    assert_true(t.every == DDL_OPTION_AUTO);
    ddl_option_format(row("every"), &t, text, sizeof text);
    assert_string_equal(text, "auto");
    assert_ok(ddl_option_check(table2, &t, &err), err);
    assert_ok(ddl_option_set(row("every"), &t, "7", "x", &err), err);
    assert_true(t.every == 7);
    assert_int_equal(ddl_option_set(row("seed"), &t, "auto", "x", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "x: 'auto' is not a whole number");
}

static void same_values(void **state)
{
    (void)state;
    static const struct {
        const char *name, *a, *b;
        bool same;
    } cases[] = {
        { "lr", "1e-3", "0.001", true },     { "lr", "1e-3", "1e-4", false },
        { "flag", "yes", "true", true },     { "flag", "off", "1", false },
        { "every", "auto", "auto", true },   { "every", "auto", "7", false },
        { "kind", "mix", "mix", true },      { "kind", "mix", "token", false },
        { "out", "runs/a", "runs/a", true }, { "out", "a", "b", false },
        { "batch_count", "07", "7", true },  { "share", "1/3", "1/3", false },
        { "kind", "mixed", "mixed", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ddl_option_same(row(cases[i].name), cases[i].a, cases[i].b), cases[i].same);
}

static void bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *message;
    } cases[] = {
        { "flag", "maybe", "--x: 'maybe' is not true or false" },
        { "flag", "", "--x: '' is not true or false" },
        { "batch_count", "abc", "--x: 'abc' is not a whole number" },
        { "batch_count", "12k", "--x: '12k' is not a whole number" },
        { "batch_count", " 12", "--x: ' 12' is not a whole number" },
        { "batch_count", "1.5", "--x: '1.5' is not a whole number" },
        { "batch_count", "", "--x: '' is not a whole number" },
        { "batch_count", "-", "--x: '-' is not a whole number" },
        { "batch_count", "0", "--x: 0 is out of range (1 to 1000)" },
        { "batch_count", "-3", "--x: -3 is out of range (1 to 1000)" },
        { "batch_count", "1001", "--x: 1001 is out of range (1 to 1000)" },
        { "free_count", "-1", "--x: -1 is out of range (0 to 18446744073709551615)" },
        { "seed", "18446744073709551616",
          "--x: 18446744073709551616 is out of range (0 to 18446744073709551615)" },
        { "lr", "abc", "--x: 'abc' is not a number" },
        { "lr", "1.0x", "--x: '1.0x' is not a number" },
        { "lr", "", "--x: '' is not a number" },
        { "lr", "0x10", "--x: '0x10' is not a number" },
        { "lr", "nan", "--x: 'nan' is not a number" },
        { "lr", "inf", "--x: 'inf' is not a number" },
        { "lr", "e", "--x: 'e' is not a number" },
        { "lr", "5e9", "--x: 5e9 is out of range (0 to 10)" },
        { "lr", "-1e-9", "--x: -1e-9 is out of range (0 to 10)" },
        { "any", "1e39", "--x: 1e39 is out of range" },
        { "share", "1e999", "--x: 1e999 is out of range (-1 to 1)" },
        { "out", "12345678", "--x: '12345678...' has 8 bytes, at most 7 fit" },
        { "kind", "tokens", "--x: 'tokens' is none of token, channel, mix" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct thing t = { .count = 5, .lr = 2, .kind = 1 }, before = t;
        struct ddl_error err;
        assert_int_equal(ddl_option_set(row(cases[i].name), &t, cases[i].text, "--x", &err), DDL_E_USAGE);
        assert_string_equal(err.text, cases[i].message);
        assert_memory_equal(&t, &before, sizeof t);
        assert_int_equal(ddl_option_set(row(cases[i].name), &t, cases[i].text, "--x", NULL), DDL_E_USAGE);
    }
}

static void format_reads_back(void **state)
{
    (void)state;
    static const float floats[] = { 0,       1e-5f,        0.1f,     10000,  FLT_MAX,
                                    FLT_MIN, FLT_TRUE_MIN, 1 / 3.0f, -0.02f, 123456792 };
    static const char *const texts[] = { "0", "1e-05", "0.1", "10000" };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        struct thing t = { .any = floats[i] };
        struct ddl_error err;
        char text[64];
        ddl_option_format(row("any"), &t, text, sizeof text);
        if (i < 4)
            assert_string_equal(text, texts[i]);
        t.any = 7;
        assert_ok(ddl_option_set(row("any"), &t, text, "x", &err), err);
        assert_true(t.any == floats[i]);
    }
    struct thing t = { .flag = true, .count = 12, .seed = UINT64_MAX, .share = 1 / 3.0, .kind = 1 };
    strcpy(t.out, "abc");
    static const struct {
        const char *name, *text;
    } cases[] = {
        { "flag", "true" },    { "batch_count", "12" }, { "seed", "18446744073709551615" },
        { "kind", "channel" }, { "out", "abc" },        { "share", "0.3333333333333333" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        ddl_option_format(row(cases[i].name), &t, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    char shortened[4];
    ddl_option_format(row("share"), &t, shortened, sizeof shortened);
    assert_string_equal(shortened, "0.3");
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        double min, max;
        const char *text;
    } cases[] = {
        { 0, 0, "" },
        { 1, 1000, "1 to 1000" },
        { -1, 0.1, "-1 to 0.1" },
        { 1, 9007199254740992.0, "1 to 9007199254740992" }, /* 2^53 */
        { 1e-8, 0.95, "1e-08 to 0.95" },
    };
    char text[64], shortened[4];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ddl_option option = { .min = cases[i].min, .max = cases[i].max };
        ddl_option_range(&option, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        ddl_option_range(&option, shortened, sizeof shortened);
        assert_true(strncmp(shortened, cases[i].text, 3) == 0 && strlen(shortened) <= 3);
    }
}

/* Values in a struct are checked against the rows as parsed values are. */
static void values_that_came_from_c(void **state)
{
    (void)state;
    const struct thing good = { .count = 5, .lr = 10, .share = -1, .kind = 2 };
    struct {
        struct thing thing;
        const char *message;
    } cases[] = {
        { good, NULL },
        { good, "batch_count: 0 is out of range (1 to 1000)" },
        { good, "batch_count: 18446744073709551615 is out of range (1 to 1000)" },
        { good, "lr: 10.000001 is out of range (0 to 10)" },
        { good, "lr: 'nan' is not a number" },
        { good, "share: '-inf' is not a number" },
        { good, "kind: 3 is out of range (0 to 2)" },
        { good, "kind: -1 is out of range (0 to 2)" },
    };
    cases[1].thing.count = 0;
    cases[2].thing.count = SIZE_MAX;
    cases[3].thing.lr = nextafterf(10, 11);
    cases[4].thing.lr = NAN;
    cases[5].thing.share = -INFINITY;
    cases[6].thing.kind = 3;
    cases[7].thing.kind = -1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err = { 0 };
        ddl_status status = ddl_option_check(table, &cases[i].thing, &err);
        assert_int_equal(status, cases[i].message ? DDL_E_USAGE : DDL_OK);
        assert_string_equal(err.text, cases[i].message ? cases[i].message : "");
        assert_int_equal(ddl_option_check(table, &cases[i].thing, NULL), status);
    }
}

/* Splits `line` at spaces and parses it; the positional arguments come back joined by '|'. */
static ddl_status parse(struct thing *t, const char *line, char *positional, size_t size,
                        struct ddl_error *err)
{
    char copy[600];
    char *argv[32];
    int argc = 0, n = -1;
    snprintf(copy, sizeof copy, "prog %s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    ddl_status status = ddl_option_parse(table, t, table2, t, argc, argv, &n, err);
    positional[0] = '\0';
    for (int i = 1; !status && i <= n; i++) {
        size_t used = strlen(positional);
        snprintf(positional + used, size - used, "%s%s", i > 1 ? "|" : "", argv[i]);
    }
    return status;
}

static void command_line(void **state)
{
    (void)state;
    struct thing t = { .flag = true };
    struct ddl_error err;
    char rest[200];
    assert_ok(parse(&t,
                    "a.yaml --batch-count 7 --lr=2.5 b --no-flag --any -2 --share -0.5 - -7 -- --kind --lr",
                    rest, sizeof rest, &err),
              err);
    assert_string_equal(rest, "a.yaml|b|-|-7|--kind|--lr");
    assert_int_equal(t.count, 7);
    assert_true(t.lr == 2.5f && t.any == -2 && t.share == -0.5 && !t.flag);

    assert_ok(parse(&t, "--flag dir --free_count=9 --kind=mix --out=a=b", rest, sizeof rest, &err), err);
    assert_string_equal(rest, "dir");
    assert_true(t.flag && t.free_count == 9 && t.kind == 2);
    assert_string_equal(t.out, "a=b");

    assert_ok(parse(&t, "--flag false x", rest, sizeof rest, &err), err);
    assert_string_equal(rest, "x");
    assert_false(t.flag);
    assert_ok(parse(&t, "--no-flag true", rest, sizeof rest, &err), err);
    assert_string_equal(rest, "true");
    assert_ok(parse(&t, "--out=--x --flag", rest, sizeof rest, &err), err);
    assert_string_equal(t.out, "--x");
    assert_ok(parse(&t, "", rest, sizeof rest, &err), err);
}

/* Aliases set the same field; the last value counts, unless two names disagree. */
static void command_line_aliases(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
        uint64_t every;
    } cases[] = {
        { "--interval 3", NULL, 3 },
        { "--each-steps=auto", NULL, DDL_OPTION_AUTO },
        { "--every 3 --every 4", NULL, 4 },
        { "--each-steps 3 x --each_steps 4", NULL, 4 },
        { "--every 4 -- --interval 3", NULL, 4 },
        { "--interval 04 --every 4", NULL, 4 },
        { "--interval 3 --every 4", "--every 4: the same option as --interval 3: expected one value", 0 },
        { "--lr 2 x --every 3 --each-steps=4",
          "--each-steps 4: the same option as --every 3: expected one value", 0 },
        { "--every 1 --joined --no-fused",
          "--fused false: the same option as --joined true: expected one value", 0 },
        { "--every 1 --joined --no-joined", NULL, 1 },
        { "--intervall 3", "unknown option '--intervall', did you mean '--every'?", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct thing t = { 0 };
        struct ddl_error err = { 0 };
        char rest[200];
        assert_int_equal(parse(&t, cases[i].line, rest, sizeof rest, &err),
                         cases[i].message ? DDL_E_USAGE : DDL_OK);
        assert_string_equal(err.text, cases[i].message ? cases[i].message : "");
        assert_true(cases[i].message || t.every == cases[i].every);
    }
}

static void command_line_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {
        { "--batch-cont 3", "unknown option '--batch-cont', did you mean '--batch-count'?" },
        { "--free-cuont=3", "unknown option '--free-cuont', did you mean '--free-count'?" },
        { "--temperature 3", "unknown option '--temperature'" },
        { "--no-lr", "unknown option '--no-lr'" },
        { "-x", "unknown option '-x'" },
        { "-sed 3", "unknown option '-sed', did you mean '--seed'?" },
        { "--lr", "--lr: missing argument: expected X" },
        { "--lr --seed 3", "--lr: missing argument: expected X" },
        { "--lr abc", "--lr: 'abc' is not a number" },
        { "--batch-count=0", "--batch-count: 0 is out of range (1 to 1000)" },
        { "--flag=3", "--flag: '3' is not true or false" },
        { "--no-flag=true", "--no-flag: takes no value, found 'true'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct thing t = { 0 };
        struct ddl_error err;
        char rest[200];
        assert_int_equal(parse(&t, cases[i].line, rest, sizeof rest, &err), DDL_E_USAGE);
        assert_string_equal(err.text, cases[i].message);
    }
    char long_flag[500] = "--";
    memset(long_flag + 2, 'x', 400);
    long_flag[402] = '\0';
    struct thing t = { 0 };
    struct ddl_error err;
    char rest[200];
    assert_int_equal(parse(&t, long_flag, rest, sizeof rest, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "unknown option '--xxx"));
}

/* By any name, with either value of a switch; not what follows "--". */
static void given_rows(void **state)
{
    (void)state;
    char program[] = "prog", no_flag[] = "--no-flag", any[] = "--any=2", out[] = "--out", seed[] = "seed",
         end[] = "--", lr[] = "--lr=1";
    char *argv[] = { program, no_flag, any, out, seed, end, lr };
    bool given[7];
    ddl_option_find_given(table, table2, 7, argv, given);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(given[i], i == 0 || i == 5);
}

static void without_tables(void **state)
{
    (void)state;
    char program[] = "prog", a[] = "a";
    char *argv[] = { program, a };
    int n;
    struct ddl_error err;
    assert_ok(ddl_option_parse(NULL, NULL, NULL, NULL, 2, argv, &n, &err), err);
    assert_int_equal(n, 1);
    char flag[] = "--a";
    argv[1] = flag;
    assert_int_equal(ddl_option_parse(NULL, NULL, NULL, NULL, 2, argv, &n, &err), DDL_E_USAGE);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(nearest),
        cmocka_unit_test(good_values),
        cmocka_unit_test(repeated_values),
        cmocka_unit_test(automatic_values),
        cmocka_unit_test(same_values),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(format_reads_back),
        cmocka_unit_test(ranges),
        cmocka_unit_test(values_that_came_from_c),
        cmocka_unit_test(command_line),
        cmocka_unit_test(command_line_aliases),
        cmocka_unit_test(command_line_errors),
        cmocka_unit_test(given_rows),
        cmocka_unit_test(without_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
