/* The model as a whole, on every backend: laws that hold for each configuration of spec 3, golden vectors
 * aside (those are tests/verify's). */
#include "support/support.h"

#include "ddl/model.h"
#include "model/internal.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Small, with odd sizes. */
static struct ddl_config tiny(const char *preset)
{
    struct ddl_config k = ddl_config_defaults();
    struct ddl_error err;
    assert_ok(ddl_config_set_preset(&k, preset, &err), err);
    k.vocab_size = 31;
    k.n_layers = 3;
    k.n_heads = 3;
    k.d_model = 21;
    k.head_dim = 6;
    k.block_size = 16;
    k.hidden_init_std_factor = 2; /* so that no sublayer is too quiet to notice */
    k.embedding_init_std = 1;
    return k;
}

struct variant {
    const char *name, *preset;
    void (*change)(struct ddl_config *k);
};

static void v_map(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
}

static void v_map_rank(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
    k->k_rank = 4;
}

static void v_map_erase(struct ddl_config *k)
{
    k->map = DDL_MAP_V;
    k->update = DDL_UPDATE_ERASE;
}

static void write_context(struct ddl_config *k)
{
    k->update = DDL_UPDATE_WRITE;
    k->v_input = DDL_V_CONTEXT;
    k->v_sigmoid = false;
}

static void gate_mlp_constant(struct ddl_config *k)
{
    k->beta_linear = false;
    k->beta_hidden = 13;
    k->v_constant = true;
}

static void mixed(struct ddl_config *k)
{
    k->by_layer = true;
    k->residual_by_layer[0] = DDL_RESIDUAL_DELTA;
    k->residual_by_layer[1] = DDL_RESIDUAL_ADD;
    k->residual_by_layer[2] = DDL_RESIDUAL_DELTA;
}

static void mup_plain(struct ddl_config *k)
{
    k->mup = true;
    k->d_base = 42;
    k->qk_norm = false;
    k->rope_ratio = 0.5f;
}

static const struct variant variants[] = {
    { "baseline", "baseline", NULL },
    { "ddl-1", "ddl-1", NULL },
    { "ddl-tc", "ddl-tc", NULL },
    { "ddl-tc-ec", "ddl-tc-ec", NULL },
    { "ddl-cc", "ddl-cc", NULL },
    { "ddl-cc-ec", "ddl-cc-ec", NULL },
    { "ddl-mix", "ddl-mix", NULL },
    { "ddl-mix-ec", "ddl-mix-ec", NULL },
    { "ddl-1 v-map", "ddl-1", v_map },
    { "ddl-tc v-map rank", "ddl-tc", v_map_rank },
    { "ddl-cc-ec v-map erase", "ddl-cc-ec", v_map_erase },
    { "ddl-cc write context", "ddl-cc", write_context },
    { "ddl-tc-ec gate mlp, constant", "ddl-tc-ec", gate_mlp_constant },
    { "ddl-1 mixed", "ddl-1", mixed },
    { "baseline mup", "baseline", mup_plain },
};
enum { N_VARIANTS = sizeof variants / sizeof *variants, B = 2, T = 9 };

static struct ddl_config config_of(const struct variant *variant)
{
    struct ddl_config k = tiny(variant->preset);
    if (variant->change)
        variant->change(&k);
    return k;
}

struct fixture {
    ddl_backend *backend;
    ddl_model *model;
    ddl_workspace *ws;
    int32_t tokens[B * T], targets[B * T];
    struct ddl_batch batch;
};

static void set_up(struct fixture *f, const char *backend, const struct ddl_config *config)
{
    struct ddl_error err;
    assert_ok(ddl_backend_create(&f->backend, backend, 2, &err), err);
    assert_ok(ddl_model_create(&f->model, config, f->backend, &err), err);
    assert_ok(ddl_model_init(f->model, 7, &err), err);
    assert_ok(ddl_model_enable_grad(f->model, &err), err);
    assert_ok(ddl_workspace_create(&f->ws, f->model, B, T, true, &err), err);
    for (uint64_t i = 0; i < B * T; i++) {
        f->tokens[i] = (int32_t)ddl_rng_below(1, i, config->vocab_size);
        f->targets[i] = i % 5 == 2 ? -1 : (int32_t)ddl_rng_below(2, i, config->vocab_size);
    }
    f->batch = (struct ddl_batch){ B, T, f->tokens, f->targets };
}

