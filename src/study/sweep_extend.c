/* Lists of values that are extended: the lowest loss at an edge of a list is no minimum yet. */
#include "study/sweep_file.h"
#include "study/sweep_internal.h"

#include "base/locale.h"

#include <math.h>
#include <stdlib.h>

enum { VALUE_TEXT = 32 };

/* Values of a key beside the chosen one. */
struct neighbors {
    bool below, above;        /* whether there are any                    */
    double largest, smallest; /* of those below; of those above; or NaN   */
    double chosen;            /* NaN: values are not all numbers          */
};

/* Of the key with index `key`, over all candidates of the setting. */
static struct neighbors find_neighbors(const struct sweep_pick *pick, size_t key, size_t chosen)
{
    struct neighbors n = { .largest = (double)NAN, .smallest = (double)NAN };
    char *end;
    n.chosen = ddl_parse_double(pick->candidates[chosen].entries[key].value, &end);
    bool numbers = !*end;
    for (size_t i = 0; i < pick->n_candidates; i++) {
        const double value = ddl_parse_double(pick->candidates[i].entries[key].value, &end);
        numbers = numbers && !*end;
        if (value < n.chosen) {
            n.below = true;
            n.largest = fmax(n.largest, value);
        } else if (value > n.chosen) {
            n.above = true;
            n.smallest = fmin(n.smallest, value);
        }
    }
    n.chosen = numbers ? n.chosen : (double)NAN;
    return n;
}

static bool is_edge(const struct neighbors *n)
{
    return !isnan(n->chosen) && n->below != n->above;
}

bool sweep_is_at_edge(const struct ddl_sweep *sweep, size_t setting)
{
    const struct sweep_pick *pick = &sweep->file->picks[setting];
    const size_t chosen = sweep->settings[setting].chosen;
    bool found = false;
    for (size_t key = 0; !found && key < pick->candidates[chosen].n; key++) {
        const struct neighbors n = find_neighbors(pick, key, chosen);
        found = is_edge(&n);
    }
    return found;
}

ddl_status sweep_add_value(struct ddl_sweep *sweep, size_t setting, struct ddl_recipe *combination,
                           struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    ddl_status status = sweep_append_value(sweep, setting, combination, true, err);
    if (status)
        return status;
    s->n_added++;
    return sweep_add_run(sweep, setting, true, s->n_values - 1, err);
}

/* Takes the last value back, and its candidate, the last run, if there is one. */
static void remove_value(struct ddl_sweep *sweep, size_t setting, size_t n_runs)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    struct sweep_pick *pick = &sweep->file->picks[setting];
    for (; sweep->n_runs > n_runs; sweep->n_runs--)
        free(sweep->runs[sweep->n_runs - 1].config);
    free(s->values[--s->n_values].text);
    ddl_recipe_free(&pick->candidates[--pick->n_candidates]);
    s->n_added--;
}

/* Adds the chosen value with another text for one key. */
static ddl_status add_neighbor(struct ddl_sweep *sweep, size_t setting, size_t key, const char *text,
                               struct ddl_error *err)
{
    const struct ddl_recipe *chosen =
        &sweep->file->picks[setting].candidates[sweep->settings[setting].chosen];
    struct ddl_recipe combination = { 0 };
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < chosen->n; i++) {
        const struct ddl_recipe_entry *entry = &chosen->entries[i];
        status =
            ddl_recipe_append(&combination, entry->key, i == key ? text : entry->value, entry->line, err);
    }
    if (!status)
        status = sweep_add_value(sweep, setting, &combination, err);
    ddl_recipe_free(&combination);
    return status;
}

/* The factor between the edge and its neighbor leads on to the next value. */
static ddl_status extend_key(struct ddl_sweep *sweep, size_t setting, size_t key, bool *added,
                             struct ddl_error *err)
{
    const size_t n_runs = sweep->n_runs, n_values = sweep->settings[setting].n_values;
    const struct neighbors n =
        find_neighbors(&sweep->file->picks[setting], key, sweep->settings[setting].chosen);
    struct ddl_error why = { 0 };
    char text[VALUE_TEXT];
    const double factor = n.chosen / (n.below ? n.largest : n.smallest);
    if (!is_edge(&n) || !(factor > 0) || isinf(factor))
        return DDL_OK;
    ddl_format_double(text, sizeof text, 6, 'g', n.chosen * factor);
    ddl_status status = add_neighbor(sweep, setting, key, text, &why);
    *added = !status;
    if (status == DDL_E_USAGE) { /* outside of the key's range, or no whole number */
        if (sweep->settings[setting].n_values > n_values)
            remove_value(sweep, setting, n_runs);
        return DDL_OK;
    }
    if (status && err)
        *err = why;
    return status;
}

ddl_status sweep_extend(struct ddl_sweep *sweep, size_t setting, bool *added, struct ddl_error *err)
{
    const struct ddl_sweep_setting *s = &sweep->settings[setting];
    ddl_status status = DDL_OK;
    *added = false;
    if (s->chosen >= s->n_values || s->n_added == s->max_added)
        return DDL_OK;
    const size_t n_keys = sweep->file->picks[setting].candidates[s->chosen].n;
    for (size_t key = 0; !status && !*added && key < n_keys; key++)
        status = extend_key(sweep, setting, key, added, err);
    return status;
}
