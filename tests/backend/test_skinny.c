/* Products of few rows with B^T, in float32, bfloat16 and eight bits: every number is right, and a row of C
 * is bitwise the same for any number of rows, whichever they are, and any number of threads. */
#include "backend/q8.h"
#include "support/backends.h"

#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum format { F32, BF16, Q8 };
enum { MOST_ROWS = 64, EVERY = 40 /* numbers of rows up to this are all tried */ };

/* C (M, N) = alpha A B^T, or += : all three forms of the operands, rows contiguous but for ldc. */
struct operands {
    size_t N, K, ldc;
    float *A, *B; /* (MOST_ROWS, K), (N, K): what the reduced forms hold */
    uint16_t *A16, *B16;
    struct ddl_q8 *B8;
};

static float *rounded(size_t n, const float *x, uint16_t *y)
{
    float *wide = floats_around(n, 0, 0);
    for (size_t i = 0; i < n; i++)
        wide[i] = ddl_bf16_widen(y[i] = ddl_bf16_round(x[i]));
    return wide;
}

static struct operands operands_of(enum format format, size_t N, size_t K)
{
    struct operands o = { .N = N, .K = K, .ldc = N + 2 };
    o.A = some_floats(MOST_ROWS * K), o.B = floats_around(N * K, 0.1f, 1);
    o.A16 = calloc(MOST_ROWS * K, sizeof *o.A16), o.B16 = calloc(N * K, sizeof *o.B16);
    o.B8 = calloc(ddl_q8_tiles(N, K) + 1, sizeof *o.B8);
    assert_true(o.A16 && o.B16 && o.B8);
    if (format == BF16) {
        o.A = rounded(MOST_ROWS * K, o.A, o.A16);
        o.B = rounded(N * K, o.B, o.B16);
    }
    if (format != Q8)
        return o;
    struct ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    ref->ops->quantize_q8(ref->ctx, &(struct quantize_q8_args){ N, K, 0, o.B, o.B8 });
    ddl_backend_free(ref);
    for (size_t i = 0; i < N * K; i++) {
        const struct ddl_q8 *tile = o.B8 + i / K / DDL_Q8_ROWS * ddl_q8_groups(K) + i % K / DDL_GROUP;
        size_t lane = i / K % DDL_Q8_ROWS, k = i % K % DDL_GROUP;
        o.B[i] = tile->scale[lane] * (float)tile->q[k / 4][lane][k % 4];
    }
    return o;
}

static void free_operands(struct operands *o)
{
    free(o->A16);
    free(o->B16);
    free(o->B8);
    release_all();
}

/* Rows [m, m + M) of C, at C. */
static void multiply(const struct ddl_backend *cpu, enum format format, const struct operands *o, size_t m,
                     size_t M, bool add, float *C)
{
    const float alpha = add ? -0.5f : 1;
    if (format == F32)
        cpu->ops->matmul(cpu->ctx, &(struct matmul_args){ .trans_b = true,
                                                          .M = M,
                                                          .N = o->N,
                                                          .K = o->K,
                                                          .alpha = alpha,
                                                          .A = o->A + m * o->K,
                                                          .lda = o->K,
                                                          .B = o->B,
                                                          .ldb = o->K,
                                                          .beta = add ? 1 : 0,
                                                          .C = C,
                                                          .ldc = o->ldc });
    else if (format == BF16)
        cpu->ops->matmul_bf16(cpu->ctx, &(struct matmul_bf16_args){ .trans_b = true,
                                                                    .M = M,
                                                                    .N = o->N,
                                                                    .K = o->K,
                                                                    .alpha = alpha,
                                                                    .A = o->A16 + m * o->K,
                                                                    .lda = o->K,
                                                                    .B = o->B16,
                                                                    .ldb = o->K,
                                                                    .beta = add ? 1 : 0,
                                                                    .C = C,
                                                                    .ldc = o->ldc });
    else
        cpu->ops->matmul_q8(cpu->ctx, &(struct matmul_q8_args){ .M = M,
                                                                .N = o->N,
                                                                .K = o->K,
                                                                .alpha = alpha,
                                                                .A = o->A + m * o->K,
                                                                .lda = o->K,
                                                                .B = o->B8,
                                                                .accumulate = add,
                                                                .C = C,
                                                                .ldc = o->ldc });
}

