/* Causal attention in float32, for operands in either format, of sequences with several queries. A block has
 * TILE queries (or keys) of a head and goes through the other side TILE rows at a time, in shared memory.
 * Each of its WARPS warps has MINE of the block's rows, a lane one of the other side's: so a lane has MINE
 * scores. A result sums over the other side in order, from key 0 on, so that it does not depend on what else
 * the batch holds.
 *
 * A lane has the numbers lane + 32 j of each result row, j < WIDE: heads of up to 128 numbers. Wider heads
 * have kernels of their own below. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/sequence.cuh"
#include "backend/cuda/kernels/vectors.cuh"

static constexpr unsigned TILE = CUDA_ATTENTION_TILE, WARPS = 8, MINE = TILE / WARPS, WIDE = 4;
#define NONE (-INFINITY)

/* TILE rows in shared memory, zeros from row `rows` on and from number h to the next multiple of 4. */
__device__ inline void load_tile(float *tile, unsigned pitch, const struct source &s, size_t at, size_t rows,
                                 size_t h)
{
    const unsigned fours = pitch / 4 - 1;
    for (unsigned i = threadIdx.x; i < TILE * fours; i += blockDim.x) {
        const unsigned row = i / fours, column = i % fours * 4;
        const float4 v =
            row < rows ? load_source4(s, at + row * s.stride, column, h) : make_float4(0, 0, 0, 0);
        store4(tile, row * pitch + column, v);
    }
}

/* Numbers from row to row of a tile: the lanes of a quarter warp read different banks. */
__device__ inline unsigned pitch_of(size_t h)
{
    return (static_cast<unsigned>(h) + 3) / 4 * 4 + 4;
}

/* The terms of products of rows in their order, which is the same wherever it matters (attention_stats). */
__device__ inline float add_dot(float sum, float4 x, float4 y)
{
    return sum + (x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w);
}

/* s[j] = mine[j] . theirs */
__device__ inline void dots(float s[MINE], const float *mine, const float *theirs, unsigned pitch)
{
    for (unsigned j = 0; j < MINE; j++)
        s[j] = 0;
    for (unsigned i = 0; i < pitch - 4; i += 4) {
        const float4 y = load4(theirs, i);
#pragma unroll
        for (unsigned j = 0; j < MINE; j++) {
            const float4 x = load4(mine + j * pitch, i);
            s[j] = add_dot(s[j], x, y);
        }
    }
}

/* sums[j] += the rows of the tile, weighted by weights (TILE, MINE). */
__device__ inline void add_rows(float sums[MINE][WIDE], const float *weights, const float *tile,
                                unsigned pitch, size_t h)
{
    const unsigned lane = threadIdx.x % 32;
    for (unsigned row = 0; row < TILE; row++) {
        const float4 w = load4(weights, MINE * row);
#pragma unroll
        for (unsigned k = 0; k < WIDE; k++) {
            const unsigned i = lane + 32 * k;
            if (i >= h)
                continue;
            const float x = tile[row * pitch + i];
            sums[0][k] += w.x * x;
            sums[1][k] += w.y * x;
            sums[2][k] += w.z * x;
            sums[3][k] += w.w * x;
        }
    }
}

/* The row sums[j] of h numbers. */
__device__ inline void put_row(float *y, uint16_t *y16, size_t at, size_t h, const float sum[WIDE],
                               float factor)
{
#pragma unroll
    for (unsigned k = 0; k < WIDE; k++) {
        const unsigned i = threadIdx.x % 32 + 32 * k;
        if (i < h)
            store_either(y, y16, at + i, sum[k] * factor);
    }
}

