#include "verify/internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How much of its limit an error takes; infinite for a NaN. */
static double share(double error, double limit)
{
    if (isnan(error))
        return (double)INFINITY;
    return limit > 0 ? error / limit : error > 0 ? (double)INFINITY : 0;
}

void measure(struct context *c, const char *quantity, double limit, const char *tensor, double error)
{
    struct ddl_verify_case *r = c->result;
    struct ddl_verify_measure *m = NULL;
    for (size_t i = 0; i < r->n_measures && !m; i++)
        m = strcmp(r->measures[i].quantity, quantity) == 0 ? &r->measures[i] : NULL;
    if (!(error <= limit))
        r->outcome = DDL_VERIFY_FAIL;
    if (m && share(error, limit) <= share(m->error, m->limit))
        return;
    if (!m && r->n_measures < DDL_VERIFY_MEASURES)
        m = &r->measures[r->n_measures++];
    if (!m)
        return;
    m->error = error;
    m->limit = limit;
    snprintf(m->quantity, sizeof m->quantity, "%s", quantity);
    snprintf(m->tensor, sizeof m->tensor, "%s", tensor);
}

static double rms_of(size_t n, const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

static bool all_zero(size_t n, const double *x)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i] != 0) /* true of a NaN */
            return false;
    }
    return true;
}

void compare(struct context *c, const char *quantity, double limit, const char *tensor, size_t n,
             const float *found, const double *expected, double floor)
{
    if (n == 0)
        return;
    double sum = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = (double)found[i] - expected[i];
        sum += diff * diff;
        largest = isnan(diff) || fabs(diff) > largest ? fabs(diff) : largest;
        if (isnan(diff))
            break;
    }
    if (all_zero(n, expected)) {
        measure(c, "zero", LIMIT_ZERO, tensor, largest);
        return;
    }
    double size = rms_of(n, expected);
    if (!isfinite(size)) /* an expected tensor that is not finite: every result fails */
        measure(c, quantity, limit, tensor, (double)NAN);
    else
        measure(c, quantity, limit, tensor, sqrt(sum / (double)n) / fmax(size, floor));
}

void compare_number(struct context *c, const char *quantity, double limit, const char *tensor, double found,
                    double expected)
{
    if (expected == 0)
        measure(c, "zero", LIMIT_ZERO, tensor, fabs(found));
    else
        measure(c, quantity, limit, tensor,
                isfinite(expected) ? fabs(found - expected) / fabs(expected) : (double)NAN);
}

void compare_gradients(struct context *c, double limit, const struct gradient *list, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, rms_of(list[i].n, list[i].expected));
    for (size_t i = 0; i < n; i++)
        compare(c, "gradient", limit, list[i].name, list[i].n, list[i].found, list[i].expected,
                0.01 * largest);
}

/* --- memory, and tensors of a file -------------------------------------------------------------------- */

void *pool_take(struct pool *pool, size_t count, size_t size)
{
    size_t bytes;
    if (!ddl_size_mul(count, size, &bytes) || !ddl_size_add(bytes, DDL_ALIGN, &bytes))
        return NULL;
    void **block = ddl_mem_alloc(bytes);
    if (!block)
        return NULL;
    *block = pool->first; /* the link to the next block precedes each block */
    pool->first = block;
    return (unsigned char *)block + DDL_ALIGN;
}

void pool_free(struct pool *pool)
{
    while (pool->first) {
        void **block = pool->first;
        pool->first = *block;
        ddl_mem_free(block);
    }
}

static ddl_status no_memory(const struct context *c, size_t count, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu numbers", c->path, count);
}

ddl_status take_floats(struct context *c, size_t count, float **out, struct ddl_error *err)
{
    *out = pool_take(&c->pool, count, sizeof **out);
    if (!*out)
        return no_memory(c, count, err);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = NAN; /* what is not written shows */
    return DDL_OK;
}

ddl_status find_tensor(const ddl_safetensors *file, const char *path, const char *name, size_t ndim,
                       const struct ddl_tensor **out, struct ddl_error *err)
{
    *out = ddl_safetensors_find(file, name);
    if (!*out)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: tensor %s is missing", path, name);
    if ((*out)->ndim != ndim)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has %zu dimensions, expected %zu", path, name,
                             (*out)->ndim, ndim);
    return DDL_OK;
}

static ddl_status find_shaped(const struct context *c, const ddl_safetensors *file, const struct want *want,
                              const struct ddl_tensor **out, struct ddl_error *err)
{
    const struct ddl_tensor *t = *out = ddl_safetensors_find(file, want->name);
    if (!t)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: tensor %s is missing", c->path, want->name);
    if (ddl_tensor_has_shape(t, want->ndim, want->shape))
        return DDL_OK;
    char found[128], wanted[128];
    struct ddl_tensor plan = { .ndim = want->ndim };
    memcpy(plan.shape, want->shape, want->ndim * sizeof *want->shape);
    ddl_tensor_shape_text(t, found, sizeof found);
    ddl_tensor_shape_text(&plan, wanted, sizeof wanted);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: %s has shape %s, expected %s", c->path, want->name, found,
                         wanted);
}

ddl_status read_floats(struct context *c, const ddl_safetensors *file, struct want want, float **out,
                       struct ddl_error *err)
{
    const struct ddl_tensor *t;
    ddl_status status = find_shaped(c, file, &want, &t, err);
    if (status)
        return status;
    *out = pool_take(&c->pool, t->count, sizeof **out);
    return *out ? ddl_tensor_read_f32(t, 0, t->count, *out, err) : no_memory(c, t->count, err);
}

ddl_status read_doubles(struct context *c, const ddl_safetensors *file, struct want want, double **out,
                        struct ddl_error *err)
{
    const struct ddl_tensor *t;
    ddl_status status = find_shaped(c, file, &want, &t, err);
    if (status)
        return status;
    *out = pool_take(&c->pool, t->count, sizeof **out);
    return *out ? ddl_tensor_read_f64(t, *out, err) : no_memory(c, t->count, err);
}

ddl_status read_ids(struct context *c, const ddl_safetensors *file, struct want want, int32_t **out,
                    struct ddl_error *err)
{
    const struct ddl_tensor *t;
    ddl_status status = find_shaped(c, file, &want, &t, err);
    if (status)
        return status;
    int64_t *wide = pool_take(&c->pool, t->count, sizeof *wide);
    *out = pool_take(&c->pool, t->count, sizeof **out);
    if (!wide || !*out)
        return no_memory(c, t->count, err);
    status = ddl_tensor_read_i64(t, wide, err);
    for (size_t i = 0; i < t->count && !status; i++) {
        if (wide[i] < -1 || wide[i] > INT32_MAX)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %s[%zu] is %lld, which is not a token", c->path,
                                 want.name, i, (long long)wide[i]);
        (*out)[i] = (int32_t)wide[i];
    }
    return status;
}
