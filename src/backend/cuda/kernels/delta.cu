/* The delta rule. A block has a token at a time: its state is read once and written once, for any number of
 * steps, unless it is too long for the registers. */
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/state.cuh"

/* Shared memory of the block. */
struct workspace {
    float *q;       /* (d) the direction, unless it is too long */
    float *parts;   /* (2, 4 threads) */
    float *squares; /* (threads / 32) of the warps */
    float *sums;    /* (2, c) */

    __device__ workspace(float *shared, size_t c)
        : q(shared + 8 * blockDim.x + blockDim.x / 32 + 2 * c), parts(shared),
          squares(shared + 8 * blockDim.x), sums(squares + blockDim.x / 32)
    {
    }
};

/* k = q inv; the readout is q.X read. */
struct direction {
    const float *q;
    float inv, read, norm;
};

/* All threads read q. */
__device__ inline direction direction_of(const float *q, size_t d, float eps, int form, bool staged,
                                         bool fast, const workspace &w)
{
    float squares = 0;
    __syncthreads(); /* the last step's shared memory is still read */
    for (size_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
        const float4 v = load_row4(q, i, d, fast);
        squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        if (staged)
            store_row4(w.q, i, d, false, v);
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0)
        w.squares[threadIdx.x / 32] = squares;
    __syncthreads();
    squares = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
        squares += w.squares[warp];
    direction k = { staged ? w.q : q, 1, 0, sqrtf(squares) };
    if (form == DDL_FORM_RATIO) {
        k.read = 1 / (squares + eps);
    } else {
        k.inv = 1 / (form == DDL_FORM_L2 ? k.norm + eps : sqrtf(squares + eps * eps));
        k.read = k.inv;
    }
    return k;
}

/* beta (v - p), with the controls' variants of what is written */
__device__ inline float correction(int update, float beta, float v, float p)
{
    return update == DDL_UPDATE_WRITE ? beta * v : update == DDL_UPDATE_ERASE ? -beta * p : beta * (v - p);
}

__device__ inline float4 corrections(int update, float beta, float4 v, float4 p)
{
    return make_float4(correction(update, beta, v.x, p.x), correction(update, beta, v.y, p.y),
                       correction(update, beta, v.z, p.z), correction(update, beta, v.w, p.w));
}

/* X += s k delta^T with s = 1 or -1, and then is X if beta is 0, even where v is infinite. */
template <bool HELD>
__device__ inline void add_correction(const state_shape &s, state_numbers<HELD> &X, direction k, float beta,
                                      float sign, float4 delta)
{
    EACH_CHUNK(m, HELD, s)
    {
        const float4 x = X.get(m);
        X.put(m, beta == 0 ? x : fma4(s.of_features(k.q, m), scale4(delta, sign * k.inv), x));
    }
    X.is_written();
}

