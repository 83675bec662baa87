/* The generic delta block, for use outside Transformers: the caller brings a state X and a target v from a
 * branch of its own; the block makes the direction and the gate from X and applies the operator. */
#ifndef DDL_BLOCK_H
#define DDL_BLOCK_H

#include "ddl/backend.h"
#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the direction q comes from. */
enum ddl_direction {
    DDL_DIRECTION_MLP,       /* q = W2 gelu(W1 z + b1) + b2, z = pool(X), exact (erf) GELU        */
    DDL_DIRECTION_ATTENTION, /* a = softmax_j(w_a . X_:j / sqrt(d)), q = W sum_j a_j X_:j         */
};
/* What the gate, and the direction's MLP, see of the state: Z numbers z. */
enum ddl_pool {
    DDL_POOL_MEAN,    /* z_i = (1/c) sum_j X_ij: Z = d    */
    DDL_POOL_FLATTEN, /* z = X, all of it:       Z = d c  */
};

/* Gate: beta = 2 sigmoid(gate_out . tanh(gate_in z) + gate_bias). */
struct ddl_block_config {
    size_t d, c;
    int direction;      /* enum ddl_direction                          */
    int pool;           /* enum ddl_pool; the gate's z uses it in both */
    size_t hidden;      /* of the direction's MLP                      */
    size_t gate_hidden; /* of the gate                                 */
    float eps;          /* 1e-5                                        */
};

/* Parameters, or their gradients. Row-major host float32; the caller owns them. Those of the other direction
 * are not read and may be NULL. */
struct ddl_block_params {
    float *gate_in;   /* (gate_hidden, Z) */
    float *gate_out;  /* (gate_hidden)    */
    float *gate_bias; /* (1)              */
    float *w1;        /* (hidden, Z)      */
    float *b1;        /* (hidden)         */
    float *w2;        /* (d, hidden)      */
    float *b2;        /* (d)              */
    float *w_a;       /* (d)              */
    float *w;         /* (d, d)           */
};

typedef struct ddl_block ddl_block; /* configuration, and memory for passes of at most max_rows rows */

/* Allocates memory of the backend (borrowed; it must outlive the block) for passes of at most max_rows rows.
 * DDL_E_USAGE for a size, a value or an epsilon out of range; DDL_E_MEMORY. *out is NULL after an error. */
DDL_API ddl_status ddl_block_create(ddl_block **out, const struct ddl_block_config *config, size_t max_rows,
                                    ddl_backend *backend, struct ddl_error *err);
DDL_API void ddl_block_free(ddl_block *block); /* NULL is allowed */

/* The arrays of a forward pass, host memory. X_out may be X; beta and q may be NULL. */
struct ddl_block_args {
    size_t N;       /* rows                                 */
    const float *X; /* (N, d, c) state                      */
    const float *v; /* (N, c) target                        */
    float *X_out;   /* (N, d, c) the new state, written     */
    float *beta;    /* (N) receives the gate of the pass    */
    float *q;       /* (N, d) receives its direction        */
};
/* The arrays of a backward pass, host memory. dX may be G. */
struct ddl_block_grad_args {
    size_t N;       /* rows                                      */
    const float *X; /* (N, d, c) state of the forward pass       */
    const float *v; /* (N, c) target of the forward pass         */
    const float *G; /* (N, d, c) gradient of X_out               */
    float *dX;      /* (N, d, c) gradient of X, written          */
    float *dv;      /* (N, c) gradient of v, written             */
};

/* X_out, beta and q from X and v, by the weights in params. DDL_E_USAGE if N exceeds max_rows or a needed
 * array is NULL. */
DDL_API ddl_status ddl_block_forward(ddl_block *block, const struct ddl_block_params *params,
                                     const struct ddl_block_args *args, struct ddl_error *err);
/* dX and dv from X, v and G, by the weights in params; the gradients of the parameters are added to grads.
 * DDL_E_USAGE as for ddl_block_forward. */
DDL_API ddl_status ddl_block_backward(ddl_block *block, const struct ddl_block_params *params,
                                      const struct ddl_block_grad_args *args, struct ddl_block_params *grads,
                                      struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