static void tear_down(struct fixture *f)
{
    ddl_workspace_free(f->ws);
    ddl_model_free(f->model);
    ddl_backend_free(f->backend);
}

static double mean_loss(struct fixture *f)
{
    struct ddl_loss loss;
    struct ddl_error err;
    assert_ok(ddl_model_loss(f->model, f->ws, &f->batch, &loss, NULL, &err), err);
    return loss.sum / (double)loss.n_targets;
}

/* Gradients of all parameters, one after the other; free with free. */
static float *all_grads(const ddl_model *model)
{
    float *out = malloc(ddl_model_size(model) * sizeof *out), *at = out;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        ddl_model_read_grad(model, i, at);
        at += ddl_model_param(model, i)->count;
    }
    return out;
}

/* Moves every parameter by h times a fixed random direction; returns the gradient's product with the
 * direction. */
static double move(ddl_model *model, double h, const float *grads)
{
    double slope = 0;
    size_t at = 0;
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        size_t n = ddl_model_param(model, i)->count;
        float *w = malloc(n * sizeof *w);
        ddl_model_read_param(model, i, w);
        for (size_t j = 0; j < n; j++) {
            double u = ddl_rng_normal(ddl_rng_key(5, "direction"), at + j);
            w[j] = (float)((double)w[j] + h * u);
            slope += grads ? u * (double)grads[at + j] : 0;
        }
        ddl_model_write_param(model, i, w);
        free(w);
        at += n;
    }
    return slope;
}

/* The central difference of the loss along the direction. */
static double difference(struct fixture *f, double h)
{
    move(f->model, h, NULL);
    double up = mean_loss(f);
    move(f->model, -2 * h, NULL);
    double down = mean_loss(f);
    move(f->model, h, NULL);
    return (up - down) / (2 * h);
}

/* The loss changes along a random direction as the gradient says. The difference's error is of second order
 * in h; two steps cancel it, and what float32 losses leave is about 1e-3. */
static void gradient_is_the_slope(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        struct ddl_config config = config_of(&variants[i]);
        struct fixture f;
        struct ddl_loss loss;
        struct ddl_error err;
        set_up(&f, "ref", &config);
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1.0 / (B * T - 4), &loss, &err), err);
        assert_int_equal(loss.n_targets, B * T - 4);
        float *grads = all_grads(f.model);
        const double h = 2e-4;
        double slope = move(f.model, 0, grads);
        double found = (4 * difference(&f, h) - difference(&f, 2 * h)) / 3;
        if (fabs(found - slope) > 3e-3 * (fabs(slope) + 1))
            fail_msg("%s: the loss's slope is %g, the gradient says %g", variants[i].name, found, slope);
        free(grads);
        tear_down(&f);
    }
}

/* Two passes over one sequence each add up to the pass over both, to the rounding of float32 sums taken in
 * another order: a tenth of what a gradient may differ from the oracle's. */
static void accumulation_is_one_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        for (size_t b = 0; ddl_backend_list(b); b++) {
            struct ddl_config config = config_of(&variants[i]);
            struct fixture f;
            struct ddl_loss loss;
            struct ddl_error err;
            set_up(&f, ddl_backend_list(b), &config);
            double scale = 1.0 / (B * T - 4);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, scale, &loss, &err), err);
            float *whole = all_grads(f.model);
            ddl_model_zero_grad(f.model);
            for (size_t s = 0; s < B; s++) {
                struct ddl_batch one = { 1, T, f.tokens + s * T, f.targets + s * T };
                assert_ok(ddl_model_backward(f.model, f.ws, &one, scale, &loss, &err), err);
            }
            float *parts = all_grads(f.model);
            assert_close(ddl_model_size(f.model), parts, whole, 1e-5);
            free(whole);
            free(parts);
            tear_down(&f);
        }
    }
}

