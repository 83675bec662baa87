/* Causal attention of sequences with one query, as in decoding (split-KV, flash decoding), in float32 for
 * operands in either format. A block computes parts of a head's keys: a part's scores and their largest, the
 * weights relative to it, their sum and the sum of the weighted values. attention_join adds the parts in
 * their order, so that a sequence has the same bits in any batch and on any device. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/sequence.cuh"

static constexpr unsigned THREADS = 256, PART = CUDA_ATTENTION_PART;
static constexpr unsigned LANES = 8; /* that share a key */
static constexpr unsigned KEYS = PART * LANES / THREADS;

/* Rows of whole vectors, float4 or uint2 (bfloat16), as they are in memory: loads need not wait for each
 * other. */
template <class T> struct vector_rows {
    const T *x;
    size_t stride; /* in vectors */

    /* that a thread loads together */
    static constexpr unsigned fours = 32 / sizeof(T), rows = 64 / sizeof(T);

    __device__ inline T load(size_t row, size_t i) const /* numbers i .. i + 3 */
    {
        return x[row * stride + i / 4];
    }
};

/* Other rows of h numbers. */
struct any_rows {
    struct source s;
    size_t at, h;

    static constexpr unsigned fours = 1, rows = 2;

    __device__ inline float4 load(size_t row, size_t i) const
    {
        return load_source4(s, at + row * s.stride, i, h);
    }
};

/* Calls use(rows) with the rows of h numbers from number `at` on. */
template <class Use> __device__ inline void with_rows(const struct source &s, size_t at, size_t h, Use use)
{
    if (!s.fast || at % 4 != 0)
        use(any_rows{ s, at, h });
    else if (s.x16)
        use(vector_rows<uint2>{ reinterpret_cast<const uint2 *>(s.x16 + at), s.stride / 4 });
    else
        use(vector_rows<float4>{ reinterpret_cast<const float4 *>(s.x + at), s.stride / 4 });
}

__device__ inline float4 numbers_of(float4 v)
{
    return v;
}

__device__ inline float4 numbers_of(uint2 pairs)
{
    return make_float4(__uint_as_float(pairs.x << 16), __uint_as_float(pairs.x & 0xffff0000u),
                       __uint_as_float(pairs.y << 16), __uint_as_float(pairs.y & 0xffff0000u));
}

/* scores[i] = scale query . key i, for `count` keys. */
template <class Rows>
__device__ inline void score_keys(float *scores, const float *query, const Rows &keys, unsigned count,
                                  const struct attention_args &op)
{
    const unsigned lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    float sum[KEYS] = {};
    for (size_t start = 4 * lane; start < op.h; start += 4 * LANES * Rows::fours) {
        decltype(keys.load(0, 0)) loaded[Rows::fours][KEYS] = {};
#pragma unroll
        for (unsigned n = 0; n < Rows::fours; n++)
#pragma unroll
            for (unsigned j = 0; j < KEYS; j++) {
                const unsigned key = first + j * (THREADS / LANES);
                const size_t i = start + 4 * LANES * n;
                if (key < count && i < op.h)
                    loaded[n][j] = keys.load(key, i);
            }
#pragma unroll
        for (unsigned n = 0; n < Rows::fours; n++) {
            const size_t i = start + 4 * LANES * n;
            if (i >= op.h)
                break;
            const float4 x = load4(query, i);
#pragma unroll
            for (unsigned j = 0; j < KEYS; j++)
                sum[j] += dot4(x, numbers_of(loaded[n][j]));
        }
    }
#pragma unroll
    for (unsigned j = 0; j < KEYS; j++) {
        const unsigned key = first + j * (THREADS / LANES);
        for (unsigned bits = LANES / 2; bits > 0; bits /= 2)
            sum[j] += __shfl_xor_sync(ALL_LANES, sum[j], bits);
        if (lane == 0 && key < count)
            scores[key] = sum[j] * op.scale;
    }
}

/* weights[i] = exp(x_i - top), with n pairs (x_i, y_i) = get(i) and top the largest x_i. Returns top and the
 * sum of weights[i] y_i. Each warp computes all of it. */
template <class Get> __device__ inline float2 softmax(size_t n, Get get, float *weights)
{
    const unsigned lane = threadIdx.x % 32;
    float top = -INFINITY, total = 0;
    for (size_t i = lane; i < n; i += 32)
        top = fmaxf(top, get(i).x);
    for (int bits = 16; bits > 0; bits /= 2)
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, bits));
    for (size_t i = lane; i < n; i += 32) {
        const float2 pair = get(i);
        const float w = expf(pair.x - top);
        total += w * pair.y;
        if (threadIdx.x < 32)
            weights[i] = w;
    }
    return make_float2(top, warp_sum(total));
}

/* Calls put(i, sum) with numbers i .. i + 3, for each i, of the sum of n rows of h numbers, each times its
 * weight. A group of threads has every groups-th row; groups are added in their order. */
