/* A model: parameters, gradients, and the one forward pass that training, prefill and decoding share. */
#ifndef DDL_MODEL_H
#define DDL_MODEL_H

#include "ddl/backend.h"
#include "ddl/config.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_model ddl_model;         /* configuration and parameters                       */
typedef struct ddl_workspace ddl_workspace; /* activations of one pass, allocated once            */

/* A parameter, in the order and with the names and shapes of model.safetensors. */
struct ddl_param {
    const char *name;      /* owned by the model */
    size_t ndim, shape[3]; /* dimensions; their sizes, the last index fastest                          */
    size_t count;   /* numbers in it                                                                    */
    bool active;    /* takes part in the computation (an inactive one is never touched)                  */
    float lr_scale; /* 1, or d_base/d for the matrices that muP scales                                   */
    int group;      /* enum ddl_param_group, for weight decay by group                                   */
    long layer;     /* from 0; -1: none, as of the embedding and the head                                */
};
/* What a parameter is to the optimizer: each group may have a weight decay of its own. */
enum ddl_param_group {
    DDL_GROUP_EMBEDDING, /* the embedding, which is the head too */
    DDL_GROUP_MATRIX,    /* two or more dimensions, embedding and kernels aside */
    DDL_GROUP_KERNEL,    /* compressors' and embedding's convolution kernels, read vectors */
    DDL_GROUP_NORM,      /* weights of norms */
    DDL_GROUP_BIAS,      /* of gates and targets */
    DDL_GROUPS           /* how many there are */
};
DDL_API const char *ddl_param_group_name(int group); /* "embedding", ...: a group's name */

/* What matrix products work on; everything else is float32 in every case (mixed precision: master parameters,
 * gradients, optimizer, gates, norms, attention's softmax, the residual state and the loss); sums stay
 * float32. */
enum ddl_precision {
    DDL_PRECISION_F32,  /* operands as they are  */
    DDL_PRECISION_BF16, /* operands rounded to bfloat16: two bytes a weight */
    DDL_PRECISION_TF32, /* float32 operands, which the backend may round to TF32 (a 10-bit mantissa)
                           when it multiplies; not on every backend */
    DDL_PRECISION_INT8, /* not for training: weights of products as scale * q, q in [-127, 127], a scale for
                           each 32 in a row (symmetric): 1.125 bytes a weight */
};
/* "f32", "bf16", "tf32", "int8", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_precision_names[];
/* Those before int8, NULL: the ones that train. */
DDL_API extern const char *const ddl_training_precision_names[];
/* Creates a model whose parameters are zero. The config is checked and copied; the backend is
 * borrowed. */
DDL_API ddl_status ddl_model_create(ddl_model **out, const struct ddl_config *config, ddl_backend *backend,
                                    struct ddl_error *err);
/* The same for inference only. The weights of products (the embedding and the large matrices, not gates,
 * norms, kernels or biases) are stored only in the format of `precision`, 2 or 1.125 bytes per weight; the
 * embedding is looked up in that format too. Values are converted to it when written, and back to float32
 * when read. Gradients, a training workspace, saving and another precision are rejected with DDL_E_USAGE.
 * With DDL_PRECISION_F32 it is ddl_model_create; DDL_PRECISION_TF32 has float32 weights too. */
DDL_API ddl_status ddl_model_create_for_inference(ddl_model **out, const struct ddl_config *config,
                                                  enum ddl_precision precision, ddl_backend *backend,
                                                  struct ddl_error *err);
DDL_API void ddl_model_free(ddl_model *model); /* NULL is allowed */
/* Initial values; a function of the seed and of each parameter's name and shape alone. */
DDL_API ddl_status ddl_model_init(ddl_model *model, uint64_t seed, struct ddl_error *err);

/* A folder with config.json and model.safetensors (or several files and their index), as the authors' release
 * or this library writes them, or with files of torch.save (pytorch_model.bin, ckpt.pt). Warnings (unknown
 * keys, ignored tensors) go to `warn`, one message per call, if it is not NULL. Tensors that are missing, of
 * another shape or no parameters are DDL_E_FORMAT, by name.
 */
DDL_API ddl_status ddl_model_load(ddl_model **out, const char *folder, ddl_backend *backend,
                                  ddl_warn_fn *warn, void *user, struct ddl_error *err);
/* How a folder is read. */
struct ddl_load_options {
    bool ignore_extra; /* tensors that are not parameters are warned of instead of refused */
    ddl_warn_fn *warn; /* may be NULL */
    void *user;        /* for warn */
    bool no_verify;    /* the files are not compared with checksums.json */
    /* Other than f32: a model as ddl_model_create_for_inference makes it. Tensors are reduced while they are
     * read, so that the float32 model never is in memory. */
    enum ddl_precision precision;
};
/* The same folder with options; NULL: strict, and no warnings. */
DDL_API ddl_status ddl_model_load_with(ddl_model **out, const char *folder, ddl_backend *backend,
                                       const struct ddl_load_options *options, struct ddl_error *err);
