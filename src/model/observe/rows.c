#include "model/observe/rows.h"

#include "ops/ops.h"

/* ---- memory ---- */

bool ddl_rows_has_all(const struct ddl_traced *tensor)
{
    return tensor->of->summary == TRACE_HISTOGRAM && tensor->width == 1;
}

/* Whether a tensor with memory of its own is copied. */
static bool is_copied(const struct trace_tensor *of)
{
    return of->data && (of->is_used || of->summary != TRACE_NOTHING || of->derive);
}

/* Numbers of a tensor that is copied. */
static size_t numbers_of(const struct ddl_traced *tensor, size_t all, size_t sampled, size_t steps)
{
    if (tensor->of->extent == TRACE_PARAMETER)
        return tensor->width;
    size_t n = ddl_rows_has_all(tensor) ? all : sampled;
    return n * tensor->width * (tensor->of->extent == TRACE_STEPS ? steps : 1);
}

/* Numbers of the tensors of a sublayer, at most. */
static size_t numbers_of_sublayer(const struct ddl_rows *rows, size_t layer, int sub)
{
    const struct ddl_config *k = rows->config;
    const struct trace_tensor *of;
    size_t n = 0;
    for (size_t i = 0; (of = trace_tensor_at(k, layer, i)); i++) {
        const struct ddl_traced tensor = { .of = of, .width = trace_width(of, k, layer, sub) };
        if (is_copied(of))
            n += numbers_of(&tensor, rows->all, rows->most, ddl_config_residual_steps(k, layer));
    }
    return n;
}

void ddl_rows_place(struct ddl_rows *rows, struct ddl_arena *arena)
{
    const struct ddl_config *k = rows->config;
    size_t d = k->d_model, numbers = 0, most = rows->most;
    rows->c = ddl_config_state_channels(k);
    rows->most_steps = 0;
    for (size_t l = 0; l < k->n_layers; l++) {
        size_t steps = ddl_config_residual_steps(k, l);
        rows->most_steps = steps > rows->most_steps ? steps : rows->most_steps;
    }
    ddl_figure_table_init(&rows->table);
    for (size_t s = 0; s < DDL_SUBLAYERS * k->n_layers; s++) {
        size_t n = numbers_of_sublayer(rows, s / DDL_SUBLAYERS, (int)(s % DDL_SUBLAYERS));
        numbers = n > numbers ? n : numbers;
    }
    rows->before = ddl_arena_take(arena, most * d, rows->c * sizeof *rows->before);
    rows->after = ddl_arena_take(arena, most * d, rows->c * sizeof *rows->after);
    rows->between =
        ddl_arena_take(arena, rows->most_steps > 1 ? most * d : 0, rows->c * sizeof *rows->between);
    rows->direction_memory = ddl_arena_take(arena, most, rows->most_steps * d * sizeof *rows->direction);
    rows->f_memory = ddl_arena_take(arena, rows->with_f ? most : 0, rows->most_steps * d * sizeof *rows->f);
    rows->numbers = ddl_arena_take(arena, numbers, sizeof *rows->numbers);
    rows->p = ddl_arena_take(arena, rows->c, sizeof *rows->p);
    rows->scratch = ddl_arena_take(arena, rows->c, sizeof *rows->scratch);
    rows->host_index = ddl_arena_take(arena, most, sizeof *rows->host_index);
}

/* Numbers of the widest row that is sampled. */
static size_t widest(const struct ddl_rows *rows)
{
    const struct ddl_config *k = rows->config;
    const struct trace_tensor *of;
    size_t widest = k->d_model * (rows->most_steps > rows->c ? rows->most_steps : rows->c);
    for (size_t s = 0; s < DDL_SUBLAYERS * k->n_layers; s++) {
        size_t layer = s / DDL_SUBLAYERS;
        for (size_t i = 0; (of = trace_tensor_at(k, layer, i)); i++) {
            const struct ddl_traced tensor = { .of = of,
                                               .width = trace_width(of, k, layer, (int)(s % DDL_SUBLAYERS)) };
            size_t n = is_copied(of) ? numbers_of(&tensor, 1, 1, ddl_config_residual_steps(k, layer)) : 0;
            widest = n > widest ? n : widest;
        }
    }
    return widest;
}

