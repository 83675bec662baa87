/* Mixing weights of hyper-connections: from products of the state with a few weight rows (hyper: of each
 * stream; mhc: of the whole state), one block a token. n <= MOST streams, so MIXES weights at most. hyper's
 * kernels read a state once, into shared memory; mhc's weight rows are as long as the state, and its products
 * are kernels of their own, for several tokens at a time. */
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/streams.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, MOST = DDL_MAX_STREAMS, MIXES = MOST * (MOST + 2) };

/* The streams of a token (n, d): in `held`, shared memory, if that is not NULL. */
__device__ inline const float *hold_streams(float *held, const float *X, size_t n, size_t d, bool fast)
{
    if (!held)
        return X;
    for (size_t j = 0; j < n; j++)
        EACH_FOUR(i, d)
    store_row4(held + j * d, i, d, fast, load_row4(X + j * d, i, d, fast));
    __syncthreads();
    return held;
}

/* Columns i .. i + 3 of x_in = sum_j r_j X_:j of a token, which are stored; r in shared memory. */
__device__ inline float4 read_streams(float *x_in, const float *X, const float *r, size_t n, size_t d,
                                      size_t i, bool fast)
{
    float4 sum = splat4(0);
    for (size_t j = 0; j < n; j++)
        sum = fma4(splat4(r[j]), load_row4(X + j * d, i, d, fast), sum);
    store_row4(x_in, i, d, fast, sum);
    return sum;
}

/* sums[j] = dx_in . X_:j of a token, in shared memory after a barrier. */
__device__ inline void read_streams_bwd(float *sums, float *parts, const float *dx_in, const float *X,
                                        size_t n, size_t d, bool fast)
{
    float own[MOST] = {};
    EACH_FOUR(i, d)
    {
        const float4 dx = load_row4(dx_in, i, d, fast);
#pragma unroll
        for (unsigned j = 0; j < MOST; j++)
            if (j < n)
                own[j] += dot4(dx, load_row4(X + j * d, i, d, fast));
    }
#pragma unroll
    for (unsigned j = 0; j < MOST; j++) {
        const float sum = j < n ? warp_sum(own[j]) : 0;
        if (threadIdx.x % 32 == 0)
            parts[threadIdx.x / 32 * MOST + j] = sum;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        float sum = 0;
        for (unsigned warp = 0; warp < WARPS; warp++)
            sum += parts[warp * MOST + threadIdx.x];
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
}

/* dz (n, outputs) in shared memory, the gradient of products with W (outputs, d) of each of n streams, and
 * the sums dW of a block, likewise, a column of which is one thread's. */
struct stream_products_grad {
    unsigned outputs; /* 0: none */
    const float *dz, *W;
    float *dW;
};

/* The gradient of a token's state, in place: dX_:j = sum_k M_kj G_:k + r_j dx_in - by_j X_:j + W^T dz_j.
 * Calls then(i, columns i .. i + 3 of it). */
template <class Then>
__device__ inline void state_bwd(float *dX, const float *X, const float *w, const float *dx_in,
                                 const float *by, struct stream_products_grad products, size_t n, size_t d,
                                 bool fast, Then then)
{
    const float *r = w, *M = w + 2 * n;
    EACH_FOUR(i, d)
    {
        float4 G[MOST], next[MOST] = {};
#pragma unroll
        for (unsigned k = 0; k < MOST; k++)
            G[k] = k < n ? load_row4(dX + k * d, i, d, fast) : splat4(0);
        const float4 dx = load_row4(dx_in, i, d, fast);
#pragma unroll
        for (unsigned j = 0; j < MOST; j++) {
            if (j >= n)
                continue;
            next[j] = scale4(dx, r[j]);
#pragma unroll
            for (unsigned k = 0; k < MOST; k++)
                if (k < n)
                    next[j] = fma4(splat4(M[k * n + j]), G[k], next[j]);
            if (by)
                next[j] = fma4(splat4(-by[j]), load_row4(X + j * d, i, d, fast), next[j]);
        }
        for (unsigned o = 0; o < products.outputs; o++) {
            const float4 W = load_row4(products.W + o * d, i, d, fast);
            float4 dW = load_row4(products.dW + o * d, i, d, fast);
#pragma unroll
            for (unsigned j = 0; j < MOST; j++) {
                if (j >= n)
                    continue;
                const float4 dz = splat4(products.dz[j * products.outputs + o]);
                next[j] = fma4(dz, W, next[j]);
                dW = fma4(dz, load_row4(X + j * d, i, d, fast), dW);
            }
            store_row4(products.dW + o * d, i, d, fast, dW);
        }
#pragma unroll
        for (unsigned j = 0; j < MOST; j++)
            if (j < n)
                store_row4(dX + j * d, i, d, fast, next[j]);
        then(i, next);
    }
}

/* ---- hyper-connections: thread j (n + 2) + o has weight o of stream j ---- */

/* t and rstd of a token, whose streams are X; `ts` is t in shared memory. A warp has a stream at a time, and
 * adds the columns as row_products does. */
__device__ inline void stream_products(const struct hyper_args &a, size_t token, const float *X, float *ts,
                                       bool fast)
{
    const unsigned n = static_cast<unsigned>(a.n), out = n + 2, lane = threadIdx.x % 32;
    for (unsigned j = threadIdx.x / 32; j < n; j += WARPS) {
        float sum[MOST + 2] = {}, squares = 0, product = 0;
        for (size_t i = 4 * lane; i < a.d; i += 4 * 32) {
            const float4 x = load_row4(X + j * a.d, i, a.d, fast);
            squares += dot4(x, x);
#pragma unroll
            for (unsigned o = 0; o < MOST + 2; o++)
                if (o < out)
                    sum[o] += dot4(x, load_row4(a.Wf + o * a.d, i, a.d, fast));
        }
        const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.d) + a.eps);
#pragma unroll
        for (unsigned o = 0; o < MOST + 2; o++) {
            const float total = o < out ? warp_sum(sum[o]) : 0;
            product = lane == o ? total : product;
        }
        if (lane < out)
            a.t[(token * n + j) * out + lane] = ts[j * out + lane] = product * rstd;
        if (lane == 0)
            a.rstd[token * n + j] = rstd;
    }
}