/* Reads only the configuration of such a folder into *out (if a key that only this library writes is absent,
 * the shapes of the tensors decide). `warn` may be NULL. */
DDL_API ddl_status ddl_config_load(struct ddl_config *out, const char *folder, ddl_warn_fn *warn, void *user,
                                   struct ddl_error *err);
/* Writes config.json, model.safetensors (float32) and checksums.json into an existing folder. A model that is
 * there remains valid until the new one has replaced it. Files of a tokenizer that are in the folder are in
 * checksums.json too: save the tokenizer first. config.json
 * has the release's keys only; what they cannot express is in the __metadata__ of model.safetensors. The tied
 * head is written too, as lm_head.weight. */
DDL_API ddl_status ddl_model_save(const ddl_model *model, const char *folder, struct ddl_error *err);
/* Writes config.json alone, as `path`, atomically; a config that ddl_config_check refuses is not written. */
DDL_API ddl_status ddl_config_save(const struct ddl_config *config, const char *path, struct ddl_error *err);

DDL_API const struct ddl_config *ddl_model_config(const ddl_model *model); /* owned by the model */
DDL_API ddl_backend *ddl_model_backend(const ddl_model *model);            /* as borrowed at creation */
DDL_API size_t ddl_model_n_params(const ddl_model *model);                 /* rows  */
DDL_API const struct ddl_param *ddl_model_param(const ddl_model *model,
                                                size_t i); /* row i; owned by the model */
DDL_API size_t ddl_model_size(const ddl_model *model);     /* numbers, over all rows */
/* Bytes of the parameters of an inference-only model in a precision; SIZE_MAX for a config that
 * ddl_config_check rejects. The format of 8-bit weights is that of `backend`, which may be NULL for other
 * precisions. */
DDL_API size_t ddl_config_weight_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                       const ddl_backend *backend);
/* The rows of ddl_model_param for a config without a model: n rows; *out is malloc'ed together with its names
 * (free with free). */
DDL_API ddl_status ddl_params_plan(const struct ddl_config *config, struct ddl_param **out, size_t *n,
                                   struct ddl_error *err);

/* Sets the precision of products: for training, or to change it. A reduced copy of the weights is allocated
 * in addition to the float32 values (the embedding is looked up in float32). A workspace is for the precision
 * that the model had when the workspace was created. A model from ddl_model_create has DDL_PRECISION_F32. */
DDL_API ddl_status ddl_model_set_precision(ddl_model *model, enum ddl_precision precision,
                                           struct ddl_error *err);
DDL_API enum ddl_precision ddl_model_precision(const ddl_model *model); /* as set, of its products */

/* Copies parameter i to host memory, as the model holds it: out (count floats, row-major). If the device has
 * failed, the numbers are undefined, and the next loss, gradient, logits or save reports it. */
DDL_API void ddl_model_read_param(const ddl_model *model, size_t i, float *out);
/* And from there: values (count floats, row-major) become parameter i. */
DDL_API void ddl_model_write_param(ddl_model *model, size_t i, const float *values);
/* Gradients exist after ddl_model_enable_grad (zeroed). */
DDL_API ddl_status ddl_model_enable_grad(ddl_model *model, struct ddl_error *err);
/* All gradients become 0; no effect before ddl_model_enable_grad. */
DDL_API void ddl_model_zero_grad(ddl_model *model);
/* Copies the gradient of parameter i to host memory, as ddl_model_read_param: out (count floats, row-major).
 */
DDL_API void ddl_model_read_grad(const ddl_model *model, size_t i, float *out);

/* What the backward pass recomputes instead of keeping it from the forward pass. Losses are bitwise equal
 * under each choice; so are gradients, unless a state was reconstructed (rules delta, scale, gated, and
 * add with ddl_f_norm): they then differ by the rounding error of the reconstruction. */
