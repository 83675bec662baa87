/* Residual rules with one state, and the element-wise delta rule. A block has a row at a time, or some rows
 * of 4 `threads` columns where it sums over rows. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/norm.cuh"

enum { THREADS = 128, WARPS = THREADS / 32 };

/* A kernel that updates rows, each a Row of the op's arguments, and one that reads them afterwards. */
#define UPDATE_KERNELS(name, Row, arguments)                                                                 \
    KERNEL(name, 128, struct arguments)                                                                      \
    {                                                                                                        \
        SHARED(float, sums, WARPS);                                                                          \
        for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {                                               \
            Row row(a, n, sums);                                                                             \
            EACH_FOUR(i, a.d)                                                                                \
            row.update(i);                                                                                   \
            row.finish();                                                                                    \
        }                                                                                                    \
    }                                                                                                        \
    KERNEL(name##_read, 128, struct cuda_##name##_read)                                                      \
    {                                                                                                        \
        DYNAMIC_SHARED(float, held);                                                                         \
        SHARED(float, sums, WARPS);                                                                          \
        for (size_t n = blockIdx.x; n < a.op.N; n += gridDim.x) {                                            \
            Row row(a.op, n, sums);                                                                          \
            read_row(a.then, n, held, sums, [&](size_t i) { return row.update(i); });                        \
            row.finish();                                                                                    \
        }                                                                                                    \
    }

/* ---- f_norm ---- */

/* Fours of a row that a thread holds in registers, of rows of at most CUDA_SHORT_ROW numbers and of longer
 * ones; those after them are read again. */
enum { SHORT = CUDA_SHORT_ROW / (4 * THREADS), LONG = 8, UNALIGNED = 1 };

__device__ inline size_t begin(unsigned j)
{
    return 4 * (threadIdx.x + THREADS * j);
}

/* Loops over the numbers that are not in registers. */
#define EACH_LATER_FOUR(i, d)                                                                                \
    _Pragma("unroll 1") for (size_t i = begin(F); F != SHORT && i < (d); i += 4 * THREADS)

template <bool fast, unsigned F> __device__ inline void f_norm_rows(const struct f_norm_args &a, float *sums)
{
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        float *f = a.f + n * a.d;
        float4 held[F];
        float squares = 0;
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            held[j] = begin(j) < a.d ? load_row4(f, begin(j), a.d, fast) : splat4(0);
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            squares += dot4(held[j], held[j]);
        EACH_LATER_FOUR(i, a.d)
        {
            const float4 v = load_row4(f, i, a.d, fast);
            squares += dot4(v, v);
        }
        const float rstd = 1.0f / sqrtf(block_sum(squares, sums) / static_cast<float>(a.d) + a.eps);
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            if (begin(j) < a.d)
                store_row4(f, begin(j), a.d, fast, scale4(held[j], rstd));
        EACH_LATER_FOUR(i, a.d)
        store_row4(f, i, a.d, fast, scale4(load_row4(f, i, a.d, fast), rstd));
        if (a.rstd && threadIdx.x == 0)
            a.rstd[n] = rstd;
    }
}

template <unsigned F> __device__ inline void f_norm_rows(const struct f_norm_args &a, float *sums)
{
    if (a.d % 4 == 0 && aligned16(a.f))
        f_norm_rows<true, F>(a, sums);
    else
        f_norm_rows<false, UNALIGNED>(a, sums);
}

KERNEL(f_norm_fwd, 128, struct f_norm_args)
{
    SHARED(float, sums, WARPS);
    f_norm_rows<SHORT>(a, sums);
}

KERNEL(f_norm_fwd_long, 128, struct f_norm_args)
{
    SHARED(float, sums, WARPS);
    f_norm_rows<LONG>(a, sums);
}

