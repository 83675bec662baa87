/* Training curves: a folder with config.json, model.safetensors (the start), tokens.bin (a shard),
 * recipe.json and loss.json (the loss before each step). */
#include "verify/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "ddl/data.h"
#include "ddl/model.h"
#include "train/step/optim.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(DDL_SANITIZED)
#define SANITIZED DDL_SANITIZED
#else
#define SANITIZED 0
#endif

/* `ref` and sanitizer builds are slow: they follow the beginning of a curve. */
enum { FEW_STEPS = 10, MAX_STEPS = 1000000 };

struct recipe {
    double steps, batch, seq, lr, lr_min, warmup, beta1, beta2, eps, weight_decay, clip;
};

struct work {
    struct context *c;
    struct recipe recipe;
    size_t steps; /* that will be made */
    double *expected;
    ddl_model *model;
    ddl_workspace *ws;
    ddl_shards *shards;
    struct ddl_loader loader;
    struct ddl_optim *optim;
    int32_t *tokens, *targets;
};

static ddl_status path_of(const struct context *c, const char *name, char *out, size_t size,
                          struct ddl_error *err)
{
    if (!ddl_path_join(out, size, c->path, name))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", c->path);
    return DDL_OK;
}

/* Into *out, which is to be released in any case. */
static ddl_status load_json(const struct context *c, const char *name, json_t **out, struct ddl_error *err)
{
    enum { LIMIT = 64 << 20 };
    char path[2048];
    *out = NULL;
    ddl_status status = path_of(c, name, path, sizeof path, err);
    if (!status)
        status = ddl_json_read(out, path, LIMIT, err);
    if (!status && !json_is_object(*out))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: not a JSON object", path);
    return status;
}

static ddl_status read_recipe(const struct context *c, const json_t *json, struct recipe *r,
                              struct ddl_error *err)
{
    const struct {
        const char *key;
        double *to;
        double low, high;
        bool whole;
    } rows[] = {
        { "steps", &r->steps, 1, MAX_STEPS, true },
        { "batch", &r->batch, 1, 65536, true },
        { "seq", &r->seq, 1, 1 << 20, true },
        { "lr", &r->lr, 0, 1e6, false },
        { "lr_min", &r->lr_min, 0, 1e6, false },
        { "warmup", &r->warmup, 0, MAX_STEPS, true },
        { "beta1", &r->beta1, 0, 1, false },
        { "beta2", &r->beta2, 0, 1, false },
        { "eps", &r->eps, 0, 1, false },
        { "weight_decay", &r->weight_decay, 0, 1e6, false },
        { "clip", &r->clip, 0, 1e30, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_object_get(json, rows[i].key);
        if (!json_is_number(value))
            return ddl_error_set(err, DDL_E_FORMAT, "%s/recipe.json: %s is not a number", c->path,
                                 rows[i].key);
        double x = *rows[i].to = json_number_value(value);
        if (!(x >= rows[i].low && x <= rows[i].high) || (rows[i].whole && x != floor(x)))
            return ddl_error_set(err, DDL_E_FORMAT, "%s/recipe.json: %s is %g, expected %s from %g to %g",
                                 c->path, rows[i].key, x, rows[i].whole ? "a whole number" : "a number",
                                 rows[i].low, rows[i].high);
    }
    const char *order = json_string_value(json_object_get(json, "order"));
    if (!order || strcmp(order, "sequential") != 0)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "%s/recipe.json: order is %s, a curve needs sequential",
                             c->path, order ? order : "not given");
    return DDL_OK;
}

/* lr(s) of docs/equations.md, 10. */
static double rate(const struct recipe *r, size_t step)
{
    double s = (double)step;
    if (s < r->warmup)
        return r->lr * (s + 1) / r->warmup;
    double turn = acos(-1.0) * (s - r->warmup) / (r->steps - r->warmup);
    return r->lr_min + (r->lr - r->lr_min) * (1 + cos(turn)) / 2;
}

static ddl_status read_losses(struct work *w, const json_t *json, struct ddl_error *err)
{
    const json_t *list = json_object_get(json, "loss");
    size_t n = json_array_size(list);
    if (n != (size_t)w->recipe.steps)
        return ddl_error_set(err, DDL_E_FORMAT, "%s/loss.json: has %zu losses, recipe.json says %g steps",
                             w->c->path, n, w->recipe.steps);
    bool few = SANITIZED || strcmp(ddl_backend_name(w->c->backend), "ref") == 0;
    w->steps = few && n > FEW_STEPS ? FEW_STEPS : n;
    w->expected = pool_take(&w->c->pool, n, sizeof *w->expected);
    if (!w->expected)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu losses", w->c->path, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value))
            return ddl_error_set(err, DDL_E_FORMAT, "%s/loss.json: loss %zu is not a number", w->c->path, i);
        w->expected[i] = json_number_value(value);
    }
    return DDL_OK;
}

