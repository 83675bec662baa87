#include "ops/audit.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double unit = 0x1p-24; /* half of float32's distance from 1 to the next number */

/* ---- host copies ---- */

/* Numbers that `rows` rows of `width` with that stride span. */
static size_t span(size_t rows, size_t width, size_t stride)
{
    return rows && width ? (rows - 1) * stride + width : 0;
}

/* n numbers of backend memory on the host; NULL if there is no memory. Free with ddl_mem_free. */
static void *fetch(struct ddl_audit *audit, const void *from, size_t n, size_t size)
{
    const struct ddl_backend *real = audit->profile.real;
    void *host = ddl_mem_alloc(n * size);
    if (host && n)
        real->ops->download(real->ctx, host, from, n * size);
    if (!host)
        audit->out_of_memory = true;
    return host;
}

static void note(struct ddl_audit *audit, double share, const char *op, size_t rows, size_t columns, size_t K)
{
    audit->calls++;
    if (isnan(share))
        share = INFINITY;
    if (share <= audit->worst && audit->calls > 1)
        return;
    audit->worst = share;
    if (K)
        snprintf(audit->op, sizeof audit->op, "%s %zu x %zu x %zu", op, rows, columns, K);
    else
        snprintf(audit->op, sizeof audit->op, "%s %zu x %zu", op, rows, columns);
}

/* ---- products ---- */

/* Matrix (rows, columns) of op(x) as float32, rows contiguous. */
static float *widened(bool trans, size_t rows, size_t columns, const uint16_t *x, size_t stride)
{
    float *y = ddl_mem_alloc(rows * columns * sizeof *y);
    for (size_t i = 0; y && i < rows; i++) {
        for (size_t j = 0; j < columns; j++)
            y[i * columns + j] = ddl_bf16_widen(trans ? x[j * stride + i] : x[i * stride + j]);
    }
    return y;
}

struct sum {
    double value, sizes, flushed; /* sum of a b, of |a b|, and of |a b| where a or b is subnormal */
};

static struct sum exact_sum(size_t K, const float *a, const float *b)
{
    struct sum s = { 0 };
    for (size_t k = 0; k < K; k++) {
        double product = (double)a[k] * (double)b[k];
        s.value += product;
        s.sizes += fabs(product);
        if (fabsf(a[k]) < FLT_MIN || fabsf(b[k]) < FLT_MIN)
            s.flushed += fabs(product);
    }
    return s;
}

bool ddl_audit_matmul_bf16(const struct matmul_bf16_args *a, const float *before, double *exact,
                           double *bound)
{
    float *A = widened(a->trans_a, a->M, a->K, a->A, a->lda);
    float *B = widened(!a->trans_b, a->N, a->K, a->B, a->ldb);
    double alpha = (double)a->alpha, roundings = (double)a->K + 4;
    for (size_t i = 0; A && B && i < a->M * a->N; i++) {
        size_t row = i / a->N, column = i % a->N;
        struct sum s = exact_sum(a->K, A + row * a->K, B + column * a->K);
        double added = a->beta == 0 ? 0 : (double)a->beta * (double)before[row * a->ldc + column];
        exact[i] = alpha * s.value + added;
        bound[i] = roundings * (unit * (fabs(alpha) * s.sizes + fabs(added)) + (double)FLT_MIN) +
                   fabs(alpha) * s.flushed;
        bound[i] += a->C16 ? 0x1p-8 * (fabs(exact[i]) + bound[i]) : 0;
        bound[i] = isfinite(bound[i]) ? bound[i] : (double)INFINITY;
    }
    bool done = A && B;
    ddl_mem_free(A);
    ddl_mem_free(B);
    return done;
}

double ddl_audit_share(size_t M, size_t N, const float *C, size_t ldc, const double *exact,
                       const double *bound)
{
    double worst = 0;
    for (size_t i = 0; i < M * N; i++) {
        double error = fabs((double)C[i / N * ldc + i % N] - exact[i]);
        double share = isinf(bound[i]) ? 0 : error / bound[i];
        worst = isnan(share) ? (double)INFINITY : fmax(worst, share);
    }
    return worst;
}

