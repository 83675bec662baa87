#include "train/log/telemetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* Measures or places all buffers: struct ddl_arena. */
static void carve(struct ddl_telemetry *t, struct ddl_arena *a, const struct ddl_config *k, size_t n_params)
{
    t->sublayers = ddl_arena_take(a, t->n_sublayers, sizeof *t->sublayers);
    t->grad_layers = ddl_arena_take(a, k->n_layers, sizeof *t->grad_layers);
    ddl_rows_place(&t->copies, a);
    t->k = ddl_arena_take(a, k->d_model, sizeof *t->k);
    t->sums.channel2 = ddl_arena_take(a, t->copies.c, sizeof *t->sums.channel2);
    t->squares = ddl_arena_take(a, n_params, sizeof *t->squares);
}

static struct ddl_telemetry sized(const struct ddl_config *k, size_t batch_rows)
{
    size_t rows = batch_rows < DDL_TELEMETRY_ROWS ? batch_rows : DDL_TELEMETRY_ROWS;
    return (
        struct ddl_telemetry){ .rows = rows,
                               .n_sublayers = ddl_config_steps(k),
                               .copies = { .config = k, .all = batch_rows, .most = rows, .with_f = true } };
}

size_t ddl_telemetry_bytes(const struct ddl_config *config, size_t batch_rows, size_t n_params)
{
    struct ddl_telemetry t = sized(config, batch_rows);
    struct ddl_arena arena = { 0 };
    carve(&t, &arena, config, n_params);
    return arena.overflow ? SIZE_MAX : arena.used + ddl_rows_reserved(&t.copies);
}

static void observe(void *user, const struct ddl_sublayer_trace *trace);

ddl_status ddl_telemetry_init(struct ddl_telemetry *t, ddl_model *model, size_t batch_rows,
                              struct ddl_error *err)
{
    const struct ddl_config *k = ddl_model_config(model);
    struct ddl_arena arena = { 0 };
    *t = sized(k, batch_rows);
    t->model = model;
    t->copies.backend = ddl_model_backend(model);
    t->probe = (struct ddl_probe){ .step = observe, .user = t };
    carve(t, &arena, k, ddl_model_n_params(model));
    t->block = arena.overflow ? NULL : ddl_mem_zalloc(arena.used);
    if (!t->block || !ddl_distribution_init(&t->sums.values, 1, 0))
        return ddl_error_set(err, DDL_E_MEMORY, "telemetry: out of memory for %zu sublayers of %zu tokens",
                             t->n_sublayers, batch_rows);
    arena = (struct ddl_arena){ .base = t->block };
    carve(t, &arena, k, ddl_model_n_params(model));
    return ddl_rows_reserve(&t->copies, err);
}

void ddl_telemetry_free(struct ddl_telemetry *t)
{
    ddl_rows_release(&t->copies);
    ddl_distribution_free(&t->sums.values);
    ddl_mem_free(t->block);
    *t = (struct ddl_telemetry){ 0 };
}

/* ---- the forward pass ---- */

/* Root mean square of n rows of `width` numbers, `stride` apart; with y of the differences to its rows. */
static double root_mean_square(size_t n, size_t width, size_t stride, const float *x, const float *y)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < width; j++) {
            double value = (double)x[i * stride + j] - (y ? (double)y[i * stride + j] : 0);
            sum += value * value;
        }
    }
    return sqrt(sum / (double)(n * width));
}

/* The distribution of the gate in step r. */
static void add_gate(struct ddl_telemetry *t, const struct ddl_sublayer_trace *trace, size_t r)
{
    const struct ddl_rows *rows = &t->copies;
    size_t gate = ddl_rows_gate(rows, trace);
    if (gate == trace->n)
        return;
    const struct ddl_traced *tensor = &trace->tensor[gate];
    size_t n = ddl_rows_has_all(tensor) ? trace->rows : rows->n;
    ddl_distribution_reset(&t->sums.values, tensor->of->top(rows->config));
    for (size_t i = 0; i < n; i++) {
        const float *x = ddl_rows_tensor(rows, trace, gate, i, r);
        for (size_t j = 0; j < tensor->width; j++)
            ddl_distribution_add(&t->sums.values, x[j]);
    }
}

static void set_result(struct ddl_telemetry *t, const struct ddl_sublayer_trace *trace, size_t r)
{
    const struct ddl_rows *rows = &t->copies;
    const struct ddl_distribution *gate = &t->sums.values;
    const float *after = ddl_rows_after(rows, trace, r);
    struct ddl_telemetry_sublayer *out = &t->sublayers[t->at++];
    size_t d = rows->config->d_model, dc = d * rows->c, n = rows->n;
    *out = (struct ddl_telemetry_sublayer){
        .layer = trace->layer,
        .sub = trace->sub,
        .step = r,
        .n_steps = trace->steps,
        .x_rms = root_mean_square(n, dc, dc, after, NULL),
        .f_rms = rows->f ? root_mean_square(n, d, trace->steps * d, rows->f + r * d, NULL)
                         : root_mean_square(n, dc, dc, after, rows->before),
    };
    if (t->sums.gate) {
        out->gate_max = gate->top;
        out->gate_values = gate->n;
        out->gate_squares = gate->sum_squares;
        out->gate_mean = ddl_distribution_mean(gate);
        out->gate_low = gate->min;
        out->gate_high = gate->max;
        memcpy(out->histogram, gate->histogram, sizeof out->histogram);
    }
    /* Without exact quantiles it needs no memory. */
    (void)ddl_figures_of(&t->sums, &rows->table, rows->c, &out->figures);
}

