/* The model, its optimizer and the buffers of a step. */
#include "train/run/trainer.h"

#include "base/mem.h"
#include "ddl/run.h"
#include "model/params/flat.h"
#include "model/files/model_io.h"
#include "ops/ops.h"
#include "train/config/freeze.h"
#include "train/run/plan.h"

#include <stdio.h>
#include <stdlib.h>

static struct ddl_optim_config optim_config(const struct ddl_train_config *t)
{
    struct ddl_optim_config config = ddl_optim_defaults();
    config.beta1 = t->beta1;
    config.beta2 = t->beta2;
    config.eps = t->eps;
    config.clip = t->clip;
    for (int group = 0; group < DDL_GROUPS; group++)
        config.weight_decay[group] =
            t->weight_decay_group[group] < 0 ? t->weight_decay : t->weight_decay_group[group];
    return config;
}

/* Options that make a run fit into so many bytes. */
struct memory_options {
    bool bf16, block;
    size_t batch; /* sequences of a micro-batch */
};

static bool fits(struct run *run, const struct memory_options *options, size_t capacity)
{
    struct ddl_train_config t = ddl_train_resolved(&run->config); /* with its global_batch */
    struct ddl_train_plan plan;
    t.batch = options->batch;
    if (options->bf16)
        t.precision = DDL_PRECISION_BF16;
    if (options->block)
        t.recompute = DDL_RECOMPUTE_BLOCK;
    return !ddl_train_plan_on(&t, &run->backend, &plan, NULL) && plan.bytes_total <= capacity;
}

/* Halves the micro-batch of the options until the run fits. False if it never does. */
static bool shrink(struct run *run, struct memory_options *options, size_t capacity)
{
    bool found = fits(run, options, capacity);
    while (!found && options->batch > 1) {
        options->batch /= 2;
        found = fits(run, options, capacity);
    }
    return found;
}

/* Writes options with which the run fits: those that suffice alone, else recomputation and bfloat16 with the
 * largest micro-batch that fits; nothing if none does. */
static void name_options(struct run *run, size_t capacity, char *text, size_t size)
{
    const struct ddl_train_config *t = &run->config;
    struct memory_options smaller = { .batch = t->batch };
    struct memory_options all = { .bf16 = true, .block = true, .batch = t->batch };
    const struct memory_options block = { .block = true, .batch = t->batch };
    const struct memory_options bf16 = { .bf16 = true, .batch = t->batch };
    size_t used = 0;
    *text = '\0';
    if (t->recompute != DDL_RECOMPUTE_BLOCK && fits(run, &block, capacity))
        used += (size_t)snprintf(text, size, "--recompute block");
    if (t->precision != DDL_PRECISION_BF16 && fits(run, &bf16, capacity))
        used += (size_t)snprintf(text + used, size - used, "%s--dtype bf16", used ? " or " : "");
    if (shrink(run, &smaller, capacity))
        used +=
            (size_t)snprintf(text + used, size - used, "%s--batch %zu", used ? " or " : "", smaller.batch);
    if (!used && shrink(run, &all, capacity))
        snprintf(text, size, "--recompute block --dtype bf16 --batch %zu", all.batch);
}

ddl_status trainer_check_memory(struct run *run, bool dry, struct ddl_error *err)
{
    char options[96];
    struct ddl_train_plan *plan = &run->plan;
    char ranks[64] = "";
    ddl_status status = ddl_train_plan_on(&run->config, &run->backend, plan, err);
    if (status)
        return status;
    /* Ranks share the memory of their host, but each is assumed to have a device of its own. */
    const size_t local = run->backend->ops->host_memory ? ddl_comm_local_size(run->config.comm) : 1;
    if (plan->bytes_total <= plan->bytes_capacity / local)
        return DDL_OK;
    if (local > 1)
        snprintf(ranks, sizeof ranks, " for each of %zu ranks on this host", local);
    name_options(run, plan->bytes_capacity / local, options, sizeof options);
    return ddl_error_set(
        err, DDL_E_MEMORY, "the run needs %.1f GiB of memory%s, backend %s has %.1f GiB%s; %s%s%s",
        (double)plan->bytes_total / 0x1p30, ranks, run->config.backend, (double)plan->bytes_capacity / 0x1p30,
        run->backend->ops->host_memory ? "" : " free",
        *options ? "it fits with " : "it does not fit with any --batch, --dtype and --recompute", options,
        dry ? "" : "; --dry-run shows what needs it");
}

