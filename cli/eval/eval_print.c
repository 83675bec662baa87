/* The results of ddl eval as text, JSON, CSV and Markdown. */
#include "cli/eval/eval.h"
#include "cli/output/escape.h"

#include "ddl/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- models ---- */

static void print_name(const struct eval_model *model, bool separate)
{
    printf("%s%s%s%s", separate ? "\n" : "", printable(model->folder), *model->found.name ? ", " : "",
           model->found.name);
}

static void open_json_model(struct ddl_json *json, const struct eval_model *model)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "model", model->folder);
    print_saved_model_json(json, &model->found);
}

static void print_csv_name(const struct eval_model *model)
{
    print_csv_field(model->folder);
    printf(",%s,", printable(model->found.name));
}

static void print_markdown_name(const struct eval_model *model)
{
    printf("| ");
    print_markdown_text(model->folder);
    printf(" |");
}

/* ---- losses ---- */

/* What is printed of a group. */
struct group_figures {
    double loss, accuracy, exact_match;
    unsigned long long tokens, answers;
};

/* False for a group without tokens. */
static bool find_figures(const struct ddl_eval_group *g, struct group_figures *out)
{
    if (g->tokens == 0)
        return false;
    *out = (struct group_figures){ .loss = g->nats / (double)g->tokens,
                                   .accuracy = (double)g->correct / (double)g->tokens,
                                   .exact_match = (double)g->exact / (double)g->answers,
                                   .tokens = g->tokens,
                                   .answers = g->answers };
    return true;
}

static void print_groups_text(const struct ddl_eval_group *groups)
{
    struct group_figures f;
    printf("\ngroup       loss   accuracy      tokens  exact match     answers\n");
    for (int i = 1; i < DDL_MASK_GROUPS; i++) {
        if (find_figures(&groups[i], &f))
            printf("%5d  %9.6f  %9.6f  %10llu  %11.6f  %10llu\n", i, f.loss, f.accuracy, f.tokens,
                   f.exact_match, f.answers);
    }
}

static void print_groups_json(struct ddl_json *json, const struct ddl_eval_group *groups)
{
    struct group_figures f;
    ddl_json_open(json, "groups", '[');
    for (int i = 1; i < DDL_MASK_GROUPS; i++) {
        if (!find_figures(&groups[i], &f))
            continue;
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "group", (uint64_t)i);
        ddl_json_number(json, "loss", f.loss, 9);
        ddl_json_number(json, "accuracy", f.accuracy, 9);
        ddl_json_count(json, "tokens", f.tokens);
        ddl_json_number(json, "exact_match", f.exact_match, 9);
        ddl_json_count(json, "answers", f.answers);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

/* As CSV, or as Markdown. */
static void print_groups_table(const struct loss_row *rows, size_t n, bool csv)
{
    struct group_figures f;
    printf(csv ? "model,saved_model,group,loss,accuracy,tokens,exact_match,answers\n"
               : "| model | group | loss | accuracy | tokens | exact match | answers "
                 "|\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n * DDL_MASK_GROUPS; i++) {
        const struct loss_row *row = &rows[i / DDL_MASK_GROUPS];
        const size_t group = i % DDL_MASK_GROUPS;
        if (!find_figures(&row->groups[group], &f))
            continue;
        (csv ? print_csv_name : print_markdown_name)(&row->model);
        printf(csv ? "%zu,%.9g,%.9g,%llu,%.9g,%llu\n" : " %zu | %.4f | %.4f | %llu | %.4f | %llu |\n", group,
               f.loss, f.accuracy, f.tokens, f.exact_match, f.answers);
    }
}

/* bits_per_byte is NaN where the text's bytes are not known. */
static void print_losses_text(const struct eval_flags *flags, const struct loss_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ddl_eval_result *r = &rows[i].result;
        print_name(&rows[i].model, i > 0);
        printf("\nloss           %.6f nats/token\nperplexity     %.4f\n", r->loss, r->perplexity);
        if (!isnan(r->bits_per_byte))
            printf("bits per byte  %.6f\n", r->bits_per_byte);
        printf("tokens         %llu\nseconds        %.2f\n", (unsigned long long)r->tokens, r->seconds);
        if (flags->groups)
            print_groups_text(rows[i].groups);
    }
}

