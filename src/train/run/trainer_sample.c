#include "train/run/trainer.h"

#include "train/config/train_config.h"

#include <stdlib.h>
#include <string.h>

struct text {
    struct run *run;
    char *bytes;
    size_t n, capacity;
    bool failed;
};

static int collect(void *user, size_t sequence, const char *piece, size_t size)
{
    (void)sequence;
    struct text *text = user;
    ddl_comm_still_working(text->run->config.comm);
    if (text->n + size > text->capacity) {
        size_t capacity = 2 * (text->n + size);
        char *grown = realloc(text->bytes, capacity);
        text->failed = !grown;
        if (!grown)
            return 1;
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->n, piece, size);
    text->n += size;
    return 0;
}

ddl_status trainer_sample(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_generate_config g = ddl_train_sample(t, run->state.step);
    struct text text = { .run = run };
    const struct ddl_generate_request request = { .model = run->model,
                                                  .tokenizer = run->tokenizer,
                                                  .config = &g,
                                                  .prompt = t->sample_prompt,
                                                  .size = strlen(t->sample_prompt),
                                                  .text = collect,
                                                  .user = &text };
    ddl_status status = ddl_generate(&request, NULL, err);
    if (!status && text.failed)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for a sample of text");
    if (!status && run->callbacks->sample)
        run->callbacks->sample(run->callbacks->user, run->state.step, t->sample_prompt,
                               text.n ? text.bytes : "", text.n);
    if (!status)
        status = ddl_metrics_write_sample(&run->samples, run->state.step, t->sample_prompt,
                                          text.n ? text.bytes : "", text.n, err);
    if (!status)
        status = ddl_tensorboard_sample(&run->tensorboard, run->state.step, t->sample_prompt,
                                        text.n ? text.bytes : "", text.n, err);
    free(text.bytes);
    if (status == DDL_E_NUMERIC) { /* does not end a run: a loss that is not finite will be diagnosed */
        trainer_note(run, err->text);
        return DDL_OK;
    }
    return status;
}
