/* A sweep file as it is written: sections of recipe keys, before they are combined. */
#ifndef DDL_STUDY_SWEEP_FILE_H
#define DDL_STUDY_SWEEP_FILE_H

#include "ddl/sweep.h"
#include "train/config/recipe.h"

/* Values of one key, each an entry of `values` with its line. */
struct sweep_axis {
    char *key;
    size_t line; /* of the key */
    struct ddl_recipe values;
};
struct sweep_grid {
    struct sweep_axis *axes; /* (n) */
    size_t n;
};

/* A model of the sweep. */
struct sweep_entry {
    char *name;
    size_t line;
    struct ddl_recipe keys;   /* recipe keys that it sets                          */
    struct sweep_grid grid;   /* axes of its own; they replace the sweep's of the same key */
    struct ddl_recipe seeds;  /* none: the sweep's                                 */
    struct sweep_grid choose; /* axes to choose from; they replace those of `choose` of the same key */
};

/* What is compared to choose a value. */
enum sweep_loss { SWEEP_LOSS_VAL, SWEEP_LOSS_TRAIN };

struct sweep_choose {
    struct sweep_grid axes; /* the chosen keys and their values; none: nothing is chosen */
    size_t line;
    struct ddl_recipe seed; /* one entry, or none: the first of the seeds */
    struct ddl_recipe keys; /* recipe keys of the candidates: steps, ...  */
    int loss;               /* enum sweep_loss */
    size_t extend;          /* values that may be added to a list whose edge wins; 0: none */
};

/* Where a setting comes from. */
struct sweep_pick {
    size_t entry;
    struct ddl_recipe values;      /* one of each axis of the entry's grid */
    struct ddl_recipe *candidates; /* (n_candidates) each with one value of each chosen key */
    size_t n_candidates;           /* n_values of the setting */
};

struct ddl_sweep_file {
    const char *path; /* borrowed */
    bool relative;    /* paths are relative to the folder of the file */
    char *out;
    char *base_path;             /* of a recipe; NULL: the keys of `base` are in the sweep file */
    struct ddl_recipe base;      /* of that recipe, or of the sweep file */
    struct ddl_recipe set;       /* recipe keys that override base */
    struct sweep_entry *entries; /* (n_entries), at least 1 */
    size_t n_entries;
    struct ddl_recipe seeds; /* none: the recipe's seed */
    struct sweep_grid grid;
    struct sweep_choose choose;
    struct ddl_sweep_protocol protocol;
    struct sweep_pick *picks; /* (n_picks) one of each setting; made by the plan */
    size_t n_picks;
};

/* Reads the file `path`, which is borrowed, and its base. Free with sweep_file_free, after an error too. */
ddl_status sweep_file_read(struct ddl_sweep_file **out, const char *path, struct ddl_error *err);
void sweep_file_free(struct ddl_sweep_file *file);

/* The row of a recipe's key, or NULL. */
const struct ddl_option *sweep_key_row(const char *key);
/* Whether two keys are names of the same option. */
bool sweep_same_key(const char *a, const char *b);
/* The axis of the option `key`, or NULL. */
const struct sweep_axis *sweep_find_axis(const struct sweep_grid *grid, const char *key);

#endif
