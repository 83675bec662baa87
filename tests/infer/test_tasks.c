/* Downstream tasks: texts, draws, files, requests, scores. The harness's own vectors are run by ddl verify.
 */
#define _POSIX_C_SOURCE 200809L
#include "ddl/tasks.h"

#include "ddl/backend.h"
#include "ddl/session.h"
#include "infer/tasks/random.h"
#include "infer/tasks/text.h"
#include "support/files.h"
#include "support/models.h"
#include "support/thread_comm.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ddl_task_text lit(const char *text)
{
    return (struct ddl_task_text){ text, strlen(text) };
}

static void assert_text(struct ddl_task_text found, const char *expected)
{
    if (found.size != strlen(expected) || memcmp(found.data, expected, found.size) != 0)
        fail_msg("expected '%s', found '%.*s'", expected, (int)found.size, found.data);
}

/* ---- Python's string functions: expected values from CPython 3.11 ---- */

static void test_strip(void **state)
{
    (void)state;
    assert_text(task_strip(lit(" \t\n\x1c\xc2\x85\xc2\xa0\xe3\x80\x80x y\xe2\x80\xa8 ")), "x y");
    assert_text(task_strip(lit("\xe2\x80\x8bx\xef\xbb\xbf")),
                "\xe2\x80\x8bx\xef\xbb\xbf"); /* U+200B, U+FEFF stay */
    assert_text(task_lstrip(lit("  x ")), "x ");
    assert_text(task_rstrip(lit("  x ")), "  x");
    assert_text(task_strip(lit(" \n ")), "");
    assert_text(task_strip(lit("")), "");
    assert_int_equal(task_characters(lit("a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x99\x82")), 4);
}

static void test_capitalize(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "", "" },
        { "the man from NEW YORK", "The man from new york" },
        { "\xc3\xa9"
          "COLE",
          "\xc3\x89"
          "cole" },
        { "\xc3\x9f"
          "E",
          "Sse" }, /* sharp s becomes Ss */
        { "\xc7\x86"
          "A",
          "\xc7\x85"
          "a" },                                    /* a digraph has a title case of its own */
        { "\xce\x9f\xce\xa3", "\xce\x9f\xcf\x82" }, /* a final sigma */
        { "a\xce\xa3 \xce\xa3"
          "b",
          "A\xcf\x82 \xcf\x83"
          "b" },                       /* final and not */
        { "x\xc4\xb0", "Xi\xcc\x87" }, /* I with dot: two code points */
        { "1ABC", "1abc" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct task_pool pool = { 0 };
        assert_text(task_capitalize(&pool, lit(rows[i][0])), rows[i][1]);
        assert_false(pool.failed);
        task_pool_free(&pool);
    }
}

static void test_clean(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "  a  b   c    d ", "a b  c  d" }, { "x [title] y", "x. y" },
        { "a [header] b [step]c", "a b c" }, { "[a[b]c]", "c]" },
        { "open [ stays", "open [ stays" },  { "line [a\nb] stays", "line [a\nb] stays" },
        { "[substeps] Put", " Put" },        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct task_pool pool = { 0 };
        assert_text(task_clean(&pool, lit(rows[i][0])), rows[i][1]);
        task_pool_free(&pool);
    }
}

/* random.Random(seed).sample(range(m), k) of CPython 3.11; a seed of two words; every index once where k = m.
 */
static void test_draws(void **state)
{
    (void)state;
    struct task_random random;
    struct ddl_error err = { 0 };
    size_t drawn[40];
    bool seen[40] = { false };
    task_random_seed(&random, ((uint64_t)1 << 40) + 7);
    assert_ok(task_random_sample(&random, 1000, 3, drawn, &err), err);
    assert_int_equal(drawn[0], 628);
    assert_int_equal(drawn[1], 765);
    assert_int_equal(drawn[2], 834);
    assert_ok(task_random_sample(&random, 40, 40, drawn, &err), err);
    for (size_t i = 0; i < 40; i++) {
        assert_true(drawn[i] < 40 && !seen[drawn[i]]);
        seen[drawn[i]] = true;
    }
}

