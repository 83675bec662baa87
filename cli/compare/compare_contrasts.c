/* The contrasts of ddl compare: tests, and their results in every form. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/escape.h"
#include "cli/output/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MAX_CONTRASTS = 256 };

/* Adds the contrasts of the lines, corrected together, to those of c. */
static ddl_status add_contrasts(struct compared *c, char *lines, const struct ddl_contrast_options *options,
                                struct ddl_error *err)
{
    const char *texts[MAX_CONTRASTS];
    size_t n = 0;
    while (*lines) {
        const size_t length = strcspn(lines, "\n");
        const bool last = !lines[length];
        if (length > 0 && n + c->n_contrasts == MAX_CONTRASTS)
            return ddl_error_set(err, DDL_E_USAGE, "--contrast: expected at most %d contrasts",
                                 MAX_CONTRASTS);
        if (length > 0)
            texts[n++] = lines;
        lines[length] = '\0';
        lines += length + !last;
    }
    ddl_status status = ddl_contrasts_test(c->contrasts + c->n_contrasts, &c->result, c->logs,
                                           (const char *const *)c->group_names, texts, n, options, err);
    c->n_contrasts += status ? 0 : n;
    return status;
}

ddl_status test_contrasts(struct compared *c, const char *lines, const struct ddl_contrast_options *options,
                          struct ddl_error *err)
{
    c->contrast_options = *options;
    c->contrast_text = strdup(lines);
    c->contrasts = calloc(MAX_CONTRASTS, sizeof *c->contrasts);
    if (!c->contrast_text || !c->contrasts)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the contrasts");
    return add_contrasts(c, c->contrast_text, options, err);
}

/* The first run in the statistics that ends before the last step of its recipe; c->n if there is none. All
 * groups are compared at a step that it has, which the protocol has not planned. */
static size_t find_short_run(const struct compared *c)
{
    size_t r = 0;
    for (; r < c->n; r++) {
        const struct ddl_run_log *log = &c->logs[r];
        if (!c->result.repeats[r] && log->recipe && log->points[log->n - 1].step < log->recipe->steps)
            break;
    }
    return r;
}

ddl_status test_protocol(struct compared *c, const struct ddl_sweep_protocol *protocol,
                         const struct ddl_contrast_options *options, struct ddl_error *err)
{
    struct ddl_contrast_options own = *options;
    if (!ddl_sweep_protocol_is_set(protocol))
        return DDL_OK;
    if (protocol->n_ended < protocol->n_runs) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK,
                      "%zu of %zu runs have ended: the contrasts of the protocol are tested when all have",
                      protocol->n_ended, protocol->n_runs);
        print_compare_note(NULL, message.text);
        return DDL_OK;
    }
    if (c->n < protocol->n_runs) { /* one that failed before its first logged step has no metrics */
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK,
                      "%zu of %zu runs have logged a step: the contrasts of the protocol are tested when all "
                      "runs are complete; 'ddl sweep --retry' trains the others",
                      c->n, protocol->n_runs);
        print_compare_note(NULL, message.text);
        return DDL_OK;
    }
    const size_t r = find_short_run(c);
    if (r < c->n) {
        const struct ddl_run_log *log = &c->logs[r];
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK,
                      "%.400s: the run ends early: expected step %llu, found step %llu: the contrasts of the "
                      "protocol are tested when all runs are complete; 'ddl sweep --retry' continues it",
                      c->names[r], (unsigned long long)log->recipe->steps,
                      (unsigned long long)log->points[log->n - 1].step);
        print_compare_note(NULL, message.text);
        return DDL_OK;
    }
    own.margin = protocol->margin;
    own.power = protocol->power;
    own.level = protocol->level;
    ddl_status status = test_contrasts(c, protocol->primary, &own, err);
    const bool has_primary = !status;
    c->protocol = protocol;
    c->secondary_text = strdup(protocol->secondary);
    if (!status && !c->secondary_text)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the contrasts");
    if (!status)
        status = add_contrasts(c, c->secondary_text, &own, err);
    if (status != DDL_E_USAGE)
        return status;
    /* a group that is not found, such as one whose recipes cannot be read: each of its runs is a group */
    print_compare_note(NULL, err->text);
    print_compare_note(NULL, has_primary ? "the secondary contrasts of the protocol are not tested"
                                         : "the contrasts of the protocol are not tested");
    return DDL_OK;
}

