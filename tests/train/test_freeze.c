/* train/config/freeze.c: which parameters a run trains, and that it leaves the others as they are. */
#include "support/models.h"
#include "support/runs.h"

#include "base/mem.h"
#include "tensor/safetensors.h"
#include "train/config/freeze.h"
#include "train/step/optim.h"

#include <math.h>

static int write_data(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 3, TINY_VOCAB, 3000);
    return 0;
}

static void lists_of_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *train_only, *freeze, *name;
        bool frozen;
    } rows[] = {
        { "", "", "ln_f.weight", false },
        { "ln_f.*", "", "ln_f.weight", false },
        { "ln_f.*", "", "transformer.wte.weight", true },
        { "transformer.h.1.*,ln_*", "", "ln_f.weight", false },
        { "transformer.h.1.*,ln_*", "", "transformer.h.1.attn.c_q.weight", false },
        { "transformer.h.1.*,ln_*", "", "transformer.h.11.attn.c_q.weight", true },
        { "transformer.h.[02].*", "", "transformer.h.2.ln_1.weight", false },
        { "", "*wte*", "transformer.wte.weight", true },
        { "", "*wte*", "ln_f.weight", false },
        { "transformer.*", "*wte*", "transformer.wte.weight", true },
        { "transformer.*", "*wte*", "transformer.h.0.ln_1.weight", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddl_train_config t = ddl_train_defaults();
        snprintf(t.train_only, sizeof t.train_only, "%s", rows[i].train_only);
        snprintf(t.freeze, sizeof t.freeze, "%s", rows[i].freeze);
        assert_int_equal(ddl_freeze_has(&t, rows[i].name), rows[i].frozen);
    }
}

/* The norm has the gradients of parameters that are not frozen, and only these change in a step. */
static void the_optimizer_skips_frozen_parameters(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config config = small_config("ddl-cc-ec");
    struct ddl_optim_config optim_config = ddl_optim_defaults();
    struct ddl_optim *optim;
    struct small_model f;
    small_model_make(&f, "ref", &config, DDL_PRECISION_F32);
    size_t trained = param_row(f.model, "ln_f.weight"), n = ddl_model_param(f.model, trained)->count;
    struct ddl_loss loss;
    assert_ok(ddl_optim_create(&optim, f.model, &optim_config, &err), err);
    assert_ok(ddl_model_backward(f.model, f.ws, &f.batch, 1, &loss, &err), err);
    double all = ddl_optim_grad_norm(optim), sum = 0;
    for (size_t i = 0; i < ddl_model_n_params(f.model); i++)
        ddl_optim_freeze(optim, i, i != trained);
    float *grad = ddl_mem_alloc(n * sizeof *grad);
    ddl_model_read_grad(f.model, trained, grad);
    for (size_t j = 0; j < n; j++)
        sum += (double)grad[j] * (double)grad[j];
    double norm = ddl_optim_grad_norm(optim);
    assert_true(fabs(norm - sqrt(sum)) < 1e-5 * norm && norm < all);
    for (size_t i = 0; i < ddl_model_n_params(f.model); i++) {
        size_t count = ddl_model_param(f.model, i)->count;
        float *before = ddl_mem_alloc(count * sizeof *before), *after = ddl_mem_alloc(count * sizeof *after);
        ddl_model_read_param(f.model, i, before);
        if (i == trained)
            ddl_optim_step(optim, 0.1);
        ddl_model_read_param(f.model, i, after);
        assert_int_equal(memcmp(before, after, count * sizeof *before) == 0, i != trained);
        ddl_mem_free(before);
        ddl_mem_free(after);
    }
    ddl_mem_free(grad);
    ddl_optim_free(optim);
    small_model_free(&f);
}

/* Number of tensors that differ between two model folders, of those that the run trains or of the others. */
static size_t changed(const char *a, const char *b, const struct ddl_train_config *t, bool frozen)
{
    struct ddl_error err;
    ddl_safetensors *x, *y;
    size_t n = 0;
    assert_ok(ddl_safetensors_open_folder(&x, a, &err), err);
    assert_ok(ddl_safetensors_open_folder(&y, b, &err), err);
    for (size_t i = 0; i < ddl_safetensors_count(x); i++) {
        const struct ddl_tensor *u = ddl_safetensors_at(x, i), *v = ddl_safetensors_find(y, u->name);
        assert_non_null(v);
        n += ddl_freeze_has(t, u->name) == frozen && memcmp(u->data, v->data, u->bytes) != 0;
    }
    ddl_safetensors_close(x);
    ddl_safetensors_close(y);
    return n;
}

/* A run with weight decay from given weights; and stopped half-way and resumed. */
static void a_run_leaves_frozen_tensors(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *start = tiny_folder("start", "ddl-1");
    struct ddl_train_config whole = tiny_run("ddl-1", TINY_VOCAB, test_backend(0), "whole");
    snprintf(whole.init_from, sizeof whole.init_from, "%s", start);
    snprintf(whole.train_only, sizeof whole.train_only, "transformer.h.1.*,transformer.h.2.ddl_*");
    snprintf(whole.freeze, sizeof whole.freeze, "*.ln_1.weight");
    struct ddl_train_config parts = whole;
    snprintf(parts.out, sizeof parts.out, "%s", scratch_path("parts"));
    remove_scratch("parts");
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    assert_int_equal(changed(start, whole.out, &whole, true), 0);
    assert_true(changed(start, whole.out, &whole, false) > 10);
    assert_int_equal(run_until(&parts, 10, NULL, &err), DDL_E_INTERRUPTED);
    parts.resume = true;
    assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
    assert_same_file(file_in(whole.out, "model.safetensors"), file_in(parts.out, "model.safetensors"));
    assert_same_metrics(whole.out, parts.out);
    char *recipe = read_file(file_in(whole.out, "recipe.yaml"), NULL);
    assert_non_null(strstr(recipe, "train_only: \"transformer.h.1.*,transformer.h.2.ddl_*\""));
    free(recipe);
}

static void errors(void **state)
{
    (void)state;
    struct ddl_train_config base = tiny_run("baseline", TINY_VOCAB, "ref", "refused"), t;
    ASSERT_REFUSED(t, base, strcpy(t.train_only, "transformer.h.7.*"), DDL_E_USAGE,
                   "train_only: no parameter matches");
    ASSERT_REFUSED(t, base, strcpy(t.freeze, "ln_f.weight,nothing"), DDL_E_USAGE, "found 'nothing'");
    ASSERT_REFUSED(t, base, strcpy(t.freeze, "*"), DDL_E_USAGE,
                   "freeze: expected at least one parameter to train, found none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_patterns),
        cmocka_unit_test(the_optimizer_skips_frozen_parameters),
        cmocka_unit_test(a_run_leaves_frozen_tensors),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, write_data, NULL);
}