/* df = rstd (g - f mean(f g)) */
template <bool fast, unsigned F>
__device__ inline void f_norm_grads(const struct f_norm_grad_args &a, float *sums)
{
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *f = a.f + n * a.d, *df = a.df + n * a.d;
        const float rstd = a.rstd[n];
        float4 held_f[F], held_g[F];
        float dot = 0;
#pragma unroll
        for (unsigned j = 0; j < F; j++) {
            held_f[j] = begin(j) < a.d ? load_row4(f, begin(j), a.d, fast) : splat4(0);
            held_g[j] = begin(j) < a.d ? load_row4(df, begin(j), a.d, fast) : splat4(0);
        }
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            dot += dot4(held_f[j], held_g[j]);
        EACH_LATER_FOUR(i, a.d)
        dot += dot4(load_row4(f, i, a.d, fast), load_row4(df, i, a.d, fast));
        const float mean = block_sum(dot, sums) / static_cast<float>(a.d);
        const auto put = [&](size_t i, float4 f, float4 g) {
            put_row4(a.df, a.df16, n * a.d, i, a.d, fast, scale4(add4(g, scale4(f, -mean)), rstd));
        };
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            if (begin(j) < a.d)
                put(begin(j), held_f[j], held_g[j]);
        EACH_LATER_FOUR(i, a.d)
        put(i, load_row4(f, i, a.d, fast), load_row4(df, i, a.d, fast));
    }
}

template <unsigned F> __device__ inline void f_norm_grads(const struct f_norm_grad_args &a, float *sums)
{
    if (a.d % 4 == 0 && aligned16(a.f, a.df) && aligned8(a.df16))
        f_norm_grads<true, F>(a, sums);
    else
        f_norm_grads<false, UNALIGNED>(a, sums);
}

KERNEL(f_norm_bwd, 128, struct f_norm_grad_args)
{
    SHARED(float, sums, WARPS);
    f_norm_grads<SHORT>(a, sums);
}

KERNEL(f_norm_bwd_long, 128, struct f_norm_grad_args)
{
    SHARED(float, sums, WARPS);
    f_norm_grads<LONG>(a, sums);
}

/* ---- scale ---- */

__device__ inline float4 lambda_of(const float *lambda, size_t w, size_t i, size_t d, bool fast)
{
    if (lambda && w != 1)
        return load_row4(lambda, i, d, fast);
    const float one = lambda ? *lambda : 1;
    return make_float4(one, one, one, one);
}

struct scale_row {
    const struct scale_args &a;
    size_t row;
    bool fast;

    __device__ scale_row(const struct scale_args &a, size_t n, float *)
        : a(a), row(n * a.d), fast(a.d % 4 == 0 && aligned16(a.f, a.X, a.w == 1 ? nullptr : a.lambda))
    {
    }
    __device__ float4 update(size_t i) const
    {
        const float4 lambda = lambda_of(a.lambda, a.w, i, a.d, fast);
        const float4 x = fma4(lambda, load_row4(a.f + row, i, a.d, fast), load_row4(a.X + row, i, a.d, fast));
        store_row4(a.X + row, i, a.d, fast, x);
        return x;
    }
    __device__ void finish() const {}
};

UPDATE_KERNELS(scale_fwd, scale_row, scale_args)

/* Partial sums of dlambda: (rows' blocks, d), or one number a block. */
KERNEL(scale_bwd, 128, struct cuda_scale_grad)
{
    SHARED(float, sums, WARPS);
    const struct scale_grad_args &op = a.op;
    const column_block block(op.d);
    const size_t d = op.d, i = block.column;
    const bool fast = d % 4 == 0 && aligned16(op.f, op.G, op.X, op.df) &&
                      aligned16(op.w == 1 ? nullptr : op.lambda) && aligned8(op.df16);
    float4 sum = make_float4(0, 0, 0, 0);
    for (size_t n = block.first; i < d && n < op.N; n += block.step) {
        const size_t row = n * d;
        const float4 lambda = lambda_of(op.lambda, op.w, i, d, fast);
        const float4 f = load_row4(op.f + row, i, d, fast), g = load_row4(op.G + row, i, d, fast);
        sum = fma4(f, g, sum);
        put_row4(op.df, op.df16, row, i, d, fast, multiply4(lambda, g));
        if (op.X)
            store_row4(op.X + row, i, d, fast,
                       fma4(scale4(lambda, -1), f, load_row4(op.X + row, i, d, fast)));
    }
    if (op.w != 1 && op.dlambda && i < d)
        store_row4(a.partial + block.first * d, i, d, false, sum);
    if (op.w != 1 || !op.dlambda)
        return;
    const float total = block_sum(sum.x + sum.y + sum.z + sum.w, sums);
    if (threadIdx.x == 0)
        a.partial[blockIdx.x] = total;
}

