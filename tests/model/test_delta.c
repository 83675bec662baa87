#include "support/delta_case.h"
#include "support/device_stub.h"
#include "support/properties.h"

#include "base/mem.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_forward(const struct delta_case *p, struct delta_variant k)
{
    float *X = poisoned_floats(p->N * p->d * p->c), *readout = poisoned_floats(p->N * p->c);
    double *unit = malloc(p->d * sizeof *unit);
    for (size_t n = 0; n < p->N; n++) {
        double read, beta = (double)p->beta[n];
        delta_direction(p->d, p->q + n * p->d, k.form, unit, &read);
        for (size_t j = 0; j < p->c; j++) {
            double at = 0, v = (double)p->v[n * p->c + j];
            for (size_t i = 0; i < p->d; i++)
                at += unit[i] * (double)p->X[(n * p->d + i) * p->c + j];
            at *= read;
            double delta = beta * (k.update == DDL_UPDATE_WRITE   ? v
                                   : k.update == DDL_UPDATE_ERASE ? -at
                                                                  : v - at);
            readout[n * p->c + j] = (float)at;
            for (size_t i = 0; i < p->d; i++) {
                size_t ij = (n * p->d + i) * p->c + j;
                X[ij] = (float)((double)p->X[ij] + unit[i] * delta);
            }
        }
    }
    assert_close(p->N * p->d * p->c, p->X_out, X, 1e-6);
    assert_close(p->N * p->c, p->readout, readout, 2e-6);
    free(unit);
    ddl_mem_free(X);
    ddl_mem_free(readout);
}

static void forward_is_the_definition(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES; i++) {
        for (size_t k = 0; k < N_DELTA_VARIANTS; k++) {
            struct delta_case p =
                delta_case_make(delta_shapes[i][0], delta_shapes[i][1], delta_shapes[i][2], 10 * i);
            delta_forward(backend, &p, delta_variants[k]);
            check_forward(&p, delta_variants[k]);
            delta_case_free(&p);
        }
    }
}

static void every_width_of_the_value(ddl_backend *backend)
{
    for (size_t c = 1; c <= 17; c++) {
        struct delta_case p = delta_case_make(3, 21, c, 900 + c);
        delta_forward(backend, &p, delta_variants[0]);
        check_forward(&p, delta_variants[0]);
        delta_case_free(&p);
    }
}

/* A (n x n) destroyed. */
static double determinant(size_t n, double *A)
{
    double det = 1;
    for (size_t k = 0; k < n; k++) {
        size_t best = k;
        for (size_t i = k + 1; i < n; i++)
            best = fabs(A[i * n + k]) > fabs(A[best * n + k]) ? i : best;
        for (size_t j = 0; j < n && best != k; j++) {
            double t = A[k * n + j];
            A[k * n + j] = A[best * n + j];
            A[best * n + j] = t;
        }
        det *= best == k ? A[k * n + k] : -A[k * n + k];
        for (size_t i = k + 1; i < n; i++) {
            double f = A[k * n + k] == 0 ? 0 : A[i * n + k] / A[k * n + k];
            for (size_t j = k; j < n; j++)
                A[i * n + j] -= f * A[k * n + j];
        }
    }
    return det;
}

/* The matrix of X -> A X on R^(d x c), found by applying the operator with v = 0 to every basis state. */
static double *matrix_of(ddl_backend *backend, size_t d, size_t c, const float *q, float beta, int form)
{
    size_t n = d * c;
    struct delta_case p = delta_case_make(n, d, c, 1);
    memset(p.X, 0, n * n * sizeof *p.X);
    memset(p.v, 0, n * c * sizeof *p.v);
    for (size_t i = 0; i < n; i++) {
        p.X[i * n + i] = 1;
        p.beta[i] = beta;
        memcpy(p.q + i * d, q, d * sizeof *q);
    }
    delta_forward(backend, &p, (struct delta_variant){ "", form, DDL_UPDATE_DELTA });
    double *A = malloc(n * n * sizeof *A);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++)
            A[i * n + j] = (double)p.X_out[j * n + i];
    }
    delta_case_free(&p);
    return A;
}