/* w of a token, and in shared memory r. */
__device__ inline void hyper_weights(const struct hyper_args &a, size_t token, const float *ts, float *reads)
{
    const unsigned n = static_cast<unsigned>(a.n), out = n + 2, j = threadIdx.x / out, o = threadIdx.x % out;
    float *w = a.w + token * n * out;
    if (j >= n)
        return;
    float x = o < n + 1 ? a.alpha[j * (n + 1) + o] : a.beta[j];
    if (a.Wf)
        x += (o < n + 1 ? *a.a : *a.e) * tanhf(ts[threadIdx.x]);
    const unsigned k = o - 1; /* of M_kj */
    if (o == 0)
        w[j] = reads[j] = x;
    else if (o == n + 1)
        w[n + j] = x;
    else
        w[2 * n + k * n + j] = a.identity ? (k == j ? 1.0f : 0.0f) : x;
}

/* t, rstd and w of a token, whose streams are X, and in shared memory r and t. */
__device__ inline void hyper_mix(const struct hyper_args &a, size_t token, const float *X, float *ts,
                                 float *reads, bool fast)
{
    if (a.Wf)
        stream_products(a, token, X, ts, fast);
    __syncthreads();
    hyper_weights(a, token, ts, reads);
    __syncthreads();
}

KERNEL(hyper_fwd, 128, struct cuda_hyper)
{
    DYNAMIC_SHARED(float, held); /* (n, d), if a.held */
    SHARED(float, ts, MIXES);
    SHARED(float, reads, MOST);
    const struct hyper_args &op = a.op;
    const size_t n = op.n, d = op.d;
    const bool fast = d % 4 == 0 && aligned16(op.X, op.x_in, op.Wf);
    for (size_t token = blockIdx.x; token < op.N; token += gridDim.x) {
        __syncthreads(); /* the last token's are still read */
        const float *X = hold_streams(a.held ? held : nullptr, op.X + token * n * d, n, d, fast);
        hyper_mix(op, token, X, ts, reads, fast);
        EACH_FOUR(i, d)
        read_streams(op.x_in + token * d, X, reads, n, d, i, fast);
    }
}

