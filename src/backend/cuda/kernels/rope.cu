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

/* A warp has a head of a row. Lane l has the pairs l, l + 32, ... and then the numbers from R on. */
#define FOR_HEADS(rows, H) for (size_t unit = GRID_FIRST / 32; unit < (rows) * (H); unit += GRID_STRIDE / 32)
#define LANE (threadIdx.x % 32)

/* Pairs that a lane keeps in registers: those of heads of up to 128 numbers. Later ones are read again. */
static constexpr unsigned KEPT = 2;

/* The rotated pair i of a head that begins at number x. */
__device__ inline struct rotated rotated_pair(const float *x, const uint16_t *x16, size_t at, size_t i,
                                              size_t half, const float *cosines, const float *sines)
{
    return rotate(load_either(x, x16, at + i), load_either(x, x16, at + half + i), cosines[i], sines[i], 1);
}

__device__ inline float squared(struct rotated r)
{
    return r.first * r.first + r.second * r.second;
}

KERNEL(rope_fwd, 256, struct rope_args)
{
    const size_t half = a.R / 2;
    FOR_HEADS(a.B * a.T, a.H)
    {
        const size_t n = unit / a.H, head = unit % a.H;
        const size_t position = a.ragged.B ? static_cast<size_t>(a.ragged.position[n]) : n % a.T;
        const float *cosines = a.cos + position * half, *sines = a.sin + position * half;
        const size_t x = n * a.x_stride + head * a.h, y = n * a.y_stride + head * a.h;
        struct rotated kept[KEPT];
        float squares = 0, rstd = 1;
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const size_t i = LANE + 32 * k;
            if (i < half) {
                kept[k] = rotated_pair(a.x, a.x16, x, i, half, cosines, sines);
                squares += squared(kept[k]);
            }
        }
        if (a.w) {
            for (size_t i = LANE + 32 * KEPT; i < half; i += 32)
                squares += squared(rotated_pair(a.x, a.x16, x, i, half, cosines, sines));
            for (size_t i = 2 * half + LANE; i < a.h; i += 32)
                squares += load_either(a.x, a.x16, x + i) * load_either(a.x, a.x16, x + i);
            rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.h) + a.eps);
        }
        const auto write = [&](size_t i, struct rotated r) {
            store_either(a.y, a.y16, y + i, r.first * rstd * (a.w ? a.w[i] : 1.0f));
            store_either(a.y, a.y16, y + half + i, r.second * rstd * (a.w ? a.w[half + i] : 1.0f));
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++)
            if (LANE + 32 * k < half)
                write(LANE + 32 * k, kept[k]);
        for (size_t i = LANE + 32 * KEPT; i < half; i += 32)
            write(i, rotated_pair(a.x, a.x16, x, i, half, cosines, sines));
        for (size_t i = 2 * half + LANE; i < a.h; i += 32)
            store_either(a.y, a.y16, y + i, load_either(a.x, a.x16, x + i) * rstd * (a.w ? a.w[i] : 1.0f));
    }
}

/* With z = the rotated x, g = w dy: dz = rstd (g - z rstd^2 mean(z g)), dx is dz rotated back, dw sums z rstd
 * dy. Each warp has a row of partial sums of dw in shared memory; a lane keeps those of its first pairs in
 * registers. Without w, dz = dy. */
KERNEL(rope_bwd, 256, struct cuda_rope_grad)
{
    DYNAMIC_SHARED(float, sums); /* (warps, h), with w */
    const struct rope_grad_args &op = a.op;
    const size_t half = op.R / 2;
    const float *w = op.w;
    float *partial = sums + threadIdx.x / 32 * op.h;
    for (size_t i = LANE; w && i < op.h; i += 32)
        partial[i] = 0;
    __syncwarp();
    struct rotated dw[KEPT] = {};
    FOR_HEADS(op.B * op.T, op.H)
    {
        const size_t n = unit / op.H, head = unit % op.H;
        const float *cosines = op.cos + n % op.T * half, *sines = op.sin + n % op.T * half;
        const size_t x = n * op.x_stride + head * op.h, dy = n * op.dy_stride + head * op.h,
                     dx = n * op.dx_stride + head * op.h;
        struct rotated z[KEPT], g[KEPT];
        float squares = 0, dot = 0, rstd = 1, factor = 0;
        const auto gradient = [&](size_t i) {
            return rotated{ load_either(op.dy, op.dy16, dy + i), load_either(op.dy, op.dy16, dy + half + i) };
        };
        const auto rotated_x = [&](size_t i) {
            return rotated_pair(op.x, op.x16, x, i, half, cosines, sines);
        };
        const auto take = [&](size_t i, struct rotated z, struct rotated g) {
            squares += squared(z);
            dot += z.first * w[i] * g.first + z.second * w[half + i] * g.second;
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const size_t i = LANE + 32 * k;
            if (i >= half)
                continue;
            g[k] = gradient(i);
            if (!w)
                continue;
            z[k] = rotated_x(i);
            take(i, z[k], g[k]);
        }
        if (w) {
            for (size_t i = LANE + 32 * KEPT; i < half; i += 32)
                take(i, rotated_x(i), gradient(i));
            for (size_t i = 2 * half + LANE; i < op.h; i += 32) {
                const float own = load_either(op.x, op.x16, x + i);
                squares += own * own;
                dot += own * w[i] * load_either(op.dy, op.dy16, dy + i);
            }
            rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(op.h) + op.eps);
            factor = rstd * rstd * warp_sum(dot) / static_cast<float>(op.h);
        }
        /* Writes a pair of dx; returns its share of dw. */
        const auto finish = [&](size_t i, struct rotated z, struct rotated g) {
            rotated share = {};
            if (w) {
                share = { z.first * rstd * g.first, z.second * rstd * g.second };
                g = { rstd * (g.first * w[i] - z.first * factor),
                      rstd * (g.second * w[half + i] - z.second * factor) };
            }
            const struct rotated r = rotate(g.first, g.second, cosines[i], sines[i], -1);
            store_either(op.dx, op.dx16, dx + i, r.first);
            store_either(op.dx, op.dx16, dx + half + i, r.second);
            return share;
        };
#pragma unroll
        for (unsigned k = 0; k < KEPT; k++) {
            const size_t i = LANE + 32 * k;
            if (i >= half)
                continue;
            const struct rotated share = finish(i, w ? z[k] : rotated{}, g[k]);
            dw[k] = { dw[k].first + share.first, dw[k].second + share.second };
        }
        for (size_t i = LANE + 32 * KEPT; i < half; i += 32) {
            const struct rotated share = finish(i, w ? rotated_x(i) : rotated{}, gradient(i));
            if (w) {
                partial[i] += share.first;
                partial[half + i] += share.second;
            }
        }
        for (size_t i = 2 * half + LANE; i < op.h; i += 32) {
            float g = load_either(op.dy, op.dy16, dy + i);
            if (w) {
                const float z = load_either(op.x, op.x16, x + i);
                partial[i] += z * rstd * g;
                g = rstd * (g * w[i] - z * factor);
            }
            store_either(op.dx, op.dx16, dx + i, g);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < KEPT; k++) {
        const size_t i = LANE + 32 * k;
        if (w && i < half) {
            partial[i] = dw[k].first;
            partial[half + i] = dw[k].second;
        }
    }
    __syncthreads();
    for (size_t i = threadIdx.x; w && i < op.h; i += blockDim.x) {
        float sum = 0;
        for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
            sum += sums[warp * op.h + i];
        a.partial[blockIdx.x * op.h + i] = sum;
    }
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
