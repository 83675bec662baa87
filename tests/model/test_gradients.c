/* model/params/gradients.c: the content of the gradients' memory before ddl_model_zero_grad has no effect,
 * and products that overwrite a gradient are bit-identical to products that accumulate into zeros. The memory
 * is NaN before each call. */
#include "support/properties.h"
#include "support/models.h"

#include "model/params/gradients.h"
#include "model/pass/workspace.h"
#include "train/step/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void zero_over_nan(ddl_model *model)
{
    const struct ddl_backend *backend = model->backend;
    backend->ops->fill(backend->ctx, &(struct fill_args){ model->params.total, NAN, model->grad });
    ddl_model_zero_grad(model);
}

static void fill_row(ddl_model *model, size_t i, float value)
{
    const struct ddl_backend *backend = model->backend;
    backend->ops->fill(backend->ctx,
                       &(struct fill_args){ model->params.row[i].count, value, gradient_of(model, i) });
}

/* What a pass adds to: zeros, as marks or in memory, and every other row `odd`. */
struct before {
    bool blank;
    float odd;
};

static void prepare(ddl_model *model, struct before before)
{
    zero_over_nan(model);
    for (size_t i = 0; i < model->params.n; i++) {
        if (i % 2 == 1 && before.odd != 0)
            fill_row(model, i, before.odd);
        else if (!before.blank)
            fill_row(model, i, 0);
    }
}

/* All gradients after each of the passes, concatenated; the caller frees them. -0 is replaced by 0, because
 * 0 + -0 is 0. */
static float *gradients_after(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                              size_t passes, struct before before)
{
    size_t n = ddl_model_size(model);
    float *out = malloc(passes * n * sizeof *out);
    prepare(model, before);
    for (size_t pass = 0; pass < passes; pass++) {
        struct ddl_loss loss;
        struct ddl_error err;
        assert_ok(ddl_model_backward(model, ws, batch, 0.1, &loss, &err), err);
        float *grads = all_gradients(model);
        for (size_t i = 0; i < n; i++)
            out[pass * n + i] = grads[i] + 0.0f;
        free(grads);
    }
    return out;
}

static size_t inactive; /* rows met */

/* Numbers throughout, and 0 for rows that take no part. */
static void assert_gradients(const char *name, const ddl_model *model, const float *grads)
{
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        const struct ddl_param *row = ddl_model_param(model, i);
        inactive += !row->active;
        for (size_t j = 0; j < row->count; j++) {
            if (!isfinite(grads[j]) || (!row->active && grads[j] != 0))
                fail_msg("%s: the gradient of %s is %g", name, row->name, (double)grads[j]);
        }
        grads += row->count;
    }
}

static ddl_workspace *workspace_for(const ddl_model *model, const struct ddl_batch *batch, int recompute)
{
    const struct ddl_workspace_options options = {
        .batch = batch->B, .tokens = batch->T, .train = true, .recompute = (enum ddl_recompute)recompute
    };
    struct ddl_error err;
    ddl_workspace *ws;
    assert_ok(ddl_workspace_create(&ws, model, &options, &err), err);
    ws->logit_rows = batch->B * batch->T / 2 + 1; /* so that the head takes several steps, */
    if (ws->tile)
        ws->tile = model->config.vocab_size / 3 + 1; /* each of which meets all of its matrix or a part */
    return ws;
}

static void compare(const char *name, ddl_model *model, const struct ddl_batch *batch, int recompute,
                    size_t passes, float odd)
{
    ddl_workspace *ws = workspace_for(model, batch, recompute);
    size_t n = passes * ddl_model_size(model);
    float *expected = gradients_after(model, ws, batch, passes, (struct before){ false, odd });
    float *found = gradients_after(model, ws, batch, passes, (struct before){ true, odd });
    if (odd == 0)
        assert_gradients(name, model, expected);
    if (memcmp(found, expected, n * sizeof *found) != 0)
        fail_msg("%s, %s, %s, every other row %g: written gradients differ by %g from added ones", name,
                 ddl_backend_name(model->backend), ddl_precision_names[ddl_model_precision(model)],
                 (double)odd, relative_error(n, found, expected));
    free(found);
    free(expected);
    ddl_workspace_free(ws);
}