KERNEL(hyper_fwd_read, 128, struct cuda_hyper_read)
{
    DYNAMIC_SHARED(float, held); /* (n, d) and (d) */
    SHARED(float, ts, MIXES);
    SHARED(float, reads, MOST);
    SHARED(float, sums, WARPS);
    const struct hyper_args &op = a.op;
    const size_t n = op.n, d = op.d;
    const bool fast = d % 4 == 0 && aligned16(op.X, op.x_in, op.Wf) && aligned16(a.write.X, a.write.f);
    for (size_t token = blockIdx.x; token < op.N; token += gridDim.x) {
        __syncthreads(); /* the last token's are still read */
        if (a.write.N)
            write_streams(a.write, token, held, fast);
        else
            hold_streams(held, op.X + token * n * d, n, d, fast);
        __syncthreads();
        hyper_mix(op, token, held, ts, reads, fast);
        read_row(a.then, token, held + n * d, sums,
                 [&](size_t i) { return read_streams(op.x_in + token * d, held, reads, n, d, i, fast); });
    }
}

/* Shared memory of the gradients. */
struct hyper_shared {
    float reads[MOST], parts[WARPS * MOST], by[MOST], terms[MIXES], dz[MIXES];
};

/* Calls then(token, i, columns i .. i + 3 of the token's dX), and finish(token). Partial sums of each block:
 * dalpha (n (n + 1)), dbeta (n), da, de, and if `held`, shared memory of (n, d) and dWf, is not NULL, dWf (n
 * + 2, d). */
template <class Then, class Finish>
__device__ inline void hyper_grads(const struct hyper_grad_args &op, float *held, struct hyper_shared &shared,
                                   float *partials, Then then, Finish finish)
{
    const unsigned n = static_cast<unsigned>(op.n), out = n + 2, j = threadIdx.x / out, o = threadIdx.x % out;
    const bool fast = op.d % 4 == 0 && aligned16(op.X, op.dx_in, op.dX, op.Wf);
    const struct stream_products_grad products = { held && op.Wf ? out : 0, shared.dz, op.Wf,
                                                   held ? held + n * op.d : nullptr };
    float dstatic = 0, dfactor = 0;
    for (unsigned p = 0; p < products.outputs; p++)
        EACH_FOUR(i, op.d)
    store_row4(products.dW + p * op.d, i, op.d, fast, splat4(0));
    for (size_t token = blockIdx.x; token < op.N; token += gridDim.x) {
        const float *X = hold_streams(held, op.X + token * n * op.d, n, op.d, fast),
                    *dw = op.dw + token * n * out;
        read_streams_bwd(shared.reads, shared.parts, op.dx_in + token * op.d, X, n, op.d, fast);
        if (j < n) {
            const float grad = o == 0       ? shared.reads[j]
                               : o == n + 1 ? dw[n + j]
                                            : dw[2 * n + (o - 1) * n + j];
            dstatic += grad;
            if (op.Wf) {
                const size_t at = (token * n + j) * out + o;
                const float value = tanhf(op.t[at]), rstd = op.rstd[token * n + j];
                dfactor += grad * value;
                const float dz = grad * (o < n + 1 ? *op.a : *op.e) * (1 - value * value) * rstd;
                op.dz[at] = shared.dz[threadIdx.x] = dz;
                shared.terms[threadIdx.x] = dz * op.t[at] * rstd / static_cast<float>(op.d);
            }
        }
        __syncthreads();
        if (op.Wf && threadIdx.x < n) {
            float sum = 0;
            for (unsigned i = 0; i < out; i++)
                sum += shared.terms[threadIdx.x * out + i];
            shared.by[threadIdx.x] = sum;
        }
        __syncthreads();
        state_bwd(op.dX + token * n * op.d, X, op.w + token * n * out, op.dx_in + token * op.d,
                  op.Wf ? shared.by : nullptr, products, n, op.d, fast,
                  [&](size_t i, const float4(&dX)[MOST]) { then(token, i, dX); });
        finish(token);
        __syncthreads();
    }
    const size_t few = n * out + 2;
    float *partial = partials + blockIdx.x * (few + products.outputs * op.d);
    for (unsigned p = 0; p < products.outputs; p++)
        EACH_FOUR(i, op.d)
    store_row4(partial + few + p * op.d, i, op.d, false, load_row4(products.dW + p * op.d, i, op.d, fast));
    if (j < n) {
        partial[o < n + 1 ? j * (n + 1) + o : n * (n + 1) + j] = dstatic;
        shared.terms[threadIdx.x] = dfactor;
    }
    __syncthreads();
    if (threadIdx.x < 2) { /* da, de */
        float sum = 0;
        for (unsigned i = 0; i < n * out; i++)
            sum += (i % out == n + 1) == (threadIdx.x == 1) ? shared.terms[i] : 0;
        partial[n * out + threadIdx.x] = sum;
    }
}

