/* The Delta operator. All forms and updates are one computation with other factors, see struct factors. A
 * step sweeps a row twice, the second time out of the first cache. Channels go in tiles, so that any c works
 * without allocating memory; the vector path (c = 1, 2, 4, 8) has one tile. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

#include <math.h>
#include <string.h>

enum { TILE = 64 }; /* channels */

/* k = write q, p = read (q . X). What an update leaves out: target 0 (erase), erase 0 (write). The numbers of
 * a row are few and go in double: G - beta k (k . G) cancels where d is small. */
struct factors {
    double write, read, norm;
    double target, erase;
};

static struct factors factors_of(size_t d, const float *q, float eps, int form, int update)
{
    double squares = (double)dot(d, q, q), e = (double)eps;
    struct factors f = { .norm = sqrt(squares),
                         .target = update == DDL_UPDATE_ERASE ? 0 : 1,
                         .erase = update == DDL_UPDATE_WRITE ? 0 : 1 };
    if (form == DDL_FORM_RATIO) {
        f.write = 1;
        f.read = 1 / (squares + e);
    } else {
        f.write = form == DDL_FORM_L2 ? 1 / (f.norm + e) : 1 / sqrt(squares + e * e);
        f.read = f.write;
    }
    return f;
}

/* target v - erase p, where a factor of 0 leaves the term out, infinities included */
static inline double discrepancy(const struct factors *f, double v, double p)
{
    return f->target == 0 ? -p : f->erase == 0 ? v : v - p;
}

/* sum_j += q . X_:j over the tile's channels */
INLINE void column_dots(size_t d, size_t tile, const float *q, const float *X, double *sum, const size_t c,
                        const bool fast)
{
    size_t vectored = vector_features(d, fast);
    if (fast) {
        vec part[MAX_PARTS] = { { 0 } }, wide[MAX_PARTS];
        for (size_t i = 0; i < vectored; i += V) {
            spread(load(q + i), wide, c);
            for (size_t p = 0; p < c; p++)
                part[p] += wide[p] * load(X + i * c + p * V);
        }
        add_channels(part, sum, c);
    }
    for (size_t i = vectored; i < d; i++) {
        for (size_t j = 0; j < tile; j++)
            sum[j] += (double)q[i] * (double)X[i * c + j];
    }
}

/* X_out = X + q step^T for the tile's channels; X_out may be X */
INLINE void rank_one(size_t d, size_t tile, const float *q, const double *step, const float *X, float *X_out,
                     const size_t c, const bool fast)
{
    size_t vectored = vector_features(d, fast);
    if (fast) {
        vec by[MAX_PARTS], wide[MAX_PARTS];
        from_channels(step, by, c);
        for (size_t i = 0; i < vectored; i += V) {
            spread(load(q + i), wide, c);
            for (size_t p = 0; p < c; p++)
                store(X_out + i * c + p * V, load(X + i * c + p * V) + wide[p] * by[p]);
        }
    }
    for (size_t i = vectored; i < d; i++) {
#pragma omp simd
        for (size_t j = 0; j < tile; j++)
            X_out[i * c + j] = (float)((double)X[i * c + j] + (double)q[i] * step[j]);
    }
}

static void copy_row(size_t count, float *to, const float *from)
{
    if (to != from)
        memcpy(to, from, count * sizeof *to);
}

/* How many steps a row takes: 0 means 1. */
static size_t steps_of(size_t steps)
{
    return steps ? steps : 1;
}

/* Step r of all rows' steps, on a row: X -> X_out. */
INLINE void fwd_step(const struct ddl_delta_args *a, size_t r, const float *X, float *X_out, const size_t c,
                     const bool fast)
{
    size_t d = a->d;
    const float *q = a->q + r * d;
    struct factors f = factors_of(d, q, a->eps, a->form, a->update);
    for (size_t first = 0; first < c; first += TILE) {
        size_t tile = c - first < TILE ? c - first : TILE;
        double p[TILE] = { 0 }, step[TILE];
        if (a->readout || f.erase != 0)
            column_dots(d, tile, q, X + first, p, c, fast);
        for (size_t j = 0; j < tile; j++) {
            size_t rj = r * c + first + j;
            p[j] *= f.read;
            step[j] = f.write * (double)a->beta[r] * discrepancy(&f, (double)a->v[rj], p[j]);
            if (a->readout)
                a->readout[rj] = (float)p[j];
        }
        if (a->beta[r] != 0)
            rank_one(d, tile, q, step, X + first, X_out + first, c, fast);
    }
    if (a->beta[r] == 0)
        copy_row(d * c, X_out, X);
}