/* A kernel with the state in registers, and one for longer states. */
#define STATE_KERNELS(name, body, arguments)                                                                 \
    KERNEL(name, 256, arguments)                                                                             \
    {                                                                                                        \
        DYNAMIC_SHARED(float, shared);                                                                       \
        body<true>(a, state_shape(a.op.d, a.op.c), shared);                                                  \
    }                                                                                                        \
    KERNEL(name##_long, 512, arguments)                                                                      \
    {                                                                                                        \
        DYNAMIC_SHARED(float, shared);                                                                       \
        body<false>(a, state_shape(a.op.d, a.op.c), shared);                                                 \
    }

/* What a kernel does before and after the update of a row's state: nothing. */
struct nothing_else {
    size_t first, end, step; /* rows of the block */

    __device__ explicit nothing_else(size_t N) : first(blockIdx.x), end(N), step(gridDim.x) {}
    template <class State> __device__ void before(const state_shape &, size_t, const State &, State &) {}
    template <class State> __device__ void after(const state_shape &, size_t, const State &) {}
};

/* Reads the state after its update. `EARLY`: the weights are loaded before anything is stored to shared
 * memory, behind which loads would wait; this takes registers, of which a kernel for one channel needs none.
 */
template <bool EARLY> struct reading {
    size_t first, end, step;
    const struct cuda_reading &a;
    float *row, *sums; /* shared: (d), (threads / 32) */
    unsigned stride;   /* numbers of an aligned row */
    /* shared: (taps, stride), of the token n and the next ones what those before n contribute to x_in, at n
     * modulo the taps; a thread has the features of its numbers */
    float *ring;

    __device__ reading(size_t N, const struct cuda_reading &a, float *shared, const state_shape &s)
        : first(a.taps > 1 ? blockIdx.x * N / gridDim.x : blockIdx.x),
          end(a.taps > 1 ? (blockIdx.x + 1) * N / gridDim.x : N), step(a.taps > 1 ? 1 : gridDim.x), a(a),
          row(shared + (8 * blockDim.x + blockDim.x / 32 + 2 * s.c + s.d + 3) / 4 * 4),
          sums(row + (s.d + 3) / 4 * 4), /* 4 numbers or more, so that what follows is aligned */
          stride((s.d + 3) / 4 * 4), ring(sums + blockDim.x / 32)
    {
    }
    /* Where the shared memory after it begins. */
    __device__ float *rest() const
    {
        return ring + (a.taps > 1 ? a.taps * stride : 0);
    }
    template <class State> __device__ void before(const state_shape &, size_t, const State &, State &) {}
    template <class State> __device__ void after(const state_shape &s, size_t n, const State &X) const
    {
        if (!(a.taps > 1 ? read_taps(s, n, X) : read(s, X, a.e, nullptr, row)))
            return;
        __syncthreads();
        const struct rmsnorm_args &norm = a.then.norm;
        const bool fast = s.d % 4 == 0 && aligned16(norm.w, norm.y) && aligned8(norm.y16, norm.x16);
        const norm_row r = { norm, row, n * s.d, fast };
        float squares = 0;
        for (unsigned i = 4 * threadIdx.x; threadIdx.x < NORM_THREADS && i < s.d; i += 4 * NORM_THREADS)
            squares += dot4(r.x(i), r.x(i));
        const float rstd = r.rstd(block_sum(squares, sums));
        for (unsigned i = 4 * threadIdx.x; i < s.d; i += 4 * blockDim.x) {
            if (a.e)
                store_row4(a.x_in + n * s.d, i, s.d, s.d % 4 == 0 && aligned16(a.x_in), r.x(i));
            r.finish(i, r.x(i), rstd);
        }
        if (norm.rstd && threadIdx.x == 0)
            norm.rstd[n] = rstd;
        project_row(a.then, r, n, rstd);
    }

  private:
    /* Adds what token n contributes to the x_in of each token that reads it. False: its own lacks what tokens
     * before the block contribute. */
    template <class State> __device__ bool read_taps(const state_shape &s, size_t n, const State &X) const
    {
        const size_t t = n % a.T, since = n - first;
        for (unsigned p = 0; p < a.taps; p++) {
            const size_t shift = a.taps - 1 - p;
            if (t + shift >= a.T)
                continue;
            float *sum = ring + (n + shift) % a.taps * stride;
            read(s, X, a.e + p * s.numbers, p == 0 || t == 0 || since == 0 ? nullptr : sum,
                 shift == 0 ? row : sum);
        }
        return since >= a.taps - 1 || since >= t;
    }
    /* to = from + e . X of each feature, where a NULL `from` is 0 and a NULL e 1. */
    template <class State>
    __device__ bool read(const state_shape &s, const State &X, const float *e, const float *from,
                         float *to) const
    {
        if (!e) {
            EACH_CHUNK(m, true, s)
            {
                if (s.has(m))
                    store_row4(to, m * s.features + s.feature, s.d, false, X.get(m));
            }
            return true;
        }
        float4 weights[STATE_FOURS];
        if (EARLY) {
            EACH_CHUNK(m, true, s) weights[m] = s.load(e, m, s.fast(e));
        }
        EACH_CHUNK(m, true, s)
        {
            if (s.has(m))
                add_features(s, m, X.get(m), EARLY ? weights[m] : s.load(e, m, s.fast(e)), from, to);
        }
        return true;
    }
    __device__ void add_features(const state_shape &s, unsigned m, float4 x, float4 e, const float *from,
                                 float *to) const
    {
        const unsigned i = m * s.features + s.feature;
        float sum = from ? from[i] : 0;
        sum += e.x * x.x;
        sum += e.y * x.y;
        if (s.c == 2) {
            to[i] = sum;
            sum = from && i + 1 < s.d ? from[i + 1] : 0;
        }
        sum += e.z * x.z;
        sum += e.w * x.w;
        if (s.c == 4)
            to[i] = sum;
        else if (i + 1 < s.d)
            to[i + 1] = sum;
    }
};

/* Adds what reading the state after the update contributes to its gradient, and reads the state before it. */
struct between_readings {
    size_t first, end, step;
    const struct cuda_read_delta_grad &a;
    const reading<true> read;
    float *de; /* shared: (taps, d, c), each number used by one thread */

    __device__ between_readings(const struct cuda_read_delta_grad &a, float *shared, const state_shape &s)
        : first(blockIdx.x * a.op.N / gridDim.x), end((blockIdx.x + 1) * a.op.N / gridDim.x), step(1), a(a),
          read(a.op.N, a.read, shared, s), de(read.rest())
    {
        for (unsigned p = 0; p < a.taps; p++) {
            EACH_CHUNK(m, true, s) s.store(de + p * s.numbers, m, s.fast(de), splat4(0));
        }
    }
    template <class State> __device__ void before(const state_shape &s, size_t n, const State &X, State &G)
    {
        const bool fast = s.fast(a.e), fast_de = s.fast(de);
        const size_t t = n % a.T;
        for (unsigned p = 0; p < a.taps; p++) {
            const size_t shift = a.taps - 1 - p;
            if (t + shift >= a.T)
                continue;
            const float *g = a.dx_in + (n + shift) * s.d, *e = a.e + p * s.numbers;
            float *sum = de + p * s.numbers;
            float4 each[STATE_FOURS];
            EACH_CHUNK(m, true, s) each[m] = s.of_features(g, m);
            EACH_CHUNK(m, true, s) G.put(m, fma4(s.load(e, m, fast), each[m], G.get(m)));
            /* The stores to shared memory come last: no load waits behind one. */
            EACH_CHUNK(m, true, s)
            s.store(sum, m, fast_de, fma4(each[m], X.get(m), s.load(sum, m, fast_de)));
        }
    }
    template <class State> __device__ void after(const state_shape &s, size_t n, const State &X) const
    {
        if (a.reads_again)
            read.after(s, n, X);
    }
    __device__ void finish(const state_shape &s) const
    {
        float *partial = a.partial + blockIdx.x * a.taps * s.numbers;
        for (unsigned p = 0; p < a.taps; p++) {
            const size_t at = p * s.numbers;
            EACH_CHUNK(m, true, s) s.store(partial + at, m, s.fast(partial), s.load(de + at, m, s.fast(de)));
        }
    }
};

template <bool HELD, class Around>
__device__ inline void forward(const struct ddl_delta_args &op, bool staged, const state_shape &s,
                               float *shared, Around &around)
{
    const workspace w(shared, s.c);
    const size_t R = op.steps ? op.steps : 1;
    const bool fast = s.fast(op.X, op.X_out), fast_q = s.d % 4 == 0 && aligned16(op.q);
    for (size_t n = around.first; n < around.end; n += around.step) {
        state_numbers<HELD> X(s, op.X + n * s.numbers, op.X_out + n * s.numbers, fast);
        for (size_t r = n * R; r < (n + 1) * R; r++) {
            const direction k = direction_of(op.q + r * s.d, s.d, op.eps, op.form, staged, fast_q, w);
            float4 sum = make_float4(0, 0, 0, 0);
            EACH_CHUNK(m, HELD, s) sum = fma4(X.get(m), s.of_features(k.q, m), sum);
            store4(w.parts, 4 * threadIdx.x, sum);
            __syncthreads();
            sum_channels(s, 1, w.parts, w.sums);
            __syncthreads();
            for (size_t j = threadIdx.x; op.readout && j < s.c; j += blockDim.x)
                op.readout[r * s.c + j] = w.sums[j] * k.read;
            const float4 v = s.of_channels(op.v + r * s.c), p = scale4(s.of_channels(w.sums), k.read);
            add_correction(s, X, k, op.beta[r], 1, corrections(op.update, op.beta[r], v, p));
        }
        X.finish();
        around.after(s, n, X);
    }
}

template <bool HELD>
__device__ inline void forward_alone(const struct cuda_delta &a, const state_shape &s, float *shared)
{
    nothing_else around(a.op.N);
    forward<HELD>(a.op, a.staged, s, shared, around);
}

STATE_KERNELS(delta_fwd, forward_alone, struct cuda_delta)

KERNEL(delta_fwd_read, 256, struct cuda_delta_read)
{
    DYNAMIC_SHARED(float, shared);
    const state_shape s(a.op.d, a.op.c);
    reading<true> around(a.op.N, a.read, shared, s);
    forward<true>(a.op, true, s, shared, around);
}

template <bool HELD>
__device__ inline void inverse(const struct cuda_delta_inverse &a, const state_shape &s, float *shared)
{
    const struct ddl_delta_inverse_args &op = a.op;
    const workspace w(shared, s.c);
    const size_t R = op.steps ? op.steps : 1;
    const bool fast = s.fast(op.X, op.X_out), fast_q = s.d % 4 == 0 && aligned16(op.q);
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        state_numbers<HELD> X(s, op.X_out + n * s.numbers, op.X + n * s.numbers, fast);
        for (size_t r = (n + 1) * R; r-- > n * R;) {
            const direction k = direction_of(op.q + r * s.d, s.d, op.eps, op.form, a.staged, fast_q, w);
            const float4 v = s.of_channels(op.v + r * s.c), p = s.of_channels(op.readout + r * s.c);
            add_correction(s, X, k, op.beta[r], -1, corrections(op.update, op.beta[r], v, p));
        }
        X.finish();
    }
}

