/* The state from embeddings, and its compressor: convolutions over tokens and over channels. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/norm.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, TAPS = 8 };

/* The row `back` tokens before row n of X (N, width), which is number t of its dense sequence; of a ragged
 * batch perhaps in its history (histories, keep, width). NULL before the sequence. */
__device__ inline const float *earlier_row(const struct ddl_ragged &ragged, size_t n, size_t t, size_t back,
                                           size_t keep, size_t width, const float *X, const float *history)
{
    if (!ragged.B)
        return t >= back ? X + (n - back) * width : nullptr;
    const size_t b = static_cast<size_t>(ragged.sequence[n]),
                 position = static_cast<size_t>(ragged.position[n]);
    const size_t row = position - static_cast<size_t>(ragged.past[b]); /* of the pass */
    if (position < back)
        return nullptr;
    return row >= back ? X + (n - back) * width
                       : history + (static_cast<size_t>(ragged.from[b]) * keep + keep + row - back) * width;
}

/* ---- embeddings to states ---- */

KERNEL(init_state_fwd, 128, struct init_state_args)
{
    const size_t dc = a.d * a.c, keep = a.K - 1;
    const bool fast = dc % 4 == 0 && aligned16(a.X);
    for (size_t n = blockIdx.x; n < a.B * a.T; n += gridDim.x)
        EACH_FOUR(at, dc)
        {
            float sum[4] = { 0, 0, 0, 0 };
            for (size_t s = 0; s < (a.w ? a.K : 1); s++) {
                const float *x = a.w ? earlier_row(a.ragged, n, n % a.T, keep - s, keep, a.d, a.x, a.history)
                                     : a.x + n * a.d;
#pragma unroll
                for (unsigned e = 0; e < 4; e++)
                    if (x && at + e < dc)
                        sum[e] += (a.w ? a.w[(at + e) * a.K + s] : 1) *
                                  x[static_cast<unsigned>(at + e) / static_cast<unsigned>(a.c)];
            }
            store_row4(a.X + n * dc, at, dc, fast, make_float4(sum[0], sum[1], sum[2], sum[3]));
        }
}

/* dx_t,i = sum_s sum_j w_ij,s dX_(t+K-1-s),ij */
KERNEL(init_state_bwd, 128, struct init_state_grad_args)
{
    const size_t dc = a.d * a.c;
    for (size_t k = GRID_FIRST; k < a.B * a.T * a.d; k += GRID_STRIDE) {
        const size_t n = k / a.d, i = k - n * a.d, t = n % a.T;
        float sum = 0;
        for (size_t at = i * a.c; at < (i + 1) * a.c; at++)
            for (size_t s = 0; s < (a.w ? a.K : 1); s++) {
                const size_t shift = a.w ? a.K - 1 - s : 0;
                if (t + shift < a.T)
                    sum += (a.w ? a.w[at * a.K + s] : 1) * a.dX[(n + shift) * dc + at];
            }
        a.dx[k] = sum;
    }
}

/* Partial sums (rows' blocks, d c K) of dw. */
KERNEL(init_state_weights_bwd, 128, struct cuda_init_state_grad)
{
    const struct init_state_grad_args &op = a.op;
    const size_t dc = op.d * op.c, N = op.B * op.T;
    const column_block block(dc);
    const size_t at = block.column;
    const bool fast = dc % 4 == 0 && aligned16(op.dX);
    for (size_t first = 0; at < dc && first < op.K; first += TAPS) {
        float4 sum[TAPS];
#pragma unroll
        for (unsigned p = 0; p < TAPS; p++)
            sum[p] = splat4(0);
        for (size_t n = block.first; n < N; n += block.step) {
            const float4 g = load_row4(op.dX + n * dc, at, dc, fast);
            const size_t t = n % op.T;
#pragma unroll
            for (unsigned p = 0; p < TAPS; p++) {
                const size_t shift = op.K - 1 - first - p;
                if (first + p >= op.K || shift > t)
                    continue;
                const float *x = op.x + (n - shift) * op.d;
                const size_t last = op.d - 1, i = at / op.c, j = (at + 1) / op.c, k = (at + 2) / op.c,
                             l = (at + 3) / op.c;
                sum[p] = fma4(
                    g,
                    make_float4(x[i], x[j < last ? j : last], x[k < last ? k : last], x[l < last ? l : last]),
                    sum[p]);
            }
        }
#pragma unroll
        for (unsigned p = 0; p < TAPS; p++) {
            const float each[4] = { sum[p].x, sum[p].y, sum[p].z, sum[p].w };
#pragma unroll
            for (unsigned e = 0; e < 4; e++)
                if (first + p < op.K && at + e < dc)
                    a.partial[block.first * dc * op.K + (at + e) * op.K + first + p] = each[e];
        }
    }
}