static void writing_is_adding_to_zeros(ddl_backend *backend)
{
    inactive = 0;
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 2]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &config,
                         i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32);
        for (int recompute = 0; recompute < DDL_RECOMPUTES; recompute++)
            compare(small_variants[i / 2].name, f.model, &f.batch, recompute, 2, 0);
        compare(small_variants[i / 2].name, f.model, &f.batch, DDL_RECOMPUTE_ELEMENTWISE, 1, 1);
        small_model_free(&f);
    }
    assert_true(inactive > 0);
}
PROPERTY(writing_is_adding_to_zeros)

static void golden_model(const char *name, ddl_model *model, const struct ddl_batch *batch)
{
    struct ddl_error err;
    for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_BF16; precision++) {
        assert_ok(ddl_model_set_precision(model, (enum ddl_precision)precision, &err), err);
        compare(name, model, batch, DDL_RECOMPUTE_ELEMENTWISE, 1, 0);
    }
}

static void writing_is_adding_to_zeros_in_golden_models(ddl_backend *backend)
{
    on_every_golden_model(backend, golden_model);
}
PROPERTY(writing_is_adding_to_zeros_in_golden_models)

static void assert_all_zero(const ddl_model *model)
{
    float *grads = all_gradients(model);
    for (size_t i = 0; i < ddl_model_size(model); i++)
        assert_true(grads[i] == 0);
    free(grads);
}

/* Gradients are zero before a pass, and after one that failed or had no tokens. */
static void no_pass_leaves_zeros(ddl_backend *backend)
{
    for (int precision = DDL_PRECISION_F32; precision <= DDL_PRECISION_BF16; precision++) {
        struct ddl_config config = small_config("ddl-cc-ec");
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_name(backend), &config, (enum ddl_precision)precision);
        assert_all_zero(f.model); /* as they were enabled */
        zero_over_nan(f.model);
        assert_all_zero(f.model);
        f.tokens[3] = -1;
        assert_int_equal(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), DDL_E_USAGE);
        assert_all_zero(f.model);
        const struct ddl_batch none = { 0, SMALL_T, f.tokens, f.targets };
        assert_ok(ddl_model_backward(f.model, f.ws, &none, 1, &loss, &err), err);
        assert_all_zero(f.model);
        small_model_free(&f);
    }
}
PROPERTY(no_pass_leaves_zeros)

/* ---- gradients that are reported as final ---- */

struct reports {
    const ddl_model *model;
    size_t calls, begin; /* of the last call */
    float *copy;         /* of the flat buffer, as far as it was reported */
};

static void keep_final(void *user, float *grads, size_t begin)
{
    struct reports *r = user;
    const struct ddl_backend *backend = r->model->backend;
    assert_true(begin <= r->begin);
    backend->ops->download(backend->ctx, r->copy + begin, grads + begin, (r->begin - begin) * sizeof *grads);
    r->calls++;
    r->begin = begin;
}

/* They are those of the end of the pass; what no part of the model writes is zero. */
static void reported_gradients_are_final(ddl_backend *backend)
{
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 2]);
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_name(backend), &config,
                         i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32);
        size_t total = f.model->params.total;
        struct reports r = { .model = f.model, .begin = total, .copy = malloc(total * sizeof *r.copy) };
        zero_over_nan(f.model);
        ddl_workspace_set_grads_final(f.ws, keep_final, &r);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        assert_int_equal(r.calls, 2 * config.n_layers + 2);
        assert_int_equal(r.begin, 0);
        for (size_t p = 0; p < f.model->params.n; p++) {
            size_t n = f.model->params.row[p].count;
            float *end = malloc(n * sizeof *end);
            ddl_model_read_grad(f.model, p, end);
            if (memcmp(end, r.copy + f.model->params.offset[p], n * sizeof *end) != 0)
                fail_msg("%s: the gradient of %s changed after it was reported as final",
                         small_variants[i / 2].name, f.model->params.row[p].name);
            free(end);
        }
        free(r.copy);
        small_model_free(&f);
    }
}
PROPERTY(reported_gradients_are_final)