static void print_losses_json(const struct eval_flags *flags, const struct loss_row *rows, size_t n)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "dtype", ddl_precision_names[flags->model.dtype]);
    print_force_json(&json, flags->force);
    ddl_json_open(&json, "models", '[');
    for (size_t i = 0; i < n; i++) {
        const struct ddl_eval_result *r = &rows[i].result;
        open_json_model(&json, &rows[i].model);
        ddl_json_number(&json, "loss", r->loss, 9);
        ddl_json_number(&json, "perplexity", r->perplexity, 9);
        if (!isnan(r->bits_per_byte)) {
            ddl_json_number(&json, "bits_per_byte", r->bits_per_byte, 9);
            ddl_json_count(&json, "bytes", r->bytes);
        }
        ddl_json_count(&json, "tokens", r->tokens);
        ddl_json_fixed(&json, "seconds", r->seconds, 6);
        if (flags->groups)
            print_groups_json(&json, rows[i].groups);
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_losses_csv(const struct loss_row *rows, size_t n)
{
    printf("model,saved_model,loss,perplexity,bits_per_byte,bytes,tokens,seconds\n");
    for (size_t i = 0; i < n; i++) {
        const struct ddl_eval_result *r = &rows[i].result;
        print_csv_name(&rows[i].model);
        printf("%.9g,%.9g,", r->loss, r->perplexity);
        if (!isnan(r->bits_per_byte))
            printf("%.9g,%llu", r->bits_per_byte, (unsigned long long)r->bytes);
        else
            putchar(',');
        printf(",%llu,%.6f\n", (unsigned long long)r->tokens, r->seconds);
    }
}

static void print_losses_markdown(const struct loss_row *rows, size_t n)
{
    printf("| model | loss | perplexity | bits per byte | tokens |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const struct ddl_eval_result *r = &rows[i].result;
        print_markdown_name(&rows[i].model);
        printf(" %.4f | %.2f |", r->loss, r->perplexity);
        if (!isnan(r->bits_per_byte))
            printf(" %.4f", r->bits_per_byte);
        printf(" | %llu |\n", (unsigned long long)r->tokens);
    }
}

void print_losses(const struct eval_flags *flags, const struct loss_row *rows, size_t n)
{
    if (flags->json)
        print_losses_json(flags, rows, n);
    else if (flags->groups && (flags->csv || flags->markdown))
        print_groups_table(rows, n, flags->csv);
    else if (flags->csv)
        print_losses_csv(rows, n);
    else if (flags->markdown)
        print_losses_markdown(rows, n);
    else
        print_losses_text(flags, rows, n);
}

/* ---- tasks ---- */

/* The mean of the tasks' main values with the standard error that independent tasks give. */
static struct ddl_task_value average_of(const struct task_table *table, const struct task_row *row)
{
    struct ddl_task_value sum = { .name = "average" };
    for (size_t t = 0; t < table->n_tasks; t++) {
        const struct ddl_task_value *value = ddl_task_main_value(&row->results[t]);
        sum.value += value->value / (double)table->n_tasks;
        sum.error += value->error * value->error;
    }
    sum.error = sqrt(sum.error) / (double)table->n_tasks;
    return sum;
}

static void print_value(const struct ddl_task_value *value)
{
    printf("  %s %.4f", value->name, value->value);
    if (!isnan(value->error))
        printf(" ±%.4f", value->error);
}

static void print_tasks_text(const struct eval_flags *flags, const struct task_table *table)
{
    for (size_t m = 0; m < table->n_rows; m++) {
        const struct task_row *row = &table->rows[m];
        print_name(&row->model, m > 0);
        printf(", %zu shot%s\n", flags->task.shots, flags->task.shots == 1 ? "" : "s");
        for (size_t t = 0; t < table->n_tasks; t++) {
            const struct ddl_task_result *r = &row->results[t];
            printf("%-16s %6zu", printable(r->task), r->n_documents);
            if (r->n_documents < r->n_available)
                printf(" of %zu documents", r->n_available);
            for (size_t i = 0; i < r->n_values; i++)
                print_value(&r->values[i]);
            putchar('\n');
        }
        if (table->n_tasks > 1) {
            struct ddl_task_value average = average_of(table, row);
            average.name = "";
            printf("%-16s %6s", "average", "");
            print_value(&average);
            putchar('\n');
        }
    }
}

/* "NAME: REASON" a line. */
static void print_skipped_json(struct ddl_json *json, const char *lines)
{
    ddl_json_open(json, "skipped_tasks", '{');
    for (const char *line = lines; *line;) {
        size_t length = strcspn(line, "\n"), colon = strcspn(line, ":");
        char name[128], reason[1024];
        snprintf(name, sizeof name, "%.*s", (int)colon, line);
        snprintf(reason, sizeof reason, "%.*s", colon + 2 < length ? (int)(length - colon - 2) : 0,
                 line + (colon + 2 < length ? colon + 2 : 0));
        ddl_json_string(json, name, reason);
        line += length + (line[length] == '\n');
    }
    ddl_json_close(json, '}');
}

static void print_tasks_json(const struct eval_flags *flags, const struct task_table *table)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "shots", flags->task.shots);
    ddl_json_count(&json, "fewshot_seed", flags->task.seed);
    ddl_json_string(&json, "dtype", ddl_precision_names[flags->model.dtype]);
    print_force_json(&json, flags->force);
    if (table->skipped && *table->skipped)
        print_skipped_json(&json, table->skipped);
    ddl_json_open(&json, "models", '[');
    for (size_t m = 0; m < table->n_rows; m++) {
        const struct task_row *row = &table->rows[m];
        open_json_model(&json, &row->model);
        ddl_json_open(&json, "tasks", '{');
        for (size_t t = 0; t < table->n_tasks; t++)
            ddl_task_write_json(&json, &row->results[t], 17);
        ddl_json_close(&json, '}');
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putchar('\n');
}