STATE_KERNELS(delta_inverse, inverse, struct cuda_delta_inverse)

/* What the gradient of step r needs besides its channels' numbers: sums over the channels. */
struct channel_totals {
    float dbeta;
    float along; /* k . dk = sum_j g_j (delta_j - beta p_j), each update with its part of it */
    float ratio; /* sum_j g_j p_j */
};

/* The gradients of v and beta of step r, from g = k.G and the readout p. */
__device__ inline channel_totals channel_grads(const struct ddl_delta_grad_args &op, size_t r, size_t c,
                                               float beta, direction k, const float *g_sums,
                                               const float *p_sums)
{
    channel_totals t = { 0, 0, 0 };
    for (size_t j = 0; j < c; j++) {
        const float v = op.v[r * c + j], g = g_sums[j] * k.inv;
        const float p = op.readout ? op.readout[r * c + j] : p_sums[j] * k.read;
        t.dbeta += g * correction(op.update, 1, v, p);
        const float added = correction(op.update, beta, v, p);
        t.along += g * (op.update == DDL_UPDATE_WRITE ? added : fmaf(-beta, p, added));
        t.ratio += g * p;
    }
    for (size_t j = threadIdx.x; j < c; j += blockDim.x)
        op.dv[r * c + j] = op.update == DDL_UPDATE_ERASE ? 0 : beta * (g_sums[j] * k.inv);
    if (threadIdx.x == 0)
        op.dbeta[r] = t.dbeta;
    return t;
}