/* The optimiser's norm is 0 then, and its step is the one that zeros in memory lead to. */
static void the_optimiser_sees_zeros(ddl_backend *backend)
{
    struct ddl_config config = small_config("ddl-tc-ec");
    struct ddl_optim_config optim_config = ddl_optim_defaults();
    struct small_model f[2];
    struct ddl_error err;
    for (int zeros = 0; zeros < 2; zeros++) {
        struct ddl_optim *optim;
        small_model_make(&f[zeros], ddl_backend_name(backend), &config, DDL_PRECISION_F32);
        assert_ok(ddl_optim_create(&optim, f[zeros].model, &optim_config, &err), err);
        prepare(f[zeros].model, (struct before){ .blank = !zeros });
        if (zeros)
            assert_true(ddl_optim_grad_norm(optim) == 0);
        ddl_optim_step(optim, 0.1);
        assert_true(ddl_optim_grad_norm(optim) == 0);
        ddl_optim_free(optim);
    }
    for (size_t i = 0; i < ddl_model_n_params(f[0].model); i++) {
        size_t n = ddl_model_param(f[0].model, i)->count;
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        ddl_model_read_param(f[0].model, i, x);
        ddl_model_read_param(f[1].model, i, y);
        assert_memory_equal(x, y, n * sizeof *x);
        free(x);
        free(y);
    }
    small_model_free(&f[0]);
    small_model_free(&f[1]);
}
PROPERTY(the_optimiser_sees_zeros)

/* ---- what it is for: no zeros where a product writes ---- */

static struct {
    const struct ddl_ops *ops;
    const ddl_model *model;
    size_t zeroed, added; /* rows of the gradients */
} seen;

/* The row whose gradient is at `place`, or the number of rows. */
static size_t row_at(const void *place)
{
    const struct params *params = &seen.model->params;
    size_t i = 0;
    while (i < params->n && place != (const void *)(seen.model->grad + params->offset[i]))
        i++;
    return i;
}

static void see_zero(void *ctx, void *dst, size_t bytes)
{
    size_t row = row_at(dst);
    if (row < seen.model->params.n) {
        assert_false(seen.model->params.in_products[row]);
        seen.zeroed++;
    }
    seen.ops->zero(ctx, dst, bytes);
}

static void see_matmul(void *ctx, const struct matmul_args *a)
{
    seen.added += a->beta != 0 && row_at(a->C) < seen.model->params.n;
    seen.ops->matmul(ctx, a);
}

static void see_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    seen.added += a->beta != 0 && row_at(a->C) < seen.model->params.n;
    seen.ops->matmul_bf16(ctx, a);
}

/* In the first pass after zeroing no matrix of products is zeroed or added to, in the second all are added
 * to. */
static void first_products_write(ddl_backend *backend)
{
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        struct ddl_config config = variant_config(&small_variants[i / 2]);
        struct small_model f;
        struct ddl_loss loss;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_name(backend), &config,
                         i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32);
        seen.ops = f.backend->ops;
        seen.model = f.model;
        seen.zeroed = seen.added = 0;
        struct ddl_ops ops = *seen.ops;
        ops.zero = see_zero;
        ops.matmul = see_matmul;
        ops.matmul_bf16 = see_matmul_bf16;
        f.backend->ops = &ops;
        zero_over_nan(f.model);
        assert_int_equal(seen.zeroed, 0);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        size_t zeroed = seen.zeroed;
        assert_true(zeroed > 0);
        assert_int_equal(seen.added, 0);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        assert_int_equal(seen.zeroed, zeroed);
        assert_true(seen.added > 0);
        f.backend->ops = seen.ops;
        small_model_free(&f);
    }
}
PROPERTY(first_products_write)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing_is_adding_to_zeros),
        cmocka_unit_test(test_writing_is_adding_to_zeros_in_golden_models),
        cmocka_unit_test(test_no_pass_leaves_zeros),
        cmocka_unit_test(test_reported_gradients_are_final),
        cmocka_unit_test(test_the_optimiser_sees_zeros),
        cmocka_unit_test(test_first_products_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