/* All steps of a row while its state is in the cache. */
INLINE void fwd_rows(const struct ddl_delta_args *a, size_t lo, size_t hi, const size_t c, const bool fast)
{
    size_t R = steps_of(a->steps), dc = a->d * c;
    for (size_t r = lo * R; r < hi * R; r++)
        fwd_step(a, r, (r % R ? a->X_out : a->X) + r / R * dc, a->X_out + r / R * dc, c, fast);
}

void DDL_KERNEL(delta_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct ddl_delta_args *a = args;
    (void)scratch;
    BY_CHANNELS(a->c, fwd_rows, a, lo, hi);
}

/* Step r of all rows' steps, on a row: X_out -> X. */
INLINE void inverse_step(const struct ddl_delta_inverse_args *a, size_t r, const float *X_out, float *X,
                         const size_t c, const bool fast)
{
    size_t d = a->d;
    const float *q = a->q + r * d;
    if (a->beta[r] == 0) {
        copy_row(d * c, X, X_out);
        return;
    }
    struct factors f = factors_of(d, q, a->eps, a->form, a->update);
    for (size_t first = 0; first < c; first += TILE) {
        size_t tile = c - first < TILE ? c - first : TILE;
        double step[TILE];
        for (size_t j = 0; j < tile; j++) {
            size_t rj = r * c + first + j;
            double error = discrepancy(&f, (double)a->v[rj], (double)a->readout[rj]);
            step[j] = -f.write * (double)a->beta[r] * error;
        }
        rank_one(d, tile, q, step, X_out + first, X + first, c, fast);
    }
}

INLINE void inverse_rows(const struct ddl_delta_inverse_args *a, size_t lo, size_t hi, const size_t c,
                         const bool fast)
{
    size_t R = steps_of(a->steps), dc = a->d * c;
    for (size_t r = hi * R; r-- > lo * R;)
        inverse_step(a, r, (r % R == R - 1 ? a->X_out : a->X) + r / R * dc, a->X + r / R * dc, c, fast);
}

void DDL_KERNEL(delta_inverse)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct ddl_delta_inverse_args *a = args;
    (void)scratch;
    BY_CHANNELS(a->c, inverse_rows, a, lo, hi);
}

/* What the second sweep of backward does to a tile, by channel. */
struct sweep {
    double undo[TILE]; /* X = X_next - q undo^T                                   */
    double take[TILE]; /* dX = G - q take^T                                       */
    double by_G[TILE]; /* along_i = sum_j G_ij by_G_j - X_ij by_X_j: dk, so far   */
    double by_X[TILE];
};

/* The states of a sweep, from the first channel of a tile on: X is rebuilt first if `rebuilt`, which is then
 * X_next, is not NULL. dX may be G. */
struct sweep_states {
    const float *X;
    float *rebuilt;
    const float *G;
    float *dX;
};

/* One sweep over X and G of `tile` channels. */
INLINE void grad_sweep(size_t d, size_t tile, const struct sweep *s, const float *q,
                       const struct sweep_states states, float *along, const size_t c, const bool fast)
{
    const float *X = states.X, *G = states.G;
    float *rebuilt = states.rebuilt, *dX = states.dX;
    size_t vectored = vector_features(d, fast);
    if (fast) {
        vec undo[MAX_PARTS], take[MAX_PARTS], by_G[MAX_PARTS], by_X[MAX_PARTS], wide[MAX_PARTS],
            terms[MAX_PARTS];
        from_channels(s->undo, undo, c);
        from_channels(s->take, take, c);
        from_channels(s->by_G, by_G, c);
        from_channels(s->by_X, by_X, c);
        for (size_t i = 0; i < vectored; i += V) {
            spread(load(q + i), wide, c);
            for (size_t p = 0; p < c; p++) {
                size_t at = i * c + p * V;
                vec x = load(X + at), g = load(G + at);
                if (rebuilt) {
                    x -= wide[p] * undo[p];
                    store(rebuilt + at, x);
                }
                terms[p] = g * by_G[p] - x * by_X[p];
                store(dX + at, g - wide[p] * take[p]);
            }
            store(along + i, load(along + i) + fold(terms, c));
        }
    }
    for (size_t i = vectored; i < d; i++) {
        double sum = 0, q_i = (double)q[i];
        for (size_t j = 0; j < tile; j++) {
            size_t at = i * c + j;
            double x = (double)X[at], g = (double)G[at];
            if (rebuilt) {
                x -= q_i * s->undo[j];
                rebuilt[at] = (float)x;
            }
            sum += g * s->by_G[j] - x * s->by_X[j];
            dX[at] = (float)(g - q_i * s->take[j]);
        }
        along[i] += (float)sum;
    }
}