/* What C holds before: NaN where it is only written, numbers of the row where it is added to. */
static void prepare(const struct operands *o, size_t m, size_t M, bool add, float *C)
{
    for (size_t i = 0; i < M * o->ldc; i++) {
        size_t row = m + i / o->ldc, column = i % o->ldc;
        C[i] = column >= o->N ? 7 : add ? (float)(row * 31 + column * 17) / 64 : NAN;
    }
}

/* Largest error of a number: of its sum of K products in float32, and of A where eight-bit weights are
 * multiplied with digits of A, each at most 2^-23 of its group's largest number off (by half a step of at
 * most 2^-22, a little more for the digits' range). */
static double limit_of(enum format format, const struct operands *o, const float *a, const float *b,
                       bool digits)
{
    const double unit = 0x1p-23, step = 1.004 * 0x1p-23;
    double limit = 0, largest = 0;
    for (size_t k = 0; k < o->K; k++) {
        if (k % DDL_GROUP == 0) {
            largest = 0;
            for (size_t i = k; i < o->K && i < k + DDL_GROUP; i++)
                largest = fmax(largest, fabs((double)a[i]));
        }
        limit += ((double)o->K + 8) * unit * fabs((double)a[k] * (double)b[k]);
        if (format == Q8 && digits)
            limit += step * largest * fabs((double)b[k]);
    }
    return limit;
}

static void check_numbers(enum format format, const struct operands *o, const float *C, bool digits)
{
    for (size_t i = 0; i < EVERY * o->N; i++) {
        const float *a = o->A + i / o->N * o->K, *b = o->B + i % o->N * o->K;
        double expected = 0, found = (double)C[i / o->N * o->ldc + i % o->N];
        for (size_t k = 0; k < o->K; k++)
            expected += (double)a[k] * (double)b[k];
        assert_true(fabs(found - expected) <= limit_of(format, o, a, b, digits));
    }
}

/* Rows m and on of a product, against each row alone. */
static void check_rows(const struct ddl_backend *cpu, enum format format, const struct operands *o, size_t m,
                       size_t M, bool add, const float *alone)
{
    float *C = malloc(M * o->ldc * sizeof *C);
    assert_non_null(C);
    prepare(o, m, M, add, C);
    multiply(cpu, format, o, m, M, add, C);
    if (memcmp(C, alone + m * o->ldc, M * o->ldc * sizeof *C) != 0)
        fail_msg("%s, format %d: rows [%zu, %zu) of (N %zu, K %zu) differ from each alone", cpu->description,
                 (int)format, m, m + M, o->N, o->K);
    free(C);
}

static void check_shape(enum format format, size_t N, size_t K, size_t isa, bool add)
{
    struct operands o = operands_of(format, N, K);
    float *alone = floats_around(MOST_ROWS * o.ldc, 0, 0);
    for (size_t threads = 1; threads <= 3; threads++) {
        struct ddl_backend *cpu = cpu_backend(isa_name(isa), threads);
        for (size_t m = 0; cpu && threads == 1 && m < MOST_ROWS; m++) {
            prepare(&o, m, 1, add, alone + m * o.ldc);
            multiply(cpu, format, &o, m, 1, add, alone + m * o.ldc);
        }
        if (cpu && threads == 1 && !add)
            check_numbers(format, &o, alone, isa_includes(isa_name(isa), "avx512vnni"));
        for (size_t M = 1; cpu && M <= EVERY; M++)
            check_rows(cpu, format, &o, M % 3 * 7, M, add, alone);
        if (cpu)
            check_rows(cpu, format, &o, 0, MOST_ROWS, add, alone);
        ddl_backend_free(cpu);
    }
    free_operands(&o);
}

static void check_format(enum format format)
{
    static const size_t shapes[][2] = { { 1, 1 },    { 3, 5 },   { 7, 63 },   { 33, 100 }, { 19, 257 },
                                        { 130, 95 }, { 70, 32 }, { 257, 64 }, { 65, 768 } };
    for (size_t isa = 0; isa_name(isa); isa++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            check_shape(format, shapes[i][0], shapes[i][1], isa, false);
            check_shape(format, shapes[i][0], shapes[i][1], isa, true);
        }
    }
}

static void test_f32(void **state)
{
    (void)state;
    check_format(F32);
}

static void test_bf16(void **state)
{
    (void)state;
    check_format(BF16);
}

static void test_q8(void **state)
{
    (void)state;
    check_format(Q8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_q8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