static void print_tasks_csv(const struct eval_flags *flags, const struct task_table *table)
{
    printf("model,saved_model,task,shots,documents,metric,value,stderr\n");
    for (size_t m = 0; m < table->n_rows; m++) {
        const struct task_row *row = &table->rows[m];
        for (size_t t = 0; t < table->n_tasks; t++) {
            const struct ddl_task_result *r = &row->results[t];
            for (size_t i = 0; i < r->n_values; i++) {
                print_csv_name(&row->model);
                print_csv_field(r->task);
                printf(",%zu,%zu,%s,%.17g,", flags->task.shots, r->n_documents, r->values[i].name,
                       r->values[i].value);
                if (!isnan(r->values[i].error))
                    printf("%.17g", r->values[i].error);
                putchar('\n');
            }
        }
    }
}

static void print_cell(const struct ddl_task_value *value)
{
    printf(isnan(value->error) ? " %.2f |" : " %.2f ± %.2f |", 100 * value->value, 100 * value->error);
}

/* In percent, as in the paper. */
static void print_tasks_markdown(const struct task_table *table)
{
    printf("| model |");
    for (size_t t = 0; t < table->n_tasks; t++) {
        const struct ddl_task_result *r = &table->rows[0].results[t];
        printf(" ");
        print_markdown_text(r->task);
        printf(" %s |", ddl_task_main_value(r)->name);
    }
    printf(" average |\n|---|");
    for (size_t t = 0; t <= table->n_tasks; t++)
        printf("---|");
    putchar('\n');
    for (size_t m = 0; m < table->n_rows; m++) {
        const struct task_row *row = &table->rows[m];
        struct ddl_task_value average = average_of(table, row);
        print_markdown_name(&row->model);
        for (size_t t = 0; t < table->n_tasks; t++)
            print_cell(ddl_task_main_value(&row->results[t]));
        print_cell(&average);
        putchar('\n');
    }
}

void print_tasks(const struct eval_flags *flags, const struct task_table *table)
{
    if (flags->json)
        print_tasks_json(flags, table);
    else if (flags->csv)
        print_tasks_csv(flags, table);
    else if (flags->markdown)
        print_tasks_markdown(table);
    else
        print_tasks_text(flags, table);
}