static ddl_status read_files(struct work *w, struct ddl_error *err)
{
    json_t *recipe, *losses;
    ddl_status status = load_json(w->c, "recipe.json", &recipe, err);
    if (!status)
        status = read_recipe(w->c, recipe, &w->recipe, err);
    json_decref(recipe);
    if (status)
        return status;
    status = load_json(w->c, "loss.json", &losses, err);
    if (!status)
        status = read_losses(w, losses, err);
    json_decref(losses);
    return status;
}

static ddl_status open_data(struct work *w, struct ddl_error *err)
{
    char path[2048];
    size_t B = (size_t)w->recipe.batch, T = (size_t)w->recipe.seq;
    ddl_status status = path_of(w->c, "tokens.bin", path, sizeof path, err);
    if (!status)
        status = ddl_shards_open(&w->shards, path, err);
    if (status)
        return status;
    /* What follows takes memory for a batch: recipe.json alone must not say how much. */
    if (B * T > ddl_shards_count(w->shards))
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: recipe.json requires %zu x %zu tokens per step, tokens.bin has %llu",
                             w->c->path, B, T, (unsigned long long)ddl_shards_count(w->shards));
    w->loader = (struct ddl_loader){ .shards = w->shards, .order = DDL_ORDER_SEQUENTIAL, .T = T };
    w->tokens = pool_take(&w->c->pool, B * T, sizeof *w->tokens);
    w->targets = pool_take(&w->c->pool, B * T, sizeof *w->targets);
    if (!w->tokens || !w->targets)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu x %zu tokens", w->c->path, B, T);
    return DDL_OK;
}

static ddl_status open_model(struct work *w, struct ddl_error *err)
{
    const struct recipe *r = &w->recipe;
    const struct ddl_workspace_options options = { .batch = (size_t)r->batch,
                                                   .tokens = (size_t)r->seq,
                                                   .train = true,
                                                   .recompute = (enum ddl_recompute)w->c->config->recompute };
    struct ddl_optim_config config = ddl_optim_defaults();
    config.beta1 = (float)r->beta1;
    config.beta2 = (float)r->beta2;
    config.eps = (float)r->eps;
    config.clip = (float)r->clip;
    config.use_lr_scale = false;
    for (size_t i = 0; i < DDL_GROUPS; i++)
        config.weight_decay[i] = (float)r->weight_decay;
    ddl_status status = ddl_model_load(&w->model, w->c->path, w->c->backend, NULL, NULL, err);
    if (!status)
        status = ddl_shards_check(w->shards, ddl_model_config(w->model)->vocab_size, NULL, NULL, err);
    if (!status)
        status = ddl_model_enable_grad(w->model, err);
    if (!status)
        status = ddl_workspace_create(&w->ws, w->model, &options, err);
    if (!status)
        status = ddl_optim_create(&w->optim, w->model, &config, err);
    return status;
}

static ddl_status follow(struct work *w, struct ddl_error *err)
{
    size_t B = (size_t)w->recipe.batch, T = (size_t)w->recipe.seq;
    struct ddl_batch batch = { B, T, w->tokens, w->targets };
    for (size_t s = 0; s < w->steps; s++) {
        struct ddl_loss loss = { 0 };
        char step[32];
        snprintf(step, sizeof step, "step %zu", s);
        ddl_loader_next(&w->loader, B, w->tokens, w->targets);
        ddl_model_zero_grad(w->model);
        ddl_status status = ddl_model_backward(w->model, w->ws, &batch, 1 / (double)(B * T), &loss, err);
        if (status)
            return status;
        compare_number(w->c, "curve", LIMIT_CURVE, step, loss.sum / (double)(B * T), w->expected[s]);
        ddl_optim_step(w->optim, rate(&w->recipe, s));
    }
    return DDL_OK;
}

ddl_status check_curve(struct context *c, struct ddl_error *err)
{
    struct work w = { .c = c };
    ddl_status status = read_files(&w, err);
    if (!status)
        status = open_data(&w, err);
    if (!status)
        status = open_model(&w, err);
    if (!status)
        status = follow(&w, err);
    if (!status && w.steps < (size_t)w.recipe.steps)
        snprintf(c->result->message, sizeof c->result->message, "the first %zu of %g steps", w.steps,
                 w.recipe.steps);
    ddl_optim_free(w.optim);
    ddl_shards_close(w.shards);
    ddl_workspace_free(w.ws);
    ddl_model_free(w.model);
    return status;
}
