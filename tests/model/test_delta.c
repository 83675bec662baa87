#include "support/support.h"

#include "base/mem.h"
#include "ddl/delta.h"
#include "ops/ops.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every form with every update that it exists for. */
struct variant {
    const char *name;
    int form, update;
};
static const struct variant variants[] = {
    { "delta", DDL_FORM_UNIT, DDL_UPDATE_DELTA }, { "write", DDL_FORM_UNIT, DDL_UPDATE_WRITE },
    { "erase", DDL_FORM_UNIT, DDL_UPDATE_ERASE }, { "ratio", DDL_FORM_RATIO, DDL_UPDATE_DELTA },
    { "l2", DDL_FORM_L2, DDL_UPDATE_DELTA },
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static const size_t shapes[][3] = {
    /* N, d, c */
    { 1, 1, 1 },  { 3, 2, 1 },   { 7, 1, 5 },   { 5, 7, 3 },   { 4, 16, 4 }, { 2, 33, 1 },
    { 3, 63, 2 }, { 2, 100, 5 }, { 2, 768, 4 }, { 3, 24, 17 }, { 2, 9, 16 }, { 2, 65, 8 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const float eps = 1e-5f;

struct problem {
    size_t N, d, c;
    float *X, *q, *v, *beta, *G; /* given  */
    float *X_out, *readout;      /* forward */
    float *dX, *dq, *dv, *dbeta; /* backward */
};

static struct problem problem_make(size_t N, size_t d, size_t c, uint64_t stream)
{
    struct problem p = { .N = N, .d = d, .c = c };
    p.X = random_floats(N * d * c, stream);
    p.q = random_floats(N * d, stream + 1);
    p.v = random_floats(N * c, stream + 2);
    p.G = random_floats(N * d * c, stream + 3);
    p.beta = random_floats(N, stream + 4);
    p.X_out = poisoned_floats(N * d * c);
    p.readout = poisoned_floats(N * c);
    p.dX = poisoned_floats(N * d * c);
    p.dq = poisoned_floats(N * d);
    p.dv = poisoned_floats(N * c);
    p.dbeta = poisoned_floats(N);
    for (size_t n = 0; n < N; n++) {
        p.beta[n] = 1 + tanhf(p.beta[n]); /* in [0, 2] */
        p.q[n * d] += 2;                  /* |q| never small by chance, so that k is smooth around it */
    }
    return p;
}

static void problem_free(struct problem *p)
{
    float *all[] = { p->X, p->q, p->v, p->beta, p->G, p->X_out, p->readout, p->dX, p->dq, p->dv, p->dbeta };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

static void forward(ddl_backend *backend, struct problem *p, struct variant k)
{
    struct ddl_error err = { 0 };
    struct ddl_delta_args a = { .N = p->N,
                                .d = p->d,
                                .c = p->c,
                                .eps = eps,
                                .form = k.form,
                                .update = k.update,
                                .X = p->X,
                                .q = p->q,
                                .v = p->v,
                                .beta = p->beta,
                                .X_out = p->X_out,
                                .readout = p->readout };
    assert_ok(ddl_delta_forward(backend, &a, &err), err);
}

static struct ddl_delta_grad_args grad_args(struct problem *p, struct variant k)
{
    return (struct ddl_delta_grad_args){ .N = p->N,
                                         .d = p->d,
                                         .c = p->c,
                                         .eps = eps,
                                         .form = k.form,
                                         .update = k.update,
                                         .X = p->X,
                                         .q = p->q,
                                         .v = p->v,
                                         .beta = p->beta,
                                         .G = p->G,
                                         .dX = p->dX,
                                         .dq = p->dq,
                                         .dv = p->dv,
                                         .dbeta = p->dbeta };
}

static void backward(ddl_backend *backend, struct problem *p, struct variant k)
{
    struct ddl_error err = { 0 };
    struct ddl_delta_grad_args a = grad_args(p, k);
    assert_ok(ddl_delta_backward(backend, &a, &err), err);
}

/* A law, on every backend. */
typedef void law_fn(ddl_backend *backend);
static void on_every_backend(law_fn *law)
{
    for (size_t i = 0; ddl_backend_list(i); i++) {
        struct ddl_error err = { 0 };
        ddl_backend *backend;
        assert_ok(ddl_backend_create(&backend, ddl_backend_list(i), 0, &err), err);
        law(backend);
        ddl_backend_free(backend);
    }
}

static void close_enough(double found, double expected, double limit, const char *what)
{
    if (!(fabs(found - expected) <= limit)) {
        print_error("%s: found %.9g, expected %.9g, limit %.3g\n", what, found, expected, limit);
        fail();
    }
}

/* sqrt(mean square), so that errors of one row can be set against a size. */
static double rms(size_t n, const float *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/* The direction of a row and the factor of its readout, from the definition. */
static void direction(size_t d, const float *q, int form, double *k, double *read)
{
    double square = 0, e = (double)eps;
    for (size_t i = 0; i < d; i++)
        square += (double)q[i] * (double)q[i];
    double inv = form == DDL_FORM_RATIO ? 1
                 : form == DDL_FORM_L2  ? 1 / (sqrt(square) + e)
                                        : 1 / sqrt(square + e * e);
    *read = form == DDL_FORM_RATIO ? 1 / (square + e) : 1;
    for (size_t i = 0; i < d; i++)
        k[i] = (double)q[i] * inv;
}

/* --- forward against the definition, in double ------------------------------------------------------- */

static void check_forward(const struct problem *p, struct variant k)
{
    float *X = poisoned_floats(p->N * p->d * p->c), *readout = poisoned_floats(p->N * p->c);
    double *unit = malloc(p->d * sizeof *unit);
    for (size_t n = 0; n < p->N; n++) {
        double read, beta = (double)p->beta[n];
        direction(p->d, p->q + n * p->d, k.form, unit, &read);
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
    for (size_t i = 0; i < N_SHAPES; i++) {
        for (size_t k = 0; k < N_VARIANTS; k++) {
            struct problem p = problem_make(shapes[i][0], shapes[i][1], shapes[i][2], 10 * i);
            forward(backend, &p, variants[k]);
            check_forward(&p, variants[k]);
            problem_free(&p);
        }
    }
}

static void every_width_of_the_value(ddl_backend *backend)
{
    for (size_t c = 1; c <= 17; c++) {
        struct problem p = problem_make(3, 21, c, 900 + c);
        forward(backend, &p, variants[0]);
        check_forward(&p, variants[0]);
        problem_free(&p);
    }
}

/* --- the facts of spec 1 ------------------------------------------------------------------------------ */

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
    struct problem p = problem_make(n, d, c, 1);
    memset(p.X, 0, n * n * sizeof *p.X);
    memset(p.v, 0, n * c * sizeof *p.v);
    for (size_t i = 0; i < n; i++) {
        p.X[i * n + i] = 1;
        p.beta[i] = beta;
        memcpy(p.q + i * d, q, d * sizeof *q);
    }
    forward(backend, &p, (struct variant){ "", form, DDL_UPDATE_DELTA });
    double *A = malloc(n * n * sizeof *A);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++)
            A[i * n + j] = (double)p.X_out[j * n + i];
    }
    problem_free(&p);
    return A;
}

/* A k = along k, A u = u for what is orthogonal to k: with d - 1 such u that is the whole spectrum. */
static void check_spectrum(ddl_backend *backend, size_t d, const float *q, float beta, int form)
{
    struct ddl_spectrum s = ddl_delta_spectrum(d, 1, q, beta, eps, form);
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
    struct ddl_spectrum s = ddl_delta_spectrum(3, 4, q, 1.5f, eps, DDL_FORM_UNIT);
    close_enough(s.kappa, 1, 1e-11, "kappa of a long q");
    close_enough(s.along, -0.5, 1e-11, "1 - beta");
    close_enough(s.det_lifted, 0.0625, 1e-11, "(1 - beta)^c");
    const float tiny[1] = { 1e-5f };
    close_enough(ddl_delta_spectrum(1, 1, tiny, 1, eps, DDL_FORM_UNIT).kappa, 0.5, 1e-7, "|q| = eps");
    close_enough(ddl_delta_spectrum(1, 1, tiny, 1, eps, DDL_FORM_L2).kappa, 0.25, 1e-7, "l2, |q| = eps");
    const float root[1] = { 3.16227766e-3f };
    close_enough(ddl_delta_spectrum(1, 1, root, 1, eps, DDL_FORM_RATIO).along, 0.5, 1e-7, "q^2 = eps");
}

static void lifted_determinant(ddl_backend *backend)
{
    static const size_t cases[][2] = { { 1, 3 }, { 3, 2 }, { 4, 5 }, { 6, 4 } };
    for (size_t i = 0; i < 4; i++) {
        size_t d = cases[i][0], c = cases[i][1];
        float *q = random_floats(d, 60 + i);
        for (int form = DDL_FORM_UNIT; form <= DDL_FORM_L2; form++) {
            double *A = matrix_of(backend, d, c, q, 1.6f, form);
            double expected = ddl_delta_spectrum(d, c, q, 1.6f, eps, form).det_lifted;
            close_enough(determinant(d * c, A), expected, 1e-5, "lifted determinant");
            free(A);
        }
        ddl_mem_free(q);
    }
}

/* k^T X' = (1 - beta kappa) k^T X + beta kappa v, and X' - X lies in span{k} (so its rank is at most 1). */
static void check_readout_law(const struct problem *p)
{
    double *k = malloc(p->d * sizeof *k), read;
    for (size_t n = 0; n < p->N; n++) {
        struct ddl_spectrum s =
            ddl_delta_spectrum(p->d, p->c, p->q + n * p->d, p->beta[n], eps, DDL_FORM_UNIT);
        double beta = (double)p->beta[n], scale = 1 + rms(p->c, p->v + n * p->c);
        direction(p->d, p->q + n * p->d, DDL_FORM_UNIT, k, &read);
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
    for (size_t i = 0; i < N_SHAPES * 4; i++) {
        struct problem p = problem_make(shapes[i / 4][0], shapes[i / 4][1], shapes[i / 4][2], 200 + i);
        for (size_t j = 0; j < p.N * p.d; j++)
            p.q[j] *= sizes[i % 4] / sqrtf((float)p.d);
        forward(backend, &p, variants[0]);
        check_readout_law(&p);
        problem_free(&p);
    }
}

static void beta_one_overwrites(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct problem p = problem_make(shapes[i][0], shapes[i][1], shapes[i][2], 300 + i);
        for (size_t n = 0; n < p.N; n++)
            p.beta[n] = 1;
        forward(backend, &p, variants[0]);
        memcpy(p.X, p.X_out, p.N * p.d * p.c * sizeof *p.X);
        forward(backend, &p, variants[0]); /* reads what was written */
        assert_close(p.N * p.c, p.readout, p.v, 3e-6);
        problem_free(&p);
    }
}

static void beta_two_reflects(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct problem p = problem_make(shapes[i][0], shapes[i][1], shapes[i][2], 400 + i);
        size_t n = p.N * p.d * p.c;
        float *start = ddl_mem_alloc(n * sizeof *start);
        memcpy(start, p.X, n * sizeof *start);
        memset(p.v, 0, p.N * p.c * sizeof *p.v);
        for (size_t j = 0; j < p.N; j++)
            p.beta[j] = 2;
        forward(backend, &p, variants[0]);
        assert_true(relative_error(n, p.X_out, start) > 1e-3);
        memcpy(p.X, p.X_out, n * sizeof *p.X);
        forward(backend, &p, variants[0]);
        assert_close(n, p.X_out, start, 1e-6);
        ddl_mem_free(start);
        problem_free(&p);
    }
}

static void beta_zero_copies_bits(ddl_backend *backend)
{
    static const float odd[] = { -0.0f, 0.0f, 1e-42f, -1e-42f, INFINITY, 1.5f, -3e38f };
    for (size_t i = 0; i < N_SHAPES * N_VARIANTS; i++) {
        const size_t *shape = shapes[i / N_VARIANTS];
        struct problem p = problem_make(shape[0], shape[1], shape[2], 500 + i);
        size_t n = p.N * p.d * p.c;
        for (size_t j = 0; j < n; j++)
            p.X[j] = odd[j % 7];
        for (size_t j = 0; j < p.N * p.c; j++)
            p.v[j] = j % 3 == 0 ? NAN : j % 3 == 1 ? INFINITY : -INFINITY;
        for (size_t j = 0; j < p.N; j++)
            p.beta[j] = j % 2 ? -0.0f : 0.0f;
        if (i % 2)
            memset(p.q, 0, p.N * p.d * sizeof *p.q);
        forward(backend, &p, variants[i % N_VARIANTS]);
        assert_memory_equal(p.X_out, p.X, n * sizeof *p.X);
        memcpy(p.X_out, p.X, n * sizeof *p.X);
        struct ddl_error err = { 0 };
        struct ddl_delta_inverse_args a = { .N = p.N,
                                            .d = p.d,
                                            .c = p.c,
                                            .eps = eps,
                                            .form = variants[i % N_VARIANTS].form,
                                            .update = variants[i % N_VARIANTS].update,
                                            .X_out = p.X_out,
                                            .q = p.q,
                                            .v = p.v,
                                            .beta = p.beta,
                                            .readout = p.readout,
                                            .X = p.X_out };
        assert_ok(ddl_delta_inverse(backend, &a, &err), err);
        assert_memory_equal(p.X_out, p.X, n * sizeof *p.X);
        problem_free(&p);
    }
}

/* One row of the batch closed, its neighbours open: the copy must not depend on whole batches. */
static void beta_zero_among_others(ddl_backend *backend)
{
    struct problem p = problem_make(9, 19, 4, 77);
    p.beta[4] = 0;
    for (size_t j = 0; j < 76; j++)
        p.X[4 * 76 + j] = j % 2 ? -0.0f : 0.0f;
    p.v[16] = NAN;
    forward(backend, &p, variants[0]);
    assert_memory_equal(p.X_out + 4 * 76, p.X + 4 * 76, 76 * sizeof *p.X);
    for (size_t j = 0; j < 9 * 76; j++)
        assert_true(isfinite(p.X_out[j]));
    problem_free(&p);
}

static void no_direction_changes_nothing(ddl_backend *backend)
{
    for (size_t k = 0; k < N_VARIANTS; k++) {
        struct problem p = problem_make(3, 13, 3, 600);
        memset(p.q, 0, p.N * p.d * sizeof *p.q);
        forward(backend, &p, variants[k]);
        backward(backend, &p, variants[k]);
        for (size_t i = 0; i < p.N * p.d * p.c; i++) {
            assert_true(p.X_out[i] == p.X[i]);
            assert_true(p.dX[i] == p.G[i]);
        }
        for (size_t i = 0; i < p.N * p.c; i++)
            assert_true(p.readout[i] == 0 && p.dv[i] == 0);
        for (size_t i = 0; i < p.N * p.d; i++) { /* q = 0: dk = beta G v, and 1/n = 1/eps (1 for ratio) */
            double dk = 0, n = variants[k].form == DDL_FORM_RATIO ? 1 : (double)eps;
            for (size_t j = 0; j < p.c && variants[k].update != DDL_UPDATE_ERASE; j++)
                dk += (double)p.beta[i / p.d] * (double)p.G[i * p.c + j] * (double)p.v[i / p.d * p.c + j];
            close_enough((double)p.dq[i], dk / n, 2e-6 * (fabs(dk) + 1) / n, "dq at q = 0");
        }
        problem_free(&p);
    }
}

/* --- inverse, aliases --------------------------------------------------------------------------------- */

static void inverse_is_free(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES * N_VARIANTS * 2; i++) {
        const size_t *shape = shapes[i / 2 / N_VARIANTS];
        struct variant k = variants[i / 2 % N_VARIANTS];
        struct problem p = problem_make(shape[0], shape[1], shape[2], 700 + i);
        size_t n = p.N * p.d * p.c;
        forward(backend, &p, k);
        double growth = fmax(1, rms(n, p.X_out) / rms(n, p.X));
        float *X = i % 2 ? p.X_out : poisoned_floats(n); /* in place every other time */
        struct ddl_error err = { 0 };
        struct ddl_delta_inverse_args a = { .N = p.N,
                                            .d = p.d,
                                            .c = p.c,
                                            .eps = eps,
                                            .form = k.form,
                                            .update = k.update,
                                            .X_out = p.X_out,
                                            .q = p.q,
                                            .v = p.v,
                                            .beta = p.beta,
                                            .readout = p.readout,
                                            .X = X };
        assert_ok(ddl_delta_inverse(backend, &a, &err), err);
        assert_close(n, X, p.X, 5e-7 * growth);
        if (X != p.X_out)
            ddl_mem_free(X);
        problem_free(&p);
    }
}

/* Backward from X' and p gives what backward from X gives, and leaves X behind. */
static void backward_through_the_inverse(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES * N_VARIANTS; i++) {
        const size_t *shape = shapes[i / N_VARIANTS];
        struct variant k = variants[i % N_VARIANTS];
        struct problem a = problem_make(shape[0], shape[1], shape[2], 800 + i);
        struct problem b = problem_make(shape[0], shape[1], shape[2], 800 + i);
        size_t n = a.N * a.d * a.c;
        backward(backend, &a, k);
        forward(backend, &b, k);
        struct ddl_error err = { 0 };
        struct ddl_delta_grad_args args = grad_args(&b, k);
        args.X = NULL;
        args.X_next = b.X_out;
        args.readout = b.readout;
        args.dX = b.G; /* and in place */
        assert_ok(ddl_delta_backward(backend, &args, &err), err);
        assert_close(n, b.X_out, a.X, 5e-6);
        assert_close(n, b.G, a.dX, 1e-6);
        assert_close(a.N * a.c, b.dv, a.dv, k.update == DDL_UPDATE_ERASE ? 0 : 1e-6);
        assert_close(a.N, b.dbeta, a.dbeta, 1e-5);
        if (a.d > 1) /* for d = 1 dq vanishes but for eps: rounding is all there is */
            assert_close(a.N * a.d, b.dq, a.dq, 2e-5);
        problem_free(&a);
        problem_free(&b);
    }
}

