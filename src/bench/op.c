/* Timing the ops one by one, each after it agreed with the backend "ref" on fewer rows. */
#include "bench/bench.h"

#include "base/bf16.h"
#include "ops/audit.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A case on a backend: its buffers are there and its args point at them. */
struct placed {
    struct bench_case k;
    const struct bench_op *op;
    ddl_backend *backend;
    void *place[BENCH_BUFFERS]; /* alias: of the other buffer; not freed twice */
};

static size_t width_of(enum bench_fill fill)
{
    return fill == BENCH_BF16 ? sizeof(uint16_t) : fill == BENCH_DOUBLES ? sizeof(double) : sizeof(float);
}

/* Bytes of a buffer; the format of an 8-bit matrix is the backend's. */
static size_t bytes_of(const struct bench_buffer *b, const ddl_backend *backend)
{
    return b->fill == BENCH_Q8 ? backend->ops->q8_bytes(backend->ctx, b->n / b->width, b->width)
                               : b->n * width_of(b->fill);
}

/* Number i, as a float. */
static float number(enum bench_fill fill, uint64_t key, uint64_t i)
{
    static const double turn = 6.283185307179586;
    switch (fill) {
    case BENCH_WEIGHT:
        return (float)(0.75 + 0.5 * ddl_rng_uniform(key, i));
    case BENCH_GATE:
        return (float)(2 * ddl_rng_uniform(key, i));
    case BENCH_COS:
        return (float)cos(turn * ddl_rng_uniform(key, i));
    case BENCH_SIN:
        return (float)sin(turn * ddl_rng_uniform(key, i));
    default:
        return (float)ddl_rng_normal(key, i);
    }
}

static void write_number(void *to, const struct bench_buffer *b, const struct bench_sizes *s, uint64_t key,
                         size_t i)
{
    switch (b->fill) {
    case BENCH_TOKENS:
        ((int32_t *)to)[i] = (int32_t)ddl_rng_below(key, i, s->V);
        break;
    case BENCH_ZEROS:
        ((int32_t *)to)[i] = 0;
        break;
    case BENCH_COUNT:
        ((int32_t *)to)[i] = (int32_t)i;
        break;
    case BENCH_BF16:
        ((uint16_t *)to)[i] = ddl_bf16_round(number(b->fill, key, i));
        break;
    case BENCH_DOUBLES:
        ((double *)to)[i] = (double)s->V * (1 + ddl_rng_uniform(key, i));
        break;
    default:
        ((float *)to)[i] = number(b->fill, key, i);
    }
}

/* Fills a buffer of the backend from a pattern whose length is prime, so that no row repeats another soon. */
static ddl_status fill_buffer(ddl_backend *backend, void *place, const struct bench_buffer *b,
                              const struct bench_sizes *s, size_t which, struct ddl_error *err)
{
    enum { PATTERN = 65521 };
    bool whole = b->n < PATTERN || b->fill == BENCH_COUNT;
    size_t width = width_of(b->fill), pattern = whole ? b->n : PATTERN;
    unsigned char *host = ddl_mem_alloc(pattern * width);
    if (!host)
        return ddl_error_set(err, DDL_E_MEMORY, "bench op: out of memory");
    /* cosines and sines of one case are of the same angles */
    uint64_t key = ddl_rng_key(b->fill == BENCH_COS || b->fill == BENCH_SIN ? 99 : which, "bench op");
    for (size_t i = 0; i < pattern; i++)
        write_number(host, b, s, key, i);
    for (size_t at = 0; at < b->n; at += pattern) {
        size_t n = b->n - at < pattern ? b->n - at : pattern;
        backend->ops->upload(backend->ctx, (unsigned char *)place + at * width, host, n * width);
    }
    ddl_mem_free(host);
    return DDL_OK;
}

/* Fills an 8-bit matrix by quantizing normal numbers. */
static ddl_status fill_q8(ddl_backend *backend, void *place, const struct bench_buffer *b,
                          const struct bench_sizes *s, size_t which, struct ddl_error *err)
{
    const struct bench_buffer numbers = { .n = b->n, .fill = BENCH_NORMAL };
    float *x = backend->ops->alloc(backend->ctx, b->n * sizeof *x);
    ddl_status status = x ? fill_buffer(backend, x, &numbers, s, which, err)
                          : ddl_error_set(err, DDL_E_MEMORY, "bench op: out of memory");
    if (!status) {
        backend->ops->zero(backend->ctx, place, bytes_of(b, backend));
        backend->ops->quantize_q8(backend->ctx,
                                  &(struct quantize_q8_args){ b->n / b->width, b->width, 0, x, place });
    }
    if (x)
        backend->ops->free(backend->ctx, x);
    return status;
}

