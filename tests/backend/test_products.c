/* Matrix products and attention: cpu against ref. */
#include "support/backends.h"

#include <math.h>

DEFINE_CALL(matmul, matmul_args)
DEFINE_CALL(attention_fwd, attention_args)
DEFINE_CALL(attention_bwd, attention_grad_args)

static void check_matmul(size_t M, size_t N, size_t K, bool trans_a, bool trans_b, float alpha, float beta)
{
    size_t lda = (trans_a ? M : K) + 3, ldb = (trans_b ? K : N) + 1, ldc = N + 2;
    struct matmul_args a = { .trans_a = trans_a,
                             .trans_b = trans_b,
                             .M = M,
                             .N = N,
                             .K = K,
                             .alpha = alpha,
                             .beta = beta,
                             .lda = lda,
                             .ldb = ldb,
                             .ldc = ldc,
                             .A = some_floats((trans_a ? K : M) * lda),
                             .B = some_floats((trans_b ? N : K) * ldb) };
    struct output out[] = { { &a.C, M * ldc, 2e-6, before_product(M, N, ldc, beta), NULL } };
    COMPARE(matmul, a, out);
    release_all();
}

static void test_matmul(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        { 1, 1, 1 },      { 1, 7, 63 },    { 7, 1, 5 },    { 3, 5, 7 },     { 1, 700, 100 },
        { 2, 513, 100 },  { 4, 130, 768 }, { 5, 63, 100 }, { 6, 513, 100 }, { 7, 300, 333 },
        { 8, 700, 96 },   { 9, 700, 96 },  { 63, 64, 65 }, { 100, 1, 300 }, { 100, 129, 7 },
        { 65, 257, 100 }, { 0, 4, 4 },     { 4, 0, 4 },    { 3, 4, 0 },     { 40, 50, 0 },
    };
    each_product(sizeof shapes / sizeof *shapes, shapes, check_matmul);
}

/* B, T, H, h, past: single tokens against a cache, strips and blocks and a bit, several pieces of keys, whose
 * borders lie within a strip where there is a past. */
static const size_t cases[][5] = {
    { 0, 3, 1, 4, 0 },     { 1, 1, 1, 1, 0 },      { 2, 1, 3, 8, 70 },   { 3, 2, 2, 7, 5 },
    { 2, 7, 3, 64, 0 },    { 1, 64, 2, 64, 0 },    { 2, 65, 1, 63, 0 },  { 1, 100, 2, 32, 30 },
    { 1, 200, 2, 128, 0 }, { 1, 1, 6, 64, 900 },   { 1, 9, 2, 256, 3 },  { 2, 8, 2, 33, 130 },
    { 3, 1, 2, 24, 0 },    { 1, 1, 3, 100, 0 },    { 1, 12, 1, 16, 0 },  { 1, 97, 1, 31, 575 },
    { 1, 30, 2, 32, 560 }, { 1, 40, 1, 17, 1140 }, { 1, 9, 1, 8, 1150 }, { 2, 577, 1, 12, 0 },
    { 1, 1160, 1, 34, 0 },
};

static void test_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const size_t *c = cases[i / 2];
        bool halves = i % 2; /* keys and values in bfloat16 */
        size_t B = c[0], T = c[1], H = c[2], h = c[3], past = c[4];
        size_t width = H * h, N = B * T, span = past + T, stride = width + 3;
        size_t k_batch = (span + 2) * stride, v_batch = (span + 1) * width;
        struct attention_args f = { .B = B,
                                    .T = T,
                                    .H = H,
                                    .h = h,
                                    .past = past,
                                    .scale = 1 / sqrtf((float)h),
                                    .q = floats_around(N * stride, 0, 2),
                                    .q_stride = stride,
                                    .k = halves ? NULL : some_floats(B * k_batch),
                                    .k16 = halves ? some_halves(B * k_batch) : NULL,
                                    .k_stride = stride,
                                    .k_batch = k_batch,
                                    .v = halves ? NULL : some_floats(B * v_batch),
                                    .v16 = halves ? some_halves(B * v_batch) : NULL,
                                    .v_stride = width,
                                    .v_batch = v_batch };
        struct output fwd[] = { { &f.y, N * width, 2e-6, NULL, NULL }, { &f.lse, N * H, 2e-6, NULL, NULL } };
        COMPARE(attention_fwd, f, fwd);
        f.lse = NULL;
        struct output no_lse[] = { { &f.y, N * width, 2e-6, NULL, NULL } };
        COMPARE(attention_fwd, f, no_lse);
        release_all();
    }
}

/* The gradients of a query that sees one key, and of that key by it, are exactly zero (T = 1). */
static void test_attention_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t B = cases[i][0], T = cases[i][1], H = cases[i][2], h = cases[i][3];
        size_t width = H * h, N = B * T, stride = 3 * width, n = N * stride;
        float *qkv = some_floats(n), *y = some_floats(N * width), *lse = some_floats(N * H);
        struct ddl_backend *ref;
        assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
        call_attention_fwd(ref, &(struct attention_args){ .B = B,
                                                          .T = T,
                                                          .H = H,
                                                          .h = h,
                                                          .scale = 1 / sqrtf((float)h),
                                                          .q = qkv,
                                                          .q_stride = stride,
                                                          .k = qkv + width,
                                                          .k_stride = stride,
                                                          .k_batch = T * stride,
                                                          .v = qkv + 2 * width,
                                                          .v_stride = stride,
                                                          .v_batch = T * stride,
                                                          .y = y,
                                                          .lse = lse });
        ddl_backend_free(ref);
        struct attention_grad_args b = { .B = B,
                                         .T = T,
                                         .H = H,
                                         .h = h,
                                         .scale = 1 / sqrtf((float)h),
                                         .q = qkv,
                                         .k = qkv + width,
                                         .v = qkv + 2 * width,
                                         .q_stride = stride,
                                         .k_stride = stride,
                                         .v_stride = stride,
                                         .y = y,
                                         .lse = lse,
                                         .dy = some_floats(N * width),
                                         .dq_stride = width,
                                         .dk_stride = width + 1,
                                         .dv_stride = width + 2 };
        float *gaps = some_floats(N * (width + 2)); /* between rows: stays */
        struct output bwd[] = { { &b.dq, N * width, 5e-6, NULL, NULL },
                                { &b.dk, N * (width + 1), 5e-6, gaps, NULL },
                                { &b.dv, N * (width + 2), 5e-6, gaps, NULL } };
        COMPARE(attention_bwd, b, bwd);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
