/* Fuzzes an archive of a model folder. A model that loads must run: forward, backward, and token by token. */
#include "fuzz.h"

#include "ddl/session.h"

#include <stdlib.h>

static void warn(void *user, const char *message)
{
    (void)user;
    FUZZ_CHECK(*message != '\0');
}

static void run(ddl_model *model)
{
    enum { B = 2, T = 3 };
    struct ddl_error err = { 0 };
    const struct ddl_config *config = ddl_model_config(model);
    size_t V = config->vocab_size, tokens_max = config->block_size < T ? config->block_size : T;
    int32_t tokens[B * T], targets[B * T];
    for (size_t i = 0; i < (size_t)B * T; i++) {
        tokens[i] = (int32_t)(i % V);
        targets[i] = (int32_t)((i + 1) % V);
    }
    struct ddl_batch batch = { B, tokens_max, tokens, targets };
    struct ddl_loss loss = { 0 };
    ddl_workspace *ws = NULL;
    ddl_session *session = NULL;
    static const size_t slots[B] = { 0, 1 };
    float *logits = calloc(B * V, sizeof *logits);
    FUZZ_CHECK(logits != NULL);
    if (fuzz_ok(ddl_model_enable_grad(model, &err), &err) &&
        fuzz_ok(ddl_workspace_create(
                    &ws, model,
                    &(struct ddl_workspace_options){ .batch = B, .tokens = tokens_max, .train = true }, &err),
                &err)) {
        fuzz_ok(ddl_model_backward(model, ws, &batch, 1, &loss, &err), &err);
        if (fuzz_ok(ddl_session_create(&session, model,
                                       &(struct ddl_session_options){ .slots = B, .tokens = tokens_max },
                                       &err),
                    &err)) {
            for (size_t t = 0; t < tokens_max; t++)
                fuzz_ok(ddl_session_step(session, B, slots, tokens, logits, &err), &err);
        }
    }
    ddl_session_free(session);
    ddl_workspace_free(ws);
    free(logits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_model *model;
    fuzz_unpack(data, size);
    if (!fuzz_ok(ddl_model_load(&model, fuzz_folder(), fuzz_backend(), warn, NULL, &err), &err))
        return 0;
    run(model);
    ddl_model_free(model);
    return 0;
}

FUZZ_MUTATE_NUMBERS
