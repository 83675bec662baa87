/* The tasks. Rules: docs/evaluation.md. */
#include "infer/tasks/task.h"

#include <string.h>

/* ---- helpers ---- */

/* A document of n choices whose contexts and answers are to be set. */
static ddl_status begin(struct task_pool *pool, size_t n, struct task_item *out, struct ddl_error *err)
{
    out->n = n;
    out->context = task_pool_take(pool, n, sizeof *out->context);
    out->answer = task_pool_take(pool, n, sizeof *out->answer);
    if (!out->context || !out->answer)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for a document");
    return DDL_OK;
}

static void set_contexts(struct task_item *item, struct ddl_task_text context)
{
    for (size_t i = 0; i < item->n; i++)
        item->context[i] = context;
}

/* Strings of the record: n fields into texts. */
static ddl_status read_texts(const struct task_record *record, size_t n, const char *const *fields,
                             struct ddl_task_text *texts, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = task_record_text(record, record->fields, fields[i], &texts[i], err);
    return status;
}

/* A question with labeled choices: {"question": {"stem", "choices": [{"text", "label"}, ...]}, "answerKey"}.
 */
static ddl_status read_question(const struct task_record *record, struct task_pool *pool,
                                struct ddl_task_text *stem, struct task_item *out, struct ddl_error *err)
{
    const json_t *question = json_object_get(record->fields, "question");
    const json_t *choices = json_object_get(question, "choices");
    struct ddl_task_text key, label;
    if (json_array_size(choices) == 0)
        return task_record_error(record, "question.choices", "an array of choices", choices, err);
    ddl_status status = task_record_text(record, question, "stem", stem, err);
    if (!status)
        status = task_record_text(record, record->fields, "answerKey", &key, err);
    if (!status)
        status = begin(pool, json_array_size(choices), out, err);
    if (status)
        return status;
    key = task_lstrip(key);
    out->gold = out->n;
    for (size_t i = 0; i < out->n && !status; i++) {
        const json_t *choice = json_array_get(choices, i);
        status = task_record_text(record, choice, "text", &out->answer[i], err);
        if (!status)
            status = task_record_text(record, choice, "label", &label, err);
        if (!status && out->gold == out->n && task_text_equal(label, key))
            out->gold = i;
    }
    if (!status && out->gold == out->n)
        status = task_record_error(record, "answerKey", "the label of a choice",
                                   json_object_get(record->fields, "answerKey"), err);
    return status;
}

/* ---- the tasks ---- */

static ddl_status convert_arc(const struct task_record *record, struct task_pool *pool, struct task_item *out,
                              struct ddl_error *err)
{
    struct ddl_task_text stem;
    ddl_status status = read_question(record, pool, &stem, out, err);
    if (!status)
        set_contexts(out, TASK_JOIN(pool, task_literal("Question: "), stem, task_literal("\nAnswer:")));
    return status;
}

static ddl_status convert_openbookqa(const struct task_record *record, struct task_pool *pool,
                                     struct task_item *out, struct ddl_error *err)
{
    struct ddl_task_text stem;
    ddl_status status = read_question(record, pool, &stem, out, err);
    if (!status)
        set_contexts(out, stem);
    return status;
}

static ddl_status convert_hellaswag(const struct task_record *record, struct task_pool *pool,
                                    struct task_item *out, struct ddl_error *err)
{
    static const char *const fields[] = { "activity_label", "ctx_a", "ctx_b" };
    const json_t *endings = json_object_get(record->fields, "endings");
    size_t n = json_array_size(endings);
    struct ddl_task_text t[3];
    long gold = 0;
    if (n == 0)
        return task_record_error(record, "endings", "an array of strings", endings, err);
    ddl_status status = read_texts(record, 3, fields, t, err);
    if (!status)
        status = task_record_label(record, "label", 0, (long)n - 1, &gold, err);
    if (!status)
        status = begin(pool, n, out, err);
    for (size_t i = 0; i < n && !status; i++) {
        const json_t *ending = json_array_get(endings, i);
        if (!json_is_string(ending))
            return task_record_error(record, "endings", "an array of strings", endings, err);
        out->answer[i] =
            task_clean(pool, (struct ddl_task_text){ json_string_value(ending), json_string_length(ending) });
    }
    if (status)
        return status;
    out->gold = (size_t)gold;
    set_contexts(out, task_clean(pool, TASK_JOIN(pool, t[0], task_literal(": "), t[1], task_literal(" "),
                                                 task_capitalize(pool, t[2]))));
    return DDL_OK;
}