KERNEL(hyper_bwd, 128, struct cuda_hyper_grad)
{
    DYNAMIC_SHARED(float, held);
    SHARED(struct hyper_shared, shared, 1);
    hyper_grads(
        a.op, a.held ? held : nullptr, *shared, a.partial, [](size_t, size_t, const float4(&)[MOST]) {},
        [](size_t) {});
}

KERNEL(hyper_bwd_write, 128, struct cuda_hyper_grad_write)
{
    DYNAMIC_SHARED(float, held); /* as above, after a row (d) */
    SHARED(struct hyper_shared, shared, 1);
    SHARED(float, sums, WARPS *MOST *(MOST + 1));
    SHARED(float, squares, WARPS);
    const struct streams_write_grad_args &write = a.write;
    const size_t d = a.op.d;
    const bool fast = d % 4 == 0 && aligned16(a.op.dX, write.X, write.f) && aligned16(write.df, write.x_in) &&
                      aligned8(write.df16);
    float *row = held;
    stream_write_grads grads;
    hyper_grads(
        a.op, held + (d + 3) / 4 * 4, *shared, a.partial,
        [&](size_t token, size_t i, const float4(&G)[MOST]) {
            store_row4(row, i, d, fast, grads.add(write, token, i, fast, [&](unsigned k) { return G[k]; }));
        },
        [&](size_t token) {
            grads.finish<WARPS>(write, token, sums);
            grads = stream_write_grads();
            if (a.then.norm.N)
                read_row(a.then, token, row, squares, [&](size_t i) { return load_row4(row, i, d, fast); });
        });
}

/* ---- manifold-constrained hyper-connections: thread p has weight p ---- */

/* t = x W^T without its factor, and rstd = rsqrt(mean(x^2) + eps), of each row. */
KERNEL(streams_products, 128, struct cuda_streams_products)
{
    row_products<PRODUCT_MANY>(
        a.rows, a.outputs, a.width, a.x, a.W,
        [&](size_t row, size_t o, float product) { a.t[row * a.outputs + o] = product; },
        [&](size_t row, float squares) {
            a.rstd[row] = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
        });
}

/* Of thread p's weight: 0: reading, 1: writing, 2: mixing. */
__device__ inline unsigned part_of(unsigned p, unsigned n)
{
    return p < n ? 0 : p < 2 * n ? 1 : 2;
}

__device__ inline const float *part(const float *const *list, unsigned i)
{
    return i == 0 ? list[0] : i == 1 ? list[1] : list[2];
}

/* Sinkhorn's algorithm on M (n, n) in shared memory, in double, by the first warp: a thread of the first n
 * has a column or a row. `sums`: (2 iterations, n) sums of columns and of rows in turn, and as many
 * reciprocals of them, or NULL. */
