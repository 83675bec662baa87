/* Causal attention in bfloat16 on tensor cores: heads of 16, 32, ... 128 numbers. A block has QUERIES queries
 * of a head, 16 of them a warp, and goes through the keys KEYS at a time. While it multiplies by keys their
 * values are copied to shared memory, and while it multiplies by values the next keys are. Scores, sums and
 * the softmax are float32; its weights are rounded to bfloat16 for the product with the values.
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
    for (unsigned i = threadIdx.x; i < count * (h / 8); i += THREADS) {
        const unsigned row = i / (h / 8), column = i % (h / 8) * 8;
        uint16_t *to = tile + row * pitch + column;
        if (row < rows)
            cp_async_16(to, x + row * stride + column);
        else
            *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
    }
    cp_async_commit();
}

/* Of four 8 x 8 matrices in a block of 16 x 16 at `block`: the row of lane l % 8 of matrix l / 8. By rows:
 * the second matrix is below the first; by columns: it is beside it. */
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

/* STEPS: blocks of 16 numbers that a head has at most. */
template <unsigned STEPS> __device__ inline void forward(const struct cuda_attention &a, uint16_t *memory)
{
    const struct attention_args &op = a.op;
    const unsigned h = static_cast<unsigned>(op.h), steps = h / 16, pitch = h + 8;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint16_t *queries = memory, *keys = queries + QUERIES * pitch, *values = keys + KEYS * pitch;
    uint16_t *own = queries + warp * 16 * pitch;
    const size_t first = blockIdx.x % a.tiles * QUERIES, head = blockIdx.x / a.tiles % op.H;
    const struct sequence s = sequence_of(op, blockIdx.x / a.tiles / op.H);
    if (first >= s.rows)
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
        uint32_t weights[KEYS / 8][2];
#pragma unroll
        for (unsigned n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++)
                score[n][i] = expf(score[n][i] - most[i / 2]);
            total[0] += score[n][0] + score[n][1];
            total[1] += score[n][2] + score[n][3];
            weights[n][0] = bf16_pair(score[n][0], score[n][1]);
            weights[n][1] = bf16_pair(score[n][2], score[n][3]);
        }
#pragma unroll
        for (unsigned n = 0; n < 2 * STEPS; n++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++)
                sums[n][i] *= factor[i / 2];

        cp_async_wait<1>(); /* the values */
        __syncthreads();
#pragma unroll
        for (unsigned n = 0; n < KEYS / 16; n++) {
            const uint32_t w[4] = { weights[2 * n][0], weights[2 * n][1], weights[2 * n + 1][0],
                                    weights[2 * n + 1][1] };
#pragma unroll
            for (unsigned i = 0; i < STEPS; i++) {
                if (i >= steps)
                    continue;
                uint32_t b[4];
                ldmatrix_x4_transposed(b, row_by_rows(values + 16 * n * pitch + 16 * i, pitch));
                mma_bf16_16x8x16(sums[2 * i], w, b);
                mma_bf16_16x8x16(sums[2 * i + 1], w, b + 2);
            }
        }
        __syncthreads();
        if (key + KEYS < span)
            start_values(key + KEYS);
        else
            cp_async_commit();
    }
    cp_async_wait<0>();

    /* The result goes through the warp's rows of the queries' tile, to be stored in whole vectors. */
    for (unsigned r = 0; r < 2; r++) {
        total[r] = row_sum(total[r]);
        const size_t query = 16 * warp + g + 8 * r;
        if (op.lse && t == 0 && query < rows)
            op.lse[(s.first + first + query) * op.H + head] = top[r] + logf(total[r]);
        total[r] = 1.0f / total[r];
    }
#pragma unroll
    for (unsigned n = 0; n < 2 * STEPS; n++)
        if (n < 2 * steps)
            for (unsigned r = 0; r < 2; r++)
                *reinterpret_cast<uint32_t *>(own + (g + 8 * r) * pitch + 8 * n + 2 * t) =
                    bf16_pair(sums[n][2 * r] * total[r], sums[n][2 * r + 1] * total[r]);
    __syncwarp();
    for (unsigned i = lane; i < 16 * (h / 8); i += 32) {
        const unsigned row = i / (h / 8), column = i % (h / 8) * 8;
        if (16 * warp + row < rows)
            *reinterpret_cast<uint4 *>(op.y16 + ((s.first + first + 16 * warp + row) * op.H + head) * h +
                                       column) = *reinterpret_cast<const uint4 *>(own + row * pitch + column);
    }
}

KERNEL(attention_mma_fwd_64, 128, struct cuda_attention)
{
    DYNAMIC_SHARED(uint16_t, memory);
    forward<4>(a, memory);
}

KERNEL(attention_mma_fwd_128, 128, struct cuda_attention)
{
    DYNAMIC_SHARED(uint16_t, memory);
    forward<8>(a, memory);
}
