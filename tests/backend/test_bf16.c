/* What the cases of ops/cases.h do not show of bfloat16 ops: every rounding bit by bit; products whose sums
 * have one order, whose rows exceed the scratch, whose primitives are cached, or that no scratch was reserved
 * for; the loss over all tiles. */
#include "support/backends.h"
#include "support/properties.h"

#include "base/bf16.h"
#include "ops/audit.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

DEFINE_CALL(matmul_bf16, matmul_bf16_args)
DEFINE_CALL(loss_tile, loss_tile_args)

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest, ties to even: chooses between the two neighbors, unlike ddl_bf16_round. */
static uint16_t nearest(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t below = bits & 0xffff0000u, rest = bits & 0xffffu;
    bool up = rest > 0x8000u || (rest == 0x8000u && (below >> 16 & 1u));
    return (uint16_t)((below >> 16) + (up ? 1 : 0));
}

static void every_number_is_rounded_to_nearest(ddl_backend *backend)
{
    enum { N = 1 << 16 };
    float *x = some_floats(N);
    uint16_t *y = malloc(N * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < N; i++) { /* every upper half, with lower halves around the tie */
        static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
        x[i] = of_bits((uint32_t)i << 16 | low[i * 2654435761u % 65521 % 6]);
    }
    backend->ops->cast_bf16(backend->ctx, &(struct cast_bf16_args){ N, x, y });
    for (size_t i = 0; i < N; i++) {
        if (isnan(x[i]))
            assert_true(isnan(ddl_bf16_widen(y[i])));
        else
            assert_int_equal(y[i], nearest(x[i]));
    }
    free(y);
    release_all();
}

static void test_rounding(void **state)
{
    (void)state;
    on_every_set(every_number_is_rounded_to_nearest);
}

/* Kernels that convert to float32 sum in one order: in blocks of A and B of any size, for any number of rows
 * and threads. */
static void test_order_of_sums(void **state)
{
    (void)state;
    enum { M = 230, N = 331, K = 500, FIRST = 101, ROWS = 83 };
    static const struct ddl_limits little = { .summed = 1 }, much = { .summed = 1 << 18 };
    float *once = floats_around((size_t)M * N, NAN, 0), *rows = floats_around((size_t)ROWS * N, NAN, 0);
    struct matmul_bf16_args a = { .trans_b = true,
                                  .M = M,
                                  .N = N,
                                  .K = K,
                                  .alpha = 0.75f,
                                  .A = some_halves((size_t)M * K),
                                  .lda = K,
                                  .B = some_halves((size_t)N * K),
                                  .ldb = K,
                                  .C = once,
                                  .ldc = N };
    const struct matmul_bf16_args all = a;
    for (size_t i = 0; isa_name(i); i++) {
        if (isa_includes(isa_name(i), "avx512bf16")) /* the library's products */
            continue;
        for (size_t threads = 1; threads <= 3; threads++) {
            struct ddl_backend *cpu =
                cpu_backend_within(threads == 2 ? &little : &much, isa_name(i), threads);
            if (!cpu)
                continue;
            a = all, a.C = threads == 1 ? once : floats_around((size_t)M * N, NAN, 0);
            call_matmul_bf16(cpu, &a);
            assert_memory_equal(a.C, once, (size_t)M * N * sizeof *once);
            a.M = ROWS, a.A += (size_t)FIRST * K, a.C = rows;
            call_matmul_bf16(cpu, &a);
            assert_memory_equal(rows, once + (size_t)FIRST * N, (size_t)ROWS * N * sizeof *once);
            ddl_backend_free(cpu);
        }
    }
    release_all();
}

/* A rounded result (C16) is that of the same product rounded, also where its rows do not fit into the
 * backend's memory at once. Without bfloat16 instructions: a library may sum in another order. */
static void test_rounded_products(void **state)
{
    (void)state;
    enum { M = 5, N = 300000, K = 4 };
    static const struct ddl_limits limits = { .summed = 1 };
    float *C = floats_around((size_t)M * N, NAN, 0);
    uint16_t *C16 = malloc((size_t)M * N * sizeof *C16);
    assert_non_null(C16);
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *cpu =
            isa_includes(isa_name(i), "avx512bf16") ? NULL : cpu_backend_within(&limits, isa_name(i), 2);
        for (int trans_a = 0; cpu && trans_a < 2; trans_a++) {
            struct matmul_bf16_args a = { .trans_a = trans_a != 0,
                                          .M = M,
                                          .N = N,
                                          .K = K,
                                          .alpha = 0.75f,
                                          .A = some_halves((size_t)M * K),
                                          .lda = trans_a ? M : K,
                                          .B = some_halves((size_t)K * N),
                                          .ldb = N,
                                          .C = C,
                                          .ldc = N };
            call_matmul_bf16(cpu, &a);
            a.C = NULL, a.C16 = C16;
            memset(C16, 0xff, (size_t)M * N * sizeof *C16);
            call_matmul_bf16(cpu, &a);
            for (size_t j = 0; j < (size_t)M * N; j++)
                assert_int_equal(C16[j], ddl_bf16_round(C[j]));
        }
        ddl_backend_free(cpu);
    }
    free(C16);
    release_all();
}

