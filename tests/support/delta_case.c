#include "support/delta_case.h"

#include "base/mem.h"

#include <math.h>

const struct delta_variant delta_variants[N_DELTA_VARIANTS] = {
    { "delta", DDL_FORM_UNIT, DDL_UPDATE_DELTA }, { "write", DDL_FORM_UNIT, DDL_UPDATE_WRITE },
    { "erase", DDL_FORM_UNIT, DDL_UPDATE_ERASE }, { "ratio", DDL_FORM_RATIO, DDL_UPDATE_DELTA },
    { "l2", DDL_FORM_L2, DDL_UPDATE_DELTA },
};

const size_t delta_shapes[N_DELTA_SHAPES][3] = {
    /* N, d, c */
    { 1, 1, 1 },  { 3, 2, 1 },   { 7, 1, 5 },   { 5, 7, 3 },   { 4, 16, 4 }, { 2, 33, 1 },
    { 3, 63, 2 }, { 2, 100, 5 }, { 2, 768, 4 }, { 3, 24, 17 }, { 2, 9, 16 }, { 2, 65, 8 },
};

const float delta_eps = 1e-5f;

struct delta_case delta_case_make(size_t N, size_t d, size_t c, uint64_t stream)
{
    struct delta_case p = { .N = N, .d = d, .c = c };
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

void delta_case_free(struct delta_case *p)
{
    float *all[] = { p->X, p->q, p->v, p->beta, p->G, p->X_out, p->readout, p->dX, p->dq, p->dv, p->dbeta };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

struct ddl_delta_args delta_args(struct delta_case *p, struct delta_variant k)
{
    return (struct ddl_delta_args){ .N = p->N,
                                    .d = p->d,
                                    .c = p->c,
                                    .eps = delta_eps,
                                    .form = k.form,
                                    .update = k.update,
                                    .X = p->X,
                                    .q = p->q,
                                    .v = p->v,
                                    .beta = p->beta,
                                    .X_out = p->X_out,
                                    .readout = p->readout };
}

void delta_forward(ddl_backend *backend, struct delta_case *p, struct delta_variant k)
{
    struct ddl_error err = { 0 };
    struct ddl_delta_args a = delta_args(p, k);
    assert_ok(ddl_delta_forward(backend, &a, &err), err);
}

struct ddl_delta_inverse_args delta_inverse_args(struct delta_case *p, struct delta_variant k, float *X)
{
    return (struct ddl_delta_inverse_args){ .N = p->N,
                                            .d = p->d,
                                            .c = p->c,
                                            .eps = delta_eps,
                                            .form = k.form,
                                            .update = k.update,
                                            .X_out = p->X_out,
                                            .q = p->q,
                                            .v = p->v,
                                            .beta = p->beta,
                                            .readout = p->readout,
                                            .X = X };
}

struct ddl_delta_grad_args delta_grad_args(struct delta_case *p, struct delta_variant k)
{
    return (struct ddl_delta_grad_args){ .N = p->N,
                                         .d = p->d,
                                         .c = p->c,
                                         .eps = delta_eps,
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

void delta_backward(ddl_backend *backend, struct delta_case *p, struct delta_variant k)
{
    struct ddl_error err = { 0 };
    struct ddl_delta_grad_args a = delta_grad_args(p, k);
    assert_ok(ddl_delta_backward(backend, &a, &err), err);
}

void delta_direction(size_t d, const float *q, int form, double *k, double *read)
{
    double square = 0, e = (double)delta_eps;
    for (size_t i = 0; i < d; i++)
        square += (double)q[i] * (double)q[i];
    double inv = form == DDL_FORM_RATIO ? 1
                 : form == DDL_FORM_L2  ? 1 / (sqrt(square) + e)
                                        : 1 / sqrt(square + e * e);
    *read = form == DDL_FORM_RATIO ? 1 / (square + e) : 1;
    for (size_t i = 0; i < d; i++)
        k[i] = (double)q[i] * inv;
}