/* ---- gated ---- */

struct gated_row {
    const struct gated_args &a;
    size_t row;
    float beta;
    bool fast;

    __device__ gated_row(const struct gated_args &a, size_t n, float *)
        : a(a), row(n * a.d), beta(a.beta[n]), fast(a.d % 4 == 0 && aligned16(a.f, a.X))
    {
    }
    __device__ float4 update(size_t i) const
    {
        const float4 x =
            fma4(splat4(beta), load_row4(a.f + row, i, a.d, fast), load_row4(a.X + row, i, a.d, fast));
        store_row4(a.X + row, i, a.d, fast, x);
        return x;
    }
    __device__ void finish() const {}
};

UPDATE_KERNELS(gated_fwd, gated_row, gated_args)

struct gated_grad_row {
    const struct gated_grad_args &a;
    size_t n, row;
    float beta, dbeta;
    float *sums;
    bool fast;

    __device__ gated_grad_row(const struct gated_grad_args &a, size_t n, float *sums)
        : a(a), n(n), row(n * a.d), beta(a.beta[n]), dbeta(0), sums(sums),
          fast(a.d % 4 == 0 && aligned16(a.f, a.G, a.X, a.df) && aligned8(a.df16))
    {
    }
    /* Returns X, 0 if it is not reversed. */
    __device__ float4 update(size_t i)
    {
        const float4 f = load_row4(a.f + row, i, a.d, fast), g = load_row4(a.G + row, i, a.d, fast);
        dbeta += dot4(f, g);
        put_row4(a.df, a.df16, row, i, a.d, fast, scale4(g, beta));
        if (!a.X)
            return splat4(0);
        const float4 x = fma4(splat4(-beta), f, load_row4(a.X + row, i, a.d, fast));
        store_row4(a.X + row, i, a.d, fast, x);
        return x;
    }
    __device__ void finish()
    {
        dbeta = block_sum(dbeta, sums);
        if (threadIdx.x == 0)
            a.dbeta[n] = dbeta;
    }
};

UPDATE_KERNELS(gated_bwd, gated_grad_row, gated_grad_args)

/* ---- highway ---- */

__device__ inline float4 sigmoid4(float4 x)
{
    return make_float4(sigmoid(x.x), sigmoid(x.y), sigmoid(x.z), sigmoid(x.w));
}

__device__ inline float4 one_minus4(float4 x)
{
    return make_float4(1 - x.x, 1 - x.y, 1 - x.z, 1 - x.w);
}

struct highway_row {
    const struct highway_args &a;
    size_t row;
    float *taus;
    bool wide, fast;
    float one;

    __device__ highway_row(const struct highway_args &a, size_t n, float *)
        : a(a), row(n * a.d), taus(a.tau + n * a.w), wide(a.w != 1),
          fast(a.d % 4 == 0 && aligned16(a.f, a.X) && (!wide || aligned16(a.b, a.tau))),
          one(wide ? 0 : sigmoid(*taus + *a.b))
    {
        __syncthreads(); /* all have read it */
    }
    __device__ float4 update(size_t i) const
    {
        float4 tau = splat4(one);
        if (wide) {
            tau = sigmoid4(add4(load_row4(taus, i, a.d, fast), load_row4(a.b, i, a.d, fast)));
            store_row4(taus, i, a.d, fast, tau);
        }
        const float4 kept = multiply4(one_minus4(tau), load_row4(a.X + row, i, a.d, fast));
        const float4 x = fma4(tau, load_row4(a.f + row, i, a.d, fast), kept);
        store_row4(a.X + row, i, a.d, fast, x);
        return x;
    }
    __device__ void finish() const
    {
        if (!wide && threadIdx.x == 0)
            *taus = one;
    }
};