static ddl_status convert_piqa(const struct task_record *record, struct task_pool *pool,
                               struct task_item *out, struct ddl_error *err)
{
    static const char *const fields[] = { "goal", "sol1", "sol2" };
    struct ddl_task_text t[3];
    long gold = 0;
    ddl_status status = read_texts(record, 3, fields, t, err);
    if (!status)
        status = task_record_label(record, "label", 0, 1, &gold, err);
    if (!status)
        status = begin(pool, 2, out, err);
    if (status)
        return status;
    out->answer[0] = t[1], out->answer[1] = t[2];
    out->gold = (size_t)gold;
    set_contexts(out, TASK_JOIN(pool, task_literal("Question: "), t[0], task_literal("\nAnswer:")));
    return DDL_OK;
}

static ddl_status convert_sciq(const struct task_record *record, struct task_pool *pool,
                               struct task_item *out, struct ddl_error *err)
{
    static const char *const fields[] = { "distractor1",    "distractor2", "distractor3",
                                          "correct_answer", "support",     "question" };
    struct ddl_task_text t[6];
    ddl_status status = read_texts(record, 6, fields, t, err);
    if (!status)
        status = begin(pool, 4, out, err);
    if (status)
        return status;
    memcpy(out->answer, t, 4 * sizeof *t);
    out->gold = 3;
    set_contexts(out, TASK_JOIN(pool, task_lstrip(t[4]), task_literal("\nQuestion: "), t[5],
                                task_literal("\nAnswer:")));
    return DDL_OK;
}

static ddl_status convert_social_iqa(const struct task_record *record, struct task_pool *pool,
                                     struct task_item *out, struct ddl_error *err)
{
    static const char *const fields[] = { "answerA", "answerB", "answerC", "context", "question" };
    struct ddl_task_text t[5];
    long gold = 0;
    ddl_status status = read_texts(record, 5, fields, t, err);
    if (!status)
        status = task_record_label(record, "label", 1, 3, &gold, err);
    if (!status)
        status = begin(pool, 3, out, err);
    if (status)
        return status;
    memcpy(out->answer, t, 3 * sizeof *t);
    out->gold = (size_t)gold - 1;
    set_contexts(out,
                 TASK_JOIN(pool, task_literal("Q: "), t[3], task_literal(" "), t[4], task_literal("\nA:")));
    return DDL_OK;
}

/* Two contexts with one answer: the text up to the blank with either option, and what follows the blank.
 */
static ddl_status convert_winogrande(const struct task_record *record, struct task_pool *pool,
                                     struct task_item *out, struct ddl_error *err)
{
    static const char *const fields[] = { "sentence", "option1", "option2" };
    struct ddl_task_text t[3];
    long gold = 0;
    ddl_status status = read_texts(record, 3, fields, t, err);
    if (!status)
        status = task_record_label(record, "answer", 1, 2, &gold, err);
    if (!status)
        status = begin(pool, 2, out, err);
    if (status)
        return status;
    const char *blank = memchr(t[0].data, '_', t[0].size);
    if (!blank)
        return task_record_error(record, "sentence", "a text with '_'",
                                 json_object_get(record->fields, "sentence"), err);
    size_t before = (size_t)(blank - t[0].data);
    struct ddl_task_text head = { t[0].data, before }, tail = { blank + 1, t[0].size - before - 1 };
    for (size_t i = 0; i < 2; i++) {
        out->context[i] = TASK_JOIN(pool, head, t[1 + i]);
        out->answer[i] = task_strip(tail);
    }
    out->gold = (size_t)gold - 1;
    return DDL_OK;
}

/* ---- files of one's own ---- */

