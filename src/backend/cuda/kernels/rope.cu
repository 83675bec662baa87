/* Rotary embedding, mixed values, rows of caches. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

enum { WARPS = 8 };

/* Number i of a rotated head and its partner: i and i + R/2 for i < R/2; else the number alone. */
struct rotated {
    float first, second;
};

/* `sign` -1: the inverse rotation. */
__device__ inline struct rotated rotate(float x1, float x2, float c, float s, float sign)
{
    return { x1 * c - sign * s * x2, sign * s * x1 + x2 * c };
}

/* V numbers, or pairs, at a time: 1, or 2 where all rows are in bfloat16 and can be read as pairs. */
template <unsigned V> struct numbers {
    float at[V];
};
template <unsigned V> struct pairs {
    struct rotated at[V];
};

template <unsigned V> __device__ inline numbers<V> load_numbers(const float *x, const uint16_t *x16, size_t i)
{
    if constexpr (V == 1) {
        return { { load_either(x, x16, i) } };
    } else {
        const uint32_t two = *reinterpret_cast<const uint32_t *>(x16 + i);
        return { { __uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u) } };
    }
}

template <unsigned V> __device__ inline numbers<V> load_floats(const float *x, size_t i)
{
    if constexpr (V == 1) {
        return { { x[i] } };
    } else {
        const float2 two = *reinterpret_cast<const float2 *>(x + i);
        return { { two.x, two.y } };
    }
}

template <unsigned V>
__device__ inline void store_numbers(float *y, uint16_t *y16, size_t i, const numbers<V> &v)
{
    if constexpr (V == 1)
        store_either(y, y16, i, v.at[0]);
    else
        *reinterpret_cast<uint32_t *>(y16 + i) = bf16_pair(v.at[0], v.at[1]);
}

/* The heads that a warp has, V at a time: 32 / V lanes have one of them. Lane l has the pairs V l .. V l + V
 * - 1, and those 32, 64, ... later, and then the numbers from R on, likewise. A loop over `first` has the
 * same turns in all lanes of the warp; a lane has a head in it if first + `own` < units. */
template <unsigned V> struct heads {
    static constexpr unsigned LANES = 32 / V;
    unsigned H, T, own;
    size_t first, row;
    unsigned t, head; /* t: the row's number in its sequence of T */
    unsigned step, rows, ts, others;

    __device__ heads(size_t heads_of_row, size_t rows_of_sequence)
        : H(static_cast<unsigned>(heads_of_row)), T(static_cast<unsigned>(rows_of_sequence)),
          own(threadIdx.x % 32 / LANES), first(GRID_FIRST / 32 * V), row((first + own) / H),
          t(static_cast<unsigned>(row % T)), head(static_cast<unsigned>(first + own - row * H)),
          step(gridDim.x * blockDim.x / 32 * V), rows(step / H), ts(rows % T), others(step % H)
    {
    }
    /* Without divisions, which take longer than the rest of a turn. */
    __device__ void next()
    {
        first += step;
        row += rows;
        t += ts;
        head += others;
        if (head >= H) {
            head -= H;
            row++;
            t++;
        }
        if (t >= T)
            t -= T;
    }
};

/* The sum over a head's lanes of the sums of their numbers 0, ..., V - 1, in the same order for any V. */
template <unsigned V> __device__ inline float head_sum(numbers<V> x)
{
    for (int bits = 16 / V; bits > 0; bits /= 2)
#pragma unroll
        for (unsigned e = 0; e < V; e++)
            x.at[e] += __shfl_xor_sync(ALL_LANES, x.at[e], bits);
    return V == 1 ? x.at[0] : x.at[0] + x.at[V - 1];
}

/* Pairs that a lane keeps in registers: KEPT times V, those of heads of up to 128 numbers. Later ones are
 * read again. */
static constexpr unsigned KEPT = 2;

/* The rotated pairs i .. i + V - 1 of a head that begins at number `at`. */
template <unsigned V>
__device__ inline pairs<V> rotated_pairs(const float *x, const uint16_t *x16, size_t at, unsigned i,
                                         unsigned half, const float *cosines, const float *sines)
{
    const numbers<V> x1 = load_numbers<V>(x, x16, at + i), x2 = load_numbers<V>(x, x16, at + half + i),
                     c = load_floats<V>(cosines, i), s = load_floats<V>(sines, i);
    pairs<V> r;
#pragma unroll
    for (unsigned e = 0; e < V; e++)
        r.at[e] = rotate(x1.at[e], x2.at[e], c.at[e], s.at[e], 1);
    return r;
}

__device__ inline float squared(struct rotated r)
{
    return r.first * r.first + r.second * r.second;
}