/* The sums over channels that dq and dbeta need. */
struct channel_sums {
    double g_delta, g_p, dbeta;
};

/* Channels [first, first + n). */
struct tile {
    size_t first, n;
};

/* From q.G and q.X of a tile (readout, if there is one, for the second): dv, the sums, and the factors of the
 * second sweep. */
INLINE void plan_tile(const struct ddl_delta_grad_args *a, size_t r, struct tile t, const struct factors *f,
                      const double *q_X, const double *q_G, struct sweep *s, struct channel_sums *sums)
{
    double beta = (double)a->beta[r], erase = f->erase * beta;
    double by_X = a->form == DDL_FORM_RATIO ? erase * f->read : erase;
    for (size_t j = 0; j < t.n; j++) {
        size_t rj = r * a->c + t.first + j;
        double p = a->readout ? (double)a->readout[rj] : f->read * q_X[j];
        double g = f->write * q_G[j], error = discrepancy(f, (double)a->v[rj], p);
        double delta = beta == 0 ? 0 : beta * error;
        sums->dbeta += g * error;
        sums->g_delta += g * delta;
        sums->g_p += erase == 0 ? 0 : erase * g * p;
        a->dv[rj] = f->target * beta == 0 ? 0 : (float)(beta * g);
        s->undo[j] = f->write * delta;
        s->take[j] = erase * f->read * g;
        s->by_G[j] = delta;
        s->by_X[j] = by_X * g;
    }
}

/* dq from dk = `along`: dq = scale dk - shrink q. k . dk needs no sum over features: it is g.delta - beta
 * g.p, since k.G = g and k.X = p. */
static void finish_direction(const struct ddl_delta_grad_args *a, const float *q, const struct factors *f,
                             const struct channel_sums *sums, float *dq)
{
    double dot_dk = sums->g_delta - sums->g_p, along;
    if (a->form == DDL_FORM_RATIO)
        along = -2 * f->read * sums->g_p;
    else if (a->form == DDL_FORM_UNIT)
        along = f->write * f->write * dot_dk;
    else /* k = q/(|q| + eps): d|q|/dq = q/|q| */
        along = f->norm == 0 ? 0 : f->write * dot_dk / f->norm;
    float scale = (float)f->write, shrink = (float)along;
#pragma omp simd
    for (size_t i = 0; i < a->d; i++)
        dq[i] = scale * dq[i] - shrink * q[i];
}

/* Where a step of a row finds the state and the gradients, and writes dq. */
struct bwd_row {
    const float *X;
    float *X_next;  /* or NULL */
    const float *G; /* of the row after the step  */
    float *dX, *dq; /* of the row before the step */
};

