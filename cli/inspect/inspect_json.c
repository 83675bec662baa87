/* ddl inspect --json and the data of --html. */
#include "cli/inspect/inspect.h"
#include "cli/model/force.h"
#include "cli/output/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool read_vector(const ddl_model *model, size_t layer, float *out)
{
    char name[64] = "readout.read";
    if (layer < DDL_MAX_LAYERS)
        snprintf(name, sizeof name, "transformer.h.%zu.compress.read", layer);
    for (size_t i = 0; i < ddl_model_n_params(model); i++) {
        if (strcmp(ddl_model_param(model, i)->name, name) == 0) {
            ddl_model_read_param(model, i, out);
            return true;
        }
    }
    return false;
}

static void print_numbers(struct ddl_json *json, const char *key, size_t n, const double *values)
{
    ddl_json_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        ddl_json_number(json, NULL, values[i], 9);
    ddl_json_close(json, ']');
}

static void print_matrix(struct ddl_json *json, const char *key, size_t rows, size_t columns,
                         const double *values)
{
    ddl_json_open(json, key, '[');
    for (size_t row = 0; row < rows; row++)
        print_numbers(json, NULL, columns, values + row * columns);
    ddl_json_close(json, ']');
}

/* The bytes of tokens [from, to) as one string. */
static void print_texts(struct ddl_json *json, const char *key, const ddl_tokenizer *tokenizer,
                        const int32_t *tokens, size_t from, size_t to)
{
    char text[4096];
    size_t used = 0;
    for (size_t i = from; i < to; i++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, tokens[i], &size);
        size = bytes && size < sizeof text - used ? size : 0;
        memcpy(text + used, bytes ? bytes : "", size);
        used += size;
    }
    ddl_json_text(json, key, text, used);
}

static void print_token(struct ddl_json *json, const struct ddl_inspect_token *token,
                        const ddl_tokenizer *tokenizer)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_number(json, "gate", token->beta, 9);
    ddl_json_count(json, "index", token->index);
    ddl_json_count(json, "position", token->position);
    ddl_json_count(json, "id", (uint64_t)token->tokens[token->at]);
    if (tokenizer) {
        print_texts(json, "before", tokenizer, token->tokens, 0, token->at);
        print_texts(json, "text", tokenizer, token->tokens, token->at, token->at + 1);
        print_texts(json, "after", tokenizer, token->tokens, token->at + 1, token->n);
    }
    ddl_json_close(json, '}');
}

static void print_gate(struct ddl_json *json, const struct inspected *i, const struct ddl_inspect_sublayer *s)
{
    const ddl_tokenizer *tokenizer = i->folder->tokenizer;
    ddl_json_number(json, "gate_max", s->gate_max, 9);
    ddl_json_bool(json, "exact", s->exact);
    ddl_json_open(json, "histogram", '[');
    for (size_t b = 0; b < DDL_INSPECT_BINS; b++)
        ddl_json_count(json, NULL, s->histogram[b]);
    ddl_json_close(json, ']');
    print_numbers(json, "by_position", ddl_inspect_seq(i->inspection), s->by_position);
    ddl_json_open(json, "highest", '[');
    for (size_t t = 0; t < s->n_extremes; t++)
        print_token(json, &s->highest[t], tokenizer);
    ddl_json_close(json, ']');
    ddl_json_open(json, "lowest", '[');
    for (size_t t = 0; t < s->n_extremes; t++)
        print_token(json, &s->lowest[t], tokenizer);
    ddl_json_close(json, ']');
}