template <unsigned V> __device__ inline void rope_rows(const struct rope_args &a)
{
    const size_t units = a.B * a.T * a.H;
    const unsigned half = static_cast<unsigned>(a.R / 2), h = static_cast<unsigned>(a.h);
    const unsigned lane = V * (threadIdx.x % heads<V>::LANES);
    for (heads<V> u(a.H, a.T); u.first < units; u.next()) {
        const bool any = u.first + u.own < units;
        const unsigned halves = any ? half : 0, end = any ? h : 0;
        const size_t position = a.ragged.B && any ? static_cast<size_t>(a.ragged.position[u.row]) : u.t;
        const float *cosines = a.cos + position * half, *sines = a.sin + position * half;
        const size_t x = u.row * a.x_stride + u.head * a.h, y = u.row * a.y_stride + u.head * a.h;
        pairs<V> kept[KEPT];
        numbers<V> squares = {};
        float rstd = 1;
        const auto add = [&](const pairs<V> &r) {
#pragma unroll
            for (unsigned e = 0; e < V; e++)
                squares.at[e] += squared(r.at[e]);
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const unsigned i = lane + 32 * k;
            if (i < halves) {
                kept[k] = rotated_pairs<V>(a.x, a.x16, x, i, half, cosines, sines);
                add(kept[k]);
            }
        }
        if (a.w) {
#pragma unroll 1
            for (unsigned i = lane + 32 * KEPT; i < halves; i += 32)
                add(rotated_pairs<V>(a.x, a.x16, x, i, half, cosines, sines));
#pragma unroll 1
            for (unsigned i = 2 * half + lane; i < end; i += 32) {
                const numbers<V> own = load_numbers<V>(a.x, a.x16, x + i);
#pragma unroll
                for (unsigned e = 0; e < V; e++)
                    squares.at[e] += own.at[e] * own.at[e];
            }
            rstd = 1.0f / sqrtf(head_sum(squares) / static_cast<float>(a.h) + a.eps);
        }
        const auto write = [&](unsigned i, numbers<V> v) {
            if (a.w) {
                const numbers<V> w = load_floats<V>(a.w, i);
#pragma unroll
                for (unsigned e = 0; e < V; e++)
                    v.at[e] = v.at[e] * rstd * w.at[e];
            }
            store_numbers<V>(a.y, a.y16, y + i, v);
        };
        const auto write_pairs = [&](unsigned i, const pairs<V> &r) {
            numbers<V> first, second;
#pragma unroll
            for (unsigned e = 0; e < V; e++) {
                first.at[e] = r.at[e].first;
                second.at[e] = r.at[e].second;
            }
            write(i, first);
            write(half + i, second);
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++)
            if (lane + 32 * k < halves)
                write_pairs(lane + 32 * k, kept[k]);
#pragma unroll 1
        for (unsigned i = lane + 32 * KEPT; i < halves; i += 32)
            write_pairs(i, rotated_pairs<V>(a.x, a.x16, x, i, half, cosines, sines));
#pragma unroll 1
        for (unsigned i = 2 * half + lane; i < end; i += 32)
            write(i, load_numbers<V>(a.x, a.x16, x + i));
    }
}

KERNEL(rope_fwd, 256, struct rope_args)
{
    rope_rows<1>(a);
}

KERNEL(rope_fwd_bf16, 256, struct rope_args)
{
    rope_rows<2>(a);
}

/* With z = the rotated x, g = w dy: dz = rstd (g - z rstd^2 mean(z g)), dx is dz rotated back, dw sums z rstd
 * dy. Each head of a block's turn has a row of partial sums of dw in shared memory, `sums`; a lane keeps
 * those of its first pairs in registers. Without w, dz = dy. */