enum ddl_recompute {
    DDL_RECOMPUTE_ELEMENTWISE, /* the default. Elementwise results: a sublayer's input and its norm, rotated
                            and normalized queries and keys, SwiGLU. Costs at most a few percent of the
                            time */
    DDL_RECOMPUTE_NONE,        /* nothing: every layer keeps all of it */
    DDL_RECOMPUTE_BLOCK, /* attention and MLP too, but for their output products: a layer keeps only what the
                            residual rule needs. Two thirds of the blocks' forward pass once more */
    DDL_RECOMPUTES       /* how many there are */
};
/* "elementwise", "none", "block", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_recompute_names[];

/* What a workspace is for. */
struct ddl_workspace_options {
    size_t batch, tokens;         /* largest batch: sequences, and tokens of each */
    bool train;                   /* backward too */
    enum ddl_recompute recompute; /* with `train` */
    bool ranks;                   /* ranks and entropies of ddl_model_scores; not with `train` */
};
/* Allocates memory for passes of this model, in its precision, within the `options`. `model` is borrowed and
 * must outlive the workspace. Logits are computed in
 * blocks of rows or, for losses in bfloat16 on a CPU, of columns. */
DDL_API ddl_status ddl_workspace_create(ddl_workspace **out, const ddl_model *model,
                                        const struct ddl_workspace_options *options, struct ddl_error *err);
DDL_API void ddl_workspace_free(ddl_workspace *ws); /* NULL is allowed */
/* Bytes that a workspace for a model of this config and precision takes on the backend (options as above),
 * without making it; SIZE_MAX where that does not fit, or the backend has no such precision. `backend`
 * determines how large blocks of logits are, up to 800 MB on a device; NULL: a CPU with bfloat16
 * instructions. */
DDL_API size_t ddl_workspace_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                   const struct ddl_workspace_options *options, const ddl_backend *backend);

/* tokens, targets: (B, T) host memory; a target of -1 is ignored. A token or target outside the vocabulary is
 * DDL_E_USAGE. Targets may be NULL where no loss is wanted. */
struct ddl_batch {
    size_t B, T;
    const int32_t *tokens, *targets;
};
/* A loss that can be added up. */
struct ddl_loss {
    double sum;       /* of -log p over counted targets, in nats */
    size_t n_targets; /* that were counted */
};

/* Loss without gradients. row_loss (B*T host floats, 0 where ignored) may be NULL. */
DDL_API ddl_status ddl_model_loss(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                  struct ddl_loss *loss, float *row_loss, struct ddl_error *err);
/* What is computed for each row of a batch: (B*T) host arrays =, any of which may be NULL. */
struct ddl_row_scores {
    float *losses;    /* -log p(target) in nats, 0 where ignored */
    int32_t *ranks;   /* vocabulary entries with a higher logit than the target's, or an equal one and a lower
                         id: 0 if greedy decoding would choose the target; -1 where ignored */
    float *entropies; /* entropy of the prediction in nats */
};
/* Loss without gradients, and the scores of each row. Ranks and entropies need a workspace with `ranks`. In
 * bfloat16 such a workspace computes losses from whole rows of logits: they differ in rounding. */
DDL_API ddl_status ddl_model_scores(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                    struct ddl_loss *loss, const struct ddl_row_scores *rows,
                                    struct ddl_error *err);
/* Loss, and the gradient of scale * sum added to the model's gradients. For the mean over a step pass
 * 1 / (targets of all its micro-batches). Needs enable_grad and a training workspace. */
DDL_API ddl_status ddl_model_backward(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                      double scale, struct ddl_loss *loss, struct ddl_error *err);

/* Logits of the last `rows` positions of every sequence: out (B, rows, V), host memory, rows <= T. Decoding
 * token by token: ddl/session.h. */
DDL_API ddl_status ddl_model_logits(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                    size_t rows, float *out, struct ddl_error *err);

/* How many steps all sublayers of the model of a workspace have: one each, with ddl_steps as many. */
DDL_API size_t ddl_workspace_n_steps(const ddl_workspace *ws);
/* Numbers of a token in the tensor called `tensor` of step s, in order (attention before MLP, layer by layer,
 * and the steps of a sublayer in turn); 0 if the last pass of the training workspace has no such tensor
 * there. docs/inspect.md lists the tensors. */
DDL_API size_t ddl_workspace_trace_width(const ddl_workspace *ws, size_t s, const char *tensor);
/* Copies that tensor of step `s` to `out`, (N, width) with N = B*T of the last pass, or (width) of a
 * parameter. DDL_E_USAGE if there is none. */
DDL_API ddl_status ddl_workspace_read_trace(const ddl_workspace *ws, size_t s, const char *tensor, float *out,
                                            struct ddl_error *err);

/* Floating-point operations of one token of a config's model in sequences of T tokens (on average it sees (T
 * + 1) / 2): the matrix products, the head, attention, compressors and the residual rule; the formula is
 * in src/model/pass/flops.c. With `train` three times the forward pass. NAN for a configuration that
 * ddl_config_check refuses. */
DDL_API double ddl_config_flops_per_token(const struct ddl_config *config, size_t T, bool train);

#ifdef __cplusplus
}
#endif
#endif