/* dq of a feature from dk, its sum over the channels. */
__device__ inline float direction_grad(int form, float eps, float beta, direction k, channel_totals t,
                                       float q, float dk)
{
    if (beta == 0) /* every term has a factor beta; an infinite v makes no NaN */
        return 0;
    if (form == DDL_FORM_RATIO)
        return dk + 2 * beta * t.ratio * q * k.read;
    if (form == DDL_FORM_UNIT)
        return (dk - q * k.inv * t.along) * k.inv;
    return k.norm == 0 ? dk / eps : dk * k.inv - q * k.inv * t.along / k.norm;
}

template <bool HELD, class Around>
__device__ inline void backward(const struct ddl_delta_grad_args &op, bool staged, const state_shape &s,
                                float *shared, Around &around)
{
    const workspace w(shared, s.c);
    const size_t R = op.steps ? op.steps : 1, kinds = op.readout ? 1 : 2;
    const bool fast = s.fast(op.X_next ? op.X_next : op.X, op.G, op.dX),
               fast_q = s.d % 4 == 0 && aligned16(op.q);
    for (size_t n = around.first; n < around.end; n += around.step) {
        const size_t at = n * s.numbers;
        state_numbers<HELD> X(s, (op.X_next ? op.X_next : op.X) + at, op.X_next + at, fast);
        state_numbers<HELD> G(s, op.G + at, op.dX + at, fast);
        around.before(s, n, X, G);
        for (size_t r = (n + 1) * R; r-- > n * R;) {
            const direction k = direction_of(op.q + r * s.d, s.d, op.eps, op.form, staged, fast_q, w);
            const float beta = op.beta[r];
            const float4 v = s.of_channels(op.v + r * s.c);
            if (op.X_next)
                add_correction(s, X, k, beta, -1,
                               corrections(op.update, beta, v, s.of_channels(op.readout + r * s.c)));
            float4 g = make_float4(0, 0, 0, 0), p = g;
            EACH_CHUNK(m, HELD, s)
            {
                const float4 q = s.of_features(k.q, m);
                g = fma4(G.get(m), q, g);
                if (!op.readout)
                    p = fma4(X.get(m), q, p);
            }
            store4(w.parts, 4 * threadIdx.x, g);
            if (!op.readout)
                store4(w.parts + 4 * blockDim.x, 4 * threadIdx.x, p);
            __syncthreads();
            sum_channels(s, static_cast<unsigned>(kinds), w.parts, w.sums);
            __syncthreads();
            const channel_totals t = channel_grads(op, r, s.c, beta, k, w.sums, w.sums + s.c);
            g = scale4(s.of_channels(w.sums), k.inv);
            p = op.readout ? s.of_channels(op.readout + r * s.c)
                           : scale4(s.of_channels(w.sums + s.c), k.read);
            const float4 delta = corrections(op.update, beta, v, p);
            const bool erases = op.update != DDL_UPDATE_WRITE && beta != 0;
            const float erase = !erases ? 0 : op.form == DDL_FORM_RATIO ? beta * k.read : beta;
            const float4 from_X = scale4(g, -erase), from_q = scale4(g, -beta * k.read);
            EACH_CHUNK(m, HELD, s)
            {
                const float4 x = X.get(m), gradient = G.get(m);
                const float4 zero = make_float4(0, 0, 0, 0);
                const float4 dk = fma4(x, from_X, fma4(gradient, delta, zero));
                G.put(m, erases ? fma4(s.of_features(k.q, m), from_q, gradient) : gradient);
                sum_features(s, m, dk, w.parts, [&](unsigned i, float sum) {
                    const float dq = direction_grad(op.form, op.eps, beta, k, t, k.q[i], sum);
                    if (op.dq16)
                        op.dq16[r * s.d + i] = bf16_of(dq);
                    else
                        op.dq[r * s.d + i] = dq;
                });
            }
            G.is_written();
        }
        if (op.X_next)
            X.finish();
        G.finish();
        around.after(s, n, X);
    }
}

template <bool HELD>
__device__ inline void backward_alone(const struct cuda_delta_grad &a, const state_shape &s, float *shared)
{
    nothing_else around(a.op.N);
    backward<HELD>(a.op, a.staged, s, shared, around);
}

STATE_KERNELS(delta_bwd, backward_alone, struct cuda_delta_grad)

KERNEL(delta_bwd_read, 256, struct cuda_delta_grad_read)
{
    DYNAMIC_SHARED(float, shared);
    const state_shape s(a.op.d, a.op.c);
    reading<false> around(a.op.N, a.read, shared, s);
    backward<true>(a.op, true, s, shared, around);
}

KERNEL(read_delta_bwd, 256, struct cuda_read_delta_grad)
{
    DYNAMIC_SHARED(float, shared);
    const state_shape s(a.op.d, a.op.c);
    between_readings around(a, shared, s);
    backward<true>(a.op, true, s, shared, around);
    around.finish(s);
}