static void in_place_is_the_same(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES * N_VARIANTS; i++) {
        const size_t *shape = shapes[i / N_VARIANTS];
        struct variant k = variants[i % N_VARIANTS];
        struct problem p = problem_make(shape[0], shape[1], shape[2], 1000 + i);
        size_t n = p.N * p.d * p.c;
        forward(backend, &p, k);
        backward(backend, &p, k);
        struct ddl_error err = { 0 };
        struct ddl_delta_grad_args g = grad_args(&p, k);
        float *dX = p.dX;
        g.dX = p.G;
        assert_ok(ddl_delta_backward(backend, &g, &err), err);
        assert_memory_equal(p.G, dX, n * sizeof *dX);
        struct ddl_delta_args a = { .N = p.N,
                                    .d = p.d,
                                    .c = p.c,
                                    .eps = eps,
                                    .form = k.form,
                                    .update = k.update,
                                    .X = p.X,
                                    .q = p.q,
                                    .v = p.v,
                                    .beta = p.beta,
                                    .X_out = p.X };
        assert_ok(ddl_delta_forward(backend, &a, &err), err);
        assert_memory_equal(p.X, p.X_out, n * sizeof *p.X);
        problem_free(&p);
    }
}

/* --- backward ----------------------------------------------------------------------------------------- */