UPDATE_KERNELS(highway_fwd, highway_row, highway_args)

/* tau per feature: partial sums (rows' blocks, d) of db. */
KERNEL(highway_bwd, 128, struct cuda_highway_grad)
{
    const struct highway_grad_args &op = a.op;
    const column_block block(op.d);
    const size_t d = op.d, i = block.column;
    const bool fast = d % 4 == 0 && aligned16(op.X, op.f, op.tau, op.G) && aligned16(op.dX, op.df, op.dz) &&
                      aligned8(op.df16) && aligned8(op.dz16);
    float4 sum = make_float4(0, 0, 0, 0);
    if (i >= d)
        return;
    for (size_t n = block.first; n < op.N; n += block.step) {
        const size_t row = n * d;
        const float4 g = load_row4(op.G + row, i, d, fast), tau = load_row4(op.tau + row, i, d, fast);
        const float4 change =
            fma4(splat4(-1), load_row4(op.X + row, i, d, fast), load_row4(op.f + row, i, d, fast));
        const float4 dz = multiply4(multiply4(g, change), multiply4(tau, one_minus4(tau)));
        put_row4(op.dz, op.dz16, row, i, d, fast, dz);
        put_row4(op.df, op.df16, row, i, d, fast, multiply4(tau, g));
        store_row4(op.dX + row, i, d, fast, multiply4(one_minus4(tau), g));
        sum = add4(sum, dz);
    }
    store_row4(a.partial + block.first * d, i, d, false, sum);
}

/* tau per row: partial sums of db, one of each block. */
KERNEL(highway_one_bwd, 128, struct cuda_highway_grad)
{
    SHARED(float, sums, WARPS);
    const struct highway_grad_args &op = a.op;
    const size_t d = op.d;
    const bool fast =
        d % 4 == 0 && aligned16(op.X, op.f, op.G) && aligned16(op.dX, op.df) && aligned8(op.df16);
    float total = 0;
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        const size_t row = n * d;
        const float tau = op.tau[n];
        float dtau = 0;
        EACH_FOUR(i, d)
        {
            const float4 g = load_row4(op.G + row, i, d, fast);
            dtau += dot4(
                g, fma4(splat4(-1), load_row4(op.X + row, i, d, fast), load_row4(op.f + row, i, d, fast)));
            put_row4(op.df, op.df16, row, i, d, fast, scale4(g, tau));
            store_row4(op.dX + row, i, d, fast, scale4(g, 1 - tau));
        }
        const float dz = block_sum(dtau, sums) * tau * (1 - tau);
        total += dz;
        if (threadIdx.x == 0)
            put(op.dz, op.dz16, n, dz);
    }
    if (threadIdx.x == 0)
        a.partial[blockIdx.x] = total;
}

/* ---- laurel ---- */

struct mixture {
    float m0, m1;
};

__device__ inline mixture mixture_of(const float *mix)
{
    const float more = mix ? mix[1] - mix[0] : 0;
    return { 2 / (1 + expf(more)), 2 / (1 + expf(-more)) };
}

struct laurel_row {
    const struct laurel_args &a;
    size_t n, row;
    bool fast;
    mixture m;

