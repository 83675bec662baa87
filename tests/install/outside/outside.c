/* A user program, built against the installed tree only, as C and as C++: applies the delta operator to plain
 * arrays, then trains a model to repeat a sequence. Prints the loss before and after. */
#include <ddl/delta.h>
#include <ddl/model.h>
#include <ddl/version.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, STEPS = 20 };

/* d = 2, c = 1, k = (1, 0): beta = 1 overwrites X's first row with v and preserves the second. */
static ddl_status overwrite(ddl_backend *backend, struct ddl_error *err)
{
    const float X[2] = { 3, 4 }, q[2] = { 2, 0 }, v[1] = { 5 }, beta[1] = { 1 };
    float out[2];
    struct ddl_delta_args args;
    memset(&args, 0, sizeof args);
    args.N = 1;
    args.d = 2;
    args.c = 1;
    args.eps = 1e-5f;
    args.X = X;
    args.q = q;
    args.v = v;
    args.beta = beta;
    args.X_out = out;
    ddl_status status = ddl_delta_forward(backend, &args, err);
    if (!status && !(fabsf(out[0] - 5) < 1e-5f && fabsf(out[1] - 4) < 1e-5f))
        return ddl_error_set(err, DDL_E_NUMERIC, "delta rule: expected (5, 4), found (%g, %g)", out[0],
                             out[1]);
    return status;
}

/* One step of plain gradient descent on every parameter. */
static void descend(ddl_model *model, float lr)
{
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        size_t n = ddl_model_param(model, i)->count;
        float *value = (float *)malloc(2 * n * sizeof *value), *grad = value + n;
        if (!value)
            exit(1);
        ddl_model_read_param(model, i, value);
        ddl_model_read_grad(model, i, grad);
        for (size_t j = 0; j < n; j++)
            value[j] -= lr * grad[j];
        ddl_model_write_param(model, i, value);
        free(value);
    }
}

static ddl_status learn(ddl_model *model, ddl_workspace *ws, double *first, double *last,
                        struct ddl_error *err)
{
    int32_t tokens[T], targets[T];
    for (int t = 0; t < T; t++) {
        tokens[t] = t % 5;
        targets[t] = (t + 1) % 5;
    }
    struct ddl_batch batch;
    batch.B = 1;
    batch.T = T;
    batch.tokens = tokens;
    batch.targets = targets;
    ddl_status status = ddl_model_enable_grad(model, err);
    for (int step = 0; step <= STEPS && !status; step++) {
        struct ddl_loss loss;
        ddl_model_zero_grad(model);
        status = ddl_model_backward(model, ws, &batch, 1.0 / T, &loss, err);
        if (!status)
            *(step == 0 ? first : last) = loss.sum / (double)loss.n_targets;
        descend(model, 0.05f);
    }
    return status;
}

int main(void)
{
    struct ddl_error err;
    ddl_backend *backend = NULL;
    ddl_model *model = NULL;
    ddl_workspace *ws = NULL;
    struct ddl_workspace_options options = { 1, T, true, DDL_RECOMPUTE_ELEMENTWISE, false };
    double first = 0, last = 0;
    struct ddl_config config = ddl_config_defaults();
    ddl_status status = ddl_config_set_preset(&config, "ddl-cc-ec", &err);
    if (!status)
        status = ddl_config_set_size(&config, "micro", &err);
    config.n_layers = 2;
    config.vocab_size = 32;
    config.block_size = T;
    if (!status)
        status = ddl_backend_create(&backend, "cpu", 1, &err);
    if (!status)
        status = overwrite(backend, &err);
    if (!status)
        status = ddl_model_create(&model, &config, backend, &err);
    if (!status)
        status = ddl_model_init(model, 1, &err);
    if (!status)
        status = ddl_workspace_create(&ws, model, &options, &err);
    if (!status)
        status = learn(model, ws, &first, &last, &err);
    ddl_workspace_free(ws);
    ddl_model_free(model);
    ddl_backend_free(backend);
    if (status) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("ddl %s, headers %s: loss %.4f, then %.4f\n", ddl_version(), DDL_VERSION, first, last);
    return last < 0.5 * first ? 0 : 1;
}