/* ---- tables ---- */

/* Names of the columns of an interval: "95 % low". */
struct interval_names {
    char low[32], high[32];
};

static struct interval_names name_interval(double level)
{
    struct interval_names names;
    snprintf(names.low, sizeof names.low, "%.4g %% low", 100 * (1 - level));
    snprintf(names.high, sizeof names.high, "%.4g %% high", 100 * (1 - level));
    return names;
}

static void print_tests(const struct compared *c, bool markdown)
{
    const struct interval_names outer = name_interval(c->contrast_options.level);
    const struct column columns[] = {
        { "contrast", -32 }, { "loss", -5 }, { "seeds", 5 },  { "difference", 10 }, { outer.low, 9 },
        { outer.high, 9 },   { "p", 8 },     { "Holm p", 8 }, { "result", 0 },
    };
    struct table t = begin_table(columns, COUNT(columns), markdown);
    for (size_t i = 0; i < c->n_contrasts; i++) {
        const struct ddl_contrast *contrast = &c->contrasts[i];
        print_text_cell(&t, contrast->text);
        print_text_cell(&t, contrast->loss);
        print_number_cell(&t, contrast->n > 1 ? (double)contrast->n : NAN, 0);
        print_number_cell(&t, contrast->difference, 4);
        print_number_cell(&t, contrast->low, 4);
        print_number_cell(&t, contrast->high, 4);
        print_p_cell(&t, contrast->p);
        print_p_cell(&t, c->contrast_options.holm ? contrast->holm_p : NAN);
        print_text_cell(&t, ddl_contrast_result(contrast));
    }
}

static void print_effects(const struct compared *c, bool markdown)
{
    const struct interval_names outer = name_interval(c->contrast_options.level);
    const struct interval_names inner = name_interval(2 * c->contrast_options.level);
    const struct column columns[] = {
        { "contrast", -32 }, { "effect", 9 }, { outer.low, 9 }, { outer.high, 9 },      { inner.low, 9 },
        { inner.high, 9 },   { "TOST p", 8 }, { "Holm p", 8 },  { "seeds needed", 12 }, { "equivalence", 0 },
    };
    struct table t = begin_table(columns, COUNT(columns), markdown);
    for (size_t i = 0; i < c->n_contrasts; i++) {
        const struct ddl_contrast *contrast = &c->contrasts[i];
        print_text_cell(&t, contrast->text);
        print_number_cell(&t, contrast->effect, 2);
        print_number_cell(&t, contrast->effect_low, 2);
        print_number_cell(&t, contrast->effect_high, 2);
        print_number_cell(&t, contrast->inner_low, 4);
        print_number_cell(&t, contrast->inner_high, 4);
        print_p_cell(&t, contrast->equivalence_p);
        print_p_cell(&t, c->contrast_options.holm ? contrast->equivalence_holm_p : NAN);
        print_number_cell(&t, contrast->seeds, 0);
        print_number_cell(&t, contrast->equivalence_seeds, 0);
    }
}

void print_contrast_tables(const struct compared *c, bool markdown)
{
    const struct ddl_contrast_options *o = &c->contrast_options;
    const double detect = o->detect > 0 ? o->detect : o->margin;
    if (c->n_contrasts == 0)
        return;
    if (c->protocol && *c->protocol->question)
        printf("\nquestion: %s\n", printable(c->protocol->question));
    if (c->protocol && *c->protocol->stopping)
        printf("\nstopping rule: %s\n", printable(c->protocol->stopping));
    print_tests(c, markdown);
    print_effects(c, markdown);
    if (c->protocol)
        printf(
            "\nThe first contrast is the primary one of the protocol, tested alone; the others are corrected "
            "together.\n");
    if (o->margin > 0)
        printf("\nTOST: two one-sided tests of equivalence within %g\n", o->margin);
    if (detect > 0)
        printf("\nseeds needed: for a difference of %g with power %g\n", detect, o->power);
    if (o->margin > 0)
        printf("\nequivalence: seeds needed for a significant test within %g with power %g, without a "
               "difference\n",
               o->margin, o->power);
}

