/* The parameter table: one row per tensor, and the index of each row by meaning. */
#ifndef DDL_MODEL_PARAMS_H
#define DDL_MODEL_PARAMS_H

#include "ddl/model.h"

/* Rows of the parameter table by meaning; -1 where the configuration has none. */
struct compressor_slots {
    int weight, read;
};
struct delta_slots {
    int beta_in, beta_weight, beta_bias, v_weight, v_bias, k_proj, k_down, k_up;
};
struct layer_slots {
    struct compressor_slots compress;
    int c_q, c_k, c_v, attn_proj, q_rms, k_rms;
    int fc1, fc2, mlp_proj;
    int ln[2];
    struct delta_slots delta[2];
};
struct model_slots {
    int wte, embed_conv, ln_f;
    struct compressor_slots readout;
};

/* The offset of a row that is not in the flat buffer. */
#define DDL_NO_PLACE SIZE_MAX
struct params {
    struct ddl_param *row;
    size_t *offset; /* of each row in the flat buffer, in floats, or DDL_NO_PLACE */
    size_t n;
    size_t total; /* floats in the flat buffer, padding included */
    size_t size;  /* numbers, without padding                    */
    struct model_slots slots;
    struct layer_slots *layer;
    unsigned char *init; /* initial value of each row: enum init of params.c */
    bool *in_products;   /* a matrix that products read, possibly in a reduced format */
    size_t *above;       /* row offset in the fused matrix that this row is part of, in every format */
    void *block;         /* owns all of the above */
};

/* Fills *params for a checked configuration. Free with params_free. */
ddl_status params_plan(struct params *params, const struct ddl_config *config, struct ddl_error *err);
void params_free(struct params *params);
/* Assigns new offsets that leave out the rows that products read. */
void params_leave_out_products(struct params *params);
/* Initial values [start, start + n) of row i into out, in host memory. */
void params_initial(const struct params *params, const struct ddl_config *config, uint64_t seed, size_t i,
                    size_t start, size_t n, float *out);

#endif