static double weighted_sum(size_t n, const float *G, const float *X)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)G[i] * (double)X[i];
    return sum;
}

/* dL along direction u of one input, L = sum G X', by the five-point rule. `loss` runs forward. */
typedef double loss_fn(ddl_backend *backend, void *problem, int which);
static double slope(ddl_backend *backend, loss_fn *loss, void *problem, int which, size_t n, float *x,
                    const float *u, double h)
{
    static const double at[4] = { -2, -1, 1, 2 }, weight[4] = { 1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12 };
    float *saved = ddl_mem_alloc(n * sizeof *saved);
    memcpy(saved, x, n * sizeof *saved);
    double sum = 0;
    for (size_t s = 0; s < 4; s++) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)((double)saved[i] + at[s] * h * (double)u[i]);
        sum += weight[s] * loss(backend, problem, which);
    }
    memcpy(x, saved, n * sizeof *saved);
    ddl_mem_free(saved);
    return sum / h;
}

static double delta_loss(ddl_backend *backend, void *problem, int which)
{
    struct problem *p = problem;
    forward(backend, p, variants[which]);
    return weighted_sum(p->N * p->d * p->c, p->G, p->X_out);
}

static void check_slopes(ddl_backend *backend, struct problem *p, int which)
{
    struct {
        const char *name;
        size_t n;
        float *x, *dx;
    } inputs[] = { { "dX", p->N * p->d * p->c, p->X, p->dX },
                   { "dq", p->N * p->d, p->q, p->dq },
                   { "dv", p->N * p->c, p->v, p->dv },
                   { "dbeta", p->N, p->beta, p->dbeta } };
    backward(backend, p, variants[which]);
    for (size_t i = 0; i < 4; i++) {
        float *u = random_floats(inputs[i].n, 5000 + i);
        double found = weighted_sum(inputs[i].n, inputs[i].dx, u);
        double expected = slope(backend, delta_loss, p, which, inputs[i].n, inputs[i].x, u, 2e-2);
        double size =
            rms(inputs[i].n, inputs[i].dx) * sqrt((double)inputs[i].n) + rms(p->N * p->d * p->c, p->G);
        char what[64];
        snprintf(what, sizeof what, "%s of %s, N %zu d %zu c %zu", inputs[i].name, variants[which].name, p->N,
                 p->d, p->c);
        close_enough(found, expected, 5e-4 * size, what);
        ddl_mem_free(u);
    }
}