/* ---- folding ---- */

/* The read weight that tap s of the channel kernel is multiplied with at channel j; out of range: 0. */
__device__ inline float read_at(const float *r, size_t c, size_t K, size_t j, size_t s)
{
    const size_t at = j + (K - 1) / 2 - s; /* wraps below 0 */
    return at < c ? r[at] : 0;
}

KERNEL(fold_fwd, 128, struct fold_args)
{
    const size_t dc = a.d * a.c;
    for (size_t at = GRID_FIRST; at < dc; at += GRID_STRIDE) {
        const size_t i = at / a.c, j = at - i * a.c;
        float sum = 0;
        if (a.kind == DDL_COMPRESS_TOKEN) {
            for (size_t s = 0; s < a.K; s++)
                a.e[s * dc + at] = a.r[j] * a.w[at * a.K + s];
            continue;
        }
        for (size_t s = 0; a.kind == DDL_COMPRESS_CHANNEL && s < a.K; s++)
            sum += a.w[i * a.K + s] * read_at(a.r, a.c, a.K, j, s);
        a.e[at] = a.kind == DDL_COMPRESS_CHANNEL ? sum : a.w[at];
    }
}

KERNEL(fold_bwd, 128, struct fold_grad_args)
{
    const size_t dc = a.d * a.c, n = a.kind == DDL_COMPRESS_CHANNEL ? a.d : dc;
    for (size_t at = GRID_FIRST; at < n; at += GRID_STRIDE) {
        if (a.kind == DDL_COMPRESS_MIX)
            a.dw[at] += a.de[at];
        for (size_t s = 0; a.kind != DDL_COMPRESS_MIX && s < a.K; s++) {
            float sum = 0;
            if (a.kind == DDL_COMPRESS_TOKEN)
                sum = a.r[at % a.c] * a.de[s * dc + at];
            for (size_t j = 0; a.kind == DDL_COMPRESS_CHANNEL && j < a.c; j++)
                sum += read_at(a.r, a.c, a.K, j, s) * a.de[at * a.c + j];
            a.dw[at * a.K + s] += sum;
        }
    }
}

/* dr: block j has the channels j, j + grid, ... */
KERNEL(fold_read_bwd, 128, struct fold_grad_args)
{
    SHARED(float, sums, WARPS);
    const size_t dc = a.d * a.c, left = (a.K - 1) / 2;
    for (size_t j = blockIdx.x; j < a.c; j += gridDim.x) {
        float sum = 0;
        for (size_t i = threadIdx.x; i < a.d; i += blockDim.x)
            for (size_t s = 0; s < a.K; s++) {
                const size_t to = j + s - left; /* wraps below 0 */
                if (a.kind == DDL_COMPRESS_TOKEN)
                    sum += a.w[(i * a.c + j) * a.K + s] * a.de[s * dc + i * a.c + j];
                else if (to < a.c)
                    sum += a.w[i * a.K + s] * a.de[i * a.c + to];
            }
        sum = block_sum(sum, sums);
        if (threadIdx.x == 0)
            a.dr[j] += sum;
    }
}

/* ---- reading the state ---- */

/* sum + e . X over c channels, in ascending order. */
__device__ inline float add_channels(float sum, const float *e, const float *X, size_t c, bool fast)
{
    for (size_t j = 0; fast && j < c; j += 4) {
        const float4 x = load4(X, j), w = load4(e, j);
        sum += w.x * x.x;
        sum += w.y * x.y;
        sum += w.z * x.z;
        sum += w.w * x.w;
    }
    for (size_t j = 0; !fast && j < c; j++)
        sum += e[j] * X[j];
    return sum;
}

enum { TILE = 16 }; /* rows of a block, one after the other: the states of earlier taps are in the cache */