/* A ddl_sublayer_fn; user: the telemetry. */
static void observe(void *user, const struct ddl_sublayer_trace *trace)
{
    struct ddl_telemetry *t = user;
    ddl_rows_copy(&t->copies, trace);
    if (!trace->after) {
        t->at = trace->layer || trace->sub ? t->at : 0;
        return;
    }
    for (size_t r = 0; r < trace->steps; r++) {
        ddl_figures_begin(&t->sums, t->copies.c);
        ddl_rows_begin(&t->copies, trace, &t->sums);
        add_gate(t, trace, r);
        for (size_t i = 0; i < t->copies.n; i++)
            ddl_rows_add(&t->copies, trace, r, i, &t->sums, t->k);
        set_result(t, trace, r);
        ddl_rows_next(&t->copies, trace, r);
    }
}

/* ---- gradients ---- */

static bool is_of_embedding(const char *name)
{
    return strcmp(name, "transformer.wte.weight") == 0 || strncmp(name, "input_embed.", 12) == 0;
}

ddl_status ddl_telemetry_take_gradients(struct ddl_telemetry *t, struct ddl_optim *optim, ddl_comm *comm,
                                        struct ddl_error *err)
{
    const struct ddl_config *k = ddl_model_config(t->model);
    double embedding = 0, head = 0;
    memset(t->grad_layers, 0, k->n_layers * sizeof *t->grad_layers);
    ddl_status status = ddl_optim_grad_squares(optim, t->squares, err);
    ddl_comm_sum_f64(comm, ddl_model_n_params(t->model), t->squares);
    for (size_t i = 0; i < ddl_model_n_params(t->model); i++) {
        const struct ddl_param *param = ddl_model_param(t->model, i);
        if (param->layer >= 0)
            t->grad_layers[param->layer] += t->squares[i];
        else
            *(is_of_embedding(param->name) ? &embedding : &head) += t->squares[i];
    }
    for (size_t l = 0; l < k->n_layers; l++)
        t->grad_layers[l] = sqrt(t->grad_layers[l]);
    t->grad_embedding = sqrt(embedding);
    t->grad_head = sqrt(head);
    return status;
}

/* ---- the record ---- */

enum { DIGITS = 6 };

static void write_sublayer(const struct ddl_telemetry *t, size_t s, struct ddl_json *json)
{
    const struct ddl_telemetry_sublayer *sublayer = &t->sublayers[s];
    ddl_json_open(json, NULL, '{');
    ddl_json_count(json, "layer", sublayer->layer);
    ddl_json_string(json, "sub", ddl_sublayer_names[sublayer->sub]);
    if (sublayer->n_steps > 1)
        ddl_json_count(json, "step_index", sublayer->step);
    ddl_json_string(json, "rule", ddl_config_residual_name(ddl_model_config(t->model), sublayer->layer));
    ddl_json_number(json, "x_rms", sublayer->x_rms, DIGITS);
    ddl_json_number(json, "f_rms", sublayer->f_rms, DIGITS);
    for (size_t i = 0; i < t->copies.table.n; i++) {
        if (!isnan(sublayer->figures.value[i]))
            ddl_json_number(json, t->copies.table.row[i]->name, sublayer->figures.value[i], DIGITS);
    }
    if (sublayer->gate_max > 0) {
        ddl_json_number(json, "gate_max", sublayer->gate_max, DIGITS);
        ddl_json_count(json, "gate_values", sublayer->gate_values);
        ddl_json_open(json, "histogram", '[');
        for (size_t i = 0; i < DDL_DISTRIBUTION_BINS; i++)
            ddl_json_count(json, NULL, sublayer->histogram[i]);
        ddl_json_close(json, ']');
    }
    ddl_json_close(json, '}');
}

void ddl_telemetry_write_json(const struct ddl_telemetry *t, struct ddl_json *json)
{
    size_t n_layers = ddl_model_config(t->model)->n_layers;
    ddl_json_count(json, "rows", t->copies.n);
    ddl_json_open(json, "sublayers", '[');
    for (size_t s = 0; s < t->n_sublayers; s++)
        write_sublayer(t, s, json);
    ddl_json_close(json, ']');
    ddl_json_open(json, "grad_norms", '{');
    ddl_json_number(json, "embedding", t->grad_embedding, DIGITS);
    ddl_json_open(json, "layers", '[');
    for (size_t l = 0; l < n_layers; l++)
        ddl_json_number(json, NULL, t->grad_layers[l], DIGITS);
    ddl_json_close(json, ']');
    ddl_json_number(json, "head", t->grad_head, DIGITS);
    ddl_json_close(json, '}');
}
