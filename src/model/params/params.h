/* The parameter table: one row per tensor, and the index of each row by meaning. */
#ifndef DDL_MODEL_PARAMS_H
#define DDL_MODEL_PARAMS_H

#include "ddl/model.h"

enum { RULE_PARAMS = 12 }; /* parameters of a residual rule in a sublayer, at most */

enum { READOUT_PARAMS = 2 };

/* Rows of the parameter table by meaning: their indices. An int is -1 where the configuration has none. */
struct compressor_params {
    int weight, read;
};
struct layer_params {
    size_t first; /* row: the first of the layer */
    struct compressor_params compress;
    int c_q, c_k, c_v, attn_proj, v_mix, q_rms, k_rms;
    int fc1, fc2, mlp_proj;
    int ln[2];
    int residual[2][RULE_PARAMS]; /* by sublayer; numbered by the layer's residual rule */
    int average;                  /* of the sum that follows the layer */
};
struct model_params {
    size_t after_layers; /* row: the first that is used after the layers */
    int wte, embed_conv, ln_f;
    struct compressor_params readout;
    int readout_form[READOUT_PARAMS]; /* parameters of the readout that the form of the state has */
};

/* How the values of a parameter start; normal and uniform ones are keyed by its name. */
struct param_init {
    enum {
        INIT_NORMAL,   /* normal(0, value)                        */
        INIT_CONSTANT, /* value                                   */
        INIT_LAST_TAP, /* 1 at the last index of a row, 0 before  */
        INIT_UNIFORM,  /* uniform(+-1/value)                      */
        /* (n, n + 1): the unit vector of row `value` in column 0, then the identity. */
        INIT_READ_ONE,
        INIT_OFF_DIAGONAL, /* (n n) a matrix: value, 0 on the diagonal */
    } kind;
    double value;
};

/* The offset of a row that is not in the flat buffer, and the end of a chain of fused rows. */
#define DDL_NO_PLACE SIZE_MAX
#define DDL_NO_ROW SIZE_MAX
struct params {
    struct ddl_param *row;
    size_t *offset; /* of each row in the flat buffer, in floats, or DDL_NO_PLACE */
    size_t n;
    size_t total; /* floats in the flat buffer, padding included */
    size_t size;  /* numbers, without padding                    */
    struct model_params model;
    struct layer_params *layer;
    struct param_init *init; /* of each row */
    bool *in_products;       /* a matrix that products read, possibly in a reduced format */
    size_t *row_offset;      /* row offset in the fused matrix that this row is part of, in every format */
    size_t *fused_next;      /* the row that continues this one's fused matrix, or DDL_NO_ROW */
    void *block;             /* owns all of the above */
};

/* Fills *params for a checked configuration. Free with params_free. */
ddl_status params_plan(struct params *params, const struct ddl_config *config, struct ddl_error *err);
void params_free(struct params *params);
/* Assigns new offsets that leave out the rows that products read. */
void params_leave_out_products(struct params *params);
/* Initial values [start, start + n) of row i into out, in host memory. */
void params_initial(const struct params *params, uint64_t seed, size_t i, size_t start, size_t n, float *out);

#endif