/* A block has TILE rows of `THREADS` features. */
KERNEL(compress_fwd, 128, struct compress_args)
{
    const size_t N = a.B * a.T, dc = a.d * a.c, across = (a.d + THREADS - 1) / THREADS;
    const bool fast = a.c % 4 == 0 && aligned16(a.X, a.e, a.history);
    for (size_t k = blockIdx.x; k < (N + TILE - 1) / TILE * across; k += gridDim.x) {
        const size_t tile = k / across, i = (k - tile * across) * THREADS + threadIdx.x;
        const size_t end = (tile + 1) * TILE < N ? (tile + 1) * TILE : N;
        for (size_t n = tile * TILE; i < a.d && n < end; n++) {
            float sum = 0;
            for (size_t s = 0; s < a.taps; s++) {
                const float *X =
                    earlier_row(a.ragged, n, n % a.T, a.taps - 1 - s, a.taps - 1, dc, a.X, a.history);
                if (X)
                    sum = add_channels(sum, a.e + s * dc + i * a.c, X + i * a.c, a.c, fast);
            }
            a.x_in[n * a.d + i] = sum;
        }
    }
}

/* The first rows of each part, of those that read rows before the part: as compress_fwd, then the norm. */
KERNEL(first_readings, 128, struct cuda_first_readings)
{
    DYNAMIC_SHARED(float, row); /* (d) */
    SHARED(float, sums, WARPS);
    const struct compress_args &op = a.op;
    const size_t N = op.B * op.T, dc = op.d * op.c, part = blockIdx.x / (op.taps - 1),
                 since = blockIdx.x - part * (op.taps - 1), n = part * N / a.parts + since, t = n % op.T;
    const bool fast = op.c % 4 == 0 && aligned16(op.X, op.e), fast_row = op.d % 4 == 0 && aligned16(op.x_in);
    if (n >= (part + 1) * N / a.parts || since >= t)
        return;
    read_row(a.then, n, row, sums, [&](size_t i) {
        float sum[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (unsigned k = 0; k < 4; k++)
            for (size_t s = op.taps - 1 < t ? 0 : op.taps - 1 - t; i + k < op.d && s < op.taps; s++)
                sum[k] = add_channels(sum[k], op.e + s * dc + (i + k) * op.c,
                                      op.X + (n + s + 1 - op.taps) * dc + (i + k) * op.c, op.c, fast);
        const float4 x_in = make_float4(sum[0], sum[1], sum[2], sum[3]);
        store_row4(op.x_in + n * op.d, i, op.d, fast_row, x_in);
        return x_in;
    });
}

/* Partial sums (rows' blocks, taps, d c) of de. A block has consecutive rows. */
KERNEL(compress_bwd, 128, struct cuda_compress_grad)
{
    const struct compress_grad_args &op = a.op;
    const size_t dc = op.d * op.c, N = op.B * op.T, last = op.d - 1;
    const column_block block(dc);
    const size_t at = block.column, begin = block.first * N / block.step,
                 end = (block.first + 1) * N / block.step;
    const bool fast = dc % 4 == 0 && aligned16(op.X, op.e, op.dX);
    size_t feature[4];
#pragma unroll
    for (unsigned e = 0; e < 4; e++)
        feature[e] = (at + e) / op.c < last ? (at + e) / op.c : last;
    for (size_t first = 0; at < dc && first < op.taps; first += TAPS) {
        float4 de[TAPS];
#pragma unroll
        for (unsigned p = 0; p < TAPS; p++)
            de[p] = splat4(0);
        for (size_t n = begin; n < end; n++) {
            const size_t t = n % op.T;
            const float4 x = load_row4(op.X + n * dc, at, dc, fast);
            float4 dX = load_row4(op.dX + n * dc, at, dc, fast);
#pragma unroll
            for (unsigned p = 0; p < TAPS; p++) {
                const size_t shift = op.taps - 1 - first - p;
                if (first + p >= op.taps || t + shift >= op.T)
                    continue;
                const float *g = op.dx_in + (n + shift) * op.d;
                const float4 each = make_float4(g[feature[0]], g[feature[1]], g[feature[2]], g[feature[3]]);
                de[p] = fma4(each, x, de[p]);
                dX = fma4(load_row4(op.e + (first + p) * dc, at, dc, fast), each, dX);
            }
            store_row4(op.dX + n * dc, at, dc, fast, dX);
        }
#pragma unroll
        for (unsigned p = 0; p < TAPS; p++)
            if (first + p < op.taps)
                store_row4(a.partial + (block.first * op.taps + first + p) * dc, at, dc, false, de[p]);
    }
}

/* ---- the embedding's gradient ---- */

enum { AT_ONCE = 8 };

/* A block has a row and 4 `threads` columns: it adds those of all rows of the row's token if that is the
 * token's first, in ascending order. AT_ONCE of them are read before the first is added; `rows` is memory for
 * these. */
template <bool fast>
__device__ inline void add_rows_of_tokens(const struct embed_grad_args &a, float *sums, unsigned *matches,
                                          float *rows)
{
    enum { TOKENS = 4 /* that a thread compares at a time */, WORDS = TOKENS * WARPS };
    const size_t across = (a.d + 4 * THREADS - 1) / (4 * THREADS);
    const unsigned N = static_cast<unsigned>(a.N);
    float *held = rows + 4 * threadIdx.x; /* this thread's columns */
    for (size_t unit = blockIdx.x; unit < N * across; unit += gridDim.x) {
        const unsigned n = static_cast<unsigned>(unit / across);
        const size_t column = 4 * ((unit - n * across) * THREADS + threadIdx.x);
        const int32_t token = a.tokens[n];
        bool earlier = false;
        for (unsigned m = threadIdx.x; m - threadIdx.x < n && !earlier; m += TOKENS * THREADS) {
            bool same = false;
#pragma unroll
            for (unsigned k = 0; k < TOKENS; k++) {
                const int32_t other = m + k * THREADS < n ? a.tokens[m + k * THREADS] : ~token;
                same = same || other == token;
            }
            earlier = __any_sync(ALL_LANES, same);
        }
        if (block_sum(earlier ? 1.0f : 0.0f, sums) > 0)
            continue;
        float *dE = a.dE + static_cast<size_t>(token) * a.d;
        const bool in = column < a.d;
        float4 sum = in ? load_row4(dE, column, a.d, fast) : splat4(0);
        for (unsigned begin = n; begin < N; begin += TOKENS * THREADS) {
            int32_t others[TOKENS];
            unsigned votes[TOKENS];
#pragma unroll
            for (unsigned k = 0; k < TOKENS; k++) {
                const unsigned m = begin + k * THREADS + threadIdx.x;
                others[k] = m < N ? a.tokens[m] : ~token;
            }
#pragma unroll
            for (unsigned k = 0; k < TOKENS; k++)
                votes[k] = __ballot_sync(ALL_LANES, others[k] == token);
            __syncthreads(); /* the last ones are still read */
            if (threadIdx.x % 32 == 0)
#pragma unroll
                for (unsigned k = 0; k < TOKENS; k++)
                    matches[k * WARPS + threadIdx.x / 32] = votes[k];
            __syncthreads();
            unsigned words =
                __ballot_sync(ALL_LANES, threadIdx.x % 32 < WORDS && matches[threadIdx.x % WORDS]);
            for (unsigned left = 0, word = 0; left != 0 || words != 0;) {
                unsigned count = 0; /* of rows that are in `held` */
                for (; count < (fast ? AT_ONCE : 1) && (left != 0 || words != 0); count++) {
                    if (left == 0) {
                        word = static_cast<unsigned>(__ffs(static_cast<int>(words)) - 1);
                        words &= words - 1;
                        left = matches[word];
                    }
                    const unsigned bit = static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1);
                    const float *dx = a.dx + static_cast<size_t>(begin + 32 * word + bit) * a.d;
                    left &= left - 1;
                    if (!in)
                        continue;
                    if (fast)
                        cp_async_16(held + count * 4 * THREADS, dx + column);
                    else
                        sum = add4(sum, load_row4(dx, column, a.d, false));
                }
                if (!fast || !in)
                    continue;
                cp_async_commit();
                cp_async_wait<0>();
#pragma unroll 2
                for (unsigned k = 0; k < count; k++)
                    sum = add4(sum, load4(held, k * 4 * THREADS));
            }
        }
        if (in)
            store_row4(dE, column, a.d, fast, sum);
    }
}

KERNEL(embed_bwd, 128, struct embed_grad_args)
{
    SHARED(float, sums, WARPS);
    SHARED(unsigned, matches, 4 * WARPS);
    SHARED(float, rows, 4 * THREADS * AT_ONCE);
    if (a.d % 4 == 0 && aligned16(a.dx, a.dE))
        add_rows_of_tokens<true>(a, sums, matches, rows);
    else
        add_rows_of_tokens<false>(a, sums, matches, rows);
}