/* {"context", "choices": [...], "gold"} */
static ddl_status convert_choices(const struct task_record *record, struct task_pool *pool,
                                  struct task_item *out, struct ddl_error *err)
{
    const json_t *choices = json_object_get(record->fields, "choices");
    size_t n = json_array_size(choices);
    struct ddl_task_text context;
    long gold = 0;
    if (n == 0)
        return task_record_error(record, "choices", "an array of strings", choices, err);
    ddl_status status = task_record_text(record, record->fields, "context", &context, err);
    if (!status)
        status = task_record_number(record, "gold", 0, (long)n - 1, &gold, err);
    if (!status)
        status = begin(pool, n, out, err);
    for (size_t i = 0; i < n && !status; i++) {
        const json_t *choice = json_array_get(choices, i);
        if (!json_is_string(choice))
            return task_record_error(record, "choices", "an array of strings", choices, err);
        out->answer[i] = (struct ddl_task_text){ json_string_value(choice), json_string_length(choice) };
    }
    if (status)
        return status;
    out->gold = (size_t)gold;
    set_contexts(out, context);
    return DDL_OK;
}

/* {"text": [better, worse]}, both scored without a context, as BLiMP's minimal pairs. */
static ddl_status convert_pair(const struct task_record *record, struct task_pool *pool,
                               struct task_item *out, struct ddl_error *err)
{
    const json_t *texts = json_object_get(record->fields, "text");
    if (json_array_size(texts) != 2 || !json_is_string(json_array_get(texts, 0)) ||
        !json_is_string(json_array_get(texts, 1)))
        return task_record_error(record, "text", "an array of two strings", texts, err);
    ddl_status status = begin(pool, 2, out, err);
    for (size_t i = 0; i < 2 && !status; i++) {
        const json_t *text = json_array_get(texts, i);
        out->answer[i] = (struct ddl_task_text){ json_string_value(text), json_string_length(text) };
    }
    if (!status)
        set_contexts(out, task_literal(""));
    return status;
}

/* {"context", "target"}: LAMBADA's last words. */
static ddl_status convert_target(const struct task_record *record, struct task_pool *pool,
                                 struct task_item *out, struct ddl_error *err)
{
    struct ddl_task_text context, target;
    ddl_status status = task_record_text(record, record->fields, "context", &context, err);
    if (!status)
        status = task_record_text(record, record->fields, "target", &target, err);
    if (!status)
        status = begin(pool, 1, out, err);
    if (status)
        return status;
    out->context[0] = context;
    out->answer[0] = target;
    return DDL_OK;
}

/* ---- tables ---- */

