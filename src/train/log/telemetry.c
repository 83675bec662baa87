#include "train/log/telemetry.h"

#include "ops/ops.h"
#include "train/step/param_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* Measures or places all buffers: struct ddl_arena. */
static void carve(struct ddl_telemetry *t, struct ddl_arena *a, const struct ddl_config *k, size_t n_params)
{
    size_t d = k->d_model, c = ddl_config_state_channels(k), rows = t->rows, R = t->most_steps;
    t->sublayers = ddl_arena_take(a, t->n_sublayers, sizeof *t->sublayers);
    t->grad_layers = ddl_arena_take(a, k->n_layers, sizeof *t->grad_layers);
    t->before = ddl_arena_take(a, rows * d, c * sizeof *t->before);
    t->after = ddl_arena_take(a, rows * d, c * sizeof *t->after);
    t->between = ddl_arena_take(a, rows * d, c * sizeof *t->between);
    t->direction = ddl_arena_take(a, rows, R * d * sizeof *t->direction);
    t->f = ddl_arena_take(a, rows, R * d * sizeof *t->f);
    t->beta = ddl_arena_take(a, t->batch_rows, R * sizeof *t->beta);
    t->gate = ddl_arena_take(a, t->batch_rows + rows * d, sizeof *t->gate);
    t->target = ddl_arena_take(a, rows, R * c * sizeof *t->target);
    t->k = ddl_arena_take(a, d, sizeof *t->k);
    t->scratch = ddl_arena_take(a, 2 * c, sizeof *t->scratch);
    t->mixing = ddl_arena_take(a, rows * c, (c + 2) * sizeof *t->mixing);
    t->sums.channel2 = ddl_arena_take(a, c, sizeof *t->sums.channel2);
    t->squares = ddl_arena_take(a, n_params, sizeof *t->squares);
}

static struct ddl_telemetry sized(const struct ddl_config *k, size_t batch_rows)
{
    struct ddl_telemetry t = { .batch_rows = batch_rows,
                               .rows = batch_rows < DDL_TELEMETRY_ROWS ? batch_rows : DDL_TELEMETRY_ROWS };
    for (size_t l = 0; l < k->n_layers; l++) {
        size_t steps = ddl_config_residual_steps(k, l);
        t.n_sublayers += DDL_SUBLAYERS * steps;
        t.most_steps = steps > t.most_steps ? steps : t.most_steps;
    }
    return t;
}

size_t ddl_telemetry_bytes(const struct ddl_config *config, size_t batch_rows)
{
    struct ddl_telemetry t = sized(config, batch_rows);
    struct ddl_arena arena = { 0 };
    carve(&t, &arena, config, 0);
    return arena.overflow ? SIZE_MAX : arena.used;
}

static void observe(void *user, const struct ddl_sublayer_step *step);

ddl_status ddl_telemetry_init(struct ddl_telemetry *t, ddl_model *model, size_t batch_rows,
                              struct ddl_error *err)
{
    const struct ddl_config *k = ddl_model_config(model);
    struct ddl_arena arena = { 0 };
    *t = sized(k, batch_rows);
    t->model = model;
    t->probe = (struct ddl_probe){ .step = observe, .user = t };
    carve(t, &arena, k, ddl_model_n_params(model));
    t->block = arena.overflow ? NULL : ddl_mem_zalloc(arena.used);
    if (!t->block || !ddl_distribution_init(&t->sums.gate, 1, 0))
        return ddl_error_set(err, DDL_E_MEMORY, "telemetry: out of memory for %zu sublayers of %zu tokens",
                             t->n_sublayers, batch_rows);
    arena = (struct ddl_arena){ .base = t->block };
    carve(t, &arena, k, ddl_model_n_params(model));
    return DDL_OK;
}

void ddl_telemetry_free(struct ddl_telemetry *t)
{
    ddl_distribution_free(&t->sums.gate);
    ddl_mem_free(t->block);
    *t = (struct ddl_telemetry){ 0 };
}