KERNEL(attention_fwd, 256, struct cuda_attention)
{
    const struct attention_args &op = a.op;
    DYNAMIC_SHARED(float, memory);
    const unsigned pitch = pitch_of(op.h), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *queries = memory, *keys = queries + TILE * pitch, *weights = keys + TILE * pitch;
    float *own_weights = weights + warp * TILE * MINE;
    const size_t first = blockIdx.x % a.tiles * TILE, head = blockIdx.x / a.tiles % op.H;
    const struct sequence s = sequence_of(op, blockIdx.x / a.tiles / op.H);
    if (first >= s.rows || s.rows == 1) /* attention_part.cu */
        return;
    const size_t rows = s.rows - first < TILE ? s.rows - first : TILE, span = s.past + first + rows;
    const struct source q = source_of(op.q, op.q16, op.q_stride, op.h),
                        k = source_of(op.k, op.k16, op.k_stride, op.h),
                        v = source_of(op.v, op.v16, op.v_stride, op.h);
    load_tile(queries, pitch, q, (s.first + first) * op.q_stride + head * op.h, rows, op.h);
    float sums[MINE][WIDE] = {}, top[MINE], total[MINE];
    for (unsigned j = 0; j < MINE; j++) {
        top[j] = NONE;
        total[j] = 0;
    }
    for (size_t key = 0; key < span; key += TILE) {
        const size_t count = span - key < TILE ? span - key : TILE;
        __syncthreads();
        load_tile(keys, pitch, k, s.place * op.k_batch + key * op.k_stride + head * op.h, count, op.h);
        __syncthreads();
        float score[MINE];
        dots(score, queries + warp * MINE * pitch, keys + lane * pitch, pitch);
#pragma unroll
        for (unsigned j = 0; j < MINE; j++) {
            const size_t query = warp * MINE + j;
            const bool sees = query < rows && key + lane <= s.past + first + query;
            const float x = sees ? score[j] * op.scale : NONE;
            float most = x;
            for (int bits = 16; bits > 0; bits /= 2)
                most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, bits));
            most = fmaxf(most, top[j]);
            const float factor = top[j] == NONE ? 0.0f : expf(top[j] - most),
                        w = sees ? expf(x - most) : 0.0f;
            top[j] = most;
            total[j] = total[j] * factor + w;
            for (unsigned i = 0; i < WIDE; i++)
                sums[j][i] *= factor;
            own_weights[lane * MINE + j] = w;
        }
        __syncthreads();
        load_tile(keys, pitch, v, s.place * op.v_batch + key * op.v_stride + head * op.h, count, op.h);
        __syncthreads();
        add_rows(sums, own_weights, keys, pitch, op.h);
    }
#pragma unroll
    for (unsigned j = 0; j < MINE; j++) {
        const size_t query = warp * MINE + j, n = s.first + first + query;
        const float sum = warp_sum(total[j]);
        if (query >= rows)
            continue;
        put_row(op.y, op.y16, (n * op.H + head) * op.h, op.h, sums[j], 1.0f / sum);
        if (op.lse && lane == 0)
            op.lse[n * op.H + head] = top[j] + logf(sum);
    }
}

/* dy . y in the order of dots(): where a query sees one key alone, y is v, and the gradient of the score is
 * exactly 0. */
KERNEL(attention_stats, 256, struct cuda_attention_grad)
{
    const struct attention_grad_args &op = a.op;
    DYNAMIC_SHARED(float, memory);
    const unsigned pitch = pitch_of(op.h), row = threadIdx.x;
    const size_t width = op.H * op.h, first = blockIdx.x % a.tiles * TILE;
    const size_t head = blockIdx.x / a.tiles % op.H, sequence = blockIdx.x / a.tiles / op.H;
    const size_t rows = op.T - first < TILE ? op.T - first : TILE, n = sequence * op.T + first;
    float *dy = memory, *y = dy + TILE * pitch;
    load_tile(dy, pitch, source_of(op.dy, nullptr, width, op.h), n * width + head * op.h, rows, op.h);
    load_tile(y, pitch, source_of(op.y, op.y16, width, op.h), n * width + head * op.h, rows, op.h);
    __syncthreads();
    if (row >= rows)
        return;
    float sum = 0;
    for (unsigned i = 0; i < pitch - 4; i += 4)
        sum = add_dot(sum, load4(dy, row * pitch + i), load4(y, row * pitch + i));
    *stats_of(a, sequence, head, first + row) = make_float2(op.lse[(n + row) * op.H + head], sum);
}

