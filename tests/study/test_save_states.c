/* study/save_states.c: the states in the file are those of the pass. */
#include "support/files.h"
#include "support/models.h"
#include "support/properties.h"

#include "ddl/inspect.h"
#include "model/observe/probe.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 4, N = SMALL_B * SMALL_T, KEPT = (N + EVERY - 1) / EVERY, MOST = 4096 };

/* The states of a pass after a sublayer, (N, d, c). */
struct seen {
    size_t layer, d, c;
    int sub;
    float X[N * MOST];
};
static struct seen seen;

static void look(void *user, const struct ddl_sublayer_trace *trace)
{
    struct seen *s = user;
    if (!trace->after || trace->layer != s->layer || trace->sub != s->sub)
        return;
    for (size_t n = 0; n < trace->rows; n++) {
        for (size_t i = 0; i < s->d; i++) {
            for (size_t j = 0; j < s->c; j++)
                s->X[(n * s->d + i) * s->c + j] =
                    trace->X[n * s->d * s->c + (trace->by_column ? j * s->d + i : i * s->c + j)];
        }
    }
}

static ddl_inspection *inspect(struct small_model *f, const char *sublayers, ddl_status expected)
{
    struct ddl_error err;
    ddl_inspection *in = NULL;
    const struct ddl_inspect_config config = {
        .seq = SMALL_T, .batch = 1, .states_every = EVERY, .states_of = sublayers
    };
    assert_int_equal(ddl_inspect_ids(&in, f->model, f->tokens, N, &config, &err), expected);
    if (expected && !strstr(err.text, "found '9.mlp'"))
        fail_msg("found %s", err.text);
    return in;
}

static void check_states(const char *preset)
{
    struct ddl_config k = small_config(preset);
    struct small_model f;
    struct ddl_error err;
    struct ddl_loss loss;
    ddl_safetensors *st;
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    ddl_inspection *in = inspect(&f, "1.attn,0.mlp", DDL_OK);
    const char *path = scratch_path("states.safetensors");
    assert_ok(ddl_inspect_save_states(in, path, &err), err);
    ddl_inspect_free(in);
    assert_ok(ddl_safetensors_open(&st, path, &err), err);
    assert_int_equal(ddl_safetensors_count(st), 5);
    const struct ddl_tensor *tokens = ddl_safetensors_find(st, "tokens");
    const struct ddl_tensor *positions = ddl_safetensors_find(st, "positions");
    for (size_t i = 0; i < KEPT; i++) {
        int64_t token, position;
        memcpy(&token, tokens->data + i * sizeof token, sizeof token);
        memcpy(&position, positions->data + i * sizeof position, sizeof position);
        assert_int_equal(token, f.tokens[i * EVERY]);
        assert_int_equal(position, i * EVERY % SMALL_T);
    }
    for (int which = 0; which < 2; which++) {
        const struct ddl_tensor *states = ddl_safetensors_find(st, which ? "1.attn" : "0.mlp");
        seen.layer = (size_t)which;
        seen.sub = which ? DDL_SUBLAYER_ATTN : DDL_SUBLAYER_MLP;
        seen.d = states->shape[1];
        seen.c = states->shape[2];
        const size_t width = seen.d * seen.c;
        assert_true(states->shape[0] == KEPT && seen.d == k.d_model && width <= MOST);
        struct ddl_probe probe = { .step = look, .user = &seen };
        ddl_workspace_set_probe(f.ws, &probe);
        assert_ok(ddl_model_loss(f.model, f.ws, &f.batch, &loss, NULL, &err), err);
        ddl_workspace_set_probe(f.ws, NULL);
        for (size_t i = 0; i < KEPT * width; i++) {
            float found;
            memcpy(&found, states->data + i * sizeof found, sizeof found);
            const float expected = seen.X[i / width * EVERY * width + i % width];
            close_enough(found, expected, 1e-6, preset);
        }
    }
    ddl_safetensors_close(st);
    inspect(&f, "9.mlp", DDL_E_USAGE);
    small_model_free(&f);
}

/* Without a target, and where the mask does not count it, no state is kept. */
static void of_counted_tokens(void **state)
{
    (void)state;
    struct ddl_config k = small_config("ddl-1");
    struct small_model f;
    struct ddl_error err;
    ddl_inspection *in;
    ddl_safetensors *st;
    int32_t targets[N];
    small_model_make(&f, test_backend(0), &k, DDL_PRECISION_F32);
    for (size_t n = 0; n < N; n++)
        targets[n] = n % 5 == 2 || n == 8 ? f.tokens[n] : -1;
    const struct ddl_inspect_config config = {
        .seq = SMALL_T, .batch = SMALL_B, .states_every = 2, .states_counted = true
    };
    assert_ok(ddl_inspect_create(&in, f.model, &config, N, &err), err);
    assert_ok(ddl_inspect_batch(in, &(struct ddl_batch){ SMALL_B, SMALL_T, f.tokens, targets }, &err), err);
    assert_ok(ddl_inspect_finish(in, &err), err);
    assert_ok(ddl_inspect_save_states(in, scratch_path("counted.safetensors"), &err), err);
    ddl_inspect_free(in);
    assert_ok(ddl_safetensors_open(&st, scratch_path("counted.safetensors"), &err), err);
    const struct ddl_tensor *index = ddl_safetensors_find(st, "index");
    size_t kept = 0;
    for (size_t n = 0; n < N; n += 2) {
        int64_t found;
        if (targets[n] < 0)
            continue;
        assert_true(kept < index->shape[0]);
        memcpy(&found, index->data + kept++ * sizeof found, sizeof found);
        assert_int_equal(found, n);
    }
    assert_true(kept > 1 && kept == index->shape[0]);
    assert_int_equal(ddl_safetensors_find(st, "0.attn")->shape[0], kept);
    ddl_safetensors_close(st);
    small_model_free(&f);
}

static void states_are_those_of_the_pass(void **state)
{
    (void)state;
    check_states("baseline");
    check_states("ddl-cc-ec");
    check_states("ddl-2step");
    check_states("hyper");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_of_the_pass),
        cmocka_unit_test(of_counted_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