static void print_sublayer(struct ddl_json *json, const struct inspected *i,
                           const struct ddl_inspect_sublayer *s)
{
    size_t c = ddl_config_state_channels(ddl_model_config(i->folder->model));
    char behavior[128];
    ddl_inspect_behavior(s, behavior, sizeof behavior);
    ddl_json_open(json, NULL, '{');
    ddl_json_count(json, "layer", s->layer);
    ddl_json_string(json, "sub", ddl_sublayer_names[s->sub]);
    if (s->n_steps > 1)
        ddl_json_count(json, "step_index", s->step);
    ddl_json_string(json, "rule", s->rule);
    ddl_json_string(json, "update", s->is_delta ? ddl_update_names[s->update] : NULL);
    ddl_json_string(json, "behavior", *behavior ? behavior : NULL);
    const struct ddl_figure *figures[DDL_MOST_FIGURES];
    for (size_t f = 0, n = ddl_figure_list(figures); f < n; f++)
        ddl_json_number(json, figures[f]->name, s->figures.value[f], 9);
    ddl_json_number(json, "sigma_max", s->sigma_max, 9);
    ddl_json_number(json, "sigma_min", s->sigma_min, 9);
    print_numbers(json, "channel_rms", c, s->channel_rms);
    for (size_t m = 0; m < s->n_means; m++) {
        const struct ddl_inspect_mean *mean = &s->means[m];
        if (mean->rows)
            print_matrix(json, mean->name, mean->rows, mean->columns, mean->value);
        else
            print_numbers(json, mean->name, mean->columns, mean->value);
    }
    if (s->histogram)
        print_gate(json, i, s);
    ddl_json_close(json, '}');
}

static void print_reads(struct ddl_json *json, const ddl_model *model)
{
    const struct ddl_config *k = ddl_model_config(model);
    float *read = calloc(k->channels, sizeof *read);
    if (!read || !read_vector(model, 0, read)) {
        free(read);
        return;
    }
    ddl_json_open(json, "read", '[');
    for (size_t l = 0; l <= k->n_layers; l++) { /* the last is the readout's */
        read_vector(model, l < k->n_layers ? l : DDL_MAX_LAYERS, read);
        ddl_json_open(json, NULL, '[');
        for (size_t j = 0; j < k->channels; j++)
            ddl_json_number(json, NULL, (double)read[j], 9);
        ddl_json_close(json, ']');
    }
    ddl_json_close(json, ']');
    free(read);
}

const struct ddl_param *average_weights(const ddl_model *model, size_t layer, size_t *row)
{
    char name[48];
    snprintf(name, sizeof name, "transformer.dwa.%zu.weight", layer + 1);
    for (*row = 0; *row < ddl_model_n_params(model); ++*row) {
        if (strcmp(ddl_model_param(model, *row)->name, name) == 0)
            return ddl_model_param(model, *row);
    }
    return NULL;
}

