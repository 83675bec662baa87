/* Forced updates: in the forward pass of chosen sublayers the gate, the update or F's output is replaced. */
#ifndef DDL_FORCE_H
#define DDL_FORCE_H

#include "ddl/config.h"
#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sublayers of a block, in the order in which they are applied. */
enum ddl_sublayer {
    DDL_SUBLAYER_ATTN, /* attention       */
    DDL_SUBLAYER_MLP,  /* MLP             */
    DDL_SUBLAYERS      /* how many there are */
};
/* "attn", "mlp", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_sublayer_names[];

/* Members of struct ddl_force, for its `keys`. ddl_force_rows has where each applies. */
enum ddl_force_key {
    DDL_FORCE_BETA = 1,     /* beta    */
    DDL_FORCE_SCALE = 2,    /* scale   */
    DDL_FORCE_UPDATE = 4,   /* update  */
    DDL_FORCE_F_SCALE = 8,  /* f_scale */
    DDL_FORCE_MIX = 16,     /* mix     */
    DDL_FORCE_VALUES = 32,  /* values  */
    DDL_FORCE_AVERAGE = 64, /* average */
};

/* What the mixture of the state before a sublayer is forced to. A rule accepts the first, or the others. */
enum ddl_force_mix {
    DDL_MIX_IDENTITY, /* the identity: F's output is added to an unchanged state */
    DDL_MIX_LAST,     /* attention over depth: the last source alone, the running part */
    DDL_MIX_MEAN,     /* the mean of all sources */
    DDL_MIXES         /* how many there are */
};
/* "identity", "last", "mean", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_force_mix_names[];

/* What the values of attention are forced to. */
enum ddl_force_values {
    DDL_VALUES_OWN, /* the layer's own, without those of layer 0 */
    DDL_VALUES      /* how many there are */
};
/* "own", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_force_values_names[];

/* What the weighted sum of states after a block is forced to. */
enum ddl_force_average {
    DDL_AVERAGE_NONE, /* the state after the block: the sum is left out */
    DDL_AVERAGES      /* how many there are */
};
/* "none", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_force_average_names[];

/* What is forced in one sublayer. */
struct ddl_force {
    unsigned keys; /* the members that are set: a sum of enum ddl_force_key; not both beta and scale */
    float beta;    /* the gate of every token, at least 0                         */
    float scale;   /* factor of the gate, at least 0                              */
    int update;    /* enum ddl_update                                             */
    float f_scale; /* factor of F's output: 0 leaves the stream without it        */
    int mix;       /* enum ddl_force_mix                                          */
    int values;    /* enum ddl_force_values                                       */
    int average;   /* enum ddl_force_average                                      */
};

/* A key: a member of struct ddl_force, and where it applies. */
struct ddl_force_row {
    unsigned key;             /* enum ddl_force_key                                                     */
    struct ddl_option option; /* its name, type, member of struct ddl_force, range, choices, and effect */
    unsigned replaces;        /* keys that it is not set together with                                  */
    bool has_mean;            /* "mean" is a value too: what ddl_inspect_freeze sets                     */
    bool closes;              /* 0 leaves the stream without the sublayer's output                      */
    int sub;                  /* the sublayer that it applies to; DDL_SUBLAYERS: both                   */
    /* The largest value that the model itself can have, up to which programs accept it; NULL: option.max. */
    double (*most)(const struct ddl_config *config);
    /* Whether it applies to a layer, by an option; NULL: it applies to the layers whose rule has it. */
    bool (*applies)(const struct ddl_config *config, size_t layer);
    const char *where; /* with `applies`: what such a layer has, for messages */
};
/* All keys, ended by a row without a key. */
DDL_API const struct ddl_force_row *ddl_force_rows(void);
/* Writes the names of the keys that apply to the same layers as that of `row` to out (size bytes): "beta,
 * scale and update". */
DDL_API void ddl_force_group(const struct ddl_force_row *row, char *out, size_t size);
/* Writes what layers have to which the key of `row` applies to out (size bytes): "the rule delta". */
DDL_API void ddl_force_layers(const struct ddl_force_row *row, char *out, size_t size);

/* The keys that layer `layer` of config accepts: a sum of enum ddl_force_key. Some apply to one of its
 * sublayers (struct ddl_force_row). */
DDL_API unsigned ddl_config_force_keys(const struct ddl_config *config, size_t layer);
/* The values of `mix` that layer `layer` of config accepts: a sum of 1 << enum ddl_force_mix; 0: none. */
DDL_API unsigned ddl_config_force_mixes(const struct ddl_config *config, size_t layer);

/* Replaces what is forced in sublayer `sub` (enum ddl_sublayer) of a layer by *force, which is copied; NULL
 * or no keys: nothing. It applies to every following pass in any workspace or session of the model, until
 * ddl_model_clear_forces. ddl_model_backward is refused while one is set. A forced value equal to the
 * model's own leaves every result identical. DDL_E_USAGE for a layer or sublayer that does not exist, a key
 * that the layer does not accept, and a value out of range; nothing is changed then. */
DDL_API ddl_status ddl_model_force(ddl_model *model, size_t layer, int sub, const struct ddl_force *force,
                                   struct ddl_error *err);
/* Removes all forced updates of the model. */
DDL_API void ddl_model_clear_forces(ddl_model *model);

#ifdef __cplusplus
}
#endif
#endif