static void keep_before(struct ddl_audit *audit, const struct matmul_bf16_args *a)
{
    ddl_mem_free(audit->before);
    audit->before = NULL;
    if (a->beta != 0)
        audit->before = fetch(audit, a->C, span(a->M, a->N, a->ldc), sizeof *a->C);
}

/* C as float32 on the host. */
static float *fetch_result(struct ddl_audit *audit, const struct matmul_bf16_args *a)
{
    size_t n = span(a->M, a->N, a->ldc);
    if (!a->C16)
        return fetch(audit, a->C, n, sizeof *a->C);
    uint16_t *rounded = fetch(audit, a->C16, n, sizeof *rounded);
    float *C = rounded ? ddl_mem_alloc(n * sizeof *C) : NULL;
    for (size_t i = 0; C && i < n; i++)
        C[i] = ddl_bf16_widen(rounded[i]);
    ddl_mem_free(rounded);
    return C;
}

static void after_matmul(struct ddl_audit *audit, const struct matmul_bf16_args *a)
{
    struct matmul_bf16_args host = *a;
    uint16_t *A = fetch(audit, a->A, span(a->trans_a ? a->K : a->M, a->trans_a ? a->M : a->K, a->lda), 2);
    uint16_t *B = fetch(audit, a->B, span(a->trans_b ? a->N : a->K, a->trans_b ? a->K : a->N, a->ldb), 2);
    float *C = fetch_result(audit, a);
    host.A = A, host.B = B, host.C = C;
    double *exact = ddl_mem_alloc(2 * a->M * a->N * sizeof *exact), *bound = exact + a->M * a->N;
    if (A && B && C && exact && (a->beta == 0 || audit->before) &&
        ddl_audit_matmul_bf16(&host, audit->before, exact, bound))
        note(audit, ddl_audit_share(a->M, a->N, C, a->ldc, exact, bound), "matmul_bf16", a->M, a->N,
             a->K ? a->K : 1);
    else
        audit->out_of_memory = true;
    ddl_mem_free(exact);
    ddl_mem_free(A);
    ddl_mem_free(B);
    ddl_mem_free(C);
    ddl_mem_free(audit->before);
    audit->before = NULL;
}

/* ---- rounding ---- */

static bool is_rounded(float x, uint16_t y)
{
    return isnan(x) ? isnan(ddl_bf16_widen(y)) : y == ddl_bf16_round(x);
}

/* The first matrix. */
static void after_rounding(struct ddl_audit *audit, const char *op, const struct copy_bf16_args *a)
{
    float *x = fetch(audit, a->src, span(a->rows, a->width, a->src_stride), sizeof *x);
    uint16_t *y = fetch(audit, a->dst, span(a->rows, a->width, a->dst_stride), sizeof *y);
    bool exact = true;
    for (size_t i = 0; x && y && i < a->rows; i++) {
        for (size_t j = 0; j < a->width; j++)
            exact = exact && is_rounded(x[i * a->src_stride + j], y[i * a->dst_stride + j]);
    }
    if (x && y)
        note(audit, exact ? 0 : (double)INFINITY, op, a->rows, a->width, 0);
    ddl_mem_free(x);
    ddl_mem_free(y);
}

static void after_copy(struct ddl_audit *audit, const struct copy_bf16_args *a)
{
    for (size_t b = 0; b < (a->batch ? a->batch : 1) && !audit->out_of_memory; b++) {
        struct copy_bf16_args one = *a;
        one.src += b * a->src_batch;
        one.dst += b * a->dst_batch;
        after_rounding(audit, "copy_bf16", &one);
    }
}

static void after_contiguous(struct ddl_audit *audit, const char *op, size_t n, const float *x, uint16_t *y)
{
    const struct copy_bf16_args a = {
        .rows = 1, .width = n, .src = x, .src_stride = n, .dst = y, .dst_stride = n
    };
    after_rounding(audit, op, &a);
}

