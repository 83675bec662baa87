#include "cli/output/page.h"

#include "ddl/inspect.h"

void page_put_figures(struct ddl_json *json)
{
    const struct ddl_figure *figure;
    ddl_json_open(json, "figures", '[');
    for (size_t i = 0; (figure = ddl_figure_list(i)); i++) {
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "name", figure->name);
        ddl_json_string(json, "about", figure->about);
        ddl_json_string(json, "label", figure->label);
        ddl_json_string(json, "kind", ddl_figure_kind_names[figure->kind]);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}