/* ---- files ---- */

static ddl_tokenizer *tokenizer;

static int load_tokenizer(void **state)
{
    (void)state;
    return ddl_tokenizer_load(&tokenizer, source_path("data/tokenizer"), NULL) == DDL_OK ? 0 : -1;
}

static int free_tokenizer(void **state)
{
    (void)state;
    ddl_tokenizer_free(tokenizer);
    return 0;
}

static struct ddl_task_config config_of(const char *data)
{
    struct ddl_task_config config = ddl_task_defaults();
    snprintf(config.data, sizeof config.data, "%s", data);
    return config;
}

static void write_text(const char *relative, const char *text)
{
    struct ddl_error err = { 0 };
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path(relative));
    assert_ok(ddl_file_make_parent(path, &err), err);
    write_file(path, text, strlen(text));
}

static void assert_load_fails(const char *name, const struct ddl_task_config *config, ddl_status status,
                              const char *message)
{
    struct ddl_error err = { 0 };
    ddl_task *task;
    assert_int_equal(ddl_task_load(&task, name, config, tokenizer, &err), status);
    assert_null(task);
    if (!strstr(err.text, message))
        fail_msg("expected '%s' in '%s'", message, err.text);
}

static void test_file_errors(void **state)
{
    (void)state;
    struct ddl_task_config config = config_of(scratch_path("bad"));
    remove_scratch("bad");
    assert_load_fails("nope", &config, DDL_E_USAGE, "expected one of arc_challenge, ");
    assert_load_fails("piqa", &config, DDL_E_IO, "docs/evaluation.md");
    write_text("bad/piqa/valid.jsonl", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}\n");
    write_text("bad/piqa/valid-labels.lst", "0\n1\n");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "expected SHA-256 93503cc9");
    config.any_revision = true;
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "expected 1 labels, one for each record");
    write_text("bad/piqa/valid-labels.lst", "2\n");
    assert_load_fails("piqa", &config, DDL_E_FORMAT,
                      "label of record 1: expected a number from 0 to 1, found '2'");
    write_text("bad/piqa/valid-labels.lst", "1\n");
    write_text("bad/piqa/valid.jsonl", "{\"goal\":\"g\",\"sol1\":\"a\"}\n");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "valid.jsonl:1: sol2: expected a string, found none");
    write_text("bad/piqa/valid.jsonl", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}\n{\"goal\":");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "valid.jsonl:2: expected a JSON object");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "the file ends within this line");
    write_text("bad/piqa/valid.jsonl", "[1]\n");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "valid.jsonl:1: expected a JSON object");
    write_text("bad/piqa/valid.jsonl", "");
    assert_load_fails("piqa", &config, DDL_E_FORMAT, "expected at least one record");
    write_text("bad/winogrande/dev.jsonl",
               "{\"sentence\":\"no blank\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"1\"}\n");
    assert_load_fails("winogrande", &config, DDL_E_FORMAT, "expected a text with '_'");
    write_text("bad/arc/ARC-Easy-Test.jsonl",
               "{\"question\":{\"stem\":\"s\",\"choices\":[{\"text\":\"t\",\"label\":\"A\"}]},"
               "\"answerKey\":\"B\"}\n");
    assert_load_fails("arc_easy", &config, DDL_E_FORMAT,
                      "answerKey: expected the label of a choice, found \"B\"");
    write_text("bad/sciq/test.json", "{}");
    assert_load_fails("sciq", &config, DDL_E_FORMAT, "expected an array");
}