/* A k = along k, A u = u for what is orthogonal to k: with d - 1 such u that is the whole spectrum. */
static void check_spectrum(ddl_backend *backend, size_t d, const float *q, float beta, int form)
{
    struct ddl_spectrum s = ddl_delta_spectrum(d, 1, q, beta, delta_eps, form);
    double *A = matrix_of(backend, d, 1, q, beta, form), square = 0, trace = 0;
    for (size_t i = 0; i < d; i++) {
        square += (double)q[i] * (double)q[i];
        trace += A[i * d + i];
    }
    for (size_t u = 0; u < d; u++) { /* q itself, and e_u minus its part along q */
        double norm = sqrt(square);
        for (size_t i = 0; i < d && norm > 0; i++) {
            double along = 0, across = 0;
            for (size_t j = 0; j < d; j++) {
                double orthogonal = (j == u) - (double)q[u] * (double)q[j] / square;
                along += A[i * d + j] * (double)q[j] / norm;
                across += A[i * d + j] * orthogonal;
            }
            close_enough(along, s.along * (double)q[i] / norm, 1e-6, "A k = along k");
            close_enough(across, (i == u) - (double)q[u] * (double)q[i] / square, 1e-6, "A u = u");
        }
    }
    close_enough(trace, (double)d - 1 + s.along, 1e-6 * (double)d, "trace");
    close_enough(s.det, s.along, 0, "det");
    close_enough(determinant(d, A), s.det, 2e-6 * (double)d, "det A");
    free(A);
}

static void spectrum_of_A(ddl_backend *backend)
{
    static const size_t widths[] = { 1, 2, 5, 12, 33 };
    static const float betas[] = { 0, 0.3f, 1, 1.7f, 2 };
    static const float sizes[] = { 1, 1e-2f, 1e-4f, 1e-5f, 1e-6f, 0 };
    static const int forms[] = { DDL_FORM_UNIT, DDL_FORM_RATIO, DDL_FORM_L2 };
    for (size_t w = 0; w < 5; w++) {
        for (size_t i = 0; i < 5 * 6 * 3; i++) {
            float *q = random_floats(widths[w], 40 + w);
            for (size_t j = 0; j < widths[w]; j++)
                q[j] *= sizes[i / 5 % 6];
            check_spectrum(backend, widths[w], q, betas[i % 5], forms[i / 30]);
            ddl_mem_free(q);
        }
    }
}

static void spectrum_in_words(void **state)
{
    (void)state;
    const float q[3] = { 3, 0, 4 };
    struct ddl_spectrum s = ddl_delta_spectrum(3, 4, q, 1.5f, delta_eps, DDL_FORM_UNIT);
    close_enough(s.kappa, 1, 1e-11, "kappa of a long q");
    close_enough(s.along, -0.5, 1e-11, "1 - beta");
    close_enough(s.det_lifted, 0.0625, 1e-11, "(1 - beta)^c");
    const float tiny[1] = { 1e-5f };
    close_enough(ddl_delta_spectrum(1, 1, tiny, 1, delta_eps, DDL_FORM_UNIT).kappa, 0.5, 1e-7,
                 "|q| = delta_eps");
    close_enough(ddl_delta_spectrum(1, 1, tiny, 1, delta_eps, DDL_FORM_L2).kappa, 0.25, 1e-7,
                 "l2, |q| = delta_eps");
    const float root[1] = { 3.16227766e-3f };
    close_enough(ddl_delta_spectrum(1, 1, root, 1, delta_eps, DDL_FORM_RATIO).along, 0.5, 1e-7,
                 "q^2 = delta_eps");
}