__device__ inline void sinkhorn(unsigned n, unsigned iterations, double *M, double *sums)
{
    enum { EACH = MOST * MOST / 32 };
    const unsigned i = threadIdx.x, steps = 2 * iterations;
    double exps[EACH];
#pragma unroll
    for (unsigned k = 0; k < EACH; k++) {
        const unsigned at = i + 32 * k, column = at % n;
        double top = M[column];
#pragma unroll 1
        for (unsigned row = 1; row < n; row++)
            top = M[row * n + column] > top ? M[row * n + column] : top;
        exps[k] = at < n * n ? exp(M[at] - top) : 0;
    }
    __syncwarp();
#pragma unroll
    for (unsigned k = 0; k < EACH; k++)
        if (i + 32 * k < n * n)
            M[i + 32 * k] = exps[k];
    for (unsigned step = 0; step < steps; step++) {
        double *line = step % 2 == 0 ? M + i : M + i * n;
        const unsigned apart = step % 2 == 0 ? n : 1;
        __syncwarp();
        if (i < n) {
            double own[MOST], sum = 0;
#pragma unroll
            for (unsigned k = 0; k < MOST; k++)
                own[k] = k < n ? line[k * apart] : 0;
#pragma unroll
            for (unsigned k = 0; k < MOST; k++)
                if (k < n)
                    sum += own[k];
            const double reciprocal = 1 / sum;
#pragma unroll
            for (unsigned k = 0; k < MOST; k++)
                if (k < n)
                    line[k * apart] = own[k] * reciprocal;
            if (sums) {
                sums[step * n + i] = sum;
                sums[(steps + step) * n + i] = reciprocal;
            }
        }
    }
    __syncwarp();
}

/* From the result M and its gradient dM to the gradient before the exponential; M is taken back step by step.
 */
__device__ inline void sinkhorn_bwd(unsigned n, unsigned iterations, double *M, double *dM,
                                    const double *sums)
{
    const unsigned i = threadIdx.x, steps = 2 * iterations;
    for (unsigned step = steps; step-- > 0;) {
        const unsigned begin = step % 2 == 0 ? i : i * n, apart = step % 2 == 0 ? n : 1;
        __syncwarp();
        if (i < n) {
            const double sum = sums[step * n + i], reciprocal = sums[(steps + step) * n + i];
            double own[MOST], gradient[MOST], along = 0;
#pragma unroll
            for (unsigned k = 0; k < MOST; k++) {
                own[k] = k < n ? M[begin + k * apart] : 0;
                gradient[k] = k < n ? dM[begin + k * apart] : 0;
            }
#pragma unroll
            for (unsigned k = 0; k < MOST; k++)
                if (k < n)
                    along += gradient[k] * own[k];
#pragma unroll
            for (unsigned k = 0; k < MOST; k++) {
                if (k >= n)
                    continue;
                dM[begin + k * apart] = (gradient[k] - along) * reciprocal;
                M[begin + k * apart] = own[k] * sum;
            }
        }
    }
    __syncwarp();
}

__device__ inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

KERNEL(mhc_fwd, 128, struct mhc_args)
{
    SHARED(float, reads, MOST);
    SHARED(double, M, MOST *MOST);
    const unsigned n = static_cast<unsigned>(a.n), out = n * (n + 2), p = threadIdx.x, kind = part_of(p, n);
    const bool fast = a.d % 4 == 0 && aligned16(a.X, a.x_in);
    for (size_t token = blockIdx.x; token < a.N; token += gridDim.x) {
        float *w = a.w + token * out;
        __syncthreads(); /* the last token's weights are still read */
        if (p < out) {
            float *t = a.t + token * out + p;
            *t *= a.rstd[token];
            const double z = static_cast<double>(*part(a.scale, kind)) * static_cast<double>(*t) +
                             static_cast<double>(part(a.bias, kind)[p - kind * n]);
            if (kind == 0)
                w[p] = reads[p] = static_cast<float>(sigmoid(z));
            else if (kind == 1)
                w[p] = static_cast<float>(2 * sigmoid(z));
            else
                M[p - 2 * n] = z;
        }
        __syncthreads();
        if (p < 32) /* while the other warps read */
            sinkhorn(n, static_cast<unsigned>(a.iterations), M, nullptr);
        EACH_FOUR(i, a.d)
        read_streams(a.x_in + token * a.d, a.X + token * n * a.d, reads, n, a.d, i, fast);
        __syncthreads();
        for (unsigned i = p; i < n * n; i += THREADS)
            w[2 * n + i] = a.identity ? (i % (n + 1) == 0 ? 1.0f : 0.0f) : static_cast<float>(M[i]);
    }
}