/* The copies of the updated parts. */
static void after_adamw(struct ddl_audit *audit, const struct adamw_args *a)
{
    size_t n = a->p16 ? a->parts.n : 0;
    int64_t *begin = fetch(audit, a->parts.begin, n, sizeof *begin);
    int64_t *size = fetch(audit, a->parts.size, n, sizeof *size);
    int64_t *copy = fetch(audit, a->copy, n, sizeof *copy);
    for (size_t i = 0; begin && size && copy && i < n; i++) {
        if (size[i] && copy[i] >= 0)
            after_contiguous(audit, "adamw", (size_t)size[i], a->p + begin[i], a->p16 + copy[i]);
    }
    ddl_mem_free(begin);
    ddl_mem_free(size);
    ddl_mem_free(copy);
}

/* ---- the loss's gradient ---- */

/* dz = scale (p - [target]), p = exp(z - top) / total. In float32 the argument z - top is off by half a unit
 * in its last place, which exp passes on: |z - top| u of p. The exponential itself, the division and the
 * product are off by a few u, 8 together. */
static double loss_grad_share(double scale, float z, float top, double total, bool is_target, uint16_t dz)
{
    double at = (double)z - (double)top, exact = scale * (exp(at) / total - is_target);
    double bound = 0x1p-8 * fabs(exact) + fabs(scale) * (fabs(at) + 8) * unit + (double)FLT_MIN;
    return fabs((double)ddl_bf16_widen(dz) - exact) / bound;
}

static void after_loss_grad(struct ddl_audit *audit, const struct loss_grad_args *a)
{
    float *z = fetch(audit, a->z, a->N * a->n, sizeof *z), *top = fetch(audit, a->top, a->N, sizeof *top);
    double *total = fetch(audit, a->total, a->N, sizeof *total), worst = 0;
    int32_t *targets = fetch(audit, a->targets, a->N, sizeof *targets);
    uint16_t *dz = fetch(audit, a->dz, a->N * a->n, sizeof *dz);
    float *scale = fetch(audit, a->grad_scale, 1, sizeof *scale);
    if (z && top && total && targets && dz && scale) {
        for (size_t i = 0; i < a->N * a->n; i++) {
            size_t row = i / a->n;
            bool is_target = targets[row] == (int32_t)(a->first + i % a->n);
            double share = loss_grad_share(targets[row] < 0 ? 0 : (double)*scale, z[i], top[row], total[row],
                                           is_target, dz[i]);
            worst = isnan(share) ? (double)INFINITY : fmax(worst, share);
        }
        note(audit, worst, "loss_grad", a->N, a->n, 0);
    }
    ddl_mem_free(z);
    ddl_mem_free(top);
    ddl_mem_free(total);
    ddl_mem_free(targets);
    ddl_mem_free(dz);
    ddl_mem_free(scale);
}

/* ---- hooks ---- */

static void before_op(void *user, int op, const void *args)
{
    if (op == DDL_OP_matmul_bf16)
        keep_before(user, args);
}

static void after_op(void *user, int op, const void *args)
{
    struct ddl_audit *audit = user;
    if (op == DDL_OP_matmul_bf16) {
        after_matmul(audit, args);
    } else if (op == DDL_OP_cast_bf16) {
        const struct cast_bf16_args *a = args;
        after_contiguous(audit, "cast_bf16", a->n, a->x, a->y);
    } else if (op == DDL_OP_copy_bf16) {
        after_copy(audit, args);
    } else if (op == DDL_OP_loss_grad) {
        after_loss_grad(audit, args);
    } else if (op == DDL_OP_adamw) {
        after_adamw(audit, args);
    }
}

void ddl_audit_init(struct ddl_audit *audit, struct ddl_backend *real)
{
    *audit = (struct ddl_audit){ 0 };
    ddl_profile_init(&audit->profile, real);
    audit->profile.watch = before_op;
    audit->profile.after = after_op;
    audit->profile.watch_user = audit;
}

ddl_status ddl_audit_check(const struct ddl_audit *audit, struct ddl_error *err)
{
    if (audit->out_of_memory)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the operands of an op");
    if (!(audit->worst <= 1))
        return ddl_error_set(err, DDL_E_NUMERIC, "%s on %s: error %.3g of its bound: expected at most 1",
                             audit->op, audit->profile.real->description, audit->worst);
    return DDL_OK;
}