void print_p_cell(struct table *t, double p)
{
    if (p < 0.0001)
        print_text_cell(t, "<0.0001");
    else
        print_number_cell(t, p, 4);
}

/* ---- JSON and CSV ---- */

static const struct {
    const char *name;
    size_t offset; /* of a double */
} figures[] = {
    { "difference", offsetof(struct ddl_contrast, difference) },
    { "standard_error", offsetof(struct ddl_contrast, error) },
    { "df", offsetof(struct ddl_contrast, df) },
    { "low", offsetof(struct ddl_contrast, low) },
    { "high", offsetof(struct ddl_contrast, high) },
    { "p", offsetof(struct ddl_contrast, p) },
    { "holm_p", offsetof(struct ddl_contrast, holm_p) },
    { "effect", offsetof(struct ddl_contrast, effect) },
    { "effect_low", offsetof(struct ddl_contrast, effect_low) },
    { "effect_high", offsetof(struct ddl_contrast, effect_high) },
    { "low_90", offsetof(struct ddl_contrast, inner_low) },
    { "high_90", offsetof(struct ddl_contrast, inner_high) },
    { "equivalence_p", offsetof(struct ddl_contrast, equivalence_p) },
    { "equivalence_holm_p", offsetof(struct ddl_contrast, equivalence_holm_p) },
    { "seeds_needed", offsetof(struct ddl_contrast, seeds) },
    { "equivalence_seeds_needed", offsetof(struct ddl_contrast, equivalence_seeds) },
};

static double figure_of(const struct ddl_contrast *contrast, size_t figure)
{
    return *(const double *)(const void *)((const char *)contrast + figures[figure].offset);
}

void write_contrasts(struct ddl_json *json, const struct compared *c)
{
    if (c->n_contrasts == 0)
        return;
    ddl_json_open(json, "contrast_options", '{');
    ddl_json_string(json, "correction", c->contrast_options.holm ? "holm" : "none");
    ddl_json_number(json, "margin", c->contrast_options.margin, 10);
    ddl_json_number(json, "detect", c->contrast_options.detect, 10);
    ddl_json_number(json, "power", c->contrast_options.power, 10);
    ddl_json_number(json, "level", c->contrast_options.level, 10);
    if (c->protocol) {
        ddl_json_string(json, "question", c->protocol->question);
        ddl_json_string(json, "stopping", c->protocol->stopping);
    }
    ddl_json_close(json, '}');
    ddl_json_open(json, "contrasts", '[');
    for (size_t i = 0; i < c->n_contrasts; i++) {
        const struct ddl_contrast *contrast = &c->contrasts[i];
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "contrast", contrast->text);
        if (c->protocol)
            ddl_json_string(json, "role", i == 0 ? "primary" : "secondary");
        ddl_json_string(json, "loss", contrast->loss);
        ddl_json_count(json, "groups_left", contrast->n_left);
        ddl_json_count(json, "groups_right", contrast->n_right);
        ddl_json_bool(json, "paired", contrast->n >= 2);
        ddl_json_count(json, "seeds", contrast->n);
        for (size_t f = 0; f < COUNT(figures); f++)
            ddl_json_number(json, figures[f].name, figure_of(contrast, f), 10);
        ddl_json_string(json, "result", ddl_contrast_result(contrast));
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

int print_contrasts_csv(const struct compared *c)
{
    printf("contrast,loss,groups_left,groups_right,paired,seeds");
    for (size_t f = 0; f < COUNT(figures); f++)
        printf(",%s", figures[f].name);
    printf(",result\n");
    for (size_t i = 0; i < c->n_contrasts; i++) {
        const struct ddl_contrast *contrast = &c->contrasts[i];
        print_csv_field(contrast->text);
        printf(",%s,%zu,%zu,%s,%zu", contrast->loss, contrast->n_left, contrast->n_right,
               contrast->n >= 2 ? "true" : "false", contrast->n);
        for (size_t f = 0; f < COUNT(figures); f++) {
            const double value = figure_of(contrast, f);
            putchar(',');
            if (isfinite(value))
                printf("%.10g", value);
        }
        putchar(',');
        print_csv_field(ddl_contrast_result(contrast));
        putchar('\n');
    }
    return EXIT_OK;
}