    __device__ laurel_row(const struct laurel_args &a, size_t n, float *)
        : a(a), n(n), row(n * a.d), fast(a.d % 4 == 0 && aligned16(a.f, a.X)), m(mixture_of(a.mix))
    {
    }
    __device__ float4 update(size_t i) const
    {
        const float4 kept = scale4(load_row4(a.X + row, i, a.d, fast), m.m1);
        const float4 x = fma4(splat4(m.m0), load_row4(a.f + row, i, a.d, fast), kept);
        store_row4(a.X + row, i, a.d, fast, x);
        return x;
    }
    __device__ void finish() const
    {
        for (size_t j = threadIdx.x; j < a.r; j += blockDim.x) {
            const float low = a.low[n * a.r + j] * m.m1;
            a.low[n * a.r + j] = low;
            if (a.low16)
                a.low16[n * a.r + j] = bf16_of(low);
        }
    }
};

UPDATE_KERNELS(laurel_fwd, laurel_row, laurel_args)

/* Partial sums of dmix, two of each block. */
KERNEL(laurel_bwd, 128, struct cuda_laurel_grad)
{
    SHARED(float, sums, WARPS);
    const struct laurel_grad_args &op = a.op;
    const size_t d = op.d;
    const bool fast = d % 4 == 0 && aligned16(op.X, op.f, op.G) && aligned16(op.dX, op.df) &&
                      aligned8(op.df16) && aligned8(op.X16);
    const mixture m = mixture_of(op.mix);
    float of_f = 0, of_X = 0, of_low = 0;
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        const size_t row = n * d;
        EACH_FOUR(i, d)
        {
            const float4 g = load_row4(op.G + row, i, d, fast), X = load_row4(op.X + row, i, d, fast);
            of_f += dot4(g, load_row4(op.f + row, i, d, fast));
            of_X += dot4(g, X);
            if (op.X16)
                store_row4_bf16(op.X16 + row, i, d, fast, X);
            put_row4(op.df, op.df16, row, i, d, fast, scale4(g, m.m0));
            store_row4(op.dX + row, i, d, fast, scale4(g, m.m1));
        }
        for (size_t j = n * op.r + threadIdx.x; j < (n + 1) * op.r; j += blockDim.x) {
            of_low += op.dlow[j] * op.low[j];
            put(op.dlow16 ? nullptr : op.dlow, op.dlow16, j, op.dlow[j] * m.m1);
        }
    }
    const float m0dm0 = m.m0 * block_sum(of_f, sums);
    const float m1dm1 = m.m1 * block_sum(of_X, sums) + block_sum(of_low, sums);
    if (threadIdx.x == 0) {
        const float change = m.m1 / 2 * m0dm0 - m.m0 / 2 * m1dm1;
        a.partial[2 * blockIdx.x] = change;
        a.partial[2 * blockIdx.x + 1] = -change;
    }
}

/* ---- weighted sums ---- */

KERNEL(weighted_sum, 128, struct weighted_sum_args)
{
    const bool fast = a.count % 4 == 0 && a.X_stride % 4 == 0 && aligned16(a.X, a.out) && aligned8(a.out16);
    for (size_t i = 4 * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x); i < a.count;
         i += 4 * gridDim.x * static_cast<size_t>(blockDim.x)) {
        float4 sum = a.accumulate ? load_row4(a.out, i, a.count, fast) : splat4(0);
        for (size_t j = 0; j < a.n; j++)
            sum = fma4(splat4(a.w[j * a.w_stride]), load_row4(a.X + j * a.X_stride, i, a.count, fast), sum);
        put_row4(a.out, a.out16, 0, i, a.count, fast, sum);
    }
}

enum { AT_ONCE = 8 }; /* weights */

/* Partial sums of dw, n of each block. */
KERNEL(weighted_sum_bwd, 128, struct cuda_weighted_sum_grad)
{
    SHARED(float, sums, WARPS);
    const struct weighted_sum_grad_args &op = a.op;
    const bool fast = op.count % 4 == 0 && op.X_stride % 4 == 0 && aligned16(op.X, op.G);
    for (size_t first = 0; first < op.n; first += AT_ONCE) {
        float sum[AT_ONCE] = { 0, 0, 0, 0, 0, 0, 0, 0 };
        for (size_t i = 4 * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x); i < op.count;
             i += 4 * gridDim.x * static_cast<size_t>(blockDim.x)) {
            const float4 g = load_row4(op.G, i, op.count, fast);
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; j++)
                if (first + j < op.n)
                    sum[j] += dot4(g, load_row4(op.X + (first + j) * op.X_stride, i, op.count, fast));
        }
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++) {
            if (first + j >= op.n)
                break;
            const float total = block_sum(sum[j], sums);
            if (threadIdx.x == 0)
                a.partial[blockIdx.x * op.n + first + j] = total;
        }
    }
}