static size_t gathered_bytes(const struct ddl_rows *rows)
{
    return rows->most * widest(rows) * sizeof *rows->gathered;
}

size_t ddl_rows_reserved(const struct ddl_rows *rows)
{
    return rows->most < rows->all ? rows->most * sizeof *rows->index + gathered_bytes(rows) : 0;
}

ddl_status ddl_rows_reserve(struct ddl_rows *rows, struct ddl_error *err)
{
    const ddl_backend *backend = rows->backend;
    if (rows->most == rows->all)
        return DDL_OK;
    rows->index = backend->ops->alloc(backend->ctx, rows->most * sizeof *rows->index);
    rows->gathered = backend->ops->alloc(backend->ctx, gathered_bytes(rows));
    return rows->index && rows->gathered
               ? DDL_OK
               : ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu rows of a sublayer", rows->most);
}

void ddl_rows_release(struct ddl_rows *rows)
{
    void *blocks[] = { rows->index, rows->gathered };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            rows->backend->ops->free(rows->backend->ctx, blocks[i]);
    }
    rows->index = NULL;
    rows->gathered = NULL;
}

/* ---- copies ---- */

static void download(const struct ddl_rows *rows, float *host, const float *x, size_t n)
{
    rows->backend->ops->download(rows->backend->ctx, host, x, n * sizeof *host);
}

/* Uploads the numbers of the sampled rows of `total`, `most` of them. */
static void upload_index(struct ddl_rows *rows, size_t total)
{
    const ddl_backend *backend = rows->backend;
    for (size_t i = 0; i < rows->most; i++)
        rows->host_index[i] = (int32_t)(i * total / rows->most);
    backend->ops->upload(backend->ctx, rows->index, rows->host_index, rows->most * sizeof *rows->index);
    rows->indexed = total;
}

/* Copies the sampled rows of x (total, width). Returns how many. */
static size_t sample(struct ddl_rows *rows, float *host, const float *x, size_t total, size_t width)
{
    const ddl_backend *backend = rows->backend;
    if (total <= rows->most) {
        download(rows, host, x, total * width);
        return total;
    }
    if (rows->indexed != total)
        upload_index(rows, total);
    backend->ops->gather(backend->ctx, &(struct gather_args){ .N = rows->most,
                                                              .width = width,
                                                              .rows = total,
                                                              .index = rows->index,
                                                              .x = x,
                                                              .y = rows->gathered });
    download(rows, host, rows->gathered, rows->most * width);
    return rows->most;
}

static void copy_tensors(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace)
{
    float *at = rows->numbers;
    for (size_t i = 0; i < trace->n; i++) {
        const struct ddl_traced *tensor = &trace->tensor[i];
        size_t width = tensor->width * (tensor->of->extent == TRACE_STEPS ? trace->steps : 1);
        rows->x[i] = NULL;
        if (tensor->part != i && rows->x[tensor->part])
            rows->x[i] = rows->x[tensor->part] + tensor->offset;
        if (!tensor->x || !is_copied(tensor->of))
            continue;
        if (tensor->of->extent == TRACE_PARAMETER)
            download(rows, at, tensor->x, width);
        else if (ddl_rows_has_all(tensor))
            download(rows, at, tensor->x, trace->rows * width);
        else
            sample(rows, at, tensor->x, trace->rows, width);
        rows->x[i] = at;
        at += numbers_of(tensor, trace->rows, rows->n, trace->steps);
    }
}

