/* model/observe/probe.c: a pass with a probe computes the same results as one without, and reports every
 * tensor that it computes, in order. */
#include "support/properties.h"
#include "support/models.h"
#include "support/runs.h"

#include "base/mem.h"
#include "model/observe/probe.h"

#include <math.h>

enum { V = 31, B = 2, T = 9, N = B * T };

static int32_t tokens[N], targets[N];

static struct ddl_batch a_batch(void)
{
    for (int32_t i = 0; i < N; i++) {
        tokens[i] = i * 7 % V;
        targets[i] = i % 5 == 2 ? -1 : (i * 11 + 3) % V;
    }
    return (struct ddl_batch){ B, T, tokens, targets };
}

/* ---- memory that starts as NaN: what is shown before it is made is seen ---- */

static const struct ddl_ops *real_ops;

static void *alloc_nan(void *ctx, size_t bytes)
{
    void *block = real_ops->alloc(ctx, bytes);
    if (block)
        real_ops->fill(ctx, &(struct fill_args){ .n = bytes / sizeof(float), .value = NAN, .x = block });
    return block;
}

struct watch {
    ddl_backend *backend;
    const char *model;
    size_t calls;
    char story[8192]; /* "layer.part.tensor " of each call, '<' before it in backward */
};

static void look(void *user, const struct ddl_place *place, const float *x)
{
    struct watch *w = user;
    size_t n = place->rows * place->width, used = strlen(w->story);
    float *host = ddl_mem_alloc(n * sizeof *host);
    w->backend->ops->download(w->backend->ctx, host, x, n * sizeof *host);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(host[i]))
            fail_msg("%s on %s: number %zu of %s of %s is %g; before it: %s", w->model,
                     ddl_backend_name(w->backend), i, place->tensor, place->part, (double)host[i], w->story);
    }
    ddl_mem_free(host);
    assert_true(place->parameter || place->first_row + place->rows <= N);
    assert_int_equal(place->layer == DDL_NO_LAYER,
                     strcmp(place->part, "embed") == 0 || strcmp(place->part, "head") == 0);
    if (place->layer == DDL_NO_LAYER)
        snprintf(w->story + used, sizeof w->story - used, "%s%s.%s ", place->backward ? "<" : "", place->part,
                 place->tensor);
    else
        snprintf(w->story + used, sizeof w->story - used, "%s%zu.%s.%s ", place->backward ? "<" : "",
                 place->layer, place->part, place->tensor);
    w->calls++;
}

/* Runs one pass forward and backward, and a forward alone, without and with a probe. */
static void watch_model(ddl_backend *backend, const struct ddl_config *config, enum ddl_precision precision,
                        int recompute, struct watch *watch)
{
    const struct ddl_workspace_options options = {
        .batch = B, .tokens = T, .train = true, .recompute = (enum ddl_recompute)recompute
    };
    struct ddl_error err;
    struct ddl_batch batch = a_batch();
    struct ddl_probe probe = { .look = look, .user = watch };
    struct ddl_loss loss[2];
    ddl_model *model;
    ddl_workspace *ws;
    float *grad[2];
    assert_ok(ddl_model_create(&model, config, backend, &err), err);
    assert_ok(ddl_model_init(model, 3, &err), err);
    assert_ok(ddl_model_enable_grad(model, &err), err);
    assert_ok(ddl_model_set_precision(model, precision, &err), err);
    for (int probed = 0; probed < 2; probed++) { /* a workspace each: it starts as NaN */
        assert_ok(ddl_workspace_create(&ws, model, &options, &err), err);
        if (probed)
            ddl_workspace_set_probe(ws, &probe);
        ddl_model_zero_grad(model);
        assert_ok(ddl_model_backward(model, ws, &batch, 0.1, &loss[probed], &err), err);
        grad[probed] = all_gradients(model);
        size_t calls = watch->calls;
        assert_true(probed ? calls > 20 : calls == 0);
        ddl_workspace_set_probe(ws, NULL);
        assert_ok(ddl_model_loss(model, ws, &batch, &loss[0], NULL, &err), err);
        assert_int_equal(watch->calls, calls);
        ddl_workspace_free(ws);
    }
    assert_true(loss[0].sum == loss[1].sum);
    assert_memory_equal(grad[0], grad[1], ddl_model_size(model) * sizeof(float));
    free(grad[0]);
    free(grad[1]);
    ddl_model_free(model);
}

/* Each gradient that the optimizer uses is reported, and in each layer the tensors of its sublayers. */
static void assert_complete(const struct ddl_config *config, const char *story)
{
    struct ddl_error err;
    struct ddl_param *rows;
    size_t n;
    assert_ok(ddl_params_plan(config, &rows, &n, &err), err);
    for (size_t i = 0; i < n; i++) {
        char name[160];
        snprintf(name, sizeof name, ".grad.%s ", rows[i].name);
        if (rows[i].active && !strstr(story, name))
            fail_msg("%s is not in: %s", name, story);
    }
    free(rows);
}

