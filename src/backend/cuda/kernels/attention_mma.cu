/* Causal attention in bfloat16 on tensor cores: heads of 16, 32, ... 128 numbers. A block has QUERIES queries
 * of a head, 16 of them a warp, and goes through the keys KEYS at a time. While it multiplies by keys their
 * values are copied to shared memory, and while it multiplies by values the next keys are. Scores, sums and
 * the softmax are float32; a weight is multiplied as the sum of two bfloat16 numbers, which has 16 bits. The
 * rounding to one of them alone makes an error of 0.6 to 0.85 of a whole model's other roundings in its
 * logits, and the gradients inherit it. So is the gradient of the output; that of a score is rounded once.
 *
 * Fragments are those of mma_bf16_16x8x16 (device.cuh): with g = lane / 4 and t = lane % 4 a lane has the
 * rows g and g + 8 of its warp's queries and the columns 2 t and 2 t + 1 of each block of 8. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/sequence.cuh"
#include "backend/cuda/kernels/vectors.cuh"

static constexpr unsigned QUERIES = CUDA_MMA_QUERIES, KEYS = CUDA_MMA_KEYS, THREADS = 128;
#define NONE (-INFINITY)

/* Starts to copy rows of h numbers to a tile of `count` rows; rows from `rows` on become zeros. */
__device__ inline void copy_tile(uint16_t *tile, unsigned pitch, unsigned count, const uint16_t *x,
                                 size_t stride, size_t rows, unsigned h)
{
    const unsigned n = count * (h / 8);
    for (unsigned first = 0; first < n; first += THREADS) {
        const unsigned i = first + threadIdx.x, row = i / (h / 8), column = i % (h / 8) * 8;
        if (n % THREADS != 0 && i >= n) /* n is a constant where h is */
            break;
        uint16_t *to = tile + row * pitch + column;
        if (row < rows)
            cp_async_16(to, x + row * stride + column);
        else
            *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
    }
    cp_async_commit();
}

/* Of four 8 x 8 matrices in a block of 16 x 16 at `block`: the row of lane l % 8 of matrix l / 8. By rows:
 * the second matrix is below the first; by columns: it is to the right of it. */
__device__ inline const uint16_t *row_by_rows(const uint16_t *block, unsigned pitch)
{
    const unsigned lane = threadIdx.x % 32;
    return block + (lane % 16) * pitch + lane / 16 * 8;
}

__device__ inline const uint16_t *row_by_columns(const uint16_t *block, unsigned pitch)
{
    const unsigned lane = threadIdx.x % 32;
    return block + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

/* The largest, and the sum, over the four lanes that share a row. */
__device__ inline float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

__device__ inline float row_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* What rounding to bfloat16 left of two numbers, rounded likewise. */
__device__ inline uint32_t rest_of_pair(float low, float high, uint32_t rounded)
{
    return bf16_pair(low - __uint_as_float(rounded << 16), high - __uint_as_float(rounded & 0xffff0000u));
}

/* sums (16, h) += weights (16, 8 BLOCKS) times the rows of b. SPLIT: each weight as two bfloat16 numbers. */
template <unsigned STEPS, unsigned BLOCKS, bool SPLIT>
__device__ inline void add_weighted(float sums[2 * STEPS][4], const float weights[BLOCKS][4],
                                    const uint16_t *b, unsigned pitch, unsigned steps)
{
#pragma unroll
    for (unsigned n = 0; n < BLOCKS / 2; n++) {
        const float *even = weights[2 * n], *odd = weights[2 * n + 1];
        const uint32_t left[4] = { bf16_pair(even[0], even[1]), bf16_pair(even[2], even[3]),
                                   bf16_pair(odd[0], odd[1]), bf16_pair(odd[2], odd[3]) };
        const uint32_t rest[4] = { rest_of_pair(even[0], even[1], left[0]),
                                   rest_of_pair(even[2], even[3], left[1]),
                                   rest_of_pair(odd[0], odd[1], left[2]),
                                   rest_of_pair(odd[2], odd[3], left[3]) };
#pragma unroll
        for (unsigned i = 0; i < STEPS; i++) {
            if (i >= steps)
                continue;
            uint32_t right[4];
            ldmatrix_x4_transposed(right, row_by_rows(b + 16 * n * pitch + 16 * i, pitch));
            mma_bf16_16x8x16(sums[2 * i], left, right);
            mma_bf16_16x8x16(sums[2 * i + 1], left, right + 2);
            if (SPLIT) {
                mma_bf16_16x8x16(sums[2 * i], rest, right);
                mma_bf16_16x8x16(sums[2 * i + 1], rest, right + 2);
            }
        }
    }
}

/* Writes the warp's 16 rows of sums through its rows of a tile, in whole vectors. */
template <unsigned STEPS>
__device__ inline void put_rows(uint16_t *y, size_t stride, size_t rows, const float sums[2 * STEPS][4],
                                uint16_t *own, unsigned pitch, unsigned h)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (unsigned n = 0; n < 2 * STEPS; n++)
        if (n < h / 8)
            for (unsigned r = 0; r < 2; r++)
                *reinterpret_cast<uint32_t *>(own + (g + 8 * r) * pitch + 8 * n + 2 * t) =
                    bf16_pair(sums[n][2 * r], sums[n][2 * r + 1]);
    __syncwarp();
    for (unsigned first = 0; first < 16 * (h / 8); first += 32) {
        const unsigned i = first + lane, row = i / (h / 8), column = i % (h / 8) * 8;
        if (row < rows)
            *reinterpret_cast<uint4 *>(y + row * stride + column) =
                *reinterpret_cast<const uint4 *>(own + row * pitch + column);
    }
}