void ddl_rows_copy(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace)
{
    size_t d = rows->config->d_model, R = trace->steps;
    rows->n = sample(rows, trace->after ? rows->after : rows->before, trace->X, trace->rows, d * rows->c);
    if (!trace->after)
        return;
    rows->direction = trace->direction ? rows->direction_memory : NULL;
    if (trace->direction)
        sample(rows, rows->direction, trace->direction, trace->rows, R * d);
    rows->f = trace->f == trace->direction ? rows->direction
              : rows->with_f && trace->f   ? rows->f_memory
                                           : NULL;
    if (rows->f && rows->f != rows->direction)
        sample(rows, rows->f, trace->f, trace->rows, R * d);
    copy_tensors(rows, trace);
}

size_t ddl_rows_gate(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace)
{
    size_t i = 0;
    while (i < trace->n && !(rows->x[i] && trace->tensor[i].of->summary == TRACE_HISTOGRAM))
        i++;
    return i;
}

const float *ddl_rows_tensor(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t i,
                             size_t n, size_t r)
{
    const struct ddl_traced *tensor = &trace->tensor[i], *owner = &trace->tensor[tensor->part];
    if (!rows->x[i] || owner->of->extent == TRACE_PARAMETER)
        return rows->x[i];
    bool by_step = owner->of->extent == TRACE_STEPS;
    return rows->x[i] + (by_step ? n * trace->steps + r : n) * owner->width;
}

/* ---- figures ---- */

void ddl_rows_begin(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace,
                    struct ddl_sublayer_sums *sums)
{
    size_t gate = ddl_rows_gate(rows, trace);
    sums->update = trace->update;
    sums->kind = trace->kind;
    sums->gate = gate < trace->n ? trace->tensor[gate].of : NULL;
    for (size_t i = 0; i < trace->n; i++) {
        const struct trace_tensor *of = trace->tensor[i].of;
        if (rows->x[i] && of->behaviors)
            sums->range = of;
        if (rows->x[i] && of->extent == TRACE_PARAMETER && of->derive)
            ddl_figures_add_tensor(sums, &rows->table, &trace->tensor[i], rows->c, rows->x[i]);
    }
}

/* Where the state is before a step but the last, it is recomputed: a pass does not keep it. */
double ddl_rows_add(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r, size_t n,
                    struct ddl_sublayer_sums *sums, double *k)
{
    size_t d = rows->config->d_model, c = rows->c, at = n * trace->steps + r;
    bool last = r + 1 == trace->steps;
    float *between = rows->between + n * d * c;
    struct trace_row row = { .d = d,
                             .c = c,
                             .stride_d = trace->by_column ? 1 : c,
                             .stride_c = trace->by_column ? d : 1,
                             .before = rows->before + n * d * c,
                             .after = last ? rows->after + n * d * c : between,
                             .direction = rows->direction ? rows->direction + at * d : NULL,
                             .k_eps = (double)trace->k_eps,
                             .update = trace->kind };
    for (size_t i = 0; i < trace->n; i++) {
        const struct ddl_traced *tensor = &trace->tensor[i];
        bool all = ddl_rows_has_all(&trace->tensor[tensor->part]);
        row.x[i] = ddl_rows_tensor(rows, trace, i, all ? n * trace->rows / rows->n : n, r);
        if (row.x[i] && tensor->of->extent != TRACE_PARAMETER &&
            (tensor->of->derive || tensor->of->summary == TRACE_MIXING))
            ddl_figures_add_tensor(sums, &rows->table, tensor, c, row.x[i]);
    }
    trace_row_set(&row, k, rows->p);
    if (!last)
        trace->update->take(&row, rows->scratch, between);
    return ddl_figures_add(sums, &row, rows->scratch);
}

const float *ddl_rows_after(const struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r)
{
    return r + 1 == trace->steps ? rows->after : rows->between;
}

void ddl_rows_next(struct ddl_rows *rows, const struct ddl_sublayer_trace *trace, size_t r)
{
    if (r + 1 == trace->steps)
        return;
    float *states = rows->before;
    rows->before = rows->between;
    rows->between = states;
}
