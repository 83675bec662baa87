#include "model/observe/trace.h"

#include "model/observe/force.h"
#include "model/observe/probe.h"
#include "model/residual/table.h"

#include <math.h>
#include <string.h>

const char *const ddl_figure_kind_names[] = {
    [DDL_FIGURE_UPDATE] = "update",
    [DDL_FIGURE_SIZE] = "size",
    [DDL_FIGURE_OVERLAP] = "overlap",
    [DDL_FIGURE_SHRINK] = "shrink",
    [DDL_FIGURE_FACTOR] = "factor",
    [DDL_FIGURE_MIXING] = "mixing",
    [DDL_FIGURE_MEAN] = "mean",
    [DDL_FIGURE_Q05] = "q05",
    [DDL_FIGURE_Q25] = "q25",
    [DDL_FIGURE_Q50] = "q50",
    [DDL_FIGURE_Q75] = "q75",
    [DDL_FIGURE_Q95] = "q95",
    [DDL_FIGURE_MIN] = "min",
    [DDL_FIGURE_MAX] = "max",
    [DDL_FIGURE_SKIP] = "skip",
    [DDL_FIGURE_MATCH] = "match",
    [DDL_FIGURE_OVER] = "over",
    [DDL_FIGURE_REFLECT] = "reflect",
    NULL,
};

/* value_residual: the factors of attention. */
static const float *values_data(const struct sublayer *s)
{
    return s->sub == ATTN ? force_value_mix(s->p, s->layer) : NULL;
}

static size_t two(const struct ddl_config *config, size_t layer, int sub)
{
    (void)config;
    (void)layer;
    (void)sub;
    return 2;
}

static void values_derive(size_t width, const float *mix, double *figures)
{
    for (size_t i = 0; i < width; i++)
        figures[i] = (double)mix[i];
}

static const struct ddl_figure values_figures[] = {
    { "values_own", "value_residual: factor m₀ of the layer's own values", "v_l", "m of own values", 3,
      DDL_FIGURE_FACTOR },
    { "values_first", "value_residual: factor m₁ of the values of layer 0", "v_0", "m of layer 0's values", 3,
      DDL_FIGURE_FACTOR },
    { 0 },
};

static const struct trace_tensor values_traced[] = {
    { .name = "values",
      .about = "factors of the layer's own values and of those of layer 0",
      .extent = TRACE_PARAMETER,
      .width = two,
      .data = values_data,
      .figures = values_figures,
      .derive = values_derive },
    { 0 },
};

/* The tensors of options, which any rule may have. */
static const struct trace_tensor *const of_options[] = { values_traced };
enum { OPTIONS = sizeof of_options / sizeof *of_options };

/* List number i of a rule's tensors and those of options; NULL past the last. */
static const struct trace_tensor *list_at(const struct residual_rule *rule, size_t i)
{
    static const struct trace_tensor none[] = { { 0 } };
    if (i == 0)
        return rule->traced ? rule->traced : none;
    return i <= OPTIONS ? of_options[i - 1] : NULL;
}

const struct trace_tensor *trace_tensor_at(const struct ddl_config *config, size_t layer, size_t i)
{
    const struct residual_rule *rule = residual_rule_of(config, layer);
    const struct trace_tensor *row;
    for (size_t list = 0; (row = list_at(rule, list)); list++) {
        for (; row->name; row++) {
            if (i-- == 0)
                return row;
        }
    }
    return NULL;
}

bool trace_has_update(const struct ddl_config *config, size_t layer)
{
    return residual_rule_of(config, layer)->update != NULL;
}

size_t trace_width(const struct trace_tensor *of, const struct ddl_config *config, size_t layer, int sub)
{
    return of->width ? of->width(config, layer, sub) : 1;
}

void trace_collect(const struct sublayer *s, struct ddl_sublayer_trace *out)
{
    const struct ddl_config *k = s->p->config;
    const struct residual_rule *rule = residual_rule_of(k, s->layer);
    const struct trace_tensor *of;
    size_t owner = 0;
    out->steps = ddl_config_residual_steps(k, s->layer);
    out->f = rule->adds_in_place ? NULL : s->acts->f;
    if (rule->written && s->stream) /* not after the pass */
        out->f = rule->written(s);
    out->direction = out->f;
    for (out->n = 0; out->n < DDL_MOST_TRACED && (of = trace_tensor_at(k, s->layer, out->n)); out->n++) {
        owner = of->data ? out->n : owner;
        out->tensor[out->n] = (struct ddl_traced){ .of = of,
                                                   .width = trace_width(of, k, s->layer, s->sub),
                                                   .x = of->data ? of->data(s) : NULL,
                                                   .part = owner,
                                                   .offset = of->data ? 0 : of->offset(k) };
    }
    out->update = rule->update;
    if (!rule->update)
        return;
    const float *q = out->tensor[rule->update->direction].x;
    out->direction = q ? q : out->f;
    out->kind = rule->update->update(s);
    out->k_eps = rule->update->k_eps(k);
}

const struct ddl_traced *ddl_trace_find(const struct ddl_sublayer_trace *trace, const char *name)
{
    for (size_t i = 0; i < trace->n; i++) {
        if (strcmp(trace->tensor[i].of->name, name) == 0)
            return &trace->tensor[i];
    }
    return NULL;
}

static const struct ddl_figure shared_figures[] = { DDL_FIGURE_ROW_STEP, DDL_FIGURE_ROW_STREAM, { 0 } };

/* Adds the figures of a list that the table does not have. */
static void add_figures(struct ddl_figure_table *table, const struct ddl_figure *list)
{
    for (; list && list->name; list++) {
        if (ddl_figure_find(table, list->name) == table->n && table->n < DDL_MOST_FIGURES)
            table->row[table->n++] = list;
    }
}

void ddl_figure_table_init(struct ddl_figure_table *table)
{
    const struct trace_tensor *row;
    table->n = 0;
    for (int rule = 0; rule < DDL_RESIDUALS; rule++) {
        const struct residual_rule *of = residual_rule_at(rule);
        for (row = list_at(of, 0); row->name; row++)
            add_figures(table, row->figures);
        add_figures(table, of->update ? of->update->figures : NULL);
    }
    add_figures(table, shared_figures);
    for (size_t list = 1; (row = list_at(residual_rule_at(0), list)); list++) {
        for (; row->name; row++)
            add_figures(table, row->figures);
    }
}

size_t ddl_figure_find(const struct ddl_figure_table *table, const char *name)
{
    size_t i = 0;
    while (i < table->n && strcmp(table->row[i]->name, name) != 0)
        i++;
    return i;
}

size_t ddl_figure_list(const struct ddl_figure **list)
{
    struct ddl_figure_table table;
    ddl_figure_table_init(&table);
    memcpy(list, table.row, table.n * sizeof *list);
    return table.n;
}

double ddl_inspect_figure(const struct ddl_inspect_figures *figures, const char *name)
{
    struct ddl_figure_table table;
    ddl_figure_table_init(&table);
    size_t i = ddl_figure_find(&table, name);
    return i < table.n ? figures->value[i] : (double)NAN;
}