static void backward_is_the_slope(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (shapes[i][1] * shapes[i][2] > 600)
            continue; /* float32 rounding of L would hide the slope */
        for (int k = 0; k < N_VARIANTS; k++) {
            struct problem p = problem_make(shapes[i][0], shapes[i][1], shapes[i][2], 1100 + i);
            check_slopes(backend, &p, k);
            problem_free(&p);
        }
    }
}

/* Against `ref`, at sizes where differences cannot resolve a mistake, and at small |q|. */
static void backward_equals_ref(ddl_backend *backend)
{
    struct ddl_error err = { 0 };
    ddl_backend *ref;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    static const float sizes[] = { 1, 1e-2f, 1e-5f };
    for (size_t i = 0; i < N_SHAPES * N_VARIANTS * 3; i++) {
        const size_t *shape = shapes[i / 3 / N_VARIANTS];
        struct variant k = variants[i / 3 % N_VARIANTS];
        struct problem a = problem_make(shape[0], shape[1], shape[2], 1200 + i);
        for (size_t j = 0; j < a.N * a.d; j++)
            a.q[j] *= sizes[i % 3];
        a.beta[0] = i % 2 ? 0 : 2;
        backward(ref, &a, k);
        float *expected[] = { a.dX, a.dq, a.dv, a.dbeta };
        size_t counts[] = { a.N * a.d * a.c, a.N * a.d, a.N * a.c, a.N };
        a.dX = poisoned_floats(counts[0]);
        a.dq = poisoned_floats(counts[1]);
        a.dv = poisoned_floats(counts[2]);
        a.dbeta = poisoned_floats(counts[3]);
        backward(backend, &a, k);
        /* dX = G - beta k g is a difference: where it cancels (d = 1), rounding is that of G */
        for (size_t j = 0; j < counts[0]; j++)
            a.X_out[j] = a.dX[j] - expected[0][j];
        assert_true(rms(counts[0], a.X_out) <= 1e-6 * rms(counts[0], a.G));
        if (a.d > 1 || i % 3 == 2)
            assert_close(counts[1], a.dq, expected[1], 1e-5);
        assert_close(counts[2], a.dv, expected[2], 2e-6);
        assert_close(counts[3], a.dbeta, expected[3], 1e-5);
        for (size_t j = 0; j < 4; j++)
            ddl_mem_free(expected[j]);
        problem_free(&a);
    }
    ddl_backend_free(ref);
}