static void test_own_file_errors(void **state)
{
    (void)state;
    struct ddl_task_config config = config_of("");
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("own.jsonl"));
    static const char *const rows[][2] = {
        { "{\"prompt\":\"x\"}\n", "found none of 'choices', 'text' and 'target'" },
        { "{\"context\":\"x\",\"choices\":[\"a\"],\"gold\":1}\n",
          "gold: expected a number from 0 to 0, found 1" },
        { "{\"context\":\"x\",\"choices\":[],\"gold\":0}\n",
          "choices: expected an array of strings, found []" },
        { "{\"context\":\"x\",\"choices\":[1],\"gold\":0}\n",
          "choices: expected an array of strings, found [1]" },
        { "{\"text\":[\"a\"]}\n", "text: expected an array of two strings" },
        { "{\"target\":\"a\"}\n", "context: expected a string, found none" },
        { "{\"context\":\"  \",\"target\":\"a\"}\n", "own.jsonl:1: no context token" },
        { "{\"context\":\"\",\"target\":\"a\",\"target\":\"b\"}\n", "own.jsonl:1: expected a JSON object" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_text("own.jsonl", rows[i][0]);
        assert_load_fails(path, &config, DDL_E_FORMAT, rows[i][1]);
    }
    write_text("own.jsonl", "{\"context\":\"x\",\"choices\":[\"a\"],\"gold\":0}\n");
    config.shots = 1;
    assert_load_fails(path, &config, DDL_E_USAGE, "shots: expected at most 0");
    write_text("own.jsonl", "{\"context\":\"x\",\"choices\":[\"a\"],\"gold\":0}\n"
                            "{\"context\":\"x\",\"choices\":[\"a\"],\"gold\":0}\n");
    assert_load_fails(path, &config, DDL_E_FORMAT,
                      "expected 1 examples besides the document itself, found 0");
}

/* ---- scores ---- */

/* Requests of a file of one's own, scored as a whole and against log-softmax of full passes. */
static const char own[] =
    "{\"context\":\"The cat sat on\",\"choices\":[\"the mat\",\"a dog\",\"the mat\",\"the moon and the "
    "stars\"],\"gold\":2}\n"
    "{\"context\":\"A\",\"choices\":[\"b\",\"c\"],\"gold\":\"1\"}\n"
    "{\"context\":\"\",\"choices\":[\"Once upon a time\",\"there\"],\"gold\":0}\n"
    "{\"context\":\"One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen "
    "seventeen eighteen nineteen twenty\",\"choices\":[\"twenty-one\",\"thirty\"],\"gold\":0}\n";

enum { CONTEXT = 16 };

static ddl_model *make_model(ddl_backend *backend)
{
    struct ddl_config config = ddl_config_defaults();
    struct ddl_error err = { 0 };
    ddl_model *model;
    assert_ok(ddl_config_set_preset(&config, "ddl-cc-ec", &err), err);
    config.n_layers = 2, config.d_model = 16, config.n_heads = 2, config.head_dim = 8;
    config.block_size = CONTEXT;
    config.vocab_size = 50304;
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, 7, &err), err);
    return model;
}

/* log p of the continuation from a full pass over the last tokens that fit. */
static double full_loglikelihood(ddl_model *model, const struct ddl_task_request *r, bool *is_greedy)
{
    size_t n = r->n_context + r->n_tokens, cut = n > CONTEXT + 1 ? n - CONTEXT - 1 : 0, rows = n - cut - 1;
    size_t V = ddl_model_config(model)->vocab_size;
    const int32_t *tokens = r->tokens + cut;
    float *logits = malloc(rows * V * sizeof *logits);
    struct ddl_error err = { 0 };
    const struct ddl_session_options options = { .slots = 1, .tokens = CONTEXT };
    ddl_session *session;
    double sum = 0;
    assert_non_null(logits);
    assert_ok(ddl_session_create(&session, model, &options, &err), err);
    const struct ddl_session_input in = { .n = rows, .tokens = tokens, .n_logits = rows, .logits = logits };
    assert_ok(ddl_session_prefill(session, &in, 1, &err), err);
    ddl_session_free(session);
    *is_greedy = true;
    for (size_t t = rows - r->n_tokens; t < rows; t++) {
        const float *z = logits + t * V;
        double top = -INFINITY, total = 0;
        size_t best = 0;
        for (size_t j = 0; j < V; j++) {
            best = z[j] > z[best] ? j : best;
            top = fmax(top, (double)z[j]);
        }
        for (size_t j = 0; j < V; j++)
            total += exp((double)z[j] - top);
        sum += (double)z[tokens[t + 1]] - top - log(total);
        *is_greedy = *is_greedy && best == (size_t)tokens[t + 1];
    }
    free(logits);
    return sum;
}