/* Partial sums of each block: dbias (n (n + 2)), dscale (3). Dynamic shared memory: the sums of sinkhorn. */
KERNEL(mhc_bwd, 128, struct cuda_mhc_grad)
{
    SHARED(float, reads, MOST);
    SHARED(float, parts, WARPS *MOST);
    SHARED(double, M, MOST *MOST);
    SHARED(double, dM, MOST *MOST);
    SHARED(float, terms, MIXES);
    SHARED(float, by, MOST);
    DYNAMIC_SHARED(double, sums);
    const struct mhc_grad_args &op = a.op;
    const unsigned n = static_cast<unsigned>(op.n), out = n * (n + 2), p = threadIdx.x, kind = part_of(p, n);
    const bool fast = op.d % 4 == 0 && aligned16(op.X, op.dx_in, op.dX);
    float dbias = 0, dscale = 0;
    for (size_t token = blockIdx.x; token < op.N; token += gridDim.x) {
        const float *X = op.X + token * n * op.d;
        const float t = p < out ? op.t[token * out + p] : 0, rstd = op.rstd[token];
        const float scale = p < out ? *part(op.scale, kind) : 0;
        double z = 0;
        read_streams_bwd(reads, parts, op.dx_in + token * op.d, X, n, op.d, fast);
        if (p < out)
            z = static_cast<double>(scale) * static_cast<double>(t) +
                static_cast<double>(part(op.bias, kind)[p - kind * n]);
        if (p < out && kind == 2) {
            M[p - 2 * n] = z;
            dM[p - 2 * n] = static_cast<double>(op.dw[token * out + p]);
        }
        __syncthreads();
        if (p < 32) {
            sinkhorn(n, static_cast<unsigned>(op.iterations), M, sums);
            sinkhorn_bwd(n, static_cast<unsigned>(op.iterations), M, dM, sums);
        }
        __syncthreads();
        if (p < out) {
            const double s = sigmoid(z), grad = kind == 2   ? dM[p - 2 * n] * M[p - 2 * n]
                                                : kind == 1 ? static_cast<double>(op.dw[token * out + p])
                                                            : static_cast<double>(reads[p]);
            const float dz = static_cast<float>(kind == 2 ? grad : (kind == 0 ? 1 : 2) * grad * s * (1 - s));
            dbias += dz;
            dscale += dz * t;
            op.dz[token * out + p] = dz * scale * rstd;
            terms[p] = dz * scale * rstd * t * rstd / static_cast<float>(n * op.d);
        }
        __syncthreads();
        if (p < n) {
            float sum = 0;
            for (unsigned i = 0; i < out; i++)
                sum += terms[i];
            by[p] = sum;
        }
        __syncthreads();
        state_bwd(op.dX + token * n * op.d, X, op.w + token * out, op.dx_in + token * op.d, by, {}, n, op.d,
                  fast, [](size_t, const float4(&)[MOST]) {});
        __syncthreads();
    }
    float *partial = a.partial + blockIdx.x * (out + 3);
    if (p < out) {
        partial[p] = dbias;
        terms[p] = dscale;
    }
    __syncthreads();
    if (p < 3) {
        float sum = 0;
        for (unsigned i = 0; i < out; i++)
            sum += part_of(i, n) == p ? terms[i] : 0;
        partial[out + p] = sum;
    }
}