/* In the order of the paper's table. */
static const struct task rows[] = {
    { .name = "arc_challenge",
      .about = "ARC, challenge set: science questions with 3 to 5 choices",
      .documents = { { "arc/ARC-Challenge-Test.jsonl",
                       "9fa8ffb3e3a1f88cb302d53dd95aae81e39209ad9bcf974376b319d8fd35717c", NULL, NULL } },
      .examples = { { "arc/ARC-Challenge-Train.jsonl",
                      "e02837c53ee86f6d73c259f91c77725c5062ef4531130b7f473a9d9b01118a77", NULL, NULL } },
      .has_test_split = true,
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_arc },
    { .name = "arc_easy",
      .about = "ARC, easy set: science questions with 3 to 5 choices",
      .documents = { { "arc/ARC-Easy-Test.jsonl",
                       "ce32a0774b4beb1977d2c6b16dda5dd2b24fdc9c7f506882c452678676bd09be", NULL, NULL } },
      .examples = { { "arc/ARC-Easy-Train.jsonl",
                      "c62e5482d8c01f2d5a7f24239ac9db3b12f9e47267c4e3f088c6ffe41d5545ef", NULL, NULL } },
      .has_test_split = true,
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_arc },
    { .name = "hellaswag",
      .about = "HellaSwag: the most plausible of four endings",
      .documents = { { "hellaswag/hellaswag_val.jsonl",
                       "0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588", NULL, NULL },
                     { "hellaswag/hellaswag_val_1000.jsonl",
                       "79b87117cffba9878961284f233797c5ebeba4193cb48a93eabc4a5a1156cc45", NULL, NULL } },
      .examples = { { "hellaswag/hellaswag_train.jsonl", NULL, NULL, NULL },
                    { "hellaswag/hellaswag_train_small.jsonl",
                      "05bd06063249e480caa42a5fb65d9eb156cafb71012fc610af2e48c4f4ba064a", NULL, NULL } },
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_hellaswag },
    { .name = "openbookqa",
      .about = "OpenBookQA: elementary science with four choices",
      .documents = { { "openbookqa/test.jsonl",
                       "feb2bd9bfa6161dca4c44ce90e51e8cdada83eb5061407fcdc5005e44aaf2313", NULL, NULL } },
      .examples = { { "openbookqa/train.jsonl",
                      "388ce25926fa33b573ba6556d7245a6185f612dedf919871b6acb9340c8497a5", NULL, NULL } },
      .has_test_split = true,
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_openbookqa },
    { .name = "piqa",
      .about = "PIQA: the better of two ways to reach a goal",
      .documents = { { "piqa/valid.jsonl", "93503cc97c679e459b065c3d13e848282e44b2a25213985bed3e5d458abef72d",
                       "piqa/valid-labels.lst",
                       "b4192dc3a2a0363d9d60ccf79800cbbe2f32ebb17726efdde6970e0b8131bceb" } },
      .examples = { { "piqa/train.jsonl", "f805f9c96518d7b59f2f870d90f712457cda949979469d9fa3fd706ce22e0a1a",
                      "piqa/train-labels.lst",
                      "df8ae080c41f02f88e81f6932d425f4b7ee72f433ad552e6a30d45e358e8f8bb" } },
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_piqa },
    { .name = "sciq",
      .about = "SciQ: science questions with four choices, most with a supporting text",
      .documents = { { "sciq/test.json", "fb0dba6a7766eddb47bc484ffb4aedebdb8b73fc5b868946b199feb030de00d6",
                       NULL, NULL } },
      .examples = { { "sciq/train.json", NULL, NULL, NULL },
                    { "sciq/valid.json", "b201bc1c002b31cabc8581d05f8a5ce9d115b9ad4f7b4a428c00c3935d67a6ec",
                      NULL, NULL } },
      .has_test_split = true,
      .metrics = TASK_ACC_NORM,
      .delimiter = " ",
      .convert = convert_sciq },
    { .name = "social_iqa",
      .about = "Social IQA: reasons and reactions, three choices",
      .documents = { { "social_iqa/dev.jsonl",
                       "d8128dfe60783a9971b954ca82dd57b87b05d5d40468876d51a8e1ad2c557465",
                       "social_iqa/dev-labels.lst",
                       "2d882ff71969d3980d37dd07aecdf9093c6e63e27c670f3a203bcf3b9b74bc05" } },
      .examples = { { "social_iqa/train.jsonl",
                      "4c5333dea02be6d212114a83f17f7bbcbdb53b3d692f476bd40dcd242b6233de",
                      "social_iqa/train-labels.lst",
                      "37cd494b60750f4f7a8c7cdd15fad545f4159070dbeb0431597e06e996ae2fd6" } },
      .metrics = TASK_ACC,
      .delimiter = " ",
      .convert = convert_social_iqa },
    { .name = "winogrande",
      .about = "WinoGrande: which of two names fills the blank",
      .documents = { { "winogrande/dev.jsonl",
                       "1aeac79cf46a3dcbe59a71ca7e5372a1490cde2b4ae2387dc56f00378104d2e8", NULL, NULL } },
      .examples = { { "winogrande/train_xl.jsonl", NULL, NULL, NULL },
                    { "winogrande/train_m.jsonl",
                      "b02e7d92b5e44147ee4d1879fbf0e484510053f06c50a6fa6400265058f3ed42", NULL, NULL } },
      .metrics = TASK_ACC,
      .delimiter = " ",
      .convert = convert_winogrande },
    { 0 },
};

const struct task *task_row(size_t i)
{
    return i < sizeof rows / sizeof *rows - 1 ? &rows[i] : NULL;
}

/* Kinds of files, by the field that only they have. The file itself is the pool of examples; a document is
 * not drawn as an example for itself. */
static const struct {
    const char *field;
    struct task row;
} kinds[] = {
    { "choices",
      { .name = "choices", .metrics = TASK_ACC_NORM, .delimiter = " ", .convert = convert_choices } },
    { "text", { .name = "text", .metrics = TASK_ACC, .delimiter = "", .convert = convert_pair } },
    { "target",
      { .name = "target", .metrics = TASK_LAST_WORDS, .delimiter = " ", .convert = convert_target } },
};

ddl_status task_row_of_record(const struct task_record *record, const struct task **out,
                              struct ddl_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (json_object_get(record->fields, kinds[i].field)) {
            *out = &kinds[i].row;
            return DDL_OK;
        }
    }
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%s:%zu: expected 'context', 'choices' and 'gold'; 'text' with two strings; or 'context' "
        "and 'target'; found none of 'choices', 'text' and 'target'",
        record->path, record->number);
}
