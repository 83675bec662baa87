/* Ops that reduce over rows. Each thread accumulates into its own partial sums, which are added in a fixed
 * order. */
#include "backend/cpu/parallel.h"

#include <math.h>
#include <string.h>

static void add(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

void cpu_compress_bwd(void *ctx, const struct compress_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t count = a->taps * a->d * a->c;
    memcpy(a->de, parallel_sums(cpu, a->B * a->T, 2 * count, cpu->k->compress_bwd, a, count),
           count * sizeof *a->de);
}

void cpu_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a)
{
    const struct cpu *cpu = ctx;
    add(a->d, parallel_sums(cpu, a->N, 4 * a->d, cpu->k->rmsnorm_bwd, a, a->d), a->dw);
}

void cpu_rope_bwd(void *ctx, const struct rope_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t count = a->w ? a->h : 0;
    add(count, parallel_sums(cpu, a->B * a->T, 8 * a->H * a->h, cpu->k->rope_bwd, a, count), a->dw);
}

void cpu_mix_values_bwd(void *ctx, const struct mix_values_grad_args *a)
{
    const struct cpu *cpu = ctx;
    add(2, parallel_sums(cpu, a->N, 6 * a->width, cpu->k->mix_values_bwd, a, 2), a->dmix);
}

void cpu_project_bwd(void *ctx, const struct project_grad_args *a)
{
    const struct cpu *cpu = ctx;
    const float *sums = parallel_sums(cpu, a->N, 2 * a->d * a->c, cpu->k->project_bwd, a, a->c * a->d + a->c);
    add(a->c * a->d, sums, a->dW);
    add(a->c, sums + a->c * a->d, a->db);
}

void cpu_scale_bwd(void *ctx, const struct scale_grad_args *a)
{
    const struct cpu *cpu = ctx;
    const float *sums = parallel_sums(cpu, a->N, 6 * a->d, cpu->k->scale_bwd, a, a->w);
    if (a->dlambda)
        add(a->w, sums, a->dlambda);
}

void cpu_highway_bwd(void *ctx, const struct highway_grad_args *a)
{
    const struct cpu *cpu = ctx;
    add(a->w, parallel_sums(cpu, a->N, 10 * a->d, cpu->k->highway_bwd, a, a->w), a->db);
}

/* As many sums as the arrays in order take; those that are NULL have none. */
static void add_in_order(const float *sums, size_t arrays, float *const *to, const size_t *count)
{
    for (size_t i = 0; i < arrays; i++) {
        if (!to[i])
            continue;
        add(count[i], sums, to[i]);
        sums += count[i];
    }
}

void cpu_hyper_bwd(void *ctx, const struct hyper_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t n = a->n, projected = a->Wf ? (n + 2) * a->d : 0;
    float *to[] = { a->dalpha, a->dbeta, a->da, a->de };
    const size_t count[] = { n * (n + 1), n, 1, 1 };
    const float *sums =
        parallel_sums(cpu, a->N, 8 * n * a->d, cpu->k->hyper_bwd, a, projected + n * (n + 2) + 2);
    if (a->Wf)
        memcpy(a->dWf, sums, projected * sizeof *a->dWf);
    add_in_order(sums + projected, sizeof to / sizeof *to, to, count);
}

void cpu_mhc_bwd(void *ctx, const struct mhc_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t n = a->n, out = n * (n + 2), projected = out * n * a->d;
    float *to[] = { a->dbias[0], a->dbias[1], a->dbias[2], a->dscale[0], a->dscale[1], a->dscale[2] };
    const size_t count[] = { n, n, n * n, 1, 1, 1 };
    const float *sums = parallel_sums(cpu, a->N, 16 * n * a->d, cpu->k->mhc_bwd, a, projected + out + 3);
    memcpy(a->dWf, sums, projected * sizeof *a->dWf);
    add_in_order(sums + projected, sizeof to / sizeof *to, to, count);
}

/* dmix_i = m_i dm_i - s_i sum_j m_j dm_j, with s = m / 2 the softmax. */
void cpu_laurel_bwd(void *ctx, const struct laurel_grad_args *a)
{
    const struct cpu *cpu = ctx;
    const float *dm = parallel_sums(cpu, a->N, 6 * a->d + 3 * a->r, cpu->k->laurel_bwd, a, 2);
    float s0 = 1 / (1 + expf(a->mix[1] - a->mix[0])), s1 = 1 / (1 + expf(a->mix[0] - a->mix[1]));
    float dmix = s1 * dm[0] - s0 * dm[1];
    a->dmix[0] += dmix;
    a->dmix[1] -= dmix;
}

void cpu_depth_bwd(void *ctx, const struct depth_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t d = a->fwd.d, sources = a->fwd.n + 1;
    parallel_fits(cpu, d + sources);
    memcpy(a->dq, parallel_sums(cpu, a->fwd.N, 2 * sources * d, cpu->k->depth_bwd, a, d), d * sizeof *a->dq);
}

void cpu_weighted_sum_bwd(void *ctx, const struct weighted_sum_grad_args *a)
{
    const struct cpu *cpu = ctx;
    add(a->n, parallel_sums(cpu, a->count, a->n, cpu->k->weighted_sum_bwd, a, a->n), a->dw);
}

void cpu_bias_bwd(void *ctx, const struct bias_grad_args *a)
{
    const struct cpu *cpu = ctx;
    add(a->d, parallel_sums(cpu, a->N, a->d, cpu->k->bias_bwd, a, a->d), a->db);
}

void cpu_pool_bwd(void *ctx, const struct pool_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t count = a->w_a ? a->d : 0;
    add(count, parallel_sums(cpu, a->N, 6 * a->d * a->c, cpu->k->pool_bwd, a, count), a->dw_a);
}

/* The kernels of the convolution read its weights from scratch, transposed to (K, d*c), and accumulate their
 * gradient in that layout. */
void cpu_init_state_fwd(void *ctx, const struct init_state_args *a)
{
    const struct cpu *cpu = ctx;
    size_t dc = a->d * a->c;
    parallel_fits(cpu, a->w ? dc * a->K : 0);
    if (a->w)
        parallel_scratch(cpu, a->B * a->T, dc * a->K, cpu->k->init_state_fwd, a, 0);
    else
        parallel_rows(cpu, a->B * a->T, dc, cpu->k->init_state_fwd, a);
}

void cpu_init_state_bwd(void *ctx, const struct init_state_grad_args *a)
{
    const struct cpu *cpu = ctx;
    size_t dc = a->d * a->c, count = a->w ? dc * a->K : 0;
    parallel_fits(cpu, 2 * count);
    const float *transposed =
        parallel_sums(cpu, a->B * a->T, 2 * (a->w ? count : dc), cpu->k->init_state_bwd, a, count);
    for (size_t i = 0; i < count; i++)
        a->dw[i] += transposed[i % a->K * dc + i / a->K];
}