/* --- the element-wise form ---------------------------------------------------------------------------- */

struct vectors {
    size_t N, d;
    float *x, *q, *v, *beta, *G, *x_out, *dx, *dq, *dv, *dbeta;
};

static struct vectors vectors_make(size_t N, size_t d, uint64_t stream)
{
    struct vectors p = { N,
                         d,
                         random_floats(N * d, stream),
                         random_floats(N * d, stream + 1),
                         random_floats(N * d, stream + 2),
                         random_floats(N, stream + 3),
                         random_floats(N * d, stream + 4),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N) };
    for (size_t n = 0; n < N; n++) {
        p.beta[n] = 1 + tanhf(p.beta[n]);
        p.q[n * d] += 2;
    }
    return p;
}

static void vectors_free(struct vectors *p)
{
    float *all[] = { p->x, p->q, p->v, p->beta, p->G, p->x_out, p->dx, p->dq, p->dv, p->dbeta };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

static double elementwise_loss(ddl_backend *backend, void *problem, int which)
{
    (void)which;
    struct vectors *p = problem;
    struct ddl_error err = { 0 };
    struct ddl_elementwise_args a = {
        .N = p->N, .d = p->d, .eps = eps, .x = p->x, .q = p->q, .v = p->v, .beta = p->beta, .x_out = p->x_out
    };
    assert_ok(ddl_elementwise_forward(backend, &a, &err), err);
    return weighted_sum(p->N * p->d, p->G, p->x_out);
}

/* x' = x - beta k (k . x) + beta k (*) v from the definition */
static void check_elementwise(const struct vectors *p)
{
    float *expected = poisoned_floats(p->N * p->d);
    double *k = malloc(p->d * sizeof *k), read;
    for (size_t n = 0; n < p->N; n++) {
        double beta = (double)p->beta[n], along = 0;
        direction(p->d, p->q + n * p->d, DDL_FORM_UNIT, k, &read);
        for (size_t i = 0; i < p->d; i++)
            along += k[i] * (double)p->x[n * p->d + i];
        for (size_t i = 0; i < p->d; i++) {
            size_t at = n * p->d + i;
            expected[at] = (float)((double)p->x[at] - beta * k[i] * along + beta * k[i] * (double)p->v[at]);
        }
    }
    assert_close(p->N * p->d, p->x_out, expected, 1e-6);
    free(k);
    ddl_mem_free(expected);
}

static void elementwise(ddl_backend *backend)
{
    for (size_t s = 0; s < N_SHAPES; s++) {
        struct vectors p = vectors_make(shapes[s][0], shapes[s][1], 1300 + s);
        size_t n = p.N * p.d;
        elementwise_loss(backend, &p, 0);
        check_elementwise(&p);
        struct ddl_error err = { 0 };
        struct ddl_elementwise_grad_args g = { .N = p.N,
                                               .d = p.d,
                                               .eps = eps,
                                               .x = p.x,
                                               .q = p.q,
                                               .v = p.v,
                                               .beta = p.beta,
                                               .G = p.G,
                                               .dx = p.dx,
                                               .dq = p.dq,
                                               .dv = p.dv,
                                               .dbeta = p.dbeta };
        assert_ok(ddl_elementwise_backward(backend, &g, &err), err);
        float *inputs[] = { p.x, p.q, p.v, p.beta }, *grads[] = { p.dx, p.dq, p.dv, p.dbeta };
        for (size_t i = 0; i < 4; i++) {
            size_t count = i == 3 ? p.N : n;
            float *u = random_floats(count, 6000 + i);
            double found = weighted_sum(count, grads[i], u);
            double size = rms(count, grads[i]) * sqrt((double)count) + rms(n, p.G);
            close_enough(found, slope(backend, elementwise_loss, &p, 0, count, inputs[i], u, 2e-2),
                         1e-3 * size, "slope of the element-wise form");
            ddl_mem_free(u);
        }
        g.dx = p.G; /* in place */
        assert_ok(ddl_elementwise_backward(backend, &g, &err), err);
        assert_memory_equal(p.G, p.dx, n * sizeof *p.dx);
        elementwise_loss(backend, &p, 0);
        struct ddl_elementwise_args a = {
            .N = p.N, .d = p.d, .eps = eps, .x = p.x, .q = p.q, .v = p.v, .beta = p.beta, .x_out = p.x
        };
        assert_ok(ddl_elementwise_forward(backend, &a, &err), err);
        assert_memory_equal(p.x, p.x_out, n * sizeof *p.x);
        vectors_free(&p);
    }
}

static void elementwise_beta_zero_copies_bits(ddl_backend *backend)
{
    struct vectors p = vectors_make(2, 37, 1400);
    for (size_t i = 0; i < 2 * 37; i++) {
        p.x[i] = i % 2 ? -0.0f : p.x[i];
        p.v[i] = i % 3 ? INFINITY : NAN;
    }
    p.beta[0] = p.beta[1] = 0;
    elementwise_loss(backend, &p, 0);
    assert_memory_equal(p.x_out, p.x, 2 * 37 * sizeof *p.x);
    vectors_free(&p);
}

/* --- golden vectors ----------------------------------------------------------------------------------- */

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
        struct variant k = variants[0];
        for (size_t j = 1; j < N_VARIANTS; j++)
            k = strncmp(names[i], variants[j].name, strlen(variants[j].name)) == 0 ? variants[j] : k;
        char path[128];
        snprintf(path, sizeof path, "tests/golden/operator/%s.safetensors", names[i]);
        struct ddl_error err = { 0 };
        ddl_safetensors *file;
        assert_ok(ddl_safetensors_open(&file, source_path(path), &err), err);
        size_t s[3];
        float *X = golden_tensor(file, "X", 3, s), *expected[5];
        struct problem p = problem_make(s[0], s[1], s[2], 1);
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
        forward(backend, &p, k);
        backward(backend, &p, k);
        float *found[5] = { p.X_out, p.dX, p.dq, p.dv, p.dbeta };
        for (size_t j = 0; j < 5; j++)
            assert_close_at(counts[j], found[j], expected[j], 1e-5, names[i], __FILE__, __LINE__);
        for (size_t j = 0; j < 5; j++)
            ddl_mem_free(expected[j]);
        problem_free(&p);
        ddl_safetensors_close(file);
    }
}