/* The width of a head. STEPS: the blocks of 16 numbers that it has at most; EXACT: that it has, so that the
 * compiler divides by shifts and unrolls. */
template <unsigned STEPS, bool EXACT> __device__ inline unsigned width_of(size_t h)
{
    return EXACT ? 16 * STEPS : static_cast<unsigned>(h);
}

template <unsigned STEPS, bool EXACT>
__device__ inline void forward(const struct cuda_attention &a, uint16_t *memory)
{
    const struct attention_args &op = a.op;
    const unsigned h = width_of<STEPS, EXACT>(op.h), steps = h / 16, pitch = h + 8;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint16_t *queries = memory, *keys = queries + QUERIES * pitch, *values = keys + KEYS * pitch;
    uint16_t *own = queries + warp * 16 * pitch;
    const size_t first = blockIdx.x % a.tiles * QUERIES, head = blockIdx.x / a.tiles % op.H;
    const struct sequence s = sequence_of(op, blockIdx.x / a.tiles / op.H);
    if (first >= s.rows || s.rows == 1) /* attention_part.cu */
        return;
    const size_t rows = s.rows - first < QUERIES ? s.rows - first : QUERIES, span = s.past + first + rows;
    const uint16_t *k = op.k16 + s.place * op.k_batch + head * h,
                   *v = op.v16 + s.place * op.v_batch + head * h;
    const auto start_keys = [&](size_t key) {
        copy_tile(keys, pitch, KEYS, k + key * op.k_stride, op.k_stride, span - key, h);
    };
    const auto start_values = [&](size_t key) {
        copy_tile(values, pitch, KEYS, v + key * op.v_stride, op.v_stride, span - key, h);
    };
    copy_tile(queries, pitch, QUERIES, op.q16 + (s.first + first) * op.q_stride + head * h, op.q_stride, rows,
              h);
    start_keys(0);
    start_values(0);

    uint32_t q[STEPS][4];
    float sums[2 * STEPS][4] = {}, top[2] = { NONE, NONE }, total[2] = {};
    for (size_t key = 0; key < span; key += KEYS) {
        cp_async_wait<1>(); /* the keys; the values are still under way */
        __syncthreads();
        if (key == 0) {
#pragma unroll
            for (unsigned i = 0; i < STEPS; i++)
                if (i < steps)
                    ldmatrix_x4(q[i], row_by_rows(own + 16 * i, pitch));
        }
        float score[KEYS / 8][4] = {};
#pragma unroll
        for (unsigned i = 0; i < STEPS; i++) {
            if (i >= steps)
                continue;
#pragma unroll
            for (unsigned n = 0; n < KEYS / 16; n++) {
                uint32_t b[4];
                ldmatrix_x4(b, row_by_columns(keys + 16 * n * pitch + 16 * i, pitch));
                mma_bf16_16x8x16(score[2 * n], q[i], b);
                mma_bf16_16x8x16(score[2 * n + 1], q[i], b + 2);
            }
        }
        __syncthreads();
        if (key + KEYS < span)
            start_keys(key + KEYS);
        else
            cp_async_commit();

        float most[2] = { top[0], top[1] };
#pragma unroll
        for (unsigned n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                const size_t position = s.past + first + 16 * warp + g + i / 2 * 8;
                score[n][i] = key + 8 * n + 2 * t + i % 2 <= position ? score[n][i] * op.scale : NONE;
                most[i / 2] = fmaxf(most[i / 2], score[n][i]);
            }
        float factor[2];
        for (unsigned r = 0; r < 2; r++) {
            most[r] = row_max(most[r]);
            factor[r] = top[r] == NONE ? 0.0f : expf(top[r] - most[r]);
            top[r] = most[r];
            total[r] *= factor[r];
        }
#pragma unroll
        for (unsigned n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                score[n][i] = expf(score[n][i] - most[i / 2]);
                total[i / 2] += score[n][i];
            }
#pragma unroll
        for (unsigned n = 0; n < 2 * STEPS; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++)
                sums[n][i] *= factor[i / 2];

        cp_async_wait<1>(); /* the values */
        __syncthreads();
        add_weighted<STEPS, KEYS / 8, true>(sums, score, values, pitch, steps);
        __syncthreads();
        if (key + KEYS < span)
            start_values(key + KEYS);
        else
            cp_async_commit();
    }
    cp_async_wait<0>();

    for (unsigned r = 0; r < 2; r++) {
        total[r] = row_sum(total[r]);
        const size_t query = 16 * warp + g + 8 * r;
        if (op.lse && t == 0 && query < rows)
            op.lse[(s.first + first + query) * op.H + head] = top[r] + logf(total[r]);
    }
#pragma unroll
    for (unsigned n = 0; n < 2 * STEPS; n++)
#pragma unroll
        for (unsigned i = 0; i < 4; i++)
            sums[n][i] *= 1.0f / total[i / 2];
    const size_t width = op.H * h;
    if (16 * warp < rows)
        put_rows<STEPS>(op.y16 + (s.first + first + 16 * warp) * width + head * h, width, rows - 16 * warp,
                        sums, own, pitch, h);
}