/* The same bits every time. */
static void runs_repeat(void **state)
{
    (void)state;
    for (size_t b = 0; ddl_backend_list(b); b++) {
        struct ddl_config config = tiny("ddl-tc-ec");
        struct fixture f;
        struct ddl_loss loss;
        struct ddl_error err;
        set_up(&f, ddl_backend_list(b), &config);
        float *first = NULL;
        for (int run = 0; run < 3; run++) {
            ddl_model_zero_grad(f.model);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 0.1, &loss, &err), err);
            float *grads = all_grads(f.model);
            if (first)
                assert_memory_equal(first, grads, ddl_model_size(f.model) * sizeof *grads);
            else
                first = grads;
            if (grads != first)
                free(grads);
        }
        free(first);
        tear_down(&f);
    }
}

/* Pieces of any length through the cache give the logits of one full pass. */
static void decode_in_pieces(const struct variant *variant, const char *backend, const size_t *pieces)
{
    struct ddl_config config = config_of(variant);
    struct fixture f;
    struct ddl_error err;
    ddl_cache *cache;
    ddl_workspace *ws;
    set_up(&f, backend, &config);
    size_t V = config.vocab_size;
    float *full = malloc(B * T * V * sizeof *full), *found = malloc(B * T * V * sizeof *full);
    assert_ok(ddl_model_logits(f.model, f.ws, NULL, &f.batch, T, full, &err), err);
    assert_ok(ddl_cache_create(&cache, f.model, B, T, &err), err);
    assert_ok(ddl_workspace_create(&ws, f.model, B, T, false, &err), err);
    for (size_t t = 0, i = 0; t < T; t += pieces[i++]) {
        size_t n = pieces[i];
        int32_t tokens[B * T];
        for (size_t s = 0; s < B; s++)
            memcpy(tokens + s * n, f.tokens + s * T + t, n * sizeof *tokens);
        float *piece = malloc(B * n * V * sizeof *piece);
        struct ddl_batch batch = { B, n, tokens, NULL };
        assert_ok(ddl_model_logits(f.model, ws, cache, &batch, n, piece, &err), err);
        for (size_t s = 0; s < B; s++)
            memcpy(found + (s * T + t) * V, piece + s * n * V, n * V * sizeof *found);
        free(piece);
    }
    assert_int_equal(ddl_cache_length(cache), T);
    if (relative_error(B * T * V, found, full) > 1e-5)
        fail_msg("%s on %s: decoding differs by %g", variant->name, backend,
                 relative_error(B * T * V, found, full));
    free(full);
    free(found);
    ddl_workspace_free(ws);
    ddl_cache_free(cache);
    tear_down(&f);
}

static void decoding_is_the_forward_pass(void **state)
{
    (void)state;
    static const size_t splits[][T] = {
        { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 5, 1, 3 }, { 2, 2, 2, 2, 1 }, { 9 }
    };
    for (size_t i = 0; i < N_VARIANTS; i++) {
        for (size_t b = 0; ddl_backend_list(b); b++) {
            for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
                decode_in_pieces(&variants[i], ddl_backend_list(b), splits[s]);
        }
    }
}

/* After backward the stream holds X0 again: what rounding has added over 2 L rebuilt steps stays small at any
 * depth. */
static void rebuilt_state_drifts_little(void **state)
{
    (void)state;
    static const size_t depths[] = { 12, 24, 48 };
    static const char *const presets[] = { "ddl-1", "ddl-tc", "ddl-cc-ec" };
    for (size_t b = 0; ddl_backend_list(b); b++) {
        for (size_t i = 0; i < 9; i++) {
            struct ddl_config config = tiny(presets[i / 3]);
            config.n_layers = depths[i % 3];
            struct fixture f;
            struct ddl_loss loss;
            struct ddl_error err;
            set_up(&f, ddl_backend_list(b), &config);
            assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
            size_t n = B * T * config.d_model * config.channels, bytes = n * sizeof(float);
            float *rebuilt = malloc(bytes), *start = malloc(bytes);
            f.backend->ops->download(f.backend->ctx, rebuilt, f.ws->X, bytes);
            struct pass p = { .m = f.model,
                              .ws = f.ws,
                              .config = &f.model->config,
                              .ops = f.backend->ops,
                              .ctx = f.backend->ctx,
                              .B = B,
                              .T = T,
                              .N = B * T };
            embed_fwd(&p);
            f.backend->ops->download(f.backend->ctx, start, f.ws->X, bytes);
            assert_close(n, rebuilt, start, 1e-5);
            free(rebuilt);
            free(start);
            tear_down(&f);
        }
    }
}