/* --- the edges of the calls --------------------------------------------------------------------------- */

static void no_rows(ddl_backend *backend)
{
    struct ddl_error err = { 0 };
    assert_ok(ddl_delta_forward(backend, &(struct ddl_delta_args){ .d = 3, .c = 2, .eps = eps }, &err), err);
    assert_ok(ddl_delta_backward(backend, &(struct ddl_delta_grad_args){ .d = 3, .c = 2, .eps = eps }, &err),
              err);
    assert_ok(
        ddl_delta_inverse(backend, &(struct ddl_delta_inverse_args){ .d = 3, .c = 2, .eps = eps }, &err),
        err);
    assert_ok(ddl_elementwise_forward(backend, &(struct ddl_elementwise_args){ .d = 3, .eps = eps }, &err),
              err);
    assert_ok(
        ddl_elementwise_backward(backend, &(struct ddl_elementwise_grad_args){ .d = 3, .eps = eps }, &err),
        err);
}

static void bad_arguments(ddl_backend *backend)
{
    struct problem p = problem_make(2, 3, 2, 1500);
    const struct ddl_delta_args good = {
        .N = 2, .d = 3, .c = 2, .eps = eps, .X = p.X, .q = p.q, .v = p.v, .beta = p.beta, .X_out = p.X_out
    };
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
    struct ddl_delta_grad_args g = grad_args(&p, variants[0]);
    g.X_next = p.X_out;
    assert_int_equal(ddl_delta_backward(backend, &g, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "readout"));
    problem_free(&p);
}