/* The same in the order of dot_rows(), a warp for each row of a head. */
KERNEL(attention_wide_stats, 256, struct cuda_attention_grad)
{
    const struct attention_grad_args &op = a.op;
    const size_t count = op.B * op.T * op.H;
    for (size_t i = blockIdx.x * static_cast<size_t>(WARPS) + threadIdx.x / 32; i < count;
         i += gridDim.x * static_cast<size_t>(WARPS)) {
        float sum = 0;
        for (size_t j = threadIdx.x % 32; j < op.h; j += 32)
            sum += op.dy[i * op.h + j] * load_either(op.y, op.y16, i * op.h + j);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            *stats_of(a, i / op.H / op.T, i % op.H, i / op.H % op.T) = make_float2(op.lse[i], sum);
    }
}

/* The softmax weight of a pair, and the gradient of its score times the scale. */
struct pair_grad {
    float w, ds;
};

__device__ inline struct pair_grad pair_of(bool sees, float score, float dw, float scale, float2 stats)
{
    const float w = sees ? expf(score * scale - stats.x) : 0.0f;
    return { w, sees ? w * (dw - stats.y) * scale : 0.0f };
}

/* What both kernels of the gradient have. */
struct grad_block {
    unsigned pitch, warp, lane;
    size_t first, head, row; /* of the block's tile in its sequence; of the sequence */
    float *a, *b, *c, *d;    /* tiles: mine (a, b) and theirs (c, d) */
    struct source q, k, v, dy;
};

__device__ inline struct grad_block grad_block_of(const struct cuda_attention_grad &a, float *memory)
{
    const struct attention_grad_args &op = a.op;
    struct grad_block g;
    g.pitch = pitch_of(op.h);
    g.warp = threadIdx.x / 32;
    g.lane = threadIdx.x % 32;
    g.first = blockIdx.x % a.tiles * TILE;
    g.head = blockIdx.x / a.tiles % op.H;
    g.row = blockIdx.x / a.tiles / op.H * op.T;
    g.a = memory;
    g.b = g.a + TILE * g.pitch;
    g.c = g.b + TILE * g.pitch;
    g.d = g.c + TILE * g.pitch;
    g.q = source_of(op.q, op.q16, op.q_stride, op.h);
    g.k = source_of(op.k, op.k16, op.k_stride, op.h);
    g.v = source_of(op.v, op.v16, op.v_stride, op.h);
    g.dy = source_of(op.dy, nullptr, op.H * op.h, op.h);
    return g;
}

/* dq_t = sum over s of ds k_s */
KERNEL(attention_bwd_q, 256, struct cuda_attention_grad)
{
    const struct attention_grad_args &op = a.op;
    DYNAMIC_SHARED(float, memory);
    const struct grad_block g = grad_block_of(a, memory);
    float *weights = g.d + TILE * g.pitch + g.warp * TILE * MINE;
    const size_t rows = op.T - g.first < TILE ? op.T - g.first : TILE, at = g.head * op.h;
    load_tile(g.a, g.pitch, g.q, (g.row + g.first) * op.q_stride + at, rows, op.h);
    load_tile(g.b, g.pitch, g.dy, (g.row + g.first) * op.H * op.h + at, rows, op.h);
    float sums[MINE][WIDE] = {};
    float2 stats[MINE];
    const float2 *all = stats_of(a, g.row / op.T, g.head, g.first);
    for (unsigned j = 0; j < MINE; j++) {
        const size_t query = g.warp * MINE + j;
        stats[j] = query < rows ? all[query] : make_float2(0, 0);
    }
    for (size_t key = 0; key < g.first + rows; key += TILE) {
        const size_t count = op.T - key < TILE ? op.T - key : TILE;
        __syncthreads();
        load_tile(g.c, g.pitch, g.k, (g.row + key) * op.k_stride + at, count, op.h);
        load_tile(g.d, g.pitch, g.v, (g.row + key) * op.v_stride + at, count, op.h);
        __syncthreads();
        float score[MINE], dw[MINE];
        dots(score, g.a + g.warp * MINE * g.pitch, g.c + g.lane * g.pitch, g.pitch);
        dots(dw, g.b + g.warp * MINE * g.pitch, g.d + g.lane * g.pitch, g.pitch);
#pragma unroll
        for (unsigned j = 0; j < MINE; j++) {
            const size_t query = g.warp * MINE + j;
            const bool sees = query < rows && key + g.lane <= g.first + query;
            weights[g.lane * MINE + j] = pair_of(sees, score[j], dw[j], op.scale, stats[j]).ds;
        }
        __syncwarp();
        add_rows(sums, weights, g.c, g.pitch, op.h);
    }
    for (unsigned j = 0; j < MINE; j++)
        if (g.warp * MINE + j < rows)
            put_row(op.dq, op.dq16, (g.row + g.first + g.warp * MINE + j) * op.dq_stride + at, op.h, sums[j],
                    1);
}

