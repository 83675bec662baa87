/* The page of ddl compare --html: the results as --json has them, and the curve of each group. */
#include "cli/cli.h"
#include "cli/compare/compare.h"
#include "cli/output/page.h"

#include <stdio.h>
#include <string.h>

/* The values of a curve on an axis, as an array whose key is the axis's name. */
static void write_axis(struct ddl_json *json, const struct ddl_compare_group *group, int axis)
{
    ddl_json_open(json, axis_names[axis], '[');
    for (size_t i = 0; i < group->n_points; i++)
        ddl_json_number(json, NULL, axis_value(&group->curve[i], axis), 10);
    ddl_json_close(json, ']');
}

/* Of all points, the double at `offset` of their struct. */
static void write_column(struct ddl_json *json, const char *key, const void *objects, size_t stride, size_t n,
                         size_t offset)
{
    ddl_json_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        ddl_json_number(json, NULL,
                        *(const double *)(const void *)((const char *)objects + i * stride + offset), 7);
    ddl_json_close(json, ']');
}

static void write_curve(struct ddl_json *json, const struct ddl_compare_group *group)
{
    static const struct {
        const char *key;
        size_t offset;
    } losses[] = { { "loss", offsetof(struct ddl_run_point, loss) },
                   { "val_loss", offsetof(struct ddl_run_point, val_loss) } },
      bands[] = { { "loss_low", offsetof(struct ddl_band, loss_low) },
                  { "loss_high", offsetof(struct ddl_band, loss_high) },
                  { "val_low", offsetof(struct ddl_band, val_low) },
                  { "val_high", offsetof(struct ddl_band, val_high) } };
    ddl_json_open(json, NULL, '{');
    for (int axis = 0; axis_names[axis]; axis++)
        write_axis(json, group, axis);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        write_column(json, losses[i].key, group->curve, sizeof *group->curve, group->n_points,
                     losses[i].offset);
    for (size_t i = 0; i < sizeof bands / sizeof *bands; i++)
        write_column(json, bands[i].key, group->band, sizeof *group->band, group->n_points, bands[i].offset);
    ddl_json_close(json, '}');
}

struct view {
    const struct compared *compared;
    const struct figure_options *options;
};

static void write_data(struct ddl_json *json, const void *object)
{
    const struct view *view = object;
    const struct compared *c = view->compared;
    ddl_json_open(json, "notes", '[');
    for (size_t i = 0; i < c->n_notes; i++)
        ddl_json_string(json, NULL, c->notes[i]);
    ddl_json_close(json, ']');
    ddl_json_open(json, "view", '{');
    ddl_json_string(json, "x", axis_names[view->options->axis]);
    ddl_json_bool(json, "val", view->options->val);
    ddl_json_number(json, "max_loss", view->options->highest, 6);
    ddl_json_close(json, '}');
    write_compared_json(json, "result", c);
    ddl_json_open(json, "curves", '[');
    for (size_t g = 0; g < c->result.n_groups; g++)
        write_curve(json, &c->result.groups[g]);
    ddl_json_close(json, ']');
}

ddl_status write_compared_html(const struct compared *c, const char *path,
                               const struct figure_options *options, struct ddl_error *err)
{
    const struct view view = { c, options };
    const struct page page = {
        .path = path, .kind = "compare", .title = "Comparison of runs", .write = write_data, .object = &view
    };
    return page_write(&page, err);
}
