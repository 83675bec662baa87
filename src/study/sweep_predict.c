/* What the runs of a sweep will need: work, memory, time, space on disk. */
#include "study/sweep_internal.h"

#include "base/process.h"
#include "train/config/train_config.h"

#include <math.h>

size_t sweep_threads(const struct ddl_sweep_options *options)
{
    size_t local = ddl_comm_local_size(options->comm);
    size_t cores = local > 1 ? ddl_comm_threads(options->comm, 0) : ddl_process_cores();
    if (options->threads || (options->jobs < 2 && local == 1))
        return options->threads;
    return options->jobs < 2 ? cores : options->jobs < cores ? cores / options->jobs : 1;
}

/* The checkpoints that a run keeps, with the one being written, and its final model. A checkpoint has the
 * parameters and two moments of each. */
static double disk_bytes(const struct ddl_train_config *config, const struct ddl_train_plan *plan)
{
    const struct ddl_train_config t = ddl_train_resolved(config);
    const double model = 4 * (double)plan->params_total;
    const uint64_t n = t.checkpoint_every ? t.steps / t.checkpoint_every : 0;
    const double written = (double)n;
    double kept = t.keep_last ? fmin(written, (double)(t.keep_last + t.keep_best) + 1) : written;
    return model + 3 * model * kept;
}

struct prediction {
    const struct ddl_sweep *sweep;
    const struct ddl_sweep_options *options;
    struct ddl_train_callbacks callbacks;
    struct ddl_sweep_forecast *out;
};

static ddl_status measure(const struct prediction *p, size_t i, struct ddl_error *err)
{
    struct ddl_train_config config = *p->sweep->runs[i].config;
    struct ddl_train_preview preview;
    if (!config.threads)
        config.threads = sweep_threads(p->options);
    ddl_status status = ddl_train_dry_run(&config, &p->callbacks, &preview, err);
    if (!status)
        p->out[i].seconds = preview.seconds;
    return status;
}

/* The seconds of the first run of a setting are measured; those of the others follow from their work. */
static ddl_status predict_run(const struct prediction *p, size_t i, bool measured, struct ddl_error *err)
{
    const struct ddl_train_config *config = p->sweep->runs[i].config;
    struct ddl_sweep_forecast *f = &p->out[i];
    size_t first = 0;
    f->seconds = (double)NAN;
    ddl_status status = ddl_train_plan(config, &f->plan, err);
    if (status)
        return status;
    f->disk = disk_bytes(config, &f->plan);
    while (p->sweep->runs[first].setting != p->sweep->runs[i].setting)
        first++;
    if (first < i)
        f->seconds = p->out[first].seconds * f->plan.flops / p->out[first].plan.flops;
    else if (measured)
        status = measure(p, i, err);
    return status;
}

ddl_status ddl_sweep_predict(const struct ddl_sweep *sweep, const struct ddl_sweep_options *options,
                             const struct ddl_sweep_callbacks *callbacks, struct ddl_sweep_forecast *out,
                             struct ddl_error *err)
{
    static const struct ddl_sweep_callbacks silent = { 0 };
    const struct ddl_sweep_callbacks *c = callbacks ? callbacks : &silent;
    const struct prediction p = { sweep, options, { .user = c->user, .check = c->check }, out };
    struct ddl_error why;
    ddl_status failed = DDL_OK;
    for (size_t i = 0; i < sweep->n_runs; i++) {
        ddl_status status = predict_run(&p, i, !failed, &why);
        if (!status || failed)
            continue;
        failed = status;
        if (err) {
            *err = why;
            (void)ddl_error_prefix(err, status, sweep->runs[i].name);
        }
    }
    return failed;
}