/* Step r of all rows' steps. */
INLINE void bwd_step(const struct ddl_delta_grad_args *a, size_t r, const struct bwd_row *row, const size_t c,
                     const bool fast)
{
    const float *X = row->X, *G = row->G;
    float *X_next = row->X_next, *dX = row->dX, *dq = row->dq;
    size_t d = a->d;
    const float *q = a->q + r * d;
    float *rebuilt = X_next && a->beta[r] != 0 ? X_next : NULL;
    struct factors f = factors_of(d, q, a->eps, a->form, a->update);
    struct channel_sums sums = { 0 };
    memset(dq, 0, d * sizeof *dq);
    for (size_t first = 0; first < c; first += TILE) {
        size_t tile = c - first < TILE ? c - first : TILE;
        double q_X[TILE] = { 0 }, q_G[TILE] = { 0 };
        struct sweep s;
        column_dots(d, tile, q, G + first, q_G, c, fast);
        if (!a->readout && f.erase != 0)
            column_dots(d, tile, q, X + first, q_X, c, fast);
        plan_tile(a, r, (struct tile){ first, tile }, &f, q_X, q_G, &s, &sums);
        if (a->beta[r] == 0)
            continue;
        struct sweep_states states = { X + first, NULL, G + first, dX + first };
        if (rebuilt) {
            states.rebuilt = rebuilt + first;
            grad_sweep(d, tile, &s, q, states, dq, c, fast);
        } else {
            grad_sweep(d, tile, &s, q, states, dq, c, fast);
        }
    }
    a->dbeta[r] = (float)sums.dbeta;
    if (a->beta[r] == 0)
        copy_row(d * c, dX, G);
    else
        finish_direction(a, q, &f, &sums, dq);
    if (a->dq16)
        round_row(d, dq, a->dq16 + r * d);
}

/* The steps of a row in reverse order, while its state and gradient are in the cache. scratch: d numbers,
 * with dq16. */
INLINE void bwd_rows(const struct ddl_delta_grad_args *a, size_t lo, size_t hi, float *scratch,
                     const size_t c, const bool fast)
{
    size_t R = steps_of(a->steps), dc = a->d * c;
    for (size_t n = lo; n < hi; n++) {
        float *X_next = a->X_next ? a->X_next + n * dc : NULL;
        for (size_t s = R; s-- > 0;) {
            size_t r = n * R + s;
            const struct bwd_row row = { .X = X_next ? X_next : a->X + n * dc,
                                         .X_next = X_next,
                                         .G = (s == R - 1 ? a->G : a->dX) + n * dc,
                                         .dX = a->dX + n * dc,
                                         .dq = a->dq16 ? scratch : a->dq + r * a->d };
            bwd_step(a, r, &row, c, fast);
        }
    }
}

void DDL_KERNEL(delta_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct ddl_delta_grad_args *a = args;
    BY_CHANNELS(a->c, bwd_rows, a, lo, hi, scratch);
}

void DDL_KERNEL(elementwise_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct ddl_elementwise_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *x = a->x + n * a->d, *q = a->q + n * a->d, *v = a->v + n * a->d;
        float *out = a->x_out + n * a->d, beta = a->beta[n];
        if (beta == 0) {
            copy_row(a->d, out, x);
            continue;
        }
        struct factors f = factors_of(a->d, q, a->eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA);
        float k = (float)f.write, p = k * dot(a->d, q, x), step = beta * k;
#pragma omp simd
        for (size_t i = 0; i < a->d; i++)
            out[i] = x[i] + step * q[i] * (v[i] - p);
    }
}

/* With s = k.G: dx = G - beta k s, dv = beta k (*) G, dbeta = sum_i k_i G_i (v_i - p),
 * dk = beta (G (*) (v - p) - s x), dq = (dk - k (k.dk)) / n. dx, which may be G, is written last. */
void DDL_KERNEL(elementwise_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct ddl_elementwise_grad_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t d = a->d, at = n * d;
        const float *x = a->x + at, *q = a->q + at, *v = a->v + at, *G = a->G + at;
        float *dx = a->dx + at, *dq = a->dq + at, *dv = a->dv + at, beta = a->beta[n];
        struct factors f = factors_of(d, q, a->eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA);
        float k = (float)f.write, p = k * dot(d, q, x), s = k * dot(d, q, G), dbeta = 0, along = 0;
#pragma omp simd reduction(+ : dbeta, along)
        for (size_t i = 0; i < d; i++) {
            float wanted = G[i] * (v[i] - p), dk = wanted - s * x[i];
            dbeta += k * q[i] * wanted;
            along += k * q[i] * dk;
            dq[i] = dk;
        }
        float scale = beta * k, shrink = beta * k * k * along;
#pragma omp simd
        for (size_t i = 0; i < d; i++) {
            float g = G[i];
            dq[i] = scale * dq[i] - shrink * q[i];
            dv[i] = scale * q[i] * g;
            dx[i] = g - scale * s * q[i];
        }
        a->dbeta[n] = dbeta;
    }
}