#define FORWARD(width, steps, exact)                                                                         \
    KERNEL(attention_mma_fwd_##width, 128, struct cuda_attention)                                            \
    {                                                                                                        \
        DYNAMIC_SHARED(uint16_t, memory);                                                                    \
        forward<steps, exact>(a, memory);                                                                    \
    }
FORWARD(to_64, 4, false)
FORWARD(64, 4, true)
FORWARD(to_128, 8, false)
FORWARD(128, 8, true)

/* ---- gradients ---- */

/* Loops over a head are unrolled in parts: the registers of whole ones would cost the kernels a third of
 * their blocks. */

/* Copies rows of float32 numbers as the sums of two bfloat16 numbers, to a tile and to the one after it;
 * rows from `rows` on become zeros. */
template <unsigned STEPS>
__device__ inline void split_tile(uint16_t *tile, unsigned pitch, unsigned count, const float *x,
                                  size_t stride, size_t rows, unsigned h)
{
#pragma unroll(STEPS / 2)
    for (unsigned first = 0; first < count * (h / 4); first += THREADS) {
        const unsigned i = first + threadIdx.x, row = i / (h / 4), column = i % (h / 4) * 4;
        const float4 v = row < rows ? load4(x + row * stride, column) : make_float4(0, 0, 0, 0);
        const uint2 pairs = make_uint2(bf16_pair(v.x, v.y), bf16_pair(v.z, v.w));
        uint16_t *to = tile + row * pitch + column;
        *reinterpret_cast<uint2 *>(to) = pairs;
        *reinterpret_cast<uint2 *>(to + count * pitch) =
            make_uint2(rest_of_pair(v.x, v.y, pairs.x), rest_of_pair(v.z, v.w, pairs.y));
    }
}

/* score (16, 8 BLOCKS) += rows of a times rows of b, over h numbers. */
template <unsigned BLOCKS>
__device__ inline void multiply_rows(float score[BLOCKS][4], const uint16_t *a, const uint16_t *b,
                                     unsigned pitch, unsigned steps)
{
#pragma unroll 2
    for (unsigned i = 0; i < steps; i++) {
        uint32_t left[4];
        ldmatrix_x4(left, row_by_rows(a + 16 * i, pitch));
#pragma unroll
        for (unsigned n = 0; n < BLOCKS / 2; n++) {
            uint32_t right[4];
            ldmatrix_x4(right, row_by_columns(b + 16 * n * pitch + 16 * i, pitch));
            mma_bf16_16x8x16(score[2 * n], left, right);
            mma_bf16_16x8x16(score[2 * n + 1], left, right + 2);
        }
    }
}

/* The block's tile and sequence. */
struct grad_tile {
    unsigned h, steps, pitch, warp, g, t;
    size_t first, head, row, rows; /* of the tile in its sequence; of the sequence; rows of the tile */
};

template <unsigned STEPS, bool EXACT>
__device__ inline struct grad_tile grad_tile_of(const struct cuda_attention_grad &a)
{
    const struct attention_grad_args &op = a.op;
    const unsigned h = width_of<STEPS, EXACT>(op.h), lane = threadIdx.x % 32;
    const size_t first = blockIdx.x % a.tiles * QUERIES;
    return { h,
             h / 16,
             h + 8,
             threadIdx.x / 32,
             lane / 4,
             lane % 4,
             first,
             blockIdx.x / a.tiles % op.H,
             blockIdx.x / a.tiles / op.H * op.T,
             op.T - first < QUERIES ? op.T - first : QUERIES };
}

static constexpr unsigned OTHERS = CUDA_MMA_OTHERS; /* rows of the other side in a step */

/* dq_t = sum over s of ds k_s */
template <unsigned STEPS, bool EXACT>
__device__ inline void backward_q(const struct cuda_attention_grad &a, uint16_t *memory)
{
    const struct attention_grad_args &op = a.op;
    const struct grad_tile b = grad_tile_of<STEPS, EXACT>(a);
    const size_t at = b.head * b.h, width = op.H * b.h;
    uint16_t *q = memory, *dy = q + QUERIES * b.pitch, *dy_rest = dy + QUERIES * b.pitch;
    uint16_t *k = dy_rest + QUERIES * b.pitch, *v = k + OTHERS * b.pitch;
    copy_tile(q, b.pitch, QUERIES, op.q16 + (b.row + b.first) * op.q_stride + at, op.q_stride, b.rows, b.h);
    split_tile<STEPS>(dy, b.pitch, QUERIES, op.dy + (b.row + b.first) * width + at, width, b.rows, b.h);
    float sums[2 * STEPS][4] = {};
    float2 stats[2];
    const float2 *all = stats_of(a, b.row / op.T, b.head, b.first);
    for (unsigned r = 0; r < 2; r++) {
        const size_t query = 16 * b.warp + b.g + 8 * r;
        stats[r] = query < b.rows ? all[query] : make_float2(0, 0);
    }
    for (size_t key = 0; key < b.first + b.rows; key += OTHERS) {
        __syncthreads();
        copy_tile(k, b.pitch, OTHERS, op.k16 + (b.row + key) * op.k_stride + at, op.k_stride, op.T - key,
                  b.h);
        copy_tile(v, b.pitch, OTHERS, op.v16 + (b.row + key) * op.v_stride + at, op.v_stride, op.T - key,
                  b.h);
        cp_async_wait<0>();
        __syncthreads();
        float score[OTHERS / 8][4] = {}, grad[OTHERS / 8][4] = {};
        multiply_rows<OTHERS / 8>(score, q + 16 * b.warp * b.pitch, k, b.pitch, b.steps);
        multiply_rows<OTHERS / 8>(grad, dy + 16 * b.warp * b.pitch, v, b.pitch, b.steps);
        multiply_rows<OTHERS / 8>(grad, dy_rest + 16 * b.warp * b.pitch, v, b.pitch, b.steps);
#pragma unroll
        for (unsigned n = 0; n < OTHERS / 8; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                const size_t query = 16 * b.warp + b.g + i / 2 * 8;
                const bool sees = query < b.rows && key + 8 * n + 2 * b.t + i % 2 <= b.first + query;
                const float w = sees ? expf(score[n][i] * op.scale - stats[i / 2].x) : 0.0f;
                grad[n][i] = w * (grad[n][i] - stats[i / 2].y) * op.scale;
            }
        add_weighted<STEPS, OTHERS / 8, false>(sums, grad, k, b.pitch, b.steps);
    }
    if (16 * b.warp < b.rows)
        put_rows<STEPS>(op.dq16 + (b.row + b.first + 16 * b.warp) * op.dq_stride + at, op.dq_stride,
                        b.rows - 16 * b.warp, sums, q + 16 * b.warp * b.pitch, b.pitch, b.h);
}

/* dv_s = sum over t of w dy_t, dk_s = sum over t of ds q_t; scores have a row for each key. */
template <unsigned STEPS, bool EXACT>
__device__ inline void backward_kv(const struct cuda_attention_grad &a, uint16_t *memory)
{
    const struct attention_grad_args &op = a.op;
    const struct grad_tile b = grad_tile_of<STEPS, EXACT>(a);
    const size_t at = b.head * b.h, width = op.H * b.h;
    uint16_t *k = memory, *v = k + QUERIES * b.pitch, *q = v + QUERIES * b.pitch;
    uint16_t *dy = q + OTHERS * b.pitch, *dy_rest = dy + OTHERS * b.pitch;
    copy_tile(k, b.pitch, QUERIES, op.k16 + (b.row + b.first) * op.k_stride + at, op.k_stride, b.rows, b.h);
    copy_tile(v, b.pitch, QUERIES, op.v16 + (b.row + b.first) * op.v_stride + at, op.v_stride, b.rows, b.h);
    SHARED(float2, stats, OTHERS);
    const float2 *all = stats_of(a, b.row / op.T, b.head, 0);
    float dk[2 * STEPS][4] = {}, dv[2 * STEPS][4] = {};
    for (size_t query = b.first; query < op.T; query += OTHERS) {
        __syncthreads();
        copy_tile(q, b.pitch, OTHERS, op.q16 + (b.row + query) * op.q_stride + at, op.q_stride, op.T - query,
                  b.h);
        split_tile<STEPS>(dy, b.pitch, OTHERS, op.dy + (b.row + query) * width + at, width, op.T - query,
                          b.h);
        if (threadIdx.x < OTHERS && query + threadIdx.x < op.T)
            stats[threadIdx.x] = all[query + threadIdx.x];
        cp_async_wait<0>();
        __syncthreads();
        float score[OTHERS / 8][4] = {}, grad[OTHERS / 8][4] = {};
        multiply_rows<OTHERS / 8>(score, k + 16 * b.warp * b.pitch, q, b.pitch, b.steps);
        multiply_rows<OTHERS / 8>(grad, v + 16 * b.warp * b.pitch, dy, b.pitch, b.steps);
        multiply_rows<OTHERS / 8>(grad, v + 16 * b.warp * b.pitch, dy_rest, b.pitch, b.steps);
#pragma unroll
        for (unsigned n = 0; n < OTHERS / 8; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                const unsigned column = 8 * n + 2 * b.t + i % 2;
                const size_t own = query + column, key = b.first + 16 * b.warp + b.g + i / 2 * 8;
                const bool sees = own < op.T && key <= own;
                const float w = sees ? expf(score[n][i] * op.scale - stats[column].x) : 0.0f;
                score[n][i] = w;
                grad[n][i] = sees ? w * (grad[n][i] - stats[column].y) * op.scale : 0.0f;
            }
        add_weighted<STEPS, OTHERS / 8, true>(dv, score, dy, b.pitch, b.steps);
        add_weighted<STEPS, OTHERS / 8, false>(dv, score, dy_rest, b.pitch, b.steps);
        add_weighted<STEPS, OTHERS / 8, false>(dk, grad, q, b.pitch, b.steps);
    }
    if (16 * b.warp < b.rows) {
        const size_t n = b.row + b.first + 16 * b.warp, rows = b.rows - 16 * b.warp;
        put_rows<STEPS>(op.dk16 + n * op.dk_stride + at, op.dk_stride, rows, dk, k + 16 * b.warp * b.pitch,
                        b.pitch, b.h);
        put_rows<STEPS>(op.dv16 + n * op.dv_stride + at, op.dv_stride, rows, dv, k + 16 * b.warp * b.pitch,
                        b.pitch, b.h);
    }
}

#define GRADIENT(side, width, steps, exact)                                                                  \
    KERNEL(attention_mma_bwd_##side##_##width, 128, struct cuda_attention_grad)                              \
    {                                                                                                        \
        DYNAMIC_SHARED(uint16_t, memory);                                                                    \
        backward_##side<steps, exact>(a, memory);                                                            \
    }
GRADIENT(q, to_64, 4, false)
GRADIENT(q, 64, 4, true)
GRADIENT(q, to_128, 8, false)
GRADIENT(q, 128, 8, true)
GRADIENT(kv, to_64, 4, false)
GRADIENT(kv, 64, 4, true)
GRADIENT(kv, to_128, 8, false)
GRADIENT(kv, 128, 8, true)
