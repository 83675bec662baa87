/* What sublayers show (model/observe/trace.h): declarations are complete and true, and
 * ddl_workspace_read_trace finds each tensor by its name. */
#include "model/observe/probe.h"
#include "model/observe/rows.h"
#include "model/residual/table.h"
#include "ops/ops.h"
#include "support/models.h"
#include "support/properties.h"

#include <math.h>
#include <string.h>

enum { N = SMALL_B * SMALL_T };

/* Tensors that the probe reported in the forward pass of the sublayer before its trace. */
struct seen {
    const char *variant;
    size_t n, width[32], compared;
    char name[32][DDL_PLACE_NAME];
};

static void see(void *user, const struct ddl_place *place, const float *x)
{
    struct seen *seen = user;
    (void)x;
    if (place->backward || place->layer == DDL_NO_LAYER || seen->n == 32)
        return;
    assert_int_equal(place->rows, N);
    seen->width[seen->n] = place->width;
    strcpy(seen->name[seen->n++], place->tensor);
}

/* Each tensor of the present pass is as the declaration states: the probe has reported it with that shape;
 * parts lie within the tensor that they are a part of. */
static void check_sublayer(void *user, const struct ddl_sublayer_trace *trace)
{
    struct seen *seen = user;
    for (size_t i = 0; i < trace->n; i++) {
        const struct ddl_traced *tensor = &trace->tensor[i];
        size_t steps = tensor->of->extent == TRACE_STEPS ? trace->steps : 1, at = 0;
        assert_true(*tensor->of->name && *tensor->of->about && tensor->width > 0);
        assert_true(!tensor->of->behaviors || (tensor->of->symbol && tensor->of->figures));
        if (!tensor->of->data)
            assert_true(tensor->offset + tensor->width <= trace->tensor[tensor->part].width);
        if (!tensor->x || tensor->of->extent == TRACE_PARAMETER)
            continue;
        while (at < seen->n && strcmp(seen->name[at], tensor->of->name) != 0)
            at++;
        if (at == seen->n || seen->width[at] != steps * tensor->width)
            fail_msg("%s, layer %zu: %s: declared with %zu numbers, reported with %zu", seen->variant,
                     trace->layer, tensor->of->name, steps * tensor->width,
                     at == seen->n ? 0 : seen->width[at]);
        seen->compared++;
    }
    seen->n = 0;
}

static void the_probe_sees_what_is_declared(ddl_backend *backend)
{
    size_t compared = 0;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = variant_config(&small_variants[i]);
        struct small_model f;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        struct seen seen = { .variant = small_variants[i].name };
        struct ddl_probe probe = { .look = see, .step = check_sublayer, .user = &seen };
        ddl_workspace_set_probe(f.ws, &probe);
        (void)small_mean_loss(&f);
        ddl_workspace_set_probe(f.ws, NULL);
        compared += seen.compared;
        small_model_free(&f);
    }
    assert_true(compared > 100);
}
PROPERTY(the_probe_sees_what_is_declared)

/* Every figure has a name of its own, and every rule's lists fit. */
static void figures_have_names_of_their_own(void **state)
{
    (void)state;
    const struct ddl_figure *list[DDL_MOST_FIGURES];
    size_t n = ddl_figure_list(list);
    for (size_t f = 0; f < n; f++) {
        assert_true(*list[f]->about && list[f]->digits > 0);
        assert_non_null(ddl_figure_kind_names[list[f]->kind]);
        for (size_t i = 0; i < f; i++)
            assert_string_not_equal(list[f]->name, list[i]->name);
    }
    assert_true(n > 30 && n < DDL_MOST_FIGURES);
    struct ddl_config k = small_config("baseline");
    for (int rule = 0; rule < DDL_RESIDUALS; rule++) {
        size_t tensors = 0;
        k.residual = rule;
        while (trace_tensor_at(&k, 0, tensors))
            tensors++;
        assert_true(tensors <= DDL_MOST_TRACED);
    }
}

/* With attnres, the sources of a token: weights that add up to 1, of which the figures follow. */
struct depth_seen {
    const ddl_backend *backend;
    size_t sublayers, block;
};