/* Initial weights from init_from. Which model of a run they are from is noted in init_which, and so in the
 * run's recipe: if this run starts again, it starts from the same. */
static ddl_status read_initial(struct run *run, struct ddl_error *err)
{
    struct ddl_train_config *t = &run->config;
    struct ddl_run_model from;
    struct ddl_error message;
    char about[128];
    const struct ddl_load_options options = { .ignore_extra = t->ignore_extra,
                                              .no_verify = true, /* ddl_run_find does */
                                              .warn = run->callbacks->note,
                                              .user = run->callbacks->user };
    ddl_status status = ddl_run_find(&from, t->init_from, t->init_which, t->verify, run->callbacks->note,
                                     run->callbacks->user, err);
    if (!status)
        status = ddl_model_read_weights_with(run->model, from.path, &options, err);
    if (status || !*from.name)
        return status;
    if (from.has_step)
        snprintf(t->init_which, sizeof t->init_which, "%llu", (unsigned long long)from.step);
    ddl_run_describe(&from, about, sizeof about);
    ddl_error_set(&message, DDL_OK, "init_from: %.600s: using %s", t->init_from, about);
    trainer_note(run, message.text);
    return DDL_OK;
}

ddl_status trainer_check_initial(const struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_load_options options = { .ignore_extra = t->ignore_extra };
    struct ddl_run_model from;
    if (!*t->init_from || t->resume)
        return DDL_OK;
    ddl_status status = ddl_run_find(&from, t->init_from, t->init_which, false, run->callbacks->note,
                                     run->callbacks->user, err);
    return status ? status : ddl_model_check_weights(&t->config, from.path, &options, err);
}

/* The optimizer of what this rank owns. */
static ddl_status make_optim(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_optim_config config = optim_config(t);
    run->partition =
        ddl_partition_of(ddl_model_flat_size(run->model), t->comm_bucket, ddl_comm_size(t->comm));
    ddl_status status =
        ddl_optim_create_part(&run->optim, run->model, &config, &run->partition, ddl_comm_rank(t->comm), err);
    run->moments = (struct ddl_moments){
        .model = run->model, .optim = run->optim, .comm = t->comm, .partition = &run->partition
    };
    if (!status && t->comm &&
        !(run->moments.scratch = ddl_mem_alloc(run->partition.bucket * sizeof *run->moments.scratch)))
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for a bucket of gradients");
    return status;
}

static ddl_status make_model(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_workspace_options ws = ddl_train_workspace(t);
    ddl_status status = ddl_train_open_backend(t, &run->backend, err);
    if (!status)
        status = ddl_model_create(&run->model, &t->config, run->backend, err);
    if (!status)
        status = ddl_model_enable_grad(run->model, err);
    if (!status)
        status = ddl_model_set_precision(run->model, (enum ddl_precision)t->precision, err);
    if (!status)
        status = make_optim(run, err);
    if (!status)
        status = ddl_workspace_create(&run->ws, run->model, &ws, err);
    if (status)
        return status;
    for (size_t i = 0; i < ddl_model_n_params(run->model); i++)
        ddl_optim_freeze(run->optim, i, ddl_freeze_has(t, ddl_model_param(run->model, i)->name));
    if (t->resume)
        return ddl_run_read_weights(run->checkpoint, run->model, run->optim, &run->state, err);
    return *t->init_from ? read_initial(run, err) : ddl_model_init(run->model, t->seed, err);
}

/* Memory for the sequences of two steps, as many as the rank with the most has. Those beyond the share, which
 * fill up the last micro-batch, are read where several micro-batches are replayed together: they have no
 * targets. */
static ddl_status make_buffers(struct run *run, struct ddl_error *err)
{
    const struct ddl_share *share = &run->share;
    size_t n = share->most * share->batch * run->config.seq; /* no overflow: ddl_train_check */
    run->buffers = ddl_mem_alloc(4 * n * sizeof *run->buffers);
    if (!run->buffers)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu tokens", n);
    run->tokens = run->buffers;
    run->targets = run->tokens + n;
    run->next_tokens = run->targets + n;
    run->next_targets = run->next_tokens + n;
    for (size_t i = share->n * run->config.seq; i < n; i++) {
        run->tokens[i] = run->next_tokens[i] = 0;
        run->targets[i] = run->next_targets[i] = -1;
    }
    return DDL_OK;
}