/* ---- the forward pass ---- */

static void download(const struct ddl_telemetry *t, float *host, const float *x, size_t n)
{
    const ddl_backend *backend = ddl_model_backend(t->model);
    backend->ops->download(backend->ctx, host, x, n * sizeof *host);
}

/* Copies the sampled rows of x (total, width). Returns how many. */
static size_t sample(const struct ddl_telemetry *t, float *host, const float *x, size_t total, size_t width)
{
    size_t n = total < t->rows ? total : t->rows;
    for (size_t i = 0; i < n; i++)
        download(t, host + i * width, x + i * total / n * width, width);
    return n;
}

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

/* gate (n) in [0, top]. */
static void add_gates(struct ddl_telemetry *t, size_t n, double top)
{
    ddl_distribution_reset(&t->sums.gate, top);
    t->sums.has_gate = true;
    for (size_t i = 0; i < n; i++)
        ddl_distribution_add(&t->sums.gate, t->gate[i]);
}

/* The gates of step r. */
static void observe_gate(struct ddl_telemetry *t, const struct ddl_sublayer_step *step, size_t r)
{
    if (step->lambda) {
        download(t, t->gate, step->lambda, step->width);
        ddl_figures_set_lambda(&t->sums, step->width, t->gate);
    }
    ddl_figures_set_factors(&t->sums, ddl_model_backend(t->model), step);
    if (step->tau && step->width > 1) {
        add_gates(t, sample(t, t->gate, step->tau, step->rows, step->width) * step->width, 1);
    } else if (step->tau) {
        download(t, t->gate, step->tau, step->rows);
        add_gates(t, step->rows, 1);
    } else if (step->beta) {
        for (size_t i = 0; i < step->rows; i++)
            t->gate[i] = t->beta[i * step->steps + r];
        add_gates(t, step->rows, 2);
    }
}

/* The figures of the n sampled rows in step r, which takes them from t->before to t->after or t->between. */
static void add_rows(struct ddl_telemetry *t, const struct ddl_sublayer_step *step, size_t r, size_t n)
{
    const struct ddl_config *k = ddl_model_config(t->model);
    size_t d = k->d_model, c = ddl_config_state_channels(k);
    bool last = r + 1 == step->steps;
    for (size_t i = 0; i < n; i++) {
        size_t at = i * step->steps + r;
        float *between = t->between + i * d * c;
        struct ddl_sublayer_row row = { .d = d,
                                        .c = c,
                                        .before = t->before + i * d * c,
                                        .after = last ? t->after + i * d * c : between,
                                        .direction = step->direction ? t->direction + at * d : NULL,
                                        .target = step->target ? t->target + at * c : NULL,
                                        .mixing = step->mixing ? t->mixing + i * c * (c + 2) : NULL,
                                        .k_eps = step->k_eps,
                                        .beta = step->beta ? t->gate[i * step->rows / n] : 0 };
        ddl_figures_set_strides(&row, step->by_column);
        if (!last)
            ddl_figures_take_step(&row, step->update, t->k, t->scratch, between);
        ddl_figures_add(&t->sums, &row, t->k, t->scratch);
    }
}

static void set_result(struct ddl_telemetry *t, const struct ddl_sublayer_step *step, size_t r, size_t n,
                       const float *after)
{
    const struct ddl_config *k = ddl_model_config(t->model);
    const struct ddl_distribution *gate = &t->sums.gate;
    struct ddl_telemetry_sublayer *out = &t->sublayers[t->at++];
    size_t d = k->d_model, c = ddl_config_state_channels(k), dc = d * c;
    *out = (struct ddl_telemetry_sublayer){
        .layer = step->layer,
        .sub = step->sub,
        .step = r,
        .n_steps = step->steps,
        .x_rms = root_mean_square(n, dc, dc, after, NULL),
        .f_rms = step->f ? root_mean_square(n, d, step->steps * d, t->f + r * d, NULL)
                         : root_mean_square(n, dc, dc, after, t->before),
    };
    if (t->sums.has_gate) {
        out->gate_max = gate->top;
        out->gate_values = gate->n;
        out->gate_squares = gate->sum_squares;
        memcpy(out->histogram, gate->histogram, sizeof out->histogram);
    }
    /* Without exact quantiles it needs no memory. */
    (void)ddl_figures_of(&t->sums, c, &out->figures);
}

