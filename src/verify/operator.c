/* Cases of the operator, of its element-wise form, and of the generic block: one safetensors file each. */
#include "verify/internal.h"

#include "ddl/block.h"
#include "ddl/delta.h"

#include <string.h>

static const float k_eps = 1e-5f;

/* "ratio" in "ratio-d40-c3.safetensors": a word of the file's name, between anything that is no letter or
 * digit. */
static bool name_has_word(const char *path, const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const char *slash = strrchr(path, '/');
    for (const char *at = slash ? slash + 1 : path; *at;) {
        size_t n = strspn(at, letters);
        if (n == strlen(word) && strncmp(at, word, n) == 0)
            return true;
        at += n ? n : 1;
    }
    return false;
}

struct rule {
    int form, update;
};

static struct rule rule_of(const char *path)
{
    static const struct {
        const char *word;
        struct rule rule;
    } rows[] = {
        { "ratio", { DDL_FORM_RATIO, DDL_UPDATE_DELTA } },
        { "l2", { DDL_FORM_L2, DDL_UPDATE_DELTA } },
        { "write", { DDL_FORM_UNIT, DDL_UPDATE_WRITE } },
        { "erase", { DDL_FORM_UNIT, DDL_UPDATE_ERASE } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (name_has_word(path, rows[i].word))
            return rows[i].rule;
    }
    return (struct rule){ DDL_FORM_UNIT, DDL_UPDATE_DELTA };
}

/* Reads each input into *to, with the shape of `want`; stops at the first that fails. */
struct input {
    struct want want;
    float **to;
};
static ddl_status read_inputs(struct context *c, const ddl_safetensors *file, const struct input *list,
                              size_t n, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = read_floats(c, file, list[i].want, list[i].to, err);
    return status;
}

/* Buffers for a result and the expected one. */
struct output {
    struct want want;
    float **to;
    double *expected;
    size_t count;
};
static ddl_status prepare_outputs(struct context *c, const ddl_safetensors *file, struct output *list,
                                  size_t n, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i++) {
        status = read_doubles(c, file, list[i].want, &list[i].expected, err);
        list[i].count = 1;
        for (size_t j = 0; j < list[i].want.ndim; j++)
            list[i].count *= list[i].want.shape[j];
        if (!status)
            status = take_floats(c, list[i].count, list[i].to, err);
    }
    return status;
}

/* The first output is the result, the others are gradients. Those of the operator and the element-wise form
 * are compared relative to their own size: dq of a row with a tiny q is so large that a common floor would
 * hide the others. */
static void compare_rows(struct context *c, const struct output *list, size_t n)
{
    compare(c, "result", LIMIT_OPERATOR, list[0].want.name, list[0].count, *list[0].to, list[0].expected, 0);
    for (size_t i = 1; i < n; i++)
        compare(c, "gradient", LIMIT_OPERATOR, list[i].want.name, list[i].count, *list[i].to,
                list[i].expected, 0);
}

static void compare_block(struct context *c, const struct output *list, size_t n)
{
    struct gradient gradients[16];
    compare_rows(c, list, 1);
    for (size_t i = 1; i < n; i++)
        gradients[i - 1] =
            (struct gradient){ list[i].want.name, list[i].count, *list[i].to, list[i].expected };
    compare_gradients(c, LIMIT_OPERATOR, gradients, n - 1);
}

/* The dimensions of `name`, with exactly ndim of them. */
static ddl_status shape_of(struct context *c, const ddl_safetensors *file, const char *name, size_t ndim,
                           size_t *shape, struct ddl_error *err)
{
    const struct ddl_tensor *t;
    ddl_status status = find_tensor(file, c->path, name, ndim, &t, err);
    if (!status)
        memcpy(shape, t->shape, ndim * sizeof *shape);
    return status;
}

