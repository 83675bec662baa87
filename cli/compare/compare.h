/* What the files of ddl compare share: the runs, and the forms of the results. */
#ifndef DDL_CLI_COMPARE_H
#define DDL_CLI_COMPARE_H

#include "ddl/compare.h"
#include "ddl/contrast.h"
#include "ddl/json.h"
#include "ddl/run.h"
#include "ddl/sweep.h"

#include <stdbool.h>
#include <stddef.h>

/* The horizontal axis of a chart. */
enum axis { AXIS_STEPS, AXIS_TOKENS, AXIS_FLOPS, AXIS_SECONDS, AXIS_TRAIN_SECONDS };
extern const char *const axis_names[];  /* of --x, ended by NULL */
extern const char *const axis_labels[]; /* in an SVG file        */
double axis_value(const struct ddl_run_point *point, int axis);

/* What an SVG file shows. */
enum figure_kind { FIGURE_CURVES, FIGURE_FINAL };

/* What a chart shows. */
struct figure_options {
    int kind;       /* enum figure_kind                              */
    int axis;       /* enum axis                                     */
    bool val;       /* validation losses instead of training losses  */
    double highest; /* losses above are not drawn; 0: all are        */
};
/* The loss of a point; NaN if it is above `highest`. */
double drawn_loss(const struct ddl_run_point *point, bool val, double highest);

struct compared {
    size_t n;
    const char **names;           /* (n) of the folders                                      */
    struct ddl_run_log *logs;     /* (n)                                                     */
    struct ddl_run_model *models; /* (n) what --which names; its name is "" if none is saved */
    struct ddl_comparison result;
    char **group_names; /* (result.n_groups)            */
    char **notes;       /* (n_notes) messages of ddl_compare */
    size_t n_notes;
    struct ddl_contrast *contrasts; /* (n_contrasts) */
    size_t n_contrasts;
    char *contrast_text, *secondary_text; /* hold their texts */
    struct ddl_contrast_options contrast_options;
    const struct ddl_sweep_protocol *protocol; /* that the contrasts are of; the first is primary; or NULL */
};

/* A ddl_warn_fn that prints a note. */
void print_compare_note(void *user, const char *text);

/* Paths of run folders. */
struct folders {
    char **paths; /* (n) */
    size_t n;
};
/* Adds a run folder, or in the place of a folder of runs the runs in it. */
ddl_status add_runs(struct folders *out, const char *folder, struct ddl_error *err);
void free_folders(struct folders *folders);

/* Name of the preset of a run's model, or "-". */
const char *compared_preset(const struct ddl_run_log *log);
/* The name of a group: its first run's, without the seed that ddl sweep appends. */
const char *compared_group_name(const struct compared *c, size_t group);
/* Names of the tasks that any of the runs has scored, in the order of their first scores; malloc'ed. NULL:
 * out of memory. */
const char **compared_tasks(const struct compared *c, size_t *n_tasks);

/* Tests the contrasts, one in each of the lines. */
ddl_status test_contrasts(struct compared *c, const char *lines, const struct ddl_contrast_options *options,
                          struct ddl_error *err);
/* Tests the primary contrast of a protocol alone, and the secondary ones together; with a margin and a power
 * of its own unless the options have a margin. Nothing without a protocol; a note only while a run has not
 * ended, or has ended before its last step. */
ddl_status test_protocol(struct compared *c, const struct ddl_sweep_protocol *protocol,
                         const struct ddl_contrast_options *options, struct ddl_error *err);
/* The tables of contrasts, and their part of the JSON object; nothing without contrasts. */
void print_contrast_tables(const struct compared *c, bool markdown);
void write_contrasts(struct ddl_json *json, const struct compared *c);
/* A line per contrast; the exit status. */
int print_contrasts_csv(const struct compared *c);

struct table;
/* A p-value, at least "<0.0001". */
void print_p_cell(struct table *table, double p);

/* Results on standard output; the exit status. */
int print_compared_tables(const struct compared *c, bool markdown);
int print_compared_json(const struct compared *c);
int print_compared_csv(const struct compared *c);

/* The object that --json prints, as one value. */
void write_compared_json(struct ddl_json *json, const char *key, const struct compared *c);

/* Writes the page of --html to the file `path`; `options`: the view that it opens with. */
ddl_status write_compared_html(const struct compared *c, const char *path,
                               const struct figure_options *options, struct ddl_error *err);

/* Writes an SVG file `path`: the mean curve of each group, with the range over its seeds, or the final loss
 * of each group. DDL_E_FORMAT if there is nothing to draw. */
ddl_status write_compared_svg(const struct compared *c, const char *path,
                              const struct figure_options *options, struct ddl_error *err);

#endif