static void lifted_determinant(ddl_backend *backend)
{
    static const size_t cases[][2] = { { 1, 3 }, { 3, 2 }, { 4, 5 }, { 6, 4 } };
    for (size_t i = 0; i < 4; i++) {
        size_t d = cases[i][0], c = cases[i][1];
        float *q = random_floats(d, 60 + i);
        for (int form = DDL_FORM_UNIT; form <= DDL_FORM_L2; form++) {
            double *A = matrix_of(backend, d, c, q, 1.6f, form);
            double expected = ddl_delta_spectrum(d, c, q, 1.6f, delta_eps, form).det_lifted;
            close_enough(determinant(d * c, A), expected, 1e-5, "lifted determinant");
            free(A);
        }
        ddl_mem_free(q);
    }
}

/* k^T X' = (1 - beta kappa) k^T X + beta kappa v, and X' - X lies in span{k} (so its rank is at most 1). */
static void check_readout_law(const struct delta_case *p)
{
    double *k = malloc(p->d * sizeof *k), read;
    for (size_t n = 0; n < p->N; n++) {
        struct ddl_spectrum s =
            ddl_delta_spectrum(p->d, p->c, p->q + n * p->d, p->beta[n], delta_eps, DDL_FORM_UNIT);
        double beta = (double)p->beta[n], scale = 1 + rms(p->c, p->v + n * p->c);
        delta_direction(p->d, p->q + n * p->d, DDL_FORM_UNIT, k, &read);
        for (size_t j = 0; j < p->c; j++) {
            double before = 0, after = 0;
            for (size_t i = 0; i < p->d; i++) {
                before += k[i] * (double)p->X[(n * p->d + i) * p->c + j];
                after += k[i] * (double)p->X_out[(n * p->d + i) * p->c + j];
            }
            double v = (double)p->v[n * p->c + j], change = after - before;
            close_enough(after, s.along * before + beta * s.kappa * v, 2e-6 * scale, "k^T X'");
            for (size_t i = 0; i < p->d && s.kappa > 1e-3; i++) {
                size_t ij = (n * p->d + i) * p->c + j;
                close_enough((double)p->X_out[ij] - (double)p->X[ij], k[i] * change / s.kappa, 2e-6 * scale,
                             "span{k}");
            }
        }
    }
    free(k);
}

static void readout_follows_its_law(ddl_backend *backend)
{
    static const float sizes[] = { 1, 1e-3f, 2e-5f, 1e-6f };
    for (size_t i = 0; i < N_DELTA_SHAPES * 4; i++) {
        struct delta_case p =
            delta_case_make(delta_shapes[i / 4][0], delta_shapes[i / 4][1], delta_shapes[i / 4][2], 200 + i);
        for (size_t j = 0; j < p.N * p.d; j++)
            p.q[j] *= sizes[i % 4] / sqrtf((float)p.d);
        delta_forward(backend, &p, delta_variants[0]);
        check_readout_law(&p);
        delta_case_free(&p);
    }
}

static void beta_one_overwrites(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES; i++) {
        struct delta_case p =
            delta_case_make(delta_shapes[i][0], delta_shapes[i][1], delta_shapes[i][2], 300 + i);
        for (size_t n = 0; n < p.N; n++)
            p.beta[n] = 1;
        delta_forward(backend, &p, delta_variants[0]);
        memcpy(p.X, p.X_out, p.N * p.d * p.c * sizeof *p.X);
        delta_forward(backend, &p, delta_variants[0]); /* reads what was written */
        assert_close(p.N * p.c, p.readout, p.v, 3e-6);
        delta_case_free(&p);
    }
}

static void beta_two_reflects(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES; i++) {
        struct delta_case p =
            delta_case_make(delta_shapes[i][0], delta_shapes[i][1], delta_shapes[i][2], 400 + i);
        size_t n = p.N * p.d * p.c;
        float *start = ddl_mem_alloc(n * sizeof *start);
        memcpy(start, p.X, n * sizeof *start);
        memset(p.v, 0, p.N * p.c * sizeof *p.v);
        for (size_t j = 0; j < p.N; j++)
            p.beta[j] = 2;
        delta_forward(backend, &p, delta_variants[0]);
        assert_true(relative_error(n, p.X_out, start) > 1e-3);
        memcpy(p.X, p.X_out, n * sizeof *p.X);
        delta_forward(backend, &p, delta_variants[0]);
        assert_close(n, p.X_out, start, 1e-6);
        ddl_mem_free(start);
        delta_case_free(&p);
    }
}