static void check_sources(void *user, const struct ddl_sublayer_trace *trace)
{
    struct depth_seen *seen = user;
    if (!trace->after)
        return;
    const struct ddl_traced *alpha = ddl_trace_find(trace, "alpha"),
                            *rms = ddl_trace_find(trace, "source_rms");
    size_t s = 2 * trace->layer + (size_t)trace->sub;
    assert_int_equal(alpha->width, 1 + (s + seen->block - 1) / seen->block);
    assert_int_equal(rms->width, alpha->width);
    double figures[3];
    float weights[N * 8], sizes[N * 8];
    assert_true(alpha->width <= 8 && trace->rows == N);
    seen->backend->ops->download(seen->backend->ctx, weights, alpha->x, N * alpha->width * sizeof *weights);
    seen->backend->ops->download(seen->backend->ctx, sizes, rms->x, N * rms->width * sizeof *sizes);
    for (size_t n = 0; n < trace->rows; n++) {
        const float *x = weights + n * alpha->width;
        double sum = 0;
        for (size_t i = 0; i < alpha->width; i++) {
            sum += (double)x[i];
            assert_true(sizes[n * rms->width + i] > 0);
        }
        assert_true(fabs(sum - 1) < 1e-5);
        alpha->of->derive(alpha->width, x, figures);
        assert_true(figures[0] >= 0 && figures[1] > 0 && figures[1] < 1 + 1e-6);
        assert_true(fabs(figures[0] - figures[1] * log((double)alpha->width)) < 1e-6);
        assert_true(figures[2] == (double)x[alpha->width - 1]);
    }
    seen->sublayers++;
}

static void sources_have_weights(void **state)
{
    static const size_t blocks[] = { 1, 2, 3, 6, 100 };
    (void)state;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        struct ddl_config k = small_config("attnres");
        struct small_model f;
        k.attnres_block = blocks[i];
        small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
        for (size_t p = 0; p < ddl_model_n_params(f.model); p++)
            change_param(f.model, p, 0, 5, 0.9f, 0.3f);
        struct depth_seen seen = { .backend = f.backend, .block = blocks[i] };
        struct ddl_probe probe = { .step = check_sources, .user = &seen };
        ddl_workspace_set_probe(f.ws, &probe);
        (void)small_mean_loss(&f);
        ddl_workspace_set_probe(f.ws, NULL);
        assert_int_equal(seen.sublayers, 2 * k.n_layers);
        small_model_free(&f);
    }
}

/* A tensor of every step, in order, and an error where there is none. */
static void read_all(const char *preset, size_t expected, const char *tensor)
{
    struct ddl_config config = small_config(preset);
    struct small_model f;
    struct ddl_loss loss;
    struct ddl_error err;
    float beta[N];
    small_model_make(&f, test_backend(0), &config, DDL_PRECISION_F32);
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
    assert_int_equal(ddl_workspace_n_steps(f.ws), expected);
    for (size_t s = 0; s < expected; s++) {
        assert_int_equal(ddl_workspace_trace_width(f.ws, s, "no such tensor"), 0);
        if (!tensor) {
            assert_int_equal(ddl_workspace_read_trace(f.ws, s, "beta", beta, &err), DDL_E_USAGE);
            continue;
        }
        assert_int_equal(ddl_workspace_trace_width(f.ws, s, tensor), 1);
        assert_ok(ddl_workspace_read_trace(f.ws, s, tensor, beta, &err), err);
        for (size_t n = 0; n < N; n++)
            assert_true(beta[n] > 0 && beta[n] < 2);
    }
    const size_t beyond[] = { expected, expected + 1, SIZE_MAX };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ddl_workspace_read_trace(f.ws, beyond[i], "beta", beta, &err), DDL_E_USAGE);
    small_model_free(&f);
}

static void tensors_are_found_by_name(void **state)
{
    (void)state;
    read_all("ddl-1", 2 * small_config("ddl-1").n_layers, "beta");
    read_all("ddl-cc-ec", 2 * small_config("ddl-cc-ec").n_layers, "beta");
    read_all("ddl-2step", 4 * small_config("ddl-2step").n_layers, "beta");
    read_all("highway", 2 * small_config("highway").n_layers, "tau");
    read_all("baseline", 2 * small_config("baseline").n_layers, NULL);
    read_all("attnres", 2 * small_config("attnres").n_layers, NULL); /* alpha: in a pass only */
}