static void paper_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        double millions;
    } sizes[] = { { "small", 123.6 }, { "medium", 353.5 } };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_config k = ddl_config_defaults();
        struct ddl_error err;
        struct ddl_param *rows;
        size_t n, total = 0;
        assert_ok(ddl_config_set_preset(&k, "baseline", &err), err);
        assert_ok(ddl_config_set_size(&k, sizes[i].size, &err), err);
        assert_ok(ddl_params_plan(&k, &rows, &n, &err), err);
        for (size_t j = 0; j < n; j++)
            total += rows[j].count;
        assert_true(fabs((double)total / 1e6 - sizes[i].millions) < 0.05);
        free(rows);
    }
}

/* The sentence of a call that must fail. */
#define assert_sentence(call, status, part)                                                                  \
    do {                                                                                                     \
        struct ddl_error err_ = { 0 };                                                                       \
        struct ddl_error *err = &err_;                                                                       \
        assert_int_equal(call, status);                                                                      \
        if (!strstr(err_.text, part))                                                                        \
            fail_msg("'%s' does not say '%s'", err_.text, part);                                             \
    } while (0)

static void bad_batches_are_refused(void **state)
{
    (void)state;
    struct ddl_config config = tiny("ddl-cc-ec");
    struct fixture f;
    struct ddl_loss loss;
    set_up(&f, "ref", &config);
    f.tokens[3] = 31;
    assert_sentence(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, err), DDL_E_USAGE,
                    "token 3 of sequence 0 is 31, the vocabulary has 31");
    f.tokens[3] = 0;
    f.targets[10] = -2;
    assert_sentence(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, err), DDL_E_USAGE,
                    "target 1 of sequence 1 is -2");
    f.targets[10] = 0;
    struct ddl_batch large = { B + 1, T, f.tokens, f.targets };
    assert_sentence(ddl_model_loss(f.model, f.ws, &large, &loss, NULL, err), DDL_E_USAGE,
                    "the workspace holds 2 x 9");
    float logits[31];
    assert_sentence(ddl_model_logits(f.model, f.ws, NULL, &f.batch, T + 1, logits, err), DDL_E_USAGE,
                    "the last 10 positions");
    struct ddl_batch untargeted = { B, T, f.tokens, NULL };
    assert_sentence(ddl_model_loss(f.model, f.ws, &untargeted, &loss, NULL, err), DDL_E_USAGE,
                    "needs targets");
    ddl_workspace *ws;
    ddl_cache *cache;
    struct ddl_error made;
    assert_ok(ddl_workspace_create(&ws, f.model, B, T, false, &made), made);
    assert_sentence(ddl_model_backward(f.model, ws, &f.batch, 1, &loss, err), DDL_E_USAGE,
                    "a workspace for training");
    ddl_workspace_free(ws);
    assert_sentence(ddl_workspace_create(&ws, f.model, 1, 17, true, err), DDL_E_USAGE,
                    "the model's context is 16");
    assert_sentence(ddl_cache_create(&cache, f.model, 1, 17, err), DDL_E_USAGE, "the model's context is 16");
    tear_down(&f);
}

/* Where every target is ignored: loss 0, gradient 0. */
static void nothing_to_predict(void **state)
{
    (void)state;
    for (size_t b = 0; ddl_backend_list(b); b++) {
        struct ddl_config config = tiny("ddl-cc");
        struct fixture f;
        struct ddl_loss loss;
        struct ddl_error err;
        set_up(&f, ddl_backend_list(b), &config);
        for (size_t i = 0; i < B * T; i++)
            f.targets[i] = -1;
        assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
        assert_true(loss.sum == 0 && loss.n_targets == 0);
        float *grads = all_grads(f.model);
        for (size_t i = 0; i < ddl_model_size(f.model); i++)
            assert_true(grads[i] == 0);
        free(grads);
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_is_the_slope),
        cmocka_unit_test(accumulation_is_one_batch),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(decoding_is_the_forward_pass),
        cmocka_unit_test(rebuilt_state_drifts_little),
        cmocka_unit_test(paper_sizes),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(nothing_to_predict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