static void beta_zero_copies_bits(ddl_backend *backend)
{
    static const float odd[] = { -0.0f, 0.0f, 1e-42f, -1e-42f, INFINITY, 1.5f, -3e38f };
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS; i++) {
        const size_t *shape = delta_shapes[i / N_DELTA_VARIANTS];
        struct delta_case p = delta_case_make(shape[0], shape[1], shape[2], 500 + i);
        size_t n = p.N * p.d * p.c;
        for (size_t j = 0; j < n; j++)
            p.X[j] = odd[j % 7];
        for (size_t j = 0; j < p.N * p.c; j++)
            p.v[j] = j % 3 == 0 ? NAN : j % 3 == 1 ? INFINITY : -INFINITY;
        for (size_t j = 0; j < p.N; j++)
            p.beta[j] = j % 2 ? -0.0f : 0.0f;
        if (i % 2)
            memset(p.q, 0, p.N * p.d * sizeof *p.q);
        delta_forward(backend, &p, delta_variants[i % N_DELTA_VARIANTS]);
        assert_memory_equal(p.X_out, p.X, n * sizeof *p.X);
        memcpy(p.X_out, p.X, n * sizeof *p.X);
        struct ddl_error err = { 0 };
        struct ddl_delta_inverse_args a =
            delta_inverse_args(&p, delta_variants[i % N_DELTA_VARIANTS], p.X_out);
        assert_ok(ddl_delta_inverse(backend, &a, &err), err);
        assert_memory_equal(p.X_out, p.X, n * sizeof *p.X);
        delta_case_free(&p);
    }
}

/* One row of a batch has beta 0, the rows around it do not: copying X does not depend on whole batches. */
static void beta_zero_among_others(ddl_backend *backend)
{
    struct delta_case p = delta_case_make(9, 19, 4, 77);
    p.beta[4] = 0;
    for (size_t j = 0; j < 76; j++)
        p.X[4 * 76 + j] = j % 2 ? -0.0f : 0.0f;
    p.v[16] = NAN;
    delta_forward(backend, &p, delta_variants[0]);
    assert_memory_equal(p.X_out + 4 * 76, p.X + 4 * 76, 76 * sizeof *p.X);
    for (size_t j = 0; j < 9 * 76; j++)
        assert_true(isfinite(p.X_out[j]));
    delta_case_free(&p);
}

static void no_direction_changes_nothing(ddl_backend *backend)
{
    for (size_t k = 0; k < N_DELTA_VARIANTS; k++) {
        struct delta_case p = delta_case_make(3, 13, 3, 600);
        memset(p.q, 0, p.N * p.d * sizeof *p.q);
        delta_forward(backend, &p, delta_variants[k]);
        delta_backward(backend, &p, delta_variants[k]);
        for (size_t i = 0; i < p.N * p.d * p.c; i++) {
            assert_true(p.X_out[i] == p.X[i]);
            assert_true(p.dX[i] == p.G[i]);
        }
        for (size_t i = 0; i < p.N * p.c; i++)
            assert_true(p.readout[i] == 0 && p.dv[i] == 0);
        for (size_t i = 0; i < p.N * p.d; i++) { /* q = 0: dk = beta G v, and 1/n = 1/eps (1 for ratio) */
            double dk = 0, n = delta_variants[k].form == DDL_FORM_RATIO ? 1 : (double)delta_eps;
            for (size_t j = 0; j < p.c && delta_variants[k].update != DDL_UPDATE_ERASE; j++)
                dk += (double)p.beta[i / p.d] * (double)p.G[i * p.c + j] * (double)p.v[i / p.d * p.c + j];
            close_enough((double)p.dq[i], dk / n, 2e-6 * (fabs(dk) + 1) / n, "dq at q = 0");
        }
        delta_case_free(&p);
    }
}

