#include "ops/audit.h"

#include "base/bf16.h"
#include "base/mem.h"
#include "ops/operands.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double unit = 0x1p-24; /* half of float32's distance from 1 to the next number */

/* ---- host copies ---- */

/* A call whose operands are on the host. */
struct host_call {
    union ddl_op_args args;
    struct ddl_op_use use;
    void *copy[DDL_MOST_OPERANDS];
};

/* An operand of backend memory on the host, or NULL if there is no memory. Free with ddl_mem_free. */
static void *fetch(struct ddl_audit *audit, const struct ddl_operand *operand, const void *args)
{
    const struct ddl_backend *real = audit->profile.real;
    size_t bytes = ddl_operand_bytes(operand, real);
    void *host = ddl_mem_alloc(bytes);
    if (host && bytes)
        real->ops->download(real->ctx, host, ddl_operand_get(operand, args), bytes);
    if (!host)
        audit->out_of_memory = true;
    return host;
}

/* False if there is no memory; freed with free_call then too. */
static bool fetch_call(struct ddl_audit *audit, enum ddl_op op, const void *args, struct host_call *call)
{
    bool done = true;
    *call = (struct host_call){ 0 };
    memcpy(&call->args, args, ddl_op_args_size(op));
    ddl_op_describe(op, args, &call->use);
    for (size_t i = 0; done && i < call->use.n; i++) {
        const struct ddl_operand *o = &call->use.operand[i];
        if (!ddl_operand_get(o, args))
            continue;
        call->copy[i] = fetch(audit, o, args);
        ddl_operand_set(o, &call->args, call->copy[i]);
        done = call->copy[i] != NULL;
    }
    return done;
}