static void shows_what_is_made(ddl_backend *backend)
{
    struct ddl_ops ops = *backend->ops;
    struct ddl_backend poisoned = *backend;
    real_ops = backend->ops;
    ops.alloc = alloc_nan;
    poisoned.ops = &ops;
    for (size_t i = 0; i < 2 * SMALL_VARIANTS; i++) {
        for (int recompute = 0; recompute < DDL_RECOMPUTES; recompute++) {
            struct ddl_config config = variant_config(&small_variants[i / 2]);
            struct watch watch = { .backend = &poisoned, .model = small_variants[i / 2].name };
            watch_model(&poisoned, &config, i % 2 ? DDL_PRECISION_BF16 : DDL_PRECISION_F32, recompute,
                        &watch);
            assert_complete(&config, watch.story);
        }
    }
}
PROPERTY(shows_what_is_made)

/* One layer of two models, tensor by tensor. */
static void in_the_order_of_computation(ddl_backend *backend)
{
    static const struct {
        const char *preset;
        int recompute;
        const char *forward, *backward;
    } cases[] = {
        { "baseline", DDL_RECOMPUTE_ELEMENTWISE,
          "embed.X 0.attn.ctx 0.attn.qkv 0.attn.qn 0.attn.kn 0.attn.y 0.attn.X 0.mlp.ctx 0.mlp.ug 0.mlp.s "
          "0.mlp.X "
          "1.attn.ctx ",
          "2.mlp.X head.ctx head.logits head.loss <head.dlogits <head.grad.transformer.wte.weight <head.dctx "
          "<head.grad.ln_f.weight <head.dX <2.mlp.ctx <2.mlp.grad.transformer.h.2.mlp.c_proj.weight "
          "<2.mlp.ds "
          "<2.mlp.dug " },
        { "ddl-cc-ec", DDL_RECOMPUTE_ELEMENTWISE,
          "embed.embedding embed.X 0.attn.x_in 0.attn.ctx 0.attn.beta 0.attn.target 0.attn.qkv 0.attn.qn "
          "0.attn.kn 0.attn.y 0.attn.f 0.attn.readout 0.attn.X 0.mlp.x_in 0.mlp.ctx 0.mlp.beta 0.mlp.target "
          "0.mlp.ug 0.mlp.s 0.mlp.f 0.mlp.readout 0.mlp.X 1.attn.x_in ",
          "2.mlp.X head.x_in head.ctx head.logits head.loss <head.dlogits "
          "<head.grad.transformer.wte.weight <head.dctx <head.grad.ln_f.weight <head.dx_in <head.dX "
          "<head.grad.readout.weight <head.grad.readout.read <2.mlp.X <2.mlp.dbeta <2.mlp.dtarget <2.mlp.df "
          "<2.mlp.dX <2.mlp.x_in <2.mlp.ctx <2.mlp.grad.transformer.h.2.mlp.c_proj.weight " },
        /* the others differ in what is recomputed */
        { "ddl-cc-ec", DDL_RECOMPUTE_NONE, "embed.embedding embed.X ",
          "<2.mlp.dX <2.mlp.grad.transformer.h.2.mlp.c_proj.weight " },
        { "ddl-cc-ec", DDL_RECOMPUTE_BLOCK, "embed.embedding embed.X ",
          "<2.attn.dX <2.attn.x_in <2.attn.ctx <2.attn.qkv <2.attn.qn <2.attn.kn <2.attn.y "
          "<2.attn.grad.transformer.h.2.attn.c_proj.weight " },
        { "baseline", DDL_RECOMPUTE_BLOCK, "embed.X ",
          "<2.mlp.ctx <2.mlp.ug <2.mlp.s <2.mlp.grad.transformer.h.2.mlp.c_proj.weight <2.mlp.ds " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_config config = tiny_config(cases[i].preset, V);
        struct watch watch = { .backend = backend, .model = cases[i].preset };
        watch_model(backend, &config, DDL_PRECISION_F32, cases[i].recompute, &watch);
        if (strncmp(watch.story, cases[i].forward, strlen(cases[i].forward)) != 0)
            fail_msg("%s: %s", cases[i].preset, watch.story);
        if (!strstr(watch.story, cases[i].backward))
            fail_msg("%s: %s", cases[i].preset, watch.story);
    }
}
PROPERTY(in_the_order_of_computation)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shows_what_is_made),
        cmocka_unit_test(test_in_the_order_of_computation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