static void take_away(struct placed *p)
{
    for (size_t i = 0; i < p->k.n_buffers; i++) {
        if (p->place[i] && p->k.buffer[i].alias < 0)
            p->backend->ops->free(p->backend->ctx, p->place[i]);
    }
}

static ddl_status put(struct placed *p, const struct bench_op *op, ddl_backend *backend,
                      const struct bench_sizes *s, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    *p = (struct placed){ .op = op, .backend = backend };
    op->make(&p->k, s);
    for (size_t i = 0; !status && i < p->k.n_buffers; i++) {
        const struct bench_buffer *b = &p->k.buffer[i];
        size_t bytes = bytes_of(b, backend);
        p->place[i] = b->alias >= 0 ? p->place[b->alias] : backend->ops->alloc(backend->ctx, bytes);
        if (!p->place[i])
            status = ddl_error_set(err, DDL_E_MEMORY, "bench op: %s: out of memory for %zu bytes", op->name,
                                   bytes);
        else if (b->alias < 0)
            status = (b->fill == BENCH_Q8 ? fill_q8 : fill_buffer)(backend, p->place[i], b, s, i, err);
        memcpy((char *)&p->k.args + b->slot, &p->place[i], sizeof p->place[i]);
    }
    if (status)
        take_away(p);
    else if (p->k.prepare)
        p->k.prepare(backend, &p->k.args);
    return status;
}

static void call(void *user)
{
    const struct placed *p = user;
    p->op->call(p->backend, &p->k.args);
}

/* Number j of a buffer's content in host memory. */
static float number_of(const struct bench_buffer *b, const void *raw, size_t j)
{
    switch (b->fill) {
    case BENCH_BF16:
        return ddl_bf16_widen(((const uint16_t *)raw)[j]);
    case BENCH_DOUBLES:
        return (float)((const double *)raw)[j];
    default:
        return ((const float *)raw)[j];
    }
}

/* Downloads an 8-bit matrix as floats. */
static bool fetch_q8(const struct placed *p, size_t i, float *out)
{
    const struct bench_buffer *b = &p->k.buffer[i];
    const struct ddl_ops *ops = p->backend->ops;
    float *x = ops->alloc(p->backend->ctx, b->n * sizeof *x);
    if (!x)
        return false;
    ops->dequantize_q8(p->backend->ctx,
                       &(struct dequantize_q8_args){ b->n / b->width, b->width, 0, p->place[i], x });
    ops->download(p->backend->ctx, out, x, b->n * sizeof *x);
    ops->free(p->backend->ctx, x);
    return true;
}

static bool fetch_numbers(const struct placed *p, size_t i, float *out)
{
    const struct bench_buffer *b = &p->k.buffer[i];
    size_t bytes = bytes_of(b, p->backend);
    void *raw = ddl_mem_alloc(bytes);
    if (!raw)
        return false;
    p->backend->ops->download(p->backend->ctx, raw, p->place[i], bytes);
    for (size_t j = 0; j < b->n; j++)
        out[j] = number_of(b, raw, j);
    ddl_mem_free(raw);
    return true;
}

/* Buffer i as floats; free with ddl_mem_free. NULL if memory ran out. */
static float *fetch(const struct placed *p, size_t i)
{
    const struct bench_buffer *b = &p->k.buffer[i];
    float *out = ddl_mem_alloc(b->n * sizeof *out);
    if (out && !(b->fill == BENCH_Q8 ? fetch_q8 : fetch_numbers)(p, i, out)) {
        ddl_mem_free(out);
        out = NULL;
    }
    return out;
}

static ddl_status compare(const struct placed *found, const struct placed *expected, struct ddl_error *err)
{
    for (size_t i = 0; i < found->k.n_buffers; i++) {
        const struct bench_buffer *b = &found->k.buffer[i];
        if (!(b->use & BENCH_OUT))
            continue;
        float *x = fetch(found, i), *y = fetch(expected, i);
        double off = x && y ? bench_difference(b->n, x, y) : 0;
        bool memory = x && y;
        ddl_mem_free(x);
        ddl_mem_free(y);
        if (!memory)
            return ddl_error_set(err, DDL_E_MEMORY, "bench op: out of memory");
        if (!(off <= found->op->limit))
            return ddl_error_set(
                err, DDL_E_NUMERIC,
                "bench op: %s on %s is off the reference by %.3g of its size, %.3g is allowed: "
                "a wrong result is not timed (run ddl verify)",
                found->op->name, found->backend->description, off, found->op->limit);
    }
    return DDL_OK;
}