/* dv_s = sum over t of w dy_t, dk_s = sum over t of ds q_t */
KERNEL(attention_bwd_kv, 256, struct cuda_attention_grad)
{
    const struct attention_grad_args &op = a.op;
    DYNAMIC_SHARED(float, memory);
    const struct grad_block g = grad_block_of(a, memory);
    float *weights = g.d + TILE * g.pitch + g.warp * 2 * TILE * MINE, *grads = weights + TILE * MINE;
    const size_t rows = op.T - g.first < TILE ? op.T - g.first : TILE, at = g.head * op.h;
    load_tile(g.a, g.pitch, g.k, (g.row + g.first) * op.k_stride + at, rows, op.h);
    load_tile(g.b, g.pitch, g.v, (g.row + g.first) * op.v_stride + at, rows, op.h);
    float dk[MINE][WIDE] = {}, dv[MINE][WIDE] = {};
    const float2 *all = stats_of(a, g.row / op.T, g.head, 0);
    for (size_t query = g.first; query < op.T; query += TILE) {
        const size_t count = op.T - query < TILE ? op.T - query : TILE;
        __syncthreads();
        load_tile(g.c, g.pitch, g.q, (g.row + query) * op.q_stride + at, count, op.h);
        load_tile(g.d, g.pitch, g.dy, (g.row + query) * op.H * op.h + at, count, op.h);
        __syncthreads();
        const float2 stats = g.lane < count ? all[query + g.lane] : make_float2(0, 0);
        float score[MINE], dw[MINE];
        dots(score, g.a + g.warp * MINE * g.pitch, g.c + g.lane * g.pitch, g.pitch);
        dots(dw, g.b + g.warp * MINE * g.pitch, g.d + g.lane * g.pitch, g.pitch);
#pragma unroll
        for (unsigned j = 0; j < MINE; j++) {
            const size_t key = g.first + g.warp * MINE + j;
            const bool sees = g.lane < count && key <= query + g.lane;
            const struct pair_grad p = pair_of(sees, score[j], dw[j], op.scale, stats);
            weights[g.lane * MINE + j] = p.w;
            grads[g.lane * MINE + j] = p.ds;
        }
        __syncwarp();
        add_rows(dv, weights, g.d, g.pitch, op.h);
        add_rows(dk, grads, g.c, g.pitch, op.h);
    }
    for (unsigned j = 0; j < MINE; j++) {
        const size_t key = g.warp * MINE + j, n = g.row + g.first + key;
        if (key >= rows)
            continue;
        put_row(op.dk, op.dk16, n * op.dk_stride + at, op.h, dk[j], 1);
        put_row(op.dv, op.dv16, n * op.dv_stride + at, op.h, dv[j], 1);
    }
}

/* ---- heads of more than 128 numbers: a warp has a row of a head, 128 numbers of it at a time, and computes
 * the scores again for each of these parts ---- */

/* The product of two rows, in every lane. */
__device__ inline float dot_rows(const float *x, const uint16_t *x16, size_t i, const float *y,
                                 const uint16_t *y16, size_t j, size_t h)
{
    float sum = 0;
    for (size_t n = threadIdx.x % 32; n < h; n += 32)
        sum += load_either(x, x16, i + n) * load_either(y, y16, j + n);
    return warp_sum(sum);
}

__device__ inline void add_row(float sum[WIDE], float w, const float *x, const uint16_t *x16, size_t i,
                               size_t part, size_t h)
{
#pragma unroll
    for (unsigned k = 0; k < WIDE; k++) {
        const size_t n = part + threadIdx.x % 32 + 32 * k;
        if (n < h)
            sum[k] += w * load_either(x, x16, i + n);
    }
}