template <unsigned V> __device__ inline void rope_grads(const struct cuda_rope_grad &a, float *sums)
{
    constexpr unsigned LANES = heads<V>::LANES;
    const struct rope_grad_args &op = a.op;
    const size_t units = op.B * op.T * op.H;
    const unsigned half = static_cast<unsigned>(op.R / 2), h = static_cast<unsigned>(op.h);
    const unsigned lane = V * (threadIdx.x % LANES);
    const float *w = op.w;
    float *partial = sums + threadIdx.x / LANES * op.h;
    for (unsigned i = threadIdx.x % LANES; w && i < h; i += LANES)
        partial[i] = 0;
    __syncwarp();
    pairs<V> dw[KEPT] = {};
    for (heads<V> u(op.H, op.T); u.first < units; u.next()) {
        const bool any = u.first + u.own < units;
        const unsigned halves = any ? half : 0, end = any ? h : 0;
        const size_t position = u.t;
        const float *cosines = op.cos + position * half, *sines = op.sin + position * half;
        const size_t x = u.row * op.x_stride + u.head * op.h, dy = u.row * op.dy_stride + u.head * op.h,
                     dx = u.row * op.dx_stride + u.head * op.h;
        pairs<V> z[KEPT], g[KEPT];
        numbers<V> squares = {}, dot = {};
        float rstd = 1, factor = 0;
        const auto gradient = [&](unsigned i) {
            const numbers<V> first = load_numbers<V>(op.dy, op.dy16, dy + i),
                             second = load_numbers<V>(op.dy, op.dy16, dy + half + i);
            pairs<V> g;
#pragma unroll
            for (unsigned e = 0; e < V; e++)
                g.at[e] = { first.at[e], second.at[e] };
            return g;
        };
        const auto rotated_x = [&](unsigned i) {
            return rotated_pairs<V>(op.x, op.x16, x, i, half, cosines, sines);
        };
        const auto take = [&](unsigned i, const pairs<V> &z, const pairs<V> &g) {
            const numbers<V> w1 = load_floats<V>(w, i), w2 = load_floats<V>(w, half + i);
#pragma unroll
            for (unsigned e = 0; e < V; e++) {
                squares.at[e] += squared(z.at[e]);
                dot.at[e] +=
                    z.at[e].first * w1.at[e] * g.at[e].first + z.at[e].second * w2.at[e] * g.at[e].second;
            }
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const unsigned i = lane + 32 * k;
            if (i >= halves)
                continue;
            g[k] = gradient(i);
            if (!w)
                continue;
            z[k] = rotated_x(i);
            take(i, z[k], g[k]);
        }
        if (w) {
#pragma unroll 1
            for (unsigned i = lane + 32 * KEPT; i < halves; i += 32)
                take(i, rotated_x(i), gradient(i));
#pragma unroll 1
            for (unsigned i = 2 * half + lane; i < end; i += 32) {
                const numbers<V> own = load_numbers<V>(op.x, op.x16, x + i),
                                 g = load_numbers<V>(op.dy, op.dy16, dy + i), w1 = load_floats<V>(w, i);
#pragma unroll
                for (unsigned e = 0; e < V; e++) {
                    squares.at[e] += own.at[e] * own.at[e];
                    dot.at[e] += own.at[e] * w1.at[e] * g.at[e];
                }
            }
            rstd = 1.0f / sqrtf(head_sum(squares) / static_cast<float>(op.h) + op.eps);
            factor = rstd * rstd * head_sum(dot) / static_cast<float>(op.h);
        }
        /* Writes pairs of dx; returns their share of dw. */
        const auto finish = [&](unsigned i, const pairs<V> &z, pairs<V> g) {
            const numbers<V> c = load_floats<V>(cosines, i), s = load_floats<V>(sines, i);
            pairs<V> share = {};
            numbers<V> first, second;
            if (w) {
                const numbers<V> w1 = load_floats<V>(w, i), w2 = load_floats<V>(w, half + i);
#pragma unroll
                for (unsigned e = 0; e < V; e++) {
                    const struct rotated zs = z.at[e], gs = g.at[e];
                    share.at[e] = { zs.first * rstd * gs.first, zs.second * rstd * gs.second };
                    g.at[e] = { rstd * (gs.first * w1.at[e] - zs.first * factor),
                                rstd * (gs.second * w2.at[e] - zs.second * factor) };
                }
            }
#pragma unroll
            for (unsigned e = 0; e < V; e++) {
                const struct rotated r = rotate(g.at[e].first, g.at[e].second, c.at[e], s.at[e], -1);
                first.at[e] = r.first;
                second.at[e] = r.second;
            }
            store_numbers<V>(op.dx, op.dx16, dx + i, first);
            store_numbers<V>(op.dx, op.dx16, dx + half + i, second);
            return share;
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const unsigned i = lane + 32 * k;
            if (i >= halves)
                continue;
            const pairs<V> share = finish(i, w ? z[k] : pairs<V>{}, g[k]);
#pragma unroll
            for (unsigned e = 0; e < V; e++)
                dw[k].at[e] = { dw[k].at[e].first + share.at[e].first,
                                dw[k].at[e].second + share.at[e].second };
        }
#pragma unroll 1
        for (unsigned i = lane + 32 * KEPT; i < halves; i += 32) {
            const pairs<V> share = finish(i, w ? rotated_x(i) : pairs<V>{}, gradient(i));
#pragma unroll
            for (unsigned e = 0; w && e < V; e++) {
                partial[i + e] += share.at[e].first;
                partial[half + i + e] += share.at[e].second;
            }
        }
#pragma unroll 1
        for (unsigned i = 2 * half + lane; i < end; i += 32) {
            numbers<V> g = load_numbers<V>(op.dy, op.dy16, dy + i);
            if (w) {
                const numbers<V> z = load_numbers<V>(op.x, op.x16, x + i), w1 = load_floats<V>(w, i);
#pragma unroll
                for (unsigned e = 0; e < V; e++) {
                    partial[i + e] += z.at[e] * rstd * g.at[e];
                    g.at[e] = rstd * (g.at[e] * w1.at[e] - z.at[e] * factor);
                }
            }
            store_numbers<V>(op.dx, op.dx16, dx + i, g);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < KEPT; k++) {
        const unsigned i = lane + 32 * k;
#pragma unroll
        for (unsigned e = 0; w && i < half && e < V; e++) {
            partial[i + e] = dw[k].at[e].first;
            partial[half + i + e] = dw[k].at[e].second;
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; w && i < h; i += blockDim.x) {
        float sum = 0;
        for (unsigned head = 0; head < blockDim.x / LANES; head++)
            sum += sums[head * op.h + i];
        a.partial[blockIdx.x * op.h + i] = sum;
    }
}

KERNEL(rope_bwd, 256, struct cuda_rope_grad)
{
    DYNAMIC_SHARED(float, sums); /* (heads of a turn, h), with w */
    rope_grads<1>(a, sums);
}

KERNEL(rope_bwd_bf16, 256, struct cuda_rope_grad)
{
    DYNAMIC_SHARED(float, sums);
    rope_grads<2>(a, sums);
}

KERNEL(mix_values_fwd, 256, struct mix_values_args)
{
    const float own = a.mix ? a.mix[0] : 1, other = a.mix ? a.mix[1] : 1;
    for (size_t i = GRID_FIRST; i < a.N * a.width; i += GRID_STRIDE) {
        const size_t n = i / a.width, column = i % a.width;
        store_either(a.y, a.y16, n * a.y_stride + column,
                     own * load_either(a.v, a.v16, n * a.v_stride + column) +
                         other * load_either(a.first, a.first16, i));
    }
}

/* Partial sums of dmix: (blocks, 2). */
KERNEL(mix_values_bwd, 256, struct cuda_mix_values_grad)
{
    SHARED(float, sums, WARPS);
    const struct mix_values_grad_args &op = a.op;
    const float m0 = op.mix[0], m1 = op.mix[1];
    float own = 0, other = 0;
    for (size_t i = GRID_FIRST; i < op.N * op.width; i += GRID_STRIDE) {
        const size_t n = i / op.width, column = i % op.width, at = n * op.dv_stride + column;
        const float dy = load_either(op.dv, op.dv16, at);
        own += dy * load_either(op.v, op.v16, n * op.v_stride + column);
        other += dy * load_either(op.first, op.first16, i);
        store_either(op.dv, op.dv16, at, m0 * dy);
        op.dfirst[i] = (op.accumulate ? op.dfirst[i] : 0) + m1 * dy;
    }
    own = block_sum(own, sums);
    other = block_sum(other, sums);
    if (threadIdx.x == 0) {
        a.partial[2 * blockIdx.x] = own;
        a.partial[2 * blockIdx.x + 1] = other;
    }
}

KERNEL(cache_append, 256, struct cache_append_args)
{
    for (size_t i = GRID_FIRST; i < a.ragged.N * a.width; i += GRID_STRIDE) {
        const size_t n = i / a.width, column = i % a.width, from = n * a.src_stride + column;
        const size_t slot = static_cast<size_t>(a.ragged.slot[a.ragged.sequence[n]]);
        const size_t to = slot * a.slot_stride + static_cast<size_t>(a.ragged.position[n]) * a.width + column;
        if (a.src16 && a.dst16)
            a.dst16[to] = a.src16[from];
        else
            store_either(a.dst, a.dst16, to, load_either(a.src, a.src16, from));
    }
}

/* A thread has a column of a sequence and moves its rows in order: a history may be written in place. */
KERNEL(history_push, 256, struct history_push_args)
{
    for (size_t i = GRID_FIRST; i < a.ragged.B * a.width; i += GRID_STRIDE) {
        const size_t b = i / a.width, column = i % a.width, first = static_cast<size_t>(a.ragged.first[b]);
        const size_t rows = static_cast<size_t>(a.ragged.first[b + 1]) - first;
        const float *from = a.history + static_cast<size_t>(a.ragged.from[b]) * a.keep * a.width + column;
        float *to = a.history + static_cast<size_t>(a.ragged.to[b]) * a.keep * a.width + column;
        for (size_t row = 0; row < a.keep; row++) {
            const size_t source = row + rows; /* in the old history followed by the new rows */
            to[row * a.width] =
                source < a.keep ? from[source * a.width] : a.X[(first + source - a.keep) * a.width + column];
        }
    }
}