static void inverse_is_free(ddl_backend *backend)
{
    for (size_t i = 0; i < N_DELTA_SHAPES * N_DELTA_VARIANTS * 2; i++) {
        const size_t *shape = delta_shapes[i / 2 / N_DELTA_VARIANTS];
        struct delta_variant k = delta_variants[i / 2 % N_DELTA_VARIANTS];
        struct delta_case p = delta_case_make(shape[0], shape[1], shape[2], 700 + i);
        size_t n = p.N * p.d * p.c;
        delta_forward(backend, &p, k);
        double growth = fmax(1, rms(n, p.X_out) / rms(n, p.X));
        float *X = i % 2 ? p.X_out : poisoned_floats(n); /* in place every other time */
        struct ddl_error err = { 0 };
        struct ddl_delta_inverse_args a = delta_inverse_args(&p, k, X);
        assert_ok(ddl_delta_inverse(backend, &a, &err), err);
        assert_close(n, X, p.X, 5e-7 * growth);
        if (X != p.X_out)
            ddl_mem_free(X);
        delta_case_free(&p);
    }
}

/* A tensor as floats (the file has doubles); its shape must have the given number of dimensions. */
static float *golden_tensor(const ddl_safetensors *file, const char *name, size_t ndim, size_t *shape)
{
    const struct ddl_tensor *t = ddl_safetensors_find(file, name);
    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    size_t n = 1;
    for (size_t i = 0; i < ndim; i++) {
        n *= t->shape[i];
        if (shape)
            shape[i] = t->shape[i];
    }
    float *out = ddl_mem_alloc(n * sizeof *out);
    assert_non_null(out);
    struct ddl_error err = { 0 };
    assert_ok(ddl_tensor_read_f32(t, 0, n, out, &err), err);
    return out;
}

static void golden_operator(ddl_backend *backend)
{
    static const char *const names[] = { "d1-c1",        "d2-c1",        "d7-c3",        "d16-c4",
                                         "d24-c4",       "d33-c1",       "d48-c8",       "d64-c2",
                                         "d100-c5",      "d768-c1",      "d768-c4",      "d256-c16",
                                         "write-d40-c3", "erase-d40-c3", "ratio-d40-c3", "l2-d40-c3" };
    static const char *const results[] = { "Xp", "dX", "dq", "dv", "dbeta" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct delta_variant k = delta_variants[0];
        for (size_t j = 1; j < N_DELTA_VARIANTS; j++)
            k = strncmp(names[i], delta_variants[j].name, strlen(delta_variants[j].name)) == 0
                    ? delta_variants[j]
                    : k;
        char path[128];
        snprintf(path, sizeof path, "tests/golden/operator/%s.safetensors", names[i]);
        struct ddl_error err = { 0 };
        ddl_safetensors *file;
        assert_ok(ddl_safetensors_open(&file, source_path(path), &err), err);
        size_t s[3];
        float *X = golden_tensor(file, "X", 3, s), *expected[5];
        struct delta_case p = delta_case_make(s[0], s[1], s[2], 1);
        ddl_mem_free(p.X);
        ddl_mem_free(p.q);
        ddl_mem_free(p.v);
        ddl_mem_free(p.beta);
        ddl_mem_free(p.G);
        p.X = X;
        p.q = golden_tensor(file, "q", 2, NULL);
        p.v = golden_tensor(file, "v", 2, NULL);
        p.beta = golden_tensor(file, "beta", 1, NULL);
        p.G = golden_tensor(file, "G", 3, NULL);
        size_t ndims[5] = { 3, 3, 2, 2, 1 },
               counts[5] = { s[0] * s[1] * s[2], s[0] * s[1] * s[2], s[0] * s[1], s[0] * s[2], s[0] };
        for (size_t j = 0; j < 5; j++)
            expected[j] = golden_tensor(file, results[j], ndims[j], NULL);
        delta_forward(backend, &p, k);
        delta_backward(backend, &p, k);
        float *found[5] = { p.X_out, p.dX, p.dq, p.dv, p.dbeta };
        for (size_t j = 0; j < 5; j++)
            assert_close_at(counts[j], found[j], expected[j], 1e-5, names[i], __FILE__, __LINE__);
        for (size_t j = 0; j < 5; j++)
            ddl_mem_free(expected[j]);
        delta_case_free(&p);
        ddl_safetensors_close(file);
    }
}