__device__ inline void put_part(float *y, uint16_t *y16, size_t i, const float sum[WIDE], float factor,
                                size_t part, size_t h)
{
#pragma unroll
    for (unsigned k = 0; k < WIDE; k++) {
        const size_t n = part + threadIdx.x % 32 + 32 * k;
        if (n < h)
            store_either(y, y16, i + n, sum[k] * factor);
    }
}

/* The warp's row and head: block b has WARPS rows of a head. */
#define WIDE_ROW(H) const size_t head = blockIdx.x % (H), n = blockIdx.x / (H)*WARPS + threadIdx.x / 32

KERNEL(attention_wide_fwd, 256, struct attention_args)
{
    WIDE_ROW(a.H);
    if (n >= a.B * a.T)
        return;
    const size_t b = a.ragged.B ? static_cast<size_t>(a.ragged.sequence[n]) : n / a.T;
    const struct sequence s = sequence_of(a, b);
    if (s.rows == 1)
        return;
    const size_t span = s.past + n - s.first + 1, q = n * a.q_stride + head * a.h;
    const size_t k = s.place * a.k_batch + head * a.h, v = s.place * a.v_batch + head * a.h;
    float top = NONE, total = 0;
    for (size_t key = 0; key < span; key++) {
        const float x = a.scale * dot_rows(a.q, a.q16, q, a.k, a.k16, k + key * a.k_stride, a.h);
        const float most = fmaxf(top, x);
        total = total * (top == NONE ? 0.0f : expf(top - most)) + expf(x - most);
        top = most;
    }
    for (size_t part = 0; part < a.h; part += 32 * WIDE) {
        float sum[WIDE] = {};
        for (size_t key = 0; key < span; key++) {
            const float x = a.scale * dot_rows(a.q, a.q16, q, a.k, a.k16, k + key * a.k_stride, a.h);
            add_row(sum, expf(x - top), a.v, a.v16, v + key * a.v_stride, part, a.h);
        }
        put_part(a.y, a.y16, (n * a.H + head) * a.h, sum, 1.0f / total, part, a.h);
    }
    if (a.lse && threadIdx.x % 32 == 0)
        a.lse[n * a.H + head] = top + logf(total);
}

__device__ inline struct pair_grad wide_pair(const struct cuda_attention_grad &a, size_t row, size_t head,
                                             size_t query, size_t key)
{
    const struct attention_grad_args &op = a.op;
    const size_t n = row + query, m = row + key, at = head * op.h, i = n * op.H + head;
    const float score =
        dot_rows(op.q, op.q16, n * op.q_stride + at, op.k, op.k16, m * op.k_stride + at, op.h);
    const float dw = dot_rows(op.dy, nullptr, i * op.h, op.v, op.v16, m * op.v_stride + at, op.h);
    return pair_of(true, score, dw, op.scale, *stats_of(a, row / op.T, head, query));
}

KERNEL(attention_wide_bwd, 256, struct cuda_attention_grad)
{
    const struct attention_grad_args &op = a.op;
    WIDE_ROW(op.H);
    if (n >= op.B * op.T)
        return;
    const size_t row = n / op.T * op.T, own = n - row, at = head * op.h;
    for (size_t part = 0; part < op.h; part += 32 * WIDE) {
        float dq[WIDE] = {}, dk[WIDE] = {}, dv[WIDE] = {};
        for (size_t key = 0; key <= own; key++)
            add_row(dq, wide_pair(a, row, head, own, key).ds, op.k, op.k16, (row + key) * op.k_stride + at,
                    part, op.h);
        for (size_t query = own; query < op.T; query++) {
            const struct pair_grad p = wide_pair(a, row, head, query, own);
            add_row(dk, p.ds, op.q, op.q16, (row + query) * op.q_stride + at, part, op.h);
            add_row(dv, p.w, op.dy, nullptr, ((row + query) * op.H + head) * op.h, part, op.h);
        }
        put_part(op.dq, op.dq16, n * op.dq_stride + at, dq, 1, part, op.h);
        put_part(op.dk, op.dk16, n * op.dk_stride + at, dk, 1, part, op.h);
        put_part(op.dv, op.dv16, n * op.dv_stride + at, dv, 1, part, op.h);
    }
}
