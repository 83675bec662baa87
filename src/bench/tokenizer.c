/* Timing the tokenizer on a text: encoding, decoding, learning. */
#include "bench/bench.h"

#include "base/file.h"
#include "ddl/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_TEXT = 1 << 30 };

struct job {
    const struct ddl_bench_tokenizer_config *config;
    ddl_tokenizer *tokenizer;
    char *text;
    size_t size;
    struct ddl_ids ids;
    char *decoded; /* size bytes */
    ddl_status status;
    struct ddl_error *err;
};

static void keep(struct job *job, ddl_status status)
{
    job->status = job->status ? job->status : status;
}

static void encode(void *user)
{
    struct job *job = user;
    job->ids.n = 0;
    keep(job, ddl_tokenizer_encode(job->tokenizer, job->text, job->size, false, &job->ids, job->err));
}

/* Decodes the ids into a buffer of the text's size. */
static void decode(void *user)
{
    struct job *job = user;
    size_t at = 0;
    for (size_t i = 0; i < job->ids.n; i++) {
        size_t n;
        const char *bytes = ddl_tokenizer_bytes(job->tokenizer, job->ids.ids[i], &n);
        memcpy(job->decoded + at, bytes, n); /* it was checked that they are the text */
        at += n;
    }
}

static ddl_status train_one(const struct job *job, ddl_tokenizer **out, struct ddl_error *err)
{
    struct ddl_tokenizer_train_config config = ddl_tokenizer_train_defaults();
    config.vocab_size = job->config->vocab_size;
    return ddl_tokenizer_train(out, &config, &job->config->text, 1, NULL, NULL, err);
}

static void train(void *user)
{
    struct job *job = user;
    ddl_tokenizer *learned = NULL;
    keep(job, train_one(job, &learned, job->err));
    ddl_tokenizer_free(learned);
}

ddl_status bench_check_text(const ddl_tokenizer *encoder, const ddl_tokenizer *decoder, const char *text,
                            size_t size, const char *name, struct ddl_error *err)
{
    struct ddl_ids ids = { 0 };
    size_t at = 0;
    bool same = true;
    ddl_status status = ddl_tokenizer_encode(encoder, text, size, false, &ids, err);
    for (size_t i = 0; !status && same && i < ids.n; i++) {
        size_t n = 0;
        const char *bytes = ddl_tokenizer_bytes(decoder, ids.ids[i], &n);
        same = bytes && n <= size - at && memcmp(bytes, text + at, n) == 0;
        at += same ? n : 0;
    }
    ddl_ids_free(&ids);
    if (status || (same && at == size))
        return status;
    return ddl_error_set(
        err, DDL_E_NUMERIC,
        "bench tokenizer: %s: of %zu bytes the ids give back %zu: a wrong result is not timed", name, size,
        at);
}

static ddl_status open_job(struct job *job, struct ddl_error *err)
{
    ddl_status status = ddl_tokenizer_load(&job->tokenizer, job->config->tokenizer, err);
    if (!status)
        status = ddl_file_read(job->config->text, LARGEST_TEXT, &job->text, &job->size, err);
    if (!status && job->size == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: no text in it", job->config->text);
    if (!status && !(job->decoded = malloc(job->size)))
        status =
            ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu bytes", job->config->text, job->size);
    return status;
}

static ddl_status check(struct job *job, struct ddl_bench_report *out, struct ddl_error *err)
{
    ddl_tokenizer *learned = NULL;
    ddl_status status =
        bench_check_text(job->tokenizer, job->tokenizer, job->text, job->size, job->config->tokenizer, err);
    if (!status && job->config->vocab_size)
        status = train_one(job, &learned, err);
    if (!status && learned)
        status = bench_check_text(learned, learned, job->text, job->size, "the learned tokenizer", err);
    ddl_tokenizer_free(learned);
    snprintf(out->check, sizeof out->check, "the text's ids decode to the text%s",
             job->config->vocab_size ? ", with the learned tokenizer too" : "");
    return status;
}

static void time_row(struct job *job, struct ddl_bench_report *out, const char *name, const char *figure,
                     bench_fn *fn)
{
    struct ddl_bench_row *row =
        bench_time(out, name, NULL, fn, job, job->config->warmup, job->config->steps, 0);
    row->units = 1e-6 * (double)job->size;
    snprintf(row->unit, sizeof row->unit, "MB");
    bench_figure(out, figure, row->units / row->median);
}

ddl_status ddl_bench_tokenizer(const struct ddl_bench_tokenizer_config *config, struct ddl_bench_report *out,
                               struct ddl_error *err)
{
    struct job job = { .config = config, .err = err };
    bench_begin(out, "tokenizer", NULL);
    ddl_status status = bench_check_steps(config->steps, err);
    if (!status)
        status = open_job(&job, err);
    if (!status)
        status = check(&job, out, err);
    if (!status) {
        bench_set(out, "text_bytes", "%zu", job.size);
        bench_set(out, "vocabulary", "%zu", ddl_tokenizer_vocab_size(job.tokenizer));
        bench_set(out, "learn", "%zu", config->vocab_size);
        time_row(&job, out, "encode", "encode_mb_per_s", encode);
        time_row(&job, out, "decode", "decode_mb_per_s", decode);
        if (config->vocab_size)
            time_row(&job, out, "train", "train_mb_per_s", train);
        bench_figure(out, "bytes_per_token", (double)job.size / (double)job.ids.n);
        status = job.status;
    }
    ddl_ids_free(&job.ids);
    free(job.decoded);
    free(job.text);
    ddl_tokenizer_free(job.tokenizer);
    return status;
}