static ddl_status check(const struct bench_op *op, const struct bench_sizes *s, ddl_backend *backend,
                        ddl_backend *ref, struct ddl_error *err)
{
    struct placed found, expected;
    struct ddl_audit audit; /* of what is done in bfloat16 */
    ddl_audit_init(&audit, backend);
    ddl_status status = put(&found, op, &audit.profile.backend, s, err);
    if (status)
        return status;
    status = put(&expected, op, ref, s, err);
    if (!status) {
        call(&found);
        call(&expected);
        status = compare(&found, &expected, err);
        if (!status && audit.out_of_memory)
            status = ddl_error_set(err, DDL_E_MEMORY, "bench op: out of memory");
        if (!status && !(audit.worst <= 1))
            status = ddl_error_set(err, DDL_E_NUMERIC,
                                   "bench op: %s on %s: error %.3g of the bound of its operands: expected at "
                                   "most 1: a wrong result is not timed (run ddl verify)",
                                   audit.op, backend->description, audit.worst);
        take_away(&expected);
    }
    take_away(&found);
    return status;
}

static double bytes_touched(const struct bench_case *k, const ddl_backend *backend)
{
    double bytes = k->bytes;
    for (size_t i = 0; i < k->n_buffers; i++) {
        const struct bench_buffer *b = &k->buffer[i];
        double once = (double)bytes_of(b, backend);
        if (!(b->use & BENCH_GATHER))
            bytes += once * (((b->use & BENCH_IN) != 0) + ((b->use & BENCH_OUT) != 0));
    }
    return bytes;
}

static ddl_status time_op(const struct bench_op *op, const struct ddl_bench_op_config *config,
                          const struct bench_sizes *s, ddl_backend *backend, struct ddl_bench_report *out,
                          struct ddl_error *err)
{
    struct placed p;
    ddl_status status = put(&p, op, backend, s, err);
    if (status)
        return status;
    struct ddl_bench_row *row =
        bench_time(out, op->name, backend, call, &p, config->at.warmup, config->at.steps, config->seconds);
    row->flops = p.k.flops;
    row->bytes = bytes_touched(&p.k, backend);
    take_away(&p);
    return DDL_OK;
}

static ddl_status reserve(ddl_backend *backend, const struct bench_sizes *s, struct ddl_error *err)
{
    size_t taps = s->taps > s->K_embed ? s->taps : s->K_embed, most = s->d * s->c * taps;
    size_t mixing = s->n * (s->n + 2), streams = mixing * (s->n * s->d + 2);
    most = most > s->h ? most : s->h;
    most = most > streams ? most : streams;
    return backend->ops->reserve(
        backend->ctx, &(struct ddl_limits){ .d_c_taps = most, .T = s->T, .h = s->h, .widest = 2 * s->m },
        err);
}

static bool wanted(const struct ddl_bench_op_config *config, const struct bench_op *op,
                   const ddl_backend *backend)
{
    if (op->host_arrays && !backend->ops->host_memory)
        return false;
    return !config->filter || strstr(op->name, config->filter);
}

static ddl_status check_all(const struct ddl_bench_op_config *config, ddl_backend *backend,
                            struct ddl_bench_report *out, struct ddl_error *err)
{
    struct bench_sizes full = bench_sizes(&config->at), small = bench_small(full);
    ddl_backend *ref;
    size_t n = 0;
    ddl_status status = ddl_backend_create(&ref, "ref", 1, err);
    if (!status)
        status = reserve(backend, &full, err);
    for (const struct bench_op *op = bench_ops(); !status && op->name; op++) {
        if (!wanted(config, op, backend))
            continue;
        status = check(op, &small, backend, ref, err);
        n++;
    }
    ddl_backend_free(ref);
    if (!status && n == 0)
        return ddl_error_set(err, DDL_E_USAGE, "bench op: no op's name contains '%s'", config->filter);
    snprintf(out->check, sizeof out->check, "%zu ops agree with ref on %zu rows", n, small.N);
    return status;
}

ddl_status ddl_bench_op(const struct ddl_bench_op_config *config, ddl_backend *backend,
                        struct ddl_bench_report *out, struct ddl_error *err)
{
    bench_begin(out, "op", backend);
    bench_set_model(out, &config->at);
    ddl_status status = bench_check_steps(config->at.steps, err);
    if (!status)
        status = ddl_config_check(&config->at.model, err);
    if (!status &&
        (config->at.seq == 0 || config->at.batch == 0 || config->at.batch > INT32_MAX / config->at.seq))
        status =
            ddl_error_set(err, DDL_E_USAGE, "bench op: batch x seq: expected 1 to %d tokens, found %zu x %zu",
                          INT32_MAX, config->at.batch, config->at.seq);
    if (!status)
        status = check_all(config, backend, out, err);
    if (!status && config->at.roofline)
        status = bench_roofline(&out->roofline, backend, err);
    for (const struct bench_op *op = bench_ops(); !status && op->name; op++) {
        struct bench_sizes full = bench_sizes(&config->at);
        if (wanted(config, op, backend))
            status = time_op(op, config, &full, backend, out, err);
    }
    return status;
}