/* A gate of N numbers may have the shape (N) or (N, 1). */
static struct want column(const ddl_safetensors *file, const char *name, size_t N)
{
    const struct ddl_tensor *t = ddl_safetensors_find(file, name);
    return (struct want){ name, t && t->ndim == 2 ? 2 : 1, { N, 1 } };
}

static ddl_status run_operator(struct context *c, const ddl_safetensors *file, struct ddl_error *err)
{
    size_t s[3];
    ddl_status status = shape_of(c, file, "X", 3, s, err);
    if (status)
        return status;
    size_t N = s[0], d = s[1], w = s[2];
    struct rule rule = rule_of(c->path);
    float *X, *q, *v, *beta, *G, *Xp, *dX, *dq, *dv, *dbeta;
    const struct input inputs[] = { { { "X", 3, { N, d, w } }, &X },
                                    { { "q", 2, { N, d } }, &q },
                                    { { "v", 2, { N, w } }, &v },
                                    { column(file, "beta", N), &beta },
                                    { { "G", 3, { N, d, w } }, &G } };
    struct output outputs[] = { { { "Xp", 3, { N, d, w } }, &Xp, NULL, 0 },
                                { { "dX", 3, { N, d, w } }, &dX, NULL, 0 },
                                { { "dq", 2, { N, d } }, &dq, NULL, 0 },
                                { { "dv", 2, { N, w } }, &dv, NULL, 0 },
                                { column(file, "dbeta", N), &dbeta, NULL, 0 } };
    status = read_inputs(c, file, inputs, 5, err);
    if (!status)
        status = prepare_outputs(c, file, outputs, 5, err);
    if (status)
        return status;
    struct ddl_delta_args a = { .N = N,
                                .d = d,
                                .c = w,
                                .eps = k_eps,
                                .form = rule.form,
                                .update = rule.update,
                                .X = X,
                                .q = q,
                                .v = v,
                                .beta = beta,
                                .X_out = Xp };
    struct ddl_delta_grad_args g = { .N = N,
                                     .d = d,
                                     .c = w,
                                     .eps = k_eps,
                                     .form = rule.form,
                                     .update = rule.update,
                                     .X = X,
                                     .q = q,
                                     .v = v,
                                     .beta = beta,
                                     .G = G,
                                     .dX = dX,
                                     .dq = dq,
                                     .dv = dv,
                                     .dbeta = dbeta };
    status = ddl_delta_forward(c->backend, &a, err);
    if (!status)
        status = ddl_delta_backward(c->backend, &g, err);
    if (!status)
        compare_rows(c, outputs, 5);
    return status;
}

static ddl_status run_elementwise(struct context *c, const ddl_safetensors *file, struct ddl_error *err)
{
    size_t s[2];
    ddl_status status = shape_of(c, file, "x", 2, s, err);
    if (status)
        return status;
    size_t N = s[0], d = s[1];
    float *x, *q, *v, *beta, *G, *xp, *dx, *dq, *dv, *dbeta;
    const struct input inputs[] = { { { "x", 2, { N, d } }, &x },
                                    { { "q", 2, { N, d } }, &q },
                                    { { "v", 2, { N, d } }, &v },
                                    { column(file, "beta", N), &beta },
                                    { { "G", 2, { N, d } }, &G } };
    struct output outputs[] = { { { "Xp", 2, { N, d } }, &xp, NULL, 0 },
                                { { "dx", 2, { N, d } }, &dx, NULL, 0 },
                                { { "dq", 2, { N, d } }, &dq, NULL, 0 },
                                { { "dv", 2, { N, d } }, &dv, NULL, 0 },
                                { column(file, "dbeta", N), &dbeta, NULL, 0 } };
    status = read_inputs(c, file, inputs, 5, err);
    if (!status)
        status = prepare_outputs(c, file, outputs, 5, err);
    if (status)
        return status;
    struct ddl_elementwise_args a = { N, d, k_eps, x, q, v, beta, xp };
    struct ddl_elementwise_grad_args g = { N, d, k_eps, x, q, v, beta, G, dx, dq, dv, dbeta };
    status = ddl_elementwise_forward(c->backend, &a, err);
    if (!status)
        status = ddl_elementwise_backward(c->backend, &g, err);
    if (!status)
        compare_rows(c, outputs, 5);
    return status;
}

