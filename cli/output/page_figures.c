#include "cli/output/page.h"

#include "ddl/inspect.h"

void page_put_figures(struct ddl_json *json)
{
    const struct ddl_figure *list[DDL_MOST_FIGURES];
    size_t n = ddl_figure_list(list);
    ddl_json_open(json, "figures", '[');
    for (size_t i = 0; i < n; i++) {
        const struct ddl_figure *figure = list[i];
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "name", figure->name);
        ddl_json_string(json, "about", figure->about);
        ddl_json_string(json, "label", figure->label);
        ddl_json_string(json, "kind", ddl_figure_kind_names[figure->kind]);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}