/* Every key of a forced update that a layer accepts changes the loss. */
static void every_key_acts(ddl_backend *backend)
{
    unsigned acted = 0, all = 0;
    for (size_t i = 0; i < SMALL_VARIANTS; i++) {
        struct ddl_config k = variant_config(&small_variants[i]);
        struct small_model f;
        struct ddl_error err;
        small_model_make(&f, ddl_backend_name(backend), &k, DDL_PRECISION_F32);
        for (size_t p = 0; p < ddl_model_n_params(f.model); p++) /* factors that leave mixtures unequal */
            change_param(f.model, p, 0, SIZE_MAX, 0.9f, 0.05f);
        double free_loss = small_mean_loss(&f);
        for (const struct ddl_force_row *row = ddl_force_rows(); row->key; row++) {
            size_t l = k.n_layers - 1;
            int sub = row->sub == DDL_SUBLAYERS ? DDL_SUBLAYER_ATTN : row->sub;
            struct ddl_force force = {
                .keys = row->key, .beta = 0.3f, .scale = 0.3f, .f_scale = 0.3f, .update = DDL_UPDATE_ERASE
            };
            all |= row->key;
            if (!(ddl_config_force_keys(&k, l) & row->key))
                continue;
            unsigned mixes = ddl_config_force_mixes(&k, l);
            force.mix = mixes >> DDL_MIX_IDENTITY & 1 ? DDL_MIX_IDENTITY : DDL_MIX_LAST;
            assert_ok(ddl_model_force(f.model, l, sub, &force, &err), err);
            acted |= small_mean_loss(&f) != free_loss ? row->key : 0;
            ddl_model_clear_forces(f.model);
        }
        small_model_free(&f);
    }
    assert_int_equal(acted, all);
}
PROPERTY(every_key_acts)

/* ---- samples ---- */

static const struct ddl_ops *real_ops;
static size_t downloads;

static void counted_download(void *ctx, void *host, const void *src, size_t bytes)
{
    downloads++;
    real_ops->download(ctx, host, src, bytes);
}

/* Evenly spaced rows of a pass, in one transfer; all of a small one. */
static void rows_are_sampled_at_once(void **state)
{
    (void)state;
    enum { ALL = 7, MOST = 3 };
    static const size_t expected[ALL + 1][MOST] = { [7] = { 0, 2, 4 }, [5] = { 0, 1, 3 }, [2] = { 0, 1 } };
    static const size_t passes[] = { 7, 5, 7, 2 };
    const struct ddl_config k = variant_config(&small_variants[0]);
    struct ddl_rows rows = { .config = &k, .all = ALL, .most = MOST };
    struct ddl_arena arena = { 0 };
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    struct ddl_ops counting = *backend->ops;
    const ddl_backend wrapped = { .ops = &counting, .ctx = backend->ctx };
    real_ops = backend->ops;
    counting.download = counted_download;
    rows.backend = &wrapped;
    ddl_rows_place(&rows, &arena);
    void *memory = ddl_mem_zalloc(arena.used);
    arena = (struct ddl_arena){ .base = memory };
    ddl_rows_place(&rows, &arena);
    assert_ok(ddl_rows_reserve(&rows, &err), err);
    size_t width = k.d_model * rows.c, bytes = ALL * width * sizeof(float);
    float *host = ddl_mem_alloc(bytes), *X = real_ops->alloc(backend->ctx, bytes);
    for (size_t i = 0; i < ALL * width; i++)
        host[i] = (float)i;
    real_ops->upload(backend->ctx, X, host, bytes);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        const struct ddl_sublayer_trace trace = { .rows = passes[i], .steps = 1, .X = X };
        downloads = 0;
        ddl_rows_copy(&rows, &trace);
        assert_int_equal(downloads, 1);
        assert_int_equal(rows.n, passes[i] < MOST ? passes[i] : MOST);
        for (size_t n = 0; n < rows.n; n++)
            assert_memory_equal(rows.before + n * width, host + expected[passes[i]][n] * width,
                                width * sizeof *host);
    }
    real_ops->free(backend->ctx, X);
    ddl_rows_release(&rows);
    ddl_mem_free(host);
    ddl_mem_free(memory);
    ddl_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_probe_sees_what_is_declared),
        cmocka_unit_test(figures_have_names_of_their_own),
        cmocka_unit_test(tensors_are_found_by_name),
        cmocka_unit_test(sources_have_weights),
        cmocka_unit_test(test_every_key_acts),
        cmocka_unit_test(rows_are_sampled_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