/* Every request against a full pass of its own. */
static void check_scores(const ddl_task *task, ddl_model *model, const struct ddl_task_score *scores)
{
    for (size_t i = 0; i < ddl_task_n_documents(task); i++) {
        const struct ddl_task_document *document = ddl_task_document(task, i);
        for (size_t r = 0; r < document->n_requests; r++) {
            const struct ddl_task_score *score = &scores[ddl_task_first_request(task, i) + r];
            bool is_greedy;
            double expected = full_loglikelihood(model, &document->requests[r], &is_greedy);
            if (!(fabs(score->loglikelihood - expected) <= 1e-6 * (double)CONTEXT * (1 + fabs(expected))))
                fail_msg("%s: document %zu, request %zu: expected %g, found %g", ddl_task_title(task), i, r,
                         expected, score->loglikelihood);
            assert_int_equal(score->is_greedy, is_greedy);
        }
    }
}

struct heard {
    size_t n, stop_after, polls, stop_at;
};

static int hear(void *user, size_t i, const struct ddl_task_score *scores)
{
    struct heard *heard = user;
    (void)i;
    assert_true(scores[0].loglikelihood < 0);
    return ++heard->n == heard->stop_after;
}

static int count(void *user, uint64_t done, uint64_t total)
{
    struct heard *heard = user;
    assert_true(done == heard->n && total <= 4);
    return ++heard->polls == heard->stop_at;
}

static void test_scores(void **state)
{
    (void)state;
    struct ddl_task_config config = config_of("");
    struct ddl_error err = { 0 };
    ddl_task *task;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("four.jsonl"));
    write_text("four.jsonl", own);
    ddl_backend *backend = open_test_backend(2);
    ddl_model *model = make_model(backend);
    assert_ok(ddl_task_load(&task, path, &config, tokenizer, &err), err);
    assert_string_equal(ddl_task_title(task), "four");
    assert_int_equal(ddl_task_n_documents(task), 4);
    assert_int_equal(ddl_task_n_requests(task), 10);
    struct ddl_task_score scores[10], again[10];
    struct heard heard = { 0 };
    const struct ddl_task_score_options callbacks = { .each = hear, .progress = count, .user = &heard };
    assert_ok(ddl_task_score(task, model, NULL, &callbacks, scores, &err), err);
    assert_int_equal(heard.n, 4);
    check_scores(task, model, scores);
    assert_memory_equal(&scores[0], &scores[2],
                        sizeof(double)); /* equal choices: equal to the bit, the first wins */
    assert_int_not_equal(ddl_task_choice(ddl_task_document(task, 0), scores, false), 2);

    /* done documents are left alone; an interruption is an error */
    bool done[4] = { true, false, true, true };
    memset(again, 0, sizeof again);
    heard = (struct heard){ 0 };
    assert_ok(ddl_task_score(task, model, done, &callbacks, again, &err), err);
    assert_int_equal(heard.n, 1);
    assert_true(again[0].loglikelihood == 0 && again[4].loglikelihood != 0 && again[6].loglikelihood == 0);
    heard = (struct heard){ .stop_after = 1 };
    assert_int_equal(ddl_task_score(task, model, NULL, &callbacks, again, &err), DDL_E_INTERRUPTED);
    assert_string_equal(err.text, "task four: interrupted after 1 of 4 documents");
    /* also within a pass, before the first document is complete */
    heard = (struct heard){ .stop_at = 7 };
    assert_int_equal(ddl_task_score(task, model, NULL, &callbacks, again, &err), DDL_E_INTERRUPTED);
    assert_string_equal(err.text, "task four: interrupted after 0 of 4 documents");
    assert_true(heard.n == 0 && heard.polls == 7);
    assert_ok(ddl_task_score(task, model, NULL, NULL, again, &err), err);
    for (size_t r = 0; r < 10; r++)
        assert_true(again[r].loglikelihood == scores[r].loglikelihood);

    struct ddl_task_result result = ddl_task_summarize(task, scores);
    const struct ddl_task_value *values = result.values;
    assert_int_equal(result.n_values, 2);
    assert_ptr_equal(ddl_task_main_value(&result), &values[1]);
    assert_string_equal(values[1].name, "acc_norm");
    double p = values[0].value; /* of a share: sqrt(p (1 - p) / (n - 1)) */
    assert_true(fabs(values[0].error - sqrt(p * (1 - p) / 3)) <= 1e-12);
    ddl_task_free(task);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* A model whose output is not finite has no scores, and no document is reported. */
