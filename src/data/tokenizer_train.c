/* ddl_tokenizer_train: reads the inputs as a build does and passes their documents to the training. */
#include "ddl/tokenizer.h"

#include "data/reader.h"
#include "text/limits.h"
#include "text/train.h"

#include <jansson.h>
#include <stddef.h>

#define FIELD(f) offsetof(struct ddl_tokenizer_train_config, f)

struct ddl_tokenizer_train_config ddl_tokenizer_train_defaults(void)
{
    return (struct ddl_tokenizer_train_config){ .vocab_size = 8192,
                                                .min_frequency = 2,
                                                .special_tokens = DDL_END_OF_TEXT,
                                                .max_words = 4000000,
                                                .input = ddl_text_input_defaults() };
}

const struct ddl_option *ddl_tokenizer_train_options(void)
{
    static const struct ddl_option rows[] = {
        { "characters", DDL_OPTION_BOOL, FIELD(characters), 0, 0, 0, NULL, NULL,
          "make every distinct Unicode character of the text a token, in the order of their code points" },
        { "vocab_size", DDL_OPTION_SIZE, FIELD(vocab_size), 0, 256, DDL_MAX_VOCAB, NULL, "N",
          "vocabulary size: special tokens, 256 bytes and merges" },
        { "min_frequency", DDL_OPTION_U64, FIELD(min_frequency), 0, 0, 1e15, NULL, "N",
          "minimum count of a pair to be merged" },
        { "special_tokens", DDL_OPTION_STRING, FIELD(special_tokens),
          sizeof((struct ddl_tokenizer_train_config *)0)->special_tokens, 0, 0, NULL, "A,B,...",
          "special tokens, comma-separated; they get the first ids (with --characters, the last)" },
        { "max_words", DDL_OPTION_SIZE, FIELD(max_words), 0, 10000, 1e9, NULL, "N",
          "maximum number of distinct pieces counted; beyond it, the rarest are dropped" },
        DDL_INPUT_ROWS(struct ddl_tokenizer_train_config),
        { 0 },
    };
    return rows;
}

/* The pipeline: the reader fills batches, a worker decodes their JSON, the training takes their segments. */
struct training {
    ddl_tokenizer **out;
    const struct ddl_tokenizer_train_config *config;
    ddl_tokenizer_train_progress_fn *progress;
    void *user;
    struct ddl_inputs inputs;
    struct ddl_parts parts; /* one, with all inputs */
    struct ddl_pipeline pipeline;
    struct ddl_reader reader;
    struct ddl_text_batch *batch; /* current one, or NULL */
    size_t segment;               /* next one of it */
    size_t after_prompt;          /* its prompt of so many bytes has been taken, 0: it has not */
    uint64_t consumed;            /* bytes of the inputs in the batches before */
    bool any_text;
};

static void *read_thread(void *arg)
{
    ddl_reader_run(&((struct training *)arg)->reader);
    return NULL;
}

static void *decode_thread(void *arg)
{
    struct training *tr = arg;
    for (struct ddl_text_batch *batch; (batch = ddl_pipeline_take(&tr->pipeline));) {
        ddl_text_batch_decode(batch, &tr->config->input);
        ddl_pipeline_done(&tr->pipeline, batch);
    }
    return NULL;
}

/* Gets the next batch, unless none is complete within 100 ms. */
static ddl_status next_batch(struct training *tr, struct ddl_text_chunk *chunk, struct ddl_error *err)
{
    if (tr->batch) {
        tr->consumed = tr->batch->consumed;
        ddl_pipeline_release(&tr->pipeline);
    }
    tr->segment = 0;
    tr->batch = ddl_pipeline_next(&tr->pipeline, 100, &chunk->end);
    if (tr->batch && tr->batch->status) {
        if (err)
            *err = tr->batch->err;
        return tr->batch->status;
    }
    if (chunk->end && !tr->any_text)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: no training text: %zu file%s with 0 bytes of text in total",
                             tr->inputs.items[0].path, tr->inputs.n, tr->inputs.n == 1 ? "" : "s");
    return DDL_OK;
}

static ddl_status next_text(void *user, struct ddl_text_chunk *chunk, struct ddl_error *err)
{
    struct training *tr = user;
    if (!tr->batch || tr->segment == tr->batch->n_segments) {
        ddl_status status = next_batch(tr, chunk, err);
        if (status)
            return status;
    }
    chunk->bytes_in = tr->consumed;
    if (tr->batch && tr->segment < tr->batch->n_segments) {
        /* A prompt and its response, which a build encodes apart, are two texts. */
        const struct ddl_segment *segment = &tr->batch->segments[tr->segment];
        const bool is_prompt =
            tr->after_prompt == 0 && segment->prompt > 0 && segment->prompt < segment->size;
        const size_t first = tr->after_prompt, end = is_prompt ? segment->prompt : segment->size;
        chunk->text = segment->size > 0 ? tr->batch->text + segment->offset + first : "";
        chunk->size = end - first;
        tr->after_prompt = is_prompt ? segment->prompt : 0;
        tr->segment += !is_prompt;
        tr->any_text = tr->any_text || segment->size > 0;
    }
    return DDL_OK;
}

static ddl_status train(void *user, struct ddl_error *err)
{
    struct training *tr = user;
    const struct ddl_text_source source = { next_text, tr, tr->inputs.bytes };
    return ddl_tokenizer_train_texts(tr->out, tr->config, &source, tr->progress, tr->user, err);
}

ddl_status ddl_tokenizer_train(ddl_tokenizer **out, const struct ddl_tokenizer_train_config *config,
                               const char *const *inputs, size_t n_inputs,
                               ddl_tokenizer_train_progress_fn *progress, void *user, struct ddl_error *err)
{
    struct training tr = { .out = out, .config = config, .progress = progress, .user = user };
    const struct ddl_pipeline_roles roles = { &tr, read_thread, decode_thread, train };
    *out = NULL;
    ddl_status status = ddl_option_check(ddl_tokenizer_train_options(), config, err);
    if (!status)
        status = ddl_text_input_check(&config->input, err);
    if (!status)
        status = ddl_inputs_list(&tr.inputs, inputs, n_inputs, config->input.stdin_format, err);
    if (!status)
        status = ddl_parts_divide(&tr.parts, &tr.inputs, config->input.separator, 0, err);
    tr.reader = (struct ddl_reader){ .inputs = &tr.inputs,
                                     .ranges = tr.parts.ranges,
                                     .n_ranges = tr.inputs.n,
                                     .pipeline = &tr.pipeline,
                                     .separator = config->input.separator };
    json_object_seed(0); /* before threads parse */
    if (!status)
        status = ddl_pipeline_run(&tr.pipeline, 1, &roles, err);
    ddl_parts_free(&tr.parts);
    ddl_inputs_free(&tr.inputs);
    return status;
}