/* A backend whose memory is its own: `ref` behind copies, that refuses memory after a while. */
static size_t copies_allowed, copies_alive;

static void *limited_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    if (copies_allowed == 0)
        return NULL;
    copies_allowed--;
    copies_alive++;
    return ddl_mem_alloc(bytes);
}

static void counted_free(void *ctx, void *block)
{
    (void)ctx;
    copies_alive -= block != NULL;
    ddl_mem_free(block);
}

static void memory_that_is_not_the_hosts(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    ddl_backend *ref;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    struct ddl_ops ops = *ref->ops;
    ops.host_memory = false;
    ops.alloc = limited_alloc;
    ops.free = counted_free;
    struct ddl_backend far = *ref;
    far.ops = &ops;
    struct problem a = problem_make(3, 7, 2, 1600), b = problem_make(3, 7, 2, 1600);
    struct ddl_delta_grad_args g = grad_args(&b, variants[0]);
    copies_allowed = 1000;
    for (size_t k = 0; k < N_VARIANTS; k++) {
        forward(ref, &a, variants[k]);
        backward(ref, &a, variants[k]);
        forward(&far, &b, variants[k]);
        backward(&far, &b, variants[k]);
        assert_memory_equal(a.X_out, b.X_out, 42 * sizeof(float));
        assert_memory_equal(a.readout, b.readout, 6 * sizeof(float));
        assert_memory_equal(a.dX, b.dX, 42 * sizeof(float));
        assert_memory_equal(a.dq, b.dq, 21 * sizeof(float));
    }
    for (size_t allowed = 0; allowed < 9; allowed++) {
        copies_allowed = allowed;
        ddl_status status = ddl_delta_backward(&far, &g, &err);
        assert_int_equal(status, DDL_E_MEMORY);
        assert_non_null(strstr(err.text, "out of memory"));
        assert_int_equal(copies_alive, 0);
    }
    problem_free(&a);
    problem_free(&b);
    ddl_backend_free(ref);
}