/* --- the generic block -------------------------------------------------------------------------------- */

/* Direction and sizes from the tensors that are there. */
static ddl_status block_config(struct context *c, const ddl_safetensors *file, size_t d, size_t w,
                               struct ddl_block_config *out, struct ddl_error *err)
{
    size_t gate[2], hidden[2] = { 0 };
    ddl_status status = shape_of(c, file, "gate_in", 2, gate, err);
    if (status)
        return status;
    bool attention = ddl_safetensors_find(file, "w_a") || ddl_safetensors_find(file, "w");
    if (!attention)
        status = shape_of(c, file, "w1", 2, hidden, err);
    if (status)
        return status;
    if (gate[1] != d && gate[1] != d * w)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: gate_in has %zu columns, expected %zu (mean) or %zu (flatten)", c->path,
                             gate[1], d, d * w);
    *out = (struct ddl_block_config){ .d = d,
                                      .c = w,
                                      .direction = attention ? DDL_DIRECTION_ATTENTION : DDL_DIRECTION_MLP,
                                      .pool = gate[1] == d ? DDL_POOL_MEAN : DDL_POOL_FLATTEN,
                                      .hidden = hidden[0],
                                      .gate_hidden = gate[0],
                                      .eps = k_eps };
    return DDL_OK;
}

/* gate_out may have the shape (gate_hidden) or (1, gate_hidden). */
static struct want row(const ddl_safetensors *file, const char *name, size_t n)
{
    const struct ddl_tensor *t = ddl_safetensors_find(file, name);
    return t && t->ndim == 2 ? (struct want){ name, 2, { 1, n } } : (struct want){ name, 1, { n } };
}

enum { MAX_PARAMS = 7 };

/* The parameters in use: their fields in `params` and `grads`. Returns how many. */
static size_t block_params(const ddl_safetensors *file, const struct ddl_block_config *k,
                           struct ddl_block_params *params, struct ddl_block_params *grads,
                           struct input inputs[MAX_PARAMS], struct output outputs[MAX_PARAMS])
{
    size_t d = k->d, Z = k->pool == DDL_POOL_MEAN ? d : d * k->c, h = k->hidden, g = k->gate_hidden, n = 0;
    const struct {
        struct want value, gradient;
        float **to, **dto;
        int direction; /* -1: both */
    } rows[] = {
        { { "gate_in", 2, { g, Z } }, { "dgate_in", 2, { g, Z } }, &params->gate_in, &grads->gate_in, -1 },
        { row(file, "gate_out", g), row(file, "dgate_out", g), &params->gate_out, &grads->gate_out, -1 },
        { { "gate_bias", 1, { 1 } }, { "dgate_bias", 1, { 1 } }, &params->gate_bias, &grads->gate_bias, -1 },
        { { "w1", 2, { h, Z } }, { "dw1", 2, { h, Z } }, &params->w1, &grads->w1, DDL_DIRECTION_MLP },
        { { "b1", 1, { h } }, { "db1", 1, { h } }, &params->b1, &grads->b1, DDL_DIRECTION_MLP },
        { { "w2", 2, { d, h } }, { "dw2", 2, { d, h } }, &params->w2, &grads->w2, DDL_DIRECTION_MLP },
        { { "b2", 1, { d } }, { "db2", 1, { d } }, &params->b2, &grads->b2, DDL_DIRECTION_MLP },
        { { "w_a", 1, { d } }, { "dw_a", 1, { d } }, &params->w_a, &grads->w_a, DDL_DIRECTION_ATTENTION },
        { { "w", 2, { d, d } }, { "dw", 2, { d, d } }, &params->w, &grads->w, DDL_DIRECTION_ATTENTION },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].direction >= 0 && rows[i].direction != k->direction)
            continue;
        inputs[n] = (struct input){ rows[i].value, rows[i].to };
        outputs[n] = (struct output){ rows[i].gradient, rows[i].dto, NULL, 0 };
        n++;
    }
    return n;
}