static void free_call(struct host_call *call)
{
    for (size_t i = 0; i < call->use.n; i++)
        ddl_mem_free(call->copy[i]);
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

enum { COLUMNS = 4 };

/* Matrix (K, N) of op(x) as float32 in blocks of COLUMNS columns, (K, COLUMNS) each; zeros fill the last one.
 */
static float *packed(bool trans, size_t K, size_t N, const uint16_t *x, size_t stride)
{
    size_t blocks = (N + COLUMNS - 1) / COLUMNS;
    float *y = ddl_mem_zalloc(blocks * K * COLUMNS * sizeof *y);
    for (size_t n = 0; y && n < N; n++) {
        float *column = y + n / COLUMNS * K * COLUMNS + n % COLUMNS;
        for (size_t k = 0; k < K; k++)
            column[k * COLUMNS] = ddl_bf16_widen(trans ? x[n * stride + k] : x[k * stride + n]);
    }
    return y;
}

static bool has_subnormals(const float *x, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || (x[i] != 0 && fabsf(x[i]) < FLT_MIN);
    return any;
}

/* Of COLUMNS columns: sums of a b, of |a b|, and of |a b| where a or b is subnormal. */
struct sums {
    double value[COLUMNS], sizes[COLUMNS], flushed[COLUMNS];
};

/* Of a row and a block of columns, whose additions do not wait for each other. */
static struct sums exact_sums(size_t K, const float *a, const float *b, bool subnormals)
{
    struct sums s = { 0 };
    for (size_t k = 0; k < K; k++) {
        for (size_t j = 0; j < COLUMNS; j++) {
            double product = (double)a[k] * (double)b[k * COLUMNS + j];
            s.value[j] += product;
            s.sizes[j] += fabs(product);
        }
    }
    for (size_t i = 0; subnormals && i < K * COLUMNS; i++) {
        float x = a[i / COLUMNS];
        if (fabsf(x) < FLT_MIN || fabsf(b[i]) < FLT_MIN)
            s.flushed[i % COLUMNS] += fabs((double)x * (double)b[i]);
    }
    return s;
}

/* The exact number at (row, column), and the limit of its error. */
static void limit_number(const struct matmul_bf16_args *a, const float *before, size_t row, size_t column,
                         const struct sums *s, size_t j, double *exact, double *bound)
{
    double alpha = (double)a->alpha, roundings = (double)a->K + 4;
    double added = a->beta == 0 ? 0 : (double)a->beta * (double)before[row * a->ldc + column];
    *exact = alpha * s->value[j] + added;
    *bound = roundings *
                 (unit * (fabs(alpha) * s->sizes[j] + fabs(added)) + fmax(1, fabs(alpha)) * (double)FLT_MIN) +
             fabs(alpha) * s->flushed[j];
    *bound += a->C16 ? 0x1p-8 * (fabs(*exact) + *bound) : 0;
    *bound = isfinite(*bound) ? *bound : (double)INFINITY;
}

bool ddl_audit_matmul_bf16(const struct matmul_bf16_args *a, const float *before, double *exact,
                           double *bound)
{
    float *A = widened(a->trans_a, a->M, a->K, a->A, a->lda);
    float *B = packed(a->trans_b, a->K, a->N, a->B, a->ldb);
    bool subnormals = A && B &&
                      (has_subnormals(A, a->M * a->K) ||
                       has_subnormals(B, (a->N + COLUMNS - 1) / COLUMNS * COLUMNS * a->K));
    for (size_t row = 0; A && B && row < a->M; row++) {
        for (size_t n = 0; n < a->N; n += COLUMNS) {
            struct sums s = exact_sums(a->K, A + row * a->K, B + n * a->K, subnormals);
            for (size_t j = 0; j < COLUMNS && n + j < a->N; j++)
                limit_number(a, before, row, n + j, &s, j, &exact[row * a->N + n + j],
                             &bound[row * a->N + n + j]);
        }
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
    struct ddl_op_use use;
    ddl_op_describe(DDL_OP_matmul_bf16, a, &use);
    const struct ddl_operand *C = ddl_operand_find(&use, "C");
    ddl_mem_free(audit->before);
    audit->before = C->access == DDL_UPDATE ? fetch(audit, C, a) : NULL;
}

/* C of a result in bfloat16. */
static float *widened_result(const struct matmul_bf16_args *a)
{
    size_t n = a->M && a->N ? (a->M - 1) * a->ldc + a->N : 0;
    float *C = ddl_mem_alloc(n * sizeof *C);
    for (size_t i = 0; C && i < n; i++)
        C[i] = ddl_bf16_widen(a->C16[i]);
    return C;
}

static void check_matmul(struct ddl_audit *audit, const union ddl_op_args *args)
{
    const struct matmul_bf16_args *a = &args->matmul_bf16;
    double *exact = ddl_mem_alloc(2 * a->M * a->N * sizeof *exact), *bound = exact + a->M * a->N;
    float *C16 = a->C16 ? widened_result(a) : NULL;
    const float *C = a->C16 ? C16 : a->C;
    if (C && exact && (a->beta == 0 || audit->before) &&
        ddl_audit_matmul_bf16(a, audit->before, exact, bound))
        note(audit, ddl_audit_share(a->M, a->N, C, a->ldc, exact, bound), "matmul_bf16", a->M, a->N,
             a->K ? a->K : 1);
    else
        audit->out_of_memory = true;
    ddl_mem_free(exact);
    ddl_mem_free(C16);
    ddl_mem_free(audit->before);
    audit->before = NULL;
}

/* ---- rounding ---- */

static bool is_rounded(float x, uint16_t y)
{
    return isnan(x) ? isnan(ddl_bf16_widen(y)) : y == ddl_bf16_round(x);
}

static bool are_rounded(size_t n, const float *x, const uint16_t *y)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && is_rounded(x[i], y[i]);
    return all;
}

static void check_copy(struct ddl_audit *audit, const union ddl_op_args *args)
{
    const struct copy_bf16_args *a = &args->copy_bf16;
    for (size_t b = 0; b < (a->batch ? a->batch : 1); b++) {
        const float *x = a->src + b * a->src_batch;
        const uint16_t *y = a->dst + b * a->dst_batch;
        bool exact = true;
        for (size_t i = 0; i < a->rows; i++)
            exact = exact && are_rounded(a->width, x + i * a->src_stride, y + i * a->dst_stride);
        note(audit, exact ? 0 : (double)INFINITY, "copy_bf16", a->rows, a->width, 0);
    }
}

static void check_cast(struct ddl_audit *audit, const union ddl_op_args *args)
{
    const struct cast_bf16_args *a = &args->cast_bf16;
    note(audit, are_rounded(a->n, a->x, a->y) ? 0 : (double)INFINITY, "cast_bf16", 1, a->n, 0);
}

/* The copies of the updated parts. */
static void check_adamw(struct ddl_audit *audit, const union ddl_op_args *args)
{
    const struct adamw_args *a = &args->adamw;
    for (size_t i = 0; a->p16 && i < a->parts.n; i++) {
        size_t n = (size_t)a->parts.size[i];
        if (n && a->copy[i] >= 0)
            note(audit, are_rounded(n, a->p + a->parts.begin[i], a->p16 + a->copy[i]) ? 0 : (double)INFINITY,
                 "adamw", 1, n, 0);
    }
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

static void check_loss_grad(struct ddl_audit *audit, const union ddl_op_args *args)
{
    const struct loss_grad_args *a = &args->loss_grad;
    double worst = 0;
    for (size_t i = 0; i < a->N * a->n; i++) {
        size_t row = i / a->n;
        int32_t target = a->targets[row];
        double share = loss_grad_share(target < 0 ? 0 : (double)*a->grad_scale, a->z[i], a->top[row],
                                       a->total[row], target == (int32_t)(a->first + i % a->n), a->dz[i]);
        worst = isnan(share) ? (double)INFINITY : fmax(worst, share);
    }
    note(audit, worst, "loss_grad", a->N, a->n, 0);
}

/* ---- hooks ---- */

typedef void check_fn(struct ddl_audit *audit, const union ddl_op_args *args);

/* NULL: the op is not audited. */
static check_fn *const checks[DDL_OP_COUNT] = { [DDL_OP_matmul_bf16] = check_matmul,
                                                [DDL_OP_cast_bf16] = check_cast,
                                                [DDL_OP_copy_bf16] = check_copy,
                                                [DDL_OP_loss_grad] = check_loss_grad,
                                                [DDL_OP_adamw] = check_adamw };

static void before_op(void *user, int op, const void *args)
{
    if (op == DDL_OP_matmul_bf16)
        keep_before(user, args);
}

static void after_op(void *user, int op, const void *args)
{
    struct host_call call;
    if (!checks[op])
        return;
    if (fetch_call(user, (enum ddl_op)op, args, &call))
        checks[op](user, &call.args);
    free_call(&call);
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