/* dense_average: the weights of the sum after each layer that has one, of the earliest state first. */
static void print_averages(struct ddl_json *json, const ddl_model *model)
{
    const struct ddl_config *k = ddl_model_config(model);
    float weights[DDL_MAX_LAYERS + 1];
    if (!k->dense_average)
        return;
    ddl_json_open(json, "averages", '[');
    for (size_t l = 0, row; l < k->n_layers; l++) {
        const struct ddl_param *param = average_weights(model, l, &row);
        if (!param)
            continue;
        ddl_model_read_param(model, row, weights);
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "layer", l);
        ddl_json_open(json, "weights", '[');
        for (size_t j = 0; j < param->count; j++)
            ddl_json_number(json, NULL, (double)weights[j], 9);
        ddl_json_close(json, ']');
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

/* Every token with the gates and steps of all sublayers. */
static void print_rows(struct ddl_json *json, const struct inspected *i)
{
    const ddl_inspection *in = i->inspection;
    const int32_t *tokens = ddl_inspect_first_tokens(in);
    size_t S = ddl_inspect_n_sublayers(in);
    ddl_json_open(json, "prompt", '[');
    for (size_t n = 0; n < ddl_inspect_sublayer(in, 0)->n_rows; n++) {
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "id", (uint64_t)tokens[n]);
        print_texts(json, "text", i->folder->tokenizer, tokens, n, n + 1);
        ddl_json_open(json, "gates", '[');
        for (size_t s = 0; s < S; s++) {
            const float *gates = ddl_inspect_sublayer(in, s)->gates;
            ddl_json_number(json, NULL, gates ? (double)gates[n] : (double)NAN, 9);
        }
        ddl_json_close(json, ']');
        ddl_json_open(json, "steps", '[');
        for (size_t s = 0; s < S; s++)
            ddl_json_number(json, NULL, (double)ddl_inspect_sublayer(in, s)->steps[n], 9);
        ddl_json_close(json, ']');
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

/* The object that --json prints, as one value. */
static void write_inspection_json(struct ddl_json *json, const char *key, const struct inspected *i)
{
    const ddl_inspection *in = i->inspection;
    const struct ddl_inspect_depth *depth = ddl_inspect_depth(in);
    struct ddl_loss loss = ddl_inspect_loss(in);
    ddl_json_open(json, key, '{');
    print_saved_model_json(json, &i->folder->found);
    print_force_json(json, i->force);
    ddl_json_count(json, "tokens", ddl_inspect_tokens(in));
    ddl_json_count(json, "seq", ddl_inspect_seq(in));
    ddl_json_number(json, "loss", loss.sum / (double)loss.n_targets, 9);
    ddl_json_open(json, "sublayers", '[');
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++)
        print_sublayer(json, i, ddl_inspect_sublayer(in, s));
    ddl_json_close(json, ']');
    if (depth) {
        ddl_json_open(json, "depth", '{');
        ddl_json_number(json, "sigma_max", depth->sigma_max, 9);
        ddl_json_number(json, "sigma_min", depth->sigma_min, 9);
        ddl_json_number(json, "log_det", depth->log_det, 9);
        ddl_json_count(json, "tokens", depth->tokens);
        ddl_json_close(json, '}');
    }
    print_reads(json, i->folder->model);
    print_averages(json, i->folder->model);
    if (i->prompt)
        print_rows(json, i);
    ddl_json_close(json, '}');
}

void print_inspection_json(const struct inspected *i)
{
    struct ddl_json json = { stdout, false };
    write_inspection_json(&json, NULL, i);
    putchar('\n');
}

/* The lists of means that sublayers have, each once. */
static void put_lists(struct ddl_json *json, const ddl_inspection *in)
{
    const char *last[DDL_MOST_MEANS] = { NULL };
    size_t n = 0;
    ddl_json_open(json, "lists", '[');
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        for (size_t m = 0; m < sublayer->n_means; m++) {
            const struct ddl_inspect_mean *mean = &sublayer->means[m];
            size_t i = 0;
            while (i < n && strcmp(last[i], mean->name) != 0)
                i++;
            if (i < n || mean->rows || n == DDL_MOST_MEANS)
                continue;
            last[n++] = mean->name;
            ddl_json_open(json, NULL, '{');
            ddl_json_string(json, "name", mean->name);
            ddl_json_string(json, "about", mean->about);
            ddl_json_close(json, '}');
        }
    }
    ddl_json_close(json, ']');
}

static void write_data(struct ddl_json *json, const void *object)
{
    const struct inspected *i = object;
    bool streams = ddl_config_has_streams(ddl_model_config(i->folder->model));
    write_inspection_json(json, "result", i);
    page_put_figures(json);
    put_lists(json, i->inspection);
    ddl_json_string(json, "columns", streams ? "stream" : "value channel");
}

ddl_status write_inspection_html(const struct inspected *i, const char *path, struct ddl_error *err)
{
    char title[1200];
    snprintf(title, sizeof title, "%s of %s", i->prompt ? "A prompt" : "Inspection", i->dir);
    const struct page page = { .path = path,
                               .kind = i->prompt ? "prompt" : "inspect",
                               .title = title,
                               .write = write_data,
                               .object = i };
    return page_write(&page, err);
}