static ddl_status run_block(struct context *c, const ddl_safetensors *file, struct ddl_error *err)
{
    size_t s[3];
    struct ddl_block_config k;
    ddl_status status = shape_of(c, file, "X", 3, s, err);
    if (!status)
        status = block_config(c, file, s[1], s[2], &k, err);
    if (status)
        return status;
    size_t N = s[0], d = s[1], w = s[2];
    float *X, *v, *G, *Xp, *dX, *dv;
    struct ddl_block_params params = { 0 }, grads = { 0 };
    struct input inputs[3 + MAX_PARAMS] = { { { "X", 3, { N, d, w } }, &X },
                                            { { "v", 2, { N, w } }, &v },
                                            { { "G", 3, { N, d, w } }, &G } };
    struct output outputs[3 + MAX_PARAMS] = { { { "Xp", 3, { N, d, w } }, &Xp, NULL, 0 },
                                              { { "dX", 3, { N, d, w } }, &dX, NULL, 0 },
                                              { { "dv", 2, { N, w } }, &dv, NULL, 0 } };
    size_t n = 3 + block_params(file, &k, &params, &grads, inputs + 3, outputs + 3);
    status = read_inputs(c, file, inputs, n, err);
    if (!status)
        status = prepare_outputs(c, file, outputs, n, err);
    if (status)
        return status;
    for (size_t i = 3; i < n; i++) /* the block adds to these */
        memset(*outputs[i].to, 0, outputs[i].count * sizeof(float));
    ddl_block *block;
    status = ddl_block_create(&block, &k, N, c->backend, err);
    if (status)
        return status;
    status = ddl_block_forward(block, &params, &(struct ddl_block_args){ N, X, v, Xp, NULL, NULL }, err);
    if (!status)
        status = ddl_block_backward(block, &params, &(struct ddl_block_grad_args){ N, X, v, G, dX, dv },
                                    &grads, err);
    if (!status)
        compare_block(c, outputs, n);
    ddl_block_free(block);
    return status;
}

/* --- files -------------------------------------------------------------------------------------------- */

static ddl_status with_file(struct context *c,
                            ddl_status run(struct context *, const ddl_safetensors *, struct ddl_error *),
                            struct ddl_error *err)
{
    ddl_safetensors *file;
    ddl_status status = ddl_safetensors_open(&file, c->path, err);
    if (status)
        return status;
    status = run(c, file, err);
    ddl_safetensors_close(file);
    return status;
}

ddl_status check_operator(struct context *c, struct ddl_error *err)
{
    return with_file(c, run_operator, err);
}

ddl_status check_elementwise(struct context *c, struct ddl_error *err)
{
    return with_file(c, run_elementwise, err);
}

ddl_status check_block(struct context *c, struct ddl_error *err)
{
    return with_file(c, run_block, err);
}

/* A case that lacks a tensor is still a case: any tensor name that only files of its kind have identifies it.
 */
const struct kind *kind_of_file(const ddl_safetensors *file)
{
    static const struct {
        const char *tensors[6];
        struct kind kind;
    } rows[] = {
        { { "gate_in", "gate_out", "gate_bias", "dgate_in", "dgate_bias" }, { "block", true, check_block } },
        { { "x", "dx" }, { "elementwise", true, check_elementwise } },
        { { "Xp", "dX", "dbeta", "X", "G" }, { "operator", true, check_operator } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t j = 0; j < 6 && rows[i].tensors[j]; j++) {
            if (ddl_safetensors_find(file, rows[i].tensors[j]))
                return &rows[i].kind;
        }
    }
    return NULL;
}
