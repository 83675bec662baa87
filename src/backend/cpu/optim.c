/* The ops of a step's end: sums in double, clipping, and the update of a list of parameters. */
#include "backend/cpu/parallel.h"

#include <math.h>
#include <string.h>

/* In ascending order, by one thread: the numbers are few, one for each row of a batch. */
void cpu_sum(void *ctx, const struct sum_args *a)
{
    double sum = 0;
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)a->x[i];
    *a->sum = sum;
}

/* Parts [first, first + n) of the list; each thread has n doubles of scratch. */
struct block {
    const struct cpu *cpu;
    const struct sum_squares_args *a;
    size_t first;
};

static void square_chunk(const void *args, size_t part, size_t lo, size_t hi, float *scratch)
{
    const struct block *b = args;
    enum { DOUBLE = sizeof(double) / sizeof(float) };
    b->cpu->k->sum_squares(b->a->x + b->a->parts.begin[b->first + part], lo, hi, scratch + DOUBLE * part);
}

/* The sums of the chunks of a part, in their order. */
static double sum_of_chunks(const struct cpu *cpu, const struct parallel_list *list, size_t part)
{
    double total = 0, sum;
    for (size_t chunk = 0; chunk < parallel_list_chunks(cpu, list, part); chunk++) {
        const float *scratch = cpu->scratch + parallel_list_thread(cpu, list, part, chunk) * cpu->piece;
        memcpy(&sum, (const double *)(const void *)scratch + part, sizeof sum);
        total += sum;
    }
    return total;
}

void cpu_sum_squares(void *ctx, const struct sum_squares_args *a)
{
    const struct cpu *cpu = ctx;
    size_t fit = cpu->piece * sizeof(float) / sizeof(double), n;
    for (size_t s = 0; s < a->sums; s++)
        a->sum[s] = 0;
    for (size_t first = 0; first < a->parts.n; first += n) {
        n = a->parts.n - first < fit ? a->parts.n - first : fit;
        const struct parallel_list list = { n, a->parts.size + first, a->parts.numbers, 1 };
        parallel_list(cpu, &list, square_chunk, &(struct block){ cpu, a, first });
        for (size_t i = 0; i < n; i++)
            a->sum[a->into ? a->into[first + i] : 0] += sum_of_chunks(cpu, &list, i);
    }
}

void cpu_clip(void *ctx, const struct clip_args *a)
{
    bool finite = isfinite(*a->square);
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        finite = finite && isfinite(a->losses[i]);
    double factor = a->clip > 0 ? fmin(1, (double)a->clip / (sqrt(*a->square) + 1e-6)) : 1;
    *a->factor = finite ? (float)factor : NAN;
}

struct update {
    const struct cpu *cpu;
    const struct adamw_args *a;
};

static void update_chunk(const void *args, size_t part, size_t lo, size_t hi, float *scratch)
{
    const struct update *u = args;
    const struct adamw_args *a = u->a;
    const struct adamw_part x = { .all = a,
                                  .lr = (float)(a->rates[0] * (double)a->lr_scale[part]),
                                  .weight_decay = a->weight_decay[part],
                                  .p = a->p + a->parts.begin[part],
                                  .g = a->g + a->parts.begin[part],
                                  .m = a->m + a->moments[part],
                                  .v = a->v + a->moments[part],
                                  .p16 = a->p16 && a->copy[part] >= 0 ? a->p16 + a->copy[part] : NULL };
    u->cpu->k->adamw(&x, lo, hi, scratch);
}

void cpu_adamw(void *ctx, const struct adamw_args *a)
{
    const struct cpu *cpu = ctx;
    const struct parallel_list list = { a->parts.n, a->parts.size, a->parts.numbers, 6 };
    if (!isnan(*a->g_scale))
        parallel_list(cpu, &list, update_chunk, &(struct update){ cpu, a });
}