#define LAW(name)                                                                                            \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        on_every_backend(name);                                                                              \
    }
LAW(forward_is_the_definition)
LAW(every_width_of_the_value)
LAW(spectrum_of_A)
LAW(lifted_determinant)
LAW(readout_follows_its_law)
LAW(beta_one_overwrites)
LAW(beta_two_reflects)
LAW(beta_zero_copies_bits)
LAW(beta_zero_among_others)
LAW(no_direction_changes_nothing)
LAW(inverse_is_free)
LAW(backward_through_the_inverse)
LAW(in_place_is_the_same)
LAW(backward_is_the_slope)
LAW(backward_equals_ref)
LAW(elementwise)
LAW(elementwise_beta_zero_copies_bits)
LAW(golden_operator)
LAW(no_rows)
LAW(bad_arguments)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_the_definition),
        cmocka_unit_test(test_every_width_of_the_value),
        cmocka_unit_test(test_spectrum_of_A),
        cmocka_unit_test(spectrum_in_words),
        cmocka_unit_test(test_lifted_determinant),
        cmocka_unit_test(test_readout_follows_its_law),
        cmocka_unit_test(test_beta_one_overwrites),
        cmocka_unit_test(test_beta_two_reflects),
        cmocka_unit_test(test_beta_zero_copies_bits),
        cmocka_unit_test(test_beta_zero_among_others),
        cmocka_unit_test(test_no_direction_changes_nothing),
        cmocka_unit_test(test_inverse_is_free),
        cmocka_unit_test(test_backward_through_the_inverse),
        cmocka_unit_test(test_in_place_is_the_same),
        cmocka_unit_test(test_backward_is_the_slope),
        cmocka_unit_test(test_backward_equals_ref),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_elementwise_beta_zero_copies_bits),
        cmocka_unit_test(test_golden_operator),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(memory_that_is_not_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