template <class Rows, class Put>
__device__ inline void add_rows(const float *weights, size_t n, const Rows &rows, size_t h, float4 *sums,
                                Put put)
{
    const unsigned fours = h < 4 * THREADS ? (static_cast<unsigned>(h) + 3) / 4 : THREADS;
    const unsigned groups = THREADS / fours, group = threadIdx.x / fours;
    for (size_t first = 0; first < h; first += 4 * fours) {
        const size_t i = first + 4 * (threadIdx.x % fours);
        float4 sum = splat4(0);
        if (group < groups && i < h) {
            for (size_t row = group; row < n; row += Rows::rows * groups) {
                decltype(rows.load(0, 0)) loaded[Rows::rows] = {};
#pragma unroll
                for (unsigned j = 0; j < Rows::rows; j++)
                    if (row + j * groups < n)
                        loaded[j] = rows.load(row + j * groups, i);
#pragma unroll
                for (unsigned j = 0; j < Rows::rows; j++)
                    if (row + j * groups < n)
                        sum = fma4(splat4(weights[row + j * groups]), numbers_of(loaded[j]), sum);
            }
        }
        __syncthreads();
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (group > 0 || i >= h)
            continue;
        for (unsigned other = 1; other < groups; other++)
            sum = add4(sum, sums[other * fours + threadIdx.x]);
        put(i, sum);
    }
}

/* Divides by the sum of the weights, and writes numbers of the query's row of the result. */
__device__ inline void put_result(const struct attention_args &op, size_t row, size_t i, float4 sum,
                                  float2 stats)
{
    const bool fast = op.h % 4 == 0 && aligned16(op.y) && aligned8(op.y16);
    put_row4(op.y, op.y16, row * op.h, i, op.h, fast, scale4(sum, 1.0f / stats.y));
    if (op.lse && i == 0)
        op.lse[row] = stats.x + logf(stats.y);
}

KERNEL(attention_part, 256, struct cuda_attention_parts)
{
    const struct attention_args &op = a.op;
    DYNAMIC_SHARED(float, query);
    SHARED(float, scores, PART);
    SHARED(float, weights, PART);
    SHARED(float4, sums, THREADS);
    const size_t unit = blockIdx.x / a.blocks, head = unit % op.H;
    const struct sequence s = sequence_of(op, unit / op.H);
    const size_t span = s.past + 1;
    if (s.rows != 1)
        return;
    const struct source q = source_of(op.q, op.q16, op.q_stride, op.h),
                        k = source_of(op.k, op.k16, op.k_stride, op.h),
                        v = source_of(op.v, op.v16, op.v_stride, op.h);
    EACH_FOUR(i, op.h)
    store4(query, i, load_source4(q, s.first * op.q_stride + head * op.h, i, op.h));
    for (size_t part = blockIdx.x % a.blocks; part * PART < span; part += a.blocks) {
        const size_t first = part * PART, k_at = s.place * op.k_batch + first * op.k_stride + head * op.h,
                     v_at = s.place * op.v_batch + first * op.v_stride + head * op.h;
        const unsigned count = span - first < PART ? static_cast<unsigned>(span - first) : PART;
        float *partial = a.partial + (unit * a.parts + part) * a.stride;
        __syncthreads();
        with_rows(k, k_at, op.h, [&](const auto &keys) { score_keys(scores, query, keys, count, op); });
        __syncthreads();
        const float2 stats = softmax(
            count, [&](size_t i) { return make_float2(scores[i], 1); }, weights);
        __syncthreads();
        const auto put = [&](size_t i, float4 sum) {
            if (span <= PART)
                put_result(op, s.first * op.H + head, i, sum, stats);
            else
                store4(partial, i, sum);
        };
        with_rows(v, v_at, op.h,
                  [&](const auto &values) { add_rows(weights, count, values, op.h, sums, put); });
        if (span > PART && threadIdx.x == 0)
            store4(partial, a.stride - 4, make_float4(stats.x, stats.y, 0, 0));
    }
}

KERNEL(attention_join, 256, struct cuda_attention_parts)
{
    const struct attention_args &op = a.op;
    DYNAMIC_SHARED(float, weights);
    SHARED(float4, sums, THREADS);
    const size_t unit = blockIdx.x, head = unit % op.H, stride = a.stride;
    const struct sequence s = sequence_of(op, unit / op.H);
    const size_t parts = (s.past + PART) / PART;
    if (s.rows != 1 || parts == 1)
        return;
    const float *partial = a.partial + unit * a.parts * stride;
    const float2 stats = softmax(
        parts,
        [&](size_t i) { return make_float2(partial[(i + 1) * stride - 4], partial[(i + 1) * stride - 3]); },
        weights);
    __syncthreads();
    const vector_rows<float4> rows = { reinterpret_cast<const float4 *>(partial), stride / 4 };
    add_rows(weights, parts, rows, op.h, sums,
             [&](size_t i, float4 sum) { put_result(op, s.first * op.H + head, i, sum, stats); });
}