static void no_rows(ddl_backend *backend)
{
    struct ddl_error err = { 0 };
    assert_ok(ddl_delta_forward(backend, &(struct ddl_delta_args){ .d = 3, .c = 2, .eps = delta_eps }, &err),
              err);
    assert_ok(
        ddl_delta_backward(backend, &(struct ddl_delta_grad_args){ .d = 3, .c = 2, .eps = delta_eps }, &err),
        err);
    assert_ok(ddl_delta_inverse(backend, &(struct ddl_delta_inverse_args){ .d = 3, .c = 2, .eps = delta_eps },
                                &err),
              err);
    assert_ok(
        ddl_elementwise_forward(backend, &(struct ddl_elementwise_args){ .d = 3, .eps = delta_eps }, &err),
        err);
    assert_ok(ddl_elementwise_backward(backend,
                                       &(struct ddl_elementwise_grad_args){ .d = 3, .eps = delta_eps }, &err),
              err);
}

static void bad_arguments(ddl_backend *backend)
{
    struct delta_case p = delta_case_make(2, 3, 2, 1500);
    const struct ddl_delta_args good = delta_args(&p, delta_variants[0]);
    struct {
        struct ddl_delta_args args;
        const char *gist;
    } cases[] = { { good, "d is 0" },
                  { good, "c is 0" },
                  { good, "eps is 0" },
                  { good, "eps is" },
                  { good, "form 7" },
                  { good, "update 3" },
                  { good, "the delta update only" },
                  { good, "array beta is NULL" },
                  { good, "do not fit" } };
    cases[0].args.d = 0;
    cases[1].args.c = 0;
    cases[2].args.eps = 0;
    cases[3].args.eps = NAN;
    cases[4].args.form = 7;
    cases[5].args.update = 3;
    cases[6].args.form = DDL_FORM_L2;
    cases[6].args.update = DDL_UPDATE_WRITE;
    cases[7].args.beta = NULL;
    cases[8].args.d = SIZE_MAX / 3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err = { 0 };
        assert_int_equal(ddl_delta_forward(backend, &cases[i].args, &err), DDL_E_USAGE);
        if (!strstr(err.text, cases[i].gist))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].gist);
    }
    struct ddl_error err = { 0 };
    struct ddl_delta_grad_args g = delta_grad_args(&p, delta_variants[0]);
    g.X_next = p.X_out;
    assert_int_equal(ddl_delta_backward(backend, &g, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "readout"));
    g = delta_grad_args(&p, delta_variants[0]);
    uint16_t rounded[2 * 3];
    g.dq16 = rounded;
    assert_int_equal(ddl_delta_backward(backend, &g, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "dq16: expected NULL"));
    g.dq = NULL;
    assert_int_equal(ddl_delta_backward(backend, &g, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "array dq is NULL"));
    delta_case_free(&p);
}