/* ---- the element-wise delta rule ---- */

/* The sums over a row of q^2, q x and q y. */
__device__ inline void products_of(const float *q, const float *x, const float *y, size_t d, bool fast,
                                   float *sums, float *inv, float *of_x, float *of_y, float eps)
{
    float squares = 0, with_x = 0, with_y = 0;
    EACH_FOUR(i, d)
    {
        const float4 direction = load_row4(q, i, d, fast);
        squares += dot4(direction, direction);
        with_x += dot4(direction, load_row4(x, i, d, fast));
        with_y += dot4(direction, load_row4(y, i, d, fast));
    }
    *inv = 1 / sqrtf(block_sum(squares, sums) + eps * eps);
    *of_x = *inv * block_sum(with_x, sums);
    *of_y = *inv * block_sum(with_y, sums);
}

KERNEL(elementwise_fwd, 128, struct ddl_elementwise_args)
{
    SHARED(float, sums, WARPS);
    const size_t d = a.d;
    const bool fast = d % 4 == 0 && aligned16(a.x, a.q, a.v, a.x_out);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const size_t row = n * d;
        const float beta = a.beta[n];
        float inv, p, same;
        products_of(a.q + row, a.x + row, a.x + row, d, fast, sums, &inv, &p, &same, a.eps);
        EACH_FOUR(i, d)
        {
            const float4 x = load_row4(a.x + row, i, d, fast),
                         k = scale4(load_row4(a.q + row, i, d, fast), beta * inv);
            const float4 change = add4(load_row4(a.v + row, i, d, fast), splat4(-p));
            store_row4(a.x_out + row, i, d, fast, beta == 0 ? x : fma4(k, change, x));
        }
    }
}

KERNEL(elementwise_bwd, 128, struct ddl_elementwise_grad_args)
{
    SHARED(float, sums, WARPS);
    const size_t d = a.d;
    const bool fast = d % 4 == 0 && aligned16(a.x, a.q, a.v, a.G) && aligned16(a.dx, a.dq, a.dv);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const size_t row = n * d;
        const float beta = a.beta[n];
        float inv, p, s, sum = 0;
        products_of(a.q + row, a.x + row, a.G + row, d, fast, sums, &inv, &p, &s, a.eps);
        EACH_FOUR(i, d)
        {
            const float4 change = add4(load_row4(a.v + row, i, d, fast), splat4(-p));
            sum +=
                dot4(multiply4(load_row4(a.q + row, i, d, fast), change), load_row4(a.G + row, i, d, fast));
        }
        const float dbeta = inv * block_sum(sum, sums), along = beta * (dbeta - s * p);
        EACH_FOUR(i, d)
        {
            const float4 k = scale4(load_row4(a.q + row, i, d, fast), inv),
                         g = load_row4(a.G + row, i, d, fast);
            const float4 change = add4(load_row4(a.v + row, i, d, fast), splat4(-p));
            const float4 dk = scale4(fma4(g, change, scale4(load_row4(a.x + row, i, d, fast), -s)), beta);
            store_row4(a.dq + row, i, d, fast, scale4(fma4(k, splat4(-along), dk), inv));
            store_row4(a.dv + row, i, d, fast, multiply4(scale4(k, beta), g));
            store_row4(a.dx + row, i, d, fast, fma4(k, splat4(-beta * s), g));
        }
        if (threadIdx.x == 0)
            a.dbeta[n] = dbeta;
    }
}