/* C = A op(B) with contiguous rows on one backend. */
static void check_by_number(struct ddl_backend *cpu, size_t M, size_t N, size_t K, bool trans_b)
{
    struct matmul_bf16_args a = { .trans_b = trans_b,
                                  .M = M,
                                  .N = N,
                                  .K = K,
                                  .alpha = 1,
                                  .A = some_halves(M * K),
                                  .lda = K,
                                  .B = some_halves(K * N),
                                  .ldb = trans_b ? K : N,
                                  .C = floats_around(M * N, NAN, 0),
                                  .ldc = N };
    call_matmul_bf16(cpu, &a);
    double *exact = malloc(2 * M * N * sizeof *exact), *bound = exact + M * N;
    assert_true(ddl_audit_matmul_bf16(&a, NULL, exact, bound));
    double share = ddl_audit_share(M, N, a.C, N, exact, bound);
    if (!(share <= 1))
        fail_msg("%zu x %zu x %zu: error %.3g of its bound", M, N, K, share);
    free(exact);
    release_all();
}

/* More shapes than a backend caches primitives for, twice. */
static void test_many_shapes(void **state)
{
    (void)state;
    enum { SHAPES = 300, SIDE = 2 };
    struct ddl_backend *cpu = cpu_backend(NULL, 2);
    for (size_t round = 0; round < 2; round++) {
        for (size_t n = 1; n <= SHAPES; n++)
            check_by_number(cpu, SIDE, SIDE, n, false);
    }
    ddl_backend_free(cpu);
}

/* Without reserved scratch few rows take another path, and many where the kernels convert to float32. */
static void test_without_scratch(void **state)
{
    (void)state;
    struct ddl_backend *cpu;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&cpu, "cpu", 2, &err), err);
    check_by_number(cpu, 3, 5, 300, true);
    check_by_number(cpu, 70, 90, 300, true);
    ddl_backend_free(cpu);
}

enum { HANDED = 6 };
struct handed {
    struct ddl_backend *cpu;
    struct matmul_bf16_args product[HANDED];
};

static void *make_all(void *user)
{
    const struct handed *h = user;
    for (size_t i = 0; i < HANDED; i++)
        call_matmul_bf16(h->cpu, &h->product[i]);
    return NULL;
}

static void make_in_a_thread(struct handed *h)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_all, h), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* A backend serves one thread at a time, any thread: what it cached in one that has ended is valid in others.
 */
static void check_threads(size_t threads)
{
    static const size_t shapes[HANDED][3] = { { 33, 40, 65 },     { 64, 128, 256 }, { 65, 257, 100 },
                                              { 256, 256, 1024 }, { 9, 1000, 100 }, { 300, 31, 2000 } };
    struct handed h = { .cpu = cpu_backend(NULL, threads) };
    float *first[HANDED];
    for (size_t i = 0; i < HANDED; i++) {
        size_t M = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
        bool trans_a = i & 1, trans_b = i & 2;
        h.product[i] = (struct matmul_bf16_args){ .trans_a = trans_a,
                                                  .trans_b = trans_b,
                                                  .M = M,
                                                  .N = N,
                                                  .K = K,
                                                  .alpha = 1,
                                                  .A = some_halves(M * K),
                                                  .lda = trans_a ? M : K,
                                                  .B = some_halves(K * N),
                                                  .ldb = trans_b ? K : N,
                                                  .C = first[i] = floats_around(M * N, NAN, 0),
                                                  .ldc = N };
    }
    make_in_a_thread(&h);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        for (size_t i = 0; i < HANDED; i++)
            h.product[i].C = floats_around(h.product[i].M * h.product[i].N, NAN, 0);
        if (elsewhere)
            make_in_a_thread(&h);
        else
            make_all(&h);
        for (size_t i = 0; i < HANDED; i++)
            assert_memory_equal(h.product[i].C, first[i], h.product[i].M * h.product[i].N * sizeof **first);
    }
    ddl_backend_free(h.cpu);
    release_all();
}

static void test_products_in_any_thread(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 3; threads++)
        check_threads(threads);
}

/* Rows, columns, columns of a tile. */
static const size_t losses[][3] = {
    { 1, 1, 1 }, { 3, 7, 7 }, { 2, 64, 16 }, { 5, 65, 16 }, { 17, 1000, 256 }, { 33, 515, 512 }, { 4, 9, 2 },
};

static const float grad_scale = 0.125f;

