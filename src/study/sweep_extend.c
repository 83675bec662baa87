/* Lists of values that are extended: the lowest loss at an edge of the list is no minimum yet. */
#include "study/sweep_internal.h"

#include "base/locale.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum { VALUE_TEXT = 32 };

/* Values beside the chosen one. */
struct neighbors {
    size_t below, above;      /* their numbers                            */
    double largest, smallest; /* of those below; of those above; or NaN    */
    double chosen;            /* NaN: values are not all numbers          */
};

static struct neighbors find_neighbors(const struct ddl_sweep_setting *s)
{
    struct neighbors n = { .largest = (double)NAN, .smallest = (double)NAN };
    char *end;
    n.chosen = ddl_parse_double(s->values[s->chosen].text, &end);
    bool numbers = !*end;
    for (size_t i = 0; i < s->n_values; i++) {
        const double value = ddl_parse_double(s->values[i].text, &end);
        numbers = numbers && !*end;
        if (value < n.chosen) {
            n.below++;
            n.largest = fmax(n.largest, value);
        } else if (value > n.chosen) {
            n.above++;
            n.smallest = fmin(n.smallest, value);
        }
    }
    n.chosen = numbers ? n.chosen : (double)NAN;
    return n;
}

bool sweep_is_at_edge(const struct ddl_sweep_setting *s)
{
    const struct neighbors n = find_neighbors(s);
    return s->n_values > 1 && !isnan(n.chosen) && (n.below == 0 || n.above == 0);
}

ddl_status sweep_add_value(struct ddl_sweep *sweep, size_t setting, const char *text, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    struct ddl_sweep_value *grown = realloc(s->values, (s->n_values + 1) * sizeof *grown);
    if (grown)
        s->values = grown;
    char *copy = grown ? ddl_mem_strdup(text) : NULL;
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    s->values[s->n_values++] = (struct ddl_sweep_value){ copy, (double)NAN, copy };
    s->n_added++;
    return sweep_add_run(sweep, setting, true, s->n_values - 1, err);
}

/* Takes the last value back, and its candidate, the last run, if there is one. */
static void remove_value(struct ddl_sweep *sweep, size_t setting, size_t n_runs)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    for (; sweep->n_runs > n_runs; sweep->n_runs--)
        free(sweep->runs[sweep->n_runs - 1].config);
    free(s->values[--s->n_values].added);
    s->n_added--;
}

/* The factor between the edge and its neighbor leads on to the next value. */
ddl_status sweep_extend(struct ddl_sweep *sweep, size_t setting, bool *added, struct ddl_error *err)
{
    const struct ddl_sweep_setting *s = &sweep->settings[setting];
    const size_t n_runs = sweep->n_runs;
    struct ddl_error why = { 0 };
    char text[VALUE_TEXT];
    *added = false;
    if (s->chosen >= s->n_values || s->n_added == s->max_added || !sweep_is_at_edge(s))
        return DDL_OK;
    const struct neighbors n = find_neighbors(s);
    const double factor = n.chosen / (n.below ? n.largest : n.smallest);
    if (!(factor > 0) || isinf(factor))
        return DDL_OK;
    ddl_format_double(text, sizeof text, 6, 'g', n.chosen * factor);
    ddl_status status = sweep_add_value(sweep, setting, text, &why);
    *added = !status;
    if (!status)
        return DDL_OK;
    if (status == DDL_E_USAGE) { /* outside of the key's range, or no whole number */
        remove_value(sweep, setting, n_runs);
        return DDL_OK;
    }
    if (err)
        *err = why;
    return status;
}