/* Step r on the n sampled rows, with the present states in t->before. */
static void observe_step(struct ddl_telemetry *t, const struct ddl_sublayer_step *step, size_t r, size_t n)
{
    const struct ddl_config *k = ddl_model_config(t->model);
    bool last = r + 1 == step->steps;
    ddl_figures_begin(&t->sums, ddl_config_state_channels(k));
    t->sums.is_delta = step->target != NULL;
    t->sums.update = step->update;
    observe_gate(t, step, r);
    add_rows(t, step, r, n);
    set_result(t, step, r, n, last ? t->after : t->between);
    if (!last) {
        float *states = t->before;
        t->before = t->between;
        t->between = states;
    }
}

/* A ddl_sublayer_fn; user: the telemetry. */
static void observe(void *user, const struct ddl_sublayer_step *step)
{
    struct ddl_telemetry *t = user;
    const struct ddl_config *k = ddl_model_config(t->model);
    size_t d = k->d_model, c = ddl_config_state_channels(k), R = step->steps;
    size_t n = sample(t, step->after ? t->after : t->before, step->X, step->rows, d * c);
    if (!step->after) {
        t->at = step->layer || step->sub ? t->at : 0;
        return;
    }
    if (step->direction)
        sample(t, t->direction, step->direction, step->rows, R * d);
    if (step->f)
        sample(t, t->f, step->f, step->rows, R * d);
    if (step->target)
        sample(t, t->target, step->target, step->rows, R * c);
    if (step->mixing)
        sample(t, t->mixing, step->mixing, step->rows, c * (c + 2));
    if (step->beta)
        download(t, t->beta, step->beta, step->rows * R);
    for (size_t r = 0; r < R; r++)
        observe_step(t, step, r, n);
}

/* ---- gradients ---- */

static bool is_of_embedding(const char *name)
{
    return strcmp(name, "transformer.wte.weight") == 0 || strncmp(name, "input_embed.", 12) == 0;
}

void ddl_telemetry_take_gradients(struct ddl_telemetry *t, const struct ddl_optim *optim, ddl_comm *comm)
{
    const struct ddl_config *k = ddl_model_config(t->model);
    double embedding = 0, head = 0;
    memset(t->grad_layers, 0, k->n_layers * sizeof *t->grad_layers);
    ddl_optim_grad_squares(optim, t->squares);
    ddl_comm_sum_f64(comm, ddl_model_n_params(t->model), t->squares);
    for (size_t i = 0; i < ddl_model_n_params(t->model); i++) {
        const char *name = ddl_model_param(t->model, i)->name;
        long layer = ddl_param_layer(name);
        if (layer >= 0)
            t->grad_layers[layer] += t->squares[i];
        else
            *(is_of_embedding(name) ? &embedding : &head) += t->squares[i];
    }
    for (size_t l = 0; l < k->n_layers; l++)
        t->grad_layers[l] = sqrt(t->grad_layers[l]);
    t->grad_embedding = sqrt(embedding);
    t->grad_head = sqrt(head);
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
    for (const struct ddl_inspect_row *row = ddl_inspect_rows(); row->name; row++) {
        double value = ddl_inspect_figure(&sublayer->figures, row);
        if (!isnan(value))
            ddl_json_number(json, row->name, value, DIGITS);
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
    ddl_json_count(json, "rows", t->rows);
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