struct loss_case {
    size_t N, V, tile;
    float *z;                        /* (N, V)  */
    int32_t *targets;                /* (N)     */
    float *loss, *grad;              /* of cross_entropy on ref */
    float *top, *at_target, *tile_z; /* scratch */
    double *total;
};

/* Columns [first, first + n), contiguous. */
static void cut_tile(const struct loss_case *c, size_t first, size_t n)
{
    for (size_t row = 0; row < c->N; row++)
        memcpy(c->tile_z + row * n, c->z + row * c->V + first, n * sizeof *c->z);
}

static struct loss_case loss_case;

static void check_tiles(ddl_backend *backend)
{
    const struct loss_case *c = &loss_case;
    float *loss = floats_around(c->N, -1, 0);
    uint16_t *dz = malloc(c->N * c->tile * sizeof *dz);
    for (size_t first = 0; first < c->V; first += c->tile) {
        size_t n = c->V - first < c->tile ? c->V - first : c->tile;
        cut_tile(c, first, n);
        struct loss_tile_args tile = { .N = c->N,
                                       .n = n,
                                       .first = first,
                                       .z = c->tile_z,
                                       .targets = c->targets,
                                       .top = c->top,
                                       .at_target = c->at_target,
                                       .loss = first + n == c->V ? loss : NULL,
                                       .total = c->total };
        call_loss_tile(backend, &tile);
    }
    for (size_t row = 0; row < c->N; row++)
        close_enough((double)loss[row], (double)c->loss[row], 2e-6 * (1 + fabs((double)c->loss[row])),
                     "loss");
    for (size_t first = 0; first < c->V; first += c->tile) {
        size_t n = c->V - first < c->tile ? c->V - first : c->tile;
        cut_tile(c, first, n);
        struct loss_grad_args grad = { c->N,   n,        first,       c->tile_z, c->targets,
                                       c->top, c->total, &grad_scale, dz };
        backend->ops->loss_grad(backend->ctx, &grad);
        for (size_t i = 0; i < c->N * n;
             i++) { /* half a unit in bfloat16's last place, and float32's error */
            double exact = (double)c->grad[i / n * c->V + first + i % n];
            /* float32: exp passes on half a unit in the last place of its argument, below 64 here; 8 u for
             * the rest */
            close_enough((double)ddl_bf16_widen(dz[i]), exact,
                         0x1p-8 * fabs(exact) + 0.125 * (64 + 8) * 0x1p-24, "dz");
        }
    }
    free(dz);
}

static void test_loss_over_tiles(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        struct loss_case c = { .N = losses[i][0], .V = losses[i][1], .tile = losses[i][2] };
        struct ddl_backend *ref;
        c.z = floats_around(c.N * c.V, 3, 8);
        c.grad = floats_around(c.N * c.V, 0, 0);
        memcpy(c.grad, c.z, c.N * c.V * sizeof *c.z);
        c.loss = some_floats(c.N), c.top = some_floats(c.N), c.at_target = some_floats(c.N);
        c.tile_z = some_floats(c.N * c.tile);
        c.total = malloc(c.N * sizeof *c.total);
        c.targets = malloc(c.N * sizeof *c.targets);
        for (size_t n = 0; n < c.N; n++)
            c.targets[n] = n % 4 == 3 ? -1 : (int32_t)(n * 7919 % c.V);
        assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
        ref->ops->cross_entropy(
            ref->ctx, &(struct cross_entropy_args){ c.N, c.V, c.grad, c.targets, true, &grad_scale, c.loss });
        ddl_backend_free(ref);
        loss_case = c;
        on_every_set(check_tiles);
        free(c.total);
        free(c.targets);
        release_all();
    }
}

static void check_optimizer_copy(ddl_backend *backend)
{
    enum { N = 1003 };
    uint16_t p16[N];
    const int64_t begin = 0, size = N;
    const float one = 1, none = 0;
    const double rates[DDL_RATES] = { 0.1, 1, 1 };
    struct adamw_args a = { .parts = { 1, N, N, &begin, &size },
                            .moments = &begin,
                            .copy = &begin,
                            .lr_scale = &one,
                            .weight_decay = &none,
                            .p = some_floats(N),
                            .copies = N,
                            .p16 = p16,
                            .g = some_floats(N),
                            .n_moments = N,
                            .m = some_floats(N),
                            .v = floats_around(N, 1, 0),
                            .g_scale = &one,
                            .rates = rates,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f };
    backend->ops->adamw(backend->ctx, &a);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(p16[i], nearest(a.p[i]));
    release_all();
}

static void test_adamw_rounds_what_it_wrote(void **state)
{
    (void)state;
    on_every_set(check_optimizer_copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),         cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_rounded_products), cmocka_unit_test(test_many_shapes),
        cmocka_unit_test(test_without_scratch),  cmocka_unit_test(test_products_in_any_thread),
        cmocka_unit_test(test_loss_over_tiles),  cmocka_unit_test(test_adamw_rounds_what_it_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