static void device_memory(void **state)
{
    (void)state;
    skip_if_simulated(); /* the stub is a device around host memory */
    struct ddl_error err = { 0 };
    ddl_backend *ref;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    struct device_stub stub;
    device_stub_init(&stub, ref);
    struct delta_case a = delta_case_make(3, 7, 2, 1600), b = delta_case_make(3, 7, 2, 1600);
    struct ddl_delta_grad_args g = delta_grad_args(&b, delta_variants[0]);
    device_stub_allow(1000);
    for (size_t k = 0; k < N_DELTA_VARIANTS; k++) {
        delta_forward(ref, &a, delta_variants[k]);
        delta_backward(ref, &a, delta_variants[k]);
        delta_forward(&stub.backend, &b, delta_variants[k]);
        delta_backward(&stub.backend, &b, delta_variants[k]);
        assert_memory_equal(a.X_out, b.X_out, 42 * sizeof(float));
        assert_memory_equal(a.readout, b.readout, 6 * sizeof(float));
        assert_memory_equal(a.dX, b.dX, 42 * sizeof(float));
        assert_memory_equal(a.dq, b.dq, 21 * sizeof(float));
    }
    for (size_t allowed = 0; allowed < 9; allowed++) {
        device_stub_allow(allowed);
        ddl_status status = ddl_delta_backward(&stub.backend, &g, &err);
        assert_int_equal(status, DDL_E_MEMORY);
        assert_non_null(strstr(err.text, "out of memory"));
        assert_int_equal(device_stub_blocks(), 0);
    }
    delta_case_free(&a);
    delta_case_free(&b);
    ddl_backend_free(ref);
}

/* Where backend memory is host memory the arrays of the caller are used as they are, aligned or not. */
static void host_memory_is_not_copied(void **state)
{
    (void)state;
    skip_if_simulated();
    enum { N = 3, D = 7, C = 2 };
    struct ddl_error err = { 0 };
    for (size_t b = 0; test_backend(b); b++) {
        ddl_backend *backend;
        struct device_stub stub;
        assert_ok(ddl_backend_create(&backend, test_backend(b), 2, &err), err);
        device_stub_init(&stub, backend);
        stub.ops.host_memory = backend->ops->host_memory;
        device_stub_allow(0);
        float *memory = random_floats(1 + 2 * N * D * C + N * D + 2 * N * C + N, 7), *X = memory + 1;
        assert_non_null(memory);
        float *q = X + N * D * C, *v = q + N * D, *beta = v + N * C, *X_out = beta + N,
              *readout = X_out + N * D * C;
        const struct ddl_delta_args a = { .N = N,
                                          .d = D,
                                          .c = C,
                                          .eps = 1e-5f,
                                          .X = X,
                                          .q = q,
                                          .v = v,
                                          .beta = beta,
                                          .X_out = X_out,
                                          .readout = readout };
        assert_ok(ddl_delta_forward(&stub.backend, &a, &err), err);
        float found[N * D * C];
        memcpy(found, X_out, sizeof found);
        backend->ops->delta_fwd(backend->ctx, &a);
        assert_memory_equal(found, X_out, sizeof found);
        ddl_mem_free(memory);
        ddl_backend_free(backend);
    }
}

PROPERTY(forward_is_the_definition)
PROPERTY(every_width_of_the_value)
PROPERTY(spectrum_of_A)
PROPERTY(lifted_determinant)
PROPERTY(readout_follows_its_law)
PROPERTY(beta_one_overwrites)
PROPERTY(beta_two_reflects)
PROPERTY(beta_zero_copies_bits)
PROPERTY(beta_zero_among_others)
PROPERTY(no_direction_changes_nothing)
PROPERTY(inverse_is_free)
PROPERTY(golden_operator)
PROPERTY(no_rows)
PROPERTY(bad_arguments)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_the_definition),
        cmocka_unit_test(test_every_width_of_the_value),
        cmocka_unit_test(test_spectrum_of_A),
        cmocka_unit_test(test_lifted_determinant),
        cmocka_unit_test(test_readout_follows_its_law),
        cmocka_unit_test(test_beta_one_overwrites),
        cmocka_unit_test(test_beta_two_reflects),
        cmocka_unit_test(test_beta_zero_copies_bits),
        cmocka_unit_test(test_beta_zero_among_others),
        cmocka_unit_test(test_no_direction_changes_nothing),
        cmocka_unit_test(test_inverse_is_free),
        cmocka_unit_test(test_golden_operator),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(spectrum_in_words),
        cmocka_unit_test(device_memory),
        cmocka_unit_test(host_memory_is_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