static ddl_status make_validation(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    if (!run->val)
        return DDL_OK;
    run->validation = ddl_validation_plan(run->val, t->val_tokens, run->share.batch, t->seq, t->order);
    run->validation.comm = t->comm;
    run->validation.parts = calloc(ddl_comm_size(t->comm), sizeof *run->validation.parts);
    return run->validation.parts ? DDL_OK
                                 : ddl_error_set(err, DDL_E_MEMORY, "out of memory for the validation");
}

static ddl_status make_step(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    run->share = ddl_train_share(t, ddl_comm_rank(t->comm));
    ddl_status status = make_buffers(run, err);
    if (status)
        return status;
    run->loader = (struct ddl_loader){ run->train, t->order, t->seed, t->seq, run->state.position };
    run->step = (struct ddl_step){ .model = run->model,
                                   .ws = run->ws,
                                   .optim = run->optim,
                                   .batch = run->share.batch,
                                   .accumulate = run->share.micro_batches,
                                   .seq = t->seq,
                                   .last = run->share.last,
                                   .tokens = run->tokens,
                                   .targets = run->targets,
                                   .spike = { t->spike_z, t->spike_window, t->spike_max_skip },
                                   .spike_state = &run->state.spike,
                                   .comm = t->comm,
                                   .overlap = t->comm_overlap != DDL_OVERLAP_OFF };
    status = ddl_step_reserve(&run->step, err);
    if (!status && t->telemetry_every)
        status = ddl_telemetry_init(&run->telemetry, run->model, run->share.batch * t->seq, err);
    if (!status)
        status = make_validation(run, err);
    run->logged_tokens = run->state.tokens;
    run->logged_seconds = run->state.train_seconds;
    /* The result if no step is left. */
    run->progress = (struct ddl_train_progress){ .step = run->state.step,
                                                 .steps = t->steps,
                                                 .loss = run->state.loss,
                                                 .lr = run->state.pending.lr,
                                                 .grad_norm = run->state.pending.grad_norm,
                                                 .skipped = run->state.pending.skipped,
                                                 .has_val = run->state.has_val,
                                                 .val_loss = run->state.val_loss,
                                                 .tokens = run->state.tokens,
                                                 .flops = run->state.flops,
                                                 .seconds = run->state.seconds,
                                                 .train_seconds = run->state.train_seconds };
    return status;
}

/* What follows the steps, and how long a validation takes before one was seen: a step's forward pass, a third
 * of its work, for each token. */
static void plan_parts(struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_timing *timing = &run->timing;
    timing->part[DDL_PART_VALIDATION].every = run->val ? t->val_every : 0;
    timing->part[DDL_PART_VALIDATION].guess =
        (double)(run->validation.n * t->seq) / (3 * run->plan.tokens_per_step);
    timing->part[DDL_PART_TASKS].every = run->tasks.n ? t->tasks_every : 0;
    timing->part[DDL_PART_TASKS].guess = trainer_tasks_tokens(run) / (3 * run->plan.tokens_per_step);
    timing->part[DDL_PART_CHECKPOINT].every = t->checkpoint_every;
    timing->part[DDL_PART_SAMPLE].every = t->sample_every;
}

ddl_status trainer_make(struct run *run, struct ddl_error *err)
{
    ddl_status status = make_model(run, err);
    if (!status)
        status = make_step(run, err);
    if (!status)
        plan_parts(run);
    return status;
}

ddl_status trainer_connect(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_param *rows = NULL;
    size_t n = 0;
    if (!t->comm)
        return DDL_OK;
    ddl_status status = trainer_agree(run, ddl_params_plan(&t->config, &rows, &n, err), err);
    if (status) {
        free(rows);
        return status;
    }
    status = ddl_exchange_create(&run->exchange, t->comm, run->model, &run->partition,
                                 (enum ddl_comm_dtype)t->comm_dtype,
                                 ddl_exchange_in_flight(rows, n, &run->partition), err);
    free(rows);
    status = trainer_agree(run, status, err);
    run->step.exchange = run->exchange;
    if (!status && *ddl_exchange_note(run->exchange))
        trainer_note(run, ddl_exchange_note(run->exchange));
    return status;
}