static void test_nonfinite(void **state)
{
    (void)state;
    struct ddl_task_config config = config_of("");
    struct ddl_error err = { 0 };
    struct ddl_task_score scores[10];
    struct heard heard = { 0 };
    const struct ddl_task_score_options callbacks = { .each = hear, .user = &heard };
    ddl_task *task;
    write_text("four.jsonl", own);
    ddl_backend *backend = open_test_backend(2);
    ddl_model *model = make_model(backend);
    change_param(model, param_row(model, "ln_f.weight"), 0, 1, 0, NAN);
    assert_ok(ddl_task_load(&task, scratch_path("four.jsonl"), &config, tokenizer, &err), err);
    assert_int_equal(ddl_task_score(task, model, NULL, &callbacks, scores, &err), DDL_E_NUMERIC);
    assert_non_null(strstr(err.text, "task four: document "));
    assert_non_null(strstr(err.text, "not finite"));
    assert_int_equal(heard.n, 0);
    ddl_task_free(task);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* Scores a file and checks them. */
static void check_file(ddl_model *model, const char *name)
{
    struct ddl_task_config config = config_of("");
    struct ddl_error err = { 0 };
    struct heard heard = { 0 };
    const struct ddl_task_score_options callbacks = { .each = hear, .user = &heard };
    ddl_task *task;
    assert_ok(ddl_task_load(&task, scratch_path(name), &config, tokenizer, &err), err);
    struct ddl_task_score *scores = calloc(ddl_task_n_requests(task), sizeof *scores);
    assert_non_null(scores);
    assert_ok(ddl_task_score(task, model, NULL, &callbacks, scores, &err), err);
    assert_int_equal(heard.n, ddl_task_n_documents(task));
    check_scores(task, model, scores);
    free(scores);
    ddl_task_free(task);
}

/* Choices that branch in every way: at the first token, later, several times, where one of them ends; equal
 * ones; contexts that differ, so that requests are scored from different rows on. More documents than a pass
 * holds. */
static void test_branches(void **state)
{
    (void)state;
    static const char words[][8] = { " the", " the", " a", " cat", " sat" };
    FILE *choices = fopen(scratch_path("branches.jsonl"), "w");
    FILE *pairs = fopen(scratch_path("pairs.jsonl"), "w");
    assert_non_null(choices);
    assert_non_null(pairs);
    uint32_t random = 1;
    for (size_t i = 0; i < 80; i++) {
        fprintf(choices, "{\"context\":\"%s\",\"choices\":[", i % 4 ? "It is so that" : "");
        for (size_t r = 0; r < 2 + i % 5; r++) {
            fprintf(choices, r ? ",\"" : "\"");
            for (size_t w = 0; w < 1 + (i + r) % 4; w++) {
                random = random * 1664525 + 1013904223;
                fprintf(choices, "%s", words[(random >> 16) % 5]);
            }
            fprintf(choices, "\"");
        }
        fprintf(choices, "],\"gold\":0}\n");
        random = random * 1664525 + 1013904223;
        fprintf(pairs, "{\"text\":[\"One%s two%s three\",\"One%s two three four\"]}\n", words[i % 5],
                words[(random >> 16) % 5], words[i / 5 % 5]);
    }
    assert_int_equal(fclose(choices) + fclose(pairs), 0);
    ddl_backend *backend = open_test_backend(2);
    ddl_model *model = make_model(backend);
    check_file(model, "branches.jsonl");
    check_file(model, "pairs.jsonl");
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* ---- ranks ---- */

enum { MAX_RANKS = 4, DOCUMENTS = 150, REQUESTS = 3 * DOCUMENTS }; /* three blocks of documents */

/* Scores of a rank, and the documents in the order in which they were reported. */
struct rank {
    const ddl_task *task;
    bool done[DOCUMENTS];
    struct ddl_task_score scores[REQUESTS];
    size_t n_reported, stop_after, reported[DOCUMENTS];
    ddl_status status;
    struct ddl_error err;
};

static int keep_document(void *user, size_t i, const struct ddl_task_score *scores)
{
    struct rank *rank = user;
    assert_ptr_equal(scores, rank->scores + ddl_task_first_request(rank->task, i));
    rank->reported[rank->n_reported++] = i;
    return rank->n_reported == rank->stop_after;
}

static void score_rank(ddl_comm *comm, void *user)
{
    struct rank *rank = (struct rank *)user + ddl_comm_rank(comm);
    const struct ddl_task_score_options options = { .each = keep_document, .user = rank, .comm = comm };
    ddl_backend *backend = open_test_backend(1);
    ddl_model *model = make_model(backend);
    rank->status = ddl_task_score(rank->task, model, rank->done, &options, rank->scores, &rank->err);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

/* Documents of different lengths with three choices. */
static ddl_task *load_long_task(void)
{
    struct ddl_task_config config = config_of("");
    struct ddl_error err = { 0 };
    ddl_task *task;
    FILE *file = fopen(scratch_path("many.jsonl"), "w");
    assert_non_null(file);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        fprintf(file, "{\"context\":\"No. %zu", i);
        for (size_t w = 0; w < i * 7 % 11; w++)
            fprintf(file, " the cat");
        fprintf(file, "\",\"choices\":[\"sat\",\"sat on\",\"a\"],\"gold\":%zu}\n", i % 3);
    }
    assert_int_equal(fclose(file), 0);
    assert_ok(ddl_task_load(&task, scratch_path("many.jsonl"), &config, tokenizer, &err), err);
    assert_int_equal(ddl_task_n_requests(task), REQUESTS);
    return task;
}

/* Runs n ranks; the first `n_done` documents that `one` has reported are done. */
static void score_ranks(struct rank *ranks, size_t n, const struct rank *one, size_t n_done)
{
    memset(ranks, 0, MAX_RANKS * sizeof *ranks);
    for (size_t r = 0; r < n; r++)
        ranks[r].task = one->task;
    for (size_t i = 0; i < n_done; i++) {
        size_t at = ddl_task_first_request(one->task, one->reported[i]);
        ranks[0].done[one->reported[i]] = true;
        memcpy(ranks[0].scores + at, one->scores + at, 3 * sizeof *one->scores);
    }
    thread_comm_run(n, score_rank, ranks);
}

/* The same bits and the same order as with one rank; rank 0 alone reports documents, and has those that are
 * done. In a block with done documents the last digits depend on the others. */
static void test_ranks(void **state)
{
    (void)state;
    struct rank *ranks = calloc(MAX_RANKS, sizeof *ranks), *one = calloc(1, sizeof *one);
    assert_true(ranks && one);
    ddl_task *task = load_long_task();
    one->task = task;
    thread_comm_run(1, score_rank, one);
    assert_ok(one->status, one->err);
    assert_int_equal(one->n_reported, DOCUMENTS);
    for (size_t i = 0; i < 3 * (MAX_RANKS - 1); i++) {
        static const size_t n_done[] = { 0, 64, 100 };
        const size_t n = 2 + i / 3, done = n_done[i % 3];
        score_ranks(ranks, n, one, done);
        assert_int_equal(ranks[0].n_reported, DOCUMENTS - done);
        assert_memory_equal(ranks[0].reported, one->reported + done,
                            (DOCUMENTS - done) * sizeof *one->reported);
        for (size_t r = 0; r < n; r++) {
            assert_ok(ranks[r].status, ranks[r].err);
            assert_true(r == 0 || ranks[r].n_reported == 0);
            for (size_t s = 0; s < REQUESTS; s++)
                assert_true(fabs(ranks[r].scores[s].loglikelihood - one->scores[s].loglikelihood) <=
                            (done % 64 ? 1e-4 : 0));
        }
    }
    free(ranks);
    free(one);
    ddl_task_free(task);
}

/* Rank 0 ends all of them, in a block of another rank. */
static void test_interrupted_ranks(void **state)
{
    (void)state;
    struct rank *ranks = calloc(MAX_RANKS, sizeof *ranks);
    ddl_task *task = load_long_task();
    assert_non_null(ranks);
    for (size_t r = 0; r < MAX_RANKS; r++)
        ranks[r].task = task;
    ranks[0].stop_after = 70;
    thread_comm_run(MAX_RANKS, score_rank, ranks);
    for (size_t r = 0; r < MAX_RANKS; r++)
        assert_int_equal(ranks[r].status, DDL_E_INTERRUPTED);
    assert_string_equal(ranks[0].err.text, "task many: interrupted after 70 of 150 documents");
    free(ranks);
    ddl_task_free(task);
}

/* Few-shot texts, and the two other kinds of files. */
static void test_kinds(void **state)
{
    (void)state;
    struct ddl_task_config config = config_of("");
    struct ddl_error err = { 0 };
    ddl_task *task;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("kinds.jsonl"));
    write_text("kinds.jsonl", "{\"context\":\"x\",\"target\":\"y\"}\n{\"context\":\"z\",\"target\":\"w\"}\n");
    config.shots = 1;
    assert_ok(ddl_task_load(&task, path, &config, tokenizer, &err), err);
    const struct ddl_task_request *request = ddl_task_document(task, 0)->requests;
    assert_text(request->context, "z w\n\nx");
    assert_text(request->continuation, " y");
    assert_int_equal(request->characters, 1);
    struct ddl_task_score scores[2] = { { -1, true }, { -3, false } };
    struct ddl_task_result result = ddl_task_summarize(task, scores);
    const struct ddl_task_value *values = result.values;
    assert_int_equal(result.n_values, 3);
    assert_ptr_equal(ddl_task_main_value(&result), &values[0]);
    assert_true(values[0].value == 0.5 && values[1].value == 2);
    assert_true(fabs(values[2].value - exp(2)) <= 1e-14 * exp(2));
    ddl_task_free(task);

    write_text("kinds.jsonl", "{\"text\":[\"He goes.\",\"He go.\"]}\n");
    config.shots = 0;
    assert_ok(ddl_task_load(&task, path, &config, tokenizer, &err), err);
    request = ddl_task_document(task, 0)->requests;
    assert_int_equal(request->n_context, 1);
    assert_int_equal(request->tokens[0], ddl_tokenizer_end_of_text(tokenizer));
    assert_text(request[1].continuation, "He go.");
    result = ddl_task_summarize(task, scores);
    assert_int_equal(result.n_values, 1);
    assert_true(values[0].value == 1 && isnan(values[0].error));
    ddl_task_free(task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strip),       cmocka_unit_test(test_capitalize),
        cmocka_unit_test(test_clean),       cmocka_unit_test(test_draws),
        cmocka_unit_test(test_file_errors), cmocka_unit_test(test_own_file_errors),
        cmocka_unit_test(test_scores),      cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_branches),    cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_interrupted_ranks),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, free_tokenizer);
}
